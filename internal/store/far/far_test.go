package far_test

import (
	"testing"
	"time"

	"weir/internal/must"
	"weir/internal/store/far"
	"weir/internal/wire"
	"weir/window"
)

// A part that begins shortly before a window's end may have hits in the next, and in a sliding window count until the end of
// the one after.
func TestOwing(t *testing.T) {
	answered := uint64(time.Unix(1_767_571_260, 0).Add(50 * time.Second).UnixNano())
	for _, test := range []struct {
		kind        window.Kind
		after, late time.Duration
		want        bool
	}{
		{window.FixedWindow, 69 * time.Second, 0, true}, {window.FixedWindow, 70 * time.Second, 0, false},
		{window.SlidingWindow, 129 * time.Second, 0, true}, {window.SlidingWindow, 130 * time.Second, 0, false},
		{window.FixedWindow, 70 * time.Second, 55 * time.Second, true}, {window.FixedWindow, 70 * time.Second, 54 * time.Second, false},
	} {
		l := far.Limit{Shape: wire.LimitCounter{Kind: uint8(test.kind), WidthMillis: 60_000}}
		must.Equal(t, answered >= l.Owing(answered+uint64(test.after), uint64(test.late)), test.want, "%v after %v, %v late", test.kind, test.after, test.late)
	}
}

// A limit that rests is watched again after ten minutes, and then a walk looks for it. The clock may be set back: so far that
// it was never to rest, which wakes it, or after it is awake, which does not have it rest again. A walk that began before lists it not.
func TestRest(t *testing.T) {
	now := uint64(time.Unix(1_767_571_260, 0).UnixNano())
	ask := func() (f far.List, walk far.Walk) {
		room := wire.Room{LimitCounter: wire.LimitCounter{ID: wire.ID{1}, Kind: uint8(window.FixedWindow), WidthMillis: 60_000}, Limit: 1000, Tag: 7}
		if !f.Ask(&room, 1, now) || f.Ask(&room, 2, now) {
			t.Fatal("the limit is no news, or news twice")
		}
		walk, begins := f.Walk(nil)
		if !begins || !f.End(walk, 3) || !f.Limits[0].Listed || f.Limits[0].Rules[0].Since != 3 {
			t.Fatalf("a limit is not listed that all counters were looked through for: %+v", f)
		}
		f.Rest(&f.Limits[0], 4, now)
		return f, walk
	}
	for _, test := range []struct {
		after time.Duration
		want  bool
	}{{10*time.Minute - 1, false}, {10 * time.Minute, true}, {-1, true}, {2 * time.Hour, false}} {
		f, before := ask()
		if l := &f.Limits[0]; l.Listed || l.Unlisted != 4 || l.Watched() || l.Rules[0].Since != 0 {
			t.Errorf("a limit that rests is %+v", l)
		}
		if got := f.Wake(now + uint64(test.after)); got != test.want || f.Limits[0].Watched() != test.want {
			t.Errorf("after %v: awake %t, want %t", test.after, got, test.want)
		}
		must.Equal(t, f.End(before, 5), false, "after %v: a walk of before the rest lists the limit", test.after)
		walk, begins := f.Walk(before)
		if _, again := f.Walk(walk); begins != test.want || again || f.Wake(now) || f.End(walk, 6) != test.want {
			t.Errorf("after %v: a walk begins: %t, another: %t", test.after, begins, again)
		}
	}
}

// A text that is no list, or has a counter that there can't be, is none.
func TestParse(t *testing.T) {
	for text, want := range map[string]bool{
		"x": false, `{"Epoch":1,"Limits":[{}]}`: false, `{"Epoch":1}`: true,
		`{"Epoch":1,"Limits":[{"Shape":{"Kind":1,"WidthMillis":60000},"Max":100}]}`: true,
	} {
		if f, ok := far.Parse([]byte(text)); ok != want || (f.Epoch == 1) != want {
			t.Errorf("%s is a list: %t, %+v", text, ok, f)
		}
	}
}
