package config

import "math"

// ParseDuration reads a duration in the form of configurations: one or more whole numbers with
// units, such as 1h30m. ok is false for any other text.
func ParseDuration(text string) (d Duration, ok bool) {
	millis, ok := parseDuration(text)
	return Duration(min(millis, math.MaxInt64/int64(Millisecond))) * Millisecond, ok
}

// String writes a duration of whole milliseconds in the form that [ParseDuration] reads.
func (d Duration) String() string { return formatDuration(d) }
