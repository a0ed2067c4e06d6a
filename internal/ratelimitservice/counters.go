package ratelimitservice

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"weir/ratelimit"
	"weir/window"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
)

const (
	// maxNamespaces bounds the namespaces of counters: one for all of the protocol's units, and one
	// for each other shape.
	maxNamespaces = 64
	// collect is how long requests that have to ask the backend wait for the answer to others, so that one
	// push asks for all.
	collect = time.Millisecond
	// maxCounters is how many counters an instance keeps in each namespace, unless MaxMemory has room for fewer.
	maxCounters = 1 << 18
	// DefaultNamespace is the default name of the counters in the backend.
	DefaultNamespace = "ratelimit"
)

var errManyNamespaces = errors.New(manyNamespaces + ", in the life of the process")

// manyNamespaces is what is wrong with limits that need more.
var manyNamespaces = fmt.Sprintf("want at most %d different algorithms, windows and values of sync_rate; all units count once for each sync_rate", maxNamespaces)

// CounterOptions configure [Counters].
type CounterOptions struct {
	// Namespace is the name of the counters in the backend; empty is [DefaultNamespace].
	Namespace string
	// KeyPrefix precedes the domain in the keys of counters.
	KeyPrefix string
	// Backend has the totals of all instances. Without a backend, each process has counters of its
	// own.
	Backend ratelimit.Backend
	// Timeout is how long a request waits for the backend; 0 is the library's default.
	Timeout time.Duration
	// MaxMemory bounds the memory of all namespaces, in bytes; 0 for no bound. A new namespace gets
	// half of what is left, so that the first, which has all units, has most.
	MaxMemory int
	// OnBackendFailure decides requests while the backend can't be reached.
	OnBackendFailure ratelimit.FailureMode
	// Reveal is [ratelimit.Rule]'s Reveal for all limits, if there is a backend.
	Reveal int
	// Now is the clock; nil is time.Now.
	Now func() time.Time
}

// Counters count the hits that descriptors ask for. A counter's key is the domain with the keys and
// values of a descriptor, and its rule is that of the limit's [shape]. So a new configuration finds
// the counters of the last, and a changed limit applies at once.
//
// The shapes of the protocol's units share a namespace of package ratelimit. Each other shape in a
// configuration gets another namespace of the same name.
type Counters struct {
	options CounterOptions

	mu         sync.Mutex
	namespaces []*ratelimit.Namespace
	limiters   map[shape]*ratelimit.Limiter
	overrides  map[override]*ratelimit.Limiter
	memory     int // that is left of MaxMemory
}

// override is a limit in a request.
type override struct {
	shape shape
	hits  uint32
}

// maxOverrides bounds how many limits of requests are kept.
const maxOverrides = 1024

// NewCounters returns counters. Close them when they are no longer used.
func NewCounters(o CounterOptions) *Counters {
	o.Namespace = cmp.Or(o.Namespace, DefaultNamespace)
	return &Counters{options: o, memory: o.MaxMemory, limiters: map[shape]*ratelimit.Limiter{}, overrides: map[override]*ratelimit.Limiter{}}
}

// Close pushes the counts, gives back leases, and ends all namespaces.
func (c *Counters) Close(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	errs := make([]error, len(c.namespaces))
	var closing sync.WaitGroup
	for i, n := range c.namespaces {
		closing.Go(func() { errs[i] = n.Close(ctx) })
	}
	closing.Wait()
	return errors.Join(errs...)
}

// work sums what the namespaces have done with the backend, in the order of engineDescs.
func (c *Counters) work() (sums [4]uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.namespaces {
		s := n.Stats()
		for i, more := range []uint64{s.WaitedRequests, s.DecidedAlone, s.AdvancedHits, s.LostHits} {
			sums[i] += more
		}
	}
	return sums
}

// Bind gives each limit of a configuration its counters.
func (c *Counters) Bind(of *Configuration) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	needs := len(c.namespaces)
	for s := range of.spaces {
		if c.limiters[s] == nil {
			needs++
		}
	}
	if needs > maxNamespaces { // before any is made, as each stays
		return errManyNamespaces
	}
	for _, d := range of.domains {
		if err := c.bind(&d.level); err != nil {
			return err
		}
	}
	return nil
}

