package ratelimit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	"weir/internal/counter"
	"weir/internal/node"
	"weir/internal/store"
	"weir/internal/wire"
	"weir/sharedata"
	"weir/window"
)

var (
	// ErrDefined is wrapped by the error of a second definition of a namespace in an [Instance].
	ErrDefined = errors.New("already defined")
	// ErrNotDefined is wrapped by errors of windows and rules that a namespace was not defined
	// with.
	ErrNotDefined = errors.New("not defined")
	// ErrClosed is wrapped by the error of a decision or a count after [Namespace.Close].
	ErrClosed = errors.New("closed")
	// ErrNoRoom is wrapped by the error of a [Limiter.Wait] that would wait for longer than it may,
	// or behind too many others.
	ErrNoRoom = errors.New("no room in time")
)

// Instance is a set of namespaces that have different names. The zero value is an empty one.
// Programs need none unless several parts of them define namespaces, and must not define one twice.
type Instance struct {
	mu      sync.Mutex
	defined map[string]bool
}

// FailureMode says how requests fare while the backend can't be reached.
type FailureMode uint8

const (
	// FailLocal decides from what is known here, and pushes the hits later.
	FailLocal FailureMode = iota
	// FailAllow lets every request pass, uncounted.
	FailAllow
	// FailDeny lets none pass.
	FailDeny
)

// Options define a namespace. All but the name have defaults.
type Options struct {
	// Name isolates the namespace's counters, in the backend and in an [Instance]: 1 to 64 of
	// A-Za-z0-9._-.
	Name string
	// Rules are the rules of [Namespace.Limiter].
	Rules []Rule
	// Windows are those of [Namespace.Increment] and [Namespace.Rate]. There are at most 256 rules
	// and windows.
	Windows []time.Duration
	// Capacity is how many counters (keys of a rule, or of a window) the namespace is made for,
	// 65,536 if 0. It takes about 96 bytes for each that there is, 48 more for each further limit
	// of the rule with most, and more for logs and sub-buckets. If there are more, the rule or
	// window that has most of a page of them makes room: those with the least share of their limit
	// are forgotten, but their hits are not lost. A counter without a limit ranks as if it had one
	// of 1,000.
	Capacity int
	// Now is the clock, time.Now if nil. Windows follow Unix time.
	Now func() time.Time

	// Backend has the totals of all nodes. Without one the namespace counts in this process only,
	// and the fields that follow are left out. Close it after the namespace, which does not.
	Backend Backend
	// SyncRate is the interval between two pushes of a key, a millisecond or more; 1 s if 0.
	SyncRate time.Duration
	// Exact has the backend decide every request, at once for all of its demands: the sync_rate of
	// 0 of a plugin's configuration. The demands may have 1,024 limits, and fewer of large logs.
	// SyncRate is to be left out then.
	Exact bool
	// Timeout is how long a push may take, and so a request that waits for it, a millisecond or
	// more; 200 ms if 0.
	Timeout time.Duration
	// Collect is how long calls that wait for the backend are collected after a push with others: at
	// thousands a second they wait for half of it longer, and cost less. None are if it is 0.
	Collect time.Duration
	// OnBackendFailure says how requests fare while the backend can't be reached.
	OnBackendFailure FailureMode
	// KeySecret keys the hashes by which the backend knows keys: 16 bytes or more, none if empty.
	// Only nodes of the same secret share counters: proxies have it as backend.key_secret.
	KeySecret string
	// If OnPushError is not nil, it is told why a push has failed. Nothing needs to be done: the
	// hits are pushed again. Goroutines of the namespace call it.
	OnPushError func(error)
}

const (
	defaultCapacity = 1 << 16
	defaultSyncRate = time.Second
	defaultTimeout  = 200 * time.Millisecond
	// minKeySecret is as in the plugin's configuration.
	minKeySecret = 16
	// maxQueue is as in the plugin's configuration.
	maxQueue = 10_000
	// rankedLimit stands in for the limit of counters that have none.
	rankedLimit = 1000
	// maxRules bounds a namespace's rules, as in the plugin's configuration.
	maxRules = 256
)

