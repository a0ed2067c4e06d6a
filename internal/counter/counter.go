// Package counter has the hits that a rule has counted for one key: the states of all its limits,
// which are decided together, and the data for synchronisation. It defines their form in shared
// data.
//
// All limits live in one entry, so that one compare-and-set takes from all of them or from none. A
// [Counter] is the decoded entry. Its memory is reused for many keys. It is not safe for concurrent
// use.
package counter

import (
	"math"
	"slices"

	"weir/window"
)

// Rule is the part of a rule that its counters need.
type Rule struct {
	// Limits are all limits of the rule.
	Limits []window.Limit
	// Interval is the time between two pushes of a key, in nanoseconds. It is 0 if the rule counts
	// in this process only.
	Interval int64

	kin    *kin
	codecs []codec // of the limits, as their states stand in entries, set by Compile
}

// logsLast is the order of an entry's states, by whether they are logs: a log at the end need not be decoded.
var logsLast = [...]bool{false, true}

// codec reads and writes the states of one limit.
type codec struct {
	window.Codec
	limit int
}

// kin is shared by a rule and its variants.
type kin struct {
	nodes uint64
	quota uint64 // the largest quota of any limit
	lasts int64  // the longest time that a hit counts, in nanoseconds
}

// Compile prepares the rule for fast reading and writing. Limits and Interval must not change
// afterwards.
func (r *Rule) Compile() {
	if r.kin == nil {
		r.kin = &kin{}
	}
	r.codecs = make([]codec, 0, len(r.Limits))
	for _, logs := range logsLast {
		for i := range r.Limits {
			if l := &r.Limits[i]; l.IsLog() == logs {
				r.codecs = append(r.codecs, codec{window.NewCodec(l, r.Synced()), i})
			}
		}
	}
	r.Admit(r.Limits)
}

// Variant returns a compiled rule with other limits, in the same number, order and shapes. It uses
// the same counters, so the limits of a key may change from one request to the next. Share on any
// of them informs all.
func (r *Rule) Variant(limits []window.Limit) Rule {
	v := Rule{Limits: limits, Interval: r.Interval, kin: r.kin}
	v.Compile()
	return v
}

// Akin reports whether two compiled rules are variants of each other or of the same rule.
func (r *Rule) Akin(other *Rule) bool { return r.kin == other.kin }

// Admit announces that the rule may get a variant with these limits.
func (r *Rule) Admit(limits []window.Limit) {
	for i := range limits {
		if limits[i].Kind.Blocks() {
			continue
		}
		r.kin.quota = max(r.kin.quota, limits[i].Quota())
		r.kin.lasts = max(r.kin.lasts, limits[i].Lasts())
	}
}

// Quota is the largest quota of any limit of the rule and its present or announced variants.
func (r *Rule) Quota() uint64 { return r.kin.quota }

// Lasts is the longest time that a hit counts by any limit that Quota includes, in nanoseconds.
func (r *Rule) Lasts() int64 { return r.kin.lasts }

// nodes is the number of nodes given to Share.
func (r *Rule) nodes() uint64 {
	if r.kin == nil {
		return 0 // the rule is not compiled
	}
	return r.kin.nodes
}

// Synced reports whether the rule's counters are pushed to a backend.
func (r *Rule) Synced() bool { return r.Interval > 0 }

// Shared is the use of a key by several nodes: what this one has leased, and has heard from the
// backend.
type Shared struct {
	Use
	sync   Sync
	lease  Lease
	synced bool
}

// Counter is the decoded entry of one key: a state for each limit of the rule.
//
// Call Load with the bytes in shared data, then Advance. Then ask, call Count, and write the result
// of Append. The zero Counter is ready for Load.
type Counter struct {
	Shared
	revocable bool
	moved     bool
	// others are the encoded states of limits that this rule lacks. They belong to another filter's
	// rule of the same name, or to an older configuration.
	others []byte
	// claimed are the others before Claim.
	claimed []byte
	before  []byte       // a payload before Count
	other   window.State // scratch
}

// The first byte of an entry has these flags.
const (
	// syncedFlag: the data for synchronisation precede the states.
	syncedFlag = 1 << iota
	// revocableFlag: hits were counted for requests that another rule may still refuse.
	revocableFlag
	// leaseFlag: the data about leases precede the states, after those for syncedFlag.
	leaseFlag
	knownFlags = syncedFlag | revocableFlag | leaseFlag
)

