package e2e

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir/internal/must"
	"weir/internal/nightly"
	"weir/ratelimit"
)

// crowd is an upstream that counts the requests in it at the same time, without those whose clients
// have left: it notices that later than a proxy.
type crowd struct {
	mu    sync.Mutex
	there map[string]bool
	left  map[string]bool
	most  int
	// busy sums the time for which places were taken.
	busy          time.Duration
	first, before time.Time
	answers       int
	let           chan struct{} // lets waiting requests go on
	came          chan struct{} // gets a value for each waiting request
}

func newCrowd() *crowd {
	return &crowd{there: map[string]bool{}, left: map[string]bool{}, let: make(chan struct{}), came: make(chan struct{})}
}

// passes adds the time that has passed for the requests in the upstream.
func (c *crowd) passes() {
	now := time.Now()
	if c.first.IsZero() {
		c.first, c.before = now, now
	}
	c.busy += time.Duration(len(c.there)) * now.Sub(c.before)
	c.before = now
}

func (c *crowd) enter(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.passes()
	if !c.left[id] {
		c.there[id] = true
		c.most = max(c.most, len(c.there))
	}
}

// leave records that a request has ended, or that its client has left.
func (c *crowd) leave(id string, client bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.passes()
	delete(c.there, id)
	if client {
		c.left[id] = true
	} else {
		c.answers++
	}
}

// ServeHTTP serves a request for the time that it asks for, and then answers or fails.
func (c *crowd) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id := r.Header.Get("x-id")
	c.enter(id)
	defer c.leave(id, false)
	if lasts, err := time.ParseDuration(r.Header.Get("x-lasts")); err == nil {
		select {
		case <-time.After(lasts):
		case <-r.Context().Done():
		}
	} else {
		c.came <- struct{}{}
		<-c.let
	}
	switch r.Header.Get("x-ends") {
	case "failed":
		w.WriteHeader(http.StatusServiceUnavailable)
	case "streamed":
		for range 3 {
			_, _ = io.WriteString(w, "data: a\n\n")
			_ = http.NewResponseController(w).Flush()
		}
	case "cut":
		c.leave(id, true)
		panic(http.ErrAbortHandler)
	}
}

// TestPlaces lets several proxies and a program share a limit of requests in flight. Requests end
// in any way, the backend is killed, and in a nightly run also a proxy, whose places then expire.
// All places are free when all requests have ended. The upstream counts.
func TestPlaces(t *testing.T) {
	for rate, on := range map[string]func(t *testing.T, nodes int, scenario func(t *testing.T, d driver)){"0": onEach, "0.1": onEachByNight} {
		t.Run("sync_rate "+rate, func(t *testing.T) {
			on(t, 3, func(t *testing.T, d driver) { places(t, d, rate) })
		})
	}
}

func places(t *testing.T, d driver, rate string) {
	const limit = 20
	url := stores["redis"](t).url
	served, backend := serveAt(t, steadyAddress(t), url)
	upstream := newCrowd()
	nodes, addresses := nodes(t, d, 3, nodeConfig{backend: backend, upstream: upstream, configuration: placesConfig(rate)})
	addresses = append(addresses, holdingProgram(t, backend, rate, upstream))
	victim, _ := nodes[0].(interface{ kill(t *testing.T) })
	if !nightly.On() {
		victim = nil // its places come back after half a minute
	}
	var group sync.WaitGroup
	ids := make(chan int)
	most := nightly.Or(200*time.Millisecond, 20*time.Millisecond)
	for i := range 40 {
		client, random := client(t), rand.New(rand.NewPCG(3, uint64(i)))
		group.Go(func() {
			for id := range ids {
				at := random.IntN(len(addresses))
				if err := upstream.visit(t, client, random, addresses[at], fmt.Sprint(id), most); err != nil && (at != 0 || victim == nil) {
					t.Error(err)
				}
			}
		})
	}
	many := nightly.Or(10_000, d.heavy(10_000))
	for id := range many {
		switch id {
		case many / 3:
			served.Kill(t)
		case many / 2:
			_, _ = serveAt(t, backend, url)
		case many * 3 / 4:
			if victim != nil {
				victim.kill(t)
			}
		}
		ids <- id
	}
	close(ids)
	group.Wait()
	if victim != nil {
		nodes, addresses = nodes[1:], addresses[1:]
	}
	for _, n := range nodes {
		n.idle(t)
	}
	upstream.mu.Lock()
	must.AtMost(t, upstream.most, limit, "requests in flight")
	t.Logf("%d were answered, up to %d at the same time, %.1f on average",
		upstream.answers, upstream.most, float64(upstream.busy)/float64(upstream.before.Sub(upstream.first)))
	upstream.mu.Unlock()
	upstream.all(t, limit, addresses)
}

