package far_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"weir/internal/must"
	"weir/internal/store"
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
		must.Equal(t, f.Wake(now+uint64(test.after)), test.want, "after %v: awake", test.after)
		must.Equal(t, f.Limits[0].Watched(), test.want, "after %v: watched", test.after)
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

// now is the beginning of an hour, in nanoseconds.
const now = 1_767_571_200_000_000_000

// hourly is a limit of so many hits in windows of an hour, of a rule with tag 7 that a version has listed.
func hourly(kind window.Kind, most, since uint64) far.Limit {
	return far.Limit{Shape: wire.LimitCounter{Kind: uint8(kind), WidthMillis: 3600_000}, Max: most, Listed: since > 0, Rules: []far.Rule{{Tag: 7, Since: since}}}
}

// A room leaves what senders may have advanced by any of its rule's limits that is near, less what a larger limit has more.
func TestLeave(t *testing.T) {
	never, unlisted := hourly(window.FixedWindow, 500, 0), hourly(window.FixedWindow, 4000, 0)
	unlisted.Unlisted = 2
	f := far.List{Limits: []far.Limit{hourly(window.FixedWindow, 1000, 3), hourly(window.FixedWindow, 2000, 5), never, unlisted, hourly(window.SlidingWindow, 1000, 3)}}
	for _, test := range []struct {
		limit        uint64
		tag          uint16
		after        uint64
		want, silent uint64
		spare        uint64
		asked        string
	}{
		{1000, 7, 499, 0, 0, 0, "[]"}, {1000, 7, 500, 14, 4, 499, "[1000 3]"}, {1000, 6, 999, 14, 4, 0, "[1000 3]"}, {1000, 7, 1000, 14, 4, 999, "[1000 3 2000 5]"},
		{995, 7, 600, 9, 0, 399, "[1000 3]"}, {2000, 7, 2000, 14, 4, wire.MaxHits, "[1000 3 2000 5 4000 0]"}, {1000, 9, 1000, 0, 0, wire.MaxHits, "[]"},
		{1000, 0, 500, 14, 4, 499, "[1000 0]"}, {990, 7, 990, 4, 0, 9, "[1000 3]"},
	} {
		var asked []uint64
		room := wire.Room{LimitCounter: f.Limits[0].Shape, Limit: test.limit, Tag: test.tag}
		hits, silent, spare := f.Leave(&room, test.after, now, func(l *far.Limit, _ far.Key, since uint64) far.Left {
			asked = append(asked, l.Max, since)
			return far.Left{Live: 10, Silent: 4}
		})
		if hits != test.want || silent != test.silent || spare != test.spare || fmt.Sprint(asked) != test.asked {
			t.Errorf("%+v: leaves %d, %d of silent senders, with %d to spare, asked %v", test, hits, silent, spare, asked)
		}
	}
}

// Senders advance no more hits of a key from the version on that has told them that it is near, or that the limit is not listed.
func TestHeardFrom(t *testing.T) {
	l := hourly(window.FixedWindow, 1000, 9)
	l.Unlisted = 4
	for _, test := range []struct{ near, want uint64 }{{0, math.MaxUint64}, {8, 4}, {9, 9}, {10, 10}} {
		must.Equal(t, l.HeardFrom(9, test.near), test.want, "near since %d: heard from", test.near)
	}
	l.Listed = false
	must.Equal(t, l.HeardFrom(0, 10), 4, "not listed: heard from")
}

