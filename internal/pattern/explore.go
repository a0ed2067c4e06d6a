package pattern

// Fits reports whether the cache has room for whatever texts come by. If so, a character takes a step of
// the simulation the first time at most. It allocates, and takes as long as a text that has it all.
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

// example is a text that has a character of a column at a place, and before it what a row knows of.
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

// Steps is how many instructions a text of so many bytes goes through at most that the cache does not
// know.
func (p *Pattern) Steps(size int) int { return size * len(p.program) }
