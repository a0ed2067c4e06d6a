package convert

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// kongRoute is a route of Kong, by one of its paths if it has any: Kong ranks each by itself. A route leads to a service.
type kongRoute struct {
	names    []string // name and id
	services []string
	location *location
	// traditional is the rank with Kong's older router.
	traditional []int
}

type kongPlugin struct {
	value, config  value
	name           string
	service, route string
	consumer       bool // or for a consumer group
	disabled       bool
}

type kong struct {
	c       *converter
	routes  []*kongRoute
	plugins []*kongPlugin
	// auths are the plugins that turn a client into a consumer, and others those that may change or
	// answer requests before they count.
	auths, others []*kongPlugin
	// regexes says that a path with certain characters is a regular expression, as before version 3.
	regexes bool
	shared  value // configurations that plugins name
	// spaces has the namespaces of plugins, and where each was first seen.
	spaces map[string]place
	// services has the names of each service by each of them, and none if it is disabled.
	services map[string][]string
	unnamed  map[string]int
}

const (
	kongBasic    = "rate-limiting"
	kongAdvanced = "rate-limiting-advanced"
)

var kongAuths = []string{"key-auth", "key-auth-enc", "jwt", "basic-auth", "oauth2", "hmac-auth", "ldap-auth", "ldap-auth-advanced", "openid-connect", "mtls-auth", "session"}

// kongHarmless are plugins that leave requests as they are, or act after a request has counted.
var kongHarmless = []string{
	"file-log", "http-log", "tcp-log", "udp-log", "syslog", "loggly", "statsd", "statsd-advanced", "datadog", "prometheus", "zipkin", "opentelemetry", "correlation-id",
	"request-transformer", "request-transformer-advanced", "response-transformer", "response-transformer-advanced", "proxy-cache", "proxy-cache-advanced",
	"aws-lambda", "azure-functions", "redirect", "grpc-web",
	"ai-proxy", "ai-prompt-decorator", "ai-prompt-guard", "ai-prompt-template", "ai-request-transformer", "ai-response-transformer",
}

var (
	kongPluginFields = []string{"name", "config", "enabled", "service", "route", "consumer", "consumer_group", "protocols", "tags", "id", "created_at", "updated_at", "instance_name",
		"run_on", "_comment", "_ignore", "_config"}
	kongRouteFields = []string{"id", "name", "created_at", "updated_at", "hosts", "paths", "methods", "headers", "protocols", "https_redirect_status_code", "strip_path",
		"preserve_host", "request_buffering", "response_buffering", "tags", "service", "regex_priority", "path_handling", "plugins", "snis", "sources", "destinations", "expression",
		"priority", "_comment", "_ignore"}
	kongServiceFields = []string{"id", "name", "created_at", "updated_at", "url", "host", "port", "path", "protocol", "retries", "connect_timeout", "write_timeout", "read_timeout",
		"tags", "routes", "plugins", "enabled", "client_certificate", "tls_verify", "tls_verify_depth", "tls_sans", "ca_certificates", "_comment", "_ignore"}
	kongFields = []string{"_format_version", "_transform", "_info", "_workspace", "_konnect", "_comment", "_plugin_configs", "services", "routes", "plugins", "consumers",
		"consumer_groups", "upstreams", "targets", "certificates", "ca_certificates", "snis", "vaults", "keys", "key_sets", "licenses",
		"keyauth_credentials", "basicauth_credentials", "jwt_secrets", "hmacauth_credentials", "oauth2_credentials", "acls"}
)

