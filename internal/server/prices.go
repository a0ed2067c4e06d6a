package server

import (
	"net/http"
	"slices"

	"weir/internal/usage"
	"weir/internal/wire"
)

// Prices are the prices of a namespace that were set at run time.
type Prices struct {
	// Version is that of the list of overrides that contains them. Nodes is how many nodes have
	// reported in the last minute, and Knowing how many of them charge by these prices.
	Version uint64       `json:"version,omitempty"`
	Nodes   int          `json:"nodes"`
	Knowing int          `json:"knowing"`
	Prices  []ModelPrice `json:"prices"`
}

// ModelPrice has the prices of a model's tokens.
type ModelPrice struct {
	List  string `json:"list"`
	Model string `json:"model"`
	// Millionths are the prices of a token by kind, in millionths of the list's unit.
	Millionths map[string]uint64 `json:"millionths"`
}

// SetPrices sets prices of models in one list.
type SetPrices struct {
	List string `json:"list"`
	// Models are prices in millionths, by model and kind.
	Models map[string]map[string]uint64 `json:"models"`
	// Instead removes all other prices of the list that were set.
	Instead bool `json:"instead,omitempty"`
}

func (h *handler) prices(_ http.ResponseWriter, r *http.Request, namespace string) (any, error) {
	found, err := h.backend.Overrides(r.Context(), namespace)
	if err != nil {
		return nil, err
	}
	all := Prices{Version: found.Version, Nodes: found.Nodes, Knowing: found.Knowing, Prices: []ModelPrice{}}
	list := r.URL.Query().Get("list")
	for _, p := range found.Prices {
		if list != "" && p.List != list {
			continue
		}
		m := ModelPrice{List: p.List, Model: p.Model, Millionths: map[string]uint64{}}
		for _, k := range p.Kinds {
			if k.Kind >= 1 && k.Kind <= uint64(len(usage.KindNames)) {
				m.Millionths[usage.KindNames[k.Kind-1]] = k.Millionths
			}
		}
		all.Prices = append(all.Prices, m)
	}
	return all, nil
}

func (h *handler) setPrices(w http.ResponseWriter, r *http.Request, namespace string) (any, error) {
	var given SetPrices
	if !h.readJSON(w, r, wire.MaxOverridesSize, &given, `{"list": "models", "models": {"gpt-5": {"input": 1250000, "output": 10000000}}}`) {
		return nil, nil
	}
	var prices []wire.Price
	for model, kinds := range given.Models {
		p := wire.Price{Model: model}
		for i, name := range usage.KindNames {
			if millionths, ok := kinds[name]; ok {
				p.Kinds = append(p.Kinds, wire.PriceOfKind{Kind: uint64(i + 1), Millionths: millionths})
			}
		}
		for name := range kinds {
			if !slices.Contains(usage.KindNames, name) {
				return nil, wrong("body: models.%s: want a known kind of tokens, got %s", model, name)
			}
		}
		prices = append(prices, p)
	}
	by, err := h.by(r)
	if err != nil {
		return nil, err
	}
	version, err := by.SetPrices(r.Context(), namespace, given.List, prices, given.Instead)
	return Changed{Version: version, Changed: len(prices)}, err
}

// unsetPrices removes the prices of a model, or of all of a list.
func (h *handler) unsetPrices(_ http.ResponseWriter, r *http.Request, namespace string) (any, error) {
	query := r.URL.Query()
	if query.Get("list") == "" {
		return nil, wrong("list: want the list whose prices to remove")
	}
	by, err := h.by(r)
	if err != nil {
		return nil, err
	}
	removed, version, err := by.UnsetPrices(r.Context(), namespace, query.Get("list"), query.Get("model"))
	return Changed{Version: version, Changed: removed}, err
}
