package config

import (
	"strconv"

	"weir/window"
)

const (
	// maxHits is the largest number of hits, and of structured fields (RFC 9651, 3.3.1).
	maxHits   = 999_999_999_999_999
	minWindow = Millisecond
	maxWindow = 366 * day

	minSubBuckets = 2
	maxSubBuckets = 64
)

// Indexes of algorithms.
const (
	slidingWindow = iota
	fixedWindow
	slidingLog
	tokenBucket
)

var (
	algorithms  = []string{"sliding_window", "fixed_window", "sliding_log", "token_bucket"}
	starts      = []string{"clock", "first_hit"}
	limitFields = []field{
		{"limit", required}, {"window", required}, {"algorithm", optional}, {"start", optional}, {"precision", optional}, {"burst", optional},
	}
)

func readLimit(v *value) (limit window.Limit) {
	var (
		algorithm                     = slidingWindow
		firstHit                      bool
		width, subWidth               Duration
		hits, start, precision, burst *value
	)
	v.object(`{"limit": 100, "window": "1m"}`, limitFields, func(name string, v *value) {
		switch name {
		case "limit":
			hits = v
			limit.Max = uint64(v.integer(0, maxHits))
		case "window":
			width = v.duration(minWindow, maxWindow)
		case "algorithm":
			algorithm = v.choice(algorithms)
		case "start":
			start = v
			firstHit = v.choice(starts) == 1
		case "precision":
			precision = v
			subWidth = v.duration(minWindow, maxWindow)
		case "burst":
			burst = v
			limit.Burst = uint64(v.integer(1, maxHits))
		}
	})
	belongs(start, algorithm, fixedWindow)
	belongs(burst, algorithm, tokenBucket)
	if belongs(precision, algorithm, slidingWindow) && width > 0 && subWidth > 0 {
		if n := width / subWidth; width%subWidth != 0 || n < minSubBuckets || n > maxSubBuckets {
			precision.wrong("a duration that divides the window into 2 to 64 equal parts")
			subWidth = 0
		}
	}
	limit.Width = int64(width)
	if limit.Kind = window.FixedWindow; algorithm != tokenBucket {
		limit.Burst = 0
	}
	switch {
	case algorithm == slidingWindow && subWidth > 0:
		limit.Kind, limit.Precision = window.SlidingBuckets, int64(subWidth)
	case algorithm == slidingWindow:
		limit.Kind = window.SlidingWindow
	case algorithm == slidingLog:
		limit.Kind, limit.Precision = window.SlidingBuckets, window.LogPrecision
		if most := limit.LargestLog(); width > 0 && limit.Max > most {
			hits.wrong("at most " + strconv.FormatUint(most, 10) + " for a sliding_log of this window, which would take more memory than " +
				"a counter may")
		}
	case algorithm == tokenBucket:
		limit.Kind = window.TokenBucket
		if !burst.given() {
			limit.Burst = max(limit.Max, 1)
		}
	case firstHit:
		limit.Kind = window.FirstHitWindow
	}
	return limit
}

// belongs says whether an option is given to the algorithm that has it, and refuses it with another.
func belongs(option *value, algorithm, owner int) bool {
	if option.given() && algorithm >= 0 && algorithm != owner {
		option.fail(`field of "` + algorithms[owner] + `" only, got algorithm "` + algorithms[algorithm] + `"`)
	}
	return option.given() && algorithm == owner
}
