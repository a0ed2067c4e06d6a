package policy

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// Resources are what policies are about.
type Resources struct {
	Policies []*RateLimitPolicy
	Gateways []*Gateway
	Routes   []*Route
	// Grants let policies of other namespaces have targets.
	Grants []Grant
	// Counters are the namespaces of counters that policies of a namespace may name.
	Counters map[string][]string
}

// Grant lets policies of a namespace have targets of another, by ReferenceGrant.
type Grant struct {
	From, To, Kind string
	// Name is empty if it is for all of the kind.
	Name string
}

// granted reports whether a policy of a namespace may have a target.
func (r *Resources) granted(from string, t target) bool {
	return from == t.Namespace || slices.ContainsFunc(r.Grants, func(g Grant) bool {
		return g.From == from && g.To == t.Namespace && g.Kind == t.kind && (g.Name == "" || g.Name == t.Name)
	})
}

// AnotherTells reports whether a policy's status is for another controller, which has plugins at Gateways of its own: of those that a
// target is at, the first one's controller tells.
func (r *Resources) AnotherTells(p *RateLimitPolicy, others map[types.NamespacedName]bool) bool {
	if len(others) == 0 {
		return false
	}
	all := slices.Collect(maps.Keys(others))
	for _, g := range r.Gateways {
		all = append(all, g.NamespacedName)
	}
	slices.SortFunc(all, compare)
	first := slices.IndexFunc(all, func(g types.NamespacedName) bool {
		return slices.ContainsFunc(p.Spec.TargetRefs, func(ref TargetRef) bool {
			t := ref.of(p)
			t.section = ""
			return t == target{"Gateway", g, ""} || t == ofNamespaceNamed(g.Namespace) || slices.ContainsFunc(r.Routes, func(route *Route) bool {
				return (t == target{route.Kind, route.NamespacedName, ""} || t == ofNamespaceNamed(route.Namespace)) &&
					slices.ContainsFunc(route.Parents, func(parent Parent) bool { return parent.Gateway == g })
			})
		})
	})
	return first >= 0 && others[all[first]]
}

// Gateway is a Gateway of an implementation that Weir runs in.
type Gateway struct {
	types.NamespacedName
	Implementation Implementation
	Listeners      []Listener
	// Alone is why Istio gives it no plugin.
	Alone string
	// imitated are the namespaces that names of other namespaces' rules begin with.
	imitated map[string]bool
}

// Listener is a listener of a Gateway, for HTTP.
type Listener struct {
	Name string
	// Hostname may begin with a *; empty for all hosts.
	Hostname string
	Port     int
}

// Route is an HTTPRoute or a GRPCRoute, or a Service, which has one rule without a name.
type Route struct {
	Kind string
	types.NamespacedName
	Hostnames []string
	// Rules are the names of its rules, which may be empty.
	Rules []string
	// Parents are the Gateways that have accepted it; of a Service, its waypoint.
	Parents []Parent
	// Chains are the names of a Service's filter chains there.
	Chains []string
	// Alone is why a Service has no waypoint, or what goes past it.
	Alone string
}

// Parent is where a route is attached: at a listener of a Gateway or, if Listener is empty, at all that take its hostnames.
type Parent struct {
	Gateway  types.NamespacedName
	Listener string
}

// Plan is what follows from resources.
type Plan struct {
	// Configurations are those of each Gateway's plugins, without the backend.
	Configurations map[types.NamespacedName][][]byte
	// Outcomes are in the order of the policies.
	Outcomes []*Outcome
}

// Outcome is what has become of a policy.
type Outcome struct {
	Policy *RateLimitPolicy
	// InForce is the spec that holds; nil if none does.
	InForce *InForce
	// Refused is why the policy's newest spec is not in force; empty if it is. Reason is the condition's.
	Reason, Refused string
	// Missed are targets that the policy does not reach, each with the reason.
	Missed []string
	// Partly is whether it does not hold for all of what its targets are, by some of what is missed.
	Partly bool
	// Gateways are those whose plugin has some of its rules.
	Gateways []types.NamespacedName
	// Overridden are the policies that have replaced rules of this one, each with the place.
	Overridden []string

	missed, overridden notes
	rules              []*rule
	// counters is the namespace of its counters, if that is not the Gateway's.
	counters string
}

