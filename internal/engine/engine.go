package engine

import (
	"math"

	"weir/internal/counter"
	"weir/internal/engine/charge"
	"weir/internal/engine/claim"
	"weir/internal/engine/credit"
	"weir/internal/engine/entry"
	"weir/internal/engine/feed"
	"weir/internal/engine/ledger"
	"weir/internal/engine/link"
	"weir/internal/engine/meter"
	"weir/internal/engine/observe"
	"weir/internal/engine/pending"
	"weir/internal/engine/rule"
	"weir/internal/engine/seat"
	"weir/internal/engine/settle"
	"weir/internal/engine/straight"
	"weir/internal/engine/take"
	"weir/internal/engine/wait"
	"weir/sharedata"
)

// Engine decides the requests of one worker. Make it with New. It is not safe for concurrent use. It
// consists of rooms, each of which knows only rooms below it.
type Engine struct {
	// Tallies count the node's own work.
	Tallies entry.Tallies
	// Charges change what requests that have passed have taken, and block keys.
	Charges charge.Charges

	rules    rule.Set
	link     link.Link
	ticks    ticks
	pending  pending.Pending
	ledger   ledger.Ledger
	entries  entry.Entries
	seats    seat.Seats
	waits    waits
	credit   credit.Credit
	outbox   outbox
	claims   claim.Claims
	pushes   pushes
	acquires acquires
	meter    meter.Meter
	observer observe.Observer
	taker    take.Taker
	decider  decider
	requests requests
	feed     feed.Feed
	settler  settle.Settler
	answers  answers

	leaveBy  int64 // when a leaving node gives up, by the host's clock
	straight bool  // no rule needs the backend or warns
	lends    bool  // the table lends its pages
}

// New makes a node. If the node has a backend, its host must call Tick every [Engine.TickMillis] from
// now on, until TickEvery changes that. The error is [sharedata.ErrUnavailable].
func New(o *Options) (*Engine, error) {
	e := &Engine{rules: rule.NewSet(o.Rules), link: link.New(o.Data, o.Namespace, o.Host, o.Random, o.Timeout, o.Turned), ticks: ticks{host: o.Host, due: math.MaxInt64}}
	if err := e.furnish(o); err != nil {
		return nil, err
	}
	if e.rules.Delays {
		e.ticks.millis = idleMillis
		e.requests.lines = wait.NewQueue(o.Data, o.Namespace, uint32(o.Random()), o.Host.Now, e.ticks.expect)
	}
	if e.rules.Synced {
		e.connect(o)
	}
	e.meter = meter.New(&e.Tallies, &e.link, &e.rules, &e.entries, o.Namespace, e.outbox.id, nextSender(e.outbox.worker), e.outbox.account)
	e.observer = observe.New(&e.link, &e.rules, &e.entries, &e.meter, &observe.Worker{
		Namespace: o.Namespace, ID: e.outbox.id, Name: e.outbox.worker, Owner: o.Owner, Failure: o.OnBackendFailure,
		Configuration: o.Configuration, InFlight: o.InFlight, Send: func(report []byte) { e.outbox.host.Send(report, Ticket{}) },
	})
	e.ticks.period = e.ticks.millis
	e.straight, e.lends = !e.rules.Synced && !e.rules.Warns, o.Lends != nil
	return e, nil
}