// Load decodes an entry of shared data for a rule. If the entry is malformed, valid is false and
// the counter is that of a new key. A nil payload is a new key, and valid.
func (c *Counter) Load(rule *Rule, payload []byte) (valid bool) {
	return c.loadOwn(rule, payload) || c.loadAny(rule, payload)
}

// loadOwn is Load for an entry with exactly the limits of the counter's rule, as Append writes them, as
// nearly all entries are. If loaded is false, the counter's content is undefined.
func (c *Counter) loadOwn(rule *Rule, payload []byte) (loaded bool) {
	if len(payload) == 0 || c.rule != rule && !c.turn(rule) || len(c.States) != len(rule.codecs) || payload[0]&^knownFlags != 0 {
		return false
	}
	flags, rest := payload[0], payload[1:]
	if c.synced = flags&syncedFlag != 0; c.synced {
		if rest, loaded = c.loadSync(payload); !loaded {
			return false
		}
	} else if rule.Synced() {
		return false
	} else if !c.lease.none() {
		c.lease = Lease{}
	}
	c.revocable, c.others = flags&revocableFlag != 0, c.others[:0]
	for i := range rule.codecs {
		length := rule.codecs[i].Decode(rest, &c.States[rule.codecs[i].limit])
		if length == 0 {
			return false
		}
		rest = rest[length:]
	}
	return len(rest) == 0
}

// CountInPlace counts cost hits directly in the payload, and reports whether it did. It works if
// the rule does not synchronise, and all states suit [window.Codec.CountInPlace]. Then the counter
// is as after Load, Advance and Count, or CountRevocable if revocable is set, and the payload has
// the bytes that Append would have written. Otherwise the payload is unchanged, and the counter's
// content undefined. A counter that need not be whole afterwards can't be written, and nothing can be given back.
func (c *Counter) CountInPlace(rule *Rule, payload []byte, now int64, cost uint64, revocable, whole bool) (counted bool) {
	if c.rule != rule && !c.turn(rule) || len(c.States) != len(rule.codecs) || len(payload) == 0 || rule.Synced() || payload[0]&^revocableFlag != 0 {
		return false
	}
	c.synced, c.revocable, c.others = false, revocable || payload[0] != 0, c.others[:0]
	if !c.lease.none() {
		c.lease = Lease{}
	}
	if len(rule.codecs) > 1 {
		c.before = append(c.before[:0], payload...)
	}
	at, last := 1, len(rule.codecs)-1
	for i := range rule.codecs {
		codec := &rule.codecs[i]
		length := codec.CountInPlace(payload[at:], i == last, whole, &c.States[codec.limit], now, cost)
		if length <= 0 {
			if i > 0 {
				copy(payload, c.before)
			}
			return false
		}
		at += length
	}
	if revocable {
		payload[0] = revocableFlag
	}
	return true
}

// Told is what a request learns of [Rule.CountInPlace] besides the verdict.
type Told struct {
	// Standings has a place for each limit of the rule.
	Standings []window.Standing
	// FitsAt is when refused hits will fit; 0 if never.
	FitsAt int64
}

// mostPlain bounds the payloads of several limits that [Rule.CountInPlace] counts in, in bytes.
const mostPlain = 256

