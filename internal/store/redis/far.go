package redis

import (
	"strconv"

	"weir/internal/store/far"
	"weir/internal/wire"
)

// claim is how many hits of a key takes leave for those that senders may have advanced. commit.lua says so
// if that is not right.
type claim struct {
	limit *far.Limit
	key   string
	since string // when the rule was listed, "" if the limit is not
	owing uint64 // when a silent sender that owes hits had an answer at least, in microseconds
	left  far.Left
	// exact says that takes would have got more if less were left.
	exact bool
}

// leave bounds the hits that a counter could have had more without another decision.
func (h *held) leave(hits uint64) { h.spare = min(h.spare, hits) }

// claimFor is the claim of a limit's key, for a rule that is listed since a version.
func (a *attempt) claimFor(l *far.Limit, k far.Key, since uint64) *claim {
	c := claim{limit: l, key: member(k), owing: l.Owing(a.calendar.NowNanos, lateNanos) / 1000}
	if l.Listed {
		c.since = strconv.FormatUint(since, 10)
	}
	for _, known := range a.claims {
		if known.key == c.key && known.since == c.since {
			return known
		}
	}
	c.left = a.group.left[c.key+c.since]
	a.claims = append(a.claims, &c)
	return &c
}

// left is what a take leaves of hits that senders may have advanced.
type left struct {
	silent []uint64 // by room
	claims []*claim
}

// takeFor is a take whose rooms leave what senders may have advanced. It is the take itself, unless there
// is something to leave.
func (a *attempt) takeFor(one *pending, take *wire.Take) (less *wire.Take, left left) {
	if len(a.fleet.Limits) == 0 {
		return take, left
	}
	left.silent = make([]uint64, len(take.Rooms))
	less = far.Take(take, func(i int, most uint64) uint64 {
		room := &take.Rooms[i]
		item := a.calendar.RoomItem(room, 0)
		h := a.held(one.p.Namespace, &item)
		after := a.calendar.Used(&h.contents, room.LimitCounter) + most
		hits, silent, spare := a.fleet.Leave(room, after, a.calendar.NowNanos, func(l *far.Limit, k far.Key, since uint64) far.Left {
			c := a.claimFor(l, k, since)
			left.claims = append(left.claims, c)
			return c.left
		})
		h.leave(spare)
		left.silent[i] = silent
		return hits
	})
	return less, left
}

// granted notes what a take has got of its most.
func (a *attempt) granted(take *wire.Take, g *wire.Grant, left left) {
	for _, c := range left.claims {
		// Senders may hear more quickly than a backend can ask.
		c.exact = c.exact || g.Units < take.Most && a.group.tries <= lockAfter
	}
	if left.silent != nil {
		far.Refuse(take, g, func(i int) uint64 { return left.silent[i] })
	}
}

// marks are messages on the near keys that counters make, and on those of a review that are far again. Other counters must
// not come near their limits unseen.
func (a *attempt) marks() (marks []any) {
	near := &a.group.c.store.near
	for _, h := range a.counters {
		for i := range a.fleet.Limits {
			l := &a.fleet.Limits[i]
			if !l.IsOf(h.LimitCounter) || !l.Watched() {
				continue
			}
			h.leave(l.Near(h.ID, &h.contents, a.calendar, func(k far.Key, spare bool) uint64 {
				key := member(k)
				if spare {
					marks = add(marks, mark{key, "~"})
					return 0
				}
				since, known := near.get(key)
				if !known {
					since = a.calendar.NowNanos
					near.put(key, since, 1)
				}
				marks = add(marks, mark{key, "+"})
				return since
			}))
		}
	}
	for _, one := range a.group.all {
		for _, key := range one.b.review {
			if a.far(key) {
				marks = add(marks, mark{key, "-"})
			}
		}
	}
	return marks
}

// far reports whether a near key is far again, for all senders.
func (a *attempt) far(member string) bool {
	k, ok := parseMember(member)
	l := a.fleet.Limit(k.Limit)
	if !ok || l == nil || !l.Watched() {
		return true
	}
	c := l.Shape
	c.ID = k.ID
	h := a.counter(c)
	if l.Renews() {
		h = &held{} // what it has does not matter
	}
	if h == nil {
		return false
	}
	is, spare := l.Far(k, &h.contents, a.calendar)
	h.leave(spare)
	return is
}

// fleetKeys are the keys of the namespace's fleet that the script looks at: one if none was seen.
func (a *attempt) fleetKeys() []string {
	s := a.group.c.store
	if s.keys.partitions > 1 {
		return nil
	}
	namespace := a.group.all[0].p.Namespace
	if a.fleet == noFleet {
		return []string{s.keys.list(namespace)}
	}
	return s.keys.fleet(namespace)
}

// fleetArguments are those that commit.lua has about the fleet.
func (a *attempt) fleetArguments(marks []any) {
	if a.fleet == noFleet {
		return
	}
	for _, one := range a.group.all {
		if one.b.word {
			a.words = append(a.words, one)
		}
	}
	one := a.group.all[0]
	later := len(a.group.all) == 1 && one.p.Advance.Present && !one.b.word
	a.args = add(a.args, list{a.fleet.revision, a.group.c.store.given(), a.fleet.PartsLast() / 1000, len(a.words), len(marks) / 2, len(a.claims), later})
	for _, one := range a.words {
		w := &one.p.Advance
		a.args = add(a.args, word{
			hexOf(one.p.Sender), min(w.Divisor, wire.MaxHits), min(w.Version, wire.MaxHits), one.p.Sequence, w.Settled, w.Wants, w.Epoch == a.fleet.Epoch,
		})
	}
	a.args = append(a.args, marks...)
	for _, c := range a.claims {
		a.args = add(a.args, leaves{c.key, c.since, c.limit.Unlisted, c.limit.Max, c.owing, c.left.Live + c.left.Silent, c.exact})
	}
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
	case "changed", "broken":
		if lacks[0] == "broken" {
			a.group.repaired++
		}
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
			a.group.left = make(map[string]far.Left)
		}
		for i, c := range a.claims {
			live, _ := lacks[1+2*i].(int64)
			silent, _ := lacks[2+2*i].(int64)
			a.group.left[c.key+c.since] = far.Left{Live: uint64(live), Silent: uint64(silent)}
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
				one.b.near = wire.Near{Present: true, Whole: true}
			}
		}
		return nil
	}
	if len(reply) == 1 && reply[0] == int64(0) {
		for _, one := range a.words {
			w := &one.p.Advance
			one.b.near = wire.Near{Present: true, Epoch: w.Epoch, Version: w.Version, Divisor: w.Divisor}
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
		n := wire.Near{Present: true, Epoch: a.fleet.Epoch, Whole: all[2] == "1"}
		var errVersion, errDivisor error
		n.Version, errVersion = strconv.ParseUint(all[0], 10, 64)
		if n.Divisor, errDivisor = strconv.ParseUint(all[1], 10, 64); errVersion != nil || errDivisor != nil {
			return errReply
		}
		a.fleet.Tell(&n, one.p.Advance.Version)
		for _, member := range all[3:] {
			if key, ok := parseMember(member); ok {
				n.AddKey(key.Sent())
			}
		}
		one.b.near = n
	}
	return nil
}
