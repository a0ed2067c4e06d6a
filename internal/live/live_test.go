package live

import (
	"testing"

	"weir/internal/must"
)

func TestRead(t *testing.T) {
	t.Parallel()
	const shop = "weir.weir_namespace=.=shop.eu;.;"
	var s Sampler
	got := s.read(map[string]int64{
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
