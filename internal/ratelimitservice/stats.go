package ratelimitservice

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"math"
	"net"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus"
)

const (
	// maxSeries bounds the descriptors with counts of their own, because with detailed_metric
	// clients name them.
	maxSeries = 10_000
	// maxPath bounds the keys and values of a descriptor that a client names, in bytes: a value may
	// have megabytes.
	maxPath = 1 << 10
	// NearRatio is the share of a limit beyond which hits count as near it by default, as in the rate
	// limit service.
	NearRatio = 0.8
	// statsdTimeout bounds a flush.
	statsdTimeout = 5 * time.Second
)

// The counters of a descriptor have the names of the rate limit service.
const (
	totalHits = iota
	overLimit
	nearHits
	withinLimit
	shadowMode
	numCounters
)

var counterNames = [numCounters]string{"total_hits", "over_limit", "near_limit", "within_limit", "shadow_mode"}

// Stats counts hits by descriptor, and reports them to Prometheus and statsd under the names of the
// rate limit service. Beyond maxSeries, a new descriptor of a request counts as the configuration's
// descriptor that it matches, or else as other.
type Stats struct {
	// Near is the share of a limit beyond which hits count as near it. Set it before the first hit.
	Near float32

	mu     sync.RWMutex
	series map[labels]*series
	other  *series

	loads, loadErrors, serviceErrors atomic.Uint64
	sent                             map[string]uint64 // by statsd's name
}

// labels are the Prometheus labels of a series. No two series have the same.
type labels struct {
	domain      string
	first, rest string // of the descriptor's keys and values
}

// series has the counts of a descriptor.
type series struct {
	labels
	name     string // for statsd, where other series may have it too
	counters [numCounters]atomic.Uint64
}

// NewStats returns stats without counts.
func NewStats() *Stats {
	s := &Stats{Near: NearRatio, series: map[labels]*series{}, sent: map[string]uint64{}}
	s.other = s.of(nil, "other")
	return s
}

