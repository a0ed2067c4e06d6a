package convert

import (
	"cmp"
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"unicode/utf8"
)

// scope is a block whose directives apply to its requests: http, a server or a location.
type scope struct {
	*directive
	above  *scope
	server *nginxServer
	kind   locationKind
	is     text // of a location
	inner  []*scope
}

type locationKind int

const (
	block locationKind = iota // http or a server
	plainLocation
	stopLocation // ^~: a prefix that goes before the regular expressions beside it
	exactLocation
	expressionLocation
	namedLocation
)

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

// answers reports whether nginx answers the requests of a scope before it limits them.
func (s *scope) answers() bool {
	return s.server != nil && s.server.scope.alwaysReturns() || s.alwaysReturns() || len(s.find("internal")) > 0
}

// alwaysReturns reports whether all requests that a block has are answered by its rewriting.
func (d *directive) alwaysReturns() bool {
	for _, o := range d.block {
		switch {
		case o.name == "return" || o.redirects() && slices.Contains(allPaths, o.arg(0)):
			return true
		case o.name == "break" || o.name == "rewrite" && !o.redirects() || o.name == "if" && !o.onlyReturns():
			return false
		}
	}
	return false
}

// allPaths are expressions of rewrite that all paths match.
var allPaths = []string{"^", ".*", "(.*)", "^.*", "^.*$", "^(.*)", "^(.*)$", "^/", "^/.*", "^/.*$", "^/(.*)", "^/(.*)$"}

// redirects reports whether a directive is a rewrite that answers with a redirect.
func (d *directive) redirects() bool {
	to := d.arg(1)
	return d.name == "rewrite" && (slices.Contains([]string{"redirect", "permanent"}, d.arg(2)) ||
		strings.HasPrefix(to, "http://") || strings.HasPrefix(to, "https://") || strings.HasPrefix(to, "$scheme"))
}

// wantsTLS reports whether an if redirects requests that come without TLS, and does nothing else.
func (d *directive) wantsTLS() bool {
	of := strings.Trim(strings.Join(d.args, " "), "( )")
	without := []string{"$scheme = http", "$scheme != https", "$https =", "$https != on", "$http_x_forwarded_proto = http", "$http_x_forwarded_proto != https"}
	return slices.Contains(without, strings.ToLower(of)) && len(d.block) == 1 && strings.HasPrefix(d.block[0].arg(1), "https://") && (d.block[0].name == "return" || d.block[0].redirects())
}

// onlyReturns reports whether a block does nothing to a request but to answer it.
func (d *directive) onlyReturns() bool {
	return !slices.ContainsFunc(d.block, func(o *directive) bool {
		return o.name == "break" || o.name != "return" && !o.redirects() && o.name != "set" && !fitsAny(o.name, harmlessDirectives)
	})
}

// locations adds the locations of a scope, and those nested in them, to all.
func (c *converter) locations(of *scope, all []*scope) []*scope {
	for _, d := range of.find("location") {
		modifier, path := "", d.arg(0)
		if len(d.args) > 1 {
			modifier, path = d.arg(0), d.arg(1)
		} else {
			for _, m := range []string{"=", "^~", "~*", "~"} {
				if rest, found := strings.CutPrefix(path, m); found {
					modifier, path = m, rest
					break
				}
			}
		}
		inner := &scope{directive: d, above: of, server: of.server}
		ok := true
		switch {
		case strings.HasPrefix(path, "@") && modifier == "":
			inner.kind = namedLocation
		case modifier == "=":
			inner.kind, inner.is = exactLocation, text{exact, sent(path)}
		case modifier == "~", modifier == "~*":
			inner.kind = expressionLocation
			inner.is, ok = c.pathExpression(d, map[string]string{"~*": "(?i)"}[modifier]+path)
		case modifier == "^~":
			inner.kind, inner.is = stopLocation, text{prefix, sent(path)}
		default:
			inner.kind, inner.is = plainLocation, text{prefix, sent(path)}
		}
		if !ok {
			continue
		}
		of.inner = append(of.inner, inner)
		all = c.locations(inner, append(all, inner))
	}
	return all
}

// mustEncode reports whether clients send a byte of a path encoded. nginx compares it decoded, a rule as it
// is sent.
func mustEncode(c byte) bool { return c <= ' ' || c >= 0x7f || strings.IndexByte("\"#%<>?`{}", c) >= 0 }

