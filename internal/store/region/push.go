package region

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"weir/internal/store"
	"weir/internal/wire"
	"weir/window"
)

// Push implements [store.Store]. It waits for the parent only if a take lacks hits, or if the push
// has counters that a region does not hold. While the parent is away, [Policy] decides such takes,
// and the answer lacks such counters.
func (s *Store) Push(ctx context.Context, p *wire.Push, nodes uint64) (store.Outcome, error) {
	if err := store.Check(p); err != nil {
		return store.Outcome{}, err
	}
	if err := s.usable(); err != nil {
		return store.Outcome{}, err
	}
	here, there := split(p)
	if there == nil {
		return s.push(ctx, p, nodes)
	}
	type reply struct {
		answer *wire.Answer
		err    error
	}
	relayed := make(chan reply, 1)
	if s.relays.Enter(p.Namespace) {
		s.tasks.Go(func() {
			defer s.relays.Leave(p.Namespace)
			answer, err := s.relay(&there.Push)
			if err != nil && !errors.Is(err, store.ErrFull) && s.ended.Err() == nil {
				s.mu.Lock()
				s.lacking, s.lackedAt = err, s.o.Now()
				s.mu.Unlock()
			}
			relayed <- reply{answer, err}
		})
	} else {
		relayed <- reply{err: errMany}
	}
	out, err := s.push(ctx, &here.Push, nodes)
	r := reply{err: errLate}
	select {
	case r = <-relayed:
	case <-time.After(s.patience(ctx)):
	case <-ctx.Done():
	}
	if err != nil {
		return store.Outcome{}, err
	}
	if r.answer == nil && len(here.Items)+len(here.Takes) == 0 {
		return store.Outcome{}, r.err
	}
	own := out.Answer
	out.Answer.Totals, out.Answer.Grants, out.Answer.Missing = make([]wire.Total, len(p.Items)), make([]wire.Grant, len(p.Takes)), nil
	here.Join(&out.Answer, &own)
	if r.answer != nil {
		there.Join(&out.Answer, r.answer)
	} else {
		there.Lack(&out.Answer, wire.InDoubt) // it may have arrived
	}
	out.Lacking = errors.Join(out.Lacking, r.err)
	return out, nil
}

// split divides a push into the counters that the region holds and those that it relays, with the items
// of the same keys: the parent has counted what its takes granted in all limits of a key. If it relays
// none, both results are nil.
func split(p *wire.Push) (here, there *store.Part) {
	relayed := map[wire.ID]bool{}
	for i := range p.Items {
		if of := &p.Items[i].LimitCounter; !Holds(of) {
			relayed[of.ID] = true
		}
	}
	there, here = store.Divide(p, func(item *wire.Item) bool { return relayed[item.ID] }, func(take *wire.Take) bool {
		return slices.ContainsFunc(take.Rooms, func(room wire.Room) bool { return !Holds(&room.LimitCounter) })
	})
	if len(there.Items)+len(there.Takes) == 0 {
		return nil, nil
	}
	// The parent knows the region as a single node, and the region itself asks for its overrides.
	there.Push = wire.Push{Namespace: p.Namespace, Sender: p.Sender, Sequence: p.Sequence, Floor: p.Floor, Items: there.Items, Takes: there.Takes}
	return here, there
}

// The answer lacks parts if the parent was late, or was not asked because it owes too many answers.
var (
	errLate = errors.New("the parent has not answered in time")
	errMany = errors.New("too many pushes wait for the parent")
)

// relay sends the parent the part of a push that a region does not hold. If the parent lacks a part of it, there is an
// error besides the answer.
func (s *Store) relay(p *wire.Push) (*wire.Answer, error) {
	p.Node = s.node
	ctx, cancel := context.WithTimeout(s.ended, s.waits)
	defer cancel()
	answer, err := s.whole(ctx, wire.AppendPush(nil, p), len(p.Items), len(p.Takes))
	if errors.Is(err, ErrRefused) {
		err = fmt.Errorf("%w: %w", store.ErrFull, err) // an error for this sender, not a failure of the store
	}
	return answer, err
}

// push asks the parent for the hits that the push's takes lack, and applies the push to the own
// store.
func (s *Store) push(ctx context.Context, p *wire.Push, nodes uint64) (store.Outcome, error) {
	a := s.ask(ctx, p)
	s.foresee(ctx, p, a)
	out, err := s.Own.Push(context.WithValue(ctx, askingKey{}, a), p, nodes)
	s.pushed(p, &out, a)
	return out, err
}

// askingKey is the context key of a push's asking.
type askingKey struct{}

