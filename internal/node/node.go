package node

import (
	"cmp"

	"weir/internal/counter"
	"weir/sharedata"
	"weir/window"
)

// Node is the engine of one worker. Make it with New. It consists of rooms, each of which knows some of
// those before it, and none behind it.
type Node struct {
	// Tallies count the node's own doings.
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

	leaveBy int64 // when a node that leaves has waited long enough, by the host's clock
}

// New makes a node. If it has a backend, its host ticks it every [Node.TickMillis] from now on,
// until it hears otherwise. The error is [sharedata.ErrUnavailable].
func New(o *Options) (*Node, error) {
	n := &Node{rules: newRuleset(o.Rules), link: newLink(o), ticks: ticks{host: o.Host}}
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
		n.requests.lines = &lines{link: &n.link, ticks: &n.ticks, order: newOrder(o), of: map[sharedata.Address]*keyLine{}}
	}
	return n, nil
}

// furnish makes a node's rooms known to those behind them.
func (n *Node) furnish(o *Options) {
	tallies, rules, link, ticks, refusals := &n.Tallies, &n.rules, &n.link, &n.ticks, new(refusals)
	n.variants = variants{rules: rules, link: link, owner: o.Owner}
	n.keys = keys{
		tallies: tallies, link: link, variants: &n.variants, recalls: o.Recalls, local: !rules.synced,
		demands: make([]Demand, len(rules.list)),
	}
	if !n.keys.local {
		n.keys.identities = counter.NewIdentities(o.KeySecret)
	}
	n.advances = advances{rules: rules, link: link, keys: &n.keys, least: cmp.Or(o.LeastFleet, leastFleet)}
	n.callouts = callouts{
		advances: &n.advances, tallies: tallies, link: link, variants: &n.variants, news: &n.overrides.news, waits: &n.waits, namespace: o.Namespace,
	}
	n.pushes = pushes{advances: &n.advances, tallies: tallies, link: link, keys: &n.keys, callouts: &n.callouts}
	n.asks = asks{collect: o.Collect, link: link, ticks: ticks, keys: &n.keys, waits: &n.waits, callouts: &n.callouts, pushes: &n.pushes}
	n.watch = watch{link: link, rules: rules, keys: &n.keys, callouts: &n.callouts, visit: o.Held}
	n.accounts = accounts{tallies: tallies, link: link, keys: &n.keys, callouts: &n.callouts}
	n.decider = decider{
		tallies: tallies, keys: &n.keys, pushes: &n.pushes, asks: &n.asks, watch: &n.watch, refusals: refusals, advances: &n.advances, blocks: rules.blocks, marks: rules.marks,
	}
	n.charges = charges{
		tallies: tallies, link: link, keys: &n.keys, pushes: &n.pushes, watch: &n.watch, accounts: &n.accounts, decider: &n.decider,
	}
	n.requests = requests{
		tallies: tallies, link: link, ticks: ticks, rules: rules, keys: &n.keys, waits: &n.waits, callouts: &n.callouts, asks: &n.asks,
		watch: &n.watch, accounts: &n.accounts, decider: &n.decider, failure: o.OnBackendFailure,
	}
	n.overrides = overrides{
		tallies: tallies, link: link, ticks: ticks, rules: rules, variants: &n.variants, keys: &n.keys, callouts: &n.callouts,
		pushes: &n.pushes, refusals: refusals,
	}
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
	// The shortest interval has ten ticks, so that a new key needn't wait long, and there is one in the
	// time that a request may wait. They are spread, so that the workers of all processes don't tick at
	// once.
	tick := max(1, min(n.rules.interval/1e6/10, 100, o.Timeout/1e6*4/5))
	tick += o.Random.below(tick/4 + 1)
	n.ticks.millis = uint32(tick)
	n.callouts.id, n.callouts.worker = n.keys.table.ID(), o.Random()
	n.callouts.sender = n.callouts.worker
	n.asks.leases = new(leaseAsks)
	n.link.read()
	n.overrides.news = newNews(o.Data, o.Namespace)
	n.rules.share(uint64(n.link.shared.nodes))
	n.watch.sightings = newSightings(n.rules.list, n.link.now(), n.link.hostNow(), o.Random)
	n.keys.names = n.watch.sightings.names
	n.accounts.sender = nextSender(n.callouts.worker)
	if n.rules.reveals {
		n.accounts.open(n.rules.list)
	}
	if n.rules.warns {
		n.watch.warnings = new(warnings)
	}
}

