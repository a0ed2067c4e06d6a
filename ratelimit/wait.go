package ratelimit

import (
	"context"
	"fmt"
	"math"
	"time"
)

// Wait waits until one more hit of a key has room, and counts it. It is [Limiter.WaitN] with a cost
// of 1.
func (l *Limiter) Wait(ctx context.Context, key ...string) error {
	return l.WaitN(ctx, key, 1)
}

// WaitN waits until cost hits of a key have room, and counts them. Calls for the same key get room
// in the order in which they began to wait. While any of them waits, no other call overtakes it:
// [Limiter.Allow] returns false. Different programs and proxies have no common order.
//
// The error wraps [ErrNoRoom] immediately if room would come later than ctx or Rule.Delay allows,
// or if Rule.Queue calls for the key are waiting already. It wraps ctx's error if ctx ends while
// waiting, and [ErrClosed] after [Namespace.Close], which ends all waiting. With an error nothing
// is counted, and the calls behind move up. A cost above 0 on a rule with [InFlight] needs
// [Acquire].
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
	var d Decision
	err := n.decide(ctx, c, &d, nil)
	switch {
	case err != nil:
		return err
	case !d.Allowed:
		return failed(ErrNoRoom)
	}
	return nil
}

// alarm ticks the node of a namespace without a backend while calls wait for room. The caller of
// its methods holds the namespace's lock.
type alarm struct {
	namespace *Namespace
	timer     *time.Timer
	every     time.Duration
	armed     bool
}

// set changes the interval between ticks.
func (a *alarm) set(every time.Duration) {
	if a.every = every; a.armed {
		a.timer.Reset(every)
	}
}

// arm starts the ticks unless they run already.
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

// ring makes one tick.
func (a *alarm) ring() {
	n := a.namespace
	n.mu.Lock()
	defer n.mu.Unlock()
	_ = n.guard(n.node.Tick) // who waits hears of it
	n.steer()
	if a.armed = n.node.Delayed() > 0; a.armed {
		a.timer.Reset(a.every)
	}
}
