package engine_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"weir/internal/backend"
	"weir/internal/backend/backendtest"
	"weir/internal/calendar"
	"weir/internal/counter"
	"weir/internal/engine"
	"weir/internal/engine/entry"
	"weir/internal/engine/link"
	"weir/internal/failure"
	"weir/internal/must"
	"weir/internal/wire"
	"weir/window"
)

// revealing is a rule that tells what its keys use.
func revealing(limits ...window.Limit) fakeRule {
	r := users(limits...)
	r.reveal = 255
	return r
}

// tellsUsage reports whether a push is about usage.
func tellsUsage(p fakePush) bool { return wire.IsUsed(p.body) }

// used asks the backend how much keys have used: by rule, name, model and day.
func (w *world) used() (all map[string]int64) {
	w.t.Helper()
	all = map[string]int64{}
	backendtest.Used(w.t, w.store, "default", func(l wire.UsedLabel, name string, at uint32, hits int64) {
		all[fmt.Sprint(l.Rule, " ", name, " ", l.Model, " ", int64(at)-monday/day)] += hits
	})
	maps.DeleteFunc(all, func(_ string, hits int64) bool { return hits == 0 })
	return all
}

func (w *world) wantUsed(want map[string]int64) {
	w.t.Helper()
	must.Same(w.t, w.used(), want, "used")
}

// Hits that pass are told by key and day, and no others. A charge counts on the day of its request with
// its cost in the end.
func TestUsed(t *testing.T) {
	w, f := alone(t, second, engine.Options{}, revealing(limit(window.FixedWindow, 100, 7*day)), users(limit(window.FixedWindow, 1000, day)))
	f.sendOf("ann", 30)
	f.sendOf("bob", 5)
	must.EqualOrEnd(t, f.sendOf("ann", 71), false, "it passed")
	late := f.reserve("bob", 50)
	w.quiet()
	w.wantUsed(map[string]int64{"rule-0 ann  0": 30, "rule-0 bob  0": 55})
	w.pass(24 * time.Hour)
	late.revise(20)
	w.quiet()
	w.wantUsed(map[string]int64{"rule-0 ann  0": 30, "rule-0 bob  0": 25})
	f.charge("ann")
	f.reserve("ann", 40).revise(0)
	w.quiet()
	w.wantUsed(map[string]int64{"rule-0 ann  0": 30, "rule-0 bob  0": 25, "rule-0 ann  1": 1})
	must.Equal(t, f.Unfinished(), false, "there is something left")
}

// A model may turn out to be another in the end.
func TestUsedByModels(t *testing.T) {
	w, f := alone(t, second, engine.Options{}, revealing(fixed(1000)))
	f.checks[0].Model = "most"
	a, b := f.reserve("ann", 10), f.reserve("ann", 10)
	c := f.reserve("ann", 10)
	w.quiet()
	w.wantUsed(map[string]int64{"rule-0 ann most 0": 30})
	a.charges[0].Model, b.charges[0].Model = "small", "large"
	a.revise(3)
	b.revise(10)
	c.revise(12)
	w.quiet()
	w.wantUsed(map[string]int64{"rule-0 ann most 0": 12, "rule-0 ann small 0": 3, "rule-0 ann large 0": 10})
}

// Days are those of the zone of a rule's calendar.
func TestUsedInZones(t *testing.T) {
	of := func(zone string) window.Limit {
		l := limit(window.FixedWindow, 100, calendar.Lengths[calendar.Month])
		c, fault := calendar.New(calendar.Month, zone, 0, 0)
		must.EqualOrEnd(t, fault, calendar.Sound, "%s", zone)
		l.Calendar = c
		return l
	}
	w, f := alone(t, second, engine.Options{}, revealing(of("Asia/Tokyo")), revealing(of("America/Los_Angeles")), revealing(fixed(100)))
	f.sendOf("ann", 1) // at midnight of UTC
	w.pass(14*time.Hour + 59*time.Minute)
	f.sendOf("ann", 2)
	w.pass(time.Minute)
	f.sendOf("ann", 4) // Tokyo's midnight
	w.quiet()
	w.wantUsed(map[string]int64{
		"rule-0 ann  0": 3, "rule-0 ann  1": 4, "rule-1 ann  -1": 1, "rule-1 ann  0": 6, "rule-2 ann  0": 7,
	})
}

