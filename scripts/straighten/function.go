package main

import (
	"encoding/binary"
	"fmt"
	"slices"
)

// Instructions that matter here.
const (
	opUnreachable  = 0x00
	opBlock        = 0x02
	opLoop         = 0x03
	opIf           = 0x04
	opElse         = 0x05
	opEnd          = 0x0b
	opBr           = 0x0c
	opBrIf         = 0x0d
	opBrTable      = 0x0e
	opReturn       = 0x0f
	opCall         = 0x10
	opCallIndirect = 0x11
	opLocalGet     = 0x20
	opLocalSet     = 0x21
	opLocalTee     = 0x22
	opI32Load      = 0x28
	opI32Store     = 0x36
	opI32Const     = 0x41
	opI64Const     = 0x42
	opI32Eqz       = 0x45
	opI32LtU       = 0x49
	opI32Add       = 0x6a

	typeI32 = 0x7f

	// dropped stands for an instruction that was removed.
	dropped = 0xff
	// empty is the type of a block without parameters and results.
	empty = 0x40
)

// place is the target of a branch: the index of the instruction that opens the block.
type place int

const (
	// body is the function itself.
	body place = -1
	// trap is a block whose end is unreachable.
	trap place = -2
)

// hint says how often a branch is taken.
type hint int8

const (
	unknown hint = iota
	seldom
	usually
)

// instruction is an instruction of a function. The targets of its branches are in places, not in
// bytes.
type instruction struct {
	op     byte
	bytes  []byte
	value  int64   // a constant, or the number of a local or a function
	places []place // of br, br_if and br_table, whose last is the default
	opener int     // of an end: the instruction that opened the block
	hint   hint
}

// function is a function's code. The code of Go's compiler is
//
//	block                 ;; where it goes that unwinds; not always there
//	  loop                ;; not there if there are no jumps
//	    block … block     ;; one for each segment
//	      local.get 0
//	      br_table        ;; a segment for each place
//	    end … end         ;; behind each of them a segment
//
// Local 0 is its parameter, the place to go on at. A jump sets it and begins the loop again.
type function struct {
	locals []byte
	code   []instruction
	// The fields below are for Go's functions only. entry is the index of br_table, or 0 if there
	// is none.
	entry    int
	loop     int       // its index, or -1
	segments []segment // in the order of the code
}

// segment is the code between the end of a block and the end of the next.
type segment struct {
	opener     int // of the block after which it begins
	start, end int // in code
	cold       bool
}

// decode reads a function. It refuses instructions that Go does not use.
func decode(b []byte) (*function, error) {
	r := reader{b: b}
	for n := r.u32(); n > 0 && !r.bad; n-- {
		r.u32()
		r.byte()
	}
	f := &function{locals: b[:r.at], loop: -1}
	var open []int
	for r.more() {
		start := r.at
		i := instruction{op: r.byte()}
		up := func() {
			switch n := int(r.u32()); {
			case n < len(open):
				i.places = append(i.places, place(open[len(open)-1-n]))
			case n == len(open):
				i.places = append(i.places, body)
			default:
				r.bad = true
			}
		}
		switch op := i.op; {
		case op == opBlock || op == opLoop || op == opIf:
			i.value = r.signed()
			open = append(open, len(f.code))
		case op == opEnd:
			if i.opener = -1; len(open) > 0 {
				i.opener = open[len(open)-1]
				open = open[:len(open)-1]
			} else {
				r.bad = r.bad || r.more() // the function has ended
			}
		case op == opBr || op == opBrIf:
			up()
		case op == opBrTable:
			for n := uint64(r.u32()) + 1; n > 0 && !r.bad; n-- {
				up()
			}
		case op == opCall || op >= opLocalGet && op <= 0x24:
			i.value = int64(r.u32())
		case op == opCallIndirect || op >= 0x28 && op <= 0x3e: // also loads and stores
			r.u32()
			r.u32()
		case op == 0x3f || op == 0x40: // the memory's size
			r.byte()
		case op == opI32Const || op == opI64Const:
			i.value = r.signed()
		case op == 0x43: // f32.const
			r.bytes(4)
		case op == 0x44: // f64.const
			r.bytes(8)
		case op == 0xfc:
			r.wide()
		case op <= 0x01 || op == opElse || op == opReturn || op == 0x1a || op == 0x1b || op >= opI32Eqz && op <= 0xc4:
		default:
			return nil, fmt.Errorf("%w: instruction %#x", errMalformed, op)
		}
		if r.bad {
			break
		}
		i.bytes = b[start:r.at]
		f.code = append(f.code, i)
	}
	if n := len(f.code); r.bad || n == 0 || f.code[n-1].op != opEnd || f.code[n-1].opener != -1 {
		return nil, fmt.Errorf("%w: code", errMalformed)
	}
	f.dissect()
	return f, nil
}

// wide reads the rest of an instruction that has more than one byte.
func (r *reader) wide() {
	switch op := r.u32(); {
	case op <= 7: // numbers that saturate
	case op == 8 || op == 10: // memory.init, memory.copy
		r.u32()
		r.u32()
	case op == 9 || op == 11: // data.drop, memory.fill
		r.u32()
	default:
		r.bad = true
	}
}

