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

// Listed implements engine.Listener.
func (r *rules) Listed(o *wire.OverrideReader) {
	list, model, ok := o.Price()
	if !ok {
		return
	}
	var rates usage.Rates
	set := 0
	for _, l := range o.Limits {
		if l.WidthMillis < uint64(usage.Total) && l.Max <= usage.MaxRate {
			rates[l.WidthMillis] = l.Max
			set |= 1 << l.WidthMillis
		}
	}
	if set>>usage.Input&1 == 0 || len(model) == 0 {
		return
	}
	rates.Complete(func(kind usage.Kind) bool { return set>>kind&1 != 0 })
	for i := range r.list {
		p := r.list[i].prices
		if p == nil || p.name != string(list) {
			continue
		}
		if p.building == nil {
			p.building = p.configured.Clone()
		}
		p.building.Add(string(model), &rates)
	}
}

// EndList implements engine.Listener. Requests under way cost what they would have cost.
func (r *rules) EndList() {
	for i := range r.list {
		p := r.list[i].prices
		if p == nil {
			continue
		}
		if p.list, p.building = p.building, nil; p.list == nil {
			p.list = p.configured
		}
	}
}
