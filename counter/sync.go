package counter

import (
	"encoding/binary"

	"weir/window"
)

const (
	// adoptAfter is how long after its push was due a key's hits are adopted by the next worker that hits it: the one that
	// remembered the key seems to be gone.
	adoptAfter = int64(5e9)
	// abandonAfterSeconds is how long hits stay in flight without an answer before more of the key are pushed: the worker
	// that pushed them seems to be gone. If it isn't, nothing is lost: its answer is taken in all the same.
	abandonAfterSeconds = 60
	// longestPause bounds how far ahead the next push of a key can be due.
	longestPause = int64(60e9)
)

// Due is when a key's next push is due, and at the same time names whose push that is: the worker that remembers the key
// with the due time that the entry has. It counts units of 2^20 ns (1.05 ms) and wraps every 52 days, so that it takes four
// bytes; what seems to lie too far ahead comes from a clock that was wrong, or from long ago, and is overdue.
type Due uint32

const (
	dueShift = 20
	dueUnit  = int64(1) << dueShift
)

// DueAt is the due time that lies at, or a little before, a Unix time in nanoseconds.
func DueAt(nanos int64) Due { return Due(nanos >> dueShift) }

// In is how many nanoseconds lie between now and d; negative if d has passed.
func (d Due) In(now int64) int64 { return int64(int32(d-DueAt(now))) << dueShift }

// Passed tells whether a push is due, for a rule with this interval.
func (d Due) Passed(now, rate int64) bool {
	in := d.In(now)
	return in <= 0 || in > max(rate, longestPause)
}

// Sync is what an entry knows of its synchronisation.
type Sync struct {
	// ID is the counter's identity in the backend.
	ID  [16]byte
	Due Due
	// Claimed names the last claim: its Unix time in seconds, which wraps every 18 hours.
	Claimed uint16
}

const syncSize = 16 + 4 + 2

func (s *Sync) append(dst []byte) []byte {
	dst = append(dst, s.ID[:]...)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(s.Due))
	return binary.LittleEndian.AppendUint16(dst, s.Claimed)
}

// decodeSync wants syncSize bytes.
func decodeSync(b []byte) Sync {
	return Sync{
		ID:      [16]byte(b),
		Due:     Due(binary.LittleEndian.Uint32(b[16:])),
		Claimed: binary.LittleEndian.Uint16(b[20:]),
	}
}

// Identify gives a cell that has none yet its identity in the backend.
func (c *Cell) Identify(id [16]byte) { c.sync.ID = id }

// Identified tells whether the cell needs no Identify: it has an identity, or its rule isn't synced.
func (c *Cell) Identified() bool { return !c.synced || c.sync.ID != [16]byte{} }

// Sync is what the cell knows of its synchronisation.
func (c *Cell) Sync() Sync { return c.sync }