// level is how special a target is. A policy for more is below one for less.
type level int

const (
	ofNamespace level = iota // the Gateway's
	ofGateway
	ofListener
	ofRoutes // the namespace of the route, if it is another one
	ofRoute
	ofRule
	levels
)

// target is what a policy is attached to.
type target struct {
	kind string
	types.NamespacedName
	section string
}

func (t target) String() string {
	name := t.kind + " " + t.Name
	if t.section != "" {
		name += "/" + t.section
	}
	return name
}

// leaf is a rule of a route at a Gateway: what a request is for. It is that of a listener, if a policy asks for which.
type leaf struct {
	route    *Route
	rule     int
	listener string
}

// node is a part of a Gateway's requests for which there is a policy, or a listener. What has no policy of its own makes none, so
// that nobody lengthens the rules of others for nothing.
type node struct {
	target target
	// of is the policy that the part is there for, which pays for its conditions; nil at a listener without one.
	of       *Outcome
	chain    [levels]*Outcome
	listener string
	leaves   []leaf
	// when are the conditions of which its requests, and no others, meet one; size is their bytes.
	when []any
	size int
	// rules are those in force there, and replaced others, each with its winner.
	rules    []*rule
	replaced [][2]*rule
	parts    []*node
	index    map[target]*node
}

// part is a node's part that a target is, or the node itself if no policy is attached there.
func (n *node) part(at level, t target, of *Outcome) *node {
	if of == nil && at != ofListener {
		return n
	}
	one := n.index[t]
	if one == nil {
		one = &node{target: t, of: of, chain: n.chain, listener: n.listener, index: map[target]*node{}}
		one.chain[at] = of
		n.index[t], n.parts = one, append(n.parts, one)
	}
	return one
}

// all are a node and its parts, the larger ones first.
func (n *node) all() []*node {
	all := []*node{n}
	for _, part := range n.parts {
		all = append(all, part.all()...)
	}
	return all
}

// name is the node's for people.
func (n *node) name() string {
	t := n.target
	if t.kind != "Namespace" {
		t.Name = t.Namespace + "/" + t.Name
	}
	return t.String()
}

// flips are the conditions of the smallest parts in which a rule holds, within those in which it does not, or the other way round.
// What each part's policy pays for is added to a sum.
func (n *node) flips(holds map[*node]bool, inside bool, paid map[*Outcome]int) (some []any) {
	for _, part := range n.parts {
		if holds[part] == inside || len(part.when) == 0 {
			some = append(some, part.flips(holds, inside, paid)...)
			continue
		}
		paid[part.of] += part.size
		if but := part.flips(holds, !inside, paid); len(but) > 0 {
			some = append(some, map[string]any{"any": grouped(part.when), "not": map[string]any{"any": grouped(but)}})
		} else {
			some = append(some, part.when...)
		}
	}
	return some
}

// leaves are those of a Gateway, by route and listener.
func (g *Gateway) leaves(routes []*Route, attached map[target]*Outcome) (all []leaf) {
	asks := slices.ContainsFunc(g.Listeners, func(l Listener) bool { return attached[g.target(l.Name)] != nil })
	for _, route := range routes {
		var at []string
		for _, p := range route.Parents {
			switch {
			case p.Gateway != g.NamespacedName:
			case !asks:
				at = []string{""}
			default:
				for _, l := range g.Listeners {
					if (p.Listener == "" && l.takes(route) || p.Listener == l.Name) && !slices.Contains(at, l.Name) {
						at = append(at, l.Name)
					}
				}
			}
		}
		for _, listener := range at {
			for i := range route.Rules {
				all = append(all, leaf{route, i, listener})
			}
		}
	}
	return all
}

func (g *Gateway) target(listener string) target {
	return target{"Gateway", g.NamespacedName, listener}
}

