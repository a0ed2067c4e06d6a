package redis

import (
	"slices"
	"strconv"

	"weir/internal/store"
	"weir/internal/wire"
	"weir/window"
)

// claim is how many hits of a key takes leave for those that senders may have advanced. commit.lua says so
// if that is not right.
type claim struct {
	limit *nearLimit
	key   string
	since string // when the rule was listed, "" if the limit is not
	owing int64  // when a silent sender that owes hits had an answer at least, in microseconds
	left  advancedHits
	// exact says that takes would have got more if less were left.
	exact bool
}

// advancedHits are hits of a key that senders may have advanced, by whether the senders are live or silent.
type advancedHits struct{ live, silent uint64 }

func (h advancedHits) sum() uint64 { return h.live + h.silent }

// leave bounds the hits that a counter could have had more without another decision.
func (h *held) leave(hits uint64) { h.spare = min(h.spare, hits) }

// claimFor is the claim of a room by a limit.
func (a *attempt) claimFor(room *wire.Room, l *nearLimit, since uint64) *claim {
	c := claim{limit: l, key: nearKeyAt(l, room.ID, a.calendar.NowNanos).member()}
	if l.Listed {
		c.since = strconv.FormatUint(since, 10)
	}
	for _, known := range a.claims {
		if known.key == c.key && known.since == c.since {
			return known
		}
	}
	number := store.NumberAt(room.LimitCounter, a.calendar.NowNanos)
	if window.Kind(room.Kind) == window.SlidingWindow {
		number-- // hits of the window before count
	}
	c.owing = int64(number*l.Shape.WidthMillis*1000) - int64(lateNanos/1000)
	c.left = a.group.left[c.key+c.since]
	a.claims = append(a.claims, &c)
	return &c
}

// claimsOf are the claims of a take's room. The room may give most hits.
func (a *attempt) claimsOf(h *held, room *wire.Room, most uint64) (claims []*claim) {
	after := a.calendar.Used(&h.contents, room.LimitCounter) + most
	for i := range a.fleet.Limits {
		l := &a.fleet.Limits[i]
		if !l.isOf(room.LimitCounter) || !l.Listed && l.Unlisted == 0 {
			continue
		}
		since := uint64(0) // an old sender's room has no tag
		if room.Tag != 0 {
			r := l.rule(room.Tag)
			if r == nil {
				continue
			}
			since = r.Since
		}
		if near := wire.NearFrom(l.Max); after < near {
			h.leave(near - 1 - after)
			continue
		}
		claims = append(claims, a.claimFor(room, l, since))
	}
	return claims
}

// takeFor is a take whose rooms leave what senders may have advanced. It is the take itself, unless there
// is something to leave.
func (a *attempt) takeFor(one *pending, take *wire.Take) (*wire.Take, [][]*claim) {
	if len(a.fleet.Limits) == 0 {
		return take, nil
	}
	claims, rooms := make([][]*claim, len(take.Rooms)), take.Rooms
	for i := range take.Rooms {
		room := &take.Rooms[i]
		most := uint64(wire.MaxHits)
		if room.Cost == 0 || take.Most <= wire.MaxHits/room.Cost {
			most = take.Most * room.Cost
		}
		item := a.calendar.RoomItem(room, 0)
		claims[i] = a.claimsOf(a.held(one.p.Namespace, &item), room, most)
		if left := leftOf(claims[i], room.Limit, advancedHits.sum); left > 0 {
			if &rooms[0] == &take.Rooms[0] {
				rooms = slices.Clone(take.Rooms)
			}
			rooms[i].Limit -= min(room.Limit, left)
		}
	}
	left := *take
	left.Rooms = rooms
	return &left, claims
}

// leftOf is how many hits a room of a limit leaves. Senders may use several limits for a key, as when plans
// change: no more than the largest of them passes. So hits advanced by a larger limit have what it is larger
// by.
func leftOf(claims []*claim, limit uint64, of func(advancedHits) uint64) (hits uint64) {
	for _, c := range claims {
		left := of(c.left)
		hits = max(hits, left-min(left, c.limit.Max-min(c.limit.Max, limit)))
	}
	return hits
}

