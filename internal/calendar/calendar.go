// Package calendar computes where days, weeks and months begin and end in a time zone.
//
// The plugin, which uses it, has no file system and cannot carry Go's own tables of zones: they
// take 400 kB. So the package has only the rules in force from 2024 on. Dates are of the proleptic
// Gregorian calendar. Only New allocates, and At when a new window begins.
package calendar

import (
	"sync/atomic"

	"weir/window"
)

// Period is a unit of the calendar.
type Period uint8

const (
	// Day begins at an hour.
	Day Period = iota
	// Week begins on a day of the week at an hour.
	Week
	// Month begins on a day of the month at an hour. In shorter months it begins on the last day.
	Month
)

// Periods are the names of the periods, in their order.
var Periods = []string{"day", "week", "month"}

// Lengths are the lengths of the periods in nanoseconds, if no clock is changed and each month has
// 31 days.
var Lengths = [...]int64{Day: day, Week: 7 * day, Month: 31 * day}

const (
	second = int64(1e9)
	hour   = 3600 * second
	day    = 24 * hour
)

// Calendar divides time into windows of one period. Several goroutines may use it.
type Calendar struct {
	_ [0]func() // keeps Go from generating an equality function

	period    Period
	day, hour int64
	zone      *zone
	name      string // of the zone
	// last is the window of the last call of At. Nearly always the next call asks for the same.
	last atomic.Pointer[window.Span]
}

// Fault is the reason why New refuses a calendar. Callers have their own words for it.
type Fault uint8

const (
	// Sound means that the calendar has no fault.
	Sound Fault = iota
	// UnknownZone is a zone that the table doesn't have.
	UnknownZone
	// WrongHour is an hour that is not from 0 to 23.
	WrongHour
	// WrongDay is a day that the period doesn't have.
	WrongDay
)

// New returns a calendar whose windows begin at an hour of the zone's clock. day is 1 (Monday) to 7
// for a Week, and 1 to 31 for a Month; 0 means 1, and a Day must have 0. If the clock skips the
// hour, the window begins when the clock would have shown the hour without the change. If the clock
// shows it twice, the window begins at the first.
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
	return &Calendar{period: period, day: int64(max(day, 1)), hour: int64(hour), zone: z, name: zone}, Sound
}

// Describe returns the calendar's description: see Described.
func (c *Calendar) Describe() string {
	return string([]byte{byte(c.period), byte(c.day), byte(c.hour)}) + c.name
}

// Described returns the calendar with a description, or nil if there is none.
func Described(text string) *Calendar {
	if len(text) < 3 || int(text[0]) >= len(Periods) {
		return nil
	}
	day := int(text[1])
	if Period(text[0]) == Day {
		day = 0
	}
	c, fault := New(Period(text[0]), text[3:], day, int(text[2]))
	if fault != Sound {
		return nil
	}
	return c
}

// Period returns the calendar's period.
func (c *Calendar) Period() Period { return c.period }

// Equal reports whether both calendars have the same windows.
func (c *Calendar) Equal(other *Calendar) bool {
	return c.period == other.period && c.day == other.day && c.hour == other.hour && c.zone.equal(other.zone)
}

// At returns the window that contains a time, in nanoseconds since the Unix epoch. A time before
// the epoch counts as the epoch.
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

// Of returns the window of a number that At has returned.
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

// Day returns the day that contains a time by the zone's clock, counted from 1 January 1970, for
// any period.
func (c *Calendar) Day(nanos int64) int64 {
	at := floor(nanos, second)
	return floor(at+c.zone.offset(at), 86400)
}

// Minute returns the minute of the week that the zone's clock shows at a time, from Monday on, for any period.
func (c *Calendar) Minute(nanos int64) int {
	const monday, week = 4 * 86400, 7 * 86400 // 5 January 1970 was a Monday
	at := floor(nanos, second)
	at += c.zone.offset(at) - monday
	return int(at-week*floor(at, week)) / 60
}

// guess returns an index near that of the window that contains a time.
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

// begins returns the start of a window, in nanoseconds since the Unix epoch. Window 0 begins in the
// first month, or week, or day, of 1970.
func (c *Calendar) begins(index int64) int64 {
	var days int64
	switch c.period {
	case Month:
		year, month := 1970+floor(index, 12), index-12*floor(index, 12)+1
		first := DaysTo(year, month)
		next := DaysTo(year+month/12, month%12+1)
		days = min(first+c.day, next) - 1
	case Week:
		days = 7*index - 4 + c.day // 1 January 1970 was a Thursday
	default:
		days = index
	}
	return c.zone.instant(86400*days+3600*c.hour) * second
}

// These turn a window of the calendar into a window that stores know, as [window.Span] says.
const (
	// overhang is the time after a window's end in which late hits are still counted in it.
	overhang = hour / 2
	// Before a window's end, fewer windows of its width fit than windows of the calendar, by these
	// numbers. So the width is longer than the calendar's window, until 2100 by at least a
	// fiftieth.
	fewerDays, fewerWeeks, fewerMonths = 5000, 400, 100
)

func (c *Calendar) behind() int64 {
	return [...]int64{Day: fewerDays, Week: fewerWeeks, Month: fewerMonths}[c.period]
}

// span returns a window. Its width has a multiple just after the window's end, and the multiple
// before that is ahead of the window's start. Consecutive windows have consecutive numbers.
func (c *Calendar) span(index int64) window.Span {
	s := window.Span{Start: c.begins(index), End: c.begins(index + 1)}
	last := s.End + overhang
	multiple := max(index+1-c.behind(), (last+window.MaxWidth-1)/window.MaxWidth, 1)
	s.Width = (last/multiple + window.MinWidth) / window.MinWidth * window.MinWidth
	s.Number = uint64(multiple - 1)
	return s
}

// Date returns the date of the day that is days after 1 January 1970.
//
// Date and [DaysTo] are Howard Hinnant's civil_from_days and days_from_civil
// (https://howardhinnant.github.io/date_algorithms.html). Years begin in March, so that a leap day is
// the last day of its year, and 400 years have 146,097 days.
func Date(days int64) (year, month, dayOfMonth int64) {
	days += 719468
	era := floor(days, 146097)
	ofEra := days - era*146097
	yearOfEra := (ofEra - ofEra/1460 + ofEra/36524 - ofEra/146096) / 365
	ofYear := ofEra - (365*yearOfEra + yearOfEra/4 - yearOfEra/100)
	fromMarch := (5*ofYear + 2) / 153
	dayOfMonth = ofYear - (153*fromMarch+2)/5 + 1
	month = fromMarch + 3
	year = yearOfEra + 400*era
	if month > 12 {
		month -= 12
		year++
	}
	return year, month, dayOfMonth
}

// DaysTo returns how many days after 1 January 1970 a month begins.
func DaysTo(year, month int64) int64 {
	if month <= 2 {
		year--
		month += 12
	}
	era := floor(year, 400)
	yearOfEra := year - 400*era
	ofYear := (153*(month-3) + 2) / 5
	return era*146097 + 365*yearOfEra + yearOfEra/4 - yearOfEra/100 + ofYear - 719468
}

// floor returns a/b, rounded down.
func floor(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}
