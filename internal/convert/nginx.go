package convert

import (
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
		if kubernetes.Match(f.Text) {
			documents = append(documents, c.documentsOf(f)...)
		} else {
			plain = append(plain, f)
		}
	}
	c.ingresses(documents)
	c.files = plain
	c.nginxFiles()
}

var kubernetes = regexp.MustCompile(`(?m)^[\s{\[]*"?(?:- )?(?:apiVersion|kind)"?\s*:`)

// zone is a limit_req_zone or limit_conn_zone.
type zone struct {
	at          place
	http        *directive
	name, key   string
	thousandths uint64 // of a request per perMillis
	perMillis   uint64
	byPath      bool                  // the key has $uri or parameters, which a rewrite changes
	used        map[string]*directive // by the server whose counters it uses, where each has its own
}

func (c *converter) nginxFiles() {
	if len(c.files) == 0 {
		return
	}
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
	http := &directive{at: place{c.files[0].Name, 1, 1}, name: "http"}
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
	c.knownOf(http, "http")
	c.nginxLimits(http)
}

// limitNames are the directives that limit requests. Each has zones by its own name and _zone.
var limitNames = []string{"limit_req", "limit_conn"}

// nginxLimits makes the rules of the contents of http.
func (c *converter) nginxLimits(http *directive) {
	zones := map[string]map[string]*zone{}
	for _, name := range limitNames {
		zones[name] = c.zones(http, name)
	}
	p := c.places(http)
	if p == nil || c.err != nil {
		return
	}
	c.redirections(p, zones)
	c.limitRequests(p, "limit_req", zones["limit_req"], c.limitRequest)
	c.limitRequests(p, "limit_conn", zones["limit_conn"], c.limitConnections)
}

var nginxRate = regexp.MustCompile(`^rate=([0-9]+)r/([sm])$`)

// zones reads all zones of a directive that limits.
func (c *converter) zones(http *directive, limit string) map[string]*zone {
	zones := map[string]*zone{}
	want := "want limit_conn_zone KEY zone=NAME:SIZE"
	if limit == "limit_req" {
		want = "want limit_req_zone KEY zone=NAME:SIZE rate=RATE"
	}
	for _, d := range http.find(limit + "_zone") {
		z := &zone{at: d.at, http: http, key: d.arg(0), perMillis: 1000, used: map[string]*directive{}}
		for _, arg := range d.args[min(1, len(d.args)):] {
			if found := nginxRate.FindStringSubmatch(arg); found != nil && limit == "limit_req" {
				n, err := strconv.ParseUint(found[1], 10, 32)
				if err != nil {
					c.fail(d.at, "limit_req_zone: want a rate that is smaller than %.20s", found[1])
				}
				z.thousandths = n * 1000
				if found[2] == "m" {
					z.perMillis = 60_000
				}
			} else if of, ok := strings.CutPrefix(arg, "zone="); ok {
				z.name, _, _ = strings.Cut(of, ":")
			} else {
				c.lose(d.at, "%s: %.40s is not known here", d.name, arg)
			}
		}
		if z.name == "" || z.thousandths == 0 && limit == "limit_req" {
			c.fail(d.at, "%s", want)
		}
		z.byPath = readsPath(http, z.key, map[string]bool{})
		zones[z.name] = z
	}
	return zones
}

// limitRequests makes the rules of each limit of a name. Equal directives in several places are a limit.
func (c *converter) limitRequests(p *places, name string, zones map[string]*zone, of func(d *directive, z *zone) (*limit, *delay)) {
	type group struct {
		key string
		of  []*directive
		in  []*scope
	}
	var groups []*group
	for _, s := range p.scopes {
		if !p.won[s] {
			continue
		}
		for _, d := range s.limits(name) {
			args := slices.Sorted(slices.Values(d.args))
			if name == "limit_conn" {
				args = d.args
			}
			key := strings.Join(args, " ") + " " + zones[zoneName(d)].countersOf(s)
			i := slices.IndexFunc(groups, func(g *group) bool { return g.key == key })
			if i < 0 {
				i = len(groups)
				groups = append(groups, &group{key: key})
			}
			groups[i].of = append(groups[i].of, d)
			groups[i].in = append(groups[i].in, s)
		}
	}
	for _, g := range groups {
		d, first := g.of[0], g.in[0]
		if c.isFull(d.at) {
			continue
		}
		for _, s := range g.in {
			if s.effectiveOne(name+"_status", "503") != first.effectiveOne(name+"_status", "503") || s.isDry(name) != first.isDry(name) {
				c.lose(s.at, "%s_status and %s_dry_run here become those of line %d: a limit has only one answer", name, name, first.at.line)
			}
		}
		z := c.zoneOf(d, zones, first)
		if z == nil {
			continue
		}
		l, wait := of(d, z)
		if l == nil {
			continue
		}
		isOwn := func(s *scope) bool { return slices.Contains(g.in, s) }
		c.addLimits(d, z, rule{Limits: []limit{*l}, Delay: wait}, first, c.placeRules(d.at, p, isOwn))
	}
}

// limitConnections returns a limit of requests in flight. nginx counts connections that have such a
// request.
func (c *converter) limitConnections(d *directive, _ *zone) (*limit, *delay) {
	n, err := strconv.ParseUint(d.arg(1), 10, 32)
	if err != nil || n == 0 {
		c.fail(d.at, "want limit_conn ZONE NUMBER, with a number above 0")
		return nil, nil
	}
	return &limit{Limit: n, Algorithm: inFlight}, nil
}