// granted notes what a take has got of its most. A take that is refused hears that what silent senders may
// have advanced is used. A sender that took it for room would ask for each request until the window ends.
func (a *attempt) granted(take *wire.Take, g *wire.Grant, claims [][]*claim) {
	for i := range claims {
		for _, c := range claims[i] {
			// Senders may hear more quickly than a backend can ask.
			c.exact = c.exact || g.Units < take.Most && a.group.tries <= lockAfter
		}
		room := &take.Rooms[i]
		if g.Units > 0 || window.Kind(room.Kind) != window.FixedWindow || len(g.Totals[i].Hits) == 0 {
			continue
		}
		if silent := leftOf(claims[i], room.Limit, func(h advancedHits) uint64 { return h.silent }); silent > 0 {
			used := &g.Totals[i].Hits[0]
			*used = max(*used, min(*used+silent, room.Limit))
		}
	}
}

// marks are the near keys that counters make, and those of a review that are far again. Other counters
// must not come near their limits unseen.
func (a *attempt) marks() (marks []any) {
	for _, h := range a.counters {
		for i := range a.fleet.Limits {
			if l := &a.fleet.Limits[i]; l.isOf(h.LimitCounter) && l.watched() {
				for _, key := range a.near(h, l) {
					marks = append(marks, key.member(), "+")
				}
			}
		}
	}
	for _, one := range a.group.all {
		for _, key := range one.b.review {
			if a.far(key) {
				marks = append(marks, key, "-")
			}
		}
	}
	return marks
}

// near are the windows in which a counter is near a limit. A key that has used most of its limit is also near
// in the next window: it may use up that one's before all senders have heard of it. Sooner than it is near in another
// window, the counter is decided again.
func (a *attempt) near(h *held, l *nearLimit) (keys []nearKey) {
	from, key := wire.NearFrom(l.Max), nearKeyAt(l, h.ID, a.calendar.NowNanos)
	if !l.renews() {
		used := a.calendar.Used(&h.contents, h.LimitCounter)
		if used >= from {
			return []nearKey{key}
		}
		h.leave(from - 1 - used)
		return nil
	}
	h.leave(from - 1)
	oldest := store.NumberAt(l.Shape, a.before().NowNanos)
	for _, w := range h.contents.Windows {
		switch hits := uint64(max(0, w.Hits)); {
		case w.Number < oldest:
		case hits < from:
			h.leave(from - 1 - hits)
		default:
			at := key
			at.number = w.Number
			if keys = append(keys, at); hits >= l.Max-l.Max/8 {
				keys = append(keys, at.next())
			}
		}
	}
	return keys
}

// before is the time of the senders whose clocks are behind most.
func (a *attempt) before() store.Calendar {
	const slack = uint64(5e9)
	return store.Calendar{NowNanos: a.calendar.NowNanos - min(a.calendar.NowNanos, slack)}
}

// far reports whether a near key is far again, for all senders.
func (a *attempt) far(member string) bool {
	key, ok := parseNearKey(member)
	l := a.fleet.limit(key.limit)
	if !ok || l == nil || !l.watched() {
		return true
	}
	before := a.before()
	if l.renews() {
		return key.number < store.NumberAt(l.Shape, before.NowNanos)
	}
	c := l.Shape
	c.ID = key.id
	h := a.by[c]
	if h == nil {
		return false
	}
	used := max(a.calendar.Used(&h.contents, c), before.Used(&h.contents, c))
	far := wire.NearFrom(l.Max) / 4 * 3
	if used >= far {
		return false
	}
	h.leave(far - 1 - used)
	return true
}

