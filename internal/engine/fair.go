package engine

import (
	"weir/internal/engine/entry"
	"weir/internal/engine/rule"
)

// The entries beside that of a class's own part, or of the pool.
const (
	censusEntry = 1 + iota
	commonSeat
)

// seat finds how many keys ask for what their class has, and the seat of the key of each fair rule, with
// its even part. Checks that cost nothing only look.
//
//go:noinline
func (e *decider) seat(checks []rule.Check, now int64) {
	for i := range checks {
		if d := &checks[i]; d.Rule.Seats > 0 {
			group := checks[i : i+d.Rule.Checks()]
			e.sit(d, &group[len(group)-1], now)
			rule.Sit(group)
		}
	}
}

// sit finds the seat of a check on a part.
//
//go:noinline
func (e *decider) sit(d, seat *rule.Check, now int64) {
	c := &e.census
	c.Rule, c.Address, c.ID = d.Rule.Census(), d.Address.Beside(censusEntry), [16]byte{}
	c.Begin()
	e.look(c, now)
	seat.Rule, seat.Over = d.Rule.Seat(c.Asking()), false
	e.look(seat, now)
	asks, asked := seat.Asked()
	if asks || d.Cost == 0 {
		return
	}
	if !asked && c.Asking() > rule.MaxSeats {
		seat.Address, seat.Rule = d.Address.Beside(commonSeat), d.Rule.Seat(c.Asking())
		e.look(seat, now)
		return
	}
	if !e.entries.Update(seat, 0, now, func() (writes, lists bool) {
		if asks, asked = seat.Asked(); !asks {
			seat.Ask()
		}
		return !asks, false
	}) || asks {
		return
	}
	if c.Rule.Synced() {
		c.ID = e.besideID(d)
	}
	e.entries.Update(c, entry.Adopts, now, func() (writes, lists bool) {
		c.Enter(!asked)
		return true, false
	})
	seat.Rule = d.Rule.Seat(c.Asking())
}

//go:noinline
func (e *decider) look(d *rule.Check, now int64) { e.entries.Read(d, now) }

// besideID is the census's name in the backend, of the check's whose keys it counts.
//
//go:noinline
func (e *decider) besideID(d *rule.Check) (id [16]byte) {
	if id = d.ID; id == [16]byte{} {
		id = e.entries.Identities.Of(d.Key)
	}
	for i := range id {
		id[i] = ^id[i]
	}
	return id
}
