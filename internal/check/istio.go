package check

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

const (
	// leavesOut is the setting by which istiod sends gateways only the clusters that their routes need.
	leavesOut = "PILOT_FILTER_GATEWAY_CLUSTER_CONFIG"
	// refersTo is the annotation of an EnvoyFilter that keeps the clusters of services.
	refersTo = "envoyfilter.istio.io/referenced-services"
	// ofGateway is the label of the pods that Istio makes of a Gateway of the Gateway API, whose group is gatewayAPI.
	ofGateway, gatewayAPI = "gateway.networking.k8s.io/gateway-name", "gateway.networking.k8s.io"
	// root is the namespace whose resources are for all, and waypoint the class of waypoints.
	root, waypoint = "istio-system", "istio-waypoint"
)

// mesh is what the resources in a file say about Istio's proxies.
type mesh struct {
	leavesOut *node   // the setting of that name, if it is on
	filters   []*node // EnvoyFilters with the annotation refersTo
	gateways  map[string][]*node
}

func readMesh(documents []*node) *mesh {
	m := &mesh{gateways: map[string][]*node{}}
	seen := map[*node]bool{}
	for _, n := range resourcesOf(documents) {
		metadata, group := n.get("metadata"), strings.Split(n.get("apiVersion").string(), "/")[0]
		switch kind := n.get("kind").string(); {
		case kind == "EnvoyFilter" && metadata.get("annotations", refersTo) != nil:
			m.filters = append(m.filters, n)
		case kind == "Gateway" && group == gatewayAPI:
			name := metadata.get("name").string()
			m.gateways[name] = append(m.gateways[name], n)
		default:
			m.leavesOut = cmp.Or(m.leavesOut, setting(n, leavesOut, seen))
		}
	}
	return m
}

// setting returns the value of a field, or of an environment variable of a container, if istiod takes it as true.
func setting(n *node, called string, seen map[*node]bool) *node {
	if seen[n] {
		return nil
	}
	seen[n] = true
	value := n.get(called)
	if value == nil && n.get("name").string() == called {
		value = n.get("value")
	}
	if value != nil {
		if on, _ := strconv.ParseBool(value.text); on {
			return value
		}
	}
	for _, child := range n.children {
		if found := setting(child, called, seen); found != nil {
			return found
		}
	}
	return nil
}

// scope is what proxies a resource of Istio's is for: those of targets, or those with labels.
type scope struct {
	namespace string
	targets   []target
	labels    *node
}

// target is one of targetRefs, with the group core for none.
type target struct{ group, kind, name string }

func namespaceOf(resource *node) string {
	return cmp.Or(resource.get("metadata", "namespace").string(), "default")
}

func scopeOf(resource *node) scope {
	spec := resource.get("spec")
	s := scope{namespace: namespaceOf(resource), labels: cmp.Or(spec.get("selector", "matchLabels"), spec.get("workloadSelector", "labels"))}
	for _, t := range targetsOf(spec) {
		s.targets = append(s.targets, target{cmp.Or(t.get("group").string(), "core"), t.get("kind").string(), t.get("name").string()})
	}
	return s
}

func targetsOf(spec *node) []*node {
	all := spec.get("targetRefs").elements()
	if one := spec.get("targetRef"); one != nil {
		all = append(slices.Clone(all), one)
	}
	return all
}

// labelled reports whether pods with some labels have all that a resource wants.
func (s scope) labelled(has func(name string) string) bool {
	if s.labels == nil {
		return true
	}
	for i, name := range s.labels.names {
		if has(name.text) != s.labels.children[i].string() {
			return false
		}
	}
	return true
}

// waypoints reports whether a target's proxies are waypoints, as far as the file tells.
func (m *mesh) waypoints(namespace string, t target) bool {
	return t.kind != "Gateway" || slices.ContainsFunc(m.gateways[t.name], func(g *node) bool {
		return namespaceOf(g) == namespace && g.get("spec", "gatewayClassName").string() == waypoint
	})
}

