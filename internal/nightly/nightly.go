// Package nightly says how much of a long test runs: make test has what shows a mistake soon, and
// make test-nightly the rest.
package nightly

import "os"

// On reports whether tests run at full length, which the environment's WEIR_NIGHTLY says.
func On() bool { return os.Getenv("WEIR_NIGHTLY") != "" }

// Or is perNight in a nightly run, and otherwise perChange.
func Or[T any](perNight, perChange T) T {
	if On() {
		return perNight
	}
	return perChange
}
