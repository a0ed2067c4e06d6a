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
	last         *held                       // the last that was asked for
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
	// gives means that hits of one window go back, which has all of them.
	gives bool
	// unseen are hits that the counter had although they were not seen, by window.
	unseen map[uint64]int64
	// numbers and windows are memory for a few.
	numbers [2]uint64
	windows [3]store.Window
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
	switch {
	case a.last != nil && a.last.LimitCounter == of:
	case a.by != nil:
		a.last = a.by[of]
	default:
		a.last = nil
		for _, h := range a.counters {
			if h.LimitCounter == of {
				a.last = h
			}
		}
	}
	return a.last
}

func (a *attempt) add(h *held) {
	a.last = h
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
		h.named = h.numbers[:0]
		if seen, ok := a.group.c.seen.get(key); ok && (a.group.tries > 0 || !seen.over(item.LimitCounter, a.calendar)) {
			h.seen = seen
		}
		h.exact = h.seen.broken || !clocked(item.LimitCounter) || a.group.tries > exactAfter
		h.contents = store.Contents{Limit: h.seen.contents.Limit, Windows: append(h.windows[:0], h.seen.contents.Windows...)}
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
	h, returned, least, others := l.held(l.one.p.Namespace, item), l.one.out.Returned, int64(0), 0
	for _, hits := range item.Hits {
		if least = min(least, hits); hits != 0 {
			others++
		}
	}
	expires, changed := l.calendar.Add(&h.contents, item, &l.one.out)
	if least < 0 && !h.changed && others == 1 && l.one.out.Returned-returned == -least {
		h.gives = true
	} else {
		h.exact = h.exact || h.gives || least < 0
	}
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
		take := t.Take
		var left left
		if applies && (t.mode == modeTake || t.mode == modeLease) {
			take, left = a.takeFor(one, take)
		}
		switch {
		case !applies:
			*t.grant = a.calendar.Again(take, then.of(i), cmp.Or(then.nanos, a.calendar.NowNanos), in)
		case t.mode == modeSkipped:
			*t.grant = wire.Grant{AtNanos: a.calendar.NowNanos, Totals: make([]wire.Total, len(t.Rooms))}
			continue
		case t.mode == modeRefused:
			*t.grant = a.calendar.Refuse(take, in)
		default:
			*t.grant = a.calendar.Decide(take, one.nodes, in)
		}
		for j := range take.Rooms {
			h := a.counter(take.Rooms[j].LimitCounter)
			switch {
			case !applies:
			case t.mode == modeRefused || t.grant.Units < t.Most:
				h.exact = true
			default:
				h.spare = min(h.spare, a.calendar.Spare(take, &take.Rooms[j], &t.grant.Totals[j], one.nodes))
			}
		}
		a.granted(t.Take, t.grant, left)
	}
	for i, item := range b.items {
		*b.totals[i] = in.Total(item)
	}
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
