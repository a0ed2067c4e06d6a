package filter

import (
	"weir/config"
	"weir/internal/clientip"
	"weir/internal/counter"
)

// requestRule is a rule as requests need it: whether it matches, and what it counts for which key.
type requestRule struct {
	match matcher
	// keyPrefix begins the rule's keys: its name with its length before it.
	keyPrefix []byte
	key       []part
	cost      cost
	// onResponse is what is counted when the response is there, if costsLater says so.
	costsLater bool
	onResponse cost
}

// matcher decides whether a rule applies to a request.
type matcher struct {
	all       bool // requests match
	path      *config.StringMatch
	pathAt    int
	methods   []string
	methodsAt int
}

func (r *request) matches(m *matcher) bool {
	if len(m.methods) > 0 {
		method, _ := r.value(m.methodsAt)
		if !oneOf(m.methods, method) {
			return false
		}
	}
	if m.path != nil {
		if value, ok := r.value(m.pathAt); !compare(m.path, value, ok) {
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

func compare(m *config.StringMatch, value []byte, ok bool) bool {
	switch n := len(m.Value); m.Op {
	case config.Exact:
		return ok && string(value) == m.Value
	case config.Prefix:
		return ok && len(value) >= n && string(value[:n]) == m.Value
	case config.Suffix:
		return ok && len(value) >= n && string(value[len(value)-n:]) == m.Value
	case config.Present:
		return ok
	default:
		return !ok
	}
}

// part is one selector of a key.
type part struct {
	_ [0]func() // or else Go makes a function that compares values

	property int
	// prefix4 and prefix6 are the bits of an address that count, if the part is one.
	address          bool
	prefix4, prefix6 int
}

// compile resolves what a rule asks of requests.
func (r *request) compile(c *config.Rule) requestRule {
	compiled := requestRule{keyPrefix: counter.AppendPart(nil, c.Name)}
	compiled.cost = cost{fixed: c.Cost}
	if c.CostFrom != nil {
		compiled.cost = cost{selected: true, property: r.selected(c.CostFrom).property, least: c.CostLeast, most: c.CostMost}
	}
	if s := c.CostOnResponse; s != nil && s.Kind == config.SelectResponseHeader {
		compiled.costsLater, compiled.onResponse = true, cost{responseHeader: s.Name}
	} else if s != nil {
		compiled.costsLater, compiled.onResponse = true, cost{selected: true, property: r.selected(s).property}
	}
	compiled.match.all = c.Match.Path == nil && len(c.Match.Methods) == 0
	if c.Match.Path != nil {
		compiled.match.path = c.Match.Path
		compiled.match.pathAt = r.use(pathProperty)
	}
	if len(c.Match.Methods) > 0 {
		compiled.match.methods = c.Match.Methods
		compiled.match.methodsAt = r.use(methodProperty)
	}
	for i := range c.Key {
		compiled.key = append(compiled.key, r.selected(&c.Key[i]))
	}
	return compiled
}

// selected resolves a selector.
func (r *request) selected(s *config.Selector) (p part) {
	switch s.Kind {
	case config.SelectHeader:
		p.property = r.use(property{header: s.Name})
	case config.SelectMethod:
		p.property = r.use(methodProperty)
	case config.SelectPath:
		p.property = r.use(pathProperty)
	case config.SelectClientIP:
		p.property = r.use(sourceProperty)
		p.address, p.prefix4, p.prefix6 = true, s.IPv4Prefix, s.IPv6Prefix
	}
	return p
}

// appendKey appends the key of a rule for the current request. Each value's length comes before it,
// so that no two lists of values give the same key.
func (r *request) appendKey(dst []byte, rule *requestRule) []byte {
	dst = append(dst, rule.keyPrefix...)
	for i := range rule.key {
		p := &rule.key[i]
		value, _ := r.value(p.property)
		if p.address {
			value = clientip.Network(value, p.prefix4, p.prefix6, &r.network)
		}
		dst = counter.AppendPart(dst, value)
	}
	return dst
}
