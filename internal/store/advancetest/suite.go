package advancetest

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"weir/internal/must"
	"weir/internal/wire"
	"weir/window"
)

// Fleets tests what a store does for its senders. Fleets have so many senders.
func Fleets(t *testing.T, senders []int, open Open) {
	for name, test := range map[string]func(f *Fleet){
		"near in a window": nearInAWindow, "full keys": fullKeys, "rules": rules, "too many rules": tooManyRules, "other epoch": otherEpoch,
		"too many near keys": tooManyNearKeys, "far again": func(f *Fleet) { FarAgain(f, func() {}) }, "stale limits": staleLimits,
		"parts are a whole": partsAreAWhole, "late words": lateWords, "parts last": partsLast,
	} {
		t.Run(name, func(t *testing.T) { test(NewFleet(t, open).Begin()) })
	}
	t.Run("each sender has a part", func(t *testing.T) {
		for _, n := range senders {
			eachSenderHasAPart(NewFleet(t, open), uint64(n))
		}
	})
	for name, kind := range map[string]window.Kind{"fixed": window.FixedWindow, "sliding": window.SlidingWindow} {
		t.Run("silent senders/"+name, func(t *testing.T) { silentSenders(NewFleet(t, open), kind) })
	}
}

// However many senders there are, each of them has a part in the end.
func eachSenderHasAPart(f *Fleet, senders uint64) {
	words := map[uint64]*wire.Advance{}
	for range 4 {
		for sender := range senders {
			f.saysAny(words, sender+1)
		}
		f.Now = f.Now.Add(4 * time.Second) // a part that may be smaller is looked at every three seconds
	}
	f.haveParts(words)
}

// saysAny pushes the word of one of many senders.
func (f *Fleet) saysAny(words map[uint64]*wire.Advance, sender uint64) {
	if words[sender] == nil {
		w := Wants
		words[sender] = &w
	}
	f.Says(sender, words[sender])
}

// areAWhole wants all parts to be a whole at most.
func (f *Fleet) areAWhole(words map[uint64]*wire.Advance) {
	f.T.Helper()
	sum := 0.0
	for _, w := range words {
		if w.Divisor > 0 {
			sum += 1 / float64(w.Divisor)
		}
	}
	if sum > 1 {
		f.T.Fatalf("the parts of %d senders are %.3f together", len(words), sum)
	}
}

// haveParts wants all senders to have parts.
func (f *Fleet) haveParts(words map[uint64]*wire.Advance) {
	f.T.Helper()
	f.areAWhole(words)
	for sender, w := range words {
		must.Equal(f.T, w.Divisor > 0, true, "sender %d of %d has a part", sender, len(words))
	}
}

// Parts of all senders are never more than a whole, and all get one in the end.
func partsAreAWhole(f *Fleet) {
	words := map[uint64]*wire.Advance{1: &f.Word}
	r := rand.New(rand.NewPCG(33, 1))
	for round := range 400 {
		f.Now = f.Now.Add(100 * time.Millisecond)
		for range 10 {
			f.saysAny(words, 10+r.Uint64N(60))
		}
		if round%20 == 0 {
			f.Tells()
		}
		f.areAWhole(words)
	}
	f.haveParts(words)
}

// A sender that dropped its part can get it again by an answer to a push that says so. An earlier push that
// comes late takes no part away.
func lateWords(f *Fleet) {
	late := &wire.Push{Namespace: "ns", Sender: 1, Sequence: f.Sequence + 1, Floor: f.Sequence + 1, Advance: wire.Advance{Present: true, Settled: true}}
	f.Sequence++
	if n := f.Push(1, func(p *wire.Push) { p.Advance = wire.Advance{Present: true, Wants: true} }).Near; n.Divisor == 0 {
		f.T.Fatal("the sender has no part again")
	}
	f.Send(late)
	f.Wants("hits which the sender may have advanced", 1, 1000, 0, Rule)
}

// A sender whose list is of another epoch hears all of the list, though its version is the newest.
func otherEpoch(f *Fleet) {
	f.Tells()
	f.Word.Epoch++
	epoch := f.Word.Epoch
	if n := f.Tells(); !n.Whole || n.LimitCount() != 1 || n.Epoch == epoch {
		f.T.Errorf("the sender hears %+v", n)
	}
}

