package node

import (
	"weir/internal/wire"
	"weir/sharedata"
	"weir/window"
)

// take is a wish for hits of a key, or of all keys of one request.
type take struct {
	parts []Saved
	least uint64
	most  uint64
	// lease says that the hits are for the key's entry.
	lease bool
	// ahead says that they are for requests to come, and not for those that wait.
	ahead   bool
	next    *take // in a list of leaseWishes
	waiters []waiting
	// The answer's: whether it was taken in, with hits, and how many waiters have been told. done
	// says that all of that was in an answer that lacked others.
	settled   bool
	done      bool
	granted   bool
	grantedAt int64
	told      int
}

// pass has those of a request's demands pass that the take is for: it was granted.
func (t *take) pass(demands []Demand) {
	parts := t.parts // in the order of the demands
	for i := range demands {
		if d := &demands[i]; len(parts) > 0 && d.Rule == parts[0].Rule {
			d.by, d.grantedAt, parts = byBackend, t.grantedAt, parts[1:]
		}
	}
}

func (t *take) rooms() (n int) {
	for i := range t.parts {
		n += len(t.parts[i].Rule.Limits)
	}
	return n
}

// answerSize is the most bytes that the answer to a take takes.
func (t *take) answerSize() int {
	size := wire.GrantSize
	for i := range t.parts {
		limits := t.parts[i].Rule.Limits
		for j := range limits {
			size += wire.RoomSize(&limits[j])
		}
	}
	return size
}

// join has a waiter, if there is one, wait for a take. Those who have gone leave their room to it, so
// that there is room for twice as many as wait at most, however long the take is not sent.
//
//go:noinline
func (t *take) join(w waiting) {
	if w.wait == nil {
		return
	}
	if len(t.waiters) == cap(t.waiters) {
		kept := 0
		for _, other := range t.waiters {
			if other.waits() {
				t.waiters[kept] = other
				kept++
			}
		}
		if t.waiters = t.waiters[:kept]; 2*kept >= cap(t.waiters) {
			t.waiters = append(make([]waiting, 0, 2*kept+1), t.waiters...)
		}
	}
	w.wait.asked++
	t.waiters = append(t.waiters, w)
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

// needs is how many hits the requests cost that wait for a lease.
//
//go:noinline
func (t *take) needs() (hits uint64) {
	for _, w := range t.waiters {
		for i := range w.wait.kept {
			if k := &w.wait.kept[i]; w.waits() && k.Rule == t.parts[0].Rule {
				hits = min(hits+k.Cost, window.MaxHits)
			}
		}
	}
	return hits
}

// leaseWishes finds the wishes for leases by the addresses of their keys, in short lists: there may
// be as many as requests that wait. No other type of the plugin is a map of Go's, whose code would
// make the module 15 KB larger.
type leaseWishes [1024]*take

// list is where the list for an address begins.
func (w *leaseWishes) list(address sharedata.Address) **take {
	return &w[address.Hash()%uint64(len(w))]
}

// find is nil if there is no wish for a demand's key, ahead of requests or by them.
func (w *leaseWishes) find(d *Demand, ahead bool) *take {
	for t := *w.list(d.address); t != nil; t = t.next {
		if part := &t.parts[0]; part.address == d.address && part.Rule == d.Rule && t.ahead == ahead {
			return t
		}
	}
	return nil
}

func (w *leaseWishes) add(t *take) {
	first := w.list(t.parts[0].address)
	t.next, *first = *first, t
}

func (w *leaseWishes) remove(t *take) {
	for at := w.list(t.parts[0].address); *at != nil; at = &(*at).next {
		if *at == t {
			*at = t.next
			return
		}
	}
}