// asking is the state of a push that may ask the parent for hits.
type asking struct {
	// alone has the funds that the parent has not answered in time: the policy decides for them.
	alone map[*fund]bool
	// reserved is how many hits of each fund the push's takes want, until the own store has
	// decided.
	reserved map[*fund]uint64
	// apart is how many tokens the takes may get from a fund's share until then.
	apart map[*fund]uint64
	waits []wait
}

// wait is a fund that has too few hits for the push, and its answered channel.
type wait struct {
	fund     *fund
	answered chan struct{}
}

// ask asks the parent for the hits that the push's takes lack, and waits for the answers.
func (s *Store) ask(ctx context.Context, p *wire.Push) *asking {
	a := &asking{reserved: map[*fund]uint64{}, alone: map[*fund]bool{}, apart: map[*fund]uint64{}}
	if len(p.Takes) == 0 {
		return a
	}
	s.Look(p.Namespace, func(c store.Calendar, contents func(wire.LimitCounter) *store.Contents) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for f, wants := range s.wants(p) {
			free := f.free(c, contents(f.key.of))
			f.held, f.heldAt = free, c.NowNanos
			free -= min(free, f.reserved)
			// Reserved hits can't go back to the parent before the own store decides.
			f.reserved += wants
			a.reserved[f] = wants
			if f.known && wants <= free {
				continue
			}
			s.hasten(f)
			if f.unanswered || !s.away.IsZero() || s.bars(f) {
				a.alone[f] = true
				continue
			}
			f.need = min(f.need+wants-min(wants, free), wire.MaxHits)
			if f.answered == nil {
				f.answered = make(chan struct{})
			}
			a.waits = append(a.waits, wait{f, f.answered})
		}
	})
	if len(a.waits) == 0 {
		return a
	}
	waits := s.patience(ctx)
	ctx, cancel := context.WithTimeout(ctx, waits)
	defer cancel()
	late := false
	for _, w := range a.waits {
		select {
		case <-w.answered:
			continue
		case <-ctx.Done():
		}
		select {
		case <-w.answered: // while ask waited for another fund
		default:
			a.alone[w.fund], late = true, true
		}
	}
	if late && waits > 0 { // else the caller's time was over before the region could ask
		s.hurried(waits)
	}
	return a
}

// patience returns how long a push waits for the parent. It leaves some of the caller's time to the
// own store and to the answer's way back.
func (s *Store) patience(ctx context.Context) time.Duration {
	if until, bounded := ctx.Deadline(); bounded {
		return min(s.waits, time.Until(until)*7/8)
	}
	return s.waits
}

// wants returns how many hits a push's takes wait for, by fund. The caller holds the lock.
func (s *Store) wants(p *wire.Push) map[*fund]uint64 {
	wants := map[*fund]uint64{}
	for i := range p.Takes {
		take := &p.Takes[i]
		for j := range take.Rooms {
			room := &take.Rooms[j]
			f := s.fund(key{p.Namespace, room.LimitCounter})
			f.hear(room)
			least, most := times(take.Least, room.Cost), times(take.Most, room.Cost)
			if room.Cost > 0 {
				f.wanted = max(f.wanted, f.standing)
			}
			quota := max(room.Limit, room.Burst)
			switch most = min(most, quota); {
			case least > quota:
				least = 0 // it gets nothing in any case
			case !take.Lease: // it gets all hits that are free
				least = max(least, most)
			case f.standing > 0:
				f.wanted = max(f.wanted, most)
			}
			wants[f] = min(wants[f]+least, wire.MaxHits)
		}
	}
	return wants
}

// times returns a·b, at most wire.MaxHits.
func times(a, b uint64) uint64 {
	hits, _ := store.Product(a, b)
	return hits
}

// pushed records a push's effect on the funds.
func (s *Store) pushed(p *wire.Push, out *store.Outcome, a *asking) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for f, wants := range a.reserved {
		f.reserved -= wants
	}
	for f, may := range a.apart {
		f.apart -= may
	}
	c := store.Calendar{NowNanos: out.Answer.NowNanos}
	for i := range p.Items {
		f := s.fund(key{p.Namespace, p.Items[i].LimitCounter})
		f.dirty, f.idle = true, 0
		if f.part != nil && p.Items[i].Hits[0] < 0 && !out.Duplicate {
			f.count(c, f.part.Limit, p.Items[i].Hits[0])
		}
		if limit := p.Items[i].Limit; limit != 0 {
			f.limit = limit
		}
	}
	for i := range out.Answer.Grants {
		for _, room := range p.Takes[i].Rooms {
			f := s.fund(key{p.Namespace, room.LimitCounter})
			f.dirty = true
			if got := times(out.Answer.Grants[i].Units, room.Cost); !out.Duplicate {
				f.given = min(f.given+got, wire.MaxHits)
				f.held -= min(f.held, got)
				if got > 0 && f.known && f.held < f.wanted/2 {
					s.hasten(f) // not before the take is decided: the push would not see what it leaves
				}
				if f.part != nil {
					f.count(c, f.part.Limit, int64(got))
				}
			}
		}
	}
}

