package spelling

import (
	"testing"

	"weir/internal/must"
)

func TestDistance(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "ab", 2}, {"ab", "", 2}, {"kitten", "sitting", 3}, {"limit", "limits", 1}, {"ab", "ba", 2}, {"abc", "abc", 0}} {
		must.Equal(t, Distance(test.a, test.b), test.want, "Distance(%q, %q)", test.a, test.b)
	}
}
