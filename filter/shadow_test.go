package filter_test

import (
	"strings"
	"testing"
	"time"

	"weir/internal/must"
)

// outcome is how often a rule of the namespace default has come to something.
func (v *fakeVM) outcome(rule, outcome string) uint64 {
	return v.count("weir_rule=.=" + rule + ";.;weir_outcome=.=" + outcome + ";.;requests_total")
}

func (v *fakeVM) wantShadow(rule string, allowed, rejected uint64) {
	v.t.Helper()
	must.Equal(v.t, [2]uint64{v.outcome(rule, "shadow_allowed"), v.outcome(rule, "shadow_rejected")}, [2]uint64{allowed, rejected}, "the shadow rule %s allowed and rejected", rule)
}

// A shadow rule measures the requests that pass the others, rejects nothing and is in no header. A
// request that it would reject takes nothing.
func TestShadow(t *testing.T) {
	v := newProxy(t).start(`{"rules": [
		{"name": "new", "mode": "shadow", "limits": [{"limit": 3, "window": "1h"}]},
		{"name": "old", "limits": [{"limit": 5, "window": "1h"}]},
		{"name": "other", "mode": "shadow", "key": [{"header": "x-user"}], "limits": [{"limit": 2, "window": "1h"}]}
	]}`)
	for i := range 8 {
		must.Equal(t, v.send("x-user", "ann"), i < 5, "request %d: passed", i)
		must.Equal(t, v.headers()["ratelimit-policy"], `"old";q=5;w=3600`, "request %d: policy", i)
	}
	v.wantShadow("new", 3, 2)
	v.wantShadow("other", 2, 3)
	v.now += 2 * 3600 * second // the windows have ended: what would have been rejected was not counted
	v.send("x-user", "ann")
	v.wantShadow("new", 4, 2)
	v.wantShadow("other", 3, 3)
}

// If only shadow rules match, nothing tells of a limit.
func TestShadowAlone(t *testing.T) {
	v := newProxy(t).start(`{"rules": [{"name": "new", "mode": "shadow", "limits": [{"limit": 3, "window": "1d"}]}]}`)
	must.Equal(t, v.passed(10), 10, "passed")
	must.Equal(t, len(v.response), 0, "headers %v", v.response)
	v.wantShadow("new", 3, 7)
}

// A request never waits for a shadow rule. The rule's outcome is counted when the backend has
// answered, though the stream is gone.
func TestShadowOfManyProxies(t *testing.T) {
	w := newWorld(t, 3, 2, `{"backend": {"cluster": "b"}, "sync_rate": 1, "rules": [{"name": "new", "mode": "shadow", "limits": [{"limit": 40, "window": "1d"}]}]}`)
	for i := range 100 {
		v := w.vms[i%len(w.vms)]
		v.settle = nil
		must.EqualOrEnd(t, v.send(), true, "a shadow rule holds a request back")
		if i%7 == 0 {
			w.advance(time.Second / 20)
		}
	}
	w.advance(5 * time.Second)
	must.Equal(t, [2]uint64{w.outcomes("new", "shadow_allowed"), w.outcomes("new", "shadow_rejected")}, [2]uint64{40, 60}, "would pass, and not")
}

// A request that waits for an enforced rule is measured when that has let it pass.
func TestShadowOfWaitingRequests(t *testing.T) {
	w := joined(t, 1, 1, `{"backend": {"cluster": "b"}, "sync_rate": 0, "rules": [
		{"name": "old", "limits": [{"limit": 5, "window": "1d"}]},
		{"name": "new", "mode": "shadow", "limits": [{"limit": 2, "window": "1d"}]}]}`)
	v := w.vms[0]
	must.Equal(t, v.passed(9), 5, "passed")
	w.advance(5 * time.Second)
	v.wantShadow("new", 2, 3)
}

