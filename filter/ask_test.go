package filter

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm/types"

	"weir/internal/counter"
	"weir/internal/fields"
	"weir/internal/node"
	"weir/internal/proxywasm"
	"weir/sharedata"
)

const (
	perUser = `{"name": "user", "key": [{"header": "x-user"}], "limits": [{"limit": 50, "window": "1h", "algorithm": "fixed_window"}]}`
	// scarce has a limit so small that nodes ask before each hit.
	scarce = `{"name": "user", "key": [{"header": "x-user"}], "limits": [{"limit": 5, "window": "1h", "algorithm": "fixed_window"}]}`
)

// algorithms are windows so long that none ends, and so that a token needs longer to come back than a test lasts.
var algorithms = []string{
	`"window": "300d", "algorithm": "fixed_window"`,
	`"window": "300d"`,
	`"window": "300d", "algorithm": "fixed_window", "start": "first_hit"`,
	`"window": "300d", "precision": "150d"`,
	`"window": "300d", "algorithm": "sliding_log"`,
	`"window": "300d", "algorithm": "token_bucket"`,
}

func (w *world) pass(d time.Duration) {
	w.now += int64(d)
	for _, p := range w.proxies {
		p.now = w.now
	}
}

// quiet waits until there is nothing to do any more.
func (w *world) quiet() {
	w.lossBefore, w.lossAfter = 0, 0
	for range 400 {
		w.advance(500 * time.Millisecond)
	}
}

// leased is what a proxy has leased of a rule, for a user, or of a rule without a key.
func (v *fakeVM) leased(rule int, user string) uint64 {
	e := v.entry(rule, user)
	var leased uint64
	for i := range e.cell.States {
		leased = max(leased, e.rule.Limits[i].Leased(&e.cell.States[i]))
	}
	return leased
}

// entry is what a proxy has in its shared data for a rule's key.
type entry struct {
	rule  *counter.Rule
	table *sharedata.Table
	slot  sharedata.Slot
	cell  counter.Cell
}

// entry is what the proxy has of a rule for a user, or of a rule without a key.
func (v *fakeVM) entry(rule int, user string) *entry {
	v.t.Helper()
	defer v.asHost()()
	table, err := sharedata.Open(&proxywasm.SharedData{}, sharedata.Options{
		Namespace: v.plugin.config.Namespace, Capacity: v.plugin.config.Capacity,
	}, rand.Uint64)
	if err != nil {
		v.t.Fatal(err)
	}
	e := &entry{rule: &v.plugin.limits[rule].Rule, table: table}
	if table.Read(&e.slot, table.Address(v.key(rule, user))) {
		e.cell.Load(e.rule, e.slot.Payload())
	} else {
		e.cell.Load(e.rule, nil)
	}
	e.cell.Advance(v.plugin.now())
	return e
}

// key is a rule's key for a user, or of a rule without a key.
func (v *fakeVM) key(rule int, user string) []byte {
	key := append([]byte(nil), v.plugin.rules[rule].keyPrefix...)
	if user != "" {
		key = counter.AppendPart(key, user)
	}
	return key
}

// asHost has host calls come to the VM.
func (v *fakeVM) asHost() (restore func()) { return proxywasm.Use(v) }

// sends are the headers that a stream adds to its response.
func (s *stream) sends() map[string]string { return sent(&s.headers) }

func sent(h *fields.List) map[string]string {
	got := map[string]string{}
	for _, f := range h.Fields() {
		got[f.Name] = string(f.Value)
	}
	return got
}

// left describes what a VM still has to do.
func (v *fakeVM) left() string {
	if left := v.plugin.node.Backlog(); left != (node.Backlog{}) || v.plugin.node.Unfinished() {
		return fmt.Sprintf("%+v", left)
	}
	return ""
}

