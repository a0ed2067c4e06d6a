package ratelimit

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"weir/internal/counter"
	"weir/internal/node"
	"weir/sharedata"
	"weir/window"
)

// Namespace is a set of counters: those of rules, and those of keys whose rates are told. Use
// [NewNamespace] to make one.
type Namespace struct {
	instance *Instance // nil if it is in none
	clock    func() time.Time
	name     string
	rules    []node.Rule
	limiters map[string]*Limiter
	windows  []rated
	exact    bool

	backend     Backend
	timeout     time.Duration
	onPushError func(error)
	ticker      *time.Ticker
	running     context.Context // of the ticks and the pushes, until stop is called
	stop        context.CancelFunc
	stopped     chan struct{} // closed when there are no more ticks

	// mu is held while the node works. Nothing is waited for meanwhile.
	mu   sync.Mutex
	data sharedata.Map
	node *node.Node
	// closed says that no call is taken any more. The node leaves when those that were have ended.
	// gone is closed after that, and closing is the error of Close.
	closed  bool
	gone    chan struct{}
	shut    chan struct{} // closed with closed: nobody waits for room any more
	alarm   alarm         // of a namespace without a backend
	closing error
	calls   []*call // to be used again
	// places are held by callers of Acquire, those first that were renewed longest ago.
	places list.List
	taken  int // calls that have not ended
	// pushes are out, by number. sent is how many there were in all. When one ends, pushed is
	// closed and made anew. failed counts those that have failed, and failure is the error of the
	// last.
	pushes  map[uint64]struct{}
	sent    uint64
	pushed  chan struct{}
	failed  uint64
	failure error
}

// host is the process that a namespace's node is part of.
type host struct{ namespace *Namespace }

var (
	_ node.Host  = (*host)(nil)
	_ node.Owner = (*host)(nil)
)

// Now implements node.Host.
func (h *host) Now() int64 { return h.namespace.clock().UnixNano() }

// TickEvery implements node.Host.
func (h *host) TickEvery(millis uint32) {
	every := time.Duration(millis) * time.Millisecond
	if n := h.namespace; n.backend == nil {
		n.alarm.set(every)
	} else {
		n.ticker.Reset(every)
	}
}

// Send implements node.Host.
func (h *host) Send(push []byte, ticket node.Ticket) (sent bool) {
	n := h.namespace
	if patience := time.Duration(ticket.Patience()); patience > 0 {
		n.pushes[pollNumber] = struct{}{}
		go n.push(pollNumber, append([]byte(nil), push...), ticket, patience)
		return true
	}
	n.sent++
	n.pushes[n.sent] = struct{}{}
	go n.push(n.sent, append([]byte(nil), push...), ticket, n.timeout)
	return true
}

// AppendKey implements node.Owner. Nobody but the program knows how many parts its keys have.
func (h *host) AppendKey(key []byte, rule int, values [][]byte) ([]byte, bool) {
	key = append(key, h.namespace.rules[rule].Prefix...)
	for _, part := range values {
		key = counter.AppendPart(key, part)
	}
	return key, true
}

// Tag implements node.Owner.
func (*host) Tag(int, []window.Limit) any { return nil }

// pollNumber is that of a poll, of which a namespace has one at most. Nobody waits for it but Close.
const pollNumber = math.MaxUint64

