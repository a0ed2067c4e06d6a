package filter

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"weir/internal/wire"
)

const long = `"limits": [{"limit": 100000, "window": "30d", "algorithm": "fixed_window"}]`

// An outage that outlasts the windows leaves nothing to send again, and nothing to try the backend with. Nodes go on with what
// comes next.
func TestOutageLongerThanTheWindow(t *testing.T) {
	w := newWorld(t, 1, 2, synced("0.1", `{"name": "user", "key": [{"header": "x-user"}], "limits": [{"limit": 1000, "window": "1s"}]}`))
	run := func(d time.Duration) (pushes int) {
		before := w.pushes
		for range d / (50 * time.Millisecond) {
			w.any().send("x-user", "ann")
			w.advance(50 * time.Millisecond)
		}
		return w.pushes - before
	}
	run(2 * time.Second)
	w.lossBefore = 1
	run(5 * time.Second)
	w.lossBefore = 0
	run(10 * time.Second)
	if pushes := run(10 * time.Second); pushes < 20 {
		t.Errorf("%d pushes in 100 intervals after an outage", pushes)
	}
}

// A batch that the backend refuses is given up, and holds up nothing else. What somebody else refuses on the way is sent again.
func TestRefusedBatch(t *testing.T) {
	for _, foreign := range []bool{false, true} {
		w := newWorld(t, 1, 1, synced("0.1", `{"name": "user", "key": [{"header": "x-user"}], `+long+`}`))
		v := w.vms[0]
		v.foreign = foreign
		for i := range 600 {
			v.send("x-user", fmt.Sprint(i))
			w.now += 100e6
			w.proxies[0].now = w.now
			v.tick()
			callouts := v.callouts
			v.callouts = nil
			for _, c := range callouts {
				if push, err := wire.DecodePush(c.body); err == nil && push.Sequence == 2 && (!foreign || i < 300) {
					v.answer(c, 400, []byte(`{"title": "bad request"}`))
				} else {
					v.answer(c, 200, w.apply(c.body))
				}
			}
		}
		if got, want := w.sum(), map[bool]int64{false: 599, true: 600}[foreign]; got != want {
			t.Errorf("refused by somebody else is %v: the backend has %d of 600, want %d", foreign, got, want)
		}
		if got, want := v.count("lost_hits_total"), map[bool]uint64{false: 1, true: 0}[foreign]; got != want {
			t.Errorf("refused by somebody else is %v: %d lost hits, want %d", foreign, got, want)
		}
	}
}

// A clock that goes back by an hour holds no push up.
func TestClockGoesBack(t *testing.T) {
	w := newWorld(t, 1, 2, synced("1", `{"name": "user", "key": [{"header": "x-user"}], `+long+`}`))
	sent := int64(0)
	send := func() {
		w.any().send("x-user", "ann")
		sent++
		w.advance(100 * time.Millisecond)
	}
	for range 50 {
		send()
	}
	w.now -= int64(time.Hour)
	for range 600 {
		send()
	}
	for range 20 {
		w.advance(time.Second)
	}
	if got := w.sum(); got != sent {
		t.Errorf("the backend has %d of %d hits", got, sent)
	}
}

// Four workers that hit a key all the time push it once an interval at most.
func TestPushesOfABusyKey(t *testing.T) {
	w := newWorld(t, 1, 4, synced("1", `{"name": "user", "key": [{"header": "x-user"}], "limits": [{"limit": 4000, "window": "30d", "algorithm": "fixed_window"}]}`))
	for range 2000 {
		w.any().send("x-user", "ann")
	}
	for range 20 {
		w.advance(100 * time.Millisecond)
	}
	before := w.pushes
	next := make([]int64, len(w.vms)) // each worker ticks in its own time
	for i := range 15_000 {
		w.now += 1e6
		w.proxies[0].now = w.now
		if i%10 == 0 {
			w.any().send("x-user", "ann")
		}
		for k, v := range w.vms {
			if w.now >= next[k] {
				v.tick()
				next[k] = w.now + int64(v.tickMillis)*1e6 + int64(k)
			}
			w.deliver(v)
		}
	}
	if pushes := w.pushes - before; pushes > 17 {
		t.Errorf("%d pushes of one key in 15 intervals", pushes)
	}
}

