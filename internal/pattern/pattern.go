// Package pattern matches texts against regular expressions of RE2's syntax, in time linear in the
// text, with little code.
//
// A text matches if all of it does, as with Envoy's safe_regex: Compile(expr) and
// regexp.Compile(`\A(?:` + expr + `)\z`) match the same texts. Invalid UTF-8 in a text is as in
// package regexp: each byte of it is a U+FFFD.
//
// Left out of RE2's syntax, and refused by Compile, are classes of Unicode (\pL, \p{Greek}), and
// with the flag i characters beyond ASCII, as both take tables of Unicode. U+017F and U+212A do
// work with that flag: they are an s and a k. Refused are surrogates too, such as \x{D800}, and
// what goes beyond the bounds below.
package pattern

import (
	"math"
	"unicode/utf8"
)

// These bound the memory and the time that a pattern takes.
const (
	// MaxExpression is the length of the longest expression, in bytes.
	MaxExpression = 4096
	// MaxProgram is the number of instructions of the largest program. A character or class takes
	// one instruction. A repetition takes the instructions of its body once for each time, and one
	// more for each time that is optional.
	MaxProgram = 2048
	// MaxDepth is how deep groups can be in groups.
	MaxDepth = 100
	// MaxRepeat is the largest count of a repetition, which is RE2's.
	MaxRepeat = 1000
)

// Pattern is a compiled expression. It has the memory that matching takes, so that matching
// allocates nothing, and must not be used by several goroutines at once.
type Pattern struct {
	_ [0]func() // keeps Go from generating an equality function

	prefix  string // each match begins with it
	start   uint16 // where the program goes on after the prefix
	literal bool   // the prefix is all there is

	program []instruction
	classes []class
	asserts bool // what follows an instruction depends on where the text is

	cache cache

	// A step of the simulation leaves these to the next: a program's state is the set of the
	// instructions that may take the next character.
	now, then []uint16
	stack     []uint16
	marks     []uint32 // by instruction: the step that has come by it last
	step      uint32
	matched   bool // the match may end here
}

type operation uint8

const (
	takeRune  operation = iota // x
	takeClass                  // of classes[x]
	fork                       // goes on at y, and at x
	jump                       // of a program that is compiled yet: to x
	assert                     // goes on if x holds
	match
)

// instruction is a step of the program. While a program is compiled, an instruction goes on with
// the next instruction, and places are relative to its own, so that code can be copied. Later it
// goes on at y, and all places are absolute.
type instruction struct {
	_  [0]func() // keeps Go from generating an equality function
	op operation
	y  uint16
	x  int32
}

type assertion = int32

// The first four are written as assertions is, with a \ before each.
const (
	beginText assertion = iota
	endText
	wordBoundary
	noWordBoundary
	beginLine
	endLine
)

const assertions = "AzbB"

// Matches reports whether all of the text matches. A character that the cache knows takes one look
// into a table. Others take a step, which goes through each instruction of the program once at most.
// It allocates nothing once the cache has what texts need, or is full.
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

// simulate matches the rest of a text, with the instructions that may take its first character.
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

// begin begins a step.
func (p *Pattern) begin() {
	if p.step == math.MaxUint32 {
		clear(p.marks)
		p.step = 0
	}
	p.step++
	p.matched = false
}

// follow adds to a state what takes characters from an instruction on. Whatever was come by in this
// step is not gone through again, so that all calls of a step take a program's length together, and
// loops of nothing end.
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
