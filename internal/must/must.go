// Package must ends a test where something fails that the test takes for granted.
package must

import "testing"

// OK ends a test that an error keeps from going on.
func OK(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Get returns a value, as in must.Get(os.ReadFile(name))(t), or ends the test if there is an error instead.
func Get[T any](value T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		OK(t, err)
		return value
	}
}

// Report fails a test that has an error, and lets it go on: what other goroutines do, and what ends a test.
func Report(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}
