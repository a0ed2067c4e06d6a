package main

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Sections of a module, by the numbers in WebAssembly's specification.
const (
	customSection   = 0
	typeSection     = 1
	importSection   = 2
	functionSection = 3
	startSection    = 8
	elementSection  = 9
	codeSection     = 10
	dataSection     = 11
)

const (
	magic = "\x00asm\x01\x00\x00\x00"
	// hintSection says which branches are seldom taken. It comes from the proposal for branch
	// hinting.
	hintSection = "metadata.code.branch_hint"
	nameSection = "name"
	// functionNames is the part of the name section that names functions.
	functionNames = 1
	// deferReturn is called by a function that the runtime may make return after a panic. Such a
	// function may continue after any call, and just before this call.
	deferReturn = "runtime.deferreturn"
)

var errMalformed = errors.New("malformed module")

// straighten makes a module's jumps direct, and packs its data. It refuses a module without names,
// which tell it the functions that recover from panics.
func straighten(module []byte, names bool) ([]byte, error) {
	all, err := sections(module)
	if err != nil {
		return nil, err
	}
	recovers, err := findFunction(all, deferReturn)
	if err != nil {
		return nil, err
	}
	imported, err := imports(find(all, importSection))
	if err != nil {
		return nil, err
	}
	t, err := findTable(find(all, dataSection))
	if err != nil {
		return nil, err
	}
	out := []byte(magic)
	var functions, types uint32
	started := !t.worthwhile()
	for _, s := range all {
		id, body := s.id, s.body
		if !started && id > startSection {
			started = true
			out = appendSection(out, startSection, binary.AppendUvarint(nil, uint64(imported+functions)))
		}
		switch {
		case id == customSection:
			if name := customName(body); !names && name == nameSection || name == hintSection {
				continue
			}
		case id == typeSection && t.worthwhile():
			types, body = added(body, "\x60\x00\x00") // the type of a function without parameters and results
		case id == functionSection && t.worthwhile():
			functions, body = added(body, string(binary.AppendUvarint(nil, uint64(types))))
		case id == startSection && t.worthwhile():
			return nil, errors.New("the module already has a start function")
		case id == codeSection:
			var hints []byte
			if body, hints, err = straightenCode(body, imported, recovers); err != nil {
				return nil, err
			}
			if t.worthwhile() {
				code := t.unpack()
				_, body = added(body, string(append(binary.AppendUvarint(nil, uint64(len(code))), code...)))
			}
			out = appendSection(out, customSection, hints)
		case id == dataSection:
			if body, err = pack(body, t); err != nil {
				return nil, err
			}
		}
		out = appendSection(out, id, body)
	}
	return out, nil
}

// added returns a section with another entry, and the entry's number.
func added(section []byte, entry string) (number uint32, more []byte) {
	r := reader{b: section}
	number = r.u32()
	more = binary.AppendUvarint(nil, uint64(number)+1)
	return number, append(append(more, section[r.at:]...), entry...)
}

func appendSection(dst []byte, id byte, body []byte) []byte {
	dst = binary.AppendUvarint(append(dst, id), uint64(len(body)))
	return append(dst, body...)
}

// section is a part of a module.
type section struct {
	id   byte
	body []byte
}

// sections returns a module's sections in their order.
func sections(module []byte) (all []section, err error) {
	if len(module) < len(magic) || string(module[:len(magic)]) != magic {
		return nil, fmt.Errorf("%w: want a module of WebAssembly 1.0", errMalformed)
	}
	r := reader{b: module, at: len(magic)}
	for r.more() {
		s := section{id: r.byte(), body: r.bytes(r.u32())}
		if r.bad {
			return nil, fmt.Errorf("%w: section %d", errMalformed, s.id)
		}
		all = append(all, s)
	}
	return all, nil
}

// find returns the section of a number, or one without entries.
func find(all []section, id byte) (body []byte) {
	for _, s := range all {
		if s.id == id {
			return s.body
		}
	}
	return []byte{0}
}

func customName(body []byte) string {
	r := reader{b: body}
	return string(r.bytes(r.u32()))
}

