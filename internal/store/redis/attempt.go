package redis

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"weir/internal/store"
	"weir/internal/wire"
	"weir/window"
)

// attempt is a decision on a group's batches, by the last known contents of their counters.
type attempt struct {
	group    *group
	clock    *clock
	calendar store.Calendar
	micros   string // ARGV[1] of commit.lua
	// noted are new batches that are recorded, and again those that were applied before.
	noted, again []*pending
	counters     []*held
	by           map[wire.LimitCounter]*held // nil if there are few
	lone         bool                        // whether lone.lua may count
	script       *script
	keys         []string
	args         []any
	// fleet is the namespace's as it was seen, and words are the batches with a word on advanced hits.
	fleet  *fleet
	claims []*claim
	words  []*pending
	lists  bool   // near keys are to be on the list, or to go
	full   string // a near key for which the list has no room

	written, busy bool
	err           error
}

// waits reports whether replicas must have what an attempt has written. A walk goes by the near keys that it has listed.
func (a *attempt) waits() bool { return a.lists || len(a.noted)+len(a.again)+len(a.words) > 0 }

// held is a counter in an attempt.
type held struct {
	wire.LimitCounter
	key      string
	seen     *entry
	contents store.Contents
	changed  bool
	expires  uint64
	// most is how many buckets of a log the items and rooms need.
	most int
	// Hits are added to a window of the clock even if its hits have changed. named are the windows
	// that items and rooms name. spare is how many more hits the counter could have had with the
	// same decision.
	named []uint64
	spare uint64
	// exact means that the decision holds only if the counter is as it was seen.
	exact bool
	// unseen are hits that the counter had although they were not seen, by window.
	unseen map[uint64]int64
}

// decide decides the group's batches.
func (g *group) decide() *attempt {
	c := g.c
	a := &attempt{group: g, clock: &c.clocks[g.all[0].b.partition]}
	micros, heard := a.clock.now()
	switch {
	case c.store.now != nil:
		micros = c.store.now().UnixMicro()
	case heard:
		a.micros = strconv.FormatInt(micros, 10)
	default:
		a.micros = "0" // the script then rejects the decision, and returns the counters
	}
	a.calendar.NowNanos = uint64(micros) * 1000
	a.fleet = c.store.fleet(g.all[0].p.Namespace)
	for _, one := range g.all {
		one.out = store.Outcome{Answer: wire.Answer{NowNanos: a.calendar.NowNanos}}
		a.decide(one)
	}
	g.tries++
	a.arguments()
	return a
}

// fewCounters are found without a map.
const fewCounters = 8

// counter is an attempt's counter; nil if it has no such counter.
func (a *attempt) counter(of wire.LimitCounter) *held {
	if a.by != nil {
		return a.by[of]
	}
	for _, h := range a.counters {
		if h.LimitCounter == of {
			return h
		}
	}
	return nil
}

func (a *attempt) add(h *held) {
	if a.counters = append(a.counters, h); a.by != nil {
		a.by[h.LimitCounter] = h
	} else if len(a.counters) > fewCounters {
		a.by = make(map[wire.LimitCounter]*held)
		for _, h := range a.counters {
			a.by[h.LimitCounter] = h
		}
	}
}

// held returns the counter of an item or a room.
func (a *attempt) held(namespace string, item *wire.Item) *held {
	h := a.counter(item.LimitCounter)
	if h == nil {
		key := a.group.c.store.keys.counter(namespace, item.LimitCounter)
		h = &held{LimitCounter: item.LimitCounter, key: key, seen: unseen, spare: wire.MaxHits}
		if seen, ok := a.group.c.seen.get(key); ok && (a.group.tries > 0 || !seen.over(item.LimitCounter, a.calendar)) {
			h.seen = seen
		}
		h.exact = h.seen.broken || !clocked(item.LimitCounter) || a.group.tries > exactAfter
		h.contents = store.Contents{Limit: h.seen.contents.Limit, Windows: slices.Clone(h.seen.contents.Windows)}
		a.add(h)
	}
	if h.seen.limitless && !h.changed {
		h.contents.Limit = item.Limit
	}
	h.most = max(h.most, store.MostBuckets(item.Limit))
	if clocked(item.LimitCounter) {
		for age := range item.Hits {
			if number := item.Newest - uint64(age); !slices.Contains(h.named, number) {
				h.named = append(h.named, number)
			}
		}
	}
	return h
}

