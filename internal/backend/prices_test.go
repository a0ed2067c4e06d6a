package backend

import (
	"fmt"
	"testing"

	"weir/internal/must"
	"weir/internal/store"
	"weir/internal/store/memory"
	"weir/internal/wire"
)

func pricesOf(named ...string) (all []wire.Price) {
	for i, model := range named {
		all = append(all, wire.Price{Model: model, Kinds: []wire.PriceOfKind{{Kind: 1, Millionths: uint64(i)}}})
	}
	return all
}

// Prices of one call are put among those of others, in their order. Of several for one model the last counts.
func TestPricesAreSet(t *testing.T) {
	b := New(memory.New(memory.Options{}))
	for _, step := range []struct {
		list    string
		prices  []wire.Price
		instead bool
		want    string
	}{
		{"l", pricesOf("b", "a"), false, "l/a=1 l/b=0"},
		{"k", pricesOf("m"), false, "k/m=0 l/a=1 l/b=0"},
		{"l", pricesOf("c", "b", "0", "b"), false, "k/m=0 l/0=2 l/a=1 l/b=3 l/c=0"},
		{"l", pricesOf("d", "b", "b"), true, "k/m=0 l/b=2 l/d=0"},
	} {
		must.Get(b.By(nil).SetPrices(t.Context(), "shop", step.list, step.prices, step.instead))(t)
		got := ""
		for _, p := range must.Get(b.Overrides(t.Context(), "shop"))(t).Prices {
			got += fmt.Sprintf(" %s/%s=%d", p.List, p.Model, p.Kinds[0].Millionths)
		}
		must.Equal(t, got, " "+step.want, "prices")
	}
}

// Too many prices are refused before anything is made of each of them, counted in allocations.
func TestTooManyPrices(t *testing.T) {
	b := New(memory.New(memory.Options{}))
	names := make([]string, wire.MaxOverrides+1)
	for i := range names {
		names[i] = fmt.Sprintf("%06d", i)
	}
	prices := pricesOf(names...)
	n := testing.AllocsPerRun(1, func() {
		_, err := b.By(nil).SetPrices(t.Context(), "shop", "l", prices, false)
		must.Is(t, err, store.ErrInvalid, "too many prices")
	})
	must.AtMost(t, n, wire.MaxOverrides/100, "allocations")
}
