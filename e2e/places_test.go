package e2e

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"
)

// crowd is an upstream that counts the requests which are there at the same time, but for those whose
// clients have left: it hears of that later than a proxy does.
type crowd struct {
	mu    sync.Mutex
	there map[string]bool
	left  map[string]bool
	most  int
	// busy sums up how long the places were taken.
	busy          time.Duration
	first, before time.Time
	answers       int
	let           chan struct{} // lets those go on that wait for it
	came          chan struct{} // those that wait have come
}

func newCrowd() *crowd {
	return &crowd{there: map[string]bool{}, left: map[string]bool{}, let: make(chan struct{}), came: make(chan struct{})}
}

// passes has time pass for the requests that are there.
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

// leave says that a request has ended, or that its client leaves.
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

// ServeHTTP serves a request for as long as it asks for, and then answers, or fails.
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

// TestPlaces has several proxies keep to so many requests at the same time, however these end and though the
// backend is killed, and wants all places back when all have ended. The upstream counts.
func TestPlaces(t *testing.T) {
	for _, rate := range []string{"0", "0.1"} {
		t.Run("sync_rate "+rate, func(t *testing.T) {
			onEach(t, 3, func(t *testing.T, d driver) { places(t, d, rate) })
		})
	}
}

func places(t *testing.T, d driver, rate string) {
	const limit = 20
	url := stores["redis"](t).url
	served, backend := serveAt(t, "127.0.0.1:0", url)
	upstream := newCrowd()
	nodes, addresses := nodes(t, d, 3, nodeConfig{backend: backend, upstream: upstream, configuration: `{"sync_rate": ` + rate + `,
		"backend": {"cluster": "weir", "timeout": "60s"}, "on_backend_failure": "deny",
		"rules": [{"name": "r", "limits": [{"limit": 20, "algorithm": "in_flight"}]}]}`})
	var group sync.WaitGroup
	ids := make(chan int)
	for i := range 40 {
		client, random := client(t), rand.New(rand.NewPCG(3, uint64(i)))
		group.Go(func() {
			for id := range ids {
				if err := upstream.visit(client, random, addresses[random.IntN(3)], fmt.Sprint(id)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	many := d.heavy(10_000)
	for id := range many {
		switch id {
		case many / 3:
			served.kill(t)
		case many / 2:
			_, _ = serveAt(t, backend, url)
		}
		ids <- id
	}
	close(ids)
	group.Wait()
	for _, n := range nodes {
		n.idle(t)
	}
	upstream.mu.Lock()
	if upstream.most > limit {
		t.Errorf("%d requests were in flight of %d", upstream.most, limit)
	}
	t.Logf("%d were answered, up to %d at the same time, %.1f on average",
		upstream.answers, upstream.most, float64(upstream.busy)/float64(upstream.before.Sub(upstream.first)))
	upstream.mu.Unlock()
	upstream.all(t, limit, addresses)
}

// visit sends a request that ends in some way.
func (c *crowd) visit(client *http.Client, random *rand.Rand, address, id string) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	r.Header.Set("x-id", id)
	r.Header.Set("x-lasts", time.Duration(random.IntN(20_000_000)).String())
	leaves := false
	switch random.IntN(20) {
	case 0:
		leaves = true
		time.AfterFunc(time.Duration(random.IntN(20_000_000)), func() {
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
	response, err := client.Do(r)
	if err == nil {
		_, err = io.Copy(io.Discard, response.Body)
		if closeErr := response.Body.Close(); err == nil {
			err = closeErr
		}
	}
	if leaves {
		return nil
	}
	return err
}

// all wants so many requests to be let through at the same time, and no more.
func (c *crowd) all(t *testing.T, limit int, addresses []string) {
	t.Helper()
	var group sync.WaitGroup
	defer group.Wait()
	defer close(c.let)
	passed := 0
	ask := func() (refused bool) {
		status := make(chan int, 1)
		client, id := client(t), fmt.Sprint("last-", passed)
		group.Go(func() {
			r, err := http.NewRequest(http.MethodGet, addresses[passed%len(addresses)], nil)
			if err != nil {
				t.Error(err)
				return
			}
			r.Header.Set("x-id", id)
			response, err := client.Do(r)
			if err != nil {
				t.Error(err)
				return
			}
			status <- response.StatusCode
			_ = response.Body.Close()
		})
		select {
		case <-c.came:
			passed++
			return false
		case got := <-status:
			return got == http.StatusTooManyRequests
		}
	}
	if !pushed.until(func() bool {
		for passed < limit && !ask() {
		}
		return passed == limit
	}) {
		t.Errorf("%d of %d places can be had: the others are lost", passed, limit)
	}
	if !ask() {
		t.Errorf("more than %d requests are in flight", limit)
	}
}
