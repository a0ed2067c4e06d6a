package ratelimit

import (
	"fmt"
	"math"
	"time"

	"weir/internal/counter"
	"weir/window"
)

// Rule is a named set of limits that are decided together.
type Rule struct {
	// Name is part of the identity of the rule's counters: 1 to 64 of A-Za-z0-9_-.
	Name string
	// Limits are 1 to 8, made by [SlidingWindow] and its like.
	Limits []window.Limit
	// CountRejected tells whether rejected requests take their hits too. A window may then go over its limit.
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
	namespace     *Namespace
	rule          *rule
	countRejected bool
}

// Limiter is the limiter of a rule. The error wraps [ErrNotDefined] if the namespace has no rule of that name.
func (n *Namespace) Limiter(rule string) (*Limiter, error) {
	l := n.limiters[rule]
	if l == nil {
		return nil, fmt.Errorf("ratelimit: namespace %q: rule %.80q: %w", n.name, rule, ErrNotDefined)
	}
	return l, nil
}

// Never is a [Decision.RetryAfter] that no waiting reaches: the cost is above a limit, or a limit is 0.
const Never = time.Duration(math.MaxInt64)

// Decision is the answer to a request, and how its limits stand after it.
type Decision struct {
	// Allowed tells whether every limit had room. Then hits were taken from all of them, else from none.
	Allowed bool
	// Limit is the index of the tightest of the rule's limits: the one with the least remaining; among equals the one that
	// takes longest until one more hit fits, then the first.
	Limit int
	// Remaining is how many hits the tightest limit would still take now.
	Remaining uint64
	// RetryAfter is 0 if the request was allowed. Else the same request passes after this time, and not before, if nothing else
	// comes, or it is [Never].
	RetryAfter time.Duration
	// ResetAfter is the time until the tightest limit's window ends, its newest hit has left it, or its bucket is full.
	ResetAfter time.Duration
}

// Decide asks for cost hits of a key, and takes them if every limit of the rule has room. The key has one or more parts, the
// values of the key's selectors in a plugin's configuration; different lists of parts are different keys. A cost of 0 asks
// whether the limits are kept as they stand, and takes nothing.
func (l *Limiter) Decide(cost uint64, key ...string) Decision {
	n := l.namespace
	h := n.hand(l.rule)
	defer n.hands.Put(h)
	n.aim(h, key...)
	now := n.now().UnixNano()
	for {
		n.read(h, now)
		allowed := h.cell.Allows(cost)
		// A cost above the limit never passes: counted, it would only keep others of the key from passing.
		if cost != 0 && (allowed || l.countRejected && h.cell.Possible(cost)) {
			adopted := n.charge(h, now)
			if allowed {
				h.cell.Take(cost)
			} else {
				h.cell.TakeRejected(cost)
			}
			if !n.commit(h, now, adopted) {
				continue
			}
		}
		return describe(&l.rule.counter, &h.cell, cost, allowed, now)
	}
}

func describe(r *counter.Rule, c *counter.Cell, cost uint64, allowed bool, now int64) Decision {
	d := Decision{Allowed: allowed}
	longest := int64(0)
	for i := range c.States {
		l, s := &r.Limits[i], &c.States[i]
		remaining, next := l.Remaining(s), int64(0)
		// Where everything remains, one more is above the limit and never fits.
		if at, ok := l.FitsAt(s, remaining+1); ok {
			next = at - now
		}
		if i == 0 || remaining < d.Remaining || remaining == d.Remaining && next > longest {
			d.Limit, d.Remaining, d.ResetAfter, longest = i, remaining, 0, next
			if at, ok := l.ResetAt(s); ok {
				d.ResetAfter = time.Duration(at - now)
			}
		}
		if !allowed {
			d.RetryAfter = max(d.RetryAfter, retryAfter(l, s, cost, now))
		}
	}
	return d
}

func retryAfter(l *window.Limit, s *window.State, cost uint64, now int64) time.Duration {
	at, ok := l.FitsAt(s, cost)
	if !ok {
		return Never
	}
	return time.Duration(at - now)
}
