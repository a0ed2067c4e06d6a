package ui

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/config"
	"weir/internal/live"
	"weir/internal/must"
	"weir/window"
)

// Lines break for the nodes that they are said to, calls under way among them, and answers come late.
func TestLines(t *testing.T) {
	t.Parallel()
	called := make(chan struct{}, 100)
	backend := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { called <- struct{}{} }))
	t.Cleanup(backend.Close)
	var lines Lines
	nodes := []http.RoundTripper{lines.Transport(0), lines.Transport(1)}
	call := func(ctx context.Context, node int) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, backend.URL, strings.NewReader("push"))
		if err != nil {
			t.Error(err)
			return nil
		}
		answer, err := nodes[node].RoundTrip(r)
		if err != nil {
			return err
		}
		return answer.Body.Close()
	}
	for _, step := range []struct {
		faults Faults
		broken [2]bool
	}{
		{Faults{}, [2]bool{false, false}},
		{Faults{Cut: []int{1}}, [2]bool{false, true}},
		{Faults{Away: true}, [2]bool{true, true}},
		{Faults{DelayMS: 1}, [2]bool{false, false}},
	} {
		lines.Set(step.faults)
		for node := range nodes {
			if err := call(t.Context(), node); errors.Is(err, errCut) != step.broken[node] || !step.broken[node] && err != nil {
				t.Errorf("%+v: node %d has %v", step.faults, node, err)
			}
		}
	}
	for len(called) > 0 {
		<-called
	}
	lines.Set(Faults{DelayMS: maxDelayMS})
	ended := make(chan error)
	go func() { ended <- call(t.Context(), 0) }()
	<-called
	lines.Set(Faults{Away: true})
	must.Is(t, <-ended, errCut, "a call under way has")
	lines.Set(Faults{DelayMS: maxDelayMS})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { ended <- call(ctx, 1) }()
	<-called
	cancel()
	must.Is(t, <-ended, context.Canceled, "a call that was given up has")
	// They are counted, of each node by itself.
	for node, want := range []Callouts{{Callouts: 5, Failed: 2}, {Callouts: 5, Failed: 3}, {}} {
		must.Equal(t, lines.Callouts(node), want, "node %d has", node)
	}
}

// A backend's refusal is a callout that has failed.
func TestCalloutsThatAreRefused(t *testing.T) {
	t.Parallel()
	backend := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(backend.Close)
	var lines Lines
	r := must.Get(http.NewRequestWithContext(t.Context(), http.MethodPost, backend.URL, strings.NewReader("push")))(t)
	answer := must.Get(lines.Transport(3).RoundTrip(r))(t)
	answer.Body.Close()
	must.Equal(t, lines.Callouts(3), Callouts{Callouts: 1, Failed: 1}, "")
}

// Pages are told what the configuration says, in its words.
func TestSetup(t *testing.T) {
	t.Parallel()
	for _, failure := range []string{"local", "allow", "deny"} {
		parsed := must.Get(config.Parse(fmt.Appendf(nil, `{"namespace": "shop", "backend": {"cluster": "weir"}, "on_backend_failure": %q, "rules": [
			{"name": "r", "mode": "shadow", "limits": [{"limit": 5, "window": "10s", "algorithm": "sliding_log"}, {"limit": 7, "window": "1m", "algorithm": "token_bucket", "burst": 9}]},
			{"name": "here", "sync_rate": -1, "key": [{"header": "x-user"}], "limits": [{"limit": 1, "window": "1s", "algorithm": "fixed_window"}],
			 "overrides": {"keys": [{"key": ["ann"], "limits": [{"limit": 2, "window": "1s", "algorithm": "fixed_window"}]}]}}]}`, failure)))(t)
		got := New(Options{Config: parsed, Nodes: []string{"127.0.0.1:1"}, Lines: &Lines{}}).setup()
		want := Setup{Namespace: "shop", Nodes: []string{"127.0.0.1:1"}, Each: true, Failure: failure, TimeoutMS: 200, Rules: []Rule{
			{Name: "r", Shadow: true, Shared: true, Limits: []Limit{
				{Limit: 5, WindowMS: 10_000, Algorithm: "sliding_log"}, {Limit: 9, WindowMS: 60_000, Algorithm: "token_bucket"},
			}},
			{Name: "here", Varies: true, Limits: []Limit{{Limit: 1, WindowMS: 1000, Algorithm: "fixed_window"}}, Key: []string{"header x-user"}},
		}}
		must.Same(t, got, want, "")
	}
}

// Pages are told what they have not been told, as far as it is kept.
func TestMoments(t *testing.T) {
	t.Parallel()
	parsed := must.Get(config.Parse([]byte(`{"rules": [{"name": "r", "limits": [{"limit": 1, "window": "1s"}]}]}`)))(t)
	v := New(Options{Config: parsed, Nodes: []string{"127.0.0.1:1"}, Lines: &Lines{}})
	for range kept + 10 {
		_, tick := v.after(0, nil)
		v.take()
		<-tick
	}
	for last, want := range map[int64]int{0: kept, kept + 10: 0, kept + 7: 3, 5: kept, 1 << 40: kept, -1 << 63: kept} {
		got, _ := v.after(last, nil)
		if len(got) != want || want > 0 && got[want-1].Number != kept+10 {
			t.Errorf("after %d come %d, want %d", last, len(got), want)
		}
	}
	// Pages are told since when something is out of order, whenever they open.
	v.o.Lines.Set(Faults{Cut: []int{0}})
	v.take()
	began := v.state().Since
	v.take()
	if got := v.state().Since; began == 0 || got != began {
		t.Errorf("out of order since %d, and then since %d", began, got)
	}
	v.o.Lines.Set(Faults{})
	v.take()
	must.Equal(t, v.state().Since, 0, "all lines are whole, and out of order since")
	must.Fails(t, v.setFaults(Faults{Away: true}), "a backend is stopped that there is not")
}

