package config

import (
	"strconv"

	"weir/window"
)

// smallSliding is the limit of a sliding window below which weir check hints at a sliding log.
const smallSliding = 20

// Warnings are what works, but hardly as expected: a mistake that is none by the grammar. Paths are
// those of errors.
func Warnings(c *Config) (warnings Errors) {
	for i := range c.Rules {
		for j := range c.Rules[i].Limits {
			path := "rules[" + strconv.Itoa(i) + "].limits[" + strconv.Itoa(j) + "]"
			for _, of := range limitWarnings {
				if problem := of(&c.Rules[i].Limits[j]); problem != "" {
					warnings = append(warnings, Error{Path: path, Problem: problem})
				}
			}
		}
	}
	return warnings
}

// limitWarnings say what is odd about a limit, or nothing.
var limitWarnings = []func(l *window.Limit) string{smallSlidingWindow}

func smallSlidingWindow(l *window.Limit) string {
	if l.Kind != window.SlidingWindow || l.Max == 0 || l.Max >= smallSliding {
		return ""
	}
	return "a sliding_window of " + strconv.FormatUint(l.Max, 10) + " passes " + strconv.FormatFloat(l.Steady(), 'f', 2, 64) +
		" of it of a client that never stops asking; a sliding_log passes all"
}
