package node

import (
	"weir/internal/counter"
	"weir/internal/wire"
	"weir/sharedata"
	"weir/window"
)

// Options say what a node counts, and with whom.
type Options struct {
	// Namespace names the counters: only nodes of the same namespace share them.
	Namespace string
	// Data is what joins the nodes of this process, and Capacity how many counters its table is
	// made for.
	Data     sharedata.Data
	Capacity int
	// Rules have their Limits, SyncRate, Prefix, CountRejected, CostsLater, Watched, Widest, WarnAt, Shadow,
	// Reveal and Tag.
	// They are the node's from now on.
	Rules []Rule
	// Random is what nodes differ by.
	Random Random

	// Recalls says that the worker remembers pages that it has written, from one tick to the next:
	// see [sharedata.Recent]. That is for hosts that take long to give them.
	Recalls bool

	// Host sends pushes, each of which ends within Timeout, in nanoseconds. If the counters of all
	// rules stay in this process, there are none, and of this and what follows only the host's time
	// is used.
	Host    Host
	Timeout int64
	// Turned, unless it is nil, is told what pushes come to when nobody waits for the backend any more,
	// or the reason is another one, and PushAnswered when it is back; once of all the process's nodes.
	Turned func(why Outcome)
	// OnBackendFailure concerns the rules that need the backend: the others decide in any case.
	OnBackendFailure FailureMode
	// KeySecret is what the backend knows keys by, which only nodes of the same secret share.
	KeySecret string
	// Owner knows what overrides mean that the backend tells of. If it is nil, they do nothing.
	Owner Owner
}

// FailureMode is what becomes of requests while the backend can't be reached. The configuration and
// the library have the same numbers.
type FailureMode uint8

const (
	// FailLocal decides from what is known here, and pushes the hits later.
	FailLocal FailureMode = iota
	// FailAllow passes over the rules that need the backend: what they match is not counted.
	FailAllow
	// FailDeny lets no request pass that a rule matches which needs the backend.
	FailDeny
)

// Host is what a node needs of the process that it is part of.
type Host interface {
	// Now is the process's time in nanoseconds since the Unix epoch. No answer corrects it.
	Now() int64
	// Send sends a push to the backend, and reports whether it is on its way. If it is, it ends
	// within the timeout: then [Node.Answered] is called with the ticket, once, and not before Send
	// has returned. The push is valid during the call.
	Send(push []byte, ticket Ticket) (sent bool)
	// TickEvery has [Node.Tick] called every so many milliseconds from now on.
	TickEvery(millis uint32)
}