// Near keys are those with half of the limit, in each window, for the senders whose clocks are behind, too. A key that came near
// quickly is near in the next window. A key that slides is far again below three quarters of that.
func TestNear(t *testing.T) {
	const number = now / 3600_000_000_000
	fixed, sliding := hourly(window.FixedWindow, 1000, 3), hourly(window.SlidingWindow, 1000, 3)
	narrow := fixed
	narrow.Shape.WidthMillis = 20_000
	noted := func(l *far.Limit, after, since time.Duration, windows ...store.Window) string {
		at := store.Calendar{NowNanos: now + uint64(after)}
		var all []string
		spare := l.Near(wire.ID{1}, &store.Contents{Windows: windows}, at, func(k far.Key, spare bool) uint64 {
			all = append(all, fmt.Sprint(int64(k.Number)-number, k.Full, spare))
			return at.NowNanos - uint64(since)
		})
		return fmt.Sprint(all, spare)
	}
	of := func(number uint64, hits int64) store.Window { return store.Window{Number: number, Hits: hits} }
	for i, test := range []struct{ got, want string }{
		{noted(&fixed, 0, 0), "[] 499"}, {noted(&fixed, 0, 0, of(number, 499)), "[] 0"}, {noted(&fixed, 0, 0, of(number, -9)), "[] 499"},
		{noted(&fixed, 0, 0, of(number, 500), of(number+1, 400)), "[0 false false] 99"},
		{noted(&fixed, 0, 0, of(number, 874)), "[0 false false] 499"}, {noted(&fixed, 0, 0, of(number, 875)), "[0 false false 1 false true] 499"},
		{noted(&fixed, 0, 5*time.Second-1, of(number, 999)), "[0 false false 1 false true] 499"}, {noted(&fixed, 0, 5*time.Second, of(number, 999)), "[0 false false] 499"},
		{fmt.Sprint(len(noted(&narrow, 0, 3*time.Second-1, of(now/20_000_000_000, 999))) > len(noted(&narrow, 0, 3*time.Second, of(now/20_000_000_000, 999)))), "true"},
		{noted(&fixed, 0, time.Minute, of(number, 1000)), "[0 false false 0 true true] 499"},
		{noted(&fixed, 5*time.Second-1, time.Minute, of(number-1, 600)), "[-1 false false] 499"}, {noted(&fixed, 5*time.Second, time.Minute, of(number-1, 600)), "[] 499"},
		{noted(&sliding, 0, 0, of(number, 400)), "[] 99"}, {noted(&sliding, 0, 0, of(number, 400), of(number-1, 100)), fmt.Sprintf("[%d false false] %d", -number, wire.MaxHits)},
		{isFar(&fixed, number-1, 5*time.Second-1), "false"}, {isFar(&fixed, number-1, 5*time.Second), "true"}, {isFar(&fixed, number, 5*time.Second), "false"},
		{isFar(&sliding, 0, 0, of(number, 375)), "false"}, {isFar(&sliding, 0, 0, of(number, 300), of(number-1, 70)), "true 4"},
		{isFar(&sliding, 0, 0, of(number-1, 300), of(number-2, 300)), "false"}, {isFar(&sliding, 0, 5*time.Second, of(number-1, 300), of(number-2, 300)), "true 74"},
	} {
		must.Equal(t, test.got, test.want, "case %d", i)
	}
}

// isFar says whether a key is far again, and with how many hits to spare, at a time after a window's beginning.
func isFar(l *far.Limit, number uint64, after time.Duration, windows ...store.Window) string {
	is, spare := l.Far(far.Key{Number: number}, &store.Contents{Windows: windows}, store.Calendar{NowNanos: now + uint64(after)})
	if !is || spare == wire.MaxHits {
		return fmt.Sprint(is)
	}
	return fmt.Sprint(is, " ", spare)
}

// Rooms of a take leave hits in a copy. An answer to a refused take has the hits of silent senders as used, up to the limit.
func TestTake(t *testing.T) {
	room := wire.Room{LimitCounter: hourly(window.FixedWindow, 0, 0).Shape, Limit: 10, Cost: 2}
	take := &wire.Take{Least: 1, Most: 5, Rooms: []wire.Room{room, room}}
	must.Equal(t, far.Take(take, func(int, uint64) uint64 { return 0 }), take, "a take that leaves nothing")
	less := far.Take(take, func(i int, most uint64) uint64 { return uint64(i) * (most + 1) })
	must.Equal(t, fmt.Sprint(less.Rooms[0].Limit, less.Rooms[1].Limit, take.Rooms[1].Limit), "10 0 10", "limits")
	take.Rooms[1].Cost = 0
	for most, want := range map[uint64]uint64{wire.MaxHits / 2: wire.MaxHits - 1, wire.MaxHits: wire.MaxHits} {
		take.Most = most
		far.Take(take, func(i int, most uint64) uint64 {
			must.Equal(t, most, []uint64{want, 0}[i], "most hits of room %d", i)
			return 0
		})
	}
	for silent, want := range map[uint64]string{0: "3 3", 4: "7 3", 20: "10 3"} {
		g := wire.Grant{Totals: []wire.Total{{Hits: []uint64{3}}, {Hits: []uint64{3, 0}}}}
		take.Rooms[1].Kind = uint8(window.SlidingWindow)
		far.Refuse(take, &g, func(int) uint64 { return silent })
		must.Equal(t, fmt.Sprint(g.Totals[0].Hits[0], g.Totals[1].Hits[0]), want, "with %d hits of silent senders: used", silent)
		g.Totals[0].Hits[0], g.Units = 3, 1
		far.Refuse(take, &g, func(int) uint64 { return silent })
		must.Equal(t, g.Totals[0].Hits[0], 3, "granted: used")
	}
	g := wire.Grant{Totals: []wire.Total{{Hits: []uint64{15}}, {}}}
	far.Refuse(take, &g, func(int) uint64 { return 9 })
	must.Equal(t, g.Totals[0].Hits[0], 15, "above the limit: used")
}

