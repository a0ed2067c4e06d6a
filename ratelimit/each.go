package ratelimit

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"weir/internal/counter"
)

// DecideEach decides each demand by itself, as if each had a goroutine that calls [Limiter.Decide]: a
// demand without room takes nothing, and the others take their hits. All that the backend has to decide
// it is asked together. The decisions have the order of the demands, and no Standings.
//
// Demands may be on rules of several namespaces. Those on the same key are decided in any order. An error
// is one that Limiter.Decide may return, for the first demand that has one; the decisions of such demands
// are zero, and the others stand.
func DecideEach(ctx context.Context, demands ...Demand) ([]Decision, error) {
	for i := range demands {
		l := demands[i].limiter
		if l == nil {
			return nil, fmt.Errorf("ratelimit: demands[%d]: want a demand made by Limiter.Demand", i)
		}
		if demands[i].cost > 0 && l.holds() {
			return nil, l.wantsAcquire()
		}
	}
	e := each{demands, make([]Decision, len(demands)), make([]*call, len(demands)), nil, 0, nil}
	for i := range demands {
		if e.calls[i] == nil && e.decisions[i].At.IsZero() && !e.begun(i) {
			e.begin(ctx, i)
		}
	}
	if e.own != nil {
		e.own.send()
	}
	for i := range demands {
		if e.calls[i] != nil {
			e.await(ctx, i)
		}
	}
	return e.decisions, e.err
}

// each is a call of [DecideEach].
type each struct {
	demands   []Demand
	decisions []Decision
	calls     []*call // of the demands that are being decided
	err       error   // that of the first demand that has one, which is at failed
	failed    int
	own       *pushing // a push that the call sends itself: see Namespace.caller
}

// begun reports whether an earlier demand is on a rule of the same namespace.
func (e *each) begun(at int) bool {
	n := e.demands[at].limiter.namespace
	return slices.ContainsFunc(e.demands[:at], func(d Demand) bool { return d.limiter.namespace == n })
}

// fail takes the error of a demand.
func (e *each) fail(at int, err error) {
	if e.err == nil || at < e.failed {
		e.err, e.failed = err, at
	}
}

// begin decides those demands of a namespace that need not wait. at is the index of the first.
func (e *each) begin(ctx context.Context, at int) {
	n := e.demands[at].limiter.namespace
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		e.fail(at, fmt.Errorf("ratelimit: namespace %q: %w", n.name, ErrClosed))
		return
	}
	waits := false
	for ; at < len(e.demands); at++ { // again after a panic, which is that of one demand
		if n.guard(func() {
			n.renew()
			now := n.now()
			n.node.Together(func() {
				for ; at < len(e.demands); at++ {
					if c := e.call(n, at); c == nil {
					} else if verdict := n.node.Decide(c.demands, now, &c.wait); verdict == counter.Unsure {
						waits = true
					} else {
						c.conclude(&c.decision, c.demands, now, verdict)
						e.end(at, nil)
					}
				}
			})
		}) != nil && at < len(e.demands) {
			if c := e.call(n, at); c != nil {
				e.end(at, c.decideAlone())
			}
		}
	}
	if waits && n.collects { // one push asks for all calls that are about to be decided
		n.mu.Unlock()
		runtime.Gosched()
		n.mu.Lock()
	}
	if waits {
		n.caller = ctx
	}
	_ = n.guard(n.node.Send) // who waits hears of it
	if n.own != nil {
		if e.own != nil {
			go e.own.send()
		}
		e.own = n.own
	}
	n.caller, n.own = nil, nil
}

// call returns the call of a demand; nil if that is on a rule of another namespace. The lock is held.
func (e *each) call(n *Namespace, at int) *call {
	d := &e.demands[at]
	if d.limiter.namespace != n {
		return nil
	}
	if e.calls[at] == nil {
		e.calls[at] = n.call()
		e.calls[at].add(d.limiter, d.key, d.cost)
	}
	return e.calls[at]
}

// await waits until all demands of a namespace are decided. at is the index of the first that waits.
func (e *each) await(ctx context.Context, at int) {
	n := e.demands[at].limiter.namespace
	n.mu.Lock()
	defer n.mu.Unlock()
	for ; at < len(e.demands); at++ {
		c := e.calls[at]
		if c == nil || c.namespace != n {
			continue
		}
		select {
		case <-c.told: // together with another
			e.end(at, nil)
		default:
			e.end(at, c.await(ctx))
		}
	}
}

// end takes the decision of a call. The lock of its namespace is held.
func (e *each) end(at int, err error) {
	c := e.calls[at]
	if e.calls[at] = nil; err == nil {
		e.decisions[at] = c.decision
	} else {
		e.fail(at, err)
	}
	c.namespace.release(c)
}

// repeated returns the index of a demand on the counter of an earlier one; 0 if there is none.
func repeated(demands []Demand) int {
	var few [8]int
	order := few[:0]
	for i := range demands {
		order = append(order, i)
	}
	compare := func(i, j int) int {
		a, b := &demands[i], &demands[j]
		return cmp.Or(strings.Compare(a.limiter.name, b.limiter.name), slices.Compare(a.key, b.key))
	}
	slices.SortStableFunc(order, compare)
	for k := 1; k < len(order); k++ {
		if compare(order[k-1], order[k]) == 0 {
			return order[k]
		}
	}
	return 0
}
