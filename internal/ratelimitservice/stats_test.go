package ratelimitservice

import (
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"weir/internal/must"
)

const measured = `
domain: d
descriptors:
  - {key: plain, rate_limit: {unit: minute, requests_per_unit: 10}}
  - {key: detailed, detailed_metric: true, rate_limit: {unit: minute, requests_per_unit: 10}}
  - {key: shadow, value: "10.0.0.1:80", shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: free, rate_limit: {unlimited: true}}
  - key: method
    value_to_metric: true
    descriptors:
      - {key: path, value: "/a*", rate_limit: {unit: minute, requests_per_unit: 10}}
      - {key: path, value: "/s*", share_threshold: true, value_to_metric: true, rate_limit: {unit: minute, requests_per_unit: 10}}
      - {key: path, rate_limit: {unit: minute, requests_per_unit: 10}}
`

// TestStats wants the names and numbers of envoyproxy/ratelimit.
func TestStats(t *testing.T) {
	t.Parallel()
	stats := NewStats()
	s := start(t, newClock(), measured, ServiceOptions{Stats: stats})
	ask := func(hits uint32, descriptors ...string) {
		t.Helper()
		r := request("d", descriptors...)
		r.HitsAddend = hits
		told(t, s, r)
	}
	for _, hits := range []uint32{6, 3, 4, 2} {
		ask(hits, "plain=1")
	}
	ask(3, "shadow=10.0.0.1:80", "detailed=x", "free=1")
	ask(1, "detailed=y", "method=GET,path=/ab", "method=GET,path=/sb", "method=PUT,path=/other")
	said := request("d", "plain=2")
	said.Descriptors[0].Limit = &common.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 1, Unit: 2}
	told(t, s, said)
	told(t, s, request("", "x=y"))
	_, err := Read([]File{{"f", []byte("domain: d\ndescriptors: [{}]")}}, Options{})
	must.Fails(t, err, "a descriptor without a key")
	var out strings.Builder
	must.OK(t, stats.flush(&out))
	const want = `detailed_x.total_hits:3
detailed_x.within_limit:3
detailed_y.total_hits:1
detailed_y.within_limit:1
method_GET.path_/a*.total_hits:1
method_GET.path_/a*.within_limit:1
method_GET.path_/s*.total_hits:1
method_GET.path_/s*.within_limit:1
method_PUT.path.total_hits:1
method_PUT.path.within_limit:1
plain.total_hits:15
plain.over_limit:5
plain.near_limit:2
plain.within_limit:9
plain_2.total_hits:1
plain_2.near_limit:1
plain_2.within_limit:1
shadow_10_0_0_1_80.total_hits:3
shadow_10_0_0_1_80.over_limit:2
shadow_10_0_0_1_80.near_limit:1
shadow_10_0_0_1_80.shadow_mode:2
`
	got := ""
	for line := range strings.Lines(out.String()) {
		if rest, ok := strings.CutPrefix(line, "ratelimit.service.rate_limit.d."); ok {
			got += strings.TrimSuffix(rest, "|c\n") + "\n"
		} else if line != "ratelimit.service.config_load_success:1|c\n" && line != "ratelimit.service.call.should_rate_limit.service_error:1|c\n" {
			t.Errorf("it tells %s", line)
		}
	}
	must.Equal(t, got, want, "")
	// Counts are not told again, unless they did not arrive.
	ask(1, "plain=3")
	must.Fails(t, stats.flush(full{}), "what could not be told")
	out.Reset()
	if err := stats.flush(&out); err != nil || out.String() != "ratelimit.service.rate_limit.d.plain.total_hits:1|c\nratelimit.service.rate_limit.d.plain.within_limit:1|c\n" {
		t.Errorf("later it tells %v\n%s", err, out.String())
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(stats)
	must.Report(t, testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP ratelimit_service_config_load_success Configurations that came into force.
# TYPE ratelimit_service_config_load_success counter
ratelimit_service_config_load_success 1
`), "ratelimit_service_config_load_success"))
}

// Hits count as near from another share of the limit on, if that is set. No hits are beyond the whole limit, also if a float32
// is above it.
func TestNear(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		share float32
		limit int
		hits  []uint64
		near  uint64
	}{
		{0.5, 10, []uint64{7}, 2},
		{1, 10, []uint64{7, 5}, 0},
		{1, 1<<24 + 3, []uint64{1 << 24, 5}, 0},
	} {
		stats := NewStats()
		stats.Near = test.share
		s := start(t, newClock(), fmt.Sprintf("domain: d\ndescriptors: [{key: plain, rate_limit: {unit: minute, requests_per_unit: %d}}]", test.limit), ServiceOptions{Stats: stats})
		for _, hits := range test.hits {
			told(t, s, costing(hits, "plain=1"))
		}
		must.Equal(t, stats.of("d", "plain").counters[nearHits].Load(), test.near, "share %v of %d, hits %v: near", test.share, test.limit, test.hits)
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("full") }

// TestSeriesAreBounded has clients name more descriptors than there is room for, whether they are short or long.
// All that is told of them has a bound, and they make room for others once nobody uses them.
func TestSeriesAreBounded(t *testing.T) {
	t.Parallel()
	for _, value := range []string{"", strings.Repeat("x", 900)} {
		c, stats := newClock(), NewStats()
		stats.now = c.now
		s := start(t, c, measured, ServiceOptions{Stats: stats})
		before := len(stats.all())
		const asked = 10_000
		for i := range asked {
			told(t, s, request("d", fmt.Sprintf("detailed=%d%s", i, value)))
			c.advance(time.Millisecond)
		}
		registry := prometheus.NewRegistry()
		registry.MustRegister(stats)
		page := httptest.NewRecorder()
		promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(page, httptest.NewRequest("GET", "/metrics", nil))
		if n := page.Body.Len(); n < maxAsked/2 || n > maxAsked*5/4 {
			t.Errorf("/metrics has %d bytes", n)
		}
		kept := len(stats.all()) - before
		must.Equal(t, stats.of("d", "detailed").counters[totalHits].Load(), uint64(asked-kept), "hits are counted as the configuration's, and %d descriptors by themselves", kept)
		c.advance(askedLife + time.Minute)
		told(t, s, request("d", "detailed=new"))
		must.Equal(t, stats.of("d", "detailed_new").counters[totalHits].Load(), 1, "hits of a new one")
		must.Equal(t, len(stats.all()), before+1, "series that are kept")
	}
}

// Descriptors that Prometheus could not tell apart count together, and so do those that statsd can't, whoever
// has named them.
func TestSeriesOfOneName(t *testing.T) {
	t.Parallel()
	stats := NewStats()
	s := start(t, newClock(), "domain: d\ndescriptors: [{key: k, detailed_metric: true, rate_limit: {unit: minute, requests_per_unit: 10}}]", ServiceOptions{Stats: stats})
	for range 3 {
		told(t, s, request("d", "k=a:b"))
	}
	told(t, s, request("d", "k=a_b"))
	for _, entries := range [][]*common.RateLimitDescriptor_Entry{nil, {{}}, {{Key: "k"}}, {{Key: "k"}, {}}} {
		r := &pb.RateLimitRequest{Domain: "d", Descriptors: []*common.RateLimitDescriptor{{
			Entries: entries, Limit: &common.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 100, Unit: 2},
		}}}
		told(t, s, r)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(stats)
	must.Get(registry.Gather())(t)
	for i, want := range []int{1, 0} {
		var out strings.Builder
		must.OK(t, stats.flush(&out))
		if got := strings.Count(out.String(), "k_a_b.total_hits:4|c\n"); got != want || strings.Count(out.String(), "k_a_b.total_hits") != want {
			t.Errorf("flush %d: got %s", i, out.String())
		}
	}
}

// Descriptors that are long, which clients may make, are not kept for metrics: they count as those of the
// configuration, or as other.
func TestLongSeries(t *testing.T) {
	t.Parallel()
	stats := NewStats()
	s := start(t, newClock(), "domain: d\ndescriptors: [{key: k, detailed_metric: true, rate_limit: {unit: minute, requests_per_unit: 10}}]", ServiceOptions{Stats: stats})
	before := len(stats.all())
	long := strings.Repeat("x", maxPath)
	for i := range 5 {
		r := request("d", fmt.Sprint("k=", long, i), fmt.Sprint("other=", long, i))
		r.Descriptors[1].Limit = &common.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 100, Unit: 2}
		told(t, s, r)
	}
	must.Equal(t, len(stats.all()), before, "series, after long descriptors")
	var out strings.Builder
	must.OK(t, stats.flush(&out))
	for _, want := range []string{"rate_limit.d.k.total_hits:5|c", "rate_limit.other.total_hits:5|c"} {
		must.Contains(t, out.String(), want, "")
	}
}
