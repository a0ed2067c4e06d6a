package store

import (
	"slices"

	"weir/internal/wire"
)

// Part is a part of a push, for one of several stores or servers.
type Part struct {
	wire.Push
	items, takes []int // the indexes that its items and takes have in the whole push
}

// Divide divides a push into the items and takes that are chosen, and the rest.
func Divide(p *wire.Push, item func(*wire.Item) bool, take func(*wire.Take) bool) (chosen, rest *Part) {
	chosen, rest = &Part{Push: *p}, &Part{Push: *p}
	chosen.Items, chosen.Takes, rest.Items, rest.Takes = nil, nil, nil, nil
	part := map[bool]*Part{true: chosen, false: rest}
	for i := range p.Items {
		to := part[item(&p.Items[i])]
		to.Items, to.items = append(to.Items, p.Items[i]), append(to.items, i)
	}
	for i := range p.Takes {
		to := part[take(&p.Takes[i])]
		to.Takes, to.takes = append(to.Takes, p.Takes[i]), append(to.takes, i)
	}
	return chosen, rest
}

// Join adds a part's answer to that of the whole push, which has all totals and grants.
func (p *Part) Join(whole, answer *wire.Answer) {
	if len(answer.Missing) > 0 && whole.Missing == nil {
		whole.Missing = make([]wire.Missing, len(whole.Totals)+len(whole.Grants))
	}
	for i, at := range p.items {
		if whole.Totals[at] = answer.Totals[i]; answer.Missing != nil {
			whole.Missing[at] = answer.Missing[i]
		}
	}
	for i, at := range p.takes {
		if whole.Grants[at] = answer.Grants[i]; answer.Missing != nil {
			whole.Missing[len(whole.Totals)+at] = answer.Missing[len(p.items)+i]
		}
	}
}

// Lack is [Part.Join] for a part without an answer.
func (p *Part) Lack(whole *wire.Answer, why wire.Missing) {
	p.Join(whole, &wire.Answer{
		Totals: make([]wire.Total, len(p.items)), Grants: make([]wire.Grant, len(p.takes)), Missing: slices.Repeat([]wire.Missing{why}, len(p.items)+len(p.takes)),
	})
}