// sent returns a path as clients send it.
func sent(path string) string {
	var b strings.Builder
	for i := range len(path) {
		if mustEncode(path[i]) {
			fmt.Fprintf(&b, "%%%02X", path[i])
		} else {
			b.WriteByte(path[i])
		}
	}
	return b.String()
}

// pathExpression reads the expression of a directive that is about decoded paths.
func (c *converter) pathExpression(d *directive, expr string) (text, bool) {
	for i := range len(expr) {
		if mustEncode(expr[i]) && strings.IndexByte("?{}#<>", expr[i]) < 0 {
			c.lose(d.at, "%.60s: clients send some of these characters encoded, and the expression does not match that", d.name)
			return text{}, false
		}
	}
	return c.expression(d.at, expr, false)
}

// choose finds the location of a path, as ngx_http_core_find_location does. done says that regular
// expressions further out do not matter any more.
func (s *scope) choose(holds func(text) bool) (found *scope, done bool) {
	var longest *scope
	for _, l := range s.inner {
		switch {
		case l.kind == namedLocation || !holds(l.is):
		case l.kind == exactLocation:
			return l, true
		case l.kind != expressionLocation && (longest == nil || len(l.is.value) > len(longest.is.value)):
			longest = l
		}
	}
	found = s
	if longest != nil {
		if found, done = longest.choose(holds); done || longest.kind == stopLocation {
			return found, done
		}
	}
	for _, l := range s.inner {
		if l.kind == expressionLocation && holds(l.is) {
			found, _ = l.choose(holds)
			return found, true
		}
	}
	return found, false
}

// match returns the conditions on the path of a scope and of those around it. ok is false if they are
// no conditions of a single match.
func (s *scope) match() (m match, ok bool) {
	ok = true
	for ; s != nil && s.kind != block && ok; s = s.above {
		path := s.is
		if m, _, ok = bothMatch(match{Path: &path}, m); !ok {
			return m, false
		}
	}
	if m.Path != nil && m.Path.all() {
		m.Path = nil
	}
	return m, ok
}

type nginxServer struct {
	scope   *scope
	names   []serverName
	sockets []socket
}

// name is what $server_name has: the first name.
func (s *nginxServer) name() string { return s.scope.first("server_name").arg(0) }

type serverName struct {
	is   text
	rank int
	said string
}

type socket struct {
	at        place
	name      string
	isDefault bool
}

// Ranks of the kinds of names: the smallest decides.
const (
	exactName = iota
	beginsWithStar
	endsWithStar
	expressionName
)

func (c *converter) server(top *scope, d *directive) *nginxServer {
	s := &nginxServer{scope: &scope{directive: d, above: top}}
	s.scope.server = s
	for _, names := range d.find("server_name") {
		for _, name := range names.args {
			lower := strings.ToLower(name)
			switch {
			case name == "_" || name == "" || slices.ContainsFunc(s.names, func(n serverName) bool { return n.said == name }):
			case strings.Contains(name, "$hostname"):
				c.lose(names.at, "server_name: nobody knows the name of nginx's machine here")
			case strings.HasPrefix(name, "~"):
				expr := name[1:]
				if name != lower {
					expr = "(?i)" + expr
				}
				if t, ok := c.expression(names.at, expr, false); ok {
					s.names = append(s.names, serverName{t, expressionName, name})
				}
			case strings.HasPrefix(name, "*."):
				s.names = append(s.names, serverName{text{suffix, lower[1:]}, beginsWithStar, name})
			case strings.HasPrefix(name, "."):
				s.names = append(s.names, serverName{text{suffix, lower}, beginsWithStar, name}, serverName{text{exact, lower[1:]}, exactName, name})
			case strings.HasSuffix(name, ".*"):
				s.names = append(s.names, serverName{text{prefix, lower[:len(lower)-1]}, endsWithStar, name})
			default:
				s.names = append(s.names, serverName{text{exact, lower}, exactName, name})
			}
		}
	}
	for _, l := range d.find("listen") {
		isDefault := slices.Contains(l.args, "default_server") || slices.Contains(l.args, "default")
		s.sockets = append(s.sockets, socket{l.at, socketName(l.arg(0)), isDefault})
	}
	if len(s.sockets) == 0 {
		s.sockets = []socket{{d.at, "80", false}}
	}
	return s
}

