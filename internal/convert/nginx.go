package convert

import (
	"math"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// nginx reads limit_req and limit_conn from nginx's configuration, and the annotations of
// ingress-nginx.
func (c *converter) nginx() {
	var plain []File
	var documents []value
	for _, f := range c.files {
		if !isKubernetes(f) {
			plain = append(plain, f)
			continue
		}
		documents = append(documents, c.documentsOf(f)...)
	}
	c.ingresses(documents)
	files := c.files
	c.files = plain
	c.nginxFiles()
	c.files = files
}

var kubernetes = regexp.MustCompile(`(?m)^\s*"?(?:- )?(?:apiVersion|kind)"?\s*:`)

func isKubernetes(f File) bool { return kubernetes.Match(f.Text) }

// zone is a limit_req_zone or limit_conn_zone.
type zone struct {
	at          place
	parts       []part
	thousandths uint64 // of a request per perMillis
	perMillis   uint64
	// except has the clients that a map exempts.
	except []any
	used   *directive
}

// scope is a block whose directives apply to its requests.
type scope struct {
	*directive
	above *scope
	where *location // set for servers and locations
}

// effective returns the directives of a name that apply in a scope: those of the innermost block
// that has any.
func (s *scope) effective(name string) []*directive {
	for ; s != nil; s = s.above {
		if found := s.find(name); len(found) > 0 {
			return found
		}
	}
	return nil
}

func (s *scope) effectiveOne(name, unless string) string {
	if all := s.effective(name); len(all) > 0 {
		return all[0].arg(0)
	}
	return unless
}

type nginxServer struct {
	scope  *scope
	hosts  []text
	byHost int // how specific the hosts are
}

func (c *converter) nginxFiles() {
	parts := c.nginxParts()
	var all []*directive
	for _, p := range parts {
		p.block = c.include(p.block, parts, []*nginxPart{p})
	}
	for _, p := range parts {
		if !p.included {
			all = append(all, p.block...)
		}
	}
	// The contents of http may be in a file of their own.
	http := &directive{name: "http"}
	for _, d := range all {
		if d.name == "http" {
			http.block = append(http.block, d.block...)
		} else {
			http.block = append(http.block, d)
		}
	}
	if c.err != nil {
		return
	}
	zones := c.zones(http)
	scopes := c.scopes(http)
	c.lostOf(http)
	c.limitRequests("limit_req", scopes, func(d *directive, s *scope, own, others []*location) { c.limitRequest(d, zones, s, own, others) })
	zones = c.connectionZones(http)
	c.limitRequests("limit_conn", scopes, func(d *directive, s *scope, own, others []*location) { c.limitConnections(d, zones, s, own, others) })
}

// lostOf reports directives that have no counterpart in Weir.
func (c *converter) lostOf(d *directive) {
	for _, o := range d.block {
		switch o.name {
		case "limit_rate":
			if o.arg(0) != "0" {
				c.lose(o.at, "limit_rate: Weir does not limit bytes")
			}
		case "stream", "mail":
			for _, server := range o.find("server") {
				c.lostOf(server)
			}
			continue
		}
		c.lostOf(o)
	}
}

var nginxRate = regexp.MustCompile(`^rate=([0-9]+)r/([sm])$`)

// zones reads all limit_req_zones.
func (c *converter) zones(http *directive) map[string]*zone {
	zones := map[string]*zone{}
	for _, d := range http.find("limit_req_zone") {
		z := &zone{at: d.at, perMillis: 1000}
		name := ""
		for _, arg := range d.args[min(1, len(d.args)):] {
			if found := nginxRate.FindStringSubmatch(arg); found != nil {
				n, err := strconv.ParseUint(found[1], 10, 32)
				if err != nil {
					c.fail(d.at, "limit_req_zone: want a rate that is smaller than %.20s", found[1])
				}
				z.thousandths = n * 1000
				if found[2] == "m" {
					z.perMillis = 60_000
				}
			} else if of, ok := strings.CutPrefix(arg, "zone="); ok {
				name, _, _ = strings.Cut(of, ":")
			}
		}
		if z.thousandths == 0 || name == "" {
			c.fail(d.at, "want limit_req_zone KEY zone=NAME:SIZE rate=RATE")
		}
		z.parts = c.mapped(http, z, template(d.arg(0)))
		zones[name] = z
	}
	return zones
}

// mapped resolves a zone's key that comes from a map. Requests whose key the map leaves empty don't
// count, and become exceptions of the zone. All other requests have the map's other value as their
// key.
func (c *converter) mapped(http *directive, z *zone, parts []part) []part {
	if len(parts) != 1 || !parts[0].variable {
		return parts
	}
	for _, d := range http.find("map") {
		if d.arg(1) != "$"+parts[0].text {
			continue
		}
		var values []*directive
		rest := &directive{}
		for _, o := range d.block {
			if o.name == "default" {
				rest = o
			} else {
				values = append(values, o)
			}
		}
		if source := d.arg(0); strings.HasPrefix(source, "$") {
			if networks, counted, ok := c.geo(http, source, values, rest); ok {
				if len(networks) > 0 {
					z.except = append(z.except, addresses{networks})
				}
				return template(counted)
			}
		}
		s, known := variable(strings.TrimPrefix(d.arg(0), "$"))
		if rest.arg(0) == "" || !known {
			break
		}
		ok := true
		for _, o := range values {
			condition, fine := c.mapValue(o)
			if ok = ok && fine && o.arg(0) == ""; !ok {
				break
			}
			if of, found := s.selector.(map[string]string); found && of["header"] != "" {
				z.except = append(z.except, match{Headers: map[string]text{of["header"]: condition}})
			} else if s.selector == any("host") {
				z.except = append(z.except, match{Host: &condition})
			} else if s.selector == any("path") {
				z.except = append(z.except, match{Path: &condition})
			} else if s.selector == any("method") && condition.kind == exact {
				z.except = append(z.except, match{Methods: []string{condition.value}})
			} else {
				ok = false
			}
		}
		if ok {
			return template(rest.arg(0))
		}
		break
	}
	return parts
}

// mapValue returns the condition of a line in a map.
func (c *converter) mapValue(o *directive) (text, bool) {
	switch {
	case o.name == "hostnames" || o.name == "volatile" || o.name == "include":
		return text{}, false
	case strings.HasPrefix(o.name, "~*"):
		return c.expression(o.at, "(?i)"+o.name[2:], false)
	case strings.HasPrefix(o.name, "~"):
		return c.expression(o.at, o.name[1:], false)
	}
	return text{exact, strings.TrimPrefix(o.name, `\`)}, true
}

// geo reads a map of a geo's values. It returns the networks whose key is empty, and the key of all
// other clients.
func (c *converter) geo(http *directive, source string, values []*directive, rest *directive) (networks []string, counted string, ok bool) {
	to := func(value string) string {
		for _, o := range values {
			if o.name == value {
				return o.arg(0)
			}
		}
		return rest.arg(0)
	}
	for _, g := range http.find("geo") {
		if g.arg(len(g.args)-1) != source || len(g.args) != 1 {
			continue
		}
		counted = to(g.first("default").arg(0))
		for _, o := range g.block {
			network, err := netip.ParsePrefix(o.name)
			if address, e := netip.ParseAddr(o.name); e == nil {
				network, err = netip.PrefixFrom(address, address.BitLen()), nil
			}
			switch {
			case o.name == "default" || to(o.arg(0)) == counted && err == nil:
			case err == nil && to(o.arg(0)) == "" && counted != "":
				networks = append(networks, network.String())
			default:
				c.lose(o.at, "a rule can exempt networks of clients, but not count them differently")
			}
		}
		return networks, counted, counted != ""
	}
	return nil, "", false
}

// scopes returns all blocks that answer requests.
func (c *converter) scopes(http *directive) (all []*scope) {
	top := &scope{directive: http}
	var servers []*nginxServer
	for _, d := range http.find("server") {
		servers = append(servers, c.server(top, d))
	}
	if len(servers) == 0 {
		top.where = &location{at: http.at}
		return c.locations(top, []*scope{top})
	}
	defaults := servers[0]
	for _, s := range servers {
		for _, listen := range s.scope.find("listen") {
			if slices.Contains(listen.args, "default_server") {
				defaults = s
			}
			if address := listen.arg(0); len(s.scope.find("return")) == 0 && address != servers[0].scope.first("listen").arg(0) && overlap(s.hosts, servers[0].hosts) {
				c.lose(listen.at, "listen: a rule can't tell apart the addresses that requests come to")
			}
		}
	}
	for _, s := range servers {
		if len(s.scope.find("return")) > 0 {
			continue // it redirects before it limits
		}
		s.scope.where = &location{at: s.scope.at, hosts: s.hosts, rank: []int{s.byHost, 0, 0}}
		if s == defaults || len(servers) == 1 {
			s.scope.where.hosts, s.scope.where.rank = nil, []int{-1, 0, 0}
		}
		inside := c.locations(s.scope, nil)
		if !slices.ContainsFunc(inside, func(o *scope) bool { return slices.Contains(o.where.paths, text{prefix, "/"}) }) {
			all = append(all, s.scope) // for requests that fit no location
		}
		all = append(all, inside...)
	}
	return all
}

const (
	hostRegex = iota + 1
	hostSuffix
	hostExact
)

func (c *converter) server(top *scope, d *directive) *nginxServer {
	s := &nginxServer{scope: &scope{directive: d, above: top}}
	for _, names := range d.find("server_name") {
		for _, name := range names.args {
			switch {
			case name == "_" || name == "":
			case strings.HasPrefix(name, "~"):
				if t, ok := c.expression(names.at, name[1:], false); ok {
					s.hosts, s.byHost = append(s.hosts, t), max(s.byHost, hostRegex)
				}
			case strings.HasPrefix(name, "*."):
				s.hosts, s.byHost = append(s.hosts, text{suffix, strings.ToLower(name[1:])}), max(s.byHost, hostSuffix)
			case strings.HasPrefix(name, "."):
				s.hosts = append(s.hosts, text{suffix, strings.ToLower(name)}, text{exact, strings.ToLower(name[1:])})
				s.byHost = max(s.byHost, hostSuffix)
			case strings.HasSuffix(name, ".*"):
				s.hosts, s.byHost = append(s.hosts, text{prefix, strings.ToLower(name[:len(name)-1])}), max(s.byHost, hostSuffix)
			default:
				s.hosts, s.byHost = append(s.hosts, text{exact, strings.ToLower(name)}), hostExact
			}
		}
	}
	if len(s.hosts) == 0 {
		s.byHost = -1
	}
	return s
}

// locations adds the locations of a scope, and those nested in them.
func (c *converter) locations(of *scope, all []*scope) []*scope {
	for i, d := range of.find("location") {
		modifier, path := "", d.arg(0)
		if len(d.args) > 1 {
			modifier, path = d.arg(0), d.arg(1)
		} else if cut := strings.IndexAny(path+"/", "/@"); strings.Contains("= ~ ~* ^~", path[:min(cut, len(path))]) && cut < len(path) {
			modifier, path = path[:cut], path[cut:]
		}
		inner := &scope{directive: d, above: of, where: &location{at: d.at, hosts: of.where.hosts}}
		var t text
		ok := true
		const plain, expression, whole = 1, 2, 3
		order := []int{plain, len(path)}
		switch {
		case strings.HasPrefix(path, "@"):
			if len(d.find("limit_req")) > 0 {
				c.lose(d.at, "a rule can't match a location that other locations send requests to")
			}
			continue
		case modifier == "=":
			t, order[0] = text{exact, path}, whole
		case modifier == "^~":
			t, inner.where.stops = text{prefix, path}, true
		case modifier == "~":
			t, ok = c.expression(d.at, path, false)
			order = []int{expression, math.MaxInt32 - i}
		case modifier == "~*":
			t, ok = c.expression(d.at, "(?i)"+path, false)
			order = []int{expression, math.MaxInt32 - i}
		default:
			t = text{prefix, path}
		}
		if !ok {
			continue
		}
		rank := 0
		if len(of.where.rank) > 0 {
			rank = of.where.rank[0]
		}
		inner.where.rank = append([]int{rank}, order...)
		inner.where.paths = []text{t}
		all = append(all, inner)
		all = c.locations(inner, all)
	}
	return all
}

// limitRequests makes the rules of each directive of a name.
func (c *converter) limitRequests(name string, scopes []*scope, limit func(d *directive, s *scope, own, others []*location)) {
	var limits []*directive
	for _, s := range scopes {
		for _, d := range s.effective(name) {
			if !slices.Contains(limits, d) {
				limits = append(limits, d)
			}
		}
	}
	status, dryRun := name+"_status", name+"_dry_run"
	for _, d := range limits {
		if c.isFull(d.at) {
			continue
		}
		var own, others []*location
		var first *scope
		for _, s := range scopes {
			if !slices.Contains(s.effective(name), d) {
				others = append(others, s.where)
				continue
			}
			if first == nil {
				first = s
			} else if s.effectiveOne(status, "503") != first.effectiveOne(status, "503") || s.effectiveOne(dryRun, "off") != first.effectiveOne(dryRun, "off") {
				c.lose(s.at, "%s and %s here become those of line %d: a limit has only one answer", status, dryRun, first.at.line)
			}
			own = append(own, s.where)
		}
		limit(d, first, own, others)
	}
}

// connectionZones reads all limit_conn_zones.
func (c *converter) connectionZones(http *directive) map[string]*zone {
	zones := map[string]*zone{}
	for _, d := range http.find("limit_conn_zone") {
		of, ok := strings.CutPrefix(d.arg(1), "zone=")
		name, _, _ := strings.Cut(of, ":")
		if !ok || name == "" {
			c.fail(d.at, "want limit_conn_zone KEY zone=NAME:SIZE")
			continue
		}
		z := &zone{at: d.at}
		z.parts = c.mapped(http, z, template(d.arg(0)))
		zones[name] = z
	}
	return zones
}

// limitConnections makes rules that limit requests in flight. nginx counts connections that have
// such a request.
func (c *converter) limitConnections(d *directive, zones map[string]*zone, s *scope, own, others []*location) {
	name := d.arg(0)
	n, err := strconv.ParseUint(d.arg(1), 10, 32)
	if err != nil || n == 0 {
		c.fail(d.at, "want limit_conn ZONE NUMBER, with a number above 0")
		return
	}
	z := c.zoneOf(d, zones, name)
	if z == nil {
		return
	}
	c.addLimits(d, z, name, limit{Limit: n, Algorithm: inFlight}, nil, s, own, others)
}

// zoneOf returns the zone that a directive names, or nil if there is none.
func (c *converter) zoneOf(d *directive, zones map[string]*zone, name string) *zone {
	z := zones[name]
	if z == nil {
		c.lose(d.at, "%s: no %s_zone has the name %.40q", d.name, d.name, name)
		return nil
	}
	if z.used != nil && z.used.at != d.at {
		c.lose(d.at, "the zone %.40s counts this together with line %d; two rules count separately", name, z.used.at.line)
	}
	z.used = d
	return z
}

func (c *converter) limitRequest(d *directive, zones map[string]*zone, s *scope, own, others []*location) {
	burst, delay, nodelay := uint64(0), uint64(0), false
	name := ""
	for _, arg := range d.args {
		key, of, _ := strings.Cut(arg, "=")
		n, err := strconv.ParseUint(of, 10, 32)
		switch {
		case key == "zone":
			name = of
		case arg == "nodelay":
			nodelay = true
		case key == "burst" && err == nil:
			burst = n
		case key == "delay" && err == nil:
			delay = n
		default:
			c.fail(d.at, "limit_req: want zone, burst, delay or nodelay, got %.40q", arg)
			return
		}
	}
	z := c.zoneOf(d, zones, name)
	if z == nil {
		return
	}
	atOnce := burst
	if !nodelay {
		atOnce = min(delay, burst)
	}
	if l := c.leakyBucket(d.at, z.thousandths, z.perMillis, atOnce); l != nil {
		c.addLimits(d, z, name, *l, c.smooth(d.at, z.thousandths, z.perMillis, burst-atOnce), s, own, others)
	}
}

// addLimits adds the rules of a limit, with the zone's key.
func (c *converter) addLimits(d *directive, z *zone, name string, l limit, wait *delay, s *scope, own, others []*location) {
	key, has, always, ok := c.keyOf(z.at, z.parts)
	if !ok {
		return
	}
	status, err := strconv.Atoi(s.effectiveOne(d.name+"_status", "503"))
	if err != nil {
		c.fail(d.at, "%s_status: want a number", d.name)
		return
	}
	for _, r := range c.matches(d.at, own, others) {
		r.Name, r.Key, r.Limits, r.Delay = name, key, []limit{l}, wait
		r.Except = append(r.Except, z.except...)
		r.Response = c.responseOf(d.at, status, "")
		if strings.EqualFold(s.effectiveOne(d.name+"_dry_run", "off"), "on") {
			r.Mode = shadow
		}
		if !always {
			c.onlyWith(d.at, &r, has)
		}
		c.add(d.at, r)
	}
}

// onlyWith restricts a rule to requests whose key is not empty.
func (c *converter) onlyWith(at place, r *rule, has []selected) {
	if len(has) != 1 {
		c.lose(at, "nginx does not limit requests without the key; Weir counts them together")
		return
	}
	var m match
	if r.Match != nil {
		m = *r.Match
	}
	m.header(has[0].header, has[0].is)
	r.Match = &m
}
