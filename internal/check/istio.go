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
	// ofGateway is the label of the pods that Istio makes of a Gateway of the Gateway API.
	ofGateway = "gateway.networking.k8s.io/gateway-name"
)

// mesh is what the resources in a file say about Istio's proxies.
type mesh struct {
	leavesOut *node           // the setting of that name, if it is on
	kept      map[string]bool // hosts whose clusters EnvoyFilters keep
	gateways  map[string][]*node
}

func readMesh(documents []*node) *mesh {
	m := &mesh{kept: map[string]bool{}, gateways: map[string][]*node{}}
	seen := map[*node]bool{}
	for _, n := range resourcesOf(documents) {
		metadata, group := n.get("metadata"), strings.Split(n.get("apiVersion").string(), "/")[0]
		switch kind := n.get("kind").string(); {
		case kind == "EnvoyFilter":
			for service := range strings.SplitSeq(metadata.get("annotations", refersTo).string(), ",") {
				m.kept[service[strings.IndexByte(service, '/')+1:]] = true
			}
		case kind == "Gateway" && group == "gateway.networking.k8s.io":
			name := metadata.get("name").string()
			m.gateways[name] = append(m.gateways[name], n)
		default:
			m.leavesOut = cmp.Or(m.leavesOut, setting(n, leavesOut, seen))
		}
	}
	return m
}

// setting returns the value of a field, or of an environment variable of a container, if it is true.
func setting(n *node, called string, seen map[*node]bool) *node {
	if seen[n] {
		return nil
	}
	seen[n] = true
	value := n.get(called)
	if value == nil && n.get("name").string() == called {
		value = n.get("value")
	}
	if value != nil && value.text == "true" {
		return value
	}
	for _, child := range n.children {
		if found := setting(child, called, seen); found != nil {
			return found
		}
	}
	return nil
}

// lacks says why gateways have no cluster of a Service; it is empty if they do, as far as the file tells.
func (m *mesh) lacks(cluster string, places *places) string {
	direction, rest, _ := strings.Cut(cluster, "|")
	host := rest[strings.LastIndexByte(rest, '|')+1:]
	if m == nil || m.leavesOut == nil || direction != "outbound" || m.kept[host] {
		return ""
	}
	line, _ := places.position(m.leavesOut.at)
	_, namespace, _ := strings.Cut(host, ".")
	namespace, _, _ = strings.Cut(namespace, ".")
	return "gateways don't get this cluster, so that each counts alone, by " + leavesOut + " on line " + strconv.Itoa(line) +
		": want an EnvoyFilter for them with the annotation " + refersTo + ": " + namespace + "/" + host
}

// selects warns about a resource that selects no proxy.
func (f *finder) selects(resource *node) {
	spec := resource.get("spec")
	namespace := cmp.Or(resource.get("metadata", "namespace").string(), "default")
	for _, target := range append(slices.Clone(spec.get("targetRefs").elements()), spec.get("targetRef")) {
		name := target.get("name").string()
		if gateways := f.mesh.gateways[name]; len(gateways) > 0 && target.get("kind").string() == "Gateway" && !slices.ContainsFunc(gateways, func(g *node) bool {
			return cmp.Or(g.get("metadata", "namespace").string(), "default") == namespace
		}) {
			f.warn(target, "targetRefs", "limits nothing: Gateway "+name+" is of another namespace than "+namespace+", where this resource is")
		}
	}
	labels := spec.get("selector", "matchLabels")
	if labels == nil {
		labels = spec.get("workloadSelector", "labels")
	}
	name := labels.get(ofGateway).string()
	if name == "" {
		return
	}
	const want = ": want targetRefs with group gateway.networking.k8s.io, kind Gateway and its name"
	switch {
	case slices.ContainsFunc(f.mesh.gateways[name], func(g *node) bool { return g.get("spec", "gatewayClassName").string() == "istio-waypoint" }):
		f.warn(labels, "selector", "limits nothing: a waypoint heeds no selector"+want)
	case labels.get("istio") != nil:
		f.warn(labels, "selector", "limits nothing: pods of Gateway "+name+" have no label istio"+want)
	}
}

func (f *finder) warn(at *node, path, problem string) {
	f.warnings = append(f.warnings, mistake{at.at, path, problem})
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
