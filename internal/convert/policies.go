package convert

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"weir/internal/expression"
)

// object is a part of a policy's rule, whose conditions are more than other sources have.
type object = map[string]any

// policy is a RateLimitPolicy for weir controller.
type policy struct {
	APIVersion string     `json:"apiVersion"`
	Kind       string     `json:"kind"`
	Metadata   metadata   `json:"metadata"`
	Spec       policySpec `json:"spec"`

	// kinds are those of the policies that it is made of, and said is the first of them.
	kinds []string
	said  value
}

type metadata struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace,omitempty"`
}

type policySpec struct {
	TargetRefs []targetRef `json:"targetRefs"`
	Rules      []object    `json:"rules,omitempty"`
	Defaults   *rulesBlock `json:"defaults,omitempty"`
	Overrides  *rulesBlock `json:"overrides,omitempty"`
}

type targetRef struct {
	Group       string `json:"group"`
	Kind        string `json:"kind"`
	Name        string `json:"name"`
	SectionName string `json:"sectionName,omitempty"`
}

type rulesBlock struct {
	Strategy string   `json:"strategy,omitempty"`
	Rules    []object `json:"rules"`
}

// maxPolicyRules and maxTargets are those of the RateLimitPolicy's CRD.
const (
	maxPolicyRules = 64
	maxTargets     = 16
)

// maxObjectName is that of names of Kubernetes.
const maxObjectName = 253

// maxRulesBytes is how many bytes of rules weir controller takes.
const maxRulesBytes = 64 << 10

// readPolicies reads Envoy Gateway's BackendTrafficPolicies and Kuadrant's policies of requests and of tokens. Other resources
// have no limits.
func (c *converter) readPolicies() {
	documents := c.documents()
	for i := 0; i < len(documents); i++ {
		documents = append(documents, documents[i].get("items").list()...)
	}
	slices.SortStableFunc(documents, func(a, b value) int { // of two policies the older holds, as Gateway API has it
		created := a.get("metadata", "creationTimestamp").text()
		if order := strings.Compare(created, b.get("metadata", "creationTimestamp").text()); order != 0 || created == "" {
			return order
		}
		return cmp.Or(strings.Compare(a.get("metadata", "namespace").text(), b.get("metadata", "namespace").text()), strings.Compare(a.get("metadata", "name").text(), b.get("metadata", "name").text()))
	})
	read := false
	for _, d := range documents {
		group, _, _ := strings.Cut(d.get("apiVersion").text(), "/")
		switch group + " " + d.get("kind").text() {
		case "gateway.envoyproxy.io BackendTrafficPolicy":
			c.backendTrafficPolicy(d)
		case "kuadrant.io RateLimitPolicy", "kuadrant.io TokenRateLimitPolicy":
			c.kuadrant(d)
		default:
			continue
		}
		read = true
	}
	c.judgePolicies()
	if !read && c.err == nil {
		c.err = fmt.Errorf("want a FILE with a BackendTrafficPolicy, or Kuadrant's RateLimitPolicy or TokenRateLimitPolicy")
	}
}

// policyOf is a policy with the name and the targets of another.
func (c *converter) policyOf(d value) *policy {
	c.names = map[string]bool{} // rules' names are those of one policy
	p := &policy{APIVersion: "weir.dev/v1alpha1", Kind: "RateLimitPolicy", Metadata: metadata{d.get("metadata", "name").text(), d.get("metadata", "namespace").text()}, kinds: []string{d.get("kind").text()}, said: d}
	if strings.Contains(p.Metadata.Name, ".") {
		d.get("metadata", "name").lose("metadata.name: a RateLimitPolicy's has no dot: other letters take their place")
		p.Metadata.Name = strings.ReplaceAll(p.Metadata.Name, ".", "-")
	}
	refs := d.get("spec", "targetRefs").list()
	if ref := d.get("spec", "targetRef"); ref.there() {
		refs = append(refs, ref)
	}
	for _, ref := range refs {
		t := targetRef{ref.get("group").text(), ref.get("kind").text(), ref.get("name").text(), ref.get("sectionName").text()}
		switch {
		case t.Group != "gateway.networking.k8s.io" || !slices.Contains([]string{"Gateway", "HTTPRoute", "GRPCRoute"}, t.Kind):
			ref.lose("targetRefs: want a Gateway, an HTTPRoute or a GRPCRoute, got %.40q", t.Kind)
		case len(p.Spec.TargetRefs) == maxTargets:
			ref.lose("targetRefs: a RateLimitPolicy has at most %d", maxTargets)
		default:
			p.Spec.TargetRefs = append(p.Spec.TargetRefs, t)
		}
	}
	d.get("spec").loses("targetSelectors", "targetSelectors: a RateLimitPolicy names its targets: write them into targetRefs")
	return p
}

