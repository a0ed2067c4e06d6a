package usage

import "bytes"

// splitter finds the texts of a body of the form JSON: its elements, if it is an array, or the whole.
type splitter struct {
	whole   bool // even an array is one text
	begun   bool
	inArray bool
	// These are about an element: brackets that are open, whether a string is, and whether a \ was
	// before.
	depth           int
	quoted, escaped bool
}

func (s *splitter) feed(r *Reader, piece []byte) {
	for !s.begun && len(piece) > 0 {
		c := piece[0]
		if isSpace(c) {
			piece = piece[1:]
			continue
		}
		if s.begun = true; c == '[' && !s.whole {
			s.inArray, piece = true, piece[1:]
		}
	}
	if !s.inArray {
		r.read(piece)
		return
	}
	from := 0
	for i, c := range piece {
		switch {
		case s.escaped:
			s.escaped = false
		case s.quoted:
			s.escaped, s.quoted = c == '\\', c != '"'
		case c == '"':
			s.quoted = true
		case c == '[' || c == '{':
			s.depth++
		case c == ']' || c == '}':
			s.depth--
		case c == ',' && s.depth == 0:
			r.read(piece[from:i])
			r.begin()
			from = i + 1
		}
	}
	r.read(piece[from:])
}

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\t' || c == '\r' }

// lines reads a body of the form Lines. A text of JSON has no end of line but between its tokens, and
// those that are sent in lines not there either.
func (r *Reader) lines(piece []byte) {
	for {
		end := bytes.IndexByte(piece, '\n')
		if end < 0 {
			r.read(piece)
			return
		}
		if r.started || r.fields.mayBeIn(piece[:end]) {
			r.read(piece[:end+1])
		}
		r.begin()
		piece = piece[end+1:]
	}
}
