package accesslog

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"time"
)

var errTime = errors.New(`want a time such as "2026-01-02T15:04:05.678Z", "02/Jan/2026:15:04:05 +0000" or seconds since 1970`)

// clock reads times. Consecutive lines often have the same time.
type clock struct {
	text  string
	nanos int64
	// layout is the index of the layout that read the last time.
	layout int
}

var timeLayouts = [...]string{
	time.RFC3339Nano, // any fraction
	"02/Jan/2006:15:04:05 -0700",
	"2006-01-02T15:04:05Z0700",
	"2006-01-02 15:04:05Z07:00",
	"2006-01-02 15:04:05 -0700",
	"2006-01-02T15:04:05", // UTC
	"2006-01-02 15:04:05",
	"2006/01/02 15:04:05", // Caddy's wall clock
}

// read reads a time in one of the timeLayouts, or a number since 1970. The size of the number
// decides whether it is in seconds, milliseconds, microseconds or nanoseconds.
func (c *clock) read(text string) (nanos int64, err error) {
	if text == c.text && text != "" {
		return c.nanos, nil
	}
	if nanos, err = c.parse(text); err != nil {
		return 0, err
	}
	// A clone, so that the line itself is not kept.
	c.text, c.nanos = strings.Clone(text), nanos
	return nanos, nil
}

func (c *clock) parse(text string) (nanos int64, err error) {
	if len(text) > 64 {
		return 0, errTime
	}
	if nanos, ok := sinceEpoch(text); ok {
		return nanos, nil
	}
	for i := range timeLayouts {
		at := (c.layout + i) % len(timeLayouts)
		if t, err := time.Parse(timeLayouts[at], text); err == nil {
			c.layout = at
			if year := t.UTC().Year(); year < 1970 || year > 2200 {
				return 0, errTime
			}
			return t.UnixNano(), nil
		}
	}
	return 0, errTime
}

// sinceEpoch reads a decimal number, exact to the nanosecond.
func sinceEpoch(text string) (nanos int64, ok bool) {
	whole, fraction, _ := strings.Cut(text, ".")
	n, err := strconv.ParseUint(whole, 10, 63)
	if err != nil {
		return 0, false
	}
	unit := int64(1)
	switch {
	case n < 1e11:
		unit = 1e9
	case n < 1e14:
		unit = 1e6
	case n < 1e17:
		unit = 1e3
	}
	if int64(n) > math.MaxInt64/4/unit*3 {
		return 0, false
	}
	nanos, ok = decimal(int64(n), fraction, unit)
	return nanos, ok && nanos < 7258118400e9
}

// decimal returns a number of nanoseconds from its whole units and the digits of its fraction.
func decimal(whole int64, fraction string, unit int64) (nanos int64, ok bool) {
	nanos = whole * unit
	for _, digit := range fraction {
		if digit < '0' || digit > '9' {
			return 0, false
		}
		unit /= 10
		nanos += int64(digit-'0') * unit
	}
	return nanos, true
}
