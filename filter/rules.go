package filter

import (
	"weir/config"
	"weir/internal/counter"
	"weir/internal/node"
	"weir/internal/usage"
	"weir/window"
)

var _ node.Owner = (*rules)(nil)

// rules are those of a configuration, and the memory in which requests meet them one after the other.
type rules struct {
	request request
	list    []requestRule // what they match, and whom they count
	limits  []node.Rule
	demands []node.Demand // of the request being decided
	keys    []byte        // of these demands, one after the other
	// costsLater reports whether any rule counts what the response costs.
	costsLater bool
	// charges reports whether any rule puts right what a request has taken when its response has
	// told what it costs.
	charges bool
	notes   bool // any of them by what the request says
	// bounds reports whether any rule bounds what a request may take.
	bounds bool
	// marks reports whether any rule marks requests that it has no room for, or would if it were no
	// shadow: the routes may be there already.
	marks bool
	// readsBodies reports whether any rule wants to know what a request's body says.
	readsBodies bool
}

// compile makes what requests need from the configuration, with the answers of its rules.
func (r *rules) compile(c *config.Config, a *answer) {
	r.list, r.limits, r.demands = make([]requestRule, len(c.Rules)), make([]node.Rule, len(c.Rules)), make([]node.Demand, len(c.Rules))
	for i := range c.Rules {
		c, rule, l := &c.Rules[i], &r.list[i], &r.limits[i]
		*rule = r.request.compile(c)
		rule.variants = r.request.compileVariants(c)
		r.costsLater = r.costsLater || rule.costsLater
		r.charges = r.charges || rule.charges
		r.notes = r.notes || rule.notes
		r.bounds = r.bounds || rule.most != 0
		r.marks = r.marks || c.Marks
		r.readsBodies = r.readsBodies || rule.readsBody()
		l.Limits, l.SyncRate, l.Prefix = c.Limits, int64(c.SyncRate), rule.keyPrefix
		l.CountRejected, l.CostsLater, l.Shadow, l.Reveal = c.CountRejected, rule.costsLater || rule.charges, c.Shadow, c.Reveal
		l.WarnAt, l.Marks = c.WarnAt, c.Marks && !c.Shadow
		if rule.variants != nil {
			l.Widest = c.Widest()
		}
		l.Delay = node.Delay{Most: int64(c.Delay), Queue: c.Queue}
		if c.Block != 0 {
			l.Blocks, l.Extends = true, c.Extend
			l.Limits = blocking(l.Limits, window.NewBlock(int64(c.Block)))
			if l.Widest != nil {
				l.Widest = blocking(l.Widest, window.NewBlock(int64(c.Block)))
			}
		}
		l.Tag = &a.rules[i]
	}
}

// makeVariants makes the rules' variants, now that there is a node that knows the rules.
func (r *rules) makeVariants(c *config.Config) {
	for i := range r.list {
		if rule := &r.list[i]; rule.variants != nil {
			rule.variants.make(&c.Rules[i], rule.key, &r.limits[i])
		}
	}
}

// find finds the rules that apply to the current request, and the keys that it has for them. Those
// that only measure are apart.
func (r *rules) find() (demands, shadows []node.Demand) {
	r.request.begin()
	keys := r.keys[:0]
	if cap(keys) > maxIdleKeys {
		keys = nil
		r.forgetKeys()
	}
	n, end := 0, len(r.demands)
	for i := range r.list {
		rule := &r.list[i]
		if !rule.always && !r.request.applies(rule) {
			continue
		}
		d := &r.demands[n]
		if rule.shadow {
			end--
			d = &r.demands[end]
		} else {
			n++
		}
		d.Rule = &r.limits[i]
		if rule.prices == nil {
			d.Cost, d.Model = r.request.cost(&rule.cost), ""
		} else {
			d.Cost = r.request.costOf(rule)
			d.Model = rule.prices.model
		}
		if rule.most != 0 && d.Cost > rule.most && (d.Cost != refusedCost || rule.cost.body == nil) {
			d.Cost = tooLargeCost
		}
		begin := len(keys)
		keys = r.request.appendKey(keys, rule)
		d.Key = keys[begin:len(keys):len(keys)]
		if rule.variants != nil {
			d.Rule = rule.variants.limitsOf(&r.request, d.Rule, d.Key)
		}
	}
	r.keys = keys
	return r.demands[:n], r.demands[end:]
}

// forgetKeys gives back the memory of keys that are longer together than is kept.
//
//go:noinline
func (r *rules) forgetKeys() {
	for i := range r.demands {
		r.demands[i].Key = nil
	}
}

// findAwaiting finds the rules that may apply to the current request, whose body is yet to come,
// and what that has to tell them: nil if no rule wants to know. Then the demands are those of the
// request.
//
//go:noinline
func (r *rules) findAwaiting(b *bodies) (demands, shadows []node.Demand, t *told) {
	q := &r.request
	bad, absent := q.badCosts, q.absentCosts
	q.awaited = true
	demands, shadows = r.find()
	q.awaited = false
	if t = b.begin(r.list, demands, shadows); t != nil {
		q.badCosts, q.absentCosts = bad, absent // findByBody counts them
	}
	return demands, shadows, t
}

// findByBody finds the rules that apply to a request whose body has told what they want to know, or
// has not.
func (r *rules) findByBody(b *told) (demands, shadows []node.Demand) {
	q := &r.request
	q.told = b
	demands, shadows = r.find()
	q.told = nil
	if b.unread {
		q.unreadBodies++
	}
	return demands, shadows
}

// tooLarge is the first of the demands whose rule allows no request that takes as much, or -1.
func (r *rules) tooLarge(demands []node.Demand) int {
	for i := range demands {
		if d := &demands[i]; d.Cost == tooLargeCost && r.of(d).most != 0 {
			return i
		}
	}
	return -1
}

// of is the rule of a demand.
func (r *rules) of(d *node.Demand) *requestRule { return &r.list[d.Rule.Index] }

// laterCost returns the cost of the response, as the current request says it.
func (r *rules) laterCost(d *node.Demand) uint64 {
	if rule := r.of(d); rule.costsLater && rule.onResponse.selected {
		hits, _ := r.request.selectedCost(&rule.onResponse, usage.Most)
		return hits
	}
	return 0
}

// AppendKey implements node.Owner: the key is the same that [request.appendKey] has for a request
// with these values.
func (r *rules) AppendKey(key []byte, rule int, values [][]byte) ([]byte, bool) {
	parts := r.list[rule].key
	if len(values) != len(parts) {
		return key, false
	}
	key = append(key, r.list[rule].keyPrefix...)
	for i, value := range values {
		key = counter.AppendPart(key, parts[i].counted(value, &r.request.scratch.network))
	}
	return key, true
}

// Tag implements node.Owner: it has all that clients see of a rule with these limits.
func (r *rules) Tag(rule int, limits []window.Limit) any {
	return answerOf(&r.limits[rule]).with(limits)
}

// costOf returns how many hits the current request takes of a rule that has prices.
//
//go:noinline
func (r *request) costOf(rule *requestRule) uint64 {
	rule.prices.find(r)
	body := rule.cost.body
	switch {
	case !rule.reserves:
		return r.cost(&rule.cost)
	case body == nil:
		return rule.prices.inUnits(r.cost(&rule.cost), 0)
	}
	tokens := r.bodyCost(&rule.cost)
	if tokens == refusedCost {
		return refusedCost
	}
	return rule.prices.inUnits(tokens, r.promptTokens(body.BytesPerToken))
}