// push brings a push to the backend, and its answer back.
func (n *Namespace) push(number uint64, push []byte, ticket node.Ticket, timeout time.Duration) {
	ctx, cancel := context.WithTimeout(n.running, timeout)
	answer, err := n.backend.Push(ctx, push)
	cancel()
	outcome := node.PushAnswered
	switch {
	case errors.Is(err, ErrPushRefused):
		outcome = node.PushRefused
	case err != nil:
		outcome = node.PushLost
	}
	n.mu.Lock()
	failures := n.node.Tallies.Failed
	// If Close has ended a push, the node hears nothing of it: it would decide calls that wait
	// alone.
	cut := err != nil && n.running.Err() != nil
	if !cut {
		n.node.Answered(ticket, outcome, answer)
	}
	if err == nil && n.node.Tallies.Failed != failures {
		err = errors.New("want the push's answer, got something else")
	}
	if ticket == (node.Ticket{}) || number == pollNumber {
		err = nil // it was a report, which nobody misses, or a poll, which is followed by a push if it fails
	}
	if err != nil {
		err = fmt.Errorf("ratelimit: namespace %q: push: %w", n.name, err)
		n.failed++
		if !cut {
			n.failure = err
		}
	}
	delete(n.pushes, number)
	close(n.pushed)
	n.pushed = make(chan struct{})
	n.mu.Unlock()
	if err != nil && n.onPushError != nil {
		n.onPushError(err)
	}
}

// start has the node tick.
func (n *Namespace) start() {
	n.running, n.stop = context.WithCancel(context.Background())
	n.pushes, n.stopped = map[uint64]struct{}{}, make(chan struct{})
	n.ticker = time.NewTicker(time.Duration(n.node.TickMillis()) * time.Millisecond)
	go func() {
		defer close(n.stopped)
		defer n.ticker.Stop()
		for left := false; !left; {
			select {
			case <-n.running.Done():
				return
			case <-n.ticker.C:
				left = n.tick()
			}
		}
	}()
}

// tick does what is due, and reports whether the node has left.
func (n *Namespace) tick() (left bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.renew()
	n.node.Tick()
	return n.leave() && n.node.Left()
}

// leave has the node leave as soon as the namespace is closed and no call needs it. It reports whether
// that is so. The lock is held.
func (n *Namespace) leave() (leaves bool) {
	if leaves = n.closed && n.backend != nil && n.taken == 0; leaves {
		n.node.Leave()
	}
	return leaves
}

// now is the time by the backend's clock, as far as that is known, in nanoseconds. Call it with the
// lock held.
func (n *Namespace) now() int64 { return n.node.Time(n.clock().UnixNano()) }

// Sync pushes what was counted before, whether or not it is due, and waits for the answers. Then
// the backend has all of it, and the totals of what was pushed are those of all nodes. No program
// needs Sync: a namespace pushes by itself.
//
// The error is that of a push that has failed meanwhile, or of ctx. Nothing is lost: the hits go on to
// count here, and are pushed again. If [Namespace.Close] has ended before all was pushed, the error is
// [ErrClosed]. Without a backend, Sync does nothing.
func (n *Namespace) Sync(ctx context.Context) error {
	if n.backend == nil {
		return nil
	}
	n.mu.Lock()
	failed := n.failed
	n.mu.Unlock()
	// While hits of a key are on their way, its later hits can't be pushed.
	if err := n.wait(ctx, failed); err != nil {
		return err
	}
	for done := false; !done; {
		n.mu.Lock()
		done = n.node.PushAll()
		n.mu.Unlock()
		if err := n.wait(ctx, failed); err != nil {
			return err
		}
	}
	return nil
}

// wait waits until the pushes that are out have ended. It fails if more have failed than so many.
func (n *Namespace) wait(ctx context.Context, failed uint64) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.drain(ctx, n.sent); err != nil {
		return fmt.Errorf("ratelimit: namespace %q: sync: %w", n.name, err)
	}
	if n.running.Err() != nil && n.node.Unfinished() {
		return fmt.Errorf("ratelimit: namespace %q: sync: %w", n.name, ErrClosed)
	}
	if n.failed != failed {
		return n.failure
	}
	return nil
}