// kong reads rate-limiting and rate-limiting-advanced from Kong's declarative configuration.
func (c *converter) kong() {
	k := &kong{c: c, spaces: map[string]place{}, services: map[string][]string{}, unnamed: map[string]int{}}
	for _, d := range c.documents() {
		if d.loses("kind", "kind: convert reads Kong's declarative configuration, and no resources of Kubernetes") {
			continue
		}
		d.tell("Kong's configuration", append(kongFields, mergedFields(d)...)...)
		k.regexes, k.shared = d.get("_format_version").number(3) < 3, d.get("_plugin_configs")
		for _, s := range d.get("services").list() {
			k.readService(s)
		}
		for _, r := range d.get("routes").list() {
			k.readRoute(r, r.get("service"))
		}
		for _, p := range d.get("plugins").list() {
			k.readPlugin(p, "", "")
		}
		for _, name := range []string{"consumers", "consumer_groups"} {
			for _, consumer := range d.get(name).list() {
				for _, p := range consumer.get("plugins").list() {
					k.readPlugin(p, "", "").consumer = true
				}
			}
		}
	}
	for _, p := range k.plugins {
		if c.err == nil && !p.disabled {
			k.limit(p)
		}
	}
	for _, p := range append(k.auths, k.others...) {
		if !p.disabled && k.precedes(p) {
			what := "what it refuses, answers or changes counts as it came"
			if slices.Contains(kongAuths, p.name) {
				what = "requests that it refuses count too"
			}
			p.value.lose("the plugin %.40s is not converted: %s", p.name, what)
		}
	}
	c.settle()
}

// mergedFields are fields that files keep values in, for others to refer to by aliases.
func mergedFields(d value) (all []string) {
	for _, f := range d.fields() {
		if strings.HasPrefix(f.name, "x-") || f.value.node != nil && f.value.node.Anchor != "" {
			all = append(all, f.name)
		}
	}
	return all
}

// precedes reports whether requests meet a plugin and a limiter.
func (k *kong) precedes(p *kongPlugin) bool {
	limits := func(where func(*kongPlugin) bool) bool {
		return slices.ContainsFunc(k.plugins, func(l *kongPlugin) bool { return !l.disabled && where(l) })
	}
	return p.everywhere() && limits((*kongPlugin).everywhere) || slices.ContainsFunc(k.routes, func(r *kongRoute) bool {
		return p.holds(r) && limits(func(l *kongPlugin) bool { return l.holds(r) }) // few plugins have a route, of thousands
	})
}

func (p *kongPlugin) everywhere() bool { return p.service == "" && p.route == "" }

// names returns the name and the id of a value, or one that no other has: several may stand in a line.
func (k *kong) names(v value, unnamed string) (all []string) {
	for _, name := range []string{v.get("name").text(), v.get("id").text()} {
		if name != "" {
			all = append(all, name)
		}
	}
	if len(all) > 0 {
		return all
	}
	k.unnamed[unnamed]++
	if n := k.unnamed[unnamed]; n > 1 {
		unnamed += fmt.Sprint(" ", n)
	}
	return []string{unnamed}
}

func (k *kong) readService(s value) {
	services := k.names(s, s.at.file+" "+duration(uint64(s.at.line)))
	s.tell("a service", kongServiceFields...)
	enabled := s.get("enabled").truth(true)
	for _, name := range services {
		if k.services[name] = services; !enabled {
			k.services[name] = nil
		}
	}
	if !enabled {
		return // it has no routes
	}
	for _, r := range s.get("routes").list() {
		k.route(r, services)
	}
	for _, p := range s.get("plugins").list() {
		k.readPlugin(p, services[0], "")
	}
}

// reference returns the name by which a value refers to another object.
func reference(v value) string {
	return cmp.Or(v.text(), v.get("name").text(), v.get("id").text())
}

func (k *kong) readRoute(r, service value) {
	var services []string
	if s := reference(service); s != "" {
		known, found := k.services[s]
		if services = known; !found {
			services = []string{s}
		} else if known == nil {
			return // the service is disabled
		}
	}
	k.route(r, services)
}

// aRegex finds the characters that made a path a regular expression before version 3.
var aRegex = regexp.MustCompile(`[^a-zA-Z0-9.\-_~/%]`)

