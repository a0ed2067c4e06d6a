package store_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"weir/internal/must"
	"weir/internal/store"
	"weir/internal/wire"
	"weir/window"
)

// Each row is the life of five hits: until when they count, until when their total can be read, when a store may forget
// them, and from when on it need not know a copy of their push.
func TestHitsEnd(t *testing.T) {
	t.Parallel()
	const grace, sevenths = store.Grace, 42_857_142_858 * time.Nanosecond // in which 5 of 7 tokens a minute return
	for _, test := range []struct {
		item                           wire.Item
		counts, read, expires, settled time.Duration
	}{
		{item(fixed, 1, minute, 0, 5), minute, minute + grace, minute + grace, minute + grace},
		{item(fixed, 1, second, 0, 5), second, 2 * second, 2 * second, 2 * second},
		{item(sliding, 1, minute, 0, 5), 2 * minute, 2*minute + grace, 2*minute + grace, 2*minute + grace},
		{item(sliding, 1, minute, 0, 0, 5), minute, minute + grace, minute + grace, 2*minute + grace},
		{item(fixed, 1, minute, minute, 5), 2 * minute, 2*minute + grace, 2*minute + grace, 2*minute + grace},
		{item(firstHit, 1, minute, 0, 5), minute, minute, minute + grace, minute + grace},
		{item(firstHit, 1, minute, -15*second, 5), 45 * second, 45 * second, 45*second + grace, 45*second + grace},
		{quarters(1, hits(quarter, 5)), minute, minute + grace, minute + grace, minute + grace},
		{quarters(1, hits(quarter-1, 5)), 45 * second, 45*second + grace, 45*second + grace, 45*second + grace},
		{bucketItem(1, second, second, 9, hits(epoch/1e9, 5)), second, 2 * second, 2 * second, 2 * second},
		{log(1, 10, hits(epoch, 5)), minute, minute + grace, minute + grace, minute + grace},
		{log(1, 10, hits(epoch-1, 5)), minute - 1, minute + grace - 1, minute + grace - 1, minute + grace - 1},
		{tokenItem(1, 10, 0, 5), 30 * second, 30 * second, 30*second + grace, 90*second + store.Ahead},
		{tokenItem(1, 7, 0, 5), sevenths, sevenths, sevenths + grace, sevenths + minute + store.Ahead},
		{tokenItem(1, 10, -6*second, 5), 24 * second, 24 * second, 24*second + grace, 84*second + store.Ahead},
		{tokenItem(1, 0, 0, 5), minute, minute, minute + grace, 2*minute + store.Ahead},
	} {
		l, c := newLedger(t), test.item.LimitCounter
		name := fmt.Sprintf("%+v", test.item)
		must.Equal(t, time.Duration(l.Settled(&test.item)-epoch), test.settled, "%s: settled after", name)
		l.push(test.item)
		l.counted(name, 5, 0, 0)
		must.Equal(t, time.Duration(l.expires[c]-epoch), test.expires, "%s: expires after", name)
		asked := test.item
		asked.Hits = make([]int64, len(asked.Hits))
		for _, is := range []struct {
			after        time.Duration
			counts, read bool
		}{{test.counts - 1, true, true}, {test.counts, false, test.read > test.counts}, {test.read - 1, test.counts == test.read, true}, {test.read, false, false}} {
			l.set(is.after)
			must.Equal(t, len(l.counting(c)) > 0, is.counts, "%s: counts after %v", name, is.after)
			must.Equal(t, sumOf(l.Total(&asked)) == 5, is.read, "%s: can be read after %v", name, is.after)
		}
		l.set(max(test.settled, test.counts))
		again := newLedger(t)
		again.NowNanos = l.NowNanos
		again.push(test.item)
		again.counted(name+" comes again", 0, 0, 5)
	}
}

