package pattern

// Instructions is the size of the program.
func (p *Pattern) Instructions() int { return len(p.program) }

// Taken is how many steps all matches took, each of which goes through an instruction once at most.
func (p *Pattern) Taken() int { return int(p.step) }

// Wear makes the next match one after which no more steps can be told apart.
func (p *Pattern) Wear(left uint32) { p.step = ^uint32(0) - left }

// Learned is how many entries the cache has.
func (p *Pattern) Learned() int { return p.cache.learned }

// Thrashed reports whether the next text finds the cache empty.
func (p *Pattern) Thrashed() bool { return p.cache.thrashed() }

// Tighten leaves a cache room for so many bytes more than the first row.
func (p *Pattern) Tighten(room int) { p.cache.room = p.cache.size() + room }