// Whatever is lost, doubled or late on the way: the backend has what passed, to the last hit, while
// configurations are replaced and the backend is away.
func TestUsedExactly(t *testing.T) {
	for _, rate := range []int64{0, second / 10, 2 * second} {
		t.Run(fmt.Sprint(time.Duration(rate)), func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(20) {
				useAtRandom(t, rate, seed)
			}
		})
	}
}

func useAtRandom(t *testing.T, rate int64, seed uint64) {
	rule := revealing(limit(window.FixedWindow, 4000, 300*day))
	rule.costsLater = true
	w := newWorld(t, 2, 2, rate, engine.Options{OnBackendFailure: failure.Local}, rule)
	w.random = rand.New(rand.NewPCG(seed, 32))
	w.lossBefore, w.lossAfter = 0.2, 0.2
	want := map[string]int64{}
	var open []*charged
	var keys []string
	for range 300 {
		f := w.any()
		switch w.random.IntN(10) {
		case 0:
			if len(open) > 0 {
				i := w.random.IntN(len(open))
				cost := uint64(w.random.IntN(60))
				want[keys[i]] += int64(cost) - int64(open[i].charges[0].Cost)
				open[i].revise(cost)
				open, keys = append(open[:i], open[i+1:]...), append(keys[:i], keys[i+1:]...)
			}
		case 1:
			w.advance(time.Duration(w.random.IntN(5)) * time.Second)
		case 2: // a message from long ago
			if n := len(w.zombies); n > 0 {
				w.apply(w.zombies[w.random.IntN(n)])
			}
		case 3:
			w.lossBefore = []float64{0.2, 0.2, 1}[w.random.IntN(3)]
		default:
			user := fmt.Sprint("user ", w.random.IntN(12))
			before := w.lossBefore
			c := f.reserve(user, uint64(1+w.random.IntN(30)))
			w.lossBefore = before
			if c.verdict != counter.Allowed {
				continue
			}
			key := fmt.Sprint("rule-0 ", user, "  ", (w.now)/day-monday/day)
			want[key] += int64(c.charges[0].Cost)
			open, keys = append(open, c), append(keys, key)
		}
	}
	w.quiet()
	maps.DeleteFunc(want, func(_ string, hits int64) bool { return hits == 0 })
	w.wantUsed(want)
	must.Equal(t, w.tallied(func(t *entry.Tallies) uint64 { return t.Lost }), 0, "hits lost, of %d keys", len(want))
	must.Equal(t, len(want) > 0, true, "keys were used")
}

// Workers die, or end with or without an heir, while messages are lost, doubled and late. What is missing in the usage was
// counted in a gap that the backend tells of. Who has ended with a word has left none, nor who is there.
func TestUsedTellsGaps(t *testing.T) {
	died, told, lost := 0, 0, int64(0)
	for seed := range uint64(60) {
		d, g, l := dieAtRandom(t, seed)
		died, told, lost = died+d, told+g, lost+l
	}
	must.AtLeast(t, min(died, told, int(lost)), 60, "the fewest of %d workers that died, %d gaps and %d hits lost", died, told, lost)
}

