package monitoring

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"weir/internal/commandtest"
	"weir/internal/must"
)

// measured are messages of metrics that a collector has got.
type measured struct {
	collector.UnimplementedMetricsServiceServer
	got chan *collector.ExportMetricsServiceRequest
}

func (m *measured) Export(_ context.Context, r *collector.ExportMetricsServiceRequest) (*collector.ExportMetricsServiceResponse, error) {
	select {
	case m.got <- r:
	default: // nobody waits, and all values come again
	}
	return &collector.ExportMetricsServiceResponse{}, nil
}

// ServeHTTP is Export by HTTP.
func (m *measured) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var of collector.ExportMetricsServiceRequest
	body, err := io.ReadAll(r.Body)
	if err != nil || r.URL.Path != "/v1/metrics" || proto.Unmarshal(body, &of) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	_, _ = m.Export(r.Context(), &of)
}

// wait waits until a service has told a number of a metric with a label.
func (m *measured) wait(ctx context.Context, t *testing.T, service, name, label string, least float64) {
	t.Helper()
	for {
		var r *collector.ExportMetricsServiceRequest
		select {
		case r = <-m.got:
		case <-ctx.Done():
			t.Fatalf("%s never tells %s of %s", service, name, label)
		}
		for _, of := range r.ResourceMetrics {
			named := false
			for _, a := range of.Resource.Attributes {
				named = named || a.Key == "service.name" && a.Value.GetStringValue() == service
			}
			for _, in := range of.ScopeMetrics {
				for _, metric := range in.Metrics {
					for _, p := range metric.GetSum().GetDataPoints() {
						labelled := label == ""
						for _, a := range p.Attributes {
							labelled = labelled || a.Value.GetStringValue() == label
						}
						if named && labelled && metric.Name == name && p.GetAsDouble() >= least {
							return
						}
					}
				}
			}
		}
	}
}

// weir serve and weir ratelimit send a collector what their /metrics have, by gRPC and by HTTP.
func TestMetricsByOTLP(t *testing.T) {
	t.Parallel()
	m := &measured{got: make(chan *collector.ExportMetricsServiceRequest)}
	server := grpc.NewServer()
	collector.RegisterMetricsServiceServer(server, m)
	address := collect(t, server)
	web := httptest.NewServer(m)
	t.Cleanup(web.Close)
	limits := t.TempDir()
	must.OK(t, os.MkdirAll(filepath.Join(limits, "config"), 0o700))
	must.OK(t, os.WriteFile(filepath.Join(limits, "config", "limits.yaml"), []byte("domain: shop\ndescriptors: [{key: user, rate_limit: {unit: hour, requests_per_unit: 1000}}]\n"), 0o600))
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	const interval = "OTEL_METRIC_EXPORT_INTERVAL=20" // milliseconds

	cmd := exec.Command("../dist/weir", "serve", "--listen", "127.0.0.1:0", "--store", "memory")
	cmd.Env = append(os.Environ(), "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT=http://"+address, "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL=grpc", interval)
	backend := commandtest.Start(t, cmd).Wait(t, `the counter backend listens" address=(\S+)`)
	ask(t, "http://"+backend+"/v1/top?namespace=shop", "")
	m.wait(ctx, t, "weir serve", "weir_http_requests_total", "/v1/top", 1)

	cmd = exec.Command("../dist/weir", "ratelimit")
	cmd.Env = append(os.Environ(), "OTEL_EXPORTER_OTLP_ENDPOINT="+web.URL, interval, "WEIR_STORE=memory", "RUNTIME_ROOT="+limits, "HOST=127.0.0.1", "GRPC_HOST=127.0.0.1", "DEBUG_HOST=127.0.0.1", "GRPC_PORT=0", "PORT=0", "DEBUG_PORT=0")
	commandtest.Start(t, cmd)
	m.wait(ctx, t, "RateLimit", "weir_store_errors_total", "", 0)
}
