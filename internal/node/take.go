package node

import (
	"weir/sharedata"
)

// take is a wish for hits of a key, or of all keys of one request.
type take struct {
	parts []claimant
	least uint64
	most  uint64
	// lease says that the hits are for the key's entry.
	lease bool
	// ahead says that they are for requests to come, and not for those that wait.
	ahead   bool
	next    *take // in a list of leaseWishes
	waiters []waiting
	// The answer's: whether it was taken in, with hits, and how many waiters have been told.
	landed  bool
	granted bool
	told    int
}

// claimant is a key of a take.
type claimant struct {
	address sharedata.Address
	rule    *Rule
	id      [16]byte
	cost    uint64
}

func (t *take) rooms() (n int) {
	for i := range t.parts {
		n += len(t.parts[i].rule.Limits)
	}
	return n
}

// join has a waiter, if there is one, wait for a take.
//
//go:noinline
func (t *take) join(w waiting) {
	if w.wait != nil {
		w.wait.asked++
		t.waiters = append(t.waiters, w)
	}
}

// wanted reports whether a take that was not sent yet is still of use: it was not asked for by
// requests that have all gone.
func (t *take) wanted() bool {
	for _, w := range t.waiters {
		if w.waits() {
			return true
		}
	}
	return len(t.waiters) == 0
}
