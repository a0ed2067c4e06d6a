package window

// Calendar says where the windows of a calendar begin and end: they are not all of one length. Several
// goroutines may use it.
type Calendar interface {
	// At is the window that a time is in.
	At(nanos int64) Span
	// Of returns the window of a number.
	Of(number uint64) Span
	// Day is the day that a time is in by the calendar's zone, counted from 1 January 1970.
	Day(nanos int64) int64
}

// Span is a window of a calendar, from Start until before End.
//
// Neither shared data nor stores know calendars. They keep the hits of the window as those of a
// FixedWindow of another width, which ends a little later and begins earlier, so that nothing of
// the window is outside: Number·Width ≤ Start, and End ≤ (Number+1)·Width. Consecutive windows have
// consecutive numbers, and no two have the same width and number.
type Span struct {
	Start, End int64
	Number     uint64
	// Width is in whole milliseconds, from MinWidth to MaxWidth.
	Width int64
}

// WidthOf is how wide the window of a number is, as shared data and stores know it. For other kinds
// than those of a calendar it is always the same.
func (l *Limit) WidthOf(number uint64) int64 {
	if l.Calendar == nil {
		return l.Width
	}
	return l.Calendar.Of(number).Width
}

// WidthAt is how wide the window that a time is in is there.
func (l *Limit) WidthAt(at int64) int64 {
	if l.Calendar == nil {
		return l.Width
	}
	return l.Calendar.At(at).Width
}

// Reads reports whether b begins with a state of the limit's shape, whatever its number.
func (l *Limit) Reads(b []byte) bool {
	var stored Limit
	at := stored.decodeHead(b)
	if at == wrong {
		return false
	}
	if l.Calendar == nil {
		return stored.Shape == l.Shape
	}
	var s State
	if stored.Kind != l.Kind || stored.Ordinal != l.Ordinal || stored.decodeBody(b, at, b[0]&syncedBit != 0, &s) == wrong {
		return false
	}
	return l.Calendar.At(s.Newest).Width == stored.Width
}
