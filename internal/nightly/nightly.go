// Package nightly decides how much of a long test runs: make test runs the part that shows a
// mistake soon, and make test-nightly all of it.
package nightly

import "os"

// On reports whether tests run at full length: the environment variable WEIR_NIGHTLY is set.
func On() bool { return os.Getenv("WEIR_NIGHTLY") != "" }

// Or returns perNight in a nightly run, and otherwise perChange.
func Or[T any](perNight, perChange T) T {
	if On() {
		return perNight
	}
	return perChange
}
