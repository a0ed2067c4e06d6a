package ratelimit

import (
	"fmt"
	"time"

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
	case window.WrongBurst:
		return fmt.Errorf("burst: want 1 to %d, got %d", uint64(window.MaxLimit), l.Burst)
	}
	return fmt.Errorf("kind: want one of package window's, got %d", l.Kind)
}
