package node

import (
	"weir/internal/counter"
	"weir/internal/engine/wait"
	"weir/sharedata"
	"weir/window"
)

// Node is the engine of one worker. Make it with New. It is not safe for concurrent use. It
// consists of rooms, each of which knows only rooms below it.
type Node struct {
	// Tallies count the node's own work.
	Tallies Tallies

	rules     ruleset
	link      link
	ticks     ticks
	variants  variants
	keys      keys
	waits     waits
	advances  advances
	callouts  callouts
	pushes    pushes
	asks      asks
	watch     watch
	accounts  accounts
	decider   decider
	charges   charges
	requests  requests
	overrides overrides
	answers   answers

	leaveBy int64 // when a leaving node gives up, by the host's clock
}

// New makes a node. If the node has a backend, its host must call Tick every [Node.TickMillis] from
// now on, until TickEvery changes that. The error is [sharedata.ErrUnavailable].
func New(o *Options) (*Node, error) {
	n := &Node{rules: newRuleset(o.Rules), link: newLink(o.Data, o.Namespace, o.Host, o.Random, o.Timeout, o.Turned), ticks: ticks{host: o.Host}}
	n.furnish(o)
	for i := range n.rules.list {
		nearOf(&n.rules.list[i])
	}
	var err error
	n.keys.table, err = sharedata.Open(o.Data, sharedata.Options{
		Namespace:       o.Namespace,
		Capacity:        o.Capacity,
		BytesPerCounter: bytesPerCounter(n.rules.list),
		Salt:            n.keys.identities.Salt(),
	}, o.Random)
	if err != nil {
		return nil, err
	}
	for i := range n.rules.list {
		n.rules.list[i].group = n.keys.table.Group(n.rules.list[i].Prefix)
	}
	if n.rules.delays {
		n.ticks.millis = idleMillis
	}
	if n.rules.synced {
		n.connect(o)
	}
	n.ticks.period = n.ticks.millis
	if n.rules.delays {
		n.requests.lines = wait.NewQueue(o.Data, o.Namespace, uint32(o.Random()), n.link.hostNow, n.ticks.within)
	}
	return n, nil
}

// furnish gives the node's rooms the rooms that they use.
func (n *Node) furnish(o *Options) {
	tallies, rules, link, ticks, refusals := &n.Tallies, &n.rules, &n.link, &n.ticks, new(refusals)
	n.variants = newVariants(rules, link, o.Owner)
	n.keys = newKeys(tallies, link, rules, &n.variants, o.KeySecret, o.Recalls)
	n.advances = newAdvances(rules, link, &n.keys, o.LeastFleet)
	n.callouts = callouts{
		host: o.Host, advances: &n.advances, tallies: tallies, link: link, feed: &n.overrides, waits: &n.waits, namespace: o.Namespace,
	}
	n.pushes = pushes{advances: &n.advances, tallies: tallies, link: link, keys: &n.keys, callouts: &n.callouts}
	n.asks = asks{collect: o.Collect, link: link, ticks: ticks, keys: &n.keys, waits: &n.waits, callouts: &n.callouts, pushes: &n.pushes}
	n.watch = newWatch(link, rules, &n.keys, o.Namespace, o.Held, o.Owner)
	n.accounts = newAccounts(tallies, link, &n.keys, o.Namespace)
	n.decider = decider{
		tallies: tallies, keys: &n.keys, pushes: &n.pushes, asks: &n.asks, watch: &n.watch, refusals: refusals, advances: &n.advances, blocks: rules.blocks, marks: rules.marks, synced: rules.synced,
	}
	n.charges = charges{
		tallies: tallies, link: link, keys: &n.keys, pushes: &n.pushes, watch: &n.watch, accounts: &n.accounts, decider: &n.decider,
	}
	n.requests = requests{
		tallies: tallies, link: link, ticks: ticks, rules: rules, keys: &n.keys, waits: &n.waits, callouts: &n.callouts, asks: &n.asks,
		watch: &n.watch, accounts: &n.accounts, decider: &n.decider, failure: o.OnBackendFailure,
		demands: make([]Demand, len(rules.list)),
	}
	n.overrides = newOverrides(tallies, link, rules, &n.variants, &n.keys, refusals)
	n.answers = answers{
		tallies: tallies, link: link, rules: rules, keys: &n.keys, waits: &n.waits, callouts: &n.callouts, pushes: &n.pushes,
		requests: &n.requests, overrides: &n.overrides, refusals: refusals,
	}
}

