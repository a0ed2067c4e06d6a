package redis

import (
	"context"
	_ "embed"
	"errors"
	"slices"
	"strconv"
	"strings"

	goredis "github.com/redis/go-redis/v9"

	"weir/internal/store"
	"weir/internal/store/far"
	"weir/internal/wire"
)

//go:embed review.lua
var reviewSource string

var reviewScript = goredis.NewScript(reviewSource)

const (
	// walkKeys is about how many keys of the server a step of a walk looks at.
	walkKeys = 512
	// reviewKeys is how many near keys are reviewed by a script.
	reviewKeys = 256
)

// walk looks for keys of a namespace that were near before their limits were watched.
type walk struct {
	far.Walk
	cursor uint64
	run    string // the server's process in which cursor is a place
}

// tendFleet does some of what there is to do in a namespace whose senders advance hits. If that fails,
// another push does it.
func (s *Store) tendFleet(ctx context.Context, namespace string, due bool) {
	if due {
		_ = s.review(ctx, namespace)
	}
	if s.fleet(namespace).Wakes(s.nanos()) {
		_ = s.changeFleet(ctx, namespace, func(f *far.List, _, now uint64) bool { return f.Wake(now) })
	}
	f := s.fleet(namespace)
	under, _ := s.walks.get(namespace)
	if under == nil {
		under = &walk{}
	}
	next, begins := f.Walk(under.Walk)
	// A look takes Redis longer than many pushes, so namespaces take turns.
	if next == nil || !s.walking.TryLock() {
		return
	}
	defer s.walking.Unlock()
	if begins {
		under = &walk{Walk: next}
		s.walks.put(namespace, under, 1)
	}
	if ended, err := s.step(ctx, namespace, f, under); err != nil || !ended {
		return
	}
	_ = s.changeFleet(ctx, namespace, func(f *far.List, version, _ uint64) bool { return f.End(next, version) })
}

// step looks at some of the server's keys. It reports whether these were the last.
func (s *Store) step(ctx context.Context, namespace string, f *fleet, w *walk) (ended bool, err error) {
	pipe := s.client.Pipeline()
	info, keys := pipe.Info(ctx, "server"), pipe.Scan(ctx, w.cursor, s.keys.counters(namespace), walkKeys)
	execute(ctx, pipe)
	found, next, err := keys.Result()
	if err != nil {
		return false, err
	}
	run, err := runOf(info)
	if err != nil {
		return false, err
	}
	if w.cursor != 0 && run != w.run { // another process has its keys in another order
		w.cursor = 0
		return false, nil
	}
	w.run = run
	var counters []wire.LimitCounter
	for _, key := range found {
		c, ok := s.keys.parse(namespace, key)
		if ok && slices.ContainsFunc(f.Limits, func(l far.Limit) bool { return l.IsOf(c) && w.Seeks(&l) }) {
			counters = append(counters, c)
		}
	}
	for some := range slices.Chunk(counters, reviewKeys) {
		if err := s.look(ctx, namespace, some, nil); err != nil {
			return false, err
		}
	}
	w.cursor = next
	return next == 0, nil
}

// runOf names the process of a server; all processes alike if the server does not tell.
func runOf(info *goredis.StringCmd) (run string, err error) {
	text, err := info.Result()
	if reply := goredis.Error(nil); err != nil && !errors.As(err, &reply) {
		return "", err
	}
	for line := range strings.Lines(text) {
		if id, ok := strings.CutPrefix(line, "run_id:"); ok {
			return strings.TrimSpace(id), nil
		}
	}
	return "", nil
}

// look has commit.lua look at counters: those are listed that are near. near keys of them that are far go.
func (s *Store) look(ctx context.Context, namespace string, counters []wire.LimitCounter, review []string) error {
	p := &wire.Push{Namespace: namespace}
	calendar := store.Calendar{NowNanos: s.nanos()}
	for _, c := range counters {
		p.Items = append(p.Items, calendar.RoomItem(&wire.Room{LimitCounter: c}, 0))
	}
	r := newRun(s, p, 1)
	first := r.round("")
	totals := make([]wire.Total, len(p.Items))
	for i := range p.Items {
		first.item(&p.Items[i], &totals[i])
	}
	if len(first.waves) == 0 {
		first.at(0, 0)
	}
	last := first.waves[len(first.waves)-1]
	last[0].review = review
	return first.do(ctx)
}

// review takes keys off the list that are far again, and limits that nobody asks for.
func (s *Store) review(ctx context.Context, namespace string) error {
	keys := s.keys.fleet(namespace)
	near, err := s.client.ZRange(ctx, keys[nearIndex], 0, -1).Result()
	if err != nil {
		return err
	}
	for some := range slices.Chunk(near, reviewKeys) {
		f := s.fleet(namespace)
		var counters []wire.LimitCounter
		for _, key := range some {
			near, _ := parseMember(key)
			if l := f.Limit(near.Limit); l != nil && !l.Renews() {
				c := l.Shape
				c.ID = near.ID
				counters = append(counters, c)
			}
		}
		if err := s.look(ctx, namespace, counters, some); err != nil {
			return err
		}
	}
	reply, err := reviewScript.Run(ctx, s.client, []string{keys[0], keys[nearIndex], keys[heardIndex], keys[silentIndex]}).Slice()
	if err != nil {
		return err
	}
	is, err := texts(reply)
	if err != nil || len(is) != 4 {
		return errReply
	}
	gone, _ := strconv.Atoi(is[0]) // somebody else may have written it
	left, errLeft := strconv.Atoi(is[1])
	least, errLeast := strconv.ParseFloat(is[3], 64)
	if errLeft != nil || errLeast != nil {
		return errReply
	}
	return s.changeFleet(ctx, namespace, func(f *far.List, version, now uint64) bool {
		news := f.Forget(version, now, func(l *far.Limit) bool {
			return is[2] == "0" && least >= float64(l.Unlisted)
		})
		return f.Shorten(gone, left) || news
	})
}

// makeRoom takes a limit off the list that has too many near keys.
func (s *Store) makeRoom(ctx context.Context, namespace, key string) error {
	full, ok := parseMember(key)
	if !ok {
		return errReply
	}
	near, err := s.client.ZRange(ctx, s.keys.fleet(namespace)[nearIndex], 0, -1).Result()
	if err != nil {
		return err
	}
	near = slices.DeleteFunc(near, func(key string) bool {
		of, ok := parseMember(key)
		return ok && of.Limit != full.Limit
	})
	return s.changeFleet(ctx, namespace, func(f *far.List, version, now uint64) bool {
		l := f.Limit(full.Limit)
		if l == nil || !l.Watched() {
			return false
		}
		f.Rest(l, version, now)
		return true
	}, near...)
}
