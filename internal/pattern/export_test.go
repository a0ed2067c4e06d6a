package pattern

// Instructions is the size of the program.
func (p *Pattern) Instructions() int { return len(p.program) }

// Steps is how many steps all matches took, each of which goes through an instruction once at most.
func (p *Pattern) Steps() int { return int(p.step) }

// Wear makes the next match one after which no more steps can be told apart.
func (p *Pattern) Wear(left uint32) { p.step = ^uint32(0) - left }
