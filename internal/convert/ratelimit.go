package convert

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"weir/internal/ratelimitservice"
)

// rateLimit reads the configuration of Envoy's rate limit service, and the actions in Envoy's
// routes that make descriptors for it.
func (c *converter) rateLimit() {
	c.messages = true
	var service []ratelimitservice.File
	var routes []value
	for _, f := range c.files {
		if ratelimitservice.IsConfiguration(f.Text, false) {
			service = append(service, ratelimitservice.File(f))
			continue
		}
		for _, d := range c.documentsOf(f) {
			if d.get("kind").text() == "ConfigMap" {
				d.get("data").lose("data: convert reads no ConfigMap: give its file of descriptors by itself")
			} else {
				routes = append(routes, d)
			}
		}
	}
	if c.err != nil {
		return
	}
	domains, err := ratelimitservice.Domains(service, ratelimitservice.Options{MergeDomains: true})
	switch {
	case err != nil:
		c.err = err
		return
	case len(domains) == 0:
		c.err = fmt.Errorf("want a FILE with a domain and its descriptors")
		return
	}
	e := envoy{c: c, domain: domains[0].Name, status: 429}
	e.read(routes)
	if c.err != nil {
		return
	}
	if len(e.uses) == 0 && len(c.lost) > 0 {
		return // what is lost says why
	}
	if len(e.uses) == 0 {
		d := domains[0]
		c.err = fmt.Errorf("%s:%d:%d: want another FILE with Envoy's routes, whose rate_limits make the descriptors of the domain %.80s",
			d.File, d.Line, d.Column, d.Name)
		return
	}
	c.said.Namespace = c.name(e.domain)
	c.names = map[string]bool{}
	c.said.Backend = &backend{backendCluster}
	c.said.OnBackendFailure = "allow"
	if e.deny {
		c.said.OnBackendFailure = "deny"
	}
	c.said.Response = c.responseOf(place{}, e.status, "") // a status that was checked
	used := map[ratelimitservice.Position]bool{}
	for _, d := range domains {
		if d.Name != e.domain {
			c.lose(placeOf(d.Position), "a filter has one domain, which is %.80s: convert the other domain by itself", e.domain)
			continue
		}
		for _, u := range e.uses {
			c.descend(d.Descriptors, u, nil, used)
		}
		c.unused(d.Descriptors, used)
	}
}

func placeOf(p ratelimitservice.Position) place { return place{p.File, p.Line, p.Column} }

// chosen is the descriptor that an entry chooses.
type chosen struct {
	*ratelimitservice.Descriptor
	entry *entry
	// siblings are the other descriptors at its level that are tried before it, for other values.
	siblings []*ratelimitservice.Descriptor
}

// descend makes the rules of all limits that a descriptor with these entries can reach.
func (c *converter) descend(level []ratelimitservice.Descriptor, u *use, above []chosen, used map[ratelimitservice.Position]bool) {
	if len(above) == len(u.entries) {
		last := above[len(above)-1]
		if used[last.Position] && last.Limit != nil && !last.Limit.Unlimited {
			c.lose(u.at, "the limit of line %d counts these requests together with others; two rules count separately", last.Limit.Line)
		}
		used[last.Position] = true
		c.limitOf(u, above)
		return
	}
	e := u.entries[len(above)]
	var before []*ratelimitservice.Descriptor
	order := func(d *ratelimitservice.Descriptor) int {
		switch {
		case d.Value == "":
			return 2
		case strings.Contains(d.Value, "*"):
			return 1
		}
		return 0
	}
	var candidates []*ratelimitservice.Descriptor
	for i := range level {
		if level[i].Key == e.key {
			candidates = append(candidates, &level[i])
		}
	}
	slices.SortStableFunc(candidates, func(a, b *ratelimitservice.Descriptor) int { return order(a) - order(b) })
	for _, d := range candidates {
		if e.constant {
			if d.Value != "" && !wildcard(d.Value).matches(e.value) {
				continue
			}
			c.descend(d.Descriptors, u, append(slices.Clone(above), chosen{d, e, nil}), used)
			return
		}
		if len(u.entries) == 1 && overridden(e, d, candidates[len(candidates)-1]) {
			used[d.Position] = true
		} else {
			c.descend(d.Descriptors, u, append(slices.Clone(above), chosen{d, e, slices.Clone(before)}), used)
		}
		before = append(before, d)
	}
}

func (c *converter) unused(level []ratelimitservice.Descriptor, used map[ratelimitservice.Position]bool) {
	for i := range level {
		if d := &level[i]; d.Limit != nil && !d.Limit.Unlimited && !used[d.Position] {
			c.lose(placeOf(d.Position), "no action in Envoy's routes makes such a descriptor")
		}
		c.unused(level[i].Descriptors, used)
	}
}

// wildcard returns the condition of a descriptor's value, which may have wildcards.
func wildcard(value string) text {
	switch before, after, found := strings.Cut(value, "*"); {
	case !found:
		return text{exact, value}
	case after == "":
		return text{prefix, before}
	case before == "" && !strings.Contains(after, "*"):
		return text{suffix, after}
	}
	parts := strings.Split(value, "*")
	for i := range parts {
		parts[i] = text{exact, parts[i]}.expression()
	}
	return text{regex, strings.Join(parts, ".*")}
}

