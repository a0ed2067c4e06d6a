package filter

import "weir/internal/counter"

// Waiter is a request that may have to wait for the backend.
type Waiter interface {
	// Decided ends a wait: it is called once, unless the request has gone before. The matches are those
	// that the request waited with; they stand as they are after the decision, and are valid during the
	// call.
	Decided(matched []match, now int64, verdict counter.Verdict)
}

// Wait is what is kept of a request for as long as it waits. It is a part of the request's own memory,
// which may serve one request after the other. Set its waiter before anything else.
type Wait struct {
	waiter  Waiter
	waiting bool
	// entering is set while the caller doesn't know yet that the request waits.
	entering bool
	turn     uint32 // counts the waits
	until    int64  // by the proxy's clock
	rounds   int
	asked    int // takes that it waits for
	kept     []charge
}

// Waiting reports whether the request waits.
func (w *Wait) Waiting() bool { return w.waiting }

// Leave has a request that has gone, or is decided otherwise, wait no more.
func (w *Wait) Leave() { w.waiting = false }

func (w *Wait) begin(until int64) {
	w.turn++
	w.waiting, w.until, w.rounds, w.asked = true, until, 0, 0
}

// keep remembers what it takes to decide the request later.
func (w *Wait) keep(matched []match) {
	w.kept = w.kept[:0]
	for i := range matched {
		m := &matched[i]
		c := next(&w.kept)
		c.rule, c.cost = m.rule.Index, m.cost
		c.key = append(c.key[:0], m.key...)
	}
}

// takeUp gives the matches of a request that was kept.
func (p *plugin) takeUp(w *Wait) []match {
	for i := range w.kept {
		c, m := &w.kept[i], &p.matches[i]
		m.rule, m.cost = &p.counted[c.rule], c.cost
		m.key = append(m.key[:0], c.key...)
		m.address = p.table.Address(m.key)
		m.verdict, m.taken, m.held = counter.Allowed, false, false
	}
	return p.matches[:len(w.kept)]
}

// place is the current wait of a request.
func (w *Wait) place() waiting { return waiting{wait: w, turn: w.turn} }

// waiting is one wait of a request. A request's memory is used again, so the turn tells whether it
// still waits.
type waiting struct {
	wait *Wait
	turn uint32
}

func (w waiting) waits() bool { return w.wait.waiting && w.wait.turn == w.turn }
