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

// Note records where a check's hits were counted: by the backend at its time, or else at the counter's own, before which now
// may be.
func (c *Charge) Note(d *Check, now int64) {
	if c.At, c.Counted = now, c.Model; d.GrantedAt() != 0 {
		c.At = d.GrantedAt()
		d.Numbers = d.Counter.NumbersAt(d.Numbers[:0], c.At)
	} else {
		d.Numbers = d.Counter.Numbers(d.Numbers[:0])
	}
	copy(c.Numbers[:], d.Numbers)
}
