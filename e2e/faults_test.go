package e2e

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir/internal/envoytest"
	"weir/internal/host"
	"weir/internal/must"
	"weir/internal/nightly"
)

// hang is the time after which a test treats a request as hanging.
const hang = 2 * time.Minute

// traffic sends clients' requests to nodes, and counts those that pass.
type traffic struct {
	addresses []string
	cost      int64
	charged   bool // whether responses decide the cost

	mu       sync.Mutex
	admitted map[string]int64 // hits, by user
	refused  int
}

func newTraffic(cost int64, addresses ...string) *traffic {
	return &traffic{addresses: addresses, cost: cost, admitted: map[string]int64{}}
}

// client returns a client with its own connections, so each client is connected to another worker.
func client(t *testing.T) *http.Client {
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: hang}
}

// ask sends a request to a node, and counts the answer.
func (f *traffic) ask(t *testing.T, client *http.Client, node int, user string) (status int, header http.Header, err error) {
	t.Helper()
	costs := []string{"x-cost", fmt.Sprint(f.cost)}
	if f.charged {
		costs = []string{"x-cost", "0", "x-charge", fmt.Sprint(f.cost)}
	}
	r, err := send(t, client, f.addresses[node], append(costs, "x-user", user)...)
	if err != nil {
		return 0, nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch r.status {
	case http.StatusOK:
		f.admitted[user] += f.cost
	case http.StatusTooManyRequests:
		f.refused++
	default:
		err = fmt.Errorf("got status %d", r.status)
	}
	return r.status, r.header, err
}

// request is [traffic.ask], and ends the test if there is no answer.
func (f *traffic) request(t *testing.T, client *http.Client, node int, user string) {
	t.Helper()
	_, _, err := f.ask(t, client, node, user)
	must.OK(t, err)
}

// total returns the number of admitted hits.
func (f *traffic) total() (hits int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, n := range f.admitted {
		hits += n
	}
	return hits
}

// run lets clients send random requests while more returns true.
func (f *traffic) run(t *testing.T, clients, users int, prefix string, more func() bool) {
	t.Helper()
	var group sync.WaitGroup
	for i := range clients {
		client, random := client(t), rand.New(rand.NewPCG(7, uint64(i)))
		group.Go(func() {
			for more() {
				if _, _, err := f.ask(t, client, random.IntN(len(f.addresses)), fmt.Sprint(prefix, random.IntN(users))); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
}

// unlucky is the network between nodes and backends. It chooses one of several backends for each
// callout, loses some callouts before or after they were applied, delivers some twice, and reorders
// answers.
type unlucky struct {
	faults
	backends []string
	held     chan struct{}
	lost     atomic.Int64
	calls    atomic.Int64
}

func newUnlucky(seed uint64, backends ...string) *unlucky {
	return &unlucky{faults: faults{random: rand.New(rand.NewPCG(seed, 4)), share: 0.3}, backends: backends, held: make(chan struct{})}
}

func (u *unlucky) RoundTrip(r *http.Request) (*http.Response, error) {
	u.calls.Add(1)
	u.mu.Lock()
	late, twice := u.random.Float64() < u.share/4, u.random.Float64() < u.share/6
	r, again := r.Clone(r.Context()), r.Clone(r.Context())
	r.URL.Host, again.URL.Host = u.backends[u.random.IntN(len(u.backends))], u.backends[u.random.IntN(len(u.backends))]
	u.mu.Unlock()
	if twice {
		var err error
		if again.Body, err = r.GetBody(); err != nil {
			return nil, err
		}
		if response, err := u.faults.RoundTrip(again); err == nil {
			if err := response.Body.Close(); err != nil {
				return nil, err
			}
		}
	}
	response, err := u.faults.RoundTrip(r)
	if err != nil {
		u.lost.Add(1)
		return nil, err
	}
	if !late {
		select {
		case <-u.held: // a held answer goes on
		default:
		}
		return response, nil
	}
	select {
	case u.held <- struct{}{}:
		return response, nil
	case <-r.Context().Done():
		return nil, errors.Join(r.Context().Err(), response.Body.Close())
	}
}

// counters returns a backend's hits for each limit, as a sorted list of the keys' hits. It is nil if
// the store can't be reached.
func counters(t *testing.T, backend, namespace string) map[string][]int64 {
	t.Helper()
	lines, _ := listed(t, backend, namespace)
	limits := map[string][]int64{}
	for _, line := range lines {
		if hits := line.hits(); hits != 0 {
			limit := fmt.Sprint(line.Kind, " ", line.Precision)
			limits[limit] = append(limits[limit], hits)
		}
	}
	for _, hits := range limits {
		slices.Sort(hits)
	}
	return limits
}

// agree waits until a backend has exactly the admitted hits of each user, for each limit. Leased
// hits are given back over time.
func agree(t *testing.T, backend, namespace string, limits int, admitted map[string]int64) {
	t.Helper()
	want := slices.Sorted(maps.Values(admitted))
	var got map[string][]int64
	equal := func() bool {
		got = counters(t, backend, namespace)
		for _, hits := range got {
			if !slices.Equal(hits, want) {
				return false
			}
		}
		return len(got) == limits
	}
	if !pushed.until(t, equal) {
		t.Errorf("admitted %d hits of %d users", sum(want), len(want))
		for _, limit := range slices.Sorted(maps.Keys(got)) {
			t.Errorf("%s: the backend has %d of %d", limit, sum(got[limit]), len(got[limit]))
		}
	}
}

func sum(hits []int64) (total int64) {
	for _, n := range hits {
		total += n
	}
	return total
}

// costly has syncedLimits for each user. The request names its cost.
const costly = `{"backend": {"cluster": "weir", "timeout": "500ms"}, "sync_rate": 0.02, "rules": [{"name": "per-user", "key": [{"header": "x-user"}],
	"cost": {"header": "x-cost"}, "limits": [` + syncedLimits + `]}]}`

// metricName returns Weir's name of a metric of the namespace default or, with rule and outcome, of
// a rule.
func metricName(name string, ruleAndOutcome ...string) string {
	full := "weir.weir_namespace=.=default;.;"
	for i, value := range ruleAndOutcome {
		full += []string{"weir_rule", "weir_outcome"}[i] + "=.=" + value + ";.;"
	}
	return full + name
}

// metric returns the sum of a counter over all nodes.
func metric(t *testing.T, nodes []node, name string, labels ...string) (n int64) {
	t.Helper()
	for _, node := range nodes {
		n += node.metric(t, metricName(name+"_total", labels...))
	}
	return n
}

// Nodes admit 2,000 hits (100,000 in a nightly run, and a fifth of that on Envoy), 20 with each
// request. Meanwhile three of ten callouts are lost, before or after the backend has applied them,
// answers come out of order, and the store stops and comes back. Once all is quiet the backend has
// exactly the admitted hits of each user, in the counters of all algorithms. Two backends share an
// address.
func TestFaults(t *testing.T) {
	onEach(t, 2, func(t *testing.T, d driver) {
		const cost = 20
		hits, users := int64(d.heavy(nightly.Or(100_000, 20_000))), d.heavy(1200)
		eachStore(t, d, func(t *testing.T, start func(t *testing.T) store) {
			store := start(t)
			url, fault, repair := store.url, store.down, store.back
			backends := []string{serve(t, url)}
			if !store.alone {
				backends = append(backends, serve(t, url))
			}
			way := newUnlucky(11, backends...)
			proxies, addresses := nodes(t, d, 2, nodeConfig{configuration: costly, backend: through(t, way, backends[0])})
			f := newTraffic(cost, addresses...)

			var asked atomic.Int64
			f.run(t, 8, users, "user", func() bool { return f.total() < hits/2 && asked.Add(1) < hits })
			if fault != nil {
				broken := f.during(t, fault)
				t.Logf("%d hits admitted while the store went down, %d while it came back", broken, f.during(t, repair))
			}
			f.run(t, 8, users, "user", func() bool { return f.total() < hits && asked.Add(1) < hits })

			way.heal()
			agree(t, backends[0], "default", limitsPerHit, f.admitted)
			must.AtLeast(t, f.total(), hits, "admitted hits")
			for _, p := range proxies {
				p.wantMetric(t, metricName("lost_hits_total"), 0)
			}
			t.Logf("%d hits admitted, %d requests refused, %d of %d callouts lost, %d requests waited, %d were decided alone", f.total(), f.refused,
				way.lost.Load(), way.calls.Load(), metric(t, proxies, "waited_requests"), metric(t, proxies, "decided_alone"))
		})
	})
}

// during sends requests while something happens, and some more after that. It returns the number of
// admitted hits.
func (f *traffic) during(t *testing.T, happens func()) (admitted int64) {
	t.Helper()
	before := f.total()
	var over atomic.Bool
	var left atomic.Int64
	left.Store(nightly.Or[int64](200, 50))
	var group sync.WaitGroup
	group.Go(func() {
		f.run(t, 4, 400, fmt.Sprint("at", before, "-"), func() bool { return !over.Load() || left.Add(-1) >= 0 })
	})
	happens()
	over.Store(true)
	group.Wait()
	return f.total() - before
}

// silence answers no callout while the backend is dead, so the proxy's timeout ends it.
type silence struct {
	dead    atomic.Bool
	calls   atomic.Int64
	expired atomic.Int64 // callouts that the proxy gave up
}

func (s *silence) RoundTrip(r *http.Request) (*http.Response, error) {
	s.calls.Add(1)
	if !s.dead.Load() {
		return envoytest.Client.Transport.RoundTrip(r)
	}
	<-r.Context().Done()
	s.expired.Add(1)
	return nil, cmp.Or(r.Context().Err(), errLost)
}

// A backend that never answers delays three requests by backend.timeout, once each. Then the
// breaker is open: no request waits, and there is no callout until the pause is over. The clock
// stands still, so the pause does not end.
func TestDeadBackend(t *testing.T) {
	onWazeroAlone(t, func(t *testing.T) {
		const breakAfter = 3
		for _, rate := range []string{"0", "0.02"} {
			t.Run("sync_rate "+rate, func(t *testing.T) {
				t.Parallel()
				clock, way := newClock(), &silence{}
				backend := serveBy(t, clock)
				way.dead.Store(true)
				proxy := startProxy(t, nodeConfig{
					clock: clock, backend: backend,
					configuration: `{"backend": {"cluster": "weir", "timeout": "100ms"}, "sync_rate": ` + rate + `, ` +
						perUser(`{"limit": 100000000, "window": "366d", "algorithm": "fixed_window"}`)[1:],
				}, host.ProxyConfig{CalloutTransport: way, ManualTicks: true})
				proxies := []node{proxy}
				f := newTraffic(1, proxy.url())
				// Each client is connected to another worker.
				clients := []*http.Client{client(t), client(t)}
				ask := func(n int) {
					t.Helper()
					for i := range n {
						if status, _, err := f.ask(t, clients[i%2], 0, fmt.Sprint("user", i)); err != nil || status != http.StatusOK {
							t.Fatalf("got %d, %v", status, err)
						}
					}
				}
				ask(breakAfter)
				must.Equal(t, way.calls.Load(), breakAfter, "callouts")
				must.Equal(t, way.expired.Load(), breakAfter, "callouts that took the proxy's patience")
				ask(1000)
				for range 10 {
					ask(10)
					must.EqualOrEnd(t, metric(t, proxies, "waited_requests"), breakAfter, "requests have waited for a dead backend")
				}
				must.Equal(t, metric(t, proxies, "decided_alone"), 1100+breakAfter, "requests were decided alone")
				must.Equal(t, metric(t, proxies, "late_requests"), breakAfter, "requests were late")
				must.Equal(t, way.calls.Load(), breakAfter, "callouts until the breaker was open, and since")
				// After each pause a single callout tries again, and no request waits for it.
				for n := int64(1); n <= 3; n++ {
					clock.advance(t, 10*time.Second)
					must.OK(t, proxy.Tick())
					ask(20)
					// The next pause begins when the proxy's timeout ends. Each round is a request that
					// doesn't wait.
					if !soon(func() bool { ask(1); return metric(t, proxies, "failed_pushes") >= breakAfter+n }) {
						t.Fatalf("%d callouts were given up, want %d", way.expired.Load(), breakAfter+n)
					}
				}
				must.Equal(t, metric(t, proxies, "waited_requests"), breakAfter, "requests that have waited, none while the backend was tried")
				// The backend is back, and the hits admitted meanwhile arrive.
				way.dead.Store(false)
				agreed := func() bool {
					clock.advance(t, time.Second)
					must.OK(t, proxy.Tick())
					proxy.Idle()
					return counted(t, backend, "default") == f.total()
				}
				for rounds := 0; !agreed(); rounds++ {
					if rounds == 1000 {
						t.Fatalf("the backend has %d hits of %d", counted(t, backend, "default"), f.total())
					}
				}
				// On a busy machine the proxy may have given up the push whose hits have arrived, until it sends it again.
				for rounds := 0; rate == "0"; rounds++ {
					ask(1)
					if waited := metric(t, proxies, "waited_requests"); waited == breakAfter+1 {
						break
					} else if rounds == 100 {
						t.Fatalf("the backend is back, and %d requests have waited for it", waited-breakAfter)
					}
					agreed()
				}
				must.Equal(t, metric(t, proxies, "lost_hits"), 0, "hits were lost")
			})
		}
	})
}