// fleetArguments are those that commit.lua has about the fleet.
func (a *attempt) fleetArguments(args []any, marks []any) []any {
	s := a.group.c.store
	switch {
	case s.keys.partitions > 1:
		return append(args, 0)
	case a.fleet == noFleet:
		return append(args, 1, "")
	}
	for _, one := range a.group.all {
		if one.b.word {
			a.words = append(a.words, one)
		}
	}
	args = append(args, len(s.keys.fleet("")), a.fleet.revision, s.given(), a.fleet.partsLast()/1000, len(a.words), len(marks)/2, len(a.claims))
	for _, one := range a.words {
		w := &one.p.Advance
		args = append(args, hexOf(one.p.Sender), min(w.Divisor, wire.MaxHits), min(w.Version, wire.MaxHits), one.p.Sequence,
			flag(w.Settled), flag(w.Wants), flag(w.Epoch == a.fleet.Epoch))
	}
	args = append(args, marks...)
	for _, c := range a.claims {
		exact := ""
		if c.exact {
			exact = "1"
		}
		args = append(args, c.key, c.since, c.limit.Unlisted, c.limit.Max, c.owing, c.left.sum(), exact)
	}
	return args
}

func flag(is bool) string {
	if is {
		return "1"
	}
	return "0"
}

// lacks takes in why commit.lua could not write by what was seen of the fleet.
func (a *attempt) lacks(reply any) error {
	lacks, ok := reply.([]any)
	if !ok {
		return nil
	}
	if len(lacks) == 0 {
		return errReply
	}
	namespace := a.group.all[0].p.Namespace
	switch lacks[0] {
	case "changed":
		f, err := parseFleet(lacks[1:])
		if err != nil {
			return err
		}
		a.group.c.store.seeFleet(namespace, f)
	case "full":
		if len(lacks) != 2 {
			return errReply
		}
		a.full, _ = lacks[1].(string)
	case "keep":
		if len(lacks) != 1+2*len(a.claims) {
			return errReply
		}
		if a.group.left == nil {
			a.group.left = make(map[string]advancedHits)
		}
		for i, c := range a.claims {
			live, _ := lacks[1+2*i].(int64)
			silent, _ := lacks[2+2*i].(int64)
			a.group.left[c.key+c.since] = advancedHits{uint64(live), uint64(silent)}
		}
	default:
		return errReply
	}
	return nil
}

// hearWords takes in the answers to words on advanced hits.
func (a *attempt) hearWords(reply []any) error {
	if a.fleet == noFleet {
		for _, one := range a.group.all {
			if one.b.word && a.group.c.store.keys.partitions == 1 {
				one.b.near = wire.Near{Told: true, Whole: true}
			}
		}
		return nil
	}
	if len(reply) == 1 && reply[0] == int64(0) {
		for _, one := range a.words {
			w := &one.p.Advance
			one.b.near = wire.Near{Told: true, Epoch: w.Epoch, Version: w.Version, Divisor: w.Divisor}
		}
		return nil
	}
	if len(reply) != 1+len(a.words) {
		return errReply
	}
	for i, one := range a.words {
		one.b.due = i == 0 && reply[0] == "1"
		answer, _ := reply[1+i].([]any)
		all, err := texts(answer)
		if err != nil || len(all) < 3 {
			return errReply
		}
		n := wire.Near{Told: true, Epoch: a.fleet.Epoch, Whole: all[2] == "1"}
		var errVersion, errDivisor error
		n.Version, errVersion = strconv.ParseUint(all[0], 10, 64)
		if n.Divisor, errDivisor = strconv.ParseUint(all[1], 10, 64); errVersion != nil || errDivisor != nil {
			return errReply
		}
		for j := range a.fleet.Limits {
			l := &a.fleet.Limits[j]
			for _, r := range l.Rules {
				if r.Since > 0 && (n.Whole || r.Since > one.p.Advance.Version) {
					n.AddLimit(wire.NearRule(l.name(), r.Tag))
				}
			}
		}
		for _, member := range all[3:] {
			if key, ok := parseNearKey(member); ok {
				n.AddKey(key.told())
			}
		}
		one.b.near = n
	}
	return nil
}
