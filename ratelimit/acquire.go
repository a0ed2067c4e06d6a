package ratelimit

import (
	"container/list"
	"context"
	"time"

	"weir/internal/engine"
	"weir/window"
)

// usualHold is the Hold of a rule that has none.
const usualHold = 10 * time.Minute

// place is the set of hits that one allowed call of Acquire holds until it is released.
type place struct {
	namespace *Namespace
	charges   []engine.Charge
	hold      int64 // nanoseconds: the longest Hold among its rules
	since     int64
	renewed   int64
	at        *list.Element // its element of Namespace.places; nil after giveBack
}

// Acquire is [Limiter.Allow] for a rule with [InFlight]. If one more request of the key has room,
// acquired is true and the request holds a place until release is called. release is never nil. It
// may be called more than once, and after [Namespace.Close].
func (l *Limiter) Acquire(ctx context.Context, key ...string) (release func(), acquired bool, err error) {
	release, d, err := Acquire(ctx, l.Demand(key, 1))
	return release, d.Allowed, err
}

// Acquire is [Decide] for demands of which some are on rules with [InFlight]. An allowed request
// holds its places in those rules until release is called, and at most for the longest Hold of
// these rules. Other rules take their hits as usual.
//
// If a program dies, its places come back after half a minute. Only the program that holds a place
// can release it. release is never nil. It may be called more than once, and after
// [Namespace.Close], when it does nothing.
func Acquire(ctx context.Context, demands ...Demand) (release func(), decision Decision, err error) {
	var held *place
	decision, err = decideAll(ctx, demands, &held)
	if held == nil {
		return func() {}, decision, err
	}
	return held.release, decision, err
}

// take records the places that an allowed call holds, or returns nil if it holds none. The caller
// holds the lock.
func (n *Namespace) take(demands []engine.Check, limiters []*Limiter, now int64) *place {
	p := &place{namespace: n, since: now, renewed: now}
	for i := range demands {
		if d := &demands[i]; limiters[i].holds() && d.Cost > 0 {
			p.charges = append(p.charges, n.node.Charges.Of(d, now))
			p.hold = max(p.hold, int64(limiters[i].hold))
		}
	}
	if len(p.charges) == 0 {
		return nil
	}
	p.at = n.places.PushBack(p)
	return p
}

// holds reports whether the rule counts requests in flight, so that only [Acquire] may take from
// it.
func (l *Limiter) holds() bool { return l.rule.Limits[0].Kind.Held() }

func (p *place) release() {
	n := p.namespace
	n.mu.Lock()
	defer n.mu.Unlock()
	n.giveBack(p)
	n.node.PushCharges()
}

// giveBack returns the places of p unless that was done before. The caller holds the lock.
func (n *Namespace) giveBack(p *place) {
	if p.at == nil {
		return
	}
	n.places.Remove(p.at)
	p.at = nil
	now := n.now()
	for i := range p.charges {
		n.node.Charges.Release(&p.charges[i], now)
	}
}

// renew keeps held places counted, and gives back those that have outlived their Hold. Everything
// that reads the counters calls it first. The caller holds the lock.
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
			n.node.Charges.Renew(&p.charges[i], now)
		}
		p.renewed = now
		n.places.MoveToBack(p.at)
	}
}

// held calls visit with each charge that a caller of Acquire holds, until visit returns false. The
// caller holds the lock.
func (n *Namespace) held(visit func(c *engine.Charge, since int64) (more bool)) {
	for at := n.places.Front(); at != nil; at = at.Next() {
		p := at.Value.(*place)
		for i := range p.charges {
			if !visit(&p.charges[i], p.since) {
				return
			}
		}
	}
}
