package engine_test

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"weir/internal/backend/backendtest"
	"weir/internal/counter"
	"weir/internal/engine"
	"weir/internal/engine/link"
	"weir/internal/engine/rule"
	"weir/internal/must"
	"weir/internal/wire"
	"weir/window"
)

// fleetOf is some processes of one worker each, all of which have a part of the limits.
func fleetOf(t *testing.T, processes int, rules ...fakeRule) *world {
	t.Helper()
	w := newWorld(t, processes, 1, second, engine.Options{}, rules...)
	w.advance(time.Second)
	for round := range 8 {
		for i, f := range w.nodes {
			if _, waited := f.ask(fmt.Sprint("somebody ", i, " at ", w.now)); waited && round == 7 {
				t.Fatalf("node %d has no part: %+v", i, f.Part())
			}
		}
		w.advance(500 * time.Millisecond)
	}
	return w
}

// takeAll has another sender ask for all hits of a user's limit, by a tag, and reports how many it gets: all
// or none.
func (w *world) takeAll(f *fakeNode, at int, user string, tag uint16, most uint64) uint64 {
	w.t.Helper()
	r := f.rule(at)
	w.takes++
	_, outcome := backendtest.Push(w.t, w.store, wire.AppendPush(nil, &wire.Push{
		Namespace: "default", Sender: 1, Sequence: w.takes, Floor: w.takes, Node: 1,
		Takes: []wire.Take{{Least: most, Most: most, Rooms: []wire.Room{{
			LimitCounter: rule.CounterOf(f.id(at, user), &r.Limits[0], r.Limits[0].Width), Limit: r.Limits[0].Max, Cost: 1, Tag: tag,
		}}}},
	}))
	return outcome.Answer.Grants[0].Units
}

// ask has a user's request decided, and answers what it waits for.
func (f *fakeNode) ask(user string) (verdict counter.Verdict, waited bool) { return f.askOf(0, user) }

func (f *fakeNode) askOf(at int, user string) (verdict counter.Verdict, waited bool) {
	r, d := newRequest(), []rule.Check{f.check(at, user, 1)}
	d[0].Rule = cmp.Or(f.variant, d[0].Rule)
	if verdict = f.Decide(d, f.time(), &r.Wait); verdict != counter.Unsure {
		return verdict, false
	}
	for rounds := 0; len(r.verdicts) == 0 && rounds < 100; rounds++ {
		f.deliver()
	}
	return append(r.verdicts, verdict)[0], true
}

// wantAsked has a user's request decided by one rule, and wants a verdict, and whether that needs an answer.
func (f *fakeNode) wantAsked(at int, user string, want counter.Verdict, waits bool, when string, args ...any) {
	f.process.t.Helper()
	if verdict, waited := f.askOf(at, user); verdict != want || waited != waits {
		f.process.t.Errorf("%s: got %d, waited: %t", fmt.Sprintf(when, args...), verdict, waited)
	}
}

// interval lets a sync_rate of a second pass, until the backend has heard what is new.
func (w *world) interval() {
	w.advance(1100 * time.Millisecond)
	w.advance(100 * time.Millisecond)
}

// A key that no node has seen waits for nothing, and the backend hears of its hits within an interval.
func TestAdvance(t *testing.T) {
	w := fleetOf(t, 3, users(fixed(1000)))
	w.interval()
	before := w.sum()
	for i, f := range w.nodes {
		f.wantAsked(0, "ann", counter.Allowed, false, "node %d", i)
	}
	w.interval()
	must.Equal(t, w.sum()-before, 3, "the backend has heard of hits")
	// Each knows what was counted when it pushed.
	for i, f := range w.nodes {
		d := f.check(0, "ann", 0)
		f.Look(&d, f.time())
		must.Between(t, d.Rule.Limits[0].Remaining(&d.Counter.States[0]), 997, 999, "node %d: hits that are left", i)
	}
}