// furnish gives the node's rooms the rooms that they use.
func (e *Engine) furnish(o *Options) (err error) {
	tallies, rules, link, ticks := &e.Tallies, &e.rules, &e.link, &e.ticks
	if e.entries, err = entry.New(tallies, link, rules, &e.pending, o.Owner, o.KeySecret, o.Recalls, o.Data, &sharedata.Options{
		Namespace: o.Namespace, Capacity: o.Capacity, Lends: o.Lends,
	}); err != nil {
		return err
	}
	var before *ledger.Ledger
	if o.Before != nil && rules.Synced { // else its hits would keep it in memory
		before = &o.Before.ledger
	}
	e.ledger = ledger.New(before)
	e.seats = seat.New(rules, &e.entries)
	e.credit = credit.New(rules, link, &e.entries, &e.ledger)
	e.taker = take.New(tallies, &e.entries, &e.credit, &e.ledger, func() { ticks.hurry(true) })
	e.outbox = outbox{
		host: o.Host, credit: &e.credit, ledger: &e.ledger, tallies: tallies, link: link, feed: &e.feed, waits: &e.waits, namespace: o.Namespace,
	}
	e.pending.Away = &e.outbox.away
	e.claims = claim.New(tallies, link, rules, &e.entries, &e.pending, &e.ledger)
	e.pushes = pushes{rules: rules, credit: &e.credit, pending: &e.pending, ledger: &e.ledger, claims: &e.claims, link: link, outbox: &e.outbox}
	e.acquires = acquires{collect: o.Collect, link: link, entries: &e.entries, waits: &e.waits, outbox: &e.outbox, claims: &e.claims}
	e.decider = decider{acquires: &e.acquires, taker: &e.taker, charges: &e.Charges, blocks: rules.Blocks, yields: rules.Yields}
	e.Charges = charge.New(tallies, link, rules, &e.entries, &e.observer, &e.meter, &e.ledger, e.acquires.prefetch)
	e.requests = requests{
		tallies: tallies, link: link, ticks: ticks, rules: rules, entries: &e.entries, waits: &e.waits, outbox: &e.outbox, acquires: &e.acquires,
		observer: &e.observer, decider: &e.decider, failure: o.OnBackendFailure,
		checks: make([]rule.Check, len(rules.List)),
	}
	e.feed = feed.New(tallies, link, rules, &e.entries, o.Data, o.Namespace)
	e.settler = settle.New(tallies, link, rules, &e.entries, &e.pending)
	e.answers = answers{
		link: link, rules: rules, settler: &e.settler, waits: &e.waits, outbox: &e.outbox, requests: &e.requests, feed: &e.feed,
	}
	return nil
}

// connect prepares a node for its backend.
func (e *Engine) connect(o *Options) {
	for i := range e.rules.List {
		if r := &e.rules.List[i]; r.Synced() && r.CostsLater {
			r.Excess = rule.NewExcess(o.Data, o.Namespace, r.Prefix)
			r.Excess.Read()
		}
	}
	// The shortest interval has ten ticks, so that a new key does not wait long, and a request's
	// timeout has at least one. The ticks of different workers and processes are spread.
	tick := max(1, min(e.rules.Interval/1e6/10, 100, o.Timeout/1e6*4/5))
	tick += o.Random.Below(tick/4 + 1)
	e.ticks.millis = uint32(tick)
	e.outbox.id, e.outbox.worker = e.entries.Table.ID(), o.Random()
	e.outbox.sender = e.outbox.worker
	e.waits.leases = new(leaseAsks)
	e.rules.Share(e.link.Read())
}

// Table returns the table with the node's counters.
func (e *Engine) Table() *sharedata.Table { return e.entries.Table }

// Synchronises reports whether the node has a backend, because some rule shares its counters with
// other processes.
func (e *Engine) Synchronises() bool { return e.rules.Synced }

// TickMillis is the usual time between two ticks, in milliseconds. Under load the node asks for more.
func (e *Engine) TickMillis() uint32 { return e.ticks.millis }

// Nodes is how many processes share the limits; 0 if unknown.
func (e *Engine) Nodes() uint64 { return e.rules.Nodes }

// Time converts a time of the host's clock to the backend's, as far as that is known, in nanoseconds.
func (e *Engine) Time(hostNow int64) int64 { return e.link.ToBackend(hostNow) }

// HasRetries reports whether Retry has hits to add.
func (e *Engine) HasRetries() bool { return len(e.entries.Retries) > 0 }