// of returns the series of a domain's descriptor, whose keys and values are in path. If there are
// too many series, it returns otherwise.
func (s *Stats) of(otherwise *series, domain string, path ...string) *series {
	of := labels{domain: domain}
	if len(path) > 0 {
		of.first, of.rest = path[0], strings.Join(path[1:], ".")
	}
	s.mu.RLock()
	known := s.series[of]
	s.mu.RUnlock()
	if known != nil {
		return known
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch known := s.series[of]; {
	case known != nil:
		return known
	case len(s.series) >= maxSeries && otherwise != nil:
		return otherwise
	case len(s.series) >= maxSeries:
		return s.other
	}
	made := &series{labels: of, name: statsdName(strings.Join(append([]string{domain}, path...), "."))}
	s.series[of] = made
	return made
}

// asked is [Stats.of] for a descriptor that a client names. A path that is too long counts as
// otherwise.
func (s *Stats) asked(otherwise *series, domain string, path []string) *series {
	length := 0
	for _, part := range path {
		length += len(part)
	}
	if length > maxPath {
		return otherwise
	}
	return s.of(otherwise, domain, path...)
}

var address = regexp.MustCompile(`\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}`)

// statsdName replaces characters that statsd's lines can't have, as the rate limit service does.
func statsdName(name string) string {
	name = strings.NewReplacer(":", "_", "|", "_", "\n", "_").Replace(name)
	return address.ReplaceAllStringFunc(name, func(a string) string { return strings.ReplaceAll(a, ".", "_") })
}

// count counts the decision on a descriptor. Beyond a share of the limit hits are near it.
func (s *series) count(a *asked, code pb.RateLimitResponse_Code, ratio float32) {
	limit := a.decision.Limit.Quota()
	near := uint64(math.Floor(float64(float32(limit) * ratio)))
	s.counters[totalHits].Add(a.hits)
	if after := limit - min(a.decision.Remaining, limit); a.decision.Allowed {
		s.counters[withinLimit].Add(a.hits)
		s.counters[nearHits].Add(min(a.hits, after-min(near, after)))
	} else {
		over := a.hits - min(a.hits, limit-after)
		s.counters[overLimit].Add(over)
		if over < a.hits {
			s.counters[nearHits].Add(limit - max(near, after))
		}
		if code == pb.RateLimitResponse_OK {
			s.counters[shadowMode].Add(over)
		}
	}
}

// all returns the series in the order of their names.
func (s *Stats) all() []*series {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.SortedFunc(maps.Values(s.series), func(a, b *series) int { return strings.Compare(a.name, b.name) })
}

const prefix = "ratelimit_service_"

var (
	seriesDescs = func() (of [numCounters]*prometheus.Desc) {
		for i, name := range counterNames {
			of[i] = prometheus.NewDesc(prefix+"rate_limit_"+name, "Hits of the rate limit service by descriptor: "+strings.ReplaceAll(name, "_", " ")+".",
				[]string{"domain", "key1", "key2"}, nil)
		}
		return of
	}()
	serviceDescs = []*prometheus.Desc{
		prometheus.NewDesc(prefix+"config_load_success", "Configurations that came into force.", nil, nil),
		prometheus.NewDesc(prefix+"config_load_error", "Configurations that could not be used.", nil, nil),
		prometheus.NewDesc(prefix+"call_should_rate_limit_service_error", "Requests that got an error.", nil, nil),
	}
)

func (s *Stats) service() [3]*atomic.Uint64 {
	return [...]*atomic.Uint64{&s.loads, &s.loadErrors, &s.serviceErrors}
}

// Describe implements prometheus.Collector.
func (s *Stats) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range append(seriesDescs[:], serviceDescs...) {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (s *Stats) Collect(ch chan<- prometheus.Metric) {
	for _, of := range s.all() {
		for i := range of.counters {
			ch <- prometheus.MustNewConstMetric(seriesDescs[i], prometheus.CounterValue, float64(of.counters[i].Load()), of.domain, of.first, of.rest)
		}
	}
	for i, n := range s.service() {
		ch <- prometheus.MustNewConstMetric(serviceDescs[i], prometheus.CounterValue, float64(n.Load()))
	}
}

// flush writes the counts since the last flush, as lines of statsd.
func (s *Stats) flush(to io.Writer) error {
	w := bufio.NewWriter(to)
	sent := map[string]uint64{}
	line := func(name string, n uint64) {
		if last := s.sent[name]; n > last {
			fmt.Fprintf(w, "ratelimit.service.%s:%d|c\n", name, n-last)
		}
		sent[name] = n
	}
	all := s.all()
	for first := 0; first < len(all); {
		after := first
		var sums [numCounters]uint64
		for ; after < len(all) && all[after].name == all[first].name; after++ {
			for i := range sums {
				sums[i] += all[after].counters[i].Load()
			}
		}
		for i := range sums {
			line("rate_limit."+all[first].name+"."+counterNames[i], sums[i])
		}
		first = after
	}
	for i, name := range []string{"config_load_success", "config_load_error", "call.should_rate_limit.service_error"} {
		line(name, s.service()[i].Load())
	}
	err := w.Flush()
	if err == nil {
		s.sent = sent
	}
	return err
}

// Statsd sends the counts over TCP to a statsd at addr, at each interval until ctx ends, and then
// once more. After a failure, the next flush has the missing counts.
func (s *Stats) Statsd(ctx context.Context, addr string, every time.Duration, failed func(error)) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
		}
		connection, err := net.DialTimeout("tcp", addr, statsdTimeout)
		if err == nil {
			err = connection.SetDeadline(time.Now().Add(statsdTimeout))
			if err == nil {
				err = s.flush(connection)
			}
			_ = connection.Close() // the flush has succeeded or failed before
		}
		if err != nil {
			failed(err)
		}
		if ctx.Err() != nil {
			return
		}
	}
}
