// Package pattern matches texts against regular expressions of RE2's syntax, in time linear in the
// text, with little code.
//
// A text matches only as a whole, as with Envoy's safe_regex: Compile(expr) and
// regexp.Compile(`\A(?:` + expr + `)\z`) match the same texts. As in package regexp, each invalid
// byte of UTF-8 in a text is a U+FFFD.
//
// Compile refuses some of RE2's syntax, which requires tables of Unicode: classes of Unicode (\pL,
// \p{Greek}), and characters beyond ASCII with the flag i. Only U+017F and U+212A work with that
// flag: they are an s and a k. Compile also refuses surrogates, such as \x{D800}, and expressions
// beyond the bounds below.
package pattern

import (
	"math"
	"unicode/utf8"
)

// Bounds on the memory and time that a pattern takes.
const (
	// MaxExpression is the length of the longest expression, in bytes.
	MaxExpression = 4096
	// MaxProgram is the number of instructions of the largest program. A character or class takes
	// one instruction. A repetition takes the instructions of its body once for each time, and
	// another for each optional time.
	MaxProgram = 2048
	// MaxDepth is how many groups may enclose another.
	MaxDepth = 100
	// MaxRepeat is the largest count of a repetition, which is RE2's.
	MaxRepeat = 1000
)

// Pattern is a compiled expression. It has the memory for matching, which then allocates nothing.
// Only one goroutine at a time may use it.
type Pattern struct {
	_ [0]func() // keeps Go from generating an equality function

	prefix  string // each match begins with it
	start   uint16 // where the program continues after the prefix
	literal bool   // the prefix is the whole expression

	program []instruction
	classes []class
	asserts bool // the program has assertions, whose results depend on the place in the text

	cache cache

	// State between steps of the simulation. A program's state is the set of instructions that may
	// take the next character.
	now, then []uint16
	stack     []uint16
	marks     []uint32 // by instruction: the last step that reached it
	step      uint32
	matched   bool // the match may end here
}

type operation uint8

const (
	takeRune  operation = iota // x
	takeClass                  // of classes[x]
	fork                       // continues at y, and at x
	jump                       // to x; only while a program is compiled
	assert                     // continues if x holds
	match
)

// instruction is an instruction of the program. While a program is compiled, an instruction
// continues with the next, and places are relative to its own, so that code can be copied.
// Afterwards it continues at y, and all places are absolute.
type instruction struct {
	_  [0]func() // keeps Go from generating an equality function
	op operation
	// again says that a fork repeats what is before it: a group's text prefers x.
	again bool
	y     uint16
	x     int32
}

type assertion = int32

// The first four are written as \ and the letter of assertions at their index.
const (
	beginText assertion = iota
	endText
	wordBoundary
	noWordBoundary
	beginLine
	endLine
)

const assertions = "AzbB"

// Matches reports whether the whole text matches. A character that the cache knows takes one table
// lookup. Others take a step, which runs through each instruction of the program at most once.
// Matches allocates nothing once the cache has the states that texts need, or is full.
func (p *Pattern) Matches(text []byte) bool {
	at := len(p.prefix)
	if len(text) < at || string(text[:at]) != p.prefix {
		return false
	}
	if p.literal {
		return len(text) == at
	}
	if p.cache.count > 0 {
		return p.walk(text, at)
	}
	p.begin()
	return p.simulate(p.follow(p.now[:0], p.start, text, at), text, at)
}

// simulate matches the rest of a text. now has the instructions that may take its first character.
func (p *Pattern) simulate(now []uint16, text []byte, at int) bool {
	then := p.then[:0]
	for at < len(text) {
		if len(now) == 0 {
			return false
		}
		r, width := decode(text[at:])
		at += width
		p.cache.simulated++
		p.begin()
		for _, pc := range now {
			if in := &p.program[pc]; p.takes(in, r) {
				then = p.follow(then, in.y, text, at)
			}
		}
		now, then = then, now[:0]
	}
	return p.matched
}

func decode(text []byte) (r rune, width int) {
	if c := text[0]; c < utf8.RuneSelf {
		return rune(c), 1
	}
	return utf8.DecodeRune(text)
}

func (p *Pattern) takes(in *instruction, r rune) bool {
	if in.op == takeRune {
		return r == in.x
	}
	return p.classes[in.x].has(r)
}

func (p *Pattern) begin() {
	if p.step == math.MaxUint32 {
		clear(p.marks)
		p.step = 0
	}
	p.step++
	p.matched = false
}

// follow adds to a state the instructions that take characters, from pc on. It skips instructions
// that this step has reached before. So all calls of a step together take at most the program's
// length, and empty loops end.
func (p *Pattern) follow(state []uint16, pc uint16, text []byte, at int) []uint16 {
	stack := p.stack[:0]
	for {
		if p.marks[pc] != p.step {
			p.marks[pc] = p.step
			switch in := &p.program[pc]; in.op {
			case fork:
				stack = append(stack, uint16(in.x))
				pc = in.y
				continue
			case assert:
				if holds(in.x, text, at) {
					pc = in.y
					continue
				}
			case match:
				p.matched = true
			default:
				state = append(state, pc)
			}
		}
		if len(stack) == 0 {
			return state
		}
		pc = stack[len(stack)-1]
		stack = stack[:len(stack)-1]
	}
}

func holds(a assertion, text []byte, at int) bool {
	switch a {
	case beginText:
		return at == 0
	case endText:
		return at == len(text)
	case beginLine:
		return at == 0 || text[at-1] == '\n'
	case endLine:
		return at == len(text) || text[at] == '\n'
	}
	before := at > 0 && isWord(text[at-1])
	after := at < len(text) && isWord(text[at])
	return (before != after) == (a == wordBoundary)
}

func isWord(c byte) bool { return isAlphanumeric(c) || c == '_' }

func isAlphanumeric(c byte) bool {
	return 'a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9'
}