// A push's record outlives all of its hits, and the time in which it is sent again.
func TestNotedUntil(t *testing.T) {
	t.Parallel()
	c := store.Calendar{NowNanos: epoch}
	p := &wire.Push{}
	want := func(name string, after time.Duration) {
		t.Helper()
		must.Equal(t, time.Duration(c.NotedUntil(p)-epoch), after, "%s", name)
	}
	want("nothing", store.SenderLife)
	p.Items = []wire.Item{item(fixed, 1, minute, 0, 1), {LimitCounter: counter(buckets, 1, day), Newest: epoch}}
	want("short windows, and a bucket without hits", store.SenderLife)
	p.Items = append(p.Items, item(sliding, 1, day, 0, 1), item(fixed, 1, minute, 0, 1))
	want("a day", 2*day+store.Grace)
	p.Takes = []wire.Take{take(1, 1, wire.Room{LimitCounter: counter(fixed, 1, 7*day)})}
	want("a take", max(2*day+store.Grace, store.SenderLife+time.Duration(p.AgainNanos())))
	p.Items = nil
	want("only a take", store.SenderLife+time.Duration(p.AgainNanos()))
}

// A sender's clock may be ahead by as much as is plausible. What comes from further ahead is dropped.
func TestAhead(t *testing.T) {
	t.Parallel()
	const century = 100 * 366 * day
	of := func(kind uint8, width, ahead time.Duration) wire.Item { return item(kind, 1, width, ahead, 5) }
	in := func(width, precision, ahead time.Duration) wire.Item {
		return bucketItem(1, width, precision, 10, hits(at(ahead)/uint64(precision), 5))
	}
	last := func(it wire.Item) wire.Item {
		it.Newest = math.MaxUint64
		return it
	}
	for name, test := range map[string]struct{ last, first wire.Item }{
		"10 minutes":               {of(fixed, minute, 10*minute), of(fixed, minute, 11*minute)},
		"two wide windows":         {of(sliding, day, 2*day), of(sliding, day, 3*day)},
		"64 narrow windows":        {of(sliding, time.Millisecond, 64*time.Millisecond), of(sliding, time.Millisecond, 65*time.Millisecond)},
		"first hit, 10 minutes":    {of(firstHit, minute, 10*minute), of(firstHit, minute, 10*minute+1)},
		"first hit, two widths":    {of(firstHit, day, 2*day), of(firstHit, day, 2*day+1)},
		"tokens, 10 minutes":       {tokenItem(1, 10, 10*minute, 5), tokenItem(1, 10, 10*minute+1, 5)},
		"buckets, 10 minutes":      {in(minute, 15*second, 10*minute), in(minute, 15*second, 10*minute+15*second)},
		"buckets, two wide":        {in(day, day/8, 2*day), in(day, day/8, 2*day+day/8)},
		"buckets, 64 narrow":       {in(5*second, 5*second/64, 320*second), in(5*second, 5*second/64, 320*second+5*second/64)},
		"a log, 10 minutes":        {in(minute, 1, 10*minute), in(minute, 1, 10*minute+1)},
		"a century":                {of(fixed, minute, 10*minute), of(fixed, minute, century)},
		"first hit, a century":     {of(firstHit, minute, 10*minute), of(firstHit, minute, century)},
		"a log, a century":         {in(minute, 1, 10*minute), in(minute, 1, century)},
		"the last number of all":   {of(fixed, minute, 0), last(of(fixed, minute, 0))},
		"first hit, the last":      {of(firstHit, minute, 0), last(of(firstHit, minute, 0))},
		"tokens, the last":         {tokenItem(1, 10, 0, 5), last(tokenItem(1, 10, 0, 5))},
		"a log, the last":          {in(minute, 1, 0), last(log(1, 10, hits(epoch, 5)))},
		"tokens, of a large limit": {tokenItem(1, wire.MaxHits, 0, 5), last(tokenItem(1, wire.MaxHits, 0, 5))},
	} {
		l := newLedger(t)
		if got := l.Settled(&test.first); window.Kind(test.first.Kind).Started() && got != epoch {
			t.Errorf("%s: what is dropped is to be known for %v", name, time.Duration(got-epoch))
		}
		l.push(test.first)
		l.counted(name+", too far", 0, 0, 5)
		l.push(test.last)
		l.counted(name, 5, 0, 0)
		// Hits of now take nothing from them. Other kinds' count now, too: a hit can't come later.
		r := wire.Room{LimitCounter: test.last.LimitCounter, Limit: test.last.Limit}
		present := l.RoomItem(&r, 1)
		l.push(present)
		l.push(present)
		present.Hits[0] = -2
		l.push(present)
		l.counted(name+", hits of now", 0, 2, 0)
		asked := test.last
		asked.Hits = make([]int64, len(asked.Hits))
		if window.Kind(asked.Kind).Bucketed() {
			asked.Newest = store.NumberAt(asked.LimitCounter, epoch)
		}
		if got := l.Total(&asked); sumOf(got) != 5 || !window.Kind(asked.Kind).Clocked() && got.Newest != store.NumberAt(asked.LimitCounter, epoch) {
			t.Errorf("%s: total %+v, want 5 hits of now", name, got)
		}
	}
}

