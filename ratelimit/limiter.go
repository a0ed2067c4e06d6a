package ratelimit

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"weir/internal/calendar"
	"weir/internal/counter"
	"weir/internal/node"
	"weir/internal/wire"
	"weir/window"
)

// Rule is a named set of limits that are decided together.
type Rule struct {
	// Name is part of the identity of the rule's counters: 1 to 64 of A-Za-z0-9_-.
	Name string
	// Limits are 1 to 8, made by [SlidingWindow] and its like.
	Limits []Limit
	// CountRejected says that what the rule rejects takes its hits too. A window may then go over
	// its limit.
	CountRejected bool
	// Hold is for how long a request may hold what it has acquired of a rule with [InFlight]: then its
	// place is taken for lost. It is ten minutes if it is 0.
	Hold time.Duration
	// Delay is for how long a request may wait for room by [Limiter.Wait], five minutes at most,
	// and as much if it is 0. Queue is how many of a key may wait in the namespace at the same
	// time, 10,000 if it is 0.
	Delay time.Duration
	Queue int
	// Reveal is how many characters of each part of a key the backend may know: up to 64, RevealPlain
	// for all of them, and none if it is 0. weir top then names the keys, and weir usage tells what they
	// have used. It takes a backend.
	Reveal int
}

const (
	// RevealPlain is the Rule.Reveal of keys that are told as they are.
	RevealPlain = 255

	maxReveal = 64
)

const maxRuleName = 64

func validRule(name string) bool {
	for _, c := range []byte(name) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '_', c == '-':
		default:
			return false
		}
	}
	return name != "" && len(name) <= maxRuleName
}

// Key says whose hits are counted: the parts have the values of the key's selectors in a plugin's
// configuration, in their order. Different lists of parts are different keys. A rule with one
// counter for all has the key of no parts, nil.
type Key []string

func (k Key) append(to []byte) []byte {
	for _, part := range k {
		to = counter.AppendPart(to, part)
	}
	return to
}

// Limiter decides by the limits of one rule.
type Limiter struct {
	namespace *Namespace
	name      string
	limits    []Limit
	hold      time.Duration
	rule      *node.Rule
}

// NewLimiter is a limiter of a rule with the name "default", which counts in this process alone. It
// has the counters of all keys: a program makes one for a rule, and not one for each key. It has no
// goroutines, and needs no Close. [NewNamespace] is for all else: rules that are decided together,
// and a backend, by which programs and proxies keep to one limit.
//
// The error says which limit can't be, and why.
func NewLimiter(limits ...Limit) (*Limiter, error) {
	if _, err := compile(limits); err != nil {
		return nil, fmt.Errorf("ratelimit: %w", err)
	}
	const name = "default"
	n, err := NewNamespace(Options{Name: name, Rules: []Rule{{Name: name, Limits: limits}}})
	if err != nil {
		return nil, err
	}
	return n.Limiter(name)
}

// Limiter is the limiter of a rule. The error wraps [ErrNotDefined] if the namespace has no rule of
// that name.
func (n *Namespace) Limiter(rule string) (*Limiter, error) {
	l := n.limiters[rule]
	if l == nil {
		return nil, fmt.Errorf("ratelimit: namespace %q: rule %.80q: %w", n.name, rule, ErrNotDefined)
	}
	return l, nil
}

// sameCalendar reports whether windows of two limits begin at the same times.
func sameCalendar(a, b window.Calendar) bool {
	of, is := a.(*calendar.Calendar)
	other, are := b.(*calendar.Calendar)
	return is == are && (!is || of.Equal(other))
}

// told are limits as programs have them.
func told(compiled []window.Limit) []Limit {
	limits := make([]Limit, len(compiled))
	for i := range compiled {
		limits[i].limit = compiled[i]
	}
	return limits
}

// Name is the rule's.
func (l *Limiter) Name() string { return l.name }

// Limits are the rule's. An override may have moved them for some keys: see [Standing].
func (l *Limiter) Limits() []Limit { return slices.Clone(l.limits) }

// WithLimits is a limiter of the same rule for keys that have other limits, such as those of a
// plan. Their number is the rule's, as are their algorithms, windows and order: only the limits and
// bursts differ, and no log is larger than the rule's. A key's counter stays as it is when its
// limits change, and an override goes before them.
func (l *Limiter) WithLimits(limits ...Limit) (*Limiter, error) {
	other, err := l.withLimits(limits)
	if err != nil {
		return nil, fmt.Errorf("ratelimit: namespace %q: rule %q: %w", l.namespace.name, l.name, err)
	}
	return other, nil
}