// CountInPlace is [Counter.CountInPlace] without a counter. Hits without room are rejected, and change nothing. The verdict
// is unsure if they can't be counted, or can't be rejected with all that the request is told. If told is nil, that is nothing.
// With hits that are allowed comes what [Counter.Worth] would return.
func (r *Rule) CountInPlace(payload []byte, now int64, cost uint64, told *Told) (verdict Verdict, forgetAt int64, use uint16) {
	if cost == 0 || len(payload) == 0 || payload[0]&^revocableFlag != 0 {
		return Unsure, 0, 0 // a question changes nothing
	}
	var before []byte
	if len(r.codecs) > 1 {
		var plain [mostPlain]byte
		if before = plain[:copy(plain[:], payload)]; len(before) < len(payload) {
			return Unsure, 0, 0
		}
	}
	at, most, last := 1, uint32(0), len(r.codecs)-1
	for i := range r.codecs {
		c := &r.codecs[i]
		var length int
		var forget int64
		var share float32
		if told == nil && c.Plain() {
			length, forget, share = c.CountPlain(payload[at:], i == last, now, cost)
		} else {
			var s window.State
			l := &r.Limits[c.limit]
			if length = c.CountInPlace(payload[at:], i == last, false, &s, now, cost); length > 0 {
				forget, share = l.Worth(&s)
			}
			if told != nil && length != 0 && !r.tell(c.limit, &s, now, cost, length == window.Full, told) {
				length = 0
			}
		}
		if length <= 0 {
			copy(payload, before)
			// If the clock has gone back, later limits may have hits to move, which have to be written: see [Counter.Moved].
			if length == window.Full && (i == last || !c.IsAhead(payload[at:], now)) {
				return Rejected, 0, 0
			}
			return Unsure, 0, 0
		}
		forgetAt, most = max(forgetAt, forget), max(most, math.Float32bits(share))
		at += length
	}
	return Allowed, forgetAt, useOf(most)
}

// tell tells how a limit stands that has counted hits, or has no room for them. It reports whether that is all.
//
//go:noinline
func (r *Rule) tell(limit int, s *window.State, now int64, cost uint64, full bool, told *Told) (all bool) {
	l := &r.Limits[limit]
	if full && (len(r.codecs) > 1 || l.Kind.Bucketed()) {
		return false
	}
	if told.Standings[limit] = l.Standing(s, now); full {
		told.FitsAt, _ = l.FitsAt(s, cost)
	}
	return true
}

// loadSync decodes the data that precede the states of a synced entry. ok is false if they are
// malformed.
func (c *Shared) loadSync(payload []byte) (states []byte, ok bool) {
	if len(payload) < 1+syncSize {
		return nil, false
	}
	c.sync.decode(payload[1:])
	states = payload[1+syncSize:]
	if payload[0]&leaseFlag == 0 {
		c.lease = Lease{}
		return states, true
	}
	length := c.lease.decode(states)
	return states[length:], length != 0
}

func (c *Counter) loadAny(rule *Rule, payload []byte) (valid bool) {
	c.reset(rule)
	if len(payload) == 0 {
		return payload == nil
	}
	if payload[0]&^knownFlags != 0 {
		return false
	}
	rest := payload[1:]
	if payload[0]&syncedFlag != 0 {
		if rest, valid = c.loadSync(payload); !valid {
			c.reset(rule)
			return false
		}
		c.synced = true
	}
	c.revocable = c.revocable || payload[0]&revocableFlag != 0
	leased := uint64(window.MaxHits)
	// Usually these are the states of the rule, in its order.
	for next := 0; len(rest) > 0; next++ {
		stored, ok := window.DecodeLimit(rest)
		state, i := &c.other, next
		if i >= len(rule.Limits) || !window.Reads(&rule.Limits[i], rest) {
			i = rule.find(rest)
		}
		if i >= 0 {
			state = &c.States[i]
		}
		length := window.DecodeState(rest, state)
		if !ok || length == 0 {
			c.reset(rule)
			return false
		}
		if i >= 0 {
			leased = min(leased, rule.Limits[i].Leased(state))
			window.Adapt(&rule.Limits[i], state, &stored)
		} else {
			c.others = append(c.others, rest[:length]...)
		}
		rest = rest[length:]
	}
	if rule.Synced() && payload[0]&syncedFlag == 0 {
		for i := range c.States {
			c.States[i].Owe()
		}
	}
	// Another limit can change a lease without use or demand; that doesn't count for the pace.
	if c.lease.Granted != 0 {
		c.lease.Granted = min(window.SaturatingSub(c.lease.Granted+min(c.Leased(), window.MaxHits), leased), window.MaxHits)
	}
	return true
}

func (c *Counter) reset(rule *Rule) {
	c.rule = rule
	c.States = slices.Grow(c.States[:0], len(rule.Limits))[:len(rule.Limits)]
	for i := range c.States {
		c.States[i].Reset()
	}
	c.sync, c.lease, c.synced, c.revocable = Sync{}, Lease{}, rule.Synced(), false
	c.others = c.others[:0]
}

