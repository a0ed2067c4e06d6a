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
	limit.Shape = window.Named(window.Algorithms[max(algorithm, 0)])
	limit.Width = int64(width)
	kind := limit.Kind
	if belongs(start, algorithm, window.WithStart) && firstHit {
		limit.Kind = kind.With(window.WithStart)
	}
	if belongs(precision, algorithm, window.WithPrecision) && subWidth > 0 {
		limit.Kind, limit.Precision = kind.With(window.WithPrecision), int64(subWidth)
	}
	if !belongs(burst, algorithm, window.WithBurst) {
		if limit.Burst = 0; kind.Bursts() {
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

// belongs reports whether an option is given to an algorithm that has it, and refuses it with another.
func belongs(given *value, algorithm int, option window.Option) bool {
	if !given.given() || algorithm < 0 {
		return false
	}
	owner := ""
	for i, name := range window.Algorithms {
		switch {
		case window.Named(name).Kind.With(option) == 0:
		case i == algorithm:
			return true
		case owner == "":
			owner = name
		default:
			owner += `" and "` + name
		}
	}
	given.fail(`field of "` + owner + `" only, got algorithm "` + window.Algorithms[algorithm] + `"`)
	return false
}
