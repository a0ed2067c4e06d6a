package filter_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/internal/must"
	"weir/internal/nightly"
	"weir/internal/store"
)

const marksRules = `{"headers": ["x-ratelimit"], "rules": [
	{"name": "slow", "on_full": "mark", "limits": [{"limit": 1, "window": "1h", "algorithm": "fixed_window"}]},
	{"name": "cheap", "on_full": "mark", "cost_on_response": {"response_header": "x-cost"}, "key": [{"header": "x-key"}],
	 "limits": [{"limit": 2, "window": "1h", "algorithm": "fixed_window"}]},
	{"name": "all", "limits": [{"limit": 4, "window": "1h", "algorithm": "fixed_window"}]}]}`

// A rule that marks refuses nothing, and takes nothing of a request that it has no room for. Others take
// theirs, or refuse the request: then nobody takes.
func TestMarks(t *testing.T) {
	v := newProxy(t).start(marksRules)
	for i, want := range []string{"", "slow", "slow, cheap", "slow"} {
		key := "ann"
		if i == 3 {
			key = "bob"
		}
		v.calls["clear route cache"] = 0
		if s := v.open("x-key", key, "x-weir-over", "forged"); s == nil {
			t.Fatalf("request %d was refused", i)
		} else {
			got, cleared := string(v.request["x-weir-over"]), v.calls["clear route cache"]
			v.finish(s)
			must.Equal(t, got, want, "request %d is marked by", i)
			must.Equal(t, cleared, 1+min(1, len(want)), "request %d: times that the route was chosen anew", i)
		}
	}
	if v.open("x-key", "eve", "x-weir-over", "forged") != nil || v.reply.details != "weir_rate_limited:all" {
		t.Errorf("got %+v, want a refusal by all", v.reply)
	}
	v.now += 3600 * second
	must.Equal(t, v.open("x-key", "eve") != nil && v.request["x-weir-over"] == nil, true, "a request of a new window passes without a mark")
	v.tick()
	for name, want := range map[string][4]uint64{"slow": {2, 0, 3, 1}, "cheap": {4, 0, 1, 1}, "all": {5, 1, 0, 0}} {
		got := [4]uint64{v.outcome(name, "allowed"), v.outcome(name, "rejected"), 0, v.outcome(name, "rejected_by_other")}
		if want[2] > 0 {
			got[2] = v.outcome(name, "marked")
		}
		must.Equal(t, got, want, "%s allowed, rejected, marked, and rejected by another rule", name)
	}
}

// The cost of a marked request's response is not the rule's.
func TestMarkedRequestsCostNothing(t *testing.T) {
	for _, more := range []string{
		`"cost_on_response": {"response_header": "x-cost"}`, `"charge_when": {"status": ["200"]}`,
		`"reserve": 1, "cost_on_response": "openai"`,
	} {
		v := newProxy(t).start(`{"headers": ["x-ratelimit"], "rules": [{"name": "r", "on_full": "mark", ` + more + `,
			"limits": [{"limit": 3, "window": "1h", "algorithm": "token_bucket"}]}]}`)
		marked := 0
		for range 5 {
			s := v.open()
			must.EqualOrEnd(t, s != nil, true, "%s: it passes", more)
			if v.request["x-weir-over"] != nil {
				marked++
			}
			v.finish(s, "x-cost", "0")
		}
		must.Equal(t, marked, 2, "%s: of 5 requests were marked", more)
		v.now += 1200 * second // one token
		must.Equal(t, v.open() != nil && v.request["x-weir-over"] == nil, true, "%s: a token that came back was not taken by marked requests", more)
	}
}

// Clients can't mark their requests, and a configuration that marks nothing asks for nothing.
func TestMarksAreOurs(t *testing.T) {
	v := newProxy(t).start(strings.ReplaceAll(marksRules, `"on_full": "mark", `, ""))
	v.open("x-key", "ann", "x-weir-over", "mine")
	must.Equal(t, v.calls["remove request header"], 0, "times that the header was removed")
	must.Equal(t, string(v.request["x-weir-over"]), "mine", "the header")
	// A shadow rule marks nothing, but its routes may be there already.
	v = newProxy(t).start(`{"rules": [{"name": "r", "mode": "shadow", "on_full": "mark", "limits": [{"limit": 1, "window": "1h"}]}]}`)
	for range 2 {
		v.open("x-weir-over", "mine")
		got, there := v.request["x-weir-over"]
		must.Equal(t, there, false, "beside a shadow rule that would mark, a client's mark goes on: %q", got)
	}
}

