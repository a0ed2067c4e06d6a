package e2e

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"

	"weir/internal/must"
	"weir/internal/nightly"
	"weir/ratelimit"
)

// program runs a program that decides with the Go library by the rule of perUser, and returns its
// address. It uses the proxies' namespace, backend and secret.
func program(t *testing.T, namespace, backend, secret string, exact bool, limit ratelimit.Limit) (address string) {
	t.Helper()
	server := must.Get(ratelimit.Dial("http://"+backend, ratelimit.DialOptions{}))(t)
	n := must.Get(ratelimit.NewNamespace(ratelimit.Options{
		Name: namespace, Backend: server, Exact: exact, Timeout: time.Minute, KeySecret: secret,
		Rules: []ratelimit.Rule{{Name: "per-user", Limits: []ratelimit.Limit{limit}}},
	}))(t)
	front := httptest.NewServer(limitedBy(must.Get(n.Limiter("per-user"))(t)))
	t.Cleanup(func() {
		front.Close()
		must.Report(t, n.Close(context.Background()))
	})
	return front.URL
}

// limitedBy answers a user's request by what a limiter decides.
func limitedBy(limiter *ratelimit.Limiter) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		switch allowed, err := limiter.Allow(r.Context(), r.Header.Get("x-user")); {
		case err != nil:
			w.WriteHeader(http.StatusInternalServerError)
		case !allowed:
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}
}

// Proxies with the plugin and programs with the library share a limit under any load. They never
// admit more than the limit, and all but a few hits of it. If the backend decides every request,
// they admit exactly the limit.
func TestProxiesAndPrograms(t *testing.T) {
	onEachByNight(t, 2, func(t *testing.T, d driver) {
		const limit = 1000
		for _, each := range []int{1, 2} {
			for _, exact := range nightly.Or([]bool{false, true}, []bool{each == 1}) {
				t.Run(fmt.Sprintf("%d and %d exact %v", each, each, exact), func(t *testing.T) {
					d.beside(t)
					backend := serve(t, "memory")
					rate, secret, member := 1, "", ""
					if each == 1 {
						secret = "of-this-deployment"
						member = `"key_secret": "` + secret + `", `
					}
					if exact {
						rate = 0
					}
					_, addresses := nodes(t, d, each, nodeConfig{backend: backend, configuration: fmt.Sprintf(
						`{"backend": {%s"cluster": "weir", "timeout": "60s"}, "sync_rate": %d, `, member, rate) +
						perUser(`{"limit": 1000, "window": "366d", "algorithm": "fixed_window"}`)[1:]})
					for range each {
						addresses = append(addresses, program(t, "default", backend, secret, exact, ratelimit.FixedWindow(limit, 366*24*time.Hour)))
					}
					f := newTraffic(1, addresses...)
					for _, rate := range nightly.Or([]int{150, 300, 700, 1500, 3000, 7000, 15_000}, []int{300, 15_000}) {
						before := f.total()
						f.rush(t, strconv.Itoa(rate), rate, limit)
						got := f.total() - before
						t.Logf("%d requests a second each: %d of %d admitted", rate, got, limit)
						if got > limit || got < limit*97/100 || exact && got != limit {
							t.Errorf("%d requests a second each: %d admitted, want %d", rate, got, limit)
						}
					}
					settle(t, backend, "default", f.total())
				})
			}
		}
	})
}

// rush sends a number of requests to each node at once, at a rate, or as fast as they are answered.
func (f *traffic) rush(t *testing.T, user string, rate, requests int) {
	t.Helper()
	var clients sync.WaitGroup
	for node := range f.addresses {
		due := make(chan struct{}, requests)
		clients.Go(func() {
			defer close(due)
			start := time.Now()
			for i := range requests {
				if early := time.Until(start.Add(time.Duration(i) * time.Second / time.Duration(rate))); early > 0 {
					<-time.After(early)
				}
				due <- struct{}{}
			}
		})
		for range 16 {
			client := client(t)
			clients.Go(func() {
				for range due {
					if _, _, err := f.ask(t, client, node, user); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
	}
	clients.Wait()
}