// Backlog counts the unfinished work of a node.
type Backlog struct {
	// Keys have hits to push or a lease to review. Evicted counts hits of evicted counters.
	Keys, Evicted int
	// Pushes are not done; requests wait for Awaited of them.
	Pushes, Awaited int
	// Unsent are questions that are in no push yet. Waiting requests are paused.
	Unsent, Waiting int
}

// Backlog returns the node's unfinished work.
func (e *Engine) Backlog() Backlog {
	keys, evicted := e.pending.Unpushed()
	return Backlog{
		Keys: keys, Evicted: evicted, Pushes: len(e.outbox.batches), Awaited: e.outbox.asking,
		Unsent: len(e.acquires.unsent), Waiting: e.waits.queue.length,
	}
}

// Overshoot is the most hits above a rule's limits that its nodes together can admit now, or have
// admitted in windows that still count. It is 0 if the rule needs no backend, or while the backend
// can be reached and no hit counts that passed without it. The gauge is shared by the process, so
// such a hit counts for all of its rules. Hits that responses charged above a limit are added, as
// far as they are known.
func (e *Engine) Overshoot(rule int) (hits uint64) {
	_, hits = e.observer.Figures(rule)
	return hits
}

// Warnings is how often a decision or a later charge has left a key of the rule at WarnAt or above.
func (e *Engine) Warnings(rule int) (times uint64) {
	times, _ = e.observer.Figures(rule)
	return times
}

// Overrides returns how many overrides are in force here, and how many are not because they do not
// fit their rules.
func (e *Engine) Overrides() (applied, unfit int) {
	return e.entries.Variants.Count, e.entries.Variants.Unfit
}

// CatchUp takes in the overrides that other workers of the process know, however long that takes.
// Ticks do so little by little, so call it before the first request.
func (e *Engine) CatchUp() {
	if e.rules.Synced {
		e.feed.AdoptOverrides(func(int) bool { return false })
	}
}

// Waits reports whether requests wait. A node that is no longer wanted must stay until none does:
// at the next ticks each request gets its answer, or is decided when its time is over.
func (e *Engine) Waits() bool { return e.waits.queue.first != nil || e.Delayed() > 0 }

// Delayed is how many requests wait for room.
func (e *Engine) Delayed() int {
	if e.requests.lines == nil {
		return 0
	}
	return e.requests.lines.Count
}

// Decide takes a request's hits from all limits of all matching rules, or from none. now is from
// [Engine.Time]. If the request has to wait, Decide returns [counter.Unsure], and w.Request is told
// the verdict later unless it calls [Wait.Leave] before. The checks must be on different keys
// or rules.
func (e *Engine) Decide(checks []rule.Check, now int64, w *Wait) counter.Verdict {
	for i := range checks {
		e.entries.Locate(&checks[i])
		checks[i].Patient = w.patient(&checks[i])
	}
	e.seats.Seat(checks, now)
	if len(checks) == 1 && e.straight && !e.requests.queues(w) {
		// Nearly every request goes this way.
		switch straight.One(&e.entries, &checks[0], now, e.rules.Yields) {
		case counter.Allowed:
			return counter.Allowed
		case counter.Rejected:
			e.decider.reject(checks, now)
			return counter.Rejected
		}
	}
	return e.requests.decideLocated(w, checks, now)
}

// Concurrent reports whether [Engine.TakeInPlace] may be called from now on.
func (e *Engine) Concurrent() bool {
	return e.straight && e.lends && !e.rules.Yields && (e.requests.lines == nil || e.requests.lines.Count == 0)
}

// TakeInPlace is Decide for a single check with hits, of which it also says how they stand, if told is not nil. It
// is safe for concurrent use, also beside all other methods. Most requests find a key whose state is simple enough; for others it
// takes nothing and is unsure.
func (e *Engine) TakeInPlace(r *rule.Rule, key []byte, cost uint64, now int64, told *counter.Told) (verdict counter.Verdict) {
	return straight.InPlace(e.entries.Table, r, key, cost, now, told)
}

