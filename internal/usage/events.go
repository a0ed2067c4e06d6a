package usage

import (
	"bytes"
)

// events reads a stream of server-sent events, as the HTML standard defines them
// (https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream). It
// reads only data fields. If the stream ends inside a text, the numbers before the end count.
type events struct {
	_ [0]func() // keeps Go from generating an equality function

	at      position
	matched int // how many bytes of dataField or byteOrderMark have matched
	// returned means that the last byte was a carriage return. A line feed after it is ignored.
	returned bool
	used     bool // the line has bytes
	// object means that the event's data begins with {. named means that a line began with e: only
	// the field event does.
	object, named bool
	rest          int // bytes since the last complete event
}

type position uint8

const (
	atBeginning position = iota // of the stream, which a byte order mark may begin
	inName                      // of a field
	beforeData                  // after the colon, in spaces before the data
	inData
	inOther // another field, or a comment
)

const (
	byteOrderMark = "\xef\xbb\xbf"
	dataField     = "data"
)

func (e *events) feed(r *Reader, piece []byte) {
	rest := e.rest + len(piece) // bytes from the last event to the end of the piece
	skipped := false
	lineFeed := len(piece) + 1 // how many bytes of the piece begin with its next line feed
	for len(piece) > 0 {
		if !skipped && e.at == inName && rest == len(piece) && !e.returned && !r.counts && !r.asks() {
			piece, skipped = e.skip(r, piece), true
			rest = len(piece)
			continue
		}
		c := piece[0]
		if e.returned {
			if e.returned = false; c == '\n' {
				if rest == len(piece) {
					rest--
				}
				piece = piece[1:]
				continue
			}
		}
		if e.at == atBeginning {
			if c == byteOrderMark[e.matched] {
				if e.matched++; e.matched == len(byteOrderMark) {
					e.at, e.matched = inName, 0
				}
				piece = piece[1:]
				continue
			}
			if e.at = inName; e.matched > 0 {
				e.at, e.used = inOther, true // the bytes begin another name
			}
			e.matched = 0
		}
		if c == '\n' || c == '\r' {
			e.returned = c == '\r'
			piece = piece[1:]
			if e.endLine(r) {
				rest = len(piece)
			}
			continue
		}
		e.used = true
		switch e.at {
		case inName:
			switch {
			case e.matched < len(dataField) && c == dataField[e.matched]:
				e.matched++
			case e.matched == len(dataField) && c == ':':
				e.at = beforeData
			default:
				e.at, e.named = inOther, e.named || e.matched == 0 && c == 'e'
			}
			piece = piece[1:]
		case beforeData:
			if c == ' ' || c == '\t' {
				piece = piece[1:]
				continue
			}
			e.at, e.object = inData, e.object || c == '{'
		default:
			if lineFeed > len(piece) { // it has been read
				lineFeed = fromLineFeed(piece)
			}
			end := len(piece) - lineFeed
			if i := bytes.IndexByte(piece[:end], '\r'); i >= 0 {
				end = i
			}
			if e.at == inData && (r.started || !endsEvent(piece[end:]) || r.mayTell(piece[:end])) {
				r.read(piece[:end])
			}
			piece = piece[end:]
		}
	}
	e.rest = rest
}

var eventEnd = []byte("\n\n")

// skip returns the part of a piece after its last complete event, if no number can be in the
// complete events; else the whole piece. The piece must begin with an event. A search through all
// events at once is faster than a search through each.
func (e *events) skip(r *Reader, piece []byte) (rest []byte) {
	end := bytes.LastIndex(piece, eventEnd) + len(eventEnd)
	if end < len(eventEnd) || r.fields.mayBeIn(piece[:end]) {
		return piece
	}
	return piece[end:]
}

// longEvent is the size from which WholeEvents takes no event for complete, in bytes.
const longEvent = 1 << 10

// WholeEvents returns a piece without the event that its end cuts. It returns the whole piece if no
// event ends in the last KiB. A Reader reads an event faster if its end is there.
func WholeEvents(piece []byte) []byte {
	last := max(0, len(piece)-longEvent)
	if end := bytes.LastIndex(piece[last:], eventEnd); end >= 0 {
		return piece[:last+end+len(eventEnd)]
	}
	return piece
}

// endsEvent reports whether an event ends with the line that rest follows.
func endsEvent(rest []byte) bool {
	return len(rest) > 1 && (rest[1] == rest[0] || len(rest) > 2 && rest[0] == '\r' && rest[1] == '\n' && (rest[2] == '\r' || rest[2] == '\n'))
}

// fromLineFeed returns how many bytes of a piece begin with its first line feed, 0 if it has none. A
// search at each line would take the square of the time if lines end with carriage returns.
func fromLineFeed(piece []byte) int {
	if i := bytes.IndexByte(piece, '\n'); i >= 0 {
		return len(piece) - i
	}
	return 0
}

var newline = []byte("\n")

// endLine ends a line, and reports whether that has ended an event.
func (e *events) endLine(r *Reader) (ended bool) {
	switch {
	case !e.used:
		if ended = true; e.object {
			r.untold++
		}
		if r.told {
			r.untold = 0
		}
		r.told, e.object = false, false
		r.begin() // an empty line ends an event
	case e.at == inData || e.at == beforeData:
		r.read(newline)
	}
	e.at, e.matched, e.used = inName, 0, false
	return ended
}

// splitter finds the texts of a body of format JSON: the elements of an array, or else the whole
// body.
type splitter struct {
	_ [0]func() // keeps Go from generating an equality function

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
