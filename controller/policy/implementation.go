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
func (i Implementation) match(leaves []leaf) (some []any) {
	for len(leaves) > 0 {
		route, n := leaves[0].route, 0
		for n < len(leaves) && leaves[n].route == route {
			n++
		}
		if i == EnvoyGateway {
			some = append(some, ofEnvoyGateway(route, leaves[:n])...)
		} else {
			some = append(some, ofIstio(route, leaves[:n])...)
		}
		leaves = leaves[n:]
	}
	return some
}

func named(condition string, value any) map[string]any {
	return map[string]any{"property": map[string]any{"xds.route_name": map[string]any{condition: value}}}
}

// ofEnvoyGateway goes by Envoy Gateway's names: httproute/shop/app/rule/0/match/0/*.
func ofEnvoyGateway(route *Route, leaves []leaf) (some []any) {
	prefix := strings.ToLower(route.Kind) + "/" + route.Namespace + "/" + route.Name + "/"
	if len(leaves) == len(route.Rules) {
		return []any{named("prefix", prefix)}
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
func ofIstio(route *Route, leaves []leaf) (some []any) {
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
		if suffix, wild := strings.CutPrefix(name, "*"); wild {
			with(map[string]any{"suffix": suffix})
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
