package ratelimit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"weir/internal/counter"
	"weir/internal/engine"
	"weir/internal/failure"
	"weir/internal/wire"
	"weir/sharedata"
	"weir/window"
)

var (
	// ErrDefined is wrapped by the error of defining a namespace twice in an [Instance].
	ErrDefined = errors.New("already defined")
	// ErrNotDefined is wrapped by the error of naming a window or a rule that the namespace does
	// not have.
	ErrNotDefined = errors.New("not defined")
	// ErrClosed is wrapped by the error of any decision or count after [Namespace.Close].
	ErrClosed = errors.New("closed")
	// ErrNoRoom is wrapped by the error of a [Limiter.Wait] that would have to wait too long, or
	// behind too many others.
	ErrNoRoom = errors.New("no room in time")
)

// Instance is a set of namespaces with different names. The zero value is empty and ready to use. A
// program needs one only if several of its parts define namespaces that must not have the same
// name.
type Instance struct {
	mu      sync.Mutex
	defined map[string]bool
}

// FailureMode says how requests are decided while the backend can't be reached.
type FailureMode = failure.Mode

const (
	// FailLocal decides by the counters of this process, and pushes the hits later.
	FailLocal FailureMode = failure.Local
	// FailAllow admits every request without counting it.
	FailAllow FailureMode = failure.Allow
	// FailDeny rejects every request.
	FailDeny FailureMode = failure.Deny
)

// Options define a namespace. All fields but Name have defaults.
type Options struct {
	// Name isolates the namespace's counters, in the backend and in an [Instance]: 1 to 64 of
	// A-Za-z0-9._-.
	Name string
	// Rules are the rules that [Namespace.Limiter] finds by name.
	Rules []Rule
	// Windows are the windows that [Namespace.Increment] and [Namespace.Rate] accept. There may be
	// at most 256 rules and windows together.
	Windows []time.Duration
	// Capacity is how many counters (a rule or window, and a key) the namespace has space for; 0
	// means 65,536. A counter in use takes about 96 bytes, 48 more for each further limit of the
	// rule that has most, and more for logs and sub-buckets. If there are too many counters, the
	// rule or window with the largest share of a page evicts those that have used the least share
	// of their limit. Their hits are still pushed. A counter without a limit ranks as if its limit
	// were 1,000.
	Capacity int
	// Now is the clock; nil means time.Now. Windows follow Unix time.
	Now func() time.Time

	// Backend has the totals of all nodes. Without it the namespace counts in this process only,
	// and the fields below must be left out. Closing the namespace does not close it: close it
	// afterwards.
	Backend Backend
	// SyncRate is the interval between two pushes of a key, at least 1 ms; 0 means 1 s.
	SyncRate time.Duration
	// Exact lets the backend decide every request, with a single question for all of its demands.
	// It is the plugin's sync_rate of 0. The demands of a request may have 1,024 limits in all,
	// fewer with large logs. SyncRate must be 0.
	Exact bool
	// Timeout bounds a push, and so the wait of a request for it. It is at least 1 ms; 0 means 200
	// ms.
	Timeout time.Duration
	// Collect is how long calls that have to ask the backend are collected while the answer to others
	// is under way, so that one push asks for all of them once it is here, which costs less. After that
	// time the next call sends the push, or a tick if answers take longer. 0 collects none.
	Collect time.Duration
	// OnBackendFailure says how requests are decided while the backend can't be reached.
	OnBackendFailure FailureMode
	// KeySecret keys the hashes that name keys in the backend. It has at least 16 bytes; empty
	// means none. Only nodes with the same secret share counters. Proxies configure it as
	// backend.key_secret.
	KeySecret string
	// OnPushError is called with the error of each failed push, if it is not nil. There is nothing
	// to do: the hits are pushed again. Goroutines of the namespace call it, possibly at the same
	// time.
	OnPushError func(error)
}

const (
	defaultCapacity = 1 << 16
	defaultSyncRate = time.Second
	defaultTimeout  = 200 * time.Millisecond
	// minKeySecret is the same as in the plugin's configuration.
	minKeySecret = 16
	// maxQueue is the same as in the plugin's configuration.
	maxQueue = 10_000
	// rankedLimit is the limit that ranks counters without a limit.
	rankedLimit = 1000
	// maxRules bounds a namespace's rules, as in the plugin's configuration.
	maxRules = 256
)

// NewNamespace makes a namespace. An error names the option and its value. A namespace with a
// backend must be closed.
func NewNamespace(o Options) (*Namespace, error) {
	n, err := newNamespace(o)
	if err != nil {
		return nil, fmt.Errorf("ratelimit: namespace %.80q: %w", o.Name, err)
	}
	return n, nil
}

// NewNamespace is the function [NewNamespace], but defines each name only once: until the first
// namespace of a name is closed, the error of a second definition wraps [ErrDefined].
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