// placesConfig allows 20 requests in flight.
func placesConfig(rate string) string {
	return `{"sync_rate": ` + rate + `, "backend": {"cluster": "weir", "timeout": "60s"}, "on_backend_failure": "deny",
		"rules": [{"name": "r", "limits": [{"limit": 20, "algorithm": "in_flight"}]}]}`
}

// holdingProgram runs a program that uses the Go library to hold places of the same rule while it
// asks the upstream, and returns its address.
func holdingProgram(t *testing.T, backend, rate string, upstream http.Handler) (address string) {
	t.Helper()
	server := must.Get(ratelimit.Dial("http://"+backend, ratelimit.DialOptions{}))(t)
	o := ratelimit.Options{
		Name: "default", Backend: server, Exact: rate == "0", Timeout: time.Minute, OnBackendFailure: ratelimit.FailDeny,
		Rules: []ratelimit.Rule{{Name: "r", Limits: []ratelimit.Limit{ratelimit.InFlight(20)}}},
	}
	if !o.Exact {
		o.SyncRate = 100 * time.Millisecond
	}
	n := must.Get(ratelimit.NewNamespace(o))(t)
	limiter := must.Get(n.Limiter("r"))(t)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		release, acquired, err := limiter.Acquire(r.Context())
		defer release()
		switch {
		case err != nil && r.Context().Err() == nil:
			t.Error(err)
		case err != nil:
		case !acquired:
			w.WriteHeader(http.StatusTooManyRequests)
		default:
			defer func() {
				if recover() != nil { // the upstream has cut its answer: a proxy reports it by this panic
					w.WriteHeader(http.StatusServiceUnavailable)
				}
			}()
			upstream.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(func() {
		front.Close()
		_ = n.Close(context.Background()) // the last backend has ended before
	})
	return front.URL
}

// TestPlacesAreUsed measures for how long a place lies idle that somebody has left, while more clients want one than there
// are, from the moment when all are first taken until the clients stop. How long that may be goes by how long refusals take
// meanwhile: a busy machine is slow at both.
func TestPlacesAreUsed(t *testing.T) {
	for _, rate := range nightly.Or([]string{"0", "0.1"}, nil) {
		t.Run("sync_rate "+rate, func(t *testing.T) {
			aloneOnEach(t, 3, func(t *testing.T, d driver) { placesAreUsed(t, d, rate) })
		})
	}
}

func placesAreUsed(t *testing.T, d driver, rate string) {
	const limit, clients = 20, 50
	upstream := newCrowd()
	_, addresses := nodes(t, d, 3, nodeConfig{backend: serve(t, stores["redis"](t).url), upstream: upstream, configuration: placesConfig(rate)})
	ctx, stop := context.WithCancel(t.Context())
	var group sync.WaitGroup
	var refused, took atomic.Int64
	for i := range clients {
		client, random := client(t), rand.New(rand.NewPCG(4, uint64(i)))
		group.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				begin := time.Now()
				r, err := send(t, client, addresses[random.IntN(3)], "x-id", fmt.Sprint(i, "-", n),
					"x-lasts", time.Duration(random.IntN(2_000_000_000)).String())
				if err != nil {
					t.Error(err)
					return
				}
				if r.status != http.StatusOK {
					refused.Add(1)
					took.Add(int64(time.Since(begin)))
					<-time.After(time.Duration(random.IntN(60)) * time.Millisecond) // a shorter pause would only load the machine
				}
			}
		})
	}
	started := time.Time{}
	for deadline := time.Now().Add(hang); started.IsZero(); <-time.After(time.Millisecond) {
		upstream.mu.Lock()
		if len(upstream.there) == limit {
			upstream.passes()
			started, upstream.busy, upstream.answers = upstream.before, 0, 0
		}
		upstream.mu.Unlock()
		if time.Now().After(deadline) {
			t.Fatalf("%d places are never taken", limit)
		}
	}
	<-time.After(20 * time.Second)
	upstream.mu.Lock()
	upstream.passes()
	idle := (limit*upstream.before.Sub(started) - upstream.busy) / time.Duration(max(1, upstream.answers))
	most := upstream.most
	upstream.mu.Unlock()
	stop()
	group.Wait()
	refusal := min(50*time.Millisecond, time.Duration(took.Load()/max(1, refused.Load())))
	t.Logf("a place lies idle for %v, while a refusal takes %v; up to %d are used", idle, refusal, most)
	// Clients come again after 30 ms, on average, and one of them finds the place after it was told of as free.
	must.AtMost(t, idle, 45*time.Millisecond+3*refusal, "the time for which a place lies idle, while a refusal takes %v", refusal)
	must.AtMost(t, most, limit, "places that are used")
}