// A key is near in the window in which half of its limit is used, also if senders say so whose clocks are ahead, and in the
// next one if the other half is used soon after. It is full from then on. A window stays on the list until no sender's clock
// is in it.
func nearInAWindow(f *Fleet) {
	counter := Hourly(0)
	name, number := counter.NearLimit(1000), uint64(f.Now.UnixMilli())/3600_000
	near := func(what string, key int, form uint64, want bool) {
		f.T.Helper()
		n := f.Whole()
		got := false
		for i := range n.KeyCount() {
			got = got || n.Key(i) == wire.NearKey(Hourly(key).ID, form)
		}
		must.Equal(f.T, got, want, "%s: near", what)
	}
	in, full := wire.NearWindow, wire.NearFull
	f.Hit(600, 1, 5)
	f.Now = f.Now.Add(2 * time.Second)
	f.Hit(400, 2, 3)
	f.Now = f.Now.Add(4 * time.Second)
	f.Hit(400, 4, 5)
	f.Push(2, func(p *wire.Push) {
		p.Items = []wire.Item{{LimitCounter: Hourly(3), Newest: number + 1, Hits: []int64{600}}}
	})
	near("half is used", 1, in(name, number), true)
	near("half is used, full", 1, full(name, number), false)
	near("half is used, the next window", 1, in(name, number+1), false)
	near("all is used at once", 2, in(name, number), true)
	near("all is used at once, full", 2, full(name, number), true)
	near("all is used at once, the next window", 2, in(name, number+1), true)
	near("all is used at once, the next window full", 2, full(name, number+1), false)
	near("all is used at once, the window after", 2, in(name, number+2), false)
	near("all is used", 4, in(name, number), true)
	near("all is used, full", 4, full(name, number), true)
	near("all is used, the next window", 4, in(name, number+1), false)
	near("used in the next window", 3, in(name, number), true)
	near("used in the next window, that one", 3, in(name, number+1), true)
	near("not used", 5, in(name, number), false)
	begins := time.UnixMilli(int64(number+1) * 3600_000)
	f.Now = begins.Add(3 * time.Second)
	near("a window that is over, reviewed", 1, in(name, number), true)
	near("a window that is over", 1, in(name, number), true)
	take := Thousand(9998, 1, 31)
	take.Rooms[0].Limit = 500
	for range 3 {
		f.Push(3, func(p *wire.Push) { p.Advance, p.Takes = wire.Advance{Present: true}, []wire.Take{take} })
	}
	near("a window that was over before the limit was asked for", 1, in(counter.NearLimit(500), number), true)
	f.Now = begins.Add(14 * time.Second)
	f.Whole() // the list is reviewed
	near("a window that is long over", 1, in(name, number), false)
	near("used before its window", 3, in(name, number+1), true)
}

// Entries for full keys and for the next window take no room from near keys: a limit stays on the list that
// has fewer near keys than the list may have.
func fullKeys(f *Fleet) {
	f.Hit(1000, 0, wire.MaxNearKeys/2)
	if n := f.Whole(); n.LimitCount() != 1 || n.KeyCount() < wire.MaxNearKeys/2 || n.KeyCount() > wire.MaxNearKeys {
		f.T.Errorf("with %d full keys there are %d limits on the list, and %d entries", wire.MaxNearKeys/2, n.LimitCount(), n.KeyCount())
	}
}

