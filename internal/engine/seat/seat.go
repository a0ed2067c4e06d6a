// Package seat finds the even part that a key has of a fair class: among how many keys that ask the class is shared, and
// whether this one is among them.
package seat

import (
	"weir/internal/engine/entry"
	"weir/internal/engine/rule"
)

// The entries beside that of a class's own part, or of the pool.
const (
	censusEntry = 1 + iota
	commonSeat
)

// Seats are those of a worker's keys.
type Seats struct {
	entries *entry.Entries
	census  *rule.Check // counts keys; nil if no rule is fair
}

// New returns the seats of a worker.
func New(rules *rule.Set, entries *entry.Entries) (s Seats) {
	if s.entries = entries; rules.Fair {
		s.census = new(rule.Check)
	}
	return s
}

// Seat finds how many keys ask for what their class has, and the seat of the key of each fair rule, with
// its even part. Checks that cost nothing only look.
func (s *Seats) Seat(checks []rule.Check, now int64) {
	if s.census != nil {
		s.seat(checks, now)
	}
}

//go:noinline
func (s *Seats) seat(checks []rule.Check, now int64) {
	for i := range checks {
		if d := &checks[i]; d.Rule.Seats > 0 {
			group := checks[i : i+d.Rule.Checks()]
			s.sit(d, &group[len(group)-1], now)
			rule.Sit(group)
		}
	}
}

// sit finds the seat of a check on a part.
//
//go:noinline
func (s *Seats) sit(d, seat *rule.Check, now int64) {
	k, c := s.entries, s.census
	c.Rule, c.Address, c.ID = d.Rule.Census(), d.Address.Beside(censusEntry), [16]byte{}
	c.Begin()
	k.Read(c, now)
	seat.Rule, seat.Over = d.Rule.Seat(c.Asking()), false
	k.Read(seat, now)
	asks, asked := seat.Asked()
	if asks || d.Cost == 0 {
		return
	}
	if !asked && c.Asking() > rule.MaxSeats {
		seat.Address, seat.Rule = d.Address.Beside(commonSeat), d.Rule.Seat(c.Asking())
		k.Read(seat, now)
		return
	}
	if !k.Update(seat, 0, now, func() (writes, lists bool) {
		if asks, asked = seat.Asked(); !asks {
			seat.Ask()
		}
		return !asks, false
	}) || asks {
		return
	}
	if c.Rule.Synced() {
		c.ID = s.besideID(d)
	}
	k.Update(c, entry.Adopts, now, func() (writes, lists bool) {
		c.Enter(!asked)
		return true, false
	})
	seat.Rule = d.Rule.Seat(c.Asking())
}

// besideID is the census's name in the backend, of the check's whose keys it counts.
//
//go:noinline
func (s *Seats) besideID(d *rule.Check) (id [16]byte) {
	if id = d.ID; id == [16]byte{} {
		id = s.entries.Identities.Of(d.Key)
	}
	for i := range id {
		id[i] = ^id[i]
	}
	return id
}
