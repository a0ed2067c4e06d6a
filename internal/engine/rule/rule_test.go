package rule

import (
	"testing"

	"weir/internal/counter"
	"weir/internal/must"
	"weir/window"
)

// of is the rules with these names, a limit of hits a minute each.
func of(hits uint64, names ...string) Set {
	var list []Rule
	for _, name := range names {
		limit := window.Limit{Shape: window.Shape{Kind: window.FixedWindow, Width: 60e9}, Max: hits}
		list = append(list, Rule{Rule: counter.Rule{Limits: []window.Limit{limit}}, SyncRate: 1e9, Prefix: counter.AppendPart(nil, name)})
	}
	return NewSet(list)
}

// Hits of all earlier configurations may still count, so the largest limit that a rule ever had bounds them.
func TestLargestEarlierLimit(t *testing.T) {
	before := of(10, "other", "a")
	for _, step := range []struct{ hits, want uint64 }{{50, 10}, {20, 50}, {80, 50}, {5, 80}} {
		next := of(step.hits, "a")
		next.Succeed(&before)
		must.Equal(t, next.Before(0), step.want, "a limit of %d: before", step.hits)
		before = next
	}
}

// A rule of an earlier configuration is dismissed as long as something is left of it, and no longer.
func TestRulesAreDismissedWhileSomethingIsLeft(t *testing.T) {
	heir := of(10, "a")
	var kept *Rule
	for round := range 100 {
		from := of(10, "a", "b", "c")
		heir.Retain(func(visit func(*Rule)) { visit(kept) })
		for i := range from.List {
			heir.Dismiss(&from.List[i], &from)
		}
		if heir.Dismissed(&from.List[0]) || !heir.Dismissed(&from.List[1]) || kept != nil && !heir.Dismissed(kept) {
			t.Fatalf("round %d: %v %v", round, heir.Dismissed(&from.List[0]), heir.Dismissed(&from.List[1]))
		}
		if kept == nil {
			kept = from.List[2].Variant(from.List[2].Limits)
		}
	}
	must.AtMost(t, len(heir.dismissed), 3, "rules that are remembered")
}
