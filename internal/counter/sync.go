package counter

import (
	"encoding/binary"

	"weir/window"
)

const (
	// adoptAfter is how long a key's push must be overdue before another worker that hits the key
	// adopts it: the worker with the key in its list seems to be gone.
	adoptAfter = int64(5e9)
	// abandonAfter is how long hits are in flight without an answer before more hits of the key are
	// pushed: the worker that pushed them seems to be gone. If it isn't, nothing is lost, and its
	// answer is still taken in.
	abandonAfter = int64(59e9)
	// longestLate is above the time that the answer to a push can take. A later one is newer, by a clock that was set back.
	longestLate = int64(5e9)
	// longestAnswer is the longest time that any answer may take, of a node's own timeout. What was heard is not later than that
	// after an answer: the clock was set back, or it was heard 26 days ago or more.
	longestAnswer = int64(3600e9)
	// longestPause bounds how far ahead the next push of a key can be due.
	longestPause = int64(60e9)
)

// Due is when a key's next push is due. It also says which worker pushes it: the worker whose list
// has the key with the due time in the entry. It counts units of 2^20 ns (1.05 ms) and wraps around
// every 52 days, so it takes four bytes. A time too far ahead comes from a wrong clock, or from
// long ago, and is overdue.
type Due uint32

const (
	dueShift = 20
	dueUnit  = int64(1) << dueShift
)

// DueAt returns the due time at, or slightly before, a Unix time in nanoseconds.
func DueAt(nanos int64) Due { return Due(nanos >> dueShift) }

// In returns the time from now to d, in nanoseconds; negative if d has passed.
func (d Due) In(now int64) int64 { return int64(int32(d-DueAt(now))) << dueShift }

// Passed reports whether a push is due, for a rule with this interval.
func (d Due) Passed(now, rate int64) bool {
	in := d.In(now)
	return in <= 0 || in > max(rate, longestPause)
}

// Sync is an entry's record of its synchronisation.
type Sync struct {
	// ID is the counter's identity in the backend.
	ID  [16]byte
	Due Due
	// Claimed is the time of the last claim, which identifies it.
	Claimed Due
	// Heard is when the backend gave the newest answer that was taken in.
	Heard Due
}

const syncSize = 16 + 4 + 4 + 4

func (s *Sync) append(dst []byte) []byte {
	dst = append(dst, s.ID[:]...)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(s.Due))
	dst = binary.LittleEndian.AppendUint32(dst, uint32(s.Claimed))
	return binary.LittleEndian.AppendUint32(dst, uint32(s.Heard))
}

// decode requires syncSize bytes.
func (s *Sync) decode(b []byte) {
	copy(s.ID[:], b)
	s.Due = Due(binary.LittleEndian.Uint32(b[16:]))
	s.Claimed = Due(binary.LittleEndian.Uint32(b[20:]))
	s.Heard = Due(binary.LittleEndian.Uint32(b[24:]))
}

func (l *Lease) append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, uint32(l.Dry))
	dst = binary.LittleEndian.AppendUint32(dst, uint32(l.Since))
	dst = binary.LittleEndian.AppendUint32(dst, uint32(l.Worn))
	if l.Short <= 1 {
		dst = append(dst, l.Refused)
		return binary.AppendUvarint(binary.AppendUvarint(dst, l.Granted), l.Pace)
	}
	dst = append(dst, l.Refused|shortFollows)
	return binary.AppendUvarint(binary.AppendUvarint(binary.AppendUvarint(dst, l.Granted), l.Pace), l.Short)
}

// shortFollows is set in the byte of Refused if Short is above 1, and last.
const shortFollows = 0x80

