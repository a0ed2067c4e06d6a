package convert

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

type apisixRoute struct {
	locations []*location
	// owners have the route's plugins, the nearest first: the route itself, a plugin_config, a
	// service.
	owners []*apisixOwner
}

// apisixOwner is an object that has plugins.
type apisixOwner struct {
	name    string
	plugins value
	hosts   value // of a service
	// everywhere marks a global rule, which applies besides the plugins of routes.
	everywhere bool
}

type apisix struct {
	c      *converter
	routes []*apisixRoute
	owners []*apisixOwner
	groups map[string]place // groups of limit-count, and where each was first seen
}

var apisixKinds = []string{"routes", "services", "plugin_configs", "global_rules", "consumers", "consumer_groups", "stream_routes", "plugin_metadata"}

var apisixLimits = []string{"limit-count", "limit-req", "limit-conn"}

var (
	// apisixHarmless are plugins that leave requests as they are, or act after they have counted.
	apisixHarmless = []string{"request-id", "zipkin", "skywalking", "opentelemetry", "error-log-logger", "proxy-mirror", "proxy-control", "proxy-buffering", "node-status",
		"brotli", "gzip", "server-info", "traffic-label", "traffic-split", "grpc-transcode", "grpc-web", "prometheus", "datadog", "lago", "loki-logger",
		"elasticsearch-logger", "loggly", "http-logger", "splunk-hec-logging", "skywalking-logger", "google-cloud-logging", "sls-logger", "tcp-logger", "kafka-logger",
		"rocketmq-logger", "syslog", "udp-logger", "file-logger", "clickhouse-logger", "tencent-cloud-cls", "inspect", "log-rotate", "ai-proxy", "ai-proxy-multi"}
	apisixFields = append([]string{"upstreams", "plugins", "ssls", "protos", "secrets", "list", "total", "key", "value",
		"createdIndex", "modifiedIndex", "created_index", "modified_index", "create_time", "update_time"}, apisixKinds...)
	apisixAbout       = []string{"id", "name", "desc", "labels", "create_time", "update_time", "plugins"}
	apisixRouteFields = append([]string{"uri", "uris", "host", "hosts", "remote_addr", "remote_addrs", "methods", "priority", "vars", "filter_func", "plugin_config_id",
		"service_id", "upstream", "upstream_id", "enable_websocket", "timeout", "status", "service_protocol"}, apisixAbout...)
	apisixOwnerFields = map[string][]string{
		"service":       append([]string{"upstream", "upstream_id", "enable_websocket", "hosts"}, apisixAbout...),
		"plugin_config": apisixAbout,
	}
	apisixLimitFields = map[string][]string{
		"limit-count": {"count", "time_window", "window_type", "rules", "group", "show_limit_quota_header", "sync_interval"},
		"limit-req":   {"rate", "burst", "nodelay"},
		"limit-conn":  {"conn", "burst", "default_conn_delay", "only_use_default_delay", "rules"},
	}
	apisixCommon = []string{"key", "key_type", "rejected_code", "rejected_msg", "policy", "allow_degradation", "_meta", "disable"}
	// apisixStore are fields that say where counters are.
	apisixStore = []string{"redis_host", "redis_port", "redis_username", "redis_password", "redis_database", "redis_timeout", "redis_ssl", "redis_ssl_verify",
		"redis_keepalive_timeout", "redis_keepalive_pool", "redis_cluster_nodes", "redis_cluster_name", "redis_cluster_ssl", "redis_cluster_ssl_verify", "redis_sentinels",
		"redis_master_name", "redis_role", "redis_connect_timeout", "redis_read_timeout", "sentinel_username", "sentinel_password", "key_ttl"}
)

