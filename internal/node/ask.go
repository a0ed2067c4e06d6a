package node

import (
	"weir/internal/wire"
	"weir/sharedata"
	"weir/window"
)

// ask is a question for hits of a key, or of all keys of one request.
type ask struct {
	parts []Saved
	least uint64
	most  uint64
	// lease says that the hits are for the key's entry.
	lease bool
	// ahead says that they are for requests to come, and not for those that wait.
	ahead bool
	next  *ask // in a list of leaseAsks
	turns []turn
	// The answer's: whether it was taken in, with hits, and how many of those that wait have been told. done
	// says that all of that was in an answer that lacked others.
	settled   bool
	done      bool
	granted   bool
	grantedAt int64
	told      int
}

// pass has those of a request's demands pass that the ask is for: it was granted.
func (t *ask) pass(demands []Demand) {
	parts := t.parts // in the order of the demands
	for i := range demands {
		if d := &demands[i]; len(parts) > 0 && d.Rule == parts[0].Rule {
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

// join has a request, if there is one, wait for an ask. Requests that have gone leave their room to
// it. So there is room for at most twice the requests that wait, however long the ask is not sent.
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

// wanted reports whether an ask that was not sent yet is still of use: it was not made for
// requests that have all gone.
func (t *ask) wanted() bool {
	for _, w := range t.turns {
		if w.waits() {
			return true
		}
	}
	return len(t.turns) == 0
}

// needs is how many hits the requests cost that wait for a lease.
//
//go:noinline
func (t *ask) needs() (hits uint64) {
	for _, w := range t.turns {
		for i := range w.wait.kept {
			if k := &w.wait.kept[i]; w.waits() && k.Rule == t.parts[0].Rule {
				hits = min(hits+k.Cost, window.MaxHits)
			}
		}
	}
	return hits
}

// leaseAsks finds the asks for leases by the addresses of their keys, in short lists: there may be
// one for each request that waits. No other type of the plugin is a map of Go's, whose code would
// make the module 15 KB larger.
type leaseAsks [1024]*ask

// list is where the list for an address begins.
func (w *leaseAsks) list(address sharedata.Address) **ask {
	return &w[address.Hash()%uint64(len(w))]
}

// find is nil if there is no ask for a demand's key, ahead of requests or by them.
func (w *leaseAsks) find(d *Demand, ahead bool) *ask {
	for t := *w.list(d.address); t != nil; t = t.next {
		if part := &t.parts[0]; part.address == d.address && part.Rule == d.Rule && t.ahead == ahead {
			return t
		}
	}
	return nil
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
