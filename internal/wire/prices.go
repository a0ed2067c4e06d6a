package wire

// PricesPath is where prices are read and changed.
const PricesPath = "/v1/prices"

// pricesMark begins the names of lists of prices among the rules of overrides, which have no such name. So
// nodes that know of no prices take them for those of other nodes' rules.
const pricesMark = '$'

// PriceOf is an override that tells the prices of a model, by their kinds. Prices are in millionths.
func PriceOf(list, model string, kinds []PriceOfKind) Override {
	o := Override{Rule: string(pricesMark) + list, Values: []string{model}}
	for _, k := range kinds {
		o.Limits = append(o.Limits, OverrideLimit{Max: k.Millionths, WidthMillis: uint64(k.Kind)})
	}
	return o
}

// PriceOfKind is the price of a token of a kind, which is 1 or more.
type PriceOfKind struct {
	Kind       int
	Millionths uint64
}

// Price is what an override tells of a model's prices, if it does.
func (o *Override) Price() (list, model string, kinds []PriceOfKind, ok bool) {
	if o.IsNotice() || o.Rule == "" || o.Rule[0] != pricesMark || len(o.Values) != 1 {
		return "", "", nil, false
	}
	for _, l := range o.Limits {
		kinds = append(kinds, PriceOfKind{int(l.WidthMillis), l.Max})
	}
	return o.Rule[1:], o.Values[0], kinds, true
}

// Price is the list of prices that the override last read is of, and the model, if it tells prices. They
// are its Limits: their windows, in milliseconds, are the kinds.
func (o *OverrideReader) Price() (list, model []byte, ok bool) {
	if len(o.Rule) == 0 || o.Rule[0] != pricesMark || len(o.Values) != 1 || len(o.Limits) == 0 {
		return nil, nil, false
	}
	return o.Rule[1:], o.Values[0], true
}

// MaxPriceList is the length of the longest name of a list.
const MaxPriceList = maxOverrideRule - 1
