package convert

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// envoyPlace is a set of requests, with the limits that routes and virtual hosts have for it.
type envoyPlace struct {
	location *location
	// forwards says that requests are forwarded. Others have no limits.
	forwards bool
	// route and host are the limits of the route and its virtual host, and include says that the
	// latter apply beside the former.
	route, host []value
	include     bool
	// overrides are the configurations of filters, the most specific one first.
	overrides []value
	off       bool
}

// limitsAt returns the limits that a filter applies at a place.
func (e *envoy) limitsAt(f *envoyFilter, p *envoyPlace) (limits []value) {
	hosts, off, configured := "OVERRIDE", f.off, false
	var own []value
	for _, all := range slices.Backward(p.overrides) {
		of := all.get(f.name)
		if !of.there() {
			continue
		}
		name, message := typed(of)
		if strings.HasSuffix(name, ".FilterConfig") {
			if off = message.get("disabled").truth(false); off {
				continue
			}
			if name, message = typed(message.get("config")); !message.there() {
				continue
			}
		}
		off = false
		if !strings.HasSuffix(name, ".RateLimitPerRoute") {
			of.lose("%.80s: want a RateLimitPerRoute", name)
			continue
		}
		// The most specific configuration counts alone.
		configured, own, hosts = true, message.get("rate_limits").list(), message.get("vh_rate_limits").or("OVERRIDE")
		message.tell("a route's configuration of the filter", "rate_limits", "vh_rate_limits", "domain", "override_option") // Envoy does not do the latter
		if domain := message.get("domain"); domain.or(f.domain) != f.domain {
			domain.lose("a filter of Weir has one domain, which is %.80s: convert %.80s by itself", f.domain, domain.text())
			off = true
		}
	}
	switch {
	case off || !p.forwards:
		p.off = off
		return nil
	case configured && len(own) > 0:
		return own
	case len(f.limits) > 0:
		return f.limits
	}
	limits = slices.Clone(p.route)
	switch {
	case p.include || hosts == "INCLUDE" || hosts == "1", (hosts == "OVERRIDE" || hosts == "0") && len(p.route) == 0:
		limits = append(limits, p.host...)
	}
	return slices.DeleteFunc(limits, func(l value) bool { return l.get("stage").whole(0) != f.stage })
}

// Harmless fields act after the filter, or are nothing that limits go by.
var (
	harmlessInTables = []string{"name", "internal_only_headers", "response_headers_to_add", "response_headers_to_remove", "request_headers_to_add", "request_headers_to_remove",
		"most_specific_header_mutations_wins", "validate_clusters", "max_direct_response_body_size_bytes", "cluster_specifier_plugins", "request_mirror_policies", "metadata"}
	harmlessInHosts = []string{"name", "virtual_clusters", "request_headers_to_add", "request_headers_to_remove", "response_headers_to_add", "response_headers_to_remove", "cors",
		"include_request_attempt_count", "include_attempt_count_in_response", "retry_policy", "retry_policy_typed_config", "hedge_policy", "include_is_timeout_retry_header",
		"per_request_buffer_limit_bytes", "request_body_buffer_limit", "request_mirror_policies", "metadata"}
	harmlessInRoutes = []string{"name", "metadata", "decorator", "request_headers_to_add", "request_headers_to_remove", "response_headers_to_add", "response_headers_to_remove",
		"tracing", "per_request_buffer_limit_bytes", "stat_prefix", "request_body_buffer_limit"}
	harmlessInActions = []string{"cluster", "cluster_header", "cluster_specifier_plugin", "inline_cluster_specifier_plugin", "cluster_not_found_response_code", "metadata_match",
		"prefix_rewrite", "regex_rewrite", "path_rewrite_policy", "path_rewrite", "host_rewrite_literal", "auto_host_rewrite", "host_rewrite_header", "host_rewrite_path_regex",
		"host_rewrite", "append_x_forwarded_host", "timeout", "idle_timeout", "flush_timeout", "early_data_policy", "retry_policy", "retry_policy_typed_config",
		"request_mirror_policies", "priority", "hash_policy", "cors", "max_grpc_timeout", "grpc_timeout_offset", "upgrade_configs", "internal_redirect_policy",
		"internal_redirect_action", "max_internal_redirects", "hedge_policy", "max_stream_duration"}
)

