package convert_test

import (
	"context"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"weir/internal/backend"
	"weir/internal/convert"
	"weir/internal/must"
	"weir/internal/ratelimitservice"
	"weir/internal/store/memory"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
)

// limitsOfShop have windows that do not end while the test runs, unless a year does.
const limitsOfShop = `
domain: shop
descriptors:
  - {key: user, rate_limit: {unit: year, requests_per_unit: 7}}
  - {key: user, value: ann, rate_limit: {unit: year, requests_per_unit: 20}}
  - {key: user, value: robot-*, rate_limit: {unit: year, requests_per_unit: 3}}
  - {key: user, value: team-*, share_threshold: true, rate_limit: {unit: year, requests_per_unit: 9}}
  - {key: user, value: root, rate_limit: {unlimited: true}}
  - {key: remote_address, rate_limit: {unit: year, requests_per_unit: 12}}
  - {key: remote_address, value: 10.0.0.1, rate_limit: {unlimited: true}}
  - {key: remote_address, value: 10.0.0.2, rate_limit: {unit: year, requests_per_unit: 30}}
  - {key: generic_key, rate_limit: {unit: year, requests_per_unit: 30}}
  - {key: generic_key, value: shop-*-write, rate_limit: {unit: year, requests_per_unit: 5}}
  - key: generic_key
    value: login
    descriptors:
      - {key: user, rate_limit: {unit: year, requests_per_unit: 2}}
      - {key: user, value: ann, rate_limit: {unit: year, requests_per_unit: 4}}
`

const routesOfShop = `
virtual_hosts:
  - name: shop
    domains: ["*"]
    routes:
      - match: {prefix: /users/}
        route: {cluster: a, rate_limits: [{actions: [{request_headers: {header_name: x-user, descriptor_key: user}}]}]}
      - match: {path: /login}
        route:
          cluster: a
          rate_limits:
            - actions: [{generic_key: {descriptor_value: login}}, {request_headers: {header_name: x-user, descriptor_key: user}}]
      - match: {path: /read}
        route: {cluster: a, rate_limits: [{actions: [{generic_key: {descriptor_value: shop-eu-read}}]}]}
      - match: {path: /write}
        route: {cluster: a, rate_limits: [{actions: [{generic_key: {descriptor_value: shop-eu-write}}]}]}
      - match: {prefix: /health}
        route: {cluster: a}
      - match: {prefix: /}
        route: {cluster: a, rate_limits: [{actions: [{remote_address: {}}]}]}
`

// newService is a rate limit service with a configuration and a store of its own.
func newService(t *testing.T, files ...ratelimitservice.File) *ratelimitservice.Service {
	t.Helper()
	counters := ratelimitservice.NewCounters(ratelimitservice.CounterOptions{
		Backend: ratelimitservice.Local{Backend: backend.New(memory.New(memory.Options{}))}, Timeout: 10 * time.Second,
	})
	t.Cleanup(func() { must.Report(t, counters.Close(context.WithoutCancel(t.Context()))) })
	service := ratelimitservice.NewService(ratelimitservice.ServiceOptions{Counters: counters})
	c, err := ratelimitservice.Read(files, ratelimitservice.Options{})
	if err == nil {
		err = service.Use(c)
	}
	must.OK(t, err)
	return service
}

// TestRateLimitService asks Weir's rate limit service, by descriptors that Envoy would make, and the plugin by what
// both files are converted to, and wants the same answers.
func TestRateLimitService(t *testing.T) {
	t.Parallel()
	result := must.Get(convert.Convert("ratelimit", []convert.File{{Name: "limits.yaml", Text: []byte(limitsOfShop)}, {Name: "routes.yaml", Text: []byte(routesOfShop)}}))(t)
	for _, l := range result.Lost {
		t.Errorf("lost: %s", l)
	}
	service := newService(t, ratelimitservice.File{Name: "limits.yaml", Text: []byte(limitsOfShop)})
	random := rand.New(rand.NewPCG(3, 30))
	of := func(texts ...string) string { return texts[random.IntN(len(texts))] }
	var requests []logged
	for range 600 {
		r := logged{
			at: time.Now(), method: "GET", host: "shop.example", uri: of("/users/", "/users/x", "/login", "/health", "/", "/x", "/read", "/write"), status: http.StatusOK,
			source: of("10.0.0.1", "10.0.0.2", "10.0.0.3", "2001:db8::1"), who: of("ann", "ben", "robot-1", "robot-2", "team-a", "team-b", "root", ""),
		}
		var entries []*common.RateLimitDescriptor_Entry
		add := func(key, value string) {
			entries = append(entries, &common.RateLimitDescriptor_Entry{Key: key, Value: value})
		}
		switch {
		case r.uri == "/health" || r.who == "" && (r.uri == "/login" || strings.HasPrefix(r.uri, "/users/")):
		case r.uri == "/login":
			add("generic_key", "login")
			add("user", r.who)
		case strings.HasPrefix(r.uri, "/users/"):
			add("user", r.who)
		case r.uri == "/read" || r.uri == "/write":
			add("generic_key", "shop-eu-"+r.uri[1:])
		default:
			add("remote_address", r.source)
		}
		if len(entries) > 0 {
			answer := must.Get(service.ShouldRateLimit(t.Context(), &pb.RateLimitRequest{Domain: "shop", Descriptors: []*common.RateLimitDescriptor{{Entries: entries}}}))(t)
			if answer.OverallCode == pb.RateLimitResponse_OVER_LIMIT {
				r.status = http.StatusTooManyRequests
			}
		}
		requests = append(requests, r)
	}
	// The plugin counts alone.
	alone := strings.Replace(string(result.Document), `"backend": {`, `"sync_rate": -1, "backend": {`, 1)
	refused := 0
	for i, answer := range decide(t, []byte(alone), requests) {
		must.EqualOrEnd(t, answer, requests[i].status, "request %d, %+v: Weir says", i, requests[i])
		if answer != http.StatusOK {
			refused++
		}
	}
	if refused < 100 || refused > 500 {
		t.Errorf("%d of %d requests were refused", refused, len(requests))
	}
}
