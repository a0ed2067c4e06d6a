package convert

import (
	"cmp"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"go4.org/netipx"
)

// decision is a variable of nginx that a map or a geo sets: which of several texts it is depends on one
// part of the request.
type decision struct {
	at place
	// of is the variable that lines are about; the lines of a geo are about the client.
	of    string
	lines []line // the first that holds decides; of networks the smallest
	rest  string
}

// line is a line of a map or a geo.
type line struct {
	at      place
	rank    int
	is      text
	network netip.Prefix
	value   string
}

// aClient names the variable that a geo compares.
const aClient = "remote_addr"

// region is a set of requests that count by the same text with variables.
type region struct {
	parts  []part
	match  match
	except []any
	unsaid *place // no rule can say which requests these are, unless they have no key
}

// maxRegions bounds the regions of a key.
const maxRegions = 64

// regions resolves the maps and geos in the key of a zone.
func (c *converter) regions(http *directive, parts []part, depth int) (all []region, ok bool) {
	all = []region{{}}
	for _, p := range parts {
		var d *decision
		if p.variable {
			var known bool
			if d, known = c.decision(http, p.text, depth); known && d == nil {
				return nil, false
			}
		}
		if d == nil {
			for i := range all {
				all[i].parts = append(slices.Clone(all[i].parts), p)
			}
			continue
		}
		of, ok := c.divide(http, d, depth)
		if !ok {
			return nil, false
		}
		before := all
		all = nil
		for _, a := range before {
			for _, b := range of {
				if all, ok = c.addBoth(d.at, all, a, b); !ok {
					return nil, false
				}
			}
		}
		if len(all) > maxRegions {
			c.lose(d.at, "the values of this variable would need more than %d rules", maxRegions)
			return nil, false
		}
	}
	return all, true
}

// addBoth adds the region that two have in common, if there is one.
func (c *converter) addBoth(at place, all []region, a, b region) ([]region, bool) {
	m, possible, ok := bothMatch(a.match, b.match)
	if !ok {
		c.lose(at, "two conditions on the same part of a request are no single condition of a rule")
	} else if possible {
		all = append(all, region{append(slices.Clone(a.parts), b.parts...), m, append(slices.Clone(a.except), b.except...), cmp.Or(a.unsaid, b.unsaid)})
	}
	return all, ok
}

// decision finds the map or geo that sets a variable. If no rule can follow it,
// which is lost, it returns nil, true.
func (c *converter) decision(http *directive, name string, depth int) (d *decision, known bool) {
	if depth == maxNested {
		return nil, false
	}
	for _, o := range slices.Backward(http.block) {
		if len(o.args) == 0 || !strings.EqualFold(o.arg(len(o.args)-1), "$"+name) {
			continue
		}
		switch o.name {
		case "geo":
			return c.geo(o), true
		case "map":
			return c.mapOf(http, o, depth+1), true
		}
	}
	return nil, false
}

