package convert

import (
	"math"
	"net/http"
	"slices"
	"strings"
)

// envoy finds rate limits in documents of Envoy, and in Istio's EnvoyFilters.
type envoy struct {
	c *converter
	// filters are those that ask the service, of all connection managers.
	filters []*envoyFilter
	tables  []*envoyTable
	patches []*envoyPlace
	domain  string
	// deny says that requests are refused while the service is away.
	deny   bool
	status int
	uses   []*use
	// context is where the first of Istio's patches has limits, and hosts the first of their virtual
	// hosts by name without port.
	context value
	hosts   map[string]value
}

// envoyFilter is a filter that asks the service.
type envoyFilter struct {
	at           place
	name, domain string
	stage        int
	// off says that only routes that configure the filter have it.
	off bool
	// shadow says that the service is asked, and no request is refused.
	shadow bool
	// when and unless select the requests that the filter asks for.
	when   match
	unless []match
	// limits go before those of routes.
	limits []value
}

// envoyTable is a route configuration, with the filters of its connection manager. portless says
// that ports in hosts are ignored.
type envoyTable struct {
	value    value
	filters  []*envoyFilter // nil if they are elsewhere
	portless bool
}

// use is a list of actions of some routes, whose requests have the actions' descriptor.
type use struct {
	at      place
	filter  *envoyFilter
	entries []*entry
	cost    any
	when    match
	own     []*location
	others  []*location
}

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
	unless []match
}

const (
	ratelimitName = "envoy.filters.http.ratelimit"
	unknownField  = "%.60s: convert does not know what this does in %s"
)

// typed returns the name of a message's type, and the message, which may be in a TypedStruct.
func typed(v value) (name string, message value) {
	last := func(url string) string { return url[strings.LastIndexByte(url, '/')+1:] }
	if name = last(v.get("@type").text()); strings.HasSuffix(name, ".TypedStruct") {
		return last(v.get("type_url").text()), v.get("value")
	}
	return name, v
}

// tell tells the fields of a message that are not known. It reports whether there are any.
func (v value) tell(of string, known ...string) (told bool) {
	for _, f := range v.fields() {
		if f.name != "@type" && f.value.there() && !slices.Contains(known, f.name) {
			v.c.lose(f.at, unknownField, f.name, of)
			told = true
		}
	}
	return told
}

// read collects filters and routes, and makes the uses of all limits.
func (e *envoy) read(documents []value) {
	for _, d := range documents {
		switch {
		case d.get("kind").text() == "EnvoyFilter":
			e.istio(d)
		case d.get("rate_limits").there() && !d.get("domain").there() && !d.get("domains").there():
			// A part of a virtual host or a route, which does not name it.
			e.patch(d, &location{at: d.at}, d)
		case d.get("domains").there():
			e.tables = append(e.tables, &envoyTable{value: d})
		default:
			e.walk(d, 0)
		}
	}
	e.judge()
	for _, t := range e.tables {
		e.table(t)
	}
	for _, f := range e.asked(nil) {
		e.useAll(f, e.patches, true)
	}
}

// judge chooses the domain. A namespace has one, and one way to refuse.
func (e *envoy) judge() {
	if len(e.filters) == 0 {
		e.filters = []*envoyFilter{{name: ratelimitName, domain: e.domain}}
		return
	}
	e.domain = e.filters[0].domain
	e.filters = slices.DeleteFunc(e.filters, func(f *envoyFilter) bool {
		if f.domain != e.domain {
			e.c.lose(f.at, "a filter of Weir has one domain, which is %.80s: convert %.80s by itself", e.domain, f.domain)
		}
		return f.domain != e.domain
	})
}

// asked returns the filters of a connection manager that ask for the domain; nil stands for all.
func (e *envoy) asked(of []*envoyFilter) (all []*envoyFilter) {
	for _, f := range e.filters {
		if of == nil && !slices.ContainsFunc(all, func(o *envoyFilter) bool { return o.stage == f.stage && o.name == f.name }) || slices.Contains(of, f) {
			all = append(all, f)
		}
	}
	return all
}

