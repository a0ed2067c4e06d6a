package main

import "weir/window"

// limiter decides, and estimates a rate.
type limiter interface {
	// allows moves the limiter to a time, not before the last time, and reports whether another hit
	// passes.
	allows(at int64) bool
	// rate returns the estimated hits in the window that ends at that time.
	rate() float64
	// take counts a hit at that time.
	take()
}

// epoch is the beginning of the study's time: the start of a window, so that the first window is
// whole.
const epoch = 1000 * width

// counter is a limiter of package window.
type counter struct {
	limit window.Limit
	// unbounded counts for limit. With limit itself, a log would forget the oldest of more hits
	// than its limit, and the rate with them.
	unbounded window.Limit
	state     window.State
}

func newCounter(kind window.Kind, precision int64, limit uint64) *counter {
	shape := window.Shape{Kind: kind, Width: width, Precision: precision}
	return &counter{limit: window.Limit{Shape: shape, Max: limit}, unbounded: window.Limit{Shape: shape, Max: window.MaxHits}}
}

func (c *counter) allows(at int64) bool {
	c.limit.Advance(&c.state, epoch+at)
	return c.limit.Allows(&c.state, 1)
}

func (c *counter) rate() float64 {
	if c.limit.Kind == window.SlidingWindow {
		covered := float64(width-c.state.Newest%width) / float64(width)
		return float64(c.state.Hits[0].Sum()) + float64(c.state.Hits[1].Sum())*covered
	}
	hits := uint64(0)
	for i := range c.state.Buckets {
		hits += c.state.Buckets[i].Sum()
	}
	return float64(hits)
}

func (c *counter) take() { c.unbounded.Count(&c.state, 1) }

// weighed has sub-buckets of which the oldest is weighed by the share that the window still covers,
// as the sliding window counter weighs the window before. Weir doesn't have it; the study shows its
// effect.
type weighed struct {
	// counter keeps a bucket more than the window has, for the bucket that is partly covered.
	counter
	max uint64
}

func newWeighed(precision int64, limit uint64) *weighed {
	w := &weighed{counter: *newCounter(window.SlidingBuckets, precision, limit), max: limit}
	w.limit.Width += precision
	return w
}

func (w *weighed) allows(at int64) bool {
	w.limit.Advance(&w.state, epoch+at)
	newer, oldest, covered := w.hits()
	return oldest*covered <= (int64(w.max)-1-newer)*w.limit.Precision
}

func (w *weighed) rate() float64 {
	newer, oldest, covered := w.hits()
	return float64(newer) + float64(oldest)*float64(covered)/float64(w.limit.Precision)
}

// hits returns the hits of the sub-buckets that the window covers entirely, the hits of the oldest
// bucket, and how many nanoseconds of that the window covers.
func (w *weighed) hits() (newer, oldest, covered int64) {
	now, precision := w.state.Newest, w.limit.Precision
	for i := range w.state.Buckets {
		if b := &w.state.Buckets[i]; b.Number == (now-width)/precision {
			oldest = int64(b.Sum())
		} else {
			newer += int64(b.Sum())
		}
	}
	return newer, oldest, precision - now%precision
}