// table makes the uses of a route configuration.
func (e *envoy) table(t *envoyTable) {
	hosts := t.value.get("virtual_hosts").list()
	if t.value.get("domains").there() {
		hosts = []value{t.value} // a virtual host by itself
	} else {
		t.value.tell("a route configuration", append(harmlessInTables, "virtual_hosts", "typed_per_filter_config", "ignore_port_in_host_matching")...)
	}
	t.portless = t.portless || t.value.get("ignore_port_in_host_matching").truth(false)
	var places []*envoyPlace
	for _, host := range hosts {
		host.tell("a virtual host", append(harmlessInHosts, "domains", "routes", "rate_limits", "typed_per_filter_config")...)
		domains := e.domainsOf(t, hosts, host)
		routes := host.get("routes").list()
		for j, r := range routes {
			places = append(places, e.route(t, host, r, domains, -j)...)
		}
		if len(routes) == 0 || host.get("matcher").there() {
			// The host's routes may be elsewhere.
			for _, d := range domains {
				l := &location{at: host.at, hosts: d.hosts, rest: d.rest(), rank: slices.Concat(d.rank, []int{-len(routes)}), partly: host.get("matcher").there()}
				places = append(places, &envoyPlace{location: l, host: host.get("rate_limits").list(), overrides: []value{host.get("typed_per_filter_config"), t.value.get("typed_per_filter_config")}, forwards: true})
			}
		}
	}
	before := len(e.uses)
	filters := e.asked(t.filters)
	e.unknownFilters(t, hosts, filters)
	for _, f := range filters {
		e.useAll(f, places, false)
	}
	if before > 0 && len(e.uses) > before {
		t.value.lose("Envoy has these routes at another listener than those of line %d; a rule counts the requests of every listener", e.uses[0].at.line)
	}
}

// unknownFilters tells the configurations of the filter under a name that no filter has.
func (e *envoy) unknownFilters(t *envoyTable, hosts []value, filters []*envoyFilter) {
	visit := func(v value) {
		for _, f := range v.get("typed_per_filter_config").fields() {
			name, message := typed(f.value)
			if strings.HasSuffix(name, ".FilterConfig") {
				name, _ = typed(message.get("config"))
			}
			if strings.HasSuffix(name, ".http.ratelimit.v3.RateLimitPerRoute") && !slices.ContainsFunc(filters, func(o *envoyFilter) bool { return o.name == f.name }) {
				e.c.lose(f.at, "no filter has the name %.80s", f.name)
			}
		}
	}
	visit(t.value)
	for _, host := range hosts {
		visit(host)
		for _, r := range host.get("routes").list() {
			visit(r)
		}
	}
}

func (e *envoy) route(t *envoyTable, host, r value, domains []domain, order int) (places []*envoyPlace) {
	r.tell("a route", append(harmlessInRoutes, "match", "route", "redirect", "direct_response", "non_forwarding_action", "typed_per_filter_config")...)
	action := r.get("route")
	action.tell("a route's action", append(harmlessInActions, "rate_limits", "include_vh_rate_limits", "weighted_clusters")...)
	of, forwards := e.conditions(r), action.there()
	for _, c := range action.get("weighted_clusters", "clusters").list() {
		for _, f := range c.get("typed_per_filter_config").fields() {
			if slices.ContainsFunc(e.filters, func(o *envoyFilter) bool { return o.name == f.name }) {
				e.c.lose(f.at, "a rule does not know the cluster, and leaves the route alone")
				forwards = false
			}
		}
	}
	for _, d := range domains {
		l := *of
		l.hosts, l.rank = d.hosts, slices.Concat(d.rank, []int{order})
		if l.rest.Headers = maps.Clone(l.rest.Headers); d.port != nil && !l.rest.narrow(":authority", *d.port) {
			e.c.lose(r.at, "a rule has one condition for the header :authority")
			l.partly = true
		}
		places = append(places, &envoyPlace{
			location: &l, forwards: forwards, route: action.get("rate_limits").list(), host: host.get("rate_limits").list(), include: action.get("include_vh_rate_limits").truth(false),
			overrides: []value{r.get("typed_per_filter_config"), host.get("typed_per_filter_config"), t.value.get("typed_per_filter_config")},
		})
	}
	return places
}

