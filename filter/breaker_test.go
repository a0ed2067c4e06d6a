package filter

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"time"

	"weir/internal/wire"
	"weir/sharedata"
)

// failing has n callouts of a VM fail, by requests for keys that nobody knows.
func (w *world) failing(v *fakeVM, n int) {
	w.t.Helper()
	for range n {
		for _, s := range v.paused(1, "x-user", fmt.Sprint("failing", v.streams)) {
			c := v.callouts[len(v.callouts)-1]
			v.callouts = v.callouts[:len(v.callouts)-1]
			v.answer(c, 503, nil)
			v.still([]*stream{s})
			v.reset(s)
		}
	}
}

// The breaker opens for all workers of a proxy when some callouts have failed in a row. Then nobody waits, and one callout at a time tells
// whether the backend is back.
func TestBreaker(t *testing.T) {
	for _, configuration := range waits {
		w := newWorld(t, 2, 3, configuration)
		for range 5 {
			w.advance(time.Second)
		}
		failing := w.vms[:3]
		w.failing(failing[0], 1)
		w.failing(failing[1], 1)
		failing[2].reset(failing[2].paused(1, "x-user", "sue")[0]) // still closed
		failing[2].callouts = nil
		w.failing(failing[0], 1)
		for i, v := range failing {
			if s := v.pause("x-user", "ann"); s != nil {
				t.Errorf("worker %d of the proxy has a request wait though the breaker is open", i)
			}
		}
		if s := w.vms[3].pause("x-user", "ann"); s == nil {
			t.Error("the breaker of another proxy is open")
		} else {
			w.deliver(w.vms[3])
			w.vms[3].reset(s)
		}
		// One probe at a time, whoever it is, and none while it is out.
		probes := 0
		for range 400 {
			w.pass(5 * time.Millisecond)
			out := 0
			for _, v := range failing {
				v.tick()
				if s := v.pause("x-user", "ann"); s != nil && v.failures() < breakAfter {
					t.Fatal("a request waits, and the breaker is not open")
				}
				out += len(v.callouts)
			}
			if probes += out; out > 1 {
				t.Fatalf("%d probes at a time", out)
			}
			for _, v := range failing {
				w.lossBefore = 1
				w.deliver(v)
			}
		}
		if probes < 2 || probes > 20 {
			t.Errorf("%d probes in two seconds", probes)
		}
		w.lossBefore = 0
		for range 200 {
			w.advance(50 * time.Millisecond)
		}
		for i, v := range failing {
			if s := v.pause("x-user", fmt.Sprint("new", i)); s == nil {
				t.Errorf("worker %d asks nobody though the backend is back", i)
			}
		}
	}
}

// Wishes that nobody waits for any more are not sent when the backend is back, and don't keep the tick busy while it is away.
func TestWishesOfAnOutage(t *testing.T) {
	for _, configuration := range waits {
		w := newWorld(t, 1, 1, configuration)
		v := w.vms[0]
		for range 5 {
			w.advance(time.Second)
		}
		usual := v.tickMillis
		streams := v.paused(40, "x-user", "ann")
		callouts := v.callouts
		v.callouts = nil
		for _, c := range callouts {
			v.answer(c, 503, nil)
		}
		w.pass(time.Millisecond)
		v.tick()
		if n := v.still(streams); n != 0 {
			t.Errorf("%d requests wait while the breaker is open", n)
		}
		if n := v.plugin.node.Backlog().Wishes; n != 0 {
			t.Errorf("%d wishes are left", n)
		}
		v.tick()
		if v.tickMillis != usual {
			t.Errorf("ticks come every %d ms during an outage", v.tickMillis)
		}
	}
}