// A moment of many nodes with many rules keeps sums. The newest has the rules of each node that a page asks for.
func TestMomentsOfMany(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		nodes, rules int
		each         bool
	}{{2, 32, true}, {2, 33, false}, {50, 256, false}} {
		parsed := &config.Config{Namespace: "shop"}
		names := make([]string, c.nodes)
		for i := range c.rules {
			parsed.Rules = append(parsed.Rules, config.Rule{Name: fmt.Sprint("rule-", i), Limits: []window.Limit{{Max: 1, Shape: window.Shape{Width: 1e9}}}})
		}
		v := New(Options{Config: parsed, Nodes: names, Lines: &Lines{}})
		for n := range int64(3) {
			s := live.Sample{At: time.Unix(n, 0), Nodes: make([]live.Node, c.nodes)}
			for i := range s.Nodes {
				s.Nodes[i].Rules = append(s.Nodes[i].Rules, live.Rule{Namespace: "other", Name: "rule-1", Allowed: 1000})
				for j := range c.rules {
					s.Nodes[i].Rules = append(s.Nodes[i].Rules, live.Rule{Namespace: "shop", Name: fmt.Sprint("rule-", j), Allowed: n * int64(j), Rejected: n, Overshoot: int64(i), Shadow: j == 3 || j == 2 && i == 0})
				}
			}
			v.note(&s, nil)
		}
		must.Equal(t, v.setup().Each, c.each, "%d nodes of %d rules: each", c.nodes, c.rules)
		told := func(asked ...string) (moments []Moment, rules []int) {
			set := map[string]bool{}
			for _, name := range asked {
				set[name] = true
			}
			moments, _ = v.after(0, set)
			for i := range moments {
				rules = append(rules, len(moments[i].Nodes[c.nodes-1].Rules))
			}
			return moments, rules
		}
		all := c.rules + 1 // and another namespace's
		none, some := []int{0, 0, 0}, []int{0, 0, 3}
		if c.each {
			none, some = []int{all, all, all}, []int{all, all, all}
		}
		_, got := told("rule-1", "rule-5", "no-such")
		must.Same(t, got, some, "%d nodes of %d rules: asked for two, told", c.nodes, c.rules)
		moments, got := told()
		must.Same(t, got, none, "%d nodes of %d rules: told who asks for none", c.nodes, c.rules)
		must.Equal(t, moments[2].Rules[3], Sum{Allowed: 6 * int64(c.nodes), Rejected: 2 * int64(c.nodes), Overshoot: int64(c.nodes) - 1, Shadow: true}, "%d nodes of %d rules: all together have", c.nodes, c.rules)
		must.Equal(t, v.busy(), true, "nodes that have had requests are not busy")
	}
}

// The requests that the page sends have the values that it says they have.
func TestRequest(t *testing.T) {
	t.Parallel()
	parsed := must.Get(config.Parse([]byte(`{"rules": [{"name": "r", "limits": [{"limit": 1, "window": "1s"}],
		"match": {"path": {"prefix": "/api/"}, "host": {"exact": "shop.test"}, "methods": ["PUT"], "headers": {"x-plan": {"exact": "gold"}, "x-any": {"present": true}}},
		"key": [{"header": "x-user"}, {"cookie": "sid"}, {"query": "q"}, {"path_segment": 3}, "method"]}]}`)))(t)
	rule := &parsed.Rules[0]
	sent := newTraffic([]string{"127.0.0.1:1", "127.0.0.1:2"}, parsed, time.Now)
	r := must.Get(sent.request(t.Context(), demand{node: 1, user: 6, rule: rule}))(t)
	cookie := must.Get(r.Cookie("sid"))(t)
	got := []string{r.Header.Get("x-user"), cookie.Value, r.URL.Query().Get("q"), strings.Split(r.URL.Path, "/")[3], r.Method}
	if want := values(rule, 6); !slices.Equal(got, want) || want[0] != "user-7" {
		t.Errorf("got %q, want %q", got, want)
	}
	must.Equal(t, fmt.Sprint(r.URL.Host, r.URL.Path, " ", r.Host, r.Header.Get("x-plan"), r.Header.Get("x-any")), "127.0.0.1:2/api//user-7 shop.testgold1", "")
	for _, l := range []Load{{Rate: -1, Users: 1}, {Rate: maxRate + 1, Users: 1}, {Users: 0}, {Users: maxUsers + 1}, {Users: 1, Node: 2}, {Users: 1, Node: -2}} {
		l.Rule = "r"
		must.Fails(t, sent.set(l), "%+v", l)
	}
	must.Fails(t, sent.set(Load{Users: 1, Rule: "other"}), "traffic for a rule that there is not")
	must.Report(t, sent.set(Load{Users: 1, Rule: "r"}))
	for _, n := range []int{0, -1, maxBurst + 1} {
		must.Fails(t, sent.burst(n), "a burst of %d", n)
	}
}