var digitsOnly = regexp.MustCompile(`^[0-9]+$`)

// socketName names what listen listens at, so that all addresses of IPv4 and of IPv6 have a name.
func socketName(listen string) string {
	for _, all := range []string{"*", "0.0.0.0", "[::]"} {
		if listen == all {
			return "80"
		}
		if port, found := strings.CutPrefix(listen, all+":"); found {
			return port
		}
	}
	if digitsOnly.MatchString(listen) || strings.HasPrefix(listen, "unix:") || strings.LastIndexByte(listen, ':') > strings.LastIndexByte(listen, ']') {
		return listen
	}
	return listen + ":80"
}

// isPrivate reports whether only programs on nginx's own machine reach a server, as one of a status page.
func (s *nginxServer) isPrivate() bool {
	is := func(name string) bool {
		return strings.HasPrefix(name, "127.") || strings.HasPrefix(name, "[::1]") || strings.HasPrefix(name, "localhost")
	}
	return !slices.ContainsFunc(s.sockets, func(l socket) bool { return !is(l.name) }) &&
		!slices.ContainsFunc(s.names, func(n serverName) bool { return !is(n.said) })
}

// hasLimits reports whether a block has limits itself, or deep in blocks inside it.
func (d *directive) hasLimits(deep bool) bool {
	return slices.ContainsFunc(d.block, func(o *directive) bool {
		return o.name == "limit_req" || o.name == "limit_conn" || deep && o.hasLimits(true)
	})
}

// hostsOf returns the hosts of a server, or none if requests for other hosts come to it, too.
func (p *places) hostsOf(s *nginxServer) (hosts []text) {
	if p.defaults[s] {
		return nil
	}
	for _, n := range s.names {
		hosts = append(hosts, n.is)
	}
	return hosts
}

// places are all classes of requests that nginx tells apart by host and path, and the scope of each.
type places struct {
	scopes       []*scope // but for named locations
	named        []*scope
	hostTexts    []text
	pathTexts    []text
	hosts, paths []class
	of           []*scope // by host and path: by index(host, path)
	defaults     map[*nginxServer]bool
	won          map[*scope]bool // scopes that some requests come to
}

func (p *places) index(host, path int) int { return host*len(p.paths) + path }

// maxPlaces bounds the classes of hosts and paths.
const maxPlaces = 1 << 20

// places finds all scopes, and what requests are whose. It returns nil if that takes too much work,
// which is lost.
func (c *converter) places(http *directive) *places {
	p := &places{defaults: map[*nginxServer]bool{}}
	top := &scope{directive: http}
	var servers []*nginxServer
	for _, d := range http.find("server") {
		servers = append(servers, c.server(top, d))
	}
	if slices.ContainsFunc(servers, func(s *nginxServer) bool { return !s.isPrivate() }) && !top.hasLimits(false) {
		servers = slices.DeleteFunc(servers, func(s *nginxServer) bool { return s.isPrivate() && !s.scope.hasLimits(true) })
	}
	if len(servers) == 0 {
		// The contents of a server may be in a file of their own.
		s := c.server(top, &directive{at: http.at, name: "server", block: http.block})
		servers = append(servers, s)
	}
	for _, s := range servers {
		for _, l := range c.locations(s.scope, []*scope{s.scope}) {
			switch {
			case l.kind == namedLocation:
				p.named = append(p.named, l)
				continue
			case l.kind != block && !slices.Contains(p.pathTexts, l.is):
				p.pathTexts = append(p.pathTexts, l.is)
			}
			p.scopes = append(p.scopes, l)
		}
		for _, n := range s.names {
			if !slices.Contains(p.hostTexts, n.is) {
				p.hostTexts = append(p.hostTexts, n.is)
			}
		}
	}
	var ok, fine bool
	p.hosts, ok = classesOf(p.hostTexts, "", "/?#:@")
	p.paths, fine = classesOf(p.pathTexts, "/", "?")
	if !ok || !fine || len(p.hosts)*len(p.paths) > maxPlaces {
		c.lose(http.at, "there are too many servers and locations to compare: convert fewer at a time")
		return nil
	}
	c.assign(p, servers)
	p.won = map[*scope]bool{}
	for class, s := range p.of {
		p.won[s] = true
		host := p.hosts[class/len(p.paths)]
		if !slices.ContainsFunc(s.server.names, func(n serverName) bool { return host.holds[slices.Index(p.hostTexts, n.is)] }) {
			p.defaults[s.server] = true
		}
	}
	return p
}