// Ten nodes of two workers each, in any order of gets, sets, ticks and answers: never above the limit, and when all is quiet sums are
// what has passed, and nobody holds anything back.
func TestTenNodes(t *testing.T) {
	for _, algorithm := range algorithms {
		for seed := range uint64(3) {
			w := newWorld(t, 10, 2, synced("0.05", fmt.Sprintf(`
				{"name": "a", "key": [{"header": "x-user"}], "limits": [{"limit": 60, %s}, {"limit": 70, "window": "366d"}]},
				{"name": "b", "limits": [{"limit": 90, %[1]s}]}`, algorithm)))
			w.random = rand.New(rand.NewPCG(seed, 5))
			passed := w.interleave()
			w.quiet()
			if passed > 90 || passed < 85 {
				t.Errorf("%s, seed %d: passed %d of 90", algorithm, seed, passed)
			}
			if got := w.sum(); got != 3*passed {
				t.Errorf("%s, seed %d: the backend has %d hits of three limits, want 3 × %d", algorithm, seed, got, passed)
			}
			for _, v := range w.vms {
				if left := v.left(); left != "" {
					t.Errorf("%s, seed %d: %s", algorithm, seed, left)
				}
			}
			for _, p := range w.proxies {
				v := w.vmOf(p)
				for user := range 5 {
					if n := v.leased(0, fmt.Sprint(user)); n != 0 {
						t.Errorf("%s, seed %d: %d hits are leased when all is quiet", algorithm, seed, n)
					}
				}
				if n := v.leased(1, ""); n != 0 {
					t.Errorf("%s, seed %d: %d hits are leased when all is quiet", algorithm, seed, n)
				}
			}
		}
	}
}

func (w *world) vmOf(p *fakeProxy) *fakeVM {
	for _, v := range w.vms {
		if v.fakeProxy == p {
			return v
		}
	}
	return nil
}

// A thousand hits in a window, leased by nodes that come and go quiet: never above the limit, and hardly below it.
func TestTenNodesLease(t *testing.T) {
	for _, algorithm := range algorithms {
		if strings.Contains(algorithm, "log") {
			continue // none has so large a limit
		}
		w := newWorld(t, 10, 2, synced("0.5", fmt.Sprintf(`{"name": "all", "limits": [{"limit": 2000, %s}]}`, algorithm)))
		passed := int64(0)
		for i := range 8000 {
			// All nodes, then one of them, then all.
			v := w.any()
			if i > 2000 && i < 5000 {
				v = w.vms[i/1500]
			}
			if v.send() {
				passed++
			}
			if i%4 == 0 {
				w.advance(2 * time.Millisecond)
			}
		}
		if passed > 2000 || passed < 1950 {
			t.Errorf("%s: passed %d of 2000", algorithm, passed)
		}
		w.quiet()
		if got := w.sum(); got != passed {
			t.Errorf("%s: the backend has %d hits, want %d", algorithm, got, passed)
		}
	}
}

// The backend decides every request: ten nodes that hammer a key admit the limit, no hit more or less; if callouts are lost, what the
// backend has is what passed.
func TestBackendDecidesAll(t *testing.T) {
	for _, algorithm := range algorithms {
		for _, loss := range []float64{0, 0.15} {
			w := newWorld(t, 10, 2, synced("0", fmt.Sprintf(`{"name": "a", "limits": [{"limit": 100, %s}, {"limit": 120, "window": "366d"}]},
				{"name": "b", "key": [{"header": "x-user"}], "limits": [{"limit": 30, %[1]s}]}`, algorithm)))
			w.lossBefore, w.lossAfter = loss, loss
			passed := map[string]int64{}
			all := int64(0)
			for i := range 600 {
				user := fmt.Sprint(i % 5)
				if w.any().send("x-user", user) {
					passed[user]++
					all++
				}
				if i%3 == 0 {
					w.advance(time.Duration(w.random.IntN(20)) * time.Millisecond)
				}
			}
			if loss == 0 && all != 100 {
				t.Errorf("%s: passed %d, want 100", algorithm, all)
			}
			for user, n := range passed {
				if loss == 0 && n > 30 {
					t.Errorf("%s: passed %d of user %s, want 30 at most", algorithm, n, user)
				}
			}
			w.quiet()
			// A log over its limit, as local decisions can take it, forgets its oldest hits.
			if got := w.sum(); got != 3*all && (all <= 100 || !strings.Contains(algorithm, "log")) {
				t.Errorf("%s, loss %v: the backend has %d hits of three limits, want 3 × %d", algorithm, loss, got, all)
			}
			for _, v := range w.vms {
				if left := v.left(); left != "" {
					t.Errorf("%s, loss %v: %s", algorithm, loss, left)
				}
			}
		}
	}
}