// Whole implements [store.Granter].
func (s *Store) Whole(c store.Calendar, namespace string, item *wire.Item, own *store.Contents) *store.Contents {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.funds[key{namespace, item.LimitCounter}]
	if f == nil || !f.known {
		return own
	}
	return f.merged(c, item, own)
}

// Returns implements [store.Granter]. What an item gives back beyond the hits of the region's nodes was counted at the
// parent alone, for a take that was relayed, or in another region.
func (s *Store) Returns(ctx context.Context, c store.Calendar, namespace string, item *wire.Item, own *store.Contents) {
	if _, asks := ctx.Value(askingKey{}).(*asking); !asks || !slices.ContainsFunc(item.Hits, func(hits int64) bool { return hits < 0 }) {
		return // a correction takes nothing from the parent
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fund(key{namespace, item.LimitCounter}).giveBack(c, item, own)
}

// Most implements [store.Granter].
func (s *Store) Most(ctx context.Context, c store.Calendar, namespace string, take *wire.Take, own func(wire.LimitCounter) *store.Contents) uint64 {
	a, asks := ctx.Value(askingKey{}).(*asking)
	if !asks {
		return take.Most // a ping of the own store, or a correction
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	most := take.Most
	for i := range take.Rooms {
		room := &take.Rooms[i]
		if room.Cost == 0 {
			continue
		}
		f := s.fund(key{namespace, room.LimitCounter})
		had := own(room.LimitCounter)
		free := f.free(c, had)
		// Hits beyond the least are first for other takes that wait.
		unreserved := free - min(free, f.reserved-min(f.reserved, a.reserved[f]))
		if take.Lease {
			unreserved -= unreserved / 2 // the rest is for other nodes, until the region has more
		}
		units := max(unreserved, min(free, times(take.Least, room.Cost))) / room.Cost
		if a.alone[f] && units < take.Least {
			units = max(units, s.byPolicy(c, f, room, had)/room.Cost)
			if f.part != nil {
				may := times(min(units, most), room.Cost)
				f.apart, a.apart[f] = f.apart+may, a.apart[f]+may
			}
			if units >= take.Least && s.o.Policy != Deny {
				s.exceed(c, namespace, room)
			}
		}
		most = min(most, units)
	}
	return most
}

// byPolicy returns how many hits of a room the region may give out without the parent's grant.
func (s *Store) byPolicy(c store.Calendar, f *fund, room *wire.Room, own *store.Contents) uint64 {
	switch s.o.Policy {
	case Local:
		return wire.MaxHits // the own store compares the hits of all regions with the limit
	case Share:
		if s.most == 0 {
			return 0
		}
		part := *room
		part.Limit, part.Burst, part.Cost = part.Limit/s.sharers(), part.Burst/s.sharers(), 1
		if window.Kind(room.Kind).Refills() {
			return f.unparted(c, &part, room, own)
		}
		item := c.RoomItem(&part, 0)
		return c.Units(&wire.Take{Least: 1, Most: wire.MaxHits, Rooms: []wire.Room{part}}, []wire.Total{c.Total(own, &item)}, 1)
	}
	return 0
}

// sharers returns the number of regions that a limit is divided by. It is at least two, because
// another region may start while the parent is away. The caller holds the lock.
func (s *Store) sharers() uint64 { return max(2, s.most) }

// exceed records that a take got hits that the parent has not granted. The bound is that of the
// largest limit since the parent went away. At most maxBounds namespaces have a bound.
func (s *Store) exceed(c store.Calendar, namespace string, room *wire.Room) {
	e, bounded := s.alone[namespace]
	if !bounded && len(s.alone) >= maxBounds {
		return
	}
	if e.untilNanos <= c.NowNanos {
		e = excess{}
	}
	s.alone[namespace] = larger(e, s.exceeding(c.NowNanos, room))
}

// exceeding returns the bound of the hits that pass above a room's limit if the policy decides a
// take at a time.
func (s *Store) exceeding(atNanos uint64, room *wire.Room) excess {
	quota := room.Limit
	if window.Kind(room.Kind).Refills() {
		quota = min(room.Limit+room.Burst, wire.MaxHits) // the most hits within a window's width
	}
	bound := times(quota, s.sharers()-1)
	if s.o.Policy == Share {
		bound = quota - quota/s.sharers()
	}
	return excess{hits: bound, untilNanos: atNanos + 2*room.WidthMillis*1e6}
}
