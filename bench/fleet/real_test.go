package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"weir/bench/page"
	"weir/internal/commandtest"
	"weir/internal/must"
	"weir/internal/nightly"
	"weir/internal/store/redis/redistest"
	"weir/ratelimit"
)

// The nodes of TestReal, and how many requests a second each has.
const realNodes, realRate = 100, 10

// At a real weir serve as in the study, hardly a request of real nodes waits: each has most of its requests for keys that it
// has not seen for a while.
func TestReal(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "weir")
	commandtest.Run(t, exec.Command("go", "build", "-o", binary, "weir/cmd/weir"))
	for _, store := range nightly.Or([]string{"memory", "file", "redis"}, []string{"redis"}) {
		t.Run(store, func(t *testing.T) {
			url := map[string]string{"memory": "memory", "file": "file:" + filepath.Join(t.TempDir(), "store")}[store]
			if store == "redis" {
				url = redistest.Start(t).URL()
			}
			address := commandtest.FreeAddress(t)
			page.Start(t, "http://"+address+"/readyz", nil, binary, "serve", "--listen", address, "--store", url)
			measureReal(t, "http://"+address)
		})
	}
}

func measureReal(t *testing.T, backend string) {
	var limiters []*ratelimit.Limiter
	var namespaces []*ratelimit.Namespace
	for range realNodes {
		// Each program has its own client.
		client := must.Get(ratelimit.Dial(backend, ratelimit.DialOptions{}))(t)
		namespace := must.Get(ratelimit.NewNamespace(ratelimit.Options{
			Name: "fleet", Backend: client, Timeout: 2 * time.Second, Capacity: 1 << 14,
			Rules: []ratelimit.Rule{{Name: "user", Limits: []ratelimit.Limit{ratelimit.FixedWindow(100_000, time.Hour)}}},
		}))(t)
		t.Cleanup(func() {
			must.Report(t, errors.Join(namespace.Close(context.Background()), client.Close()))
		})
		limiter := must.Get(namespace.Limiter("user"))(t)
		limiters, namespaces = append(limiters, limiter), append(namespaces, namespace)
	}
	waits := make([][]float64, len(limiters)) // milliseconds
	load := func() {
		clear(waits)
		var group sync.WaitGroup
		end := time.Now().Add(10 * time.Second)
		for i, limiter := range limiters {
			group.Go(func() {
				random := rand.New(rand.NewPCG(seed, uint64(i)))
				keys := rand.NewZipf(random, 1.2, 1, 19_999)
				for at := time.Now(); ; {
					at = at.Add(time.Duration(random.ExpFloat64() * float64(time.Second) / realRate))
					if at.After(end) {
						return
					}
					<-time.After(time.Until(at))
					began := time.Now()
					if _, err := limiter.Allow(t.Context(), fmt.Sprint(keys.Uint64())); err != nil {
						t.Error(err)
						return
					}
					waits[i] = append(waits[i], time.Since(began).Seconds()*1000)
				}
			})
		}
		group.Wait()
	}
	load() // each has a part of the limits then
	before := statsOf(namespaces)
	load()
	all, after := slices.Concat(waits...), statsOf(namespaces)
	waited, advanced := after.WaitedRequests-before.WaitedRequests, after.AdvancedHits-before.AdvancedHits
	t.Logf("clients wait: p50 %.1f ms, p99 %.1f ms; %d of %d requests wait; %d hits are advanced", page.Quantile(all, 0.5), page.Quantile(all, 0.99), waited, len(all), advanced)
	must.AtLeast(t, advanced, 1, "hits advanced")
	must.AtMost(t, 50*waited, uint64(len(all)), "50 times the requests that wait, of which 20 of 1,000 may,")
}

// statsOf adds up the counts of nodes.
func statsOf(nodes []*ratelimit.Namespace) (sum ratelimit.Stats) {
	for _, n := range nodes {
		of := n.Stats()
		sum.WaitedRequests += of.WaitedRequests
		sum.AdvancedHits += of.AdvancedHits
	}
	return sum
}
