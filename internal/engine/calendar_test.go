package engine_test

import (
	"fmt"
	"testing"
	"time"

	"weir/internal/calendar"
	"weir/internal/engine"
	"weir/internal/must"
	"weir/window"
)

// Nodes keep a limit of each window of a calendar, over ends of days of 23, 24 and 25 hours and of
// months, and each window begins with all of it.
func TestCalendarWindows(t *testing.T) {
	for _, test := range []struct {
		period calendar.Period
		from   string // an hour before a window's end
		ends   string
	}{
		{calendar.Day, "2026-03-29T21:00:00Z", "2026-03-29T22:00:00Z"}, // of 23 hours
		{calendar.Day, "2026-10-25T22:00:00Z", "2026-10-25T23:00:00Z"}, // of 25 hours
		{calendar.Week, "2026-11-22T22:00:00Z", "2026-11-22T23:00:00Z"},
		{calendar.Month, "2028-02-29T22:00:00Z", "2028-02-29T23:00:00Z"},
		{calendar.Month, "2026-12-31T22:00:00Z", "2026-12-31T23:00:00Z"},
	} {
		c, fault := calendar.New(test.period, "Europe/Berlin", 0, 0)
		must.EqualOrEnd(t, fault, calendar.Sound, "fault")
		for _, rate := range []int64{0, second, -1} {
			for _, hits := range []uint64{20, 500} {
				t.Run(fmt.Sprint(test.from, rate, hits), func(t *testing.T) {
					overCalendar(t, c, moment(t, test.from), moment(t, test.ends), rate, hits)
				})
			}
		}
	}
}

func moment(t *testing.T, text string) int64 {
	t.Helper()
	at := must.Get(time.Parse(time.RFC3339, text))(t)
	return at.UnixNano()
}

func overCalendar(t *testing.T, c window.Calendar, from, ends, rate int64, hits uint64) {
	t.Helper()
	l := limit(window.FixedWindow, hits, 31*day)
	l.Calendar = c
	processes := 3
	if rate < 0 {
		processes = 1
	}
	rule := all(l)
	if rate < 0 {
		rule = rule.here()
	}
	w := newWorld(t, processes, 2, max(rate, 0), engine.Options{}, rule)
	w.now = from
	passed := map[bool]uint64{}
	for w.now < ends+hour {
		for range 1 + w.random.IntN(4) {
			if w.any().send("") {
				passed[w.now >= ends]++
			}
		}
		if w.now == ends-1 {
			w.now++
			continue
		}
		next := time.Duration(w.random.Int64N(int64(20 * time.Second)))
		if w.now < ends && w.now+int64(next) > ends {
			next = time.Duration(ends - 1 - w.now)
		}
		w.advance(next)
	}
	for _, next := range []bool{false, true} {
		must.Between(t, passed[next], hits*9/10, hits, "in the next window: %v: passed of %d", next, hits)
	}
	if rate < 0 {
		return
	}
	w.quiet()
	must.Between(t, w.sum(), int64(passed[true]), int64(passed[false]+passed[true]), "hits that the backend has, with the window before perhaps")
}
