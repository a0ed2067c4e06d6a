// Package ledger has a worker's hits on credit, which were never in the table: those that have passed before the backend
// has counted them. It is their only record, and knows when they are to be pushed.
package ledger

import (
	"slices"

	"weir/internal/engine/rule"
	"weir/internal/wire"
	"weir/sharedata"
	"weir/window"
)

const (
	// maxAdvanced bounds the keys with advanced hits that are not counted yet.
	maxAdvanced = 1 << 14
	// maxItems bounds the items of their pushes, one for each limit, so that all fit into half of the pushes that may be out.
	maxItems = 1 << 15
)

// manyAdvanced is how many keys with advanced hits that no push has are pushed before their interval is over, so that
// more find room. As long as there are fewer, what comes of a key within an interval costs the backend once.
const manyAdvanced = maxAdvanced / 4 * 3

// Hits are hits of a key in certain windows that the backend has not counted yet.
type Hits struct {
	_ [0]func() // keeps Go from generating an equality function

	of      *Ledger
	Rule    *rule.Rule
	Address sharedata.Address
	id      [16]byte
	hits    uint64
	numbers []uint64 // of the windows, in the order of the rule's limits
	sent    bool
	next    *Hits // next in the list of the same slot of the index
}

// Ledger has a worker's advanced hits that the backend has not counted yet. They are not in
// the table, so the worker knows of them whatever happens to their keys' entries, and only it
// pushes them.
type Ledger struct {
	*book
	unsent []*Hits
	out    int   // how many are in pushes
	items  int   // of all
	due    int64 // when to push the others, by the backend's clock
	spare  []*Hits
	// lostTo is until when hits count that the backend may never count, by the backend's clock.
	lostTo int64
	push   window.Push // for an item
	item   wire.Item
}

// book finds the hits of a worker's ledgers, one for each configuration, by their keys.
type book struct {
	index []*Hits // lists, by the addresses of keys
	count int     // of keys in windows, of all ledgers
}

// New returns the ledger of a configuration. It knows the hits of that of an earlier one, unless that is nil.
func New(before *Ledger) Ledger {
	if before != nil {
		return Ledger{book: before.book}
	}
	return Ledger{book: new(book)}
}

// Unpushed is how many keys have hits on credit that no push has.
func (l *Ledger) Unpushed() int { return len(l.unsent) }

// Count is how many keys have hits on credit, in their windows.
func (l *Ledger) Count() int { return len(l.unsent) + l.out }

// HasRoom reports whether another key may have hits on credit.
func (l *Ledger) HasRoom(now int64) bool {
	return !l.Lost(now) && l.Count() < maxAdvanced && l.items < maxItems
}

// Lost reports whether hits may count that the backend never will. Until then no push settles all.
func (l *Ledger) Lost(now int64) bool { return now < l.lostTo }

// Settles reports whether a push with the hits of so many keys leaves none to be counted.
func (l *Ledger) Settles(own int, now int64) bool {
	return len(l.unsent) == 0 && l.out == own && !l.Lost(now)
}

func (b *book) list(address sharedata.Address) **Hits {
	return &b.index[address.Hash()%uint64(len(b.index))]
}

// grow makes room for lists of the keys, which are as many as the keys, or more.
//
//go:noinline
func (b *book) grow() {
	keys := b.index
	b.index = make([]*Hits, max(256, 2*len(keys)))
	for _, h := range keys {
		for h != nil {
			list, next := b.list(h.Address), h.next
			h.next, *list, h = *list, h, next
		}
	}
}

// find returns the hits of a check's key in the same windows, or nil.
//
//go:noinline
func (l *Ledger) find(d *rule.Check) *Hits {
	for h := *l.list(d.Address); h != nil; h = h.next {
		if h.Address == d.Address && !h.sent && h.Rule.Is(d.Rule) && slices.Equal(h.numbers, d.Numbers) {
			return h
		}
	}
	return nil
}

// Add adds a check's hits. The check has its identity and the numbers of its windows. many means that a push can't
// wait for the next usual tick, because hits of many keys have come together.
func (l *Ledger) Add(d *rule.Check, now int64) (many bool) {
	if l.count >= len(l.index) {
		l.grow()
	}
	h := l.find(d)
	if h == nil {
		if last := len(l.spare) - 1; last >= 0 {
			h, l.spare = l.spare[last], l.spare[:last]
		} else {
			h = &Hits{of: l}
		}
		list := l.list(d.Address)
		h.Rule, h.Address, h.id, h.next = d.Rule, d.Address, d.ID, *list
		h.hits, h.sent = 0, false
		h.numbers = append(h.numbers[:0], d.Numbers...)
		*list = h
		l.count++
		l.items += len(h.numbers)
		if due := now + d.Rule.Interval; len(l.unsent) == 0 || due < l.due {
			l.due = due
		}
		if l.unsent = append(l.unsent, h); len(l.unsent) == manyAdvanced || l.items >= maxItems/4*3 && l.items-len(h.numbers) < maxItems/4*3 {
			l.due, many = now, true
		}
	}
	h.hits += d.Cost
	return many
}

