// Package calendar says where days, weeks and months begin and end, in a time zone.
//
// It is a part of the plugin, which has no file system and cannot carry Go's own tables of zones, as
// they are 400 kB. So it has the rules that are in force from 2024 on. Dates are of the proleptic
// Gregorian calendar. Nothing here allocates but New, and a new window.
package calendar

import (
	"sync/atomic"

	"weir/window"
)

// Period is a part of time that a calendar divides it into.
type Period uint8

const (
	// Day begins at an hour.
	Day Period = iota
	// Week begins on a day of the week at an hour.
	Week
	// Month begins on a day of the month at an hour; on the last day of months that are shorter.
	Month
)

// Periods are the names of periods, in their order.
var Periods = []string{"day", "week", "month"}

// Lengths are how long periods are, if no clock is changed and each month has 31 days.
var Lengths = [...]int64{Day: day, Week: 7 * day, Month: 31 * day}

const (
	second = int64(1e9)
	hour   = 3600 * second
	day    = 24 * hour
)

// Calendar is the windows of a period. Several goroutines may use it.
type Calendar struct {
	period    Period
	day, hour int64
	zone      *zone
	// last is the window that was asked for last. Nearly always it is asked for again next.
	last atomic.Pointer[window.Span]
}

// Fault says why a calendar is wrong. Each reader of a calendar's parts has its own words for it.
type Fault uint8

const (
	// Sound is of a calendar that has no fault.
	Sound Fault = iota
	// UnknownZone is none of the table.
	UnknownZone
	// WrongHour is not from 0 to 23.
	WrongHour
	// WrongDay is a day that the period doesn't have.
	WrongDay
)

// New makes a calendar. Windows begin at an hour of the zone's clock: of a Week on a day from 1, Monday,
// to 7, and of a Month on a day from 1 to 31. A day of 0 stands for 1; for a Day it is the only one. If
// the clock skips the hour, a window begins when it would have come by the clock as it was before; if
// there are two such hours, with the first.
func New(period Period, zone string, day, hour int) (*Calendar, Fault) {
	z := zoneOf(zone)
	switch most := [...]int{Day: 0, Week: 7, Month: 31}[period]; {
	case z == nil:
		return nil, UnknownZone
	case hour < 0 || hour > 23:
		return nil, WrongHour
	case day < 0 || day > most:
		return nil, WrongDay
	}
	return &Calendar{period: period, day: int64(max(day, 1)), hour: int64(hour), zone: z}, Sound
}

// Equal reports whether both calendars have the same windows.
func (c *Calendar) Equal(other *Calendar) bool {
	return c.period == other.period && c.day == other.day && c.hour == other.hour && c.zone.equal(other.zone)
}

// At is the window that a time is in, in nanoseconds since the Unix epoch. A time before the epoch
// counts as that.
func (c *Calendar) At(nanos int64) window.Span {
	if last := c.last.Load(); last != nil && last.Start <= nanos && nanos < last.End {
		return *last
	}
	nanos = max(nanos, 0)
	index := c.guess(nanos)
	for c.begins(index) > nanos {
		index--
	}
	for c.begins(index+1) <= nanos {
		index++
	}
	s := c.span(index)
	c.last.Store(&s)
	return s
}

// Of returns the window of a number that At has given.
func (c *Calendar) Of(number uint64) window.Span {
	if last := c.last.Load(); last != nil && last.Number == number {
		return *last
	}
	index := int64(min(number, 1<<20)) + c.behind()
	for c.span(index).Number > number && index > 0 {
		index--
	}
	return c.span(index)
}

// Day is the day that a time is in by the zone's clock, counted from 1 January 1970, whatever the period.
func (c *Calendar) Day(nanos int64) int64 {
	at := floor(nanos, second)
	return floor(at+c.zone.offset(at), 86400)
}

// guess is near the index of the window that a time is in.
func (c *Calendar) guess(nanos int64) int64 {
	switch days := nanos / day; c.period {
	case Month:
		year, month, _ := Date(days)
		return 12*(year-1970) + month - 1
	case Week:
		return days / 7
	default:
		return days
	}
}

// begins is the start of a window, in nanoseconds since the Unix epoch. Window 0 begins in the
// first month, or week, or day, of 1970.
func (c *Calendar) begins(index int64) int64 {
	var days int64
	switch c.period {
	case Month:
		year, month := 1970+floor(index, 12), index-12*floor(index, 12)+1
		first := daysTo(year, month)
		next := daysTo(year+month/12, month%12+1)
		days = min(first+c.day, next) - 1
	case Week:
		days = 7*index - 4 + c.day // 1 January 1970 was a Thursday
	default:
		days = index
	}
	return c.zone.instant(86400*days+3600*c.hour) * second
}

// These make a window that stores know out of a calendar's, as [window.Span] says.
const (
	// overhang is for how long after a window's end late hits are still counted in it.
	overhang = hour / 2
	// A window's width is such that fewer windows of that width than of the calendar fit before its
	// end: fewer by these. So the width is longer than the calendar's window, by a fiftieth at
	// least until 2100.
	fewerDays, fewerWeeks, fewerMonths = 5000, 400, 100
)

func (c *Calendar) behind() int64 {
	return [...]int64{Day: fewerDays, Week: fewerWeeks, Month: fewerMonths}[c.period]
}

// span is a window. Its width is such that a multiple of it is just behind its end, and the one before
// that ahead of its start; and consecutive windows have consecutive numbers.
func (c *Calendar) span(index int64) window.Span {
	s := window.Span{Start: c.begins(index), End: c.begins(index + 1)}
	last := s.End + overhang
	multiple := max(index+1-c.behind(), (last+window.MaxWidth-1)/window.MaxWidth, 1)
	s.Width = (last/multiple + window.MinWidth) / window.MinWidth * window.MinWidth
	s.Number = uint64(multiple - 1)
	return s
}