func (l *Limiter) withLimits(limits []Limit) (*Limiter, error) {
	compiled, err := compile(limits)
	if err != nil {
		return nil, err
	}
	if len(compiled) != len(l.rule.Limits) {
		return nil, fmt.Errorf("limits: want %d, got %d", len(l.rule.Limits), len(compiled))
	}
	for i := range compiled {
		of := &l.rule.Limits[i]
		switch {
		case compiled[i].Shape != of.Shape || !sameCalendar(compiled[i].Calendar, of.Calendar):
			return nil, fmt.Errorf("limits[%d]: want the algorithm and the window of the rule's", i)
		case of.IsLog() && compiled[i].Max > of.Max:
			return nil, fmt.Errorf("limits[%d]: want at most the rule's %d for a log, got %d", i, of.Max, compiled[i].Max)
		}
	}
	l.namespace.mu.Lock()
	defer l.namespace.mu.Unlock()
	// Hits of a key are not advanced by one limit where another counts them, too.
	l.namespace.node.Vary(l.rule.Index)
	other := *l
	other.limits, other.rule = told(compiled), l.rule.Variant(compiled, nil)
	return &other, nil
}

// OvershootBound is the most hits above a limit of the rule that all nodes can admit together as
// things stand, or have admitted in windows that still count: what [Options.OnBackendFailure] lets
// the other nodes admit while the backend can't be reached. It is none while it can, and no hit
// counts that this process has passed without it. More than 2^53-1 is told as that.
func (l *Limiter) OvershootBound() uint64 {
	l.namespace.mu.Lock()
	defer l.namespace.mu.Unlock()
	return l.namespace.node.Overshoot(l.rule.Index)
}

// Demand asks room of one rule for a request. [Limiter.Demand] makes one.
type Demand struct {
	limiter *Limiter
	key     Key
	cost    uint64
}

// Demand asks for cost hits of a key, as [Limiter.Decide] does, for the function [Decide] to
// decide.
func (l *Limiter) Demand(key Key, cost uint64) Demand { return Demand{l, key, cost} }

// Never is a [Decision.RetryAfter] that no waiting reaches: the cost is above a limit, or a limit
// is 0.
const Never = time.Duration(math.MaxInt64)

// Decision is the answer to a request, and how its limits stand after it.
type Decision struct {
	// Allowed reports whether every limit had room. Then hits were taken from all of them, else
	// from none.
	Allowed bool
	// RetryAfter is 0 if the request was allowed. Otherwise the same request passes after this
	// time, and not before, if nothing else comes. If no waiting helps, it is [Never].
	RetryAfter time.Duration
	// At is when the request was decided, by the backend's clock as far as that is known.
	At time.Time
	// Standing is that of the tightest limit, which has the least remaining. Among equals it is the
	// limit that takes longest, in whole seconds, until one more hit has room, and then the first.
	Standing
	// Standings are those of all limits of all demands, in their order. [Limiter.Decide] leaves
	// them out.
	Standings []Standing
}

// Standing is how a limit stands after a decision.
type Standing struct {
	// Limiter is the rule's, and Index that of the limit among [Limiter.Limits].
	Limiter *Limiter
	Index   int
	// Limit is the limit by which the key was decided: an override may have moved it.
	Limit Limit
	// Remaining is how many hits the limit would still take now.
	Remaining uint64
	// RoomAfter is the time until one more hit has room; 0 while nothing is used.
	RoomAfter time.Duration
	// ResetAfter is the time until the limit's window ends, its newest hit has left it, or its
	// bucket is full. It is 0 if nothing runs.
	ResetAfter time.Duration
}

// Allow reports whether one more hit of a key has room, and then counts it. It is false where there
// is an error, which is as [Decide] says.
func (l *Limiter) Allow(ctx context.Context, key ...string) (bool, error) {
	return l.AllowN(ctx, key, 1)
}

// AllowN reports whether cost hits of a key have room, and then counts them. It is [Limiter.Allow]
// of more hits than one.
func (l *Limiter) AllowN(ctx context.Context, key Key, cost uint64) (bool, error) {
	d, err := l.Decide(ctx, key, cost)
	return d.Allowed, err
}

// Decide asks for cost hits of a key, and counts them if every limit of the rule has room. A cost
// of 0 asks whether the limits are kept as they stand, and takes nothing.
//
// It is the function [Decide] of one demand, without the Standings. Unless it waits, it allocates
// nothing.
func (l *Limiter) Decide(ctx context.Context, key Key, cost uint64) (Decision, error) {
	if cost > 0 && l.holds() {
		return Decision{}, l.wantsAcquire()
	}
	n := l.namespace
	n.mu.Lock()
	c := n.call()
	c.add(l, key, cost)
	return n.decide(ctx, c)
}

func (l *Limiter) wantsAcquire() error {
	return fmt.Errorf("ratelimit: namespace %q: rule %q: want Acquire, as requests give back what they hold", l.namespace.name, l.name)
}