func (c *converter) mapOf(http, o *directive, depth int) *decision {
	source := template(o.arg(0))
	if len(source) != 1 || !source[0].variable || len(o.args) != 2 {
		c.lose(o.at, "map: a rule can decide by one variable, not by %.80q", o.arg(0))
		return nil
	}
	d := &decision{at: o.at, of: source[0].text}
	if lower := strings.ToLower(d.of); !strings.HasPrefix(lower, "arg_") && !strings.HasPrefix(lower, "cookie_") {
		d.of = lower
	}
	isPath := d.of == "uri" || d.of == "document_uri"
	hostnames, ok := len(o.find("hostnames")) > 0, true
	for _, of := range o.block {
		l := line{at: of.at, value: of.arg(0)}
		value := strings.TrimPrefix(of.name, `\`)
		expression := func(flag, expr string) (text, bool) { return c.expression(of.at, flag+expr, false) }
		if isPath {
			value = sent(value)
			expression = func(flag, expr string) (text, bool) {
				return c.pathExpression(&directive{at: of.at, name: "map"}, flag+expr)
			}
		}
		switch {
		case of.name == "default":
			d.rest = of.arg(0)
			continue
		case len(of.args) == 0 && (of.name == "hostnames" || of.name == "volatile"):
			continue
		case strings.HasPrefix(of.name, "~*"):
			l.rank = 3
			l.is, ok = expression("(?i)", of.name[2:])
		case strings.HasPrefix(of.name, "~"):
			l.rank = 3
			l.is, ok = expression("", of.name[1:])
		case hostnames && strings.HasPrefix(value, "*."):
			l.rank, l.is = 1, text{suffix, strings.ToLower(value[1:])}
		case hostnames && strings.HasPrefix(value, "."):
			l.rank, l.is = 1, text{suffix, strings.ToLower(value)}
			d.lines = append(d.lines, line{of.at, 0, text{exact, strings.ToLower(value[1:])}, netip.Prefix{}, l.value})
		case hostnames && strings.HasSuffix(value, ".*"):
			l.rank, l.is = 2, text{prefix, strings.ToLower(value[:len(value)-1])}
		case d.of == aClient:
			l.is = text{exact, value}
		case d.of == "host":
			l.is = text{exact, strings.ToLower(value)}
		case d.of == "request_method":
			l.is = text{exact, strings.ToUpper(value)} // nginx refuses methods in small letters
		default:
			l.is = anyCase(value)
		}
		if !ok {
			return nil
		}
		d.lines = append(d.lines, l)
	}
	slices.SortStableFunc(d.lines, func(a, b line) int {
		order := a.rank - b.rank
		if order == 0 && (a.rank == 1 || a.rank == 2) {
			order = len(b.is.value) - len(a.is.value)
		}
		return order
	})
	source2, known := c.decision(http, d.of, depth)
	switch {
	case known && source2 == nil:
		return nil
	case known:
		return c.mapped(d, source2)
	case d.of != aClient:
		return d
	}
	for i := range d.lines {
		l := &d.lines[i]
		if l.network, ok = parseNetwork(l.is.value); !ok || l.is.kind != exact || !l.network.IsSingleIP() {
			c.lose(l.at, "map: want whole addresses of clients; geo is for networks")
			return nil
		}
	}
	return d
}

// mapped returns the decision that a map makes from the values of another.
func (c *converter) mapped(d, of *decision) *decision {
	to := func(value string) (string, bool) {
		if strings.Contains(value, "$") {
			c.lose(d.at, "map: $%s has the value %.80q, which a rule can't compare", d.of, value)
			return "", false
		}
		return d.value(value), true
	}
	result := &decision{at: d.at, of: of.of, lines: slices.Clone(of.lines)}
	var ok bool
	if result.rest, ok = to(of.rest); !ok {
		return nil
	}
	for i := range result.lines {
		if result.lines[i].value, ok = to(result.lines[i].value); !ok {
			return nil
		}
	}
	return result
}

// value returns what a map makes of a text.
func (d *decision) value(of string) string {
	for _, l := range d.lines {
		if l.is.matches(of) {
			return l.value
		}
	}
	return d.rest
}

// matches reports whether a text fulfils a condition.
func (t text) matches(value string) bool {
	switch t.kind {
	case exact:
		return value == t.value
	case prefix:
		return strings.HasPrefix(value, t.value)
	case suffix:
		return strings.HasSuffix(value, t.value)
	}
	expression, err := regexp.Compile(`\A(?:` + t.value + `)\z`)
	return err == nil && expression.MatchString(value)
}

func (c *converter) geo(o *directive) *decision {
	if len(o.args) > 2 || len(o.args) == 2 && o.arg(0) != "$remote_addr" {
		c.lose(o.at, "geo: a rule knows the client's address alone, not %.80q", o.arg(0))
		return nil
	}
	d := &decision{at: o.at, of: aClient}
	ranges := len(o.find("ranges")) > 0
	for _, of := range o.block {
		switch {
		case of.name == "default":
			d.rest = of.arg(0)
			continue
		case of.name == "ranges" && len(of.args) == 0:
			continue
		case of.name == "proxy" || of.name == "proxy_recursive":
			c.lose(of.at, "geo: %s: the client's address is Envoy's; set its xff_num_trusted_hops", of.name)
			continue
		case of.name == "delete":
			network, ok := parseNetwork(of.arg(0))
			before := len(d.lines)
			if ok {
				d.lines = slices.DeleteFunc(d.lines, func(l line) bool { return l.network == network })
			}
			if before == len(d.lines) {
				c.lose(of.at, "geo: delete: no line before has the network %.40q", of.arg(0))
			}
			continue
		}
		if strings.Contains(of.arg(0), "$") {
			c.lose(of.at, "geo: nginx takes %.40q as it is written", of.arg(0))
			return nil
		}
		var networks []netip.Prefix
		if network, ok := parseNetwork(of.name); ok && !ranges {
			networks = []netip.Prefix{network}
		} else if ranges {
			if r, err := netipx.ParseIPRange(of.name); err == nil && r.From().Is4() {
				networks = r.Prefixes()
			}
		}
		if len(networks) == 0 {
			c.lose(of.at, "geo: want a network such as 10.0.0.0/8, got %.40q", of.name)
			return nil
		}
		for _, n := range networks {
			overlaps := func(l line) bool { return l.network.Overlaps(n) }
			if ranges && slices.ContainsFunc(d.lines, overlaps) {
				c.lose(of.at, "geo: want ranges that do not overlap")
				return nil
			}
			// The last line of a network counts.
			d.lines = slices.DeleteFunc(d.lines, func(l line) bool { return l.network == n })
			d.lines = append(d.lines, line{at: of.at, network: n, value: of.arg(0)})
		}
	}
	return d
}

func parseNetwork(text string) (netip.Prefix, bool) {
	if a, err := netip.ParseAddr(text); err == nil {
		return netip.PrefixFrom(a, a.BitLen()), true
	}
	p, err := netip.ParsePrefix(text)
	return p.Masked(), err == nil
}

// addressesOf returns the texts that are networks or addresses, as networks.
func addressesOf(texts []string) (networks []string) {
	for _, text := range texts {
		if p, ok := parseNetwork(text); ok {
			networks = append(networks, p.String())
		}
	}
	return networks
}

// divide returns the regions of the values of a decision.
func (c *converter) divide(http *directive, d *decision, depth int) (all []region, ok bool) {
	values := []string{d.rest}
	for _, l := range d.lines {
		if !slices.Contains(values, l.value) {
			values = append(values, l.value)
		}
	}
	if len(values) > maxRegions {
		c.lose(d.at, "the values of this variable would need more than %d rules", maxRegions)
		return nil, false
	}
	var limited *divided
	if d.of != aClient && len(values) > 1 {
		if limited, ok = c.condition(d); !ok {
			return nil, false
		}
	}
	for _, value := range values {
		inner, ok := c.regions(http, template(value), depth+1)
		if !ok {
			return nil, false
		}
		own := region{}
		switch {
		case len(values) == 1:
		case d.of == aClient:
			own.except = d.others(value)
		default:
			if own, ok = limited.region(value); !ok {
				at := d.at
				if i := slices.IndexFunc(d.lines, func(l line) bool { return l.value == value }); i >= 0 {
					at = d.lines[i].at
				}
				own.unsaid = &at
			}
		}
		for _, r := range inner {
			if all, ok = c.addBoth(d.at, all, own, r); !ok {
				return nil, false
			}
		}
	}
	return all, true
}

// others returns the exception for the clients that have another value than this. The smallest network
// that an address is in says its value.
func (d *decision) others(value string) []any {
	var all netipx.IPSetBuilder
	put := func(network netip.Prefix, of string) {
		if of == value {
			all.RemovePrefix(network)
		} else {
			all.AddPrefix(network)
		}
	}
	put(netip.MustParsePrefix("0.0.0.0/0"), d.rest)
	put(netip.MustParsePrefix("::/0"), d.rest)
	for _, l := range slices.SortedStableFunc(slices.Values(d.lines), func(a, b line) int { return a.network.Bits() - b.network.Bits() }) {
		put(l.network, l.value)
	}
	set, _ := all.IPSet() // the networks are valid
	var a addresses
	for _, n := range set.Prefixes() {
		a.ClientIP = append(a.ClientIP, n.String())
	}
	if len(a.ClientIP) == 0 {
		return nil
	}
	return []any{a}
}

// divided has the classes of a decision's texts.
type divided struct {
	by      *decision
	classes []class
	values  []string // by class
}

var something = text{regex, ".+"}

// condition finds how requests can be told apart that have different values of a decision.
func (c *converter) condition(d *decision) (*divided, bool) {
	c.tellForwarded(d.at, d.of)
	if _, ok := conditionOn(d.of, something); !ok {
		c.lose(d.at, "map: a rule can't decide by $%.80s", d.of)
		return nil, false
	}
	start, without := "", ""
	switch d.of {
	case "uri", "document_uri":
		start, without = "/", "?"
	case "request_uri":
		start = "/"
	}
	var texts []text
	for _, l := range d.lines {
		texts = append(texts, l.is)
	}
	of := &divided{by: d}
	classes, ok := classesOf(append(texts, something), start, without)
	if !ok {
		c.lose(d.at, "map: there are too many values to compare")
		return nil, false
	}
	of.classes = classes
	for _, class := range classes {
		of.values = append(of.values, d.value(class.example))
	}
	if (part{true, d.of}).mayBeEmpty() {
		// No condition but that of an empty text holds for a header that is not there.
		empty := class{holds: make([]bool, len(texts)+1)}
		of.classes = append(of.classes, empty, class{holds: slices.Clone(empty.holds)})
		for i, t := range texts {
			empty.holds[i] = t.matches("")
		}
		of.values = append(of.values, d.value(""), d.value(""))
	}
	return of, true
}

// region returns the conditions of the requests that have a value.
func (of *divided) region(value string) (r region, ok bool) {
	lines := of.by.lines
	own := func(j int) bool { return of.values[j] == value }
	// holds tells whether any of the lines of these indexes holds for a class.
	holds := func(lines []int) func(int) bool {
		return func(j int) bool {
			return slices.ContainsFunc(lines, func(i int) bool { return of.classes[j].holds[i] })
		}
	}
	said := func(some []int) text {
		var texts []text
		for _, i := range some {
			texts = append(texts, lines[i].is)
		}
		return anyOf(texts)
	}
	var mine, others []int
	for i, l := range lines {
		if l.value == value {
			mine = append(mine, i)
		} else {
			others = append(others, i)
		}
	}
	var from []exception
	except := func(some []int, t text) {
		if m, ok := conditionOn(of.by.of, t); ok {
			from = append(from, exception{m, holds(some)})
		}
	}
	const few = 16
	for _, i := range others {
		if len(others) <= few {
			except([]int{i}, lines[i].is)
		}
	}
	if len(others) > few {
		except(others, said(others)) // together they are a single exception
	}
	except([]int{len(lines)}, something)
	for _, some := range [][]int{append([]int{}, mine...), nil, {len(lines)}} {
		t := something
		inside := holds(some)
		switch {
		case some == nil:
			inside = func(int) bool { return true }
		case len(some) == 0:
			continue
		case some[0] < len(lines):
			t = said(some)
		}
		m, ok := match{}, true
		if some != nil {
			m, ok = conditionOn(of.by.of, t)
		}
		var within []int
		for j := range of.classes {
			if inside(j) {
				within = append(within, j)
			} else {
				ok = ok && !own(j)
			}
		}
		if !ok {
			continue
		}
		if chosen, left := exceptions(within, own, from); len(left) == 0 {
			return region{match: m, except: chosen}, true
		}
	}
	return region{}, false
}

// conditionOn returns the match that compares a variable with a text. It is exact for every text but of
// parameters and cookies, whose values no condition can single out.
func conditionOn(name string, t text) (m match, ok bool) {
	switch name {
	case "host":
		m.Host = &t
	case "uri", "document_uri":
		m.Path = &t
	case "request_method":
		if t.kind == exact {
			m.Methods = []string{t.value}
		} else if methods, only := alternatives(t); only {
			m.Methods = methods
		} else {
			m.header(":method", t)
		}
	case "request_uri":
		m.header(":path", t)
	case "scheme":
		m.header(":scheme", t)
	case "http_host":
		m.header(":authority", t)
	default:
		s, known := variable(name)
		if !known || s.always {
			return m, false
		}
		if t == something {
			t = s.is
		} else if !strings.HasPrefix(name, "http_") {
			return m, false
		}
		m.header(s.header, t)
	}
	return m, true
}

// alternatives returns the texts of an expression such as GET|PUT.
func alternatives(t text) (all []string, only bool) {
	if t.kind != regex || regexp.QuoteMeta(strings.ReplaceAll(t.value, "|", "")) != strings.ReplaceAll(t.value, "|", "") {
		return nil, false
	}
	return strings.Split(t.value, "|"), true
}

// bothMatch returns the match of requests that fulfil both. ok is false if no single match says that,
// and possible if any request can.
func bothMatch(a, b match) (m match, possible, ok bool) {
	possible, ok = true, true
	one := func(a, b *text, start string) *text {
		if a == nil || b == nil {
			return cmp.Or(a, b)
		}
		t, some, fine := bothTexts(*a, *b, start)
		possible, ok = possible && some, ok && fine
		return &t
	}
	m.Host = one(a.Host, b.Host, "")
	if m.Methods = a.Methods; len(m.Methods) == 0 {
		m.Methods = b.Methods
	} else if len(b.Methods) > 0 {
		m.Methods = slices.DeleteFunc(slices.Clone(a.Methods), func(method string) bool { return !slices.Contains(b.Methods, method) })
		possible = possible && len(m.Methods) > 0
	}
	for _, headers := range []map[string]text{a.Headers, b.Headers} {
		for name, t := range headers {
			if before, twice := m.Headers[name]; twice {
				t = *one(&before, &t, "")
			}
			m.header(name, t)
		}
	}
	if a.Path == nil || b.Path == nil {
		m.Path = cmp.Or(a.Path, b.Path)
		return m, possible, ok
	}
	t, some, fine := bothTexts(*a.Path, *b.Path, "/")
	m.Path = &t
	if !fine {
		// The header :path begins as the path does.
		begins, other := a.Path, b.Path
		if begins.kind != prefix {
			begins, other = other, begins
		}
		before, taken := m.Headers[":path"]
		h := *begins
		if fine = begins.kind == prefix; fine && taken {
			h, _, fine = bothTexts(before, *begins, "/")
		}
		if fine {
			m.Path = other
			m.header(":path", h)
		}
	}
	return m, possible && some, ok && fine
}

// bothTexts returns the condition that both hold.
func bothTexts(a, b text, start string) (both text, possible, ok bool) {
	holds, first, second := relation(a, b, start)
	switch {
	case !first:
		return a, holds, true
	case !second:
		return b, holds, true
	case !holds:
		return a, false, true
	}
	// An expression for a parameter may begin with any path.
	for _, of := range [][2]text{{a, b}, {b, a}} {
		if rest, found := strings.CutPrefix(of[1].value, anyPath); found && of[1].kind == regex && of[0].kind == prefix && !strings.Contains(of[0].value, "?") {
			return text{regex, regexp.QuoteMeta(of[0].value) + anyPath + rest}, true, true
		}
	}
	return a, true, false
}

// anyPath begins expressions for :path that are about parameters.
const anyPath = `[^?]*\?`