// assign finds the scope of each class of requests.
func (c *converter) assign(p *places, servers []*nginxServer) {
	sockets := map[string][]*nginxServer{}
	var names []string
	defaults := map[string]*nginxServer{}
	for _, s := range servers {
		for _, l := range s.sockets {
			if !slices.Contains(sockets[l.name], s) {
				if sockets[l.name] == nil {
					names = append(names, l.name)
				}
				sockets[l.name] = append(sockets[l.name], s)
			}
			if defaults[l.name] == nil || l.isDefault {
				defaults[l.name] = s
			}
		}
	}
	for _, name := range names {
		forgetConflicts(sockets[name])
	}
	p.of = make([]*scope, len(p.hosts)*len(p.paths))
	chosen := map[*nginxServer][]*scope{}
	for h, host := range p.hosts {
		holds := func(t text) bool { return host.holds[slices.Index(p.hostTexts, t)] }
		var named, others []*nginxServer
		for _, name := range names {
			s, isNamed := serverOf(sockets[name], holds)
			if !isNamed {
				s = defaults[name]
			}
			if isNamed && !slices.Contains(named, s) {
				named = append(named, s)
			} else if !isNamed && !slices.Contains(others, s) {
				others = append(others, s)
			}
		}
		order := func(a, b *nginxServer) int { return slices.Index(servers, a) - slices.Index(servers, b) }
		slices.SortFunc(named, order)
		slices.SortFunc(others, order)
		all := slices.Concat(named, others)
		for path := range p.paths {
			var answering *scope
			for _, s := range all {
				if chosen[s] == nil {
					chosen[s] = p.scopesOf(s)
				}
				l := chosen[s][path]
				before := p.of[p.index(h, path)]
				switch {
				case l.answers():
					answering = cmp.Or(answering, l)
				case before == nil:
					p.of[p.index(h, path)] = l
				case !sameLimits(before, l):
					two := []*nginxServer{before.server, s}
					slices.SortFunc(two, order)
					c.lose(two[1].sockets[0].at, "listen: a rule can't tell apart the addresses that requests come to, and the server of line %d has other limits", two[0].scope.at.line)
				}
			}
			if p.of[p.index(h, path)] == nil {
				p.of[p.index(h, path)] = answering
			}
		}
	}
}

// forgetConflicts removes names that others at the same socket have before. nginx ignores them, and of
// such as .example.com the suffix, too.
func forgetConflicts(servers []*nginxServer) {
	had := map[text]bool{}
	for _, s := range servers {
		ignored := map[string]bool{}
		for i, n := range s.names {
			if n.rank != expressionName && had[n.is] {
				ignored[n.said] = true
			}
			if last := i+1 == len(s.names) || s.names[i+1].said != n.said; last && !ignored[n.said] {
				for _, of := range s.names[:i+1] {
					had[of.is] = had[of.is] || of.said == n.said
				}
			}
		}
		s.names = slices.DeleteFunc(s.names, func(n serverName) bool { return ignored[n.said] })
	}
}

// serverOf returns the server that a host names, as ngx_http_find_virtual_server does.
func serverOf(servers []*nginxServer, holds func(text) bool) (found *nginxServer, ok bool) {
	var best serverName
	for _, s := range servers {
		for _, n := range s.names {
			if !holds(n.is) {
				continue
			}
			longer := n.rank == best.rank && (n.rank == beginsWithStar || n.rank == endsWithStar) && len(n.is.value) > len(best.is.value)
			if found == nil || n.rank < best.rank || longer {
				found, best = s, n
			}
		}
	}
	return found, found != nil
}

// scopesOf returns the scope of each class of paths in a server.
func (p *places) scopesOf(s *nginxServer) (scopes []*scope) {
	index := map[text]int{}
	for i, t := range p.pathTexts {
		index[t] = i
	}
	for _, path := range p.paths {
		found, _ := s.scope.choose(func(t text) bool { return path.holds[index[t]] })
		scopes = append(scopes, found)
	}
	return scopes
}