// GiveBack takes hits of a key back that were counted in the present windows, by any node, as far
// as they are: a reservation that was too large, for one. If a key is not known here, GiveBack asks
// the backend for it and waits. Other nodes know after their next push. After [Namespace.Close] the
// error wraps [ErrClosed]. If ctx ends meanwhile, it is the error of ctx. Rules with [InFlight] refuse it: a
// place is given back by who has acquired it.
func (l *Limiter) GiveBack(ctx context.Context, key Key, hits uint64) error {
	if l.holds() {
		return l.wantsAcquire()
	}
	n := l.namespace
	return n.look(ctx, l.rule, key, func(d *node.Demand, now int64) {
		d.Cost = hits
		charge := n.node.Charge(d, now)
		n.node.Revise(&charge, 0, now)
	})
}

// Decide counts the hits of all demands if every limit of every rule has room, and otherwise of
// none. The demands are of rules of one namespace, and of different keys where they are of the same
// rule. A request without demands is allowed.
//
// A request that only the backend can allow waits for it, for [Options.Timeout] at most. If ctx
// ends meanwhile, the error wraps ctx's, and the request's hits are given back; a request that does
// not wait is decided whatever ctx says. After [Namespace.Close] the error wraps [ErrClosed], and
// so it does if Close is cut short while the request waits. The only other errors are of demands
// that can't be decided together, or of more than the backend can be asked for at once where it
// decides every request. A backend that is away is no error: [Options.OnBackendFailure] decides.
// With an error the request is not allowed.
//
// Rules with [InFlight] are for [Acquire]: of them Decide only takes demands that cost nothing.
func Decide(ctx context.Context, demands ...Demand) (Decision, error) {
	return decideAll(ctx, demands, nil)
}

// decideAll is Decide, or if held is not nil Acquire, which sets it to what the request holds.
func decideAll(ctx context.Context, demands []Demand, held **place) (Decision, error) {
	if len(demands) == 0 {
		return Decision{Allowed: true}, nil
	}
	var n *Namespace
	for i := range demands {
		l := demands[i].limiter
		if l == nil {
			return Decision{}, fmt.Errorf("ratelimit: demands[%d]: want one of a limiter", i)
		}
		if i == 0 {
			n = l.namespace
		}
		if held == nil && demands[i].cost > 0 && l.holds() {
			return Decision{}, l.wantsAcquire()
		}
		if l.namespace != n {
			return Decision{}, fmt.Errorf("ratelimit: demands[%d]: want rules of one namespace, got one of %q and one of %q", i, n.name, l.namespace.name)
		}
		if slices.ContainsFunc(demands[:i], func(d Demand) bool { return d.limiter.name == l.name && slices.Equal(d.key, demands[i].key) }) {
			return Decision{}, fmt.Errorf("ratelimit: namespace %q: demands[%d]: want one demand of rule %q for a key", n.name, i, l.name)
		}
	}
	if n.exact {
		if err := fitTake(demands); err != nil {
			return Decision{}, fmt.Errorf("ratelimit: namespace %q: demands: %w", n.name, err)
		}
	}
	n.mu.Lock()
	c := n.call()
	for i := range demands {
		c.add(demands[i].limiter, demands[i].key, demands[i].cost)
	}
	c.all, c.held = true, held
	return n.decide(ctx, c)
}

// fitTake refuses demands that the backend can't be asked for at once: it would refuse the question,
// and each node would decide alone.
func fitTake(demands []Demand) error {
	limits, answer := 0, wire.GrantSize
	for i := range demands {
		of := demands[i].limiter.rule.Limits
		limits += len(of)
		for j := range of {
			answer += wire.RoomSize(&of[j])
		}
	}
	switch {
	case limits > wire.MaxItems:
		return fmt.Errorf("want at most %d limits of all of them where the backend decides every request, got %d", wire.MaxItems, limits)
	case answer > wire.MaxAnswer:
		return fmt.Errorf("want fewer or smaller logs and sub-buckets, of which the backend's answer has at most %d bytes "+
			"where it decides every request, got up to %d", wire.MaxAnswer, answer)
	}
	return nil
}

// call is one call of a namespace's, which may have to wait. Its memory serves one after the other.
type call struct {
	namespace *Namespace
	demands   []node.Demand
	limiters  []*Limiter // of the demands
	all       bool       // whether the decision has all limits
	asking    bool       // whether nothing is to be decided, and totals are waited for
	wait      node.Wait
	told      chan struct{}
	decision  Decision
	held      **place // where what the call holds is to be told; nil if it holds nothing
	patient   bool    // whether the call waits for room
}

