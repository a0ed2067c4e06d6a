package jsonpath

import (
	"unicode/utf16"
	"unicode/utf8"
)

// MaxValue is how many bytes of a value a reader keeps.
const MaxValue = 4096

// Kind says what a reader has found.
type Kind uint8

// The kinds. Missing and the last two have no bytes.
const (
	// Missing is a path that leads to nothing, or a text of nothing but white space.
	Missing Kind = iota
	// Null, Bool and Number have their text as it was written.
	Null
	Bool
	Number
	// String has its characters, without quotes and escapes. Half a surrogate pair is a U+FFFD.
	String
	// Composite is an object or an array, and has its text as it was written.
	Composite
	// TooLong is a value of more than MaxValue bytes.
	TooLong
	// Malformed is a text that is no JSON, or ends before its value does.
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
	inComposite // which is taken as a whole, or not looked at
	afterValue
	afterText // of which all is read
	end
)

// A number's last byte decides which may come next.
const (
	sign       = iota // -
	zero              // a 0 that nothing but a fraction can follow
	integer           // digits
	point             // .
	fraction          // digits
	exponent          // e
	powerSign         // + or -
	powerDigit        // digits
)

// level is an object or an array that is open, and that the path leads through. So there are no
// more of them than the path has names.
type level struct {
	object bool
	index  int // of the array's current element
	// Where all is read: whether the way here has the names of the path as they are, and whether it has
	// led on to a number.
	exact, found bool
}

// Reader reads the value that a path leads to. It looks only at what is on the way there: of what
// else is in the text it counts brackets, however deep they are, and checks no more than that JSON has
// the characters between its strings. Its memory
// is the value's, up to MaxValue bytes, and some for each name of the path; it is kept for the next
// text. A Reader must be Reset before it is used, and not be used by several goroutines at once.
type Reader struct {
	_ [0]func() // keeps Go from generating an equality function

	path   *Path
	levels []level // one for each of the path's names
	depth  int     // of the levels that are open, less one: the name of the path that comes next
	state  state
	kind   Kind
	value  []byte
	wanted bool // the path leads to the next value, or through it
	taken  bool // what is read is the value

	matched int // of a name, bytes that are as in the path; -1 if it is another name

	// These are about a string, and the escape that is being read: how many of its bytes were, the
	// code of \u, and a first half of a surrogate pair that waits for its second.
	escape     uint8
	code, high rune

	literal  string // what is left of one
	number   uint8
	brackets int  // that are open of a composite
	quoted   bool // a composite's string is open

	all     bool    // that the text has is read: see Largest
	numbers Numbers // of it so far
	exact   bool    // the last name is as in the path
	single  bool    // a single value is wanted, and no number: see ResetOnly
	only    []byte  // it
}

// Reset makes the reader one of a new text. It allocates only if the path has more names than any
// before.
func (r *Reader) Reset(path *Path) {
	if cap(r.levels) < len(path.names) {
		r.levels = make([]level, len(path.names))
	}
	r.path, r.levels, r.depth = path, r.levels[:len(path.names)], -1
	r.state, r.kind, r.value = begin, Missing, r.value[:0]
	r.wanted, r.taken = true, false
	r.escape, r.high, r.quoted = 0, 0, false
	r.all, r.numbers, r.single = false, Numbers{}, false
}

// Value returns what was found: once Feed has reported true, or where the text ends. The bytes are
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

// Feed reads the next piece of the text, and reports whether the value is known. It does not look
// at pieces that come later.
func (r *Reader) Feed(chunk []byte) (done bool) {
	for len(chunk) > 0 && r.state != end {
		switch r.state {
		case inName, inString:
			chunk = chunk[r.characters(chunk):]
			continue
		case inComposite:
			chunk = chunk[r.composite(chunk):]
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
			r.structure(c)
		}
	}
	return r.state == end
}

func (r *Reader) finish(kind Kind) { r.kind, r.state = kind, end }

// finishValue ends a value, which may be the value that the path leads to.
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

// structure reads a byte between values and names.
func (r *Reader) structure(c byte) {
	switch r.state {
	case begin:
		if c != '{' && c != '[' {
			if r.all {
				r.finish(Malformed)
				return
			}
			// A document without members and elements has none that a path leads to.
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
			r.wanted = r.alike()
		}
	case first, beforeValue:
		if c == ']' && r.state == first {
			r.close()
			return
		}
		in := r.levels[r.depth]
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
	switch c {
	case '{', '[':
		if r.wanted && !r.taken {
			r.open(c)
			return
		}
		r.state, r.brackets = inComposite, 0
		r.composite([]byte{c})
		return
	case '"':
		r.state = inString
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

// keep keeps bytes of the value, if they are.
func (r *Reader) keep(bytes []byte) {
	if !r.taken {
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
	if c == 'l' { // only null ends with it
		kind = Null
	}
	r.finishValue(kind)
}

// digits reads a number's bytes, and returns how many. If it has ended, there are none, and the
// next byte is one after a value.
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

// nextInNumber returns -1 if a byte can't go on with a number.
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
// bytes it has taken.
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

// isToken reports whether a byte may be outside of strings, besides quotes and brackets: else a text that
// a lenient parser takes, with comments or other quotes, could have its brackets elsewhere.
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

// characters reads those of a name or of a string, and returns how many bytes it has taken.
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

// take takes characters of a name or of a string.
func (r *Reader) take(characters []byte) {
	if r.half(); r.state != end {
		r.add(characters)
	}
}

// half takes a U+FFFD for a first half of a surrogate pair that no second one follows.
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

// escaped reads a byte of an escape, after the \.
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