// connect prepares a node for its backend.
func (n *Node) connect(o *Options) {
	for i := range n.rules.list {
		if r := &n.rules.list[i]; r.Synced() && r.CostsLater {
			r.excess = newExcess(o.Data, o.Namespace, r.Prefix)
			r.excess.read()
		}
	}
	// The shortest interval has ten ticks, so that a new key does not wait long, and a request's
	// timeout has at least one. The ticks of different workers and processes are spread.
	tick := max(1, min(n.rules.interval/1e6/10, 100, o.Timeout/1e6*4/5))
	tick += o.Random.below(tick/4 + 1)
	n.ticks.millis = uint32(tick)
	n.callouts.id, n.callouts.worker = n.keys.table.ID(), o.Random()
	n.callouts.sender = n.callouts.worker
	n.waits.leases = new(leaseAsks)
	n.link.read()
	n.overrides.open(o.Data, o.Namespace)
	n.rules.share(n.link.nodes())
	n.watch.open(n.callouts.id, n.callouts.worker)
	n.accounts.open(n.rules.list, nextSender(n.callouts.worker))
}

// bytesPerCounter is the memory for a counter of the largest rule, in bytes.
func bytesPerCounter(rules []Rule) int {
	extra := 0
	for i := range rules {
		extra = max(extra, rules[i].extraBytes())
	}
	return sharedata.BytesPerCounter + extra
}

// Table returns the table with the node's counters.
func (n *Node) Table() *sharedata.Table { return n.keys.table }

// Synchronises reports whether the node has a backend, because some rule shares its counters with
// other processes.
func (n *Node) Synchronises() bool { return n.rules.synced }

// TickMillis is the usual time between two ticks, in milliseconds. Under load the node asks for
// more.
func (n *Node) TickMillis() uint32 { return n.ticks.millis }

// Nodes is how many processes share the limits; 0 if unknown.
func (n *Node) Nodes() uint64 { return n.rules.nodes }

// Time converts a time of the host's clock to the backend's, as far as that is known, in
// nanoseconds.
func (n *Node) Time(hostNow int64) int64 { return n.link.toBackend(hostNow) }

// HoldsHits reports whether AddHeld has hits to add.
func (n *Node) HoldsHits() bool { return len(n.decider.held) > 0 }

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
func (n *Node) Backlog() Backlog {
	return Backlog{
		Keys: n.keys.dirty.count, Evicted: n.keys.orphans.count(), Pushes: len(n.callouts.batches), Awaited: n.callouts.asking,
		Unsent: len(n.asks.unsent), Waiting: max(n.waits.queue.length, len(n.waits.released)),
	}
}

// Overshoot is the most hits above a rule's limits that its nodes together can admit now, or have
// admitted in windows that still count. It is 0 if the rule needs no backend, or while the backend
// can be reached and no hit counts that passed without it. The gauge is shared by the process, so
// such a hit counts for all of its rules. Hits that responses charged above a limit are added, as
// far as they are known.
//
//go:noinline
func (n *Node) Overshoot(rule int) (hits uint64) {
	r, now := &n.rules.list[rule], n.link.now()
	if !r.Synced() {
		return 0
	}
	return min(n.admittedAlone(r, now)+r.excess.at(now), window.MaxHits)
}

// admittedAlone is how many hits nodes without the backend may admit above a rule's limits.
func (n *Node) admittedAlone(r *Rule, now int64) (hits uint64) {
	if n.requests.failure == FailDeny {
		return 0
	}
	nodes, hits := n.rules.nodes, r.Quota()
	if r.advances && nodes >= n.advances.least {
		hits += hits / 2 // the advanced hits of all nodes
	}
	switch peak, counts := n.link.countsAlone(now, r.Lasts()); {
	case counts:
		nodes, hits = max(nodes, peak), max(hits, r.before)
	case !n.link.open():
		return 0
	}
	if n.requests.failure == FailAllow || nodes == 0 {
		return window.MaxHits // the number of nodes is unknown
	}
	if !r.forgets() {
		nodes-- // this node keeps to the limit
	}
	return min(hits*nodes, window.MaxHits)
}

// Warnings is how often a decision or a later charge has left a key of the rule at WarnAt or above.
func (n *Node) Warnings(rule int) uint64 { return n.rules.list[rule].warnings }

// Overrides returns how many overrides are in force here, and how many are not because they do not
// fit their rules.
func (n *Node) Overrides() (applied, unfit int) { return n.variants.count, n.variants.unfit }

// CatchUp takes in the overrides that other workers of the process know, however long that takes.
// Ticks do so little by little, so call it before the first request.
func (n *Node) CatchUp() {
	if n.rules.synced {
		n.overrides.adoptOverrides(1<<63 - 1)
	}
}

// Charge records what an allowed demand has taken, for [Node.Revise]. Call it before the demand is
// used again.
func (n *Node) Charge(d *Demand, now int64) Charge {
	c := Charge{Saved: n.keys.save(d)}
	switch {
	case d.grantedAt != 0:
		now = d.grantedAt
	case d.by == byBackend:
		c.Cost = 0 // the request passed uncounted, so there is nothing to give back
	}
	c.note(d, now)
	return c
}