// NewNamespace makes a namespace. Errors name the option and the value. A namespace with a backend
// is to be closed.
func NewNamespace(o Options) (*Namespace, error) {
	n, err := newNamespace(o)
	if err != nil {
		return nil, fmt.Errorf("ratelimit: namespace %.80q: %w", o.Name, err)
	}
	return n, nil
}

// NewNamespace is the function [NewNamespace], and defines a name once, until the namespace is
// closed: the error of a second definition wraps [ErrDefined], and leaves the first one as it is.
func (in *Instance) NewNamespace(o Options) (*Namespace, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.defined[o.Name] {
		return nil, fmt.Errorf("ratelimit: namespace %.80q: %w", o.Name, ErrDefined)
	}
	n, err := NewNamespace(o)
	if err != nil {
		return nil, err
	}
	if in.defined == nil {
		in.defined = map[string]bool{}
	}
	in.defined[o.Name], n.instance = true, in
	return n, nil
}

// forget lets a name be defined again.
func (in *Instance) forget(name string) {
	in.mu.Lock()
	defer in.mu.Unlock()
	delete(in.defined, name)
}

func newNamespace(o Options) (*Namespace, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	n := &Namespace{
		clock: o.Now, name: o.Name, backend: o.Backend, timeout: o.Timeout, onPushError: o.OnPushError,
		exact: o.Exact, limiters: map[string]*Limiter{}, pushed: make(chan struct{}), gone: make(chan struct{}), shut: make(chan struct{}),
		running: context.Background(),
	}
	n.alarm.namespace = n
	if err := n.compile(&o); err != nil {
		return nil, err
	}
	h := &host{n}
	options := &node.Options{
		Namespace: o.Name, Data: &n.data, Capacity: o.Capacity, Rules: n.rules,
		Random: rand.Uint64,
		Host:   h, Owner: h, Timeout: int64(o.Timeout), Collect: int64(o.Collect), OnBackendFailure: node.FailureMode(o.OnBackendFailure),
		KeySecret: o.KeySecret, Held: n.held,
	}
	var err error
	if n.node, err = node.New(options); err != nil {
		return nil, err
	}
	if o.Backend != nil {
		n.start()
	}
	return n, nil
}

