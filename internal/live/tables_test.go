package live

import (
	"testing"
	"time"

	"weir/config"
	"weir/internal/engine/observe"
	"weir/internal/host"
	"weir/internal/must"
)

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