// However many keys come within an interval, none waits: many are pushed before it is over, as soon as the node's host
// can call it.
func TestAdvanceOfManyKeys(t *testing.T) {
	for rules := range 4 {
		w := fleetOf(t, 1, users(fixed(1000)), users(fixed(1000)))
		f := w.nodes[0]
		for i := range 8 { // until the other rule is in the list, too
			f.askOf(1, fmt.Sprint("nobody ", i))
			w.advance(500 * time.Millisecond)
		}
		before, early := f.Tallies.Advanced, 0
		const keys = 50_000
		for i := range keys {
			r := newRequest()
			d := []rule.Check{f.check(min(rules, 1), fmt.Sprint("user ", i), 1)}
			if rules > 1 && i >= rules-2 { // two at a time, from an even number on and from an odd one
				d = append(d, f.check(0, fmt.Sprint("user ", i), 1))
			}
			must.EqualOrEnd(t, f.Decide(d, f.time(), &r.Wait), counter.Allowed, "user %d, rules %d", i, rules)
			if f.tickMillis == 1 {
				early++
				f.Tick()
				f.deliver()
			}
		}
		hits := uint64(keys)
		if rules > 1 {
			hits += keys - uint64(rules-2)
		}
		must.Equal(t, f.Tallies.Advanced-before, hits, "hits were advanced")
		must.Between(t, early, 4, 20, "early ticks that the host was asked for, of 12,288 keys each")
	}
}

// From half of the limit on, a node asks that has never seen the key.
func TestAdvanceEndsWhereKeysAreNear(t *testing.T) {
	w := fleetOf(t, 3, users(fixed(1000)))
	for range 40 {
		for range 5 {
			w.nodes[0].ask("ann")
			w.nodes[1].ask("ann")
		}
		w.advance(500 * time.Millisecond)
	}
	must.AtLeast(t, w.sum(), 390, "hits are counted")
	for range 40 {
		for range 5 {
			w.nodes[0].ask("ann")
			w.nodes[2].ask(fmt.Sprint(w.now)) // it goes on pushing
		}
		w.advance(500 * time.Millisecond)
	}
	w.nodes[2].wantAsked(0, "ann", counter.Allowed, true, "a near key")
	w.nodes[2].wantAsked(0, "ben", counter.Allowed, false, "another key")
}

// A node that has nothing to do gives its part back, and so does a node that is replaced: so nothing is kept
// back of limits for it.
func TestPartsGoBack(t *testing.T) {
	for name, end := range map[string]func(f *fakeNode){
		"idle": func(*fakeNode) {},
		"replaced": func(f *fakeNode) {
			f.ask("ann")
			f.process.startOf(second, f.options, f.counts...).Inherit(f.Engine)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := fleetOf(t, 2, users(fixed(1000)))
			end(w.nodes[0])
			often(300, w.advance, 100*time.Millisecond)
			must.Equal(t, w.takeAll(w.nodes[1], 0, "somebody else", w.nodes[1].rule(0).Tag, 1000), 1000, "hits of the limit that somebody else gets")
		})
	}
}

// A node that has left keeps nothing back, whether it had a part or one was on its way.
func TestPartsAreBackOnceLeft(t *testing.T) {
	for name, do := range map[string]func(w *world){
		"a part": func(w *world) {
			w.nodes[0].ask("ann")
		},
		"hits that were pushed before": func(w *world) {
			w.nodes[0].ask("ann")
			w.interval()
		},
		"a part on its way": func(w *world) {
			w.advance(20 * time.Second)
			w.nodes[0].tick()
			f := w.nodes[0]
			f.Decide([]rule.Check{f.check(0, "ben", 1)}, f.time(), &newRequest().Wait)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := fleetOf(t, 1, users(fixed(1000)))
			f := w.nodes[0]
			do(w)
			f.Leave()
			rounds := 0
			for ; !f.Left(); rounds++ {
				w.advance(100 * time.Millisecond)
			}
			must.Equal(t, w.takeAll(f, 0, "somebody else", f.rule(0).Tag, 1000), 1000, "hits of the limit that somebody else gets")
			must.AtMost(t, rounds, 10, "ticks after which it left")
		})
	}
}

// A node that leaves says once more that it has no part if the answer takes long, and goes by the first answer.
func TestPartsAreBackThoughAnswersAreSlow(t *testing.T) {
	const trip, tick = 1500 * time.Millisecond, 100 * time.Millisecond
	w := fleetOf(t, 1, users(fixed(1000)))
	w.interval()
	f := w.nodes[0]
	before, from := w.pushes, w.now
	for f.Leave(); !f.Left(); f.tick() {
		w.pass(tick)
		var slow []fakePush
		for _, p := range f.taken() {
			if w.now-p.at < int64(trip) {
				slow = append(slow, p)
				continue
			}
			w.pushes++
			f.answer(p)
		}
		f.sent = append(slow, f.sent...)
	}
	must.AtMost(t, time.Duration(w.now-from), 2*trip+2*tick, "it left after")
	must.Equal(t, w.pushes != before, true, "it had answers")
}

