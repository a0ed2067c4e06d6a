package ratelimit

import (
	"bytes"
	"cmp"
	"container/list"
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"weir/internal/clientip"
	"weir/internal/counter"
	"weir/internal/engine"
	"weir/internal/engine/link"
	"weir/internal/panics"
	"weir/internal/wire"
	"weir/sharedata"
)

// Namespace has the counters of its rules, and of the windows whose rates it returns.
// [NewNamespace] makes one. All methods are safe for concurrent use.
type Namespace struct {
	instance *Instance // nil if NewNamespace made it
	clock    *watch
	collects bool // Options.Collect is not 0
	name     string
	rules    []engine.Rule
	limiters map[string]*Limiter
	windows  map[time.Duration]*engine.Rule // those whose rates it returns, by width
	exact    bool

	backend     Backend
	timeout     time.Duration
	onPushError func(error)
	ticker      *time.Ticker
	running     context.Context // for ticks and pushes; stop ends it
	stop        context.CancelFunc
	stopped     chan struct{} // closed when there are no more ticks

	// beside is the node while calls may take from it beside others, without the lock.
	beside atomic.Pointer[engine.Engine]

	// mu is held while the node works, and never while something waits.
	mu   sync.Mutex
	data sharedata.Map
	node *engine.Engine
	// modes are those of the rules, by index, as they are set at run time.
	modes []wire.Mode
	// measures are to be used again, and measuring is how many wait for their verdicts. off and
	// wouldReject count what has passed by the modes.
	measures         []*measure
	measuring        int
	off, wouldReject uint64
	// options made the node. After a panic of the node a new one takes its place. Then broken is closed
	// and replaced, and the calls that wait are decided without the backend.
	options *engine.Options
	broken  chan struct{}
	// closed says that no new call is accepted. The node leaves when the last call has ended. gone
	// is closed after that, and closing is the error of Close.
	closed  bool
	gone    chan struct{}
	shut    chan struct{} // closed with closed: nobody waits for room any more
	alarm   alarm         // of a namespace without a backend
	closing error
	calls   []*call // to be used again
	// caller is the context of a call that may send the next push itself, and own is that push. A call that waits for
	// its own push wakes no other goroutine, nor is woken by one, which would cost as much as all the rest.
	// inline says that calls may: the backend keeps to deadlines, and the timeout is short.
	caller context.Context
	own    *pushing
	inline bool
	// places are those that callers of Acquire hold, in the order of their last renewal, oldest
	// first.
	places list.List
	taken  int // calls that have not ended
	// pushes are the numbers of the pushes without an answer yet. sent is the number of all pushes,
	// failed of those that failed, and failure is the last error. When a push ends, pushed is
	// closed and replaced.
	pushes  map[uint64]struct{}
	sent    uint64
	pushed  chan struct{}
	failed  uint64
	failure error
}

// host is the process that a namespace's node is part of.
type host struct{ namespace *Namespace }

var (
	_ engine.Host  = (*host)(nil)
	_ engine.Owner = (*host)(nil)
)

// Now implements engine.Host.
func (h *host) Now() int64 { return h.namespace.clock.now() }

// TickEvery implements engine.Host.
func (h *host) TickEvery(millis uint32) {
	every := time.Duration(millis) * time.Millisecond
	if n := h.namespace; n.backend == nil {
		n.alarm.set(every)
	} else {
		n.ticker.Reset(every)
	}
}

// Send implements engine.Host.
func (h *host) Send(push []byte, ticket engine.Ticket) (sent bool) {
	n := h.namespace
	p := &pushing{n, n.node, n.sent + 1, append([]byte(nil), push...), ticket, n.timeout}
	if patience := time.Duration(ticket.Patience()); patience > 0 {
		p.number, p.timeout = pollNumber, patience
	} else {
		n.sent++
	}
	n.pushes[p.number] = struct{}{}
	if n.caller != nil && n.inline && outlasts(n.caller, n.timeout) {
		n.caller, n.own = nil, p
	} else {
		go p.send()
	}
	return true
}