// A configuration update loses nothing: what the old context has for the backend goes to the new one, whatever its interval was,
// or is pushed before the old one goes.
func TestConfigurationUpdate(t *testing.T) {
	rule := `{"name": "user", "key": [{"header": "x-user"}], ` + long + `}`
	for _, test := range []struct{ before, after string }{
		{synced("1", rule), synced("1", rule)},
		{synced("3600", rule), synced("0.1", rule)},
		{synced("1", rule), synced("1", `{"name": "other", "limits": [{"limit": 5, "window": "1m"}]}`)},
	} {
		w := newWorld(t, 1, 1, test.before)
		old := w.vms[0]
		for i := range 100 {
			old.send("x-user", fmt.Sprint(i))
		}
		w.advance(150 * time.Millisecond)
		for i := range 100 {
			old.send("x-user", fmt.Sprint(i))
		}
		old.tick() // what this sends is not answered any more
		next, gone := old.replace(test.after)
		if !gone {
			t.Error("the old context stays though there is another one")
		}
		w.vms = []*fakeVM{next}
		for range 100 {
			w.advance(time.Second)
		}
		if got := w.sum(); test.before[:60] == test.after[:60] && got != 200 {
			t.Errorf("%.50s … to %.50s …: the backend has %d of 200 hits", test.before, test.after, got)
		}
	}
}

func TestPluginContextLeaves(t *testing.T) {
	for _, reachable := range []bool{true, false} {
		w := newWorld(t, 1, 1, synced("3600", `{"name": "user", "key": [{"header": "x-user"}], `+long+`}`))
		v := w.vms[0]
		for i := range 3000 {
			v.send("x-user", fmt.Sprint(i))
		}
		if v.done() {
			t.Fatal("gone with hits that were not pushed")
		}
		if !reachable {
			w.lossBefore = 1
		}
		ticks := 0
		for ; v.calls["done"] == 0 && ticks < 1000; ticks++ {
			w.advance(10 * time.Millisecond)
		}
		if got := w.sum(); reachable && got != 3000 {
			t.Errorf("the backend has %d of 3000 hits", got)
		}
		if v.calls["done"] != 1 || !reachable && ticks < 500 {
			t.Errorf("reachable %v: %d times done after %d ticks", reachable, v.calls["done"], ticks)
		}
	}
}

// Hits of evicted counters wait for the backend as long as anybody wants them.
func TestOrphansOutlastAnOutage(t *testing.T) {
	w := newWorld(t, 1, 1, `{"capacity": 40, `+synced("0.05", `{"name": "user", "key": [{"header": "x-user"}], `+long+`}`)[1:])
	w.lossBefore = 1
	for i := range 3000 {
		w.any().send("x-user", fmt.Sprint("r", i))
	}
	for range 2 * 3600 {
		w.advance(time.Second)
	}
	w.lossBefore = 0
	for range 100 {
		w.advance(time.Second)
	}
	if got := w.sum(); got != 3000 {
		t.Errorf("the backend has %d of 3000 hits", got)
	}
}

// During an outage the list of keys to push does not grow with time.
func TestDirtyListDuringAnOutage(t *testing.T) {
	w := newWorld(t, 1, 2, synced("1", `{"name": "user", "key": [{"header": "x-user"}], `+long+`}`))
	w.lossBefore = 1
	for range 3600 {
		for key := range 20 {
			w.any().send("x-user", fmt.Sprint(key))
		}
		w.advance(time.Second)
	}
	for i, v := range w.vms {
		if n := v.plugin.node.Backlog().Keys; n > 40 {
			t.Errorf("VM %d remembers %d times 20 keys", i, n)
		}
	}
}

