package usage

import (
	"bytes"
	"cmp"
	"slices"
	"strconv"
	"strings"

	"weir/internal/jsonpath"
)

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
	tiers  []string // beginnings of names, such as service_tier=flex/
	long   []long
}

// long are the rates of a request with more tokens than above in its prompt, to a model of an entry.
type long struct {
	above uint64
	entry string
	rates Rates
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
	if above, of, ok := longOf(name); ok {
		for i := range p.long {
			if l := &p.long[i]; l.above == above && l.entry == of {
				l.rates = *rates
				return p.added(rates, false)
			}
		}
		p.long = append(p.long, long{above, of, *rates})
		return p.added(rates, true)
	}
	if at := strings.IndexByte(name, '/'); strings.HasPrefix(name, tierMark) && at >= 0 && !slices.Contains(p.tiers, name[:at+1]) {
		p.tiers = append(p.tiers, name[:at+1])
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
		for i := range p.long {
			p.most.raise(&p.long[i].rates)
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
	return &PriceList{models: append([]model(nil), p.models...), whole: p.whole, others: p.others, most: p.most, tiers: slices.Clip(p.tiers), long: slices.Clone(p.long)}
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

// tierMark begins the names of models at the prices of a tier: service_tier=flex/gpt-5 are those of gpt-5 for requests
// whose service_tier is flex.
const tierMark = "service_tier="

// AnyTier is the tier of a request that hides it.
const AnyTier = "*"

// longMark begins the names of models at the prices of long prompts: above=200000/gpt-5 are those of the entry gpt-5 for
// requests whose prompt has more than 200,000 tokens.
const longMark = "above="

func longOf(name string) (above uint64, entry string, ok bool) {
	if name, ok = strings.CutPrefix(name, longMark); !ok {
		return 0, "", false
	}
	digits, entry, found := strings.Cut(name, "/")
	for i := range len(digits) {
		if c := digits[i]; c < '0' || c > '9' || i == 15 {
			return 0, "", false
		}
		above = above*10 + uint64(digits[i]-'0')
	}
	return above, entry, found && above > 0 && entry != ""
}

// IsName reports whether a list may have prices under a name: one of a model or an entry stands behind its marks.
func IsName(name string) bool {
	if strings.HasPrefix(name, longMark) {
		_, entry, ok := longOf(name)
		return ok && !strings.HasPrefix(entry, longMark) && IsName(entry)
	}
	tier, model, found := strings.Cut(name, "/")
	return !strings.HasPrefix(name, tierMark) || found && tier != tierMark && model != ""
}

// isFor reports whether the rates are for a model of an entry, or of the entries in tiers.
func (l *long) isFor(entry string, tiers []string, prompt uint64) bool {
	return prompt > l.above && (l.entry == entry || slices.Contains(tiers, l.entry))
}

// Highest returns the highest prices of text of an entry's models that comes out and that goes in, where a prompt has so many
// tokens.
func (p *PriceList) Highest(rates *Rates, entry string, prompt uint64) (answer, in uint64) {
	answer, in = rates.Answer(), rates.Prompt()
	for i := range p.long {
		if l := &p.long[i]; l.isFor(entry, nil, prompt) {
			answer, in = max(answer, l.rates.Answer()), max(in, l.rates.Prompt())
		}
	}
	return answer, in
}

// Unused returns the names of prices of long prompts to an entry that the list lacks: no model has them.
func (p *PriceList) Unused() (names []string) {
	for i := range p.long {
		l := &p.long[i]
		has := l.entry == others && p.others != nil
		for j := range p.models {
			has = has || p.models[j].entry == l.entry
		}
		if !has {
			names = append(names, longMark+strconv.FormatUint(l.above, 10)+"/"+l.entry)
		}
	}
	return names
}

// HasTiers reports whether some model has prices of its own in a tier.
func (p *PriceList) HasTiers() bool { return len(p.tiers) > 0 }

// Tier returns how the list names a tier; empty if it does not know the tier.
func (p *PriceList) Tier(name []byte) string {
	for _, tier := range p.tiers {
		if tier[len(tierMark):len(tier)-1] == string(name) {
			return tier
		}
	}
	return ""
}

// Finder has memory for [Finder.Find].
type Finder struct {
	_ [0]func() // keeps Go from generating an equality function

	name    []byte
	highest Rates
	// tiers are the other entries that highest is of. One tier may have a model's name, and another a beginning of it.
	tiers []string
}

// Find is [PriceList.Find] of a model in a tier. A model without prices of its own there has its usual ones, and in AnyTier
// the highest. The rates are valid until the next call.
func (f *Finder) Find(p *PriceList, tier string, model []byte) (rates *Rates, entry string, known bool) {
	if bytes.HasPrefix(model, []byte(tierMark)) {
		model = nil // no upstream has such a model
	}
	rates, entry, known = p.Find(model)
	highest, earlier := *rates, len(f.tiers)
	for _, one := range p.tiers {
		if tier != one && tier != AnyTier {
			continue
		}
		f.name = append(append(f.name[:0], one...), model...)
		switch own, at, has := p.Find(f.name); {
		case !has || !strings.HasPrefix(at, one): // such as s*, which the mark itself fits
		case tier == one:
			return own, at, true
		default:
			highest.raise(own)
			f.tiers = append(f.tiers, at)
			known = true
		}
	}
	if tier == AnyTier && known {
		f.highest, f.tiers = highest, slices.Delete(f.tiers, 0, earlier)
		rates = &f.highest
	}
	return rates, entry, known
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

// priced has the prices that a body's own word on its model brings.
type priced struct {
	list   *PriceList // where to look up the model; nil if the rates are known
	tier   string     // of the request
	asked  string     // the entry of the model that the request has named, or empty
	dearer *Rates     // of the model that has answered in its place; nil if it is the same
	model  string     // the entry of the model that the body has named
	// text says in which text the body has named its model, 0 if it has not yet, and from for which
	// source.
	text uint64
	from int
}

// entry is the list's entry for the model of the request or, if that has named none, of the answer.
func (p *priced) entry() string { return cmp.Or(p.asked, p.model, others) }

// Ask makes the body's tokens cost the list's prices of the model that the body names first. If the
// list lacks that model, the prices stay as they are. asked is the list's entry for the model that the
// request has named, whose prices apply: then the answer's model counts only where it is dearer. It is
// empty if the request has not named a model of the list, or hides its tier. tier is the request's.
func (r *Reader) Ask(list *PriceList, asked, tier string) {
	r.list, r.asked, r.tier = list, asked, tier
	r.finder.tiers = r.finder.tiers[:0]
}

// asks reports whether the body has still to name its model. Until then no text may be skipped.
func (r *Reader) asks() bool { return r.list != nil && r.priced.text == 0 }

// takeModel looks up the model's name in the price list.
func (r *Reader) takeModel(from int, name []byte, kind jsonpath.Kind) {
	p := &r.priced
	if p.list == nil || kind != jsonpath.String || len(name) == 0 || p.text != 0 && p.text != r.text {
		return
	}
	p.text = r.text
	if from < p.from {
		return
	}
	rates, entry, known := r.finder.Find(p.list, p.tier, name)
	switch {
	case !known:
	case p.asked == "":
		r.rates, p.model, p.from = rates, entry, from
	case entry == p.asked || strings.TrimPrefix(entry, p.tier) != string(name) && isVersion(name, strings.TrimPrefix(p.asked, p.tier)):
		p.dearer, p.model, p.from = nil, "", from
	default:
		p.dearer, p.model, p.from = rates, entry, from
	}
}

// isVersion reports whether a name is a model's with a date or a number behind it. Answers name models
// so whose requests did not. Another beginning in a list may fit such a name better than the request's.
func isVersion(name []byte, model string) bool {
	const least = 3 // digits: fewer are part of another model's name
	n := len(model)
	if len(name) <= n || string(name[:n]) != model || name[n] != '-' && name[n] != '@' {
		return false
	}
	digits := 0
	for _, c := range name[n+1:] {
		switch {
		case '0' <= c && c <= '9':
			digits++
		case c != '-' || digits < least:
			return false
		}
	}
	return digits >= least
}

// Model returns the list's entry for the model that the body has named, if its prices apply; empty if
// earlier prices apply.
func (r *Reader) Model() string {
	if r.dearer == nil {
		return r.model
	}
	asked, _ := r.costOf(r.rates, r.entry())
	if answered, ok := r.costOf(r.dearer, r.model); !ok || answered <= asked {
		return ""
	}
	return r.model
}