// clocked reports whether a counter has windows of the clock.
func clocked(c wire.LimitCounter) bool {
	kind := window.Kind(c.Kind)
	return !kind.Started() && !kind.Bucketed()
}

// ledger counts the hits of a batch in an attempt.
type ledger struct {
	*attempt
	one *pending
}

var _ store.Ledger = ledger{}

// Total implements [store.Ledger].
func (l ledger) Total(item *wire.Item) wire.Total {
	return l.calendar.Total(&l.held(l.one.p.Namespace, item).contents, item)
}

// Add implements [store.Ledger].
func (l ledger) Add(item *wire.Item) {
	h := l.held(l.one.p.Namespace, item)
	h.exact = h.exact || slices.ContainsFunc(item.Hits, func(hits int64) bool { return hits < 0 })
	expires, changed := l.calendar.Add(&h.contents, item, &l.one.out)
	if !changed {
		return
	}
	if h.changed && !window.Kind(h.Kind).Refills() {
		expires = max(expires, h.expires)
	}
	h.changed, h.expires = true, expires
}

func (a *attempt) decide(one *pending) {
	b, in := one.b, ledger{a, one}
	applies := false
	var then grants
	switch b.state {
	case stateKnown:
		a.again, then = append(a.again, one), parseGrants(one.granted)
	case stateForgotten:
	default:
		if b.state, applies = stateApplied, b.noted(); applies {
			a.noted = append(a.noted, one)
		}
	}
	for _, item := range b.items {
		if applies {
			in.Add(item)
		}
	}
	for i := range b.takes {
		t := &b.takes[i]
		whole := t.take()
		take := whole
		var left left
		if applies && (t.mode == modeTake || t.mode == modeLease) {
			take, left = a.takeFor(one, take)
		}
		switch {
		case !applies:
			*t.grant = a.calendar.Again(take, then.of(i), cmp.Or(then.nanos, a.calendar.NowNanos), in)
		case t.mode == modeSkipped:
			*t.grant = wire.Grant{AtNanos: a.calendar.NowNanos, Totals: make([]wire.Total, len(t.rooms))}
			continue
		case t.mode == modeRefused:
			*t.grant = a.calendar.Refuse(take, in)
		default:
			*t.grant = a.calendar.Decide(take, one.nodes, in)
		}
		for j := range take.Rooms {
			item := a.calendar.RoomItem(&take.Rooms[j], 0)
			h := a.held(one.p.Namespace, &item)
			switch {
			case !applies:
			case t.mode == modeRefused || t.grant.Units < t.most:
				h.exact = true
			default:
				h.spare = min(h.spare, a.calendar.Spare(take, &take.Rooms[j], &t.grant.Totals[j], one.nodes))
			}
		}
		a.granted(whole, t.grant, left)
	}
	for i, item := range b.items {
		*b.totals[i] = in.Total(item)
	}
}

// take is a part as a take of its own.
func (t *part) take() *wire.Take {
	take := &wire.Take{Least: t.least, Most: t.most, Lease: t.mode == modeLease, Rooms: make([]wire.Room, len(t.rooms))}
	for i, room := range t.rooms {
		take.Rooms[i] = *room
	}
	return take
}

// grants are the grants of a batch's takes in its sender's record.
type grants struct {
	nanos uint64
	units []uint64
}

func (g *grants) of(i int) uint64 {
	if i < len(g.units) {
		return g.units[i]
	}
	return 0
}

// parseGrants is the inverse of attempt.grants. It returns no grants for any other text.
func parseGrants(member string) (g grants) {
	parts := strings.Split(member, ":")
	if len(parts) != 3 || len(parts[1]) != 20 {
		return g
	}
	nanos, err := strconv.ParseUint(parts[1], 10, 64)
	if err != nil {
		return g
	}
	g.nanos = nanos
	for text := range strings.SplitSeq(parts[2], ",") {
		units, ok := integer(text)
		if !ok {
			units = 0
		}
		g.units = append(g.units, uint64(units))
	}
	return g
}

// grants returns the grants of a batch's takes, for its sender's record.
func (a *attempt) grants(part string, b *batch) string {
	if len(b.takes) == 0 {
		return ""
	}
	member := append(make([]byte, 0, 64), part...)
	member = fmt.Appendf(append(member, ':'), nanosFormat, a.calendar.NowNanos)
	for i := range b.takes {
		member = append(member, ":,"[min(i, 1)])
		member = strconv.AppendUint(member, b.takes[i].grant.Units, 10)
	}
	return string(member)
}