// A filter adds to the marks of those before in the same proxy, and to those of a proxy before if it trusts
// them. It takes away what clients send.
func TestMarksOfTwoFilters(t *testing.T) {
	of := func(namespace string, limit int) string {
		return fmt.Sprintf(`{"namespace": %q, "rules": [{"name": %[1]q, "on_full": "mark", "limits": [{"limit": %d, "window": "1h", "algorithm": "fixed_window"}]}]}`, namespace, limit)
	}
	for name, c := range map[string]struct {
		sent  string
		trust [2]bool
		want  []string
	}{
		"nothing":                            {"", [2]bool{}, []string{"", "a", "a", "a, b"}},
		"a client's":                         {"mine", [2]bool{}, []string{"", "a", "a", "a, b"}},
		"a client's, of a rule":              {"a", [2]bool{}, []string{"", "a", "a", "a, b"}},
		"a client's, in two lines":           {"a\nb", [2]bool{}, []string{"", "a", "a", "a, b"}},
		"a gateway's":                        {"g", [2]bool{true, true}, []string{"g", "g, a", "g, a", "g, a, b"}},
		"a gateway's, trusted by the first":  {"g", [2]bool{true, false}, []string{"g", "g, a", "g, a", "g, a, b"}},
		"a gateway's, trusted by the second": {"g", [2]bool{false, true}, []string{"", "a", "a", "a, b"}},
		"a gateway's two":                    {"g\nh", [2]bool{true, false}, []string{"g, h", "g, h, a", "g, h, a", "g, h, a, b"}},
	} {
		var vms [2]*fakeVM
		for i, configuration := range []string{of("a", 1), of("b", 3)} {
			if c.trust[i] {
				configuration = `{"trust_marks": true, ` + configuration[1:]
			}
			vms[i] = newProxy(t).start(configuration)
		}
		for i, want := range c.want {
			headers := []string{}
			if c.sent != "" {
				headers = []string{"x-weir-over", c.sent}
			}
			vms[0].open(headers...)
			vms[1].request, vms[1].response, vms[1].state = vms[0].request, vms[0].response, vms[0].state
			vms[1].next()
			must.Equal(t, strings.ReplaceAll(string(vms[1].request["x-weir-over"]), "\n", ", "), want, "%s, request %d is marked by", name, i)
		}
	}
}

// A request that a rule marks goes on to ask the backend about the other rules, without the rule that marks.
func TestMarksWhileOthersAsk(t *testing.T) {
	for _, rate := range []string{"0", "1"} {
		w := newWorld(t, 1, 1, synced(rate, `{"name": "lane", "on_full": "mark", "limits": [{"limit": 1, "window": "1h", "algorithm": "fixed_window"}]},
			{"name": "all", "limits": [{"limit": 3, "window": "1h", "algorithm": "fixed_window"}]}`))
		for i, want := range []string{"", "lane", "lane"} {
			must.Equal(t, w.vms[0].send(), true, "sync_rate %s, request %d passes", rate, i)
			must.Equal(t, string(w.vms[0].request["x-weir-over"]), want, "sync_rate %s, request %d is marked by", rate, i)
		}
		must.Equal(t, w.vms[0].send(), false, "sync_rate %s: a request above the other rule's limit passes", rate)
		must.Equal(t, w.vms[0].request["x-weir-over"] != nil, false, "sync_rate %s: a request above the other rule's limit is marked", rate)
	}
}

// The backend refuses a request of several rules as a whole, and does not tell which rule had no room. When the
// answer comes, all of them may have room again. Then the request asks again: a rule that has room marks nothing.
func TestMarksOfOthers(t *testing.T) {
	const (
		slow = `{"name": "slow", "on_full": "mark", "limits": [{"limit": 100, "window": "1h", "algorithm": "fixed_window"}]}`
		one  = `{"name": "one", "limits": [{"limit": 1, "window": "1s", "algorithm": "fixed_window"}]}`
		lane = `{"name": "lane", "on_full": "mark", "limits": [{"limit": 1, "window": "1s", "algorithm": "fixed_window"}]}`
	)
	for _, test := range []struct {
		name, rules string
		full        bool // whether the new window has no room either
		mark        string
		passed      bool
		hits        int64 // in the backend, in windows that count
	}{
		{"a rule that refuses had none", slow + ", " + one, false, "", true, 3},
		{"a rule that refuses has none", slow + ", " + one, true, "", false, 3},
		{"a rule that marks had none", slow + ", " + lane, false, "", true, 3},
		{"a rule that marks has none", slow + ", " + lane, true, "lane", true, 4},
		{"the rule alone had none", lane, false, "lane", true, 0},
	} {
		w := newWorld(t, 2, 1, synced("0", test.rules))
		v := w.vms[0]
		answer := w.crossing()
		must.EqualOrEnd(t, !test.full || w.vms[1].send(), true, "%s: passed within the limit of the new window", test.name)
		answer()
		for rounds := 0; v.reply == nil && !v.resumed && rounds < 10; rounds++ {
			w.deliver(v)
		}
		must.Equal(t, v.resumed, test.passed, "%s: passed", test.name)
		must.Equal(t, string(v.request["x-weir-over"]), test.mark, "%s: marked by", test.name)
		w.wantSum(test.hits, test.name)
	}
}

