package ratelimit

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"time"

	"weir/internal/calendar"
	"weir/internal/counter"
	"weir/internal/engine"
	"weir/internal/wire"
	"weir/window"
)

// Rule is a named set of limits that are decided together.
type Rule struct {
	// Name is part of the identity of the rule's counters: 1 to 64 of A-Za-z0-9_-.
	Name string
	// Limits are 1 to 8, made by [SlidingWindow] and its like.
	Limits []Limit
	// CountRejected makes rejected requests take their hits too. A window may then hold more hits
	// than its limit.
	CountRejected bool
	// Hold is how long a request may keep a place that it has acquired from a rule with [InFlight].
	// After that, the place counts as lost and becomes free. 0 means ten minutes.
	Hold time.Duration
	// Delay is the longest time that [Limiter.Wait] may wait for room. 0 means five minutes, the
	// most. Queue is how many calls for one key may wait in the namespace at the same time. 0 means
	// 10,000, the most.
	Delay time.Duration
	Queue int
	// Reveal is how many characters of each part of a key the backend may see: up to 64,
	// RevealPlain for all, 0 for none. weir top then shows the keys by name, and weir usage shows
	// how much each has used. It requires a backend.
	Reveal int
}

const (
	// RevealPlain is the Rule.Reveal that shows keys unchanged.
	RevealPlain = 255

	maxReveal = 64
)

// Key names the counter to use. Its parts are the values of the key's selectors in a plugin's
// configuration, in their order. Different lists of parts are different keys: ("a", "bc") and
// ("ab", "c") don't share a counter. A rule with a single counter uses nil.
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
	hold      time.Duration
	rule      *engine.Rule
}

// NewLimiter makes a limiter for a rule named "default" that counts in this process alone. It holds
// the counters of all keys, so make a single limiter per rule, not one per key. It runs no
// goroutines, and needs no Close. Use [NewNamespace] to decide several rules together, or to share
// limits through a backend.
//
// The error says which limit is invalid, and why.
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

// Limiter returns the limiter of a rule. The error wraps [ErrNotDefined] if the namespace has no
// rule of that name.
func (n *Namespace) Limiter(rule string) (*Limiter, error) {
	l := n.limiters[rule]
	if l == nil {
		return nil, fmt.Errorf("ratelimit: namespace %q: rule %.80q: %w", n.name, rule, ErrNotDefined)
	}
	return l, nil
}

// sameCalendar reports whether the windows of two limits begin at the same times.
func sameCalendar(a, b window.Calendar) bool {
	of, is := a.(*calendar.Calendar)
	other, are := b.(*calendar.Calendar)
	return is == are && (!is || of.Equal(other))
}

// Namespace returns the namespace of the rule.
func (l *Limiter) Namespace() *Namespace { return l.namespace }

// Name returns the name of the rule.
func (l *Limiter) Name() string { return l.name }

// Limits returns a copy of the rule's limits. An override may have changed them for some keys: see
// [Standing].
func (l *Limiter) Limits() []Limit {
	limits := make([]Limit, len(l.rule.Limits))
	for i := range limits {
		limits[i].limit = l.rule.Limits[i]
	}
	return limits
}

// WithLimits returns a limiter of the same rule for keys with other limits, such as those of a
// plan. The limits must have the number, order, algorithms and windows of the rule's: only the
// limits and bursts may differ, and no sliding log may be larger than the rule's. A key keeps its
// counter when its limits change. Overrides that were set at run time take precedence. The error
// says which limit does not fit.
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
			return nil, fmt.Errorf("limits[%d]: want the algorithm and window of the rule's own limit", i)
		case of.IsLog() && compiled[i].Max > of.Max:
			return nil, fmt.Errorf("limits[%d]: want a sliding log of at most the rule's %d, got %d", i, of.Max, compiled[i].Max)
		}
	}
	l.namespace.mu.Lock()
	defer l.namespace.mu.Unlock()
	other := *l
	other.rule = l.rule.Variant(compiled)
	return &other, nil
}