// bytesPerCounter is how much memory a counter of the largest rule takes.
func bytesPerCounter(rules []Rule) int {
	extra := 0
	for i := range rules {
		extra = max(extra, rules[i].extraBytes())
	}
	return sharedata.BytesPerCounter + extra
}

// Table is where the node's counters are.
func (n *Node) Table() *sharedata.Table { return n.keys.table }

// Synchronises reports whether the node has a backend: the counters of a rule are those of other
// processes too.
func (n *Node) Synchronises() bool { return !n.keys.local }

// TickMillis is the time between two ticks while there is no more to do than usual.
func (n *Node) TickMillis() uint32 { return n.ticks.millis }

// Nodes is how many processes share the limits, 0 if that is not known.
func (n *Node) Nodes() uint64 { return n.rules.nodes }

// Time is the time by the backend's clock, as far as that is known, when the host's is hostNow.
func (n *Node) Time(hostNow int64) int64 { return hostNow + n.link.offset }

// HoldsHits reports whether there are hits to add with AddHeld.
func (n *Node) HoldsHits() bool { return len(n.decider.held) > 0 }

// Backlog counts what a node has yet to do.
type Backlog struct {
	// Keys have hits to push, or a lease to review; Evicted are hits of counters that had to make
	// room.
	Keys, Evicted int
	// Pushes are not done, of which requests wait for Awaited.
	Pushes, Awaited int
	// Unsent are questions that no push has taken along yet. Waiting requests are paused.
	Unsent, Waiting int
}

// Backlog says what the node has yet to do.
func (n *Node) Backlog() Backlog {
	return Backlog{
		Keys: n.pushes.dirty.count, Evicted: len(n.keys.orphans), Pushes: len(n.callouts.batches), Awaited: n.callouts.asking,
		Unsent: len(n.asks.unsent), Waiting: max(n.waits.queue.length, len(n.waits.released)),
	}
}

// Overshoot is the most hits above a rule's limits that its nodes can admit together as things
// stand, or have admitted in windows that count still: none if the rule needs no backend, or while
// the backend can be reached and no hit counts that passed without it. As the gauge is the
// process's, a hit counts whichever of its rules it was for. Hits that responses have charged above
// a limit come on top, as far as they have been heard of.
//
//go:noinline
func (n *Node) Overshoot(rule int) (hits uint64) {
	r, now := &n.rules.list[rule], n.link.now()
	if !r.Synced() {
		return 0
	}
	return min(n.admittedAlone(r, now)+r.excess.at(now), window.MaxHits)
}

// admittedAlone is how many hits nodes that can't ask may admit above a rule's limits.
func (n *Node) admittedAlone(r *Rule, now int64) (hits uint64) {
	if n.requests.failure == FailDeny {
		return 0
	}
	link := &n.link.shared
	nodes, hits := n.rules.nodes, r.Quota()
	if r.advances && nodes >= n.advances.least {
		hits += hits / 2 // those that are advanced, of all nodes together
	}
	switch counts := link.countsAlone(now, r.Lasts()); {
	case counts:
		nodes, hits = max(nodes, uint64(link.peak)), max(hits, r.before)
	case !n.link.open():
		return 0
	}
	if n.requests.failure == FailAllow || nodes == 0 {
		return window.MaxHits // nobody has said how many nodes there are
	}
	if !r.forgets() {
		nodes-- // this node is within the limit
	}
	return min(hits*nodes, window.MaxHits)
}

// Warnings is how often decisions, and charges since, have left a key of a rule at WarnAt or above.
func (n *Node) Warnings(rule int) uint64 { return n.rules.list[rule].warnings }

// Overrides are how many overrides that came at run time are in force here, and how many could not
// be applied, as they do not fit their rules.
func (n *Node) Overrides() (applied, unfit int) { return n.variants.count, n.variants.unfit }

// CatchUp takes in the overrides that other workers of the process have heard of, as long as that
// takes. Ticks do it little by little: call it before the first request.
func (n *Node) CatchUp() {
	if !n.keys.local {
		n.overrides.adoptOverrides(1<<63 - 1)
	}
}

// Charge notes what a demand has taken that was allowed, for [Node.Revise]. Call it before the demand
// is used again.
func (n *Node) Charge(d *Demand, now int64) Charge {
	c := Charge{Saved: n.keys.save(d)}
	switch {
	case d.grantedAt != 0:
		now = d.grantedAt
	case d.by == byBackend:
		c.Cost = 0 // it was let pass without being counted: there is nothing to give back
	}
	c.note(d, now)
	return c
}

