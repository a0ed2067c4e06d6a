package e2e

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"weir/internal/envoytest"
	"weir/internal/store/redis/redistest"
)

// Envoy's own HTTP filter asks two instances of the rate limit service in turn. On one Redis they keep
// to one limit, exactly, and Envoy tells clients of it.
func TestRateLimitService(t *testing.T) {
	onEnvoyAlone(t, 1, newest, limitByService)
}

func limitByService(t *testing.T, d envoys) {
	const limit, clients, requests = 300, 8, 50
	dir := t.TempDir()
	descriptors := filepath.Join(dir, "limits.yaml")
	text := "domain: shop\ndescriptors: [{key: user, rate_limit: {unit: day, requests_per_unit: " + strconv.Itoa(limit) + "}}]"
	if err := os.WriteFile(descriptors, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	store := redistest.Start(t).URL()
	var endpoints []envoytest.Object
	for range 2 {
		p := start(t, "serve", "--listen", "127.0.0.1:0", "--store", store, "--rate-limit-service", "127.0.0.1:0", "--descriptors", descriptors)
		host, port, err := net.SplitHostPort(p.wait(t, `the rate limit service listens" address=(\S+)`))
		if err != nil {
			t.Fatal(err)
		}
		number, err := strconv.Atoi(port)
		if err != nil {
			t.Fatal(err)
		}
		endpoints = append(endpoints, envoytest.Object{"endpoint": envoytest.Object{"address": envoytest.Address(host, number)}})
	}
	files, err := envoytest.NewFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	bootstrap, err := files.Bootstrap(nil)
	if err != nil {
		t.Fatal(err)
	}
	e, err := envoytest.Start(t.Context(), envoytest.Options{Binary: d.binary, Dir: dir, Bootstrap: bootstrap, Workers: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	upstream := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(upstream.Close)
	app := upstream.Listener.Addr().(*net.TCPAddr)
	if err := files.SetClusters(t.Context(), e, []envoytest.Object{{
		"name": "app", "type": "STATIC", "load_assignment": envoytest.Object{"cluster_name": "app", "endpoints": []envoytest.Object{
			{"lb_endpoints": []envoytest.Object{{"endpoint": envoytest.Object{"address": envoytest.Address("127.0.0.1", app.Port)}}}},
		}},
	}, {
		"name": "limits", "type": "STATIC", "connect_timeout": "5s",
		"typed_extension_protocol_options": envoytest.Object{
			"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": envoytest.Typed("envoy.extensions.upstreams.http.v3.HttpProtocolOptions", envoytest.Object{
				"explicit_http_config": envoytest.Object{"http2_protocol_options": envoytest.Object{}},
			}),
		},
		"load_assignment": envoytest.Object{"cluster_name": "limits", "endpoints": []envoytest.Object{{"lb_endpoints": endpoints}}},
	}}); err != nil {
		t.Fatal(err)
	}
	route := envoytest.Object{"match": envoytest.Object{"prefix": "/"}, "route": envoytest.Object{"cluster": "app"}}
	host := envoytest.Object{"name": "all", "domains": []string{"*"}, "routes": []envoytest.Object{route}, "rate_limits": []envoytest.Object{
		{"actions": []envoytest.Object{{"request_headers": envoytest.Object{"header_name": "x-user", "descriptor_key": "user"}}}},
	}}
	service := envoytest.Typed("envoy.extensions.filters.http.ratelimit.v3.RateLimit", envoytest.Object{
		"domain": "shop", "failure_mode_deny": true, "timeout": "5s", "enable_x_ratelimit_headers": "DRAFT_VERSION_03",
		"rate_limit_service": envoytest.Object{
			"transport_api_version": "V3", "grpc_service": envoytest.Object{"envoy_grpc": envoytest.Object{"cluster_name": "limits"}},
		},
	})
	if err := files.SetListeners(t.Context(), e, []envoytest.Object{{
		"name": "in", "address": envoytest.Address("127.0.0.1", 0), "filter_chains": []envoytest.Object{{"filters": []envoytest.Object{{
			"name": "http",
			"typed_config": envoytest.Typed("envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager", envoytest.Object{
				"stat_prefix":  "in",
				"route_config": envoytest.Object{"virtual_hosts": []envoytest.Object{host}},
				"http_filters": []envoytest.Object{
					{"name": "envoy.filters.http.ratelimit", "typed_config": service},
					{"name": "router", "typed_config": envoytest.Typed("envoy.extensions.filters.http.router.v3.Router", nil)},
				},
			}),
		}}}},
	}}); err != nil {
		t.Fatal(err)
	}
	listeners, err := e.Listeners()
	if err != nil {
		t.Fatal(err)
	}
	var passed, refused, other atomic.Int64
	var asking sync.WaitGroup
	for range clients {
		asking.Go(func() {
			for range requests {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+listeners["in"], nil)
				if err != nil {
					t.Error(err)
					return
				}
				r.Header.Set("X-User", "ann")
				response, err := http.DefaultClient.Do(r)
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := io.Copy(io.Discard, response.Body); err != nil {
					t.Error(err)
				}
				if err := response.Body.Close(); err != nil {
					t.Error(err)
				}
				switch response.StatusCode {
				case http.StatusOK:
					passed.Add(1)
				case http.StatusTooManyRequests:
					refused.Add(1)
				default:
					other.Add(1)
				}
				if told := response.Header.Get("X-Ratelimit-Limit"); told != "300, 300;w=86400" {
					t.Errorf("the limit is told as %q", told)
				}
			}
		})
	}
	asking.Wait()
	if passed.Load() != limit || refused.Load() != clients*requests-limit || other.Load() != 0 {
		t.Errorf("%d passed, %d were refused, and %d had another answer, want %d and %d", passed.Load(), refused.Load(), other.Load(), limit, clients*requests-limit)
	}
	asked, err := e.Admin("GET", "/clusters")
	if err != nil {
		t.Fatal(err)
	}
	for _, share := range regexp.MustCompile(`limits::\S+::rq_total::(\d+)`).FindAllSubmatch(asked, -1) {
		if string(share[1]) == "0" {
			t.Errorf("an instance was not asked:\n%s", asked)
		}
	}
}
