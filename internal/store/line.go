package store

import (
	"encoding/hex"
	"fmt"
	"time"

	"weir/internal/wire"
	"weir/window"
)

// CounterLine is a counter as GET /v1/counters lists it: one JSON object a line.
type CounterLine struct {
	ID          string       `json:"id"`
	Kind        string       `json:"kind"`
	Ordinal     uint8        `json:"ordinal"`
	WidthMillis uint64       `json:"width_ms"`
	Precision   uint64       `json:"precision_ns,omitempty"`
	Limit       uint64       `json:"limit,omitempty"`
	Windows     []WindowLine `json:"windows"`
}

// WindowLine is one of its windows. A token bucket's start is when it was full.
type WindowLine struct {
	Start time.Time `json:"start"`
	Hits  int64     `json:"hits"`
}

// Line is the counter's.
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

// Counter is the line's. The error says what no store has.
func (l *CounterLine) Counter() (LimitCounter, error) {
	c := LimitCounter{
		LimitCounter: wire.LimitCounter{Kind: uint8(window.Named(l.Kind)), Ordinal: l.Ordinal, WidthMillis: l.WidthMillis, Precision: l.Precision},
		Limit:        l.Limit, Windows: make([]Window, len(l.Windows)),
	}
	id, err := hex.DecodeString(l.ID)
	if copy(c.ID[:], id); err != nil || len(id) != len(c.ID) || !ValidCounter(c.LimitCounter) {
		return LimitCounter{}, fmt.Errorf("a counter: want one of Weir's, got the id %.40q and the kind %.40q", l.ID, l.Kind)
	}
	for i, w := range l.Windows {
		nanos := w.Start.UnixNano()
		if nanos < 0 || w.Start.Year() > 2200 {
			return LimitCounter{}, fmt.Errorf("a counter: want a window since 1970, got one from %v", w.Start)
		}
		c.Windows[i] = Window{Number: NumberAt(c.LimitCounter, uint64(nanos)), Hits: w.Hits}
	}
	return c, nil
}
