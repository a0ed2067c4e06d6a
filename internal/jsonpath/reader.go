package jsonpath

import (
	"unicode/utf16"
	"unicode/utf8"
)

// MaxValue is the size of the largest value that a reader keeps, in bytes.
const MaxValue = 4096

// Kind is the kind of value that a reader has found.
type Kind uint8

// The kinds. Values of Missing, TooLong and Malformed have no bytes.
const (
	// Missing is a path that leads to nothing, or a text of white space only.
	Missing Kind = iota
	// Values of Null, Bool and Number have their text as it was written.
	Null
	Bool
	Number
	// String has its characters, without quotes and escapes. Half a surrogate pair becomes a
	// U+FFFD.
	String
	// Composite is an object or an array, which has its text as it was written.
	Composite
	// TooLong is a value of more than MaxValue bytes.
	TooLong
	// Malformed is a text that is no JSON, or that ends before its value does.
	Malformed
)

type state uint8

const (
	begin      state = iota // before the document
	first                   // after [
	firstName               // after {
	beforeName              // after , in an object
	inName
	afterName
	beforeValue
	inString
	inLiteral
	inNumber
	inComposite // taken as a whole, or skipped
	afterValue
	afterText // with all set: only white space may follow
	end
)

// The kind of a number's last byte decides which bytes may follow.
const (
	sign       = iota // -
	zero              // a 0, which only a fraction or an exponent may follow
	integer           // digits
	point             // .
	fraction          // digits
	exponent          // e
	powerSign         // + or -
	powerDigit        // digits
)

// level is an open object or array that the path leads through. So there are no more levels than
// names in the path.
type level struct {
	_ [0]func() // keeps Go from generating an equality function

	object bool
	index  int // of the array's current element; an object's is 0 while it has no member
	// With Reader.all: exact says that the names on the way here are the path's as they are, and
	// found that the way has led on to a number.
	exact, found bool
	// place is where the value lies that the path leads to from here.
	place place
}

// Reader reads the value that a path leads to. It reads only the way there. In all else it counts
// brackets, however deep, and checks only that JSON may have the characters outside of strings. Its
// memory is that of the value, up to MaxValue bytes, and some for each name of the path; the next
// text uses it again. Call Reset before a Reader's first use. Only one goroutine at a time may use
// it.
type Reader struct {
	_ [0]func() // keeps Go from generating an equality function

	path   *Path
	levels []level // one for each name of the path
	depth  int     // of the innermost open level, from 0, which is also the index of the path's next name
	state  state
	kind   Kind
	value  []byte
	wanted bool // the path leads to the next value, or through it
	taken  bool // the value being read is the wanted one
	text   bool // and it is a string

	matched int // the number of a name's bytes that match the path; -1 if it is another name

	// State of a string, and of the escape being read: how many bytes of the escape were read, the
	// code of \u, and the first half of a surrogate pair whose second may follow.
	escape     uint8
	code, high rune

	literal  string // its remaining letters
	number   uint8
	brackets int  // open brackets of a composite
	quoted   bool // a composite's string is open

	all     bool    // all of the text is read: see ResetAll
	numbers Numbers // the numbers so far
	exact   bool    // the last name matches the path with its capitals
	single  bool    // a single value is wanted: see ResetOnly
	only    []byte  // that value

	read   int    // bytes of the text up to the end of the piece that is being read
	at     int    // the place in the text of the byte that structure reads
	flows  bool   // an object or array is not kept: see ResetFlow
	object bool   // it is an object
	flow   []byte // its part in the piece that Feed has read last
}

// Reset prepares the reader for a new text. It allocates only if the path has more names than any
// before.
func (r *Reader) Reset(path *Path) {
	if cap(r.levels) < len(path.names) {
		r.levels = make([]level, len(path.names))
	}
	r.path, r.levels, r.depth = path, r.levels[:len(path.names)], -1
	r.state, r.kind, r.value = begin, Missing, r.value[:0]
	r.wanted, r.taken, r.text = true, false, false
	r.escape, r.high, r.quoted = 0, 0, false
	r.all, r.numbers, r.single, r.flows, r.flow = false, Numbers{}, false, false, nil
	r.read, r.at = 0, 0
}

