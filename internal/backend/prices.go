package backend

import (
	"context"
	"fmt"
	"slices"

	"weir/internal/store"
	"weir/internal/usage"
	"weir/internal/wire"
)

// Price has the prices of a model's tokens in a list.
type Price struct {
	List, Model string
	Kinds       []wire.PriceOfKind
}

// Prices returns the prices of a namespace that were set at run time, by list and model, and which
// nodes know the list that contains them.
func (b *Backend) Prices(ctx context.Context, namespace string) (prices []Price, reach Overrides, err error) {
	reach, err = b.overridden(ctx, namespace)
	for i := range reach.List {
		if list, model, kinds, ok := reach.List[i].Price(); ok {
			prices = append(prices, Price{list, model, kinds})
		}
	}
	reach.List = nil
	return prices, reach, err
}

// SetPrices sets prices of models; with instead it removes all others of the list. It returns the
// new version of the list of overrides. If a price is invalid, the error wraps [store.ErrInvalid].
func (b *Backend) SetPrices(ctx context.Context, namespace, list string, prices []Price, instead bool) (version uint64, err error) {
	if err := checkPrices(list, prices); err != nil {
		return 0, fmt.Errorf("%w: %w", store.ErrInvalid, err)
	}
	version, _, err = b.changeOverrides(ctx, namespace, func(all []wire.Override) ([]wire.Override, int) {
		if instead {
			all = slices.DeleteFunc(all, func(o wire.Override) bool {
				of, _, _, ok := o.Price()
				return ok && of == list
			})
		}
		for _, p := range prices {
			o := wire.PriceOf(list, p.Model, p.Kinds)
			at, found := slices.BinarySearchFunc(all, &o, compareTo)
			if !found {
				all = slices.Insert(all, at, wire.Override{})
			}
			all[at] = o
		}
		return all, 1
	})
	return version, err
}

// UnsetPrices removes the prices of a model from a list, or of all models if model is empty, so
// that those of the configuration apply again. It returns how many models had prices.
func (b *Backend) UnsetPrices(ctx context.Context, namespace, list, model string) (removed int, version uint64, err error) {
	version, removed, err = b.changeOverrides(ctx, namespace, func(all []wire.Override) ([]wire.Override, int) {
		before := len(all)
		all = slices.DeleteFunc(all, func(o wire.Override) bool {
			of, name, _, ok := o.Price()
			return ok && of == list && (model == "" || model == name)
		})
		return all, before - len(all)
	})
	return removed, version, err
}

func checkPrices(list string, prices []Price) error {
	if !wire.IsName(list) || len(list) > wire.MaxPriceList {
		return fmt.Errorf("list: want 1 to %d of A-Za-z0-9_-, got %.80q", wire.MaxPriceList, list)
	}
	for _, p := range prices {
		if p.Model == "" || len(p.Model) > usage.MaxModel {
			return fmt.Errorf("model: want 1 to %d bytes, got %.80q", usage.MaxModel, p.Model)
		}
		if len(p.Kinds) == 0 {
			return fmt.Errorf("%s: want the price of input at least", p.Model)
		}
		for i, k := range p.Kinds {
			switch {
			case k.Kind < 1 || k.Kind > len(usage.KindNames):
				return fmt.Errorf("%s: want kinds of tokens", p.Model)
			case i == 0 && k.Kind != int(usage.Input):
				return fmt.Errorf("%s: want the price of input", p.Model)
			case i > 0 && k.Kind <= p.Kinds[i-1].Kind:
				return fmt.Errorf("%s: want each kind once", p.Model)
			case k.Millionths > usage.MaxRate:
				return fmt.Errorf("%s.%s: want at most %d millionths, got %d", p.Model, usage.KindNames[k.Kind-1], uint64(usage.MaxRate), k.Millionths)
			}
		}
	}
	return nil
}