// dissect finds the parts of a function that Go's compiler made.
func (f *function) dissect() {
	at := slices.IndexFunc(f.code, func(i instruction) bool { return i.op == opBrTable })
	if at < 2 || f.code[at-1].op != opLocalGet || f.code[at-1].value != 0 {
		return
	}
	first := at - 1 // of the blocks
	for _, p := range f.code[at].places {
		if p < 0 {
			return
		}
		first = min(first, int(p))
	}
	for i := first; i < at-1; i++ {
		if f.code[i].op != opBlock || f.code[i].value != empty-0x80 {
			return
		}
	}
	f.entry, f.segments = at, nil
	if first > 0 && f.code[first-1].op == opLoop {
		f.loop = first - 1
	}
	for i := at + 1; i < len(f.code); i++ {
		if o := f.code[i].opener; f.code[i].op == opEnd && o < at {
			if n := len(f.segments); n > 0 {
				f.segments[n-1].end = i
			}
			if o < first {
				break
			}
			f.segments = append(f.segments, segment{opener: o, start: i + 1})
		}
	}
	// A function of another compiler stays as it is.
	n := len(f.segments)
	if n != at-1-first || f.segments[n-1].end == 0 || !f.endsInTrap() {
		f.entry = 0
	}
}

// endsInTrap reports whether the last unreachable instruction is after the loop, or, without a
// loop, in the last segment.
func (f *function) endsInTrap() bool {
	last := f.lastTrap()
	if f.loop >= 0 {
		return last > 0 && f.code[last-1].op == opEnd && f.code[last-1].opener == f.loop
	}
	s := f.segments[len(f.segments)-1]
	depth := 0
	for _, in := range f.code[s.start:max(s.start, last)] {
		switch in.op {
		case opBlock, opLoop, opIf:
			depth++
		case opEnd:
			depth--
		}
	}
	return s.start <= last && last < s.end && depth == 0
}

// segmentOf returns the number of the segment after a block of br_table, or -1.
func (f *function) segmentOf(p place) int {
	// The first segment is after the innermost block, which was opened last.
	if n := f.entry - 2 - int(p); p >= 0 && n >= 0 && n < len(f.segments) {
		return n
	}
	return -1
}

// at returns the segment that the number of a place leads to.
func (f *function) at(number int64) int {
	places := f.code[f.entry].places
	return f.segmentOf(places[max(0, min(number, int64(len(places)-1)))])
}

// jump returns the segment to which a branch to the loop leads, or -1 if that is unknown.
func (f *function) jump(i int) int {
	b := &f.code[i]
	if b.op != opBr || f.loop < 0 || b.places[0] != place(f.loop) || f.code[i-1].op != opLocalSet || f.code[i-1].value != 0 ||
		f.code[i-2].op != opI32Const {
		return -1
	}
	return f.at(f.code[i-2].value)
}

// straighten makes a function's jumps direct. recovers is the number of a function that only
// functions which recover from panics call.
func (f *function) straighten(recovers uint32) {
	if f.entry == 0 {
		return
	}
	needed := make([]bool, len(f.segments))
	needed[f.at(0)] = true
	keep := false
	looped := false
	for i := range f.code {
		switch in := &f.code[i]; in.op {
		case opI64Const:
			// A return address: the function's number, and the place in the lower 16 bits.
			if in.value >= 1<<28 {
				needed[f.at(in.value&0xffff)] = true
			}
		case opCall:
			keep = keep || in.value == int64(recovers)
		case opBr, opBrIf, opBrTable:
			if f.loop < 0 || !slices.Contains(in.places, place(f.loop)) {
				continue
			}
			to := f.jump(i)
			switch {
			case to < 0:
				looped, keep = true, true
			case f.segments[to].start <= i:
				looped, needed[to] = true, true
			default:
				in.places[0] = place(f.segments[to].opener)
				f.code[i-1].op, f.code[i-2].op = dropped, dropped
			}
		}
	}
	if f.loop >= 0 && !looped {
		f.code[f.loop].op, f.code[f.loop].bytes = opBlock, []byte{opBlock, empty}
	}
	f.merge()
	if !keep {
		f.prune(needed)
	}
	f.foresee()
}

// merge turns an if that contains only a branch into a conditional branch.
func (f *function) merge() {
	for i := range f.code {
		if f.code[i].op != opIf {
			continue
		}
		next := func(at int) int {
			for at++; f.code[at].op == dropped; at++ {
			}
			return at
		}
		br := next(i)
		if f.code[br].op != opBr {
			continue
		}
		if end := next(br); f.code[end].op == opEnd {
			f.code[i].op, f.code[i].places = opBrIf, f.code[br].places
			f.code[br].op, f.code[end].op = dropped, dropped
		}
	}
}

