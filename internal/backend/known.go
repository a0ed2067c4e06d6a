package backend

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"sync"
	"time"

	"weir/internal/calendar"
	"weir/internal/store"
	"weir/internal/wire"
	"weir/window"
)

const (
	// heardEvery is how often the store gets the same note of what nodes have told of their rules, and
	// of a namespace that they report in.
	heardEvery = time.Minute
	// askEvery is how often a node is asked for rules that nobody tells.
	askEvery = 10 * time.Second
	// directory is the namespace of the notes on namespaces.
	directory = "weir"
)

// known notes in the store what nodes tell of their rules, and asks for what it does not have.
type known struct {
	now   func() time.Time
	store store.Store

	mu    sync.Mutex
	heard members[heard] // by digest
	swept time.Time
}

// heard is what a backend knows of a digest: when it was last noted, and when a node was asked for it.
type heard struct{ noted, asked time.Time }

// hear notes which rules the sender of a report has. tell means that it should tell them in its next report. If
// the store fails, the next report notes them.
func (k *known) hear(ctx context.Context, r *wire.Report) (tell bool) {
	key, now := member{r.Namespace, r.Digest}, k.now()
	k.mu.Lock()
	if now.Sub(k.swept) >= heardEvery || now.Before(k.swept) {
		k.swept = now
		k.heard.sweep(func(h heard) bool { return now.Sub(h.noted) >= 2*heardEvery && now.Sub(h.asked) >= askEvery })
	}
	h, _ := k.heard.get(key)
	recent := now.Sub(h.noted) < heardEvery && !now.Before(h.noted)
	if !recent {
		h.noted = now // others need not, meanwhile
		k.heard.put(key, h)
	}
	k.mu.Unlock()
	if recent {
		return false
	}
	count, found, err := k.note(ctx, r, now)
	if err == nil && (found || r.Digest == 0) {
		err = k.noteNamespace(ctx, r.Namespace, count, now)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if h, _ = k.heard.get(key); err != nil || !found {
		h.noted = time.Time{}
		if tell = err == nil && r.Digest != 0 && now.Sub(h.asked) >= askEvery; tell {
			h.asked = now
		}
		if r.Digest == 0 && err == nil {
			h.noted = now
		}
		k.heard.put(key, h)
	}
	return tell
}

// note notes again what a digest names. found is false if the store does not have it.
func (k *known) note(ctx context.Context, r *wire.Report, now time.Time) (rules int, found bool, err error) {
	told := r.Told
	if len(told) == 0 && r.Digest != 0 {
		notes, err := k.store.Notes(ctx, store.Rules, r.Namespace)
		if err != nil {
			return 0, false, err
		}
		for _, n := range notes {
			if _, of := store.RulesOf(n); n.Member == r.Digest {
				told = of
			}
		}
	}
	_, shapes, err := wire.DecodeTold(told)
	if err != nil || wire.DigestOf(told) != r.Digest {
		return 0, false, nil
	}
	_, err = k.store.Note(ctx, store.Rules, r.Namespace, store.RulesNote(r.Digest, now, told))
	return len(shapes), true, err
}

func (k *known) noteNamespace(ctx context.Context, namespace string, rules int, now time.Time) error {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(namespace)) // it never fails
	body := fmt.Appendf(nil, "%d %d %s", now.Unix(), rules, namespace)
	_, err := k.store.Note(ctx, store.Namespaces, directory, store.Note{Member: hash.Sum64(), Body: body})
	return err
}

// Namespace is a namespace in which nodes have reported.
type Namespace struct {
	Name string
	// Rules is how many rules the node had that was noted last. Nodes have asked for overrides in the
	// last minute.
	Rules, Nodes int
	// Heard is when a node's report was last noted: each minute.
	Heard time.Time
}

