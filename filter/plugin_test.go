package filter_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"weir/internal/must"
)

// A table that can't be opened refuses the configuration, and no request of that context is
// limited.
func TestNoTable(t *testing.T) {
	p := newProxy(t)
	p.before = func(_ *fakeVM, op string) {
		if op == "set" {
			p.shared.Set([]byte("weir2:default"), []byte("x"), 0)
		}
	}
	v := p.vm(oneRule(`{"limit": 5, "window": "1s"}`))
	must.Equal(t, v.configure(), false, "started without a table")
	must.Equal(t, [2]bool{v.send("x-user", "ann"), v.done()}, [2]bool{true, true}, "a context that was refused limits nothing, and is done")
}

func TestPluginContextLeaves(t *testing.T) {
	for _, reachable := range []bool{true, false} {
		w := newWorld(t, 1, 1, synced("3600", charged))
		v := w.vms[0]
		v.upstream = map[string]string{"x-cost": "1"}
		for i := range 3000 {
			v.send("x-user", fmt.Sprint(i))
		}
		must.EqualOrEnd(t, v.done(), false, "gone with hits that were not pushed")
		if !reachable {
			w.away = true
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
		must.Equal(t, v.tickMillis, 0, "reachable %v: ms between the ticks of a context that is gone", reachable)
	}
}

// A context that is gone at once asks for no more ticks, and the one in its place still does.
func TestTicksOfAReplacedContext(t *testing.T) {
	for _, configuration := range []string{oneRule(`{"limit": 50, "window": "1h"}`), synced("1", perUser)} {
		v := newWorld(t, 1, 1, configuration).vms[0]
		next, gone := v.replace(strings.Replace(configuration, "50", "51", 1))
		must.Equal(t, [3]bool{gone, v.tickMillis > 0, next.tickMillis > 0}, [3]bool{true, false, true}, "gone, and whether the old and the new context tick")
	}
}

// A configuration that is replaced, or goes, stays until those that wait have their answers, or
// their time is over. Hits on their way arrive or go back.
func TestConfigurationUpdateWhileRequestsWait(t *testing.T) {
	for _, configuration := range waits {
		for _, replaced := range []bool{true, false} {
			for _, answered := range []bool{true, false} {
				w := newWorld(t, 1, 1, configuration)
				v := w.vms[0]
				w.advance(time.Second)
				streams := v.paused(20, "x-user", "ann")
				callouts := v.dispatched()
				var gone bool
				last := v
				if replaced {
					last, gone = v.replace(configuration)
					w.vms = append(w.vms, last)
				} else {
					gone = v.done()
				}
				if v.tick(); gone || v.calls["done"] > 0 || v.still(streams) != len(streams) {
					t.Errorf("gone %v while %d of %d requests wait", gone || v.calls["done"] > 0, v.still(streams), len(streams))
				}
				last.tick()
				for _, c := range callouts {
					if body := w.apply(c.body); answered {
						v.answer(c, 200, body)
					}
				}
				for range 3 { // some are asked for again
					w.deliver(v)
				}
				if !answered {
					w.advance(200 * time.Millisecond)
				}
				must.Equal(t, v.still(streams), 0, "requests of a configuration that is gone wait")
				if alone := v.counts[v.metrics["weir.weir_namespace=.=default;.;decided_alone_total"]]; answered && alone != 0 {
					t.Errorf("%d requests were decided without the backend, which has answered", alone)
				}
				for ticks := 0; v.calls["done"] == 0; ticks++ {
					w.advance(10 * time.Millisecond)
					must.EqualOrEnd(t, ticks < 1000, true, "a configuration that is gone does not stay for ever")
				}
				if replaced {
					w.vms = w.vms[1:]
				}
				passed := 0
				for _, s := range streams {
					if s.Passed() {
						passed++
					}
					v.reset(s)
				}
				w.quiet()
				must.Equal(t, w.sum(), int64(passed), "replaced %v, answered %v: hits that the backend has", replaced, answered)
				must.Equal(t, last.left(), "", "replaced %v, answered %v: left", replaced, answered)
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
		must.EqualOrEnd(t, second.configure(), true, "configured: %q", second.log)
		w.vms = append(w.vms, second)
		w.advance(time.Second)
		first, other := v.paused(20, "x-user", "ann"), second.paused(5, "x-user", "ann")
		for range 10 {
			w.deliver(second)
			w.deliver(v)
		}
		must.Equal(t, [2]int{v.still(first), second.still(other)}, [2]int{0, 0}, "requests that wait for ever")
		v.done()
		must.Equal(t, second.plugin.Node() != nil, true, "the second has a backend still")
		w.vms = w.vms[1:]
		w.quiet()
		must.Equal(t, second.left(), "", "")
	}
}

// A callout that is still being filled when the breaker opens, or the plugin context goes, is sent
// later, once.
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
			must.Equal(t, v.plugin.Node().Backlog().Waiting, 0, "requests wait for a backend that is away")
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
			w := joined(t, 1, 1, configuration)
			v := w.vms[0]
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
			callouts := v.dispatched()
			w.shortly("an answer", func() { v.answer(callouts[0], 200, w.apply(callouts[0].body)) })
			must.EqualOrEnd(t, v.plugin.Node().Backlog().Pushes > len(callouts)-1+len(v.callouts), true, "a callout is being filled, or nothing is tested")
			next := interrupt(v, callouts[1:])
			for _, c := range callouts[1:] {
				v.answer(c, 200, w.apply(c.body))
			}
			w.proxies[0].before = nil
			often(400, w.advance, 10*time.Millisecond) // until those that wait have their answers
			w.vms[0], v = next, next
			w.quiet()
			for _, s := range streams {
				must.EqualOrEnd(t, !s.Waits() && v.ended[s.ID()] <= 1, true, "a request does not wait for ever, nor go on twice")
				if s.Passed() {
					passed++
				}
			}
			must.Equal(t, w.sum(), int64(passed), "hits that the backend has")
			must.Equal(t, v.left(), "", "")
		})
	}
}

