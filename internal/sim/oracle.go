package sim

import "weir/window"

// Oracle counts like a single node that has seen all admitted hits, each at the time when it
// passed. It measures how much of the limit was ever in use, by the algorithm's definition: a
// window's hits, a sliding window's rate, the hits of the buckets that count, or the tokens that a
// token bucket lacks. An overdrawn bucket lacks more tokens than it holds.
type Oracle struct {
	// Limit and State may be read.
	Limit window.Limit
	State window.State
	quota float64
}

// NewOracle returns an oracle without hits.
func NewOracle(l window.Limit) *Oracle {
	o := &Oracle{Limit: l, quota: float64(l.Quota())}
	if l.Kind == window.SlidingBuckets {
		// A log would forget the oldest of more hits than its limit.
		o.Limit.Max = window.MaxHits
	}
	return o
}

// Admit counts a hit, not before the last hit, and returns the share of the limit in use then; 1 is
// all of it.
func (o *Oracle) Admit(at int64) (used float64) {
	l, s := &o.Limit, &o.State
	l.Advance(s, at)
	l.Count(s, 1)
	hits := uint64(0)
	switch l.Kind {
	case window.SlidingWindow:
		return window.Rate(l, s) / o.quota
	case window.SlidingBuckets:
		for i := range s.Buckets {
			hits += s.Buckets[i].Sum()
		}
	case window.TokenBucket:
		// Fractions of tokens count. Otherwise jitter would seem to overdraw a bucket by a token.
		back := float64(at-s.Start) * float64(l.Max) / float64(l.Width)
		return max(0, float64(s.Hits[0].Sum())-back) / o.quota
	default:
		hits = s.Hits[0].Sum()
	}
	return float64(hits) / o.quota
}