// longestOwn bounds the timeout of pushes that calls send themselves, as a call hears only afterwards that its context was
// cancelled.
const longestOwn = time.Second

// outlasts reports whether a context has no deadline within a time.
func outlasts(ctx context.Context, within time.Duration) bool {
	until, bounded := ctx.Deadline()
	return ctx.Err() == nil && (!bounded || time.Until(until) >= within)
}

// AppendKey implements engine.Owner. It knows no key, because the number of parts is up to the
// program.
func (h *host) AppendKey(key []byte, rule int, values [][]byte) ([]byte, bool) {
	key = append(key, h.namespace.rules[rule].Prefix...)
	for _, part := range values {
		key = counter.AppendPart(key, part)
	}
	return key, true
}

// AppendBinary is AppendKey for keys that have addresses as limithttp.ClientIP returns them: networks of so many bits.
// ok is false if no value is an address.
func (h *host) AppendBinary(key []byte, rule int, values [][]byte, bits int) (_ []byte, ok bool) {
	var memory [16]byte
	key = append(key, h.namespace.rules[rule].Prefix...)
	for _, part := range values {
		network := clientip.Network(part, bits, bits, &memory)
		ok = ok || !bytes.Equal(network, part)
		key = counter.AppendPart(key, network)
	}
	return key, ok
}

// Move implements engine.Owner.
func (h *host) Move(rule int, mode wire.Mode) { h.namespace.modes[rule] = mode }

// pollNumber is the number of the only poll that a namespace has at a time. Only Close waits for
// it.
const pollNumber = math.MaxUint64

// guard does some of the node's work. If that panics, the namespace gets a new node, as a process does that
// has ended and starts again: the counters stay, and hits that were not pushed are pushed when their key is
// hit again. The caller holds the lock.
func (n *Namespace) guard(work func()) (err error) {
	defer n.rescue(&err)
	work()
	return nil
}

// rescue is deferred by what guards work itself.
func (n *Namespace) rescue(err *error) {
	if reason := recover(); reason != nil {
		*err = n.fail(reason)
	}
}

// fail replaces a node that has panicked. The caller holds the lock.
func (n *Namespace) fail(reason any) error {
	err := fmt.Errorf("ratelimit: namespace %q: %w", n.name, panics.Tell("ratelimit namespace "+n.name, reason))
	n.restart()
	return err
}

// steer says whether calls may take without the lock. The caller holds it.
func (n *Namespace) steer() {
	var node *engine.Engine
	if !n.closed && n.node.Concurrent() {
		node = n.node
	}
	if n.beside.Load() != node {
		n.beside.Store(node)
	}
}

// restart gives the namespace a new node. The caller holds the lock.
func (n *Namespace) restart() {
	if again, err := engine.New(n.options); err == nil {
		again.Tallies = n.node.Tallies
		n.node, n.measuring = again, 0
		clear(n.modes) // until it has the list
	} // or else there is no room in shared data, and the old one goes on
	n.steer()
	close(n.broken)
	n.broken = make(chan struct{})
}

// ask sends a push to the backend.
func (n *Namespace) ask(push []byte, timeout time.Duration) (answer []byte, err error) {
	ctx, cancel := context.WithTimeout(n.running, timeout)
	defer cancel()
	defer panics.Catch("a push to the backend", func(caught error) { err = caught })
	return n.backend.Push(ctx, push)
}

// pushing is a push of a node.
type pushing struct {
	*Namespace
	of      *engine.Engine
	number  uint64
	body    []byte
	ticket  engine.Ticket
	timeout time.Duration
}