// OvershootBound returns the most hits above a limit of the rule that all nodes together can admit
// now, or have admitted in windows that still count. The other nodes admit such hits by
// [Options.OnBackendFailure] while they can't reach the backend. It is 0 while this node can reach it, once
// no hit counts that this node admitted without it. It is at most 2^53-1.
func (l *Limiter) OvershootBound() uint64 {
	l.namespace.mu.Lock()
	defer l.namespace.mu.Unlock()
	return l.namespace.node.Overshoot(l.rule.Index)
}

// Demand asks a rule for hits of a key. [Limiter.Demand] makes one.
type Demand struct {
	limiter *Limiter
	key     Key
	cost    uint64
}

// Demand returns a demand for cost hits of a key, to pass to the function [Decide]. A cost of 0
// asks without taking: see [Limiter.Decide].
func (l *Limiter) Demand(key Key, cost uint64) Demand { return Demand{l, key, cost} }

// Never is the [Decision.RetryAfter] of a request that no waiting helps, because its cost is above
// a limit or a limit is 0.
const Never = time.Duration(math.MaxInt64)

// Decision is the answer to a request, and how its limits stand after it.
type Decision struct {
	// Allowed reports whether every limit had room. If so, the request took its hits from all of
	// them, otherwise from none.
	Allowed bool
	// RetryAfter is 0 if the request was allowed. Otherwise the same request would pass after this
	// time, and no sooner, if no other hits come. It is [Never] if no waiting helps.
	RetryAfter time.Duration
	// At is the time of the decision, by the backend's clock if that is known.
	At time.Time
	// Standing is how the tightest limit stands: the limit with the least remaining. Among equals
	// it is the limit with the longest RoomAfter, in whole seconds, and then the first.
	Standing
	// Standings has all limits of all demands, in their order. [Limiter.Decide] leaves it empty.
	Standings []Standing
}

// Standing is how a limit stands after a decision.
type Standing struct {
	// Limiter is that of the rule, and Index says which of [Limiter.Limits] this is.
	Limiter *Limiter
	Index   int
	// Limit is the limit that decided. An override may have changed it for this key.
	Limit Limit
	// Remaining is how many hits the limit would still take now. It is all of them while an operator
	// has switched the rule off or set it to shadow mode.
	Remaining uint64
	// RoomAfter is the time until one more hit has room. It is 0 while nothing is used, and for requests in flight while there
	// is a place.
	RoomAfter time.Duration
	// ResetAfter is the time until the window ends, or the newest hit has left it, or the bucket is
	// full. It is 0 if the limit has no hits and no window of the clock.
	ResetAfter time.Duration
}

// Allow counts one hit of a key if it has room, and reports whether it did. With an error it
// returns false; see [Decide] for the errors.
func (l *Limiter) Allow(ctx context.Context, key ...string) (bool, error) {
	return l.AllowN(ctx, key, 1)
}

// AllowN counts cost hits of a key if all of them have room, and reports whether it did. With an
// error it returns false; see [Decide] for the errors.
func (l *Limiter) AllowN(ctx context.Context, key Key, cost uint64) (bool, error) {
	verdict, broken := l.takeBeside(key, cost, nil)
	if verdict == counter.Unsure {
		return l.allow(ctx, key, cost, broken)
	}
	return verdict == counter.Allowed, nil
}

//go:noinline // so that AllowN has no Decision, which would be cleared
func (l *Limiter) allow(ctx context.Context, key Key, cost uint64, broken error) (bool, error) {
	var d Decision
	err := l.decide(ctx, key, cost, true, broken, &d)
	return d.Allowed, err
}

// Decide counts cost hits of a key if every limit of the rule has room. A cost of 0 asks whether
// the limits are kept, and takes nothing. With a backend it waits if this node has heard nothing of
// the key for [Options.SyncRate], so that the hits of other nodes count.
//
// It is the function [Decide] for one demand, without the Standings. Unless it waits, it allocates
// nothing.
func (l *Limiter) Decide(ctx context.Context, key Key, cost uint64) (d Decision, err error) {
	verdict, broken := l.takeBeside(key, cost, &d)
	if verdict == counter.Unsure {
		err = l.decide(ctx, key, cost, false, broken, &d)
	}
	return d, err
}

