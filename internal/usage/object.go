package usage

// object reads the members of a stem while its bytes pass, so that it may be of any size. Members lie
// in objects within the stem, at most maxDepth deep, and in no array but that of iterations, or the stem itself.
type object struct {
	state objectState
	depth int // of open objects and arrays, from 1
	// ends has the length of path at which the names of each depth begin, and arrays which of them
	// are arrays, whose elements have the array's own path.
	ends   [maxDepth + 1]int
	arrays [maxDepth + 1]bool
	path   []byte // the names that lead to the current value, with dots between
	value  []byte // the current value: characters of a string, or a literal
	quoted bool   // value is a string
	sum    uint64 // of the elements of a stem that is an array
	// left is how many bytes of an escape are still to come, and code what they have told so far.
	left int
	code rune
	iteration
}

type objectState uint8

const (
	inNothing objectState = iota // the stem is not read
	nameNext                     // a string is a name
	valueNext                    // a string is a value
	inString                     // of either
	inNameString
	inLiteral
)

const (
	maxDepth = 4 // predictions, the element, its embeddings, their statistics
	// maxNames bounds path. No member's is as long.
	maxNames = 80
)

// begin begins a stem behind its opening bracket. adds says that an array's elements are added up; others are not read.
func (o *object) begin(isObject, adds bool) {
	*o = object{path: o.path[:0], value: o.value[:0], depth: 1}
	if isObject {
		o.state = nameNext
	} else if adds {
		o.state, o.arrays[1] = valueNext, true
	}
}

// feed reads the next bytes of a stem.
func (o *object) feed(r *Reader, from *source, piece []byte) {
	if o.state == inNothing {
		return
	}
	for _, c := range piece {
		switch {
		case o.state == inString || o.state == inNameString:
			o.character(r, from, c)
		case isLiteral(c):
			if o.state != inLiteral {
				o.state, o.quoted, o.value = inLiteral, false, o.value[:0]
			}
			o.keep(c)
		default:
			if o.state == inLiteral {
				o.state = valueNext
				r.takeMember(o, from)
			}
			o.structure(r, c)
		}
	}
}

// isLiteral reports whether a byte can belong to a number, true, false or null.
func isLiteral(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'z' || c == '-' || c == '+' || c == '.'
}

// structure reads a byte outside of strings and literals.
func (o *object) structure(r *Reader, c byte) {
	switch c {
	case '{', '[':
		if o.depth++; o.depth > maxDepth {
			break
		}
		o.ends[o.depth], o.arrays[o.depth] = len(o.path), c == '['
		if o.state = nameNext; c == '[' {
			o.state = valueNext
		} else if string(o.path) == iterations {
			o.iteration.begin()
		}
	case '}', ']':
		if o.depth <= maxDepth {
			o.path = o.path[:o.ends[o.depth]]
			if c == '}' && string(o.path) == iterations {
				r.takeIteration(o)
			}
		}
		o.depth--
	case ':':
		o.state = valueNext
	case ',':
		if o.state = nameNext; o.depth > maxDepth || o.arrays[o.depth] {
			o.state = valueNext
		}
	case '"':
		if o.quoted, o.value = true, o.value[:0]; o.state != nameNext || o.depth > maxDepth {
			o.state = inString
			break
		}
		o.state, o.path = inNameString, o.path[:o.ends[o.depth]]
		if len(o.path) > 0 {
			o.keep('.')
		}
	}
}

// keep keeps a byte of a name or of a value. A value that is too long is none that counts.
func (o *object) keep(c byte) {
	switch {
	case o.state == inNameString:
		if len(o.path) < maxNames {
			o.path = append(o.path, c)
		}
	case len(o.value) <= MaxModel:
		o.value = append(o.value, c)
	}
}

// character reads a byte of a string.
func (o *object) character(r *Reader, from *source, c byte) {
	switch {
	case o.left > 0 && (o.code < 0 || c != '"' && c != '\\'): // these two are not part of a broken escape
		o.escaped(c)
	case c == '\\':
		o.left, o.code = 1, -1
	case c != '"':
		o.keep(c)
	default:
		isValue := o.state == inString
		if o.state, o.left = valueNext, 0; isValue {
			r.takeMember(o, from)
		}
	}
}

// escaped reads a byte of an escape. No member has a letter beyond ASCII, or one with an escape of
// its own.
func (o *object) escaped(c byte) {
	if o.code < 0 {
		if o.left, o.code = 0, 0; c == 'u' {
			o.left = 4
		} else {
			o.keep(c)
		}
		return
	}
	digit := rune(c - '0')
	if c > '9' {
		digit = rune(c|0x20-'a') + 10
	}
	o.code = o.code<<4 | digit&0xf
	if o.left--; o.left > 0 {
		return
	}
	if o.code >= 0x80 {
		o.code = 0
	}
	o.keep(byte(o.code))
}

// takeMember takes the value at a path within a stem.
func (r *Reader) takeMember(o *object, from *source) {
	if o.depth > maxDepth {
		return
	}
	for i := range from.below {
		if m := &from.below[i]; m.name == string(o.path) {
			if !o.quoted && string(o.value) == "null" {
				return
			}
			hits, ok := count(o.value)
			if ok && o.arrays[1] {
				o.sum = min(o.sum+hits, Most+1)
				hits, ok = o.sum, o.sum <= Most
			}
			if ok {
				r.first, r.later = r.first || from.first, r.later || !from.first
			}
			r.note(m.field, hits, ok)
			return
		}
	}
	o.read(o.path, o.value)
}
