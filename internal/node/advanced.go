package node

import (
	"slices"

	"weir/internal/wire"
	"weir/sharedata"
	"weir/window"
)

// maxAdvanced bounds the keys with advanced hits that are not counted yet.
const maxAdvanced = 1 << 12

// advanced are hits of a key in certain windows that the backend has not counted yet.
type advanced struct {
	_ [0]func() // keeps Go from generating an equality function

	of      *advancedHits
	rule    *Rule
	address sharedata.Address
	id      [16]byte
	hits    uint64
	numbers [maxLimits]uint64 // of the windows, in the order of the rule's limits
	sent    bool
	next    *advanced // next in the list of the same slot of the index
}

// advancedHits are a worker's advanced hits that the backend has not counted yet. They are not in
// the table, so the worker knows of them whatever happens to their keys' entries, and only it
// pushes them.
type advancedHits struct {
	index  *[256]*advanced
	unsent []*advanced
	out    int   // how many are in pushes
	due    int64 // when to push the others, by the backend's clock
	spare  []*advanced
	// lostTo is until when hits count that the backend may never count, by the backend's clock.
	lostTo int64
}

func (a *advancedHits) count() int { return len(a.unsent) + a.out }

func (a *advancedHits) list(address sharedata.Address) **advanced {
	return &a.index[address.Hash()%uint64(len(a.index))]
}

// held is how many hits of a key are advanced and not counted.
//
//go:noinline
func (a *advancedHits) held(address sharedata.Address) (hits uint64) {
	if a.count() == 0 {
		return 0
	}
	for h := *a.list(address); h != nil; h = h.next {
		if h.address == address {
			hits += h.hits
		}
	}
	return hits
}

// find returns the hits of a demand's key in the same windows, or nil.
//
//go:noinline
func (a *advancedHits) find(d *Demand) *advanced {
	for h := *a.list(d.address); h != nil; h = h.next {
		if h.address == d.address && h.rule == d.Rule && !h.sent && slices.Equal(h.numbers[:len(d.numbers)], d.numbers) {
			return h
		}
	}
	return nil
}

// add adds a demand's hits. The demand has its identity and the numbers of its windows.
func (a *advancedHits) add(d *Demand, now int64) {
	if a.index == nil {
		a.index = new([256]*advanced)
	}
	h := a.find(d)
	if h == nil {
		if last := len(a.spare) - 1; last >= 0 {
			h, a.spare = a.spare[last], a.spare[:last]
		} else {
			h = &advanced{of: a}
		}
		list := a.list(d.address)
		h.rule, h.address, h.id, h.next = d.Rule, d.address, d.id, *list
		h.hits, h.sent = 0, false
		copy(h.numbers[:], d.numbers)
		*list = h
		if due := now + d.Rule.Interval; len(a.unsent) == 0 || due < a.due {
			a.due = due
		}
		a.unsent = append(a.unsent, h)
	}
	h.hits += d.Cost
}

// giveBack takes back the hits that a demand has just added.
func (a *advancedHits) giveBack(d *Demand) {
	if h := a.find(d); h != nil {
		h.hits -= min(h.hits, d.Cost) // without hits, nothing is pushed
	}
}

// dueAt reports whether hits are due at a time, or with all, whether there are any. A clock that
// was set back delays none.
func (a *advancedHits) dueAt(now int64, all bool) bool {
	return len(a.unsent) > 0 && (all || now >= a.due || a.due-now > window.MaxWidth)
}

// send returns the last of the hits that are to be pushed.
func (a *advancedHits) send() *advanced {
	last := len(a.unsent) - 1
	h := a.unsent[last]
	a.unsent[last], a.unsent = nil, a.unsent[:last]
	h.sent = true
	a.out++
	return h
}

// counted drops hits that the backend has counted. The push may be inherited from another worker.
//
//go:noinline
func (h *advanced) counted() {
	a := h.of
	for at := a.list(h.address); *at != nil; at = &(*at).next {
		if *at == h {
			*at = h.next
			break
		}
	}
	a.out--
	if h.next = nil; len(a.spare) < maxAdvanced {
		a.spare = append(a.spare, h)
	}
}

// lost drops hits that were pushed and that the backend may never count.
//
//go:noinline
func (h *advanced) lost() {
	h.of.lostTo = max(h.of.lostTo, h.ends())
	h.counted()
}

// ends is the time from which the hits no longer count. It follows from their windows, because the
// clock may have been set back.
func (h *advanced) ends() (at int64) {
	for i := range h.rule.Limits {
		l := &h.rule.Limits[i]
		at = max(at, (int64(h.numbers[i])+int64(l.Kind.Windows()))*l.Width)
	}
	return at + wire.PartLife
}

// push fills in the push for limit i.
func (h *advanced) push(i int, p *window.Push) {
	p.Newest = h.numbers[i]
	p.Hits, p.Ages = append(p.Hits[:0], int64(h.hits)), p.Ages[:0]
	if h.rule.Limits[i].Kind == window.SlidingWindow {
		p.Hits = append(p.Hits, 0) // asks for the total of the previous window too
	}
}
