package backend

import (
	"context"
	"fmt"
	"slices"

	"weir/internal/store"
	"weir/internal/usage"
	"weir/internal/wire"
)

// SetPrices sets prices of models in one list; with instead it removes all others of the list. It
// returns the new version of the list of overrides. If a price is invalid, the error wraps
// [store.ErrInvalid].
func (b Changer) SetPrices(ctx context.Context, namespace, list string, prices []wire.Price, instead bool) (version uint64, err error) {
	if err := checkPrices(list, prices); err != nil {
		return 0, fmt.Errorf("%w: %w", store.ErrInvalid, err)
	}
	for i := range prices {
		prices[i].List = list
	}
	version, _, err = b.changeList(ctx, namespace, b.record(namespace, setPrice), roomForAll, func(s *settings) int {
		if instead {
			s.prices = slices.DeleteFunc(s.prices, func(p wire.Price) bool { return p.List == list })
		}
		s.prices = put(s.prices, prices, func(a, b wire.Price) int { return a.Compare(&b) })
		return 1
	})
	return version, err
}

// UnsetPrices removes the prices of a model from a list, or of all models if model is empty, so
// that those of the configuration apply again. It returns how many models had prices.
func (b Changer) UnsetPrices(ctx context.Context, namespace, list, model string) (removed int, version uint64, err error) {
	version, removed, err = b.changeList(ctx, namespace, b.record(namespace, unsetPrice), 0, func(s *settings) int {
		before := len(s.prices)
		s.prices = slices.DeleteFunc(s.prices, func(p wire.Price) bool {
			return p.List == list && (model == "" || p.Model == model)
		})
		return before - len(s.prices)
	})
	return removed, version, err
}

func checkPrices(list string, prices []wire.Price) error {
	if !wire.IsName(list) {
		return fmt.Errorf("list: want 1 to %d of A-Za-z0-9_-, got %.80q", wire.MaxName, list)
	}
	for _, p := range prices {
		if p.Model == "" || len(p.Model) > usage.MaxModel {
			return fmt.Errorf("model: want 1 to %d bytes, got %.80q", usage.MaxModel, p.Model)
		}
		if !usage.IsName(p.Model) {
			return fmt.Errorf("%s: %s", p.Model, usage.WantName)
		}
		if len(p.Kinds) == 0 {
			return fmt.Errorf("%s: want the price of input at least", p.Model)
		}
		for i, k := range p.Kinds {
			switch {
			case k.Kind < 1 || k.Kind > uint64(len(usage.KindNames)):
				return fmt.Errorf("%s: want kinds of tokens", p.Model)
			case i == 0 && k.Kind != uint64(usage.Input):
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
