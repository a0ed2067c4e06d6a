package filter

import (
	"weir/config"
	"weir/internal/clientip"
	"weir/internal/counter"
	"weir/internal/engine"
	"weir/internal/fields"
	"weir/internal/jsonpath"
	"weir/internal/pattern"
	"weir/internal/wire"
)

// rule is a rule as requests use it: which of them it matches, with which key and cost, and what
// clients and metrics see of it. The node has the limits.
type rule struct {
	_ [0]func() // keeps Go from generating an equality function

	config *config.Rule
	limits *engine.Rule
	// mode is the configuration's, unless the rule was moved at run time.
	mode   wire.Mode
	always bool // it applies to all requests
	match  matcher
	except []matcher
	key    []keyPart
	cost   cost
	// readsBody means that the rule reads a request's body. texts are what it reads of it for its
	// match, its key or its limits.
	readsBody bool
	texts     []*part
	// asks means that requests for streams are made to ask for their usage.
	asks bool
	// onResponse is charged when the response is there, if costsLater is set.
	costsLater bool
	onResponse cost
	// charges means that a request's hits are corrected when the response has told its cost.
	charges bool
	// hinted means that the request has the response's cost, and not an attribute of Envoy's that a
	// filter may set until the response is there. needsHints means that this, or anything else of
	// the request, must be remembered until then.
	hinted, needsHints bool
	prices             *pricing  // of the tokens; nil if the rule counts tokens
	variants           *variants // nil if the limits are the same for all requests

	// fields are the parts of its header fields that never change, and details its reason in access
	// logs.
	fields  fields.Rule
	details string

	// prefix begins the names of its metrics.
	prefix            string
	allowed, rejected tally
	marked            tally // passed although the rule had no room
	rejectedByOther   tally // would have passed this rule
	off               tally // passed uncounted, as the rule was off
	warnings          tally
	// wouldAllow and wouldReject are those of a shadow rule.
	wouldAllow, wouldReject tally
	// overshoot is the most hits above a limit that all nodes together can admit now.
	overshoot gauge
}

// details, followed by the rule's name, is the reason of a rejection in the proxy's access log.
const details = "weir_rate_limited:"

// cuts reports whether streams are ended if they cost too much.
func (r *rule) cuts() bool { return r.config.Cut && r.mode == wire.Enforce }

// move changes the mode.
func (r *rule) move(to wire.Mode) {
	r.mode, r.limits.Shadow = to, to == wire.Shadow
	r.define()
}

// configured is the mode of the configuration.
func configured(c *config.Rule) wire.Mode {
	if c.Shadow {
		return wire.Shadow
	}
	return wire.Enforce
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

// applies reports whether a rule applies to the current request, or may apply if its body is
// awaited: then conditions on the body are open.
func (r *request) applies(rule *rule, awaited bool) bool {
	if !rule.match.all && !r.matches(&rule.match, awaited) {
		return false
	}
	for i := range rule.except {
		if e := &rule.except[i]; (len(e.body) == 0 || !awaited) && r.matches(e, awaited) {
			return false
		}
	}
	return true
}

func (r *request) matches(m *matcher, awaited bool) bool {
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
	return awaited || len(m.body) == 0 || r.saysAll(m.body)
}

// saysAll reports whether all conditions on the current request's body hold.
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

// compile resolves everything that a rule reads from requests. Its limits are yet to come.
func (r *request) compile(c *config.Rule) rule {
	compiled := rule{config: c, mode: configured(c), fields: fields.NewRule(c.Name, c.Limits), details: details + c.Name}
	compiled.cost = cost{fixed: c.Cost}
	if c.CostFrom != nil {
		compiled.cost = cost{selected: true, property: r.propertyOf(c.CostFrom), least: c.CostLeast, most: c.CostMost}
	}
	if b := c.CostFromBody; b != nil {
		compiled.cost = cost{selected: true, body: b, fixed: b.Default, least: c.CostLeast, most: min(c.CostMost, refusedCost-1)}
	}
	compiled.charges = c.Usage != nil || c.Reserve || c.ChargeWhen != nil || c.Hold != 0
	if s := c.CostOnResponse; s != nil {
		compiled.costsLater = !compiled.charges
		if s.Kind == config.SelectResponseHeader {
			compiled.onResponse = cost{responseHeader: s.Name}
		} else {
			compiled.onResponse = cost{selected: true, property: r.propertyOf(s)}
			compiled.hinted = compiled.charges && r.properties[compiled.onResponse.property].path == ""
		}
	}
	if c.Prices != nil {
		compiled.prices = r.pricing(c.Prices)
		compiled.fields.Unit = []byte(c.Prices.Unit)
	}
	compiled.needsHints = compiled.hinted || c.Cut && c.Usage.Auto || c.Prices != nil
	compiled.match = r.matcher(&c.Match)
	for i := range c.Except {
		e := &c.Except[i]
		m := r.matcher(&e.Match)
		if len(e.Networks) > 0 {
			m.conditions = append(m.conditions, condition{at: r.useProperty(sourceProperty), networks: e.Networks})
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
		compiled.readText(r, r.propertyOf(c.Overrides.By))
	}
	compiled.readsBody = compiled.cost.body != nil || len(compiled.texts) > 0 || compiled.prices != nil && compiled.prices.textPath != nil
	compiled.asks = c.Asks(compiled.readsBody)
	compiled.cost.asks = compiled.asks
	compiled.readsBody = compiled.readsBody || compiled.asks
	compiled.variants = r.compileVariants(c)
	return compiled
}

// readTexts records the texts of the body that conditions read.
func (r *rule) readTexts(q *request, conditions []condition) {
	for i := range conditions {
		r.readText(q, conditions[i].at)
	}
}

// readText records a property if it is a text of the body.
func (r *rule) readText(q *request, property int) {
	if p := q.properties[property].part; p.kind == bodyText {
		r.texts = append(r.texts, &p)
	}
}

func (r *request) matcher(c *config.Match) (m matcher) {
	if c.Path != nil {
		m.conditions = append(m.conditions, compare(r.usePart(pathProperty, part{kind: barePath}), c.Path))
	}
	if c.Host != nil {
		m.conditions = append(m.conditions, compare(r.usePart(hostProperty, part{kind: bareHost}), c.Host))
	}
	for i := range c.Headers {
		m.conditions = append(m.conditions, compare(r.useProperty(property{header: c.Headers[i].Name, lines: joinedLines}), &c.Headers[i].StringMatch))
	}
	for i := range c.Body {
		m.body = append(m.body, compare(r.useBody(c.Body[i].Path, "", jsonpath.MaxValue), &c.Body[i].StringMatch))
	}
	if len(c.Methods) > 0 {
		m.methods, m.methodsAt = c.Methods, r.useProperty(methodProperty)
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
func (r *request) appendKey(dst []byte, rule *rule) []byte {
	dst = append(dst, rule.limits.Prefix...)
	for i := range rule.key {
		p := &rule.key[i]
		value, _ := r.value(p.property)
		dst = counter.AppendPart(dst, p.counted(value, &r.scratch.network))
	}
	return dst
}
