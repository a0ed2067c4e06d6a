// Package rule has rules as the engine sees them, and what a request asks of them: a check of one rule
// for one key, what it has taken and where, and what is kept of it until its cost is known.
package rule

import (
	"bytes"
	"slices"

	"weir/internal/counter"
	"weir/internal/wire"
	"weir/sharedata"
	"weir/window"
)

// Rule is a rule as the engine sees it. Once its engine is made it stays as it is, but for the number of
// nodes that share it, and for Shadow.
type Rule struct {
	counter.Rule
	// SyncRate is the interval between two pushes of a key, in nanoseconds. If it is 0, the backend
	// decides each request. If it is negative, the rule counts in this process only, and nothing
	// about the backend applies.
	SyncRate int64
	// Prefix begins the keys of this rule, and of no other. While the table is full, the rule with
	// most counters evicts its own.
	Prefix []byte
	// CountRejected makes rejected requests take their hits too.
	CountRejected bool
	// Marks means that a request without room passes, and takes nothing from the rule: see
	// [Ref.Over].
	Marks bool
	// Blocks means that the last limit blocks a key that the rule has refused. Extends means that
	// further refusals prolong the block.
	Blocks, Extends bool
	// CostsLater means that requests that have passed take more hits by [Engine.Force], whether or
	// not they have room.
	CostsLater bool
	// Watched keys are counted, and never decided. Nothing is leased for them. The node asks for
	// their totals at every interval, as long as a window of theirs counts.
	Watched bool
	// Widest are the largest limits of the variants that may be made of the rule; nil for none. The
	// table is sized for them.
	Widest []window.Limit
	// WarnAt are the shares of a limit from which on the rule warns, in thousandths and ascending.
	WarnAt []uint16
	// Shadow rules refuse nothing, and reports say more about what they would refuse. That of the base
	// counts, and its owner may change it. Reveal is how
	// many characters of a key's values people may see, up to sketch.MaxName bytes in all; 0 for
	// only its hash. Addresses has a bit for each value, the lowest for the first: it is set if the
	// value is a client's network, which people see in the form in which they write it.
	Shadow    bool
	Reveal    uint8
	Addresses uint16
	// Delay says how requests without room wait.
	Delay Delay
	// Index is the rule's index in the node. New sets it, and the Interval of counter.Rule.
	Index int

	// Excess is by how much charges have brought a key above a limit; nil without such charges or
	// without a backend. The engine sets it, and Group, when it opens its table.
	Excess *Excess
	Group  sharedata.Group

	// Advances means that the rule's hits may be advanced. Near names the limits in lists of near
	// keys, and Tag the rule and its variants.
	Advances bool
	Near     []uint64
	Tag      uint16
	// Override means that this is the variant of an override. If it is one of many keys, Pattern is
	// its place among the overrides.
	Override bool
	Pattern  sharedata.Address
	of       *Rule // the rule that this one is a variant of, or nil
	// completed means that all is set that follows from the other fields.
	completed bool

	// Classes share the limits. Requests are checked on the parts of the rule then, and never on itself:
	// see [Rule.Place].
	Classes []Class
	// Fair has the keys of a class share evenly what it has: see [Rule.Seat]. Such a rule has one limit.
	Fair bool
	part
	parts []*Rule // those of this variant that were used

	// Hint is where a list last had the rule. Only that list uses it, and looks whether it is right.
	Hint uint32
}

// Delay says how requests for a key wait for room: at most Most nanoseconds, up to MaxDelay, and at
// most Queue of them in a process. If both are 0, they don't wait.
type Delay struct {
	Most  int64
	Queue int
}

// Delays reports whether requests without room wait.
func (r *Rule) Delays() bool { return r.Delay.Queue > 0 && !r.Base().Shadow }

// MaxDelay is the longest delay: five minutes, in nanoseconds. MaxDelay times the largest queue
// fits an int64.
const MaxDelay = int64(300e9)

// exactInterval is the interval of rules whose requests the backend decides. They push hits that
// were counted while the backend was away. Costs of responses don't wait for the interval.
const exactInterval = int64(1e9)

// leastInterval is the shortest interval that short windows give a rule. Its rate may be shorter.
const leastInterval = int64(1e8)

// Complete completes a rule at its index.
func (r *Rule) Complete(index int) {
	if r.completed {
		return // by an engine that this one replaces, whose calls may be reading it
	}
	r.Index, r.completed = index, true
	switch {
	case r.SyncRate > 0:
		r.Interval = r.SyncRate
		for i := range r.Limits {
			r.Interval = min(r.Interval, max(r.Limits[i].PushWithin(), leastInterval))
		}
	case r.Exact():
		r.Interval = exactInterval
	}
	r.Compile()
	r.tagLimits()
}

// Exact reports whether the backend decides each request.
func (r *Rule) Exact() bool { return r.SyncRate == 0 }

