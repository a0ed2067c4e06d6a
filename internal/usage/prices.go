package usage

import "weir/internal/jsonpath"

// PriceList has the prices of models. Once in use it is not modified, and is safe for concurrent
// reads.
type PriceList struct {
	_ [0]func() // keeps Go from generating an equality function

	models []model // first whole names, sorted, and then beginnings of names, the longest first
	whole  int     // number of whole names
	// others has the rates of models that are not on the list; nil means most, the highest of all
	// rates.
	others *Rates
	most   Rates
}

type model struct {
	name  string
	rates Rates
	// entry is the name in the list; a beginning ends with *.
	entry string
}

// MaxModel is the most bytes of a model's name, and MaxRate the highest rate.
const (
	MaxModel = 256
	MaxRate  = 1_000_000 * Parts
)

// Add adds a model or, with a * at the end of its name, all models whose names begin with the rest.
// It returns false if the list had it already, and then replaces its rates.
func (p *PriceList) Add(name string, rates *Rates) (added bool) {
	if name == others {
		added = p.others == nil
		p.others = rates
		return p.added(rates, added)
	}
	entry, from, to := name, 0, p.whole
	begins := name != "" && name[len(name)-1] == '*'
	if begins {
		name = name[:len(name)-1]
		from, to = p.whole, len(p.models)
	}
	at := from
	for at < to && before(p.models[at].name, name, begins) {
		at++
	}
	if added = at == to || p.models[at].name != name; added {
		p.models = append(p.models, model{})
		copy(p.models[at+1:], p.models[at:])
		if !begins {
			p.whole++
		}
	}
	p.models[at] = model{name, *rates, entry}
	return p.added(rates, added)
}

// added updates most after rates were added, or have replaced others. It returns added.
func (p *PriceList) added(rates *Rates, added bool) bool {
	if !added {
		p.most = Rates{}
		if p.others != nil {
			p.most.raise(p.others)
		}
		for i := range p.models {
			p.most.raise(&p.models[i].rates)
		}
	}
	p.most.raise(rates)
	return added
}

// raise raises each rate to at least the rate in other.
func (r *Rates) raise(other *Rates) {
	for kind := range other {
		r[kind] = max(r[kind], other[kind])
	}
}

// Clone returns an independent copy of the list.
func (p *PriceList) Clone() *PriceList {
	return &PriceList{models: append([]model(nil), p.models...), whole: p.whole, others: p.others, most: p.most}
}

func before(a, b string, longestFirst bool) bool {
	if longestFirst && len(a) != len(b) {
		return len(a) > len(b)
	}
	return a < b
}

// Find returns the rates of a model, and whether the list has it. Otherwise the rates are those for
// other models or, without these, the highest rate of each kind. entry is the name in the list;
// there are few of them, whatever clients ask for.
func (p *PriceList) Find(name []byte) (rates *Rates, entry string, known bool) {
	low, high := 0, p.whole
	for low < high {
		switch middle := (low + high) / 2; {
		case p.models[middle].name == string(name):
			return &p.models[middle].rates, p.models[middle].entry, true
		case p.models[middle].name < string(name):
			low = middle + 1
		default:
			high = middle
		}
	}
	for i := p.whole; i < len(p.models); i++ {
		if m := &p.models[i]; len(name) >= len(m.name) && string(name[:len(m.name)]) == m.name {
			return &m.rates, m.entry, true
		}
	}
	if p.others != nil {
		return p.others, others, false
	}
	return &p.most, others, false
}

// others is the entry for models that are not on a list.
const others = "*"

// Most returns the highest price of each kind.
func (p *PriceList) Most() *Rates { return &p.most }

// Complete fills in missing rates: for cached, cache writes and audio the rate of input, for
// reasoning and audio output that of output, and for output that of input. set reports whether a
// kind has a rate.
func (r *Rates) Complete(set func(Kind) bool) {
	for _, kind := range [...]struct{ kind, as Kind }{
		{Cached, Input}, {CacheWrite, Input}, {Audio, Input}, {Output, Input}, {Reasoning, Output}, {AudioOutput, Output},
	} {
		if !set(kind.kind) {
			r[kind.kind] = r[kind.as]
		}
	}
}

// modelField is the field of sources for the name of the model that has answered.
const modelField = -1

// modelPaths lead to the model's name.
var modelPaths = [...]struct {
	stem stemSet
	path string
}{{inUsage | inText, "model"}, {inResponse, "response.model"}, {inMessage, "message.model"}, {inMetadata, "modelVersion"}}

func (f *Fields) addModels(stems stemSet) error {
	for i := range modelPaths {
		if modelPaths[i].stem&stems == 0 {
			continue
		}
		path, err := jsonpath.Compile(modelPaths[i].path)
		if err != nil {
			return err
		}
		f.sources = append(f.sources, source{path: path, field: modelField})
	}
	return nil
}

// Ask makes the body's tokens cost the list's prices of the model that the body names first. If the
// list lacks that model, the prices stay as they are.
func (r *Reader) Ask(list *PriceList) { r.list = list }

// naming says where a body has named its model: in which text, and for which source.
type naming struct {
	text   uint64 // 0 if the body has named none yet
	source int
}

// asks reports whether the body has still to name its model. Until then no text may be skipped.
func (r *Reader) asks() bool { return r.list != nil && r.naming.text == 0 }

// takeModel looks up the model's name in the price list.
func (r *Reader) takeModel(from int, name []byte, kind jsonpath.Kind) {
	n := &r.naming
	if r.list == nil || kind != jsonpath.String || len(name) == 0 || n.text != 0 && n.text != r.text {
		return
	}
	n.text = r.text
	if rates, entry, known := r.list.Find(name); known && from >= n.source {
		r.rates, r.model, n.source = rates, entry, from
	}
}
