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
	timed  []timed
}

// timed are the rates of a name at a time of day, on some days of the week.
type timed struct {
	times
	mark, name string // as in the list, without the / between
	rates      Rates
}

// times are from one minute of the day until another, on the days from first to last, of 0 (Monday) to 6.
type times struct{ first, last, from, to int }

const minutesOfDay = 24 * 60

// lasts reports whether the rates are those of a minute of the week.
func (t *times) lasts(minute int) bool {
	if day := minute / minutesOfDay; day < t.first || day > t.last {
		return false
	}
	if minute %= minutesOfDay; t.from < t.to {
		return t.from <= minute && minute < t.to
	}
	return minute >= t.from || minute < t.to // over midnight, or the whole day
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
	if added = p.add(name, rates); !added {
		p.findMost()
	}
	return added
}

// add is Add, but leaves most as high as it was if rates are replaced.
func (p *PriceList) add(name string, rates *Rates) (added bool) {
	if name == others {
		added = p.others == nil
		p.others = rates
		p.most.raise(rates)
		return added
	}
	if at, of, ok := timeOf(name); ok {
		p.addTier(of) // requests are read for it before it is known at what time they have come
		for i := range p.timed {
			if t := &p.timed[i]; t.times == at && t.name == of {
				t.rates = *rates
				return false
			}
		}
		p.timed = append(p.timed, timed{at, name[:len(name)-len(of)-1], of, *rates})
		return true
	}
	if above, of, ok := longOf(name); ok {
		for i := range p.long {
			if l := &p.long[i]; l.above == above && l.entry == of {
				l.rates = *rates
				p.most.raise(rates)
				return false
			}
		}
		p.long = append(p.long, long{above, of, *rates})
		p.most.raise(rates)
		return true
	}
	p.addTier(name)
	entry, at, to := name, 0, p.whole
	begins := name != "" && name[len(name)-1] == '*'
	if begins {
		name = name[:len(name)-1]
		at, to = p.whole, len(p.models)
	}
	for high := to; at < high; {
		if middle := (at + high) / 2; before(p.models[middle].name, name, begins) {
			at = middle + 1
		} else {
			high = middle
		}
	}
	if added = at == to || p.models[at].name != name; added {
		p.models = append(p.models, model{})
		copy(p.models[at+1:], p.models[at:])
		if !begins {
			p.whole++
		}
	}
	p.models[at] = model{name, *rates, entry}
	p.most.raise(rates)
	return added
}

// addTier has the list know the tier of a name, if that is of one.
func (p *PriceList) addTier(name string) {
	if at := strings.IndexByte(name, '/'); strings.HasPrefix(name, tierMark) && at >= 0 && !slices.Contains(p.tiers, name[:at+1]) {
		p.tiers = append(p.tiers, name[:at+1])
	}
}

