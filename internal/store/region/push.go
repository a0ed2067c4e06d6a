package region

import (
	"context"
	"errors"
	"fmt"
	"time"

	"weir/internal/store"
	"weir/internal/wire"
	"weir/window"
)

// Push implements [store.Store]. It waits for the parent only if a take lacks hits, or asks for counters
// that a region does not hold. While the parent is away, [Policy] decides the first, and the answer lacks
// the second.
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
	s.tasks.Go(func() {
		answer, err := s.relay(&there.push)
		relayed <- reply{answer, err}
	})
	out, err := s.push(ctx, &here.push, nodes)
	r := reply{err: errLate}
	timer := time.NewTimer(patience(ctx))
	defer timer.Stop()
	select {
	case r = <-relayed:
	case <-timer.C:
	case <-ctx.Done():
	}
	if err != nil {
		return store.Outcome{}, err
	}
	if r.err != nil && len(here.items)+len(here.takes) == 0 {
		return store.Outcome{}, r.err
	}
	out.Answer = join(p, here, there, &out.Answer, r.answer)
	out.Lacking = errors.Join(out.Lacking, r.err)
	return out, nil
}

// part is a part of a push, with the places of its items and takes in that.
type part struct {
	push         wire.Push
	items, takes []int
}

// split takes a push apart: into what the region holds, and what it relays, nil if that is nothing.
func split(p *wire.Push) (here, there *part) {
	here = &part{push: *p}
	here.push.Items, here.push.Takes = nil, nil
	// The parent knows the region as one node, whose overrides the region itself asks for.
	there = &part{push: wire.Push{Namespace: p.Namespace, Sender: p.Sender, Sequence: p.Sequence, Floor: p.Floor}}
	for i := range p.Items {
		to := there
		if Holds(&p.Items[i].LimitCounter) {
			to = here
		}
		to.push.Items, to.items = append(to.push.Items, p.Items[i]), append(to.items, i)
	}
	for i := range p.Takes {
		to := here
		for j := range p.Takes[i].Rooms {
			if !Holds(&p.Takes[i].Rooms[j].LimitCounter) {
				to = there
			}
		}
		to.push.Takes, to.takes = append(to.push.Takes, p.Takes[i]), append(to.takes, i)
	}
	if len(there.items)+len(there.takes) == 0 {
		return nil, nil
	}
	return here, there
}

// errLate says that a part of an answer is lacking.
var errLate = errors.New("the parent has not answered in time")

// relay has the parent apply what a region does not hold.
func (s *Store) relay(p *wire.Push) (*wire.Answer, error) {
	p.Node = s.node
	ctx, cancel := context.WithTimeout(s.ended, attemptTimeout)
	defer cancel()
	answer, err := s.whole(ctx, wire.AppendPush(nil, p), len(p.Items), len(p.Takes))
	if errors.Is(err, ErrRefused) {
		err = fmt.Errorf("%w: %w", store.ErrFull, err) // it is this sender's, and not a failure of the store
	}
	return answer, err
}

// join puts together the answers to the parts of a push. A part that the parent did not answer is in
// doubt: it may have arrived.
func join(p *wire.Push, here, there *part, a, relayed *wire.Answer) wire.Answer {
	all := *a
	all.Totals, all.Grants = make([]wire.Total, len(p.Items)), make([]wire.Grant, len(p.Takes))
	for i, at := range here.items {
		all.Totals[at] = a.Totals[i]
	}
	for i, at := range here.takes {
		all.Grants[at] = a.Grants[i]
	}
	if relayed == nil {
		all.Missing = make([]wire.Missing, len(p.Items)+len(p.Takes))
		for _, at := range there.items {
			all.Missing[at] = wire.InDoubt
		}
		for _, at := range there.takes {
			all.Missing[len(p.Items)+at] = wire.InDoubt
		}
		return all
	}
	for i, at := range there.items {
		all.Totals[at] = relayed.Totals[i]
	}
	for i, at := range there.takes {
		all.Grants[at] = relayed.Grants[i]
	}
	return all
}

// push asks the parent for the hits that a push's takes lack, and has the own store apply the push.
func (s *Store) push(ctx context.Context, p *wire.Push, nodes uint64) (store.Outcome, error) {
	a := s.ask(ctx, p)
	s.foresee(ctx, p, a)
	out, err := s.Own.Push(context.WithValue(ctx, askingKey{}, a), p, nodes)
	s.pushed(p, &out, a)
	return out, err
}

