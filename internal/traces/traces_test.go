package traces_test

import (
	"log/slog"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"weir/internal/traces"
)

// A collector's address that can't be used is an error at the start, and not one of each message.
func TestMistakes(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, value, want string }{
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1", ""},
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4317", "OTEL_EXPORTER_OTLP_ENDPOINT: want a URL such as http://collector:4318"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "::user:secret", "OTEL_EXPORTER_OTLP_ENDPOINT: want a URL such as http://collector:4318"},
		{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http:///v1/traces", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: want a URL such as http://collector:4318"},
		{"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "collector", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT: want a URL such as http://collector:4318"},
		{"OTEL_EXPORTER_OTLP_PROTOCOL", "http/json", `OTEL_EXPORTER_OTLP_PROTOCOL: want grpc or http/protobuf, got "http/json"`},
	} {
		o := traces.Options{Spans: true, Registry: prometheus.NewRegistry(), Logger: slog.New(slog.DiscardHandler)}
		telemetry, err := traces.Open(t.Context(), o, func(name string) string {
			if name == test.name {
				return test.value
			}
			return ""
		})
		telemetry.Close()
		if err == nil && test.want != "" || err != nil && err.Error() != test.want {
			t.Errorf("%s=%s: error %v, want %s", test.name, test.value, err, test.want)
		}
	}
}
