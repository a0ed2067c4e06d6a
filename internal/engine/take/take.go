// Package take decides checks by what is known here, without asking the backend, and takes their hits: in the table, or
// on credit.
package take

import (
	"weir/internal/counter"
	"weir/internal/engine/credit"
	"weir/internal/engine/entry"
	"weir/internal/engine/ledger"
	"weir/internal/engine/rule"
)

// Taker decides checks and takes their hits.
type Taker struct {
	tallies *entry.Tallies
	entries *entry.Entries
	credit  *credit.Credit
	ledger  *ledger.Ledger
	hurry   func()
}

// New returns the taker of a worker. hurry has hits on credit pushed soon.
func New(tallies *entry.Tallies, entries *entry.Entries, credit *credit.Credit, ledger *ledger.Ledger, hurry func()) Taker {
	return Taker{tallies: tallies, entries: entries, credit: credit, ledger: ledger, hurry: hurry}
}

// Decide reads the counter of a check's key, unless a refusal is remembered, and decides the check if it can
// without the backend. It counts the hits in the slot if it can. A check that asks is refused because its key
// was full when the backend was last heard of.
func (t *Taker) Decide(d *rule.Check, now int64, how entry.Taking, recall bool) counter.Verdict {
	d.Again()
	d.Unheard = t.ledger.Unheard(d, now)
	if t.entries.Refused(d, now) {
		return counter.Rejected
	}
	taken, found := t.entries.CountOrRead(d, now, how, recall)
	if taken {
		return counter.Allowed
	}
	if found && d.Counter.Moved() && t.entries.Write(d, now) { // or else the next request writes it
		return t.Decide(d, now, how, false)
	}
	verdict := d.Decide(d.Cost, now)
	switch verdict {
	case counter.Unsure:
		return t.resolve(d, now)
	case counter.Rejected:
		t.entries.Remember(d, now)
	}
	return verdict
}

// resolve decides an unsure check that was read, if it can: a key that is far from its limits has room, and a
// key that is full has none.
//
//go:noinline
func (t *Taker) resolve(d *rule.Check, now int64) counter.Verdict {
	switch {
	case d.Cost == 0:
	case t.takes(d, now):
		d.ByDistance()
		return counter.Allowed
	case d.Counter.Stale(now) || d.Listed && d.Counter.Leased() == 0 && t.credit.Full(d, now):
		d.Asks = true
		return counter.Rejected
	}
	return counter.Unsure
}

// takes reports whether a check's hits are advanced: the key is far from its limits and the worker
// has not advanced too many. The check was read.
//
//go:noinline
func (t *Taker) takes(d *rule.Check, now int64) bool {
	allowance := t.credit.Allows(d.Rule, now)
	if allowance == 0 || !t.ledger.HasRoom(now) {
		return false
	}
	uncounted := t.ledger.Uncounted(d.Address)
	if d.Cost > allowance || uncounted > allowance-d.Cost || !d.Counter.Allows(uncounted+d.Cost) {
		return false
	}
	d.Listed = t.credit.Lists(d)
	return !d.Listed
}

// Take takes the hits of a check that was read, unless they need room and have it no longer. If it advances them,
// the check's counter includes everything advanced for its key, and is not written.
func (t *Taker) Take(d *rule.Check, now int64, how entry.Taking) counter.Verdict {
	if !d.Far() {
		return t.entries.Take(d, now, how)
	}
	t.tallies.Advanced += d.Cost
	d.CountAhead()
	d.Numbers = d.Counter.Numbers(d.Numbers[:0])
	t.entries.Identity(d)
	uncounted := t.ledger.Uncounted(d.Address)
	if t.ledger.Add(d, now) {
		t.hurry()
	}
	d.Complete()
	d.Counter.Count(d.Cost)
	d.Low = uncounted > 0 && 2*(uncounted+d.Cost) > t.credit.Allowance(d.Rule)
	return counter.Allowed
}

// GiveBack returns the hits that a check has just taken, if any, to where they were taken from. It reports whether
// they were in a slot that was recalled.
func (t *Taker) GiveBack(d *rule.Check, now int64) (recalled bool) {
	if !d.Ahead() {
		return t.entries.GiveBack(d, now)
	}
	d.TakeNone()
	t.ledger.GiveBack(d)
	t.tallies.Advanced -= d.Cost
	t.Read(d, now)
	return false
}

// Read loads a check's counter, and finds what it lacks.
func (t *Taker) Read(d *rule.Check, now int64) {
	d.Unheard = t.ledger.Unheard(d, now)
	t.entries.Read(d, now)
}
