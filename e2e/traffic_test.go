package e2e

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir/internal/envoytest"
	"weir/internal/must"
	"weir/internal/nightly"
	"weir/internal/store/redis/redistest"
)

// At one node with four workers, many connections at once use one key: exactly the limit passes.
func TestExactUnderLoad(t *testing.T) {
	onEach(t, 1, func(t *testing.T, d driver) {
		const connections = 64
		requests := int64(nightly.Or(50_000, 10_000))
		limit := requests / 5
		proxy := d.node(t, nodeConfig{
			clock: newClock(), workers: 4, configuration: perUser(fmt.Sprintf(`{"limit": %d, "window": "1h", "algorithm": "fixed_window"}`, limit)),
		})
		var passed, rejected, sent atomic.Int64
		var group sync.WaitGroup
		for range connections {
			group.Go(func() {
				client := client(t)
				for sent.Add(1) <= requests {
					r, err := send(t, client, proxy.url(), "x-user", "ann")
					switch {
					case err != nil:
						t.Error(err)
						return
					case r.status == http.StatusOK:
						passed.Add(1)
					case r.status == http.StatusTooManyRequests:
						rejected.Add(1)
					}
				}
			})
		}
		group.Wait()
		must.Equal(t, passed.Load(), limit, "passed of %d", requests)
		must.Equal(t, rejected.Load(), requests-limit, "rejected of %d", requests)
		proxy.wantMetric(t, metricName("requests_total", "per-user", "allowed"), limit)
		proxy.wantMetric(t, metricName("requests_total", "per-user", "rejected"), requests-limit)
		t.Logf("%d lost races", proxy.metric(t, metricName("lost_races_total")))
	})
}

// faults loses a share of callouts, before or after the backend has applied them.
type faults struct {
	mu     sync.Mutex
	random *rand.Rand
	share  float64
}

var errLost = errors.New("lost by the test")

func (f *faults) RoundTrip(r *http.Request) (*http.Response, error) {
	f.mu.Lock()
	lost, before := f.random.Float64() < f.share, f.random.IntN(2) == 0
	f.mu.Unlock()
	if lost && before {
		return nil, errLost
	}
	response, err := envoytest.Client.Transport.RoundTrip(r)
	if lost && err == nil {
		_, err = io.Copy(io.Discard, response.Body)
		return nil, errors.Join(errLost, err, response.Body.Close())
	}
	return response, err
}

func (f *faults) heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.share = 0
}

// settle waits until a backend has counted the admitted hits.
func settle(t *testing.T, backend, namespace string, want int64) {
	t.Helper()
	var got int64
	if !pushed.until(t, func() bool { got = counted(t, backend, namespace); return got == want }) {
		t.Fatalf("the backend has counted %d hits, want %d", got, want)
	}
}

// syncedLimits are limits of every algorithm, 100 a year, which no test's hour can end. A log keeps
// no more hits than its limit, and two nodes that decide alone may exceed it together, so its limit
// is higher.
const syncedLimits = `
	{"limit": 100, "window": "366d", "algorithm": "fixed_window"},
	{"limit": 100, "window": "366d"},
	{"limit": 100, "window": "366d", "precision": "61d"},
	{"limit": 300, "window": "366d", "algorithm": "sliding_log"},
	{"limit": 1, "window": "366d", "algorithm": "token_bucket", "burst": 100}`

// limitsPerHit is the number of counters for a hit of costly.
const limitsPerHit = 5

// TestRun acts like a new user: two nodes with two workers each share a limit of 10, with requests
// in turns.
func TestRun(t *testing.T) {
	t.Parallel()
	// The example's window is a minute, which may end meanwhile. A year does not.
	file := filepath.Join(t.TempDir(), "year.json")
	year := `{"namespace": "example", "backend": {"cluster": "c"}, "sync_rate": 0.1, "headers": ["retry-after"], ` +
		perUser(`{"limit": 10, "window": "366d", "algorithm": "fixed_window"}`)[1:]
	must.OK(t, os.WriteFile(file, []byte(year), 0o600))
	for _, test := range []struct {
		name string
		args []string
		most int64
	}{
		{"example", nil, 12},
		{"memory", []string{"--config", file}, 10},
		{"redis", []string{"--config", file, "--store", redistest.Start(t).URL()}, 10},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			p := start(t, append([]string{"run", "--listen", "127.0.0.1:0", "--log-level", "debug"}, test.args...)...)
			nodes := []string{p.Wait(t, `^proxy 0 +(http://\S+)`), p.Wait(t, `^proxy 1 +(http://\S+)`)}
			backend := strings.TrimPrefix(p.Wait(t, `^backend +(http://\S+)`), "http://")
			admitted, counted := int64(0), int64(0)
			// A node may have to wait for hits that the other has leased, but in the end all 10 are
			// admitted, and no more.
			deadline := time.Now().Add(hang)
			for i, after := 0, 0; after < 20; i++ {
				r := ask(t, envoytest.Client, nodes[i%2], "x-user", "ann")
				switch {
				case r.status == http.StatusOK:
					admitted++
					counted++
					synchronise(t, backend, "example", nodes, &counted)
				case r.status != http.StatusTooManyRequests || r.header.Get("retry-after") == "" || r.header.Get("x-envoy-ratelimited") != "true":
					t.Errorf("got status %d, headers %v", r.status, r.header)
				case admitted >= 10:
					after++
				case time.Now().After(deadline):
					t.Fatalf("admitted %d, want 10", admitted)
				}
			}
			must.AtLeast(t, admitted, 10, "admitted")
			must.AtMost(t, admitted, test.most, "admitted")
		})
	}
}

// synchronise waits until nodes know each other's admitted hits. A node pushes a new key at its
// next tick, and has at most ten ticks in a sync_rate of 100 ms. When a dozen new keys have arrived
// one after the other, every other key has been synchronised in between.
func synchronise(t *testing.T, backend, namespace string, nodes []string, counted *int64) {
	t.Helper()
	for range 12 {
		for _, node := range nodes {
			*counted++
			must.EqualOrEnd(t, ask(t, envoytest.Client, node, "x-user", fmt.Sprint("barrier", *counted)).status, http.StatusOK, "a new key")
		}
		settle(t, backend, namespace, *counted)
	}
}