func (k *kong) route(r value, services []string) {
	l := location{at: r.at}
	names := k.names(r, "route at "+duration(uint64(r.at.line)))
	r.tell("a route", kongRouteFields...)
	no := func(at place, format string, args ...any) {
		k.c.lose(at, format, args...)
		l.partly = true
	}
	for _, p := range r.get("plugins").list() {
		k.readPlugin(p, "", names[0])
	}
	if protocols := r.get("protocols").texts(); len(protocols) > 0 && !slices.ContainsFunc(protocols, func(p string) bool { return strings.HasPrefix(p, "http") || strings.HasPrefix(p, "grpc") }) {
		return // it has no requests
	}
	plain := r.get("hosts").there()
	for _, h := range r.get("hosts").either() {
		host, port, found := cutPort(strings.ToLower(h.text()))
		if found {
			no(h.at, "a rule can't say the port %s of this host alone", port)
		}
		l.hosts, plain = append(l.hosts, domainText(host)), plain && !strings.Contains(host, "*")
	}
	l.rest.Methods = r.get("methods").texts()
	for _, h := range r.get("headers").fields() {
		texts := h.value.texts()
		if len(texts) == 0 || slices.ContainsFunc(texts, func(text string) bool { return strings.HasPrefix(text, "~*") }) {
			no(h.at, "a rule can't say this condition of a route")
			continue
		}
		for i := range texts {
			texts[i] = regexp.QuoteMeta(texts[i])
		}
		// Kong ignores the case.
		l.rest.header(strings.ToLower(h.name), text{regex, "(?i)" + strings.Join(texts, "|")})
	}
	for _, name := range []string{"snis", "sources", "destinations", "expression"} {
		l.partly = r.loses(name, "%s: a rule has no such condition") || l.partly
	}
	count, kinds := 0, 0
	for i, name := range []string{"hosts", "headers", "paths", "methods", "snis", "sources", "destinations"} {
		if v := r.get(name); len(v.either())+len(v.fields()) > 0 {
			count, kinds = count+1, kinds|64>>i
		}
	}
	// Of the routes that a request fits, Kong takes the one of the highest number: get_priority in kong/router/transform.lua.
	// That means to have the count of conditions above all. But LuaJIT shifts the count, the headers and the priority as
	// numbers of 32 bits, and only the marks of plain hosts and of regular expressions as 64. So these rank first, unless
	// the lower half is negative, as with four conditions: its sign fills the upper half.
	// The older router compares the parts one by one.
	const isRegex, isPlain, hasExpression, isNegative = 1, 2, 4, 5
	headers := min(len(r.get("headers").fields()), 255)
	add := func(l location, marks, priority, length int) {
		half := int32(uint32(count)<<29 | uint32(headers)<<20 | uint32(priority)<<19 | uint32(length)&(1<<19-1))
		if l.rank = []int{marks, int(half)}; half < 0 {
			l.rank[0] = isNegative
		}
		k.routes = append(k.routes, &kongRoute{names, services, &l, []int{marks & hasExpression, count, kinds, marks, headers, priority, length}})
	}
	marks := 0
	switch {
	case r.get("expression").there():
		marks = hasExpression
	case plain:
		marks = isPlain
	}
	before, paths := len(k.routes), r.get("paths").either()
	if len(paths) == 0 {
		add(l, marks, 0, 0)
	}
	for _, p := range paths {
		path, of := p.text(), l
		expr, found := strings.CutPrefix(path, "~")
		if found && !k.regexes || k.regexes && aRegex.MatchString(path) {
			t, ok := k.c.expression(p.at, "^"+expr, false)
			if of.paths = []text{t}; !ok {
				of.paths, l.partly = nil, true // all may be the route's
			}
			add(of, marks|isRegex, r.get("regex_priority").whole(0), 0)
		} else {
			of.paths = []text{{prefix, path}}
			add(of, marks, 0, len(path))
		}
	}
	for _, made := range k.routes[before:] {
		made.location.partly = l.partly
	}
}

