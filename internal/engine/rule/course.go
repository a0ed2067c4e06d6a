package rule

// Course is who decides a check, and where its hits are:
//
//	decided by                 hits
//	the rule, what is known    none → in the slot → none again, or written, or kept for a retry
//	the rule                   none → in the slot → …, if the rule decides after all
//	distance                   none → on credit
//	the backend                none: it has counted them, or they pass uncounted
//
// Hits that are given back are none again. The zero value is a check that its rule decides and that has
// taken nothing.
type Course struct {
	_ [0]func() // keeps Go from generating an equality function

	by      arbiter
	hits    place
	granted int64
}

// arbiter says who decides a check.
type arbiter uint8

const (
	// byRule: known totals, a lease, or the backend decide.
	byRule arbiter = iota
	// byWhatIsKnown: known totals decide, because the backend can't be asked.
	byWhatIsKnown
	// byBackend: the check has room and takes nothing here.
	byBackend
	// byDistance: the check has room because its key is far from its limits. The backend hears of the
	// hits later.
	byDistance
)

// place says where a check's hits are.
type place uint8

const (
	none    place = iota
	inSlot        // in the slot, and to be written
	written       // in the table
	kept          // lost every race to be written, and to be added later
	ahead         // on credit
)

// ByRule leaves the decision to the rule, whatever the backend has said: what it has granted goes back.
func (c *Course) ByRule() { c.by, c.granted = byRule, 0 }

// ByWhatIsKnown has known totals decide, because the backend can't be asked.
func (c *Course) ByWhatIsKnown() { c.by = byWhatIsKnown }

// ByDistance lets the check pass, as its key is far from its limits.
func (c *Course) ByDistance() { c.by = byDistance }

// Grant lets the check pass, as the backend has counted its hits at a time of its clock.
func (c *Course) Grant(at int64) { c.by, c.granted = byBackend, at }

// PassUncounted lets the check pass without taking anything, as the backend can't be asked.
func (c *Course) PassUncounted() { c.by = byBackend }

// Alone reports whether the check is decided by what is known.
func (c *Course) Alone() bool { return c.by == byWhatIsKnown }

// Far reports whether the check passes because its key is far from its limits.
func (c *Course) Far() bool { return c.by == byDistance }

// Passed reports whether the check has room and takes nothing here.
func (c *Course) Passed() bool { return c.by == byBackend }

// GrantedAt is when the backend counted the hits; 0 if it did not for this request.
func (c *Course) GrantedAt() int64 { return c.granted }

// CountInSlot says that the hits are in the slot, and have to be written.
func (c *Course) CountInSlot() { c.hits = inSlot }

// Write says that the hits are in the table.
func (c *Course) Write() { c.hits = written }

// Keep says that the hits are kept for a retry.
func (c *Course) Keep() { c.hits = kept }

// CountAhead says that the hits are on credit.
func (c *Course) CountAhead() { c.hits = ahead }

// TakeNone says that nothing is taken any more.
func (c *Course) TakeNone() { c.hits = none }

// InSlot reports whether the hits are in the slot only.
func (c *Course) InSlot() bool { return c.hits == inSlot }

// Written reports whether the hits are in the table.
func (c *Course) Written() bool { return c.hits == written }

// Kept reports whether the hits are kept for a retry.
func (c *Course) Kept() bool { return c.hits == kept }

// Ahead reports whether the hits are on credit.
func (c *Course) Ahead() bool { return c.hits == ahead }
