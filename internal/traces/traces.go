// Package traces sends spans to a collector by OTLP, as the variables of OpenTelemetry say. It knows nothing of what the spans
// are about.
package traces

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
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
	// Protocol is grpc or http/protobuf; OTEL_EXPORTER_OTLP_PROTOCOL if empty.
	Protocol string
	// Share of the traces that begin here is sent. Those that a caller has begun are sent if the caller says so.
	// OTEL_TRACES_SAMPLER takes the place of both.
	Share float64
	// Logger hears of spans that could not be sent.
	Logger *slog.Logger
}

// Tracer sends spans. A nil Tracer sends none. It is safe for concurrent use.
type Tracer struct{ provider *trace.TracerProvider }

// Wanted reports whether the environment names a collector.
func Wanted(getenv func(string) string) bool {
	return !strings.EqualFold(getenv("OTEL_SDK_DISABLED"), "true") && getenv("OTEL_TRACES_EXPORTER") != "none" &&
		(getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != "")
}

// Start returns a Tracer, which the caller must close. It does not wait for the collector, and goes on while that is away.
func Start(ctx context.Context, o Options, getenv func(string) string) (*Tracer, error) {
	protocol := o.Protocol
	for _, name := range []string{"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"} {
		if protocol == "" {
			protocol = getenv(name)
		}
	}
	var exporter *otlptrace.Exporter
	var err error
	switch protocol {
	case "grpc":
		exporter, err = otlptracegrpc.New(ctx)
	case "http/protobuf", "":
		exporter, err = otlptracehttp.New(ctx)
	default:
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_PROTOCOL: want grpc or http/protobuf, got %.20q", protocol)
	}
	if err != nil {
		return nil, fmt.Errorf("traces: %w", err)
	}
	attributes := append([]attribute.KeyValue{attribute.String("service.name", o.Service), attribute.String("service.version", o.Version)}, o.More...)
	of, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithAttributes(attributes...), resource.WithFromEnv())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("traces: %w", err), exporter.Shutdown(ctx))
	}
	options := []trace.TracerProviderOption{trace.WithBatcher(exporter), trace.WithResource(of)}
	if getenv("OTEL_TRACES_SAMPLER") == "" {
		options = append(options, trace.WithSampler(trace.ParentBased(trace.TraceIDRatioBased(o.Share))))
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { o.Logger.Warn("spans were not sent", "error", err) }))
	return &Tracer{trace.NewTracerProvider(options...)}, nil
}

// closing bounds [Tracer.Close].
const closing = 5 * time.Second

// Close sends what is left, for five seconds at most.
func (t *Tracer) Close() error {
	if t == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), closing)
	defer cancel()
	if err := t.provider.Shutdown(ctx); err != nil {
		return fmt.Errorf("traces: the last spans: %w", err)
	}
	return nil
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