// A table too small for its keys forgets entries; the backend does not.
func TestBackendDecidesWhatTheTableForgets(t *testing.T) {
	w := newWorld(t, 1, 2, `{"capacity": 20, `+synced("0", perUser)[1:])
	passed := 0
	for i := range 60 * 100 {
		if w.any().send("x-user", fmt.Sprint(i%100)) {
			passed++
		}
		w.pass(time.Millisecond)
	}
	if passed != 50*100 || w.sum() != 50*100 {
		t.Errorf("passed %d, the backend has %d, want 5000", passed, w.sum())
	}
}

// A request that waits for the backend, or was refused, does not go on with its body, where the proxy stops headers only.
func TestBodyWaitsForTheBackend(t *testing.T) {
	for _, headersOnly := range []bool{false, true} {
		for _, configuration := range []string{synced("0", scarce), synced("1", scarce)} {
			w := newWorld(t, 2, 1, configuration)
			w.advance(time.Second)
			for i, want := range []int{5, 0} {
				w.vms[i].headersOnly = headersOnly
				passed := 0
				for range 6 {
					if w.vms[i].send("x-user", "ann") {
						passed++
					}
				}
				if passed != want || w.sum() != 5 {
					t.Errorf("headers only %v: node %d passed %d, and the backend has %d hits, want %d and 5", headersOnly, i, passed, w.sum(), want)
				}
			}
			v := w.vms[1]
			s := v.paused(1, "x-user", "bob")[0]
			for callback, action := range map[string]types.Action{"body": s.OnHttpRequestBody(1, true), "trailers": s.OnHttpRequestTrailers(1)} {
				if action != types.ActionPause {
					t.Errorf("%s of a request that waits: got %v", callback, action)
				}
			}
			w.deliver(v)
			for callback, action := range map[string]types.Action{"body": s.OnHttpRequestBody(1, true), "trailers": s.OnHttpRequestTrailers(1)} {
				if action != types.ActionContinue {
					t.Errorf("%s of a request that was let go: got %v", callback, action)
				}
			}
		}
	}
}

// Rules that the backend decides together take from all of them or from none.
func TestBackendDecidesAllRulesOrNone(t *testing.T) {
	w := newWorld(t, 2, 1, synced("0", scarce+`, {"name": "all", "limits": [{"limit": 8, "window": "1h", "algorithm": "fixed_window"}]}`))
	for range 10 {
		w.any().send("x-user", "ann")
	}
	if w.sum() != 10 {
		t.Errorf("the backend has %d hits of two rules, want 5 each", w.sum())
	}
	for range 10 {
		w.any().send("x-user", "bob")
	}
	if w.sum() != 16 {
		t.Errorf("the backend has %d hits of two rules, want 8 each", w.sum())
	}
}

// A cost above the limit is refused without asking; cost 0 asks, and takes nothing.
func TestBackendDecidesCosts(t *testing.T) {
	w := newWorld(t, 1, 1, synced("0", `{"name": "user", "cost": {"header": "x-cost"}, "limits": [{"limit": 5, "window": "1h", "algorithm": "fixed_window"}]}`))
	v := w.vms[0]
	for _, step := range []struct {
		cost string
		want bool
		sum  int64
	}{
		{"0", true, 0}, {"6", false, 0}, {"99999999999999999999999", false, 0}, {"5", true, 5}, {"1", false, 5}, {"0", true, 5},
	} {
		if got := v.send("x-cost", step.cost); got != step.want || w.sum() != step.sum {
			t.Errorf("cost %s: passed %v, and the backend has %d, want %v and %d", step.cost, got, w.sum(), step.want, step.sum)
		}
	}
	if v.reply == nil && len(v.callouts) != 0 {
		t.Error("a callout is out")
	}
}

