package e2e

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"weir/internal/must"
	"weir/internal/nightly"
)

// Sixty configurations, 350 in a nightly run, replace each other under load: as listeners, and as
// the filter's configuration alone, which is how Istio delivers a WasmPlugin. No request fails, the
// backend has each hit of each admitted request, and the memory of old configurations is freed.
func TestUpdates(t *testing.T) {
	t.Parallel()
	for _, discovered := range []bool{false, true} {
		t.Run(map[bool]string{false: "listeners", true: "filters"}[discovered], func(t *testing.T) {
			onEnvoyAlone(t, 1, newest, func(t *testing.T, d envoys) { updates(t, d, discovered) })
		})
	}
}

func updates(t *testing.T, d envoys, discovered bool) {
	// A VM's heap needs some two hundred updates to reach its size, and only a nightly run has that
	// many. A hundred more would take 40 MiB if they were kept.
	const grown, clients = 250, 4
	rounds := nightly.Or(350, 60)
	configuration := func(i int) string {
		return fmt.Sprintf(`{"backend": {"cluster": "weir", "timeout": "10s"}, "sync_rate": 0.05, "rules": [
			{"name": "per-user", "key": [{"header": "x-user"}], "limits": [{"limit": %d, "window": "366d", "algorithm": "fixed_window"}]}]}`, 10_000_000+i)
	}
	backend := serve(t, "memory")
	n := d.prepare(t, nodeConfig{configuration: configuration(0), backend: backend})
	n.discovered = discovered
	n.listen(t)

	var admitted, round, written atomic.Int64
	var over atomic.Bool
	var group sync.WaitGroup
	for i := range clients {
		client := client(t)
		client.Transport = traced{client.Transport, &written}
		group.Go(func() {
			for !over.Load() {
				r, err := send(t, client, n.url(), "x-user", fmt.Sprint("user", i))
				if err != nil || r.status != http.StatusOK {
					t.Errorf("round %d: status %d, %v", round.Load(), r.status, err)
					return
				}
				admitted.Add(1)
			}
		})
	}
	settled := int64(0)
	for i := range rounds {
		round.Store(int64(i))
		// Some requests pass between any two updates.
		for before := admitted.Load(); admitted.Load() < before+50 && !t.Failed(); {
			must.Get(n.Admin("GET", "/ready"))(t)
		}
		must.OK(t, n.configure(configuration(i+1)))
		if i == grown {
			n.drained(t)
			settled = residentBytes(t, n.PID())
		}
	}
	over.Store(true)
	group.Wait()
	if t.Failed() {
		t.Log(n.said())
		return
	}
	r := ask(t, client(t), n.url(), "x-user", "nobody")
	r.want(t, fmt.Sprint("x-ratelimit-limit: ", 10_000_000+rounds))
	// On a very slow machine Envoy may close a connection in the middle of a request, because a
	// listener drains. The client then sends the request again, and the first may have been
	// counted.
	least := admitted.Load() + 1
	most := max(least, written.Load()+1)
	var got int64
	if !pushed.until(t, func() bool { got = counted(t, backend, "default"); return got >= least && got <= most }) {
		t.Fatalf("the backend has counted %d hits, want %d to %d", got, least, most)
	}
	n.wantMetric(t, metricName("lost_hits_total"), 0)
	n.drained(t)
	if rounds < grown {
		return
	}
	more := (residentBytes(t, n.PID()) - settled) >> 10
	t.Logf("%d requests passed; %d KiB more than after %d updates", admitted.Load(), more, grown)
	must.AtMost(t, more, 16<<10, "KiB more than after %d updates", grown)
}

// traced counts the requests that are written, including repeated requests.
type traced struct {
	http.RoundTripper
	written *atomic.Int64
}

// RoundTrip implements [http.RoundTripper].
func (c traced) RoundTrip(r *http.Request) (*http.Response, error) {
	trace := &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { c.written.Add(1) }}
	return c.RoundTripper.RoundTrip(r.WithContext(httptrace.WithClientTrace(r.Context(), trace)))
}

// drained waits until replaced listeners and configurations have ended.
func (n *envoyNode) drained(t *testing.T) {
	t.Helper()
	if err := waitOn(t, n.Envoy, func() (bool, error) {
		draining, err := n.Stats(`^listener_manager\.total_(filter_chains|listeners)_draining$`)
		sum := int64(0)
		for _, n := range draining {
			sum += n
		}
		return sum == 0, err
	}); err != nil {
		t.Errorf("replaced listeners stay: %v", err)
	}
}

func residentBytes(t *testing.T, pid int) int64 {
	t.Helper()
	status := must.Get(os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)))(t)
	for line := range bytes.Lines(status) {
		if text, ok := strings.CutPrefix(string(line), "VmRSS:"); ok {
			kib := must.Get(strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(text), " kB"), 10, 64))(t)
			return kib << 10
		}
	}
	t.Fatalf("no VmRSS in\n%s", status)
	return 0
}
