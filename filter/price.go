package filter

import (
	"bytes"

	"weir/config"
	"weir/internal/calendar"
	"weir/internal/jsonpath"
	"weir/internal/proxywasm"
	"weir/internal/usage"
)

// pricing returns the prices of the tokens of a rule's requests.
type pricing struct {
	// list has the prices of the current time of day, those of minute. whole is the list that it was made of.
	list, whole *usage.PriceList
	minute      int
	clock       *calendar.Calendar
	// configured is the configuration's list. building is the list from the backend while it
	// arrives. name is the list's name.
	configured, building *usage.PriceList
	name                 string
	// by is the property that names the model, or -1 if the body does so: at textPath, which is
	// text in compiled form, with at most longest bytes. otherwise is the name for bodies without
	// one. inPath means that the request's path may name it.
	by        int
	text      string
	textPath  *jsonpath.Path
	longest   int
	otherwise []byte
	inPath    bool
	// rates are the prices of the current request. sure means that its model is known for certain,
	// and unknown that the list lacks it.
	rates         *usage.Rates
	sure, unknown bool
	// model is the entry of the list with these rates; empty if the answer will tell. tier is how the list
	// names that of the request.
	model, tier string
	// named is the name that the request has for its model, kept if tiers have prices: the answer may name another.
	named  []byte
	finder usage.Finder
}

// What a request's JSON names its tier by.
const (
	tierText  = "service_tier"
	speedText = "speed"
)

var (
	tierPath, _  = jsonpath.Compile(tierText)
	speedPath, _ = jsonpath.Compile(speedText)
)

func (r *request) pricing(c *config.Prices) *pricing {
	p := &pricing{name: c.Name, configured: c.List, by: -1, inPath: c.InPath, clock: c.Clock}
	p.use(c.List)
	if s := &c.By; s.Kind != config.SelectBody {
		p.by = r.propertyOf(s)
	} else {
		p.text, p.longest, p.otherwise = s.Name, s.Longest, []byte(s.Default)
		p.textPath, _ = jsonpath.Compile(s.Name) // the configuration was checked
	}
	return p
}

// readsBody reports whether the current request's body names its model.
func (p *pricing) readsBody(s *scratch) bool {
	if p == nil || p.textPath == nil {
		return false
	}
	if p.inPath {
		path, _ := proxywasm.RequestHeader(":path")
		return s.modelIn(withoutQuery(path)) == nil
	}
	return true
}

// use has the rule charge by a list.
func (p *pricing) use(list *usage.PriceList) { p.list, p.whole, p.minute = list, list, -1 }

// tellTime has the prices of the time of day, before a request asks for any. It makes a list only where prices change, a few
// times a day. Requests under way keep theirs.
func (p *pricing) tellTime() {
	if !p.whole.Timed() {
		return
	}
	minute := p.clock.Minute(proxywasm.Now())
	if minute == p.minute {
		return
	}
	if list, differs := p.whole.At(minute, p.minute); differs {
		p.list = list
	}
	p.minute = minute
}

// findRates finds the prices of the current request's tokens. If its model or its tier is not certain, the
// highest prices apply until the answer has told.
func (p *pricing) findRates(r *request) {
	var model []byte
	found, sure := false, true
	p.tier = ""
	if p.list.HasTiers() {
		path, _ := proxywasm.RequestHeader(":path")
		if r.scratch.isBatch(withoutQuery(path)) {
			p.tier = p.list.Tier([]byte(batchTier), nil)
		} else if p.readsBody(&r.scratch) && r.body != nil {
			tier, _, certain := r.body.text(tierText)
			speed, _, known := r.body.text(speedText)
			if certain && known {
				p.tier = p.list.Tier(tier, speed)
			} else {
				p.tier, sure = usage.AnyTier, false
			}
		}
	}
	switch {
	case p.by >= 0:
		model, found = r.value(p.by)
	case p.readsBody(&r.scratch):
		if r.body != nil {
			var certain bool
			model, found, certain = r.body.text(p.text)
			sure = sure && certain
		}
		if len(model) > p.longest {
			sure = false
		} else if !found && sure {
			model, found = p.otherwise, len(p.otherwise) > 0
		}
	default:
		path, _ := proxywasm.RequestHeader(":path")
		model, found = r.scratch.modelIn(withoutQuery(path)), true
	}
	if p.named = p.named[:0]; p.list.HasTiers() {
		p.named = append(p.named, model[:min(len(model), usage.MaxModel+1)]...) // no list tells the rest apart
	}
	if p.sure, p.unknown = sure && found, false; !sure {
		p.rates, p.model = p.list.Most(), ""
		return
	}
	rates, entry, known := p.finder.Find(p.list, p.tier, model)
	p.rates, p.model, p.unknown = rates, entry, !known && found
}

// inUnits returns the cost of a number of tokens of an answer, and of a prompt.
func (p *pricing) inUnits(answer, prompt uint64) uint64 {
	var sum usage.Sum
	out, in := p.list.Highest(p.rates, p.model, prompt)
	sum.Add(answer, out)
	sum.Add(prompt, in)
	if units, ok := sum.Whole(); ok {
		return units
	}
	return refusedCost - 1 // no limit has room for it
}

// batchTier is the tier of a request to an API of batches. The requests of a batch are priced there.
const batchTier = "batch"

// isBatch reports whether a path is that of an API of batches: a part of it is batches, which is no model's name. One that goes
// up, in any way in which upstreams read it, may lead elsewhere.
func (s *scratch) isBatch(path []byte) (is bool) {
	names := false // a model, by the next part
	for len(path) > 0 {
		var part []byte
		part, path = next(path, '/')
		switch part = s.unescape(part); {
		case len(part) == 0 || string(part) == ".":
			continue
		case bytes.HasPrefix(part, []byte("..")) || bytes.IndexByte(part, '/') >= 0 || bytes.IndexByte(part, '\\') >= 0: // ContainsAny would take 7 KB of code
			return false
		case string(part) == "batches":
			is = is || !names
		}
		names = !names && beforeModel(part) >= 0
	}
	return is
}

// modelIn returns the name of the model in a path, nil for none: for Gemini the part after models
// and before a colon, for Bedrock that after model, for Azure the name of a deployment, and in OpenAI's
// oldest paths that of an engine. Upstreams read names in either form, with percent escapes or without.
func (s *scratch) modelIn(path []byte) []byte {
	for len(path) > 0 {
		var part []byte
		part, path = next(path, '/')
		part = s.unescape(part)
		i := beforeModel(part)
		if i < 0 {
			continue
		}
		name, rest := next(path, '/')
		if name = s.unescape(name); modelsIn[i].colon {
			name, rest = next(name, ':')
		}
		if len(name) > 0 && rest != nil {
			return name
		}
	}
	return nil
}

var modelsIn = [...]struct {
	before string
	colon  bool
}{{"models", true}, {"model", false}, {"deployments", false}, {"engines", false}}

// beforeModel returns which of modelsIn a part of a path is; -1 if none.
func beforeModel(part []byte) int {
	for i := range modelsIn {
		if string(part) == modelsIn[i].before {
			return i
		}
	}
	return -1
}

// unescape decodes percent escapes in a part of a path.
func (s *scratch) unescape(encoded []byte) []byte {
	if bytes.IndexByte(encoded, '%') < 0 {
		return encoded
	}
	s.decoded = s.decoded[:0]
	for len(encoded) > 0 {
		b, rest := encoded[0], encoded[1:]
		if b != '+' {
			b, rest = decoded(encoded)
		}
		s.decoded, encoded = append(s.decoded, b), rest
	}
	return s.decoded
}