func dieAtRandom(t *testing.T, seed uint64) (died, told int, lost int64) {
	t.Helper()
	r := revealing(limit(window.FixedWindow, 1<<40, 300*day))
	w := newWorld(t, 2, 2, second/5, engine.Options{}, r)
	w.teller = backend.New(w.store)
	w.teller.Now = func() time.Time { return time.Unix(0, w.now) }
	w.random = rand.New(rand.NewPCG(seed, 55))
	type hit struct{ at, cost int64 }
	w.senders = map[uint64]*fakeNode{}
	names := map[*fakeNode]string{}
	counted, dead, want, heirs := map[string][]hit{}, map[string]bool{}, map[string]int64{}, map[string]string{}
	nameOf := func(f *fakeNode) string {
		if names[f] == "" {
			names[f] = fmt.Sprint("worker ", len(names))
		}
		return names[f]
	}
	// start lets the backend hear of a worker: nothing can tell of those that die before.
	start := func(p *fakeProcess) *fakeNode {
		f := p.startOf(second/5, engine.Options{}, r)
		w.lossBefore, w.lossAfter = 0, 0
		for !slices.Contains(slices.Collect(maps.Values(w.senders)), f) {
			w.advance(100 * time.Millisecond)
		}
		w.lossBefore, w.lossAfter = 0.3, 0.3
		return f
	}
	for _, p := range w.processes {
		start(p)
	}
	for range 400 {
		f := w.any()
		nameOf(f)
		switch at := slices.Index(w.nodes, f); w.random.IntN(40) {
		case 0, 1: // it dies, and with it what it has inherited and not told
			dead[names[f]] = true
			died++
			w.nodes = slices.Delete(w.nodes, at, at+1)
			start(f.process)
		case 2:
			f.Leave()
			often(80, w.advance, 100*time.Millisecond)
			must.EqualOrEnd(t, f.Left(), true, "it has not left")
			dead[names[f]] = f.Unfinished() || f.BreakerOpen() // it gives up, if all answers are lost or nothing can be sent
			w.nodes = slices.Delete(w.nodes, at, at+1)
			start(f.process)
		case 3:
			heir := start(f.process)
			heir.Inherit(f.Engine)
			heirs[names[f]] = nameOf(heir)
			w.nodes = slices.Delete(w.nodes, at, at+1)
			if w.random.IntN(2) == 0 { // it dies soon
				w.advance(100 * time.Millisecond)
				dead[names[heir]] = true
				w.nodes[slices.Index(w.nodes, heir)] = w.nodes[len(w.nodes)-1]
				w.nodes = w.nodes[:len(w.nodes)-1]
				start(f.process)
			}
		case 4:
			if n := len(w.zombies); n > 0 {
				w.apply(w.zombies[w.random.IntN(n)])
			}
		case 5:
			w.advance(time.Duration(w.random.IntN(50)) * time.Second)
		case 6, 7, 8, 9, 10, 11, 12:
			w.advance(100 * time.Millisecond)
		default:
			key, cost := names[f], int64(1+w.random.IntN(30))
			if f.sendOf(key, uint64(cost)) {
				counted[key], want[key] = append(counted[key], hit{w.now, cost}), want[key]+cost
			}
		}
	}
	w.quiet()
	gaps, since, err := w.teller.Gaps(t.Context(), "default", 0, wire.MaxUsedDay)
	must.OK(t, err)
	must.EqualOrEnd(t, since.IsZero(), true, "gaps are told since %v", since)
	from := map[string]int64{}
	for i := range gaps {
		g := &gaps[i]
		name := nameOf(w.senders[uint64(g.Sender)])
		from[name] = g.From.UnixNano()
		lives := name
		for lives != "" && !dead[lives] {
			lives = heirs[lives] // which may have died before it had told all
		}
		must.Equal(t, lives != "", true, "seed %d: a gap of %q is of one that has died: %+v", seed, name, g)
	}
	used := w.used()
	for name, n := range want {
		missing := n - used["rule-0 "+name+"  0"]
		lost += missing
		in := int64(0)
		for _, h := range counted[name] {
			if at, gap := from[name]; gap && h.at >= at {
				in += h.cost
			}
		}
		must.Between(t, missing, 0, in, "seed %d: missing of %d hits of %s, up to those that were counted in a gap", seed, n, name)
	}
	return died, len(gaps), lost
}

