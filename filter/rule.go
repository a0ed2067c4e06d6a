package filter

import (
	"weir/config"
	"weir/internal/clientip"
	"weir/internal/counter"
	"weir/internal/jsonpath"
	"weir/internal/pattern"
)

// requestRule is a rule as requests need it: whether it matches, and what it counts for which key.
type requestRule struct {
	always bool // it applies to all requests
	match  matcher
	except []matcher
	// keyPrefix begins the rule's keys: its name with its length before it.
	keyPrefix []byte
	key       []keyPart
	cost      cost
	most      uint64 // that a request may take; 0 if it may take whatever has room
	// texts are those of the request's body that the rule reads, for its match, its key or its limits.
	texts []*part
	// onResponse is counted when the response is there, if costsLater says so.
	costsLater bool
	onResponse cost
	// charges says that what a request takes is put right when the response has told its cost:
	// reserves, that it takes the place of what was taken. usage is nil if the body does not tell it.
	charges, reserves, keeps bool
	// says reports whether that is a part of the request, and none of Envoy's attributes, which a filter may
	// set until the response is there. notes reports whether that, or anything else of the request, has to
	// be known when its response is there.
	says, notes bool
	// cuts says that streams are ended that cost too much, and guesses, that the events of streams are
	// charged until these tell: a shadow rule charges as the rule would that it may become.
	cuts, guesses bool
	// fails says that such a stream ends with an error.
	fails bool
	// hold is for how many nanoseconds a request may hold what it has taken; 0 if it does not give that
	// back when it ends.
	hold int64
	// when are the statuses of the responses that are charged; nil for all.
	when   *config.Statuses
	usage  *config.Usage
	prices *pricing // of the tokens; nil if these are counted themselves
	shadow bool
	// variants are nil if the limits are the same for all requests.
	variants *variants
}

// matcher decides whether a rule applies to a request, or an exception from it.
type matcher struct {
	all        bool // requests match
	conditions []condition
	methods    []string
	methodsAt  int
	// body are conditions about the request's body.
	body []condition
}

// condition is about one property: how it compares, or the networks that it has to be in.
type condition struct {
	_ [0]func() // or else Go makes a function that compares values

	at       int
	op       config.MatchOp
	value    string
	pattern  *pattern.Pattern
	networks []clientip.Prefix
}

// applies reports whether a rule applies to the current request.
func (r *request) applies(rule *requestRule) bool {
	if !rule.match.all && !r.matches(&rule.match) {
		return false
	}
	for i := range rule.except {
		if e := &rule.except[i]; r.matches(e) && (len(e.body) == 0 || !r.awaited) {
			return false
		}
	}
	return true
}

func (r *request) matches(m *matcher) bool {
	if len(m.methods) > 0 {
		method, _ := r.value(m.methodsAt)
		if !oneOf(m.methods, method) {
			return false
		}
	}
	for i := range m.conditions {
		c := &m.conditions[i]
		value, ok := r.value(c.at)
		if len(c.networks) > 0 {
			if !clientip.In(value, c.networks, &r.scratch.network) {
				return false
			}
		} else if !c.holds(value, ok) {
			return false
		}
	}
	return r.awaited || len(m.body) == 0 || r.saysAll(m.body)
}

// saysAll reports whether all conditions about the current request's body hold.
//
//go:noinline
func (r *request) saysAll(conditions []condition) bool {
	for i := range conditions {
		c := &conditions[i]
		if value, ok := r.value(c.at); !c.holds(value, ok) {
			return false
		}
	}
	return true
}

func oneOf(wanted []string, value []byte) bool {
	for _, w := range wanted {
		if string(value) == w {
			return true
		}
	}
	return false
}

// holds reports whether a value, if there is one, is as the condition wants it.
func (c *condition) holds(value []byte, ok bool) bool {
	switch n := len(c.value); c.op {
	case config.Exact:
		return ok && string(value) == c.value
	case config.Prefix:
		return ok && len(value) >= n && string(value[:n]) == c.value
	case config.Suffix:
		return ok && len(value) >= n && string(value[len(value)-n:]) == c.value
	case config.Regex:
		return ok && c.pattern.Matches(value)
	case config.Present:
		return ok
	default:
		return !ok
	}
}

