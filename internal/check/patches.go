package check

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
)

// gateways are the resources in a file that say which plugins of Envoy Gateway get bodies.
type gateways struct {
	patches []bodyPatch
	// listeners are the HTTP listeners of each Gateway; routes are the Gateways of each route.
	listeners, routes map[string][]string
}

// bodyPatch is a patch of an EnvoyPatchPolicy that gives request bodies to plugins of a listener.
type bodyPatch struct {
	gateway  string // with its namespace
	listener string // its name in Envoy: namespace/gateway/listener
	filter   string // JSONPath that leads to the plugins
}

func resourcesOf(documents []*node) (resources []*node) {
	for _, n := range documents {
		resources = append(append(resources, n), n.get("items").elements()...)
	}
	return resources
}

// inNamespace names a resource of Kubernetes that another refers to, whose namespace is the
// default.
func inNamespace(n, beside *node) string {
	namespace := cmp.Or(n.get("namespace").string(), beside.get("metadata", "namespace").string(), "default")
	return namespace + "/" + n.get("name").string()
}

func readGateways(documents []*node) *gateways {
	g := &gateways{listeners: map[string][]string{}, routes: map[string][]string{}}
	for _, n := range resourcesOf(documents) {
		spec, name := n.get("spec"), inNamespace(n.get("metadata"), n)
		switch n.get("kind").string() {
		case "Gateway":
			for _, listener := range spec.get("listeners").elements() {
				if protocol := listener.get("protocol").string(); protocol == "HTTP" || protocol == "HTTPS" {
					g.listeners[name] = append(g.listeners[name], listener.get("name").string())
				}
			}
		case "HTTPRoute", "GRPCRoute":
			for _, parent := range spec.get("parentRefs").elements() {
				g.routes[name] = append(g.routes[name], inNamespace(parent, n))
			}
		case "EnvoyPatchPolicy":
			for _, patch := range spec.get("jsonPatches").elements() {
				operation := patch.get("operation")
				value := operation.get("value")
				if typeOf(patch.get("type")) == "envoy.config.listener.v3.Listener" && value != nil && value.kind == kindScalar && value.text == "true" &&
					slices.Contains([]string{"add", "replace"}, operation.get("op").string()) && strings.HasSuffix(operation.get("path").string(), "/allow_on_headers_stop_iteration") {
					g.patches = append(g.patches, bodyPatch{inNamespace(spec.get("targetRef"), n), patch.get("name").string(), operation.get("jsonPath").string()})
				}
			}
		}
	}
	return g
}

// bodies says why a plugin of an EnvoyExtensionPolicy does not get request bodies. It is empty if
// the plugin does, as far as the file tells.
func (g *gateways) bodies(policy, wasm *node) string {
	if len(g.patches) == 0 {
		return bodiesNever
	}
	for _, target := range targetsOf(policy.get("spec")) {
		name, section := inNamespace(target, policy), target.get("sectionName").string()
		if target.get("kind").string() != "Gateway" {
			for _, gateway := range g.routes[name] {
				if lacking := g.lacks(gateway, "", wasm); lacking != "" {
					return lacking
				}
			}
		} else if lacking := g.lacks(name, section, wasm); lacking != "" {
			return lacking
		}
	}
	return ""
}

// filterName finds the name of the filters in a JSONPath.
var filterName = regexp.MustCompile(`\.name *== *["']([^"']+)["']`)

// lacks says which listener of a Gateway has no patch for a plugin. An empty section means all of
// them.
func (g *gateways) lacks(gateway, section string, wasm *node) string {
	var patched []string
	for _, p := range g.patches {
		if of := filterName.FindStringSubmatch(p.filter); of != nil && wasm.get("name") != nil && of[1] != wasm.get("name").string() {
			continue
		}
		if p.gateway == gateway {
			patched = append(patched, p.listener)
		}
	}
	if len(patched) == 0 {
		return bodiesUnpatched + " Gateway " + gateway
	}
	for _, listener := range g.listeners[gateway] {
		if (section == "" || section == listener) && !slices.Contains(patched, gateway+"/"+listener) {
			return bodiesUnpatched + " listener " + listener + " of Gateway " + gateway
		}
	}
	return ""
}