// Rejected hits count where the rule says so, and once, whoever decides.
func TestCountRejectedHits(t *testing.T) {
	for _, rate := range []string{"0", "0.1"} {
		for _, nodes := range []int{1, 2} {
			w := newWorld(t, nodes, 1, synced(rate, `{"name": "all", "count_rejected": true, "limits": [{"limit": 5, "window": "1h", "algorithm": "fixed_window"}]}`))
			passed := 0
			for range 12 {
				if w.any().send() {
					passed++
				}
				w.advance(10 * time.Millisecond)
			}
			w.quiet()
			// What one node has leased, another one may refuse before it is used.
			if passed > 5 || passed < 6-nodes || w.sum() != 12 {
				t.Errorf("sync_rate %s, %d nodes: passed %d, the backend has %d, want 5 and 12", rate, nodes, passed, w.sum())
			}
		}
	}
}

// What the response costs is charged besides leases, and pushed.
func TestCostOnResponseBesidesLeases(t *testing.T) {
	for _, rate := range []string{"0", "0.1"} {
		w := newWorld(t, 2, 2, synced(rate, `{"name": "all", "cost_on_response": {"response_header": "x-tokens"},
			"limits": [{"limit": 100000, "window": "1h", "algorithm": "fixed_window"}, {"limit": 90000, "window": "1s"}]}`))
		w.pass(time.Second)
		sent := int64(0)
		for i := range 400 {
			v := w.any()
			v.upstream = map[string]string{"x-tokens": "4"}
			if v.send() {
				sent++
			}
			if i%4 == 0 {
				w.advance(time.Millisecond)
			}
		}
		for range 100 {
			w.advance(100 * time.Millisecond)
		}
		if got := w.sum(); sent != 400 || got != 5*400 {
			t.Errorf("sync_rate %s: passed %d, the backend has %d hits of the long window, want 2000", rate, sent, got)
		}
	}
}

// paused begins n requests that wait, and fails if one doesn't.
func (v *fakeVM) paused(n int, headers ...string) (streams []*stream) {
	v.t.Helper()
	for i := range n {
		s := v.pause(headers...)
		if s == nil {
			v.t.Fatalf("request %d does not wait", i)
		}
		streams = append(streams, s)
	}
	return streams
}

// still is how many of the streams wait, and checks that the others were answered once.
func (v *fakeVM) still(streams []*stream) (n int) {
	v.t.Helper()
	for _, s := range streams {
		switch {
		case s.wait.Waiting():
			n++
		case v.ended[s.id] != 1:
			v.t.Errorf("stream %d was resumed or answered %d times", s.id, v.ended[s.id])
		}
	}
	return n
}

var waits = []string{synced("0", perUser), synced("1", scarce)}

// A request waits for backend.timeout at most, whatever becomes of its callout; later answers do it no harm.
func TestWaitingHasADeadline(t *testing.T) {
	for _, configuration := range waits {
		w := newWorld(t, 1, 1, configuration)
		v := w.vms[0]
		streams := v.paused(10, "x-user", "ann")
		callouts := v.callouts
		v.callouts = nil
		w.pass(199 * time.Millisecond)
		v.tick()
		if n := v.still(streams); n != 10 {
			t.Errorf("%d of 10 wait before the timeout", n)
		}
		w.pass(2 * time.Millisecond)
		v.tick()
		if n := v.still(streams); n != 0 {
			t.Errorf("%d of 10 wait after the timeout", n)
		}
		for _, c := range callouts {
			v.answer(c, 200, w.apply(c.body))
		}
		v.still(streams)
		for _, s := range streams {
			v.reset(s)
		}
		w.quiet()
		passed := int64(10)
		if strings.Contains(configuration, `"limit": 5,`) {
			passed = 5
		}
		if got, left := w.sum(), v.left(); got != passed || left != "" {
			t.Errorf("the backend has %d hits, want %d; %s", got, passed, left)
		}
	}
}