// forget frees a name.
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
		clock: newWatch(o.Now), collects: o.Collect > 0, name: o.Name, backend: o.Backend, timeout: o.Timeout, onPushError: o.OnPushError,
		inline: o.Timeout <= longestOwn && keepsDeadlines(o.Backend),
		exact:  o.Exact, limiters: map[string]*Limiter{}, windows: map[time.Duration]*engine.Rule{}, pushed: make(chan struct{}), gone: make(chan struct{}), shut: make(chan struct{}),
		broken:  make(chan struct{}),
		running: context.Background(),
	}
	n.alarm.namespace = n
	if err := n.compile(&o); err != nil {
		return nil, err
	}
	h := &host{n}
	n.options = &engine.Options{
		Namespace: o.Name, Data: &n.data, Lends: &n.data, Capacity: o.Capacity, Rules: n.rules,
		Random: rand.Uint64,
		Host:   h, Owner: h, Timeout: int64(o.Timeout), Collect: int64(o.Collect), OnBackendFailure: o.OnBackendFailure,
		KeySecret: o.KeySecret, InFlight: n.held,
	}
	n.modes = make([]wire.Mode, len(n.rules))
	var err error
	if n.node, err = engine.New(n.options); err != nil {
		return nil, err
	}
	if o.Backend != nil {
		n.start()
	}
	n.steer()
	return n, nil
}

// complete checks the options, and fills in the defaults.
func (o *Options) complete() error {
	switch {
	case !wire.IsNamespace(o.Name):
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
		return errors.New("backend: want a backend, because options for it are set")
	case len(o.Rules)+len(o.Windows) > maxRules:
		return fmt.Errorf("rules: want at most %d rules and windows, got %d", maxRules, len(o.Rules)+len(o.Windows))
	}
	o.Capacity, o.Timeout = cmp.Or(o.Capacity, defaultCapacity), cmp.Or(o.Timeout, defaultTimeout)
	if !o.Exact {
		o.SyncRate = cmp.Or(o.SyncRate, defaultSyncRate)
	}
	return nil
}

// compile checks and prepares what the namespace counts.
func (n *Namespace) compile(o *Options) error {
	n.rules = make([]engine.Rule, 0, len(o.Rules)+len(o.Windows))
	rate := int64(-1)
	if o.Backend != nil {
		rate = int64(o.SyncRate)
	}
	for i := range o.Rules {
		r := &o.Rules[i]
		if !wire.IsName(r.Name) {
			return fmt.Errorf("rules[%d].name: want 1 to %d of A-Za-z0-9_-, got %.80q", i, wire.MaxName, r.Name)
		}
		if n.limiters[r.Name] != nil {
			return fmt.Errorf("rules[%d].name: want unique names, got %q twice", i, r.Name)
		}
		limits, err := compile(r.Limits)
		if err != nil {
			return fmt.Errorf("rules[%d].%w", i, err)
		}
		if r.Hold < 0 {
			return fmt.Errorf("rules[%d].hold: want 0 or more, got %v", i, r.Hold)
		}
		if r.Delay < 0 || r.Delay > time.Duration(engine.MaxDelay) {
			return fmt.Errorf("rules[%d].delay: want 0 (for the most) to %v, got %v", i, time.Duration(engine.MaxDelay), r.Delay)
		}
		if r.Queue < 0 || r.Queue > maxQueue {
			return fmt.Errorf("rules[%d].queue: want 0 (for the most) to %d, got %d", i, maxQueue, r.Queue)
		}
		if (r.Reveal < 0 || r.Reveal > maxReveal) && r.Reveal != RevealPlain {
			return fmt.Errorf("rules[%d].reveal: want 0 to %d, or RevealPlain, got %d", i, maxReveal, r.Reveal)
		}
		if r.Reveal != 0 && o.Backend == nil {
			return fmt.Errorf("rules[%d].reveal: want a backend, because only it sees keys", i)
		}
		if limits[0].Kind.Held() && r.CountRejected {
			return fmt.Errorf("rules[%d].count_rejected: want false with InFlight", i)
		}
		n.limiters[r.Name] = &Limiter{
			namespace: n, name: r.Name, hold: cmp.Or(r.Hold, usualHold),
			rule: n.add(engine.Rule{
				Rule: counter.Rule{Limits: limits}, SyncRate: rate, Prefix: counter.AppendPart(nil, r.Name), CountRejected: r.CountRejected, CostsLater: limits[0].Kind.Held(), Reveal: uint8(r.Reveal),
				Delay: engine.Delay{Most: cmp.Or(int64(r.Delay), engine.MaxDelay), Queue: cmp.Or(r.Queue, maxQueue)},
			}),
		}
	}
	for i, width := range o.Windows {
		if n.windows[width] != nil {
			return fmt.Errorf("windows[%d]: want unique windows, got %v twice", i, width)
		}
		limit := SlidingWindow(rankedLimit, width)
		if err := limit.check(); err != nil {
			return fmt.Errorf("windows[%d]: %w", i, err)
		}
		// A rule's name is never empty, so these keys differ from those of all rules.
		prefix := counter.AppendPart(counter.AppendPart(nil, ""), strconv.FormatInt(int64(width), 10))
		n.windows[width] = n.add(engine.Rule{Rule: counter.Rule{Limits: []window.Limit{limit.limit}}, SyncRate: rate, Prefix: prefix, Watched: true})
	}
	return nil
}

// add gives the node a rule. n.rules has the capacity for all.
func (n *Namespace) add(r engine.Rule) *engine.Rule {
	n.rules = append(n.rules, r)
	return &n.rules[len(n.rules)-1]
}
