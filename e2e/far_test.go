package e2e

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"weir/internal/must"
	"weir/internal/nightly"
	"weir/internal/store/redis/redistest"
)

// However many nodes there are, requests for keys that a node has never seen do not wait, whatever plan they are of. A key
// near its limit gets all of it, and no more. Once all is quiet the backend has exactly the admitted hits.
func TestFarKeysWaitForNothing(t *testing.T) {
	t.Parallel()
	for _, store := range nightly.Or([]string{"memory", "file", "redis"}, []string{"memory", "redis"}) {
		t.Run(store, func(t *testing.T) {
			onWazero(t, func(t *testing.T, d driver) { farKeysWaitForNothing(t, d, 10, store) })
			for _, nodes := range []int{1, 3} {
				t.Run(fmt.Sprint(nodes), func(t *testing.T) {
					onEnvoy(t, nodes, newest, func(t *testing.T, d driver) { farKeysWaitForNothing(t, d, nodes, store) })
				})
			}
		})
	}
}

// farKeysWaitForNothing asks for users of two plans.
func farKeysWaitForNothing(t *testing.T, d driver, count int, store string) {
	const (
		limit = 500
		users = 300
		rules = `{"rules": [{"name": "per-user", "key": [{"header": "x-user"}], "limits": [{"limit": %d, "window": "366d", "algorithm": "fixed_window"}],
			"overrides": {"by": {"query": "plan"}, "values": {"gold": [{"limit": %d, "window": "366d", "algorithm": "fixed_window"}]}}}]}`
	)
	switch store {
	case "file":
		store += ":" + filepath.Join(t.TempDir(), "weir.db")
	case "redis":
		store = redistest.Start(t).URL()
	}
	backend := serve(t, store)
	all, addresses := nodes(t, d, count, nodeConfig{backend: backend, configuration: `{"backend": {"cluster": "weir", "timeout": "60s"}, "sync_rate": 0.2, ` +
		fmt.Sprintf(rules, limit, 2*limit)[1:]})
	for i := range addresses {
		addresses = append(addresses, addresses[i]+"/?plan=gold")
	}
	f, client, random := newTraffic(1, addresses...), client(t), rand.New(rand.NewPCG(1, 33))
	ask := func(node int, user string) {
		t.Helper()
		f.request(t, client, node, user)
	}
	// asked asks of each plan's users, and returns how many requests waited, and how many hits were advanced.
	asked := func(prefix string, users, times int) (waited, advanced int64) {
		t.Helper()
		before, hits := metric(t, all, "waited_requests"), metric(t, all, "advanced_hits")
		for user := range users {
			for range times {
				for plan := range 2 {
					ask(random.IntN(len(all))+plan*len(all), fmt.Sprint(prefix, user, " of ", plan))
				}
			}
		}
		allowed := func() int64 { return metric(t, all, "requests", "per-user", "allowed") }
		if !soon(func() bool { return allowed() == f.total() }) {
			t.Fatalf("%d requests are counted, want %d", allowed(), f.total())
		}
		return metric(t, all, "waited_requests") - before, metric(t, all, "advanced_hits") - hits
	}
	// Each node gets a part of the limits. One that did not run for ten seconds has lost it, as below.
	round := 0
	if !soon(func() bool {
		first := 3 * len(all)
		waited, _ := asked(fmt.Sprint("first ", round, " "), first, 1)
		round++
		return waited <= int64(2*first/20)
	}) {
		t.Fatal("some nodes have no part of the limits")
	}
	const sent = 2 * users * 3
	waited, advanced := asked("user ", users, 3)
	t.Logf("of %d requests %d waited, and %d hits were advanced", sent, waited, advanced)
	// A node that did not run for ten seconds has lost its part.
	must.AtMost(t, waited, sent/20, "requests that waited of %d", sent)
	must.AtLeast(t, advanced, sent*9/10, "hits that were advanced")

	before := f.total()
	if !soon(func() bool {
		ask(random.IntN(len(all)), "ann")
		return f.total()-before >= limit
	}) {
		t.Fatalf("%d requests for a key were admitted in the end, want %d", f.total()-before, limit)
	}
	for range limit {
		ask(random.IntN(len(all)), "ann")
	}
	settle(t, backend, "default", f.total())
	must.Equal(t, f.total()-before, limit, "requests for a key were admitted")
}

// Nodes that have used nothing of a full key soon refuse its requests without a wait. After the operator has
// emptied the key's counter, each node refuses one request at most, and all of the limit passes again.
func TestFullKeysAreEmptied(t *testing.T) {
	t.Parallel()
	for _, store := range []string{"memory", "redis"} {
		t.Run(store, func(t *testing.T) {
			url := store
			if store == "redis" {
				url = redistest.Start(t).URL()
			}
			onWazero(t, func(t *testing.T, d driver) { fullKeysAreEmptied(t, d, url) })
		})
	}
}

func fullKeysAreEmptied(t *testing.T, d driver, store string) {
	const limit = 500
	backend := serve(t, store)
	all, addresses := nodes(t, d, 10, nodeConfig{backend: backend, configuration: `{"backend": {"cluster": "weir", "timeout": "60s"}, "sync_rate": 0.2, ` +
		perUser(fmt.Sprintf(`{"limit": %d, "window": "366d", "algorithm": "fixed_window"}`, limit))[1:]})
	f, client := newTraffic(1, addresses...), client(t)
	ask := func(node int, user string) (passed bool) {
		t.Helper()
		before := f.total()
		f.request(t, client, node, user)
		return f.total() > before
	}
	asked := 0
	if !soon(func() bool { ask(asked%5, "ann"); asked++; return f.total() == limit }) {
		t.Fatalf("%d requests passed, want %d", f.total(), limit)
	}
	// The other nodes have never seen the key.
	if !soon(func() bool {
		for n := range all {
			ask(n, fmt.Sprint("other ", asked, n)) // what gives a node its part
		}
		asked++
		waited := metric(t, all, "waited_requests")
		for n := 5; n < len(all); n++ {
			must.EqualOrEnd(t, ask(n, "ann"), false, "node %d lets a request for a full key pass", n)
		}
		return metric(t, all, "waited_requests") == waited && metric(t, all, "advanced_hits") > 0
	}) {
		t.Fatal("nodes ask the backend about a full key again and again")
	}
	before := f.total()
	weir(t, backend, "counter", "reset", "default", "per-user", "ann", "--wait", "60s")
	refused := make([]int, len(all))
	if !soon(func() bool {
		n := asked % len(all)
		if asked++; !ask(n, "ann") && f.total()-before < limit/2 {
			refused[n]++
		}
		return f.total()-before == limit
	}) {
		t.Fatalf("%d requests passed after the reset, want %d", f.total()-before, limit)
	}
	for n, refused := range refused {
		must.AtMost(t, refused, 1, "requests that node %d has refused", n)
	}
	for n := range all {
		must.Equal(t, ask(n, "ann"), false, "node %d lets a request pass above the limit", n)
	}
}
