package server_test

import (
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"weir/internal/commandtest"
	"weir/internal/must"
	"weir/internal/server"
	byname "weir/internal/store/open"
	"weir/internal/store/redis/redistest"
)

// Whether the store evicts is in the log when that is known and when it changes, and in a metric.
// An unknown policy is no 0.
func TestEvictions(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t, "--maxmemory-policy", "allkeys-lru")
	policy := func(name string) func() {
		return func() { command(t, redis, "CONFIG", "SET", "maxmemory-policy", name) }
	}
	info := func(rule string) func() { return func() { command(t, redis, "ACL", "SETUSER", "default", rule) } }
	counters, closer, err := byname.Store(redis.URL(), byname.Options{})
	must.OK(t, err)
	defer closer.Close()
	log, registry := &commandtest.Output{}, prometheus.NewRegistry()
	e := server.NewEvictions(counters, registry, slog.New(slog.NewTextHandler(log, nil)))
	wantEvicts(t, registry, "")
	lines := 0
	for _, step := range []struct {
		change         func()
		metric, logged string
	}{
		{func() {}, "1", "maxmemory_policy=allkeys-lru"},
		{policy("noeviction"), "0", "no longer evicts counters"},
		{policy("volatile-ttl"), "1", "maxmemory_policy=volatile-ttl"},
		{policy("volatile-ttl"), "1", ""},
		{info("-info"), "", "does not tell whether it evicts"},
		{info("-info"), "", ""},
		{info("+info"), "1", "maxmemory_policy=volatile-ttl"},
		{redis.Stop, "1", ""},
	} {
		step.change()
		e.Look(t.Context())
		wantEvicts(t, registry, step.metric)
		written := strings.Split(strings.TrimSpace(log.String()), "\n")[lines:]
		if lines += len(written); step.logged == "" && len(written) > 0 || step.logged != "" && (len(written) != 1 || !strings.Contains(written[0], step.logged)) {
			t.Errorf("the log has %q, want %q", written, step.logged)
		}
	}

	registry = prometheus.NewRegistry()
	server.NewEvictions(open(), registry, slog.New(slog.DiscardHandler)).Run(t.Context())
	wantEvicts(t, registry, "0")
}

// wantEvicts wants a metric, or none if it is empty.
func wantEvicts(t *testing.T, registry *prometheus.Registry, want string) {
	t.Helper()
	w := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	_, got, _ := strings.Cut(w.Body.String(), "\nweir_store_evicts ")
	must.Equal(t, strings.TrimSpace(got), want, "weir_store_evicts")
}
