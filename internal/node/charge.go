package node

// Charge records the hits that an allowed request has taken from a rule, until its cost is known.
// Its size does not depend on the key's length.
type Charge struct {
	Saved
	// at is when the hits were counted, by the backend's clock, and numbers are those of their
	// windows.
	at int64
	// counted is the model that the usage was recorded under last.
	counted string
	numbers [maxLimits]uint64
	// aboveFrom is when the counter was first seen above a limit; 0 if it is not above.
	aboveFrom int64
}

// note records where a demand's hits were counted.
func (c *Charge) note(d *Demand, at int64) {
	c.at, c.counted = at, c.Model
	d.numbers = d.Counter.NumbersAt(d.numbers[:0], at)
	copy(c.numbers[:], d.numbers)
}
