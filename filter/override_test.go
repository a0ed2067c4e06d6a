package filter_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm/types"

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

// Gauges say how the newest configuration stands, also while the one before drains and once that is gone, and 0 if it
// doesn't define them. They stay as they are where their plugin context was the VM's last: a newer plugin has another VM.
func TestGaugesOfReplacedConfigurations(t *testing.T) {
	minute := synced("1", strings.Replace(perUser, "1h", "1m", 1))
	hour := synced("1", perUser)
	w := joined(t, 2, 1, minute)
	first := w.vms[0]
	const overshoot = "weir_rule=.=user;.;overshoot_bound"
	gauge := func(v *fakeVM, name string) uint64 {
		return v.counts[v.metrics["weir.weir_namespace=.=default;.;"+name]]
	}
	gauges := func(v *fakeVM, overrides, unfit uint64, when string) {
		t.Helper()
		must.Equal(t, [2]uint64{gauge(v, "overrides"), gauge(v, "unfit_overrides")}, [2]uint64{overrides, unfit}, "%s: overrides that apply, and that are unfit", when)
	}
	goes := func(w *world, v *fakeVM) {
		t.Helper()
		for ticks := 0; v.tickMillis > 0; ticks++ {
			must.EqualOrEnd(t, ticks < 100, true, "a plugin context does not stay for ever")
			w.advance(100 * time.Millisecond)
		}
	}
	var list []wire.Override
	for _, user := range []string{"ann", "bob"} {
		list = append(list, wire.Override{Rule: "user", Values: []string{user}, Limits: []wire.OverrideLimit{{Max: 70, WidthMillis: 3_600_000}}})
	}
	w.override(list[:1]...)
	gauges(first, 0, 1, "before")
	second := first.vm(hour)
	second.filter, second.streams, second.settle = first.filter, 1000, w.deliver
	must.EqualOrEnd(t, second.configure(), types.OnPluginStartStatusOK, "configured: %q", second.log)
	gauges(first, 0, 1, "the new configuration has only been tried")
	w.vms = append(w.vms, second)
	w.override(list...)
	first.tick()
	gauges(first, 2, 0, "the old one drains")
	must.EqualOrEnd(t, first.done(), true, "gone, as there is an heir")
	w.vms = w.vms[1:]
	second.tick()
	gauges(second, 2, 0, "the old one is gone")

	w.away = true
	second.send("x-user", "zoe")
	often(100, w.advance, 100*time.Millisecond)
	must.EqualOrEnd(t, gauge(second, overshoot) > 0, true, "the backend is away, or nothing is tested")
	third, _ := second.replace(local(hour))
	goes(w, second)
	gauges(third, 0, 0, "a configuration without a backend")
	must.Equal(t, gauge(third, overshoot), 0, "a configuration without a backend: the bound")

	last := joined(t, 1, 1, minute)
	last.override(list...)
	v := last.vms[0]
	v.done()
	goes(last, v)
	gauges(v, 0, 2, "the VM's last plugin context has left")
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