// A node whose hits on credit the backend has refused for good leaves as soon as others: no notice could say any more that all
// were counted.
func TestLostHitsDoNotHoldUpLeaving(t *testing.T) {
	w := fleetOf(t, 1, users(fixed(1000)))
	f := w.nodes[0]
	f.ask("ann")
	for f.Tallies.Lost == 0 {
		w.pass(100 * time.Millisecond)
		f.tick()
		for _, p := range f.taken() {
			f.Answered(p.ticket, link.PushRefused, nil)
		}
	}
	for f.Part().Divisor == 0 {
		f.ask("ben")
		w.advance(100 * time.Millisecond)
	}
	rounds := 0
	for f.Leave(); !f.Left(); rounds++ {
		w.advance(100 * time.Millisecond)
	}
	must.Equal(t, rounds <= 10, true, "left after %d ticks", rounds)
}

// The backend may take in a push that asks for a part after a later one that says there is none. The node hears of
// that, and says so again.
func TestPartsOfEarlierPushesGoBack(t *testing.T) {
	w := fleetOf(t, 1, users(fixed(1000)))
	f := w.nodes[0]
	part := f.Part()
	for f.Leave(); !f.Left(); {
		w.advance(100 * time.Millisecond)
	}
	f.HearPart(&wire.Near{Present: true, Whole: true, Epoch: part.Epoch, Version: part.Version, Divisor: part.Divisor}, 1, monday+second)
	must.EqualOrEnd(t, f.Left(), false, "it has left")
	must.EqualOrEnd(t, f.Part().Divisor, 0, "the part that the backend keeps for it: 1/")
	for rounds := 0; !f.Left(); rounds++ {
		w.advance(100 * time.Millisecond)
		must.EqualOrEnd(t, rounds <= 10, true, "it says that it has no part")
	}
}

// While a node may advance hits, nobody gets those: neither the whole of a limit nor the rest.
func TestAdvanceKeepsBack(t *testing.T) {
	w := fleetOf(t, 2, users(fixed(1000)))
	l := w.nodes[0].rule(0)
	for _, test := range []struct {
		tag  uint16
		want uint64
	}{{l.Tag, 0}, {0, 0}, {l.Tag + 1, 1000}} {
		must.Equal(t, w.takeAll(w.nodes[0], 0, fmt.Sprint("user of ", test.tag), test.tag, 1000), test.want, "tag %d: hits", test.tag)
	}
}

// A node that has a part and nothing to push hears all the same which keys are near, so that others get all of their limits.
func TestIdleNodesHear(t *testing.T) {
	w := fleetOf(t, 2, users(fixed(1000)))
	f := w.nodes[0]
	all := func(most, want uint64) {
		t.Helper()
		must.Equal(t, w.takeAll(f, 0, "ann", f.rule(0).Tag, most), want, "of %d hits of a near key another node gets", most)
	}
	all(600, 600)
	all(400, 0)
	often(3, w.advance, time.Second)
	must.Equal(t, f.Part().Divisor > 0 && w.nodes[1].Part().Divisor > 0, true, "both have a part still")
	all(400, 400)
}

// A backend that was started again knows of no parts: nodes hear that with their next push.
func TestAdvanceForgotten(t *testing.T) {
	w := fleetOf(t, 2, users(fixed(1000)))
	w.store = emptyStore(w)
	f := w.nodes[0]
	f.ask("ann")
	before := f.Part()
	w.interval()
	if now := f.Part(); before.Divisor == 0 || now.Epoch == before.Epoch && now.Divisor != 0 {
		t.Error("the node has the part that it had")
	}
}

// A part ends by itself, and when the node's clock is set back.
func TestPartsEnd(t *testing.T) {
	for _, jump := range []int64{11 * second, -second} {
		w := fleetOf(t, 2, users(fixed(1000)))
		f := w.nodes[0]
		f.tick()
		f.process.off += jump
		f.wantAsked(0, "ann", counter.Allowed, true, "after a jump of %v", time.Duration(jump))
	}
}

// A part ends by the backend's time: if the clock stood still, as that of a machine that was asleep, and
// another worker has found that out, no hits of a later window are advanced.
func TestPartsEndByTheBackendsTime(t *testing.T) {
	w := fleetOf(t, 2, users(fixed(1000)))
	f := w.nodes[0]
	f.tick()
	w.now += 11 * second
	f.process.off -= 11 * second
	f.Shift(11 * second)
	f.wantAsked(0, "ann", counter.Allowed, true, "after the sleep")
}