// askingKey is where a push's context has its asking.
type askingKey struct{}

// asking is a push that asks for hits.
type asking struct {
	// alone are those that the parent has not answered in time.
	alone map[*fund]bool
	// reserved has what takes want of funds until the own store has decided.
	reserved map[*fund]uint64
	// apart are tokens that takes may get of funds' parts, likewise.
	apart map[*fund]uint64
	waits []wait
}

// wait is for what a push lacks of a fund.
type wait struct {
	fund     *fund
	answered chan struct{}
}

// ask asks the parent for what a push's takes lack, and waits for the answers.
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
			f.held = free
			free -= min(free, f.reserved)
			// Or else what is there could go back before the own store decides.
			f.reserved += wants
			a.reserved[f] = wants
			if f.known && wants <= free {
				if free-wants < f.wanted/2 {
					s.hasten(f)
				}
				continue
			}
			s.hasten(f)
			if f.unanswered || !s.away.IsZero() {
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
	waits := patience(ctx)
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
		case <-w.answered: // while another was waited for
		default:
			a.alone[w.fund], late = true, true
		}
	}
	if late {
		s.hurried(waits)
	}
	return a
}

// patience is how long a push waits for the parent: the own store, and the answer's way, have a part of
// the time, too.
func patience(ctx context.Context) time.Duration {
	if until, bounded := ctx.Deadline(); bounded {
		return min(attemptTimeout, time.Until(until)*7/8)
	}
	return attemptTimeout
}

// wants is how many hits the takes of a push wait for, by funds. The lock is held.
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
			switch {
			case !take.Lease: // it gets all that is there
				least = max(least, min(most, max(room.Limit, room.Burst)))
			case f.standing > 0:
				f.wanted = max(f.wanted, most)
			}
			wants[f] = min(wants[f]+least, wire.MaxHits)
		}
	}
	return wants
}

// times is a product of hits, wire.MaxHits at most.
func times(a, b uint64) uint64 {
	if a != 0 && b > wire.MaxHits/a {
		return wire.MaxHits
	}
	return a * b
}

// pushed notes what a push has changed.
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
		for j := range p.Takes[i].Rooms {
			room := &p.Takes[i].Rooms[j]
			f := s.fund(key{p.Namespace, room.LimitCounter})
			f.dirty = true
			if got := times(out.Answer.Grants[i].Units, room.Cost); !out.Duplicate {
				f.given = min(f.given+got, wire.MaxHits)
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

// Most implements [store.Granter].
func (s *Store) Most(ctx context.Context, c store.Calendar, namespace string, take *wire.Take, own func(wire.LimitCounter) *store.Contents) uint64 {
	a, asks := ctx.Value(askingKey{}).(*asking)
	if !asks {
		return take.Most // the region's own store is tried, or corrected
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
		// Others that wait come first with what goes beyond the least.
		unreserved := free - min(free, f.reserved-min(f.reserved, a.reserved[f]))
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

// byPolicy is how many hits of a room the region gives out that the parent has not granted.
func (s *Store) byPolicy(c store.Calendar, f *fund, room *wire.Room, own *store.Contents) uint64 {
	switch s.o.Policy {
	case Local:
		return wire.MaxHits // what all have is looked at besides
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

// sharers is how many regions a limit is reckoned to be for: at least two, as another may come while the
// parent is away. The lock is held.
func (s *Store) sharers() uint64 { return max(2, s.most) }

// exceed notes that a take got hits that the parent has not granted. The bound goes by the largest limit
// since the parent was away.
func (s *Store) exceed(c store.Calendar, namespace string, room *wire.Room) {
	e := s.alone[namespace]
	if e.untilNanos <= c.NowNanos {
		e = excess{}
	}
	s.alone[namespace] = larger(e, s.exceeding(c.NowNanos, room))
}

// exceeding bounds the hits that pass above a room's limit, if the policy decides a take at a time.
func (s *Store) exceeding(atNanos uint64, room *wire.Room) excess {
	quota := room.Limit
	if window.Kind(room.Kind).Refills() {
		quota = min(room.Limit+room.Burst, wire.MaxHits) // in the time of a window
	}
	bound := times(quota, s.sharers()-1)
	if s.o.Policy == Share {
		bound = quota - quota/s.sharers()
	}
	return excess{hits: bound, untilNanos: atNanos + 2*room.WidthMillis*1e6}
}