// ResetFlow prepares the reader for a new text as Reset does. But an object or an array at the end of
// the path may be of any size: it is not kept, and passes through [Reader.Flow].
func (r *Reader) ResetFlow(path *Path) {
	r.Reset(path)
	r.flows = true
}

// Flow returns the part, behind its opening bracket, of the value at the end of the path that the
// last Feed has read, and whether that value is an object. The bytes are those that Feed was given.
func (r *Reader) Flow() (part []byte, object bool) { return r.flow, r.object }

// Part takes what has been read of a string at the end of the path since the last call. So the string may be of any size, if
// pieces are well below MaxValue. since is how many bytes of the text have come behind its opening quote; 0 without a string.
// The bytes are valid until the next Feed.
func (r *Reader) Part() (part []byte, since int) {
	if !r.text {
		return nil, 0
	}
	part, r.value = r.value, r.value[:0]
	return part, r.read - r.at - 1
}

// Value returns the value once Feed has reported true, or at the end of the text. The bytes are
// valid until the next Reset.
func (r *Reader) Value() (value []byte, kind Kind) {
	switch {
	case r.state == begin:
		return nil, Missing
	case r.state != end:
		return nil, Malformed
	case r.kind == Missing || r.kind >= TooLong:
		return nil, r.kind
	}
	return r.value, r.kind
}

// Feed reads the next piece of the text, and reports whether the result is known. Later pieces then
// make no difference.
func (r *Reader) Feed(chunk []byte) (done bool) {
	r.flow = nil
	r.read += len(chunk)
	for len(chunk) > 0 && r.state != end {
		switch r.state {
		case inName, inString:
			chunk = chunk[r.characters(chunk):]
			continue
		case inComposite:
			n := r.composite(chunk)
			if r.flows && r.taken {
				r.flow = chunk[:n]
			}
			chunk = chunk[n:]
			continue
		case inNumber:
			if n := r.digits(chunk); n > 0 {
				chunk = chunk[n:]
				continue
			}
		}
		c := chunk[0]
		chunk = chunk[1:]
		if r.state == inLiteral {
			r.letter(c)
		} else if c != ' ' && c != '\n' && c != '\t' && c != '\r' {
			r.at = r.read - len(chunk) - 1
			r.structure(c)
		}
	}
	return r.state == end
}

func (r *Reader) finish(kind Kind) { r.kind, r.state = kind, end }

// finishValue ends a value, which may be the wanted one.
func (r *Reader) finishValue(kind Kind) {
	r.state = afterValue
	switch {
	case !r.all:
		if r.taken {
			r.finish(kind)
		}
	case r.taken:
		r.takeNumber(kind)
	case r.wanted:
		r.lack()
	}
}

// structure reads a byte outside of values and names.
func (r *Reader) structure(c byte) {
	switch r.state {
	case begin:
		if c != '{' && c != '[' {
			if r.all {
				r.finish(Malformed)
				return
			}
			// Without members and elements, no path leads anywhere.
			r.beginValue(c)
			if r.state != end {
				r.finish(Missing)
			}
			return
		}
		r.open(c)
	case firstName, beforeName:
		switch {
		case c == '"':
			r.state, r.matched = inName, 0
			r.levels[r.depth].index = 1
			if r.all {
				r.value = r.value[:0]
			}
		case c == '}' && r.state == firstName:
			r.close()
		default:
			r.finish(Malformed)
		}
	case afterName:
		if c != ':' {
			r.finish(Malformed)
			return
		}
		r.state, r.wanted = beforeValue, r.matched == len(r.path.names[r.depth].text)
		if r.all {
			r.wanted = r.alike() && r.path.names[r.depth].index != counted
		}
	case first, beforeValue:
		if c == ']' && r.state == first {
			r.close()
			return
		}
		in := &r.levels[r.depth]
		if !in.object {
			r.wanted, r.exact = r.path.names[r.depth].index == in.index, true
		}
		r.beginValue(c)
	case afterValue:
		in := &r.levels[r.depth]
		switch {
		case c == ',' && in.object:
			r.state = beforeName
		case c == ',':
			in.index++
			r.state = beforeValue
		case c == '}' && in.object, c == ']' && !in.object:
			r.close()
		default:
			r.finish(Malformed)
		}
	case afterText:
		r.finish(Malformed)
	}
}

