package config

import (
	"math"
	"strconv"
)

// Duration is a time in nanoseconds, like time.Duration. Package time would make the plugin a tenth
// of a megabyte larger.
type Duration int64

// Units of Duration.
const (
	Millisecond Duration = 1e6
	Second               = 1000 * Millisecond
	Minute               = 60 * Second
	Hour                 = 60 * Minute
	day                  = 24 * Hour
)

// Milliseconds returns the duration in milliseconds, rounded toward 0.
func (d Duration) Milliseconds() int64 { return int64(d / Millisecond) }

// units are the units of durations in milliseconds, largest first.
var units = []struct {
	name   string
	millis int64
}{
	{"d", 86_400_000},
	{"h", 3_600_000},
	{"m", 60_000},
	{"s", 1000},
	{"ms", 1},
}

// parseDuration reads one or more whole numbers with units, such as 1h30m. As in
// time.ParseDuration, units may come in any order and may be repeated. It returns the sum in
// milliseconds, or the largest int64 if the sum is larger.
func parseDuration(text string) (millis int64, ok bool) {
	for rest := text; rest != ""; {
		digits := leading(rest, isDigit)
		rest = rest[len(digits):]
		name := leading(rest, isUnitByte)
		rest = rest[len(name):]
		unit := unitMillis(name)
		n, ok := natural(digits, 10)
		if !ok || unit == 0 {
			return 0, false
		}
		if n > (math.MaxInt64-millis)/unit {
			n, millis, unit = 1, 0, math.MaxInt64
		}
		millis += n * unit
	}
	return millis, text != ""
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func isUnitByte(c byte) bool { return c == 'd' || c == 'h' || c == 'm' || c == 's' }

// leading returns the longest prefix whose bytes are all ok.
func leading(text string, ok func(byte) bool) string {
	n := 0
	for n < len(text) && ok(text[n]) {
		n++
	}
	return text[:n]
}

// unitMillis returns the milliseconds of a unit, or 0 if the unit is unknown.
func unitMillis(name string) int64 {
	for _, u := range units {
		if u.name == name {
			return u.millis
		}
	}
	return 0
}

// String writes a duration of whole milliseconds in the form that [ParseDuration] reads.
func (d Duration) String() string {
	var text string
	millis := d.Milliseconds()
	for _, u := range units {
		if n := millis / u.millis; n > 0 {
			text += strconv.FormatInt(n, 10) + u.name
			millis %= u.millis
		}
	}
	return text
}

// duration reads a duration from least to most. After an error it returns 0.
func (v *value) duration(least, most Duration) Duration {
	var millis int64
	var ok bool
	want := `a duration such as "30s" or "1m"`
	switch v.kind {
	case kindString:
		millis, ok = parseDuration(v.text)
	case kindNumber:
		want = "a duration in whole milliseconds"
		millis, ok = parseDecimal(v.raw).scaled(3)
	}
	if ok && (millis < least.Milliseconds() || millis > most.Milliseconds()) {
		want = `a duration from "` + least.String() + `" to "` + most.String() + `"`
		ok = false
	}
	if !ok {
		v.wrong(want)
		return 0
	}
	return Duration(millis) * Millisecond
}

// ParseDuration reads a duration in the form of configurations: one or more whole numbers with
// units, such as 1h30m. ok is false for any other text.
func ParseDuration(text string) (d Duration, ok bool) {
	millis, ok := parseDuration(text)
	return Duration(min(millis, math.MaxInt64/int64(Millisecond))) * Millisecond, ok
}
