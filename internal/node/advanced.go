package node

import (
	"slices"

	"weir/internal/wire"
	"weir/sharedata"
	"weir/window"
)

// maxAdvanced bounds the keys whose hits are advanced and not counted.
const maxAdvanced = 1 << 12

// advanced is hits of a key that the backend has yet to count. They are in the windows of numbers.
type advanced struct {
	_ [0]func() // keeps Go from generating an equality function

	of      *advancedHits
	rule    *Rule
	address sharedata.Address
	id      [16]byte
	hits    uint64
	numbers [maxLimits]uint64 // those of the rule's limits come first
	sent    bool
	next    *advanced // of those in a list of the index
}

// advancedHits are those that a worker has advanced, and the backend has yet to count. They are not in
// the table: so the worker knows of them whatever becomes of their keys' entries, and nobody else pushes
// them.
type advancedHits struct {
	index  *[256]*advanced
	unsent []*advanced
	out    int   // that pushes have
	due    int64 // when those that are unsent are pushed, by the backend's time
	spare  []*advanced
	// lostTo is until when hits count that the backend may never count, by its time.
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

// find is where hits of a demand's key go that are of the same windows, if there is such a place.
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

// add adds a demand's hits, which has its identity and the numbers of its windows.
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

// giveBack takes back what a demand has just taken.
func (a *advancedHits) giveBack(d *Demand) {
	if h := a.find(d); h != nil {
		h.hits -= min(h.hits, d.Cost) // nothing is pushed of it if there are none
	}
}

// dueAt reports whether there are hits to push at a time, or at all. If the clock was set back, they are not
// held up.
func (a *advancedHits) dueAt(now int64, all bool) bool {
	return len(a.unsent) > 0 && (all || now >= a.due || a.due-now > window.MaxWidth)
}

// send takes the last of those that are to be pushed.
func (a *advancedHits) send() *advanced {
	last := len(a.unsent) - 1
	h := a.unsent[last]
	a.unsent[last], a.unsent = nil, a.unsent[:last]
	h.sent = true
	a.out++
	return h
}

// counted forgets hits that were pushed, as they are counted. They may be of a worker whose place this
// worker has taken.
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

// lost forgets hits that were pushed, and that the backend may never count.
//
//go:noinline
func (h *advanced) lost() {
	h.of.lostTo = max(h.of.lostTo, h.ends())
	h.counted()
}

// ends is the time from which the hits do not count. It goes by their windows, and by no clock: that may
// have been set back since.
func (h *advanced) ends() (at int64) {
	for i := range h.rule.Limits {
		l := &h.rule.Limits[i]
		at = max(at, (int64(h.numbers[i])+int64(l.Kind.Windows()))*l.Width)
	}
	return at + wire.PartLife
}

// push makes the push of limit i.
func (h *advanced) push(i int, p *window.Push) {
	p.Newest = h.numbers[i]
	p.Hits, p.Ages = append(p.Hits[:0], int64(h.hits)), p.Ages[:0]
	if h.rule.Limits[i].Kind == window.SlidingWindow {
		p.Hits = append(p.Hits, 0) // the total of the window before is wanted, too
	}
}
