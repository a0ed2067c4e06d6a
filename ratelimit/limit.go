package ratelimit

import (
	"errors"
	"fmt"
	"time"

	"weir/internal/calendar"
	"weir/window"
)

// Limit is how many hits may pass in a window, and the algorithm that decides it. [SlidingWindow]
// and its like make one. They check nothing: [NewLimiter] and [NewNamespace] refuse a limit that
// can't be, such as the zero value, and say why.
type Limit struct {
	limit window.Limit
	fault error // of a limit that window.Limit can't be
}

// Quota is the most hits that pass at once: the limit, or the burst of a token bucket. Header
// fields have it as q, and X-RateLimit-Limit.
func (l Limit) Quota() uint64 { return l.limit.Quota() }

// Window is the time that the quota is for: the window, or the time that fills a token bucket.
// Header fields have it as w. It is 0 where windows differ, as those of a calendar do, for a limit
// of 0, and for a bucket that no whole number of nanoseconds fills.
func (l Limit) Window() time.Duration {
	span, whole := l.limit.Span()
	if !whole {
		return 0
	}
	return time.Duration(span)
}

// algorithm is a limit of a kind that needs no more.
func algorithm(kind window.Kind, limit uint64, per time.Duration) Limit {
	return Limit{limit: window.Limit{Shape: window.Shape{Kind: kind, Width: int64(per)}, Max: limit}}
}

// SlidingWindow is a limit of so many hits in each window. The previous window's hits count too, by
// the share of it that a window ending now still covers. Configurations call it sliding_window.
func SlidingWindow(limit uint64, per time.Duration) Limit {
	return algorithm(window.SlidingWindow, limit, per)
}

// SlidingBuckets is a sliding window of whole sub-buckets of a precision, which must divide the
// window into 2 to 64 of them. Configurations call it sliding_window with a precision.
func SlidingBuckets(limit uint64, per, precision time.Duration) Limit {
	l := algorithm(window.SlidingBuckets, limit, per)
	l.limit.Precision = int64(precision)
	return l
}

// SlidingLog is a limit on the hits of exactly the last window, each with its own time.
// Configurations call it sliding_log.
func SlidingLog(limit uint64, per time.Duration) Limit {
	return SlidingBuckets(limit, per, time.Duration(window.LogPrecision))
}

// FixedWindow is a limit in windows that start at multiples of their length since the Unix epoch.
// Configurations call it fixed_window.
func FixedWindow(limit uint64, per time.Duration) Limit {
	return algorithm(window.FixedWindow, limit, per)
}

// FirstHitWindow is a limit in windows that start with the first hit after the last one ended.
// Configurations call it fixed_window with the start first_hit.
func FirstHitWindow(limit uint64, per time.Duration) Limit {
	return algorithm(window.FirstHitWindow, limit, per)
}

// TokenBucket is a bucket of burst tokens, at least 1, that gets limit tokens back in each window,
// one at a time. Configurations call it token_bucket.
func TokenBucket(limit uint64, per time.Duration, burst uint64) Limit {
	l := algorithm(window.TokenBucket, limit, per)
	l.limit.Burst = burst
	return l
}

// InFlight is a limit of requests at the same time, which [Acquire] counts. A rule with it has no other
// limit. Configurations call it in_flight.
func InFlight(limit uint64) Limit { return Limit{limit: window.NewInFlight(limit)} }

// Period is a window of a calendar.
type Period uint8

const (
	// Day is a day, of 23 to 25 hours.
	Day Period = Period(calendar.Day)
	// Week is seven days.
	Week Period = Period(calendar.Week)
	// Month is a month of the calendar.
	Month Period = Period(calendar.Month)
)

// Anchor is when windows of a calendar begin: on a Day of the month, from 1 to 31, or of the week,
// from 1, Monday, to 7, at an Hour of the clock. A Day of 0 stands for 1; windows of a day have no
// other. A month that has no such day begins with its last day.
type Anchor struct{ Day, Hour int }

// CalendarWindow is a limit in windows of a calendar, by the clock of a time zone, which has an IANA
// name such as "Europe/Berlin". Where the clock is changed, a day has 23 or 25 hours. Programs and
// proxies share counters if they agree on all of it. Zones are those of the Go that Weir was built
// with, whatever the machine has, by their rules from 2024 on. Configurations call it fixed_window
// with the window day, week or month.
func CalendarWindow(limit uint64, per Period, zone string, anchor Anchor) Limit {
	if int(per) >= len(calendar.Periods) {
		return Limit{fault: fmt.Errorf("period: want Day, Week or Month, got %d", per)}
	}
	period := calendar.Period(per)
	c, fault := calendar.New(period, zone, anchor.Day, anchor.Hour)
	switch fault {
	case calendar.Sound:
		l := FixedWindow(limit, time.Duration(calendar.Lengths[period]))
		l.limit.Calendar = c
		return l
	case calendar.WrongHour:
		return Limit{fault: fmt.Errorf("anchor: want an hour from 0 to 23, got %d", anchor.Hour)}
	case calendar.WrongDay:
		return Limit{fault: fmt.Errorf("anchor: want no day for a Day, 1 to 7 for a Week, 1 to 31 for a Month, got %d", anchor.Day)}
	}
	return Limit{fault: fmt.Errorf("zone: want the IANA name of a time zone such as Europe/Berlin, got %.80q", zone)}
}

// maxLimits is the most limits of a rule.
const maxLimits = 8

// compile checks the limits of a rule, and returns them as the engine has them. An error begins
// with the limit's index.
func compile(limits []Limit) ([]window.Limit, error) {
	if len(limits) == 0 || len(limits) > maxLimits {
		return nil, fmt.Errorf("limits: want 1 to %d, got %d", maxLimits, len(limits))
	}
	compiled := make([]window.Limit, len(limits))
	for i := range limits {
		compiled[i] = limits[i].limit
		if err := limits[i].check(); err != nil {
			return nil, fmt.Errorf("limits[%d].%w", i, err)
		}
		if compiled[i].Kind.Held() && len(limits) > 1 {
			return nil, fmt.Errorf("limits[%d]: want InFlight in a rule of its own", i)
		}
	}
	window.SetOrdinals(compiled)
	return compiled, nil
}

// check tells what is wrong with a limit.
func (l Limit) check() error {
	of := &l.limit
	switch {
	case l.fault != nil:
		return l.fault
	case of.Kind == 0:
		return errors.New("limit: want one made by SlidingWindow or its like")
	}
	width, precision := time.Duration(of.Width), time.Duration(of.Precision)
	switch of.Fault() {
	case window.Sound:
		return nil
	case window.WrongWidth:
		return fmt.Errorf("window: want 1ms to 366 days in whole milliseconds, got %v", width)
	case window.WrongPrecision:
		return fmt.Errorf("precision: want a duration that divides %v into %d to %d equal parts, got %v",
			width, window.MinSubBuckets, window.MaxSubBuckets, precision)
	case window.WrongMax:
		return fmt.Errorf("limit: want 0 to %d, got %d", uint64(window.MaxLimit), of.Max)
	case window.LargeLog:
		return fmt.Errorf("limit: want at most %d for a log of %v, got %d", of.LargestLog(), width, of.Max)
	case window.WrongBurst:
		return fmt.Errorf("burst: want 1 to %d, got %d", uint64(window.MaxLimit), of.Burst)
	}
	return fmt.Errorf("limit: want no option that algorithm %d lacks", of.Kind) // no constructor makes such
}
