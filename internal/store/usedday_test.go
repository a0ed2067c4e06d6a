package store_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"weir/internal/must"
	"weir/internal/store"
	"weir/internal/wire"
)

// Whatever comes, no hit is lost, labels are bounded and counted, and all that have changed are known.
func TestUsedDayLosesNothing(t *testing.T) {
	t.Parallel()
	const most = 60
	random := rand.New(rand.NewPCG(1, 2))
	day, folded, displaced := store.NewUsedDay(), 0, 0
	hits := func() (of map[string]int64, sum int64) {
		of = map[string]int64{}
		for label, row := range day.Rows {
			of[label] = row.Hits
			sum += row.Hits
		}
		return of, sum
	}
	before, sum := hits()
	for range 2500 {
		rule := fmt.Sprint("rule-", random.IntN(3))
		if random.IntN(4) == 0 {
			rule = fmt.Sprint("rule-", random.IntN(2*store.MaxUsedOthers))
		}
		label := wire.AppendUsedLabel(nil, &wire.UsedLabel{Rule: rule, ID: wire.ID{byte(random.IntN(40))}})
		row := wire.UsedRow{Label: label, Hits: random.Int64N(9) - 2}
		if day.Add(&row, func() bool { return day.Labels-day.Others < most }) {
			folded++
			if day.Rows[string(label)] != nil {
				displaced++
			}
		}
		after, now := hits()
		must.EqualOrEnd(t, now, sum+row.Hits, "%d hits and %d make", sum, row.Hits)
		for label := range after {
			if _, changed := day.Changed[label]; !changed && after[label] != before[label] {
				t.Fatalf("%q has %d hits, and is not said to have changed from %d", label, after[label], before[label])
			}
			delete(before, label)
		}
		for label := range before {
			if _, changed := day.Changed[label]; !changed {
				t.Fatalf("%q is gone, and is not said to have changed", label)
			}
		}
		clear(day.Changed)
		before, sum = after, now
		if len(day.Rows) != day.Labels || day.Others > store.MaxUsedOthers+1 || day.Labels-day.Others > most {
			t.Fatalf("%d labels, %d of others, %d rows", day.Labels, day.Others, len(day.Rows))
		}
	}
	if displaced == 0 || displaced == folded || day.Others < store.MaxUsedOthers {
		t.Errorf("%d folded, %d of them have displaced another, and %d labels are of others", folded, displaced, day.Others)
	}
	day.Fold()
	if _, now := hits(); now != sum || day.Labels != day.Others || len(day.Rows) != day.Others {
		t.Errorf("%d hits of %d, and %d labels, of which %d are of others", now, sum, day.Labels, day.Others)
	}
}

// A row that is not ranked makes no room, and the label with the lowest rank does. Its rank stays with its place.
func TestUsedDayRanks(t *testing.T) {
	t.Parallel()
	label := func(id byte) string {
		return string(wire.AppendUsedLabel(nil, &wire.UsedLabel{Rule: "r", ID: wire.ID{id}}))
	}
	day, room := store.NewUsedDay(), true
	add := func(label string, hits int64, budget ...byte) (folded bool) {
		return day.Add(&wire.UsedRow{Label: []byte(label), Hits: hits, Budget: budget}, func() bool { return room })
	}
	day.Put(&store.UsedLabel{Label: label(1)}, false)
	day.Put(&store.UsedLabel{Label: label(2), Base: 7}, true)
	if add(label(3), wire.MaxHits, 9) || day.Rows[label(3)].Base != 0 || len(day.Rows[label(3)].Budget) != 1 {
		t.Errorf("a label with room: %+v", day.Rows[label(3)])
	}
	room = false
	others := label(0)
	// Without hits the second makes room for any label, and its place is that of the lowest rank at first.
	if !add(label(4), 1) || day.Rows[label(2)] != nil || day.Rows[label(4)].Base != 7 || day.Rows[others].Base != 0 {
		t.Errorf("a label that displaces another: %+v", day.Rows)
	}
	if !add(label(5), 100) || day.Rows[label(4)] != nil || day.Rows[label(5)].Base != 8 || day.Rows[others].Hits != 1 {
		t.Errorf("a label that displaces that: %+v", day.Rows)
	}
	if add(others, 3) || day.Rows[others].Hits != 4 || add(string(wire.AppendUsedLabel(nil, &wire.UsedLabel{Rule: "s"})), 3) {
		t.Error("hits of others are said to have lost their label")
	}
	if day.Rows[label(1)] == nil || day.Rows[label(3)] == nil {
		t.Error("a row that is not ranked, or is large, is gone")
	}
}