// Pending tells whether there are hits that were not pushed yet.
func (c *Cell) Pending() bool {
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

// Adopt tells whether the worker that is about to take hits has to remember the key and push it: no other worker does, as
// nothing was pending, or, if it is known that the backend can be reached, the one that should have is long overdue. Call it
// before Take, with the hits' time.
func (c *Cell) Adopt(now int64, reachable bool) bool {
	if !c.synced || !c.rule.Synced() {
		return false
	}
	in, passed := c.sync.Due.In(now), c.sync.Due.Passed(now, c.rule.SyncRate)
	if c.Pending() {
		if overdue := in < -adoptAfter-2*c.rule.SyncRate || in > 0 && passed; !overdue || !reachable {
			return false
		}
	}
	if passed || in > c.rule.SyncRate+dueUnit {
		// A key that was not synchronised for an interval is due at once.
		c.sync.Due = DueAt(now)
	}
	return true
}

// Claim moves what is pending in flight, and tells whether it may: not while an earlier push is out. The caller pushes what
// [Cell.Outgoing] says if it wins the race to write the cell.
func (c *Cell) Claim(now int64) (claimed bool) {
	seconds := uint16(now / 1e9)
	for i := range c.States {
		if !c.States[i].InFlight() {
			continue
		}
		if seconds-c.sync.Claimed < abandonAfterSeconds {
			return false
		}
		c.States[i].Land()
	}
	for i := range c.States {
		c.rule.Limits[i].Claim(&c.States[i])
	}
	c.landOthers()
	c.sync.Claimed = seconds
	c.sync.Due = DueAt(now + c.rule.SyncRate)
	return true
}

// Outgoing describes what limit i has in flight.
func (c *Cell) Outgoing(i int, p *window.Push) { c.rule.Limits[i].Outgoing(&c.States[i], p) }

// PushEnds is the time from which nobody wants what limit i has in flight any more.
func (c *Cell) PushEnds(i int) int64 { return c.rule.Limits[i].PushEnds(&c.States[i]) }

// Watched tells whether hits of other nodes could fill a limit while this node knows of none: it is half used, but not full.
// Then it is worth asking for totals, though there is nothing to push.
func (c *Cell) Watched(now int64) bool {
	if !c.synced || c.ForgetAt() <= now {
		return false
	}
	half, full := false, false
	for i := range c.States {
		l, s := &c.rule.Limits[i], &c.States[i]
		if s.InFlight() {
			return false // the answer will tell
		}
		half = half || l.Share(s) >= 0.5
		full = full || !l.Allows(s, 1)
	}
	return half && !full
}

// Ask makes the next push due. The longer the key was not hit here, the longer it takes until then.
func (c *Cell) Ask(now int64) {
	idle := int64(0)
	for i := range c.States {
		idle = now - c.States[i].Newest
	}
	c.sync.Due = DueAt(now + max(c.rule.SyncRate, min(idle/4, longestPause)))
}

// Settle takes in the backend's answer for limit i to a push with this claim. If the cell has been claimed again since, or was made
// anew, nothing lands, and totals are raised only.
func (c *Cell) Settle(i int, claim uint16, total *window.Totals) {
	c.rule.Limits[i].Settle(&c.States[i], c.sync.Claimed == claim, total)
}

// Orphans calls visit with what an entry that is leaving the table has for the backend: for each limit with pending hits,
// the counter's identity, what to push, and until when anybody wants it. Of the limit only the shape and a token bucket's rate
// are known. The push is valid during the call.
func Orphans(payload []byte, visit func(id [16]byte, l *window.Limit, push *window.Push, ends int64)) {
	if len(payload) < 1+syncSize || payload[0]&syncedFlag == 0 {
		return
	}
	orphans(decodeSync(payload[1:]).ID, payload[1+syncSize:], visit)
}

// landOthers counts pending hits of limits that the rule doesn't have as pushed: ClaimedOthers names them.
func (c *Cell) landOthers() {
	c.claimed = append(c.claimed[:0], c.others...)
	c.others = c.others[:0]
	for rest := c.claimed; len(rest) > 0; {
		limit, _ := window.DecodeLimit(rest)
		rest = rest[window.DecodeState(rest, &c.other):]
		limit.Claim(&c.other)
		c.other.Land()
		c.others = limit.AppendState(c.others, &c.other, c.synced)
	}
}

// ClaimedOthers calls visit as Orphans does, with what the last Claim found pending of limits that the rule doesn't have.
func (c *Cell) ClaimedOthers(visit func(id [16]byte, l *window.Limit, push *window.Push, ends int64)) {
	orphans(c.sync.ID, c.claimed, visit)
}

func orphans(id [16]byte, states []byte, visit func(id [16]byte, l *window.Limit, push *window.Push, ends int64)) {
	var state window.State
	var push window.Push
	for rest := states; len(rest) > 0; {
		limit, _ := window.DecodeLimit(rest)
		length := window.DecodeState(rest, &state)
		if length == 0 {
			return
		}
		if state.Pending() {
			state.Land() // what is in flight is somebody else's
			limit.Claim(&state)
			limit.Outgoing(&state, &push)
			visit(id, &limit, &push, limit.PushEnds(&state))
		}
		rest = rest[length:]
	}
}