// keep keeps a policy that has targets and rules. One for the targets of another of another kind joins it, as both hold there. Of one
// kind the older holds.
func (c *converter) keep(p *policy, d value) {
	for _, other := range c.policies {
		common := func(t targetRef) bool { return slices.Contains(other.Spec.TargetRefs, t) }
		if other.Metadata.Namespace != p.Metadata.Namespace || !slices.ContainsFunc(p.Spec.TargetRefs, common) {
			continue
		}
		into, how := other.rules()
		rules, asWell := p.rules()
		if how == asWell && !slices.Contains(other.kinds, p.kinds[0]) && len(p.Spec.TargetRefs) == len(other.Spec.TargetRefs) && !slices.ContainsFunc(p.Spec.TargetRefs, func(t targetRef) bool { return !common(t) }) {
			c.names = map[string]bool{}
			for _, r := range *into {
				c.names[r["name"].(string)] = true
			}
			for _, r := range *rules {
				r["name"] = c.name(r["name"].(string))
				*into = c.addTo(*into, d, "spec", r)
			}
			other.kinds = append(other.kinds, p.kinds...)
			return
		}
		d.get("spec").lose("targetRefs: the %s %s is for one of the targets, too, and holds there, as one RateLimitPolicy can: this one is left out there", other.kinds[0], other.Metadata.Name)
		p.Spec.TargetRefs = slices.DeleteFunc(p.Spec.TargetRefs, common)
	}
	for _, other := range c.without {
		common := func(t targetRef) bool { return slices.Contains(other.Spec.TargetRefs, t) }
		if other.kinds[0] == p.kinds[0] && other.Metadata.Namespace == p.Metadata.Namespace && slices.ContainsFunc(p.Spec.TargetRefs, common) {
			d.get("spec").lose("targetRefs: the %s %s, without limits, is for one of the targets, too, and holds there: this one is left out there", other.kinds[0], other.Metadata.Name)
			p.Spec.TargetRefs = slices.DeleteFunc(p.Spec.TargetRefs, common)
		}
	}
	if rules, _ := p.rules(); len(p.Spec.TargetRefs) == 0 || len(*rules) == 0 {
		return
	}
	name := p.Metadata
	taken := map[metadata]bool{}
	for _, other := range c.policies {
		taken[other.Metadata] = true
	}
	for i := 2; taken[p.Metadata]; i++ {
		suffix := fmt.Sprint("-", i)
		p.Metadata.Name = name.Name[:min(len(name.Name), maxObjectName-len(suffix))] + suffix
	}
	if p.Metadata != name {
		d.get("metadata", "name").lose("metadata.name: another policy has it: this one is %s", p.Metadata.Name)
	}
	c.policies = append(c.policies, p)
}

// rank says how much of a Gateway a target is: a part of one has a higher rank.
func (t *targetRef) rank() int {
	switch {
	case t.Kind != "Gateway":
		return 2
	case t.SectionName != "":
		return 1
	}
	return 0
}

