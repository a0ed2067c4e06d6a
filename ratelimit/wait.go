package ratelimit

import (
	"context"
	"fmt"
	"math"
	"time"
)

// Wait waits until one more hit of a key has room, and counts it. It is [Limiter.WaitN] of one hit.
func (l *Limiter) Wait(ctx context.Context, key ...string) error {
	return l.WaitN(ctx, key, 1)
}

// WaitN waits until cost hits of a key have room, and counts them, which the other methods do at
// once or not at all. Calls of a key have room in the order in which they began to wait, and while
// any waits, no other call of the key overtakes it: [Limiter.Allow] is false then. Over several
// programs and proxies there is no such order.
//
// The error wraps [ErrNoRoom], at once, if room comes later than ctx ends or Rule.Delay allows, or
// if Rule.Queue calls of the key wait already. It wraps ctx's error if ctx ends meanwhile, and
// [ErrClosed] after [Namespace.Close], which nobody waits beyond. With an error nothing was
// counted, and others that wait move up. Rules with [InFlight] are for [Acquire].
func (l *Limiter) WaitN(ctx context.Context, key Key, cost uint64) error {
	if cost > 0 && l.holds() {
		return l.wantsAcquire()
	}
	n := l.namespace
	failed := func(err error) error {
		return fmt.Errorf("ratelimit: namespace %q: rule %q: wait: %w", n.name, l.name, err)
	}
	if err := ctx.Err(); err != nil {
		return failed(err)
	}
	patience := int64(math.MaxInt64)
	if deadline, ok := ctx.Deadline(); ok {
		patience = max(1, int64(time.Until(deadline)))
	}
	n.mu.Lock()
	c := n.call()
	c.add(l, key, cost)
	c.patient, c.wait.Patience = true, patience
	d, err := n.decide(ctx, c)
	switch {
	case err != nil:
		return err
	case !d.Allowed:
		return failed(ErrNoRoom)
	}
	return nil
}

// alarm ticks the node of a namespace without a backend while calls wait for room. The namespace's
// lock is held for all of it.
type alarm struct {
	namespace *Namespace
	timer     *time.Timer
	every     time.Duration
	armed     bool
}

// set has ticks come every so often.
func (a *alarm) set(every time.Duration) {
	if a.every = every; a.armed {
		a.timer.Reset(every)
	}
}

// arm has ticks come, if they don't yet.
func (a *alarm) arm() {
	if a.armed {
		return
	}
	a.armed = true
	if a.every == 0 {
		a.every = time.Duration(a.namespace.node.TickMillis()) * time.Millisecond
	}
	if a.timer == nil {
		a.timer = time.AfterFunc(a.every, a.ring)
	} else {
		a.timer.Reset(a.every)
	}
}

// ring is a tick.
func (a *alarm) ring() {
	n := a.namespace
	n.mu.Lock()
	defer n.mu.Unlock()
	n.node.Tick()
	if a.armed = n.node.Delayed() > 0; a.armed {
		a.timer.Reset(a.every)
	}
}