// sameLimits reports whether the requests of two scopes are limited alike.
func sameLimits(a, b *scope) bool {
	for _, name := range limitNames {
		if !slices.EqualFunc(a.limits(name), b.limits(name), func(x, y *directive) bool { return slices.Equal(x.args, y.args) }) {
			return false
		}
		if len(a.limits(name)) > 0 && (a.effectiveOne(name+"_status", "503") != b.effectiveOne(name+"_status", "503") || a.isDry(name) != b.isDry(name)) {
			return false
		}
	}
	return true
}

// limits returns the directives of a name that limit the requests that come to a scope.
func (s *scope) limits(name string) []*directive {
	if s.answers() {
		return nil
	}
	return s.effective(name)
}

func (s *scope) limited() bool { return len(s.limits("limit_req"))+len(s.limits("limit_conn")) > 0 }

func (s *scope) isDry(name string) bool {
	return strings.EqualFold(s.effectiveOne(name+"_dry_run", "off"), "on")
}

// rules returns rules whose matches together cover the requests of the own scopes, and whose exceptions
// leave out all others.
func (c *converter) placeRules(at place, p *places, isOwn func(*scope) bool) (rules []rule) {
	own := func(class int) bool { return isOwn(p.of[class]) }
	var boxes []*location
	for _, s := range p.scopes {
		inside := false // another that is the rule's own
		for o := s.above; o != nil; o = o.above {
			inside = inside || p.won[o] && isOwn(o)
		}
		if !p.won[s] || !isOwn(s) || inside {
			continue
		}
		m, ok := s.match()
		if !ok {
			c.lose(s.at, "location: no conditions of a rule stand for this location inside others")
			continue
		}
		l := &location{at: s.at, hosts: p.hostsOf(s.server), rest: match{Headers: m.Headers}}
		if m.Path != nil {
			l.paths = []text{*m.Path}
		}
		boxes = append(boxes, l)
	}
	kept := outermost(boxes)
	unions := joined(kept)
	if len(unions) > 1 {
		// One rule for all, if exceptions can leave out what is between them.
		whole := union{of: kept}
		var crossed []exception
		paths := false
		for i, u := range unions {
			if u.rest.orNil() != nil {
				whole.of = nil
			}
			whole.hosts = append(whole.hosts, u.hosts...)
			whole.paths = append(whole.paths, u.paths...)
			paths = paths || len(u.paths) == 0
			for j, o := range unions {
				if i != j {
					l := &location{hosts: u.hosts, paths: o.paths}
					crossed = append(crossed, exception{l.match(), p.holds(l)})
				}
			}
		}
		if slices.ContainsFunc(unions, func(u *union) bool { return len(u.hosts) == 0 }) {
			whole.hosts = nil
		}
		if paths {
			whole.paths = nil
		}
		if whole.of != nil {
			if r, exact := c.placeRule(at, p, &whole, own, crossed, false); exact && len(r.Except) <= maxExcept {
				return []rule{r}
			}
		}
	}
	for _, u := range unions {
		r, _ := c.placeRule(at, p, u, own, nil, true)
		rules = append(rules, r)
	}
	c.separate(at, rules)
	return rules
}

// holds returns which classes of requests fit hosts and paths.
func (p *places) holds(l *location) func(class int) bool {
	hosts, paths := indexes(p.hostTexts, l.hosts), indexes(p.pathTexts, l.paths)
	var begins []int
	if t, there := l.rest.Headers[":path"]; there {
		begins = indexes(p.pathTexts, []text{t})
	}
	return func(class int) bool {
		h, path := p.hosts[class/len(p.paths)], p.paths[class%len(p.paths)]
		return h.any(hosts) && path.any(paths) && path.any(begins)
	}
}

// indexes returns where texts are in all, or nothing if no text is a condition.
func indexes(all, texts []text) (at []int) {
	for _, t := range texts {
		if t.all() {
			return nil
		}
		at = append(at, slices.Index(all, t))
	}
	return at
}

// any reports whether one of some conditions holds, or whether there is none.
func (c class) any(of []int) bool {
	return len(of) == 0 || slices.ContainsFunc(of, func(i int) bool { return c.holds[i] })
}