// compile resolves what a rule asks of requests.
func (r *request) compile(c *config.Rule) requestRule {
	compiled := requestRule{keyPrefix: counter.AppendPart(nil, c.Name), shadow: c.Shadow}
	compiled.cost, compiled.most = cost{fixed: c.Cost}, c.MostPerRequest
	if c.CostFrom != nil {
		compiled.cost = cost{selected: true, property: r.said(c.CostFrom), least: c.CostLeast, most: c.CostMost}
	}
	if s := c.CostOnResponse; s != nil && s.Kind == config.SelectResponseHeader {
		compiled.costsLater, compiled.onResponse = true, cost{responseHeader: s.Name}
	} else if s != nil {
		compiled.costsLater, compiled.onResponse = true, cost{selected: true, property: r.said(s)}
	}
	if c.CostFromBody != nil {
		b := c.CostFromBody
		compiled.cost = cost{
			selected: true, body: b, fixed: b.Default, least: c.CostLeast, most: min(c.CostMost, refusedCost-1),
		}
	}
	compiled.usage, compiled.reserves, compiled.keeps = c.Usage, c.Reserve, c.KeepOnFailure
	compiled.cuts, compiled.guesses = c.Cut && !c.Shadow, c.Cut
	compiled.fails = c.CutFails
	compiled.when = c.ChargeWhen
	compiled.charges = c.Usage != nil || c.Reserve || c.ChargeWhen != nil || c.Hold != 0
	compiled.hold = int64(c.Hold)
	compiled.costsLater = compiled.costsLater && !compiled.charges
	compiled.says = compiled.charges && compiled.onResponse.selected && r.properties[compiled.onResponse.property].path == ""
	compiled.prices = r.pricing(c.Prices)
	compiled.notes = compiled.says || c.Cut && c.Usage.Auto || c.Prices != nil
	compiled.match = r.matcher(&c.Match)
	for i := range c.Except {
		e := &c.Except[i]
		m := r.matcher(&e.Match)
		if len(e.Networks) > 0 {
			m.conditions = append(m.conditions, condition{at: r.use(sourceProperty), networks: e.Networks})
		}
		compiled.except = append(compiled.except, m)
	}
	compiled.always = compiled.match.all && len(compiled.except) == 0
	compiled.readTexts(r, compiled.match.body)
	for i := range compiled.except {
		compiled.readTexts(r, compiled.except[i].body)
	}
	for i := range c.Key {
		compiled.key = append(compiled.key, r.selected(&c.Key[i]))
		compiled.readText(r, compiled.key[i].property)
	}
	if c.Overrides.By != nil {
		compiled.readText(r, r.said(c.Overrides.By))
	}
	return compiled
}

// readTexts notes the texts of the body that conditions are about.
func (rule *requestRule) readTexts(r *request, conditions []condition) {
	for i := range conditions {
		rule.readText(r, conditions[i].at)
	}
}

// readText notes a property that is a text of the body.
func (rule *requestRule) readText(r *request, property int) {
	if p := r.properties[property].part; p.kind == bodyText {
		rule.texts = append(rule.texts, &p)
	}
}

// readsBody reports whether the rule wants to know anything of a request's body.
func (rule *requestRule) readsBody() bool {
	return rule.cost.body != nil || len(rule.texts) > 0 || rule.prices != nil && rule.prices.textPath != nil
}

func (r *request) matcher(c *config.Match) (m matcher) {
	if c.Path != nil {
		m.conditions = append(m.conditions, compare(r.usePart(pathProperty, part{kind: barePath}), c.Path))
	}
	if c.Host != nil {
		m.conditions = append(m.conditions, compare(r.usePart(hostProperty, part{kind: bareHost}), c.Host))
	}
	for i := range c.Headers {
		m.conditions = append(m.conditions, compare(r.use(property{header: c.Headers[i].Name, lines: joinedLines}), &c.Headers[i].StringMatch))
	}
	for i := range c.Body {
		m.body = append(m.body, compare(r.useBody(c.Body[i].Path, "", jsonpath.MaxValue), &c.Body[i].StringMatch))
	}
	if len(c.Methods) > 0 {
		m.methods, m.methodsAt = c.Methods, r.use(methodProperty)
	}
	m.all = len(m.conditions) == 0 && len(m.methods) == 0 && len(m.body) == 0
	return m
}

func compare(at int, m *config.StringMatch) condition {
	c := condition{at: at, op: m.Op, value: m.Value}
	if m.Op == config.Regex {
		c.pattern, _ = pattern.Compile(m.Value) // the configuration was checked
	}
	return c
}

// appendKey appends the key of a rule for the current request. Each value's length comes before it,
// so that no two lists of values give the same key.
func (r *request) appendKey(dst []byte, rule *requestRule) []byte {
	dst = append(dst, rule.keyPrefix...)
	for i := range rule.key {
		p := &rule.key[i]
		value, _ := r.value(p.property)
		dst = counter.AppendPart(dst, p.counted(value, &r.scratch.network))
	}
	return dst
}