func (k *kong) readPlugin(p value, service, route string) *kongPlugin {
	read := &kongPlugin{
		value: p, name: p.get("name").text(), disabled: !p.get("enabled").truth(true),
		service: cmp.Or(service, reference(p.get("service"))), route: cmp.Or(route, reference(p.get("route"))), config: p.get("config"),
	}
	for _, name := range []string{"consumer", "consumer_group"} {
		read.consumer = read.consumer || p.get(name).there()
	}
	switch {
	case read.name == kongBasic || read.name == kongAdvanced:
		k.plugins = append(k.plugins, read)
	case slices.Contains(kongAuths, read.name):
		k.auths = append(k.auths, read)
	case strings.Contains(read.name, "limiting") && !read.disabled:
		p.lose("the plugin %.40s is not converted", read.name)
	case read.name == "request-termination" || !slices.Contains(kongHarmless, read.name):
		k.others = append(k.others, read)
	}
	if !read.disabled && !slices.Contains(kongHarmless, read.name) {
		p.tell("a plugin", kongPluginFields...)
		if protocols := p.get("protocols"); protocols.there() && (!slices.Contains(protocols.texts(), "http") || !slices.Contains(protocols.texts(), "https")) {
			protocols.lose("protocols: a rule does not know the protocol, and holds for all")
		}
	}
	if name := p.get("_config"); name.there() {
		if read.config = k.shared.get(name.text()); p.get("config").there() || !read.config.there() {
			name.lose("_config: want a configuration of _plugin_configs, and none of the plugin's own")
		}
	}
	return read
}

// byWhat returns the value that says what a plugin counts by, or the plugin if none does.
func (p *kongPlugin) byWhat() value {
	for _, name := range []string{"limit_by", "identifier"} {
		if v := p.config.get(name); v.there() {
			return v
		}
	}
	return p.value
}

// holds reports whether a plugin applies to a route.
func (p *kongPlugin) holds(r *kongRoute) bool {
	return (p.service == "" || slices.Contains(r.services, p.service)) && (p.route == "" || slices.Contains(r.names, p.route))
}

// rank orders plugins of the same name: a request runs only the plugin of the highest rank.
func (p *kongPlugin) rank() (n int) {
	if p.route != "" {
		n += 2
	}
	if p.service != "" {
		n++
	}
	return n
}

// limit makes the rules of a plugin.
func (k *kong) limit(p *kongPlugin) {
	if p.consumer {
		p.value.lose("%s of a consumer: a rule does not know Kong's consumers", p.name)
		return
	}
	// Locations by how their clients are told apart.
	who := map[string]*identity{}
	var own, others []*kongRoute
	for _, r := range k.routes {
		if p.holds(r) && !slices.ContainsFunc(k.plugins, func(o *kongPlugin) bool {
			return o.name == p.name && !o.consumer && !o.disabled && o.holds(r) && o.rank() > p.rank()
		}) {
			own = append(own, r)
		} else {
			others = append(others, r)
		}
	}
	if p.everywhere() {
		// Requests of no route that is known count like those of services, if any route has one.
		every := &kongRoute{services: []string{""}, location: &location{at: p.value.at}}
		if len(own) > 0 && !slices.ContainsFunc(own, func(r *kongRoute) bool { return len(r.services) > 0 }) {
			every.services = nil
		}
		own = append(own, every)
	}
	if len(own) == 0 {
		p.value.lose("%s: no route has it", p.name)
		return
	}
	config := p.config
	r := rule{Name: strings.Trim(cmp.Or(p.route, p.service, "global")+"-"+p.name, "-")}
	var key value
	if p.name == kongBasic {
		r.Limits, key = k.basicLimits(config), config.get("limit_by")
	} else {
		r.Limits, key = k.advancedLimits(config), config.get("identifier")
		r.CountRejected = !config.get("disable_penalty").truth(false)
		if space := config.get("namespace"); space.there() {
			if before, twice := k.spaces[space.text()]; twice {
				space.lose("namespace: Kong counts this together with the plugin of line %d; two rules count separately", before.line)
			}
			k.spaces[space.text()] = space.at
		}
		for _, name := range []string{"compound_identifier", "counter_key"} {
			config.loses(name, "%s: the rule counts by identifier alone")
		}
		if throttling := config.get("throttling"); throttling.get("enabled").truth(false) {
			throttling.lose("throttling: Kong makes requests wait for room; the rule refuses them")
		}
		if jitter := config.get("retry_after_jitter_max"); jitter.number(0) > 0 {
			jitter.lose("retry_after_jitter_max: Weir's Retry-After has no jitter")
		}
		if config.get("enforce_consumer_groups").truth(false) {
			config.get("enforce_consumer_groups").lose("consumer groups: a rule does not know Kong's consumers")
		}
	}
	if len(r.Limits) == 0 {
		p.value.lose("%s: no limit is left", p.name)
		return
	}
	for _, route := range own {
		route.doubt(k.c, others)
	}
	r.Response = k.c.responseOf(p.value.at, config.get("error_code").whole(429), saying("message", config.get("error_message").text()))
	if config.get("hide_client_headers").truth(false) {
		r.Headers = &[]string{}
	}
	by := key.or("consumer")
	var order []string
	for _, route := range own {
		i := &identity{}
		if by == "consumer" || by == "credential" || by == "consumer-group" {
			i = k.identify(route)
		}
		if by == "service" && len(route.services) == 0 {
			i = &identity{name: "no service", serviceless: true}
		}
		if who[i.name] == nil {
			who[i.name] = i
			order = append(order, i.name)
		}
		who[i.name].own = append(who[i.name].own, route.location)
	}
	for _, name := range order {
		i, rest := who[name], make([]*location, 0, len(others))
		for _, o := range others {
			rest = append(rest, o.location)
		}
		for _, other := range order {
			if other != name {
				rest = append(rest, who[other].own...)
			}
		}
		for _, m := range k.c.matches(p.value.at, i.own, rest) {
			made := r
			made.Match, made.Except = m.Match, m.Except
			k.byKey(p, made, by, i)
		}
	}
}

