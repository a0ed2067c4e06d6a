package sharedata

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

// saw records the number of a write that the slot has read.
func (r *Recent) saw(cas uint32) {
	if int32(cas+1-r.next) > 0 {
		r.next = cas + 1
	}
}