// Requests that wait when their plugin context goes, and get no answer, are decided when their time is
// over, and its metrics say so before it is gone.
func TestRequestsOfAContextThatGoesAreInTheMetrics(t *testing.T) {
	for _, heir := range []bool{false, true} {
		w := joined(t, 1, 1, synced("0", perUser))
		v := w.vms[0]
		v.settle = nil
		v.paused(60, "x-user", "ann")
		if heir {
			v.replace(synced("0", strings.Replace(perUser, "50", "51", 1)))
		} else {
			v.done()
		}
		w.pass(200 * time.Millisecond)
		v.tick()
		must.Equal(t, v.calls["done"], map[bool]int{true: 1}[heir], "heir %v: times that the context is done", heir)
		for name, want := range map[string]uint64{
			"weir_rule=.=user;.;weir_outcome=.=allowed;.;requests_total":  50,
			"weir_rule=.=user;.;weir_outcome=.=rejected;.;requests_total": 10,
			"waited_requests_total": 60,
			"decided_alone_total":   60,
		} {
			// The context that has gone ticks no more.
			must.Equal(t, v.counts[v.metrics["weir.weir_namespace=.=default;.;"+name]], want, "heir %v: %s is", heir, name)
		}
	}
}

// breakAfter is how many failures in a row open the breaker.
const breakAfter = 3

// A rule whose limits change while hits are pending loses none of them: neither of the limits that
// go, nor of those that stay.
func TestChangedLimitsWithPendingHits(t *testing.T) {
	const hundred = `{"limit": 100, "window": "1h", "algorithm": "fixed_window"}`
	limits := func(l string) string { return synced("1", `{"name": "all", "limits": [`+l+`]}`) }
	for _, test := range []struct {
		before, after string
		want          int64
	}{
		{hundred, `{"limit": 100, "window": "1h"}`, 3 + 5},
		{hundred, `{"limit": 1, "window": "1d", "burst": 100, "algorithm": "token_bucket"}`, 3 + 5},
		{hundred, hundred + `, {"limit": 10, "window": "1d"}`, 8 + 5},
		// Three tokens of 12 hours are worth five of 8, and the backend begins a token earlier.
		{`{"limit": 2, "window": "1d", "burst": 100, "algorithm": "token_bucket"}`, `{"limit": 3, "window": "1d", "burst": 100, "algorithm": "token_bucket"}`, 6 + 5},
	} {
		w := newWorld(t, 1, 1, limits(test.before))
		w.vms[0].send()
		w.advance(300 * time.Millisecond)
		w.advance(1500 * time.Millisecond)
		w.vms[0].send()
		w.advance(300 * time.Millisecond)
		w.vms[0].send()
		next, gone := w.vms[0].replace(limits(test.after))
		w.vms[0] = next
		must.Equal(t, gone, true, "%s: the old context goes, as there is another one", test.before)
		next.passed(5)
		often(300, w.advance, 100*time.Millisecond)
		must.Equal(t, w.sum(), test.want, "%s\nto %s:\nthe backend has hits", test.before, test.after)
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
		w := joined(t, 1, 2, limits(`{"limit": 1000, "window": "1h", "algorithm": "fixed_window"}`))
		passed := int64(0)
		for range 100 {
			if w.any().send() {
				passed++
			}
			w.advance(time.Millisecond)
		}
		must.EqualOrEnd(t, w.vms[0].leased() > 0, true, "hits are leased")
		for i, v := range w.vms {
			w.vms[i], _ = v.replace(limits(after))
		}
		w.quiet()
		must.Equal(t, w.sum(), passed, "to %s: the backend has hits", after)
	}
}

// While the backend is away, a new configuration knows the requests that the old one let pass before the backend had counted
// them.
func TestChangedLimitsWithHitsOnCredit(t *testing.T) {
	limits := func(l string) string {
		return synced("1", `{"name": "user", "key": [{"header": "x-user"}], "limits": [{"limit": `+l+`, "window": "1h", "algorithm": "fixed_window"}]}`)
	}
	w := joined(t, 1, 1, limits("1000"))
	for range 8 {
		w.vms[0].send("x-user", "somebody")
		w.advance(500 * time.Millisecond)
	}
	advanced := w.vms[0].plugin.Node().Tallies.Advanced
	for range 5 {
		w.vms[0].send("x-user", "ann")
	}
	must.EqualOrEnd(t, w.vms[0].plugin.Node().Tallies.Advanced-advanced, 5, "ann's requests that the backend has not counted")
	w.away = true
	next, _ := w.vms[0].replace(limits("2000"))
	must.Equal(t, next.send("x-user", "ann"), true, "a request of ann's")
	must.Equal(t, next.headers()["x-ratelimit-remaining"], "1994", "left to ann")
}
