package wire

import "cmp"

// PricesPath is the path at which prices are read and changed.
const PricesPath = "/v1/prices"

// maxPrices is the most kinds of tokens.
const maxPrices = 8

// Price has the prices of a model's tokens in a price list. It is part of the list of overrides,
// behind a byte 0, which is no length of a rule's name.
type Price struct {
	List, Model string
	// Kinds are the prices that differ from those of other kinds, in ascending order.
	Kinds []PriceOfKind
}

// PriceOfKind is the price of a token of one kind, in millionths.
type PriceOfKind struct{ Kind, Millionths uint64 }

// Compare orders prices by list and model.
func (p *Price) Compare(other *Price) int {
	return cmp.Or(cmp.Compare(p.List, other.List), cmp.Compare(p.Model, other.Model))
}

func appendPrice(dst []byte, p *Price) []byte {
	dst = appendText(appendText(append(dst, 0), p.List), p.Model)
	dst = appendUvarint(dst, uint64(len(p.Kinds)))
	for _, k := range p.Kinds {
		dst = appendUvarints(dst, k.Kind, k.Millionths)
	}
	return dst
}

// price reads prices behind their mark.
func (o *OverrideReader) price() {
	r := &o.r
	o.PriceList, o.Model = r.counted(MaxName), r.counted(MaxUsedModel)
	o.Prices = o.prices[:r.most(r.uvarint(), maxPrices)]
	for i := range o.Prices {
		o.Prices[i] = PriceOfKind{Kind: r.amount(), Millionths: r.amount()}
	}
}