// Callouts that are never answered, as many as may be out, hold nothing up for long.
func TestHangingCallouts(t *testing.T) {
	w := newWorld(t, 1, 1, synced("0.1", `{"name": "user", "key": [{"header": "x-user"}], `+long+`}`))
	v := w.vms[0]
	w.advance(time.Second)
	for i := range 300 {
		v.settle = nil
		if s := v.pause("x-user", fmt.Sprint(i)); s != nil {
			v.reset(s)
		}
		w.pass(100 * time.Millisecond)
		v.tick()
		v.callouts = nil
	}
	v.settle = w.deliver
	w.quiet()
	if got, left := w.sum(), v.left(); got != 300 || left != "" {
		t.Errorf("the backend has %d of 300 hits; %s", got, left)
	}
}

// What decides without the backend is what the configuration says: when a callout fails, when it is late, and while the breaker is open.
func TestBackendFailureModes(t *testing.T) {
	for _, rate := range []string{"0", "1"} {
		for mode, passes := range map[string]int{"local": 3, "allow": 12, "deny": 0} {
			w := newWorld(t, 1, 1, `{"on_backend_failure": "`+mode+`", `+synced(rate, `{"name": "user", "key": [{"header": "x-user"}],
				"limits": [{"limit": 3, "window": "1h", "algorithm": "fixed_window"}]}`)[1:])
			v := w.vms[0]
			v.settle = nil
			passed := 0
			for i := range 12 {
				s := v.pause("x-user", "ann")
				switch {
				case s != nil && i%2 == 0:
					callouts := v.callouts
					v.callouts = nil
					for _, c := range callouts {
						v.answer(c, 504, nil)
					}
				case s != nil:
					v.callouts = nil
					w.pass(time.Second)
					v.tick()
				}
				if s != nil && s.wait.Waiting() {
					t.Fatalf("%s: request %d waits", mode, i)
				}
				if v.reply == nil {
					passed++
				} else {
					wantRetry := mode == "deny"
					if got := v.reply.headers["retry-after"]; wantRetry && got != "1" || got == "" || got == "0" {
						t.Errorf("%s: retry after %q", mode, got)
					}
				}
				v.reset(v.last)
			}
			if passed != passes {
				t.Errorf("sync_rate %s, %s: passed %d of 12, want %d", rate, mode, passed, passes)
			}
			w.quiet()
			if mode != "local" && w.sum() != 0 || mode == "local" && w.sum() != 3 {
				t.Errorf("sync_rate %s, %s: the backend has %d", rate, mode, w.sum())
			}
			if left := v.left(); left != "" {
				t.Errorf("sync_rate %s, %s: %s", rate, mode, left)
			}
		}
	}
}

// breakAfter is how many failures in a row open the breaker.
const breakAfter = 3

// failures is how many callouts have failed in a row, as shared data has it.
func (p *fakeProxy) failures() uint32 {
	if value, _, found := p.shared.Get([]byte("weir:default:backend"), nil); found {
		return binary.LittleEndian.Uint32(value[12:])
	}
	return 0
}

