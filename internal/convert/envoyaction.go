package convert

import (
	"maps"
	"regexp"
	"slices"
	"strings"
)

// limit makes the use of a limit's actions at some locations. old says that it stands in a route or
// virtual host, and not in a configuration of the filter.
func (e *envoy) limit(f *envoyFilter, l value, old bool, own, others []*location) {
	u := &use{at: l.at, filter: f, own: own, others: others, when: match{Headers: maps.Clone(f.when.Headers)}}
	ok := true
	for _, f := range l.fields() {
		switch f.name {
		case "actions":
			for _, a := range f.value.list() {
				ok = e.action(u, a, len(f.value.list())) && ok
			}
		case "stage", "x_ratelimit_option": // the latter is for Envoy's own limits
		case "hits_addend":
			if old {
				e.c.lose(f.at, "hits_addend: Envoy ignores it here, and a request counts as one hit")
				continue
			}
			u.cost = e.cost(f.value, &u.when)
		case "apply_on_stream_done":
			if f.value.truth(false) {
				e.c.lose(f.at, "apply_on_stream_done: a rule charges by cost_on_response, which has other sources")
				ok = false
			}
		default:
			if f.value.there() {
				e.c.lose(f.at, "%.40s: a rule has nothing like it", f.name)
			}
		}
	}
	if ok && len(u.entries) > 0 {
		e.uses = append(e.uses, u)
	}
}

var requestHeader = regexp.MustCompile(`^%REQ\(([A-Za-z0-9_-]+)\)%$`)

// cost returns the cost of a request. Envoy asks for no request whose header is no number.
func (e *envoy) cost(v value, when *match) any {
	v.tell("hits_addend", "number", "format")
	if n := v.get("number"); n.there() {
		return n.whole(1)
	}
	if found := requestHeader.FindStringSubmatch(v.get("format").text()); found != nil {
		name := strings.ToLower(found[1])
		when.header(name, text{regex, "[0-9]+"})
		return map[string]any{"header": name, "least": 0}
	}
	v.lose("hits_addend: want a number or %%REQ(HEADER)%%")
	return nil
}

// aFormat finds what Envoy may replace in a value, if a flag of its says so.
var aFormat = regexp.MustCompile(`%[A-Z_]+(?:\(.*\))?(?::[0-9]+)?%`)

// constant reads the value of an entry that all requests share.
func (e *envoy) constant(n *entry, v value, key string) bool {
	n.constant, n.value, n.key = true, v.get("descriptor_value").text(), v.get("descriptor_key").or(key)
	if formatted := v.get("descriptor_value"); aFormat.MatchString(n.value) {
		formatted.lose("descriptor_value: a rule has no selector for %.80s", n.value)
		return false
	}
	return true
}