// takes reports whether a host may be both the listener's and the route's.
func (l *Listener) takes(route *Route) bool {
	return l.Hostname == "" || len(route.Hostnames) == 0 || slices.ContainsFunc(route.Hostnames, func(name string) bool {
		return covers(name, l.Hostname) || covers(l.Hostname, name)
	})
}

// covers reports whether a hostname, which may begin with a *, has all hosts of another.
func covers(name, other string) bool {
	suffix, wild := strings.CutPrefix(name, "*")
	return name == other || wild && strings.HasSuffix(other, suffix)
}

// Plan decides which rules are in force where.
func (p *Planner) Plan(r *Resources) *Plan {
	plan := &Plan{Configurations: map[types.NamespacedName][][]byte{}}
	p.before, p.sound = p.sound, map[[sha256.Size]byte]bool{}
	seen := map[types.UID]bool{}
	for _, one := range r.Policies {
		plan.Outcomes = append(plan.Outcomes, p.outcome(one, r))
		seen[one.UID] = true
	}
	maps.DeleteFunc(p.checked, func(uid types.UID, _ checked) bool { return !seen[uid] })
	attached := attach(plan.Outcomes, r)
	at := map[types.NamespacedName][]*Route{}
	for _, route := range sorted(r.Routes, func(a, b *Route) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), compare(a.NamespacedName, b.NamespacedName))
	}) {
		for _, parent := range route.Parents {
			if some := at[parent.Gateway]; len(some) == 0 || some[len(some)-1] != route {
				at[parent.Gateway] = append(some, route)
			}
		}
	}
	for _, gateway := range r.Gateways {
		plan.Configurations[gateway.NamespacedName] = p.gateway(gateway, gateway.leaves(at[gateway.NamespacedName], attached), attached)
	}
	for _, o := range plan.Outcomes {
		o.Missed, o.Overridden = o.missed.all(), o.overridden.all()
	}
	return plan
}

func compare(a, b types.NamespacedName) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

func older(a, b *Outcome) int {
	return cmp.Or(a.Policy.CreationTimestamp.Compare(b.Policy.CreationTimestamp.Time), compare(nameOf(a.Policy), nameOf(b.Policy)))
}

func sorted[T any](list []T, compare func(a, b T) int) []T {
	list = slices.Clone(list)
	slices.SortFunc(list, compare)
	return list
}

// attach finds the policy of each target. Of several the oldest of the target's own namespace wins, and then the oldest.
func attach(outcomes []*Outcome, r *Resources) map[target]*Outcome {
	there, alone := map[target]bool{}, map[target]string{}
	for _, g := range r.Gateways {
		there[g.target("")] = true
		for _, l := range g.Listeners {
			there[g.target(l.Name)] = true
		}
	}
	for _, route := range r.Routes {
		t := target{route.Kind, route.NamespacedName, ""}
		alone[t] = route.Alone
		for _, t.section = range append(route.Rules, "") {
			there[t] = true
		}
	}
	attached, reached, reasons := map[target]*Outcome{}, map[*Outcome]bool{}, map[*Outcome]string{}
	oldest := sorted(outcomes, older)
	for _, own := range []bool{true, false} {
		for _, o := range oldest {
			if o.InForce == nil {
				continue
			}
			for _, ref := range o.InForce.Spec.TargetRefs {
				t := ref.of(o.Policy)
				if own != (t.Namespace == o.Policy.Namespace) {
					continue
				}
				switch winner := attached[t]; {
				case !r.granted(o.Policy.Namespace, t): // whether it is there is not for them to know
					reasons[o] = o.miss("RefNotPermitted", fmt.Sprintf("%s of namespace %s: want a ReferenceGrant there, from %s", t, t.Namespace, o.Policy.Namespace))
				case !there[t] && t.kind != "Namespace":
					reasons[o] = o.miss("TargetNotFound", t.String()+" is not there, or is of no Gateway of Istio or Envoy Gateway that gets plugins")
				case winner == o:
				case winner != nil:
					which := "older policy"
					if !own && winner.Policy.Namespace == t.Namespace {
						which = "policy of its own namespace"
					}
					reasons[o] = o.miss("Conflicted", fmt.Sprintf("%s has the %s %s", t, which, nameOf(winner.Policy)))
				default:
					attached[t], reached[o] = o, true
					if why := alone[t]; why != "" {
						o.miss("", t.String()+": "+why)
					}
				}
			}
		}
	}
	for _, o := range oldest {
		if o.InForce != nil && !reached[o] && o.Refused == "" {
			o.Reason, o.Refused = reasons[o], strings.Join(o.missed.all(), "; ")
		}
	}
	return attached
}

