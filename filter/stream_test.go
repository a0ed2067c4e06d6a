package filter_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"weir/filter"
	"weir/internal/fields"
	"weir/internal/must"
	"weir/internal/proxywasm"

	"github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm/types"
)

// paused begins n requests that wait, and fails if one doesn't.
func (v *fakeVM) paused(n int, headers ...string) (streams []*stream) {
	v.t.Helper()
	for i := range n {
		s := v.pause(headers...)
		must.EqualOrEnd(v.t, s != nil, true, "request %d waits", i)
		streams = append(streams, s)
	}
	return streams
}

// still is how many of the streams wait, and checks that the others were answered once.
func (v *fakeVM) still(streams []*stream) (n int) {
	v.t.Helper()
	for _, s := range streams {
		switch {
		case s.Waits():
			n++
		case v.ended[s.ID()] != 1:
			v.t.Errorf("stream %d was resumed or answered %d times", s.ID(), v.ended[s.ID()])
		}
	}
	return n
}

func sent(h *fields.List) map[string]string {
	got := map[string]string{}
	for _, f := range h.Fields() {
		got[f.Name] = string(f.Value)
	}
	return got
}

// After many requests at once, with long keys, no more is kept than the next requests need.
func TestIdleStreamsAreBounded(t *testing.T) {
	w := newWorld(t, 1, 1, synced("0", perUser))
	v := w.vms[0]
	for _, s := range v.paused(filter.MaxIdle+100, "x-user", strings.Repeat("k", filter.MaxIdleKeys)) {
		v.reset(s)
	}
	must.Equal(t, v.plugin.Idle(), filter.MaxIdle, "streams are kept")
	v.reset(v.paused(1, "x-user", "ann")[0])
	must.AtMost(t, max(v.plugin.KeysMemory(), cap(v.plugin.First().Key)), filter.MaxIdleKeys, "bytes that are kept for the next keys, or for the last")
}

// A request that holds a place until its end has a stream of its own, with its own number.
func TestRequestsAtTheSameTimeHaveTheirStreams(t *testing.T) {
	v := newProxy(t).start(`{"rules": [{"name": "r", "match": {"path": {"exact": "/held"}}, "limits": [{"limit": 2, "algorithm": "in_flight"}]}]}`)
	defer proxywasm.Use(v)()
	v.receive("GET", "/", nil)
	s, _ := v.plugin.OnRequest(9, true)
	must.EqualOrEnd(t, s == nil, true, "a request that is over has no stream")
	v.receive("GET", "/held", nil)
	var streams [2]types.HttpContext
	for i := range streams {
		v.context = uint32(i + 1)
		streams[i], _ = v.plugin.OnRequest(v.context, true)
	}
	must.EqualOrEnd(t, streams[0] != nil && streams[1] != nil && streams[0] != streams[1], true, "two requests at the same time have their streams, %p and %p", streams[0], streams[1])
	for i := range streams {
		must.Equal(t, streams[i].(*stream).ID(), uint32(i+1), "the number of a request's stream")
	}
}

// A request that waits for the backend, or was refused, does not go on with its body, where the
// proxy stops headers only.
func TestBodyWaitsForTheBackend(t *testing.T) {
	for _, headersOnly := range []bool{false, true} {
		for _, configuration := range []string{synced("0", scarce), synced("1", scarce)} {
			w := joined(t, 2, 1, configuration)
			for i, want := range []int{5, 0} {
				w.vms[i].headersOnly = headersOnly
				must.Equal(t, w.vms[i].passed(6, "x-user", "ann"), want, "headers only %v: node %d passed", headersOnly, i)
				w.wantSum(5, fmt.Sprint("headers only ", headersOnly))
			}
			v := w.vms[1]
			s := v.paused(1, "x-user", "bob")[0]
			for callback, action := range map[string]types.Action{"body": s.OnHttpRequestBody(1, true), "trailers": s.OnHttpRequestTrailers(1)} {
				must.Equal(t, action, types.ActionPause, "%s of a request that waits", callback)
			}
			w.deliver(v)
			for callback, action := range map[string]types.Action{"body": s.OnHttpRequestBody(1, true), "trailers": s.OnHttpRequestTrailers(1)} {
				must.Equal(t, action, types.ActionContinue, "%s of a request that was let go", callback)
			}
		}
	}
}

