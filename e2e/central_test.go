package e2e

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"weir/internal/must"
)

// asksAlways asks the backend on every request, with a very long timeout.
const asksAlways = `{"backend": {"cluster": "weir", "timeout": "60s"}, "sync_rate": 0, "rules": [
	{"name": "per-user", "key": [{"header": "x-user"}], "limits": [{"limit": 60, "window": "366d", "algorithm": "fixed_window"}]},
	{"name": "all", "limits": [{"limit": 100, "window": "366d"}, {"limit": 1, "window": "366d", "algorithm": "token_bucket", "burst": 500}]}]}`

// With a sync_rate of 0, ten nodes that hammer the same keys admit exactly the limit: 60 requests
// of ann and of bob, 100 in all. Requests that one rule refuses take nothing from the other.
func TestCentral(t *testing.T) {
	onEach(t, 10, func(t *testing.T, d driver) {
		eachStore(t, d, func(t *testing.T, start func(t *testing.T) store) {
			const requests = 600
			backend := serve(t, start(t).url)
			proxies, addresses := nodes(t, d, d.few(10), nodeConfig{configuration: asksAlways, backend: backend})
			f := newTraffic(1, addresses...)
			var sent atomic.Int64
			var group sync.WaitGroup
			for i := range 20 {
				client, random := client(t), rand.New(rand.NewPCG(5, uint64(i)))
				group.Go(func() {
					for sent.Add(1) <= requests {
						status, header, err := f.ask(t, client, i%len(addresses), []string{"ann", "bob"}[random.IntN(2)])
						if err != nil {
							t.Error(err)
							return
						}
						checkHeaders(t, status, header)
					}
				})
			}
			group.Wait()
			if f.total() != 100 || f.admitted["ann"] > 60 || f.admitted["bob"] > 60 || f.refused != requests-100 {
				t.Errorf("admitted %v and refused %d, want 100 in all, and 60 of one at most", f.admitted, f.refused)
			}
			// The count is right at once, because nothing is under way.
			must.Equal(t, counted(t, backend, "default"), 300, "the backend has hits in three counters")
			// A store for which the machine has too little time fails some, and they are decided alone.
			if strings.Contains(fetch(t, "http://"+backend+"/metrics"), "\nweir_store_errors_total 0\n") {
				for _, p := range proxies {
					p.wantMetric(t, metricName("decided_alone_total"), 0)
				}
			}
		})
	})
}

// checkHeaders checks that the headers of an answer fit its status.
func checkHeaders(t *testing.T, status int, header http.Header) {
	t.Helper()
	refused := status == http.StatusTooManyRequests
	must.Equal(t, header.Get("retry-after") != "", refused, "status %d has retry-after: %v", status, header)
	must.Equal(t, header.Get("x-envoy-ratelimited") == "true", refused, "status %d has x-envoy-ratelimited: %v", status, header)
	for _, name := range []string{"ratelimit", "ratelimit-policy", "x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"} {
		if header.Get(name) == "" {
			t.Errorf("status %d: no %s in %v", status, name, header)
		}
	}
	if refused && header.Get("x-ratelimit-remaining") != "0" {
		t.Errorf("refused while %s remain", header.Get("x-ratelimit-remaining"))
	}
}

// With a sync_rate of 0, a client gets the same headers as from a single proxy.
func TestCentralHeaders(t *testing.T) {
	onEachByNight(t, 3, func(t *testing.T, d driver) {
		_, addresses := nodes(t, d, 3, nodeConfig{backend: serve(t, "memory"), configuration: `{"backend": {"cluster": "weir", "timeout": "60s"}, "sync_rate": 0, ` +
			perUser(`{"limit": 4, "window": "366d", "algorithm": "fixed_window"}`)[1:]})
		f, client := newTraffic(1, addresses...), client(t)
		for i := range 7 {
			status, header, err := f.ask(t, client, i%3, "ann")
			must.OK(t, err)
			checkHeaders(t, status, header)
			must.Equal(t, header.Get("x-ratelimit-remaining"), fmt.Sprint(max(0, 3-i)), "request %d: remaining", i)
			must.Equal(t, status == http.StatusOK, i < 4, "request %d passes, with status %d", i, status)
		}
	})
}

// While the backend is away, on_backend_failure decides in both modes of synchronisation, and
// headers show the node's own knowledge.
func TestBackendAway(t *testing.T) {
	onEach(t, 1, func(t *testing.T, d driver) {
		for _, rate := range []string{"0", "0.02"} {
			for policy, want := range map[string]int{"local": 10, "allow": 15, "deny": 0} {
				t.Run(fmt.Sprint("sync_rate ", rate, " ", policy), func(t *testing.T) {
					d.beside(t)
					proxy := d.node(t, nodeConfig{
						clock: newClockNow(), backend: "127.0.0.1:1",
						configuration: `{"backend": {"cluster": "weir"}, "sync_rate": ` + rate + `, "on_backend_failure": "` + policy + `", ` +
							perUser(`{"limit": 10, "window": "366d", "algorithm": "fixed_window"}`)[1:],
					})
					f, clients := newTraffic(1, proxy.url()), []*http.Client{client(t), client(t)}
					for i := range 15 {
						status, header, err := f.ask(t, clients[i%2], 0, "ann")
						must.OK(t, err)
						if refused := status == http.StatusTooManyRequests; refused != (header.Get("retry-after") != "") ||
							refused != (header.Get("x-envoy-ratelimited") == "true") || header.Get("x-ratelimit-limit") != "10" {
							t.Errorf("request %d: status %d with headers %v", i, status, header)
						}
						if remaining := header.Get("x-ratelimit-remaining"); policy == "local" && remaining != fmt.Sprint(max(0, 9-i)) {
							t.Errorf("request %d: %s remaining", i, remaining)
						}
					}
					must.Equal(t, int(f.total()), want, "admitted of 15 with a limit of 10")
					// Later refusals follow from the node's own knowledge of these keys.
					if policy != "local" {
						proxy.wantMetric(t, metricName("decided_alone_total"), 15)
					}
				})
			}
		}
	})
}