// complete checks the options, and puts the defaults in.
func (o *Options) complete() error {
	switch {
	case !store.ValidNamespace(o.Name):
		return fmt.Errorf("name: want 1 to %d of A-Za-z0-9._-", wire.MaxNamespace)
	case o.Capacity < 0 || o.Capacity > sharedata.MaxCapacity:
		return fmt.Errorf("capacity: want 1 to %d, or 0 for %d, got %d", sharedata.MaxCapacity, defaultCapacity, o.Capacity)
	case o.SyncRate != 0 && (o.SyncRate < time.Millisecond || o.SyncRate > time.Duration(window.MaxWidth)):
		return fmt.Errorf("sync rate: want 1ms to %v, or 0 for %v, got %v", time.Duration(window.MaxWidth), defaultSyncRate, o.SyncRate)
	case o.Timeout != 0 && (o.Timeout < time.Millisecond || o.Timeout > time.Hour):
		return fmt.Errorf("timeout: want 1ms to %v, or 0 for %v, got %v", time.Hour, defaultTimeout, o.Timeout)
	case o.Exact && o.SyncRate != 0:
		return fmt.Errorf("sync rate: want none where the backend decides every request, got %v", o.SyncRate)
	case o.OnBackendFailure > FailDeny:
		return fmt.Errorf("on backend failure: want FailLocal, FailAllow or FailDeny, got %d", o.OnBackendFailure)
	case o.KeySecret != "" && len(o.KeySecret) < minKeySecret:
		return fmt.Errorf("key secret: want %d bytes or more", minKeySecret)
	case o.Backend == nil && (o.KeySecret != "" || o.SyncRate != 0 || o.Exact || o.Timeout != 0 || o.OnBackendFailure != FailLocal):
		return errors.New("backend: want one, as options say how it is used")
	case len(o.Rules)+len(o.Windows) > maxRules:
		return fmt.Errorf("rules: want at most %d with the windows, got %d", maxRules, len(o.Rules)+len(o.Windows))
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Capacity == 0 {
		o.Capacity = defaultCapacity
	}
	if o.SyncRate == 0 && !o.Exact {
		o.SyncRate = defaultSyncRate
	}
	if o.Timeout == 0 {
		o.Timeout = defaultTimeout
	}
	return nil
}

// compile checks and prepares what the namespace counts.
func (n *Namespace) compile(o *Options) error {
	n.rules = make([]node.Rule, 0, len(o.Rules)+len(o.Windows))
	rate := int64(-1)
	if o.Backend != nil {
		rate = int64(o.SyncRate)
	}
	for i := range o.Rules {
		r := &o.Rules[i]
		if !validRule(r.Name) {
			return fmt.Errorf("rules[%d].name: want 1 to %d of A-Za-z0-9_-, got %.80q", i, maxRuleName, r.Name)
		}
		if n.limiters[r.Name] != nil {
			return fmt.Errorf("rules[%d].name: want unique names, got %q again", i, r.Name)
		}
		limits, err := compile(r.Limits)
		if err != nil {
			return fmt.Errorf("rules[%d].%w", i, err)
		}
		if r.Hold < 0 {
			return fmt.Errorf("rules[%d].hold: want 0 or more, got %v", i, r.Hold)
		}
		if r.Delay < 0 || r.Delay > time.Duration(node.MaxDelay) {
			return fmt.Errorf("rules[%d].delay: want up to %v, or 0 for that, got %v", i, time.Duration(node.MaxDelay), r.Delay)
		}
		if r.Queue < 0 || r.Queue > maxQueue {
			return fmt.Errorf("rules[%d].queue: want up to %d, or 0 for that, got %d", i, maxQueue, r.Queue)
		}
		if (r.Reveal < 0 || r.Reveal > maxReveal) && r.Reveal != RevealPlain {
			return fmt.Errorf("rules[%d].reveal: want up to %d, or RevealPlain, got %d", i, maxReveal, r.Reveal)
		}
		if r.Reveal != 0 && o.Backend == nil {
			return fmt.Errorf("rules[%d].reveal: want a backend, which is who is told", i)
		}
		if limits[0].Kind.Held() && r.CountRejected {
			return fmt.Errorf("rules[%d].count_rejected: want none beside InFlight", i)
		}
		n.limiters[r.Name] = &Limiter{
			namespace: n, name: r.Name, limits: told(limits), hold: cmp.Or(r.Hold, usualHold),
			rule: n.add(node.Rule{
				Rule: counter.Rule{Limits: limits}, SyncRate: rate, Prefix: counter.AppendPart(nil, r.Name), CountRejected: r.CountRejected, CostsLater: limits[0].Kind.Held(), Reveal: uint8(r.Reveal),
				Delay: node.Delay{Most: cmp.Or(int64(r.Delay), node.MaxDelay), Queue: cmp.Or(r.Queue, maxQueue)},
			}),
		}
	}
	for i, width := range o.Windows {
		if slices.Contains(o.Windows[:i], width) {
			return fmt.Errorf("windows[%d]: want unique windows, got %v again", i, width)
		}
		limit := SlidingWindow(rankedLimit, width)
		if err := limit.check(); err != nil {
			return fmt.Errorf("windows[%d]: %w", i, err)
		}
		// A rule's name has a byte at least, so that the counters without a rule have keys of their
		// own.
		prefix := counter.AppendPart(counter.AppendPart(nil, ""), strconv.FormatInt(int64(width), 10))
		n.windows = append(n.windows, rated{
			width: width,
			rule:  n.add(node.Rule{Rule: counter.Rule{Limits: []window.Limit{limit.limit}}, SyncRate: rate, Prefix: prefix, Watched: true}),
		})
	}
	return nil
}

// add gives the node a rule. There is room for all.
func (n *Namespace) add(r node.Rule) *node.Rule {
	n.rules = append(n.rules, r)
	return &n.rules[len(n.rules)-1]
}
