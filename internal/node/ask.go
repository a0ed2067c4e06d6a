package node

import (
	"weir/internal/wire"
	"weir/sharedata"
	"weir/window"
)

// ask is a question for hits, for a key's entry or for one request.
type ask struct {
	parts []Saved
	least uint64
	most  uint64
	// relies is how many hits of the lease its requests need besides.
	relies uint64
	// lease means that the hits go to the key's entry.
	lease bool
	// ahead means that they are for requests to come, and not for waiting requests.
	ahead bool
	sent  bool // it is on its way, or answered in part
	next  *ask // in a list of leaseAsks
	turns []turn
	// settled means that the answer was taken in, and granted that it gave hits. The counts are of
	// the waiting requests that were told. done means that the answer had this part and lacked
	// others.
	settled   bool
	done      bool
	granted   bool
	grantedAt int64
	told      int
}

// pass lets those demands pass that the ask was granted for.
func (t *ask) pass(demands []Demand) {
	parts := t.parts // in the order of the demands
	for i := range demands {
		if d := &demands[i]; len(parts) > 0 && d.address == parts[0].address {
			d.by, d.grantedAt, parts = byBackend, t.grantedAt, parts[1:]
		}
	}
}

func (t *ask) rooms() (n int) {
	for i := range t.parts {
		n += len(t.parts[i].Rule.Limits)
	}
	return n
}

// answerSize is the most bytes that the answer to an ask takes.
func (t *ask) answerSize() int {
	size := wire.GrantSize
	for i := range t.parts {
		limits := t.parts[i].Rule.Limits
		for j := range limits {
			size += wire.RoomSize(&limits[j])
		}
	}
	return size
}

// join makes a request, if there is one, wait for an ask. It reuses the places of requests that
// have left, so the places are at most twice the waiting requests.
//
//go:noinline
func (t *ask) join(w turn) {
	if w.wait == nil {
		return
	}
	if len(t.turns) == cap(t.turns) {
		kept := 0
		for _, other := range t.turns {
			if other.waits() {
				t.turns[kept] = other
				kept++
			}
		}
		if t.turns = t.turns[:kept]; 2*kept >= cap(t.turns) {
			t.turns = append(make([]turn, 0, 2*kept+1), t.turns...)
		}
	}
	w.wait.asked++
	t.turns = append(t.turns, w)
}

// wanted reports whether an unsent ask is still of use, that is, not all of its requests have left.
func (t *ask) wanted() bool {
	for _, w := range t.turns {
		if w.waits() {
			return true
		}
	}
	return len(t.turns) == 0
}

// needs is the total cost of the requests that wait for a lease.
//
//go:noinline
func (t *ask) needs() (hits uint64) {
	for _, w := range t.turns {
		for i := range w.wait.kept {
			if k := &w.wait.kept[i]; w.waits() && k.address == t.parts[0].address {
				hits = min(hits+k.Cost, window.MaxHits)
			}
		}
	}
	return hits
}

// leaseAsks finds asks for leases by the addresses of their keys, in short lists: there may be one
// for each waiting request. A Go map would make the module 15 KB larger, since the plugin has no
// other.
type leaseAsks [1024]*ask

// list returns the head of the list for an address.
func (w *leaseAsks) list(address sharedata.Address) **ask {
	return &w[address.Hash()%uint64(len(w))]
}

// find returns the ask for a demand's key that is not sent yet, either ahead of requests or by them, and
// either for hits or, at a cost of 0, for totals; nil if there is none.
func (w *leaseAsks) find(d *Demand, ahead bool, cost uint64) *ask {
	for t := *w.list(d.address); t != nil; t = t.next {
		if t.is(d, ahead, cost) && !t.sent {
			return t
		}
	}
	return nil
}

// underWay returns the ask for hits ahead of requests for a demand's key that has no answer yet; nil if
// there is none.
func (w *leaseAsks) underWay(d *Demand) *ask {
	for t := *w.list(d.address); t != nil; t = t.next {
		if t.is(d, true, 1) && t.sent && !t.settled {
			return t
		}
	}
	return nil
}

func (t *ask) is(d *Demand, ahead bool, cost uint64) bool {
	part := &t.parts[0]
	return part.address == d.address && part.Rule == d.Rule && part.Cost == cost && t.ahead == ahead
}

func (w *leaseAsks) add(t *ask) {
	first := w.list(t.parts[0].address)
	t.next, *first = *first, t
}

func (w *leaseAsks) remove(t *ask) {
	for at := w.list(t.parts[0].address); *at != nil; at = &(*at).next {
		if *at == t {
			*at = t.next
			return
		}
	}
}