// drain waits until the pushes up to last that are out have ended, or ctx has. The lock is held before
// and after.
func (n *Namespace) drain(ctx context.Context, last uint64) error {
	for n.out(last) {
		pushed := n.pushed
		n.mu.Unlock()
		select {
		case <-pushed:
		case <-ctx.Done():
		}
		n.mu.Lock()
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}

// out reports whether any of the pushes up to last is out.
func (n *Namespace) out(last uint64) bool {
	for number := range n.pushes {
		if number <= last {
			return true
		}
	}
	return false
}

// Close pushes what was counted, gives back what was leased, and ends the namespace's goroutines.
//
// From now on calls fail with [ErrClosed], and so do those that wait for room. Those that wait for
// the backend get its answer first, or are decided when their time is over: Options.Timeout bounds
// that. Then Close waits until the backend has all, for five seconds at most. It fails if the
// backend can't be reached, or if ctx ends before. In the latter case calls that still wait fail
// with ErrClosed, too: a program that ends lets nobody pass whom the backend has not. After Close
// an [Instance] has the name free again.
//
// Only the first Close does anything. Others wait for it, and return its error or that of their ctx.
func (n *Namespace) Close(ctx context.Context) error {
	n.mu.Lock()
	again := n.closed
	if n.closed = true; !again {
		close(n.shut)
	}
	n.leave()
	n.mu.Unlock()
	if again {
		select {
		case <-n.gone:
			return n.closing
		case <-ctx.Done():
			return fmt.Errorf("ratelimit: namespace %q: close: %w", n.name, ctx.Err())
		}
	}
	if n.backend != nil {
		n.closing = n.end(ctx)
	}
	if n.instance != nil {
		n.instance.forget(n.name)
	}
	close(n.gone)
	return n.closing
}

// end waits until the node has left, and ends the goroutines.
func (n *Namespace) end(ctx context.Context) (err error) {
	// The node's five seconds are by a clock that may stand still.
	ctx, cancel := context.WithTimeout(ctx, n.timeout+longestLeaving)
	defer cancel()
	select {
	case <-n.stopped:
	case <-ctx.Done():
		err = ctx.Err()
	}
	n.stop()
	n.mu.Lock()
	defer n.mu.Unlock()
	err = errors.Join(err, n.drain(ctx, pollNumber))
	if n.node.Unfinished() {
		err = fmt.Errorf("ratelimit: namespace %q: close: not all hits were pushed: %w", n.name, errors.Join(err, n.failure))
	}
	return err
}

// longestLeaving is how long Close waits for a node that leaves, and that leaves time for nothing
// else: the node itself gives up a second before.
const longestLeaving = 6 * time.Second

// Stats count the doings of a namespace since it was defined. They are named as the plugin's
// metrics are.
type Stats struct {
	// Nodes is how many nodes share the limits, as the backend has it; 0 if that is not known.
	Nodes uint64
	// WaitedRequests have waited for the backend.
	WaitedRequests uint64
	// DecidedAlone are requests that were decided without the backend, as it was away, or as too
	// many waited already. CrowdedRequests are the latter of them. LateRequests are those that have
	// waited: the backend's answer was late, or there was none.
	DecidedAlone, CrowdedRequests, LateRequests uint64
	// AdvancedHits are of keys far from their limits: their requests have waited for nothing.
	AdvancedHits uint64
	// PushedHits were sent to the backend.
	PushedHits uint64
	// FailedPushes were not taken by the backend, and are sent again.
	FailedPushes uint64
	// LostHits will never reach the backend. There were more evicted counters than can wait to be
	// pushed, or the backend has refused pushes for good.
	LostHits uint64
	// EvictedCounters had to make room before they expired.
	EvictedCounters uint64
}

// Stats says what the namespace has counted of its own doings.
func (n *Namespace) Stats() Stats {
	n.mu.Lock()
	defer n.mu.Unlock()
	t := &n.node.Tallies
	return Stats{
		Nodes: n.node.Nodes(), WaitedRequests: t.Waited,
		DecidedAlone: t.Alone, CrowdedRequests: t.Crowded, LateRequests: t.Late,
		AdvancedHits: t.Advanced, PushedHits: t.Pushed, FailedPushes: t.Failed, LostHits: t.Lost, EvictedCounters: t.Evicted,
	}
}