// Keys with overrides wait for nothing either, once the list has their limits. Overrides of many limits leave room in the
// list for rules.
func TestAdvanceOfOverrides(t *testing.T) {
	const many = 64
	w := fleetOf(t, 1, users(fixed(1000)), users(fixed(700)))
	f, set := w.nodes[0], []wire.Override{override("ann", 2000), override("bob", 2000)}
	for i := range many {
		set = append(set, override(fmt.Sprint("user ", i), uint64(3000+i)))
	}
	w.override(set...)
	asked := func(user string) (waited bool) {
		t.Helper()
		w.hear(t, 4)
		verdict, waited := f.ask(user)
		must.Equal(t, verdict, counter.Allowed, "")
		return waited
	}
	w.hear(t, 4)
	w.wantLimits("ann", 2000)
	must.Equal(t, [2]bool{asked("ann"), asked("bob")}, [2]bool{true, false}, "ann's request waits, for the list has no such limit yet, and bob's")
	for i := range many {
		asked(fmt.Sprint("user ", i))
	}
	w.hear(t, 60)
	waited := 0
	for i := range many {
		if asked(fmt.Sprint("user ", i)) {
			waited++
		}
	}
	must.Between(t, waited, 1, many-1, "of %d wait", many)
	f.askOf(1, "ann")
	if w.hear(t, 4); t.Failed() {
		return
	}
	f.wantAsked(1, "bob", counter.Allowed, false, "another rule")
}

// Rules whose hits move otherwise wait as before.
func TestMayAdvance(t *testing.T) {
	for name, test := range map[string]struct {
		change func(r *rule.Rule)
		want   bool
	}{
		"fixed":       {func(*rule.Rule) {}, true},
		"sliding":     {func(r *rule.Rule) { r.Limits = []window.Limit{sliding(1000)} }, true},
		"small":       {func(r *rule.Rule) { r.Limits = []window.Limit{fixed(100)} }, false},
		"short":       {func(r *rule.Rule) { r.Limits = []window.Limit{limit(window.FixedWindow, 1000, 19*second)} }, false},
		"bucket":      {func(r *rule.Rule) { r.Limits = []window.Limit{limit(window.TokenBucket, 1000, hour)} }, false},
		"log":         {func(r *rule.Rule) { r.Limits = []window.Limit{of(longest[4], 1000)} }, false},
		"first hit":   {func(r *rule.Rule) { r.Limits = []window.Limit{of(longest[2], 1000)} }, false},
		"exact":       {func(r *rule.Rule) { r.SyncRate = 0 }, false},
		"local":       {func(r *rule.Rule) { r.SyncRate = -1 }, false},
		"costs later": {func(r *rule.Rule) { r.CostsLater = true }, false},
		"marks":       {func(r *rule.Rule) { r.Marks = true }, false},
		"rejected":    {func(r *rule.Rule) { r.CountRejected = true }, false},
		"variants":    {func(r *rule.Rule) { r.Widest = r.Limits }, true},
	} {
		r := rule.Rule{Rule: counter.Rule{Limits: []window.Limit{fixed(1000)}}, SyncRate: second}
		test.change(&r)
		must.Equal(t, rule.NewSet([]rule.Rule{r}).List[0].Advances, test.want, "%s: %t", name, !test.want)
	}
}

// Two rules have the same limits, and the list names the first. Hits of the second are not advanced: a node
// whose configuration has the backend decide that rule gets all of its limit.
func TestAdvanceOfRulesThatAreListed(t *testing.T) {
	w := fleetOf(t, 2, users(fixed(1000)), users(fixed(1000)))
	f := w.nodes[0]
	must.EqualOrEnd(t, w.takeAll(f, 1, "ann", f.rule(1).Tag&^1, 999), 999, "hits")
	for i, want := range []counter.Verdict{counter.Allowed, counter.Rejected} {
		w.nodes[i].wantAsked(1, "ann", want, true, "node %d", i)
	}
	w.interval()
	f.wantAsked(1, "ben", counter.Allowed, false, "once the list names the rule")
	must.Equal(t, w.takeAll(f, 1, "ben", f.rule(1).Tag&^1, 1000), 0, "hits beside those that may be advanced")
}

