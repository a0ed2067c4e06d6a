package convert

import (
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// class is a set of texts that fulfil the same of several conditions.
type class struct {
	holds   []bool // by condition
	example string
}

// maxStates bounds the work of [classesOf].
const maxStates = 1 << 13

// classesOf returns the classes into which conditions divide the texts that begin with start, are not
// empty, and have none of the characters of without. It is exact: a class is there if and only if some text belongs to
// it. ok is false if that takes too much work.
//
// It walks all conditions at once through the states that a text can bring their programs to, as if it
// built their common automaton.
func classesOf(texts []text, start, without string) (all []class, ok bool) {
	w := walk{seen: map[string]bool{}, found: map[string]bool{}}
	for _, t := range texts {
		parsed, err := syntax.Parse(`\A(?:`+t.expression()+`)\z`, syntax.Perl)
		if err != nil {
			return nil, false
		}
		program, err := syntax.Compile(parsed.Simplify())
		if err != nil {
			return nil, false
		}
		w.programs = append(w.programs, program)
	}
	w.findAlphabet(without)
	at := w.begin()
	for _, r := range start {
		at = w.step(at, r)
	}
	if at.text = start; start == "" {
		w.next = append(w.next, at)
	} else {
		w.visit(at)
	}
	for len(w.next) > 0 {
		at, w.next = w.next[0], w.next[1:]
		for _, r := range w.alphabet {
			w.visit(w.step(at, r))
		}
		if len(w.seen) > maxStates {
			return nil, false
		}
	}
	return w.classes, true
}

type walk struct {
	programs []*syntax.Prog
	alphabet []rune // one of each set of characters that no condition tells apart
	seen     map[string]bool
	found    map[string]bool
	next     []standing
	classes  []class
}

// standing is where the programs are after a text: the instructions that wait for its next character,
// before those are followed that assert something about the place.
type standing struct {
	pcs  [][]uint32
	last rune // -1 at the beginning
	text string
}

// findAlphabet takes a character of each range between those at which some condition begins or ends a
// range of its own.
func (w *walk) findAlphabet(without string) {
	cuts := map[rune]bool{' ': true, 0x7f: true, 'a': true, '{': true, '0': true, ':': true, 'A': true, '[': true, '_': true, '`': true}
	for _, r := range without {
		cuts[r], cuts[r+1] = true, true
	}
	for _, p := range w.programs {
		for i := range p.Inst {
			runes := p.Inst[i].Rune
			if p.Inst[i].Op == syntax.InstAlt || len(runes) == 0 {
				continue
			}
			if len(runes) == 1 {
				for folded := runes[0]; ; {
					cuts[folded], cuts[folded+1] = true, true
					if folded = unicode.SimpleFold(folded); folded == runes[0] {
						break
					}
				}
				continue
			}
			for j := 0; j+1 < len(runes); j += 2 {
				cuts[runes[j]], cuts[runes[j+1]+1] = true, true
			}
		}
	}
	for r := range cuts {
		if r >= ' ' && r != 0x7f && utf8.ValidRune(r) && !strings.ContainsRune(without, r) {
			w.alphabet = append(w.alphabet, r)
		}
	}
	slices.Sort(w.alphabet)
}

func (w *walk) begin() standing {
	s := standing{last: -1}
	for _, p := range w.programs {
		s.pcs = append(s.pcs, []uint32{uint32(p.Start)})
	}
	return s
}

func (w *walk) step(from standing, r rune) standing {
	to := standing{pcs: make([][]uint32, len(w.programs)), last: r, text: from.text + string(r)}
	flags := syntax.EmptyOpContext(from.last, r)
	for i, p := range w.programs {
		for _, pc := range follow(p, from.pcs[i], flags) {
			if in := &p.Inst[pc]; in.Op != syntax.InstMatch && in.MatchRune(r) {
				to.pcs[i] = append(to.pcs[i], in.Out)
			}
		}
		slices.Sort(to.pcs[i])
		to.pcs[i] = slices.Compact(to.pcs[i])
	}
	return to
}

// follow returns the instructions that take a character, or match, after those that take none.
func follow(p *syntax.Prog, from []uint32, flags syntax.EmptyOp) (at []uint32) {
	reached := make(map[uint32]bool, len(from))
	stack := slices.Clone(from)
	for len(stack) > 0 {
		pc := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if reached[pc] {
			continue
		}
		reached[pc] = true
		switch in := &p.Inst[pc]; in.Op {
		case syntax.InstAlt, syntax.InstAltMatch:
			stack = append(stack, in.Out, in.Arg)
		case syntax.InstCapture, syntax.InstNop:
			stack = append(stack, in.Out)
		case syntax.InstEmptyWidth:
			if syntax.EmptyOp(in.Arg)&^flags == 0 {
				stack = append(stack, in.Out)
			}
		case syntax.InstFail:
		default:
			at = append(at, pc)
		}
	}
	return at
}

// visit notes the class of the text that has led here, and keeps the place unless it is known.
func (w *walk) visit(s standing) {
	var b strings.Builder
	// Where an assertion asks for it, the last character says whether it holds.
	b.WriteString(strconv.FormatBool(syntax.IsWordChar(s.last)) + strconv.FormatBool(s.last < 0))
	for _, pcs := range s.pcs {
		for _, pc := range pcs {
			b.WriteString(strconv.Itoa(int(pc)) + ",")
		}
		b.WriteByte(';')
	}
	key := b.String()
	if w.seen[key] {
		return
	}
	w.seen[key] = true
	w.next = append(w.next, s)
	c := class{make([]bool, len(w.programs)), s.text}
	held := make([]byte, len(w.programs))
	for i, p := range w.programs {
		at := follow(p, s.pcs[i], syntax.EmptyOpContext(s.last, -1))
		c.holds[i] = slices.ContainsFunc(at, func(pc uint32) bool { return p.Inst[pc].Op == syntax.InstMatch })
		if c.holds[i] {
			held[i] = 1
		}
	}
	if !w.found[string(held)] {
		w.found[string(held)] = true
		w.classes = append(w.classes, c)
	}
}

// exception is a set of requests that a rule may leave alone.
type exception struct {
	says   any
	covers func(class int) bool
}

// exceptions chooses exceptions for all classes that are inside a rule's match and are not its own. It
// takes no exception that covers one of the rule's own, and prefers the first. left are classes for which
// there is none.
func exceptions(inside []int, own func(class int) bool, from []exception) (chosen []any, left []int) {
	left = slices.DeleteFunc(slices.Clone(inside), own)
	for _, e := range from {
		if !slices.ContainsFunc(left, e.covers) || slices.ContainsFunc(inside, func(class int) bool { return own(class) && e.covers(class) }) {
			continue
		}
		chosen = append(chosen, e.says)
		left = slices.DeleteFunc(left, e.covers)
	}
	return chosen, left
}

// relation tells how two conditions relate: whether some text fulfils both, the first alone, and the
// second alone.
func relation(a, b text, start string) (both, first, second bool) {
	classes, ok := classesOf([]text{a, b}, start, "")
	if !ok {
		return true, true, true
	}
	for _, c := range classes {
		both = both || c.holds[0] && c.holds[1]
		first = first || c.holds[0] && !c.holds[1]
		second = second || c.holds[1] && !c.holds[0]
	}
	return both, first, second
}

// anyCase returns the condition that a text is another, in whatever case.
func anyCase(value string) text {
	if strings.ToLower(value) == strings.ToUpper(value) {
		return text{exact, value}
	}
	return text{regex, "(?i)" + regexp.QuoteMeta(value)}
}