// domain is a group of a virtual host's domains, between which Envoy does not choose.
type domain struct {
	hosts []text
	// port is a condition on :authority, for domains with a port, or where those without matter.
	port *text
	// rank orders the domains that a request fits: names before suffixes, these before prefixes,
	// and long before short.
	rank []int
}

func (d *domain) rest() (m match) {
	if d.port != nil {
		m.header(":authority", *d.port)
	}
	return m
}

var aPort = regexp.MustCompile(`^(\[[^\]]*\]|[^:\[\]]*):([0-9]+|\*)$`)

// cutPort splits a domain from its port.
func cutPort(name string) (host, port string, found bool) {
	if parts := aPort.FindStringSubmatch(name); parts != nil {
		return parts[1], parts[2], true
	}
	return name, "", false
}

// domainText returns the condition of a domain without a port.
func domainText(name string) text {
	switch {
	case strings.HasPrefix(name, "*"):
		return text{suffix, name[1:]}
	case strings.HasSuffix(name, "*"):
		return text{prefix, name[:len(name)-1]}
	}
	return text{exact, name}
}

func (e *envoy) domainsOf(t *envoyTable, hosts []value, host value) (all []domain) {
	ports := map[string][]string{} // by name; "" stands for none
	var names []string
	for _, d := range host.get("domains").either() {
		name, port, found := cutPort(strings.ToLower(d.text()))
		if found && t.portless {
			d.lose("%.80s: Envoy ignores ports here, and never finds this domain", d.text())
			continue
		}
		if ports[name] == nil {
			names = append(names, name)
		}
		ports[name] = append(ports[name], port)
	}
	if len(host.get("domains").either()) == 0 {
		host.lose("want domains")
	}
	for _, name := range names {
		is := domainText(name)
		d := domain{hosts: []text{is}, rank: []int{3, 0}}
		switch {
		case is.all():
			d.hosts, d.rank = nil, []int{0, 0}
		case is.kind == suffix:
			d.rank = []int{2, len(name)}
		case is.kind == prefix:
			d.rank = []int{1, len(name)}
		}
		d.port = portOf(is, ports[name], t.portless || !contested(hosts, host, name))
		same := func(o domain) bool {
			return d.hosts != nil && o.hosts != nil && slices.Equal(o.rank, d.rank) && (o.port == nil) == (d.port == nil) && (d.port == nil || *o.port == *d.port)
		}
		if i := slices.IndexFunc(all, same); i >= 0 {
			all[i].hosts = append(all[i].hosts, d.hosts...)
		} else {
			all = append(all, d)
		}
	}
	return all
}

// portOf returns the condition on :authority for a name with some ports, or nil if any will do.
// uncontested says that with other ports no request has a route.
func portOf(is text, ports []string, uncontested bool) *text {
	bare, given := slices.Contains(ports, ""), slices.Sorted(slices.Values(ports))
	given = slices.Compact(slices.DeleteFunc(given, func(p string) bool { return p == "" }))
	name := `(?:\[.*\]|[^:]*)`
	switch {
	case is.kind == prefix || is.all() && bare, bare && (uncontested || slices.Contains(given, "*")):
		return nil
	case slices.Contains(given, "*"):
		return &text{regex, name + ":.*"}
	case bare && len(given) == 0:
		return &text{regex, name}
	case bare:
		return &text{regex, name + "(?::(?:" + strings.Join(given, "|") + "))?"}
	case len(given) == 1:
		return &text{suffix, ":" + given[0]}
	}
	return &text{regex, ".*:(?:" + strings.Join(given, "|") + ")"}
}