// Two rules may have the same limit. Senders advance hits of those that the list names, and hits are left for
// them by takes of these alone, whatever else a node's configuration says of the rule.
func rules(f *Fleet) {
	counter := Hourly(0)
	lists := func(n wire.Near, tags ...uint16) {
		f.T.Helper()
		var got, want []uint64
		for i := range n.LimitCount() {
			got = append(got, n.Limit(i))
		}
		for _, tag := range tags {
			want = append(want, wire.NearRule(counter.NearLimit(1000), tag))
		}
		if !n.Whole || !slices.Equal(got, want) {
			f.T.Errorf("whole list: %t, it has %v, want %v", n.Whole, got, want)
		}
	}
	lists(f.Whole(), Rule)
	f.Wants("a rule whose hits nobody advances", 1, 1000, 1000, 20)
	f.Wants("a rule that is asked for", 2, 1, 1, 21)
	lists(f.Tells(), Rule, 21)
	lists(f.Whole(), Rule, 21)
	for _, tag := range []uint16{20, 21, Rule, 0} {
		f.Wants("hits which the sender may have advanced", 3, 1000, 0, tag)
	}
	f.Hit(500, 3, 4)
	f.Tells()
	f.Tells() // it knows that the key is near
	f.Wants("what is left", 3, 500, 500, 21)
}

// The list names so many limits of rules, and no more. Hits of others are never kept back.
func tooManyRules(f *Fleet) {
	for tag := uint16(3 + Rule); tag < 4*wire.MaxNearLimits; tag += 2 {
		f.Wants("a hit", 1, 1, 1, tag|1)
	}
	n := f.Whole()
	must.Equal(f.T, n.LimitCount(), wire.MaxNearLimits, "limits in the list")
	if _, err := wire.DecodeAnswer(wire.AppendAnswer(nil, &wire.Answer{Near: n})); err != nil {
		f.T.Error(err)
	}
	f.Wants("a rule that is not on the list", 2, 1000, 1000, 4*wire.MaxNearLimits-1)
}

// A limit with too many near keys leaves the list. All of it can be had again when the sender knows that.
// Once fewer keys are near, the limit comes back.
func tooManyNearKeys(f *Fleet) {
	f.Hit(500, 0, wire.MaxNearKeys+1)
	f.Wants("hits which the sender may have advanced", 60_000, 1000, 0, Rule)
	if n := f.Tells(); !n.Whole || n.LimitCount() != 0 || n.KeyCount() != 0 {
		f.T.Fatalf("the sender hears of %d limits and %d keys", n.LimitCount(), n.KeyCount())
	}
	f.Tells()
	f.Wants("all", 60_000, 1000, 1000, Rule)
	f.Hit(600, 70_000, 70_001)
	for range 110 {
		f.Now = f.Now.Add(5 * time.Second)
		n := f.Tells()
		must.EqualOrEnd(f.T, n.LimitCount(), 0, "limits of a tell: they do not rest")
	}
	listed := func(what string, want bool) {
		f.T.Helper()
		limits, keys := 0, 0
		for range 40 {
			n := f.Tells()
			limits, keys = limits+n.LimitCount(), keys+n.KeyCount()
			f.Now = f.Now.Add(time.Second)
		}
		if want != (limits == 1 && keys >= 3) {
			f.T.Errorf("%s: the sender hears of %d limits and %d keys", what, limits, keys)
		}
	}
	listed("as many are near as before", false)
	for range 4 {
		f.Now = f.Now.Add(20 * time.Minute)
		f.Wants("a key", 80_000, 1, 1, Rule)
	}
	f.Hit(700, 0, 3)
	listed("three are near", true)
}

// FarAgain wants keys that are far again to leave the list. When many have, senders get all of it. spoil comes before that.
func FarAgain(f *Fleet, spoil func()) {
	f.Hit(600, 0, 200)
	if n := f.Tells(); n.Whole || n.KeyCount() != 200 {
		f.T.Fatalf("the sender hears of %d keys", n.KeyCount())
	}
	spoil()
	for range 3 {
		f.Now = f.Now.Add(20 * time.Minute)
		f.Wants("a key", 80_000, 1, 1, Rule)
	}
	f.Hit(600, 0, 10)
	whole := false
	for range 40 {
		f.Now = f.Now.Add(time.Second)
		n := f.Tells()
		if whole = whole || n.Whole; n.Whole && (n.KeyCount() != 10 || n.LimitCount() != 1) {
			f.T.Errorf("the list has %d keys and %d limits, want 10 and 1", n.KeyCount(), n.LimitCount())
		}
	}
	if !whole || f.Word.Divisor == 0 {
		f.T.Errorf("whole list: %t, divisor %d", whole, f.Word.Divisor)
	}
}