func (r *Reader) open(c byte) {
	exact := r.depth < 0 || r.exact && r.levels[r.depth].exact
	r.depth++
	r.levels[r.depth] = level{object: c == '{', exact: exact}
	r.state = first
	if c == '{' {
		r.state = firstName
	}
}

func (r *Reader) close() {
	if r.all {
		r.count()
		r.leave()
	}
	r.depth--
	r.state = afterValue
	switch {
	case r.depth >= 0:
	case r.all:
		r.state = afterText
	default:
		r.finish(Missing)
	}
}

func (r *Reader) beginValue(c byte) {
	r.taken = r.wanted && r.depth == len(r.path.names)-1
	if r.all && r.taken {
		r.value = r.value[:0]
	}
	if r.all && r.wanted {
		r.levels[r.depth].place.note(r.at, c, r.exact)
	}
	switch c {
	case '{', '[':
		if r.wanted && !r.taken {
			r.open(c)
			return
		}
		r.state, r.brackets, r.object = inComposite, 0, c == '{'
		r.composite([]byte{c})
		return
	case '"':
		r.state, r.text = inString, r.taken
		return
	case 't':
		r.literal = "true"
	case 'f':
		r.literal = "false"
	case 'n':
		r.literal = "null"
	case '-':
		r.state, r.number = inNumber, sign
	case '0':
		r.state, r.number = inNumber, zero
	default:
		if c < '1' || '9' < c {
			r.finish(Malformed)
			return
		}
		r.state, r.number = inNumber, integer
	}
	if r.state != inNumber {
		r.state = inLiteral
		r.letter(c)
		return
	}
	r.keep([]byte{c})
}

// keep keeps bytes that belong to the wanted value.
func (r *Reader) keep(bytes []byte) {
	if !r.taken || r.flows && r.state == inComposite {
		return
	}
	if len(r.value)+len(bytes) > MaxValue {
		r.finish(TooLong)
		return
	}
	r.value = append(r.value, bytes...)
}

func (r *Reader) letter(c byte) {
	if c != r.literal[0] {
		r.finish(Malformed)
		return
	}
	r.literal = r.literal[1:]
	r.keep([]byte{c})
	if r.literal != "" {
		return
	}
	kind := Bool
	if c == 'l' { // only null ends in l
		kind = Null
	}
	r.finishValue(kind)
}

// digits reads bytes of a number, and returns how many. The result is 0 when the number has ended:
// the next byte then belongs to the text after it.
func (r *Reader) digits(chunk []byte) int {
	for i, c := range chunk {
		next := nextInNumber(r.number, c)
		if next >= 0 {
			r.number = uint8(next)
			continue
		}
		r.keep(chunk[:i])
		if r.state == end {
			return i
		}
		switch c {
		case ' ', '\n', '\t', '\r', ',', ']', '}':
			switch r.number {
			case zero, integer, fraction, powerDigit:
				r.finishValue(Number)
				return i
			}
		}
		r.finish(Malformed)
		return i
	}
	r.keep(chunk)
	return len(chunk)
}

// nextInNumber returns the kind of byte c after a byte of kind last, or -1 if c can't follow.
func nextInNumber(last, c byte) int {
	switch {
	case '0' <= c && c <= '9':
		switch last {
		case sign:
			if c == '0' {
				return zero
			}
			return integer
		case integer:
			return integer
		case point, fraction:
			return fraction
		case exponent, powerSign, powerDigit:
			return powerDigit
		}
	case c == '.' && (last == zero || last == integer):
		return point
	case c|0x20 == 'e' && (last == zero || last == integer || last == fraction):
		return exponent
	case (c == '+' || c == '-') && last == exponent:
		return powerSign
	}
	return -1
}