// call is a call to use. The lock is held, as it is to release it.
func (n *Namespace) call() (c *call) {
	if last := len(n.calls) - 1; last >= 0 {
		c, n.calls = n.calls[last], n.calls[:last]
	} else {
		c = &call{namespace: n, told: make(chan struct{}, 1)}
		c.wait.Request = c
	}
	n.taken++
	c.demands, c.limiters, c.all, c.asking = c.demands[:0], c.limiters[:0], false, false
	c.held, c.patient, c.wait.Patience = nil, false, -1
	return c
}

func (n *Namespace) release(c *call) {
	n.calls = append(n.calls, c)
	n.taken--
	n.leave()
}

// add adds a demand.
func (c *call) add(l *Limiter, key Key, cost uint64) {
	d := c.demand(l.rule)
	d.Key, d.Cost = key.append(d.Key), cost
	c.limiters = append(c.limiters, l)
}

// demand adds a demand of no hits for what keys of a rule begin with. The memory of the demands
// before serves again.
func (c *call) demand(r *node.Rule) *node.Demand {
	if len(c.demands) < cap(c.demands) {
		c.demands = c.demands[:len(c.demands)+1]
	} else {
		c.demands = append(c.demands, node.Demand{})
	}
	d := &c.demands[len(c.demands)-1]
	d.Rule, d.Cost, d.Key = r, 0, append(d.Key[:0], r.Prefix...)
	return d
}

// decide decides a call, and releases it. The lock is held before, and not after.
func (n *Namespace) decide(ctx context.Context, c *call) (decision Decision, err error) {
	defer n.mu.Unlock()
	defer n.release(c)
	if n.closed {
		return Decision{}, fmt.Errorf("ratelimit: namespace %q: %w", n.name, ErrClosed)
	}
	n.renew()
	now := n.now()
	verdict := n.node.Decide(c.demands, now, &c.wait)
	if verdict != counter.Unsure {
		c.conclude(c.demands, now, verdict)
		return c.decision, nil
	}
	if n.backend == nil {
		n.alarm.arm()
	}
	if err := c.await(ctx); err != nil {
		return Decision{}, err
	}
	return c.decision, nil
}

// Decided implements node.Request. The namespace's lock is held.
func (c *call) Decided(demands []node.Demand, now int64, verdict counter.Verdict) {
	if !c.asking {
		c.conclude(demands, now, verdict)
	}
	c.told <- struct{}{}
}

// await waits until Decided was called. The error is that of ctx, if this ends before, or
// [ErrClosed], if the namespace waits for nothing more. The lock is held before and after.
func (c *call) await(ctx context.Context) error {
	n := c.namespace
	var shut <-chan struct{}
	if c.patient {
		shut = n.shut
	}
	n.mu.Unlock()
	select {
	case <-c.told:
		n.mu.Lock()
		return nil
	case <-ctx.Done():
	case <-n.running.Done():
	case <-shut:
	}
	n.mu.Lock()
	if !c.wait.Waiting() {
		<-c.told // by who held the lock
		return nil
	}
	c.wait.Leave()
	err := ctx.Err()
	if err == nil {
		err = ErrClosed
	}
	what := "the backend"
	if c.patient {
		what = "room"
	}
	return fmt.Errorf("ratelimit: namespace %q: wait for %s: %w", n.name, what, err)
}

// conclude describes what was decided.
func (c *call) conclude(demands []node.Demand, now int64, verdict counter.Verdict) {
	c.hold(demands, now, verdict)
	d := &c.decision
	*d = Decision{Allowed: verdict == counter.Allowed, At: time.Unix(0, now)}
	if !d.Allowed {
		d.RetryAfter = Never
		if at, ok := node.RetryAt(demands, now); ok {
			d.RetryAfter = time.Duration(max(at-now, 1))
		}
	}
	for i := range demands {
		for j := range demands[i].Rule.Limits {
			s := demands[i].Standing(j, now)
			standing := Standing{
				Limiter: c.limiters[i], Index: j, Limit: Limit{limit: demands[i].Rule.Limits[j]}, Remaining: s.Remaining,
				RoomAfter: time.Duration(s.Next), ResetAfter: time.Duration(max(s.Reset, 0)),
			}
			if d.Limiter == nil || standing.tighter(&d.Standing) {
				d.Standing = standing
			}
			if c.all {
				d.Standings = append(d.Standings, standing)
			}
		}
	}
}

// tighter reports whether s is to be told of rather than other, which comes before it.
func (s *Standing) tighter(other *Standing) bool {
	seconds := func(d time.Duration) time.Duration { return (d + time.Second - 1) / time.Second }
	return s.Remaining < other.Remaining || s.Remaining == other.Remaining && seconds(s.RoomAfter) > seconds(other.RoomAfter)
}
