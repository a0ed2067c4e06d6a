package config

import "math"

// ParseDuration reads a duration as configurations have them: one or more whole numbers with units,
// such as 1h30m.
func ParseDuration(text string) (d Duration, ok bool) {
	millis, ok := parseDuration(text)
	return Duration(min(millis, math.MaxInt64/int64(Millisecond))) * Millisecond, ok
}

// String writes whole milliseconds as [ParseDuration] reads them.
func (d Duration) String() string { return formatDuration(d) }
