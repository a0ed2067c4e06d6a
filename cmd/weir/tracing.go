package main

import (
	"context"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"

	"weir/internal/traces"
)

// tracing returns what sends spans to the collector that OpenTelemetry's variables name; nil if they name none.
func tracing(ctx context.Context, o traces.Options, getenv func(string) string) (*traces.Tracer, error) {
	if !traces.Wanted("TRACES", getenv) {
		return nil, nil
	}
	o.Version = version()
	return traces.Start(ctx, o, getenv)
}

// measuring returns what sends the metrics of a registry to the collector that OpenTelemetry's variables name; nil if they
// name none.
func measuring(ctx context.Context, o traces.Options, registry prometheus.Gatherer, getenv func(string) string) (*traces.Meter, error) {
	if !traces.Wanted("METRICS", getenv) {
		return nil, nil
	}
	o.Version = version()
	return traces.Measure(ctx, o, registry, getenv)
}

// tracing is what the variables of envoyproxy/ratelimit say of traces, and whether it sends any.
func (v *variables) tracing() (o traces.Options, wanted bool) {
	o = traces.Options{Service: v.text("TRACING_SERVICE_NAME", "RateLimit"), Share: 1, Protocol: "http/protobuf"}
	if v.text("TRACING_EXPORTER_PROTOCOL", "http") == "grpc" {
		o.Protocol = "grpc"
	}
	for attributed, name := range map[string]string{"service.namespace": "TRACING_SERVICE_NAMESPACE", "service.instance.id": "TRACING_SERVICE_INSTANCE_ID"} {
		if text := v.getenv(name); text != "" {
			o.More = append(o.More, attribute.String(attributed, text))
		}
	}
	share, err := strconv.ParseFloat(v.text("TRACING_SAMPLING_RATE", "1"), 64)
	if err != nil || !(share >= 0 && share <= 1) {
		v.fail("TRACING_SAMPLING_RATE", "a number from 0 to 1")
	}
	o.Share = share
	return o, v.truth("TRACING_ENABLED")
}
