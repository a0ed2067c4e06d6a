package convert

import (
	"regexp"
	"strings"
)

// envoy finds rate limits in documents of Envoy, and in Istio's EnvoyFilters.
type envoy struct {
	c      *converter
	domain string
	// deny says that requests are refused while the service is away.
	deny   bool
	status int
	uses   []*use
}

// use is a list of actions of some routes, whose requests have the actions' descriptor.
type use struct {
	at      place
	entries []*entry
	cost    any
	own     []*location
	others  []*location
}

// entry is an entry of a descriptor.
type entry struct {
	key string
	// constant says that all requests have the same value.
	constant bool
	value    string
	// selector says where the value of a variable entry comes from: a header, a parameter of the
	// query or another part of the request.
	selector      any
	header, query string
	remoteAddress bool
	// when and unless select the requests that have the entry. All others have no descriptor.
	when   match
	unless []any
}

// walk looks for route configurations, and for the filter.
func (e *envoy) walk(v value, depth int) {
	if depth > maxNested || e.c.err != nil {
		return
	}
	if strings.HasSuffix(v.get("@type").text(), "extensions.filters.http.ratelimit.v3.RateLimit") {
		e.filter(v)
		return
	}
	if hosts := v.get("virtual_hosts"); hosts.there() {
		e.hosts(hosts.list())
		return
	}
	if v.get("rate_limits").there() {
		// An Istio patch, which does not name its host or route.
		l := &location{at: v.at()}
		e.limits(v.get("rate_limits").list(), []*location{l}, nil)
		return
	}
	for _, f := range v.fields() {
		e.walk(f.value, depth+1)
	}
	for _, element := range v.list() {
		e.walk(element, depth+1)
	}
}

func (e *envoy) filter(v value) {
	e.domain = v.get("domain").or(e.domain)
	e.deny = v.get("failure_mode_deny").truth(false)
	if code := v.get("rate_limited_status", "code"); code.there() {
		e.status = code.whole(429)
	}
	if stage := v.get("stage"); stage.there() && stage.text() != "0" {
		stage.lose("stage: a filter of Weir applies all of its rules")
	}
	if kind := v.get("request_type"); kind.there() && kind.text() != "both" {
		kind.lose("request_type: a rule can't tell internal requests from others")
	}
}

// envoyRoute is a route with its rate limits.
type envoyRoute struct {
	location *location
	limits   []value
	host     int
}

func (e *envoy) hosts(hosts []value) {
	var routes []*envoyRoute
	for i, host := range hosts {
		var domains []text
		rank := 0
		for _, domain := range host.get("domains").texts() {
			domain, _, _ = strings.Cut(strings.ToLower(domain), ":")
			switch {
			case domain == "*":
				domains = nil
			case strings.HasPrefix(domain, "*"):
				domains, rank = append(domains, text{suffix, domain[1:]}), 2
			case strings.HasSuffix(domain, "*"):
				domains, rank = append(domains, text{prefix, domain[:len(domain)-1]}), 1
			default:
				domains, rank = append(domains, text{exact, domain}), 3
			}
		}
		for j, r := range host.get("routes").list() {
			l, ok := e.route(r, domains)
			if !ok {
				continue
			}
			l.rank = []int{rank, -j}
			limits := r.get("route", "rate_limits").list()
			if len(limits) == 0 || r.get("route", "include_vh_rate_limits").truth(false) {
				limits = append(limits, host.get("rate_limits").list()...)
			}
			routes = append(routes, &envoyRoute{l, limits, i})
		}
		if len(host.get("routes").list()) == 0 {
			// The host's routes may be elsewhere.
			routes = append(routes, &envoyRoute{&location{at: host.at(), hosts: domains, rank: []int{rank, 0}}, host.get("rate_limits").list(), i})
		}
	}
	done := map[place]bool{}
	for _, r := range routes {
		for _, l := range r.limits {
			if done[l.at()] {
				continue
			}
			done[l.at()] = true
			var own, others []*location
			for _, o := range routes {
				if has(o.limits, l) {
					own = append(own, o.location)
				} else {
					others = append(others, o.location)
				}
			}
			e.limits([]value{l}, own, others)
		}
	}
}

func has(limits []value, l value) bool {
	for _, o := range limits {
		if o.node == l.node {
			return true
		}
	}
	return false
}

// route returns the location of a route.
func (e *envoy) route(r value, hosts []text) (*location, bool) {
	l := &location{at: r.at(), hosts: hosts}
	for _, f := range r.get("match").fields() {
		switch f.name {
		case "prefix":
			l.paths = []text{{prefix, f.value.text()}}
		case "path":
			l.paths = []text{{exact, f.value.text()}}
		case "path_separated_prefix":
			l.paths = []text{{exact, f.value.text()}, {prefix, f.value.text() + "/"}}
		case "safe_regex":
			t, ok := e.c.expression(f.value.at(), f.value.get("regex").text(), true)
			if !ok {
				return nil, false
			}
			l.paths = []text{t}
		case "headers":
			for _, h := range f.value.list() {
				name, t, not, ok := e.headerMatch(h)
				if !ok || not {
					h.lose("a rule can't say this condition of a route")
					return nil, false
				}
				l.rest.header(name, t)
			}
		case "case_sensitive":
			if !f.value.truth(true) {
				e.c.lose(f.at, "case_sensitive: a rule's paths are always case-sensitive")
			}
		default:
			e.c.lose(f.at, "a rule has no such condition as a route's %.40s", f.name)
		}
	}
	return l, true
}

