package filter

import (
	"weir/config"
	"weir/internal/counter"
	"weir/internal/engine"
	"weir/internal/proxywasm"
	"weir/internal/usage"
	"weir/internal/wire"
	"weir/sharedata"
	"weir/window"
)

var _ engine.Owner = (*rules)(nil)

// rules are the rules of a configuration, and memory that their requests use in turn.
type rules struct {
	request request
	list    []rule
	limits  []engine.Rule  // what the node decides, by the same index
	checks  []engine.Check // of the request being decided
	keys    []byte         // the keys of these checks, concatenated
	// costsLater means that some rule charges the response's cost later.
	costsLater bool
	// charges means that some rule corrects a request's hits when its response has told the cost.
	charges bool
	// needsHints means that some of them needs to know of the request then.
	needsHints bool
	// bounds means that some rule bounds the hits of a request.
	bounds bool
	// marks means that some rule marks requests without room, or would if it were not a shadow
	// rule: routes for marked requests may exist already.
	marks bool
	// readsBodies means that some rule reads a request's body, and holds that some has places.
	readsBodies, holds bool
	// leaves means that a stream may have more to do than to wait when its request was decided.
	leaves bool
	// only is the only rule, if it asks for nothing that few rules ask for; otherwise nil.
	only *rule
	// upstream means that some rule follows what the upstream tells of its own limits.
	upstream bool
	// looked is a check that only looks at its key.
	looked engine.Check
	// looks means that the current request only asks how its limits stand.
	looks bool
}

func (r *rules) compile(c *config.Config) {
	r.list, r.limits, r.checks = make([]rule, len(c.Rules)), make([]engine.Rule, len(c.Rules)), nil
	places := 0
	for i := range c.Rules {
		c, rule := &c.Rules[i], &r.list[i]
		*rule = r.request.compile(c)
		r.costsLater = r.costsLater || rule.costsLater
		r.charges = r.charges || rule.charges
		r.needsHints = r.needsHints || rule.needsHints
		r.bounds = r.bounds || c.MostPerRequest != 0
		r.marks = r.marks || c.Marks
		r.readsBodies = r.readsBodies || rule.readsBody
		r.holds = r.holds || c.Hold != 0
		l := &r.limits[i]
		rule.limits = l
		l.Limits, l.SyncRate, l.Prefix = c.Limits, int64(c.SyncRate), counter.AppendPart(nil, c.Name)
		l.CountRejected, l.CostsLater, l.Shadow, l.Reveal = c.CountRejected, rule.costsLater || rule.charges, c.Shadow, c.Reveal
		l.WarnAt, l.Marks = c.WarnAt, c.Marks
		for j := range rule.key {
			if rule.key[j].address {
				l.Addresses |= 1 << j
			}
		}
		places++
		if c.Classes != nil {
			places += engine.MaxPlaces - 1
			l.Fair = c.Classes.Fair
			for _, of := range c.Classes.Of {
				l.Classes = append(l.Classes, engine.Class(of))
			}
		}
		if rule.variants != nil {
			l.Widest = c.Widest()
		}
		l.Delay = engine.Delay{Most: int64(c.Delay), Queue: c.Queue}
		r.leaves = r.leaves || c.Delay != 0
		if r.upstream = r.upstream || c.Upstream; c.Block != 0 || c.Upstream {
			block := window.NewHold()
			if c.Block != 0 {
				l.Blocks, l.Extends, block = true, c.Extend, window.NewBlock(int64(c.Block))
			}
			l.Limits = blocking(l.Limits, block)
			if l.Widest != nil {
				l.Widest = blocking(l.Widest, block)
			}
		}
	}
	r.checks = make([]engine.Check, places)
	r.leaves = r.leaves || r.costsLater || r.charges || r.needsHints || r.readsBodies || r.upstream
	if of := &r.list[0]; len(r.list) == 1 && !r.leaves && !r.bounds && !r.marks && !r.request.shared && !c.AccessLog && c.UsagePath == "" &&
		of.always && of.class < 0 && of.variants == nil && !of.cost.selected {
		r.only = of
	}
}

// makeVariants makes the rules' variants once there is a node that knows the rules.
func (r *rules) makeVariants(table *sharedata.Table) {
	for i := range r.list {
		if rule := &r.list[i]; rule.variants != nil {
			rule.variants.table = table
			rule.variants.addOverrides(&rule.config.Overrides, rule.key, rule.limits)
		}
	}
}

// findChecks returns checks on the rules that apply to the current request, with its keys. Those
// of shadow rules are separate. The request was begun.
func (r *rules) findChecks() (checks, shadows []engine.Check) {
	keys := r.keys[:0]
	if cap(keys) > maxIdleKeys {
		keys = nil
		r.forgetKeys()
	}
	n, end := 0, len(r.checks)
	for i := range r.list {
		rule := &r.list[i]
		if !rule.always && !r.request.applies(rule, settled) {
			continue
		}
		at, class, places := n, 0, 1
		if rule.class >= 0 {
			class, places = r.request.classOf(rule)
		}
		switch rule.mode {
		case wire.Enforce:
			n += places
		case wire.Off:
			if !r.looks {
				rule.off.count++
			}
			continue
		default:
			end -= places
			at = end
		}
		d := &r.checks[at]
		d.Rule = rule.limits
		d.Cost, d.Model = r.request.costOf(rule), ""
		if rule.prices != nil {
			d.Model = rule.prices.model
		}
		if most := rule.config.MostPerRequest; most != 0 && d.Cost > most && (d.Cost != refusedCost || rule.cost.body == nil) {
			d.Cost = tooLargeCost
		}
		begin := len(keys)
		end := len(rule.key)
		if rule.limits.Fair {
			end-- // the keys of a class share the counters
		}
		keys = r.request.appendKeyTo(keys, rule, end)
		d.Key = keys[begin:len(keys):len(keys)]
		if rule.variants != nil {
			d.Rule = rule.variants.limitsOf(&r.request, d)
		}
		if rule.class >= 0 {
			keys = r.divide(r.checks[at:at+places], class, keys)
		}
	}
	r.keys = keys
	return r.checks[:n], r.checks[end:]
}

