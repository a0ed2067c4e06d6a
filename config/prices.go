package config

import (
	"weir/internal/calendar"
	"weir/internal/usage"
	"weir/internal/wire"
)

const (
	maxPriceLists = 16
	maxModels     = 1024
)

// Prices is a list of the prices of models' tokens.
type Prices struct {
	_ [0]func() // keeps Go from generating an equality function

	// Name is unique: 1 to 64 of A-Za-z0-9_-. Unit names the unit of the prices for people, in the
	// same form.
	Name, Unit string
	// By selects the model. InPath means that a model in the request's path takes precedence.
	By     Selector
	InPath bool
	List   *usage.PriceList
	// Clock shows the time of day of prices that have one.
	Clock *calendar.Calendar
}

var (
	priceFields = []field{{"by", optional}, {"unit", optional}, {"zone", optional}, {"of", required}}
	rateFields  = []field{
		{"input", required}, {"cached", optional}, {"cache_write", optional}, {"output", optional}, {"reasoning", optional},
		{"audio", optional}, {"audio_output", optional},
	}
)

const (
	likePrices = `{"models": {"unit": "micro-dollars", "of": {"gpt-5": {"input": 1.25, "output": 10}}}}`
	likeRates  = `{"input": 1.25, "output": 10}`
	wantName   = "a name of 1 to 64 of A-Za-z0-9_-"
)

// readPrices reads lists of prices by name.
func readPrices(v *value) (all []*Prices) {
	if !v.isObject(likePrices) {
		return nil
	}
	v.each("lists of prices", 1, maxPriceLists, func(v *value) {
		p := &Prices{Name: v.name, Unit: "micro-dollars", InPath: true, By: Selector{Kind: SelectBody, Name: "model", Longest: usage.MaxModel}}
		p.Clock, _ = calendar.New(calendar.Day, "UTC", 0, 0)
		if !wire.IsName(v.name) {
			v.fail("want " + wantName)
		}
		if pricesOf(all, v.name) != nil {
			v.givenTwice()
		}
		v.object(`{"of": {"gpt-5": `+likeRates+`}}`, priceFields, func(name string, v *value) {
			switch name {
			case "by":
				p.InPath, p.By = false, readKeySelector(v, nil)
			case "unit":
				p.Unit = v.bytes("a unit of 1 to 64 of A-Za-z0-9_-, such as \"micro-dollars\"", wire.MaxName, wire.IsNameByte)
			case "zone":
				var fault calendar.Fault
				if p.Clock, fault = calendar.New(calendar.Day, v.text, 0, 0); v.kind != kindString || fault != calendar.Sound {
					v.wrong(wantZone)
				}
			case "of":
				p.List = readPriceList(v)
			}
		})
		all = append(all, p)
	})
	return all
}

// pricesOf returns the list with a name, or nil.
func pricesOf(all []*Prices, name string) *Prices {
	for _, p := range all {
		if p.Name == name {
			return p
		}
	}
	return nil
}

// readPriceList reads the prices of models by name.
func readPriceList(v *value) *usage.PriceList {
	list := &usage.PriceList{}
	if !v.isObject(`{"gpt-5": ` + likeRates + `}`) {
		return list
	}
	v.each("models", 1, maxModels, func(v *value) {
		rates, set := readRates(v)
		rates.Complete(func(kind usage.Kind) bool { return set>>kind&1 != 0 })
		switch {
		case v.name == "" || len(v.name) > usage.MaxModel:
			v.fail("want the name of a model, 1 to 256 bytes")
		case !usage.IsName(v.name):
			v.fail(usage.WantName)
		case !list.Add(v.name, &rates):
			v.givenTwice()
		}
	})
	return list
}

// readRates reads the prices of a model's tokens. set has a bit for each kind that has a price.
func readRates(v *value) (rates usage.Rates, set int) {
	v.object(likeRates, rateFields, func(name string, v *value) {
		kind := usage.Kind(1 + index(usage.KindNames, name))
		rates[kind] = readRate(v, 0)
		set |= 1 << kind
	})
	return rates, set
}

// ParsePrices reads the field "of" of a list of prices. It returns the prices of each model, in
// millionths, for the kinds that the document names. Its error is of the same form as that of
// [Parse].
func ParsePrices(document []byte) (models map[string]map[string]uint64, err error) {
	r := report{document: string(document)}
	models = map[string]map[string]uint64{}
	if problem, at := r.checkDocument(); problem != "" {
		r.add(at, "", problem)
	} else {
		v := parse(&r)
		readPriceList(v)
		for e := v.elements(); len(r.found) == 0 && e.next(); {
			model := &value{}
			e.read(model)
			rates, set := readRates(model)
			models[model.name] = map[string]uint64{}
			for i, name := range usage.KindNames {
				if set>>(i+1)&1 != 0 {
					models[model.name][name] = rates[i+1]
				}
			}
		}
	}
	if errs := r.errors(); len(errs) > 0 {
		return nil, errs
	}
	return models, nil
}

// readPrice makes a rule count money by a list of prices.
func readPrice(v *value, rule *Rule, all []*Prices, cost bool) {
	rule.Prices = pricesOf(all, v.text)
	switch {
	case v.kind != kindString || rule.Prices == nil:
		names := make([]string, len(all))
		for i, p := range all {
			names[i] = "\"" + p.Name + "\""
		}
		if len(names) == 0 {
			v.fail("want the top-level field prices, which has a list of this name")
		} else {
			v.wrong(list(names) + ", which prices has")
		}
	case rule.Usage == nil || rule.Usage.preset == nil:
		v.fail(`want cost_on_response "auto" or that of a provider too: its answers tell the tokens of each kind`)
	default:
		fields, err := rule.Usage.preset.Fields(true)
		if err != nil {
			v.fail(err.Error())
		}
		rule.Usage.Fields = fields
		if !cost {
			rule.Cost = 0
		}
	}
}