// A rule marks a request whose cost is above its room, and takes nothing of it. The room that is left stays.
func TestMarksOfCosts(t *testing.T) {
	for _, rate := range []string{"0", "1"} {
		w := newWorld(t, 1, 1, synced(rate, `{"name": "r", "on_full": "mark", "cost": {"header": "x-cost"},
			"limits": [{"limit": 5, "window": "1h", "algorithm": "fixed_window"}]}`))
		var marks []string
		for _, cost := range []string{"3", "3", "2", "1"} {
			must.EqualOrEnd(t, w.vms[0].send("x-cost", cost), true, "sync_rate %s: a request of cost %s was refused", rate, cost)
			marks = append(marks, string(w.vms[0].request["x-weir-over"]))
		}
		must.Same(t, marks, []string{"", "r", "", "r"}, "sync_rate %s: marked by", rate)
	}
}

// Requests of six workers cross at random. Some clients leave while they wait, some answers are lost, and all forge
// a mark. Each rule has passed no more than its limit, and once all is quiet the backend has of each rule the
// requests that passed without its mark.
func TestMarksOfManyWorkers(t *testing.T) {
	limits := map[string]int64{"lane": 6, "slow": 15, "all": 40}
	for seed := range uint64(nightly.Or(2000, 100)) {
		rate := []string{"0", "1"}[seed%2]
		w := newWorld(t, 3, 2, `{"backend": {"cluster": "weir"}, "on_backend_failure": "deny", "sync_rate": `+rate+`, "rules": [
			{"name": "lane", "on_full": "mark", "limits": [{"limit": 6, "window": "1h", "algorithm": "fixed_window"}]},
			{"name": "slow", "on_full": "mark", "limits": [{"limit": 15, "window": "2h", "algorithm": "fixed_window"}]},
			{"name": "all", "limits": [{"limit": 40, "window": "3h", "algorithm": "fixed_window"}]}]}`)
		w.random = rand.New(rand.NewPCG(seed, 7))
		passed := map[string]int64{}
		pass := func(v *fakeVM, s *stream) {
			mark := string(v.request["x-weir-over"])
			for name := range limits {
				if !slices.Contains(strings.Split(mark, ", "), name) {
					passed[name]++
				}
			}
			v.finish(s)
		}
		waiting := map[*fakeVM]*stream{}
		for range 400 {
			switch v := w.any(); {
			case w.random.IntN(8) == 0:
				w.pass(time.Duration(w.random.IntN(40)) * time.Millisecond)
				v.tick()
			case waiting[v] == nil:
				v.resumed = false
				if s := v.pause("x-weir-over", "lane, slow, all"); s != nil {
					waiting[v] = s
				} else if v.reply == nil {
					pass(v, v.last)
				} else {
					v.reset(v.last)
				}
			case w.random.IntN(10) == 0:
				v.reset(waiting[v]) // the client leaves
				delete(waiting, v)
			case w.random.IntN(12) == 0 && len(v.callouts) > 0:
				c := v.callouts[0]
				v.callouts = v.callouts[1:]
				w.apply(c.body)
				v.answer(c, 504, []byte("upstream request timeout"))
			default:
				w.deliver(v)
			}
			for v, s := range waiting {
				if v.resumed {
					pass(v, s)
				} else if v.reply != nil {
					v.reset(s)
				} else {
					continue
				}
				delete(waiting, v)
			}
		}
		for v, s := range waiting {
			v.reset(s)
		}
		w.quiet()
		counted := map[string]int64{}
		must.OK(t, w.store.Counters(t.Context(), "default", nil, func(c store.LimitCounter) error {
			name := map[uint64]string{3600e3: "lane", 7200e3: "slow", 10800e3: "all"}[c.WidthMillis]
			for _, hits := range c.Windows {
				counted[name] += hits.Hits
			}
			return nil
		}))
		for name, limit := range limits {
			must.AtMost(t, passed[name], limit, "seed %d, sync_rate %s, %s: passed without its mark", seed, rate, name)
			must.Equal(t, counted[name], passed[name], "seed %d, sync_rate %s, %s: hits that the backend has", seed, rate, name)
		}
		must.AtLeast(t, passed["all"], 20, "seed %d: passed", seed)
	}
}
