package node

import (
	"weir/internal/counter"
	"weir/sharedata"
)

// Demand is what a request asks of one rule: so many hits for a key. Its memory serves one request
// after the other.
type Demand struct {
	// Rule, Key and Cost are the request's. The key is one of the rule's name and of what it counts
	// for; see [counter.AppendPart].
	Rule *Rule
	Key  []byte
	Cost uint64
	// Cell is what the key has after the decision, and Verdict the rule's part in that.
	Cell    counter.Cell
	Verdict counter.Verdict

	address sharedata.Address
	slot    sharedata.Slot
	numbers []uint64 // of the windows that were debited
	inSlot  bool     // the hits are in the slot already, and have to be written
	taken   bool
	held    bool
}

// Withheld reports whether a demand was refused though its limits have room as far as is known
// here: the backend had no more for this node, or decides everything and can't be reached.
func (d *Demand) Withheld() bool { return d.Verdict == counter.Rejected && d.Cell.Allows(d.Cost) }

// uncount takes hits back that are in the slot only. The slot still has them: it has to be read
// again before it is written.
func (d *Demand) uncount() {
	d.inSlot = false
	d.numbers = d.Cell.Numbers(d.numbers[:0])
	d.Cell.GiveBack(d.numbers, d.Cost)
}

// saved is what it takes to decide or count a demand later. Its memory is reused.
type saved struct {
	rule int
	key  []byte
	cost uint64
}
