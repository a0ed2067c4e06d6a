package window

// Calendar says where calendar windows begin and end; their lengths differ. Implementations are
// safe for concurrent use.
type Calendar interface {
	// At returns the window that contains a time.
	At(nanos int64) Span
	// Of returns the window with a number.
	Of(number uint64) Span
	// Day returns the day that contains a time, in the calendar's zone, counted from 1 January
	// 1970.
	Day(nanos int64) int64
}

// Span is a calendar window, from Start to before End, in nanoseconds.
//
// Shared data and stores don't know calendars. They keep the window's hits as a window of a
// FixedWindow with another width, which begins no later and ends no earlier, so that it covers the
// whole of it: Number·Width ≤ Start, and End ≤ (Number+1)·Width. Consecutive windows have
// consecutive numbers, and no two windows have the same width and number.
type Span struct {
	Start, End int64
	Number     uint64
	// Width is in whole milliseconds, from MinWidth to MaxWidth.
	Width int64
}

// calendarSlack is how much longer than usual a calendar window can be when clocks change, in
// nanoseconds.
const calendarSlack = int64(25 * 3600 * 1e9)

// WidthOf returns the width by which shared data and stores know the window with a number. Only
// calendar windows differ in width.
func (l *Limit) WidthOf(number uint64) int64 {
	if l.Calendar == nil {
		return l.Width
	}
	return l.Calendar.Of(number).Width
}

// WidthAt returns the width by which shared data and stores know the window that contains a time.
func (l *Limit) WidthAt(at int64) int64 {
	if l.Calendar == nil {
		return l.Width
	}
	return l.Calendar.At(at).Width
}

// Reads reports whether b begins with a state of the limit's shape, with any window's number.
func Reads(l *Limit, b []byte) bool {
	var stored Limit
	at := decodeHead(b, &stored)
	if at == wrong {
		return false
	}
	if l.Calendar == nil {
		return stored.Shape == l.Shape
	}
	var s State
	if stored.Kind != l.Kind || stored.Ordinal != l.Ordinal || decodeBody(b, at, &stored, &s, b[0]&syncedBit != 0) == wrong {
		return false
	}
	return l.Calendar.At(s.Newest).Width == stored.Width
}