// In names the target of a policy, with its namespace if that is another one.
func (ref *TargetRef) In(p *RateLimitPolicy) string {
	t := ref.of(p)
	if t.Namespace != p.Namespace && t.kind != "Namespace" {
		return t.String() + " in " + t.Namespace
	}
	return t.String()
}

func (ref *TargetRef) of(p *RateLimitPolicy) target {
	t := target{kind: string(ref.Kind), NamespacedName: types.NamespacedName{Namespace: cmp.Or(string(ref.Namespace), p.Namespace), Name: string(ref.Name)}}
	t.section = string(ptr.Deref(ref.SectionName, ""))
	if t.kind == "Namespace" {
		t.Namespace = t.Name
	}
	return t
}

func ofNamespaceNamed(name string) target {
	return target{"Namespace", types.NamespacedName{Namespace: name, Name: name}, ""}
}

func (o *Outcome) miss(reason, what string) string {
	o.missed.add(what)
	return reason
}

// lack notes where a policy does not hold although its target is there.
func (o *Outcome) lack(what string) {
	o.Partly = true
	o.missed.add(what)
}

// notes are texts, each once. Of those that are only counted there are hashes: a tenant's policies may replace many rules at many
// places.
type notes struct {
	first []string
	seen  map[uint64]bool
}

var seed = maphash.MakeSeed()

func (n *notes) add(text string) {
	if n.seen == nil {
		n.seen = map[uint64]bool{}
	}
	sum := maphash.String(seed, text)
	if !n.seen[sum] && len(n.first) < maxTold {
		n.first = append(n.first, text)
	}
	n.seen[sum] = true
}

// all are the first texts, and how many more there are.
func (n *notes) all() []string {
	if more := len(n.seen) - len(n.first); more > 0 {
		return append(slices.Clone(n.first), strconv.Itoa(more)+" more")
	}
	return n.first
}

func nameOf(p *RateLimitPolicy) types.NamespacedName {
	return types.NamespacedName{Namespace: p.Namespace, Name: p.Name}
}

// genuine leaves out those named rules of routes that a request can't be told to be for, as Istio gives their names on alone: rules
// of two namespaces have the name and a host, or it is as those that Istio makes for another namespace. What their routes'
// policies want would reach the other. Imitated are the namespaces that names of others' rules begin with.
func genuine(leaves []leaf, attached map[target]*Outcome) (own []leaf, imitated map[string]bool) {
	type claim struct{ name, host string }
	const several = "*" // namespaces
	put := func(all map[claim]string, c claim, namespace string) {
		if before, there := all[c]; there && before != namespace {
			namespace = several
		}
		all[c] = namespace
	}
	names := map[claim]string{} // the namespaces that have a name
	imitated = map[string]bool{}
	for _, l := range leaves {
		name := l.route.Rules[l.rule]
		put(names, claim{name: name}, l.route.Namespace)
		if namespace, _, dotted := strings.Cut(name, "."); dotted && namespace != l.route.Namespace {
			imitated[namespace] = true
		}
	}
	// claims calls a function for each host of a rule whose name several namespaces have, and for each hostname that covers it.
	claims := func(l leaf, f func(c claim, wider bool)) {
		if name := l.route.Rules[l.rule]; name != "" && names[claim{name: name}] == several {
			for _, host := range hostnames(l.route) {
				covering(host, func(suffix string, wider bool) { f(claim{name, suffix}, wider) })
			}
		}
	}
	at, under := map[claim]string{}, map[claim]string{} // the namespaces that have a hostname, and one that it covers
	for _, l := range leaves {
		claims(l, func(c claim, wider bool) {
			if !wider {
				put(at, c, l.route.Namespace)
			}
		})
	}
	for _, l := range leaves {
		claims(l, func(c claim, _ bool) {
			if at[c] != "" { // a host has as many wider ones as labels
				put(under, c, l.route.Namespace)
			}
		})
	}
	for _, l := range leaves {
		name := l.route.Rules[l.rule]
		taken := imitates(name, l.route.Namespace)
		claims(l, func(c claim, wider bool) {
			others := func(namespace string) bool { return namespace != "" && namespace != l.route.Namespace }
			taken = taken || others(at[c]) || !wider && others(under[c])
		})
		if !taken {
			own = append(own, l)
			continue
		}
		for _, t := range []target{ofNamespaceNamed(l.route.Namespace), {l.route.Kind, l.route.NamespacedName, ""}, {l.route.Kind, l.route.NamespacedName, name}} {
			if o := attached[t]; o != nil {
				o.lack(l.route.Kind + " " + l.route.String() + ": its rule " + name + " has the name of another namespace's rule")
			}
		}
	}
	return own, imitated
}