// limitOf makes the rules of a limit.
func (c *converter) limitOf(u *use, path []chosen) {
	last := path[len(path)-1]
	said := last.Limit
	if said == nil || said.Unlimited {
		return
	}
	at := placeOf(last.Position)
	r := rule{CountRejected: said.CountRejected, Cost: u.cost, Limits: []limit{limitAsWritten(said)}}
	var names []string
	m := match{Headers: maps.Clone(u.when.Headers)}
	for _, not := range u.filter.unless {
		r.Except = append(r.Except, not)
	}
	for _, p := range path {
		e := p.entry
		names = append(names, p.Key)
		if p.Value != "" && p.Key != "generic_key" {
			names = append(names, p.Value)
		} else if e.constant {
			names = append(names, e.value)
		}
		if !e.requests(&m, &r.Except) {
			c.lose(u.at, "a rule has one condition for each header, and these actions need two: the limit of line %d is left out", said.Line)
			return
		}
		if e.constant {
			continue
		}
		if p.Value == "" || strings.Contains(p.Value, "*") && !p.Share {
			r.Key = append(r.Key, e.selector)
		}
		if p.Value != "" && !c.when(&m, e, wildcard(p.Value)) {
			c.lose(at, "a rule has no condition for a value of %.40s", p.Key)
			return
		}
		for _, s := range p.siblings {
			c.sibling(&r, e, s, p, path)
		}
	}
	r.Name = strings.Join(names, "-")
	if last.Shadow || u.filter.shadow {
		r.Mode = shadow
	}
	if last.Quota {
		c.lose(at, "quota_mode: Weir has no quotas that refuse nothing")
		r.Mode = shadow
	}
	if len(said.Replaces) > 0 {
		c.lose(placeOf(said.Position), "replaces: in Weir, all rules that match a request apply")
	}
	if said.SyncRate != nil {
		seconds := said.SyncRate.Seconds()
		r.SyncRate = &seconds
	}
	for _, of := range c.matches(at, u.own, u.others) {
		var both match
		if of.Match != nil {
			both = *of.Match
		}
		if both.Headers = maps.Clone(both.Headers); !both.narrowAll(m.Headers) {
			c.lose(u.at, "a rule has one condition for each header, and the actions and the route need two: the limit of line %d is left out", last.Limit.Line)
			continue
		}
		made := r
		made.Match, made.Except = both.orNil(), append(of.Except, r.Except...)
		c.add(at, made)
	}
}

// when adds the condition that an entry has a value. It reports false if a rule has no such
// condition.
func (*converter) when(m *match, e *entry, t text) bool {
	switch {
	case e.header != "":
		return m.narrow(e.header, t)
	case e.query != "":
		if old, only := m.Headers[":path"], e.when.Headers[":path"]; old == only {
			delete(m.Headers, ":path") // that there is a parameter follows from its value
		}
		return m.narrow(":path", queryOf(e.query, t, decoded))
	}
	return false
}

// sibling makes a rule leave out the values that another descriptor at its level is for.
func (c *converter) sibling(r *rule, e *entry, s *ratelimitservice.Descriptor, p chosen, path []chosen) {
	var m match
	last := p.Descriptor == path[len(path)-1].Descriptor
	switch {
	case p.Value != "" && !wildcard(s.Value).overlaps(wildcard(p.Value)):
	case e.remoteAddress && len(path) == 1 && last && s.Limit != nil && s.Limit.Unlimited && len(addressesOf([]string{s.Value})) == 1:
		r.Except = append(r.Except, addresses{addressesOf([]string{s.Value})})
	case len(path) == 1 && overridden(e, s, p.Descriptor):
		if r.Overrides == nil {
			r.Overrides = &overrides{}
		}
		r.Overrides.Keys = append(r.Overrides.Keys, override{[]string{s.Value}, []limit{limitAsWritten(s.Limit)}})
	case c.when(&m, e, wildcard(s.Value)):
		r.Except = append(r.Except, m)
	default:
		c.lose(placeOf(s.Position), "a rule has no condition for a value of %.40s", p.Key)
	}
}

// overridden reports whether an override can express the limit of the descriptor one, which is for
// a single address, in a rule of the descriptor of, which is for all addresses. What an override can't differ
// in from its rule is the same.
func overridden(e *entry, one, of *ratelimitservice.Descriptor) bool {
	a, b := one.Limit, of.Limit
	return e.remoteAddress && a != nil && b != nil && !a.Unlimited && !b.Unlimited && of.Value == "" && len(addressesOf([]string{one.Value})) == 1 &&
		one.Shadow == of.Shadow && one.Quota == of.Quota && len(a.Replaces) == 0 && a.CountRejected == b.CountRejected && reflect.DeepEqual(a.SyncRate, b.SyncRate) && a.Algorithm == b.Algorithm && a.Window == b.Window && a.Period == b.Period && a.Zone == b.Zone && a.FirstHit == b.FirstHit && a.Precision == b.Precision
}

func limitAsWritten(said *ratelimitservice.RateLimit) limit {
	l := limit{Limit: said.Hits, Window: duration(uint64(said.Window.Milliseconds())), Algorithm: said.Algorithm, Burst: said.Burst}
	if said.Period != "" {
		l.Window, l.Zone = said.Period, said.Zone
	}
	if said.FirstHit {
		l.Start = firstHit
	}
	if said.Precision != 0 {
		l.Precision = duration(uint64(said.Precision.Milliseconds()))
	}
	return l
}