// Waits reports whether requests wait. A node that is no longer wanted stays until none does: at the
// ticks to come each gets its answer, or is decided as its time is over.
func (n *Node) Waits() bool { return n.waits.queue.first != nil || n.Delayed() > 0 }

// Delayed is how many requests wait for room.
func (n *Node) Delayed() int {
	if n.requests.lines == nil {
		return 0
	}
	return n.requests.lines.waiting
}

// Vary notes that keys of a rule are going to be decided by other limits, too.
func (n *Node) Vary(rule int) { n.advances.vary(&n.rules.list[rule]) }

// Decide takes a request's hits from all limits of all the rules that match it, or from none. now
// is of [Node.Time]. It returns [counter.Unsure] if the request has to wait: then the request is
// told, unless it calls [Wait.Leave] before. The demands are of different rules.
func (n *Node) Decide(demands []Demand, now int64, w *Wait) counter.Verdict {
	for i := range demands {
		n.keys.locate(&demands[i])
	}
	return n.requests.decideLocated(demands, now, w)
}

// Look reads what a demand's key has, and reports whether anything is known of it.
func (n *Node) Look(d *Demand, now int64) (known bool) {
	n.keys.locate(d)
	known = n.keys.table.Read(&d.slot, d.address)
	n.keys.decode(d, known)
	d.Counter.Advance(now)
	return known
}

// Force takes a demand's hits, whether or not they have room.
func (n *Node) Force(d *Demand, now int64) {
	n.keys.locate(d)
	n.keys.read(d, now)
	n.decider.force(d, now)
	n.charges.accountFor(d, now)
}

// DecideSaved is Decide of a demand that was saved, which it returns. Call it when [Request.Decided] has
// no use for its demands any more.
func (n *Node) DecideSaved(s *Saved, now int64, w *Wait) (*Demand, counter.Verdict) {
	return n.requests.decideSaved(s, now, w)
}

// Ask has the backend asked for the totals of demands that were looked at and cost nothing, of
// different rules. It reports whether the request waits for them: it is told as soon as they
// are known here, or can't be had.
func (n *Node) Ask(demands []Demand, w *Wait) bool { return n.requests.ask(demands, w) }

// Save saves a demand that was decided, or looked at, for [Node.ForceSaved].
func (n *Node) Save(d *Demand) Saved { return n.keys.save(d) }

// ForceSaved is Force of a demand that was saved. Call it outside of [Request.Decided].
func (n *Node) ForceSaved(s *Saved, now int64) {
	n.decider.forceSaved(s, now)
	n.charges.accountFor(&n.keys.demands[0], now)
}

// AddHeld tries again to write the hits that lost their races. They count from now on.
func (n *Node) AddHeld(now int64) { n.decider.addHeld(now) }

// Revise has a charge cost so many hits: it takes more, whether or not they have room, or gives some
// back, where the hits were counted. It does that once for each change of the cost, whatever other
// workers do. Call it outside of [Request.Decided].
func (n *Node) Revise(c *Charge, cost uint64, now int64) { n.charges.revise(c, cost, now) }

// Renew has the hits that a request holds count on. Call it every [window.RenewEvery].
func (n *Node) Renew(c *Charge, now int64) { n.charges.renew(c, now) }

// Release gives back the hits that a request has held, once. Call it outside of [Request.Decided].
func (n *Node) Release(c *Charge, now int64) { n.charges.release(c, now) }

// Spent reports whether more has been taken of a charge's counter than a limit has, for sure: what is on
// its way to the backend or back is left out; and with a backend, the last time that Spent was called and
// now, a push and its answer apart, as others may have leased hits that they are about to give back, and
// a grant may be on its way here. Call it outside of [Request.Decided].
func (n *Node) Spent(c *Charge, now int64) bool { return n.charges.spent(c, now) }

// PushAll pushes what was counted, whether or not it is due, and sends again what has failed,
// without a pause. It reports false if there is more, for which pushes have to be answered first.
func (n *Node) PushAll() (done bool) {
	n.accounts.tell(true)
	return n.pushes.pushAll()
}

// PushCharges has the backend hear at once of what responses have cost, where it decides each request,
// and of grants that have gone back. Keys with a push that is not answered yet follow when it is. Ticks
// do so too.
func (n *Node) PushCharges() { n.pushes.pushCharges() }

// Unfinished reports whether there is anything that the backend has yet to hear of.
func (n *Node) Unfinished() bool { return n.pushes.unfinished() || n.accounts.unfinished() }
