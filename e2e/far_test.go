package e2e

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"weir/internal/nightly"
	"weir/internal/store/redis/redistest"
)

// In a fleet of ten nodes, requests for keys that a node has never seen do not wait. A key near its
// limit gets all of it, and no more. Once all is quiet the backend has exactly the admitted hits.
func TestFarKeysWaitForNothing(t *testing.T) {
	t.Parallel()
	for _, store := range nightly.Or([]string{"memory", "file", "redis"}, []string{"memory", "redis"}) {
		t.Run(store, func(t *testing.T) {
			url := store
			switch store {
			case "file":
				url += ":" + filepath.Join(t.TempDir(), "weir.db")
			case "redis":
				url = redistest.Start(t).URL()
			}
			onWazero(t, func(t *testing.T, d driver) { farKeysWaitForNothing(t, d, url) })
		})
	}
}

func farKeysWaitForNothing(t *testing.T, d driver, store string) {
	const (
		limit = 500
		users = 300
	)
	backend := serve(t, store)
	all, addresses := nodes(t, d, 10, nodeConfig{backend: backend, configuration: `{"backend": {"cluster": "weir", "timeout": "60s"}, "sync_rate": 0.2, ` +
		perUser(fmt.Sprintf(`{"limit": %d, "window": "366d", "algorithm": "fixed_window"}`, limit))[1:]})
	f, client, random := newTraffic(1, addresses...), client(t), rand.New(rand.NewPCG(1, 33))
	ask := func(node int, user string) {
		t.Helper()
		if _, _, err := f.ask(client, node, user); err != nil {
			t.Fatal(err)
		}
	}
	// Each node has a part of the limits.
	for i, deadline := 0, time.Now().Add(hang); ; i++ {
		ready := true
		for n := range all {
			ask(n, fmt.Sprint("first ", i, " at ", n))
			ready = all[n].metric(t, metricName("advanced_hits_total")) > 0 && ready
		}
		if ready {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("some nodes have no part of the limits")
		}
	}
	waited, advanced := metric(t, all, "waited_requests"), metric(t, all, "advanced_hits")
	for user := range users {
		for range 3 {
			ask(random.IntN(len(all)), fmt.Sprint("user ", user))
		}
	}
	waited, advanced = metric(t, all, "waited_requests")-waited, metric(t, all, "advanced_hits")-advanced
	t.Logf("of %d requests %d waited, and %d hits were advanced", 3*users, waited, advanced)
	// A node that did not run for ten seconds has lost its part.
	if waited > 3*users/20 || advanced < 3*users*19/20 {
		t.Errorf("of %d requests %d waited, and %d hits were advanced", 3*users, waited, advanced)
	}

	before := f.total()
	for deadline := time.Now().Add(hang); f.total()-before < limit; ask(random.IntN(len(all)), "ann") {
		if time.Now().After(deadline) {
			t.Fatalf("%d requests for a key were admitted in the end, want %d", f.total()-before, limit)
		}
	}
	for range limit {
		ask(random.IntN(len(all)), "ann")
	}
	settle(t, backend, "default", f.total())
	if got := f.total() - before; got != limit {
		t.Errorf("%d requests for a key were admitted, want %d", got, limit)
	}
}

// Nodes hear that a key is full, and refuse its first request by that. After the operator has emptied the
// key's counter, each node refuses one request at most, and all of the limit passes again.
func TestFullKeysAreEmptied(t *testing.T) {
	t.Parallel()
	for _, store := range nightly.Or([]string{"memory", "file"}, []string{"memory"}) {
		t.Run(store, func(t *testing.T) {
			url := store
			if store == "file" {
				url += ":" + filepath.Join(t.TempDir(), "weir.db")
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
		if _, _, err := f.ask(client, node, user); err != nil {
			t.Fatal(err)
		}
		return f.total() > before
	}
	// Half of the nodes use up the limit.
	for i, deadline := 0, time.Now().Add(hang); f.total() < limit; i++ {
		ask(i%5, "ann")
		if time.Now().After(deadline) {
			t.Fatalf("%d requests passed, want %d", f.total(), limit)
		}
	}
	// The other nodes have a part, and refuse by the list.
	waits := func(node int) (waited bool) {
		t.Helper()
		before := metric(t, all, "waited_requests")
		if user := fmt.Sprint("ann ", node); ask(node, user) {
			return metric(t, all, "waited_requests") > before
		}
		return true
	}
	for deadline, ready := time.Now().Add(hang), false; !ready; {
		ready = true
		for n := range all {
			ready = !waits(n) && ready
		}
		if time.Now().After(deadline) {
			t.Fatal("some nodes have no part of the limits")
		}
	}
	for i, heard := 0, time.Now().Add(2*time.Second); time.Now().Before(heard); i++ {
		ask(i%len(all), fmt.Sprint("other ", i))
	}
	waited := metric(t, all, "waited_requests")
	for n := 5; n < len(all); n++ {
		if ask(n, "ann") {
			t.Errorf("node %d lets a request for a full key pass", n)
		}
	}
	t.Logf("%d of 5 refusals waited", metric(t, all, "waited_requests")-waited)
	weir(t, backend, "counter", "reset", "default", "per-user", "ann", "--wait", "60s")
	before := f.total()
	refused := make([]int, len(all))
	for i, deadline := 0, time.Now().Add(hang); f.total()-before < limit; i++ {
		if n := i % len(all); !ask(n, "ann") && f.total()-before < limit/2 {
			refused[n]++
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d requests passed after the reset, want %d", f.total()-before, limit)
		}
	}
	for n, refused := range refused {
		if refused > 1 {
			t.Errorf("node %d has refused %d requests", n, refused)
		}
	}
}
