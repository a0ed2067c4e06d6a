package monitoring

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	spans "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"

	"weir/internal/commandtest"
	"weir/internal/envoytest"
	"weir/internal/must"
	"weir/internal/store/redis/redistest"
)

// collected are the spans that a collector has got, by their IDs.
type collected struct {
	collector.UnimplementedTraceServiceServer
	mu   sync.Mutex
	more *sync.Cond
	all  map[string]span
}

type span struct {
	*spans.Span
	service string
}

func (c *collected) Export(_ context.Context, r *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, of := range r.ResourceSpans {
		var service string
		for _, a := range of.Resource.Attributes {
			if a.Key == "service.name" {
				service = a.Value.GetStringValue()
			}
		}
		for _, in := range of.ScopeSpans {
			for _, s := range in.Spans {
				c.all[string(s.SpanId)] = span{s, service}
			}
		}
	}
	c.more.Broadcast()
	return &collector.ExportTraceServiceResponse{}, nil
}

// ways are those from spans to the first of their traces, as service and name, and then the trace if its first span is elsewhere.
func (c *collected) ways() (ways []string) {
	for _, s := range c.all {
		var way []string
		for s.Span != nil {
			way = append(way, s.service+": "+s.Name)
			before := c.all[string(s.ParentSpanId)]
			if before.Span == nil && len(s.ParentSpanId) > 0 {
				way = append(way, hex.EncodeToString(s.TraceId))
			}
			s = before
		}
		ways = append(ways, strings.Join(way, " < "))
	}
	return ways
}

type object = envoytest.Object

// bootstrap is an Envoy whose listener users asks a rate limit service, and tells a collector of its spans. The listener keys has
// the plugin.
func bootstrap(t *testing.T, plugin string, clusters ...object) []byte {
	t.Helper()
	askedBy := func(cluster string) object { return object{"envoy_grpc": object{"cluster_name": cluster}} }
	toApp := func(more object) []object {
		route := object{"cluster": "app"}
		maps.Copy(route, more)
		return []object{{"match": object{"prefix": "/"}, "route": route}}
	}
	byUser := object{"rate_limits": []object{{"actions": []object{{"request_headers": object{"header_name": "x-user", "descriptor_key": "user"}}}}}}
	users := envoytest.Manager("users", toApp(byUser), object{
		"name": "ratelimit", "typed_config": envoytest.Typed("envoy.extensions.filters.http.ratelimit.v3.RateLimit", object{
			"domain": "shop", "timeout": "5s", "failure_mode_deny": true,
			"rate_limit_service": object{"transport_api_version": "V3", "grpc_service": askedBy("ratelimit")},
		}),
	})
	users["tracing"] = object{"provider": object{
		"name":         "envoy.tracers.opentelemetry",
		"typed_config": envoytest.Typed("envoy.config.trace.v3.OpenTelemetryConfig", object{"service_name": "gateway", "grpc_service": askedBy("collector")}),
	}}
	keys := envoytest.Manager("keys", toApp(nil), object{
		"name": "weir", "typed_config": envoytest.Typed("envoy.extensions.filters.http.wasm.v3.Wasm", object{"config": object{
			"vm_config": object{"runtime": "envoy.wasm.runtime.v8", "code": object{"local": object{"filename": plugin}}},
			"configuration": envoytest.Typed("google.protobuf.StringValue", object{
				"value": `{"backend": {"cluster": "backend", "timeout": "5s"}, "on_backend_failure": "deny", "sync_rate": 0,
					"rules": [{"name": "user", "key": [{"header": "x-user"}], "limits": [{"limit": 1000, "window": "1h"}]}]}`,
			}),
		}}),
	})
	return must.Get(json.Marshal(object{
		"admin": object{"address": envoytest.Address("127.0.0.1", 0)},
		"static_resources": object{
			"listeners": []object{envoytest.Listener("users", users), envoytest.Listener("keys", keys)}, "clusters": clusters,
		},
	}))(t)
}

// ofHTTP2 has a cluster speak HTTP/2.
func ofHTTP2(cluster object) object {
	const options = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
	cluster["typed_extension_protocol_options"] = object{options: envoytest.Typed(options, object{"explicit_http_config": object{"http2_protocol_options": object{}}})}
	return cluster
}

