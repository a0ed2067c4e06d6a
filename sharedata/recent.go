package sharedata

import "encoding/binary"

// Recent has the pages that one worker has written last, and the numbers that shared data is taken
// to have given them. Shared data numbers its writes, one after the other, whatever their key. So a
// worker that knows a number, and its own writes since, knows the next number, as long as nobody
// else writes: then it need not read a page before it writes that again.
//
// Nobody has to be sure of that. If another worker has written anything since, the number is wrong,
// and the compare-and-set of [Table.Rewrite] fails as after any lost race. If it succeeds, the
// number was right and the page is as it was remembered, as no number is given twice. That is so
// for 2^32 writes: call Forget more often than these can come.
//
// The zero Recent remembers nothing yet. It is not safe for concurrent use.
type Recent struct {
	pages [recentPages]recentPage
	next  uint32 // the number of the next write, as far as is known
	// rest is how many recalls are left out, as others write.
	rest int
}

type recentPage struct {
	number uint32
	cas    uint32 // 0 if there is none
	page   []byte
}

const (
	// recentPages is how many pages are remembered, those of a few keys that make most requests.
	recentPages = 16
	// restAfterWrong is how many recalls are left out after a wrong recall, which costs a second
	// set. So others who write cost next to nothing.
	restAfterWrong = 256
)

// Forget forgets all pages.
func (r *Recent) Forget() {
	for i := range r.pages {
		r.pages[i].cas = 0
	}
}

// Recall is [Table.Read] of a page as the slot's worker has written it, without asking shared data.
// It reports false if the page or the entry is not remembered: then read it. Use the result for
// nothing but a Rewrite, as somebody else may have written the page.
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

// saw notes the number of a write that the slot has read.
func (r *Recent) saw(cas uint32) {
	if int32(cas+1-r.next) > 0 {
		r.next = cas + 1
	}
}

// set writes the slot's page, and remembers it.
func (s *Slot) set() (written bool) {
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
	cas := r.next // 0, which no write gets, stands for none
	r.next++
	number := s.name[len(s.name)-numberSize:]
	n := uint32(number[0])<<16 | uint32(binary.BigEndian.Uint16(number[1:]))
	p := &r.pages[n%recentPages]
	p.number, p.cas = n, cas
	p.page, s.page = s.page, p.page[:0]
	return true
}
