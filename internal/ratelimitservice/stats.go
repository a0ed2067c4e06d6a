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
	// maxSeries bounds the configuration's descriptors with counts of their own.
	maxSeries = 10_000
	// maxAsked bounds the descriptors that clients name, with detailed_metric and the like: the bytes
	// that all have at /metrics, where each has a line for each counter. maxPath bounds the keys and
	// values of one, since a value may have megabytes.
	maxAsked = 2 << 20
	maxPath  = 1 << 10
	// lineBytes is the length of such a line beside the labels.
	lineBytes = 80
	// askedLife is how long a client's descriptor is kept after its last hit, and sweepEvery how often
	// old descriptors are looked for.
	askedLife  = 10 * time.Minute
	sweepEvery = time.Minute
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
// rate limit service. Beyond maxAsked, a new descriptor of a request counts as the configuration's
// descriptor that it matches, or else as other.
type Stats struct {
	// Near is the share of a limit beyond which hits count as near it. Set it before the first hit.
	Near   float32
	now    func() time.Time
	mu     sync.RWMutex
	series map[labels]*series
	other  *series
	// asked are the bytes of the descriptors that clients name, and swept is when old descriptors
	// were looked for.
	asked int
	swept time.Time

	// counters count the work between this instance and the backend; nil until a service has them.
	counters atomic.Pointer[Counters]

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
	name     string       // for statsd, where other series may have it too
	asked    int          // bytes; 0 for a series of the configuration
	used     atomic.Int64 // when an asked series was, in nanoseconds
	counters [numCounters]atomic.Uint64
}

// NewStats returns stats without counts.
func NewStats() *Stats {
	s := &Stats{Near: NearRatio, now: time.Now, series: map[labels]*series{}, sent: map[string]uint64{}}
	s.other = s.of("other")
	return s
}

func newSeries(of labels, path []string) *series {
	return &series{labels: of, name: statsdName(strings.Join(append([]string{of.domain}, path...), "."))}
}

func labelsOf(domain string, path []string) labels {
	if len(path) == 0 {
		return labels{domain: domain}
	}
	return labels{domain, path[0], strings.Join(path[1:], ".")}
}

// of returns the series of a descriptor of the configuration, whose keys and values are in path. If
// there are too many series, it returns other.
func (s *Stats) of(domain string, path ...string) *series {
	of := labelsOf(domain, path)
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.series[of]
	switch {
	case known == nil && len(s.series) >= maxSeries:
		return s.other
	case known == nil:
		known = newSeries(of, path)
		s.series[of] = known
	default:
		s.asked -= known.asked
		known.asked = 0
	}
	return known
}

// ofClient returns the series of a descriptor that a client names. It returns otherwise if the path
// is too long, or if there is no room.
func (s *Stats) ofClient(otherwise *series, domain string, path []string) *series {
	length := 0
	for i := range path {
		path[i] = valid(path[i])
		length += len(path[i])
	}
	if length > maxPath {
		return otherwise
	}
	now, of := s.now(), labelsOf(domain, path)
	s.mu.RLock()
	known := s.series[of]
	s.mu.RUnlock()
	if known != nil {
		known.used.Store(now.UnixNano())
		return known
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.series[of]; known != nil {
		return known
	}
	made := newSeries(of, path)
	made.asked = numCounters * (lineBytes + len(domain) + length)
	made.used.Store(now.UnixNano())
	if s.asked+made.asked > maxAsked {
		s.sweep(now)
	}
	if s.asked+made.asked > maxAsked {
		return otherwise
	}
	s.series[of] = made
	s.asked += made.asked
	return made
}

// sweep removes the series of clients that had no hit for askedLife. The caller holds the lock.
func (s *Stats) sweep(now time.Time) {
	if now.Sub(s.swept) < sweepEvery {
		return
	}
	s.swept = now
	for of, known := range s.series {
		if known.asked > 0 && now.UnixNano()-known.used.Load() > int64(askedLife) {
			delete(s.series, of)
			s.asked -= known.asked
		}
	}
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
	near := min(limit, uint64(math.Floor(float64(float32(limit)*ratio)))) // a float32 may be above the limit
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
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweep(s.now())
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

// engineDescs are of the work between this instance and the backend, in the order of [Counters.work].
var engineDescs = []*prometheus.Desc{
	prometheus.NewDesc("weir_waited_requests_total", "Descriptors that waited for the store.", []string{"weir_namespace"}, nil),
	prometheus.NewDesc("weir_decided_alone_total", "Descriptors that were decided without the store, because it was away, late or asked too often.", []string{"weir_namespace"}, nil),
	prometheus.NewDesc("weir_advanced_hits_total", "Hits that passed without waiting because their keys were far from their limits.", []string{"weir_namespace"}, nil),
	prometheus.NewDesc("weir_lost_hits_total", "Hits that the store will never count.", []string{"weir_namespace"}, nil),
}

func (s *Stats) service() [3]*atomic.Uint64 {
	return [...]*atomic.Uint64{&s.loads, &s.loadErrors, &s.serviceErrors}
}

// Describe implements prometheus.Collector.
func (s *Stats) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range slices.Concat(seriesDescs[:], serviceDescs, engineDescs) {
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
	if c := s.counters.Load(); c != nil {
		for i, n := range c.work() {
			ch <- prometheus.MustNewConstMetric(engineDescs[i], prometheus.CounterValue, float64(n), c.options.Namespace)
		}
	}
}

// flush writes the counts since the last flush, as lines of statsd.
func (s *Stats) flush(to io.Writer) error {
	var names []string
	counts := map[string]uint64{}
	add := func(name string, n uint64) {
		if _, had := counts[name]; !had {
			names = append(names, name)
		}
		counts[name] += n
	}
	for _, of := range s.all() {
		for i, name := range counterNames {
			add("rate_limit."+of.name+"."+name, of.counters[i].Load())
		}
	}
	for i, name := range []string{"config_load_success", "config_load_error", "call.should_rate_limit.service_error"} {
		add(name, s.service()[i].Load())
	}
	w := bufio.NewWriter(to)
	for _, name := range names {
		if n, last := counts[name], s.sent[name]; n > last {
			fmt.Fprintf(w, "ratelimit.service.%s:%d|c\n", name, n-last)
		}
	}
	err := w.Flush()
	if err == nil {
		s.sent = counts
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