// An answer with a grant for more than was asked, with another number of grants or of rooms, is none.
func TestOddGrants(t *testing.T) {
	for _, configuration := range waits {
		w := newWorld(t, 1, 1, `{"on_backend_failure": "deny", `+configuration[1:])
		v := w.vms[0]
		w.advance(time.Second)
		streams := v.paused(1, "x-user", "ann")
		c := v.callouts[0]
		v.callouts = nil
		good, err := wire.DecodeAnswer(w.apply(c.body))
		if err != nil || len(good.Grants) != 1 {
			t.Fatalf("got %+v, %v", good, err)
		}
		total := good.Grants[0].Totals[0]
		many := func(n int) (totals []wire.Total) {
			for range n {
				totals = append(totals, total)
			}
			return totals
		}
		odd := []wire.Answer{
			{Nodes: 1},
			{Nodes: 1, Grants: []wire.Grant{good.Grants[0], good.Grants[0]}},
			{Nodes: 1, Grants: []wire.Grant{{Units: 1}}},
			{Nodes: 1, Grants: []wire.Grant{{Units: 1, Totals: many(9)}}},
			{Nodes: 1, Grants: []wire.Grant{{Units: 1 << 63, AtNanos: uint64(w.now), Totals: many(1)}}},
			{Nodes: 1, Totals: many(3), Grants: good.Grants},
		}
		for i := range odd {
			odd[i].NowNanos = uint64(w.now)
			v.answer(c, 200, wire.AppendAnswer(nil, &odd[i]))
			if n := v.still(streams); n != 0 {
				t.Errorf("answer %d: %d wait", i, n)
			}
			for n := 0; n < 100 && len(v.callouts) == 0; n++ {
				w.pass(100 * time.Millisecond)
				v.tick()
			}
			if len(v.callouts) != 1 || string(v.callouts[0].body) != string(c.body) {
				t.Fatalf("answer %d: the push was not sent again as it is", i)
			}
			c, v.callouts = v.callouts[0], nil
		}
		v.answer(c, 200, w.apply(c.body))
		v.reset(streams[0])
		w.quiet()
		if left := v.left(); w.sum() != 0 || left != "" {
			t.Errorf("the backend has %d hits, of requests that were refused; %s", w.sum(), left)
		}
	}
}

// A totals' content that no backend has, a time or a window far off, or numbers beyond all bounds, neither panic nor keep anybody waiting.
func TestAbsurdGrants(t *testing.T) {
	for _, algorithm := range algorithms {
		for _, rate := range []string{"0", "1"} {
			w := newWorld(t, 1, 1, synced(rate, `{"name": "all", "limits": [{"limit": 5, `+algorithm+`}]}`))
			v := w.vms[0]
			w.advance(time.Second)
			for i, number := range []uint64{0, 1, 1<<63 - 1, 1 << 63, 1<<64 - 1, uint64(w.now), uint64(w.now) + 1e15} {
				s := v.pause()
				callouts := v.callouts
				v.callouts = nil
				for _, c := range callouts {
					push, err := wire.DecodePush(c.body)
					if err != nil {
						t.Fatal(err)
					}
					answer := wire.Answer{NowNanos: number, Nodes: number}
					total := wire.Total{Newest: number, Hits: []uint64{number, number}}
					if len(algorithm) > 0 && v.plugin.limits[0].Limits[0].Precision != 0 {
						total.Ages = []uint64{0, number | 1}
					}
					for range push.Items {
						answer.Totals = append(answer.Totals, total)
					}
					for _, take := range push.Takes {
						answer.Grants = append(answer.Grants, wire.Grant{Units: take.Most, AtNanos: number, Totals: []wire.Total{total}})
					}
					v.answer(c, 200, wire.AppendAnswer(nil, &answer))
				}
				w.pass(time.Second)
				v.tick()
				if s != nil {
					if v.still([]*stream{s}) != 0 {
						t.Errorf("%s, number %d: a request waits for ever", algorithm, i)
					}
					v.reset(s)
				}
			}
		}
	}
}

// A configuration that is replaced, or goes, lets those that wait go on; what is on its way arrives or goes back.
func TestConfigurationUpdateWhileRequestsWait(t *testing.T) {
	for _, configuration := range waits {
		for _, replaced := range []bool{true, false} {
			for _, answered := range []bool{true, false} {
				w := newWorld(t, 1, 1, configuration)
				v := w.vms[0]
				w.advance(time.Second)
				streams := v.paused(20, "x-user", "ann")
				callouts := v.callouts
				v.callouts = nil
				last := v
				if replaced {
					last, _ = v.replace(configuration)
					w.vms = append(w.vms, last)
				} else if v.done() {
					t.Error("gone with callouts out")
				}
				if n := v.still(streams); n != 0 {
					t.Errorf("%d requests of a configuration that is gone wait", n)
				}
				last.tick()
				for _, c := range callouts {
					if body := w.apply(c.body); answered {
						v.answer(c, 200, body)
					}
				}
				passed := 0
				for _, s := range streams {
					if s.decorate {
						passed++
					}
					v.reset(s)
				}
				w.quiet()
				if got, left := w.sum(), last.left(); got != int64(passed) || left != "" {
					t.Errorf("replaced %v, answered %v: passed %d, and the backend has %d; %s", replaced, answered, passed, got, left)
				}
			}
		}
	}
}

