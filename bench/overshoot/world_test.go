package main

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm/types"

	"weir/internal/proxywasm"
	"weir/internal/wire"
	"weir/window"
)

// waiter is a plugin that pauses every request, and asks its backend. It lets a request with an even key pass when that answers, and
// rejects the others at the next tick.
type waiter struct {
	types.DefaultVMContext
	types.DefaultPluginContext
	t *testing.T
	// log is what happened in all VMs, with the time.
	log     *[]string
	since   int64
	pending []uint32
	ids     map[uint32]bool
}

func (p *waiter) NewPluginContext(uint32) types.PluginContext { return p }

func (p *waiter) note(format string, args ...any) {
	*p.log = append(*p.log, fmt.Sprintf("%g ", float64(proxywasm.Now()-p.since)/1e6)+fmt.Sprintf(format, args...))
}

func (p *waiter) OnPluginStart(int) types.OnPluginStartStatus {
	proxywasm.SetTickPeriod(100)
	return types.OnPluginStartStatusOK
}

func (p *waiter) OnTick() {
	for _, id := range p.pending {
		proxywasm.SetContext(id)
		key, _ := proxywasm.RequestHeader("x-user")
		p.note("reject %s", key)
		proxywasm.SendLocalResponse(&proxywasm.LocalResponse{Status: 429})
		proxywasm.ResumeRequest() // too late
	}
	p.pending = nil
}

func (p *waiter) NewHttpContext(id uint32) types.HttpContext {
	if p.ids[id] {
		p.t.Errorf("two streams have the id %d", id)
	}
	p.ids[id] = true
	return &paused{plugin: p, id: id}
}

type paused struct {
	types.DefaultHttpContext
	plugin *waiter
	id     uint32
	ended  bool
}

func (s *paused) OnHttpRequestHeaders(int, bool) types.Action {
	p := s.plugin
	header, _ := proxywasm.RequestHeader("x-user")
	key := string(header)
	p.note("came %s", key)
	switch key {
	case "pass":
		return types.ActionContinue
	case "refuse":
		proxywasm.SendLocalResponse(&proxywasm.LocalResponse{Status: 429})
		return types.ActionPause
	}
	var headers proxywasm.Pairs
	headers.Add(":method", "POST")
	body := wire.AppendPush(nil, &wire.Push{Namespace: "n", Sender: 1, Sequence: uint64(s.id), Floor: 1})
	proxywasm.Dispatch(&proxywasm.Callout{Cluster: "weir", Headers: &headers, Body: body, TimeoutMillis: 200, Done: func(ok bool) {
		status, _ := proxywasm.CalloutHeader(":status")
		answer, _ := proxywasm.CalloutBody(wire.MaxAnswer)
		if _, err := wire.DecodeAnswer(answer); (err == nil) != (string(status) == "200") || !ok {
			p.t.Errorf("answer %s %q: %v", status, answer, err)
		}
		if strings.TrimLeft(key, "02468") == "" {
			proxywasm.SetContext(s.id)
			p.note("resume %s", key)
			proxywasm.ResumeRequest()
			p.note("resumed %s: ended is %v", key, s.ended)
		} else {
			p.pending = append(p.pending, s.id)
		}
	}})
	return types.ActionPause
}

func (s *paused) OnHttpStreamDone() { s.ended = true }

// fixedTrip is a network whose ways take 2 ms each.
var fixedTrip = network{trip: 2 * millisecond}