// composite reads an object or an array that the path does not lead through, and returns how many
// bytes it has read.
func (r *Reader) composite(chunk []byte) int {
	for i, c := range chunk {
		switch {
		case r.quoted:
			switch {
			case r.escape > 0:
				r.escape = 0
			case c == '\\':
				r.escape = 1
			case c == '"':
				r.quoted = false
			case c < ' ':
				r.finish(Malformed)
				return i
			}
		case c == '"':
			r.quoted = true
		case c == '{' || c == '[':
			r.brackets++
		case c == '}' || c == ']':
			if r.brackets--; r.brackets == 0 {
				if r.keep(chunk[:i+1]); r.state != end {
					r.finishValue(Composite)
				}
				return i + 1
			}
		case !isToken(c):
			r.finish(Malformed)
			return i
		}
	}
	r.keep(chunk)
	return len(chunk)
}

// isToken reports whether a byte may stand outside of strings, besides quotes and brackets. Lenient
// parsers accept comments and other quotes, within which they would not count the brackets.
func isToken(c byte) bool {
	switch {
	case '0' <= c && c <= '9', c == ',', c == ':', c == '.', c == '-', c == '+', c == ' ', c == '\n', c == '\t', c == '\r':
		return true
	}
	switch c {
	case 't', 'r', 'u', 'e', 'f', 'a', 'l', 's', 'n', 'E':
		return true
	}
	return false
}

// characters reads characters of a name or of a string, and returns how many bytes it has read.
func (r *Reader) characters(chunk []byte) int {
	if r.escape > 0 {
		r.escaped(chunk[0])
		return 1
	}
	for i, c := range chunk {
		if c != '"' && c != '\\' && c >= ' ' {
			continue
		}
		if i > 0 {
			r.take(chunk[:i])
			return i
		}
		switch {
		case c == '\\':
			r.escape = 1
		case c != '"':
			r.finish(Malformed)
		default:
			r.half()
			switch r.state {
			case inName:
				r.state = afterName
			case inString:
				r.finishValue(String)
			}
		}
		return 1
	}
	r.take(chunk)
	return len(chunk)
}

// take adds characters to a name or to a string.
func (r *Reader) take(characters []byte) {
	if r.half(); r.state != end {
		r.add(characters)
	}
}

// half adds a U+FFFD for the first half of a surrogate pair if no second half follows.
func (r *Reader) half() {
	if r.high != 0 {
		r.high = 0
		r.add([]byte("\ufffd"))
	}
}

func (r *Reader) add(characters []byte) {
	if r.state != inName {
		r.keep(characters)
		return
	}
	if r.all {
		r.keepName(characters)
		return
	}
	if r.matched < 0 {
		return
	}
	rest := r.path.names[r.depth].text[r.matched:]
	if len(characters) > len(rest) || string(characters) != rest[:len(characters)] {
		r.matched = -1
		return
	}
	r.matched += len(characters)
}

// escaped reads a byte of an escape after the \.
func (r *Reader) escaped(c byte) {
	if r.escape == 1 {
		switch c {
		case 'u':
			r.escape, r.code = 2, 0
			return
		case '"', '\\', '/':
		case 'b':
			c = '\b'
		case 'f':
			c = '\f'
		case 'n':
			c = '\n'
		case 'r':
			c = '\r'
		case 't':
			c = '\t'
		default:
			r.finish(Malformed)
			return
		}
		r.escape = 0
		r.take([]byte{c})
		return
	}
	digit := hexDigit(c)
	if digit < 0 {
		r.finish(Malformed)
		return
	}
	r.code = r.code<<4 | digit
	if r.escape++; r.escape < 6 {
		return
	}
	r.escape = 0
	code := r.code
	if r.high != 0 && 0xdc00 <= code && code < 0xe000 {
		code = utf16.DecodeRune(r.high, code)
		r.high = 0
	}
	r.half()
	if 0xd800 <= code && code < 0xdc00 {
		r.high = code
		return
	}
	if r.state != end {
		var buffer [utf8.UTFMax]byte
		r.add(utf8.AppendRune(buffer[:0], code))
	}
}

func hexDigit(c byte) rune {
	switch lower := c | 0x20; {
	case '0' <= c && c <= '9':
		return rune(c - '0')
	case 'a' <= lower && lower <= 'f':
		return rune(lower-'a') + 10
	}
	return -1
}
