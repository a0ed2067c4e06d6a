package filter_test

import (
	"fmt"
	"testing"
	"time"

	"weir/internal/must"
	"weir/internal/proxywasm"
	"weir/internal/wire"
)

// moves is a list with the rule "user" moved, by hour-long limits, if there are any.
func moves(mode wire.Mode, limits ...uint64) wire.Override {
	o := wire.Override{Rule: "user", Mode: mode}
	for _, n := range limits {
		o.Limits = append(o.Limits, wire.OverrideLimit{Max: n, WidthMillis: 3_600_000})
	}
	return o
}

// passes sends requests of a key, and returns how many pass.
func (w *world) passes(n int, key string) (passed int) {
	for i := range n {
		if w.vms[i%len(w.vms)].send("x-user", key) {
			passed++
		}
	}
	return passed
}

// outcomes is how often a rule has come to something at all proxies, whose workers tell it together.
func (w *world) outcomes(rule, outcome string) (sum uint64) {
	for _, v := range w.vms {
		v.tick()
	}
	told := map[*fakeProxy]bool{}
	for _, v := range w.vms {
		if !told[v.fakeProxy] {
			sum += v.outcome(rule, outcome)
		}
		told[v.fakeProxy] = true
	}
	return sum
}

// A rule is moved for all keys at all proxies, and back: other limits, shadow mode, off. Each is seen in
// the answers, in headers and in metrics, and counters go on.
func TestMovedRule(t *testing.T) {
	for _, rate := range []string{"1", "0"} {
		w := joined(t, 2, 2, synced(rate, `{"name": "user", "key": [{"header": "x-user"}], "limits": [{"limit": 10, "window": "1h", "algorithm": "fixed_window"}]}`))
		want := func(when string, sent, passed int, header string) {
			t.Helper()
			must.Equal(t, w.passes(sent, "ann"), passed, "rate %s, %s: of %d pass", rate, when, sent)
			must.Equal(t, w.vms[0].headers()["x-ratelimit-limit"], header, "rate %s, %s: the limit", rate, when)
		}
		want("as configured", 12, 10, "10")
		w.override(moves(wire.Off))
		want("off", 20, 20, "")
		must.Equal(t, w.outcomes("user", "off"), 20, "requests have passed by a rule that is off")
		w.override(moves(wire.Configured, 16))
		want("another limit", 12, 6, "16")
		w.override(moves(wire.Shadow, 20))
		want("shadow", 12, 12, "")
		often(20, w.advance, 20*time.Millisecond) // nobody has waited for it
		must.Equal(t, [2]uint64{w.outcomes("user", "shadow_allowed"), w.outcomes("user", "shadow_rejected")}, [2]uint64{4, 8}, "a shadow rule allowed and rejected")
		w.override(moves(wire.Enforce, 21))
		want("enforced", 4, 1, "21")
		w.override(moves(wire.Off), wire.Override{Rule: "user", Values: []string{"ann"}, Limits: moves(0, 30).Limits})
		want("off, whatever a key has", 4, 4, "")
		w.override()
		want("back", 12, 0, "10")
		must.Equal(t, w.outcomes("user", "off"), 24, "requests have passed by a rule that is off")
		w.quiet()
		w.wantSum(21, "at the end")
	}
}

// A key's own limits go before the rule's, those of the rule before the configuration's for keys and
// values, as those of a key do, and all rules together before each. What has ended does not count.
func TestMovedRuleAmongOthers(t *testing.T) {
	w := joined(t, 1, 2, synced("1", `{"name": "user", "key": [{"header": "x-user"}], "limits": [{"limit": 50, "window": "1h"}],
		"overrides": {"by": {"header": "x-plan"}, "values": {"gold": [{"limit": 90, "window": "1h"}]}, "keys": [{"key": ["bob"], "limits": [{"limit": 60, "window": "1h"}]}]}},
		{"name": "new", "mode": "shadow", "limits": [{"limit": 40, "window": "1h"}]}`))
	limits := func() (got [3]string) {
		for i, headers := range [][]string{{"x-user", "ann"}, {"x-user", "bob"}, {"x-user", "dee", "x-plan", "gold"}} {
			w.vms[1].send(headers...)
			got[i] = w.vms[1].headers()["x-ratelimit-limit"]
		}
		return got
	}
	want := func(when string, want ...string) {
		t.Helper()
		must.Equal(t, limits(), [3]string(want), "%s", when)
	}
	ann := wire.Override{Rule: "user", Values: []string{"ann"}, Limits: moves(0, 70).Limits}
	soon := moves(wire.Configured, 80)
	soon.Until = uint64((w.now + int64(time.Minute)) / 1e6)
	want("before", "50", "60", "90")
	w.override(soon, ann)
	want("moved", "70", "80", "80")
	all := wire.Override{Rule: wire.AllRules, Mode: wire.Off, Until: soon.Until - 30_000}
	w.override(all, soon, ann)
	want("all are off", "", "", "")
	w.advance(30 * time.Second)
	want("all are on again", "70", "80", "80")
	w.advance(30 * time.Second)
	want("ended", "70", "60", "90")
	w.override(wire.Override{Rule: "user", Values: []string{"bob"}, Limits: moves(0, 75).Limits}, wire.Override{Rule: "user", Values: []string{"dee"}, Limits: moves(0, 85).Limits})
	want("of keys that the configuration has others for", "50", "75", "85")
	// A shadow rule of the configuration is enforced, with its own metrics, and marks rules are not in
	// headers while they are off.
	w.override(wire.Override{Rule: "new", Mode: wire.Enforce})
	want("the other is enforced", "40", "40", "40")
	w.vms[1].tick()
	must.Equal(t, w.vms[1].outcome("new", "allowed"), 3, "requests are allowed by the rule that is enforced")
	w.override(wire.Override{Rule: "new", Mode: wire.Configured, Limits: moves(0, 5).Limits})
	want("it is a shadow rule again", "50", "60", "90")
	// What does not fit the rule changes nothing, and is told.
	w.override(wire.Override{Rule: "user", Mode: wire.Off, Limits: []wire.OverrideLimit{{Max: 1, WidthMillis: 60_000}}},
		wire.Override{Rule: "user", Mode: wire.Off, Values: []string{"ann"}}, wire.Override{Rule: wire.AllRules, Mode: wire.Shadow})
	want("nothing fits", "50", "60", "90")
	applied, unfit := w.vms[1].plugin.Node().Overrides()
	must.Equal(t, [2]int{applied, unfit}, [2]int{0, 3}, "applied, and unfit")
}

