package counter

import (
	"testing"

	"weir/internal/must"
	"weir/window"
)

// An entry that another configuration's limit has written is read as an entry of this limit. The
// change of a lease doesn't look like hits that were used.
func TestEntryOfAnotherLimit(t *testing.T) {
	t.Parallel()
	bucket := func(limit uint64) *Rule {
		l := window.Limit{Shape: window.Shape{Kind: window.TokenBucket, Width: 60 * second}, Max: limit, Burst: limit}
		return shared(2, second, l)
	}
	high, low := bucket(1000), bucket(10)
	c := leased(t, high, 600)
	for range 100 {
		c.Count(1)
	}
	for range 1000 {
		c = load(t, low, c.Append(nil, monday))
		c.Advance(monday)
		if left := c.States[0].Hits[0]; c.Leased() != 5 || left.Total != 6 || !c.Allows(9) || c.Allows(10) {
			t.Fatalf("%+v at the lower limit, want 5 leased of 6, and room for 9", left)
		}
		if used, _ := c.used(); used != 100 {
			t.Fatalf("%d hits were used, want 100", used)
		}
		c = load(t, high, c.Append(nil, monday))
		c.Advance(monday)
		must.EqualOrEnd(t, c.Leased(), 500, "leased at the higher limit")
		must.EqualOrEnd(t, c.States[0].Hits[0].Total, 600, "hits at the higher limit")
	}
}