// Keys with other limits wait for nothing either, once the list has their limits. A key that nodes decide by
// two limits does not pass more than the larger.
func TestAdvanceOfVariants(t *testing.T) {
	w := fleetOf(t, 3, users(fixed(1000)))
	for _, f := range w.nodes {
		f.variant = f.rule(0).Variant([]window.Limit{fixed(400)})
		f.wantAsked(0, fmt.Sprint("first of ", f.Now()), counter.Allowed, true, "a limit that is not listed")
	}
	w.interval()
	for i, f := range w.nodes {
		f.wantAsked(0, "ann", counter.Allowed, false, "node %d", i)
	}
	passed := 0
	for i := range 2000 {
		f := w.nodes[i%3]
		if i%6 < 3 {
			f.variant = nil
		} else {
			f.variant = f.rule(0).Variant([]window.Limit{fixed(400)})
		}
		if verdict, _ := f.ask("ben"); verdict == counter.Allowed {
			passed++
		}
		w.advance(time.Millisecond)
	}
	must.Equal(t, passed, 1000, "hits passed of limits of 400 and 1000")
}

// All of a limit passes, though other keys have a larger limit of which it is more than half.
func TestAllOfASmallerLimit(t *testing.T) {
	w := fleetOf(t, 10, users(fixed(300)))
	for i, f := range w.nodes {
		f.ask(fmt.Sprint("large ", i))
		f.variant = f.rule(0).Variant([]window.Limit{fixed(200)})
		f.ask(fmt.Sprint("small ", i))
	}
	w.interval()
	passed := 0
	for i := range 2000 {
		if verdict, _ := w.nodes[i%10].ask("ann"); verdict == counter.Allowed {
			passed++
		}
		w.advance(20 * time.Millisecond)
	}
	must.Equal(t, passed, 200, "hits passed of a limit of 200")
}

// An answer that comes late gives no part that the backend has taken back since, and none with a list that
// lacks keys.
func TestLateAnswersGiveNoPart(t *testing.T) {
	for name, hear := range map[string]func(f *fakeNode, near *wire.Near){
		"the backend has taken the part back": func(f *fakeNode, near *wire.Near) {
			f.DropPart()
			near.Whole = true
			f.HearPart(near, 0, monday+second)
		},
		"the list of another epoch": func(f *fakeNode, near *wire.Near) {
			near.Epoch, near.Version = near.Epoch+2, near.Version+1
			f.HearPart(near, 1<<60, monday+second)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := fleetOf(t, 2, users(fixed(1000)))
			f := w.nodes[0]
			part, r := f.Part(), f.rule(0)
			near := &wire.Near{Present: true, Epoch: part.Epoch, Version: part.Version, Divisor: part.Divisor}
			near.AddLimit(wire.NearRule(r.Near[0], r.Tag))
			hear(f, near)
			must.Equal(t, f.Part().Divisor, 0, "the worker's part of each limit: 1/")
			f.wantAsked(0, "ann", counter.Allowed, true, "without a part")
		})
	}
}

// A worker forgets a push whose windows are over. If only its clock said so, the hits count still, and the
// worker says of no part that they are counted.
func TestForgottenHitsCount(t *testing.T) {
	w := fleetOf(t, 3, users(fixed(1000)))
	f := w.nodes[0]
	f.wantAsked(0, "ann", counter.Allowed, false, "")
	f.process.off = 3 * hour
	f.tick()
	f.loseAll()
	f.tick()
	must.EqualOrEnd(t, f.Advanced(f.stored(0, "ann")), 0, "the push is kept: windows")
	f.loseAll()
	f.process.off = 0
	got := w.takeAll(f, 0, "ann", f.rule(0).Tag, 600)
	for range 60 {
		for i, f := range w.nodes {
			f.ask(fmt.Sprint("somebody ", i, " at ", w.now))
		}
		w.advance(500 * time.Millisecond)
	}
	got += w.takeAll(f, 0, "ann", f.rule(0).Tag, 400)
	must.Equal(t, got, 600, "hits that have passed")
}

// takes reports whether a push asks for hits.
func takes(p fakePush) bool {
	push, err := wire.DecodePush(p.body)
	return err == nil && len(push.Takes) > 0
}

