package must_test

import (
	"strings"
	"testing"
	"time"

	"weir/internal/must"
)

// A number beyond an end of its range is told with both, and one that is an end is in it.
func TestRanges(t *testing.T) {
	var f fake
	for got := range 4 {
		must.Between(&f, got, 1, 2, "of %d", got)
		must.AtLeast(&f, got, 2, "least")
		must.AtMost(&f, time.Duration(got)*time.Second, time.Second, "time")
	}
	if got := strings.Join(f.said, "|"); got != "of 0: got 0, want 1 to 2|least: got 0, want 2 or more|least: got 1, want 2 or more|"+
		"time: got 2s, want 1s or less|of 3: got 3, want 1 to 2|time: got 3s, want 1s or less" {
		t.Error(got)
	}
}