// find returns the index of the limit that the state at the beginning of b belongs to; -1 for none.
func (r *Rule) find(b []byte) int {
	for i := range r.Limits {
		if window.Reads(&r.Limits[i], b) {
			return i
		}
	}
	return -1
}

// Revocable reports whether hits of the counter may still be given back, because CountRevocable was
// called.
func (c *Counter) Revocable() bool { return c.revocable }

// Advance brings all states to the present.
func (c *Counter) Advance(now int64) {
	if c.lease.Granted|uint64(c.lease.Worn) != 0 {
		c.advanceLeased(now)
		return
	}
	c.moved = false
	for i := range c.States {
		s := &c.States[i]
		ahead := s.Newest > now
		c.rule.Limits[i].Advance(s, now)
		c.moved = c.moved || ahead && s.Newest <= now
	}
}

// Moved reports whether the last Advance has moved hits of a clock that was wrong. The counter has to be
// written then, or the hits move again and again, and always count as hits of now.
func (c *Counter) Moved() bool { return c.moved }

//go:noinline
func (c *Counter) advanceLeased(now int64) {
	c.moved = false
	before := c.Leased()
	to := now >> dueShift << dueShift
	from := min(to+c.lease.Worn.In(now), to)
	for i := range c.States {
		l, s := &c.rule.Limits[i], &c.States[i]
		leased, ahead := l.Leased(s), s.Newest > now
		l.Advance(s, now)
		c.moved = c.moved || ahead && s.Newest <= now
		l.WearLease(s, leased, c.rule.nodes(), from, to)
	}
	if from < to {
		c.lease.Worn = DueAt(to)
	}
	// Leased hits whose window has ended were not used, and don't count for the pace.
	c.lease.Granted -= min(before-min(before, c.Leased()), c.lease.Granted)
}

// Count counts cost hits in every limit. They come from the lease if it has enough.
func (c *Shared) Count(cost uint64) {
	if c.synced && c.Leased() >= cost {
		c.countLeased(cost)
		return
	}
	for i := range c.States {
		c.rule.Limits[i].Count(&c.States[i], cost)
	}
}

// CountRevocable is Count for hits that GiveBack may take back.
func (c *Counter) CountRevocable(cost uint64) {
	c.revocable = true
	c.Count(cost)
}

// Append encodes the counter for Load. It includes states of other limits that still mean something
// at now.
func (c *Counter) Append(dst []byte, now int64) []byte {
	flags := byte(0)
	if c.revocable {
		flags = revocableFlag
	}
	if dst = append(dst, flags); c.synced {
		dst = c.appendSync(dst)
	}
	if own := c.rule.codecs; c.synced == c.rule.Synced() && len(own) == len(c.States) {
		for i := range own {
			dst = own[i].Append(dst, &c.States[own[i].limit])
		}
	} else {
		dst = c.appendStates(dst)
	}
	if len(c.others) > 0 {
		dst = c.appendOthers(dst, now)
	}
	return dst
}

// appendSync appends the data for synchronisation, and completes the flags at the end of dst.
//
//go:noinline
func (c *Shared) appendSync(dst []byte) []byte {
	flags := &dst[len(dst)-1]
	if *flags |= syncedFlag; c.lease.none() {
		return c.sync.append(dst)
	}
	*flags |= leaseFlag
	return c.lease.append(c.sync.append(dst))
}

// appendStates appends the states of a rule that is not compiled, or that has another
// configuration's options.
//
//go:noinline
func (c *Counter) appendStates(dst []byte) []byte {
	for _, logs := range logsLast {
		for i := range c.States {
			if l := &c.rule.Limits[i]; l.IsLog() == logs {
				dst = window.AppendState(dst, l, &c.States[i], c.synced)
			}
		}
	}
	return dst
}

//go:noinline
func (c *Counter) appendOthers(dst []byte, now int64) []byte {
	room := maxOthers
	for rest := c.others; len(rest) > 0 && room > 0; {
		forget, length := c.forgetOther(rest)
		if forget > now && len(dst)+length <= maxSize {
			dst = append(dst, rest[:length]...)
			room--
		}
		rest = rest[length:]
	}
	return dst
}