// imitates reports whether a rule's name is one that Istio makes for a rule of another namespace: shop.app.0. Not all such rules
// are read.
func imitates(name, namespace string) bool {
	parts := strings.Split(name, ".")
	_, err := strconv.Atoi(parts[len(parts)-1])
	return len(parts) > 2 && err == nil && parts[0] != namespace
}

func hostnames(r *Route) []string {
	if len(r.Hostnames) == 0 {
		return []string{"*"}
	}
	return r.Hostnames
}

// covering calls a function for a hostname, and for the wider ones that have all of its hosts: without their *, as parts of its text.
func covering(host string, f func(suffix string, wider bool)) {
	host = strings.TrimPrefix(host, "*")
	f(host, false)
	for i := 1; i < len(host); i++ {
		if host[i] == '.' {
			f(host[i:], true)
		}
	}
	if host != "" {
		f("", true)
	}
}

// placed is what holds where at a Gateway.
type placed struct {
	nodes []*node
	// rules are those in force, with their places. One that several policies share by a namespace of counters is there once.
	rules []*rule
	// holders are the policies of each.
	holders map[*rule][]*Outcome
	// others are the bytes of conditions by which rules heed the places of other policies.
	others  map[*Outcome]int
	foreign map[*rule]int // the same by rule
}

// gateway returns the configurations of a Gateway's plugins. A policy that they can't have is left out there, and what holds for
// more holds in its place.
func (p *Planner) gateway(g *Gateway, leaves []leaf, attached map[target]*Outcome) [][]byte {
	if g.Implementation == Istio {
		leaves, g.imitated = genuine(leaves, attached)
	}
	out := map[*Outcome]string{}
	for {
		here := g.place(leaves, func(t target) *Outcome {
			if o := attached[t]; out[o] == "" {
				return o
			}
			return nil
		})
		// No rule is written out before all have room.
		groups, some := divided(here.rules), len(out)
		if g.leaveOut(here, groups, out); len(out) > some {
			continue
		}
		var documents []document
		for _, group := range groups {
			documents = p.appendSound(documents, g.Namespace, group.rules)
		}
		if g.leaveOut(here, documents, out); len(out) > some {
			continue
		}
		for o, why := range out {
			o.lack("Gateway " + g.String() + ": the policy is left out: " + why)
		}
		for i, n := range here.nodes {
			name := n.name()
			where := name
			switch {
			case i == 0:
				where = "*"
			case n.of == nil:
				continue // as everywhere
			case n.listener != "" && n.target.kind != "Gateway":
				where += " at " + n.listener
			}
			p.tell(g, where, n.rules)
			for _, r := range n.replaced {
				r[0].of.overridden.add(fmt.Sprintf("%s by %s at %s", r[0].name, nameOf(r[1].of.Policy), name))
			}
		}
		var all [][]byte
		for _, d := range documents {
			if d.refused != nil {
				continue
			}
			for _, r := range d.rules {
				for _, o := range here.holders[r] {
					if !slices.Contains(o.Gateways, g.NamespacedName) {
						o.Gateways = append(o.Gateways, g.NamespacedName)
					}
				}
			}
			all = append(all, d.text)
		}
		return all
	}
}