// contested reports whether another virtual host may have a name with a port.
func contested(hosts []value, of value, name string) bool {
	is := domainText(name)
	for _, host := range hosts {
		for _, d := range host.get("domains").texts() {
			other, _, found := cutPort(strings.ToLower(d))
			o := domainText(other)
			if host.node != of.node && o.overlaps(is) && (found || o.all() || o.kind == prefix) {
				return true
			}
		}
	}
	return false
}

// conditions returns the requests that meet a route's conditions, whatever their host.
func (e *envoy) conditions(r value) *location {
	l := &location{at: r.at}
	m := r.get("match")
	no := func(at place, format string, args ...any) {
		e.c.lose(at, format, args...)
		l.partly = true
	}
	for _, f := range m.fields() {
		switch f.name {
		case "prefix":
			l.paths = []text{{prefix, f.value.text()}}
		case "path":
			l.paths = []text{{exact, f.value.text()}}
		case "path_separated_prefix":
			l.paths = []text{{exact, f.value.text()}, {prefix, f.value.text() + "/"}}
		case "safe_regex":
			f.value.tell("a regular expression", "regex", "google_re2")
			if t, ok := e.c.expression(f.value.at, f.value.get("regex").text(), true); ok {
				l.paths = []text{t}
			} else {
				l.partly = true
			}
		case "headers":
			for _, h := range f.value.list() {
				if !e.must(&l.rest, &l.unless, h) {
					no(h.at, "a rule can't say this condition of a route")
				}
			}
		case "query_parameters":
			for _, q := range f.value.list() {
				if t, ok := e.queryMatch(q, regexp.QuoteMeta); !ok || !l.rest.narrow(":path", t) {
					no(q.at, "a rule can't say this condition of a route")
				}
			}
		case "grpc":
			if !l.rest.narrow("content-type", text{regex, `application/grpc(?:\+.*)?`}) {
				no(f.at, "a rule can't say this condition of a route")
			}
		case "runtime_fraction":
			if shareOf(f.value) < 1 {
				no(f.at, "a rule can't tell a part of the requests")
			}
		case "case_sensitive":
		default:
			if f.value.there() {
				no(f.at, "a rule has no such condition as a route's %.40s", f.name)
			}
		}
	}
	if !m.get("case_sensitive").truth(true) {
		for i, t := range l.paths {
			if t.kind != regex && !t.all() {
				l.paths[i] = text{regex, "(?i)" + t.expression()}
			}
		}
	}
	return l
}

// queryMatch returns the condition on :path that a parameter of the query fulfils its own. spelled
// is how the query may have a text: Envoy's routes compare it as it stands, its actions decode it.
func (e *envoy) queryMatch(q value, spelled func(string) string) (t text, ok bool) {
	name := q.get("name").text()
	t = hasQuery(name, spelled)
	for _, f := range q.fields() {
		switch f.name {
		case "name":
		case "present_match":
			if !f.value.truth(true) {
				return t, false
			}
		case "string_match":
			of, ok := e.stringMatch(f.value)
			if !ok || of.kind == regex {
				return t, false
			}
			t = queryOf(name, of, spelled)
		default:
			return t, false
		}
	}
	return t, name != ""
}

// hasQuery is fulfilled by a :path whose query has a parameter.
func hasQuery(name string, spelled func(string) string) text {
	return text{regex, `[^?]*\?(?:.*&)?` + spelled(name) + "(?:[=&].*)?"}
}

// queryOf is fulfilled by a :path whose query has a value for a parameter, the first of its name.
func queryOf(name string, t text, spelled func(string) string) text {
	value := strings.ReplaceAll(t.expression(), ".*", "[^&]*")
	switch t.kind {
	case exact:
		value = spelled(t.value)
	case prefix:
		value = spelled(t.value) + "[^&]*"
	case suffix:
		value = "[^&]*" + spelled(t.value)
	}
	// The names of the parameters before differ in some character, or have fewer or more.
	others, end := "[^=&][^&]*", ""
	for _, c := range slices.Backward([]rune(name)) {
		others = "[^" + regexp.QuoteMeta(string(c)) + "&][^&]*|" + regexp.QuoteMeta(string(c)) + "(?:" + others + ")" + end
		end = "?"
	}
	return text{regex, `[^?]*\?(?:(?:` + others + ")?&)*" + spelled(name) + "=" + value + "(?:&.*)?"}
}