// findFunction returns the number of the function of a name. If the module has names but not this
// name, the number is beyond all functions.
func findFunction(all []section, name string) (number uint32, err error) {
	named := false
	number = 1<<32 - 1
	for _, s := range all {
		if s.id != customSection || customName(s.body) != nameSection {
			continue
		}
		r := reader{b: s.body}
		r.bytes(r.u32())
		for r.more() {
			part := r.byte()
			names := reader{b: r.bytes(r.u32())}
			if part != functionNames {
				continue
			}
			named = true
			for n := names.u32(); n > 0 && !names.bad; n-- {
				i := names.u32()
				if string(names.bytes(names.u32())) == name {
					number = i
				}
			}
			r.bad = r.bad || names.bad
		}
		if r.bad {
			return 0, fmt.Errorf("%w: section of names", errMalformed)
		}
	}
	if !named {
		return 0, errors.New("no names: build the module without -ldflags=-s")
	}
	return number, nil
}

// imports counts the functions that a module imports, which are numbered before its own.
func imports(body []byte) (count uint32, err error) {
	r := reader{b: body}
	for n := r.u32(); n > 0 && !r.bad; n-- {
		r.bytes(r.u32())
		r.bytes(r.u32())
		switch r.byte() {
		case 0: // a function, and its type
			r.u32()
			count++
		case 1: // a table: the type of its elements, and its limits
			r.byte()
			r.limits()
		case 2: // a memory
			r.limits()
		case 3: // a global: its type, and whether it changes
			r.byte()
			r.byte()
		default:
			r.bad = true
		}
	}
	if r.bad {
		return 0, fmt.Errorf("%w: section of imports", errMalformed)
	}
	return count, nil
}

// straightenCode makes the jumps of all functions direct. It also returns the section of hints.
func straightenCode(code []byte, imported, recovers uint32) (straight, hints []byte, err error) {
	r := reader{b: code}
	count := r.u32()
	straight = binary.AppendUvarint(nil, uint64(count))
	hinted := uint64(0)
	var each []byte
	for i := range count {
		body := r.bytes(r.u32())
		if r.bad {
			return nil, nil, fmt.Errorf("%w: section of code", errMalformed)
		}
		f, err := decode(body)
		if err != nil {
			return nil, nil, fmt.Errorf("function %d of the module's own: %w", i, err)
		}
		f.straighten(recovers)
		body, seldom := f.encode()
		straight = binary.AppendUvarint(straight, uint64(len(body)))
		straight = append(straight, body...)
		if len(seldom) > 0 {
			hinted++
			each = binary.AppendUvarint(each, uint64(imported+i))
			each = appendHints(each, seldom)
		}
	}
	hints = append(binary.AppendUvarint(nil, uint64(len(hintSection))), hintSection...)
	hints = binary.AppendUvarint(hints, hinted)
	return straight, append(hints, each...), nil
}

// reader reads the parts of the format. Once it is bad, all its results are empty.
type reader struct {
	b   []byte
	at  int
	bad bool
}

func (r *reader) more() bool { return !r.bad && r.at < len(r.b) }

func (r *reader) byte() (b byte) {
	if r.bad = !r.more(); r.bad {
		return 0
	}
	b = r.b[r.at]
	r.at++
	return b
}

func (r *reader) bytes(n uint32) (b []byte) {
	if r.bad = r.bad || uint64(n) > uint64(len(r.b)-r.at); r.bad {
		return nil
	}
	b = r.b[r.at : r.at+int(n)]
	r.at += int(n)
	return b
}

func (r *reader) u32() uint32 {
	if r.bad {
		return 0
	}
	v, n := binary.Uvarint(r.b[r.at:])
	if r.bad = n <= 0 || v > 1<<32-1; r.bad {
		return 0
	}
	r.at += n
	return uint32(v)
}

// signed reads a signed number of at most 64 bits.
func (r *reader) signed() (v int64) {
	for shift := 0; shift < 70; shift += 7 {
		b := r.byte()
		v |= int64(b&0x7f) << shift
		if b&0x80 == 0 {
			if b&0x40 != 0 && shift+7 < 64 {
				v |= -1 << (shift + 7)
			}
			return v
		}
	}
	r.bad = true
	return 0
}

func appendSigned(dst []byte, v int64) []byte {
	for ; v < -0x40 || v >= 0x40; v >>= 7 {
		dst = append(dst, byte(v)|0x80)
	}
	return append(dst, byte(v)&0x7f)
}

func (r *reader) limits() {
	bounded := r.byte()
	r.u32()
	if bounded&1 != 0 {
		r.u32()
	}
}