// decide is Decide with the namespace's lock, after takeBeside. If brief is set, nobody asks how the limits stand.
func (l *Limiter) decide(ctx context.Context, key Key, cost uint64, brief bool, broken error, to *Decision) error {
	if cost > 0 && l.holds() {
		return l.wantsAcquire()
	}
	n := l.namespace
	n.mu.Lock()
	c := n.call()
	c.brief = brief
	c.add(l, key, cost)
	return n.decide(ctx, c, to, broken)
}

// shortKey is the longest key, with its rule's prefix, of a call that is decided without the lock, in bytes.
const shortKey = 128

// takeBeside decides a call without the lock, beside others, if its hits need no more than counting, or have no room. Otherwise it
// is unsure. to may be nil if nobody asks how the limits stand. An error is that of guard.
func (l *Limiter) takeBeside(key Key, cost uint64, to *Decision) (verdict counter.Verdict, err error) {
	n := l.namespace
	node := n.beside.Load()
	length := len(l.rule.Prefix)
	for _, part := range key {
		length += binary.MaxVarintLen32 + len(part)
	}
	if node == nil || length > shortKey {
		return counter.Unsure, nil
	}
	defer func() {
		if reason := recover(); reason != nil {
			n.mu.Lock()
			defer n.mu.Unlock()
			verdict, err = counter.Unsure, n.fail(reason)
		}
	}()
	var buffer [shortKey]byte
	of := key.append(append(buffer[:0], l.rule.Prefix...))
	now := n.clock.now() // after the key is written, so that its bytes have arrived when their hash reads them as words
	if to != nil {
		return l.takeAndTell(node, of, cost, now, to), nil
	}
	return node.TakeInPlace(l.rule, of, cost, now, nil), nil
}

// takeAndTell is takeBeside for a caller who asks how the limits stand.
func (l *Limiter) takeAndTell(node *engine.Engine, key []byte, cost uint64, now int64, to *Decision) (verdict counter.Verdict) {
	var standings [wire.MaxLimits]window.Standing
	told := counter.Told{Standings: standings[:]}
	if verdict = node.TakeInPlace(l.rule, key, cost, now, &told); verdict == counter.Unsure {
		return verdict
	}
	*to = Decision{Allowed: verdict == counter.Allowed, At: time.Unix(0, now)}
	if !to.Allowed {
		if to.RetryAfter = Never; told.FitsAt != 0 {
			to.RetryAfter = time.Duration(max(told.FitsAt-now, 1))
		}
	}
	for i := range l.rule.Limits {
		if s := l.standing(i, &l.rule.Limits[i], standings[i]); i == 0 || s.tighter(&to.Standing) {
			to.Standing = s
		}
	}
	return verdict
}

// standing is how one of a rule's limits stands, which may be an override's.
func (l *Limiter) standing(index int, limit *window.Limit, s window.Standing) Standing {
	return Standing{
		Limiter: l, Index: index, Limit: Limit{limit: *limit},
		Remaining: s.Remaining, RoomAfter: time.Duration(s.Next), ResetAfter: time.Duration(max(s.Reset, 0)),
	}
}

func (l *Limiter) wantsAcquire() error {
	return fmt.Errorf("ratelimit: namespace %q: rule %q: want Acquire for a rule with InFlight, whose places are given back", l.namespace.name, l.name)
}

