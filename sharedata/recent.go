package sharedata

import "encoding/binary"

// Recent has the pages that one worker wrote last, and the numbers that shared data probably gave
// them. Shared data numbers its writes consecutively, whatever their key. So a worker that knows
// one number, and its own writes since, knows the next number as long as nobody else writes: then
// it can write a page again without reading it.
//
// It need not be sure. If another worker has written anything since, the number is wrong and the
// compare-and-set of [Table.Rewrite] fails, as after any lost race. If it succeeds, the number was
// right and the page is as remembered, because no number is given twice within 2^32 writes: call
// Forget more often than that many can come.
//
// The zero Recent remembers nothing. It is not safe for concurrent use.
type Recent struct {
	pages [recentPages]recentPage
	next  uint32 // the number of the next write, as far as known
	// rest is how many recalls to skip, because others write.
	rest int
}

type recentPage struct {
	number uint32
	cas    uint32 // 0 for none
	page   []byte
}

const (
	// recentPages is how many pages are remembered: those of a few keys with most requests.
	recentPages = 16
	// restAfterWrong is how many recalls to skip after a wrong recall, which costs a second set. So
	// workers that share keys lose next to nothing.
	restAfterWrong = 256
)

// Forget drops all pages.
func (r *Recent) Forget() {
	for i := range r.pages {
		r.pages[i].cas = 0
	}
}

// Recall is [Table.Read] for a page as the slot's worker last wrote it, without a get. It returns
// false if the page or the entry is not remembered; then read it. Use the result only for a
// Rewrite, because another worker may have written the page.
func (t *Table) Recall(s *Slot, a Address) (found bool) {
	r := s.Recent
	if r == nil {
		return false
	}
	number := t.page(a)
	p := &r.pages[number%recentPages]
	if p.cas == 0 || p.number != number || s.table != t {
		return false
	}
	if r.rest > 0 {
		r.rest--
		return false
	}
	s.locate(t, a)
	s.page, p.page = p.page, s.page
	s.cas, p.cas, s.recalled = p.cas, 0, true
	return s.find()
}

// saw records the number of a write that the slot has read.
func (r *Recent) saw(cas uint32) {
	if int32(cas+1-r.next) > 0 {
		r.next = cas + 1
	}
}

// set writes the slot's page, and remembers it.
func (s *Slot) set() (written bool) {
	if s.changed() {
		return true
	}
	written = s.table.data.Set(s.name, s.page, s.cas)
	r := s.Recent
	if r == nil {
		return written
	}
	if !written {
		if s.recalled {
			r.rest = restAfterWrong
		}
		return false
	}
	cas := r.next // no write gets 0, which stands for none
	r.next++
	number := s.name[len(s.name)-numberSize:]
	n := uint32(number[0])<<16 | uint32(binary.BigEndian.Uint16(number[1:]))
	p := &r.pages[n%recentPages]
	p.number, p.cas = n, cas
	p.page, s.page = s.page, p.page[:0]
	return true
}
