package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/bench/page"
	"weir/internal/nightly"
	"weir/internal/store/postgres/postgrestest"
	"weir/internal/store/redis/redistest"
	"weir/ratelimit"
)

var (
	realStores = flag.String("real", nightly.Or("memory,file,redis", "redis"), "the stores of TestReal: memory, file, redis, cluster, postgres, with commas")
	realNodes  = flag.Int("nodes", 100, "how many nodes TestReal has")
	realSpan   = flag.Duration("span", 10*time.Second, "for how long TestReal measures each")
)

// TestReal measures what real nodes cost a real weir serve and its store: each hit of cold keys,
// and a node without hits. It fails if requests wait that need not. The figures are those of a
// quiet machine: go test ./bench/fleet -run TestReal -real memory,redis -nodes 200 -span 30s -v.
func TestReal(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "weir")
	if out, err := exec.Command("go", "build", "-o", binary, "weir/cmd/weir").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, store := range strings.Split(*realStores, ",") {
		t.Run(store, func(t *testing.T) { measureReal(t, binary, store) })
	}
}

// serving is a weir serve and the processes of its store.
type serving struct {
	t      *testing.T
	url    string
	own    int
	stores []int
}

func serve(t *testing.T, binary, store string) *serving {
	s := &serving{t: t}
	url := store
	switch store {
	case "file":
		url = "file:" + filepath.Join(t.TempDir(), "store")
	case "redis":
		url = redistest.Start(t).URL()
	case "cluster":
		url = redistest.StartCluster(t).URL()
	case "postgres":
		url = postgrestest.Start(t).URL()
	}
	s.stores = page.Children(os.Getpid())
	address := page.FreeAddresses(t, 1)[0]
	s.url = "http://" + address
	s.own = page.Start(t, s.url+"/readyz", nil, binary, "serve", "--listen", address, "--store", url)
	return s
}

// pushes returns how many pushes weir serve has answered.
func (s *serving) pushes() (n float64) {
	s.t.Helper()
	answer, err := http.Get(s.url + "/metrics")
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	lines := bufio.NewScanner(answer.Body)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "weir_http_requests_total{") && strings.Contains(lines.Text(), "push") {
			at := strings.LastIndex(lines.Text(), " ")
			value, err := strconv.ParseFloat(lines.Text()[at+1:], 64)
			if err != nil {
				s.t.Fatal(err)
			}
			n += value
		}
	}
	return n
}

// over measures the cost of a period.
func (s *serving) over(name string, per float64, of string, during func()) {
	s.t.Helper()
	own, stores, pushes, began := page.Used(s.own), page.Used(s.stores...), s.pushes(), time.Now()
	during()
	took, n := time.Since(began).Seconds(), s.pushes()-pushes
	micros := func(before time.Duration, of ...int) float64 {
		return float64((page.Used(of...) - before).Microseconds())
	}
	ownNow, storesNow, units := micros(own, s.own), micros(stores, s.stores...), per*took
	s.t.Logf("%s: %.1f pushes a second, %.4f %s; weir serve %.1f us %s, %.0f a push; store %.1f us %s, %.0f a push",
		name, n/took, n/units, of, ownNow/units, of, ownNow/max(n, 1), storesNow/units, of, storesNow/max(n, 1))
}

func measureReal(t *testing.T, binary, store string) {
	s := serve(t, binary, store)
	ctx := t.Context()
	var limiters []*ratelimit.Limiter
	var namespaces []*ratelimit.Namespace
	for range *realNodes {
		// Each program has its own client.
		client, err := ratelimit.Dial(s.url, ratelimit.DialOptions{})
		if err != nil {
			t.Fatal(err)
		}
		namespace, err := ratelimit.NewNamespace(ratelimit.Options{
			Name: "fleet", Backend: client, Timeout: 2 * time.Second, Capacity: 1 << 14,
			Rules: []ratelimit.Rule{{Name: "user", Limits: []ratelimit.Limit{ratelimit.FixedWindow(100_000, time.Hour)}}},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := errors.Join(namespace.Close(context.Background()), client.Close()); err != nil {
				t.Error(err)
			}
		})
		limiter, err := namespace.Limiter("user")
		if err != nil {
			t.Fatal(err)
		}
		limiters, namespaces = append(limiters, limiter), append(namespaces, namespace)
	}
	<-time.After(10 * time.Second) // all nodes have learnt the state
	s.over("idle", float64(*realNodes), "a node and second", func() { <-time.After(*realSpan) })

	// Each node has ten requests a second, most of them for keys that it has not seen for a while.
	const rate = 10
	of := make([][]float64, len(limiters)) // milliseconds
	load := func(span time.Duration) {
		clear(of)
		var group sync.WaitGroup
		end := time.Now().Add(span)
		for i, limiter := range limiters {
			group.Go(func() {
				random := rand.New(rand.NewPCG(seed, uint64(i)))
				keys := rand.NewZipf(random, 1.2, 1, 19_999)
				for at := time.Now(); ; {
					at = at.Add(time.Duration(random.ExpFloat64() * float64(time.Second) / rate))
					if at.After(end) {
						return
					}
					<-time.After(time.Until(at))
					began := time.Now()
					if _, err := limiter.Allow(ctx, fmt.Sprint(keys.Uint64())); err != nil {
						t.Error(err)
						return
					}
					of[i] = append(of[i], time.Since(began).Seconds()*1000)
				}
			})
		}
		group.Wait()
	}
	load(10 * time.Second) // each has a part of the limits
	before := statsOf(namespaces)
	s.over("busy", float64(*realNodes*rate), "a request", func() { load(*realSpan) })
	all := slices.Concat(of...)
	after := statsOf(namespaces)
	waited, advanced := after.WaitedRequests-before.WaitedRequests, after.AdvancedHits-before.AdvancedHits
	t.Logf("clients wait: p50 %.1f ms, p99 %.1f ms; of 1,000 of %d requests %.1f wait; %d hits are advanced",
		page.Quantile(all, 0.5), page.Quantile(all, 0.99), len(all), 1000*float64(waited)/float64(len(all)), advanced)
	if advances := store != "cluster" && store != "postgres"; advances && (advanced == 0 || 50*waited > uint64(len(all))) {
		t.Errorf("of %d requests %d wait, want at most 20 of 1,000; %d hits were advanced, want some", len(all), waited, advanced)
	}
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
