package filter

import (
	"bytes"
	"math"
	"strconv"

	"weir/config"
	"weir/internal/jsonpath"
	"weir/internal/proxywasm"
	"weir/internal/wire"
)

// A request that asks for more tokens than its key has left can be made to ask for fewer, so that it
// passes. The number is the one that the rule reserves by.

// limitTokens has the current request, whose JSON ends in the present piece, ask for no more tokens than
// its keys have left, as far as this node knows. If it fits, can't be changed, or would not fit with a
// single token, it stays as it is.
func (all *streams) limitTokens(v *bodyValues) {
	r, b, whole := &all.rules, &all.bodies, v.whole
	v.whole = true // only white space may follow
	r.request.beginRequest(v)
	now, others := all.decider.now(), len(b.edits)
	for i := range r.list {
		if rule := &r.list[i]; r.limitsTokens(rule) && !all.fit(rule, v, now) {
			v.most = 0
			break
		}
	}
	for i := range r.list {
		if rule := &r.list[i]; v.most != 0 && r.limitsTokens(rule) && !b.lower(v, &rule.cost) {
			v.most, b.edits = 0, b.edits[:others]
		}
	}
	v.whole = whole
}

func (r *rules) limitsTokens(rule *rule) bool {
	return rule.config.LimitTokens && rule.mode == wire.Enforce && (rule.always || r.request.applies(rule, settled))
}

// fit lowers the most tokens of the current request until a rule has room for it. It returns false if
// no number does that.
func (all *streams) fit(rule *rule, v *bodyValues, now int64) bool {
	r, d := &all.rules, &all.rules.looked
	cost := r.request.costOf(rule)
	if most := rule.config.MostPerRequest; cost == refusedCost || most != 0 && cost > most {
		return false
	}
	d.Rule, d.Cost = rule.limits, 0
	r.keys = r.request.appendKey(r.keys[:0], rule)
	d.Key = r.keys
	if rule.variants != nil {
		d.Rule = rule.variants.limitsOf(&r.request, d)
	}
	all.decider.node.Look(d, now)
	room := d.Counter.Room(now)
	if cost <= room {
		return true
	}
	low, high := uint64(0), max(v.numbersOf(rule.cost.body).Largest, rule.cost.fixed)
	if v.most != 0 {
		high = min(high, v.most)
	}
	for low+1 < high { // low fits, high does not
		v.most = low + (high-low)/2
		if r.request.costOf(rule) <= room {
			low = v.most
		} else {
			high = v.most
		}
	}
	v.most = low
	return low != 0
}

// mostTokens is the largest number that the request may have where a cost is read.
func (v *bodyValues) mostTokens(c *cost) uint64 {
	if v == nil || v.most == 0 || c.absent == nil {
		return math.MaxUint64
	}
	return v.most
}

// lower writes the most tokens into the body, in the places that a rule reads. It returns false if
// that is impossible.
func (b *bodies) lower(v *bodyValues, c *cost) bool {
	b.number = strconv.AppendUint(b.number[:0], v.most, 10)
	if !v.numbersOf(c.body).Found {
		return c.fixed <= v.most || b.lowerAt(v, c.numberFor())
	}
	for _, path := range c.body.Paths {
		if v.numbersAt(path).Largest > v.most && !b.lowerAt(v, path) {
			return false
		}
	}
	return true
}

func (b *bodies) lowerAt(v *bodyValues, path *jsonpath.Path) bool {
	p := v.numbersPart(path)
	return p != nil && b.set(v, &p.reader, b.number)
}

// absentNumber is the number that a request without one gets, in the API with a part in its path.
type absentNumber struct {
	part string
	path *jsonpath.Path
}

// absentNumbers returns which numbers to give to requests: the only one of a list, or the first that
// the API at the request's path has.
func absentNumbers(c *config.BodyCost) (list []absentNumber) {
	if len(c.Paths) == 1 {
		return []absentNumber{{"", c.Paths[0]}}
	}
	for _, p := range c.Paths {
		name := p.Join(".")
		for i := range numbersOfAPIs {
			if of := &numbersOfAPIs[i]; of.name == name {
				list = append(list, absentNumber{of.part, p})
			}
		}
	}
	return list
}

// numbersOfAPIs are the names of the most tokens in the APIs with the end of their paths.
var numbersOfAPIs = [...]struct{ part, name string }{
	{"/completions", "max_tokens"}, {"/chat/completions", "max_completion_tokens"}, {"/responses", "max_output_tokens"},
	{"/messages", "max_tokens"}, {"enerateContent", "generationConfig.maxOutputTokens"}, {"/converse", "inferenceConfig.maxTokens"}, {"/converse-stream", "inferenceConfig.maxTokens"},
	{"/api/chat", "options.num_predict"}, {"/api/generate", "options.num_predict"},
}

// numberFor returns the number to give to the current request, or nil.
func (c *cost) numberFor() (number *jsonpath.Path) {
	path, _ := proxywasm.RequestHeader(":path")
	path = withoutQuery(path)
	longest := -1 // the only path of a rule is for any API
	for i := range c.absent {
		if part := c.absent[i].part; len(part) > longest && bytes.HasSuffix(path, []byte(part)) {
			longest, number = len(part), c.absent[i].path
		}
	}
	return number
}
