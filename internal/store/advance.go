package store

import (
	"weir/internal/wire"
	"weir/window"
)

// Bounds of the senders of a namespace that advance hits.
const (
	// MaxAdvancedLimits is the most limits of a namespace whose hits are advanced. Rules with equal
	// limits share one: wire.MaxNearLimits bounds the limits of all rules. A hit may be compared
	// with each of these.
	MaxAdvancedLimits = 32
	// LeastDivisor is the least divisor of a sender's part. Redis' commit.lua has it, too.
	LeastDivisor = 16
)

// Advances reports whether hits of a limit can be advanced. Hits of other kinds may come back
// singly, start their own windows, or push out each other.
func Advances(c *wire.LimitCounter, limit uint64) bool {
	switch window.Kind(c.Kind) {
	case window.FixedWindow, window.SlidingWindow:
		return wire.MostAdvanced(limit, LeastDivisor) > 0
	}
	return false
}