// apisix reads limit-count, limit-req and limit-conn from APISIX's apisix.yaml, or from answers of
// its Admin API.
func (c *converter) apisix() {
	a := &apisix{c: c, groups: map[string]place{}}
	objects := map[string][]value{}
	for _, d := range c.documents() {
		if d.loses("kind", "kind: convert reads apisix.yaml and the Admin API's answers, and no resources of Kubernetes") {
			continue
		}
		if !d.get("uri").there() && !d.get("uris").there() {
			d.tell("APISIX's configuration", append(apisixFields, mergedFields(d)...)...)
		}
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
	}
	for _, o := range a.owners {
		a.losses(o)
	}
	c.settle()
	for kind, problem := range map[string]string{
		"consumers": "%s of a consumer: a rule does not know APISIX's consumers", "consumer_groups": "%s of a consumer: a rule does not know APISIX's consumers",
		"stream_routes": "%s of a stream route: Weir limits requests",
	} {
		for _, o := range objects[kind] {
			for _, p := range o.get("plugins").fields() {
				if apisixLimiting(p.name) && !disabled(p.value) {
					c.lose(p.at, problem, p.name)
				}
			}
		}
	}
	for _, m := range objects["plugin_metadata"] {
		for _, name := range []string{"limit_header", "remaining_header", "reset_header"} {
			m.loses(name, "%s: the rules send their own headers; want header_names")
		}
	}
}

// apisixLimiting reports whether a plugin limits requests.
func apisixLimiting(name string) bool {
	return strings.Contains(name, "limit-") || name == "ai-rate-limiting" || name == "workflow"
}

func (a *apisix) byID(all []value, kind string) map[string]*apisixOwner {
	owners := map[string]*apisixOwner{}
	for _, v := range all {
		o := &apisixOwner{name: cmp.Or(v.get("name").text(), kind+"-"+v.get("id").text()), plugins: v.get("plugins"), hosts: v.get("hosts")}
		v.tell("a "+kind, apisixOwnerFields[kind]...)
		owners[v.get("id").text()] = o
		a.owners = append(a.owners, o)
	}
	return owners
}

func (a *apisix) route(v value, services, configs map[string]*apisixOwner) {
	v.tell("a route", apisixRouteFields...)
	of := location{at: v.at}
	of.rest.Methods = v.get("methods").texts()
	for _, name := range []string{"filter_func", "remote_addr", "remote_addrs"} {
		of.partly = v.loses(name, "%s: a rule has no such condition") || of.partly
	}
	for _, expression := range v.get("vars").list() {
		if !variableIs(&of.rest, expression) {
			expression.lose("vars: a rule has no such condition")
			of.partly = true
		}
	}
	if vars := v.get("vars"); vars.there() && vars.node.Kind != yaml.SequenceNode {
		vars.lose("vars: want a list")
		of.partly = true
	}
	own := &apisixOwner{name: cmp.Or(v.get("name").text(), "route-"+v.get("id").text()), plugins: v.get("plugins")}
	a.owners = append(a.owners, own)
	r := &apisixRoute{owners: []*apisixOwner{own, configs[v.get("plugin_config_id").text()], services[v.get("service_id").text()]}}
	for _, name := range []string{"plugin_config", "service"} {
		if id := v.get(name + "_id"); id.there() && map[string]map[string]*apisixOwner{"plugin_config": configs, "service": services}[name][id.text()] == nil {
			id.lose("%s_id: no file has %.40q", name, id.text())
		}
	}
	a.routes = append(a.routes, r)
	hosts := append(v.get("host").either(), v.get("hosts").list()...)
	if service := r.owners[2]; len(hosts) == 0 && service != nil {
		hosts = service.hosts.list()
	}
	if len(hosts) == 0 {
		hosts = []value{{c: a.c}}
	}
	// A host goes before a path, a path before a priority, and what is longer before what is shorter.
	for _, h := range hosts {
		for _, uri := range append(v.get("uri").either(), v.get("uris").list()...) {
			l := of
			byHost, byPath := 0, math.MaxInt32
			if host := strings.ToLower(h.text()); strings.HasPrefix(host, "*") {
				l.hosts, byHost = []text{{suffix, host[1:]}}, len(host)
			} else if host != "" {
				l.hosts, byHost = []text{{exact, host}}, math.MaxInt32
			}
			path := uri.text()
			if before, found := strings.CutSuffix(path, "*"); found {
				l.paths, byPath = []text{{prefix, before}}, len(before)
			} else {
				l.paths = []text{{exact, path}}
			}
			if at := strings.IndexAny(strings.TrimSuffix(path, "*"), "*:"); at >= 0 {
				uri.lose("a rule has no parameters in paths: %.80s", path)
				l.paths, l.partly = []text{{prefix, path[:at]}}, true
			}
			l.rank = []int{byHost, byPath, v.get("priority").whole(0)}
			r.locations = append(r.locations, &l)
		}
	}
}

