package filter

import (
	"testing"
	"time"
)

// outcome is how often a rule of the namespace default has come to something.
func (v *fakeVM) outcome(rule, outcome string) uint64 {
	return v.count("weir_rule=.=" + rule + ";.;weir_outcome=.=" + outcome + ";.;requests_total")
}

// A shadow rule measures what passes the others, rejects nothing and is in no header. What it would
// reject takes nothing.
func TestShadow(t *testing.T) {
	v := newProxy(t).start(`{"rules": [
		{"name": "new", "mode": "shadow", "limits": [{"limit": 3, "window": "1h"}]},
		{"name": "old", "limits": [{"limit": 5, "window": "1h"}]},
		{"name": "other", "mode": "shadow", "key": [{"header": "x-user"}], "limits": [{"limit": 2, "window": "1h"}]}
	]}`)
	for i := range 8 {
		passed := v.send("x-user", "ann")
		headers := v.response
		if !passed {
			headers = v.reply.headers
		}
		if passed != (i < 5) || headers["ratelimit-policy"] != `"old";q=5;w=3600` {
			t.Errorf("request %d: passed is %v, headers %v", i, passed, headers)
		}
	}
	for rule, want := range map[string][2]uint64{"new": {3, 2}, "other": {2, 3}} {
		if got := [2]uint64{v.outcome(rule, "shadow_allowed"), v.outcome(rule, "shadow_rejected")}; got != want {
			t.Errorf("%s: got %d, want %d", rule, got, want)
		}
	}
	v.now += 2 * 3600 * second // the windows have ended: what would have been rejected was not counted
	if v.send("x-user", "ann"); v.outcome("new", "shadow_allowed") != 4 || v.outcome("other", "shadow_allowed") != 3 {
		t.Error("what a shadow rule rejects was counted")
	}
}

// If only shadow rules match, nothing tells of a limit, and nothing is allocated.
func TestShadowAlone(t *testing.T) {
	v := newProxy(t).start(`{"rules": [{"name": "new", "mode": "shadow", "limits": [{"limit": 3, "window": "1d"}]}]}`)
	if passed := v.passed(10); passed != 10 || len(v.response) != 0 {
		t.Errorf("%d passed, headers %v", passed, v.response)
	}
	if v.outcome("new", "shadow_rejected") != 7 {
		t.Errorf("%d rejected, want 7", v.outcome("new", "shadow_rejected"))
	}
	v.calls, v.response = nil, nil
	if allocated := testing.AllocsPerRun(100, func() { v.now += 1000; v.stream() }); allocated > 0 {
		t.Errorf("%v allocations", allocated)
	}
}

// A request never waits for a shadow rule. What the rule makes of it is counted when the backend has
// answered, though the stream is gone.
func TestShadowOfManyProxies(t *testing.T) {
	w := newWorld(t, 3, 2, `{"backend": {"cluster": "b"}, "sync_rate": 1, "rules": [{"name": "new", "mode": "shadow", "limits": [{"limit": 40, "window": "1d"}]}]}`)
	for i := range 100 {
		v := w.vms[i%len(w.vms)]
		v.settle = nil
		if !v.send() {
			t.Fatal("a shadow rule holds a request back")
		}
		if i%7 == 0 {
			w.advance(time.Second / 20)
		}
	}
	w.advance(5 * time.Second)
	var allowed, rejected uint64
	for i, v := range w.vms {
		if i%2 == 0 { // metrics are the process's
			allowed += v.outcome("new", "shadow_allowed")
			rejected += v.outcome("new", "shadow_rejected")
		} else {
			v.tick()
		}
	}
	if allowed != 40 || rejected != 60 {
		t.Errorf("%d would pass and %d not, want 40 and 60", allowed, rejected)
	}
}

// A request that waits for an enforced rule is measured when that has let it pass.
func TestShadowOfWaitingRequests(t *testing.T) {
	w := newWorld(t, 1, 1, `{"backend": {"cluster": "b"}, "sync_rate": 0, "rules": [
		{"name": "old", "limits": [{"limit": 5, "window": "1d"}]},
		{"name": "new", "mode": "shadow", "limits": [{"limit": 2, "window": "1d"}]}]}`)
	w.advance(time.Second)
	v := w.vms[0]
	passed := v.passed(9)
	w.advance(5 * time.Second)
	if got := [2]uint64{v.outcome("new", "shadow_allowed"), v.outcome("new", "shadow_rejected")}; passed != 5 || got != [2]uint64{2, 3} {
		t.Errorf("%d passed, of which the shadow rule counts %d; want 5, and 2 and 3", passed, got)
	}
}
