package ratelimit

import (
	"errors"
	"fmt"
	"time"

	"weir/internal/calendar"
	"weir/internal/wire"
	"weir/window"
)

// Limit is the number of hits that may pass in a window, and the algorithm that counts them.
// [SlidingWindow] and similar functions make one. They don't check their arguments: [NewLimiter]
// and [NewNamespace] return an error for an invalid limit, such as the zero value.
type Limit struct {
	limit window.Limit
	fault error // why window.Limit can't express the limit
}

// Quota is the most hits that pass at once: the limit, or the burst of a token bucket. Clients read
// it as q in RateLimit-Policy, and in X-RateLimit-Limit.
func (l Limit) Quota() uint64 { return l.limit.Quota() }

// Window is the time that the quota is for: the window, or the time that fills an empty token
// bucket. Clients read it as w in RateLimit-Policy. It is 0 for calendar windows, whose lengths
// differ, for a limit of 0, and for a bucket that does not fill in a whole number of nanoseconds.
func (l Limit) Window() time.Duration {
	span, whole := l.limit.Span()
	if !whole {
		return 0
	}
	return time.Duration(span)
}

// algorithm makes a limit whose algorithm has no options.
func algorithm(kind window.Kind, limit uint64, per time.Duration) Limit {
	return Limit{limit: window.Limit{Shape: window.Shape{Kind: kind, Width: int64(per)}, Max: limit}}
}

// SlidingWindow allows limit hits in each window. It adds the hits of the previous fixed window,
// weighted by the share of it that the sliding window still covers: with 40 previous hits, 15
// seconds into a minute, 30 of them count. Configurations call it sliding_window.
func SlidingWindow(limit uint64, per time.Duration) Limit {
	return algorithm(window.SlidingWindow, limit, per)
}

// SlidingBuckets is a sliding window that counts in sub-buckets of the given precision, and forgets
// each as a whole. The precision must divide the window into 2 to 64 of them. Configurations call
// it sliding_window with a precision.
func SlidingBuckets(limit uint64, per, precision time.Duration) Limit {
	l := algorithm(window.SlidingBuckets, limit, per)
	l.limit.Precision = int64(precision)
	return l
}

// SlidingLog limits the hits of exactly the last window, and remembers the time of each hit.
// Configurations call it sliding_log.
func SlidingLog(limit uint64, per time.Duration) Limit {
	return SlidingBuckets(limit, per, time.Duration(window.LogPrecision))
}

// FixedWindow limits the hits in windows that start at multiples of their length since the Unix
// epoch. Configurations call it fixed_window.
func FixedWindow(limit uint64, per time.Duration) Limit {
	return algorithm(window.FixedWindow, limit, per)
}

// FirstHitWindow limits the hits in windows that start with the first hit after the last window
// ended. Configurations call it fixed_window with "start": "first_hit".
func FirstHitWindow(limit uint64, per time.Duration) Limit {
	return algorithm(window.FirstHitWindow, limit, per)
}

// TokenBucket is a bucket of burst tokens, at least 1, which gets limit tokens back per window, one
// at a time. Configurations call it token_bucket.
func TokenBucket(limit uint64, per time.Duration, burst uint64) Limit {
	l := algorithm(window.TokenBucket, limit, per)
	l.limit.Burst = burst
	return l
}

// InFlight limits the number of requests at the same time. [Acquire] counts them. A rule with this
// limit can have no other. Configurations call it in_flight.
func InFlight(limit uint64) Limit { return Limit{limit: window.NewInFlight(limit)} }

// Period is the length of a calendar window.
type Period uint8

const (
	// Day is a day, of 23 to 25 hours.
	Day Period = Period(calendar.Day)
	// Week is seven days.
	Week Period = Period(calendar.Week)
	// Month is a month of the calendar.
	Month Period = Period(calendar.Month)
)

// Anchor is the moment when calendar windows begin. Day is a day of the month, 1 to 31, or of the
// week, 1 (Monday) to 7; 0 means 1, and windows of a Day must have 0. Hour is 0 to 23 by the clock
// of the time zone. A month without such a day begins on its last day.
type Anchor struct{ Day, Hour int }

// CalendarWindow limits the hits in calendar windows, by the clock of a time zone with an IANA name
// such as "Europe/Berlin". When the clock changes, a day has 23 or 25 hours. Programs and proxies
// share counters only if period, zone and anchor are the same. The time zones are compiled in, with
// their rules from 2024 on, and the machine's own are not read. Configurations call it fixed_window
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
		return Limit{fault: fmt.Errorf("anchor: want day 0 for windows of a Day, 1 to 7 of a Week, 1 to 31 of a Month, got %d", anchor.Day)}
	}
	return Limit{fault: fmt.Errorf("zone: want the IANA name of a time zone such as Europe/Berlin, got %.80q", zone)}
}

// compile checks the limits of a rule, and returns them in the engine's form. An error begins with
// the limit's index.
func compile(limits []Limit) ([]window.Limit, error) {
	if len(limits) == 0 || len(limits) > wire.MaxLimits {
		return nil, fmt.Errorf("limits: want 1 to %d, got %d", wire.MaxLimits, len(limits))
	}
	compiled := make([]window.Limit, len(limits))
	for i := range limits {
		compiled[i] = limits[i].limit
		if err := limits[i].check(); err != nil {
			return nil, fmt.Errorf("limits[%d].%w", i, err)
		}
		if compiled[i].Kind.Held() && len(limits) > 1 {
			return nil, fmt.Errorf("limits[%d]: want InFlight to be the only limit of its rule", i)
		}
	}
	window.SetOrdinals(compiled)
	return compiled, nil
}

// check returns an error that says why a limit is invalid.
func (l Limit) check() error {
	of := &l.limit
	switch {
	case l.fault != nil:
		return l.fault
	case of.Kind == 0:
		return errors.New("limit: want a limit made by SlidingWindow or a similar function, got the zero value")
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
	return fmt.Errorf("limit: want no option that algorithm %d lacks", of.Kind) // no constructor makes such a limit
}
