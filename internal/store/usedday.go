package store

import (
	"bytes"
	"math/rand/v2"

	"weir/internal/heap"
	"weir/internal/wire"
)

// UsedDay has the used hits of a namespace on a day, by label: of all labels, or of those that a
// message needs. [NewUsedDay] makes one.
type UsedDay struct {
	Rows map[string]*UsedLabel
	// Labels is how many labels the day has, and Others how many of these are of others. Labels
	// without a row here may be among them.
	Labels, Others int
	// Changed has the labels whose rows have changed, or are gone, since it was last cleared.
	Changed map[string]struct{}
	ranks   heap.Of[*UsedLabel] // of the rows that may make room
}

// UsedLabel is the row of a label.
type UsedLabel struct {
	Label  string
	Hits   int64
	Budget []byte
	// Base is the rank of the label whose place this label has taken.
	Base int64
	at   int // index among the ranks; negative if it makes no room
}

// Before implements [heap.Item]: the lowest rank makes room first.
func (l *UsedLabel) Before(other *UsedLabel) bool { return l.rank() < other.rank() }

// Placed implements [heap.Item].
func (l *UsedLabel) Placed(index int) { l.at = index }

func (l *UsedLabel) rank() int64 { return wire.Sum(l.Base, l.Hits) }

// NewUsedDay returns a day without labels.
func NewUsedDay() *UsedDay {
	return &UsedDay{Rows: map[string]*UsedLabel{}, Changed: map[string]struct{}{}}
}

// Put adds a row that the day has. It makes room for others only if it is ranked.
func (d *UsedDay) Put(row *UsedLabel, ranked bool) {
	d.Rows[row.Label] = row
	d.Labels++
	if row.at = -1; isOthers([]byte(row.Label)) {
		d.Others++
	} else if ranked {
		heap.Push(&d.ranks, row)
	}
}

// Add adds a message's row to the day. If its label is new and the day has MaxUsed labels, or the
// store has no room for another, it may take the place of the label with the lowest rank, as
// [Displaces] says. The hits of the label without a place go to others: then Add returns true.
func (d *UsedDay) Add(r *wire.UsedRow, room func() bool) (folded bool) {
	label, base := string(r.Label), int64(0)
	if d.Rows[label] == nil && (d.Labels >= MaxUsed || !room()) {
		if isOthers(r.Label) {
			d.addToOthers(r.Label, r.Hits)
			return false
		}
		if len(d.ranks) == 0 || !Displaces(r.Hits, d.ranks[0].Hits, rand.Float64()) {
			d.addToOthers(r.Label, r.Hits)
			return true
		}
		base, folded = d.ranks[0].rank(), true
		d.fold(d.ranks[0])
	}
	d.add(label, r.Hits, r.Budget, base)
	return folded
}

// Fold moves the hits of all labels to those of others.
func (d *UsedDay) Fold() {
	for len(d.ranks) > 0 {
		d.fold(d.ranks[len(d.ranks)-1])
	}
}

// fold moves the hits of a row to others.
func (d *UsedDay) fold(row *UsedLabel) {
	heap.Remove(&d.ranks, row.at)
	delete(d.Rows, row.Label)
	d.Labels--
	d.Changed[row.Label] = struct{}{}
	d.addToOthers([]byte(row.Label), row.Hits)
}

// addToOthers adds hits to the others of a label's rule or, if these have no room, to those of all
// rules.
func (d *UsedDay) addToOthers(label []byte, hits int64) {
	others, ofAll := OthersLabel(label)
	if d.Rows[string(others)] == nil && d.Others >= MaxUsedOthers {
		others = ofAll
	}
	d.add(string(others), hits, nil, 0)
}

func (d *UsedDay) add(label string, hits int64, budget []byte, base int64) {
	row := d.Rows[label]
	if row == nil {
		row = &UsedLabel{Label: label, Base: base}
		d.Put(row, true)
	}
	if row.Hits = wire.Sum(row.Hits, hits); len(budget) > 0 {
		row.Budget = bytes.Clone(budget)
	}
	if row.at >= 0 {
		heap.Fix(&d.ranks, row.at)
	}
	d.Changed[label] = struct{}{}
}