// GiveBack takes back hits of a check's key in the windows that it has the numbers of, as far as no push has them.
func (l *Ledger) GiveBack(d *rule.Check) (given uint64) {
	if len(l.unsent) == 0 {
		return 0
	}
	for h := *l.list(d.Address); h != nil; h = h.next {
		if h.of == l && h.Address == d.Address && !h.sent && slices.Equal(h.numbers, d.Numbers) { // whichever limits it had
			back := min(h.hits, d.Cost-given)
			given += back
			h.hits -= back // without hits, nothing is pushed
		}
	}
	return given
}

// Uncounted is how many hits of a key are advanced and not counted, in all ledgers of the worker.
//
//go:noinline
func (b *book) Uncounted(address sharedata.Address) (hits uint64) {
	if b.count == 0 {
		return 0
	}
	for h := *b.list(address); h != nil; h = h.next {
		if h.Address == address {
			hits += h.hits
		}
	}
	return hits
}

// Unheard is how many of them each limit of a check's rule has in its window at a time, and in the one before.
func (b *book) Unheard(d *rule.Check, now int64) (of rule.Unheard) {
	if b.count == 0 || !d.Rule.Synced() {
		return of
	}
	for h := *b.list(d.Address); h != nil; h = h.next {
		if h.Address != d.Address {
			continue
		}
		for i, number := range h.numbers {
			shape := h.Rule.Limits[i].Shape
			at := i
			if i >= len(d.Rule.Limits) || d.Rule.Limits[i].Shape != shape { // another configuration may have others
				at = slices.IndexFunc(d.Rule.Limits, func(l window.Limit) bool { return l.Shape == shape })
			}
			if ago := max(now/shape.Width-int64(number), 0); at >= 0 && ago <= 1 {
				of[at][ago] += uint8(h.hits) // together no more than [wire.MaxAdvance]
			}
		}
	}
	return of
}

// Send calls add with an item for each limit of the hits that are to be pushed at a time, or of all hits, the last key
// first, as long as room reports that there is some for a key. It reports whether that was all. A clock that was set back
// delays none.
func (l *Ledger) Send(now int64, all bool, room func() bool, add func(h *Hits, limit int, item *wire.Item, hits uint64, ends int64)) (done bool) {
	for len(l.unsent) > 0 && (all || now >= l.due || l.due-now > window.MaxWidth) {
		if !room() {
			return false
		}
		last := len(l.unsent) - 1
		h := l.unsent[last]
		l.unsent[last], l.unsent = nil, l.unsent[:last]
		h.sent = true
		l.out++
		ends := h.ends()
		for i := range h.Rule.Limits {
			h.push(i, &l.push)
			l.item = rule.Item(h.id, &h.Rule.Limits[i], &l.push)
			add(h, i, &l.item, l.push.Added(), ends)
		}
	}
	return true
}

// End drops hits that were pushed and that the backend has counted, or may never count. The push may be inherited
// from another worker.
//
//go:noinline
func (h *Hits) End(counted bool) rule.Ref {
	l := h.of
	if !counted {
		l.lostTo = max(l.lostTo, h.ends())
	}
	for at := l.list(h.Address); *at != nil; at = &(*at).next {
		if *at == h {
			*at = h.next
			break
		}
	}
	l.out--
	l.count--
	l.items -= len(h.numbers)
	h.next, l.spare = nil, append(l.spare, h)
	return rule.Ref{Rule: h.Rule, Address: h.Address, ID: h.id}
}

// ends is the time from which the hits no longer count. It follows from their windows, because the
// clock may have been set back.
func (h *Hits) ends() (at int64) {
	for i := range h.Rule.Limits {
		l := &h.Rule.Limits[i]
		at = max(at, (int64(h.numbers[i])+int64(l.Kind.Windows()))*l.Width)
	}
	return at + wire.PartLife
}

// push fills in the push for limit i.
func (h *Hits) push(i int, p *window.Push) {
	p.Newest = h.numbers[i]
	p.Hits, p.Ages = append(p.Hits[:0], int64(h.hits)), p.Ages[:0]
	if h.Rule.Limits[i].Kind == window.SlidingWindow {
		p.Hits = append(p.Hits, 0) // asks for the total of the previous window too
	}
}