// doubt tells if a route and another may fit a request, and it is not sure which one Kong takes.
func (r *kongRoute) doubt(c *converter, others []*kongRoute) {
	for _, o := range others {
		order := slices.Compare(r.location.rank, o.location.rank)
		if r.traditional == nil || r.location.partly || order*slices.Compare(r.traditional, o.traditional) > 0 || !r.location.overlaps(o.location) {
			continue
		}
		if order == 0 {
			c.lose(r.location.at, "requests may fit this route and that of line %d: Kong takes one of them by their ids; here the limits of both may hold, or of neither", o.location.at.line)
		} else {
			c.lose(r.location.at, "requests may fit this route and that of line %d: Kong takes the other one of them if its router_flavor is traditional", o.location.at.line)
		}
		return
	}
}

// kongCommon are fields of both plugins, with those that say where counters are.
var kongCommon = []string{"hide_client_headers", "error_code", "error_message", "sync_rate", "redis", "redis_host", "redis_port", "redis_password", "redis_username", "redis_ssl",
	"redis_ssl_verify", "redis_server_name", "redis_timeout", "redis_database"}

func (k *kong) basicLimits(config value) (limits []limit) {
	config.tell(kongBasic, append(kongCommon, "second", "minute", "hour", "day", "month", "year", "limit_by", "header_name", "path", "policy", "fault_tolerant")...)
	for _, unit := range []struct{ name, window string }{
		{"second", "1s"}, {"minute", "1m"}, {"hour", "1h"}, {"day", "1d"}, {"month", "month"}, {"year", "365d"},
	} {
		v := config.get(unit.name)
		n := v.whole(0)
		if !v.there() || n <= 0 {
			continue
		}
		if unit.name == "year" {
			v.lose("year: Weir has no calendar windows of a year; the rule's windows have 365 days, counted from 1970")
		}
		limits = append(limits, limit{Limit: uint64(n), Window: unit.window, Algorithm: fixedWindow})
	}
	return limits
}

