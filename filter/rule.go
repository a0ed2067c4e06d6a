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
	// identifies means that a refusal has the request's id.
	identifies bool
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
	class              int       // the property that names a request's class; -1 if the rule has no classes

	// fields are the parts of its header fields that never change, and details its reason in access
	// logs.
	fields  fields.Rule
	details string
	// problems are the bodies of refusals by some of its limits; nil if its response has another.
	problems map[uint8]string

	// metrics are all rules' metrics, and prefix begins the names of this one's.
	metrics           *metrics
	prefix            string
	allowed, rejected tally
	marked            tally // passed although the rule had no room
	rejectedByOther   tally // would have passed this rule
	off               tally // passed uncounted, as the rule was off
	warnings          tally
	uneven            tally // rejected as the key has had its even part
	// wouldAllow and wouldReject are those of a shadow rule.
	wouldAllow, wouldReject tally
	// overshoot is the most hits above a limit that all nodes together can admit now.
	overshoot *gauge
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
	// last are the conditions on the request's body, and those that combine others.
	last []clause
}

// clause is a condition on the request's body, or holds if any of several matchers does, or if the
// only one does not.
type clause struct {
	body condition
	any  []matcher
	not  bool
}

// condition compares one property.
type condition struct {
	_ [0]func() // keeps Go from generating an equality function

	at      int
	op      config.MatchOp
	value   string
	pattern *pattern.Pattern
	wanted  *config.StringMatch // for operations that need more
}

// outlook says how conditions on the current request's body count.
type outlook int8

const (
	// doubtful and hopeful are for a body that is awaited: its conditions don't hold, or do. If a
	// request matches doubtfully, it will; if it does not even hopefully, it won't.
	doubtful outlook = iota - 1
	settled
	hopeful
)

// applies reports whether a rule applies to the current request, or may apply if its body is
// awaited.
func (r *request) applies(rule *rule, body outlook) bool {
	if !rule.match.all && !r.matches(&rule.match, body) {
		return false
	}
	for i := range rule.except {
		if r.matches(&rule.except[i], -body) {
			return false
		}
	}
	return true
}

func (r *request) matches(m *matcher, body outlook) bool {
	if len(m.methods) > 0 {
		method, _ := r.value(m.methodsAt)
		if !oneOf(m.methods, method) {
			return false
		}
	}
	for i := range m.conditions {
		c := &m.conditions[i]
		if value, ok := r.value(c.at); !c.holds(value, ok, &r.scratch) {
			return false
		}
	}
	return len(m.last) == 0 || r.meetsAll(m.last, body)
}

func (r *request) meetsAll(clauses []clause, body outlook) bool {
	for i := range clauses {
		if !r.meets(&clauses[i], body) {
			return false
		}
	}
	return true
}

func (r *request) meets(c *clause, body outlook) bool {
	switch {
	case c.not:
		return !r.matches(&c.any[0], -body)
	case len(c.any) == 0 && body == settled:
		value, ok := r.value(c.body.at)
		return c.body.holds(value, ok, &r.scratch)
	case len(c.any) == 0:
		return body == hopeful
	}
	for i := range c.any {
		if r.matches(&c.any[i], body) {
			return true
		}
	}
	return false
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
func (c *condition) holds(value []byte, ok bool, s *scratch) bool {
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
	case config.Absent:
		return !ok
	default:
		return ok && c.includes(value, s)
	}
}

// includes reports whether a value is one of several.
func (c *condition) includes(value []byte, s *scratch) bool {
	switch w := c.wanted; c.op {
	case config.In:
		_, ok := w.Texts[string(value)]
		return ok
	case config.InNetworks:
		return clientip.In(value, w.Networks, &s.network)
	default:
		n, ok := jsonpath.ParseDecimal(value)
		return ok && (w.Above == nil || n.Compare(w.Above) > 0) && (w.Below == nil || n.Compare(w.Below) < 0)
	}
}