// StaysFull reports whether requests for a full key can be refused before the backend has confirmed
// it. It must confirm each refusal of an exact rule, and those that block the key or mark the
// request. Where responses settle charges, keys often have room again.
func (r *Rule) StaysFull() bool { return !r.Exact() && !r.Blocks && !r.Marks && !r.CostsLater }

// Hasty reports whether hits that go back are pushed at once.
func (r *Rule) Hasty() bool { return r.Exact() || r.Limits[0].Kind.Held() && r.Synced() && !r.Leases() }

// Forgets reports whether a limit is a log, which keeps no more hits than its limit. Hits that pass
// without the backend push others out of it, and grants that go back afterwards make room again.
func (r *Rule) Forgets() bool {
	return slices.ContainsFunc(r.Limits, func(l window.Limit) bool { return l.IsLog() })
}

// Own returns the limits that the rule was given, without a block.
func (r *Rule) Own() []window.Limit {
	own := len(r.Limits)
	if own > 0 && r.Limits[own-1].Kind.Blocks() {
		own--
	}
	return r.Limits[:own]
}

// Variant returns the rule with other limits, in the same number, order and shapes. A [Check] may
// use it for the same keys, and they keep their counters.
func (r *Rule) Variant(limits []window.Limit) *Rule {
	v := *r
	v.Rule, v.of, v.part, v.parts = r.Rule.Variant(limits), r.Base(), part{}, nil
	v.nameLimits()
	return &v
}

// Overridden returns the variant for an override.
func (r *Rule) Overridden(limits []window.Limit) *Rule {
	v := r.Variant(limits)
	v.Override = true
	return v
}

// Base is the node's own rule of a variant, or the rule itself.
func (r *Rule) Base() *Rule {
	if r.of != nil {
		return r.of
	}
	return r
}

// Is reports whether two rules decide alike: programs may make a variant anew for each request.
func (r *Rule) Is(other *Rule) bool {
	return r == other || r.Base() == other.Base() && r.Override == other.Override && r.Pattern == other.Pattern && slices.EqualFunc(r.Limits, other.Limits, func(a, b window.Limit) bool {
		return a.Max == b.Max && a.Burst == b.Burst
	})
}

// ExtraBytes is the memory that a counter of the rule or of a variant takes beyond the usual, in
// bytes.
func (r *Rule) ExtraBytes() int {
	if r.Widest == nil {
		return r.Rule.ExtraBytes()
	}
	widest := counter.Rule{Limits: r.Widest, Interval: r.Interval}
	return max(r.Rule.ExtraBytes(), widest.ExtraBytes())
}

// NameOf returns the name at the beginning of a rule's keys.
func NameOf(r *Rule) []byte {
	if len(r.Prefix) < 1 || int(r.Prefix[0]) != len(r.Prefix)-1 {
		return nil
	}
	return r.Prefix[1:]
}

// Set has a node's rules, and properties of all of them.
type Set struct {
	List []Rule
	// before is Before by rule, and dismissed are rules of earlier configurations.
	before    []uint64
	dismissed []*Rule
	// Leaving means that the node is leaving.
	Leaving bool

	Nodes uint64 // how many share the limits; 0 if unknown
	// Interval is the shortest interval between pushes of a key, and lasts the longest time that a
	// hit counts, over the rules that need the backend.
	Interval, Lasts int64
	// These are set if any rule needs the backend, warns, marks, blocks, or delays. Yields is set if
	// requests may pass without room for a check, and Fair if keys of some class share evenly.
	Synced, Warns, Marks, Blocks, Delays, Yields, Fair bool
	// Reveals is set if any rule reveals names, and therefore reports usage.
	Reveals bool
}

// NewSet completes the rules.
func NewSet(list []Rule) Set {
	r := Set{List: list, before: make([]uint64, len(list)), Interval: window.MaxWidth}
	for i := range list {
		own := &list[i]
		own.Complete(i)
		r.Warns = r.Warns || len(own.WarnAt) > 0
		r.Marks = r.Marks || own.Marks
		r.Yields = r.Yields || own.Marks || len(own.Classes) > 0
		r.Fair = r.Fair || own.Fair
		r.Blocks = r.Blocks || own.Blocks
		r.Delays = r.Delays || own.Delay.Queue > 0
		if own.Synced() {
			r.Reveals = r.Reveals || own.Reveal != 0
			r.Synced, r.Interval, r.Lasts = true, min(r.Interval, own.Interval), max(r.Lasts, own.Lasts())
		}
	}
	return r
}

// Share sets how many nodes share the limits.
//
//go:noinline
func (r *Set) Share(nodes uint64) {
	if r.Nodes == nodes {
		return
	}
	r.Nodes = nodes
	for i := range r.List {
		r.List[i].Share(nodes)
	}
}

// ReadExcess reads the excess that other workers have recorded.
func (r *Set) ReadExcess() {
	for i := range r.List {
		if x := r.List[i].Excess; x != nil {
			x.Read()
		}
	}
}