// GiveBack returns hits of a key that any node has counted in the present windows, such as a
// reservation that was too large, the newest first. It never returns more than were counted. Of a
// sliding window's past, whose share is rounded, they may make room for one hit fewer. Hits of
// this node that no push has yet come back at once. For others, if this node knows of fewer, or has
// heard nothing of the key for [Options.SyncRate], GiveBack asks the backend. It waits for that, and
// for pushes under way, so that the next request of this node finds the hits. Hits that another node has
// not pushed yet stay counted. Other nodes see the change after their next push. The error is that of
// ctx if ctx ends first, when some hits may be back, and wraps [ErrClosed] after [Namespace.Close]. A
// rule with [InFlight] has an error: whoever acquired a place returns it by [Held].
func (l *Limiter) GiveBack(ctx context.Context, key Key, hits uint64) error {
	if l.holds() {
		return l.wantsAcquire()
	}
	n := l.namespace
	looked := false
	err := n.look(ctx, l.rule, key, hits, func(d *engine.Check, hits uint64, now int64) {
		looked = true
		n.node.Charges.GiveBack(d, hits, now)
	})
	if err != nil || !looked || n.backend == nil {
		return err
	}
	// The backend decides the next request with these hits. If it decides every request, it has to have
	// heard of them; otherwise the question tells it, unless an earlier push of the key has no answer yet.
	n.mu.Lock()
	defer n.mu.Unlock()
	for range 2 {
		n.node.PushCharges()
		if err := n.drain(ctx, n.sent); err != nil {
			return fmt.Errorf("ratelimit: namespace %q: give back: %w", n.name, err)
		}
	}
	return nil
}

// Decide counts the hits of all demands if every limit of every rule has room, and otherwise none.
// All demands must be on rules of one namespace, and demands on the same rule must have different
// keys. A request without demands is allowed.
//
// A request waits only if the backend alone can allow it, and at most for [Options.Timeout]. If ctx
// ends meanwhile, the hits are given back and the error wraps that of ctx; a request that does not
// wait is decided even if ctx has ended. A request that asks a [Client] or a Store
// keeps to ctx's deadline, but if ctx is cancelled while its question is under way, the answer still decides, or
// [Options.OnBackendFailure] once the question is given up, within Options.Timeout. The error wraps [ErrClosed] after [Namespace.Close], and
// if Close is cut short while the request waits. All other errors are about the demands: they can't
// be decided together, or with [Options.Exact] they are more than one push can ask for. A backend
// that can't be reached is no error: [Options.OnBackendFailure] decides. With an error the request
// is not allowed.
//
// Demands that cost something on a rule with [InFlight] need [Acquire].
//
// An operator can change limits at run time, switch a rule off, or set it to shadow mode, by weir
// override and weir rule. A demand on a rule that is off passes uncounted. One on a rule in shadow mode
// is counted if the others pass and it has room, and refuses nothing; it is not waited for.
func Decide(ctx context.Context, demands ...Demand) (Decision, error) {
	return decideAll(ctx, demands, nil)
}

// decideAll is Decide if held is nil, and otherwise Acquire: it sets held to what the request
// holds.
func decideAll(ctx context.Context, demands []Demand, held **place) (d Decision, err error) {
	if len(demands) == 0 {
		return Decision{Allowed: true}, nil
	}
	var n *Namespace
	for i := range demands {
		l := demands[i].limiter
		if l == nil {
			return Decision{}, fmt.Errorf("ratelimit: demands[%d]: want a demand made by Limiter.Demand", i)
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
	}
	if i := repeated(demands); i > 0 {
		return Decision{}, fmt.Errorf("ratelimit: namespace %q: demands[%d]: want a single demand of rule %q for each key", n.name, i, demands[i].limiter.name)
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
	err = n.decide(ctx, c, &d, nil)
	return d, err
}

// fitTake returns an error if the demands are more than one push can ask for. The backend would
// refuse the question, and each node would decide alone.
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
		return fmt.Errorf("want at most %d limits in all where the backend decides every request, got %d", wire.MaxItems, limits)
	case answer > wire.MaxAnswer:
		return fmt.Errorf("want fewer or smaller logs and sub-buckets: the backend's answer has at most %d bytes "+
			"where it decides every request, got up to %d", wire.MaxAnswer, answer)
	}
	return nil
}