// A shadow rule is charged what the response has cost, as the rule would be that it is to become: whether
// it decides at once, asks the backend itself, or measures what has waited for another rule, and whether
// its answer comes before the response, under way, or after the stream has ended.
func TestShadowIsSettled(t *testing.T) {
	const limits = `"limits": [{"limit": 5000, "window": "1d", "algorithm": "fixed_window"}]`
	const old = `{"name": "old", "limits": [{"limit": 1000, "window": "1d"}]}, `
	for name, c := range map[string]struct{ rate, other, rule string }{
		"alone":                      {"-1", "", `"reserve": 1000, "cost_on_response": "openai"`},
		"beside a rule":              {"-1", old, `"reserve": 1000, "cost_on_response": "openai"`},
		"leases":                     {"1", "", `"reserve": 1000, "cost_on_response": "openai"`},
		"leases, and others wait":    {"1", old, `"reserve": 1000, "cost_on_response": "openai"`},
		"the backend decides":        {"0", "", `"reserve": 1000, "cost_on_response": "openai"`},
		"and decides about others":   {"0", old, `"reserve": 1000, "cost_on_response": "openai"`},
		"besides":                    {"0", "", `"cost": 0, "cost_on_response": "openai"`},
		"besides, others wait":       {"0", old, `"cost": 0, "cost_on_response": "openai"`},
		"a header":                   {"0", "", `"reserve": 1000, "cost_on_response": {"response_header": "x-tokens"}`},
		"a header besides":           {"0", "", `"cost": 0, "cost_on_response": {"response_header": "x-tokens"}`},
		"a header, others wait":      {"0", old, `"cost": 0, "cost_on_response": {"response_header": "x-tokens"}`},
		"a part of the request":      {"0", "", `"cost": 0, "cost_on_response": {"header": "x-cost"}`},
		"a part, and others wait":    {"0", old, `"cost": 0, "cost_on_response": {"header": "x-cost"}`},
		"a part, which was reserved": {"0", old, `"reserve": 1000, "cost_on_response": {"header": "x-cost"}`},
	} {
		for answered, deliver := range map[string][3]bool{"before the response": {true, true, true}, "in it": {false, true, true}, "after it": {false, false, true}} {
			w := joined(t, 1, 1, `{"backend": {"cluster": "b"}, "sync_rate": `+c.rate+`, "rules": [`+c.other+`{"name": "new", "mode": "shadow", `+limits+`, `+c.rule+`}]}`)
			v := w.vms[0]
			step := func(i int) {
				if deliver[i] {
					w.deliver(v)
					w.deliver(v)
				}
			}
			for range 20 {
				s := v.open("x-cost", "7")
				if s == nil {
					s = v.last
					must.EqualOrEnd(t, v.reply == nil, true, "%s: it passes", name)
					w.deliver(v) // for the rule that enforces
				}
				step(0)
				v.respond(s, false, "content-type", "application/json", "x-tokens", "7")
				step(1)
				v.bring(s, true, `{"usage":{"total_tokens":7}}`)
				v.reset(s)
				step(2)
				w.advance(time.Second)
				w.advance(time.Second)
			}
			w.quiet()
			must.Equal(t, [2]uint64{v.outcome("new", "shadow_allowed"), v.outcome("new", "shadow_rejected")}, [2]uint64{20, 0}, "%s, answered %s: allowed and rejected", name, answered)
			must.Equal(t, v.plugin.Open(), 0, "%s, answered %s: streams are open", name, answered)
			if c.rate == "-1" {
				continue
			}
			want := int64(140)
			if c.other != "" {
				want += 20
			}
			w.wantSum(want, name+", answered "+answered)
		}
	}
}

// A shadow rule charges nothing for requests that it would reject, whenever it finds that out: of two
// requests that ask the backend at the same time it has room for one.
func TestShadowOfNoRoom(t *testing.T) {
	for cost, want := range map[string]int64{
		`"reserve": 600, "cost_on_response": "openai"`:                        700,
		`"cost": 600, "cost_on_response": {"response_header": "x-tokens"}`:    600 + 500,
		`"reserve": 600, "cost_on_response": {"response_header": "x-tokens"}`: 500,
	} {
		for _, other := range []string{"", `{"name": "old", "limits": [{"limit": 1000, "window": "1d"}]}, `} {
			for late := range 3 {
				w := joined(t, 2, 1, `{"backend": {"cluster": "b"}, "sync_rate": 0, "rules": [`+other+
					`{"name": "new", "mode": "shadow", "limits": [{"limit": 1000, "window": "1d", "algorithm": "fixed_window"}], `+cost+`}]}`)
				for _, v := range w.vms {
					if v.open() == nil {
						w.deliver(v)
					}
				}
				for step := range 3 {
					for _, v := range w.vms {
						switch step {
						case 0:
							v.respond(v.last, false, "content-type", "text/event-stream", "x-tokens", "500")
						case 1:
							v.bring(v.last, false, "data: {\"usage\":{\"total_tokens\":700}}\n\n")
							v.tick()
						case 2:
							v.bring(v.last, true, "")
							v.reset(v.last)
						}
						if step == late {
							w.deliver(v)
						}
					}
				}
				w.quiet()
				outcomes, open := [2]uint64{w.outcomes("new", "shadow_allowed"), w.outcomes("new", "shadow_rejected")}, w.vms[0].plugin.Open()+w.vms[1].plugin.Open()
				hits := want
				if other != "" {
					hits += 2
				}
				if got := w.sum(); got != hits || outcomes != [2]uint64{1, 1} || open != 0 {
					t.Errorf("%s, %q, answered at %d: %d hits, want %d; %d allowed and rejected, %d streams are open", cost, other, late, got, hits, outcomes, open)
				}
			}
		}
	}
}

// A shadow rule charges the events of a stream that tells nothing as the rule would that cuts it. The
// client gets all of them.
func TestShadowOfStreams(t *testing.T) {
	for _, mode := range []string{"enforce", "shadow"} {
		v := newProxy(t).start(strings.Replace(cutRule("openai", "fixed_window"), `"cut"`, `"mode": "`+mode+`", "cut"`, 1))
		for range 3 {
			s := v.open("x-key", "ann")
			v.respond(s, false, "content-type", "text/event-stream")
			must.Equal(t, v.pass(s, false, strings.Repeat(chat, 300)), strings.Repeat(chat, 300), "%s: the client gets", mode)
			v.reset(s)
		}
		s := v.open("x-key", "ann")
		must.EqualOrEnd(t, s != nil, true, "%s: it passes", mode)
		v.reset(s) // which keeps 100: 0 are left
		must.Equal(t, v.open("x-key", "ann") != nil, mode == "shadow", "%s: the next request passes", mode)
		if mode == "shadow" && v.outcome("tokens", "shadow_rejected") != 1 {
			t.Errorf("the shadow rule rejects %d", v.outcome("tokens", "shadow_rejected"))
		}
	}
}