// Node is the engine of one worker. Make it with New.
type Node struct {
	options Options
	table   *sharedata.Table
	rules   []Rule
	// Tallies are what the node has counted of its own doings.
	Tallies Tallies
	payload []byte // an encoded counter
	recent  sharedata.Recent
	// identities are the names of keys in the backend.
	identities counter.Identities
	// local says that the counters of all rules stay in this process. Then there is no backend, and
	// of the fields that follow only held and demands are used.
	local bool
	alone bool    // whether the request being decided is decided without the backend
	held  []Saved // hits that lost every race to be written
	// demands are those of a request that has waited, or of hits that were held; scratch is what a
	// push, an answer or a wish reads.
	demands []Demand
	scratch Demand

	// warns says that any rule does.
	warns bool
	// warnings are for the backend; nil if there is none, or no rule warns.
	warnings *warnings
	// sightings are what people look at; nil if the node is local.
	sightings *sightings

	// overrides go before the limits of rules. news is how there come to be some.
	overrides overrides
	news      news

	link  link
	nodes uint64 // that share the limits, 0 if that is not known

	// interval is the shortest between two pushes of a key, of all rules.
	interval int64
	// lasts is for how long a hit of any rule that needs the backend can count.
	lasts int64
	// tickMillis is the time between ticks while there is no more to do than usual. hurried says
	// that they come every millisecond.
	tickMillis uint32
	hurried    bool
	// until is when the host's callback that is running is to be over. It is 0 in those of
	// requests. As all deadlines it is by the host's clock, which no answer corrects.
	until int64

	id       uint64 // of the table, and so of the process
	sender   uint64
	sequence uint64
	batches  []*batch // that aren't done, in the order of their sequence
	idle     []*batch
	orphans  []orphan // pending hits of counters that had to make room
	// hastyKeys are for [Node.PushCharges], and so are the orphans if hasty is set.
	hastyKeys []hastyKey
	hasty     bool
	dirty     dirtyKeys
	crowded   bool // whether keys that are due wait for an answer, as too many batches are out
	all       bool // whether everything is due
	leaving   bool // whether the node is about to go
	leaveBy   int64

	wishes    []*take // that no callout has taken along yet
	wished    *leaseWishes
	crowd     int    // as many wishes as this are looked through for those that nobody wants
	openBatch *batch // that wishes go into, and isn't sent before it is full or there are no more
	spare     []*take
	asking    int // callouts that somebody waits for
	waiting   queue
	released  []waiting // that wait for nothing any more, and are to be decided without the backend

	total  wire.Total
	totals [maxLimits]window.Totals
	push   window.Push
	rooms  []wire.Room

	// Last, as it is large and has no pointers: the collector doesn't look behind the last pointer.
	refusals refusals
}

const (
	second = int64(1e9)
	// leaveNanos is how long a node that is no longer wanted waits for the backend's answers.
	leaveNanos = 5 * second
)

// New makes a node. If it has a backend, its host ticks it every [Node.TickMillis] from now on,
// until it hears otherwise. The error is [sharedata.ErrUnavailable].
func New(o *Options) (*Node, error) {
	n := &Node{options: *o, rules: o.Rules, local: true, demands: make([]Demand, len(o.Rules))}
	for i := range n.rules {
		n.rules[i].compile(i)
		n.local = n.local && !n.rules[i].Synced()
	}
	if !n.local {
		n.identities = counter.NewIdentities(o.KeySecret)
	}
	var err error
	n.table, err = sharedata.Open(o.Data, sharedata.Options{
		Namespace:       o.Namespace,
		Capacity:        o.Capacity,
		BytesPerCounter: bytesPerCounter(n.rules),
		Salt:            n.identities.Salt(),
	}, o.Random)
	if err != nil {
		return nil, err
	}
	for i := range n.rules {
		n.rules[i].group = n.table.Group(n.rules[i].Prefix)
		n.warns = n.warns || n.rules[i].WarnAt != 0
	}
	if !n.local {
		n.connect()
	}
	return n, nil
}

// connect prepares a node for its backend.
func (n *Node) connect() {
	// The shortest interval has ten ticks, so that a new key needn't wait long, and there is one in the
	// time that a request may wait. They are spread, so that the workers of all processes don't tick at
	// once.
	n.interval = window.MaxWidth
	for i := range n.rules {
		if r := &n.rules[i]; r.Synced() {
			n.interval = min(n.interval, r.Interval)
			n.lasts = max(n.lasts, r.Lasts())
			if r.CostsLater {
				r.excess = newExcess(n.options.Data, n.options.Namespace, r.Prefix)
				r.excess.read()
			}
		}
	}
	tick := max(1, min(n.interval/1e6/10, 100, n.options.Timeout/1e6*4/5))
	tick += n.options.Random.below(tick/4 + 1)
	n.tickMillis = uint32(tick)
	n.id, n.sender = n.table.ID(), n.options.Random()
	n.wished = new(leaseWishes)
	n.link = newLink(n.options.Data, n.options.Namespace, n.options.Random)
	n.link.read()
	n.news = newNews(n.options.Data, n.options.Namespace)
	n.share(uint64(n.link.shared.nodes))
	n.sightings = newSightings(n.rules, n.now(), n.hostNow(), n.options.Random)
	if n.warns {
		n.warnings = new(warnings)
	}
}

