package window_test

import (
	"testing"

	"weir/internal/must"
	"weir/window"
)

// The longest block is a limit as any other, which every message may name.
func TestLongestBlock(t *testing.T) {
	l := window.NewBlock(window.MaxBlock)
	must.Equal(t, l.Shape.Fault(), window.Sound, "a block of %d days", window.MaxBlock/(86400*int64(1e9)))
	longer := window.NewBlock(window.MaxBlock + 86400*int64(1e9))
	must.Equal(t, longer.Shape.Fault() == window.Sound, false, "one day more is sound")
}

// A hold blocks until the end of the second that it was told, but for a minute at most. The longest counts.
func TestBlockUntil(t *testing.T) {
	const second = int64(1e9)
	l, s := window.NewHold(), window.State{}
	must.EqualOrEnd(t, l.Shape.Fault(), window.Sound, "")
	const start = 1_767_571_200*second + second/4
	l.Advance(&s, start)
	for _, c := range []struct {
		until, ends int64
		changes     bool
	}{
		{0, 0, false},
		{-5 * second, 0, false},
		{second / 2, 1 * second, true},
		{3 * second, 4 * second, true}, // a quarter of a second into the fourth
		{2 * second, 4 * second, false},
		{1 << 62, 61 * second, true},
	} {
		must.Equal(t, l.BlockUntil(&s, start+c.until), c.changes, "until %d: changed is", c.until)
		ends := int64(0)
		if used := l.Used(&s); used > 0 {
			at, ok := l.FitsAt(&s, 1)
			if ends = at - start + second/4; !ok || l.Allows(&s, 0) || l.Remaining(&s) != 0 {
				t.Errorf("until %d: it is no block", c.until)
			}
		}
		must.Equal(t, ends, c.ends, "until %d: it ends in", c.until)
		var read window.State
		if n := window.DecodeState(window.AppendState(nil, &l, &s, true), &read); n == 0 || l.Used(&read) != l.Used(&s) {
			t.Errorf("until %d: it is not kept", c.until)
		}
	}
	l.Advance(&s, start+61*second-second/4-1)
	must.Equal(t, l.Used(&s) > 0, true, "it lasts until its time")
	l.Advance(&s, start+61*second-second/4)
	must.Equal(t, l.Used(&s), 0, "hits beyond its time")
	fixed := window.Limit{Shape: window.Shape{Kind: window.FixedWindow, Width: second}, Max: 1}
	must.Equal(t, fixed.BlockUntil(&s, start+second), false, "a window blocks")
}