// While the backend is away a worker remembers so many keys, and counts others together. Nothing is
// lost, and messages are bounded.
func TestUsedIsBounded(t *testing.T) {
	w, f := alone(t, second, engine.Options{}, revealing(fixed(10)))
	f.refuse = true
	const most, more = 4096, 500
	const users = most + more
	for i := range users {
		f.sendOf(fmt.Sprint("user ", i), 2)
	}
	f.refuse = false
	for range 100 {
		w.advance(time.Second)
		for _, p := range f.sent {
			if tellsUsage(p) && len(p.body) > wire.MaxUsed {
				t.Errorf("a message of %d bytes", len(p.body))
			}
		}
	}
	got, sum := w.used(), int64(0)
	for _, hits := range got {
		sum += hits
	}
	must.Equal(t, [3]int64{sum, got["rule-0 others  0"], int64(len(got))}, [3]int64{2 * users, 2 * more, most + 1}, "used, by others, and keys")
}

// A node that leaves tells all that it knows, and an heir what the node could not tell.
func TestUsedIsInherited(t *testing.T) {
	p := newProcess(t)
	first := p.startOf(second, engine.Options{}, revealing(fixed(100)))
	first.sendOf("ann", 7)
	p.pass(2 * time.Second)
	first.tick() // its message is out
	pushes := first.taken()
	first.sendOf("ann", 5)
	first.sendOf("bob", 1)
	// The new configuration tells nothing of the rule.
	second := p.startOf(second, engine.Options{}, users(fixed(100)))
	second.Inherit(first.Engine)
	for _, push := range pushes { // it arrives, and its answer does not
		p.apply(push.body)
	}
	p.nodes = p.nodes[1:]
	p.quiet()
	p.wantUsed(map[string]int64{"rule-0 ann  0": 12, "rule-0 bob  0": 1})
	third := p.startOf(int64(1e9), engine.Options{}, revealing(fixed(100)))
	third.sendOf("ann", 8)
	third.Leave()
	for range 5 {
		third.deliver()
	}
	must.Equal(t, third.Left(), true, "it has not left")
	p.wantUsed(map[string]int64{"rule-0 ann  0": 20, "rule-0 bob  0": 1})
}

// An heir says that another has ended once the backend has all that the other has counted, and not before.
func TestUsedEndsAfterTheLastMessage(t *testing.T) {
	p := newProcess(t)
	first := p.startOf(second, engine.Options{}, revealing(fixed(100)))
	first.sendOf("ann", 7)
	p.pass(2 * time.Second)
	first.tick()
	sender := uint64(0)
	for _, push := range first.taken() {
		if u, err := wire.DecodeUsed(push.body); err == nil {
			sender = u.Sender
		}
	}
	heir := p.startOf(second, engine.Options{}, revealing(fixed(100)))
	heir.Inherit(first.Engine)
	p.nodes = p.nodes[1:]
	for range 10 {
		p.pass(2 * time.Second)
		heir.tick()
		for _, push := range heir.taken() {
			switch u, err := wire.DecodeUsed(push.body); {
			case err == nil && u.Sender == sender:
				heir.lose(push)
			case err == nil && slices.Contains(u.Ended, sender):
				t.Fatal("it has ended with a message on its way")
			default:
				heir.answer(push)
			}
		}
	}
	ended := false
	for range 10 {
		p.pass(2 * time.Second)
		heir.tick()
		for _, push := range heir.taken() {
			u, err := wire.DecodeUsed(push.body)
			ended = ended || err == nil && slices.Contains(u.Ended, sender)
			heir.answer(push)
		}
	}
	p.wantUsed(map[string]int64{"rule-0 ann  0": 7})
	must.Equal(t, sender != 0 && ended, true, "the end of %d is told", sender)
}

