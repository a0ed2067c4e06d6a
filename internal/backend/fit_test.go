package backend

import (
	"fmt"
	"testing"

	"weir/internal/must"
	"weir/internal/store"
	"weir/internal/store/memory"
	"weir/internal/wire"
	"weir/window"
)

func manyOverrides() (set []wire.Override) {
	for i := range 1000 {
		set = append(set, overrideTo(1, fmt.Sprint(i)))
	}
	return set
}

func fitCheaply(t *testing.T, b *Backend, set []wire.Override) {
	t.Helper()
	must.AtMost(t, testing.AllocsPerRun(1, func() { must.OK(t, b.checkFit(t.Context(), "shop", set)) }), float64(50*len(set)), "allocations for %d overrides", len(set))
}

// Where only overrides in force tell what a rule is, a call of many is checked at a cost for each of them and of those,
// counted in allocations, not for each pair.
func TestManyFit(t *testing.T) {
	b := New(memory.New(memory.Options{}))
	must.Get(b.store.Note(t.Context(), store.AppliedLists, "shop", store.AppliedList{Node: 1}.Note()))(t)
	set := manyOverrides()
	must.Get(b.By(nil).ForceOverrides(t.Context(), "shop", set...))(t)
	fitCheaply(t, b, set)
	like := wire.Override{Rule: "per-user", Mode: wire.OfKeys, Values: []string{string(wire.ByPrefix) + "a"}, Limits: set[0].Limits}
	must.OK(t, b.checkFit(t.Context(), "shop", []wire.Override{like}))
	must.Is(t, b.checkFit(t.Context(), "shop", []wire.Override{overrideTo(1, "two", "values")}), store.ErrInvalid, "of another key")
}

// A configuration that somebody makes up names a rule again and again: a call of many is checked at the same cost, and
// the rule of the honest node fits.
func TestManyFitInventedRules(t *testing.T) {
	b := New(memory.New(memory.Options{}))
	var invented []wire.RuleShape
	for i := range int64(wire.MaxReportRules) {
		s := exampleRule("per-user", 1)
		s.Limits[0].Width = (i + 1) * window.MinWidth
		invented = append(invented, s)
	}
	for node, rules := range [][]wire.RuleShape{{exampleRule("per-user", 100)}, invented, invented} {
		n := newTeller(t, uint64(node)+1, 0, rules...)
		n.say(b, n.told)
	}
	fitCheaply(t, b, manyOverrides())
}