// decoded returns an expression for a text that a query may have in percent encoding.
func decoded(s string) string {
	var expr strings.Builder
	for _, c := range s {
		var hex strings.Builder
		for _, b := range []byte(string(c)) {
			for _, digit := range fmt.Sprintf("%%%02x", b) {
				if digit >= 'a' {
					fmt.Fprintf(&hex, "[%c%c]", digit, digit-'a'+'A')
				} else {
					hex.WriteRune(digit)
				}
			}
		}
		if strings.ContainsRune(" #&", c) { // these end a query or a value
			expr.WriteString(hex.String())
		} else {
			expr.WriteString("(?:" + regexp.QuoteMeta(string(c)) + "|" + hex.String() + ")")
		}
	}
	return expr.String()
}

func (e *envoy) stringMatch(s value) (t text, ok bool) {
	for _, f := range s.fields() {
		switch f.name {
		case "exact", "prefix", "suffix":
			t, ok = text{f.name, f.value.text()}, true
		case "contains":
			t, ok = text{regex, ".*" + regexp.QuoteMeta(f.value.text()) + ".*"}, true
		case "safe_regex":
			t, ok = e.c.expression(f.value.at, f.value.get("regex").text(), true)
		case "ignore_case":
		default:
			return t, false
		}
	}
	if ok && s.get("ignore_case").truth(false) {
		ok = t.kind != regex || s.get("contains").there() // it has no effect on safe_regex
		t = text{regex, "(?i)" + t.expression()}
	}
	return t, ok
}

// headerMatch reads a condition on a header. With not, the header has to be there, and must not
// fulfil t.
func (e *envoy) headerMatch(h value) (name string, t text, not, ok bool) {
	name, t, ok = headerName(strings.ToLower(h.get("name").text())), text{present, "true"}, true
	for _, f := range h.fields() {
		switch kind := strings.TrimSuffix(f.name, "_match"); f.name {
		case "exact_match", "prefix_match", "suffix_match":
			t = text{kind, f.value.text()}
		case "contains_match":
			t = text{regex, ".*" + regexp.QuoteMeta(f.value.text()) + ".*"}
		case "safe_regex_match":
			t, ok = e.c.expression(f.value.at, f.value.get("regex").text(), true)
		case "string_match":
			t, ok = e.stringMatch(f.value)
		case "present_match":
			if !f.value.truth(true) {
				t.value = "false"
			}
		case "name", "invert_match":
		default:
			ok = ok && (!f.value.there() || f.value.text() == "false")
		}
		if !ok {
			return name, t, false, false
		}
	}
	if not = h.get("invert_match").truth(false); not && t.kind == present {
		t.value, not = map[string]string{"true": "false", "false": "true"}[t.value], false
	}
	return name, t, not, name != ""
}

// must adds a condition on a header. It reports false if a rule can't say it.
func (e *envoy) must(m *match, unless *[]match, h value) bool {
	name, t, not, ok := e.headerMatch(h)
	if !ok {
		return false
	}
	if not {
		*unless = append(*unless, onHeader(name, t))
		t = text{present, "true"}
	}
	return m.narrow(name, t)
}

// narrowAll narrows a match by several headers. It reports false if a match can't have them all.
func (m *match) narrowAll(headers map[string]text) bool {
	for name, t := range headers {
		if !m.narrow(name, t) {
			return false
		}
	}
	return true
}

// narrow adds a condition on a header to those that a match has. It reports false if a match can't
// have both.
func (m *match) narrow(name string, t text) bool {
	name = headerName(name)
	old, both := m.Headers[name]
	here, absent := text{present, "true"}, text{present, "false"}
	switch {
	case !both || old == t:
		m.header(name, t)
	case old == absent || t == absent:
		return false
	case old == here || t != here && t.within(old):
		m.header(name, t)
	case t != here && !old.within(t):
		return false
	}
	return true
}