// decode returns the number of bytes read; 0 if they are malformed.
func (l *Lease) decode(b []byte) (length int) {
	const fixed = 3*4 + 1
	if len(b) < fixed || b[12]&^shortFollows > maxRefused {
		return 0
	}
	granted, n := binary.Uvarint(b[fixed:])
	if n <= 0 || granted > window.MaxHits {
		return 0
	}
	pace, m := binary.Uvarint(b[fixed+n:])
	if m <= 0 || pace > window.MaxHits {
		return 0
	}
	length, short := fixed+n+m, uint64(0)
	if b[12]&shortFollows != 0 {
		if short, n = binary.Uvarint(b[length:]); n <= 0 || short <= 1 || short > window.MaxHits {
			return 0
		}
		length += n
	}
	*l = Lease{
		Dry: Due(binary.LittleEndian.Uint32(b)), Since: Due(binary.LittleEndian.Uint32(b[4:])), Worn: Due(binary.LittleEndian.Uint32(b[8:])),
		Refused: b[12] &^ shortFollows, Granted: granted, Pace: pace, Short: short,
	}
	return length
}

// Identify sets the identity in the backend of a counter that lacks one.
func (c *Shared) Identify(id [16]byte) {
	if !c.Identified() {
		c.sync.ID = id
	}
}

// Identified reports whether the counter has an identity, or needs none because its rule isn't
// synced.
func (c *Shared) Identified() bool { return !c.synced || c.sync.ID != [16]byte{} }

// Sync returns the record of the counter's synchronisation.
func (c *Shared) Sync() Sync { return c.sync }

// Pending reports whether there are hits that were not pushed yet.
func (c *Counter) Pending() bool {
	for i := range c.States {
		if c.States[i].Pending() {
			return true
		}
	}
	for rest := c.others; c.synced && len(rest) > 0; {
		rest = rest[window.DecodeState(rest, &c.other):]
		if c.other.Pending() {
			return true
		}
	}
	return false
}

// Settled reports whether an answer given at a time of the backend's clock knows of all hits
// counted here: none is pending or in flight, and no answer as new was taken in.
func (c *Shared) Settled(answered int64) bool {
	if !c.newer(answered) {
		return false
	}
	for i := range c.States {
		if s := &c.States[i]; s.Pending() || s.InFlight() {
			return false
		}
	}
	return true
}

// Owes reports whether hits are on their way back to the backend, or will be.
func (c *Use) Owes() (owes bool) {
	for i := range c.States {
		owes = owes || c.States[i].Owes()
	}
	return owes
}

// Adopt reports whether the worker that is about to count hits must list the key and push it. It
// must if nothing is pending or the key was never synchronised, since then no other worker has it.
// It also must if the push is long overdue although the backend can be reached. Call Adopt before
// Count, with the time of the hits.
func (c *Counter) Adopt(now int64, reachable bool) bool {
	if !c.synced || !c.rule.Synced() {
		return false
	}
	in, passed := c.sync.Due.In(now), c.sync.Due.Passed(now, c.rule.Interval)
	if c.sync.Due != 0 && c.Pending() {
		if overdue := in < -adoptAfter-2*c.rule.Interval || in > 0 && passed; !overdue || !reachable {
			return false
		}
	}
	if passed || in > c.rule.Interval+dueUnit {
		// A key that was not synchronised for an interval is due at once.
		c.sync.Due = DueAt(now)
	}
	return true
}

// Claim moves pending hits in flight, and reports whether it may. It may not while an earlier push
// is unanswered. If the caller wins the race to write the counter, it pushes [Counter.Outgoing].
func (c *Counter) Claim(now int64) (claimed bool) {
	for i := range c.States {
		if !c.States[i].InFlight() {
			continue
		}
		if ago := -c.sync.Claimed.In(now); ago >= 0 && ago < abandonAfter {
			return false
		}
		c.States[i].EndFlight()
	}
	for i := range c.States {
		c.States[i].Claim()
	}
	c.claimOthers()
	c.sync.Claimed = DueAt(now)
	if c.sync.Due.Passed(now, c.rule.Interval) {
		c.sync.Due = DueAt(now + c.rule.Interval)
	}
	return true
}

// Abandon lets the next Claim ignore an earlier push, because the worker that would take in its
// answer is leaving.
func (c *Use) Abandon() {
	for i := range c.States {
		c.States[i].EndFlight()
	}
}

// Outgoing fills p with the hits in flight of limit i.
func (c *Use) Outgoing(i int, p *window.Push) {
	c.rule.Limits[i].Outgoing(&c.States[i], c.rule.nodes(), p)
}

