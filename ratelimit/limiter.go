package ratelimit

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

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
	Limits []window.Limit
	// CountRejected says that what the rule rejects takes its hits too. A window may then go over
	// its limit.
	CountRejected bool
}

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

// Limiter decides by the limits of one rule.
type Limiter struct {
	namespace *Namespace
	name      string
	rule      *node.Rule
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

// Name is the rule's.
func (l *Limiter) Name() string { return l.name }

// Limits are the rule's. An override may have moved them for some keys: see [Standing].
func (l *Limiter) Limits() []window.Limit { return slices.Clone(l.rule.Limits) }

// Overshoot is the most hits above a limit of the rule that all nodes can admit together as things
// stand, or have admitted in windows that still count: what [NamespaceOptions.OnBackendFailure] lets
// the other nodes admit while the backend can't be reached. It is none while it can, and no hit
// counts that this process has passed without it. More than 2^53-1 is told as that.
func (l *Limiter) Overshoot() uint64 {
	l.namespace.mu.Lock()
	defer l.namespace.mu.Unlock()
	return l.namespace.node.Overshoot(l.rule.Index)
}

// Demand is what a request asks of one rule.
type Demand struct {
	// Limiter is the rule's.
	Limiter *Limiter
	// Cost is how many hits the request takes. 0 asks whether the limits are kept as they stand,
	// and takes nothing.
	Cost uint64
	// Key has the values of the key's selectors in a plugin's configuration: none for a rule with
	// one counter for all. Different lists of parts are different keys.
	Key []string
}

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
	// Now is when the request was decided, by the backend's clock as far as that is known.
	Now time.Time
	// Standing is that of the tightest limit: the one with the least remaining. Among equals it is
	// the one that takes longest, in whole seconds, until one more hit has room, and then the
	// first.
	Standing
	// Limits are how all limits of all demands stand, in their order. [Limiter.Decide] leaves them
	// out.
	Limits []Standing
}

// Standing is how a limit stands after a decision.
type Standing struct {
	// Limiter is the rule's, and Limit the index of the limit among the rule's.
	Limiter *Limiter
	Limit   int
	// Of is the limit by which the key was decided: an override may have moved it.
	Of window.Limit
	// Remaining is how many hits the limit would still take now.
	Remaining uint64
	// RoomIn is the time until one more hit has room; 0 while nothing is used.
	RoomIn time.Duration
	// ResetAfter is the time until the limit's window ends, its newest hit has left it, or its
	// bucket is full. It is 0 if nothing runs.
	ResetAfter time.Duration
}

// Decide asks for cost hits of a key, and counts them if every limit of the rule has room. It is
// [Namespace.Decide] of one demand, without Decision.Limits. Unless it waits, it allocates nothing.
func (l *Limiter) Decide(ctx context.Context, cost uint64, key ...string) (Decision, error) {
	n := l.namespace
	n.mu.Lock()
	c := n.call()
	c.add(l, cost, key)
	return n.decide(ctx, c)
}

// Decide counts the hits of all demands if every limit of every rule has room, and otherwise of
// none. The demands are of different rules of this namespace.
//
// A request that only the backend can allow waits for it, for NamespaceOptions.Timeout at most. If
// ctx ends meanwhile, the error is ctx's, and the request's hits are given back. After
// [Namespace.Close] the error is [ErrClosed], and so it is if Close is cut short while the request
// waits. The only other errors are of demands that are none, or of more than the backend can be asked
// for at once where it decides every request.
func (n *Namespace) Decide(ctx context.Context, demands ...Demand) (Decision, error) {
	for i := range demands {
		l := demands[i].Limiter
		if l == nil || l.namespace != n {
			return Decision{}, fmt.Errorf("ratelimit: namespace %q: demands[%d]: want a limiter of this namespace", n.name, i)
		}
		if slices.ContainsFunc(demands[:i], func(d Demand) bool { return d.Limiter == l }) {
			return Decision{}, fmt.Errorf("ratelimit: namespace %q: demands[%d]: want one demand of rule %q", n.name, i, l.name)
		}
	}
	if len(demands) == 0 {
		return Decision{Allowed: true}, nil
	}
	if n.exact {
		if err := fitTake(demands); err != nil {
			return Decision{}, fmt.Errorf("ratelimit: namespace %q: demands: %w", n.name, err)
		}
	}
	n.mu.Lock()
	c := n.call()
	for i := range demands {
		c.add(demands[i].Limiter, demands[i].Cost, demands[i].Key)
	}
	c.all = true
	return n.decide(ctx, c)
}

// fitTake refuses demands that the backend can't be asked for at once: it would refuse the question,
// and each node would decide alone.
func fitTake(demands []Demand) error {
	limits, answer := 0, wire.GrantSize
	for i := range demands {
		of := demands[i].Limiter.rule.Limits
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
}

// call is a call to use. The lock is held, as it is to release it.
func (n *Namespace) call() (c *call) {
	if last := len(n.calls) - 1; last >= 0 {
		c, n.calls = n.calls[last], n.calls[:last]
	} else {
		c = &call{namespace: n, told: make(chan struct{}, 1)}
		c.wait.Waiter = c
	}
	n.taken++
	c.demands, c.limiters, c.all, c.asking = c.demands[:0], c.limiters[:0], false, false
	return c
}

func (n *Namespace) release(c *call) {
	n.calls = append(n.calls, c)
	n.taken--
	n.leave()
}

// add adds a demand.
func (c *call) add(l *Limiter, cost uint64, key []string) {
	d := c.demand(l.rule)
	d.Cost = cost
	for _, part := range key {
		d.Key = counter.AppendPart(d.Key, part)
	}
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
	now := n.now()
	verdict := n.node.Decide(c.demands, now, &c.wait)
	if verdict != counter.Unsure {
		c.conclude(c.demands, now, verdict)
	} else if err := c.await(ctx); err != nil {
		return Decision{}, err
	}
	return c.decision, nil
}

// Decided implements node.Waiter. The namespace's lock is held.
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
	n.mu.Unlock()
	select {
	case <-c.told:
		n.mu.Lock()
		return nil
	case <-ctx.Done():
	case <-n.running.Done():
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
	return fmt.Errorf("ratelimit: namespace %q: wait for the backend: %w", n.name, err)
}

// conclude describes what was decided.
func (c *call) conclude(demands []node.Demand, now int64, verdict counter.Verdict) {
	d := &c.decision
	*d = Decision{Allowed: verdict == counter.Allowed, Now: time.Unix(0, now)}
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
				Limiter: c.limiters[i], Limit: j, Of: demands[i].Rule.Limits[j], Remaining: s.Remaining,
				RoomIn: time.Duration(s.Next), ResetAfter: time.Duration(max(s.Reset, 0)),
			}
			if d.Limiter == nil || standing.tighter(&d.Standing) {
				d.Standing = standing
			}
			if c.all {
				d.Limits = append(d.Limits, standing)
			}
		}
	}
}

// tighter reports whether s is to be told of rather than other, which comes before it.
func (s *Standing) tighter(other *Standing) bool {
	seconds := func(d time.Duration) time.Duration { return (d + time.Second - 1) / time.Second }
	return s.Remaining < other.Remaining || s.Remaining == other.Remaining && seconds(s.RoomIn) > seconds(other.RoomIn)
}
