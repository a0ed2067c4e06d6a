package e2e

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"weir/internal/nightly"
	"weir/internal/store/postgres/postgrestest"
	"weir/internal/store/redis/redistest"
)

// store is the store of a backend. Stores that survive a crash can be taken down and brought back.
type store struct {
	url        string
	down, back func()
	// alone means that only a single backend at a time can use it.
	alone bool
}

// forgets reports whether a store's contents are lost with its backend.
func (s store) forgets() bool { return s.url == "memory" }

// stores has all kinds of store, each with its data on disk.
var stores = map[string]func(t *testing.T) store{
	"memory": func(*testing.T) store { return store{url: "memory", alone: true} },
	"file": func(t *testing.T) store {
		return store{url: "file:" + filepath.Join(t.TempDir(), "weir.db"), alone: true}
	},
	"redis": func(t *testing.T) store {
		redis := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
		return store{url: redis.URL(), down: redis.Stop, back: redis.Restart}
	},
	"redis cluster": func(t *testing.T) store {
		cluster := redistest.StartCluster(t)
		// A push is answered after a replica has it, so it survives the master. On a busy machine a replica may need longer than
		// the default: then the backend answers 503, and a node decides alone.
		return store{url: cluster.URL() + "?wait_replicas=1&wait_timeout=4s", down: func() { cluster.KillMaster(0) }, back: func() { cluster.ReturnMaster(0) }}
	},
	"postgres": func(t *testing.T) store {
		postgres := postgrestest.Start(t)
		return store{url: postgres.URL(), down: func() { postgres.Stop(t) }, back: func() { postgres.Restart(t) }}
	},
}

var kindsOfStore = slices.Sorted(maps.Keys(stores))

// eachStore runs a part of a scenario for each kind of store that the driver wants.
func eachStore(t *testing.T, d driver, part func(t *testing.T, start func(t *testing.T) store)) {
	t.Helper()
	for _, name := range d.stores() {
		t.Run(name, func(t *testing.T) {
			d.beside(t)
			part(t, stores[name])
		})
	}
}

// Three nodes share a limit on each kind of store, synchronising or asking for every request. Then
// the backend is killed and started again, and so is the store, under load. Once all is quiet the
// backend has exactly the admitted hits.
func TestStores(t *testing.T) {
	onEach(t, 3, func(t *testing.T, d driver) {
		eachStore(t, d, func(t *testing.T, start func(t *testing.T) store) {
			store := start(t)
			rates := []int{1, 0}
			if !nightly.On() && !strings.HasSuffix(t.Name(), "/redis") {
				rates = rates[:1]
			}
			for _, rate := range rates {
				t.Run(fmt.Sprint("sync_rate ", rate), func(t *testing.T) { onStore(t, d, store, rate) })
			}
		})
	})
}

func onStore(t *testing.T, d driver, s store, rate int) {
	const users = 60
	limit := nightly.Or[int64](200, 100)
	namespace := fmt.Sprint("rate", rate)
	served, backend := serveAt(t, steadyAddress(t), s.url)
	_, addresses := nodes(t, d, 3, nodeConfig{backend: backend, configuration: fmt.Sprintf(
		`{"namespace": %q, "sync_rate": %d, "backend": {"cluster": "weir", "timeout": "5s"}, "rules": [
			{"name": "per-user", "key": [{"header": "x-user"}], "cost": {"header": "x-cost"}, "limits": [{"limit": %d, "window": "366d", "algorithm": "fixed_window"}]}]}`,
		namespace, rate, limit)})
	f, client, random := newTraffic(1, addresses...), client(t), rand.New(rand.NewPCG(2, 3))
	for range 3 * limit {
		f.request(t, client, random.IntN(len(addresses)), "ann")
	}
	if passed := f.admitted["ann"]; passed > limit || rate == 0 && passed < limit || passed < limit/2 {
		t.Errorf("%d passed of %d with a limit of %d", passed, 3*limit, limit)
	}
	settle(t, backend, namespace, f.total())
	if s.forgets() {
		return
	}
	faults := []struct {
		what       string
		down, back func()
	}{
		{"the backend", func() { served.Kill(t) }, func() { served, _ = serveAt(t, backend, s.url) }},
		{"the store", s.down, s.back},
	}
	if s.down == nil {
		faults = faults[:1]
	}
	for i, fault := range faults {
		prefix := fmt.Sprint("fault", i, "-")
		away := f.during(t, fault.down)
		f.run(t, 4, users, prefix, countdown(nightly.Or[int64](300, 50)))
		t.Logf("%d hits while %s went down, %d while it came back", away, fault.what, f.during(t, fault.back))
		f.run(t, 4, users, prefix, countdown(nightly.Or[int64](300, 50)))
		settle(t, backend, namespace, f.total())
	}
}

// countdown returns a function that is true n times.
func countdown(n int64) func() bool {
	var left atomic.Int64
	left.Store(n)
	return func() bool { return left.Add(-1) >= 0 }
}