// A stream that goes while it waits is never touched again, though its memory serves another one. What it was granted goes back.
func TestStreamGoneWhileItWaits(t *testing.T) {
	for _, configuration := range waits {
		w := newWorld(t, 1, 1, configuration)
		v := w.vms[0]
		first := v.paused(1, "x-user", "ann")[0]
		gone := first.id
		v.reset(first)
		second := v.paused(1, "x-user", "bob")[0]
		if first != second {
			t.Fatal("the stream's memory is not used again, and nothing is tested")
		}
		c := v.callouts[len(v.callouts)-2]
		v.answer(c, 200, w.apply(c.body))
		if !second.wait.Waiting() || len(v.ended) != 0 {
			t.Errorf("the answer of a stream that is gone decided another one: %v", v.ended)
		}
		w.deliver(v)
		if second.wait.Waiting() || v.ended[second.id] != 1 || v.ended[gone] != 0 {
			t.Errorf("ended: %v", v.ended)
		}
		v.reset(second)
		w.quiet()
		if got := w.sum(); got != 1 {
			t.Errorf("the backend has %d hits, want 1", got)
		}
	}
}

// Requests of one worker that wait at the same time share callouts, and all get what there is.
func TestWaitingRequestsShareCallouts(t *testing.T) {
	for _, test := range []struct {
		configuration string
		callouts      int
	}{
		{synced("0", perUser), 6}, {synced("1", perUser), 12},
	} {
		w := newWorld(t, 1, 1, test.configuration)
		v := w.vms[0]
		w.pushes = 0
		streams := v.paused(100, "x-user", "ann")
		for v.still(streams) > 0 && w.pushes < 100 {
			w.pass(3 * time.Millisecond)
			w.deliver(v)
		}
		passed := 0
		for _, s := range streams {
			if s.decorate {
				passed++
			}
		}
		if passed != 50 || w.pushes > test.callouts {
			t.Errorf("passed %d of 100 with %d callouts, want 50 with %d at most", passed, w.pushes, test.callouts)
		}
	}
}

// A request of several rules asks for all that they lack at once.
func TestRequestOfSeveralRulesAsksOnce(t *testing.T) {
	rules := []string{}
	for i := range 6 {
		rules = append(rules, fmt.Sprintf(`{"name": "r%d", "key": [{"header": "x-user"}], "limits": [{"limit": 5, "window": "1h"}]}`, i))
	}
	w := newWorld(t, 1, 1, synced("1", strings.Join(rules, ",")))
	v := w.vms[0]
	w.advance(time.Second)
	before := w.pushes
	if streams := v.paused(1, "x-user", "ann"); v.plugin.node.Backlog().Awaited != 1 {
		t.Errorf("%d callouts", v.plugin.node.Backlog().Awaited)
	} else if w.deliver(v); v.still(streams) != 0 || w.pushes-before != 1 || len(v.callouts) != 0 {
		t.Errorf("%d wait after %d callouts, and %d are out", v.still(streams), w.pushes-before, len(v.callouts))
	}
}

// Refused batches give their place among the callouts back, and so do those that are never answered.
func TestCalloutsThatFailLeaveRoomForOthers(t *testing.T) {
	for _, configuration := range waits {
		for _, status := range []int{400, 413, 503, -1} {
			w := newWorld(t, 1, 1, configuration)
			v := w.vms[0]
			w.advance(time.Second)
			for i := range 30 {
				s := v.pause("x-user", fmt.Sprint("u", i))
				callouts := v.callouts
				v.callouts = nil
				for _, c := range callouts {
					if status > 0 {
						v.answer(c, status, []byte("{}"))
					}
				}
				w.pass(300 * time.Millisecond)
				v.tick()
				if s != nil {
					v.still([]*stream{s})
					v.reset(s)
				}
			}
			for range 200 {
				w.advance(100 * time.Millisecond)
			}
			if n := v.plugin.node.Backlog().Awaited; n != 0 {
				t.Errorf("status %d: %d callouts are waited for", status, n)
			}
			before := w.sum()
			if !v.send("x-user", "bob") || w.sum() <= before && strings.Contains(configuration, `"sync_rate": 0`) {
				t.Errorf("status %d: nobody asks any more", status)
			}
			w.quiet()
			if left := v.left(); left != "" {
				t.Errorf("status %d: %s", status, left)
			}
		}
	}
}

