package e2e

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"weir/internal/backend"
	"weir/internal/must"
	"weir/internal/nightly"
)

// watched has an enforced rule for some requests, and a shadow rule for others.
const watched = `{"namespace": "watched", "backend": {"cluster": "weir", "timeout": "5s"}, "sync_rate": 0.1, "rules": [
	{"name": "kept", "match": {"path": {"exact": "/kept"}}, "key": [{"header": "x-user"}], "reveal": 3,
		"limits": [{"limit": 20, "window": "366d", "algorithm": "fixed_window"}]},
	{"name": "tried", "mode": "shadow", "match": {"path": {"exact": "/tried"}}, "key": [{"header": "x-user"}], "reveal": "plain",
		"limits": [{"limit": 10, "window": "366d", "algorithm": "fixed_window"}]}]}`

// The backend reports a known demand on three nodes as a single demand, unchanged. Reports are of the last
// minute or two, so the test runs before those that run beside each other.
func TestWhoIsLimited(t *testing.T) {
	if nightly.On() {
		aloneOnEach(t, 3, whoIsLimited)
	} else {
		onWazero(t, whoIsLimited)
	}
}

func whoIsLimited(t *testing.T, d driver) {
	served := serve(t, "memory")
	_, addresses := nodes(t, d, 3, nodeConfig{configuration: watched, backend: served, workers: 2})
	// The demand of each user, and the requests in an order that brings each to all nodes.
	demand := map[string]int{"annabel": 90, "bob": 45, "carl": 15}
	for i := range 37 {
		demand[fmt.Sprintf("user%02d", i)] = 6
	}
	total := 0
	for _, n := range demand {
		total += n
	}
	client := client(t)
	for _, path := range []string{"/kept", "/tried"} {
		for round := range 90 {
			for user, n := range demand {
				if round >= n {
					continue
				}
				ask(t, client, addresses[round%3], ":path", path, "x-user", user)
			}
		}
	}
	refused := func(limit int) (requests, keys int) {
		for _, n := range demand {
			if n > limit {
				requests += n - limit
				keys++
			}
		}
		return requests, keys
	}

	// Reports come every few seconds.
	var top backend.Top
	deadline := time.Now().Add(time.Minute)
	for {
		top = backend.Top{}
		must.OK(t, json.Unmarshal([]byte(weir(t, served, "top", "watched", "--json")), &top))
		if len(top.Rules) == 2 && int(top.Rules[0].Asked) == total && int(top.Rules[1].Asked) == total || time.Now().After(deadline) {
			break
		}
		<-time.After(100 * time.Millisecond)
	}
	must.EqualOrEnd(t, len(top.Rules), 2, "rules of %+v", top)
	must.EqualOrEnd(t, top.Nodes, 3, "nodes of %+v", top)
	for i, limit := range []int{20, 10} {
		r := &top.Rules[i]
		want, _ := refused(limit)
		must.EqualOrEnd(t, int(r.Asked), total, "%s: requests", r.Rule)
		must.EqualOrEnd(t, int(r.Rejected), want, "%s: refused requests", r.Rule)
		// Each node has a third of each user's requests, and its own span. The shares are those of
		// demand.
		for j, user := range []string{"annabel", "bob"} {
			shown, cut := user, false
			if r.Rule == "kept" && len(user) > 3 {
				shown, cut = user[:3], true
			}
			k := &r.Used[j]
			must.Same(t, k.Values, []backend.Value{{Text: shown, Cut: cut}}, "%s: values of key %d", r.Rule, j)
			share, want := k.Hits/r.Hits, float64(demand[user])/float64(total)
			bound := (k.MoreHits+k.Margin)/r.Hits + 0.01
			must.Between(t, share, want-bound, want+bound, "%s: %s's share of all hits", r.Rule, user)
			must.Equal(t, k.Nodes, 3, "%s: nodes that saw %s", r.Rule, user)
		}
		// Only refused users are among the refused.
		_, keys := refused(limit)
		must.Equal(t, len(r.Refused), keys, "%s: refused keys", r.Rule)
		must.Equal(t, r.OthersRefused, 0, "%s: others that were refused", r.Rule)
	}

	// The least limit that admits all hits of this window, by its definition.
	least := 0
	for {
		if over, _ := refused(least); over*1000 <= total {
			break
		}
		least++
	}
	m := top.Rules[1].Measured
	_, keys := refused(10)
	if m == nil || m.Keys != len(demand) || m.Refused != keys || m.Every != 1 || len(m.Limits) != 1 {
		t.Fatalf("measured %+v, want %d of %d keys refused", m, keys, len(demand))
	}
	if l := m.Limits[0]; int(l.Least) != least || l.Most != 90 || int(l.Hits) != total || !l.Running {
		t.Errorf("limit %+v, want the least to be %d of %d hits", l, least, total)
	}
	text := weir(t, served, "report", "watched", "tried")
	want, _ := refused(10)
	for _, part := range []string{"3 nodes have reported", fmt.Sprintf("(%d of %d)", want, total), fmt.Sprintf("(%d of %d, all of them)", keys, len(demand)), "annabel"} {
		must.Contains(t, text, part, "the report lacks")
	}
}