// Waits reports whether requests wait. A node that is no longer wanted must stay until none does:
// at the next ticks each request gets its answer, or is decided when its time is over.
func (n *Node) Waits() bool { return n.waits.queue.first != nil || n.Delayed() > 0 }

// Delayed is how many requests wait for room.
func (n *Node) Delayed() int {
	if n.requests.lines == nil {
		return 0
	}
	return n.requests.lines.Len()
}

// Decide takes a request's hits from all limits of all matching rules, or from none. now is from
// [Node.Time]. If the request has to wait, Decide returns [counter.Unsure], and w.Request is told
// the verdict later unless it calls [Wait.Leave] before. The demands must be on different keys
// or rules.
func (n *Node) Decide(demands []Demand, now int64, w *Wait) counter.Verdict {
	for i := range demands {
		n.keys.locate(&demands[i])
		demands[i].patient = w.patient(&demands[i])
	}
	return n.requests.decideLocated(demands, now, w)
}

// DecideAlone is Decide without the backend: by what is known here, or as Options.OnBackendFailure says.
func (n *Node) DecideAlone(demands []Demand, now int64) counter.Verdict {
	for i := range demands {
		n.keys.locate(&demands[i])
	}
	return n.requests.decideAlone(demands, now)
}

// Look loads the counter of a demand's key, and reports whether this node knows the key's present
// totals, as far as that is possible without asking the backend.
func (n *Node) Look(d *Demand, now int64) (known bool) {
	n.keys.locate(d)
	known = n.keys.table.Read(&d.slot, d.address)
	n.keys.decode(d, known)
	d.Counter.Advance(now)
	return known && (!d.Rule.Synced() || d.Rule.Watched || d.knows(now))
}

// Force takes a demand's hits, whether or not they have room.
func (n *Node) Force(d *Demand, now int64) {
	n.keys.locate(d)
	n.keys.read(d, now)
	n.decider.force(d, now)
	n.charges.accountFor(d, now)
}

// GiveBack gives back hits of a demand's key that count now, whoever counted them, the newest first. It
// never gives back more than are known here.
func (n *Node) GiveBack(d *Demand, hits uint64, now int64) {
	n.keys.locate(d)
	n.charges.giveBack(d, hits, now)
}

// DecideSaved is Decide for a saved demand, which it returns.
func (n *Node) DecideSaved(s *Saved, now int64, w *Wait) (*Demand, counter.Verdict) {
	return n.requests.decideSaved(s, now, w)
}

// Ask asks the backend for the totals of demands that were looked at and cost nothing, on different
// rules. It reports whether the request has to wait. If so, the request is told once the totals are
// known here, or can't be had.
func (n *Node) Ask(demands []Demand, w *Wait) bool { return n.requests.ask(demands, w) }

// Save returns the part of a demand, decided or looked at, that [Node.ForceSaved] needs.
func (n *Node) Save(d *Demand) Saved { return n.keys.save(d) }

// ForceSaved is Force for a saved demand.
func (n *Node) ForceSaved(s *Saved, now int64) {
	n.decider.forceSaved(s, now)
	n.charges.accountFor(&n.decider.charged, now)
}

// AddHeld tries again to write hits that lost every race. They count from now on.
func (n *Node) AddHeld(now int64) { n.decider.addHeld(now) }

// Revise changes the cost of a charge: it takes more hits, whether or not they have room, or gives
// some back, in the windows where they were counted. Each change is applied once, whatever other
// workers do.
func (n *Node) Revise(c *Charge, cost uint64, now int64) { n.charges.revise(c, cost, now) }

// Renew keeps the hits that a request holds counted. Call it every [window.RenewEvery].
func (n *Node) Renew(c *Charge, now int64) { n.charges.renew(c, now) }

// Release gives back the hits that a request has held. Call it once.
func (n *Node) Release(c *Charge, now int64) { n.charges.release(c, now) }

// Spent reports whether a charge's counter is certainly above a limit. Hits on their way to the
// backend or back don't count. With a backend, the counter must also have been above at an earlier
// call, at least a push and its answer ago: others may be about to give back leases, and a grant
// may be on its way here.
func (n *Node) Spent(c *Charge, now int64) bool { return n.charges.spent(c, now) }

// PushAll pushes all hits, whether or not they are due, and repeats failed pushes without a pause.
// It returns false if some hits have to wait for answers to earlier pushes.
func (n *Node) PushAll() (done bool) {
	n.tellUsage(true)
	return n.pushes.pushAll()
}

// PushCharges pushes the costs of responses at once for rules where the backend decides each
// request, and grants that go back. Keys with an unanswered push follow after its answer. Ticks do
// the same.
func (n *Node) PushCharges() { n.pushes.pushCharges() }

// Unfinished reports whether the backend has yet to hear of anything.
func (n *Node) Unfinished() bool { return n.pushes.unfinished() || n.accounts.unfinished() }