// A hit that lost every race and is added later changes nothing for the request that comes then.
func TestHeldHitsLeaveOthersAlone(t *testing.T) {
	p := newProxy(t)
	v := p.start(`{"capacity": 10, ` + oneRule(`{"limit": 100, "window": "1h"}`)[1:]) // one page
	v.send("x-user", "zed")
	p.before = func(_ *fakeVM, op string) {
		if op == "set" {
			p.race()
		}
	}
	v.send("x-user", "ann")
	p.before = nil
	if !v.plugin.node.HoldsHits() {
		t.Fatal("no hits are held")
	}
	for _, test := range []struct{ user, remaining string }{{"bob", "99"}, {"bob", "98"}, {"ann", "98"}} {
		v.send("x-user", test.user)
		want(t, v.response, `x-ratelimit-remaining: `+test.remaining)
	}
}

// A node whose clock is off counts in the windows of the backend's time, once the backend has told it.
func TestClockOff(t *testing.T) {
	for _, off := range []time.Duration{0, -1500 * time.Millisecond, 2 * time.Second, 11 * time.Minute, -3 * time.Hour} {
		w := newWorld(t, 1, 1, synced("0.1", `{"name": "all", "limits": [{"limit": 100, "window": "1s", "algorithm": "fixed_window"}]}`))
		v := w.vms[0]
		most := int64(0)
		for i := range 200 {
			w.now += 50e6
			w.proxies[0].now = w.now + int64(off)
			v.send()
			v.tick()
			w.deliver(v)
			if i > 50 {
				most = max(most, w.sum())
			}
		}
		if most < 15 {
			t.Errorf("clock off by %v: of 20 hits a window the backend has at most %d", off, most)
		}
	}
}

// A worker that has had no answer yet keeps to the time that the others have learnt.
func TestClockOfANewWorker(t *testing.T) {
	w := newWorld(t, 1, 1, synced("0.1", `{"name": "all", "limits": [{"limit": 5, "window": "1m", "algorithm": "fixed_window"}]}`))
	p := w.proxies[0]
	exchange := func() {
		w.now += 50e6
		p.now = w.now + 90*second
		w.vms[0].tick()
		w.deliver(w.vms[0])
	}
	passed := 0
	for range 3 {
		if w.vms[0].send() {
			passed++
		}
		exchange()
	}
	fresh := p.start(string(w.vms[0].configuration))
	for range 10 {
		for _, v := range []*fakeVM{fresh, w.vms[0]} {
			if v.send() {
				passed++
			}
		}
		exchange()
	}
	if passed > 6 { // one before the first answer, in a window of the wrong clock
		t.Errorf("passed %d, want 5 and one by the wrong clock", passed)
	}
}

// Limits that have room say nothing about when to try again, though a clock that went back makes them wait for nothing.
func TestRetryAfterWhenTheClockWentBack(t *testing.T) {
	p := newProxy(t)
	v := p.start(`{"rules": [
		{"name": "day", "limits": [{"limit": 1000, "window": "1d", "algorithm": "fixed_window"}]},
		{"name": "sec", "key": [{"header": "x-user"}], "limits": [{"limit": 1, "window": "1s", "algorithm": "fixed_window"}]}]}`)
	v.send("x-user", "ann")
	p.now -= 3600 * second
	v.send("x-user", "bob")
	v.send("x-user", "bob")
	want(t, v.reply.headers, `retry-after: 1`)
}

func TestTightestAmongEquals(t *testing.T) {
	p := newProxy(t)
	v := p.start(oneRule(`{"limit": 5, "window": "1s", "algorithm": "fixed_window"}, {"limit": 5, "window": "700ms", "algorithm": "fixed_window"}`))
	p.now = monday + 650e6 // the first window ends in 350 ms, the second in 750, both in a second if rounded up
	v.send("x-user", "ann")
	want(t, v.response, `
		ratelimit: "per-user";r=4;t=1, "per-user.2";r=4;t=1
		x-ratelimit-reset: 1
	`)
	p.now = monday + 500e6
	v.send("x-user", "bob")
	p.now = monday + 500e6 + 550e6
	v.send("x-user", "bob")
	want(t, v.response, `x-ratelimit-remaining: 3`)
}

