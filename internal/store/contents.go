package store

import (
	"encoding/hex"
	"time"

	"weir/internal/wire"
	"weir/window"
)

// Contents is everything that a store keeps of a counter. Stores in Go change it with
// [Calendar.Add] and read it with [Calendar.Total]. Other stores must compute the same.
type Contents struct {
	// Limit is how many tokens return to a token bucket per window, from the last sender that took
	// tokens. For senders with another limit the bucket is converted.
	Limit uint64
	// Windows are windows of the clock or buckets of a precision, newest first; or the one
	// first-hit window; or the token bucket, unless it is full.
	Windows []Window
}

// HitsOf returns the hits of a window or bucket with a number.
func (r *Contents) HitsOf(number uint64) int64 {
	for _, w := range r.Windows {
		if w.Number == number {
			return w.Hits
		}
	}
	return 0
}

// algorithm is how stores in Go handle the counters of a kind. Each algorithm has a file of its
// own.
type algorithm interface {
	// add is [Calendar.Add].
	add(c Calendar, r *Contents, item *wire.Item, out *Outcome) (expires uint64, changed bool)
	// total is [Calendar.Total].
	total(c Calendar, r *Contents, item *wire.Item) wire.Total
	// counts reports whether a window of the counter counts.
	counts(c Calendar, of *LimitCounter, w Window) bool
	// used is [Calendar.Used].
	used(c Calendar, r *Contents, of wire.LimitCounter) uint64
	// settled is [Calendar.Settled].
	settled(c Calendar, item *wire.Item) uint64
	// present adjusts the total of a room for package window, which allows no start in the future.
	present(c Calendar, room *wire.Room, total *wire.Total) wire.Total
}

// algorithmOf returns the algorithm of a kind. Kinds whose hits are kept and added alike share one.
func algorithmOf(kind uint8) algorithm {
	switch k := window.Kind(kind); {
	case k.Bucketed():
		return subBuckets{}
	case k.Refills():
		return tokenBucket{}
	case k.Started():
		return firstHit{}
	}
	return clockWindows{}
}

// Add adds an item's hits to the contents of its counter, and records the outcome in out. changed
// is false if no hits were added. Otherwise the contents can be read until expires. Another of its
// windows may expire later: a store keeps the latest expiry that it was given, or for kinds that
// refill the last that it was given.
func (c Calendar) Add(r *Contents, item *wire.Item, out *Outcome) (expires uint64, changed bool) {
	return algorithmOf(item.Kind).add(c, r, item, out)
}

// Used returns about how many hits of a limit a counter has used. It only helps to choose counters
// to evict. As in the plugin's table, hits of the previous window count in full.
func (c Calendar) Used(r *Contents, of wire.LimitCounter) uint64 {
	return algorithmOf(of.Kind).used(c, r, of)
}

// Total answers an item from the contents of its counter.
func (c Calendar) Total(r *Contents, item *wire.Item) wire.Total {
	return algorithmOf(item.Kind).total(c, r, item)
}

// CounterLine is a counter in the JSON of GET /v1/counters, which has one object per line.
type CounterLine struct {
	ID          string       `json:"id"`
	Kind        string       `json:"kind"`
	Ordinal     uint8        `json:"ordinal"`
	WidthMillis uint64       `json:"width_ms"`
	Precision   uint64       `json:"precision_ns,omitempty"`
	Limit       uint64       `json:"limit,omitempty"`
	Windows     []WindowLine `json:"windows"`
}

// WindowLine is one of its windows. The start of a token bucket is when it was last full.
type WindowLine struct {
	Start time.Time `json:"start"`
	Hits  int64     `json:"hits"`
}

// Line returns the counter's line.
func (c *LimitCounter) Line() CounterLine {
	line := CounterLine{
		ID: hex.EncodeToString(c.ID[:]), Kind: c.Shape().Name(), Ordinal: c.Ordinal, WidthMillis: c.WidthMillis,
		Precision: c.Precision, Limit: c.Limit, Windows: make([]WindowLine, len(c.Windows)),
	}
	for i, w := range c.Windows {
		line.Windows[i] = WindowLine{Start: time.Unix(0, int64(StartNanos(c.LimitCounter, w.Number))).UTC(), Hits: w.Hits}
	}
	return line
}