// zoneOf returns the zone that a directive names, or nil if there is none.
func (c *converter) zoneOf(d *directive, zones map[string]*zone, s *scope) *zone {
	name := zoneName(d)
	z := zones[name]
	if z == nil {
		c.lose(d.at, "%s: no %s_zone has the name %.40q", d.name, d.name, name)
		return nil
	}
	of := z.countersOf(s)
	if before := z.used[of]; before != nil {
		c.lose(d.at, "the zone %.40s counts this together with line %d; two rules count separately", name, before.at.line)
	}
	z.used[of] = d
	return z
}

func zoneName(d *directive) string {
	if d.name == "limit_conn" {
		return d.arg(0)
	}
	for _, arg := range d.args {
		if name, found := strings.CutPrefix(arg, "zone="); found {
			return name
		}
	}
	return ""
}

// countersOf names the server of a scope if each server has counters of its own in a zone.
func (z *zone) countersOf(s *scope) string {
	if z == nil || !slices.ContainsFunc(template(z.key), part.isServerName) {
		return ""
	}
	return "of " + s.server.name()
}

// mayBeEmpty reports whether a part is a variable that requests may lack.
func (p part) mayBeEmpty() bool {
	s, known := variable(p.text)
	return p.variable && known && !s.always
}

// isServerName reports whether a part is $server_name: the first name of a server, whatever the host of a
// request.
func (p part) isServerName() bool { return p.variable && strings.EqualFold(p.text, "server_name") }

func (c *converter) limitRequest(d *directive, z *zone) (*limit, *delay) {
	burst, delay, nodelay := uint64(0), uint64(0), false
	for _, arg := range d.args {
		key, of, _ := strings.Cut(arg, "=")
		n, err := strconv.ParseUint(of, 10, 32)
		switch {
		case key == "zone":
		case arg == "nodelay":
			nodelay = true
		case key == "burst" && err == nil && n > 0:
			burst = n
		case key == "delay" && err == nil && n > 0:
			delay = n
		default:
			c.fail(d.at, "limit_req: want zone, nodelay, or burst or delay above 0, got %.40q", arg)
			return nil, nil
		}
	}
	atOnce := burst
	if !nodelay {
		atOnce = min(delay, burst)
	}
	l := c.leakyBucket(d.at, z.thousandths, z.perMillis, atOnce)
	if l == nil {
		return nil, nil
	}
	return l, c.smooth(d.at, z.thousandths, z.perMillis, burst-atOnce)
}

// addLimits adds the rules of a limit: one for each place and each region of the zone's key.
func (c *converter) addLimits(d *directive, z *zone, like rule, s *scope, places []rule) {
	status, err := strconv.Atoi(s.effectiveOne(d.name+"_status", "503"))
	if err != nil {
		c.fail(d.at, "%s_status: want a number", d.name)
		return
	}
	key := template(z.key)
	for i := range key {
		if key[i].isServerName() {
			key[i] = part{false, s.server.name()} // the rule is of one server
		}
	}
	key = slices.DeleteFunc(key, func(p part) bool { return p.text == "" })
	regions, ok := c.regions(z.http, key, 0)
	if !ok {
		return
	}
	var keys, whole [][]part
	for _, of := range regions {
		if len(of.parts) == 0 {
			continue // nginx does not limit requests without a key
		}
		if of.unsaid != nil {
			c.lose(*of.unsaid, "no conditions of a single rule stand for the requests of this value")
			continue
		}
		if slices.ContainsFunc(of.parts, part.isServerName) {
			c.lose(z.at, "a map's value has $server_name: no part of a request is the first name of its server")
			continue
		}
		least := slices.DeleteFunc(slices.Clone(of.parts), part.mayBeEmpty)
		if len(least) > 0 && slices.ContainsFunc(keys, func(before []part) bool { return slices.Equal(before, least) }) || slices.ContainsFunc(whole, func(before []part) bool { return slices.Equal(before, of.parts) }) {
			c.lose(z.at, "requests with this key may come from several values of a map, for each of which a rule counts separately")
		}
		keys, whole = append(keys, least), append(whole, of.parts)
		key, has, always, ok := c.keyOf(z.at, of.parts)
		if !ok {
			continue
		}
		always = always || slices.ContainsFunc(of.parts, func(p part) bool { return !p.variable })
		for _, place := range places {
			r := like
			r.Name, r.Key = z.name, key
			r.Response = c.responseOf(d.at, status, "")
			r.Except = append(slices.Clone(place.Except), of.except...)
			if s.isDry(d.name) {
				r.Mode = shadow
			}
			m, possible, ok := of.match, true, true
			if place.Match != nil {
				m, possible, ok = bothMatch(*place.Match, of.match)
			}
			if ok && possible && !always {
				m, possible, ok = c.withKey(z.at, m, has, &r)
			}
			switch {
			case !ok:
				c.lose(d.at, "the conditions of this place and of the key are about the same part of a request, and no single condition of a rule")
			case possible:
				r.Match = m.orNil()
				c.add(d.at, r)
			}
		}
	}
}

// withKey restricts a rule to requests whose key is not empty: that have one of some variables.
func (c *converter) withKey(at place, m match, has []selected, r *rule) (match, bool, bool) {
	if len(has) == 1 {
		return bothMatch(m, onHeader(has[0].header, has[0].is))
	}
	if len(has) > 3 || slices.ContainsFunc(has, func(s selected) bool { return s.is != something }) {
		c.lose(at, "nginx does not limit requests without the key; Weir counts them together")
		return m, true, true
	}
	// Requests are left alone that have none: each header is either absent or empty.
	none := []match{{}}
	for _, s := range has {
		var longer []match
		for _, before := range none {
			for _, t := range []text{{present, "false"}, {exact, ""}} {
				e, _, _ := bothMatch(before, match{})
				e.header(s.header, t)
				longer = append(longer, e)
			}
		}
		none = longer
	}
	for _, e := range none {
		r.Except = append(r.Except, e)
	}
	return m, true, true
}
