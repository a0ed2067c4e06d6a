package ratelimit

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"weir/internal/counter"
	"weir/internal/store"
	"weir/internal/wire"
	"weir/sharedata"
	"weir/window"
)

var (
	// ErrDefined is wrapped by the error of a second definition of a namespace.
	ErrDefined = errors.New("already defined")
	// ErrNotDefined is wrapped by errors of windows and rules that a namespace was not defined with.
	ErrNotDefined = errors.New("not defined")
)

// Options has what an instance can be told. The zero value is good.
type Options struct {
	// Now is the clock, time.Now if nil. Windows follow Unix time.
	Now func() time.Time
}

// Instance is a set of namespaces with shared data of its own: two instances share nothing but what they synchronise with one
// store. Use [New] to make one.
type Instance struct {
	now  func() time.Time
	data *data

	mu         sync.Mutex
	namespaces map[string]*Namespace
}

// New returns an instance without namespaces.
func New(o Options) *Instance {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Instance{now: o.Now, data: newData(), namespaces: map[string]*Namespace{}}
}

// NamespaceOptions define a namespace.
type NamespaceOptions struct {
	// Name isolates the namespace's counters, in the instance and in the store: 1 to 64 of A-Za-z0-9._-.
	Name string
	// WindowSizes are the windows of [Namespace.Increment] and [Namespace.SlidingWindow], at most 8.
	WindowSizes []time.Duration
	// Rules are the rules of [Namespace.Limiter].
	Rules []Rule
	// Capacity is how many counters (keys of a rule) the namespace is made for, 65,536 if 0. It takes about 96 bytes for each,
	// 48 more for each further limit of the rule with most, and more for logs and sub-buckets. Where there are more, those with
	// the least share of their limit are forgotten; a counter without a limit ranks as if that was 1,000.
	Capacity int
	// Store has the totals of all processes. Without one the namespace counts in this process only.
	Store Store
	// SyncRate is how often [Namespace.Run] synchronises, 1 s if 0.
	SyncRate time.Duration
	// OnSyncError is told what went wrong in [Namespace.Run], unless nil. Nothing needs to be done: the next round tries again.
	OnSyncError func(error)
}

const (
	defaultCapacity = 1 << 16
	defaultSyncRate = time.Second
	// knownPerCounter bounds the counters to synchronise: entries smaller than usual let a table have more than its capacity.
	knownPerCounter = 2
	// rankedLimit stands in for the limit of counters that have none.
	rankedLimit = 1000
)

// NewNamespace defines a namespace. A name is defined once: the error of a second definition wraps [ErrDefined], and leaves the
// first one as it is. Other errors name the option and the value.
func (in *Instance) NewNamespace(o NamespaceOptions) (*Namespace, error) {
	n, err := in.define(o)
	if err != nil {
		return nil, fmt.Errorf("ratelimit: namespace %.80q: %w", o.Name, err)
	}
	return n, nil
}

func (in *Instance) define(o NamespaceOptions) (*Namespace, error) {
	switch {
	case !store.ValidNamespace(o.Name):
		return nil, fmt.Errorf("name: want 1 to %d of A-Za-z0-9._-", wire.MaxNamespace)
	case o.Capacity < 0 || o.Capacity > sharedata.MaxCapacity:
		return nil, fmt.Errorf("capacity: want 1 to %d, or 0 for %d, got %d", sharedata.MaxCapacity, defaultCapacity, o.Capacity)
	case o.SyncRate < 0:
		return nil, fmt.Errorf("sync rate: want more than 0, or 0 for %v, got %v", defaultSyncRate, o.SyncRate)
	case o.SyncRate > 0 && o.Store == nil:
		return nil, fmt.Errorf("sync rate: want none without a store, got %v", o.SyncRate)
	case len(o.WindowSizes) > maxLimits:
		return nil, fmt.Errorf("window sizes: want at most %d, got %d", maxLimits, len(o.WindowSizes))
	}
	if o.Capacity == 0 {
		o.Capacity = defaultCapacity
	}
	if o.SyncRate == 0 {
		o.SyncRate = defaultSyncRate
	}
	n := &Namespace{
		name: o.Name, now: in.now, store: o.Store, syncRate: o.SyncRate, onSyncError: o.OnSyncError,
		limiters: map[string]*Limiter{}, capacity: o.Capacity,
		sender: rand.Uint64(), known: map[wire.ID]place{},
	}
	if err := n.compile(&o); err != nil {
		return nil, err
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.namespaces[o.Name] != nil {
		return nil, ErrDefined
	}
	var err error
	n.table, err = sharedata.Open(in.data, sharedata.Options{
		Namespace: o.Name, Capacity: o.Capacity, BytesPerCounter: n.bytesPerCounter(),
	}, rand.Uint64)
	if err != nil {
		return nil, err
	}
	in.namespaces[o.Name] = n
	return n, nil
}

// compile checks and prepares what the namespace counts.
func (n *Namespace) compile(o *NamespaceOptions) error {
	windows := make([]window.Limit, len(o.WindowSizes))
	for i, size := range o.WindowSizes {
		if slices.Contains(o.WindowSizes[:i], size) {
			return fmt.Errorf("window sizes[%d]: want unique sizes, got %v again", i, size)
		}
		windows[i] = SlidingWindow(rankedLimit, size)
		if err := check(&windows[i]); err != nil {
			return fmt.Errorf("window sizes[%d]: %w", i, err)
		}
	}
	// A rule's name has a byte at least, so that the counters without a rule have keys of their own.
	n.windows = n.newRule("", windows)
	for i := range o.Rules {
		r := &o.Rules[i]
		if !validRule(r.Name) {
			return fmt.Errorf("rules[%d].name: want 1 to %d of A-Za-z0-9_-, got %.80q", i, maxRuleName, r.Name)
		}
		if n.limiters[r.Name] != nil {
			return fmt.Errorf("rules[%d].name: want unique names, got %q again", i, r.Name)
		}
		if len(r.Limits) == 0 || len(r.Limits) > maxLimits {
			return fmt.Errorf("rules[%d].limits: want 1 to %d, got %d", i, maxLimits, len(r.Limits))
		}
		limits := slices.Clone(r.Limits)
		for j := range limits {
			if err := check(&limits[j]); err != nil {
				return fmt.Errorf("rules[%d].limits[%d].%w", i, j, err)
			}
		}
		window.SetOrdinals(limits)
		n.limiters[r.Name] = &Limiter{namespace: n, rule: n.newRule(r.Name, limits), countRejected: r.CountRejected}
	}
	return nil
}

// rule is what is counted together for a key.
type rule struct {
	counter counter.Rule
	prefix  []byte // of its keys
}

func (n *Namespace) newRule(name string, limits []window.Limit) *rule {
	r := &rule{counter: counter.Rule{Limits: limits}, prefix: counter.AppendPart(nil, name)}
	if n.store != nil {
		r.counter.SyncRate = int64(n.syncRate)
	}
	r.counter.Compile()
	n.rules = append(n.rules, r)
	return r
}

// bytesPerCounter is what a counter of the largest rule takes.
func (n *Namespace) bytesPerCounter() int {
	extra := 0
	for _, r := range n.rules {
		extra = max(extra, r.counter.ExtraBytes())
	}
	return sharedata.BytesPerCounter + extra
}