// tree parts a Gateway's requests by the policies attached to targets.
func (g *Gateway) tree(leaves []leaf, attached func(target) *Outcome) *node {
	root := &node{target: g.target(""), index: map[target]*node{}}
	root.chain[ofNamespace], root.chain[ofGateway] = attached(ofNamespaceNamed(g.Namespace)), attached(g.target(""))
	if slices.ContainsFunc(g.Listeners, func(l Listener) bool { return attached(g.target(l.Name)) != nil }) {
		for _, l := range g.Listeners {
			t := g.target(l.Name)
			root.part(ofListener, t, attached(t)).listener = l.Name
		}
	}
	for _, l := range leaves {
		at, route := root, target{l.route.Kind, l.route.NamespacedName, ""}
		in := func(level level, t target) {
			if part := at.part(level, t, attached(t)); part != at {
				at = part
				at.leaves = append(at.leaves, l)
			}
		}
		if listener := root.index[g.target(l.listener)]; listener != nil {
			at = listener
		}
		if l.route.Namespace != g.Namespace {
			in(ofRoutes, ofNamespaceNamed(l.route.Namespace))
		}
		in(ofRoute, route)
		if route.section = l.route.Rules[l.rule]; route.section != "" {
			in(ofRule, route)
		}
	}
	for _, n := range root.all()[1:] {
		n.when = g.match(n)
		n.size = len(encoded(n.when))
	}
	return root
}

// place decides which rules of the policies attached to targets hold where.
func (g *Gateway) place(leaves []leaf, attached func(target) *Outcome) *placed {
	root := g.tree(leaves, attached)
	here := &placed{nodes: root.all(), holders: map[*rule][]*Outcome{}, others: map[*Outcome]int{}, foreign: map[*rule]int{}}
	same := map[string]*rule{} // the first of those with a shared counter that are equal
	first := func(r *rule) *rule {
		if r.of.counters == "" {
			return r
		}
		text := r.of.counters + " " + string(encoded(r.fields))
		if same[text] == nil {
			same[text] = r
		}
		return same[text]
	}
	holds := map[*rule][]int{} // the nodes where a rule is in force
	var order []*Outcome
	noted := map[*Outcome]bool{}
	for i, n := range here.nodes {
		n.merge()
		for _, r := range n.rules {
			if of := first(r); len(holds[of]) == 0 || holds[of][len(holds[of])-1] != i {
				holds[of] = append(holds[of], i)
			}
		}
		for _, o := range n.chain {
			if o != nil && !noted[o] {
				noted[o] = true
				order = append(order, o)
			}
		}
	}
	alike := map[string]*where{} // by the nodes: the rules of a policy mostly hold at the same
	made := map[*rule]*rule{}
	for _, o := range order {
		for _, rule := range o.rules {
			one := first(rule)
			if at := made[one]; at != nil {
				here.holders[at] = append(here.holders[at], o)
				continue
			}
			if len(holds[one]) == 0 {
				continue
			}
			key := fmt.Sprint(holds[one])
			if alike[key] == nil {
				alike[key] = root.where(here.nodes, holds[one])
			}
			at := *rule
			if at.where = alike[key]; at.where.condition == nil && !at.where.excepting {
				continue
			}
			at.size += len(at.where.condition)
			for of, bytes := range at.where.paid {
				if of != nil && of != o && of.Policy.Namespace != g.Namespace {
					here.others[of] += bytes
					here.foreign[&at] += bytes
				}
			}
			made[one] = &at
			here.rules, here.holders[&at] = append(here.rules, &at), []*Outcome{o}
		}
	}
	return here
}

// where says where a rule holds: if a condition is met or, excepting, if it is not. Without one it holds everywhere.
type where struct {
	condition json.RawMessage
	excepting bool
	paid      map[*Outcome]int
}

