// Package traces sends spans and metrics to a collector by OTLP, as the variables of OpenTelemetry say. It knows nothing of
// what they are about.
package traces

import (
	"cmp"
	"context"
	"errors"
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

// Options configure [Start].
type Options struct {
	// Service and Version are told of each span. OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES take their place.
	Service, Version string
	// More has further attributes of the process.
	More []attribute.KeyValue
	// Protocol of spans is grpc or http/protobuf; OTEL_EXPORTER_OTLP_PROTOCOL if empty.
	Protocol string
	// Share of the traces that begin here is sent. Those that a caller has begun are sent if the caller says so.
	// OTEL_TRACES_SAMPLER takes the place of both.
	Share float64
	// Logger hears of spans and metrics that could not be sent.
	Logger *slog.Logger
}

// Tracer sends spans. A nil Tracer sends none. It is safe for concurrent use.
type Tracer struct{ provider *trace.TracerProvider }

// Wanted reports whether the environment names a collector of TRACES or METRICS.
func Wanted(signal string, getenv func(string) string) bool {
	return !strings.EqualFold(getenv("OTEL_SDK_DISABLED"), "true") && getenv("OTEL_"+signal+"_EXPORTER") != "none" &&
		(getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || getenv("OTEL_EXPORTER_OTLP_"+signal+"_ENDPOINT") != "")
}

// Start returns a Tracer, which the caller must close. It does not wait for the collector, and goes on while that is away.
func Start(ctx context.Context, o Options, getenv func(string) string) (*Tracer, error) {
	isGRPC, err := protocol(o.Protocol, "TRACES", getenv)
	if err != nil {
		return nil, err
	}
	var exporter *otlptrace.Exporter
	if isGRPC {
		exporter, err = otlptracegrpc.New(ctx)
	} else {
		exporter, err = otlptracehttp.New(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("traces: %w", err)
	}
	of, err := o.resource(ctx)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("traces: %w", err), exporter.Shutdown(ctx))
	}
	options := []trace.TracerProviderOption{trace.WithBatcher(exporter), trace.WithResource(of)}
	if getenv("OTEL_TRACES_SAMPLER") == "" {
		options = append(options, trace.WithSampler(trace.ParentBased(trace.TraceIDRatioBased(o.Share))))
	}
	o.hear()
	return &Tracer{trace.NewTracerProvider(options...)}, nil
}

// protocol reports whether a signal is sent by gRPC, and not by HTTP. chosen takes the place of the variables.
func protocol(chosen, signal string, getenv func(string) string) (isGRPC bool, err error) {
	switch text := cmp.Or(chosen, getenv("OTEL_EXPORTER_OTLP_"+signal+"_PROTOCOL"), getenv("OTEL_EXPORTER_OTLP_PROTOCOL")); text {
	case "grpc", "http/protobuf", "":
		return text == "grpc", checkEndpoint(signal, getenv)
	default:
		return false, fmt.Errorf("OTEL_EXPORTER_OTLP_PROTOCOL: want grpc or http/protobuf, got %.20q", text)
	}
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

func (o *Options) resource(ctx context.Context) (*resource.Resource, error) {
	attributes := append([]attribute.KeyValue{attribute.String("service.name", o.Service), attribute.String("service.version", o.Version)}, o.More...)
	return resource.New(ctx, resource.WithTelemetrySDK(), resource.WithAttributes(attributes...), resource.WithFromEnv())
}

func (o *Options) hear() {
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { o.Logger.Warn("spans or metrics were not sent", "error", err) }))
}

// closing bounds [Tracer.Close].
const closing = 5 * time.Second

// Close sends what is left, for five seconds at most. If the collector is away, the log says so.
func (t *Tracer) Close() {
	if t == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), closing)
	defer cancel()
	if err := t.provider.Shutdown(ctx); err != nil {
		otel.Handle(fmt.Errorf("the last spans: %w", err))
	}
}

var w3c = propagation.TraceContext{}

// HTTP makes a span of each request of a handler, named by its method and one of the paths. Others have none.
func (t *Tracer) HTTP(next http.Handler, paths func(path string) bool) http.Handler {
	if t == nil {
		return next
	}
	return otelhttp.NewHandler(next, "", otelhttp.WithTracerProvider(t.provider), otelhttp.WithMeterProvider(noop.NewMeterProvider()),
		otelhttp.WithPropagators(w3c), otelhttp.WithFilter(func(r *http.Request) bool { return paths(r.URL.Path) }),
		otelhttp.WithSpanNameFormatter(func(_ string, r *http.Request) string { return r.Method + " " + r.URL.Path }))
}

// GRPC makes a span of each call of a server.
func (t *Tracer) GRPC() []grpc.ServerOption {
	if t == nil {
		return nil
	}
	return []grpc.ServerOption{grpc.StatsHandler(otelgrpc.NewServerHandler(otelgrpc.WithTracerProvider(t.provider),
		otelgrpc.WithMeterProvider(noop.NewMeterProvider()), otelgrpc.WithPropagators(w3c)))}
}

// Meter sends the metrics of a registry. A nil Meter sends none.
type Meter struct{ provider *metric.MeterProvider }

// Measure returns a Meter, which the caller must close. It does not wait for the collector, and goes on while that is away.
func Measure(ctx context.Context, o Options, registry prometheus.Gatherer, getenv func(string) string) (*Meter, error) {
	isGRPC, err := protocol("", "METRICS", getenv)
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
	of, err := o.resource(ctx)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("metrics: %w", err), exporter.Shutdown(ctx))
	}
	o.hear()
	reader := metric.NewPeriodicReader(exporter, metric.WithProducer(bridge.NewMetricProducer(bridge.WithGatherer(registry))))
	return &Meter{metric.NewMeterProvider(metric.WithReader(reader), metric.WithResource(of))}, nil
}

// Close sends the last values, for five seconds at most. If the collector is away, the log says so.
func (m *Meter) Close() {
	if m == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), closing)
	defer cancel()
	if err := m.provider.Shutdown(ctx); err != nil {
		otel.Handle(fmt.Errorf("the last values of metrics: %w", err))
	}
}