// A table that can't be opened refuses the configuration, and no request of that context is limited.
func TestNoTable(t *testing.T) {
	p := newProxy(t)
	p.before = func(_ *fakeVM, op string) {
		if op == "set" {
			p.shared.Set([]byte("weir:default"), []byte("x"), 0)
		}
	}
	v := p.vm(oneRule(`{"limit": 5, "window": "1s"}`))
	if v.configure() {
		t.Error("started without a table")
	}
	if !v.send("x-user", "ann") || !v.done() {
		t.Error("a context that was refused limits requests, or stays")
	}
}

// Whatever order requests, ticks and answers of several VMs take, between every get and every set: sums are exact.
func TestAnyInterleaving(t *testing.T) {
	for _, algorithm := range []string{
		`"fixed_window"`, `"sliding_window"`, `"fixed_window", "start": "first_hit"`, `"sliding_window", "precision": "150d"`,
		`"token_bucket"`,
	} {
		for _, loss := range []float64{0, 0.15} {
			for seed := range uint64(8) {
				nodes := int(seed%2) + 1
				w := newWorld(t, nodes, 3, synced("0.02", fmt.Sprintf(`
					{"name": "a", "key": [{"header": "x-user"}], "limits": [{"limit": 1000000, "window": "300d", "algorithm": %s}]},
					{"name": "b", "limits": [{"limit": 200, "window": "300d", "algorithm": %[1]s}]}`, algorithm)))
				w.random = rand.New(rand.NewPCG(seed, 9))
				w.lossBefore, w.lossAfter = loss, loss
				passed := w.interleave()
				// What was on its way back, or granted in a callout that was lost, is there for others by now.
				for range 300 {
					if w.any().send("x-user", "0") {
						passed++
					}
					w.advance(100 * time.Millisecond)
				}
				for range 100 {
					w.advance(500 * time.Millisecond)
				}
				if nodes == 1 && passed != 200 {
					t.Errorf("%s, loss %v, seed %d: passed %d, want 200", algorithm, loss, seed, passed)
				}
				if got := w.sum(); got != 2*passed {
					t.Errorf("%s, loss %v, seed %d: the backend has %d hits of two rules, want 2 × %d", algorithm, loss, seed, got, passed)
				}
				for _, v := range w.vms {
					if v.plugin.node.Unfinished() {
						t.Errorf("%s, loss %v, seed %d: something is left when all is quiet", algorithm, loss, seed)
					}
				}
			}
		}
	}
}

// interleave has other VMs of a node do something between each VM's gets and sets, then waits until all is quiet.
func (w *world) interleave() (passed int64) {
	busy := map[*fakeVM]bool{}
	user := func() string { return fmt.Sprint(w.random.IntN(5)) }
	for _, p := range w.proxies {
		p.before = func(me *fakeVM, op string) {
			other := w.any()
			if op != "set" || busy[me] || w.random.IntN(3) != 0 || other == me || busy[other] || other.fakeProxy != me.fakeProxy {
				return
			}
			busy[me] = true
			defer delete(busy, me)
			switch w.random.IntN(3) {
			case 0:
				if other.send("x-user", user()) {
					passed++
				}
			case 1:
				w.now += 3e6
				for _, p := range w.proxies {
					p.now = w.now
				}
				other.tick()
			case 2:
				w.deliver(other)
			}
		}
	}
	for range 600 {
		if w.any().send("x-user", user()) {
			passed++
		}
		if w.random.IntN(3) == 0 {
			w.advance(time.Duration(w.random.IntN(10)) * time.Millisecond)
		}
	}
	for _, p := range w.proxies {
		p.before = nil
	}
	w.lossBefore, w.lossAfter = 0, 0
	for range 400 {
		w.advance(500 * time.Millisecond)
	}
	return passed
}

