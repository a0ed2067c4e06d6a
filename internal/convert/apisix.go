package convert

import (
	"cmp"
	"math"
	"slices"
	"strings"
)

// apisixRoute is a route of APISIX.
type apisixRoute struct {
	location *location
	// owners have the route's plugins, the nearest first: the route itself, a plugin_config, a
	// service.
	owners []*apisixOwner
}

// apisixOwner is an object that has plugins.
type apisixOwner struct {
	name    string
	plugins value
	// everywhere marks a global rule, which applies besides the plugins of routes.
	everywhere bool
}

type apisix struct {
	c      *converter
	routes []*apisixRoute
	owners []*apisixOwner
	groups map[string]place // groups of limit-count, and where each was first seen
}

var apisixKinds = []string{"routes", "services", "plugin_configs", "global_rules", "consumers", "consumer_groups"}

var apisixLimits = []string{"limit-count", "limit-req", "limit-conn"}

// apisix reads limit-count, limit-req and limit-conn from APISIX's apisix.yaml, or from answers of
// its Admin API.
func (c *converter) apisix() {
	a := &apisix{c: c, groups: map[string]place{}}
	objects := map[string][]value{}
	for _, d := range c.documents() {
		for _, kind := range apisixKinds {
			objects[kind] = append(objects[kind], d.get(kind).list()...)
		}
		list := d.get("list").list()
		if d.get("key").there() && d.get("value").there() {
			list = append(list, d)
		}
		for _, o := range list {
			for _, kind := range apisixKinds {
				if strings.Contains(o.get("key").text(), "/"+kind+"/") {
					objects[kind] = append(objects[kind], o.get("value"))
				}
			}
		}
		if uri := d.get("uri"); uri.there() || d.get("uris").there() {
			objects["routes"] = append(objects["routes"], d)
		}
	}
	services := a.byID(objects["services"], "service")
	configs := a.byID(objects["plugin_configs"], "plugin_config")
	for _, r := range objects["routes"] {
		if r.get("status").text() == "0" {
			continue
		}
		a.route(r, services, configs)
	}
	for _, g := range objects["global_rules"] {
		a.owners = append(a.owners, &apisixOwner{name: "global-" + g.get("id").text(), plugins: g.get("plugins"), everywhere: true})
	}
	for _, o := range a.owners {
		for _, name := range apisixLimits {
			a.limits(o, name)
		}
		a.losses(o)
	}
	c.settle()
	for _, kind := range []string{"consumers", "consumer_groups"} {
		for _, o := range objects[kind] {
			for _, p := range o.get("plugins").fields() {
				if strings.HasPrefix(p.name, "limit-") {
					c.lose(p.at, "%s of a consumer: a rule does not know APISIX's consumers", p.name)
				}
			}
		}
	}
}

func (a *apisix) byID(all []value, kind string) map[string]*apisixOwner {
	owners := map[string]*apisixOwner{}
	for _, v := range all {
		o := &apisixOwner{name: cmp.Or(v.get("name").text(), kind+"-"+v.get("id").text()), plugins: v.get("plugins")}
		owners[v.get("id").text()] = o
		a.owners = append(a.owners, o)
	}
	return owners
}

