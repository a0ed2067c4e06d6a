// Package counter holds what a rule has counted for one key: the states of all its limits, decided together, in the form
// that shared data keeps, with what synchronisation needs.
//
// All limits live in one entry, so that one compare-and-set takes from all of them or from none. A [Cell] is the decoded
// entry; its memory is reused from key to key.
package counter

import (
	"encoding/binary"
	"math"

	"weir/window"
)

// Rule is what a cell needs to know of a rule.
type Rule struct {
	// Limits are all of the rule's.
	Limits []window.Limit
	// SyncRate is the interval between two pushes of a key in nanoseconds; 0 if the rule's counters stay in this proxy.
	SyncRate int64
}

// Synced tells whether the rule's counters are pushed to a backend.
func (r *Rule) Synced() bool { return r.SyncRate > 0 }

// Cell is the decoded entry of one key: a state for each of the rule's limits.
//
// Call Load with what shared data has, then Advance; then ask, Take, and write what Append gives. The zero Cell is ready for
// Load.
type Cell struct {
	rule *Rule
	// States are in the order of the rule's limits.
	States []window.State
	sync   Sync
	synced bool
	// others are the encoded states of limits that this rule does not have: another filter's, or an older configuration's,
	// of the same name.
	others []byte
}

// Sync is what an entry knows of its synchronisation.
type Sync struct {
	// ID is the counter's identity in the backend.
	ID [16]byte
	// DueNanos is when the next push is due, in Unix time.
	DueNanos int64
	// ClaimedSeconds is when hits were last moved in flight, in Unix time.
	ClaimedSeconds uint32
}

// The first byte of an entry says what comes before the states.
const (
	plainEntry  = 0
	syncedEntry = 1
	syncSize    = 16 + 8 + 4
)

// Load decodes an entry of shared data for a rule. An entry that makes no sense is treated as a key that was never seen,
// and reported as false. A nil payload is such a key.
func (c *Cell) Load(rule *Rule, payload []byte) (valid bool) {
	c.reset(rule)
	if len(payload) == 0 {
		return payload == nil
	}
	rest := payload[1:]
	switch {
	case payload[0] == syncedEntry && len(rest) >= syncSize:
		c.synced = true
		c.sync.ID = [16]byte(rest)
		c.sync.DueNanos = int64(min(binary.LittleEndian.Uint64(rest[16:]), math.MaxInt64))
		c.sync.ClaimedSeconds = binary.LittleEndian.Uint32(rest[24:])
		rest = rest[syncSize:]
	case payload[0] != plainEntry:
		return false
	}
	// Usually the states are the rule's, in its order.
	for next := 0; len(rest) > 0; next++ {
		var state window.State
		shape, length := window.DecodeState(rest, &state)
		if length == 0 {
			c.reset(rule)
			return false
		}
		if next < len(rule.Limits) && rule.Limits[next].Shape == shape {
			c.States[next] = state
		} else if i := rule.find(shape); i >= 0 {
			c.States[i] = state
		} else {
			c.others = append(c.others, rest[:length]...)
		}
		rest = rest[length:]
	}
	return true
}

func (c *Cell) reset(rule *Rule) {
	c.rule = rule
	c.States = c.States[:0]
	for range rule.Limits {
		c.States = append(c.States, window.State{})
	}
	c.sync, c.synced = Sync{}, rule.Synced()
	c.others = c.others[:0]
}

func (r *Rule) find(shape window.Shape) int {
	for i := range r.Limits {
		if r.Limits[i].Shape == shape {
			return i
		}
	}
	return -1
}

// Advance brings all states to the present.
func (c *Cell) Advance(now int64) {
	for i := range c.States {
		c.rule.Limits[i].Advance(&c.States[i], now)
	}
}

// Allows tells whether cost hits fit every limit.
func (c *Cell) Allows(cost uint64) bool {
	for i := range c.States {
		if !c.rule.Limits[i].Allows(&c.States[i], cost) {
			return false
		}
	}
	return true
}

// Take counts cost hits in every limit.
func (c *Cell) Take(cost uint64) {
	for i := range c.States {
		c.rule.Limits[i].Take(&c.States[i], cost)
	}
}

// Numbers appends the numbers of the windows that the cell is in, for GiveBack.
func (c *Cell) Numbers(dst []uint64) []uint64 {
	for i := range c.States {
		dst = append(dst, c.rule.Limits[i].Number(&c.States[i]))
	}
	return dst
}

// GiveBack takes cost hits back out of the windows of those numbers.
func (c *Cell) GiveBack(numbers []uint64, cost uint64) {
	for i := range c.States {
		c.rule.Limits[i].GiveBack(&c.States[i], numbers[i], cost)
	}
}

// Append encodes the cell in the form that Load reads. States of other limits are carried along until they tell nothing any
// more at the time now.
func (c *Cell) Append(dst []byte, now int64) []byte {
	if c.synced {
		dst = append(dst, syncedEntry)
		dst = append(dst, c.sync.ID[:]...)
		dst = binary.LittleEndian.AppendUint64(dst, uint64(c.sync.DueNanos))
		dst = binary.LittleEndian.AppendUint32(dst, c.sync.ClaimedSeconds)
	} else {
		dst = append(dst, plainEntry)
	}
	for i := range c.States {
		dst = c.rule.Limits[i].AppendState(dst, &c.States[i], c.synced)
	}
	room := maxOthers
	for rest := c.others; len(rest) > 0 && room > 0; {
		limit, state, length := other(rest)
		if limit.ForgetAt(&state) > now {
			dst = append(dst, rest[:length]...)
			room--
		}
		rest = rest[length:]
	}
	return dst
}

// maxOthers bounds how many states of other limits an entry carries along.
const maxOthers = 8

// other decodes the first of some states that were decoded before.
func other(states []byte) (limit window.Limit, state window.State, length int) {
	limit.Shape, length = window.DecodeState(states, &state)
	return limit, state, length
}

// MaxSize is the most bytes that an entry of a rule with so many limits takes.
func MaxSize(limits int) int {
	return 1 + syncSize + (limits+maxOthers)*window.MaxStateSize
}

// ForgetAt is the time from which the cell tells no more than a key that was never seen.
func (c *Cell) ForgetAt() int64 {
	at := int64(0)
	for i := range c.States {
		at = max(at, c.rule.Limits[i].ForgetAt(&c.States[i]))
	}
	for rest := c.others; len(rest) > 0; {
		limit, state, length := other(rest)
		at = max(at, limit.ForgetAt(&state))
		rest = rest[length:]
	}
	return at
}

// Use ranks cells by how near they are to a limit: the upper half of the float32 of the greatest used share, which compares
// as the share does. It only serves to choose whom to forget.
func (c *Cell) Use() uint16 {
	share := float32(0)
	for i := range c.States {
		used := c.States[i].Hits[0].Sum() + c.States[i].Hits[1].Sum()
		share = max(share, float32(used)/float32(max(c.rule.Limits[i].Max, 1)))
	}
	return uint16(math.Float32bits(share) >> 16)
}