// A stream that goes while it waits is never touched again, though its memory serves another
// stream. Its granted hits go back.
func TestStreamGoneWhileItWaits(t *testing.T) {
	for _, configuration := range waits {
		w := newWorld(t, 1, 1, configuration)
		v := w.vms[0]
		first := v.paused(1, "x-user", "ann")[0]
		gone := first.ID()
		v.reset(first)
		second := v.paused(1, "x-user", "bob")[0]
		must.EqualOrEnd(t, first, second, "the stream's memory is not used again, and nothing is tested")
		c := v.callouts[len(v.callouts)-2]
		v.answer(c, 200, w.apply(c.body))
		must.Equal(t, second.Waits() && len(v.ended) == 0, true, "the answer of a stream that is gone decides no other one: %v", v.ended)
		w.deliver(v)
		if second.Waits() || v.ended[second.ID()] != 1 || v.ended[gone] != 0 {
			t.Errorf("ended: %v", v.ended)
		}
		v.reset(second)
		w.quiet()
		w.wantSum(1, "afterwards")
	}
}

// A callout that the proxy does not take fails at once. The streams that wait for it, beside the
// stream that is being decided, are decided soon, each by its own rules and in its own context.
func TestCalloutRefusedWhileOthersWait(t *testing.T) {
	w := joined(t, 1, 1, synced("1", scarce+`, {"name": "other", "key": [{"header": "x-user"}], "limits": [{"limit": 4000, "window": "1h"}]}`))
	v := w.vms[0]
	w.advance(time.Second)
	streams := v.paused(10, "x-user", "ann") // four callouts, and a wish that waits for its turn
	callouts := v.dispatched()
	v.refuse = true
	// One callout ends. The next request takes the wish along, and fails.
	v.answer(callouts[0], 503, nil)
	must.Equal(t, v.pause("x-user", "bob") == nil, true, "a request does not wait for a callout that nobody has taken")
	must.Equal(t, v.reply == nil, true, "bob was answered by nobody but %+v", v.reply)
	must.Equal(t, v.still(streams), 9, "streams that wait: others were decided within a stream's callback")
	want(t, sent(v.last.Headers()), `x-ratelimit-remaining: 4`)
	v.answer(callouts[1], 200, w.apply(callouts[1].body))
	v.answer(callouts[2], 200, w.apply(callouts[2].body))
	v.answer(callouts[3], 200, w.apply(callouts[3].body))
	w.pass(time.Millisecond)
	v.tick()
	must.Equal(t, v.still(streams), 0, "of 10 wait for nothing")
}

// A request that loses every race is decided all the same. Its hit is added when that is possible, at a tick or by
// another request, and changes nothing for that.
func TestHitThatLosesEveryRace(t *testing.T) {
	for _, ticks := range []bool{true, false} {
		v := newProxy(t).start(`{"capacity": 10, ` + oneRule(`{"limit": 100, "window": "1h"}`)[1:]) // one page
		v.send("x-user", "zed")
		v.before = func(_ *fakeVM, op string) {
			if op == "set" {
				v.race()
			}
		}
		must.Equal(t, v.send("x-user", "ann"), true, "passed")
		want(t, v.response, `x-ratelimit-remaining: 99`)
		v.before = nil
		must.EqualOrEnd(t, v.plugin.Node().HasRetries(), true, "hits are held")
		if ticks {
			must.Equal(t, v.count("given_up_total"), 1, "hits were given up for now")
			must.Equal(t, v.plugin.Node().HasRetries(), false, "hits are held after a tick")
		}
		for _, test := range []struct{ user, remaining string }{{"bob", "99"}, {"bob", "98"}, {"ann", "98"}} {
			v.send("x-user", test.user)
			want(t, v.response, `x-ratelimit-remaining: `+test.remaining)
		}
	}
}

// algorithms are windows so long that none ends, and so that a token needs longer to come back than
// a test lasts.
var algorithms = []string{
	`"window": "300d", "algorithm": "fixed_window"`,
	`"window": "300d"`,
	`"window": "300d", "algorithm": "fixed_window", "start": "first_hit"`,
	`"window": "300d", "precision": "150d"`,
	`"window": "300d", "algorithm": "sliding_log"`,
	`"window": "300d", "algorithm": "token_bucket"`,
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
		leased := v.leased()
		if leased < 16 {
			t.Errorf("%s: %d hits are leased, which is too few to test", algorithm, leased)
			continue
		}
		v.settle, v.calls, v.response, v.ended = nil, nil, nil, nil
		must.Equal(t, testing.AllocsPerRun(int(min(leased/8, 50)), func() { v.stream() }), 0, "%s: allocations", algorithm)
		must.Equal(t, v.leased() < leased, true, "%s: some was taken from the lease", algorithm)
	}
}
