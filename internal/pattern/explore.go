package pattern

// Fits reports whether the cache has room for all states that any text can reach. If so, a
// character takes at most one step of the simulation, the first time. Fits allocates, and takes as
// long as a text that reaches all states.
func (p *Pattern) Fits() bool {
	if p.literal {
		return true
	}
	c := &p.cache
	if c.count == 0 {
		return false
	}
	p.empty()
	for index := 0; index < len(c.ends); index++ {
		for column := range c.count {
			text, at := p.example(index, column)
			if p.learn(int(c.place(index)), column, text, at) == noRoom {
				return false
			}
		}
	}
	return true
}

// example returns a text that has a character of a column at at. The character before it is of the
// kind that the row's state has.
func (p *Pattern) example(index, column int) (text []byte, at int) {
	c := &p.cache
	last := another
	if set := c.setOf(index); set[0]&1 != 0 {
		last = set[1] & lasts
	}
	text = append(text, [...]string{another: " ", word: "a", newline: "\n", none: ""}[last]...)
	at = len(text)
	for i := range c.parts {
		if int(c.parts[i].column) == column {
			return append(text, string(c.parts[i].start)...), at
		}
	}
	return text, at
}

// Steps returns the most instructions that a text of size bytes can run through if the cache knows
// none of its characters.
func (p *Pattern) Steps(size int) int { return size * len(p.program) }
