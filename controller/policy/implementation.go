package policy

import (
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

// match returns conditions of which requests for the leaves, and no others, meet one. They are about the route that Envoy has
// chosen: the paths of one route may be a part of those of another, which may be of another namespace.
func (g *Gateway) match(leaves []leaf) (some []any) {
	for len(leaves) > 0 {
		route, listener, n := leaves[0].route, leaves[0].listener, 0
		for n < len(leaves) && leaves[n].route == route && leaves[n].listener == listener {
			n++
		}
		of := ofIstio
		switch {
		case route.Chains != nil:
			of = ofService
		case g.Implementation == EnvoyGateway:
			of = ofEnvoyGateway
		}
		for _, condition := range of(route, leaves[:n]) {
			if listener != "" {
				g.at(listener, condition)
			}
			some = append(some, condition)
		}
		leaves = leaves[n:]
	}
	return some
}

func named(condition string, value any) map[string]any {
	return property("xds.route_name", condition, value)
}

func property(name, condition string, value any) map[string]any {
	return map[string]any{"property": map[string]any{name: map[string]any{condition: value}}}
}

// ofService goes by the whole names of the filter chains that a waypoint has for a Service: others may be of the same beginning.
func ofService(route *Route, _ []leaf) (some []map[string]any) {
	for names := range slices.Chunk(route.Chains, maxAny) {
		some = append(some, property("xds.filter_chain_name", "in", names))
	}
	return some
}

// at has a condition hold at a listener alone. Envoy Gateway begins the names of virtual hosts with the listener's; Istio ends
// them with its port. Of Istio's listeners of one port that with the longest hostname has the request.
func (g *Gateway) at(listener string, condition map[string]any) {
	virtual := map[string]any{"prefix": g.Namespace + "/" + g.Name + "/" + listener + "/"}
	if g.Implementation == Istio {
		l := g.Listeners[slices.IndexFunc(g.Listeners, func(l Listener) bool { return l.Name == listener })]
		virtual = map[string]any{"suffix": ":" + strconv.Itoa(l.Port)}
		if l.Hostname != "" {
			condition["any"] = []any{map[string]any{"host": host(l.Hostname)}}
		}
		var others []any
		for _, other := range g.Listeners {
			if other.Port == l.Port && other.Hostname != l.Hostname && (l.Hostname == "" || covers(l.Hostname, other.Hostname)) {
				others = append(others, map[string]any{"host": host(other.Hostname)})
			}
		}
		if len(others) > 0 {
			condition["not"] = map[string]any{"any": others}
		}
	}
	condition["property"].(map[string]any)["xds.virtual_host_name"] = virtual
}

// host is the condition that a request's host is of a hostname.
func host(name string) map[string]any {
	if suffix, wild := strings.CutPrefix(name, "*"); wild {
		return map[string]any{"suffix": suffix}
	}
	return map[string]any{"exact": name}
}

// ofEnvoyGateway goes by Envoy Gateway's names: httproute/shop/app/rule/0/match/0/*.
func ofEnvoyGateway(route *Route, leaves []leaf) (some []map[string]any) {
	prefix := strings.ToLower(route.Kind) + "/" + route.Namespace + "/" + route.Name + "/"
	if len(leaves) == len(route.Rules) {
		return []map[string]any{named("prefix", prefix)}
	}
	for _, l := range leaves {
		some = append(some, named("prefix", prefix+"rule/"+strconv.Itoa(l.rule)+"/"))
	}
	return some
}

// istioName is the name that Istio gives to the rule of a route.
func (l leaf) istioName() string {
	if name := l.route.Rules[l.rule]; name != "" {
		return name
	}
	return l.route.Namespace + "." + l.route.Name + "." + strconv.Itoa(l.rule)
}

// ofIstio goes by Istio's names: shop.app.0, or the name of the route's rule, which anybody may give to a rule elsewhere. So
// the host has to be one of the route's, too.
func ofIstio(route *Route, leaves []leaf) (some []map[string]any) {
	var names, hosts []string
	for _, l := range leaves {
		if name := l.istioName(); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	with := func(host map[string]any) {
		condition := named("in", names)
		if host != nil {
			condition["host"] = host
		}
		some = append(some, condition)
	}
	for _, name := range route.Hostnames {
		if strings.HasPrefix(name, "*") {
			with(host(name))
		} else {
			hosts = append(hosts, name)
		}
	}
	if len(hosts) > 0 {
		with(map[string]any{"in": hosts})
	}
	if len(route.Hostnames) == 0 {
		with(nil)
	}
	return some
}