func (a *apisix) route(v value, services, configs map[string]*apisixOwner) {
	l := &location{at: v.at()}
	longest := 0
	for _, uri := range append(v.get("uri").either(), v.get("uris").list()...) {
		path := uri.text()
		if before, found := strings.CutSuffix(path, "*"); found {
			l.paths, longest = append(l.paths, text{prefix, before}), max(longest, len(before))
		} else {
			l.paths, longest = append(l.paths, text{exact, path}), math.MaxInt32
		}
		if strings.ContainsAny(strings.TrimSuffix(path, "*"), "*:") {
			uri.lose("a rule has no parameters in paths: %.80s", path)
		}
	}
	for _, h := range append(v.get("host").either(), v.get("hosts").list()...) {
		if host := strings.ToLower(h.text()); strings.HasPrefix(host, "*") {
			l.hosts = append(l.hosts, text{suffix, host[1:]})
		} else {
			l.hosts = append(l.hosts, text{exact, host})
		}
	}
	l.rest.Methods = v.get("methods").texts()
	for _, name := range []string{"vars", "filter_func", "remote_addr", "remote_addrs"} {
		if c := v.get(name); c.there() {
			c.lose("%s: a rule has no such condition", name)
		}
	}
	l.rank = []int{v.get("priority").whole(0), min(len(l.hosts), 1), longest}
	own := &apisixOwner{name: cmp.Or(v.get("name").text(), "route-"+v.get("id").text()), plugins: v.get("plugins")}
	a.owners = append(a.owners, own)
	a.routes = append(a.routes, &apisixRoute{l, []*apisixOwner{own, configs[v.get("plugin_config_id").text()], services[v.get("service_id").text()]}})
}

// of returns the owner whose plugin of this name a route runs: the nearest owner that has it.
func (r *apisixRoute) of(name string) *apisixOwner {
	for _, o := range r.owners {
		if o != nil && o.plugins.get(name).there() {
			return o
		}
	}
	return nil
}

func disabled(p value) bool { return p.get("_meta", "disable").truth(p.get("disable").truth(false)) }

// losses reports plugins that have no counterpart in Weir.
func (a *apisix) losses(o *apisixOwner) {
	for _, p := range o.plugins.fields() {
		switch {
		case disabled(p.value):
		case strings.HasPrefix(p.name, "limit-") && !slices.Contains(apisixLimits, p.name) || p.name == "ai-rate-limiting":
			a.c.lose(p.at, "the plugin %.40s is not converted", p.name)
		}
	}
}

// limits makes the rules of a plugin.
func (a *apisix) limits(o *apisixOwner, name string) {
	config := o.plugins.get(name)
	if !config.there() || disabled(config) {
		return
	}
	at := config.at()
	if filter := config.get("_meta", "filter"); filter.there() {
		filter.lose("_meta.filter: a rule has no such condition")
	}
	var own, others []*location
	if o.everywhere {
		own = []*location{{at: at}}
	} else {
		for _, r := range a.routes {
			if r.of(name) == o {
				own = append(own, r.location)
			} else {
				others = append(others, r.location)
			}
		}
		if len(own) == 0 {
			config.lose("%s: no route has it", name)
			return
		}
	}
	r := rule{Name: o.name + "-" + name}
	var l *limit
	switch name {
	case "limit-req":
		l, r.Delay = a.request(config)
	case "limit-conn":
		l = a.connections(config)
	default:
		l = a.count(config)
	}
	if l == nil {
		return
	}
	r.Limits = []limit{*l}
	r.SyncRate = a.pace(config)
	r.Response = a.c.responseOf(at, config.get("rejected_code").whole(503), config.get("rejected_msg").text())
	if name == "limit-count" && !config.get("show_limit_quota_header").truth(true) {
		r.Headers = &[]string{}
	}
	for _, m := range a.c.matches(at, own, others) {
		made := r
		made.Match, made.Except = m.Match, m.Except
		a.byKey(config, made)
	}
}

// request returns the leaky bucket of limit-req, which works as nginx's.
func (a *apisix) request(config value) (*limit, *delay) {
	burst := config.get("burst").number(0)
	if burst != math.Trunc(burst) {
		config.get("burst").lose("burst: Weir has only whole tokens, and uses %d", int(burst))
	}
	rate, atOnce := uint64(max(0, math.Round(config.get("rate").number(0)*1000))), uint64(max(0, burst))
	waiting := atOnce
	if config.get("nodelay").truth(false) {
		waiting = 0
	}
	l := a.c.leakyBucket(config.at(), rate, 1000, atOnce-waiting)
	if l == nil {
		return nil, nil
	}
	return l, a.c.smooth(config.at(), rate, 1000, waiting)
}