// call is one call of a namespace's methods, which may have to wait. Calls are reused.
type call struct {
	namespace *Namespace
	demands   []engine.Check
	limiters  []*Limiter // of the demands
	aside     []aside    // demands on rules that were moved, in their order
	all       bool       // whether the decision needs the Standings
	brief     bool       // whether it only needs the verdict
	asking    bool       // whether it decides nothing and only waits for totals
	heard     bool       // whether the backend has told these
	wait      engine.Wait
	told      chan struct{}
	decision  Decision
	held      **place       // where to put the places of a call of Acquire; otherwise nil
	patient   bool          // whether the call waits for room
	broken    chan struct{} // the namespace's, when the call began
}

// call returns a call from the free list, or a new one. The caller of call and of release holds the
// lock.
func (n *Namespace) call() (c *call) {
	if last := len(n.calls) - 1; last >= 0 {
		c, n.calls = n.calls[last], n.calls[:last]
	} else {
		c = &call{namespace: n, told: make(chan struct{}, 1)}
		c.wait.Request = c
	}
	n.taken++
	c.demands, c.limiters, c.aside, c.all, c.brief, c.asking, c.heard = c.demands[:0], c.limiters[:0], c.aside[:0], false, false, false, false
	c.held, c.patient, c.wait.Patience, c.broken = nil, false, -1, n.broken
	return c
}

func (n *Namespace) release(c *call) {
	n.calls = append(n.calls, c)
	n.taken--
	n.leave()
	n.steer()
}

func (c *call) add(l *Limiter, key Key, cost uint64) {
	if mode := c.namespace.modes[l.rule.Index]; mode == wire.Shadow || mode == wire.Off {
		c.putAside(l, key, cost, mode)
		return
	}
	d := c.demand(l.rule)
	d.Key, d.Cost = key.append(d.Key), cost
	c.limiters = append(c.limiters, l)
}

// demand adds a demand without hits, whose key begins with the rule's prefix. It reuses the memory
// of earlier demands.
func (c *call) demand(r *engine.Rule) *engine.Check {
	c.demands = slices.Grow(c.demands, 1)[:len(c.demands)+1]
	d := &c.demands[len(c.demands)-1]
	d.Rule, d.Cost, d.Key = r, 0, append(d.Key[:0], r.Prefix...)
	return d
}

// decide decides a call, and releases it. broken is the error of an attempt without the lock that panicked; nil if there
// was none. The caller holds the lock; decide unlocks it.
func (n *Namespace) decide(ctx context.Context, c *call, to *Decision, broken error) (err error) {
	defer n.mu.Unlock()
	defer n.release(c)
	if n.closed {
		return fmt.Errorf("ratelimit: namespace %q: %w", n.name, ErrClosed)
	}
	if !c.patient {
		n.caller = ctx
	}
	decided := false
	if broken == nil {
		decided, broken = c.attempt(to)
	}
	own := n.own
	n.caller, n.own = nil, nil
	if own != nil && (broken != nil || decided) {
		go own.send()
	}
	switch {
	case broken != nil:
		err = c.decideAlone()
		*to = c.decision
		return err
	case decided:
		return nil
	}
	if n.backend == nil {
		n.alarm.arm()
		n.steer()
	}
	if own != nil {
		n.sendOwn(own)
	}
	if err = c.await(ctx); err == nil {
		*to = c.decision
	}
	return err
}

// sendOwn sends a call's own push without the lock, which is held again after it, however the push ends.
func (n *Namespace) sendOwn(p *pushing) {
	n.mu.Unlock()
	defer n.mu.Lock()
	p.send()
}

// attempt decides a call if it need not wait. An error is that of guard.
func (c *call) attempt(to *Decision) (decided bool, err error) {
	n := c.namespace
	defer n.rescue(&err)
	n.renew()
	now := n.now()
	verdict := n.node.Decide(c.demands, now, &c.wait)
	if decided = verdict != counter.Unsure; decided {
		c.conclude(to, c.demands, now, verdict)
	}
	return decided, nil
}