// variableIs adds the condition that a variable has a value. It reports false for other
// expressions, and for what a rule can't say.
func variableIs(m *match, expression value) bool {
	parts := expression.list()
	if len(parts) != 3 || parts[1].text() != "==" || parts[2].node.Kind != yaml.ScalarNode {
		return false
	}
	name, is := strings.ToLower(parts[0].text()), text{exact, parts[2].text()}
	if of, found := strings.CutPrefix(name, "http_"); found {
		return m.narrow(strings.ReplaceAll(of, "_", "-"), is)
	}
	if of, found := strings.CutPrefix(parts[0].text(), "arg_"); found {
		return m.narrow(":path", queryOf(of, is, decoded))
	}
	return false
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

// losses tells plugins that limit, and those that requests meet before they count.
func (a *apisix) losses(o *apisixOwner) {
	limited := slices.ContainsFunc(a.owners, func(g *apisixOwner) bool { return g.everywhere && g.limited() }) || o.everywhere && slices.ContainsFunc(a.owners, (*apisixOwner).limited)
	for _, r := range a.routes {
		limited = limited || slices.Contains(r.owners, o) && slices.ContainsFunc(r.owners, (*apisixOwner).limited)
	}
	for _, p := range o.plugins.fields() {
		switch {
		case disabled(p.value) || slices.Contains(apisixLimits, p.name) || slices.Contains(apisixHarmless, p.name):
		case apisixLimiting(p.name):
			a.c.lose(p.at, "the plugin %.40s is not converted", p.name)
		case limited:
			a.c.lose(p.at, "the plugin %.40s is not converted: what it refuses, answers or changes counts as it came", p.name)
		}
	}
}

// limited reports whether an owner has one of the plugins that are converted.
func (o *apisixOwner) limited() bool {
	return o != nil && slices.ContainsFunc(apisixLimits, func(name string) bool { p := o.plugins.get(name); return p.there() && !disabled(p) })
}

// limits makes the rules of a plugin.
func (a *apisix) limits(o *apisixOwner, name string) {
	config := o.plugins.get(name)
	if !config.there() || disabled(config) {
		return
	}
	at := config.at
	config.tell(name, slices.Concat(apisixCommon, apisixStore, apisixLimitFields[name])...)
	config.get("_meta").tell("_meta", "disable", "filter", "priority")
	if config.get("_meta").loses("filter", "_meta.filter: a rule has no such condition") {
		return
	}
	var own, others []*location
	if o.everywhere {
		own = []*location{{at: at}}
	} else {
		routes := 0
		for _, r := range a.routes {
			if r.of(name) == o {
				routes++
				own = append(own, r.locations...)
			} else {
				others = append(others, r.locations...)
			}
		}
		if name != "limit-count" && routes > 1 {
			config.lose("%s: APISIX counts each of these %d routes alone if they come from the Admin API; the rule counts them together", name, routes)
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
	r.Response = a.c.responseOf(at, config.get("rejected_code").whole(503), saying("error_msg", config.get("rejected_msg").text()))
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
	l := a.c.leakyBucket(config.at, rate, 1000, atOnce-waiting)
	if l == nil {
		return nil, nil
	}
	return l, a.c.smooth(config.at, rate, 1000, waiting)
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
	if config.loses("rules", "rules: convert reads a single limit of a plugin") {
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
		a.groups[group.text()] = group.at
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
	at := config.at
	key := config.get("key").or("remote_addr")
	where := at
	if config.get("key").there() {
		where = config.get("key").at
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
	lacks, with := r, onHeader(has[0].header, has[0].is)
	if a.c.also(at, &r, with) {
		a.c.add(at, r)
	}
	lacks.Name, lacks.Key = r.Name+"-others", []any{client()}
	lacks.Except = append(slices.Clone(lacks.Except), with)
	a.c.add(at, lacks)
}