func (c *Counters) bind(l *level) (err error) {
	for _, n := range l.byKey {
		if of := n.limit; of != nil && !of.unlimited {
			if of.limiter, err = c.limiter(of.shape, of.hits); err != nil {
				return err
			}
		}
		if err := c.bind(&n.level); err != nil {
			return err
		}
	}
	return nil
}

// limiter returns the limiter for a limit of a shape. The caller holds the lock.
func (c *Counters) limiter(s shape, hits ratelimit.Limit) (*ratelimit.Limiter, error) {
	of := c.limiters[s]
	if of == nil {
		if err := c.define(s, hits); err != nil {
			return nil, err
		}
		of = c.limiters[s]
	}
	return of.WithLimits(hits)
}

// define makes a namespace for a shape. The protocol's units get a common namespace.
func (c *Counters) define(s shape, hits ratelimit.Limit) error {
	if len(c.namespaces) == maxNamespaces {
		return errManyNamespaces
	}
	shapes, rules := []shape{s}, []ratelimit.Rule{s.counting(hits)}
	if s.ofUnit() {
		shapes, rules = s.ofUnits(), nil
		for _, of := range shapes {
			rules = append(rules, of.counting(of.limit(mostPerUnit, 0)))
		}
	}
	capacity := maxCounters
	if c.options.MaxMemory > 0 {
		capacity = max(1, min(capacity, c.memory/2/s.bytes()))
		c.memory -= capacity * s.bytes()
	}
	o := ratelimit.Options{
		Name: c.options.Namespace, Rules: rules, Capacity: capacity, Now: c.options.Now,
	}
	if c.options.Backend != nil {
		o.Backend, o.Timeout, o.OnBackendFailure = c.options.Backend, c.options.Timeout, c.options.OnBackendFailure
		o.SyncRate, o.Exact = s.syncRate, s.exact
		o.Collect = collect
		for i := range rules {
			rules[i].Reveal = c.options.Reveal
		}
	}
	n, err := ratelimit.NewNamespace(o)
	if err != nil {
		return err
	}
	c.namespaces = append(c.namespaces, n)
	for i := range shapes {
		if c.limiters[shapes[i]], err = n.Limiter(rules[i].Name); err != nil {
			return err
		}
	}
	return nil
}

// ofUnit reports whether the windows are those of a unit.
func (s shape) ofUnit() bool {
	return s.onClock() && s.unit() != pb.RateLimitResponse_RateLimit_UNKNOWN
}

// space returns the shape that stands for all that share a namespace with this one.
func (s shape) space() shape {
	if s.ofUnit() {
		return s.ofUnits()[0]
	}
	return s
}

// ofUnits are the shapes of all units at this pace, in an order that all instances have.
func (s shape) ofUnits() (shapes []shape) {
	for _, unit := range slices.Sorted(maps.Keys(units)) {
		of, _ := shapeOf(unit, s.pace)
		shapes = append(shapes, of)
	}
	return shapes
}

// bytes is the memory of a counter in an instance: what a node reserves for it, and Go's sizes.
func (s shape) bytes() int {
	const plain, bucket, most = 128, 20, 2 * window.MaxLogSize
	buckets := s.log
	if s.precision > 0 {
		buckets = uint64(s.window / s.precision)
	}
	return plain + int(min(bucket*buckets, most))
}

func (s shape) counting(hits ratelimit.Limit) ratelimit.Rule {
	return ratelimit.Rule{Name: s.rule(), Limits: []ratelimit.Limit{hits}, CountRejected: s.countRejected}
}

// said returns the limiter for a limit in a request, whose shape is that of a unit.
func (c *Counters) said(s shape, hits uint32) (*ratelimit.Limiter, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	of := override{s, hits}
	if l := c.overrides[of]; l != nil {
		return l, nil
	}
	l, err := c.limiter(s, s.limit(uint64(hits), 0))
	if err != nil {
		return nil, err
	}
	if len(c.overrides) == maxOverrides {
		clear(c.overrides)
	}
	c.overrides[of] = l
	return l, nil
}
