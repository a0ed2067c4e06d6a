package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Implementation is what makes Envoys of Gateways.
type Implementation int

// Implementations of the Gateway API.
const (
	Istio Implementation = iota + 1
	EnvoyGateway
)

// Implementations are by the controllers' names in GatewayClasses.
var Implementations = map[string]Implementation{
	"istio.io/gateway-controller": Istio, "istio.io/mesh-controller": Istio,
	"gateway.envoyproxy.io/gatewayclass-controller": EnvoyGateway,
}

func (i Implementation) String() string {
	return [...]string{Istio: "Istio", EnvoyGateway: "Envoy Gateway"}[i]
}

// maxRegion is how many bytes of hosts and names of a namespace's routes a rule may have.
const maxRegion = 8 << 10

// maxImitated is how many of them the names may be that take the place of a prefix: each rule of the namespace has them, whoever made
// them necessary.
const maxImitated = 1 << 10

// match returns conditions of which a node's requests, and no others, meet one. They are about the route that Envoy has chosen: the
// paths of one route may be a part of those of another, which may be of another namespace.
func (g *Gateway) match(n *node) (some []any) {
	var conditions []map[string]any
	switch {
	case n.target.kind == "Gateway":
		conditions = []map[string]any{{}}
	case n.target.kind == "Namespace":
		conditions = g.ofNamespace(n)
	case n.target.kind == "Service":
		// Whole names of filter chains: others may be of the same beginning.
		conditions = []map[string]any{property("xds.filter_chain_name", "in", n.leaves[0].route.Chains)}
	case g.Implementation == EnvoyGateway:
		conditions = ofEnvoyGateway(n)
	default:
		conditions = []map[string]any{ofIstio(n.leaves)}
	}
	for _, condition := range conditions {
		if n.listener != "" {
			g.at(n.listener, condition)
		}
		some = append(some, condition)
	}
	return some
}

func named(condition string, value any) map[string]any {
	return property("xds.route_name", condition, value)
}

func property(name, condition string, value any) map[string]any {
	return map[string]any{"property": map[string]any{name: map[string]any{condition: value}}}
}

// at has a condition hold at a listener alone. Envoy Gateway begins the names of virtual hosts with the listener's. Istio's are a
// hostname with a port, and of the listeners of the port that with the longest hostname has it.
func (g *Gateway) at(listener string, condition map[string]any) {
	virtual := map[string]any{"prefix": g.Namespace + "/" + g.Name + "/" + listener + "/"}
	if g.Implementation == Istio {
		l := g.Listeners[slices.IndexFunc(g.Listeners, func(l Listener) bool { return l.Name == listener })]
		virtual = l.virtual()
		var others []any
		for _, other := range g.Listeners {
			if other.Port == l.Port && other.Hostname != l.Hostname && (l.Hostname == "" || covers(l.Hostname, other.Hostname)) {
				others = append(others, map[string]any{"property": map[string]any{"xds.virtual_host_name": other.virtual()}})
			}
		}
		if len(others) > 0 {
			condition["not"] = map[string]any{"any": grouped(others)}
		}
	}
	properties, _ := condition["property"].(map[string]any)
	if properties == nil {
		properties = map[string]any{}
		condition["property"] = properties
	}
	properties["xds.virtual_host_name"] = virtual
}

// virtual is the condition that Istio's name of a virtual host is of the listener's hostname.
func (l *Listener) virtual() map[string]any {
	condition := host(cmp.Or(l.Hostname, "*"))
	for by, name := range condition {
		condition[by] = name.(string) + ":" + strconv.Itoa(l.Port)
	}
	return condition
}

// host is the condition that a request's host is of a hostname.
func host(name string) map[string]any {
	if suffix, wild := strings.CutPrefix(name, "*"); wild {
		return map[string]any{"suffix": suffix}
	}
	return map[string]any{"exact": name}
}