// Together calls decide. What the requests that it decides have to ask is sent by the next [Engine.Send], in as
// few pushes as that fits.
func (e *Engine) Together(decide func()) {
	e.requests.gathers = true
	defer func() { e.requests.gathers = false }()
	decide()
}

// Send sends what requests have to ask.
func (e *Engine) Send() { e.requests.send(nil) }

// DecideAlone is Decide without the backend: by what is known here, or as Options.OnBackendFailure says.
func (e *Engine) DecideAlone(checks []rule.Check, now int64) counter.Verdict {
	for i := range checks {
		e.entries.Locate(&checks[i])
	}
	e.seats.Seat(checks, now)
	verdict := e.requests.decideAlone(checks, now)
	e.requests.send(nil)
	return verdict
}

// Look loads the counter of a check's key, and reports whether this node knows the key's present
// totals, as far as that is possible without asking the backend. The counter lacks [rule.Check.Unheard].
func (e *Engine) Look(d *rule.Check, now int64) (known bool) {
	e.entries.Locate(d)
	d.Unheard = e.ledger.Unheard(d, now)
	known = e.entries.Read(d, now)
	return known && (!d.Rule.Synced() || d.Rule.Watched || d.Knows(now))
}

// Seat finds the even parts of the keys of checks that were looked at, or are to be decided.
func (e *Engine) Seat(checks []rule.Check, now int64) { e.seats.Seat(checks, now) }

// Force takes a check's hits, whether or not they have room.
func (e *Engine) Force(d *rule.Check, now int64) {
	e.entries.Locate(d)
	e.Charges.Force(d, int64(d.Cost), now)
	e.requests.send(nil)
}

// DecideRefs is Decide for a rule's referred checks, which it returns.
func (e *Engine) DecideRefs(of []rule.Ref, now int64, w *Wait) ([]rule.Check, counter.Verdict) {
	checks := e.requests.resumed[:len(of)]
	for i := range of {
		checks[i].Restore(&of[i])
	}
	e.seats.Seat(checks, now)
	return checks, e.requests.decideLocated(w, checks, now)
}

// Ask asks the backend for the totals of checks that were looked at and cost nothing, on different
// rules. It reports whether the request has to wait. If so, the request is told once the totals are
// known here, with the verdict Allowed, or can't be had. It is told no checks.
func (e *Engine) Ask(checks []rule.Check, w *Wait) bool { return e.requests.ask(checks, w) }

// Save returns the part of a check, decided or looked at, that [Engine.ForceRef] needs.
func (e *Engine) Save(d *rule.Check) rule.Ref { return e.entries.Save(d) }

// ForceRef is Force for a referred check.
func (e *Engine) ForceRef(s *rule.Ref, now int64) {
	e.Charges.ForceRef(s, int64(s.Cost), now)
	e.requests.send(nil)
}

// Retry tries again to write hits that lost every race. They count from now on.
func (e *Engine) Retry(now int64) {
	e.Charges.Retry(now)
	e.requests.send(nil)
}

// PushAll pushes all hits, whether or not they are due, and repeats failed pushes without a pause.
// It returns false if some hits have to wait for answers to earlier pushes.
func (e *Engine) PushAll() (done bool) {
	e.Settle()
	e.meter.Send(true)
	return e.pushes.pushAll()
}

// Settle takes in all answers that have come. It reports whether hits wait for a part of the backend's store that is away.
func (e *Engine) Settle() (away bool) {
	e.answers.settle(math.MaxInt64)
	e.requests.send(nil)
	return e.outbox.away != 0
}

// PushCharges pushes the costs of responses at once for rules where the backend decides each
// request, and grants that go back. Keys with an unanswered push follow after its answer. Ticks do
// the same.
func (e *Engine) PushCharges() { e.pushes.pushCharges() }

// Unfinished reports whether the backend has yet to hear of anything.
func (e *Engine) Unfinished() bool { return e.pushes.unfinished() || e.meter.Unfinished() }