// placeRule returns a rule for hosts and paths, and whether it is exact. If it can't be and lossy is set, the
// rule leaves out too much rather than other limits' requests, which is lost.
func (c *converter) placeRule(at place, p *places, u *union, own func(int) bool, from []exception, lossy bool) (r rule, exact bool) {
	r.Match = u.match().orNil()
	holds := p.holds(&u.location)
	var inside []int
	others := map[*scope]bool{}
	for class, s := range p.of {
		if holds(class) {
			inside = append(inside, class)
			if !own(class) {
				others[s] = true
			}
		}
	}
	servers := map[*nginxServer]bool{}
	for _, s := range p.scopes {
		hosts := p.hostsOf(s.server)
		if others[s] && len(hosts) > 0 && !slices.Equal(hosts, u.hosts) && !servers[s.server] {
			servers[s.server] = true
			l := &location{hosts: hosts}
			from = append(from, exception{l.match(), p.holds(l)})
		}
	}
	for _, s := range p.scopes {
		m, ok := s.match()
		if !others[s] || !ok {
			continue
		}
		l := &location{hosts: p.hostsOf(s.server), rest: match{Headers: m.Headers}}
		if slices.Equal(l.hosts, u.hosts) {
			l.hosts = nil
		}
		if m.Path != nil {
			l.paths = []text{*m.Path}
		}
		if l.match().orNil() == nil {
			continue
		}
		from = append(from, exception{l.match(), p.holds(l)})
		if e, ok := p.smaller(l, func(o *scope) bool { return o.server == s.server && !others[o] }); ok {
			from = append(from, e)
		}
	}
	var left []int
	r.Except, left = exceptions(inside, own, from)
	for exact = len(left) == 0; len(left) > 0 && lossy; {
		missed := p.of[left[0]]
		least, wrong := exception{}, []*scope(nil)
		for _, e := range from {
			if !e.covers(left[0]) {
				continue
			}
			var of []*scope
			for _, class := range inside {
				if own(class) && e.covers(class) && !slices.Contains(of, p.of[class]) {
					of = append(of, p.of[class])
				}
			}
			if least.covers == nil || len(of) < len(wrong) {
				least, wrong = e, of
			}
		}
		if least.covers == nil {
			c.lose(missed.at, "no exceptions of a rule leave out these requests alone, so the limit of line %d counts them, too", at.line)
			left = slices.DeleteFunc(left, func(class int) bool { return p.of[class] == missed })
			continue
		}
		for _, s := range wrong {
			c.lose(s.at, "the limit of line %d counts requests here too, but no exception leaves out those of line %d alone, and the rule leaves out both", at.line, missed.at.line)
		}
		r.Except = append(r.Except, least.says)
		left = slices.DeleteFunc(left, least.covers)
	}
	return r, exact
}

// smaller returns the exception for a location but for what own locations have inside it.
func (p *places) smaller(l *location, isOwn func(*scope) bool) (e exception, ok bool) {
	if len(l.paths) != 1 || len(l.rest.Headers) > 0 {
		return e, false
	}
	path := l.paths[0]
	var besides, endings []text
	var texts []string // of the endings
	for _, o := range p.scopes {
		switch {
		case !isOwn(o) || o.is == path || o.is.all():
		case o.kind == expressionLocation:
			if of, ok := ends(o.is); ok && path.kind == prefix && (len(endings) == 0 || anyCased(o.is) == anyCased(endings[0])) {
				endings, texts = append(endings, o.is), append(texts, of...)
			}
		case (o.is.kind == exact || o.is.kind == prefix) && (path.kind == regex || o.is.within(path)):
			besides = append(besides, o.is)
		}
	}
	whole, inside, ending := p.holds(l), p.holds(&location{paths: besides}), p.holds(&location{paths: endings})
	m := l.match()
	covers := func(class int) bool {
		return whole(class) && (len(besides) == 0 || !inside(class)) && (len(endings) == 0 || !ending(class))
	}
	switch {
	case len(besides)+len(endings) == 0:
		return e, false
	case len(endings) > 0:
		expr, _ := before("", texts)
		if anyCased(endings[0]) {
			expr = "(?i)" + expr
		}
		m.Path = &text{regex, expr}
		if len(besides) == 0 {
			m.header(":path", path)
		} else {
			m.header(":path", without(path.value, besides, true))
		}
	case path.kind == regex:
		m.header(":path", without("/", besides, true))
	default:
		but := without(path.value, besides, false)
		m.Path = &but
	}
	return exception{m, covers}, true
}

func anyCased(t text) bool { return strings.HasPrefix(t.value, "(?i)") }