func (k *kong) advancedLimits(config value) (limits []limit) {
	config.tell(kongAdvanced, append(kongCommon, "limit", "window_size", "window_type", "identifier", "header_name", "path", "strategy", "namespace", "disable_penalty",
		"retry_after_jitter_max", "enforce_consumer_groups", "consumer_groups", "compound_identifier", "counter_key", "throttling", "dictionary_name", "lock_dictionary_name")...)
	hits, sizes := config.get("limit").either(), config.get("window_size").either()
	if len(hits) != len(sizes) {
		config.lose("want a window_size for each limit")
	}
	for i := range min(len(hits), len(sizes)) {
		n, size := hits[i].whole(0), sizes[i].number(0)
		if n < 0 || size*1000 < 1 || size*1000 > maxWindowMillis {
			sizes[i].lose("want a window of at most 366 days")
			continue
		}
		l := limit{Limit: uint64(n), Window: duration(uint64(size * 1000))}
		if config.get("window_type").text() == "fixed" {
			l.Algorithm = fixedWindow
		}
		if slices.Contains(limits, l) || len(limits) == 8 {
			sizes[i].lose("want at most 8 limits, no two of the same window")
			continue
		}
		limits = append(limits, l)
	}
	return limits
}

// byKey adds the rules for the key that a plugin counts by. Kong counts a request without the key
// by its address.
func (k *kong) byKey(p *kongPlugin, r rule, by string, who *identity) {
	switch by {
	case "ip":
		r.Key = []any{client()}
	case "service", "route":
		if who.serviceless {
			r.Key = []any{client()}
		} else if p.route == "" && (by == "route" || p.service == "") && len(k.routes) > 0 {
			p.byWhat().lose("%s: a rule for several counts them together; want a plugin for each %[1]s", by)
		}
	case "header":
		name := headerName(strings.ToLower(p.config.get("header_name").text()))
		k.part(p, r, onHeader(name, text{present, "true"}), []any{one("header", name)}, "")
		k.part(p, r, onHeader(name, text{present, "false"}), []any{client()}, "-others")
		return
	case "path":
		path := text{exact, p.config.get("path").text()}
		k.part(p, r, match{Path: &path}, nil, "")
		r.Except = append(slices.Clone(r.Except), match{Path: &path})
		k.part(p, r, match{}, []any{client()}, "-others")
		return
	default: // consumer, credential, consumer-group
		k.byConsumer(p, r, by, who)
		return
	}
	k.add(p, r)
}

// part adds the rule for those requests that also fulfil a condition, if there can be any.
func (k *kong) part(p *kongPlugin, r rule, m match, key []any, suffix string) {
	r.Key, r.Name = key, r.Name+suffix
	if k.c.also(p.value.at, &r, m) {
		k.add(p, r)
	}
}

// identity is how the clients of some routes are told apart.
type identity struct {
	name string // the same for routes whose clients are told apart alike
	own  []*location
	// auth finds the consumer; nil if there is none. alone says that no other plugin does so.
	auth  *kongPlugin
	alone bool
	// serviceless says that the routes lead to no service.
	serviceless bool
}

// identify returns how a route's consumers are found. The most specific plugin of a name runs.
func (k *kong) identify(r *kongRoute) *identity {
	i := &identity{alone: true}
	for _, a := range k.auths {
		of := func(a *kongPlugin) bool { return !a.disabled && !a.consumer && (a.everywhere() || a.holds(r)) }
		if !of(a) || slices.ContainsFunc(k.auths, func(o *kongPlugin) bool { return of(o) && o.name == a.name && o.rank() > a.rank() }) {
			continue
		}
		i.name += fmt.Sprint(a.name, " at ", a.value.at, "; ")
		i.alone = i.auth == nil
		i.auth = a
	}
	return i
}

// token is a place in requests that tells who the client is.
type token struct {
	selector any
	header   string
	is       text
}