// classOf is the class of the current request, or -1, and how many checks it needs.
func (r *request) classOf(rule *rule) (class, places int) {
	value, _ := r.value(rule.class)
	list := rule.limits.Classes
	for class = len(list) - 1; class >= 0 && list[class].Name != string(value); class-- {
	}
	return class, rule.limits.Places(class)
}

// divide makes checks on the parts of a rule that a class has out of the first, which is on all of it.
// Its key is the last of keys.
func (r *rules) divide(checks []engine.Check, class int, keys []byte) []byte {
	all := &checks[0]
	of, key := all.Rule, all.Key
	for i := range checks {
		d := &checks[i]
		d.Rule, d.Cost, d.Model = of.Place(class, i), all.Cost, all.Model
		begin := len(keys) - len(key)
		switch {
		case i == 0:
		case of.Fair && i == len(checks)-1:
			begin = len(keys)
			keys = r.request.appendKey(keys, r.of(d))
		default:
			begin = len(keys)
			keys = append(keys, key...)
		}
		keys = counter.AppendPart(keys, d.Rule.Value)
		d.Key = keys[begin:len(keys):len(keys)]
	}
	return keys
}

// forgetKeys frees the memory of keys if it is above the bound.
func (r *rules) forgetKeys() {
	for i := range r.checks {
		r.checks[i].Key = nil
	}
}

// unread returns the index of the first check whose rule refuses a body that can't be read, or -1.
func (r *rules) unread(checks []engine.Check) int {
	for i := range checks {
		if d := &checks[i]; d.Cost == refusedCost && r.of(d).cost.body != nil {
			return i
		}
	}
	return -1
}

// tooLarge returns the index of the first check above its rule's bound, or -1.
func (r *rules) tooLarge(checks []engine.Check) int {
	for i := range checks {
		if d := &checks[i]; d.Cost == tooLargeCost && r.of(d).config.MostPerRequest != 0 {
			return i
		}
	}
	return -1
}

func (r *rules) of(d *engine.Check) *rule { return &r.list[d.Rule.Index] }

// deferredCost returns the response's cost if the current request tells it.
func (r *rules) deferredCost(d *engine.Check) uint64 {
	if rule := r.of(d); rule.costsLater && rule.onResponse.selected {
		hits, _ := r.request.selectedCost(&rule.onResponse, usage.Most)
		return hits
	}
	return 0
}

// AppendKey implements engine.Owner: it appends the key that [request.appendKey] makes for these
// values.
func (r *rules) AppendKey(key []byte, rule int, values [][]byte) ([]byte, bool) {
	parts := r.list[rule].key
	if len(values) != len(parts)+min(1, len(r.limits[rule].Classes)) {
		return key, false
	}
	key = append(key, r.limits[rule].Prefix...)
	for i, value := range values {
		if i < len(parts) {
			value = parts[i].counted(value, &r.request.scratch.network)
		}
		key = counter.AppendPart(key, value)
	}
	return key, true
}

// Move implements engine.Owner. Requests under way are decided by the rule's mode when they came.
func (r *rules) Move(index int, mode wire.Mode) {
	rule := &r.list[index]
	text := wire.ModeNames[mode]
	if mode == wire.Configured {
		mode = configured(rule.config)
	}
	rule.move(mode)
	proxywasm.Log(proxywasm.LogWarn, "weir: rule "+rule.config.Name+": mode set at run time: "+text)
}

// KeyOf implements observe.Teller.
func (r *rules) KeyOf(rule int) (key []byte, varies wire.RuleFlags) {
	of := &r.list[rule]
	key = make([]byte, 2*len(of.key))
	for i := range of.key {
		key[2*i], key[2*i+1] = byte(of.key[i].prefix4), byte(of.key[i].prefix6)
	}
	if of.config.Varies() {
		varies = wire.Varies
	}
	if len(of.limits.Classes) > 0 {
		key = append(key, 0, 0)
		varies |= wire.Classes
	}
	if of.limits.Fair {
		clear(key[len(key)-4:])
		varies |= wire.Fair
	}
	return key, varies
}

// costOf returns the number of hits that the current request takes from a rule.
func (r *request) costOf(rule *rule) uint64 {
	if rule.prices == nil {
		return r.cost(&rule.cost)
	}
	rule.prices.tellTime()
	rule.prices.findRates(r)
	body := rule.cost.body
	switch {
	case !rule.config.Reserve:
		return r.cost(&rule.cost)
	case body == nil:
		return rule.prices.inUnits(r.cost(&rule.cost), 0)
	}
	tokens, prompt := r.bodyCost(&rule.cost)
	if tokens == refusedCost {
		return refusedCost
	}
	return rule.prices.inUnits(tokens, prompt)
}
