package counter

import "weir/window"

const (
	// adoptAfter is how long after its push was due a key's hits are adopted by the next worker that hits it: the one that
	// remembered the key seems to be gone.
	adoptAfter = int64(5e9)
	// abandonAfterSeconds is how long hits stay in flight without an answer before more of the key are pushed: the worker
	// that pushed them seems to be gone. If it isn't, nothing is lost: its answer is taken in all the same.
	abandonAfterSeconds = 60
)

// Identify gives a cell that has none yet its identity in the backend.
func (c *Cell) Identify(id [16]byte) { c.sync.ID = id }

// Identified tells whether the cell needs no Identify: it has an identity, or its rule isn't synced.
func (c *Cell) Identified() bool { return !c.synced || c.sync.ID != [16]byte{} }

// ID is the cell's identity in the backend.
func (c *Cell) ID() [16]byte { return c.sync.ID }

// DueNanos is when the cell's next push is due.
func (c *Cell) DueNanos() int64 { return c.sync.DueNanos }

// Pending tells whether there are hits that were not pushed yet.
func (c *Cell) Pending() bool {
	for i := range c.States {
		if c.States[i].Pending() {
			return true
		}
	}
	return false
}

// Adopt tells whether the worker that is about to take hits has to remember the key and push it: no other worker does, as
// nothing was pending, or the one that should have is long overdue. Call it before Take, with the hits' time.
func (c *Cell) Adopt(now int64) bool {
	if !c.synced || !c.rule.Synced() {
		return false
	}
	if c.Pending() && now-c.sync.DueNanos < adoptAfter+2*c.rule.SyncRate {
		return false
	}
	// A key that was not synchronised for a while is due at once. A due time that a wrong clock left is not waited for.
	if c.sync.DueNanos < now || c.sync.DueNanos-now > c.rule.SyncRate {
		c.sync.DueNanos = now
	}
	return true
}

// Claim moves what is pending in flight and tells whether there was anything and it may be pushed: then pushes[i] is what
// to push for limit i. The caller pushes only if it wins the race to write the cell.
func (c *Cell) Claim(now int64, pushes []window.Push) (claimed bool) {
	if !c.synced || !c.Pending() {
		return false
	}
	seconds := uint32(now / 1e9)
	for i := range c.States {
		if !c.States[i].InFlight() {
			continue
		}
		if seconds-c.sync.ClaimedSeconds < abandonAfterSeconds {
			return false
		}
		c.States[i].Abandon()
	}
	for i := range c.States {
		pushes[i] = c.rule.Limits[i].Claim(&c.States[i])
	}
	c.sync.ClaimedSeconds = seconds
	c.sync.DueNanos = now + c.rule.SyncRate
	return true
}

// Watched tells whether hits of other nodes could fill a limit while this node knows of none: it is half used, but not full.
// Then it is worth asking for totals, though there is nothing to push.
func (c *Cell) Watched(now int64) bool {
	if !c.synced || c.ForgetAt() <= now {
		return false
	}
	half, full := false, false
	for i := range c.States {
		l, s := &c.rule.Limits[i], &c.States[i]
		half = half || s.Hits[0].Sum() >= (l.Max+1)/2
		full = full || !l.Allows(s, 1)
	}
	return half && !full
}

// Ask gives pushes without hits, whose answer has totals. The longer the key was not hit here, the longer it takes until the
// next one is due.
func (c *Cell) Ask(now int64, pushes []window.Push) {
	idle := int64(0)
	for i := range c.States {
		pushes[i] = window.Push{Newest: c.rule.Limits[i].Number(&c.States[i])}
		idle = now - c.States[i].Newest
	}
	c.sync.DueNanos = now + max(c.rule.SyncRate, idle/4)
}

// Settle takes in the backend's answer for limit i.
func (c *Cell) Settle(i int, pushed window.Push, total window.Totals) {
	c.rule.Limits[i].Settle(&c.States[i], pushed, total)
}

// Orphans calls visit with what an entry that is leaving the table has for the backend: for each limit with pending hits,
// the counter's identity and what to push. The limit's Max is not known.
func Orphans(payload []byte, visit func(id [16]byte, l *window.Limit, push window.Push)) {
	if len(payload) < 1+syncSize || payload[0] != syncedEntry {
		return
	}
	id := [16]byte(payload[1:])
	for rest := payload[1+syncSize:]; len(rest) > 0; {
		limit, _ := window.DecodeLimit(rest)
		var state window.State
		length := window.DecodeState(rest, &state)
		if length == 0 {
			return
		}
		if state.Pending() {
			visit(id, &limit, limit.Claim(&state))
		}
		rest = rest[length:]
	}
}