// action adds the entry of an action, and reports whether a rule can express the action. all is how
// many actions there are.
func (e *envoy) action(u *use, a value, all int) bool {
	if len(a.fields()) != 1 {
		a.lose("want one action")
		return false
	}
	f := a.fields()[0]
	v := f.value
	n := &entry{key: v.get("descriptor_key").text()}
	skips := func(what string) {
		if s := v.get("skip_if_absent"); s.truth(false) && all > 1 {
			s.lose("skip_if_absent: a request without %.60s gets another descriptor, which no rule counts", what)
		}
	}
	known := []string{"descriptor_key"}
	switch f.name {
	case "generic_key":
		known = append(known, "descriptor_value")
		if !e.constant(n, v, "generic_key") {
			return false
		}
	case "remote_address":
		n.key, n.selector, n.remoteAddress = "remote_address", client(), true
	case "masked_remote_address":
		known = append(known, "v4_prefix_mask_len", "v6_prefix_mask_len")
		n.key = "masked_remote_address"
		n.selector = map[string]any{clientIP: map[string]int{
			"ipv4_prefix": v.get("v4_prefix_mask_len").whole(32), "ipv6_prefix": v.get("v6_prefix_mask_len").whole(wholeAddress),
		}}
	case "request_headers":
		known = append(known, "header_name", "skip_if_absent")
		n.header = headerName(strings.ToLower(v.get("header_name").text()))
		n.selector = one("header", n.header)
		skips("the header " + n.header)
		if n.header != ":path" && n.header != ":method" && n.header != ":authority" {
			n.when.header(n.header, text{present, "true"})
		}
	case "query_parameters":
		known = append(known, "query_parameter_name", "skip_if_absent")
		n.query = v.get("query_parameter_name").text()
		n.selector = one("query", n.query)
		skips("the parameter " + n.query)
		n.when.header(":path", hasQuery(n.query, decoded))
	case "header_value_match":
		known = append(known, "descriptor_value", "expect_match", "headers")
		if !e.constant(n, v, "header_match") || !e.valueMatch(n, v) {
			return false
		}
	case "query_parameter_value_match":
		known = append(known, "descriptor_value", "expect_match", "query_parameters")
		if !e.constant(n, v, "query_match") || !e.queryValueMatch(n, v) {
			return false
		}
	case "destination_cluster", "source_cluster":
		e.c.lose(f.at, "%s: a rule does not know the cluster", f.name)
		return false
	case "metadata", "dynamic_metadata":
		known = append(known, "metadata_key", "default_value", "source", "skip_if_absent")
		property := []string{"metadata", "filter_metadata", v.get("metadata_key", "key").text()}
		switch source := v.get("source"); source.or("DYNAMIC") {
		case "DYNAMIC", "0":
		case "ROUTE_ENTRY", "1":
			property[0] = "xds.route_metadata"
		default:
			source.lose("source: a rule has no selector for %.60s", source.text())
			return false
		}
		for _, segment := range v.get("metadata_key", "path").list() {
			property = append(property, segment.get("key").text())
		}
		n.selector = map[string]any{"property": property}
		if skip := v.get("skip_if_absent"); skip.truth(false) {
			skip.lose("skip_if_absent: a request without this metadata gets another descriptor, which no rule counts")
		}
		if v.get("default_value").there() {
			v.lose("default_value: a rule counts requests without this metadata under the empty value")
		} else {
			v.lose("%s: Envoy does not limit requests without this metadata; a rule counts them together", f.name)
		}
	default:
		e.c.lose(f.at, "%.40s: a rule has no selector like it", f.name)
		return false
	}
	if v.tell("this action", known...) {
		return false
	}
	u.entries = append(u.entries, n)
	return true
}

// valueMatch finds which requests have the entry of header_value_match.
func (e *envoy) valueMatch(n *entry, v value) bool {
	expected := v.get("expect_match").truth(true)
	var all match
	for _, h := range v.get("headers").list() {
		var ok bool
		if expected {
			ok = e.must(&n.when, &n.unless, h)
		} else {
			name, t, not, known := e.headerMatch(h)
			ok = known && !not && all.narrow(name, t)
		}
		if !ok {
			h.lose("a rule can't say this condition of a header")
			return false
		}
	}
	if !expected {
		n.unless = append(n.unless, all)
	}
	return len(v.get("headers").list()) > 0
}

// queryValueMatch finds which requests have the entry of query_parameter_value_match.
func (e *envoy) queryValueMatch(n *entry, v value) bool {
	parameters := v.get("query_parameters").list()
	for _, q := range parameters {
		t, ok := e.queryMatch(q, decoded)
		switch {
		case !ok || len(parameters) > 1:
			q.lose("a rule can't say this condition of the query")
			return false
		case v.get("expect_match").truth(true):
			n.when.header(":path", t)
		default:
			n.unless = append(n.unless, onHeader(":path", t))
		}
	}
	return len(parameters) > 0
}

// requests narrows a match and its exceptions to the requests that have an entry.
func (n *entry) requests(m *match, except *[]any) bool {
	if !m.narrowAll(n.when.Headers) {
		return false
	}
	for _, u := range n.unless {
		*except = append(*except, u)
	}
	return true
}

// has reports whether a list has a value.
func has(limits []value, l value) bool {
	return slices.ContainsFunc(limits, func(o value) bool { return o.node == l.node })
}
