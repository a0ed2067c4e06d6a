package usage

import (
	"bytes"

	"weir/internal/jsonpath"
)

// Unasked takes the chunk of OpenAI's completions that has nothing but the usage out of an event
// stream: the line of its data, and the empty line behind it if the event has no other. Everything
// else passes as it came. A line that may be that chunk's is kept until its end has come, which no
// client can tell: it takes an event once that is whole. Call Begin before each stream.
type Unasked struct {
	_ [0]func() // keeps Go from generating an equality function

	// held is the beginning of a line that may have to be taken out.
	held []byte
	// within means that a line is open that passes.
	within bool
	// used means that the event has lines that have passed, and taken that its last line was taken
	// out.
	used, taken bool
	// returned means that the last byte was a carriage return, which ends a line, and dropped that it
	// was taken out. A line feed behind it belongs to it.
	returned, dropped bool

	choices, usage jsonpath.Reader
}

// mostHeld bounds the line of a chunk with the usage alone, in bytes.
const mostHeld = 8 << 10

var (
	choicesPath, _ = jsonpath.Compile("choices")
	usagePath, _   = jsonpath.Compile("usage")
	// numbers is in every chunk with usage.
	numbers = addWord(nil, []byte("_tokens"))
	filled  = []byte(`"choices":[{`)
)

// Begin begins a stream.
func (u *Unasked) Begin() {
	u.held = u.held[:0]
	u.within, u.used, u.taken, u.returned, u.dropped = false, false, false, false, false
}

// Read appends what is to pass after the next piece of the stream, or reports that this is the same
// as the piece. end says that no more will follow.
func (u *Unasked) Read(dst, piece []byte, end bool) (kept []byte, same bool) {
	before, all := len(dst), len(piece)
	changed := len(u.held) > 0
	if !changed && !u.taken && !u.returned && !numbers[0].in(piece) {
		n := u.skip(piece)
		if n == all && !end {
			return dst, true
		}
		dst, piece = append(dst, piece[:n]...), piece[n:]
	}
	for len(piece) > 0 {
		if u.returned {
			if u.returned = false; piece[0] == '\n' {
				if !u.dropped {
					dst = append(dst, '\n')
				}
				u.dropped, piece = false, piece[1:]
				continue
			}
			u.dropped = false
		}
		size := lineSize(piece)
		if size == len(piece) {
			if u.within || !u.hold(piece) {
				dst, u.within, u.held = append(append(dst, u.held...), piece...), true, u.held[:0]
			}
			break
		}
		dst = u.line(dst, piece[:size], piece[size])
		piece = piece[size+1:]
	}
	if end {
		if !u.isUsage(u.held) {
			dst = append(dst, u.held...)
		}
		u.held = u.held[:0]
	}
	if !changed && len(dst)-before == all {
		return dst[:before], true
	}
	return dst, false
}

// skip passes the complete lines of a piece without the usage, and returns their size.
func (u *Unasked) skip(piece []byte) (size int) {
	last := max(bytes.LastIndexByte(piece, '\n'), bytes.LastIndexByte(piece, '\r'))
	if last < 0 {
		return 0
	}
	size = last + 1
	if u.returned = piece[last] == '\r'; last > 0 && !u.returned && piece[last-1] == '\r' {
		last--
	}
	if last > 0 {
		u.used = piece[last-1] != '\n' && piece[last-1] != '\r'
	} else {
		u.used = u.within
	}
	u.within = false
	return size
}

// lineSize returns how many bytes of a piece belong to its first line, without what ends it.
func lineSize(piece []byte) (size int) {
	for size < len(piece) && piece[size] != '\n' && piece[size] != '\r' {
		size++
	}
	return size
}

// line appends a line that ends here with that byte, unless it is taken out.
func (u *Unasked) line(dst, rest []byte, ending byte) []byte {
	u.returned = ending == '\r'
	if !u.within && len(u.held) == 0 && len(rest) == 0 { // the line is empty
		u.dropped = u.taken && !u.used && u.returned
		gone := u.taken && !u.used
		u.taken, u.used = false, false
		if gone {
			return dst
		}
		return append(dst, ending)
	}
	text := rest
	if len(u.held) > 0 {
		u.held = append(u.held, rest...)
		text = u.held
	}
	if !u.within && u.isUsage(text) {
		u.taken, u.dropped, u.held = true, u.returned, u.held[:0]
		return dst
	}
	dst = append(append(dst, text...), ending)
	u.within, u.used, u.held = false, true, u.held[:0]
	return dst
}

// hold keeps the beginning of a line, if the line may have to be taken out.
func (u *Unasked) hold(piece []byte) (held bool) {
	if len(u.held)+len(piece) > mostHeld {
		return false
	}
	u.held = append(u.held, piece...)
	text := u.held
	for i := range text {
		if c := text[i]; i < len(dataField) && c != dataField[i] || i == len(dataField) && c != ':' {
			break
		} else if i > len(dataField) && c != ' ' && c != '\t' {
			held = c == '{' && !bytes.Contains(text, filled)
			break
		}
		held = true
	}
	if !held {
		u.held = u.held[:len(u.held)-len(piece)]
	}
	return held
}

// isUsage reports whether a line is that of a chunk with the usage alone.
func (u *Unasked) isUsage(line []byte) bool {
	text, isData := bytes.CutPrefix(line, []byte(dataField+":"))
	if !isData || len(line) > mostHeld || !numbers[0].in(text) {
		return false
	}
	u.choices.Reset(choicesPath)
	u.usage.ResetFlow(usagePath)
	u.choices.Feed(text)
	list, kind := u.choices.Value()
	if kind != jsonpath.Composite || list[0] != '[' {
		return false
	}
	for _, c := range list[1 : len(list)-1] {
		if !isSpace(c) {
			return false
		}
	}
	u.usage.Feed(text)
	part, isObject := u.usage.Flow()
	return len(part) > 0 && isObject
}
