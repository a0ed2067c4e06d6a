package live

import (
	"fmt"
	"testing"
	"time"

	"weir/config"
	"weir/internal/engine/observe"
	"weir/internal/host"
	"weir/internal/must"
)

func TestRead(t *testing.T) {
	t.Parallel()
	const shop = "weir.weir_namespace=.=shop.eu;.;"
	var s Sampler
	got := s.read(0, map[string]int64{
		shop + "weir_rule=.=per-user;.;weir_outcome=.=allowed;.;requests_total":               7,
		shop + "weir_rule=.=per-user;.;weir_outcome=.=rejected;.;requests_total":              2,
		shop + "weir_rule=.=per-user;.;weir_outcome=.=rejected_by_other;.;requests_total":     9,
		shop + "weir_rule=.=new;.;weir_outcome=.=shadow_allowed;.;requests_total":             5,
		shop + "weir_rule=.=new;.;weir_outcome=.=shadow_rejected;.;requests_total":            4,
		"weir.weir_namespace=.=api;.;weir_rule=.=z;.;weir_outcome=.=allowed;.;requests_total": 1,
		shop + "weir_rule=.=per-user;.;overshoot_bound":                                       30,
		shop + "waited_requests_total":                                                        3,
		"weir.weir_namespace=.=api;.;waited_requests_total":                                   10,
		shop + "late_requests_total":                                                          2,
		shop + "decided_alone_total":                                                          1,
		shop + "pushed_hits_total":                                                            8,
		shop + "failed_pushes_total":                                                          6,
		shop + "evicted_counters_total":                                                       99,
		"somebody_elses_requests_total":                                                       99,
	})
	want := Node{Waited: 13, Late: 2, Alone: 1, Pushed: 8, Failed: 6, Rules: []Rule{
		{Namespace: "api", Name: "z", Allowed: 1}, {Namespace: "shop.eu", Name: "new", Shadow: true, Allowed: 5, Rejected: 4},
		{Namespace: "shop.eu", Name: "per-user", Allowed: 7, Rejected: 2, Overshoot: 30},
	}}
	must.Same(t, got, want, "")
}

// A rule that was moved at run time is what its newest decisions are, at each node, whatever it was before. That is
// not left to the order of a map.
func TestReadOfAMovedRule(t *testing.T) {
	t.Parallel()
	metrics := func(allowed, rejected int64, shadow ...int64) map[string]int64 {
		const of = "weir.weir_namespace=.=shop;.;weir_rule=.=per-user;.;weir_outcome=.="
		m := map[string]int64{of + "allowed;.;requests_total": allowed, of + "rejected;.;requests_total": rejected, of + "off;.;requests_total": 1000}
		if len(shadow) > 0 {
			m[of+"shadow_allowed;.;requests_total"], m[of+"shadow_rejected;.;requests_total"] = shadow[0], shadow[1]
		}
		return m
	}
	for range 20 {
		var s Sampler
		got := ""
		for _, m := range []map[string]int64{
			metrics(7, 2), metrics(7, 2, 0, 0), metrics(7, 2, 0, 5), metrics(7, 2, 0, 5), metrics(8, 2, 0, 5), metrics(8, 3, 1, 5), metrics(8, 3, 2, 5), metrics(8, 3, 2, 5),
		} {
			moved, enforced := s.read(0, m).Rules[0], s.read(1, metrics(7, 2, 9, 9)).Rules[0]
			got += fmt.Sprint(moved.Shadow, " ", moved.Allowed, " ", moved.Rejected, ", ", enforced.Shadow, "; ")
		}
		must.EqualOrEnd(t, got, "false 7 2, false; false 7 2, false; true 7 7, false; true 7 7, false; false 8 7, false; false 9 8, false; true 10 8, false; true 10 8, false; ", "")
	}
}

// Held hits are reported for rules that lease, even before a worker has leased any, and for no
// other rules.
func TestTables(t *testing.T) {
	t.Parallel()
	parsed := must.Get(config.Parse([]byte(`{"namespace": "shop", "backend": {"cluster": "weir"}, "rules": [
		{"name": "leased", "limits": [{"limit": 1000, "window": "1m"}, {"limit": 5000, "window": "1h"}]},
		{"name": "exact", "sync_rate": 0, "limits": [{"limit": 1000, "window": "1m"}]},
		{"name": "here", "sync_rate": -1, "limits": [{"limit": 1000, "window": "1m"}]}]}`)))(t)
	process := host.NewProcess(host.ProcessConfig{})
	rule := func(namespace, name string) Rule { return Rule{Namespace: namespace, Name: name} }
	s := Sample{At: time.Unix(1000, 0), Nodes: []Node{
		{Rules: []Rule{rule("other", "leased"), rule("shop", "exact"), rule("shop", "here"), rule("shop", "leased")}}, {},
	}}
	most := NewTables(parsed, "weir", []*host.Process{process, process}).Look(&s)
	must.Same(t, most, [][]uint64{{0, 0}, {0}, {0}}, "")
	for i, r := range s.Nodes[0].Rules {
		want := (*observe.Leased)(nil)
		if i == 3 {
			want = &observe.Leased{}
		}
		must.Same(t, r.Held, want, "%s/%s holds", r.Namespace, r.Name)
	}
	must.Equal(t, process.SharedData("weir").Len(), 0, "keys were made in shared data")
}
