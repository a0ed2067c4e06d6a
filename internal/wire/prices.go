package wire

// PricesPath is the path at which prices are read and changed.
const PricesPath = "/v1/prices"

// pricesMark begins the names of price lists among the rules of overrides; no rule has such a name.
// Nodes that know no prices take them for rules of other nodes.
const pricesMark = '$'

// PriceOf returns the override with the prices of a model, in millionths, by kind of token.
func PriceOf(list, model string, kinds []PriceOfKind) Override {
	o := Override{Rule: string(pricesMark) + list, Values: []string{model}}
	for _, k := range kinds {
		o.Limits = append(o.Limits, OverrideLimit{Max: k.Millionths, WidthMillis: uint64(k.Kind)})
	}
	return o
}

// PriceOfKind is the price of a token of one kind, at least 1.
type PriceOfKind struct {
	Kind       int
	Millionths uint64
}

// Price returns the prices of a model if the override has any; otherwise ok is false.
func (o *Override) Price() (list, model string, kinds []PriceOfKind, ok bool) {
	if o.IsNotice() || o.Rule == "" || o.Rule[0] != pricesMark || len(o.Values) != 1 {
		return "", "", nil, false
	}
	for _, l := range o.Limits {
		kinds = append(kinds, PriceOfKind{int(l.WidthMillis), l.Max})
	}
	return o.Rule[1:], o.Values[0], kinds, true
}

// Price returns the price list and the model of the last override read, if it has prices. The
// prices are its Limits, and the windows of these, in milliseconds, are the kinds.
func (o *OverrideReader) Price() (list, model []byte, ok bool) {
	if len(o.Rule) == 0 || o.Rule[0] != pricesMark || len(o.Values) != 1 || len(o.Limits) == 0 {
		return nil, nil, false
	}
	return o.Rule[1:], o.Values[0], true
}

// MaxPriceList is the length of the longest name of a price list.
const MaxPriceList = MaxName - 1 // for pricesMark