const (
	// maxOthers bounds the states of other limits in an entry, and maxSize all of an entry with such
	// states, in bytes: a table takes no more.
	maxOthers = 8
	maxSize   = 65_000
)

// forgetOther returns the time from which the first of the other states means nothing, and its
// length.
func (c *Counter) forgetOther(states []byte) (at int64, length int) {
	limit, _ := window.DecodeLimit(states)
	length = window.DecodeState(states, &c.other)
	return limit.ForgetAt(&c.other), length
}

// ForgetAt is the time from which the counter means no more than that of a new key.
func (c *Counter) ForgetAt() int64 {
	at, _ := c.Worth()
	return at
}

// Worth returns ForgetAt, and how near the counter is to a limit: the upper half of the float32 of
// its greatest share, which compares as the share does. A share above 1 counts as 1, so that
// rejected hits that count do not make a key worth more. It only helps to choose entries to evict.
func (c *Counter) Worth() (forgetAt int64, use uint16) {
	var most uint32
	for i := range c.States {
		at, share := c.rule.Limits[i].Worth(&c.States[i])
		forgetAt, most = max(forgetAt, at), max(most, math.Float32bits(share))
	}
	if c.synced || len(c.others) > 0 {
		forgetAt = max(forgetAt, c.wantedUntil())
	}
	return forgetAt, useOf(most)
}

// useOf returns the upper half of a share's bits, of a share of at most 1.
func useOf(bits uint32) uint16 { return uint16(min(bits, math.Float32bits(1)) >> 16) }

// wantedUntil is the time until which the backend, or another rule, needs the counter.
func (c *Counter) wantedUntil() (at int64) {
	for i := range c.States {
		if l, s := &c.rule.Limits[i], &c.States[i]; c.synced && (s.Pending() || s.InFlight()) {
			at = max(at, l.PushEnds(s))
		}
	}
	for rest := c.others; len(rest) > 0; {
		forget, length := c.forgetOther(rest)
		at = max(at, forget)
		rest = rest[length:]
	}
	return at
}

// Reopen takes in that hits were given back, here or at the backend, which may have hits again: the
// next request asks it. It reports whether that changed anything.
func (c *Shared) Reopen() (changed bool) {
	changed = c.lease.Dry != 0 || c.lease.Refused != 0
	c.lease.Dry, c.lease.Refused = 0, 0
	return changed
}

// Emptied ends the counter's lease because the counter was emptied at the backend at a time. The
// backend no longer counts the hits of a lease as old as that, and they are dropped. Some hits of a
// newer lease may be counted, so all of them go back. It reports whether there was a lease.
func (c *Shared) Emptied(at int64) (changed bool) {
	if !c.hasLease() {
		return false
	}
	if c.lease.Since.In(at) > 0 {
		c.ReturnLeases()
	} else {
		for i := range c.States {
			c.States[i].DropLease()
		}
	}
	c.lease.Granted = 0
	return true
}

// hasLease reports whether any limit has leased hits.
func (c *Use) hasLease() bool {
	for i := range c.States {
		if c.rule.Limits[i].Leased(&c.States[i]) > 0 {
			return true
		}
	}
	return false
}

// GiveBackNewest gives back hits from all limits: see [window.Limit.GiveBackNewest]. It returns the most
// that a limit has given back.
func (c *Shared) GiveBackNewest(hits uint64) (given uint64) {
	for i := range c.States {
		given = max(given, c.rule.Limits[i].GiveBackNewest(&c.States[i], hits))
	}
	c.Reopen()
	return given
}

// Revise changes the number of hits that were counted at a time, in windows with these numbers,
// from from to to. Additional hits come from the lease if it has them, and if none of the windows
// has passed. If there were none before, they are counted now.
func (c *Shared) Revise(numbers []uint64, at int64, from, to uint64, now int64) {
	if from == 0 || to > from && c.isIn(numbers) {
		c.Count(to - from)
		return
	}
	if to < from {
		c.Reopen()
	}
	for i := range c.States {
		l, s := &c.rule.Limits[i], &c.States[i]
		if to > from {
			l.CountIn(s, numbers[i], to-from)
		} else {
			l.GiveBack(s, numbers[i], l.Returnable(from-to, at, now))
		}
	}
}
