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
	// maxSeries bounds the descriptors that are told apart, as detailed_metric has clients name them.
	maxSeries = 10_000
	// maxPath bounds the keys and values of a descriptor that a client names, in bytes: a value may be of
	// megabytes.
	maxPath = 1 << 10
	// nearLimit is the share of a limit beyond which hits are near it, as the rate limit service has it by
	// default.
	nearLimit = 0.8
	// statsdTimeout is how long a flush may take.
	statsdTimeout = 5 * time.Second
)

// The counters of a descriptor, by the names of the rate limit service.
const (
	totalHits = iota
	overLimit
	nearHits
	withinLimit
	shadowMode
	numCounters
)

var counterNames = [numCounters]string{"total_hits", "over_limit", "near_limit", "within_limit", "shadow_mode"}

// Stats counts hits by descriptor, and tells Prometheus and statsd of them under the names of the rate
// limit service. If there are too many descriptors, those that come then count as those of the
// configuration that they match, and at last as other.
type Stats struct {
	mu     sync.RWMutex
	series map[labels]*series
	other  *series

	loads, loadErrors, serviceErrors atomic.Uint64
	sent                             map[string]uint64 // by statsd's name
}

// labels are those of a series, for Prometheus, which takes no two series that have the same.
type labels struct {
	domain      string
	first, rest string // of the descriptor's keys and values
}

// series has the counts of a descriptor.
type series struct {
	labels
	name     string // for statsd, where others may have it too
	counters [numCounters]atomic.Uint64
}

// NewStats has counted nothing.
func NewStats() *Stats {
	s := &Stats{series: map[labels]*series{}, sent: map[string]uint64{}}
	s.other = s.of(nil, "other")
	return s
}

// of is the series of a domain's descriptor, whose keys and values are joined with dots; otherwise is for
// when there are too many.
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

// asked is [Stats.of] of a descriptor that a client names. If that is too long, it counts as otherwise.
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

// statsdName leaves out what statsd's lines can't have, as the rate limit service does.
func statsdName(name string) string {
	name = strings.NewReplacer(":", "_", "|", "_", "\n", "_").Replace(name)
	return address.ReplaceAllStringFunc(name, func(a string) string { return strings.ReplaceAll(a, ".", "_") })
}

// count counts what was decided of a descriptor.
func (s *series) count(a *asked, code pb.RateLimitResponse_Code) {
	limit := a.decision.Limit.Quota()
	near := uint64(math.Floor(float64(float32(limit) * nearLimit)))
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

// all are the series in the order of their names.
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

// flush writes what was counted since the last flush, in statsd's lines.
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

// Statsd tells a statsd at an address by TCP what was counted, every so often until ctx ends, and
// then once more. Counts that it could not be told it is told later.
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
			_ = connection.Close() // it was written, or failed before
		}
		if err != nil {
			failed(err)
		}
		if ctx.Err() != nil {
			return
		}
	}
}
