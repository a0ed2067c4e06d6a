package traces

import (
	"context"
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	bridge "go.opentelemetry.io/contrib/bridges/prometheus"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/sdk/metric"
)

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
