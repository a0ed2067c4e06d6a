// Package traces sends spans and metrics to a collector by OTLP, as the variables of OpenTelemetry say. It knows nothing of
// what they are about.
package traces

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	bridge "go.opentelemetry.io/contrib/bridges/prometheus"
	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"
	"google.golang.org/grpc"
)

// Options configure [Open].
type Options struct {
	// Service and Version are told of each span. OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES take their place.
	Service, Version string
	// More has further attributes of the process.
	More []attribute.KeyValue
	// Spans are sent, and not only metrics.
	Spans bool
	// Protocol of spans is grpc or http/protobuf; OTEL_EXPORTER_OTLP_PROTOCOL if empty.
	Protocol string
	// Share of the traces that begin here is sent. Those that a caller has begun are sent if the caller says so.
	// OTEL_TRACES_SAMPLER takes the place of both.
	Share float64
	// Registry has the metrics to send, if the environment names a collector of them.
	Registry prometheus.Gatherer
	// Logger hears of spans and metrics that could not be sent.
	Logger *slog.Logger
}

// Telemetry sends spans and metrics. The zero Telemetry sends none. It is safe for concurrent use.
type Telemetry struct {
	spans   *trace.TracerProvider // nil for none
	metrics *metric.MeterProvider // nil for none
}

// Wanted reports whether the environment names a collector of TRACES or METRICS.
func Wanted(signal string, getenv func(string) string) bool {
	return !strings.EqualFold(getenv("OTEL_SDK_DISABLED"), "true") && getenv("OTEL_"+signal+"_EXPORTER") != "none" &&
		(getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || getenv("OTEL_EXPORTER_OTLP_"+signal+"_ENDPOINT") != "")
}

// Open returns a Telemetry, which the caller must close. It does not wait for the collector, and goes on while that is away.
func Open(ctx context.Context, o Options, getenv func(string) string) (t Telemetry, err error) {
	if o.Spans {
		t.spans, err = o.openSpans(ctx, getenv)
	}
	if err == nil && Wanted("METRICS", getenv) {
		t.metrics, err = o.openMetrics(ctx, getenv)
	}
	if err != nil {
		t.Close()
		return Telemetry{}, err
	}
	return t, nil
}

func (o *Options) openSpans(ctx context.Context, getenv func(string) string) (*trace.TracerProvider, error) {
	isGRPC, of, err := o.begin(ctx, o.Protocol, "TRACES", getenv)
	if err != nil {
		return nil, err
	}
	client := otlptracehttp.NewClient()
	if isGRPC {
		client = otlptracegrpc.NewClient()
	}
	exporter, err := otlptrace.New(ctx, client)
	if err != nil {
		return nil, fmt.Errorf("traces: %w", err)
	}
	options := []trace.TracerProviderOption{trace.WithBatcher(exporter), trace.WithResource(of)}
	if getenv("OTEL_TRACES_SAMPLER") == "" {
		options = append(options, trace.WithSampler(trace.ParentBased(trace.TraceIDRatioBased(o.Share))))
	}
	return trace.NewTracerProvider(options...), nil
}

func (o *Options) openMetrics(ctx context.Context, getenv func(string) string) (*metric.MeterProvider, error) {
	isGRPC, of, err := o.begin(ctx, "", "METRICS", getenv)
	if err != nil {
		return nil, err
	}
	var exporter metric.Exporter
	if isGRPC {
		exporter, err = otlpmetricgrpc.New(ctx)
	} else {
		exporter, err = otlpmetrichttp.New(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	reader := metric.NewPeriodicReader(exporter, metric.WithProducer(bridge.NewMetricProducer(bridge.WithGatherer(o.Registry))))
	return metric.NewMeterProvider(metric.WithReader(reader), metric.WithResource(of)), nil
}

// begin reports whether a signal is sent by gRPC, and not by HTTP, and what the collector is told of the process. chosen takes
// the place of the variables.
func (o *Options) begin(ctx context.Context, chosen, signal string, getenv func(string) string) (isGRPC bool, of *resource.Resource, err error) {
	text := cmp.Or(chosen, getenv("OTEL_EXPORTER_OTLP_"+signal+"_PROTOCOL"), getenv("OTEL_EXPORTER_OTLP_PROTOCOL"))
	if text != "grpc" && text != "http/protobuf" && text != "" {
		return false, nil, fmt.Errorf("OTEL_EXPORTER_OTLP_PROTOCOL: want grpc or http/protobuf, got %.20q", text)
	}
	if err := checkEndpoint(signal, getenv); err != nil {
		return false, nil, err
	}
	attributes := append([]attribute.KeyValue{attribute.String("service.name", o.Service), attribute.String("service.version", o.Version)}, o.More...)
	of, err = resource.New(ctx, resource.WithTelemetrySDK(), resource.WithAttributes(attributes...), resource.WithFromEnv())
	if err != nil {
		return false, nil, fmt.Errorf("%s: %w", strings.ToLower(signal), err)
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { o.Logger.Warn("spans or metrics were not sent", "error", err) }))
	return text == "grpc", of, nil
}

// checkEndpoint returns an error if the collector has no URL. The exporters would take another address for it, or none. The
// error does not repeat the URL, which may hold a password.
func checkEndpoint(signal string, getenv func(string) string) error {
	for _, name := range []string{"OTEL_EXPORTER_OTLP_" + signal + "_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"} {
		text := getenv(name)
		if text == "" {
			continue
		}
		u, err := url.Parse(text)
		if err != nil || u.Scheme != "unix" && (u.Scheme != "http" && u.Scheme != "https" || u.Host == "") {
			return fmt.Errorf("%s: want a URL such as http://collector:4318", name)
		}
		return nil // the first takes the place of the other
	}
	return nil
}

// Close sends what is left, for five seconds each of metrics and spans at most. If the collector is away, the log says so.
func (t Telemetry) Close() {
	if t.metrics != nil {
		shutDown("the last values of metrics", t.metrics.Shutdown)
	}
	if t.spans != nil {
		shutDown("the last spans", t.spans.Shutdown)
	}
}

func shutDown(what string, shutdown func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := shutdown(ctx); err != nil {
		otel.Handle(fmt.Errorf("%s: %w", what, err))
	}
}

var w3c = propagation.TraceContext{}

// HTTP makes a span of each request of a handler, named by its method and one of the paths. Others have none.
func (t Telemetry) HTTP(next http.Handler, paths func(path string) bool) http.Handler {
	if t.spans == nil {
		return next
	}
	return otelhttp.NewHandler(next, "", otelhttp.WithTracerProvider(t.spans), otelhttp.WithMeterProvider(noop.NewMeterProvider()),
		otelhttp.WithPropagators(w3c), otelhttp.WithFilter(func(r *http.Request) bool { return paths(r.URL.Path) }),
		otelhttp.WithSpanNameFormatter(func(_ string, r *http.Request) string { return r.Method + " " + r.URL.Path }))
}

// GRPC makes a span of each call of a server.
func (t Telemetry) GRPC() []grpc.ServerOption {
	if t.spans == nil {
		return nil
	}
	return []grpc.ServerOption{grpc.StatsHandler(otelgrpc.NewServerHandler(otelgrpc.WithTracerProvider(t.spans),
		otelgrpc.WithMeterProvider(noop.NewMeterProvider()), otelgrpc.WithPropagators(w3c)))}
}
