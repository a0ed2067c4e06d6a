package node

import (
	"weir/internal/wire"
	"weir/sharedata"
	"weir/window"
)

// Options say what a node counts, and with whom.
type Options struct {
	// Namespace names the counters: only nodes of the same namespace share them.
	Namespace string
	// Data joins the nodes of this process, and Capacity is how many counters its table is made
	// for.
	Data     sharedata.Data
	Capacity int
	// Rules have their Limits, SyncRate, Prefix, CountRejected, CostsLater, Watched, Widest, WarnAt, Shadow,
	// Reveal and Tag.
	// They are the node's from now on.
	Rules []Rule
	// Random makes nodes differ.
	Random Random

	// Recalls says that the worker remembers pages that it has written, from one tick to the next:
	// see [sharedata.Recent]. That is for hosts that take long to give them.
	Recalls bool

	// Host sends pushes, each of which ends within Timeout, in nanoseconds. If the counters of all
	// rules stay in this process, there are none, and of this and what follows only the host's time
	// is used.
	Host    Host
	Timeout int64
	// Collect is how long questions that requests wait for are collected after a callout with some, in
	// nanoseconds: while there are many, each callout has more of them, and they cost less.
	Collect int64
	// Turned, unless it is nil, is told how pushes end when nobody waits for the backend any more,
	// or when the reason changes, and is told PushAnswered when the backend is back; once for all
	// the process's nodes.
	Turned func(why Outcome)
	// OnBackendFailure concerns the rules that need the backend: the others decide in any case.
	OnBackendFailure FailureMode
	// KeySecret goes into the names of keys in the backend: only nodes of the same secret share
	// counters.
	KeySecret string
	// LeastFleet is the least number of nodes that let hits of far keys pass before the backend has counted
	// them; 8 if it is 0.
	LeastFleet uint64
	// Owner knows what overrides mean that the backend tells of. If it is nil, they do nothing.
	Owner Owner
	// Held, unless it is nil, calls visit with what requests hold, and since when by the backend's
	// clock, as long as visit wants more. It is for reports.
	Held func(visit func(c *Charge, since int64) (more bool))
}

// FailureMode says what becomes of requests while the backend can't be reached. The configuration
// and the library have the same numbers.
type FailureMode uint8

const (
	// FailLocal decides from what is known here, and pushes the hits later.
	FailLocal FailureMode = iota
	// FailAllow passes over the rules that need the backend: what they match is not counted.
	FailAllow
	// FailDeny lets no request pass that a rule matches which needs the backend.
	FailDeny
)

// Host does for a node what only its process can.
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

// Listener is an owner that has a use for what a list of overrides tells of others than rules.
type Listener interface {
	// BeginList is called where a list is read, [Listener.Listed] for each such part of it, which
	// is the part that the reader has read last, and EndList when all of it counts.
	BeginList()
	Listed(o *wire.OverrideReader)
	EndList()
}

// Owner is who has made a node's rules. It is asked for what the node does not know of them, so that
// overrides can be applied which come at run time.
type Owner interface {
	// AppendKey appends the key that a rule has for values as people write them, one for each of its
	// selectors. It is not ok if the rule wants another number of them.
	AppendKey(key []byte, rule int, values [][]byte) (_ []byte, ok bool)
	// Tag is [Rule.Tag] of a rule's variant of these limits.
	Tag(rule int, limits []window.Limit) any
}