// findMost has most be the highest of all rates, after some were replaced.
func (p *PriceList) findMost() {
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

// Equal reports whether two lists have the same prices, in the same order.
func (p *PriceList) Equal(other *PriceList) bool {
	return (p.others == other.others || p.others != nil && other.others != nil && *p.others == *other.others) &&
		slices.Equal(p.models, other.models) && slices.Equal(p.long, other.long) && slices.Equal(p.timed, other.timed)
}

// raise raises each rate to at least the rate in other.
func (r *Rates) raise(other *Rates) {
	for kind := range other {
		r[kind] = max(r[kind], other[kind])
	}
}

// Clone returns an independent copy of the list.
func (p *PriceList) Clone() *PriceList {
	return &PriceList{models: append([]model(nil), p.models...), whole: p.whole, others: p.others, most: p.most, tiers: slices.Clip(p.tiers), long: slices.Clone(p.long), timed: slices.Clone(p.timed)}
}

// Timed reports whether some prices are those of a time of day.
func (p *PriceList) Timed() bool { return len(p.timed) > 0 }

// At returns the list of a minute of the week, if it is another than that of the minute before was. Of several prices
// at the same time the highest count.
func (p *PriceList) At(minute, before int) (list *PriceList, differs bool) {
	same := before >= 0
	for i := range p.timed {
		t := &p.timed[i]
		same = same && t.lasts(minute) == t.lasts(before)
	}
	if same {
		return nil, false
	}
	list = p
	for i := range p.timed {
		t := &p.timed[i]
		if !t.lasts(minute) {
			continue
		}
		if list == p {
			list = p.Clone()
			list.timed = nil
		}
		rates := t.rates
		for j := range i {
			if other := &p.timed[j]; other.name == t.name && other.lasts(minute) {
				rates.raise(&other.rates)
			}
		}
		list.add(t.name, &rates)
	}
	if list != p {
		list.findMost()
	}
	return list, true
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

// timeMark begins the names of prices at a time of day: time=16:30-00:30/gpt-5 are those of gpt-5 from half past four on,
// by the clock of the list's zone, until half past midnight, and time=1-5,16:30-00:30/gpt-5 from Monday to Friday only.
const timeMark = "time="

func timeOf(name string) (at times, of string, ok bool) {
	if name, ok = strings.CutPrefix(name, timeMark); !ok {
		return at, "", false
	}
	clock, of, _ := strings.Cut(name, "/")
	days, hours, found := strings.Cut(clock, ",")
	if at.last = 6; !found {
		hours = days
	} else if len(days) != 3 || days[1] != '-' || days[0] < '1' || days[0] > days[2] || days[2] > '7' {
		return at, "", false
	} else {
		at.first, at.last = int(days[0]-'1'), int(days[2]-'1')
	}
	begin, end, _ := strings.Cut(hours, "-")
	at.from, ok = minuteOf(begin)
	var right bool
	at.to, right = minuteOf(end)
	return at, of, ok && right && of != ""
}

// minuteOf returns the minute of the day at which a clock shows hh:mm.
func minuteOf(clock string) (minute int, ok bool) {
	if len(clock) != 5 || clock[2] != ':' {
		return 0, false
	}
	for _, at := range [...]int{0, 1, 3, 4} {
		if clock[at] < '0' || clock[at] > '9' {
			return 0, false
		}
	}
	hours, minutes := int(clock[0]-'0')*10+int(clock[1]-'0'), int(clock[3]-'0')*10+int(clock[4]-'0')
	return hours*60 + minutes, hours < 24 && minutes < 60
}

// WantName says what IsName wants.
const WantName = "want a model behind time=HH:MM-HH:MM/, above=TOKENS/ or service_tier=TIER/, in this order, such as above=200000/gpt-5"

// IsName reports whether a list may have prices under a name: one of a model or an entry stands behind its marks.
func IsName(name string) bool {
	if strings.HasPrefix(name, timeMark) {
		_, of, ok := timeOf(name)
		return ok && !strings.HasPrefix(of, timeMark) && IsName(of)
	}
	if strings.HasPrefix(name, longMark) {
		_, entry, ok := longOf(name)
		return ok && !strings.HasPrefix(entry, longMark) && !strings.HasPrefix(entry, timeMark) && IsName(entry)
	}
	tier, model, found := strings.Cut(name, "/")
	return !strings.HasPrefix(name, tierMark) || found && tier != tierMark && model != "" && !strings.HasPrefix(model, timeMark)
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

// CostOf returns the cost of tokens by the rates of an entry, empty if the list lacks the model, and by those that it has for a
// prompt of this length. Without a list and rates each costs 1. ok is false if the cost is above Most.
func (p *PriceList) CostOf(tokens *Tokens, rates *Rates, entry string) (hits uint64, ok bool) {
	hits, ok = tokens.cost(rates)
	prompt := tokens[Input] + tokens[Cached] + tokens[CacheWrite]
	for i := 0; p != nil && i < len(p.long); i++ {
		if l := &p.long[i]; l.isFor(cmp.Or(entry, others), nil, prompt) {
			more, fits := tokens.cost(&l.rates)
			hits, ok = max(hits, more), ok && fits
		}
	}
	return hits, ok
}

// Unused tells which names lack what they are about: the entry of prices of long prompts, which no model has, and a model that the
// list has at a time of day alone. mark is what stands before its name.
func (p *PriceList) Unused(tell func(mark, entry string, always bool)) {
	lacks := func(entry string) bool {
		return (entry != others || p.others == nil) && !slices.ContainsFunc(p.models, func(m model) bool { return m.entry == entry }) &&
			!slices.ContainsFunc(p.timed, func(t timed) bool { return t.name == entry })
	}
	for i := range p.long {
		if l := &p.long[i]; lacks(l.entry) {
			tell(longMark+strconv.FormatUint(l.above, 10), l.entry, true)
		}
	}
	for i := range p.timed {
		t := &p.timed[i]
		if _, entry, ok := longOf(t.name); ok {
			if lacks(entry) {
				tell(t.mark+"/"+strings.TrimSuffix(t.name, "/"+entry), entry, true)
			}
			continue
		}
		name := t.name
		if strings.HasPrefix(name, tierMark) {
			_, name, _ = strings.Cut(name, "/")
		}
		if _, _, known := p.Find([]byte(strings.TrimSuffix(name, others))); !known && name != others {
			tell(t.mark, t.name, false)
		}
	}
}

// HasTiers reports whether some model has prices of its own in a tier.
func (p *PriceList) HasTiers() bool { return len(p.tiers) > 0 }

// Fast is the speed for which Anthropic has prices of its own. OpenAI has it as a tier, which is priority for most models.
const Fast = "fast"

const (
	fastTier     = tierMark + Fast + "/"
	priorityTier = tierMark + "priority/"
)

// Tier returns how the list names the tier of a request or an answer, by its service_tier or by a speed that has prices of its own;
// empty if it does not know the tier.
func (p *PriceList) Tier(name, speed []byte) string {
	if string(speed) == Fast && slices.Contains(p.tiers, fastTier) {
		return fastTier
	}
	for _, tier := range p.tiers {
		if tier[len(tierMark):len(tier)-1] == string(name) {
			return tier
		}
	}
	if string(name) == Fast && slices.Contains(p.tiers, priorityTier) {
		return priorityTier
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

// Find is [PriceList.Find] of a model in a tier. A model without prices of its own there has its usual ones, but in the tier Fast
// those of priority, and in AnyTier the highest. The rates are valid until the next call.
func (f *Finder) Find(p *PriceList, tier string, model []byte) (rates *Rates, entry string, known bool) {
	if bytes.HasPrefix(model, []byte(tierMark)) {
		model = nil // no upstream has such a model
	}
	rates, entry, known = p.Find(model)
	highest, earlier := *rates, len(f.tiers)
	for _, one := range p.tiers {
		if tier != one && tier != AnyTier && (tier != fastTier || one != priorityTier) {
			continue
		}
		f.name = append(append(f.name[:0], one...), model...)
		switch own, at, has := p.Find(f.name); {
		case !has || !strings.HasPrefix(at, one): // such as s*, which the mark itself fits
		case tier == one:
			return own, at, true
		case tier == fastTier:
			rates, entry, known = own, at, true
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

// modelField is the field of sources for the name of the model that has answered, tierField for its tier, and speedField for its
// speed.
const (
	modelField = -1 - iota
	tierField
	speedField
)

// modelPaths lead to the model's name, and to the tier in which it has answered. The texts with the tokens tell the tier, too. A
// speed with prices of its own goes before the tier.
var modelPaths = [...]struct {
	stem  stemSet
	path  string
	field int
}{
	{inUsage | inText, "model", modelField}, {inResponse, "response.model", modelField}, {inMessage, "message.model", modelField}, {inMetadata, "modelVersion", modelField},
	{inUsage, "service_tier", tierField}, {inResponse, "response.service_tier", tierField}, {inUsage, "usage.service_tier", tierField}, {inMessage, "message.usage.service_tier", tierField},
	{inUsage, "usage.speed", speedField}, {inMessage, "message.usage.speed", speedField},
}

func (f *Fields) addModels(stems stemSet) error {
	for i := range modelPaths {
		if modelPaths[i].stem&stems == 0 {
			continue
		}
		path, err := jsonpath.Compile(modelPaths[i].path)
		if err != nil {
			return err
		}
		f.sources = append(f.sources, source{path: path, field: modelPaths[i].field})
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
	// tierNamed is the tier that the body has named last, in the text tierText for the source tierFrom. It counts, and then is tier,
	// if that text has a number, too: others are read only in part. counted is the last text with a number.
	tierNamed         string
	tierText, counted uint64
	tierFrom          int
	retold            bool
	asking, answering []byte // the names of the request's model, and of the body's
}

// entry is the list's entry for the model of the request or, if that has named none, of the answer.
func (p *priced) entry() string { return cmp.Or(p.asked, p.model, others) }

// Ask makes the body's tokens cost the list's prices of the model that the body names first. If the
// list lacks that model, the prices stay as they are. asked is the list's entry for the model that the
// request has named, whose prices apply: then the answer's model counts only where it is dearer. It is
// empty if the request has not named a model of the list, or hides its tier. tier is the request's: if the
// body names one, that counts in its place. model is the name that the request has for its model; it must not change before
// the body has ended.
func (r *Reader) Ask(list *PriceList, asked, tier string, model []byte) {
	r.list, r.asked, r.tier, r.asking = list, asked, tier, model
	r.finder.tiers = r.finder.tiers[:0]
}

// asks reports whether the body has still to name its model. Until then no text may be skipped.
func (r *Reader) asks() bool { return r.list != nil && r.priced.text == 0 }

// tellsTier reports whether the tokens cost what they do in a tier that the body names.
func (r *Reader) tellsTier() bool { return r.list != nil && r.list.HasTiers() }

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
	if known := r.weigh(from, name, false); p.list.HasTiers() && (known || len(p.answering) == 0) {
		p.answering = append(p.answering[:0], name...)
	}
}

// weigh has the rates of the model that the body names, in the tier of the request or the body. It reports whether the list
// knows the model. A name that the list lacks changes rates only if the list had it in an earlier tier.
func (r *Reader) weigh(from int, name []byte, again bool) (known bool) {
	p := &r.priced
	rates, entry, known := r.finder.Find(p.list, p.tier, name)
	switch {
	case !known && (p.asked != "" || p.model == "" || !again):
	case p.asked == "":
		r.rates, p.model, p.from = rates, entry, from
	case entry == p.asked || strings.TrimPrefix(entry, p.tier) != string(name) && isVersion(name, strings.TrimPrefix(p.asked, p.tier)):
		p.dearer, p.model, p.from = nil, "", from
	default:
		p.dearer, p.model, p.from = rates, entry, from
	}
	return known
}

// takeTier has the tokens cost what they do in the tier that the body names. OpenAI's first events repeat the request's
// auto, which is none.
func (r *Reader) takeTier(from int, name []byte, kind jsonpath.Kind) {
	p := &r.priced
	if kind != jsonpath.String || string(name) == "auto" || p.tierText == r.text && from < p.tierFrom {
		return
	}
	r.nameTier(from, p.list.Tier(name, nil))
}

// takeSpeed is takeTier for a speed. Any other than the usual one is a tier.
func (r *Reader) takeSpeed(from int, name []byte) {
	if tier := r.list.Tier(nil, name); tier != "" {
		r.nameTier(from, tier)
	}
}

func (r *Reader) nameTier(from int, tier string) {
	p := &r.priced
	p.tierNamed, p.tierText, p.tierFrom = tier, r.text, from
	r.useTier()
}

func (r *Reader) useTier() {
	p := &r.priced
	if p.tierText != r.text || p.counted != r.text || p.tierNamed == p.tier {
		return
	}
	p.tier, p.retold = p.tierNamed, true
	r.finder.tiers = r.finder.tiers[:0]
	if p.asked != "" && len(p.asking) > 0 {
		r.rates, p.asked, _ = r.finder.Find(p.list, p.tier, p.asking)
		p.dearer, p.model = nil, ""
	}
	if p.text != 0 {
		r.weigh(p.from, p.answering, true)
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
	own := ""
	if r.retold {
		own = r.asked // in the body's tier
	}
	if r.dearer == nil {
		return cmp.Or(r.model, own)
	}
	asked, _ := r.costOf(r.rates, r.entry())
	if answered, ok := r.costOf(r.dearer, r.model); !ok || answered <= asked {
		return own
	}
	return r.model
}