// A callout that the proxy does not take fails at once. The streams that wait for it with the one that is being decided are decided
// soon, each by its own rules and in its own context.
func TestCalloutRefusedWhileOthersWait(t *testing.T) {
	w := newWorld(t, 1, 1, synced("1", scarce+`, {"name": "other", "key": [{"header": "x-user"}], "limits": [{"limit": 4000, "window": "1h"}]}`))
	v := w.vms[0]
	w.advance(time.Second)
	w.advance(time.Second)
	streams := v.paused(10, "x-user", "ann") // four callouts, and a wish that waits for its turn
	callouts := v.callouts
	v.callouts = nil
	v.refuse = true
	// One callout ends. The next request takes the wish along, and fails.
	v.answer(callouts[0], 503, nil)
	if s := v.pause("x-user", "bob"); s != nil {
		t.Error("a request waits for a callout that nobody has taken")
	}
	if got := v.reply; got != nil {
		t.Errorf("bob was answered %+v", got)
	}
	if waiting := v.still(streams); waiting != 9 {
		t.Errorf("%d streams wait, want 9: others were decided within a stream's callback", waiting)
	}
	want(t, v.last.sends(), `x-ratelimit-remaining: 4`)
	v.answer(callouts[1], 200, w.apply(callouts[1].body))
	v.answer(callouts[2], 200, w.apply(callouts[2].body))
	v.answer(callouts[3], 200, w.apply(callouts[3].body))
	w.pass(time.Millisecond)
	v.tick()
	if n := v.still(streams); n != 0 {
		t.Errorf("%d of 10 wait for nothing", n)
	}
}

// shortly has a callback run that must not take much longer than a tick may.
func (w *world) shortly(what string, callback func()) {
	w.t.Helper()
	start := w.now
	callback()
	if took := time.Duration(w.now - start); took > 7*time.Millisecond/4 {
		w.t.Errorf("%s took %v", what, took)
	}
}

// Many requests may wait for one key. Whatever becomes of its callouts they go on a little at a time, each once, and soon.
func TestManyWaitersGoOnALittleAtATime(t *testing.T) {
	const requests = 3000
	for name, test := range map[string]struct {
		status int // of all answers, -1 if there is none
		limit  int
		others int // requests for as many keys
	}{
		"answered": {200, 100_000, 0}, "answered with few hits": {200, 20, 3000}, "refused": {503, 100_000, 0}, "never answered": {-1, 100_000, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1, 1, synced("1", fmt.Sprintf(`{"name": "user", "key": [{"header": "x-user"}], "limits": [{"limit": %d, "window": "1h"}]}`, test.limit)))
			v := w.vms[0]
			v.settle = nil
			w.advance(time.Second)
			var streams []*stream
			for len(streams) < requests {
				if s := v.pause("x-user", "ann"); s != nil {
					streams = append(streams, s)
				}
			}
			for i := range test.others {
				if s := v.pause("x-user", fmt.Sprint(i)); s != nil {
					streams = append(streams, s)
				}
			}
			busy(w)
			from := w.now
			for rounds := 0; v.plugin.node.Backlog().Waiting > 0; rounds++ {
				callouts := v.callouts
				v.callouts = nil
				for _, c := range callouts {
					if answer := w.apply(c.body); test.status > 0 {
						w.shortly("an answer", func() { v.answer(c, test.status, answer) })
					}
				}
				w.pass(time.Millisecond)
				w.shortly("a tick", v.tick)
				if rounds > 1000 {
					t.Fatalf("%d requests wait for ever", v.plugin.node.Backlog().Waiting)
				}
			}
			for _, s := range streams {
				if n := v.ended[s.id]; n != 1 {
					t.Fatalf("a request went on %d times", n)
				}
			}
			// Each of them takes 10 µs or 20, which is from 30 to 60 ms of ticks that work for half of the time.
			if took, most := time.Duration(w.now-from), time.Duration(v.plugin.config.Backend.Timeout)+150*time.Millisecond; took > most {
				t.Errorf("all went on after %v, want %v at most", took, most)
			}
		})
	}
}

