package filter_test

import (
	"slices"
	"testing"
	"time"

	"weir/internal/must"
	"weir/internal/wire"
)

// An override that comes at run time is for the key that people mean, whatever the selectors make of
// it, and clients are told of it. Another of the same key, in another form, does nothing, and counts as unfit.
func TestOverride(t *testing.T) {
	w := joined(t, 2, 2, synced("1", `{"name": "user", "key": [{"header": "x-user"}, {"client_ip": {"ipv4_prefix": 24}}], "limits": [
		{"limit": 50, "window": "1h", "algorithm": "fixed_window"}, {"limit": 500, "window": "1d", "algorithm": "token_bucket"}]}`))
	first := wire.Override{Rule: "user", Values: []string{"ann", "10.1.2.99"}, Limits: []wire.OverrideLimit{
		{Max: 70, WidthMillis: 3_600_000}, {Max: 700, Burst: 10, WidthMillis: 86_400_000},
	}}
	second := first
	second.Values = []string{"ann", "10.1.2.100"} // which counts as the same key
	second.Limits = []wire.OverrideLimit{{Max: 80, WidthMillis: 3_600_000}, first.Limits[1]}
	w.override(first, second)
	for _, v := range w.vms {
		applied, unfit := v.plugin.Node().Overrides()
		must.Equal(t, [2]int{applied, unfit}, [2]int{1, 1}, "applied, and unfit")
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

// Of several overrides of run time the one of the key alone applies, then that of the longest prefix, suffix
// or network that the key has, then that of the whole rule, and then the configuration's. One that has ended
// is none.
func TestPatternsOfOverrides(t *testing.T) {
	w := joined(t, 2, 2, synced("1", `{"name": "plain", "match": {"path": {"exact": "/a"}}, "key": [{"header": "x-plan"}, {"header": "x-user"}], "limits": [{"limit": 5000, "window": "1h"}],
		"overrides": {"keys": [{"key": ["gold", "configured"], "limits": [{"limit": 6000, "window": "1h"}]}]}},
		{"name": "net", "match": {"path": {"exact": "/b"}}, "key": [{"client_ip": {"ipv4_prefix": 24, "ipv6_prefix": 64}}], "limits": [{"limit": 5000, "window": "1h"}]}`))
	to := func(hits uint64, rule string, mode wire.Mode, values ...string) wire.Override {
		return wire.Override{Rule: rule, Mode: mode, Values: values, Limits: []wire.OverrideLimit{{Max: hits, WidthMillis: 3_600_000}}}
	}
	ended := to(900, "plain", wire.OfKeys, "=gold", "^sk-live")
	ended.Until = uint64(w.now/1e6) + 60_000
	list := []wire.Override{
		to(5100, "plain", wire.Configured),
		to(100, "plain", wire.OfKey, "gold", "sk-live-ann"),
		to(200, "plain", wire.OfKeys, "=gold", "^sk-live-"),
		to(300, "plain", wire.OfKeys, "=gold", "^sk-"),
		to(400, "plain", wire.OfKeys, "=gold", "$@example.com"),
		to(500, "plain", wire.OfKeys, "^gold-", "=zoe"),
		ended,
		to(600, "net", wire.OfKeys, "/10.0.0.0/8"),
		to(700, "net", wire.OfKeys, "/10.1.0.0/16"),
		to(800, "net", wire.OfKeys, "/2001:db8::/33"),
		to(900, "net", wire.OfKeys, "/10.1.2.128/25"), // more bits than count
		to(900, "net", wire.OfKeys, "^10."),
		to(900, "plain", wire.OfKeys, "=gold", "/10.0.0.0/8"),
		to(900, "plain", wire.OfKeys, "^sk-"),
	}
	slices.SortFunc(list, func(a, b wire.Override) int { return a.Compare(&b) })
	w.override(list...)
	limits := func(want string) {
		t.Helper()
		for _, v := range w.vms {
			got := ""
			for _, key := range [][2]string{
				{"gold", "sk-live-ann"}, {"gold", "sk-live-"}, {"gold", "sk-livery"}, {"gold", "sk-"}, {"gold", "sk"}, {"gold", "sk-x@example.com"}, {"silver", "sk-x"},
				{"gold-plus", "zoe"}, {"gold", "zoe"}, {"gold", "configured"}, {"", ""},
			} {
				v.send(":path", "/a", "x-plan", key[0], "x-user", key[1])
				got += " " + v.response["x-ratelimit-limit"]
			}
			for _, source := range []string{"10.1.2.200:1", "10.9.9.9:1", "11.1.2.3:1", "[2001:db8:7fff::1]:1", "[2001:db8:8000::1]:1", "[::ffff:10.9.9.9]:1", "/socket"} {
				v.source = []byte(source)
				v.send(":path", "/b")
				got += " " + v.response["x-ratelimit-limit"]
			}
			must.Equal(t, got, want, "")
		}
	}
	limits(" 100 200 900 300 5100 400 5100 500 5100 5100 5100 700 600 5000 800 5000 600 5000")
	applied, unfit := w.vms[0].plugin.Node().Overrides()
	must.Equal(t, [2]int{applied, unfit}, [2]int{10, 4}, "applied, and unfit")
	w.advance(time.Minute)
	limits(" 100 200 300 300 5100 400 5100 500 5100 5100 5100 700 600 5000 800 5000 600 5000")
	w.override(slices.DeleteFunc(list, func(o wire.Override) bool { return o.Mode.IsWhole() })...)
	limits(" 100 200 300 300 5000 400 5000 500 5000 6000 5000 700 600 5000 800 5000 600 5000")
	w.override()
	limits(" 5000 5000 5000 5000 5000 5000 5000 5000 5000 6000 5000 5000 5000 5000 5000 5000 5000 5000")
}
