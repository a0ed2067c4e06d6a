package redis

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"

	goredis "github.com/redis/go-redis/v9"

	"weir/internal/store"
	"weir/internal/wire"
)

const (
	// walkKeys is about how many keys of the server a step of a walk looks at.
	walkKeys = 512
	// reviewKeys is how many near keys are reviewed by a script.
	reviewKeys = 256
)

// walk looks for keys of a namespace that were near before their limits were watched.
type walk struct {
	cursor uint64
	run    string            // the server's process in which cursor is a place
	limits map[uint64]uint64 // for which it looks by their names, and their watch
}

// tendFleet does some of what there is to do in a namespace whose senders advance hits. If that fails,
// another push does it.
func (s *Store) tendFleet(ctx context.Context, namespace string, due bool) {
	if due {
		_ = s.review(ctx, namespace)
	}
	now := s.nanos()
	if slices.ContainsFunc(s.fleet(namespace).Limits, func(l nearLimit) bool { return l.wakes(now) }) {
		_ = s.changeFleet(ctx, namespace, func(f *fleet, _, now uint64) (news bool) {
			for i := range f.Limits {
				if l := &f.Limits[i]; l.wakes(now) {
					l.RestsTo, l.Watch = 0, rand.Uint64()
					news = true
				}
			}
			return news
		})
	}
	f := s.fleet(namespace)
	limits := make(map[uint64]uint64)
	for i := range f.Limits {
		if l := &f.Limits[i]; !l.Listed && l.watched() {
			limits[l.name()] = l.Watch
		}
	}
	// A look takes Redis longer than many pushes, so namespaces take turns.
	if len(limits) == 0 || !s.walking.TryLock() {
		return
	}
	defer s.walking.Unlock()
	w, _ := s.walks.get(namespace)
	if w == nil || !slices.ContainsFunc(f.Limits, func(l nearLimit) bool { return !l.Listed && w.of(&l) }) {
		w = &walk{limits: limits}
		s.walks.put(namespace, w, 1)
	}
	if ended, err := s.step(ctx, namespace, f, w); err != nil || !ended {
		return
	}
	_ = s.changeFleet(ctx, namespace, func(f *fleet, version, _ uint64) (news bool) {
		for i := range f.Limits {
			if l := &f.Limits[i]; !l.Listed && l.watched() && w.of(l) {
				f.list(l, version)
				news = true
			}
		}
		return news
	})
}

// of reports whether a walk looks for keys of a limit.
func (w *walk) of(l *nearLimit) bool {
	watch, ok := w.limits[l.name()]
	return ok && watch == l.Watch
}

// step looks at some of the server's keys. It reports whether these were the last.
func (s *Store) step(ctx context.Context, namespace string, f *fleet, w *walk) (ended bool, err error) {
	pipe := s.client.Pipeline()
	info, keys := pipe.Info(ctx, "server"), pipe.Scan(ctx, w.cursor, s.keys.counters(namespace), walkKeys)
	_, _ = pipe.Exec(ctx) // the commands tell what has failed
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
		if ok && slices.ContainsFunc(f.Limits, func(l nearLimit) bool { return l.isOf(c) && w.of(&l) }) {
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
			if near, ok := parseNearKey(key); ok {
				if l := f.limit(near.limit); l != nil && !l.renews() {
					c := l.Shape
					c.ID = near.id
					counters = append(counters, c)
				}
			}
		}
		if err := s.look(ctx, namespace, counters, some); err != nil {
			return err
		}
	}
	pipe := s.client.TxPipeline() // in one step, as a sender that falls silent is moved
	gone, left := pipe.HGet(ctx, keys[0], "gone"), pipe.ZCard(ctx, keys[nearIndex])
	silent := pipe.ZCard(ctx, keys[silentIndex])
	least := pipe.ZRangeWithScores(ctx, keys[heardIndex], 0, 0)
	if _, err := pipe.Exec(ctx); err != nil && !notOurs(err) {
		return err
	}
	removed, _ := gone.Int64()
	return s.changeFleet(ctx, namespace, func(f *fleet, version, now uint64) (news bool) {
		f.Limits = slices.DeleteFunc(f.Limits, func(l nearLimit) bool {
			forgotten := l.stale(now) && !l.Listed && silent.Val() == 0 &&
				(len(least.Val()) == 0 || uint64(least.Val()[0].Score) >= l.Unlisted)
			news = news || forgotten
			return forgotten
		})
		for i := range f.Limits {
			if l := &f.Limits[i]; l.Listed && l.stale(now) {
				f.rest(l, version, now)
				news = true
			}
		}
		if removed > 64+left.Val()/2 {
			f.begin()
			news = true
		}
		return news
	})
}

// makeRoom takes a limit off the list that has too many near keys.
func (s *Store) makeRoom(ctx context.Context, namespace, key string) error {
	full, ok := parseNearKey(key)
	if !ok {
		return errReply
	}
	near, err := s.client.ZRange(ctx, s.keys.fleet(namespace)[nearIndex], 0, -1).Result()
	if err != nil {
		return err
	}
	near = slices.DeleteFunc(near, func(key string) bool {
		of, ok := parseNearKey(key)
		return ok && of.limit != full.limit
	})
	return s.changeFleet(ctx, namespace, func(f *fleet, version, now uint64) bool {
		l := f.limit(full.limit)
		if l == nil || !l.watched() {
			return false
		}
		f.rest(l, version, now)
		return true
	}, near...)
}
