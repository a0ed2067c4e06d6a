package filter

import (
	"weir/internal/engine"
	"weir/internal/usage"
	"weir/internal/wire"
)

var _ engine.Listener = (*rules)(nil)

// BeginList implements engine.Listener: prices come with overrides.
func (r *rules) BeginList() {
	for i := range r.list {
		if p := r.list[i].prices; p != nil {
			p.building = nil
		}
	}
}

// Priced implements engine.Listener.
func (r *rules) Priced(o *wire.OverrideReader) {
	var rates usage.Rates
	set := 0
	for _, p := range o.Prices {
		if p.Kind < uint64(usage.Total) && p.Millionths <= usage.MaxRate {
			rates[p.Kind] = p.Millionths
			set |= 1 << p.Kind
		}
	}
	if set>>usage.Input&1 == 0 || len(o.Model) == 0 {
		return
	}
	rates.Complete(func(kind usage.Kind) bool { return set>>kind&1 != 0 })
	for i := range r.list {
		p := r.list[i].prices
		if p == nil || p.name != string(o.PriceList) {
			continue
		}
		if p.building == nil {
			p.building = p.configured.Clone()
		}
		p.building.Add(string(o.Model), &rates)
	}
}

// EndList implements engine.Listener. Requests under way cost what they would have cost. A list comes whenever any override
// changes: the prices of the time of day are not found anew where none has.
func (r *rules) EndList() {
	for i := range r.list {
		p := r.list[i].prices
		if p == nil {
			continue
		}
		if p.building == nil {
			p.building = p.configured
		}
		if !p.building.Equal(p.whole) {
			p.use(p.building)
		}
		p.building = nil
	}
}
