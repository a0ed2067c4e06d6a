package config

import (
	"strconv"

	"weir/window"
)

const (
	// maxHits is the largest number of hits.
	maxHits = window.MaxLimit
	// usualHold is how long a request may hold a place by default.
	usualHold = 10 * 60 * Second
	minWindow = Duration(window.MinWidth)
	maxWindow = Duration(window.MaxWidth)
)

var (
	starts      = []string{"clock", "first_hit"}
	limitFields = []field{
		{"limit", required}, {"window", optional}, {"algorithm", optional}, {"start", optional}, {"precision", optional}, {"burst", optional},
		{"limit_from", optional}, {"zone", optional}, {"anchor", optional}, {"hold", optional},
	}
)

// readLimit reads a limit with the given part of limitFields. hold is how long a request may hold a
// place; 0 unless the algorithm is in_flight.
func readLimit(v *value, fields []field) (limit window.Limit, from *LimitFrom, hold Duration) {
	var given struct {
		algorithm                                               int
		firstHit                                                bool
		hits, window, start, precision, burst, from, most, hold *value
	}
	hold = usualHold
	var dated dated
	v.object(`{"limit": 100, "window": "1m"}`, fields, func(name string, v *value) {
		switch name {
		case "limit":
			given.hits = v
			limit.Max = uint64(v.integer(0, maxHits))
		case "hold":
			given.hold = v
			hold = v.duration(Second, maxWindow)
		case "window":
			given.window = v
			dated.readWindow(v, &limit)
		case "zone":
			dated.zone = v
		case "anchor":
			dated.readAnchor(v)
		case "algorithm":
			given.algorithm = v.choice(algorithms())
		case "start":
			given.start = v
			given.firstHit = v.choice(starts) == 1
		case "precision":
			given.precision = v
			limit.Precision = int64(v.duration(minWindow, maxWindow))
		case "burst":
			given.burst = v
			limit.Burst = uint64(v.integer(1, maxHits))
		case "limit_from":
			from, given.from = &LimitFrom{}, v
			given.most = readLimitFrom(v, from)
		}
	})
	if from != nil {
		from.Bursts = given.burst.given()
	}
	chosen := &window.Algorithms[max(given.algorithm, 0)]
	limit.Kind = chosen.Kind
	switch held := limit.Kind.Held(); {
	case v.kind != kindObject:
	case held && given.window.given():
		given.window.fail(`want no window with algorithm "in_flight"`)
	case held:
		limit.Width = window.NewInFlight(0).Width
	case given.hold.given():
		given.hold.fail(`field of "in_flight" only, got algorithm "` + chosen.Name + `"`)
	case !given.window.given():
		dated.readWindow(v.missing("window"), &limit)
	}
	if !limit.Kind.Held() {
		hold = 0
	}
	if belongs(given.start, given.algorithm, window.Start) && given.firstHit {
		limit.Kind = chosen.With[window.Start]
	}
	if belongs(given.precision, given.algorithm, window.Precision) && limit.Precision > 0 {
		limit.Kind = chosen.With[window.Precision]
	} else {
		limit.Precision = chosen.Precision
	}
	if belongs(given.burst, given.algorithm, window.Burst) {
		limit.Kind = chosen.With[window.Burst]
	} else if limit.Burst = 0; limit.Kind.Bursts() {
		limit.Burst = max(limit.Max, 1)
	}
	if given.algorithm >= 0 {
		dated.apply(&limit)
	}
	switch limit.Fault() {
	case window.WrongPrecision:
		given.precision.wrong("a duration that divides the window into 2 to 64 equal parts")
	case window.LargeLog:
		given.hits.wrong("at most " + strconv.FormatUint(limit.LargestLog(), 10) +
			" for a sliding_log of this window, which would take more memory than a counter may")
	}
	if from != nil && given.most.given() && limit.IsLog() && from.Max > limit.LargestLog() {
		given.most.wrong("at most " + strconv.FormatUint(limit.LargestLog(), 10) + ", as for limit")
	}
	v.report.shares.divide(&limit, given.hits, given.burst, given.from)
	return limit, from, hold
}

// maxField is the field that a limit_from has besides its selector.
var maxField = []field{{"max", required}}

// readLimitFrom returns the value of max.
func readLimitFrom(v *value, from *LimitFrom) (most *value) {
	const like = `{"header": "x-limit", "max": 10000}`
	if !v.composite() {
		v.wrong("an object such as " + like)
		return nil
	}
	v.oneOf(like, limitSelectors, maxField, func(name string, v *value) {
		if name == "max" {
			most = v
			from.Max = uint64(v.integer(1, maxHits))
		} else {
			from.From.read(name, v)
		}
	})
	return most
}

// belongs reports whether an option was given, and reports an error if the algorithm does not have
// it.
func belongs(field *value, algorithm int, option window.Option) bool {
	if !field.given() || algorithm < 0 {
		return false
	}
	var owners string
	for i := range window.Algorithms {
		a := &window.Algorithms[i]
		switch {
		case a.With[option] == 0:
			continue
		case i == algorithm:
			return true
		case owners != "":
			owners += `" and "`
		}
		owners += a.Name
	}
	field.fail(`field of "` + owners + `" only, got algorithm "` + window.Algorithms[algorithm].Name + `"`)
	return false
}

func algorithms() []string {
	names := make([]string, len(window.Algorithms))
	for i := range names {
		names[i] = window.Algorithms[i].Name
	}
	return names
}