// headerMatch reads a condition on a header. With not, the header must not fulfil it.
func (e *envoy) headerMatch(h value) (name string, t text, not, ok bool) {
	name = strings.ToLower(h.get("name").text())
	t = text{present, "true"}
	not = h.get("invert_match").truth(false)
	ok = name != ""
	s := h.get("string_match")
	if s.get("ignore_case").truth(false) {
		return name, t, not, false
	}
	for _, f := range append(h.fields(), s.fields()...) {
		switch strings.TrimSuffix(f.name, "_match") {
		case "exact", "prefix", "suffix":
			t = text{strings.TrimSuffix(f.name, "_match"), f.value.text()}
		case "contains":
			t = text{regex, ".*" + regexp.QuoteMeta(f.value.text()) + ".*"}
		case "safe_regex":
			var fine bool
			t, fine = e.c.expression(f.value.at(), f.value.get("regex").text(), true)
			ok = ok && fine
		case "present":
			t.value = f.value.or("true")
		case "name", "invert", "string", "ignore_case":
		default:
			ok = false
		}
	}
	return name, t, not, ok
}

func (e *envoy) limits(all []value, own, others []*location) {
	for _, l := range all {
		u := &use{at: l.at(), own: own, others: others}
		ok := true
		for _, f := range l.fields() {
			switch f.name {
			case "actions":
				for _, a := range f.value.list() {
					if !e.action(u, a) {
						ok = false
					}
				}
			case "stage":
				if f.value.text() != "0" {
					e.c.lose(f.at, "stage: a filter of Weir applies all of its rules")
				}
			case "hits_addend":
				u.cost = e.cost(f.value)
			default:
				e.c.lose(f.at, "%.40s: a rule has nothing like it", f.name)
			}
		}
		if ok && len(u.entries) > 0 {
			e.uses = append(e.uses, u)
		}
	}
}

var responseHeader = regexp.MustCompile(`^%REQ\(([A-Za-z0-9_-]+)\)%$`)

func (e *envoy) cost(v value) any {
	if n := v.get("number"); n.there() {
		return n.whole(1)
	}
	if found := responseHeader.FindStringSubmatch(v.get("format").text()); found != nil {
		return map[string]any{"header": strings.ToLower(found[1]), "least": 0}
	}
	v.lose("hits_addend: want a number or %%REQ(HEADER)%%")
	return nil
}

// action adds the entry of an action, and reports whether a rule can express the action.
func (e *envoy) action(u *use, a value) bool {
	for _, f := range a.fields() {
		v := f.value
		n := &entry{key: v.get("descriptor_key").text()}
		switch f.name {
		case "generic_key":
			n.constant, n.value = true, v.get("descriptor_value").text()
			n.key = v.get("descriptor_key").or("generic_key")
		case "remote_address":
			n.key, n.selector, n.remoteAddress = "remote_address", client(), true
		case "masked_remote_address":
			n.key = "masked_remote_address"
			n.selector = map[string]any{clientIP: map[string]int{
				"ipv4_prefix": v.get("v4_prefix_mask_len").whole(32), "ipv6_prefix": v.get("v6_prefix_mask_len").whole(wholeAddress),
			}}
		case "request_headers":
			n.header = strings.ToLower(v.get("header_name").text())
			n.selector = one("header", n.header)
			if v.get("skip_if_absent").truth(false) {
				e.c.lose(f.at, "skip_if_absent: a request without the header %.40s gets another descriptor, which no rule counts", n.header)
			}
			if n.header != ":path" && n.header != ":method" && n.header != ":authority" {
				n.when.header(n.header, text{present, "true"})
			}
		case "query_parameters":
			n.query = v.get("query_parameter_name").text()
			n.selector = one("query", n.query)
			n.when.header(":path", text{regex, `[^?]*\?(?:.*&)?` + regexp.QuoteMeta(n.query) + "(?:[=&].*)?"})
		case "header_value_match":
			n.constant, n.value = true, v.get("descriptor_value").text()
			n.key = v.get("descriptor_key").or("header_match")
			if !e.valueMatch(n, v) {
				return false
			}
		case "destination_cluster", "source_cluster":
			e.c.lose(f.at, "%s: a rule does not know the cluster", f.name)
			return false
		case "metadata", "dynamic_metadata":
			property := []string{"metadata", "filter_metadata", v.get("metadata_key", "key").text()}
			if v.get("source").text() == "ROUTE_ENTRY" {
				property[0] = "xds.route_metadata"
			}
			for _, segment := range v.get("metadata_key", "path").list() {
				property = append(property, segment.get("key").text())
			}
			n.selector = map[string]any{"property": property}
			if v.get("default_value").there() {
				v.lose("default_value: a rule counts requests without this metadata under the empty value")
			} else {
				v.lose("%s: Envoy does not limit requests without this metadata; a rule counts them together", f.name)
			}
		default:
			e.c.lose(f.at, "%.40s: a rule has no selector like it", f.name)
			return false
		}
		u.entries = append(u.entries, n)
	}
	return true
}

// valueMatch finds which requests have the entry of header_value_match.
func (e *envoy) valueMatch(n *entry, v value) bool {
	expected := v.get("expect_match").truth(true)
	headers := v.get("headers").list()
	for _, h := range headers {
		name, t, not, ok := e.headerMatch(h)
		switch {
		case !ok || len(headers) > 1 && !expected:
			h.lose("a rule can't say this condition of a header")
			return false
		case not == expected:
			n.unless = append(n.unless, match{Headers: map[string]text{name: t}})
		default:
			n.when.header(name, t)
		}
	}
	return true
}
