package engine

import (
	"weir/internal/engine/entry"
	"weir/internal/engine/jitter"
	"weir/internal/engine/link"
	"weir/internal/engine/rule"
	"weir/internal/failure"
	"weir/sharedata"
)

// Options configure a node.
type Options struct {
	// Namespace names the counters. Only nodes of the same namespace share them.
	Namespace string
	// Data is the memory that the nodes of this process share. Capacity is the number of counters
	// that its table is made for.
	Data     sharedata.Data
	Capacity int
	// Lends is Data if this node alone uses it; otherwise nil. Then most decisions copy nothing of it.
	Lends sharedata.Lender
	// Rules must have Limits and SyncRate, and may have Prefix, CountRejected, CostsLater, Watched,
	// Widest, WarnAt, Shadow, Reveal and the other settings above Index. The node keeps the
	// slice.
	Rules []rule.Rule
	// Random makes the nodes of a process differ.
	Random jitter.Random

	// Recalls makes the worker remember pages that it wrote, until the next tick: see
	// [sharedata.Recent]. It is for hosts whose shared data is slow to read.
	Recalls bool

	// Before is the node of an earlier configuration in this worker, with the same namespace and backend; nil for none. This
	// one knows its hits on credit, if any of its rules needs the backend.
	Before *Engine

	// Host sends pushes, each of which ends within Timeout, in nanoseconds. If no rule needs a
	// backend, nothing is sent, and of this and the following fields only the host's time is used.
	Host    Host
	Timeout int64
	// Collect is how long questions of waiting requests are collected while a callout with questions
	// is under way, in nanoseconds. Callouts then carry more questions each, and cost less.
	Collect int64
	// Turned, unless it is nil, is called when requests stop waiting for the backend, with the
	// outcome of its pushes, when the outcome changes, and with PushAnswered when the backend is
	// back. One node calls it for all nodes of the process.
	Turned func(why link.Outcome)
	// OnBackendFailure applies to the rules that need the backend.
	OnBackendFailure failure.Mode
	// KeySecret keys the names of keys in the backend. Only nodes with the same secret share
	// counters.
	KeySecret string
	// Configuration is a digest of the configuration that Rules are from, so that people see which nodes
	// have another.
	Configuration uint64
	// Owner interprets overrides from the backend. If it is nil, overrides have no effect.
	Owner entry.Owner
	// InFlight, unless it is nil, calls visit with each charge that a request holds, and since when by
	// the backend's clock, until visit returns false. It is for reports.
	InFlight func(visit func(c *rule.Charge, since int64) (more bool))
}

// Host gives a node access to its process.
type Host interface {
	// Now returns the process's time in nanoseconds since the Unix epoch, uncorrected.
	Now() int64
	// Send sends a push to the backend, and reports whether it is on its way. If so, the host calls
	// [Engine.Answered] once with the ticket, within the timeout, and only after Send has returned.
	// The push is valid during the call.
	Send(push []byte, ticket Ticket) (sent bool)
	// TickEvery makes the host call [Engine.Tick] at this interval from now on.
	TickEvery(millis uint32)
}
