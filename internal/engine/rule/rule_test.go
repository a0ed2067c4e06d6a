package rule

import (
	"testing"

	"weir/internal/counter"
	"weir/window"
)

// A rule of an earlier configuration is dismissed as long as something is left of it, and no longer.
func TestRulesAreDismissedWhileSomethingIsLeft(t *testing.T) {
	of := func(names ...string) Set {
		var list []Rule
		for _, name := range names {
			limit := window.Limit{Shape: window.Shape{Kind: window.FixedWindow, Width: 60e9}, Max: 10}
			list = append(list, Rule{Rule: counter.Rule{Limits: []window.Limit{limit}}, SyncRate: 1e9, Prefix: counter.AppendPart(nil, name)})
		}
		return NewSet(list)
	}
	heir := of("a")
	var kept *Rule
	for round := range 100 {
		from := of("a", "b", "c")
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
	if len(heir.dismissed) > 3 {
		t.Errorf("%d rules are remembered", len(heir.dismissed))
	}
}
