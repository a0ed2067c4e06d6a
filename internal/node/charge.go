package node

// Charge holds the hits that a passed request has taken of a rule, until its cost is known. It is
// of the same size however long the key is.
type Charge struct {
	Saved
	// at is when the hits were counted, by the backend's clock, and numbers are those of their
	// windows.
	at int64
	// counted is the model that the hits were told for last.
	counted string
	numbers [maxLimits]uint64
	// aboveFrom is since when the counter is seen above a limit, 0 if it is not.
	aboveFrom int64
}

// note notes where a demand's hits were counted.
func (c *Charge) note(d *Demand, at int64) {
	c.at, c.counted = at, c.Model
	d.numbers = d.Counter.NumbersAt(d.numbers[:0], at)
	copy(c.numbers[:], d.numbers)
}