// send sends a push to the backend, and gives its answer to the node that made it.
func (p *pushing) send() {
	n, number, ticket, of := p.Namespace, p.number, p.ticket, p.of
	answer, err := n.ask(p.body, p.timeout)
	outcome := link.PushAnswered
	switch {
	case errors.Is(err, ErrPushRefused):
		outcome = link.PushRefused
	case err != nil:
		outcome = link.PushLost
	}
	n.mu.Lock()
	failures := of.Tallies.Failed
	// Close has cut the push off. The node does not hear of it: it would let calls that wait be
	// decided without the backend.
	cut := err != nil && n.running.Err() != nil
	if !cut && of == n.node {
		_ = n.guard(func() { of.Answered(ticket, outcome, answer) }) // who waits hears of it
	}
	if err == nil && of.Tallies.Failed != failures {
		err = errors.New("want the answer to a push, got other bytes")
	}
	if ticket == (engine.Ticket{}) || number == pollNumber {
		err = nil // a lost report does no harm, and a push follows a failed poll
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
		go n.onPushError(err) // it may wait for who called
	}
}

// start starts the ticks of the node.
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

// tick does the work that is due, and reports whether the node has left.
func (n *Namespace) tick() (left bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	_ = n.guard(func() {
		n.renew()
		n.node.Tick()
		left = n.leave() && n.node.Left()
	})
	return left
}

// leave makes the node leave if the namespace is closed and no call needs it. It reports whether
// the node leaves. The caller holds the lock.
func (n *Namespace) leave() (leaves bool) {
	if leaves = n.closed && n.backend != nil && n.taken+n.measuring == 0; leaves {
		n.node.Leave()
	}
	return leaves
}

// now returns the time by the backend's clock if that is known, in nanoseconds. The caller holds
// the lock.
func (n *Namespace) now() int64 { return n.node.Time(n.clock.now()) }

