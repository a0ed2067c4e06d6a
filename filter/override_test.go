package filter_test

import (
	"testing"
	"time"

	"weir/internal/wire"
)

// An override that comes at run time is for the key that people mean, whatever the selectors make of
// it, and clients are told of it.
func TestOverride(t *testing.T) {
	w := newWorld(t, 2, 2, synced("1", `{"name": "user", "key": [{"header": "x-user"}, {"client_ip": {"ipv4_prefix": 24}}], "limits": [
		{"limit": 50, "window": "1h", "algorithm": "fixed_window"}, {"limit": 500, "window": "1d", "algorithm": "token_bucket"}]}`))
	w.advance(time.Second)
	w.override(wire.Override{Rule: "user", Values: []string{"ann", "10.1.2.99"}, Limits: []wire.OverrideLimit{
		{Max: 70, WidthMillis: 3_600_000}, {Max: 700, Burst: 10, WidthMillis: 86_400_000},
	}})
	for _, v := range w.vms {
		v.source = []byte("10.1.2.3:4711")
		v.send("x-user", "ann")
		want(t, v.response, `ratelimit-policy: "user";q=70;w=3600, "user.2";q=10
			x-ratelimit-limit: 10`)
		v.send("x-user", "bob")
		want(t, v.response, `ratelimit-policy: "user";q=50;w=3600, "user.2";q=500;w=86400
			x-ratelimit-limit: 50`)
		v.source = []byte("10.1.3.3:4711")
		v.send("x-user", "ann")
		want(t, v.response, `x-ratelimit-limit: 50`)
	}
}

// An override of run time goes before the configuration's, for as long as it is there.
func TestOverrideOfAnOverride(t *testing.T) {
	w := newWorld(t, 1, 2, synced("1", `{"name": "user", "key": [{"header": "x-user"}], "limits": [{"limit": 50, "window": "1h"}],
		"overrides": {"by": {"header": "x-plan"}, "values": {"gold": [{"limit": 90, "window": "1h"}]}, "keys": [{"key": ["ann"], "limits": [{"limit": 60, "window": "1h"}]}]}}`))
	w.advance(time.Second)
	limitOf := func(headers ...string) string {
		w.vms[1].send(headers...)
		return w.vms[1].response["x-ratelimit-limit"]
	}
	ann := []string{"x-user", "ann", "x-plan", "gold"}
	dee := []string{"x-user", "dee", "x-plan", "gold"}
	if a, d := limitOf(ann...), limitOf(dee...); a != "60" || d != "90" {
		t.Errorf("before: %s and %s", a, d)
	}
	hour := func(hits uint64) []wire.OverrideLimit {
		return []wire.OverrideLimit{{Max: hits, WidthMillis: 3_600_000}}
	}
	w.override(wire.Override{Rule: "user", Values: []string{"ann"}, Limits: hour(70)}, wire.Override{Rule: "user", Values: []string{"dee"}, Limits: hour(80)})
	if a, d := limitOf(ann...), limitOf(dee...); a != "70" || d != "80" {
		t.Errorf("while there are some: %s and %s", a, d)
	}
	w.override()
	if a, d := limitOf(ann...), limitOf(dee...); a != "60" || d != "90" {
		t.Errorf("after: %s and %s", a, d)
	}
}
