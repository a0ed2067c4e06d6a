package convert

import (
	"cmp"
	"slices"
	"strings"
)

// kongRoute is a route of Kong, with the service that it leads to.
type kongRoute struct {
	names    []string // name and id
	services []string
	location *location
}

// kongPlugin is a limiter of Kong.
type kongPlugin struct {
	value          value
	name           string
	service, route string
	consumer       bool // or for a consumer group
	disabled       bool
	routes         []*kongRoute
}

type kong struct {
	c       *converter
	routes  []*kongRoute
	plugins []*kongPlugin
	// auths are the plugins that turn a client into a consumer.
	auths []*kongPlugin
	// spaces has the namespaces of plugins, and where each was first seen.
	spaces map[string]place
}

const (
	kongBasic    = "rate-limiting"
	kongAdvanced = "rate-limiting-advanced"
)

var kongAuths = []string{"key-auth", "key-auth-enc", "jwt", "basic-auth", "oauth2", "hmac-auth", "ldap-auth", "ldap-auth-advanced", "openid-connect", "mtls-auth", "session"}

// kong reads rate-limiting and rate-limiting-advanced from Kong's declarative configuration.
func (c *converter) kong() {
	k := &kong{c: c, spaces: map[string]place{}}
	for _, d := range c.documents() {
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
	c.settle()
}

func names(v value, more ...string) (all []string) {
	for _, name := range append([]string{v.get("name").text(), v.get("id").text()}, more...) {
		if name != "" {
			all = append(all, name)
		}
	}
	return all
}

func (k *kong) readService(s value) {
	services := names(s)
	if len(services) == 0 {
		services = []string{s.at().file + " " + duration(uint64(s.at().line))}
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
		services = []string{s}
	}
	k.route(r, services)
}

func (k *kong) route(r value, services []string) {
	l := &location{at: r.at()}
	route := &kongRoute{names(r), services, l}
	if len(route.names) == 0 {
		route.names = []string{"route at " + duration(uint64(r.at().line))}
	}
	wild := 0
	for _, h := range r.get("hosts").either() {
		switch host := strings.ToLower(h.text()); {
		case strings.HasPrefix(host, "*"):
			l.hosts, wild = append(l.hosts, text{suffix, host[1:]}), -1
		case strings.HasSuffix(host, "*"):
			l.hosts, wild = append(l.hosts, text{prefix, host[:len(host)-1]}), -1
		default:
			l.hosts = append(l.hosts, text{exact, host})
		}
	}
	longest, expressions := 0, 0
	for _, p := range r.get("paths").either() {
		path := p.text()
		if expr, found := strings.CutPrefix(path, "~"); found {
			t, ok := k.c.expression(p.at(), "^"+expr, false)
			if !ok {
				continue
			}
			l.paths, expressions = append(l.paths, t), 1+r.get("regex_priority").whole(0)
		} else {
			l.paths, longest = append(l.paths, text{prefix, path}), max(longest, len(path))
		}
	}
	l.rest.Methods = r.get("methods").texts()
	for _, h := range r.get("headers").fields() {
		if texts := h.value.texts(); len(texts) == 1 && !strings.HasPrefix(texts[0], "~*") {
			l.rest.header(strings.ToLower(h.name), text{exact, texts[0]})
		} else {
			k.c.lose(h.at, "a rule can't say this condition of a route")
		}
	}
	for _, name := range []string{"snis", "sources", "destinations", "expression"} {
		if v := r.get(name); v.there() {
			v.lose("%s: a rule has no such condition", name)
		}
	}
	count := 0
	for _, given := range []bool{len(l.hosts) > 0, len(l.paths) > 0, len(l.rest.Methods) > 0, len(l.rest.Headers) > 0} {
		if given {
			count++
		}
	}
	l.rank = []int{count, len(l.rest.Headers), wild, expressions, longest}
	k.routes = append(k.routes, route)
	for _, p := range r.get("plugins").list() {
		k.readPlugin(p, "", route.names[0])
	}
}

func (k *kong) readPlugin(p value, service, route string) *kongPlugin {
	read := &kongPlugin{
		value: p, name: p.get("name").text(), disabled: !p.get("enabled").truth(true),
		service: cmp.Or(service, reference(p.get("service"))), route: cmp.Or(route, reference(p.get("route"))),
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
	}
	return read
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
	var own, others []*location
	for _, r := range k.routes {
		better := slices.ContainsFunc(k.plugins, func(o *kongPlugin) bool {
			return o.name == p.name && !o.consumer && !o.disabled && o.holds(r) && o.rank() > p.rank()
		})
		if p.holds(r) && !better {
			own = append(own, r.location)
			p.routes = append(p.routes, r)
		} else {
			others = append(others, r.location)
		}
	}
	if p.service == "" && p.route == "" {
		own = append(own, &location{at: p.value.at(), rank: []int{-1}})
	}
	if len(own) == 0 {
		p.value.lose("%s: no route has it", p.name)
		return
	}
	config := p.value.get("config")
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
			k.spaces[space.text()] = space.at()
		}
		for _, name := range []string{"compound_identifier", "counter_key"} {
			if v := config.get(name); v.there() {
				v.lose("%s: the rule counts by identifier alone", name)
			}
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
	r.Response = k.c.responseOf(p.value.at(), config.get("error_code").whole(429), config.get("error_message").text())
	if config.get("hide_client_headers").truth(false) {
		r.Headers = &[]string{}
	}
	for _, m := range k.c.matches(p.value.at(), own, others) {
		made := r
		made.Match, made.Except = m.Match, m.Except
		k.byKey(p, config, made, key.or("consumer"))
	}
}

func (k *kong) basicLimits(config value) (limits []limit) {
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
func (k *kong) byKey(p *kongPlugin, config value, r rule, by string) {
	at := p.value.at()
	switch by {
	case "ip":
		r.Key = []any{client()}
	case "service", "route":
		if p.route == "" && (by == "route" || p.service == "") && len(k.routes) > 0 {
			where := config.get("limit_by")
			if !where.there() {
				where = config.get("identifier")
			}
			where.lose("%s: a rule for several counts them together; want a plugin for each %[1]s", by)
		}
	case "header":
		name := strings.ToLower(config.get("header_name").text())
		k.both(p, config, r, []any{one("header", name)}, match{Headers: map[string]text{name: {present, "true"}}},
			match{Headers: map[string]text{name: {present, "false"}}})
		return
	case "path":
		path := text{exact, config.get("path").text()}
		k.both(p, config, r, nil, match{Path: &path}, match{})
		return
	default: // consumer, credential, consumer-group
		k.byConsumer(p, config, &r, by)
	}
	k.add(at, config, r)
}

// both adds two rules: one for requests that fulfil a condition, and one by address for the others.
func (k *kong) both(p *kongPlugin, config value, r rule, key []any, has, lacks match) {
	at := p.value.at()
	for i, m := range []match{has, lacks} {
		made := r
		if r.Match != nil {
			both := *r.Match
			if m.Path != nil {
				if both.Path != nil && !m.Path.overlaps(*both.Path) {
					continue
				}
				both.Path = m.Path
			}
			headers := map[string]text{}
			for _, all := range []map[string]text{both.Headers, m.Headers} {
				for name, t := range all {
					headers[name] = t
				}
			}
			if both.Headers = headers; len(headers) == 0 {
				both.Headers = nil
			}
			m = both
		}
		made.Match, made.Key = m.orNil(), key
		if i == 1 {
			made.Key, made.Name = []any{client()}, r.Name+"-others"
			if has.Path != nil {
				made.Except = append(slices.Clone(r.Except), has)
			}
		}
		k.add(at, config, made)
	}
}

// byConsumer chooses a key that tells consumers apart. Without a plugin that identifies clients
// there are no consumers, and Kong counts by address.
func (k *kong) byConsumer(p *kongPlugin, config value, r *rule, by string) {
	r.Key = []any{client()}
	for _, a := range k.auths {
		if a.disabled || a.route != "" && a.route != p.route && p.route != "" || a.service != "" && a.service != p.service && p.service != "" {
			continue
		}
		where := p.value
		if v := config.get("limit_by"); v.there() {
			where = v
		} else if v := config.get("identifier"); v.there() {
			where = v
		}
		switch a.name {
		case "key-auth", "key-auth-enc":
			name := "apikey"
			if all := a.value.get("config", "key_names").texts(); len(all) > 0 {
				name = strings.ToLower(all[0])
			}
			r.Key = []any{one("header", name)}
			where.lose("%s: Kong counts by the consumer that the plugin %s finds; the rule counts by the header %.40s", by, a.name, name)
		case "jwt":
			claim := a.value.get("config", "key_claim_name").or("iss")
			r.Key = []any{map[string]string{"jwt_claim": claim, "header": "authorization"}}
			where.lose("%s: Kong counts by the consumer that the plugin jwt finds; the rule counts by the claim %.40s, which another filter has to verify", by, claim)
		default:
			where.lose("%s: Kong counts by the consumer that the plugin %s finds; the rule counts by address", by, a.name)
		}
		return
	}
}

// add adds a rule with the rate of its pushes, and with the decision while the store is away.
func (k *kong) add(at place, config value, r rule) {
	rate := -1.0
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
	k.c.add(at, r)
}