// covers reports whether Istio takes an EnvoyFilter for all proxies of a resource: those of one target, or those with labels.
func (m *mesh) covers(filter, of scope, t *target) bool {
	around := filter.namespace == of.namespace || filter.namespace == root
	switch {
	case t == nil && len(filter.targets) > 0:
		own := target{gatewayAPI, "Gateway", of.labels.get(ofGateway).string()}
		return filter.namespace == of.namespace && of.namespace != root && slices.Contains(filter.targets, own)
	case t == nil:
		return around && filter.labelled(func(name string) string { return of.labels.get(name).string() })
	case m.waypoints(of.namespace, *t):
		// It is not known which waypoint a Service has.
		return filter.namespace == root && slices.Contains(filter.targets, target{gatewayAPI, "GatewayClass", waypoint}) ||
			t.kind == "Gateway" && filter.namespace == of.namespace && slices.Contains(filter.targets, *t) ||
			t.group != gatewayAPI && slices.ContainsFunc(filter.targets, func(t target) bool { return t.group == gatewayAPI && t.kind == "Gateway" })
	case len(filter.targets) > 0:
		return filter.namespace == of.namespace && slices.Contains(filter.targets, *t)
	}
	return around && filter.labelled(func(name string) string { return map[string]string{ofGateway: t.name}[name] })
}

// refers reports whether an EnvoyFilter's annotation has a host, by the namespace of its Service or by none. Istio takes no
// space away.
func refers(filter *node, namespace, host string) bool {
	for service := range strings.SplitSeq(filter.get("metadata", "annotations", refersTo).string(), ",") {
		in, name, found := strings.Cut(service, "/")
		if !found && in == host || name == host && (in == namespace || namespace == "") {
			return true
		}
	}
	return false
}

// lacks says why proxies that have the plugin by a resource get no cluster of a Service; it is empty if they do, as far as the
// file tells.
func (m *mesh) lacks(cluster string, resource *node, places *places) string {
	direction, rest, _ := strings.Cut(cluster, "|")
	if m == nil || resource == nil || direction != "outbound" {
		return ""
	}
	host, namespace := rest[strings.LastIndexByte(rest, '|')+1:], ""
	if name, _, found := strings.Cut(host, ".svc."); found {
		_, namespace, _ = strings.Cut(name, ".")
	}
	of := scopeOf(resource)
	if own := (target{gatewayAPI, "Gateway", of.labels.get(ofGateway).string()}); len(of.targets) == 0 && own.name != "" && m.waypoints(of.namespace, own) {
		return "" // a waypoint heeds no selector
	}
	each := []*target{nil}
	if len(of.targets) > 0 {
		each = nil
		for i := range of.targets {
			each = append(each, &of.targets[i])
		}
	}
	for _, t := range each {
		if t != nil && targets[t.kind] == "" {
			continue // Istio refuses it
		}
		why := "waypoints don't get this cluster, so that each counts alone"
		if t == nil || !m.waypoints(of.namespace, *t) {
			if m.leavesOut == nil {
				continue
			}
			why = "gateways don't get this cluster, so that each counts alone, by " + leavesOut + lineOf(m.leavesOut, places)
		}
		var others string
		if slices.ContainsFunc(m.filters, func(filter *node) bool {
			if !refers(filter, namespace, host) {
				return false
			}
			others = "; the EnvoyFilter" + lineOf(filter, places) + " is not for all of them"
			return m.covers(scopeOf(filter), of, t)
		}) {
			continue
		}
		if namespace != "" {
			host = namespace + "/" + host
		}
		return why + ": want an EnvoyFilter for them with the annotation " + refersTo + ": " + host + others
	}
	return ""
}

func lineOf(n *node, places *places) string {
	line, _ := places.position(n.at)
	return " on line " + strconv.Itoa(line)
}

// targets are the kinds that Istio takes in targetRefs, with their groups.
var targets = map[string]string{"Gateway": gatewayAPI, "GatewayClass": gatewayAPI, "Service": "core", "ServiceEntry": "networking.istio.io"}

