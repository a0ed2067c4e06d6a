package usage

import "bytes"

// events reads a stream of server-sent events, as the HTML standard has them
// (https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream). Only
// fields of the name data matter. A text that an end of the stream cuts off counts as far as it came.
type events struct {
	at      position
	matched int // bytes of what the line has to begin with, or of the mark at the beginning
	// returned says that the last byte was a carriage return, after which a line feed means nothing.
	returned bool
	used     bool // the line has bytes
	// object says that the event's data is one, and named that there was a line of the field event,
	// the only field that begins with an e.
	object, named bool
	rest          int // bytes since the last event
}

type position uint8

const (
	atBeginning position = iota // where a byte order mark may be
	inName                      // of a field
	beforeData                  // where a space may be, and white space of JSON
	inData
	inOther // field, or comment
)

const (
	byteOrderMark = "\xef\xbb\xbf"
	dataField     = "data"
)

func (e *events) feed(r *Reader, piece []byte) {
	rest := e.rest + len(piece) // bytes from the last event to the end of the piece
	skipped := false
	for len(piece) > 0 {
		if !skipped && e.at == inName && rest == len(piece) && !e.returned && !r.counts {
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
				e.at, e.used = inOther, true // a name of other bytes
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
			end := lineEnd(piece)
			if e.at == inData && (r.started || !endsEvent(piece[end:]) || r.fields.mayBeIn(piece[:end])) {
				r.read(piece[:end])
			}
			piece = piece[end:]
		}
	}
	e.rest = rest
}

var eventEnd = []byte("\n\n")

// skip is what is left of a piece, which begins with an event, behind the whole events in which no number
// can be: one search through all of them is quicker than one through each.
func (e *events) skip(r *Reader, piece []byte) (rest []byte) {
	end := bytes.LastIndex(piece, eventEnd) + len(eventEnd)
	if end < len(eventEnd) || r.fields.mayBeIn(piece[:end]) {
		return piece
	}
	return piece[end:]
}

// endsEvent reports whether an event ends with the line before.
func endsEvent(rest []byte) bool {
	return len(rest) > 1 && (rest[1] == rest[0] || len(rest) > 2 && rest[0] == '\r' && rest[1] == '\n' && (rest[2] == '\r' || rest[2] == '\n'))
}

// lineEnd is where a line ends, or the length.
func lineEnd(piece []byte) int {
	end := bytes.IndexByte(piece, '\n')
	if end < 0 {
		end = len(piece)
	}
	if i := bytes.IndexByte(piece[:end], '\r'); i >= 0 {
		end = i
	}
	return end
}

var newline = []byte("\n")

// endLine ends a line, and reports whether an event has ended with it.
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