// Sync pushes all hits that were counted before, and waits for the answers. Then the backend has
// all of them, and this namespace has the totals of all nodes for their keys. Programs rarely need
// it: a namespace pushes by itself.
//
// If a push fails meanwhile, Sync returns its error. Nothing is lost: the hits still count here,
// and are pushed again. The error is that of ctx if ctx ends first, and [ErrClosed] if
// [Namespace.Close] ended before all was pushed. Without a backend, Sync does nothing.
func (n *Namespace) Sync(ctx context.Context) error {
	if n.backend == nil {
		return nil
	}
	n.mu.Lock()
	failed := n.failed
	n.mu.Unlock()
	// The later hits of a key can't be pushed before its earlier push is answered.
	if err := n.wait(ctx, failed); err != nil {
		return err
	}
	for done := false; !done; {
		n.mu.Lock()
		err := n.guard(func() { done = n.node.PushAll() })
		n.mu.Unlock()
		if err == nil {
			err = n.wait(ctx, failed)
		}
		if err == nil {
			err = n.settle()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// settle takes in the answers to a Sync's pushes. It fails if a part of the store did not take its hits.
func (n *Namespace) settle() (err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	away := false
	if err = n.guard(func() { away = n.node.Settle() }); away {
		err = fmt.Errorf("ratelimit: namespace %q: sync: a part of the backend's store is away", n.name)
	}
	return err
}

// wait waits until the pushes that are under way have ended. It fails if more pushes have failed
// than the number given.
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

// drain waits until all pushes with numbers up to last have ended, or ctx has. The caller holds the
// lock before and after.
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

// out reports whether a push with a number up to last is under way.
func (n *Namespace) out(last uint64) bool {
	for number := range n.pushes {
		if number <= last {
			return true
		}
	}
	return false
}

// Close pushes the remaining hits, gives back leases, and ends the namespace's goroutines.
//
// New calls fail with [ErrClosed] at once, and so do calls that wait for room. Calls that wait for
// the backend still get their answer, or are decided when Options.Timeout is over. Close then waits
// until the backend has all hits, for five seconds at most. It returns an error if the backend
// can't be reached or refuses hits, or if ctx ends first, which wraps that of ctx and says whether hits
// or usage were not pushed. If ctx ends, calls that still wait fail with ErrClosed: a program that ends admits no
// request that the backend has not counted. After Close, an [Instance] can define the name again.
//
// Only the first call does this. Later calls wait for it, and return its error or that of their own
// ctx.
func (n *Namespace) Close(ctx context.Context) error {
	n.mu.Lock()
	again := n.closed
	if n.closed = true; !again {
		close(n.shut)
	}
	n.steer()
	failure, lost := n.failure, n.node.Tallies.Lost
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
		n.closing = n.end(ctx, failure, lost)
	}
	if n.instance != nil {
		n.instance.forget(n.name)
	}
	close(n.gone)
	return n.closing
}

// end waits until the node has left, and ends the goroutines. failure was that of the last push before, and so many hits were
// lost before.
func (n *Namespace) end(ctx context.Context, failure error, lost uint64) (err error) {
	// The node measures its five seconds by a clock that may stand still.
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
	err = cmp.Or(err, n.drain(ctx, pollNumber))
	why := err
	if !errors.Is(n.failure, failure) { // one since
		why = errors.Join(err, n.failure)
	}
	why = cmp.Or(why, errors.New("the backend has not answered in time"))
	switch lost = n.node.Tallies.Lost - lost; {
	case n.node.Unfinished():
		err = fmt.Errorf("ratelimit: namespace %q: close: not all hits and usage were pushed: %w", n.name, why)
	case lost > 0:
		err = fmt.Errorf("ratelimit: namespace %q: close: %d hits are lost: %w", n.name, lost, why)
	case err != nil:
		err = fmt.Errorf("ratelimit: namespace %q: close: %w", n.name, err)
	}
	return err
}

// longestLeaving is how long Close waits for a node to leave, on top of the timeout of a push. The
// node itself gives up a second earlier.
const longestLeaving = 6 * time.Second

// Stats are a namespace's counts of its own work since it was made. The plugin has metrics of the
// same names.
type Stats struct {
	// Nodes is how many nodes share the limits, as the backend last said; 0 if that is not known.
	Nodes uint64
	// WaitedRequests is how many requests have waited for the backend.
	WaitedRequests uint64
	// DecidedAlone is how many requests were decided without the backend because it was away or
	// slow, or because too many requests were waiting already. CrowdedRequests is the part of them
	// for the last reason. LateRequests is the part that waited for an answer that came late or not
	// at all.
	DecidedAlone, CrowdedRequests, LateRequests uint64
	// AdvancedHits is how many hits were allowed without waiting because their keys were far from
	// their limits.
	AdvancedHits uint64
	// PushedHits is how many hits were sent to the backend.
	PushedHits uint64
	// FailedPushes is how many pushes the backend did not accept. They are sent again.
	FailedPushes uint64
	// LostHits is how many hits the backend will never count: too many evicted counters had hits to
	// push, or the backend refused a push for good.
	LostHits uint64
	// OffRequests is how many demands have passed uncounted because an operator had switched their
	// rule off. WouldReject is how many have passed although their rule had no room, because an
	// operator had set it to shadow mode.
	OffRequests, WouldReject uint64
	// EvictedCounters is how many counters were removed for others before they expired.
	EvictedCounters uint64
}

// Stats returns a snapshot of the counts.
func (n *Namespace) Stats() Stats {
	n.mu.Lock()
	defer n.mu.Unlock()
	t := &n.node.Tallies
	return Stats{
		Nodes: n.node.Nodes(), WaitedRequests: t.Waited,
		DecidedAlone: t.Alone, CrowdedRequests: t.Crowded, LateRequests: t.Late,
		AdvancedHits: t.Advanced, PushedHits: t.Pushed, FailedPushes: t.Failed, LostHits: t.Lost, EvictedCounters: t.Evicted,
		OffRequests: n.off, WouldReject: n.wouldReject,
	}
}