func newWaiters(t *testing.T, n network) (w *world, log *[]string) {
	t.Helper()
	log = &[]string{}
	w, err := newWorld(worldOptions{nodes: 2, workers: 2, network: n, newVM: func(*rand.Rand) types.VMContext {
		return &waiter{t: t, log: log, since: monday, ids: map[uint32]bool{}}
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.close() })
	return w, log
}

// A paused request waits until its plugin resumes or rejects it, in a callout's answer or in a tick, and its stream ends only
// when that callback is over.
func TestRequestsWait(t *testing.T) {
	w, log := newWaiters(t, fixedTrip)
	var passed []int64
	w.passed = func() { passed = append(passed, w.now-monday) }
	w.advance(monday + second) // all have ticked
	*log = nil
	w.request(0, 0, []byte("pass"))
	w.request(0, 0, []byte("2"))
	w.advance(w.now + millisecond)
	w.request(0, 0, []byte("3"))
	w.request(0, 0, []byte("refuse"))
	w.advance(w.now + second)
	want := []string{
		"1000 came pass", "1000 came 2", "1001 came 3", "1001 came refuse",
		"1004 resume 2", "1004 resumed 2: ended is false",
	}
	last := (*log)[len(*log)-1]
	if !slices.Equal((*log)[:len(*log)-1], want) || !strings.HasSuffix(last, " reject 3") {
		t.Errorf("got %q, want %q and that 3 is rejected", *log, want)
	}
	if !slices.Equal(passed, []int64{1000 * millisecond, 1004 * millisecond}) {
		t.Errorf("requests passed at %d", passed)
	}
	if w.requests != 4 || w.waits.requests != 2 || w.waits.longest < 4*millisecond || w.waits.longest > 105*millisecond || w.sent != 2 {
		t.Errorf("got %d requests, %+v, %d callouts", w.requests, w.waits, w.sent)
	}
	if len(w.nodes[0].vms[0].waiting) != 0 {
		t.Error("there is a request that waits still")
	}
	if err := w.failure(); err != nil {
		t.Error(err)
	}
}

// Requests of a process that ends are gone, and its callouts are answered to nobody.
func TestCrash(t *testing.T) {
	w, log := newWaiters(t, fixedTrip)
	w.request(0, 0, []byte("2"))
	w.kill(0)
	w.start(0)
	w.request(0, 0, []byte("4"))
	w.advance(w.now + second)
	if got := strings.Join(*log, ", "); got != "0 came 2, 0 came 4, 4 resume 4, 4 resumed 4: ended is false" {
		t.Error(got)
	}
	if w.waits.requests != 1 || w.backend.pushes != 2 {
		t.Errorf("%d requests have waited, and the backend got %d pushes", w.waits.requests, w.backend.pushes)
	}
}

// Requests that wait for ever are noticed, and so is a plugin that leaves them behind.
func TestForgottenRequests(t *testing.T) {
	w, _ := newWaiters(t, fixedTrip)
	w.request(0, 0, []byte("2"))
	if w.nobodyWaits() == nil {
		t.Error("nobody noticed a request that waits")
	}
	w.advance(w.now + second)
	if err := errors.Join(w.nobodyWaits(), w.failure()); err != nil {
		t.Error(err)
	}
	w.request(0, 0, []byte("2"))
	w.drain(0)
	if w.failure() == nil {
		t.Error("nobody noticed that a plugin was done while a request waited")
	}
}

// To name a stream that does not wait is a fault.
func TestUnknownStream(t *testing.T) {
	w, _ := newWaiters(t, fixedTrip)
	w.enter(w.nodes[0].vms[0])
	proxywasm.SetContext(12345)
	w.leave()
	if w.failure() == nil {
		t.Error("nobody noticed")
	}
}

// Callouts are lost as often as the network says, before and after they were applied, and what is late is as good as lost.
func TestNetwork(t *testing.T) {
	c := &clock{now: monday}
	random := rand.New(rand.NewPCG(1, 1))
	n := network{trip: 10 * millisecond, jitter: 5 * millisecond, lostBefore: 0.1, lostAfter: 0.2}
	const callouts = 20_000
	applied, answered, refused := 0, 0, 0
	for range callouts {
		sent, at := c.now, int64(0)
		n.carry(c, random, 100*millisecond, func() { applied, at = applied+1, c.now }, func(ok bool) {
			if ok {
				answered++
				if at == 0 || at-sent < 5*millisecond || at-sent > 15*millisecond || c.now-at < 5*millisecond || c.now-at > 15*millisecond {
					t.Fatalf("applied after %d, answered after %d", at-sent, c.now-sent)
				}
			} else if refused++; c.now-sent != 100*millisecond {
				t.Fatalf("given up after %d", c.now-sent)
			}
		})
		c.advance(c.now + second)
	}
	near := func(got int, share float64) bool { return math.Abs(float64(got)/callouts-share) < 0.01 }
	if !near(applied, 0.9) || !near(answered, 0.7) || answered+refused != callouts {
		t.Errorf("%d applied, %d answered, %d not, of %d", applied, answered, refused, callouts)
	}
	n.lostBefore, n.lostAfter = 0, 0
	var order []string
	n.carry(c, random, 3*millisecond, func() { order = append(order, "applied") }, func(ok bool) { order = append(order, fmt.Sprint(ok)) })
	c.advance(c.now + second)
	if !slices.Equal(order, []string{"false", "applied"}) {
		t.Errorf("a late callout: %q", order)
	}
}

// Timers tick at the period that was asked for last, from when it was asked for.
func TestTicks(t *testing.T) {
	var ticks []int64
	plugin := &ticker{}
	plugin.tick = func() {
		ticks = append(ticks, (proxywasm.Now()-monday)/millisecond)
		if len(ticks) == 2 {
			proxywasm.SetTickPeriod(10)
		}
	}
	w, err := newWorld(worldOptions{nodes: 1, workers: 1, network: fixedTrip, newVM: func(*rand.Rand) types.VMContext { return plugin }})
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	w.advance(monday + 228*millisecond)
	if len(ticks) < 5 || ticks[1]-ticks[0] != 100 || ticks[2]-ticks[1] != 10 || ticks[4]-ticks[2] != 20 {
		t.Errorf("ticks at %d ms", ticks)
	}
	ticks = nil
	w.enter(w.nodes[0].vms[0])
	proxywasm.SetTickPeriod(7) // not in a tick
	w.leave()
	w.advance(monday + 245*millisecond)
	if !slices.Equal(ticks, []int64{235, 242}) {
		t.Errorf("ticks at %d ms, want them at 235 and 242", ticks)
	}
}

type ticker struct {
	types.DefaultVMContext
	types.DefaultPluginContext
	tick func()
}

func (p *ticker) NewPluginContext(uint32) types.PluginContext { return p }

func (p *ticker) OnPluginStart(int) types.OnPluginStartStatus {
	proxywasm.SetTickPeriod(100)
	return types.OnPluginStartStatusOK
}

func (p *ticker) OnTick() { p.tick() }

// Shared data is a node's, and behaves as Envoy's.
func TestSharedData(t *testing.T) {
	w, _ := newWaiters(t, fixedTrip)
	on := func(place, worker int) { w.enter(w.nodes[place].vms[worker]) }
	set := func(key, value string, cas uint32, want bool) {
		t.Helper()
		if (&proxywasm.SharedData{}).Set([]byte(key), []byte(value), cas) != want {
			t.Errorf("setting %s to %s with %d gave %v", key, value, cas, !want)
		}
	}
	get := func(key, want string, number uint32) {
		t.Helper()
		if value, cas, found := (&proxywasm.SharedData{}).Get([]byte(key), nil); string(value) != want || cas != number || found != (number != 0) {
			t.Errorf("%s is %q, %d, %v; want %q, %d", key, value, cas, found, want, number)
		}
	}
	on(0, 0)
	get("a", "", 0)
	set("a", "1", 0x7fffffff, true) // any number creates
	set("a", "2", 0x7fffffff, false)
	get("a", "1", 1)
	set("b", "x", 0, true)
	on(0, 1)
	get("b", "x", 2)
	set("a", "3", 1, true)
	get("a", "3", 3) // numbers are the process's
	set("a", "", 0, true)
	get("a", "", 4)
	on(1, 0)
	get("a", "", 0)
	w.leave()
}

// The worst that was ever in use, of streams of hits whose worst is known.
func TestOracle(t *testing.T) {
	const s = second
	for _, test := range []struct {
		name  string
		limit window.Limit
		hits  []int64 // from monday
		worst float64
	}{
		{"fixed: four before a boundary of windows and three behind it",
			window.Limit{Shape: window.Shape{Kind: window.FixedWindow, Width: 10 * s}, Max: 4}, []int64{6 * s, 7 * s, 8 * s, 9 * s, 10 * s, 11 * s, 12 * s}, 1},
		{"fixed: five in one window",
			window.Limit{Shape: window.Shape{Kind: window.FixedWindow, Width: 10 * s}, Max: 4}, []int64{0, 1, 2, 3, 10*s - 1, 10 * s}, 1.25},
		{"first hit: the window is the hit's own",
			window.Limit{Shape: window.Shape{Kind: window.FirstHitWindow, Width: 10 * s}, Max: 2}, []int64{5 * s, 10 * s, 15*s - 1, 15 * s}, 1.5},
		{"sliding: three weigh 0.75 a quarter into the next window, with two more",
			window.Limit{Shape: window.Shape{Kind: window.SlidingWindow, Width: 8 * s}, Max: 4}, []int64{0, 1, 2, 10 * s, 10 * s}, (3*0.75 + 2) / 4},
		{"sub-buckets: the first has left when the last comes",
			window.Limit{Shape: window.Shape{Kind: window.SlidingBuckets, Width: 10 * s, Precision: 5 * s}, Max: 2}, []int64{4 * s, 6 * s, 9 * s, 11 * s}, 1.5},
		{"log: more than the limit is not forgotten",
			window.Limit{Shape: window.Shape{Kind: window.SlidingBuckets, Width: 10 * s, Precision: window.LogPrecision}, Max: 2}, []int64{0, 1, 2, 3, 10 * s}, 2},
		{"bucket: four at once of two, and one when three are back",
			window.Limit{Shape: window.Shape{Kind: window.TokenBucket, Width: 2 * s}, Max: 1, Burst: 2}, []int64{0, 0, 0, 0, 6 * s}, 2},
	} {
		o := newOracle(test.limit)
		worst := 0.0
		for _, at := range test.hits {
			worst = max(worst, o.admit(monday+at))
		}
		if worst != test.worst {
			t.Errorf("%s: got %g, want %g", test.name, worst, test.worst)
		}
	}
}