// prune makes br_table lead only to segments that are needed.
func (f *function) prune(needed []bool) {
	table := &f.code[f.entry]
	most := 0
	for i, p := range table.places {
		if needed[f.segmentOf(p)] {
			most = i
		} else {
			table.places[i] = trap
		}
	}
	table.places = append(table.places[:most+1], trap)
}

// foresee marks branches that are seldom taken: those that unwind, or panic.
func (f *function) foresee() {
	f.findCold()
	now := -1 // the segment
	for i := range f.code {
		if now+1 < len(f.segments) && i >= f.segments[now+1].start {
			now++
		}
		in := &f.code[i]
		switch in.op {
		case opIf:
			// Calls are outside of ifs, except those that grow the stack or panic.
			for j := i + 1; f.code[j].op != opEnd || f.code[j].opener != i; j++ {
				if f.code[j].op == opCall {
					in.hint = seldom
				}
			}
		case opBrIf:
			to := f.segmentOf(in.places[0])
			switch {
			case i < f.entry || in.places[0] >= place(f.entry):
			case to < 0:
			case f.segments[to].cold && now >= 0 && !f.segments[now].cold:
				in.hint = seldom
			}
		}
	}
}

// findCold finds the segments from which no path leads to a return.
func (f *function) findCold() {
	for i := range f.segments {
		f.segments[i].cold = true
	}
	for changed := true; changed; {
		changed = false
		for i := len(f.segments) - 1; i >= 0; i-- {
			if s := &f.segments[i]; s.cold && f.returns(i) {
				s.cold, changed = false, true
			}
		}
	}
}

// returns reports whether a segment returns, or continues in a segment that isn't cold.
func (f *function) returns(number int) bool {
	s := &f.segments[number]
	depth, falls := 0, true
	for i := s.start; i < s.end; i++ {
		in := &f.code[i]
		if depth == 0 && in.op != dropped {
			falls = true
		}
		switch in.op {
		case opBlock, opLoop, opIf:
			depth++
		case opEnd:
			depth--
		case opReturn:
			return true
		case opBr, opBrIf:
			to := f.jump(i)
			if to < 0 {
				to = f.segmentOf(in.places[0])
			}
			if to >= 0 && !f.segments[to].cold {
				return true
			}
		}
		if depth == 0 && (in.op == opBr || in.op == opUnreachable) {
			falls = false
		}
	}
	return falls && number+1 < len(f.segments) && !f.segments[number+1].cold
}

// hinted is a branch with a hint, by its offset in the function.
type hinted struct {
	offset int
	hint   hint
}

// encode writes the function. hints are in the order of the code.
func (f *function) encode() (b []byte, hints []hinted) {
	b = append(b, f.locals...)
	var open []place
	branch := func(op byte, to []place) {
		b = append(b, op)
		if op == opBrTable {
			b = binary.AppendUvarint(b, uint64(len(to)-1))
		}
		for _, p := range to {
			up := 0
			for ; up < len(open) && open[len(open)-1-up] != p; up++ {
			}
			b = binary.AppendUvarint(b, uint64(up))
		}
	}
	opens, closes := -1, -1
	if f.entry > 0 && slices.Contains(f.code[f.entry].places, trap) {
		// The trap's block opens and closes before these.
		opens, closes = f.segments[len(f.segments)-1].opener, f.lastTrap()
		if f.loop >= 0 {
			opens = f.loop
		}
	}
	for i, in := range f.code {
		if i == opens {
			b = append(b, opBlock, empty)
			open = append(open, trap)
		}
		if i == closes {
			b = append(b, opEnd)
			open = open[:len(open)-1]
		}
		if in.hint != unknown {
			hints = append(hints, hinted{len(b), in.hint})
		}
		switch in.op {
		case dropped:
		case opBr, opBrIf:
			branch(in.op, in.places)
		case opBrTable:
			if f.entry > 0 && i == f.entry {
				// Nearly always a function is called, and not resumed.
				b = b[:len(b)-len(f.code[i-1].bytes)]
				b = append(append(b, f.code[i-1].bytes...), opI32Eqz)
				hints = append(hints, hinted{len(b), usually})
				branch(opBrIf, in.places[:1])
				b = append(b, f.code[i-1].bytes...)
			}
			branch(in.op, in.places)
		default:
			b = append(b, in.bytes...)
			switch in.op {
			case opBlock, opLoop, opIf:
				open = append(open, place(i))
			case opEnd:
				if in.opener >= 0 {
					open = open[:len(open)-1]
				}
			}
		}
	}
	return b, hints
}

// lastTrap returns the index of the unreachable instruction at the end of each of Go's functions,
// or 0.
func (f *function) lastTrap() int {
	for i := len(f.code) - 1; i > 0; i-- {
		if f.code[i].op == opUnreachable {
			return i
		}
	}
	return 0
}

func appendHints(dst []byte, hints []hinted) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(hints)))
	for _, h := range hints {
		dst = binary.AppendUvarint(dst, uint64(h.offset))
		value := byte(0)
		if h.hint == usually {
			value = 1
		}
		dst = append(dst, 1, value)
	}
	return dst
}