// Two configurations in one VM, of the same namespace or not, wait and are answered side by side.
func TestTwoContextsWait(t *testing.T) {
	for _, namespace := range []string{"default", "other"} {
		w := newWorld(t, 1, 1, waits[0])
		v := w.vms[0]
		second := v.vm(`{"namespace": "` + namespace + `", ` + waits[1][1:])
		second.filter, second.streams = v.filter, 1000
		if !second.configure() {
			t.Fatal(second.log)
		}
		w.vms = append(w.vms, second)
		w.advance(time.Second)
		first, other := v.paused(20, "x-user", "ann"), second.paused(5, "x-user", "ann")
		for range 10 {
			w.deliver(second)
			w.deliver(v)
		}
		if v.still(first) != 0 || second.still(other) != 0 {
			t.Error("somebody waits for ever")
		}
		if v.done(); second.plugin.node == nil {
			t.Error("the second has no backend any more")
		}
		w.vms = w.vms[1:]
		w.quiet()
		if left := second.left(); left != "" {
			t.Error(left)
		}
	}
}

// An answer too long for one tick is settled in the next, which comes soon.
func TestLongAnswersAreSettledSoon(t *testing.T) {
	w := newWorld(t, 1, 1, waits[0])
	v := w.vms[0]
	w.advance(time.Second)
	v.paused(4, "x-user", "first")
	var streams []*stream
	for i := range 400 {
		streams = append(streams, v.paused(1, "x-user", fmt.Sprint(i))...)
	}
	w.deliver(v)
	v.tick()
	if v.tickMillis == 1 {
		t.Fatal("ticks come fast already, and nothing is tested")
	}
	v.before = func(*fakeVM, string) { w.proxies[0].now += 10_000 }
	w.deliver(v)
	if n := v.still(streams); n == 0 {
		t.Fatal("all are settled at once, and nothing is tested")
	}
	if v.tickMillis != 1 {
		t.Errorf("the next tick comes after %d ms", v.tickMillis)
	}
	for range 100 {
		v.tick()
		w.deliver(v)
	}
	if n := v.still(streams); n != 0 {
		t.Errorf("%d wait", n)
	}
}

// A node that the backend has refused says so until it asks again: nothing remains, and a client is told to wait.
func TestRefusedByADryLease(t *testing.T) {
	w := newWorld(t, 2, 1, synced("1", `{"name": "user", "limits": [{"limit": 5, "window": "1m", "algorithm": "fixed_window"}]}, {"name": "other", "key": [{"header": "x-user"}], "limits": [{"limit": 6, "window": "1h"}]}`))
	a, b := w.vms[0], w.vms[1]
	w.advance(time.Second)
	for range 5 {
		a.send()
	}
	for _, user := range []string{"bob", "sue", "zoe"} {
		if b.send("x-user", user) {
			t.Fatal("more than the limit")
		}
		if got := b.reply.headers["retry-after"]; got == "" || got == "0" {
			t.Errorf("retry after %q", got)
		}
		want(t, b.reply.headers, `x-ratelimit-remaining: 0`)
	}
	// A rule that has room, and was not asked, says so.
	want(t, b.reply.headers, `ratelimit: "user";r=0;t=59, "other";r=6;t=0`)
}