// If the clock is set back, nothing is lost that still counts, and nothing comes back that was forgotten.
func TestClockSetBack(t *testing.T) {
	t.Parallel()
	for _, kind := range []uint8{fixed, sliding} {
		l := newLedger(t)
		l.hits(item(kind, 1, minute, 0, 3), 3)
		l.set(-second)
		l.hits(item(kind, 1, minute, 0, 1), 4)
		l.set(minute)
		l.hits(item(kind, 1, minute, minute, 1), 1)
		l.pass(time.Duration(window.Kind(kind).Windows()-1)*minute + store.Grace)
		l.hits(item(kind, 1, minute, minute, 1), 2)
		l.set(0)
		l.hits(item(kind, 1, minute, 0, 0), 0)
	}
	l := newLedger(t)
	l.hits(item(firstHit, 1, minute, 0, 1), 1)
	l.set(-second)
	l.hits(item(firstHit, 1, minute, 0, 1), 2)
}

// forget forgets the counters that have expired.
func (l *ledger) forget() {
	for c, expires := range l.expires {
		if expires <= l.NowNanos {
			delete(l.counters, c)
			delete(l.expires, c)
		}
	}
}

// A store that forgets counters when they have expired answers like one that keeps all.
func TestForgetting(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(3, 1))
	keeps, forgets := newLedger(t), newLedger(t)
	shapes := rooms(20, 1)
	forgotten := 0
	for step := range 8000 {
		keeps.pass(time.Duration(random.Int64N(1 << (20 + random.Int64N(16)))))
		forgets.NowNanos = keeps.NowNanos
		before := len(forgets.counters)
		forgets.forget()
		forgotten += before - len(forgets.counters)
		r := shapes[random.IntN(len(shapes))]
		it := keeps.moved(r, time.Duration(random.Int64N(int64(3*minute)))-2*minute, random.Int64N(9)-2)
		for _, l := range []*ledger{keeps, forgets} {
			l.push(it)
		}
		if got, want := forgets.Total(&it), keeps.Total(&it); !reflect.DeepEqual(got, want) || !reflect.DeepEqual(forgets.out, keeps.out) {
			t.Fatalf("step %d, %+v: %+v, %+v; want %+v, %+v", step, it, got, forgets.out, want, keeps.out)
		}
		asked := take(1, 30, r)
		if got, want := forgets.Decide(&asked, 1, forgets), keeps.Decide(&asked, 1, keeps); !reflect.DeepEqual(got, want) {
			t.Fatalf("step %d: %+v, want %+v", step, got, want)
		}
	}
	must.AtLeast(t, forgotten, 100, "counters that were forgotten")
}
