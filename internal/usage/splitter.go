package usage

import "bytes"

// splitter finds the texts of a body of format JSON: the elements of an array, or else the whole
// body.
type splitter struct {
	whole   bool // even an array is one text
	begun   bool
	inArray bool
	// The state within an element: the number of open brackets, whether a string is open, and
	// whether the last byte was a backslash.
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

// lines reads a body of format Lines. Each line is a text: a JSON string can't contain a line feed,
// and texts of this format have none between their tokens.
func (r *Reader) lines(piece []byte) {
	for {
		end := bytes.IndexByte(piece, '\n')
		if end < 0 {
			r.read(piece)
			return
		}
		if r.started || r.mayTell(piece[:end]) {
			r.read(piece[:end+1])
		}
		r.begin()
		piece = piece[end+1:]
	}
}
