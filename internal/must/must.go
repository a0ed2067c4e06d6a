// Package must fails a test where something is not as it must be: OK, OKf, Get and EqualOrEnd end it, the others let it go on.
package must

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
)

// OK ends a test that an error keeps from going on.
func OK(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// OKf is [OK], and says of what the error is.
func OKf(t testing.TB, err error, words string, args ...any) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", fmt.Sprintf(words, args...), err)
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

// File writes a file, and returns its path.
func File(t testing.TB, path, content string) string {
	t.Helper()
	OK(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

// Text returns what a file has.
func Text(t testing.TB, path string) string {
	t.Helper()
	return string(Get(os.ReadFile(path))(t))
}

// Report fails a test that has an error, and lets it go on: what other goroutines do, and what ends a test.
func Report(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

// Reportf is [Report], and says of what the error is.
func Reportf(t testing.TB, err error, words string, args ...any) {
	t.Helper()
	if err != nil {
		t.Errorf("%s: %v", fmt.Sprintf(words, args...), err)
	}
}

// Fails fails a test that has no error where one is wanted. The words say of what.
func Fails(t testing.TB, err error, words string, args ...any) {
	t.Helper()
	if err == nil {
		t.Errorf("%s: got no error", fmt.Sprintf(words, args...))
	}
}

// Equal fails a test unless got is want. The words say of what.
func Equal[T comparable](t testing.TB, got, want T, words string, args ...any) {
	t.Helper()
	if got != want {
		t.Error(differs(got, want, words, args...))
	}
}

// EqualOrEnd is [Equal], and ends the test.
func EqualOrEnd[T comparable](t testing.TB, got, want T, words string, args ...any) {
	t.Helper()
	if got != want {
		t.Fatal(differs(got, want, words, args...))
	}
}

// Same is [Equal] of what == does not compare: slices and maps, and all that has them. One that is empty is as nil.
func Same[T any](t testing.TB, got, want T, words string, args ...any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) && (!empty(got) || !empty(want)) {
		t.Error(differs(got, want, words, args...))
	}
}

func empty(of any) bool {
	v := reflect.ValueOf(of)
	return (v.Kind() == reflect.Slice || v.Kind() == reflect.Map) && v.Len() == 0
}

// Is fails a test unless an error is, or wraps, another.
func Is(t testing.TB, err, want error, words string, args ...any) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Error(differs(err, want, words, args...))
	}
}

// Contains fails a test unless a text has a part.
func Contains(t testing.TB, text, part, words string, args ...any) {
	t.Helper()
	if !strings.Contains(text, part) {
		t.Errorf("%s: no %q in\n%s", fmt.Sprintf(words, args...), part, text)
	}
}

// Lacks fails a test if a text has a part.
func Lacks(t testing.TB, text, part, words string, args ...any) {
	t.Helper()
	if strings.Contains(text, part) {
		t.Errorf("%s: %q is in\n%s", fmt.Sprintf(words, args...), part, text)
	}
}

// differs says that got is not want. Texts are quoted unless they have several lines.
func differs(got, want any, words string, args ...any) string {
	words = fmt.Sprintf(words, args...)
	if words != "" {
		words += ": "
	}
	if one, other := fmt.Sprint(got), fmt.Sprint(want); strings.Contains(one+other, "\n") {
		return fmt.Sprintf("%sgot\n%.5000s\nwant\n%.5000s", words, one, other)
	}
	form := "%sgot %+v, want %+v"
	switch got.(type) {
	case string, []byte, []string:
		form = "%sgot %q, want %q"
	}
	return fmt.Sprintf(form, words, got, want)
}