// compile resolves everything that a rule reads from requests. Its limits are yet to come.
func (r *request) compile(c *config.Rule) rule {
	compiled := rule{config: c, mode: configured(c), fields: fields.NewRule(c.Name, c.Limits, unitOf(c)), details: details + c.Name}
	if c.Headers&fields.RateLimit != 0 && c.Response.Body == fields.Problem(c.Response.Status, "") {
		compiled.problems = map[uint8]string{}
	}
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
			compiled.hinted = compiled.charges && s.Kind != config.SelectProperty
		}
	}
	if c.Prices != nil {
		compiled.prices = r.pricing(c.Prices)
	}
	compiled.needsHints = compiled.hinted || c.Cut && c.Usage.Auto || c.Prices != nil
	compiled.match = r.matcher(&c.Match)
	compiled.readTexts(r, &compiled.match)
	for i := range c.Except {
		compiled.except = append(compiled.except, r.matcher(&c.Except[i]))
		compiled.readTexts(r, &compiled.except[i])
	}
	compiled.always = compiled.match.all && len(compiled.except) == 0
	for i := range c.Key {
		compiled.key = append(compiled.key, r.selected(&c.Key[i]))
		compiled.readText(r, compiled.key[i].property)
	}
	if c.Overrides.By != nil {
		compiled.readText(r, r.propertyOf(c.Overrides.By))
	}
	if compiled.class = -1; c.Classes != nil {
		compiled.class = r.propertyOf(&c.Classes.By)
		compiled.readText(r, compiled.class)
	}
	compiled.readsBody = compiled.cost.body != nil || len(compiled.texts) > 0 || compiled.prices != nil && compiled.prices.textPath != nil
	compiled.asks = c.Asks(compiled.readsBody)
	if compiled.cost.asks = compiled.asks; c.LimitTokens {
		compiled.cost.absent = absentNumbers(c.CostFromBody)
	}
	compiled.identifies = c.Response.Preset == fields.JSONRPC
	compiled.readsBody = compiled.readsBody || compiled.asks || compiled.identifies
	compiled.variants = r.compileVariants(c)
	return compiled
}

// unitOf is the unit of a rule's hits.
func unitOf(c *config.Rule) string {
	switch of := c.CostFrom; {
	case c.Prices != nil:
		return c.Prices.Unit
	case c.Usage != nil:
		return fields.ModelTokens
	case c.Hold != 0:
		return fields.ConcurrentRequests
	case of != nil && of.Kind == config.SelectHeader && of.Name == "content-length":
		return fields.ContentBytes
	case c.Cost == 1 && of == nil && c.CostOnResponse == nil:
		return fields.Requests
	}
	return fields.Weighted
}

// readTexts records the texts of the body that a matcher reads.
func (r *rule) readTexts(q *request, m *matcher) {
	for i := range m.last {
		c := &m.last[i]
		if len(c.any) == 0 {
			r.readText(q, c.body.at)
		}
		for j := range c.any {
			r.readTexts(q, &c.any[j])
		}
	}
}

// readText records a property if it is a text of the body.
func (r *rule) readText(q *request, property int) {
	p := q.properties[property].part
	if p.kind == group {
		p = q.properties[q.properties[property].of].part
	}
	if p.kind == bodyText {
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
	for i := range c.Conditions {
		of := &c.Conditions[i]
		made := compare(r.compared(of), &of.StringMatch)
		if of.Of.Kind == config.SelectBody {
			m.last = append(m.last, clause{body: made})
		} else {
			m.conditions = append(m.conditions, made)
		}
	}
	if len(c.Methods) > 0 {
		m.methods, m.methodsAt = c.Methods, r.useProperty(methodProperty)
	}
	if len(c.Any) > 0 {
		var either clause
		for i := range c.Any {
			either.any = append(either.any, r.matcher(&c.Any[i]))
		}
		m.last = append(m.last, either)
	}
	if c.Not != nil {
		m.last = append(m.last, clause{any: []matcher{r.matcher(c.Not)}, not: true})
	}
	m.all = len(m.conditions) == 0 && len(m.methods) == 0 && len(m.last) == 0
	return m
}

// compared resolves the part that a condition compares.
func (r *request) compared(c *config.Condition) int {
	switch s := &c.Of; s.Kind {
	case config.SelectHeader:
		return r.useProperty(property{header: s.Name, lines: joinedLines})
	case config.SelectBody:
		return r.useBody(s.Name, "", jsonpath.MaxValue)
	case config.SelectClientIP:
		if c.Op != config.InNetworks {
			return r.usePart(sourceProperty, part{kind: bareAddress})
		}
		return r.useProperty(sourceProperty)
	default:
		return r.propertyOf(s)
	}
}

func compare(at int, m *config.StringMatch) condition {
	c := condition{at: at, op: m.Op, value: m.Value, wanted: m}
	if m.Op == config.Regex {
		c.pattern, _ = pattern.Compile(m.Value) // the configuration was checked
	}
	return c
}

// appendKey appends the rule's key for the current request. Each value is preceded by its length,
// so that different lists of values give different keys.
func (r *request) appendKey(dst []byte, rule *rule) []byte {
	return r.appendKeyTo(dst, rule, len(rule.key))
}

// appendKeyTo is appendKey for a key whose values from number end on are empty.
func (r *request) appendKeyTo(dst []byte, rule *rule, end int) []byte {
	dst = append(dst, rule.limits.Prefix...)
	for i := range rule.key {
		var value []byte
		if i < end {
			p := &rule.key[i]
			value, _ = r.value(p.property)
			value = p.counted(value, &r.scratch.network)
		}
		dst = counter.AppendPart(dst, value)
	}
	return dst
}
