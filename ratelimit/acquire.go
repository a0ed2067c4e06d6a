package ratelimit

import (
	"container/list"
	"context"
	"time"

	"weir/internal/counter"
	"weir/internal/node"
	"weir/window"
)

// usualHold is the Hold of a rule that has none.
const usualHold = 10 * time.Minute

// place holds for a call what it has taken of rules with InFlight, until it is released.
type place struct {
	namespace *Namespace
	charges   []node.Charge
	hold      int64 // the longest of its rules', in nanoseconds
	since     int64
	renewed   int64
	at        *list.Element // of its namespace's places; nil if it was given back
}

// Acquire is [Limiter.Allow] of a rule with [InFlight]: it reports whether one more request of a key has
// room, which then holds its place until release is called. release is never nil, and may be called more
// than once, and after [Namespace.Close].
func (l *Limiter) Acquire(ctx context.Context, key ...string) (release func(), acquired bool, err error) {
	release, d, err := Acquire(ctx, l.Demand(key, 1))
	return release, d.Allowed, err
}

// Acquire is [Decide] of demands some of which are of rules with [InFlight]. If the request is allowed, it
// holds the places of these until release is called, or for as long as their Hold says. Hits of other rules
// are taken as always.
//
// Places of a program that dies come back after half a minute. A place is released by the program that
// holds it, and by nobody else. release is never nil, and may be called more than once, and after
// [Namespace.Close], which releases nothing.
func Acquire(ctx context.Context, demands ...Demand) (release func(), decision Decision, err error) {
	var held *place
	decision, err = decideAll(ctx, demands, &held)
	if held == nil {
		return func() {}, decision, err
	}
	return held.release, decision, err
}

// take notes what an allowed call holds. The lock is held.
func (n *Namespace) take(demands []node.Demand, limiters []*Limiter, now int64) *place {
	p := &place{namespace: n, since: now, renewed: now}
	for i := range demands {
		if d := &demands[i]; limiters[i].holds() && d.Cost > 0 {
			p.charges = append(p.charges, n.node.Charge(d, now))
			p.hold = max(p.hold, int64(limiters[i].hold))
		}
	}
	if len(p.charges) == 0 {
		return nil
	}
	p.at = n.places.PushBack(p)
	return p
}

// holds reports whether the rule is one of [Acquire]'s.
func (l *Limiter) holds() bool { return l.rule.Limits[0].Kind.Held() }

func (p *place) release() {
	n := p.namespace
	n.mu.Lock()
	defer n.mu.Unlock()
	n.giveBack(p)
	n.node.PushCharges()
}

// giveBack gives back what is still held. The lock is held.
func (n *Namespace) giveBack(p *place) {
	if p.at == nil {
		return
	}
	n.places.Remove(p.at)
	p.at = nil
	now := n.now()
	for i := range p.charges {
		n.node.Release(&p.charges[i], now)
	}
}

// renew has what is held count on. It is called before whatever could see that it does not. The lock is
// held.
func (n *Namespace) renew() {
	if n.places.Len() == 0 {
		return
	}
	now := n.now()
	for n.places.Len() > 0 {
		p := n.places.Front().Value.(*place)
		if now >= p.renewed && now-p.renewed < window.RenewEvery {
			return
		}
		if now-p.since >= p.hold {
			n.giveBack(p)
			continue
		}
		for i := range p.charges {
			n.node.Renew(&p.charges[i], now)
		}
		p.renewed = now
		n.places.MoveToBack(p.at)
	}
}

// held calls visit with what callers of Acquire hold, as long as that wants more. The lock is held.
func (n *Namespace) held(visit func(c *node.Charge, since int64) (more bool)) {
	for at := n.places.Front(); at != nil; at = at.Next() {
		p := at.Value.(*place)
		for i := range p.charges {
			if !visit(&p.charges[i], p.since) {
				return
			}
		}
	}
}

// hold notes what a call holds, if it is allowed and asks for that.
func (c *call) hold(demands []node.Demand, now int64, verdict counter.Verdict) {
	if c.held != nil && verdict == counter.Allowed {
		*c.held = c.namespace.take(demands, c.limiters, now)
	}
}