// afterPanic ends the wait of a call whose node has panicked, unless it was told before. The caller holds
// the lock.
func (c *call) afterPanic() error {
	select {
	case <-c.told:
		return nil
	default:
		return c.decideAlone()
	}
}

// decideAlone decides a call whose node has panicked, as while the backend is away. The caller holds the
// lock.
func (c *call) decideAlone() error {
	c.wait = engine.Wait{Request: c}
	if c.asking {
		return nil
	}
	n := c.namespace
	err := n.guard(func() {
		now := n.now()
		c.conclude(&c.decision, c.demands, now, n.node.DecideAlone(c.demands, now))
	})
	if err != nil {
		c.decision = Decision{}
	}
	return err
}

// Decided implements engine.Request. The namespace's lock is held.
func (c *call) Decided(demands []engine.Check, now int64, verdict counter.Verdict) {
	if c.heard = c.asking && verdict == counter.Allowed; !c.asking {
		c.conclude(&c.decision, demands, now, verdict)
	}
	c.told <- struct{}{}
}

// await waits until Decided was called. The error is that of ctx if ctx ends first, and [ErrClosed]
// if Close ends the wait. The caller holds the lock before and after.
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
	case <-c.broken:
		n.mu.Lock()
		return c.afterPanic()
	case <-ctx.Done():
	case <-n.running.Done():
	case <-shut:
	}
	n.mu.Lock()
	if n.broken != c.broken {
		return c.afterPanic()
	}
	if !c.wait.Waiting() {
		<-c.told // Decided was called while this goroutine waited for the lock
		return nil
	}
	c.wait.Leave()
	what := "the backend"
	if c.patient {
		what = "room"
	}
	return fmt.Errorf("ratelimit: namespace %q: wait for %s: %w", n.name, what, cmp.Or(ctx.Err(), ErrClosed))
}

// conclude fills in the decision.
func (c *call) conclude(d *Decision, demands []engine.Check, now int64, verdict counter.Verdict) {
	allowed := verdict == counter.Allowed
	if allowed && c.held != nil {
		*c.held = c.namespace.take(demands, c.limiters, now)
	}
	c.decideAside(now, allowed)
	if c.brief {
		d.Allowed = allowed
		return
	}
	*d = Decision{Allowed: allowed, At: time.Unix(0, now)}
	if !allowed {
		d.RetryAfter = Never
		if at, ok := engine.RetryAt(demands, now); ok {
			d.RetryAfter = time.Duration(max(at-now, 1))
		}
	}
	for i, asides := 0, c.aside; i < len(demands) || len(asides) > 0; {
		if len(asides) > 0 && asides[0].after == i {
			c.tell(d, &asides[0].check[0], asides[0].limiter, now, len(demands) == 0, true)
			asides = asides[1:]
			continue
		}
		c.tell(d, &demands[i], c.limiters[i], now, true, false)
		i++
	}
}

// tell adds the standings of a demand to the decision. tightest says whether one of them may be the
// tightest, and open that the rule refuses nothing.
func (c *call) tell(d *Decision, demand *engine.Check, l *Limiter, now int64, tightest, open bool) {
	for j := range demand.Rule.Limits {
		s := demand.Standing(j, now)
		limit := &demand.Rule.Limits[j]
		if open {
			s.Remaining, s.Next = limit.Quota(), 0
		}
		standing := l.standing(j, limit, s)
		tightest := tightest && (d.Limiter == nil || standing.tighter(&d.Standing))
		if tightest {
			d.Standing = standing
		}
		if c.all {
			d.Standings = append(d.Standings, standing)
		}
	}
}

// tighter reports whether s is the tighter limit of the two. other comes first in the
// configuration.
func (s *Standing) tighter(other *Standing) bool {
	seconds := func(d time.Duration) time.Duration { return (d + time.Second - 1) / time.Second }
	return s.Remaining < other.Remaining || s.Remaining == other.Remaining && seconds(s.RoomAfter) > seconds(other.RoomAfter)
}