// A moved rule stays moved when the configuration changes, from the first request on, and by a rule of the
// new configuration.
func TestMovedRuleOfNewConfiguration(t *testing.T) {
	of := func(limit int) string {
		return synced("1", fmt.Sprintf(`{"name": "user", "key": [{"header": "x-user"}], "limits": [{"limit": %d, "window": "1h", "algorithm": "fixed_window"}]}`, limit))
	}
	w := joined(t, 1, 1, of(3))
	w.override(moves(wire.Off))
	w.vms[0], _ = w.vms[0].replace(of(2))
	must.Equal(t, w.passes(5, "ann"), 5, "of 5 pass")
	w.override(moves(wire.Shadow))
	w.vms[0], _ = w.vms[0].replace(of(1))
	must.Equal(t, w.passes(5, "ann"), 5, "of 5 pass in shadow mode")
	w.override()
	must.Equal(t, w.passes(5, "ann"), 0, "of 5 pass of a limit of which a shadow rule has taken 1")
}

// A rule that marks or delays refuses, marks and delays nothing in shadow mode, and does so when a
// shadow rule is enforced.
func TestMovedMarksAndDelays(t *testing.T) {
	for _, rule := range []string{`"on_full": "mark",`, `"delay": {"most": "5m", "queue": 9},`} {
		for _, mode := range []string{"enforce", "shadow"} {
			w := joined(t, 1, 1, synced("1", `{"name": "user", "mode": "`+mode+`", `+rule+` "limits": [{"limit": 2, "window": "2m", "algorithm": "fixed_window"}]}`))
			v := w.vms[0]
			other := moves(wire.Shadow)
			if mode == "shadow" {
				other = moves(wire.Enforce)
			}
			for range 2 { // as configured, and moved
				shadow := v.plugin.Rules()[0].Shadow
				passed := w.passes(2, "ann")
				s := v.pause("x-user", "ann")
				often(3, w.advance, 20*time.Millisecond)
				marked := v.request["x-weir-over"] != nil
				waits := s != nil && s.Waits()
				if marks := rule[1] == 'o'; marked != (!shadow && marks) || waits != (!shadow && !marks) || passed != 2 {
					t.Errorf("%s, shadow %v: %d of 2 pass; the next one is marked: %v, waits: %v", rule, shadow, passed, marked, waits)
				}
				if s != nil {
					v.reset(s)
				}
				if w.quiet(); shadow {
					must.Equal(t, [2]uint64{w.outcomes("user", "shadow_allowed"), w.outcomes("user", "shadow_rejected")}, [2]uint64{2, 1}, "%s: allowed and refused by the shadow rule", rule)
				}
				w.override(other)
				often(60, w.advance, time.Minute)
			}
		}
	}
}

// A shadow rule that is enforced before it has decided a request does not cut that one's stream: it has nothing to go by.
func TestMovedBeforeItHasDecided(t *testing.T) {
	w := joined(t, 1, 1, synced("0", `{"name": "user", "mode": "shadow", "reserve": 1, "cut": true, "cost_on_response": "openai",
		"limits": [{"limit": 1, "window": "1h", "algorithm": "fixed_window"}]}`))
	v := w.vms[0]
	s := v.open()
	done := proxywasm.Use(v)
	v.plugin.Move(0, wire.Enforce)
	done()
	v.respond(s, false, "content-type", "text/event-stream")
	for range 3 {
		must.Equal(t, v.pass(s, false, chat), chat, "the client gets")
	}
	w.quiet()
	v.reset(s)
	w.quiet()
	w.wantSum(3, "an event each")
}