// A refusal that a VM remembers ends when another worker's lease has landed.
func TestRememberedRefusalEndsWithALease(t *testing.T) {
	w := newWorld(t, 2, 2, synced("1", scarce))
	other, mine, neighbour := w.vms[0], w.vms[2], w.vms[3]
	w.advance(time.Second)
	for range 5 {
		other.send("x-user", "ann")
	}
	if mine.send("x-user", "ann") {
		t.Fatal("more than the limit")
	}
	// The other node's hits go, and the neighbour gets a lease of the proxy's entry.
	w.pass(100 * time.Millisecond)
	func() {
		e := neighbour.entry(0, "ann")
		defer neighbour.asHost()()
		for i := range e.cell.States {
			e.cell.States[i].Hits[0].Lease = 3
		}
		expires, use := e.cell.Worth()
		if !e.table.Write(&e.slot, e.cell.Append(nil, w.now), sharedata.Meta{ExpiresNanos: expires, Use: use}, w.now) {
			t.Fatal("not written")
		}
	}()
	w.pass(11 * time.Millisecond)
	if !mine.send("x-user", "ann") {
		t.Error("refused from memory though the entry has a lease by now")
	}
}

// A request that takes from a lease allocates nothing.
func TestLeasedHitsAllocateNothing(t *testing.T) {
	for _, algorithm := range algorithms {
		limit := 20_000
		if strings.Contains(algorithm, "log") {
			limit = 360
		}
		w := newWorld(t, 2, 1, synced("60", fmt.Sprintf(`{"name": "user", "limits": [{"limit": %d, %s}]}`, limit, algorithm)))
		v := w.vms[0]
		w.advance(time.Second)
		for range 150 {
			v.send()
			w.advance(time.Millisecond)
		}
		leased := v.leased(0, "")
		if leased < 16 {
			t.Errorf("%s: %d hits are leased, which is too few to test", algorithm, leased)
			continue
		}
		v.settle, v.calls, v.response, v.ended = nil, nil, nil, nil
		if n := testing.AllocsPerRun(int(min(leased/8, 50)), func() { v.stream() }); n != 0 {
			t.Errorf("%s: %v allocations", algorithm, n)
		}
		if v.leased(0, "") >= leased {
			t.Errorf("%s: nothing was taken from the lease", algorithm)
		}
	}
}

// Limits of a second and of a minute together: leases of both end each with its window, and nothing is lost.
func TestLeasesOfDifferentWindows(t *testing.T) {
	w := newWorld(t, 3, 2, synced("0.5", `{"name": "all", "limits": [
		{"limit": 300, "window": "1s", "algorithm": "fixed_window"}, {"limit": 2000, "window": "1h", "algorithm": "fixed_window"}]}`))
	passed, second := 0, map[int64]int{}
	for range 12_000 {
		if w.any().send() {
			passed++
			second[w.now/1e9]++
		}
		w.advance(time.Millisecond)
	}
	for at, n := range second {
		if n > 300 {
			t.Errorf("%d passed in second %d", n, at-monday/1e9)
		}
	}
	if passed > 2000 || passed < 1960 {
		t.Errorf("passed %d of 2000", passed)
	}
	w.quiet()
	if got := w.sum(); got != int64(passed) {
		t.Errorf("the backend has %d in the long window, want %d", got, passed)
	}
}

// A counter with a lease that has to make room gives the lease back.
func TestEvictedLeasesGoBack(t *testing.T) {
	for _, algorithm := range algorithms {
		capacity := "40"
		if strings.Contains(algorithm, "log") {
			capacity = "4" // of large entries
		}
		w := newWorld(t, 1, 2, `{"capacity": `+capacity+`, `+synced("5", `{"name": "user", "key": [{"header": "x-user"}], "limits": [{"limit": 300, `+algorithm+`}]}`)[1:])
		w.advance(time.Second)
		passed := int64(0)
		for i := range 3000 {
			if w.any().send("x-user", fmt.Sprint(i%150)) {
				passed++
			}
			w.advance(time.Millisecond)
		}
		if w.vms[0].count("evicted_counters_total") == 0 {
			t.Errorf("%s: nothing was evicted", algorithm)
		}
		w.quiet()
		if got := w.sum(); got != passed {
			t.Errorf("%s: the backend has %d hits, want %d", algorithm, got, passed)
		}
		if n := w.vms[0].count("lost_hits_total"); n != 0 {
			t.Errorf("%s: %d lost hits", algorithm, n)
		}
	}
}

