package calendar

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"weir/internal/must"
	"weir/internal/nightly"
	"weir/window"
)

// reference is when the window of a date begins by the time package.
func reference(l *time.Location, year int, month time.Month, day, hour int) time.Time {
	t := time.Date(year, month, day, hour, 0, 0, 0, l)
	if t.Hour() != hour { // the clock skips it
		_, offset := t.Add(-36 * time.Hour).Zone()
		return time.Date(year, month, day, hour, 0, 0, 0, time.FixedZone("", offset)).In(l)
	}
	for _, back := range []time.Duration{time.Hour, 30 * time.Minute, 2 * time.Hour} {
		if first := t.Add(-back); first.Hour() == hour && first.Minute() == 0 && first.Day() == t.Day() {
			return first // the clock shows it twice
		}
	}
	return t
}

// Windows are those of the time package, over ten years, in zones that change their clocks in
// different ways, from every anchor.
func TestCalendar(t *testing.T) {
	t.Parallel()
	names := []string{
		"UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "America/Santiago", "Pacific/Apia", "America/Nuuk",
		"Africa/Cairo", "Asia/Gaza",
	}
	if nightly.On() { // Go's own table, which there is by day, has other rules of these
		names = append(names, "Africa/Casablanca", "America/Vancouver", "America/Edmonton", "America/Winnipeg", "America/Havana")
	}
	for _, name := range names {
		l := location(t, name)
		for period := range Period(len(Periods)) {
			for _, day := range map[Period][]int{Day: {0}, Week: {1, 3, 7}, Month: {1, 15, 28, 29, 30, 31}}[period] {
				for hour := range 24 {
					if hour > 4 && hour%6 != 0 && hour != 23 {
						continue
					}
					c, fault := New(period, name, day, hour)
					must.EqualOrEnd(t, fault, Sound, "%s: fault", name)
					follow(t, c, l, fmt.Sprint(name, " ", Periods[period], " ", day, " ", hour))
				}
			}
		}
	}
}

func follow(t *testing.T, c *Calendar, l *time.Location, what string) {
	t.Helper()
	var starts []time.Time
	for i := 0; ; i++ {
		var start time.Time
		switch hour := int(c.hour); c.period {
		case Month:
			month, day := time.Month(1+i), int(c.day)
			if last := time.Date(2026, month+1, 0, 0, 0, 0, 0, time.UTC).Day(); day > last {
				day = last
			}
			start = reference(l, 2026, month, day, hour)
		case Week: // 5 January 2026 was a Monday
			start = reference(l, 2026, 1, 4+7*i+int(c.day), hour)
		default:
			start = reference(l, 2026, 1, 1+i, hour)
		}
		if starts = append(starts, start); start.Year() > 2036 {
			break
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	before := window.Span{}
	for i, start := range starts[:len(starts)-1] {
		begin, end := start.UnixNano(), starts[i+1].UnixNano()
		for _, at := range []int64{begin, end - 1, begin + random.Int64N(end-begin)} {
			if got := c.At(at); got.Start != begin || got.End != end {
				t.Fatalf("%s: %v is in the window from %v until %v, want %v until %v", what, time.Unix(0, at).In(l),
					time.Unix(0, got.Start).In(l), time.Unix(0, got.End).In(l), start, starts[i+1])
			}
		}
		got := c.At(begin)
		must.EqualOrEnd(t, c.Of(got.Number), got, "%s: window %d is %+v, and", what, got.Number, got)
		if before.End != 0 && got.Number != before.Number+1 {
			t.Fatalf("%s: window %d follows %d", what, got.Number, before.Number)
		}
		before = got
		if n := int64(got.Number); n*got.Width > got.Start-int64(time.Minute) || (n+1)*got.Width < got.End+overhang || got.Width%window.MinWidth != 0 || got.Width > window.MaxWidth {
			t.Fatalf("%s: window %+v is not within its width", what, got)
		}
	}
}

// Any time has a window, from the epoch until the last time that clocks may show, and stores know
// it.
func TestExtremes(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(3, 4))
	for period := range Period(len(Periods)) {
		c, fault := New(period, "Africa/Casablanca", 0, 5)
		must.EqualOrEnd(t, fault, Sound, "fault")
		for i := range 3000 {
			at := random.Int64N(1<<62*2 - 1<<56)
			if i < 100 {
				at = int64(i) * int64(12*time.Hour)
			}
			s := c.At(at)
			if at >= int64(48*time.Hour) && (s.Start > at || at >= s.End) || s.Width < window.MinWidth || s.Width > window.MaxWidth {
				t.Fatalf("%s: %d is in %+v", Periods[period], at, s)
			}
		}
	}
}

func TestNew(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		period    Period
		zone      string
		day, hour int
		want      Fault
	}{
		{Day, "Europe/Berlin", 0, 23, Sound},
		{Day, "Europe/Berlin", 1, 0, WrongDay},
		{Day, "Europe/Berlin", 0, 24, WrongHour},
		{Day, "Europe/Berlin", 0, -1, WrongHour},
		{Week, "UTC", 7, 0, Sound},
		{Week, "UTC", 8, 0, WrongDay},
		{Month, "UTC", 31, 0, Sound},
		{Month, "UTC", 32, 0, WrongDay},
		{Month, "UTC", -1, 0, WrongDay},
		{Month, "Etc/UTC", 0, 0, Sound},
		{Month, "", 0, 0, UnknownZone},
		{Month, "Europe", 0, 0, UnknownZone},
		{Month, "Europe/Berlin Europe/Busingen", 0, 0, UnknownZone},
		{Month, "CET-1CEST,M3.5.0,M10.5.0/3", 0, 0, UnknownZone},
		{Month, "1893408:4", 0, 0, UnknownZone},
		{Month, "europe/berlin", 0, 0, UnknownZone},
	} {
		_, got := New(test.period, test.zone, test.day, test.hour)
		must.Equal(t, got, test.want, "%+v", test)
	}
}

// A window that goes on is found without allocation.
func TestNothingIsAllocated(t *testing.T) {
	c, fault := New(Month, "Europe/Berlin", 0, 0)
	must.EqualOrEnd(t, fault, Sound, "fault")
	at := time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC).UnixNano()
	number := c.At(at).Number
	must.Equal(t, testing.AllocsPerRun(100, func() {
		c.At(at)
		c.Of(number)
	}), 0, "allocations")
}
