package ratelimitservice

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"weir/internal/panics"
	"weir/ratelimit"
)

// maxTogether bounds the descriptors of a request that wait for the backend together, each in a
// goroutine: many requests with many descriptors would take much memory.
const maxTogether = 64

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
// descriptor refuses still takes hits of the others. Descriptors wait for the backend together, but
// those with the same counter are decided in their order.
func decide(ctx context.Context, all []asked) {
	if len(all) == 1 {
		if a := &all[0]; a.limited() {
			a.decide(ctx)
		}
		return
	}
	// All are linked before the first of them is decided.
	var firsts []*asked
	for i := range all {
		if a := &all[i]; a.limited() && !a.follow(all[:i]) {
			firsts = append(firsts, a)
		}
	}
	if len(firsts) == 0 {
		return
	}
	var waiting sync.WaitGroup
	var begun atomic.Int64
	some := func() {
		for i := begun.Add(1); int(i) <= len(firsts); i = begun.Add(1) {
			firsts[i-1].decide(ctx)
		}
	}
	for range min(len(firsts), maxTogether) - 1 {
		waiting.Go(some)
	}
	some()
	waiting.Wait()
}

// follow makes a descriptor be decided after the last earlier descriptor with the same counter, and
// reports whether there is one.
func (a *asked) follow(before []asked) bool {
	for i := len(before) - 1; i >= 0; i-- {
		if b := &before[i]; b.limited() && a.sameCounter(b) {
			b.next = a
			return true
		}
	}
	return false
}

func (a *asked) sameCounter(b *asked) bool {
	return a.limiter.Name() == b.limiter.Name() && slices.Equal(a.key, b.key)
}

// decide decides a descriptor, and those that follow it.
func (a *asked) decide(ctx context.Context) {
	defer panics.Catch("a descriptor's decision", func(err error) { a.err = err })
	for ; a != nil; a = a.next {
		a.ask(ctx)
		a.charge(ctx)
	}
}

// ask asks for the hits of a descriptor. A descriptor without hits asks whether another hit has
// room, or, if it has none, whether the limit has refused hits. Only a single instance knows that: among
// several, another may have refused some.
func (a *asked) ask(ctx context.Context) {
	a.decision, a.err = a.limiter.Decide(ctx, a.key, a.hits)
	if d := &a.decision; a.hits == 0 && d.Remaining == 0 {
		// A limit of 0 can't be exceeded.
		d.Allowed = (d.Allowed || d.Limit.Quota() == 0) && a.looks && !a.refusals.remembers(a) &&
			(d.Limit.Quota() == 0 || a.limiter.Namespace().Stats().Nodes <= 1)
	}
}

// charge takes the rest of a limit that refuses: the rate limit service counts refused hits, and
// nothing has room after that. Hits are not counted beyond the limit, so that leases which another
// instance gives back are there for later requests. The refusal itself is remembered.
func (a *asked) charge(ctx context.Context) {
	d := &a.decision
	if a.err != nil || d.Allowed || a.hits == 0 {
		return
	}
	a.refusals.add(a)
	// Other instances may have taken some of what this one knows of.
	for left := d.Remaining; left > 0; {
		rest, err := a.limiter.Decide(ctx, a.key, left)
		if err != nil || rest.Allowed || rest.Remaining >= left {
			return // the request is refused in any case
		}
		left = rest.Remaining
	}
}

// decideTogether decides all descriptors at once: a refused request takes nothing from limits that
// have room, and charge says whether limits that refuse are charged. A limit of shadow_mode or
// quota_mode refuses nothing by itself. Its descriptor is decided after the others, and takes
// nothing if they refuse.
func decideTogether(ctx context.Context, all []asked, charge Charge) {
	var enforced, others []*asked
	allowed := true
	for i := range all {
		switch a := &all[i]; {
		case !a.limited():
		case a.limit.shadow || a.limit.quota:
			others = append(others, a)
		case a.looks:
			a.ask(ctx)
			allowed = allowed && a.decision.Allowed
		default:
			enforced = append(enforced, a)
		}
	}
	if allowed {
		allowed = takeAll(ctx, enforced)
	} else {
		for _, a := range enforced {
			a.decision, a.err = a.limiter.Decide(ctx, a.key, 0)
			a.decision.Allowed = a.decision.Remaining >= a.hits
		}
	}
	for _, a := range others {
		if !allowed {
			a.hits, a.looks = 0, false
		}
		a.ask(ctx)
	}
	for i := range all {
		if a := &all[i]; charge == ChargeRefusing && a.limited() {
			a.charge(ctx)
		}
	}
}

// takeAll takes all hits or none, and reports whether it took them. Descriptors with the same
// counter take their sum.
func takeAll(ctx context.Context, all []*asked) (allowed bool) {
	var demands []ratelimit.Demand
	var first []*asked
	of := make([]int, len(all)) // the index of each descriptor's demand
	for i, a := range all {
		of[i] = slices.IndexFunc(first, a.sameCounter)
		if of[i] < 0 {
			of[i], first = len(first), append(first, a)
		}
	}
	for i, a := range first {
		hits := uint64(0)
		for j, b := range all {
			if of[j] == i {
				hits += b.hits
			}
		}
		demands = append(demands, a.limiter.Demand(a.key, hits))
	}
	decision, err := ratelimit.Decide(ctx, demands...)
	refusing := false
	for i, a := range all {
		if a.err = err; err != nil {
			continue
		}
		a.decision = decision
		a.decision.Standing = decision.Standings[of[i]]
		a.decision.Allowed = decision.Allowed || a.decision.Remaining >= a.hits
		refusing = refusing || !a.decision.Allowed
	}
	if err == nil && !decision.Allowed && !refusing {
		// Each has room by itself, but not all together on the same counter.
		for _, a := range all {
			a.decision.Allowed = false
		}
	}
	return err == nil && decision.Allowed
}