// selects tells of a resource that Istio refuses, and warns about one that selects no proxy.
func (f *finder) selects(resource *node) {
	spec := resource.get("spec")
	namespace := namespaceOf(resource)
	labels, field := spec.get("selector"), "selector"
	if labels == nil {
		labels, field = spec.get("workloadSelector"), "workloadSelector"
	}
	references := cmp.Or(spec.get("targetRefs"), spec.get("targetRef"))
	if labels != nil && references != nil {
		f.refuse(references, "targetRefs", "want targetRefs or "+field+", not both: Istio refuses the resource")
	}
	for _, target := range targetsOf(spec) {
		name, kind := target.get("name").string(), target.get("kind").string()
		if group := targets[kind]; group == "" {
			f.refuse(target, "targetRefs", "want the kind Gateway, GatewayClass, Service or ServiceEntry, got "+strconv.Quote(short(kind)))
		} else if got := cmp.Or(target.get("group").string(), "core"); got != group {
			f.refuse(target, "targetRefs", "want the group "+group+" with the kind "+kind+": Istio takes no other for it")
		}
		if gateways := f.mesh.gateways[name]; len(gateways) > 0 && kind == "Gateway" && !slices.ContainsFunc(gateways, func(g *node) bool { return namespaceOf(g) == namespace }) {
			f.warn(target, "targetRefs", "limits nothing: Gateway "+name+" is of another namespace than "+namespace+", where this resource is")
		}
	}
	labels = scopeOf(resource).labels
	name := labels.get(ofGateway).string()
	if name == "" {
		return
	}
	const want = ": want targetRefs with group gateway.networking.k8s.io, kind Gateway and its name"
	switch {
	case slices.ContainsFunc(f.mesh.gateways[name], func(g *node) bool { return g.get("spec", "gatewayClassName").string() == waypoint }):
		f.warn(labels, "selector", "limits nothing: a waypoint heeds no selector"+want)
	case labels.get("istio") != nil:
		f.warn(labels, "selector", "limits nothing: pods of Gateway "+name+" have no label istio"+want)
	}
}

func (f *finder) warn(at *node, path, problem string) {
	f.warnings = append(f.warnings, mistake{at.at, path, problem})
}

func (f *finder) refuse(at *node, path, problem string) {
	f.refused = append(f.refused, mistake{at.at, path, problem})
}

// oneOf tells of a value that Istio or Envoy refuses.
func (f *finder) oneOf(value *node, path string, want ...string) {
	if value != nil && value.kind == kindString && !slices.Contains(want, value.text) {
		f.refuse(value, path, "want "+list(want)+", got "+strconv.Quote(short(value.text)))
	}
}

// unfetched tells of a plugin in the place of which Istio's agent has put another filter, in a dump of Envoy's configuration.
func (f *finder) unfetched(extension *node) {
	effect := map[string]string{"wasm-default-deny": "refuses all requests with 403", "wasm-default-allow": "lets requests pass without limits"}[extension.get("typed_config", "rules_stat_prefix").string()]
	if name := extension.get("name").string(); effect != "" && strings.Contains(strings.ToLower(name), "weir") {
		f.mistakes = append(f.mistakes, mistake{extension.at, "", "Istio's agent could not fetch the plugin of " + name + ", and " + effect +
			" until the resource's spec changes, or the pod starts anew: its log says why"})
	}
}

// dumped returns the names of the clusters in a dump of Envoy's configuration; nil if it has none.
func dumped(dump *node) map[string]bool {
	var names map[string]bool
	for _, part := range dump.get("configs").elements() {
		if typeOf(part.get("@type")) != "envoy.admin.v3.ClustersConfigDump" {
			continue
		}
		names = map[string]bool{}
		for _, list := range []string{"static_clusters", "dynamic_active_clusters", "dynamic_warming_clusters"} {
			for _, cluster := range part.get(list).elements() {
				names[cluster.get("cluster", "name").string()] = true
			}
		}
	}
	return names
}