// A backend that answers in a fifth of the timeout answers in time, though many requests for as many keys wait: callouts take many wishes
// along, even if a tick has time for a few.
func TestManyWishesShareCallouts(t *testing.T) {
	const requests = 4000
	w := newWorld(t, 1, 1, synced("1", `{"name": "user", "key": [{"header": "x-user"}], "limits": [{"limit": 3, "window": "1h"}]}`))
	v := w.vms[0]
	v.settle = nil
	w.advance(time.Second)
	busy(w)
	for i := range requests {
		if v.pause("x-user", fmt.Sprint(i)) == nil {
			t.Fatal("a request does not wait")
		}
	}
	type flying struct {
		callout
		at int64
	}
	var out []flying
	callouts := 0
	for v.plugin.node.Backlog().Waiting > 0 {
		for _, c := range v.callouts {
			out = append(out, flying{c, w.now + int64(v.plugin.config.Backend.Timeout)/5})
			callouts++
		}
		v.callouts = nil
		for len(out) > 0 && out[0].at <= w.now {
			answer := w.apply(out[0].body)
			w.shortly("an answer", func() { v.answer(out[0].callout, 200, answer) })
			out = out[1:]
		}
		w.pass(time.Millisecond)
		w.shortly("a tick", v.tick)
	}
	// The first ones go alone, and then it takes 20 ms to take in what a thousand asked for.
	if alone := v.count("decided_alone_total"); callouts > 12 || alone > requests/5 {
		t.Errorf("%d of %d requests were decided alone, with %d callouts", alone, requests, callouts)
	}
	if w.quiet(); v.left() != "" {
		t.Error(v.left())
	}
}

// A callout that is still being filled when the breaker opens, or the plugin context goes, is sent later, once.
func TestCalloutsThatAreNotFullArrive(t *testing.T) {
	configuration := synced("1", `{"name": "user", "key": [{"header": "x-user"}], "limits": [{"limit": 1000, "window": "1h"}]}`)
	for name, interrupt := range map[string]func(v *fakeVM, out []callout) *fakeVM{
		"breaker": func(v *fakeVM, out []callout) *fakeVM {
			for _, c := range out[:breakAfter] {
				v.answer(c, 503, nil)
			}
			for range 50 { // which takes less than the timeout
				v.tick()
			}
			if n := v.plugin.node.Backlog().Waiting; n > 0 {
				t.Errorf("%d requests wait for a backend that is away", n)
			}
			return v
		},
		"another configuration": func(v *fakeVM, _ []callout) *fakeVM {
			next, _ := v.replace(strings.Replace(configuration, "1000", "1001", 1))
			return next
		},
		"no configuration": func(v *fakeVM, _ []callout) *fakeVM {
			v.done()
			return v
		},
	} {
		t.Run(name, func(t *testing.T) {
			const keys = 1000
			w := newWorld(t, 1, 1, configuration)
			v := w.vms[0]
			w.advance(time.Second)
			w.advance(time.Second)
			v.settle = nil
			var streams []*stream
			passed := 0
			for len(streams) < keys {
				for i := range keys {
					if s := v.pause("x-user", fmt.Sprint(i)); s != nil {
						streams = append(streams, s)
					} else {
						passed++
					}
				}
			}
			busy(w)
			callouts := v.callouts
			v.callouts = nil
			w.shortly("an answer", func() { v.answer(callouts[0], 200, w.apply(callouts[0].body)) })
			if v.plugin.node.Backlog().Pushes <= len(callouts)-1+len(v.callouts) {
				t.Fatal("no callout is being filled, and nothing is tested")
			}
			w.vms[0] = interrupt(v, callouts[1:])
			for _, c := range callouts[1:] {
				v.answer(c, 200, w.apply(c.body))
			}
			w.proxies[0].before = nil
			v = w.vms[0]
			w.quiet()
			for _, s := range streams {
				if s.wait.Waiting() || v.ended[s.id] > 1 {
					t.Fatal("a request waits for ever, or goes on twice")
				}
				if s.decorate {
					passed++
				}
			}
			if got := w.sum(); got != int64(passed) {
				t.Errorf("the backend has %d hits, want %d", got, passed)
			}
			if left := v.left(); left != "" {
				t.Error(left)
			}
		})
	}
}