// judgePolicies tells where policies of two kinds, which hold beside each other, are RateLimitPolicies of which one replaces the
// other, and which policies lift limits that hold now.
func (c *converter) judgePolicies() {
	// meets says whether a target of narrow may be within one of wide.
	meets := func(wide, narrow *policy) bool {
		return slices.ContainsFunc(wide.Spec.TargetRefs, func(w targetRef) bool {
			return slices.ContainsFunc(narrow.Spec.TargetRefs, func(n targetRef) bool {
				return w.rank() < n.rank() && (n.rank() == 2 || wide.Metadata.Namespace == narrow.Metadata.Namespace && w.Name == n.Name)
			})
		})
	}
	lacks := func(kinds, of []string) bool {
		return slices.ContainsFunc(kinds, func(kind string) bool { return !slices.Contains(of, kind) })
	}
	for _, wide := range c.policies {
		_, how := wide.rules()
		for _, narrow := range c.policies {
			if !meets(wide, narrow) {
				continue
			}
			const beside = "where both are for a request: policies of two kinds hold beside each other, but RateLimitPolicies only if the Gateway's has strategy: merge"
			if how == "" && lacks(wide.kinds, narrow.kinds) {
				narrow.said.get("spec").lose("targetRefs: its rules replace those of the %s %s "+beside, wide.kinds[0], wide.said.get("metadata", "name").text())
			} else if how == "overrides atomic" && lacks(narrow.kinds, wide.kinds) {
				narrow.said.get("spec").lose("targetRefs: its rules are replaced by those of the %s %s "+beside, wide.kinds[0], wide.said.get("metadata", "name").text())
			}
		}
		for _, narrow := range c.without {
			if slices.Contains(wide.kinds, narrow.kinds[0]) && meets(wide, narrow) {
				narrow.said.get("spec").lose("rateLimit: without it, the policy lifts the limits of the %s %s, where both are for a request: a RateLimitPolicy can't, and they hold", wide.kinds[0], wide.said.get("metadata", "name").text())
			}
		}
	}
}

// rules are the policy's rules, and how they meet those of others.
func (p *policy) rules() (rules *[]object, how string) {
	switch {
	case p.Spec.Defaults != nil && p.Spec.Defaults.Strategy == "merge":
		return &p.Spec.Defaults.Rules, "merge"
	case p.Spec.Defaults != nil:
		return &p.Spec.Defaults.Rules, ""
	case p.Spec.Overrides != nil:
		return &p.Spec.Overrides.Rules, "overrides " + cmp.Or(p.Spec.Overrides.Strategy, "atomic")
	}
	return &p.Spec.Rules, ""
}

// addTo adds a rule to others, unless the plugin would refuse it.
func (c *converter) addTo(rules []object, at value, path string, r object) []object {
	if len(rules) == maxPolicyRules {
		at.lose("%s: a RateLimitPolicy has at most %d rules", path, maxPolicyRules)
		return rules
	}
	if problem := mistakesOf(r); problem != "" {
		at.lose("%s: the plugin would refuse this rule: %s", path, problem)
		return rules
	}
	if text, _ := json.Marshal(append(rules, r)); len(text) > maxRulesBytes {
		at.lose("%s: a RateLimitPolicy has at most %d bytes of rules", path, maxRulesBytes)
		return rules
	}
	return append(rules, r)
}

