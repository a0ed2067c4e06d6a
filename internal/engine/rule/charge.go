package rule

import "weir/internal/wire"

// Charge records the hits that an allowed request has taken from a rule, until its cost is known.
// Its size does not depend on the key's length.
type Charge struct {
	Ref
	// At is when the hits were counted, by the backend's clock, and numbers are those of their
	// windows.
	At int64
	// Counted is the model that the usage was recorded under last.
	Counted string
	Numbers [wire.MaxLimits]uint64
	// AboveFrom is when the counter was first seen above a limit; 0 if it is not above.
	AboveFrom int64
}

// Note records where a check's hits were counted.
func (c *Charge) Note(d *Check, at int64) {
	c.At, c.Counted = at, c.Model
	d.Numbers = d.Counter.NumbersAt(d.Numbers[:0], at)
	copy(c.Numbers[:], d.Numbers)
}