// giveBack has another sender give back hits of a user, or count some if there are fewer than none.
func (w *world) giveBack(f *fakeNode, user string, hits int64) {
	w.t.Helper()
	l := &f.rule(0).Limits[0]
	w.takes++
	backendtest.Push(w.t, w.store, wire.AppendPush(nil, &wire.Push{
		Namespace: "default", Sender: 1, Sequence: w.takes, Floor: w.takes, Node: 1,
		Items: []wire.Item{{LimitCounter: rule.CounterOf(f.id(0, user), l, l.Width), Newest: uint64(w.now / l.Width), Hits: []int64{-hits}}},
	}))
}

// hear has all nodes go on pushing for some seconds, for keys that nobody else asks for.
func (w *world) hear(t *testing.T, seconds int) {
	t.Helper()
	for range 2 * seconds {
		for i, f := range w.nodes {
			f.ask(fmt.Sprint("somebody else ", i, " at ", w.now))
		}
		w.advance(500 * time.Millisecond)
	}
}

// A key that was near in a window is far in the next: no request for it waits.
func TestNearInItsWindowOnly(t *testing.T) {
	w := fleetOf(t, 3, users(fixed(1000)))
	w.takeAll(w.nodes[0], 0, "ann", 0, 600)
	w.hear(t, 3)
	w.nodes[2].wantAsked(0, "ann", counter.Allowed, true, "a near key")
	w.now = (w.now/hour+1)*hour - 2*second
	w.hear(t, 4)
	w.nodes[2].wantAsked(0, "ann", counter.Allowed, false, "in the next window")
}

// The first request of a near key at a node leases for those that follow.
func TestFirstHitsOfNearKeysLease(t *testing.T) {
	w := fleetOf(t, 3, users(fixed(1000)))
	w.takeAll(w.nodes[0], 0, "ann", 0, 600)
	w.hear(t, 3)
	for i := range 4 {
		w.nodes[2].wantAsked(0, "ann", counter.Allowed, i == 0, "request %d", i)
	}
}

// A node that has heard that a key is full refuses without a wait. It asks meanwhile, in case others
// have given back leases, and refuses nothing any more once it knows.
func TestFullKeysAreTold(t *testing.T) {
	w := fleetOf(t, 3, users(fixed(1000)))
	f := w.nodes[2]
	w.giveBack(f, "ann", -1000)
	w.hear(t, 3)
	for i, asks := range []bool{true, false} {
		f.wantAsked(0, "ann", counter.Rejected, false, "request %d", i)
		pushes := f.taken()
		must.Equal(t, slices.ContainsFunc(pushes, takes), asks, "request %d: asks", i)
		for _, p := range pushes {
			f.answer(p)
		}
	}
	w.giveBack(f, "ann", 100)
	w.pass(3 * time.Second)
	f.wantAsked(0, "ann", counter.Rejected, false, "after the pause")
	f.deliver()
	f.wantAsked(0, "ann", counter.Allowed, false, "after hits came back")
}

// Where charges of responses often leave room again, the backend is asked before a request is refused.
func TestFullKeysOfChargesAreConfirmed(t *testing.T) {
	for _, later := range []bool{false, true} {
		w := newWorld(t, 2, 1, second, engine.Options{}, fakeRule{limits: []window.Limit{fixed(1000)}, costsLater: later})
		f := w.nodes[0]
		w.takeAll(f, 0, "ann", 0, 1000)
		f.ask("ann")
		w.pass(3 * time.Second)
		f.wantAsked(0, "ann", counter.Rejected, later, "charges: %t", later)
	}
}

// Hits on credit of rules with many limits fill no more than half of the pushes that may be out, so that a node which inherits
// them all can still ask.
func TestAdvanceOfManyLimits(t *testing.T) {
	var limits []window.Limit
	for i := range wire.MaxLimits {
		limits = append(limits, limit(window.FixedWindow, 1000, int64(i+1)*hour))
	}
	w := fleetOf(t, 1, users(limits...))
	f := w.nodes[0]
	for i := range 12_000 {
		r := newRequest()
		d := []rule.Check{f.check(0, fmt.Sprint("user ", i), 1)}
		if f.Decide(d, f.time(), &r.Wait); i == 3500 {
			must.Equal(t, f.tickMillis, 1, "while there is room, the host is asked for an early tick, in milliseconds")
		}
	}
	n := f.process.startOf(second, f.options, f.counts...)
	n.Inherit(f.Engine)
	if _, waits := n.ask("somebody else"); !waits || n.Backlog().Pushes < 10 {
		t.Errorf("a request waits: %t, beside %d pushes", waits, n.Backlog().Pushes)
	}
}
