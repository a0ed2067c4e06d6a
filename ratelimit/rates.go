package ratelimit

import (
	"context"
	"fmt"
	"time"

	"weir/internal/engine"
	"weir/window"
)

// Increment counts hits of a key in one of [Options.Windows], and returns the key's rate
// afterwards. The rate is the hits of the window, plus those of the window before, weighted by the
// share of it that a window ending now still covers. Windows start at multiples of their length
// since the Unix epoch.
//
// With a backend the rate counts the hits of all nodes, as of the last push. If this node does not
// know the key, Increment asks the backend and waits; if the backend can't be reached, the rate is
// that of this node. The error wraps [ErrNotDefined] if the namespace has no such window, and
// [ErrClosed] after [Namespace.Close]. It is the error of ctx if ctx ends first. With an error
// nothing is counted.
func (n *Namespace) Increment(ctx context.Context, key Key, window time.Duration, hits uint64) (rate float64, err error) {
	return n.rate(ctx, key, window, func(d *engine.Check, now int64) {
		if d.Cost = hits; hits > 0 {
			n.node.Force(d, now)
		}
	})
}

// Rate returns what [Namespace.Increment] would return for 0 hits.
func (n *Namespace) Rate(ctx context.Context, key Key, window time.Duration) (rate float64, err error) {
	return n.rate(ctx, key, window, func(*engine.Check, int64) {})
}

// RateWith returns the [Namespace.Rate] as it would be if exactly pending hits of the current
// window were not pushed yet. Without a backend all hits are.
func (n *Namespace) RateWith(ctx context.Context, key Key, window time.Duration, pending uint64) (rate float64, err error) {
	return n.rate(ctx, key, window, func(d *engine.Check, _ int64) {
		current := &d.Counter.States[0].Hits[0]
		if n.backend == nil {
			current.Total = 0
		}
		current.Pending = int64(min(pending, maxHits))
	})
}

// maxHits is window.MaxHits, for functions with a parameter named window.
const maxHits = window.MaxHits

// rate loads the counter of a key in a window, calls change, and returns the rate.
func (n *Namespace) rate(ctx context.Context, key Key, width time.Duration, change func(d *engine.Check, now int64)) (rate float64, err error) {
	rule := n.windows[width]
	if rule == nil {
		return 0, fmt.Errorf("ratelimit: namespace %q: window %v: %w", n.name, width, ErrNotDefined)
	}
	err = n.look(ctx, rule, key, 0, func(d *engine.Check, _ uint64, now int64) {
		change(d, now)
		rate = window.Rate(&d.Rule.Limits[0], &d.Counter.States[0])
	})
	return rate, err
}

// look loads the counter of a key, asking the backend if this node does not know its totals, and calls change. hits are to be
// given back: change has those that are not back yet, unless all are, and the backend is asked if this node knows of fewer.
func (n *Namespace) look(ctx context.Context, r *engine.Rule, key Key, hits uint64, change func(d *engine.Check, hits uint64, now int64)) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return fmt.Errorf("ratelimit: namespace %q: %w", n.name, ErrClosed)
	}
	c := n.call()
	defer n.release(c)
	c.asking = true
	d := c.demand(r)
	d.Key = key.append(d.Key)
	back, waits := false, false
	err := n.guard(func() {
		now := n.now()
		known, all := n.node.Look(d, now), hits
		hits = n.node.Charges.TakeBack(d, all, now)
		back = hits == 0 && all > 0
		waits = !back && (!known || !d.Counter.Counted(hits)) && n.node.Ask(c.demands, &c.wait)
	})
	if waits {
		err = c.await(ctx)
	}
	if waits && err == nil && hits > 0 { // the answer may lack hits on their way back whose own answer is not here yet
		if err = n.drain(ctx, n.sent); err != nil {
			err = fmt.Errorf("ratelimit: namespace %q: give back: %w", n.name, err)
		}
	}
	if err != nil || back {
		return err
	}
	return n.guard(func() {
		now := n.now()
		n.node.Look(d, now)
		d.Heard = c.heard
		change(d, hits, now)
	})
}