// Namespaces returns the namespaces that may returns true for, by their names.
func (b *Backend) Namespaces(ctx context.Context, may func(namespace string) bool) (all []Namespace, err error) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	notes, err := b.store.Notes(ctx, store.Namespaces, directory)
	if err != nil {
		return nil, err
	}
	for _, n := range notes {
		var found Namespace
		seconds := int64(0)
		if _, err := fmt.Fscanf(bytes.NewReader(n.Body), "%d %d %s", &seconds, &found.Rules, &found.Name); err != nil || !wire.IsNamespace(found.Name) || !may(found.Name) {
			continue
		}
		found.Heard = time.Unix(seconds, 0)
		applied, err := store.ReadApplied(ctx, b.store, found.Name)
		if err != nil {
			return nil, err
		}
		found.Nodes = len(applied)
		all = append(all, found)
	}
	slices.SortFunc(all, func(a, b Namespace) int { return cmp.Compare(a.Name, b.Name) })
	return all, nil
}

// Configuration is what nodes have told of their rules, and the nodes that have these: those that have
// reported in the last half minute.
type Configuration struct {
	Digest uint64
	Nodes  []uint64
	// Heard is when it was last noted. It is zero if nobody has told the rules yet.
	Heard time.Time
	Rules []wire.RuleShape
}

// Configurations returns the configurations that nodes report, the one of most nodes first. If nobody
// reports, it is the last that was noted.
func (b *Backend) Configurations(ctx context.Context, namespace string) (all []Configuration, err error) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	reports, err := b.reports(ctx, namespace, 0)
	if err != nil {
		return nil, err
	}
	return b.configurations(ctx, namespace, reports), nil
}

// configurations is Configurations by some reports. If the store can't tell the rules, as where it may not
// make a table for them, they are not known, and all else is told.
func (b *Backend) configurations(ctx context.Context, namespace string, reports []*wire.Report) (all []Configuration) {
	notes, err := b.store.Notes(ctx, store.Rules, namespace)
	if err != nil {
		notes = nil
	}
	by := map[uint64]*Configuration{}
	last := &Configuration{}
	for _, n := range notes {
		at, told := store.RulesOf(n)
		// Another version's, or nobody's: whoever else writes to the store.
		if _, rules, err := wire.DecodeTold(told); err == nil && wire.DigestOf(told) == n.Member {
			by[n.Member] = &Configuration{Digest: n.Member, Heard: at, Rules: dated(rules)}
			if at.After(last.Heard) {
				last = by[n.Member]
			}
		}
	}
	newest := map[uint64]*wire.Report{} // by node
	for _, r := range reports {
		if of := newest[r.Node]; r.Digest != 0 && (of == nil || r.AtNanos > of.AtNanos) {
			newest[r.Node] = r
		}
	}
	for _, node := range slices.Sorted(maps.Keys(newest)) {
		digest := newest[node].Digest
		if by[digest] == nil {
			by[digest] = &Configuration{Digest: digest}
		}
		by[digest].Nodes = append(by[digest].Nodes, node)
	}
	for _, c := range by {
		if len(c.Nodes) > 0 || len(newest) == 0 && c == last {
			all = append(all, *c)
		}
	}
	slices.SortFunc(all, func(a, b Configuration) int {
		return cmp.Or(cmp.Compare(len(b.Nodes), len(a.Nodes)), b.Heard.Compare(a.Heard), cmp.Compare(a.Digest, b.Digest))
	})
	return all
}

// dated gives limits their calendars.
func dated(rules []wire.RuleShape) []wire.RuleShape {
	for i := range rules {
		for j := range rules[i].Limits {
			l := &rules[i].Limits[j]
			if c := calendar.Described(l.Described); c != nil && l.Kind == window.FixedWindow {
				l.Calendar = c
			}
		}
	}
	return rules
}

// RuleOf returns a rule of the first of configurations that has it, or nil.
func RuleOf(all []Configuration, rule string) *wire.RuleShape {
	for i := range all {
		for j := range all[i].Rules {
			if r := &all[i].Rules[j]; r.Name == rule {
				return r
			}
		}
	}
	return nil
}