// TestHolders lets weir counter show which nodes hold the places of a key: a proxy and a program.
func TestHolders(t *testing.T) {
	onEach(t, 1, func(t *testing.T, d driver) {
		backend := serve(t, "memory")
		upstream := newCrowd()
		n := d.node(t, nodeConfig{backend: backend, upstream: upstream, workers: 2, configuration: placesConfig("0.1")})
		var group sync.WaitGroup
		defer group.Wait()
		defer close(upstream.let)
		for i, address := range []string{n.url(), n.url(), holdingProgram(t, backend, "0.1", upstream)} {
			client := client(t)
			group.Go(func() {
				if r, err := send(t, client, address, "x-id", fmt.Sprint(i)); err != nil || r.status != http.StatusOK {
					t.Errorf("status %d, %v", r.status, err)
				}
			})
			<-upstream.came
		}
		got := ""
		if !pushed.until(t, func() bool {
			got = weir(t, backend, "counter", "get", "default", "r")
			return strings.Contains(got, " holds 2, the oldest for ") && strings.Contains(got, " holds 1, the oldest for ")
		}) {
			t.Errorf("weir counter get tells\n%s", got)
		}
		must.Contains(t, got, "in flight: ", "")
		n.wantMetric(t, metricName("held_places"), 2)
	})
}

// visit sends a request that ends in a random way, within a time.
func (c *crowd) visit(t *testing.T, client *http.Client, random *rand.Rand, address, id string, most time.Duration) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	r := request(t, address, nil, "x-id", id, "x-lasts", time.Duration(random.Int64N(int64(most))).String()).WithContext(ctx)
	leaves := false
	switch random.IntN(20) {
	case 0:
		leaves = true
		time.AfterFunc(time.Duration(random.Int64N(int64(most))), func() {
			c.leave(id, true)
			cancel()
		})
	case 1:
		r.Header.Set("x-ends", "failed")
	case 2:
		r.Header.Set("x-ends", "cut")
	case 3, 4, 5:
		r.Header.Set("x-ends", "streamed")
	}
	_, err := do(client, r)
	if leaves {
		return nil
	}
	return err
}

// all wants exactly limit requests to be admitted at the same time.
func (c *crowd) all(t *testing.T, limit int, addresses []string) {
	t.Helper()
	var group sync.WaitGroup
	defer group.Wait()
	defer close(c.let)
	passed := 0
	ask := func() (refused bool) {
		status := make(chan int, 1)
		client, id, address := client(t), fmt.Sprint("last-", passed), addresses[passed%len(addresses)]
		group.Go(func() {
			r, err := send(t, client, address, "x-id", id)
			if err != nil {
				t.Error(err)
				status <- http.StatusTooManyRequests // so that nobody waits for it
				return
			}
			status <- r.status
		})
		select {
		case <-c.came:
			passed++
			return false
		case got := <-status:
			client.CloseIdleConnections() // there may be thousands of refusals
			return got == http.StatusTooManyRequests
		}
	}
	if !pushed.until(t, func() bool {
		for passed < limit && !ask() {
		}
		return passed == limit
	}) {
		t.Errorf("%d of %d places can be had: the others are lost", passed, limit)
	}
	must.Equal(t, ask(), true, "more than %d requests are in flight", limit)
}