// where is the condition of some of the root's nodes.
func (n *node) where(nodes []*node, some []int) *where {
	holds := map[*node]bool{}
	for _, i := range some {
		holds[nodes[i]] = true
	}
	w := &where{excepting: holds[n], paid: map[*Outcome]int{}}
	if flips := n.flips(holds, holds[n], w.paid); len(flips) > 0 {
		w.condition = encoded(grouped(flips))
	}
	return w
}

// leaveOut adds policies that a Gateway can't have to those that are left out, each with the reason: first those with a rule that
// is refused, then those of other namespaces, and of each namespace the youngest of those that take most.
func (g *Gateway) leaveOut(here *placed, documents []document, out map[*Outcome]string) {
	room := maxIstio
	if g.Implementation == EnvoyGateway {
		room = maxEnvoyGateway
	}
	own := func(o *Outcome) int {
		if o.Policy.Namespace == g.Namespace {
			return 0
		}
		return 1
	}
	order := func(a, b *Outcome) int { return cmp.Or(own(a)-own(b), older(a, b)) }
	shared, some := map[[2]string]*rule{}, len(out)
	for _, r := range sorted(here.rules, func(a, b *rule) int { return order(a.of, b.of) }) {
		name := [2]string{r.of.counters, r.name}
		if other := shared[name]; other != nil && r.of.counters != "" {
			for _, o := range here.holders[r] {
				out[o] = fmt.Sprintf("%s has another rule %s of the counters %s", nameOf(other.of.Policy), r.name, r.of.counters)
			}
			continue
		}
		shared[name] = r
	}
	excess, crowded, cost := -room, 0, maps.Clone(here.others)
	for _, d := range documents {
		excess += d.size
		for _, r := range d.rules {
			refused := ""
			switch above := r.size - maxDocument; {
			case above > 0 && above < here.foreign[r]:
				crowded += above
			case above > 0:
				refused = fmt.Sprintf("want at most %d bytes, got %d", maxDocument, r.size)
			case d.refused != nil:
				refused = told(d.refused, "")
			}
			each := (r.size - here.foreign[r] + room/maxPlugins/len(d.rules)) / len(here.holders[r])
			for _, o := range here.holders[r] {
				cost[o] += each
				if refused != "" {
					out[o] = "the rule " + r.name + " with all its places: " + refused
				}
			}
		}
	}
	excess = max(excess, (len(documents)-maxPlugins)*(room/maxPlugins), crowded)
	if len(out) > some {
		return // there may be room without these
	}
	part, whole := map[string]int{}, map[*Outcome]int{} // of a namespace, and of that up to a policy
	all := sorted(slices.Collect(maps.Keys(cost)), order)
	for _, o := range all {
		part[o.Policy.Namespace] += cost[o]
		whole[o] = part[o.Policy.Namespace]
	}
	slices.SortStableFunc(all, func(a, b *Outcome) int { return cmp.Or(own(b)-own(a), whole[b]-whole[a]) })
	for _, o := range all {
		if excess <= 0 || own(o) < own(all[0]) {
			break
		}
		out[o] = "the Gateway's plugins have no room for all policies' rules"
		excess -= cost[o]
	}
}

// merge merges the policies of a part as GEP-713 says: defaults hold where nothing more special is, and overrides
// replace what is. Both do so for all rules, or, merging, for those of the same name.
func (n *node) merge() {
	for i := levels - 1; i >= 0; i-- {
		o := n.chain[i]
		if o == nil {
			continue
		}
		block, _, overrides := o.InForce.Spec.block()
		winners, losers := n.rules, o.rules
		if overrides {
			winners, losers = losers, winners
		}
		merged := slices.Clone(winners)
		for _, loser := range losers {
			by := slices.IndexFunc(winners, func(w *rule) bool { return block.Strategy != "merge" || w.name == loser.name })
			if by < 0 {
				merged = append(merged, loser)
				continue
			}
			n.replaced = append(n.replaced, [2]*rule{loser, winners[by]})
		}
		n.rules = merged
	}
}
