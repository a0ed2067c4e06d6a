package ratelimit

import (
	"errors"
	"fmt"
	"time"

	"weir/internal/calendar"
	"weir/window"
)

// SlidingWindow is a limit of so many hits per window. The previous window's hits count too, by the
// share of it that a window ending now still covers.
func SlidingWindow(limit uint64, width time.Duration) window.Limit {
	return window.Limit{Shape: window.Shape{Kind: window.SlidingWindow, Width: int64(width)}, Max: limit}
}

// SlidingBuckets is a sliding window of whole sub-buckets of a precision, which must divide the
// window into 2 to 64 of them.
func SlidingBuckets(limit uint64, width, precision time.Duration) window.Limit {
	return window.Limit{
		Shape: window.Shape{Kind: window.SlidingBuckets, Width: int64(width), Precision: int64(precision)},
		Max:   limit,
	}
}

// SlidingLog is a limit on the hits of exactly the last window, each with its own time.
func SlidingLog(limit uint64, width time.Duration) window.Limit {
	return SlidingBuckets(limit, width, time.Duration(window.LogPrecision))
}

// FixedWindow is a limit in windows that start at multiples of their width since the Unix epoch.
func FixedWindow(limit uint64, width time.Duration) window.Limit {
	return window.Limit{Shape: window.Shape{Kind: window.FixedWindow, Width: int64(width)}, Max: limit}
}

// Period is what a calendar divides time into.
type Period = calendar.Period

// The periods that there are.
const (
	Day   = calendar.Day
	Week  = calendar.Week
	Month = calendar.Month
)

// Anchor is when windows of a calendar begin: on a Day of the month, from 1 to 31, or of the week,
// from 1, Monday, to 7, at an Hour of the clock. A Day of 0 stands for 1; windows of a day have no
// other. A month that has no such day begins with its last one.
type Anchor struct{ Day, Hour int }

// CalendarWindow is a limit in windows of a calendar, by the clock of a time zone, which has an IANA
// name such as "Europe/Berlin". Where the clock is changed, a day has 23 or 25 hours. Programs and
// proxies share counters if they agree on all of it. Zones are those of the Go that Weir was built
// with, whatever the machine has, by their rules from 2024 on.
func CalendarWindow(limit uint64, period Period, zone string, anchor Anchor) (window.Limit, error) {
	if int(period) >= len(calendar.Periods) {
		return window.Limit{}, fmt.Errorf("period: want Day, Week or Month, got %d", period)
	}
	c, fault := calendar.New(period, zone, anchor.Day, anchor.Hour)
	switch fault {
	case calendar.Sound:
		l := FixedWindow(limit, time.Duration(calendar.Lengths[period]))
		l.Calendar = c
		return l, nil
	case calendar.WrongHour:
		return window.Limit{}, fmt.Errorf("anchor: want an hour from 0 to 23, got %d", anchor.Hour)
	case calendar.WrongDay:
		return window.Limit{}, fmt.Errorf("anchor: want no day for a Day, 1 to 7 for a Week, 1 to 31 for a Month, got %d", anchor.Day)
	}
	return window.Limit{}, fmt.Errorf("zone: want the IANA name of a time zone such as Europe/Berlin, got %.80q", zone)
}

// FirstHitWindow is a limit in windows that start with the first hit after the last one ended.
func FirstHitWindow(limit uint64, width time.Duration) window.Limit {
	return window.Limit{Shape: window.Shape{Kind: window.FirstHitWindow, Width: int64(width)}, Max: limit}
}

// TokenBucket is a bucket of burst tokens, at least 1, that gets limit tokens back in each window,
// one at a time.
func TokenBucket(limit uint64, width time.Duration, burst uint64) window.Limit {
	return window.Limit{Shape: window.Shape{Kind: window.TokenBucket, Width: int64(width)}, Max: limit, Burst: burst}
}

// maxLimits is the most limits of a rule.
const maxLimits = 8

// check tells what is wrong with a limit of a namespace.
func check(l *window.Limit) error {
	width, precision := time.Duration(l.Width), time.Duration(l.Precision)
	switch l.Fault() {
	case window.Sound:
		return nil
	case window.WrongWidth:
		return fmt.Errorf("window: want 1ms to 366 days in whole milliseconds, got %v", width)
	case window.NeedlessPrecision:
		return fmt.Errorf("precision: want none for this algorithm, got %v", precision)
	case window.WrongPrecision:
		return fmt.Errorf("precision: want one that divides %v into %d to %d equal parts, got %v",
			width, window.MinSubBuckets, window.MaxSubBuckets, precision)
	case window.WrongMax:
		return fmt.Errorf("limit: want 0 to %d, got %d", uint64(window.MaxLimit), l.Max)
	case window.LargeLog:
		return fmt.Errorf("limit: want at most %d for a log of %v, got %d", l.LargestLog(), width, l.Max)
	case window.NeedlessBurst:
		return fmt.Errorf("burst: want none for this algorithm, got %d", l.Burst)
	case window.NeedlessCalendar:
		return errors.New("calendar: want none for this algorithm")
	case window.WrongBurst:
		return fmt.Errorf("burst: want 1 to %d, got %d", uint64(window.MaxLimit), l.Burst)
	}
	return fmt.Errorf("kind: want one of package window's, got %d", l.Kind)
}
