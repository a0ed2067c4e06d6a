package filter

import (
	"weir/config"
	"weir/internal/clientip"
	"weir/internal/counter"
	"weir/internal/jsonpath"
	"weir/internal/pattern"
)

// requestRule is a rule in the form that requests need: which requests it matches, with which key.
type requestRule struct {
	always bool // it applies to all requests
	match  matcher
	except []matcher
	// keyPrefix begins the rule's keys: its name, preceded by the name's length.
	keyPrefix []byte
	key       []keyPart
	cost      cost
	most      uint64 // the most hits that a request may take; 0 for no bound
	// texts are the texts of the request's body that the rule reads for its match, its key or its
	// limits.
	texts []*part
	// onResponse is charged when the response is there, if costsLater is set.
	costsLater bool
	onResponse cost
	// charges means that a request's hits are corrected when the response has told its cost. With
	// reserves, the cost replaces the hits; otherwise it is added. usage is nil if the body does
	// not tell the cost.
	charges, reserves bool
	onFailure         config.OnFailure
	// says means that the cost is told by the request, and not by an attribute of Envoy's that a
	// filter may set until the response is there. notes means that this, or anything else of the
	// request, must be remembered until then.
	says, notes bool
	// cuts means that streams are ended if they cost too much. guesses means that a stream's events
	// are charged until it tells its cost: a shadow rule does so too if the real rule would.
	cuts, guesses bool
	// fails means that a stream that is cut ends with an error.
	fails bool
	// hold is how long a request may hold its places, in nanoseconds; 0 if it holds none.
	hold int64
	// when are the response statuses to charge for; nil for all.
	when   *config.Statuses
	usage  *config.Usage
	prices *pricing // of the tokens; nil if the rule counts tokens
	shadow bool
	// variants are nil if the limits are the same for all requests.
	variants *variants
}

// matcher decides whether a request matches a rule, or an exception from it.
type matcher struct {
	all        bool // all requests match
	conditions []condition
	methods    []string
	methodsAt  int
	// body are conditions on the request's body.
	body []condition
}

// condition compares one property, or checks that it is in some networks.
type condition struct {
	_ [0]func() // keeps Go from generating an equality function

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

// saysAll reports whether all conditions on the current request's body hold.
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

// holds reports whether a value, or its absence, meets the condition.
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

// compile resolves everything that a rule reads from requests.
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
	compiled.usage, compiled.reserves, compiled.onFailure = c.Usage, c.Reserve, c.OnFailure
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

// readTexts records the texts of the body that conditions read.
func (rule *requestRule) readTexts(r *request, conditions []condition) {
	for i := range conditions {
		rule.readText(r, conditions[i].at)
	}
}

// readText records a property if it is a text of the body.
func (rule *requestRule) readText(r *request, property int) {
	if p := r.properties[property].part; p.kind == bodyText {
		rule.texts = append(rule.texts, &p)
	}
}

// readsBody reports whether the rule reads anything from a request's body.
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

// appendKey appends the rule's key for the current request. Each value is preceded by its length,
// so that different lists of values give different keys.
func (r *request) appendKey(dst []byte, rule *requestRule) []byte {
	dst = append(dst, rule.keyPrefix...)
	for i := range rule.key {
		p := &rule.key[i]
		value, _ := r.value(p.property)
		dst = counter.AppendPart(dst, p.counted(value, &r.scratch.network))
	}
	return dst
}
