package engine_test

import (
	"fmt"
	"testing"
	"time"

	"weir/internal/counter"
	"weir/internal/engine"
	"weir/internal/engine/rule"
	"weir/internal/must"
	"weir/internal/wire"
	"weir/window"
)

// The backend hears of a key that nears a limit in two reports, and in the next window again. A key
// whose charge comes near is as good.
func TestWarnings(t *testing.T) {
	rule := users(
		fixed(100),
		window.Limit{Shape: window.Shape{Kind: window.SlidingBuckets, Width: 2 * hour, Precision: hour}, Max: 1000},
	)
	rule.warnAt, rule.reveal = []uint16{800}, 255
	_, f := alone(t, second, engine.Options{}, rule)
	tell := func(want string) {
		t.Helper()
		got := ""
		for _, w := range f.report().Warnings {
			must.Equal(t, w.Rule, "rule-0", "%+v", w)
			value, _, _, _ := wire.NextValue(w.Name)
			must.Equal(t, w.ID, f.id(0, string(value)), "whose name is %q", value)
			ends := int64(w.EndMillis)
			if ends != 0 {
				ends -= f.time() / 1e6 / 3600_000 * 3600_000
			}
			got += fmt.Sprintf("%d: %d of %d until %d; ", w.Limit, w.Used, w.Quota, ends)
		}
		must.Equal(t, got, want, "")
	}
	f.reserve("ann", 79)
	tell("")
	f.reserve("ann", 1)
	f.reserve("ann", 5)
	tell("0: 80 of 100 until 3600000; ")
	tell("0: 80 of 100 until 3600000; ")
	tell("")
	f.reserve("bob", 1).revise(850)
	must.Equal(t, f.Warnings(0), 3, "times warned")
	tell("0: 100 of 100 until 3600000; 1: 850 of 1000 until 0; ")
	tell("0: 100 of 100 until 3600000; 1: 850 of 1000 until 0; ")
	tell("")
	f.advance(time.Hour)
	f.reserve("ann", 90)
	tell("0: 90 of 100 until 3600000; ")
}

// A worker that has more keys near their limits than it can remember tells of the most that a
// report may have, and of the others later.
func TestManyWarnings(t *testing.T) {
	rule := users(fixed(10))
	rule.warnAt = []uint16{500}
	_, f := alone(t, second, engine.Options{}, rule)
	told := map[wire.ID]bool{}
	for range 5 {
		for i := range 2 * wire.MaxReportWarnings {
			f.reserve(fmt.Sprint("user", i), 5)
		}
		r := f.report()
		must.AtMost(t, len(f.reports[len(f.reports)-1]), wire.MaxReport, "bytes of a report")
		must.AtMost(t, len(r.Warnings), wire.MaxReportWarnings, "warnings of a report")
		for _, w := range r.Warnings {
			told[w.ID] = true
		}
	}
	must.Equal(t, len(told), 2*wire.MaxReportWarnings, "keys were told")
}

// A rule with several steps tells of each once in a window, and of the last if a key passes several at
// once. A step that was told is not told again when hits come back.
func TestWarningSteps(t *testing.T) {
	rule := users(fixed(100))
	rule.warnAt = []uint16{500, 800, 1000}
	_, f := alone(t, second, engine.Options{}, rule)
	tell := func(want string) {
		t.Helper()
		got := ""
		for _, w := range f.report().Warnings {
			got += fmt.Sprintf("%d: %d of %d; ", w.At, w.Used, w.Quota)
		}
		must.Equal(t, got, want, "")
	}
	f.reserve("ann", 49)
	tell("")
	f.reserve("ann", 1)
	tell("500: 50 of 100; ")
	tell("500: 50 of 100; ")
	large := f.reserve("ann", 29)
	tell("")
	f.reserve("ann", 1)
	tell("800: 80 of 100; ")
	tell("800: 80 of 100; ")
	large.revise(1)
	f.reserve("ann", 28)
	tell("")
	f.reserve("ann", 20)
	tell("1000: 100 of 100; ")
	f.reserve("bob", 90) // two steps at once
	tell("1000: 100 of 100; 800: 90 of 100; ")
	tell("800: 90 of 100; ")
	tell("")
	f.advance(time.Hour)
	f.reserve("ann", 60)
	tell("500: 60 of 100; ")
}

// What a warning and a budget tell agrees with what a limit is said to have left: hits that passed on credit are used, until
// they come back.
func TestWarningsOfHitsOnCredit(t *testing.T) {
	r := revealing(fixed(1000))
	r.warnAt = []uint16{800}
	w := fleetOf(t, 1, r)
	w.interval()
	f := w.nodes[0]
	for _, user := range []string{"ann", "bob", "sue"} {
		for range 5 {
			f.wantAsked(0, user, counter.Allowed, false, "advance")
		}
	}
	ann, bob, sue := []rule.Check{f.check(0, "ann", 795)}, f.check(0, "bob", 0), []rule.Check{f.check(0, "sue", 10)}
	f.DropPart()
	f.failing(3)
	must.Equal(t, f.Decide(ann, f.time(), &newRequest().Wait), counter.Allowed, "795 hits, with the backend away")
	must.Equal(t, left(f, &ann[0]), 200, "left to ann")
	must.Equal(t, ann[0].Warned, 1, "limits that are nearly used up")
	f.Look(&bob, f.time())
	must.Equal(t, f.Charges.TakeBack(&bob, 3, f.time()), 0, "hits that are not on credit")
	must.Equal(t, f.DecideAlone(sue, f.time()), counter.Allowed, "10 hits")
	f.Charges.GiveBack(&sue[0], 3, f.time()) // of those that are not on credit
	for _, warning := range f.report().Warnings {
		must.Equal(t, warning.Used, 800, "used, as the warning tells")
	}
	used := map[wire.ID]uint64{}
	must.OK(t, w.store.Used(t.Context(), "default", 0, wire.MaxUsedDay, func(r wire.UsedRow) error {
		label, _ := wire.DecodeUsedLabel(r.Label)
		budget, _ := wire.DecodeBudget(r.Budget)
		used[label.ID] = budget.Used
		return nil
	}))
	must.Equal(t, used[f.id(0, "ann")], 800, "used of ann's budget")
	must.Equal(t, used[f.id(0, "bob")], 2, "used of bob's budget")
	must.Equal(t, used[f.id(0, "sue")], 12, "used of sue's budget")
}
