package backend

import (
	"fmt"
	"testing"

	"weir/internal/must"
	"weir/internal/store"
	"weir/internal/store/memory"
	"weir/internal/wire"
)

// Where only overrides in force tell what a rule is, a call of many is checked at a cost for each of them and of those,
// counted in allocations, not for each pair.
func TestManyFit(t *testing.T) {
	b := New(memory.New(memory.Options{}))
	must.Get(b.store.Note(t.Context(), store.AppliedLists, "shop", store.AppliedList{Node: 1}.Note()))(t)
	const many = 1000
	set := make([]wire.Override, many)
	for i := range set {
		set[i] = overrideTo(1, fmt.Sprint(i))
	}
	must.Get(b.By(nil).ForceOverrides(t.Context(), "shop", set...))(t)
	if n := testing.AllocsPerRun(1, func() { must.OK(t, b.checkFit(t.Context(), "shop", set)) }); n > 50*many {
		t.Errorf("%v allocations for %d overrides", n, many)
	}
	like := wire.Override{Rule: "per-user", Mode: wire.OfKeys, Values: []string{string(wire.ByPrefix) + "a"}, Limits: set[0].Limits}
	must.OK(t, b.checkFit(t.Context(), "shop", []wire.Override{like}))
	must.Is(t, b.checkFit(t.Context(), "shop", []wire.Override{overrideTo(1, "two", "values")}), store.ErrInvalid, "of another key")
}
