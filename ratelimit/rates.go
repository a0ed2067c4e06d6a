package ratelimit

import (
	"context"
	"fmt"
	"time"

	"weir/internal/node"
	"weir/window"
)

// rated is one of the windows that a namespace tells rates of.
type rated struct {
	width time.Duration
	rule  *node.Rule
}

// Increment counts hits of a key in one of [Options.Windows], and returns the key's rate after
// them. The rate is the window's hits, plus those of the window before by the share of it that a
// window ending now still covers. Windows start at multiples of their length since the Unix epoch.
//
// With a backend the rate is that of all nodes, as of the last push. If a key is not known here,
// Increment asks for it and waits. If the backend can't be reached, the rate is that of this node.
// If the namespace has no such window, the error wraps [ErrNotDefined]. After [Namespace.Close] it
// wraps [ErrClosed]. If ctx ends meanwhile, it is the error of ctx. Then nothing is counted.
func (n *Namespace) Increment(ctx context.Context, key Key, window time.Duration, hits uint64) (rate float64, err error) {
	return n.rate(ctx, key, window, func(d *node.Demand, now int64) {
		if d.Cost = hits; hits > 0 {
			n.node.Force(d, now)
		}
	})
}

// Rate is the rate of a key in one of [Options.Windows], as [Namespace.Increment] tells it, without
// a hit.
func (n *Namespace) Rate(ctx context.Context, key Key, window time.Duration) (rate float64, err error) {
	return n.rate(ctx, key, window, func(*node.Demand, int64) {})
}

// RateWith returns the [Namespace.Rate] that would hold if so many hits of the current window were
// pending: not pushed yet. Without a backend all are.
func (n *Namespace) RateWith(ctx context.Context, key Key, window time.Duration, pending uint64) (rate float64, err error) {
	return n.rate(ctx, key, window, func(d *node.Demand, _ int64) {
		current := &d.Counter.States[0].Hits[0]
		if n.backend == nil {
			current.Total = 0
		}
		current.Pending = int64(min(pending, maxHits))
	})
}

// maxHits is package window's, which a parameter hides.
const maxHits = window.MaxHits

// rate reads what a key has in a window, changes it, and tells its rate.
func (n *Namespace) rate(ctx context.Context, key Key, width time.Duration, change func(d *node.Demand, now int64)) (rate float64, err error) {
	w, err := n.find(width)
	if err != nil {
		return 0, err
	}
	err = n.look(ctx, w.rule, key, func(d *node.Demand, now int64) {
		change(d, now)
		rate = d.Rule.Limits[0].Rate(&d.Counter.States[0])
	})
	return rate, err
}

// look reads what a key has, of the backend if it is not known here, and changes it.
func (n *Namespace) look(ctx context.Context, r *node.Rule, key Key, change func(d *node.Demand, now int64)) error {
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
	if known := n.node.Look(d, n.now()); !known && n.node.Ask(c.demands, &c.wait) {
		if err := c.await(ctx); err != nil {
			return err
		}
	}
	now := n.now()
	n.node.Look(d, now)
	change(d, now)
	return nil
}

// find is the window of a width.
func (n *Namespace) find(width time.Duration) (*rated, error) {
	for i := range n.windows {
		if n.windows[i].width == width {
			return &n.windows[i], nil
		}
	}
	return nil, fmt.Errorf("ratelimit: namespace %q: window %v: %w", n.name, width, ErrNotDefined)
}
