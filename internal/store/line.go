package store

import (
	"encoding/hex"
	"time"
)

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