// ofNamespace goes by how the names of all routes, or filter chains, of a namespace begin or end. Istio gives no such name to a rule
// that has one: each is named, as far as there is room.
func (g *Gateway) ofNamespace(n *node) (some []map[string]any) {
	var hosts, names []string
	var labelled []leaf
	kinds := map[string]bool{}
	for _, l := range n.leaves {
		kind := l.route.Kind
		if g.Implementation == Istio && kind != "Service" {
			if l.route.Rules[l.rule] != "" {
				labelled = append(labelled, l)
				continue
			}
			hosts, names, kind = append(hosts, hostnames(l.route)...), append(names, nameOnIstio(l)), "route"
		}
		if kinds[kind] {
			continue
		}
		kinds[kind] = true
		switch {
		case kind == "Service":
			_, domain, _ := strings.Cut(l.route.Chains[0], ".")
			some = append(some, property("xds.filter_chain_name", "suffix", "."+domain))
		case g.Implementation == EnvoyGateway:
			some = append(some, named("prefix", strings.ToLower(kind)+"/"+n.target.Name+"/"))
		}
	}
	if len(hosts) > 0 {
		// The hosts keep a rule of another namespace out whose name begins so. Too many can't be had.
		slices.Sort(hosts)
		hosts = slices.Compact(hosts)
		ours := atHosts(named("prefix", n.target.Name+"."), hosts)
		if g.imitated[n.target.Name] {
			// Whose rules have such names at its hosts would have its limits, and use them up.
			slices.Sort(names)
			if whole := atHosts(named("in", slices.Compact(names)), hosts); len(encoded(whole)) <= min(maxRegion, len(encoded(ours))+maxImitated) {
				ours = whole
			} else {
				n.of.miss("", fmt.Sprintf("Namespace %s: want fewer routes, as rules of other namespaces have names that begin with %[1]s. and so its limits at its hosts", n.target.Name))
			}
		}
		if len(encoded(ours)) > maxRegion {
			delete(ours, "any")
		}
		some = append(some, ours)
	}
	room := maxRegion
	for len(labelled) > 0 {
		count := 1
		for count < len(labelled) && labelled[count].route == labelled[0].route {
			count++
		}
		more := ofIstio(labelled[:count])
		if room -= len(encoded(more)); room < 0 {
			n.of.lack(fmt.Sprintf("Namespace %s: want fewer rules of routes with a name, as not all have room: those have the limits of the Gateway and its listener", n.target.Name))
			break
		}
		some, labelled = append(some, more), labelled[count:]
	}
	return some
}

// ofEnvoyGateway goes by Envoy Gateway's names: httproute/shop/app/rule/0/match/0/*.
func ofEnvoyGateway(n *node) (some []map[string]any) {
	prefix := strings.ToLower(n.target.kind) + "/" + n.target.Namespace + "/" + n.target.Name + "/"
	if n.target.section == "" {
		return []map[string]any{named("prefix", prefix)}
	}
	for _, l := range n.leaves {
		some = append(some, named("prefix", prefix+"rule/"+strconv.Itoa(l.rule)+"/"))
	}
	return some
}

// ofIstio goes by Istio's names: shop.app.0, or the name of the route's rule, which anybody may give to a rule elsewhere. So
// the host has to be one of the route's, too.
func ofIstio(leaves []leaf) map[string]any {
	var names []string
	for _, l := range leaves {
		if name := nameOnIstio(l); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return atHosts(named("in", names), hostnames(leaves[0].route))
}

func nameOnIstio(l leaf) string {
	return cmp.Or(l.route.Rules[l.rule], l.route.Namespace+"."+l.route.Name+"."+strconv.Itoa(l.rule))
}

// atHosts has a condition hold for hostnames alone, of which * has all hosts.
func atHosts(condition map[string]any, hostnames []string) map[string]any {
	var whole []string
	var some []any
	for _, name := range hostnames {
		switch {
		case name == "*":
			return condition
		case strings.HasPrefix(name, "*"):
			some = append(some, map[string]any{"host": host(name)})
		default:
			whole = append(whole, name)
		}
	}
	if len(whole) > 0 {
		some = append(some, map[string]any{"host": map[string]any{"in": whole}})
	}
	condition["any"] = grouped(some)
	return condition
}