// bytesPerCounter is what a counter of the largest rule takes.
func bytesPerCounter(rules []Rule) int {
	extra := 0
	for i := range rules {
		extra = max(extra, rules[i].extraBytes())
	}
	return sharedata.BytesPerCounter + extra
}

// Table is where the node's counters are.
func (n *Node) Table() *sharedata.Table { return n.table }

// Synchronises reports whether the node has a backend: the counters of a rule are those of other
// processes too.
func (n *Node) Synchronises() bool { return !n.local }

// TickMillis is the time between two ticks while there is no more to do than usual.
func (n *Node) TickMillis() uint32 { return n.tickMillis }

// Nodes is how many processes share the limits, 0 if that is not known.
func (n *Node) Nodes() uint64 { return n.nodes }

// Overshoot is the most hits above a rule's limits that its nodes can admit together as things
// stand, or have admitted in windows that count still: none if the rule needs no backend, or while
// the backend can be reached and no hit counts that passed without it. As the gauge is the process's,
// a hit counts whichever of its rules it was for. What responses have charged above a limit is on top,
// as far as that has been heard.
//
//go:noinline
func (n *Node) Overshoot(rule int) (hits uint64) {
	r, now := &n.rules[rule], n.now()
	if !r.Synced() {
		return 0
	}
	return min(n.admittedAlone(r, now)+r.excess.at(now), window.MaxHits)
}

// admittedAlone is how many hits nodes that can't ask may admit above a rule's limits.
func (n *Node) admittedAlone(r *Rule, now int64) (hits uint64) {
	if n.options.OnBackendFailure == FailDeny {
		return 0
	}
	link := &n.link.shared
	nodes, hits := n.nodes, r.Quota()
	switch counts := link.countsAlone(now, r.Lasts()); {
	case counts:
		nodes, hits = max(nodes, uint64(link.peak)), max(hits, r.before)
	case !n.link.open():
		return 0
	}
	if n.options.OnBackendFailure == FailAllow || nodes == 0 {
		return window.MaxHits // nobody has said how many nodes there are
	}
	if !r.forgets() {
		nodes-- // this one is within the limit
	}
	return min(hits*nodes, window.MaxHits)
}

// Time is the time by the backend's clock, as far as that is known, when the host's is hostNow.
func (n *Node) Time(hostNow int64) int64 { return hostNow + n.link.offset }

// HoldsHits reports whether there are hits to add with AddHeld.
func (n *Node) HoldsHits() bool { return len(n.held) > 0 }

// now is the time by the backend's clock, as far as that is known.
//
//go:noinline
func (n *Node) now() int64 { return n.hostNow() + n.link.offset }

// hostNow is the time by the host's clock.
//
//go:noinline
func (n *Node) hostNow() int64 { return n.options.Host.Now() }

// share tells the rules how many nodes share their limits.
func (n *Node) share(nodes uint64) {
	if n.nodes == nodes {
		return
	}
	n.nodes = nodes
	for i := range n.rules {
		n.rules[i].Share(nodes)
	}
}

// Backlog is what a node has yet to do.
type Backlog struct {
	// Keys have hits to push, or a lease to review; Evicted are hits of counters that had to make
	// room.
	Keys, Evicted int
	// Pushes are not done, of which requests wait for Awaited.
	Pushes, Awaited int
	// Wishes were not sent yet. Waiting requests are paused.
	Wishes, Waiting int
}

// Backlog says what the node has yet to do.
func (n *Node) Backlog() Backlog {
	return Backlog{
		Keys: n.dirty.count, Evicted: len(n.orphans), Pushes: len(n.batches), Awaited: n.asking,
		Wishes: len(n.wishes), Waiting: max(n.waiting.length, len(n.released)),
	}
}