// A rule that changes while its hits are leased gives the leases of limits that it had back.
func TestChangedLimitsWithLeases(t *testing.T) {
	limits := func(l string) string { return synced("1", `{"name": "all", "limits": [`+l+`]}`) }
	for _, after := range []string{
		`{"limit": 1000, "window": "1h"}`,
		`{"limit": 1000, "window": "1h", "algorithm": "fixed_window"}, {"limit": 1000, "window": "1d"}`,
		`{"limit": 500, "window": "1h", "algorithm": "fixed_window"}`,
	} {
		w := newWorld(t, 1, 2, limits(`{"limit": 1000, "window": "1h", "algorithm": "fixed_window"}`))
		w.advance(time.Second)
		passed := int64(0)
		for range 100 {
			if w.any().send() {
				passed++
			}
			w.advance(time.Millisecond)
		}
		if w.vms[0].leased(0, "") == 0 {
			t.Fatal("nothing is leased")
		}
		for i, v := range w.vms {
			w.vms[i], _ = v.replace(limits(after))
			w.vms[i].settle = w.deliver
		}
		w.quiet()
		if got := w.sum(); got != passed {
			t.Errorf("to %s: the backend has %d hits, want %d", after, got, passed)
		}
	}
}

// A bucket that is used steadily, and then by all nodes at once, gives no more than it holds.
func TestTokenBucketBurstAfterSteadyUse(t *testing.T) {
	for _, test := range []struct {
		window string
		burst  float64
	}{{"5s", 1000}, {"60s", 1000}, {"60s", 100}} {
		for _, part := range []float64{0.3, 0.9} {
			w := newWorld(t, 10, 1, synced("1", fmt.Sprintf(`{"name": "all", "limits": [{"limit": 1000, "window": %q, "burst": %v, "algorithm": "token_bucket"}]}`, test.window, test.burst)))
			width, _ := time.ParseDuration(test.window)
			missing, most, last := 0.0, 0.0, w.now
			send := func() {
				if w.any().send() {
					missing = max(0, missing-float64(w.now-last)*1000/float64(width)) + 1
					last, most = w.now, max(most, missing)
				}
			}
			for next := w.now; w.now < monday+60*second; w.advance(time.Millisecond) {
				for ; w.now >= next; next += int64(float64(width) / 1000 / part) {
					send()
				}
			}
			for i := range 3000 {
				send()
				if i%20 == 0 {
					w.advance(time.Millisecond)
				}
			}
			if most > test.burst+1 || most < test.burst/2 {
				t.Errorf("window %s, burst %v, used to %v of the rate before: %v tokens were missing at most", test.window, test.burst, part, most)
			}
		}
	}
}

// A bucket whose tokens come back faster than an answer needs lets requests pass all the same.
func TestTokensThatComeBackBeforeTheAnswer(t *testing.T) {
	w := newWorld(t, 2, 1, synced("1", `{"name": "all", "limits": [{"limit": 1000, "window": "1s", "burst": 15, "algorithm": "token_bucket"}]}`))
	w.advance(time.Second)
	for _, v := range w.vms {
		v.settle = func(v *fakeVM) {
			answers := map[int][]byte{}
			for i, c := range v.callouts {
				answers[i] = w.apply(c.body)
			}
			w.pass(20 * time.Millisecond)
			callouts := v.callouts
			v.callouts = nil
			for i, c := range callouts {
				v.answer(c, 200, answers[i])
			}
		}
	}
	for i := range 300 {
		if !w.vms[0].send() {
			t.Fatalf("request %d was refused by a bucket that is full", i)
		}
		w.pass(30 * time.Millisecond)
		if i%10 == 0 {
			w.vms[0].tick()
		}
	}
}