// PushEnds is the time from which the hits in flight of limit i no longer matter.
func (c *Use) PushEnds(i int) int64 { return c.rule.Limits[i].PushEnds(&c.States[i]) }

// Settle takes in the backend's answer for limit i to the push with this claim. answered is the
// answer's time, by the backend's clock. If the counter was claimed again since, or made anew,
// nothing in flight is answered, and totals are only raised. After the last limit, call Heard.
func (c *Shared) Settle(i int, claim Due, answered int64, total *window.Totals) {
	l, s, inFlight := &c.rule.Limits[i], &c.States[i], c.sync.Claimed == claim
	if late := c.sync.Heard.In(answered); inFlight && !c.newer(answered) && 0 < late && late < longestLate && l.Overtaken(s) {
		c.Reopen() // more may be free than is known
		return
	}
	l.Settle(s, inFlight, c.newer(answered), total)
}

// newer reports whether an answer is newer than all that were taken in.
func (c *Shared) newer(answered int64) bool {
	late := c.sync.Heard.In(answered)
	return c.sync.Heard == 0 || late < 0 || late > longestAnswer
}

// HeardSince reports whether an answer of the time since then was taken in. It may miss answers that are
// older than 26 days.
func (c *Shared) HeardSince(then, now int64) bool {
	ago := -c.sync.Heard.In(now)
	return c.synced && c.sync.Heard != 0 && ago <= now-then && (ago >= 0 || -ago < longestPause)
}

// Heard records when the backend gave an answer that was taken in. It reports whether the answer's totals
// are now those of the counter: older answers only raise them.
func (c *Shared) Heard(answered int64) (newer bool) {
	if newer = c.newer(answered); newer {
		c.sync.Heard = DueAt(answered)
		for i := range c.States {
			if s := &c.States[i]; s.InFlight() && !s.Late() {
				c.sync.Heard = DueAt(answered) + 1 // after the answer to the push, which may be of the same moment
			}
		}
	}
	return newer
}

// Orphans calls visit with everything that an entry has for the backend when it leaves the table:
// for each limit with pending hits, the counter's identity, the push, and the time until which the
// backend needs it. l has only the shape and a token bucket's rate. push is valid during the call.
func Orphans(payload []byte, visit func(id [16]byte, l *window.Limit, push *window.Push, ends int64)) {
	if len(payload) < 1+syncSize || payload[0]&syncedFlag == 0 {
		return
	}
	states := payload[1+syncSize:]
	if payload[0]&leaseFlag != 0 {
		var l Lease
		states = states[l.decode(states):]
	}
	orphans([16]byte(payload[1:]), states, visit)
}

// claimOthers moves the pending hits of limits that the rule lacks to their totals. ClaimedOthers
// returns them for pushing.
func (c *Counter) claimOthers() {
	c.claimed = append(c.claimed[:0], c.others...)
	c.others = c.others[:0]
	for rest := c.claimed; len(rest) > 0; {
		limit, _ := window.DecodeLimit(rest)
		rest = rest[window.DecodeState(rest, &c.other):]
		c.other.ReturnLease(0)
		c.other.Claim()
		c.other.EndFlight()
		c.others = window.AppendState(c.others, &limit, &c.other, c.synced)
	}
}

// ClaimedOthers calls visit as Orphans does, with the hits that the last Claim found pending for
// limits that the rule lacks.
func (c *Counter) ClaimedOthers(visit func(id [16]byte, l *window.Limit, push *window.Push, ends int64)) {
	if len(c.claimed) > 0 {
		orphans(c.sync.ID, c.claimed, visit)
	}
}

func orphans(id [16]byte, states []byte, visit func(id [16]byte, l *window.Limit, push *window.Push, ends int64)) {
	var state window.State
	var push window.Push
	for rest := states; ; {
		limit, _ := window.DecodeLimit(rest)
		length := window.DecodeState(rest, &state)
		if length == 0 {
			return // the end, or malformed bytes
		}
		if state.ReturnLease(0); state.Pending() {
			state.EndFlight() // another worker has the hits in flight
			state.Claim()
			limit.Outgoing(&state, 0, &push)
			visit(id, &limit, &push, limit.PushEnds(&state))
		}
		rest = rest[length:]
	}
}
