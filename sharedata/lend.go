package sharedata

import "encoding/binary"

// firstPage is the initial memory of a lent page, in bytes: for one entry of the usual size.
const firstPage = 48

// Lender has a table's pages where others that the process allows may change them: a [Map]. It is an interface so that
// programs which lend nothing lack it.
type Lender interface {
	// lend makes the pages of a table, unless an earlier table of the name and size has made them.
	lend(t *Table)
	// lock returns a page, which everybody else waits for until it is unlocked.
	lock(page uint32) *versioned
	unlock(page *versioned)
}

// Borrow is [Table.Read] without a copy, of a table in a [Map] that lends: see [Options.Lends]. What the caller changes in
// the slot's payload is changed in the table at once. So it changes nothing, or writes the slot. Until [Slot.Return],
// everybody else waits who needs the page. Other slots may borrow other pages at the same time.
func (t *Table) Borrow(s *Slot, a Address) (found bool) {
	if t.lender == nil {
		return t.Read(s, a)
	}
	v := t.lender.lock(t.page(a))
	s.address, s.recalled, s.evicted = a, false, s.evicted[:0]
	s.own, s.lent, s.lender, s.page = s.page, v, t.lender, v.value
	return s.find()
}

// Return ends [Table.Borrow]. The slot's payload is no longer valid. A slot that has borrowed nothing stays as it is.
//
//go:noinline
func (s *Slot) Return() {
	if v := s.lent; v != nil {
		s.page, s.own, s.lent, s.at = s.own, nil, nil, 0
		s.lender.unlock(v)
	}
}

// Lent reports whether the slot has borrowed its page.
func (s *Slot) Lent() bool { return s.lent != nil }

// Held is an entry in a page that is lent, while everybody else waits for it.
type Held struct {
	page *versioned
	at   int
}

// Hold holds the entry of an address. If there is none, or the table lends nothing, there is nothing to let go.
func (t *Table) Hold(a Address) (h Held, found bool) {
	if t.lender == nil {
		return h, false
	}
	v := t.lender.lock(t.page(a))
	if len(v.value) > 0 {
		if h.at, found = search(v.value, a); found {
			h.page = v
			return h, true
		}
	}
	v.mu.Unlock()
	return h, false
}

// Payload returns the payload, which may be changed where it is: then call Changed.
func (h Held) Payload() []byte {
	entry := h.page.value[h.at:]
	return entry[payloadAt:binary.LittleEndian.Uint16(entry)]
}

// Changed says that the payload was changed.
func (h Held) Changed(meta Meta) {
	meta.put(h.page.value[h.at:])
	h.page.cas = h.page.numbers().next()
}

// Let lets the entry go.
func (h Held) Let() { h.page.mu.Unlock() }

// lend implements Lender.
func (m *Map) lend(t *Table) {
	if string(m.lent.name) != string(t.name) || len(m.lent.pages) != int(t.pages) {
		m.lent = lent{t.name, make([]versioned, t.pages)}
	}
}

// lock implements Lender.
func (m *Map) lock(page uint32) *versioned {
	v := &m.lent.pages[page]
	v.mu.Lock()
	if v.value == nil {
		v.value = make([]byte, 0, firstPage)
	}
	return v
}

// unlock implements Lender.
func (m *Map) unlock(page *versioned) { page.mu.Unlock() }

// lent are the pages of a table that lends them.
type lent struct {
	name  []byte // of a page, without its number
	pages []versioned
}

// page returns the page with a name; nil if it is none of these.
func (l *lent) page(name []byte) *versioned {
	at := len(name) - numberSize
	if len(l.pages) == 0 || at != len(l.name) || string(name[:at]) != string(l.name) {
		return nil
	}
	if number := int(name[at])<<16 | int(name[at+1])<<8 | int(name[at+2]); number < len(l.pages) {
		return &l.pages[number]
	}
	return nil
}

// numbers are those of a lent page's writes: other pages are written at the same time.
func (v *versioned) numbers() *Numbers { return (*Numbers)(&v.cas) }

// changed says of a lent page that it was changed where it is, and reports whether it is one.
func (s *Slot) changed() (lent bool) {
	v := s.lent
	if v == nil {
		return false
	}
	v.value, v.cas = s.page, v.numbers().next()
	return true
}