// ends returns the texts that an expression wants at the end of a path, as .*\.(css|js) does, if it wants
// nothing else.
func ends(t text) (of []string, ok bool) {
	expr, ok := strings.CutPrefix(strings.TrimPrefix(t.value, "(?i)"), ".*")
	if !ok {
		return nil, false
	}
	parsed, err := syntax.Parse(expr, syntax.Perl)
	if err != nil {
		return nil, false
	}
	of, ok = literals(parsed)
	return of, ok && !slices.Contains(of, "")
}

// before returns what may stand before the end of a path that must not have some ends, as a regular
// expression. ok is false if nothing may.
func before(end string, ends []string) (expr string, ok bool) {
	var last []rune
	for _, e := range ends {
		rest, found := strings.CutSuffix(e, end)
		if found && rest == "" {
			return "", false
		}
		if r, _ := utf8.DecodeLastRuneInString(rest); found && !slices.Contains(last, r) {
			last = append(last, r)
		}
	}
	if len(last) == 0 {
		return ".*", true
	}
	others, more := "", ""
	for _, r := range last {
		others += inClass(r)
		if expr, ok := before(string(r)+end, ends); ok {
			more += "|" + expr + regexp.QuoteMeta(string(r))
		}
	}
	return "(?:.*[^" + others + "]" + more + ")?", true
}

func inClass(r rune) string {
	if strings.ContainsRune(`\]^-[`, r) {
		return `\` + string(r)
	}
	return string(r)
}

// maxLiterals bounds the texts of an expression.
const maxLiterals = 64

// literals returns the texts that an expression stands for, if they are few.
func literals(of *syntax.Regexp) (all []string, ok bool) {
	switch of.Op {
	case syntax.OpEmptyMatch:
		return []string{""}, true
	case syntax.OpLiteral:
		return []string{string(of.Rune)}, true
	case syntax.OpCharClass:
		for i := 0; i+1 < len(of.Rune); i += 2 {
			for r := of.Rune[i]; r <= of.Rune[i+1]; r++ {
				if all = append(all, string(r)); len(all) > maxLiterals {
					return nil, false
				}
			}
		}
		return all, true
	case syntax.OpCapture:
		return literals(of.Sub[0])
	case syntax.OpQuest:
		all, ok = literals(of.Sub[0])
		return append(all, ""), ok
	case syntax.OpAlternate:
		for _, sub := range of.Sub {
			some, ok := literals(sub)
			if all = append(all, some...); !ok || len(all) > maxLiterals {
				return nil, false
			}
		}
		return all, true
	case syntax.OpConcat:
		all = []string{""}
		for _, sub := range of.Sub {
			some, ok := literals(sub)
			if !ok || len(all)*len(some) > maxLiterals {
				return nil, false
			}
			var longer []string
			for _, a := range all {
				for _, b := range some {
					longer = append(longer, a+b)
				}
			}
			all = longer
		}
		return all, true
	}
	return nil, false
}

// without returns the condition that a path begins with a prefix, but fulfils none of some conditions, each
// of which is a longer prefix or a whole path. A query may follow the path if withQuery is set.
func without(begin string, paths []text, withQuery bool) text {
	rest, _ := after(begin, paths, withQuery)
	return text{regex, regexp.QuoteMeta(begin) + rest}
}

// after returns what may follow the beginning of a path that must not fulfil some conditions, as a regular
// expression. ok is false if nothing may.
func after(begin string, paths []text, withQuery bool) (expr string, ok bool) {
	ends := true
	var next []rune
	for _, t := range paths {
		rest, found := strings.CutPrefix(t.value, begin)
		switch {
		case !found:
		case rest == "" && t.kind == prefix:
			return "", false
		case rest == "":
			ends = false
		default:
			if r, _ := utf8.DecodeRuneInString(rest); !slices.Contains(next, r) {
				next = append(next, r)
			}
		}
	}
	if len(next) == 0 && ends {
		return ".*", true
	}
	others, more := "", ""
	if !ends && withQuery {
		others = "?"
	}
	for _, r := range next {
		others += inClass(r)
		if expr, ok := after(begin+string(r), paths, withQuery); ok {
			more += "|" + regexp.QuoteMeta(string(r)) + expr
		}
	}
	if expr = ".+"; others != "" {
		expr = "(?:[^" + others + "].*" + more + ")"
	}
	if ends {
		expr += "?"
	}
	return expr, true
}
