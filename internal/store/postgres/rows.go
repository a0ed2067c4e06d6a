package postgres

import (
	"slices"

	"github.com/jackc/pgx/v5/pgtype"

	"weir/internal/store"
	"weir/internal/wire"
	"weir/window"
)

// Other programs may have written a column. So arrays are scanned with any NULLs that they have,
// and checked here.

// integers returns the elements of a column's array. ok is false if there is no array, or an
// element is NULL or negative.
func integers(column []pgtype.Int8) (elements []int64, ok bool) {
	if column == nil {
		return nil, false
	}
	elements = make([]int64, len(column))
	for i, e := range column {
		if !e.Valid || e.Int64 < 0 {
			return nil, false
		}
		elements[i] = e.Int64
	}
	return elements, true
}

// counterRow has the columns of a counter's row without its key.
type counterRow struct {
	refill        pgtype.Int8
	numbers, hits []pgtype.Int8
}

// contents returns the contents of a counter's row. It returns false if the store can't have
// written them.
func (r *counterRow) contents(of wire.LimitCounter) (store.Contents, bool) {
	numbers, ok := integers(r.numbers)
	hits, okHits := integers(r.hits)
	if !ok || !okHits || len(numbers) != len(hits) || !r.refill.Valid || r.refill.Int64 < 0 || r.refill.Int64 > wire.MaxHits {
		return store.Contents{}, false
	}
	if window.Kind(of.Kind).Started() && len(numbers) > 1 {
		return store.Contents{}, false
	}
	contents := store.Contents{Limit: uint64(r.refill.Int64), Windows: make([]store.Window, len(numbers))}
	for i, number := range numbers { // the newest is written first
		if hits[i] > wire.MaxHits || i > 0 && number >= numbers[i-1] {
			return store.Contents{}, false
		}
		contents.Windows[i] = store.Window{Number: uint64(number), Hits: hits[i]}
	}
	return contents, true
}

// sender is a sender's record: its floor, the applied sequences from there on, and the grants of
// their takes. store.MaxAhead bounds the sequences, and maxGrants the grants.
type sender struct {
	floor   uint64
	applied []uint64 // ascending
	grants  []grant  // the oldest first; those of a sequence are adjacent, in the order of its takes
}

// maxGrants is twice what the plugin can have without an answer: eight pushes of wire.MaxItems takes.
const maxGrants = 1 << 14

// grant has the units of a take of a push, and the time.
type grant struct{ sequence, units, nanos uint64 }

// senderRow has the columns of a sender's row without its key.
type senderRow struct {
	floor                                             pgtype.Int8
	sequences, grantSequences, grantUnits, grantNanos []pgtype.Int8
}

// sender returns the record in the row. It returns false if the store can't have written it.
func (r *senderRow) sender() (sender, bool) {
	sequences, ok := integers(r.sequences)
	granted, okGranted := integers(r.grantSequences)
	units, okUnits := integers(r.grantUnits)
	nanos, okNanos := integers(r.grantNanos)
	if !ok || !okGranted || !okUnits || !okNanos || len(granted) != len(units) || len(granted) != len(nanos) ||
		!r.floor.Valid || r.floor.Int64 < 0 || r.floor.Int64 > wire.MaxHits {
		return sender{}, false
	}
	s := sender{floor: uint64(r.floor.Int64)}
	for i, sequence := range sequences {
		if sequence < r.floor.Int64 || sequence >= r.floor.Int64+store.MaxAhead || i > 0 && sequence <= sequences[i-1] {
			return sender{}, false
		}
		s.applied = append(s.applied, uint64(sequence))
	}
	for i, sequence := range granted {
		if _, ok := slices.BinarySearch(sequences, sequence); !ok || units[i] > wire.MaxHits {
			return sender{}, false
		}
		s.grants = append(s.grants, grant{uint64(sequence), uint64(units[i]), uint64(nanos[i])})
	}
	return s, true
}

// note records a push, and reports whether it was known: applied before, or below the floor.
// store.Check has bounded the distance from its floor to its sequence.
func (s *sender) note(p *wire.Push) (known bool) {
	if p.Sequence < s.floor {
		return true
	}
	if p.Floor > s.floor {
		s.floor = p.Floor
		s.applied = slices.DeleteFunc(s.applied, func(sequence uint64) bool { return sequence < s.floor })
		s.grants = slices.DeleteFunc(s.grants, func(g grant) bool { return g.sequence < s.floor })
	}
	at, known := slices.BinarySearch(s.applied, p.Sequence)
	if !known {
		s.applied = slices.Insert(s.applied, at, p.Sequence)
	}
	return known
}

// forget removes grants beyond maxGrants, as the store in memory does: the sender's oldest, all of a
// push together, except those of the push at the floor, which is unanswered.
func (s *sender) forget() {
	over := len(s.grants) - maxGrants
	if over <= 0 {
		return
	}
	var forgotten uint64
	s.grants = slices.DeleteFunc(s.grants, func(g grant) bool {
		if g.sequence == s.floor || over <= 0 && g.sequence != forgotten {
			return false
		}
		forgotten = g.sequence
		over--
		return true
	})
}

// granted returns the grants of a push's takes.
func (s *sender) granted(sequence uint64) (grants []grant) {
	for _, g := range s.grants {
		if g.sequence == sequence {
			grants = append(grants, g)
		}
	}
	return grants
}