// byConsumer adds rules that tell consumers apart by what they authenticate with. Without a plugin
// that does so there are no consumers, and Kong counts by address.
func (k *kong) byConsumer(p *kongPlugin, r rule, by string, who *identity) {
	if who.auth == nil {
		r.Key = []any{client()}
		k.add(p, r)
		return
	}
	where, a := p.byWhat(), who.auth
	var tokens []token
	rest, others := []any{client()}, "by address"
	if a.config.get("anonymous").text() != "" && by != "credential" {
		rest, others = nil, "together" // the anonymous consumer is a single one, without a credential
	}
	switch {
	case !who.alone:
		where.lose("%s: Kong counts by the consumer that several plugins find; the rule counts by address", by)
	case a.name == "key-auth" || a.name == "key-auth-enc":
		tokens = k.keys(a)
		where.lose("%s: Kong counts by the consumer that the plugin %s finds; the rule counts by the key itself, and requests without one %s", by, a.name, others)
	case a.name == "jwt":
		claim := a.config.get("key_claim_name").or("iss")
		for _, name := range a.config.get("header_names").textsOr("authorization") {
			name = strings.ToLower(name)
			tokens = append(tokens, token{map[string]string{"jwt_claim": claim, "header": name}, name, text{regex, `\s*[Bb]earer\s+.+`}})
		}
		where.lose("%s: Kong counts by the consumer that the plugin jwt finds; the rule counts by the claim %.40s, which another filter has to verify, and requests without a token in a header %s", by, claim, others)
	default:
		where.lose("%s: Kong counts by the consumer that the plugin %s finds; the rule counts by address", by, a.name)
	}
	for i, t := range tokens {
		suffix := "-" + fmt.Sprint(i+1)
		if i == 0 {
			suffix = ""
		}
		has := onHeader(t.header, t.is)
		k.part(p, r, has, []any{t.selector}, suffix)
		r.Except = append(slices.Clone(r.Except), has)
	}
	if r.Key = []any{client()}; len(tokens) > 0 {
		r.Key = rest
		r.Name += "-others"
	}
	k.add(p, r)
}

// keys returns where key-auth looks for a key, in its order.
func (k *kong) keys(a *kongPlugin) (tokens []token) {
	a.config.tell("key-auth", "key_names", "key_in_header", "key_in_query", "key_in_body", "run_on_preflight", "anonymous", "hide_credentials", "realm", "identity_realms")
	if body := a.config.get("key_in_body"); body.truth(false) {
		body.lose("key_in_body: a rule does not read the key there, and counts by address")
	}
	if preflight := a.config.get("run_on_preflight"); !preflight.truth(true) {
		preflight.lose("run_on_preflight: a rule counts preflight requests with a key by the key")
	}
	for _, name := range a.config.get("key_names").textsOr("apikey") {
		if a.config.get("key_in_header").truth(true) {
			header := strings.ToLower(name)
			tokens = append(tokens, token{one("header", header), header, text{regex, ".+"}})
		}
		if a.config.get("key_in_query").truth(true) {
			tokens = append(tokens, token{one("query", name), ":path", text{regex, `[^?]*\?(?:.*&)?` + regexp.QuoteMeta(name) + "=[^&]+.*"}})
		}
	}
	return tokens
}

// add adds a rule with the rate of its pushes, and with the decision while the store is away.
func (k *kong) add(p *kongPlugin, r rule) {
	config, rate := p.config, -1.0
	strategy := cmp.Or(config.get("policy").text(), config.get("strategy").text(), "local")
	if strategy != "local" {
		rate = config.get("sync_rate").number(0)
		// In rate-limiting, -1 asks the store about each request; in the other plugin it counts
		// alone.
		if rate < 0 && config.get("policy").there() {
			rate = 0
		}
	}
	if rate > 0 {
		rate = max(rate, 0.001)
	}
	if rate >= 0 {
		r.SyncRate = &rate
		failure := "allow"
		if config.get("policy").text() == "" {
			failure = "local" // as rate-limiting-advanced does
		} else if !config.get("fault_tolerant").truth(true) {
			failure = "deny"
		}
		k.c.shareCounters(config.get("fault_tolerant"), failure)
	}
	k.c.add(p.value.at, r)
}