// Succeed takes over the limits of an earlier configuration's rules, whose hits may still count.
func (r *Set) Succeed(from *Set) {
	for i := range r.List {
		for j := range from.List {
			if old := &from.List[j]; bytes.Equal(r.List[i].Prefix, old.Prefix) {
				r.before[i] = max(r.before[i], from.before[j], old.Quota())
			}
		}
	}
}

// Before is the largest limit that earlier configurations had for a rule, and whose hits may still count.
func (r *Set) Before(rule int) uint64 { return r.before[rule] }

// Dismiss takes over a rule of an earlier configuration. If this one does not synchronise it, it is
// dismissed: its hits are pushed for the last time, and its leases go back.
func (r *Set) Dismiss(old *Rule, from *Set) {
	if old == nil || !old.Synced() || r.Dismissed(old) {
		return
	}
	for i := range r.List {
		if own := &r.List[i]; own.Synced() && bytes.Equal(own.Prefix, old.Prefix) && !from.Dismissed(old) {
			return
		}
	}
	r.dismissed = append(r.dismissed, old.Base())
}

// Retain forgets the dismissed rules of which nothing is left. inUse calls visit with the rules, and their
// variants, of which something is.
func (r *Set) Retain(inUse func(visit func(*Rule))) {
	if len(r.dismissed) == 0 {
		return
	}
	before := Set{dismissed: r.dismissed}
	r.dismissed = nil
	inUse(func(rule *Rule) {
		if rule != nil && before.Dismissed(rule) && !r.Dismissed(rule) {
			r.dismissed = append(r.dismissed, rule.Base())
		}
	})
}

// Retires reports whether a rule's hits are pushed for the last time, and its leases go back.
func (r *Set) Retires(rule *Rule) bool { return r.Leaving || r.Dismissed(rule) }

// Dismissed reports whether a rule is of an earlier configuration, and was dismissed.
//
//go:noinline
func (r *Set) Dismissed(rule *Rule) bool {
	for _, d := range r.dismissed {
		if d == rule.Base() {
			return true
		}
	}
	return false
}

// shortestWindow is the least width of a window in intervals whose hits may be advanced: within two or
// three of them, all workers have heard which keys are near their limits.
const shortestWindow = 20

// tagLimits prepares a rule's limits for lists of near keys.
func (r *Rule) tagLimits() {
	hash := uint32(2166136261)
	for _, b := range r.Prefix {
		hash = (hash ^ uint32(b)) * 16777619
	}
	r.Tag = uint16(hash>>16)&^1 | 2
	if r.Advances = r.mayAdvance(); !r.Advances {
		return
	}
	r.Tag |= 1
	r.nameLimits()
}

// nameLimits names the limits of a rule whose hits may be advanced.
func (r *Rule) nameLimits() {
	r.Near = nil
	if !r.Advances {
		return
	}
	for i := range r.Limits {
		l := &r.Limits[i]
		c := CounterOf([16]byte{}, l, l.Width)
		r.Near = append(r.Near, c.NearLimit(l.Max))
	}
}

// mayAdvance reports whether hits of the rule's keys may be advanced. The rule must only take the
// cost of requests, and all of its limits must be windows of the clock.
func (r *Rule) mayAdvance() bool {
	if r.SyncRate <= 0 || r.CountRejected || r.Marks || r.Blocks || r.CostsLater || r.Watched || !r.Leases() {
		return false
	}
	for i := range r.Limits {
		switch l := &r.Limits[i]; {
		case l.Calendar != nil || l.Width < shortestWindow*r.SyncRate:
			return false
		case l.Kind != window.FixedWindow && l.Kind != window.SlidingWindow:
			return false
		}
	}
	return true
}

// CounterOf returns the backend's name of a limit's counter, for windows of a width.
func CounterOf(id [16]byte, l *window.Limit, width int64) wire.LimitCounter {
	return wire.LimitCounter{
		ID: id, Kind: uint8(l.Kind), Ordinal: l.Ordinal, WidthMillis: uint64(width / window.MinWidth), Precision: uint64(l.Precision),
	}
}

// EndOf is the end of the window that a limit counts in; 0 if hits leave one by one.
func EndOf(l *window.Limit, s *window.State) int64 {
	if end, ok := l.ResetAt(s); ok && (l.Kind.Clocked() || l.Kind == window.FirstHitWindow) {
		return end
	}
	return 0
}

// Item makes an item of the wire from a push, whose memory it shares.
//
//go:noinline
func Item(id [16]byte, l *window.Limit, push *window.Push) wire.Item {
	return wire.Item{LimitCounter: CounterOf(id, l, l.WidthOf(push.Newest)), Limit: l.Max, Newest: push.Newest, Hits: push.Hits, Ages: push.Ages}
}

// BytesPerCounter is the memory for a counter of the largest rule, in bytes.
func (r *Set) BytesPerCounter() int {
	extra := 0
	for i := range r.List {
		extra = max(extra, r.List[i].ExtraBytes())
	}
	return sharedata.BytesPerCounter + extra
}
