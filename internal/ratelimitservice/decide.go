package ratelimitservice

import (
	"context"
	"encoding/binary"
	"slices"

	"weir/ratelimit"
)

// maxTogether bounds the descriptors of a request that are decided together, because each takes memory
// while it waits for the backend.
const maxTogether = 128

// giveBack gives back the hits of descriptors that ask for it. They take no hits, and their answers
// show the counters afterwards.
func giveBack(ctx context.Context, all []asked) error {
	for i := range all {
		if a := &all[i]; a.back > 0 && a.limited() {
			if err := a.limiter.GiveBack(ctx, a.key, a.back); err != nil {
				return err
			}
			a.refusals.forget(a)
		}
	}
	return nil
}

// decide decides each descriptor by itself, as the rate limit service does: a request that one
// descriptor refuses still takes hits of the others. Descriptors with the same counter are decided in
// their order, and the others together.
func decide(ctx context.Context, all []*asked) error {
	for some := firsts(all); len(some) > 0; some = followers(some) {
		if err := ask(ctx, some); err != nil {
			return err
		}
		charge(ctx, some, ChargeAll)
	}
	return nil
}

// firsts links descriptors with the same counter in their order, and returns the first of each.
func firsts(all []*asked) []*asked {
	for _, a := range all {
		a.next = nil // of an earlier attempt
	}
	if len(all) < 2 {
		return all
	}
	some, last := make([]*asked, 0, len(all)), make(map[string]*asked, len(all))
	var name []byte
	for _, a := range all {
		name = a.appendCounter(name[:0])
		if before := last[string(name)]; before != nil {
			before.next = a
		} else {
			some = append(some, a)
		}
		last[string(name)] = a
	}
	return some
}

// followers are the next descriptors with the counters of some.
func followers(some []*asked) (next []*asked) {
	for _, a := range some {
		if a.next != nil {
			next = append(next, a.next)
		}
	}
	return next
}

// appendCounter appends what names a descriptor's counter: its rule and key.
func (a *asked) appendCounter(to []byte) []byte {
	to = append(to, a.limiter.Name()...)
	for _, part := range a.key {
		to = binary.BigEndian.AppendUint64(to, uint64(len(part))) // no name of a rule has a byte of 0
		to = append(to, part...)
	}
	return to
}

// each asks for hits of descriptors, each by itself, and has the answers heard in their order.
func each(ctx context.Context, all []*asked, hits func(*asked) uint64, heard func(*asked, *ratelimit.Decision)) error {
	for some := range slices.Chunk(all, maxTogether) {
		demands := make([]ratelimit.Demand, len(some))
		for i, a := range some {
			demands[i] = a.limiter.Demand(a.key, hits(a))
		}
		decisions, err := ratelimit.DecideEach(ctx, demands...)
		if err != nil {
			return err
		}
		for i, a := range some {
			heard(a, &decisions[i])
		}
	}
	return nil
}

// ask asks for the hits of descriptors.
func ask(ctx context.Context, all []*asked) error {
	return each(ctx, all, func(a *asked) uint64 { return a.hits }, (*asked).hear)
}

// look asks how limits stand, and takes nothing. Those whose hits were taken, or have room, allow them.
func look(ctx context.Context, all []*asked) error {
	return each(ctx, all, func(*asked) uint64 { return 0 }, func(a *asked, d *ratelimit.Decision) {
		d.Allowed = a.decision != nil && a.decision.Allowed || d.Remaining >= a.hits
		a.decision = d
	})
}

// hear takes in a decision. A descriptor without hits asks whether another hit has room, or, if it has
// none, whether the limit has refused hits. Only a single instance knows that: among several, another may
// have refused some.
func (a *asked) hear(d *ratelimit.Decision) {
	if a.decision = d; a.hits == 0 && d.Remaining == 0 {
		// A limit of 0 can't be exceeded.
		d.Allowed = (d.Allowed || d.Limit.Quota() == 0) && a.looks && !a.refusals.remembers(a) &&
			(d.Limit.Quota() == 0 || a.limiter.Namespace().Stats().Nodes <= 1)
	}
}