// connections returns a limit of requests in flight.
func (a *apisix) connections(config value) *limit {
	for _, name := range []string{"conn", "burst"} {
		if v := config.get(name); strings.Contains(v.text(), "$") {
			v.lose("%s: want a number", name)
			return nil
		}
	}
	conn, burst := config.get("conn").whole(0), config.get("burst").whole(0)
	if conn <= 0 || burst < 0 {
		config.lose("want a conn above 0, and a burst of 0 or more")
		return nil
	}
	if burst > 0 {
		config.get("burst").lose("limit-conn: APISIX makes requests above conn wait; Weir lets conn and burst pass at once")
	}
	return &limit{Limit: uint64(conn + burst), Algorithm: inFlight}
}

// count returns a limit whose windows start with a key's first hit.
func (a *apisix) count(config value) *limit {
	if rules := config.get("rules"); rules.there() {
		rules.lose("rules: want a plugin for each")
		return nil
	}
	for _, name := range []string{"count", "time_window"} {
		if v := config.get(name); strings.Contains(v.text(), "$") || !v.there() {
			v.lose("%s: want a number", name) // a missing value is reported at the plugin
			return nil
		}
	}
	if group := config.get("group"); group.there() {
		if before, twice := a.groups[group.text()]; twice {
			group.lose("group: APISIX counts this together with line %d; two rules count separately", before.line)
		}
		a.groups[group.text()] = group.at()
	}
	count, window := config.get("count").whole(0), config.get("time_window").number(0)
	if count <= 0 || window <= 0 || window*1000 > maxWindowMillis {
		config.lose("want a count above 0 and a window of at most 366 days")
		return nil
	}
	l := &limit{Limit: uint64(count), Window: duration(uint64(window * 1000)), Algorithm: fixedWindow, Start: firstHit}
	switch kind := config.get("window_type").or("fixed"); kind {
	case "fixed":
	case "sliding":
		l.Algorithm, l.Start = "", ""
	default:
		config.get("window_type").lose("window_type: want fixed or sliding, got %.40q", kind)
	}
	return l
}

// pace returns the rate, in seconds, at which counters are pushed, or nil if each proxy counts
// alone.
func (a *apisix) pace(config value) *float64 {
	if config.get("policy").or("local") == "local" {
		return nil
	}
	failure := "deny"
	if config.get("allow_degradation").truth(false) {
		failure = "allow"
	}
	a.c.shareCounters(config.get("allow_degradation"), failure)
	every := config.get("sync_interval").number(0)
	if every > 0 {
		every = max(every, 0.001)
	}
	every = max(every, 0)
	return &every
}

// byKey adds the rules for the key that a plugin counts by. Requests without the key count by their
// address.
func (a *apisix) byKey(config value, r rule) {
	at := config.at()
	key := config.get("key").or("remote_addr")
	where := at
	if config.get("key").there() {
		where = config.get("key").at()
	}
	var parts []part
	switch config.get("key_type").or("var") {
	case "constant":
	case "var_combination":
		parts = template(key)
	default:
		parts = []part{{true, strings.TrimPrefix(key, "$")}}
	}
	for i := range parts {
		if strings.HasPrefix(parts[i].text, "consumer_") && parts[i].variable {
			a.c.lose(where, "%s: a rule does not know APISIX's consumers, and counts by address", parts[i].text)
			parts[i].text = "remote_addr"
		}
	}
	selectors, has, always, ok := a.c.keyOf(where, parts)
	if !ok {
		return
	}
	r.Key = selectors
	if always {
		a.c.add(at, r)
		return
	}
	if len(has) != 1 {
		a.c.lose(where, "APISIX counts requests without the key by their address; Weir counts them together")
		a.c.add(at, r)
		return
	}
	lacks := r
	a.c.onlyWith(at, &r, has)
	a.c.add(at, r)
	lacks.Name, lacks.Key = r.Name+"-others", []any{client()}
	lacks.Except = append(slices.Clone(lacks.Except), match{Headers: map[string]text{has[0].header: has[0].is}})
	a.c.add(at, lacks)
}