// walk looks for filters and route configurations.
func (e *envoy) walk(v value, depth int) {
	if depth > maxNested || e.c.err != nil {
		return
	}
	name, message := typed(v)
	switch {
	case strings.Contains(name, ".local_ratelimit.") || strings.HasSuffix(name, ".http.ratelimit.v3.RateLimitPerRoute"):
		return // the former stays in Envoy
	case strings.HasSuffix(name, ".http.ratelimit.v3.RateLimit"):
		e.filter(message, value{c: e.c})
		return
	case message.get("http_filters").there():
		e.manager(message, depth)
		return
	case message.get("virtual_hosts").there():
		e.tables = append(e.tables, &envoyTable{value: message})
		return
	}
	if name, message := typed(v.get("typed_config")); strings.HasSuffix(name, ".http.ratelimit.v3.RateLimit") {
		e.filter(message, v)
		return
	}
	for _, f := range message.fields() {
		// A path is that of a JSON patch, as Envoy Gateway has them.
		if f.value.there() && strings.Contains(f.name, "rate_limit") || f.name == "path" && strings.Contains(f.value.text(), "rate_limit") {
			e.c.lose(f.at, "%.60s: convert reads no rate limits here", f.name)
			continue
		}
		e.walk(f.value, depth+1)
	}
	for _, element := range message.list() {
		e.walk(element, depth+1)
	}
}

func (e *envoy) manager(v value, depth int) {
	before := len(e.filters)
	t := &envoyTable{value: v.get("route_config"), portless: v.get("strip_any_host_port").truth(false)}
	for _, f := range v.fields() {
		if f.name != "route_config" {
			e.walk(f.value, depth+1)
		}
	}
	if !t.value.there() {
		return
	}
	t.filters = e.filters[before:]
	if len(t.filters) == 0 {
		t.value.lose("no filter of this connection manager asks the rate limit service, so that its routes have no limits")
		return
	}
	e.tables = append(e.tables, t)
}

// filter reads a filter that asks the service, and its entry in a list of filters.
func (e *envoy) filter(v, entry value) {
	f := &envoyFilter{at: v.at, name: entry.get("name").or(ratelimitName), domain: v.get("domain").text(), off: entry.get("disabled").truth(false), limits: v.get("rate_limits").list()}
	entry.tell("an HTTP filter", "name", "typed_config", "disabled", "is_optional")
	v.tell("the filter", "domain", "stage", "request_type", "failure_mode_deny", "rate_limited_status", "rate_limits", "filter_enabled", "filter_enforced",
		// How long the service is waited for, how it is found, and what headers are sent.
		"timeout", "rate_limit_service", "stat_prefix", "enable_x_ratelimit_headers", "disable_x_envoy_ratelimited_header", "rate_limited_as_resource_exhausted")
	f.stage = v.get("stage").whole(0)
	deny, status := v.get("failure_mode_deny").truth(false), e.statusOf(v.get("rate_limited_status"))
	if len(e.filters) == 0 {
		e.deny, e.status = deny, status
	} else if e.deny != deny || e.status != status {
		v.lose("a filter of Weir refuses by one status, and does the same for all rules while the backend is away: as the filter at line %d", e.filters[0].at.line)
	}
	const internal = "x-envoy-internal"
	switch kind := v.get("request_type"); kind.or("both") {
	case "both":
	case "internal":
		f.when.header(internal, text{exact, "true"})
	case "external":
		f.unless = append(f.unless, onHeader(internal, text{exact, "true"}))
	default:
		kind.lose("request_type: want internal, external or both, got %.40q", kind.text())
		return
	}
	for _, name := range []string{"filter_enabled", "filter_enforced"} {
		switch share := v.get(name); shareOf(share) {
		case 1:
		case 0:
			if f.shadow = true; name == "filter_enabled" {
				return
			}
		default:
			f.shadow = true
			share.lose("%s: a rule applies to all requests or to none, so the rules refuse nothing", name)
		}
	}
	e.filters = append(e.filters, f)
}

// shareOf returns the part of all requests, up to 1, that a fraction stands for.
func shareOf(v value) float64 {
	if !v.there() {
		return 1
	}
	of := map[string]float64{"": 100, "HUNDRED": 100, "0": 100, "TEN_THOUSAND": 1e4, "1": 1e4, "MILLION": 1e6, "2": 1e6}[v.get("default_value", "denominator").text()]
	return math.Min(1, v.get("default_value", "numerator").number(0)/of)
}

func (e *envoy) statusOf(v value) int {
	v.tell("a status", "code")
	code := v.get("code")
	status := statusNamed(code.text())
	if status == 0 {
		status = code.whole(http.StatusTooManyRequests)
	}
	switch {
	case status < http.StatusBadRequest:
		return http.StatusTooManyRequests // as Envoy does
	case status > 599:
		code.lose("want a status from 400 to 599, got %d", status)
		return http.StatusTooManyRequests
	}
	return status
}