// charge remembers refusals. Unless the domain charges none, it takes the rest of limits that refuse: the
// rate limit service counts refused hits, and nothing has room after that. Hits are not counted beyond a
// limit, so that leases which another instance gives back are there for later requests.
func charge(ctx context.Context, all []*asked, charges Charge) {
	var charged []*asked
	for _, a := range all {
		if a.decision.Allowed || a.hits == 0 {
			continue
		}
		if a.refusals.add(a); charges != ChargeAllOrNone {
			a.rest = a.decision.Remaining
			charged = append(charged, a)
		}
	}
	for charged = withRest(charged); len(charged) > 0; charged = withRest(charged) {
		// Other instances may have taken some of what this one knows of.
		if each(ctx, charged, func(a *asked) uint64 { return a.rest }, func(a *asked, d *ratelimit.Decision) {
			if left := d.Remaining; !d.Allowed && left < a.rest {
				a.rest = left
			} else {
				a.rest = 0
			}
		}) != nil {
			return // the request is refused in any case
		}
	}
}

func withRest(all []*asked) []*asked {
	return slices.DeleteFunc(all, func(a *asked) bool { return a.rest == 0 })
}

// decideTogether decides all descriptors at once: a refused request takes nothing from limits that
// have room, and charges says whether limits that refuse are charged. A quota without room refuses nothing
// while another has room. Then the others take their hits without it. quota makes all limits quotas.
func decideTogether(ctx context.Context, all []*asked, charges Charge, quota bool) error {
	var looking, taking, shadows []*asked
	for _, a := range all {
		switch {
		case a.looks:
			looking = append(looking, a)
		case a.limit.shadow:
			shadows = append(shadows, a)
		default:
			taking = append(taking, a)
		}
	}
	err := ask(ctx, looking)
	if err == nil && len(refusing(all, quota)) > 0 {
		err = look(ctx, taking)
	}
	for taken := false; err == nil && !taken && len(refusing(all, quota)) == 0; {
		taking = slices.DeleteFunc(taking, (*asked).lacksRoom)
		taken, err = takeAll(ctx, taking)
	}
	if err == nil { // by themselves: that a part of the store is away which they need is nothing to the others
		if len(refusing(all, quota)) > 0 {
			err = look(ctx, shadows)
		} else {
			err = ask(ctx, shadows)
		}
	}
	if err != nil {
		return err
	}
	charged := refusing(all, quota)
	if len(charged) == 0 {
		charged = all // of a request that passes: shadows and quotas
	}
	charge(ctx, charged, charges)
	return nil
}

// lacksRoom reports whether the descriptor is decided, and its hits have no room.
func (a *asked) lacksRoom() bool { return a.decision != nil && !a.decision.Allowed }

// refusing returns the descriptors that refuse the request, as far as they are decided: those without room
// of limits that are enforced, or else all quotas if none of them has room.
func refusing(all []*asked, quota bool) (these []*asked) {
	quotas, spent := 0, []*asked(nil)
	for _, a := range all {
		over := a.lacksRoom() && !a.limit.shadow
		switch {
		case quota || a.limit.quota:
			if quotas++; over {
				spent = append(spent, a)
			}
		case over:
			these = append(these, a)
		}
	}
	if len(these) == 0 && len(spent) == quotas {
		return spent
	}
	return these
}

// takeAll takes all hits or none, and reports whether it took them. Descriptors with the same
// counter take their sum by the least of their limits. Those of that limit are refused together.
func takeAll(ctx context.Context, all []*asked) (allowed bool, err error) {
	some := firsts(all)
	demands, sums, leasts := make([]ratelimit.Demand, len(some)), make([]uint64, len(some)), make([]*asked, len(some))
	for i, first := range some {
		leasts[i] = first
		for a := first; a != nil; a = a.next {
			sums[i] += a.hits
			if a.limit.told.RequestsPerUnit < leasts[i].limit.told.RequestsPerUnit {
				leasts[i] = a
			}
		}
		demands[i] = leasts[i].limiter.Demand(leasts[i].key, sums[i])
	}
	decision, err := ratelimit.Decide(ctx, demands...)
	if err != nil {
		return false, err
	}
	refusing := false
	var others []*asked // with another limit than the least of their counter
	for i, first := range some {
		for a := first; a != nil; a = a.next {
			d := decision
			d.Standing = d.Standings[i]
			d.Allowed = d.Allowed || d.Remaining >= sums[i]
			refusing = refusing || !d.Allowed
			if a.decision = &d; a.limit.told.RequestsPerUnit != leasts[i].limit.told.RequestsPerUnit {
				others = append(others, a)
			}
		}
	}
	if !decision.Allowed && !refusing {
		// All have room, but nobody may take it, as on_backend_failure says.
		for _, a := range all {
			a.decision.Allowed = false
		}
	}
	return decision.Allowed, look(ctx, others)
}