// A limit that nobody asks for is forgotten with its keys, which leave room for those of others.
func staleLimits(f *Fleet) {
	f.Hit(600, 0, 2)
	for range 8 {
		f.Now = f.Now.Add(15 * time.Minute)
		for range 3 {
			f.Now = f.Now.Add(time.Second)
			f.Tells()
		}
	}
	f.Now = f.Now.Add(time.Minute)
	f.Tells()
	if n := f.Whole(); f.limits() != 0 || n.LimitCount() != 0 || n.KeyCount() != 0 {
		f.T.Errorf("%d limits are known, and %d are listed with %d keys", f.limits(), n.LimitCount(), n.KeyCount())
	}
}

// What a silent sender may have advanced is left until the window is over, however long that takes.
func partsLast(f *Fleet) {
	for _, then := range []struct {
		wait  time.Duration
		units uint64
	}{{30 * time.Minute, 0}, {2 * time.Hour, 1000}} {
		f.Now = f.Now.Add(then.wait)
		for range 3 {
			f.Now = f.Now.Add(2 * time.Second)
			f.Hit(1, 50, 51)
		}
		f.Wants("all of a limit", 1, 1000, then.units, Rule)
	}
}

// Nobody gets the hits that a silent sender may have advanced. Senders that are refused hear that it is used, or they
// would ask for each request; and a window that begins after the part's end lacks nothing.
func silentSenders(f *Fleet, kind window.Kind) {
	const limit = 1000
	take := func(key byte, least, most uint64) wire.Take {
		counter := wire.LimitCounter{ID: wire.ID{key}, Kind: uint8(kind), WidthMillis: 60_000}
		return wire.Take{Least: least, Most: most, Rooms: []wire.Room{{LimitCounter: counter, Limit: limit, Cost: 1, Tag: Rule}}}
	}
	ask := func(what string, key byte, least, most, units, used uint64) {
		f.T.Helper()
		g := f.Push(2, func(p *wire.Push) { p.Takes = []wire.Take{take(key, least, most)} }).Grants[0]
		must.Equal(f.T, g.Units, units, "%s: hits that are granted", what)
		must.Equal(f.T, g.Totals[0].Hits[0], used, "%s: hits that are used", what)
	}
	for range 3 {
		f.Hear(f.Push(1, func(p *wire.Push) { p.Advance, p.Takes = f.Word, []wire.Take{take(2, 1, 1)} }).Near)
	}
	last := &wire.Push{Namespace: "ns", Sender: 1, Sequence: f.Sequence, Floor: f.Sequence, Advance: f.Word, Takes: []wire.Take{take(2, 1, 1)}}
	part := wire.MostAdvanced(limit, f.Word.Divisor)
	if n := f.Whole(); part == 0 || n.LimitCount() != 1 {
		f.T.Fatal("the sender has no part")
	}

	// While it is not known to be silent, others hear what is counted: they may get the rest soon.
	ask("all but its part", 1, 1, limit, limit-part, limit-part)
	ask("a live sender", 1, 1, 1, 0, limit-part)
	f.Now = f.Now.Add(9 * time.Second)
	f.Send(last) // again: its answer prolongs the part
	f.Now = f.Now.Add(9 * time.Second)
	ask("a push that came again", 1, 1, 1, 0, limit-part)
	f.Now = f.Now.Add(9 * time.Second)
	f.Push(3, func(p *wire.Push) { p.Advance = wire.Advance{Present: true} })
	used := uint64(limit)
	if kind == window.SlidingWindow {
		used -= part // each hit that is back is asked for
	}
	ask("a silent sender", 1, 1, 1, 0, used)
	ask("more than what is left", 1, part+1, part+1, 0, used)

	// Its hits may count in the window of the part's end, and with a sliding window in the next.
	f.Now = f.Now.Add(35 * time.Second)
	left := limit - part
	if kind == window.FixedWindow {
		left = limit
	}
	ask("the next window", 3, 1, limit, left, left)
	f.Now = f.Now.Add(time.Minute)
	ask("the window after", 4, 1, limit, limit, limit)
}