// statusNamed returns the status that Envoy names so, or 0. Most names are those of Go without
// spaces.
func statusNamed(name string) int {
	others := map[string]int{
		"PayloadTooLarge": http.StatusRequestEntityTooLarge, "URITooLong": http.StatusRequestURITooLong, "RangeNotSatisfiable": http.StatusRequestedRangeNotSatisfiable,
	}
	if status := others[name]; status != 0 {
		return status
	}
	for status := http.StatusOK; status < 600 && name != ""; status++ {
		if strings.ReplaceAll(http.StatusText(status), " ", "") == name {
			return status
		}
	}
	return 0
}

func (e *envoy) istio(d value) {
	for _, p := range d.get("spec", "config_patches").list() {
		patch := p.get("patch", "value")
		switch kind := p.get("apply_to").text(); kind {
		case "VIRTUAL_HOST", "HTTP_ROUTE":
			if l := e.patched(p); l != nil {
				limits := patch
				if kind == "HTTP_ROUTE" {
					limits = patch.get("route")
					patch.tell("a patch of a route", append(harmlessInRoutes, "route", "typed_per_filter_config")...)
				} else {
					patch.tell("a patch of a virtual host", append(harmlessInHosts, "rate_limits", "typed_per_filter_config")...)
				}
				e.patch(limits, l, patch)
			}
		default:
			e.walk(patch, 0)
		}
		switch operation := p.get("patch", "operation"); operation.or("MERGE") {
		case "MERGE", "ADD", "INSERT_BEFORE", "INSERT_AFTER", "INSERT_FIRST", "REPLACE":
		default:
			operation.lose("operation: convert does not know what %.40s leaves", operation.text())
		}
	}
}

// patched returns the requests of the virtual hosts or routes that a patch changes; nil if a rule
// can't say them.
func (e *envoy) patched(p value) *location {
	l := &location{at: p.at, rank: []int{0}}
	const listeners = "%s: a rule counts the requests of all listeners, also those of line %d: convert each by itself"
	if context := p.get("match", "context"); e.hosts == nil {
		e.context, e.hosts = context, map[string]value{}
	} else if context.or("ANY") != e.context.or("ANY") {
		context.lose(listeners, "context", e.context.at.line)
	}
	for _, f := range p.get("match").fields() {
		switch f.name {
		case "context":
		case "route_configuration":
			host := f.value.get("vhost")
			for _, f := range f.value.fields() {
				if f.name != "vhost" && f.value.there() {
					e.c.lose(f.at, "%.60s: a rule does not know the listener, and counts the requests of all", f.name)
				}
			}
			if host.tell("the match of a virtual host", "name", "route") {
				return nil
			}
			for _, f := range host.get("route").fields() {
				if f.name != "action" || f.value.or("ANY") != "ANY" {
					e.c.lose(f.at, "%.60s: a rule does not know Istio's routes", f.name)
					return nil
				}
			}
			if name := host.get("name"); name.text() != "" {
				if strings.Contains(name.text(), "|") && !strings.HasPrefix(name.text(), "inbound|") || strings.Contains(name.text(), ".svc.") {
					name.lose("vhost: Istio's virtual host %.80s has other names, which the rule does not know", name.text())
				}
				if !strings.HasPrefix(name.text(), "inbound|") {
					l.rank[0] = 1
					before, port, _ := cutPort(strings.ToLower(name.text()))
					if first, ok := e.hosts[before]; !ok {
						e.hosts[before] = name
					} else if _, other, _ := cutPort(first.text()); other != port {
						name.lose(listeners, "vhost", first.at.line)
					}
					if t := domainText(before); !t.all() {
						l.hosts = []text{t}
					}
				}
			}
		default:
			e.c.lose(f.at, unknownField, f.name, "the match of a patch")
			return nil
		}
	}
	return l
}

// patch collects the limits of a patch's virtual host or route.
func (e *envoy) patch(limits value, l *location, over value) {
	e.patches = append(e.patches, &envoyPlace{location: l, route: limits.get("rate_limits").list(), overrides: []value{over.get("typed_per_filter_config")}, forwards: true})
}

// useAll makes the uses of a filter's limits at some places. Patches of Istio add to each other,
// so that limits of one apply where those of others do.
func (e *envoy) useAll(f *envoyFilter, places []*envoyPlace, patches bool) {
	var limits [][]value
	for _, p := range places {
		limits = append(limits, e.limitsAt(f, p))
	}
	done := map[place]bool{}
	for i := range places {
		for _, l := range limits[i] {
			if done[l.at] {
				continue
			}
			done[l.at] = true
			var own, others []*location
			for j, o := range places {
				switch {
				case has(limits[j], l):
					own = append(own, o.location)
				case !patches || o.off:
					others = append(others, o.location)
				}
			}
			legacy := has(places[i].route, l) || has(places[i].host, l)
			e.limit(f, l, legacy, own, others)
		}
	}
}