// unitSeconds are those of Envoy Gateway's units, as its rate limit service has them.
var unitSeconds = map[string]uint64{"second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 7 * 86_400, "month": 30 * 86_400, "year": 365 * 86_400}

// backendTrafficPolicy reads the limits of Envoy Gateway's policy. The policy's other settings limit no requests.
func (c *converter) backendTrafficPolicy(d value) {
	limits := d.get("spec", "rateLimit")
	lost := len(c.lost)
	p := c.policyOf(d)
	if !limits.there() {
		c.lost = c.lost[:lost]
		for _, other := range c.policies { // an older one of the kind holds in its place
			if other.Metadata.Namespace == p.Metadata.Namespace && slices.Contains(other.kinds, p.kinds[0]) {
				p.Spec.TargetRefs = slices.DeleteFunc(p.Spec.TargetRefs, func(t targetRef) bool { return slices.Contains(other.Spec.TargetRefs, t) })
			}
		}
		if !d.get("spec", "mergeType").there() {
			c.without = append(c.without, p)
		}
		return
	}
	d.get("spec").loses("mergeType", "mergeType: of two RateLimitPolicies that for more says how they merge: defaults, with strategy: merge")
	limits.tell("a rateLimit", "type", "global", "local")
	only := strings.ToLower(limits.get("type").text())
	for _, scope := range []string{"global", "local"} {
		if only != "" && only != scope {
			continue
		}
		limits.get(scope).tell("limits", "rules")
		// Of local rules one without selectors is for what no other is for.
		type local struct {
			said value
			path string
			rule object
		}
		var plain []local
		var conditions []any
		unknown := false
		for i, said := range limits.get(scope, "rules").list() {
			path := fmt.Sprintf("spec.rateLimit.%s.rules[%d]", scope, i)
			r, lost := c.gatewayRule(said, path, scope)
			if !lost && scope == "local" && r["match"] == nil {
				plain = append(plain, local{said, path, r})
				continue
			}
			before := len(p.Spec.Rules)
			if !lost {
				p.Spec.Rules = c.addTo(p.Spec.Rules, said, path, r)
				conditions = append(conditions, r["match"])
			}
			unknown = unknown || len(p.Spec.Rules) == before && len(said.get("clientSelectors").list()) > 0
		}
		for _, l := range plain {
			if unknown {
				l.said.lose("%s: is for what the other local rules are not for, of which one is lost: lost, too", l.path)
				continue
			}
			if len(conditions) > 0 {
				l.rule["except"] = conditions
			}
			p.Spec.Rules = c.addTo(p.Spec.Rules, l.said, l.path, l.rule)
		}
	}
	c.keep(p, d)
}

// gatewayRule makes a rule of one of Envoy Gateway's. lost says that it would count other requests than that.
func (c *converter) gatewayRule(said value, path, scope string) (r object, lost bool) {
	lost = said.tell("a rule", "clientSelectors", "limit", "cost", "shared", "shadowMode", "xRateLimitHeaders") || said.get("limit").tell("a limit", "requests", "unit", "fromMetadata")
	unit, known := unitSeconds[strings.ToLower(said.get("limit", "unit").text())]
	if !known {
		said.get("limit", "unit").lose("%s.limit.unit: unknown: %.40q", path, said.get("limit", "unit").text())
		return nil, true
	}
	r = object{"name": c.name(fmt.Sprintf("%s-%d", scope, len(c.names)))}
	l := limit{Limit: uint64(max(0, said.get("limit", "requests").whole(0))), Window: duration(unit * 1000), Algorithm: fixedWindow}
	if scope == "local" {
		l.Algorithm, r["sync_rate"] = tokenBucket, -1
	}
	r["limits"] = []limit{l}
	var key []any
	if !heeded(said, path, scope, "shared").truth(false) {
		// Each route has its own counter at each listener, with which Envoy Gateway begins the name of a virtual host.
		key = append(key, object{"property": []string{"xds", "route_name"}}, object{"property": []string{"xds", "virtual_host_name"}})
	}
	m := &conditions{}
	for i, s := range said.get("clientSelectors").list() {
		lost = s.tell("a selector", "headers", "methods", "path", "sourceCIDR", "queryParams") || lost
		for _, h := range s.get("headers").list() {
			key = m.named("headers", "header", strings.ToLower(h.get("name").text()), h, key)
		}
		for _, q := range s.get("queryParams").list() {
			key = m.named("query", "query", q.get("name").text(), q, key)
		}
		var methods []string
		var others []any
		for _, method := range s.get("methods").list() {
			if one := []string{method.get("value").text()}; method.get("invert").truth(false) {
				others = append(others, object{"not": object{"methods": one}})
			} else {
				methods = append(methods, one...)
			}
		}
		switch {
		case len(others) > 0 && len(methods) > 0:
			m.holds(object{"any": append(others, object{"methods": methods})}, false)
		case len(others) > 0:
			m.holds(object{"any": others}, false)
		case len(methods) > 0:
			m.holds(object{"methods": methods}, false)
		}
		for _, of := range append(s.get("headers").list(), s.get("queryParams").list()...) {
			lost = of.tell("a condition", "type", "name", "value", "invert") || lost
		}
		for _, of := range append(s.get("methods").list(), s.get("sourceCIDR"), s.get("path")) {
			lost = of.tell("a condition", "type", "value", "invert") || lost
		}
		if address := s.get("sourceCIDR"); address.there() {
			m.holds(object{"client_ip": object{"in": []string{address.get("value").text()}}}, address.get("invert").truth(false))
			if address.get("type").text() == "Distinct" {
				key = append(key, client())
			}
		}
		if of := s.get("path"); of.there() {
			is := object{"regex": of.get("value").text()}
			switch value := of.get("value").or("/"); of.get("type").or("PathPrefix") {
			case "Exact":
				is = object{exact: value}
			case "PathPrefix":
				is = object{regex: regexp.QuoteMeta(strings.TrimSuffix(value, "/")) + "([/?#;].*)?"}
			case "RegularExpression":
			default:
				of.lose("%s.clientSelectors[%d].path.type: unknown: %.40q", path, i, of.get("type").text())
				return nil, true
			}
			m.holds(object{"headers": object{":path": is}}, of.get("invert").truth(false))
		}
	}
	if match := m.match(); match != nil {
		r["match"] = match
	}
	if key != nil {
		r["key"] = key
	}
	return r, c.gatewayCost(said, path, scope, r) || lost
}

// heeded is a field of a rule, unless Envoy Gateway's local limits ignore it: they take the limit alone of a rule without selectors,
// and of another no cost and nothing about other routes.
func heeded(said value, path, scope, field string) value {
	v := said.get(field)
	if scope == "global" || !v.there() || field == "shadowMode" && len(said.get("clientSelectors").list()) > 0 {
		return v
	}
	if v.text() != "false" {
		v.lose("%s.%s: Envoy Gateway's local limits ignore it", path, field)
	}
	return value{}
}

// gatewayCost reads what a request costs, and the rule's other settings.
func (c *converter) gatewayCost(said value, path, scope string, r object) (lost bool) {
	costs := heeded(said, path, scope, "cost")
	for _, field := range []string{"request", "response"} {
		cost := costs.get(field)
		switch from := cost.get("from").text(); {
		case !cost.there():
		case from == "Number" && field == "request":
			r["cost"] = cost.get("number").whole(1)
		case from == "Metadata" && field == "request":
			r["cost"] = object{"property": []string{"metadata", "filter_metadata", cost.get("metadata", "namespace").text(), cost.get("metadata", "key").text()}}
		default:
			cost.lose("%s.cost.response: Weir reads the response itself: want a rule with cost_on_response, such as openai or a response_header", path)
			lost = true
		}
	}
	said.get("limit").loses("fromMetadata", path+".limit.fromMetadata: has a unit, too: limit_from takes a number alone; requests and unit hold for all")
	if heeded(said, path, scope, "shadowMode").truth(false) {
		r["mode"] = shadow
	}
	if said.get("xRateLimitHeaders").text() == "Off" {
		r["headers"] = []string{}
	}
	return lost
}

// conditions are those of which all hold.
type conditions struct{ all, none []any }

func (c *conditions) holds(condition object, inverted bool) {
	if inverted {
		c.none = append(c.none, condition)
	} else {
		c.all = append(c.all, condition)
	}
}

// named adds the condition that a header or a parameter of a query has, and its selector to a key if each value counts by itself.
func (c *conditions) named(field, selector, name string, v value, key []any) []any {
	is := object{exact: v.get("value").text()}
	switch v.get("type").text() {
	case "RegularExpression":
		is = object{regex: v.get("value").text()}
	case "Distinct":
		is, key = object{present: true}, append(key, object{selector: name})
	}
	c.holds(object{field: object{name: is}}, v.get("invert").truth(false))
	return key
}

// fieldsOfNames are the fields of a match that have conditions by names.
var fieldsOfNames = []string{"headers", "query", "cookie", "path_segment", "jwt_claim", "property", "request_json"}

// match is one condition for all: those of fields that another has are among what must not fail.
func (c *conditions) match() object {
	m, none := object{}, slices.Clone(c.none)
	for _, one := range c.all {
		for field, of := range one.(object) {
			before, taken := m[field].(object)
			parts, named := of.(object)
			switch {
			case m[field] == nil:
				if named {
					of = maps.Clone(parts)
				}
				m[field] = of
			case taken && named && slices.Contains(fieldsOfNames, field) && !slices.ContainsFunc(slices.Collect(maps.Keys(parts)), func(name string) bool { return before[name] != nil }):
				maps.Copy(before, parts)
			default:
				none = append(none, object{"not": object{field: of}})
			}
		}
	}
	if m["not"] != nil && len(none) > 0 {
		none = append(none, m["not"])
		delete(m, "not")
	}
	switch len(none) {
	case 0:
	case 1:
		m["not"] = none[0]
	default:
		m["not"] = object{"any": none}
	}
	if len(m) == 0 {
		return nil
	}
	return m
}

func (c *converter) kuadrant(d value) {
	p, tokens := c.policyOf(d), d.get("kind").text() == "TokenRateLimitPolicy"
	d.get("spec").tell("Kuadrant's policy", "targetRef", "limits", "when", "defaults", "overrides")
	p.Spec.Rules = c.kuadrantRules(d.get("spec"), "spec.", tokens)
	for _, of := range []struct {
		name string
		into **rulesBlock
	}{{"defaults", &p.Spec.Defaults}, {"overrides", &p.Spec.Overrides}} {
		said := d.get("spec", of.name)
		said.tell("Kuadrant's policy", "strategy", "limits", "when")
		if rules := c.kuadrantRules(said, "spec."+of.name+".", tokens); rules != nil {
			*of.into = &rulesBlock{said.get("strategy").text(), rules}
		}
	}
	c.keep(p, d)
}

func (c *converter) kuadrantRules(block value, path string, tokens bool) (rules []object) {
	for _, f := range block.get("limits").fields() {
		path := path + "limits." + f.name
		said := f.value
		lost := said.tell("a limit", "rates", "counters", "when")
		r := object{}
		if !tokens {
			r["name"] = c.name(f.name)
		} else {
			r["name"] = c.name("tokens-" + f.name) // a limit of requests may have the name, and replaces none of tokens
			// A request asks whether there is room, and its answer takes the tokens.
			r["cost"], r["cost_on_response"] = 0, object{"response_json": "usage.total_tokens"}
		}
		var limits []limit
		for _, rate := range said.get("rates").list() {
			rate.tell("a rate", "limit", "window")
			limits = append(limits, limit{Limit: uint64(max(0, rate.get("limit").whole(0))), Window: rate.get("window").text(), Algorithm: fixedWindow, Start: firstHit})
		}
		if len(limits) == 0 {
			said.lose("%s: has no rates, and limits nothing", path)
			continue
		}
		r["limits"] = limits
		var key []any
		m := &conditions{}
		for i, counter := range said.get("counters").list() {
			selector := counterOf(counter.get("expression").text())
			if selector == nil {
				counter.lose("%s.counters[%d].expression: %.80s: want a part of the request as a key: the limit is left out", path, i, counter.get("expression").text())
				lost = true
			}
			of, _ := selector.(map[string]string)
			if header := of["header"]; header != "" && header[0] != ':' {
				m.holds(object{"headers": object{header: object{present: true}}}, false)
				counter.lose("%s.counters[%d].expression: Kuadrant's failure mode decides about requests without the header, and lets them pass all limits by default: here they pass this one", path, i)
			}
			key = append(key, selector)
		}
		if key != nil {
			r["key"] = key
		}
		for _, of := range []struct {
			path string
			when []value
		}{{strings.TrimSuffix(path, "limits."+f.name), block.get("when").list()}, {path + ".", said.get("when").list()}} {
			for i, when := range of.when {
				fields, err := expression.Compile(when.get("predicate").text())
				if err != nil {
					when.lose("%swhen[%d].predicate: %v: the limit %s is left out", of.path, i, err, f.name)
					lost = true
				}
				for _, field := range fields {
					var is any
					_ = json.Unmarshal([]byte(field.JSON), &is) // the compiler's own
					m.holds(object{field.Name: is}, false)
				}
			}
		}
		if match := m.match(); match != nil {
			r["match"] = match
		}
		if !lost {
			rules = c.addTo(rules, said, path, r)
		}
	}
	return rules
}

// headerOf is a header in an expression of CEL.
var headerOf = regexp.MustCompile(`^request\.headers(?:\[(?:'([^'\\]+)'|"([^"\\]+)")\]|\.([A-Za-z0-9_]+))$`)

// counterOf is the selector of an expression that counters are by, or nil if it is none of a request's parts.
func counterOf(said string) any {
	said = strings.TrimSpace(said)
	if of := headerOf.FindStringSubmatch(said); of != nil {
		return one("header", strings.ToLower(of[1]+of[2]+of[3]))
	}
	return map[string]any{
		"request.method": "method", "request.host": "host", "request.url_path": "path", "request.path": one("header", ":path"),
		"request.scheme": one("header", ":scheme"), "request.useragent": one("header", "user-agent"), "source.remote_address": client(),
	}[said]
}
