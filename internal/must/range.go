package must

import (
	"cmp"
	"fmt"
	"testing"
)

// Between fails a test unless got is in a range, the ends of which are in it. The words say of what.
func Between[T cmp.Ordered](t testing.TB, got, least, most T, words string, args ...any) {
	t.Helper()
	if got < least || got > most {
		t.Errorf("%s: got %v, want %v to %v", fmt.Sprintf(words, args...), got, least, most)
	}
}

// AtLeast is [Between] without an upper end.
func AtLeast[T cmp.Ordered](t testing.TB, got, least T, words string, args ...any) {
	t.Helper()
	if got < least {
		t.Errorf("%s: got %v, want %v or more", fmt.Sprintf(words, args...), got, least)
	}
}

// AtMost is [Between] without a lower end.
func AtMost[T cmp.Ordered](t testing.TB, got, most T, words string, args ...any) {
	t.Helper()
	if got > most {
		t.Errorf("%s: got %v, want %v or less", fmt.Sprintf(words, args...), got, most)
	}
}