// Two nodes that stay below a token bucket's rate each, but not together, keep to it together.
func TestTokenBucketOfTwoNodes(t *testing.T) {
	for _, test := range []struct {
		limit, rate string
		pause       time.Duration
		requests    int
		most        int
	}{
		{`{"limit": 10, "window": "1s", "algorithm": "token_bucket"}`, "1", 111 * time.Millisecond, 540, 640},
		{`{"limit": 100, "window": "1m", "burst": 10, "algorithm": "token_bucket"}`, "0.5", 999 * time.Millisecond, 600, 1030},
		{`{"limit": 100, "window": "1m", "burst": 10, "algorithm": "token_bucket"}`, "5", 999 * time.Millisecond, 600, 1040},
	} {
		w := newWorld(t, 2, 1, synced(test.rate, `{"name": "all", "limits": [`+test.limit+`]}`))
		passed := 0
		for range test.requests {
			for _, v := range w.vms {
				if v.send() {
					passed++
				}
			}
			w.advance(test.pause)
		}
		if passed > test.most || passed < test.most*9/10 {
			t.Errorf("%s, sync_rate %s: passed %d of %d, want about %d", test.limit, test.rate, passed, 2*test.requests, test.most)
		}
	}
}

// A rule whose limits change while hits are pending loses none of them: neither of the limits that go, nor of those that stay.
func TestChangedLimitsWithPendingHits(t *testing.T) {
	limits := func(l string) string { return synced("1", `{"name": "all", "limits": [`+l+`]}`) }
	for _, test := range []struct {
		before, after string
		want          int64
	}{
		{`{"limit": 100, "window": "1h", "algorithm": "fixed_window"}`, `{"limit": 100, "window": "1h"}`, 3 + 5},
		{`{"limit": 100, "window": "1h", "algorithm": "fixed_window"}`, `{"limit": 1, "window": "1d", "burst": 100, "algorithm": "token_bucket"}`, 3 + 5},
		{`{"limit": 100, "window": "1h", "algorithm": "fixed_window"}`, `{"limit": 100, "window": "1h", "algorithm": "fixed_window"}, {"limit": 10, "window": "1d"}`, 8 + 5},
		{`{"limit": 2, "window": "1d", "burst": 100, "algorithm": "token_bucket"}`, `{"limit": 3, "window": "1d", "burst": 100, "algorithm": "token_bucket"}`, 8},
	} {
		w := newWorld(t, 1, 1, limits(test.before))
		w.vms[0].send()
		w.advance(300 * time.Millisecond)
		w.advance(1500 * time.Millisecond)
		w.vms[0].send()
		w.advance(300 * time.Millisecond)
		w.vms[0].send()
		w.vms[0], _ = w.vms[0].replace(limits(test.after))
		for range 5 {
			w.vms[0].send()
		}
		for range 300 {
			w.advance(100 * time.Millisecond)
		}
		if got := w.sum(); got != test.want {
			t.Errorf("%s\nto %s:\nthe backend has %d hits, want %d", test.before, test.after, got, test.want)
		}
	}
}

// As many keys as the capacity fit, however large their entries are.
func TestLargeEntriesShareAPage(t *testing.T) {
	for _, limits := range []int{1, 3, 8} {
		l := ""
		for i := range limits {
			l += fmt.Sprintf(`, {"limit": 367, "window": "%dd", "algorithm": "sliding_log"}`, 366-i)
		}
		p := newProxy(t)
		v := p.start(`{"capacity": 2, "rules": [{"name": "u", "key": [{"header": "x-user"}], "limits": [` + l[2:] + `]}]}`)
		passed := map[string]int{}
		for i := range 1000 {
			user := []string{"ann", "bob"}[i%2]
			if p.now += 1703 * second; v.send("x-user", user) {
				passed[user]++
			}
		}
		if passed["ann"] != 367 || passed["bob"] != 367 {
			t.Errorf("%d logs: passed %v, want 367 each", limits, passed)
		}
	}
}