// An answer that is another's does not end a message, and a backend that knows none is asked again.
func TestUsedIsToldAgain(t *testing.T) {
	w, f := alone(t, second, engine.Options{}, revealing(fixed(100)))
	f.sendOf("ann", 7)
	for i, outcome := range []link.Outcome{link.PushRefused, link.PushAnswered, link.PushAnswered, 415, link.PushLost} {
		for tries := 0; !slices.ContainsFunc(f.sent, tellsUsage); tries++ {
			must.EqualOrEnd(t, tries < 100, true, "it is told again")
			w.pass(time.Second)
			f.tick()
		}
		for _, p := range f.taken() {
			if !tellsUsage(p) {
				f.answer(p)
				continue
			}
			f.Answered(p.ticket, outcome, [][]byte{nil, wire.AppendUsedAnswer(nil, 99), {}, nil, nil}[i])
		}
	}
	w.quiet()
	w.wantUsed(map[string]int64{"rule-0 ann  0": 7})
	must.Equal(t, f.Tallies.Lost, 0, "lost")
	// In the end it is given up: by then a backend may have forgotten what it has counted.
	f.sendOf("ann", 3)
	f.refuse = true
	for range 30 {
		w.pass(time.Hour)
		f.tick()
	}
	got := f.Tallies.Lost
	f.refuse = false
	if w.quiet(); got < 3 || f.Unfinished() {
		t.Errorf("%d were lost, and something is left: %t", got, f.Unfinished())
	}
}

// A worker that was cut off for more than a day tells what it has counted as another: the backend has told for good that of
// the first, and of another that it has inherited, some may be missing.
func TestUsedTellsGapsForGood(t *testing.T) {
	for _, test := range []struct {
		hours        int
		idle         bool // when cut off, so that it has no message on its way
		inherits     bool
		gaps, missed int
	}{{hours: 23}, {hours: 30, gaps: 1, missed: 1}, {hours: 30, idle: true, gaps: 1}, {hours: 23, inherits: true}, {hours: 30, inherits: true, gaps: 1, missed: 1}, {hours: 30, idle: true, inherits: true, gaps: 1}} {
		w, f := alone(t, second, engine.Options{}, revealing(fixed(1000)))
		w.teller, w.senders = backend.New(w.store), map[uint64]*fakeNode{}
		w.teller.Now = func() time.Time { return time.Unix(0, w.now) }
		f.sendOf("ann", 7)
		w.quiet()
		w.lossBefore, f.refuse = 1, test.idle
		for range 40 {
			f.sendOf("ann", 1)
			w.advance(time.Second)
		}
		f.refuse = false
		if test.inherits {
			heir := f.process.startOf(second, engine.Options{}, revealing(fixed(1000)))
			heir.Inherit(f.Engine)
			w.nodes = w.nodes[1:]
			f = heir
		}
		for range test.hours {
			w.pass(time.Hour)
			w.advance(time.Second)
		}
		f.sendOf("ann", 100)
		w.quiet()
		gaps, _, err := w.teller.Gaps(t.Context(), "default", 0, wire.MaxUsedDay)
		told := int64(0)
		for _, hits := range w.used() {
			told += hits
		}
		if err != nil || len(gaps) != test.gaps || f.Tallies.Lost != uint64(test.missed) || told != int64(147-test.missed) {
			t.Errorf("%+v: gaps %+v, error %v, %d lost, used %v", test, gaps, err, f.Tallies.Lost, w.used())
		}
	}
}

// What an heir tells of the end of another is not repeated for longer than the other could have told it.
func TestUsedEndsWithinADay(t *testing.T) {
	p := newProcess(t)
	first := p.startOf(second, engine.Options{}, revealing(fixed(100)))
	first.sendOf("ann", 7)
	p.pass(2 * time.Second)
	first.tick()
	for _, push := range first.taken() {
		first.answer(push)
	}
	p.pass(23 * time.Hour)
	heir := p.startOf(second, engine.Options{}, revealing(fixed(100)))
	heir.Inherit(first.Engine)
	p.nodes = p.nodes[1:]
	for _, told := range []bool{true, true, false} {
		heir.tick()
		ended := false
		for _, push := range heir.taken() {
			u, err := wire.DecodeUsed(push.body)
			if ended = ended || err == nil && len(u.Ended) > 0; tellsUsage(push) {
				heir.lose(push)
			} else {
				heir.answer(push)
			}
		}
		must.Equal(t, ended, told, "the end is told")
		p.pass(50 * time.Minute)
	}
}