// Limits are listed of windows of the clock, for so many rules, and told to senders that have not heard of them.
func TestAsk(t *testing.T) {
	room := func(kind window.Kind, limit uint64, tag uint16) *wire.Room {
		return &wire.Room{LimitCounter: wire.LimitCounter{ID: wire.ID{1}, Kind: uint8(kind), WidthMillis: 3600_000}, Limit: limit, Tag: tag}
	}
	var f far.List
	for kind := window.Kind(1); kind <= window.LastKind; kind++ {
		must.Equal(t, f.Lacks(room(kind, 34, 7), now), kind.Clocked(), "%v: is lacking", kind)
		must.Equal(t, f.Lacks(room(kind, 33, 7), now) || f.Lacks(room(kind, 34, 6), now), false, "%v: a small limit, or one of a rule that advances nothing, is lacking", kind)
	}
	f.Ask(room(window.FixedWindow, 1000, 7), 1, now)
	for after, want := range map[time.Duration]bool{-1: false, 0: false, 10*time.Minute - 1: false, 10 * time.Minute: true} {
		must.Equal(t, f.Lacks(room(window.FixedWindow, 1000, 7), now+uint64(after)), want, "after %v: is lacking", after)
	}
	f.Ask(room(window.FixedWindow, 1000, 9), 1, now)
	f.Ask(room(window.SlidingWindow, 1000, 7), 1, now)
	walk, _ := f.Walk(nil)
	f.End(walk, 5)
	f.Epoch = 3
	f.Ask(room(window.SlidingWindow, 1000, 9), 8, now)
	must.Equal(t, fmt.Sprint(f.Epoch, f.Limits[0].Rules, f.Limits[1].Rules), "0 [{7 5} {9 5}] [{7 5} {9 8}]", "the epoch, and rules")
	for i := range f.Limits {
		must.Equal(t, f.Limit(f.Limits[i].Name()), &f.Limits[i], "the limit with the name")
	}
	for heard, want := range map[uint64]int{4: 4, 5: 1, 7: 1, 8: 0} {
		part, whole := wire.Near{}, wire.Near{Whole: true}
		f.Tell(&part, heard)
		f.Tell(&whole, heard)
		must.Equal(t, fmt.Sprint(part.LimitCount(), whole.LimitCount()), fmt.Sprint(want, 4), "who has heard of %d hears of so many, and all", heard)
	}
	for i := range uint64(far.MaxLimits) {
		f.Ask(room(window.FixedWindow, 2000+i, 7), 9, now)
	}
	must.Equal(t, len(f.Limits), far.MaxLimits, "limits")
	for i := range uint16(wire.MaxNearLimits) {
		f.Ask(room(window.FixedWindow, 1000, 101+2*i), 9, now)
	}
	rules := 0
	for i := range f.Limits {
		rules += len(f.Limits[i].Rules)
	}
	must.Equal(t, rules, wire.MaxNearLimits, "rules")
	f.Epoch = 3
	must.Equal(t, f.Shorten(64+5, 10), false, "the list is shortened for 69 keys that are gone, beside 10")
	must.Equal(t, f.Shorten(64+6, 10) && f.Epoch == 0, true, "the list is shortened for 70")
}

// A limit that nobody asks for leaves the list, and is known until all senders have heard of that.
func TestForget(t *testing.T) {
	f := far.List{Limits: []far.Limit{hourly(window.FixedWindow, 1000, 5)}}
	f.Limits[0].Asked = now
	for i, test := range []struct {
		after time.Duration
		heard bool
		want  string
	}{
		{time.Hour - 1, true, "false [true 0]"}, {time.Hour, true, "true [false 6]"}, {time.Hour - 1, true, "false [false 6]"},
		{time.Hour, false, "false [false 6]"}, {time.Hour, true, "true []"}, {time.Hour, true, "false []"},
	} {
		news, left := f.Forget(6, now+uint64(test.after), func(*far.Limit) bool { return test.heard }), []any{}
		for _, l := range f.Limits {
			left = append(left, l.Listed, l.Unlisted)
		}
		must.Equal(t, fmt.Sprint(news, left), test.want, "step %d: news, and what is left", i)
	}
}
