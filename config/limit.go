package config

import (
	"strconv"

	"weir/window"
)

const (
	// maxHits is the largest number of hits.
	maxHits   = window.MaxLimit
	minWindow = Duration(window.MinWidth)
	maxWindow = Duration(window.MaxWidth)
)

var (
	starts      = []string{"clock", "first_hit"}
	limitFields = []field{
		{"limit", required}, {"window", required}, {"algorithm", optional}, {"start", optional}, {"precision", optional}, {"burst", optional},
	}
)

func readLimit(v *value) (limit window.Limit) {
	var (
		algorithm                     int
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
			algorithm = v.choice(window.Algorithms)
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
	limit.Shape = shapeOf(max(algorithm, 0))
	limit.Width = int64(width)
	if kind := belongs(start, algorithm, window.WithStart); kind != 0 && firstHit {
		limit.Kind = kind
	}
	if kind := belongs(precision, algorithm, window.WithPrecision); kind != 0 && subWidth > 0 {
		limit.Kind, limit.Precision = kind, int64(subWidth)
	}
	if belongs(burst, algorithm, window.WithBurst) == 0 {
		if limit.Burst = 0; limit.Kind.Bursts() {
			limit.Burst = max(limit.Max, 1)
		}
	}
	switch limit.Fault() {
	case window.WrongPrecision:
		precision.wrong("a duration that divides the window into 2 to 64 equal parts")
	case window.LargeLog:
		hits.wrong("at most " + strconv.FormatUint(limit.LargestLog(), 10) + " for a sliding_log of this window, which would take more memory " +
			"than a counter may")
	}
	return limit
}

// belongs is the kind that an algorithm is with an option; 0 if it is not given. It refuses an option of another algorithm.
func belongs(given *value, algorithm int, option window.Option) window.Kind {
	if !given.given() || algorithm < 0 {
		return 0
	}
	if kind := shapeOf(algorithm).Kind.With(option); kind != 0 {
		return kind
	}
	owner := 0
	for shapeOf(owner).Kind.With(option) == 0 {
		owner++
	}
	given.fail(`field of "` + window.Algorithms[owner] + `" only, got algorithm "` + window.Algorithms[algorithm] + `"`)
	return 0
}

func shapeOf(algorithm int) window.Shape { return window.Named(window.Algorithms[algorithm]) }
