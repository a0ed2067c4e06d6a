package pattern

// Bounds on expressions and texts of which a group is taken, as each character may run through the
// whole program.
const (
	// MaxGroupProgram is the number of instructions of the largest program, and MaxGroupText the
	// length of the longest text, in bytes.
	MaxGroupProgram = 256
	MaxGroupText    = 4096
)

// The places where a group begins and ends are assertions that always hold.
const (
	beginGroup assertion = endLine + 1 + iota
	endGroup
)

// Group takes the part of a text that an expression's only group matches. It has the memory for that.
// Only one goroutine at a time may use it.
type Group struct {
	pattern   *Pattern
	now, then []thread
	stack     []thread
}

// thread is a way through the program, and where the group begins and ends on it; -1 for nowhere yet.
type thread struct{ pc, begin, end int32 }

// CompileGroup returns the group of an expression of which texts match the whole. The expression has
// one group that is not marked with ?:, and no lazy repetition.
func CompileGroup(expr string) (*Group, error) {
	p, groups, err := compile(expr, true)
	switch {
	case err != nil:
		return nil, err
	case groups != 1:
		return nil, &mistake{what: "one with other than one group; (?: marks others", at: -1}
	case len(p.program) > MaxGroupProgram:
		return nil, &mistake{what: "one whose program is larger than 256 instructions", at: -1}
	}
	n := len(p.program)
	return &Group{pattern: p, now: make([]thread, 0, n), then: make([]thread, 0, n), stack: make([]thread, 0, n)}, nil
}

// Of returns the group's part of a text, as package regexp finds it. There is none if the text does not
// match, if the match goes past the group, or if the text is longer than MaxGroupText; for an empty
// part of a repeated group there may be none, too.
func (g *Group) Of(text []byte) (part []byte, ok bool) {
	p := g.pattern
	if len(text) > MaxGroupText {
		return nil, false
	}
	now, then := g.now[:0], g.then[:0]
	p.begin()
	now, best := g.follow(now, thread{0, -1, -1}, text, 0)
	for at := 0; at < len(text); {
		r, width := decode(text[at:])
		at += width
		p.begin()
		for _, t := range now {
			if in := &p.program[t.pc]; p.takes(in, r) {
				t.pc = int32(in.y)
				if then, best = g.follow(then, t, text, at); best.pc >= 0 {
					break // ways after it are worse
				}
			}
		}
		if now, then = then, now[:0]; len(now) == 0 && best.pc < 0 {
			return nil, false
		}
	}
	if best.pc < 0 || best.end < 0 {
		return nil, false
	}
	return text[best.begin:best.end], true
}

// follow adds to a state the threads that take characters, from one on, the better ones first. It
// returns the best one that matches at the text's end, whose pc is -1 if there is none.
func (g *Group) follow(state []thread, t thread, text []byte, at int) (more []thread, best thread) {
	p, stack := g.pattern, g.stack[:0]
	for {
		if p.marks[t.pc] != p.step {
			p.marks[t.pc] = p.step
			switch in := &p.program[t.pc]; in.op {
			case fork:
				first, second := int32(in.y), in.x
				if in.again {
					first, second = second, first
				}
				stack = append(stack, thread{second, t.begin, t.end})
				t.pc = first
				continue
			case assert:
				switch in.x {
				case beginGroup:
					t.begin = int32(at)
				case endGroup:
					t.end = int32(at)
				default:
					if !holds(in.x, text, at) {
						t.pc = -1
					}
				}
				if t.pc >= 0 {
					t.pc = int32(in.y)
					continue
				}
			case match:
				if at == len(text) {
					return state, t
				}
			default:
				state = append(state, t)
			}
		}
		if len(stack) == 0 {
			return state, thread{pc: -1}
		}
		t = stack[len(stack)-1]
		stack = stack[:len(stack)-1]
	}
}