// A node that leaves does not besiege a backend that fails: it tells again at its ticks.
func TestUsedOfANodeThatLeaves(t *testing.T) {
	p := newProcess(t)
	f := p.startOf(second, engine.Options{}, revealing(fixed(100)))
	f.sendOf("ann", 7)
	f.Leave()
	lose := func() (messages int) {
		for range 100 {
			for _, push := range f.taken() {
				if tellsUsage(push) {
					messages++
				}
				f.lose(push)
			}
		}
		return messages
	}
	for i := range 3 {
		must.Equal(t, lose(), 1, "tick %d: messages", i)
		p.pass(100 * time.Millisecond)
		f.tick()
	}
	for range 5 {
		f.deliver()
	}
	p.wantUsed(map[string]int64{"rule-0 ann  0": 7})
	must.Equal(t, f.Left(), true, "it has not left")
}

// A node that leaves finds out whether the backend is back, if nothing but usage is to be told.
func TestUsedOfANodeThatLeavesWhileTheBackendIsAway(t *testing.T) {
	w := newWorld(t, 1, 2, second, engine.Options{}, revealing(fixed(100)))
	w.advance(time.Second)
	f, other := w.nodes[0], w.nodes[1]
	f.sendOf("ann", 7)
	f.PushAll()
	for _, p := range f.taken() {
		if tellsUsage(p) {
			f.lose(p)
		} else {
			f.answer(p)
		}
	}
	other.failing(3)
	f.ReadLink()
	must.EqualOrEnd(t, f.BreakerOpen(), true, "")
	w.nodes = w.nodes[:1] // the other is busy
	for f.Leave(); !f.Left(); {
		w.advance(100 * time.Millisecond)
	}
	w.wantUsed(map[string]int64{"rule-0 ann  0": 7})
}

// An heir's sums are within the bounds of messages, or the backend would take none of them.
func TestUsedIsInheritedWithinBounds(t *testing.T) {
	p := newProcess(t)
	first := p.startOf(second, engine.Options{}, revealing(fixed(wire.MaxHits)))
	first.refuse = true
	first.sendOf("ann", wire.MaxHits)
	second := p.startOf(second, engine.Options{}, revealing(limit(window.FixedWindow, wire.MaxHits, day)))
	second.sendOf("ann", wire.MaxHits)
	second.Inherit(first.Engine)
	p.nodes = p.nodes[1:]
	p.quiet()
	p.wantUsed(map[string]int64{"rule-0 ann  0": wire.MaxHits})
}

// The backend hears how a key stands in its longest window.
func TestUsedTellsBudgets(t *testing.T) {
	w, f := alone(t, second, engine.Options{}, revealing(limit(window.FixedWindow, 100, day), limit(window.FixedWindow, 500, 7*day), limit(window.TokenBucket, 1000, 300*day)))
	f.sendOf("ann", 60)
	w.quiet()
	err := w.store.Used(t.Context(), "default", 0, wire.MaxUsedDay, func(r wire.UsedRow) error {
		b, ok := wire.DecodeBudget(r.Budget)
		if !ok || b.Used != 60 || b.Quota != 500 || b.EndSeconds-b.StartSeconds != 7*24*3600 || b.AtSeconds != uint64(monday/second) {
			t.Errorf("got %+v, %v", b, ok)
		}
		return nil
	})
	must.OK(t, err)
}

// A rule that tells nothing costs nothing, and a request that is told allocates nothing.
func TestUsedAllocatesNothing(t *testing.T) {
	w, f := alone(t, -1, engine.Options{}, revealing(fixed(1<<40)).at(second), users(fixed(1<<40)).at(second))
	sent := int64(0)
	for range 10 { // until so many hits are leased
		for range 200 {
			f.send("ann")
			sent++
		}
		w.advance(time.Second)
	}
	f.send("ann")
	r := &fakeRequest{}
	n := testing.AllocsPerRun(100, func() {
		must.EqualOrEnd(t, f.Decide(f.checks, f.time(), &r.Wait), counter.Allowed, "")
	})
	must.Equal(t, n, 0, "allocations")
	w.quiet()
	w.wantUsed(map[string]int64{"rule-0 ann  0": sent + 1 + 1 + 100})
}