// A request's trace goes from Envoy's own span to the rate limit service, and from the client's by the plugin and the backend to
// Redis. Nothing is sent of other traces.
func TestTrace(t *testing.T) {
	t.Parallel()
	c := &collected{all: map[string]span{}}
	c.more = sync.NewCond(&c.mu)
	server := grpc.NewServer()
	collector.RegisterTraceServiceServer(server, c)
	address := collect(t, server)

	app := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(app.Close)
	dir := t.TempDir()
	limits := filepath.Join(dir, "limits.yaml")
	must.OK(t, os.WriteFile(limits, []byte("domain: shop\ndescriptors: [{key: user, rate_limit: {unit: hour, requests_per_unit: 1000}}]\n"), 0o600))
	cmd := exec.Command("../dist/weir", "serve", "--listen", "127.0.0.1:0", "--store", redistest.Start(t).URL(), "--rate-limit-service", "127.0.0.1:0", "--descriptors", limits)
	cmd.Env = append(os.Environ(), "OTEL_EXPORTER_OTLP_ENDPOINT=http://"+address, "OTEL_METRICS_EXPORTER=none", "OTEL_EXPORTER_OTLP_PROTOCOL=grpc", "OTEL_BSP_SCHEDULE_DELAY=10")
	serve := commandtest.Start(t, cmd)
	backend := serve.Wait(t, `the counter backend listens" address=(\S+)`)
	service := serve.Wait(t, `the rate limit service listens" address=(\S+)`)
	plugin := must.Get(filepath.Abs("../dist/weir.wasm"))(t)
	envoy := envoytest.Run(t, envoytest.Options{Dir: dir, Bootstrap: bootstrap(t, plugin, envoytest.Cluster("app", app.Listener.Addr().String()),
		ofHTTP2(envoytest.Cluster("collector", address)), ofHTTP2(envoytest.Cluster("ratelimit", service)), envoytest.Cluster("backend", backend))})
	listeners := must.Get(envoy.Listeners())(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	defer context.AfterFunc(ctx, c.more.Broadcast)()
	const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	asks := []struct{ url, parent, want string }{
		{"http://" + listeners["users"] + "/", "", "weir serve: envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit < gateway: async envoy.service.ratelimit.v3.RateLimitService.ShouldRateLimit egress < gateway: ingress"},
		{"http://" + listeners["keys"] + "/", traceparent, "weir serve: store push < weir serve: POST /v1/push < 0af7651916cd43dd8448eb211c80319c"},
		{"http://" + backend + "/v1/top?namespace=shop", traceparent, "weir serve: GET /v1/top < 0af7651916cd43dd8448eb211c80319c"},
	}
	for _, path := range []string{"/livez", "/v1/top?namespace=other"} {
		ask(t, "http://"+backend+path, "")
	}
	ask(t, "http://"+backend+"/livez", traceparent)
	for _, a := range asks {
		ask(t, a.url, a.parent)
		c.until(ctx, t, a.want)
	}
	for _, way := range c.ways() {
		if strings.Contains(way, "livez") || strings.Contains(way, "/v1/") && !strings.Contains(way, "0af7651916cd43dd") {
			t.Errorf("a span of %s", way)
		}
	}
}

// A collector that does not answer costs spans and five seconds at the end, and is no failure of the service.
func TestCollectorAway(t *testing.T) {
	t.Parallel()
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t) // which answers nobody
	defer func() { must.Report(t, l.Close()) }()
	cmd := exec.Command("../dist/weir", "serve", "--listen", "127.0.0.1:0", "--store", "memory")
	cmd.Env = append(os.Environ(), "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://"+l.Addr().String())
	weir := commandtest.Start(t, cmd)
	ask(t, "http://"+weir.Wait(t, `the counter backend listens" address=(\S+)`)+"/v1/top?namespace=shop", "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01")
	must.OK(t, weir.End())
	weir.Wait(t, "(spans or metrics were not sent)")
}

// collect serves a collector until the test ends, and returns its address.
func collect(t *testing.T, server *grpc.Server) string {
	t.Helper()
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() {
		server.Stop()
		must.Report(t, <-served)
	})
	return l.Addr().String()
}

// until waits for a span with a way to the beginning of its trace.
func (c *collected) until(ctx context.Context, t *testing.T, want string) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for !slices.Contains(c.ways(), want) {
		if ctx.Err() != nil {
			t.Fatalf("no span of %s, but of\n%s", want, strings.Join(c.ways(), "\n"))
		}
		c.more.Wait()
	}
}

func ask(t *testing.T, url, parent string) {
	t.Helper()
	r := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil))(t)
	if r.Header.Set("X-User", "ann"); parent != "" {
		r.Header.Set("Traceparent", parent)
	}
	response := must.Get(envoytest.Client.Do(r))(t)
	must.OK(t, response.Body.Close())
	must.AtMost(t, response.StatusCode, 299, "%s: status", url)
}
