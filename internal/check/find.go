package check

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"path"
	"slices"
	"strings"
)

// plugin is a place where a document configures Weir.
type plugin struct {
	document *document
	// vm names the plugin's virtual machine; nil if the document does not.
	vm *node
	// unlimited is the value by which requests pass if the plugin fails; nil if they don't pass.
	unlimited     *node
	unlimitedPath string
	// bodies says why the plugin does not get the bodies of paused requests. It is empty if it
	// does.
	bodies  string
	filters filters
	native  bool // it is a dynamic module
	// resource is the one of Istio's that has the plugin; nil if there is none.
	resource *node
}

// finder finds plugins. A plugin is Weir's if its module has "weir" in its name, or its
// configuration has rules with limits.
type finder struct {
	file []byte
	yaml bool
	// resource means that the document is one of Kubernetes.
	resource bool
	// seen are objects and arrays that were searched already, because of aliases.
	seen     map[*node]bool
	filters  filters // those around the place that walk has reached
	plugins  []plugin
	mistakes []mistake // about plugins that have no configuration
	refused  []mistake // about what Istio or Envoy refuses
	// configMaps are the data of ConfigMaps.
	configMaps []*node
	gateways   *gateways
	mesh       *mesh
	warnings   []mistake
}

// outer are fields that distinguish a document of Envoy from a configuration.
var outer = []string{
	"@type", "static_resources", "dynamic_resources", "admin", "node", "layered_runtime", "stats_config", "resources", "configs",
	"listeners", "filter_chains", "http_filters", "virtual_hosts", "typed_config", "typed_per_filter_config", "vm_config",
}

// isConfiguration reports whether a document is itself a configuration, and neither another
// document nor a list of documents.
func isConfiguration(n *node) bool {
	for _, n := range append([]*node{n}, n.elements()...) {
		if slices.ContainsFunc(outer, func(field string) bool { return n.get(field) != nil }) {
			return false
		}
		if n.get("apiVersion") != nil && n.get("kind") != nil {
			return false
		}
	}
	return true
}

const (
	typeWasm         = "envoy.extensions.filters.http.wasm.v3.Wasm"
	typeModule       = "envoy.extensions.filters.http.dynamic_modules.v3.DynamicModuleFilter"
	typeExtension    = "envoy.config.core.v3.TypedExtensionConfig"
	typeStringValue  = "google.protobuf.StringValue"
	typeBytesValue   = "google.protobuf.BytesValue"
	typeStruct       = "google.protobuf.Struct"
	suffixTypeStruct = ".TypedStruct" // of udpa.type.v1 and xds.type.v3
)

// typeOf returns the name of a message from its type's URL.
func typeOf(url *node) string { return path.Base(url.string()) }

// walk finds all plugins in a value.
func (f *finder) walk(n *node) {
	if f.seen[n] {
		return
	}
	f.seen[n] = true
	group := strings.Split(n.get("apiVersion").string(), "/")[0]
	found := len(f.plugins)
	switch name := typeOf(n.get("@type")); {
	case name == typeWasm:
		f.envoy(n.get("config"), n)
	case name == typeModule:
		f.module(n)
	case strings.HasSuffix(name, suffixTypeStruct) && typeOf(n.get("type_url")) == typeWasm:
		f.envoy(n.get("value", "config"), n)
	case name == typeExtension:
		f.unfetched(n)
	case n.get("kind").string() == "WasmPlugin" && group == "extensions.istio.io":
		f.istio(n.get("spec"), n.get("spec"), "")
	case n.get("kind").string() == "TrafficExtension" && group == "extensions.istio.io":
		f.istio(n.get("spec"), n.get("spec", "wasm"), "wasm.")
	case n.get("kind").string() == "EnvoyExtensionPolicy" && group == "gateway.envoyproxy.io":
		for _, wasm := range n.get("spec", "wasm").elements() {
			f.gateway(n, wasm)
		}
		for _, module := range n.get("spec", "dynamicModule").elements() {
			f.gatewayModule(module)
		}
	case n.get("kind").string() == "RateLimitPolicy" && group == "weir.dev":
		f.policy(n.get("spec"))
	}
	if n.get("kind").string() == "ConfigMap" && n.get("apiVersion").string() == "v1" && n.get("data") != nil {
		f.configMaps = append(f.configMaps, n.get("data"))
	}
	for i, child := range n.children {
		if n.kind == kindObject && (n.names[i].text == "http_filters" || n.names[i].text == camel("http_filters")) {
			f.manager(n, child)
		} else {
			f.walk(child)
		}
	}
	if strings.HasSuffix(group, ".istio.io") && len(f.plugins) > found {
		for i := range f.plugins[found:] {
			f.plugins[found+i].resource = n
		}
		f.selects(n)
	}
}

// manager finds all plugins among the filters of a connection manager.
func (f *finder) manager(n, list *node) {
	around := f.filters
	if list.kind != kindArray {
		f.walk(list)
	}
	for i, filter := range list.elements() {
		f.filters.manager, f.filters.all, f.filters.at = n, list.elements(), i
		f.walk(filter)
	}
	f.filters = around
}

// envoy reads an envoy.extensions.wasm.v3.PluginConfig, which is in a filter's configuration.
func (f *finder) envoy(n, filter *node) {
	code := n.get("vm_config", "code")
	module := cmp.Or(code.get("local", "filename").string(), code.get("remote", "http_uri", "uri").string())
	p := plugin{vm: cmp.Or(n.get("vm_config", "vm_id"), n.get("vm_config")), filters: f.filters}
	if stops := n.get("allow_on_headers_stop_iteration"); stops == nil || stops.text != "true" {
		p.bodies = bodiesKept
	}
	if open := n.get("fail_open"); open != nil && open.text == "true" {
		p.unlimited, p.unlimitedPath = open, "fail_open"
	}
	policy := n.get("failure_policy")
	if policy.string() == "FAIL_OPEN" {
		p.unlimited, p.unlimitedPath = policy, "failure_policy"
	}
	if n == nil {
		f.add(p, module, filter, "missing config")
		return
	}
	if f.any(p, module, n, "configuration") {
		f.oneOf(policy, "failure_policy", "FAIL_RELOAD", "FAIL_CLOSED", "FAIL_OPEN", "UNSPECIFIED")
	}
}

// module reads a dynamic module's filter. Its name contains the vm_id, followed by the failure
// policy.
func (f *finder) module(n *node) {
	library := n.get("dynamic_module_config")
	module := cmp.Or(library.get("module", "local", "filename").string(), library.get("name").string())
	f.any(f.native(n, "filter_name"), module, n, "filter_config")
}

// native returns the plugin of a native filter whose name is in a field.
func (f *finder) native(n *node, field string) plugin {
	p := plugin{vm: n.get(field), filters: f.filters, native: true}
	if _, policy, _ := strings.Cut(p.vm.string(), "?"); policy == "failure_policy=FAIL_OPEN" {
		p.unlimited, p.unlimitedPath = p.vm, field
	}
	return p
}

// any reads a field of type Any, and converts it to the text that Envoy passes to the plugin.
func (f *finder) any(p plugin, module string, in *node, field string) (ours bool) {
	configuration, problem := in.get(field), ""
	value := configuration.get("value")
	switch kind := typeOf(configuration.get("@type")); {
	case configuration == nil:
		configuration, problem = in, "missing "+field
	case kind == typeStringValue && value != nil && value.kind == kindString:
		p.document = asString(f.file, value)
	case kind == typeBytesValue && value != nil && value.kind == kindString:
		text, err := base64.StdEncoding.DecodeString(value.text)
		if p.document = asText(text, value); err != nil {
			problem = "want base64 in a " + typeBytesValue
		}
	case kind == typeStruct && value != nil && value.kind == kindObject:
		of := envoysYAML
		if f.resource { // Istio and Envoy Gateway hand over JSON
			of = kubernetesYAML
		}
		p.document = f.object(value, of)
	default:
		problem = `want a configuration with "@type": "type.googleapis.com/` + typeStringValue + `" and a string as its value, or with ` +
			typeStruct + " and an object"
	}
	return f.add(p, module, configuration, problem)
}

// istio reads the spec of a WasmPlugin, or of a TrafficExtension, which has the plugin in a field.
func (f *finder) istio(spec, wasm *node, path string) {
	if wasm == nil {
		return
	}
	p := plugin{filters: f.filters, bodies: bodiesNever}
	strategy := wasm.get("fail_strategy")
	if strategy.string() == "FAIL_OPEN" {
		p.unlimited, p.unlimitedPath = strategy, path+"failStrategy"
	}
	p.filters.early = spec.get("phase").string() == "AUTHN"
	if f.kubernetes(p, wasm.get("url").string(), wasm, "pluginConfig") {
		f.oneOf(strategy, path+"failStrategy", "FAIL_RELOAD", "FAIL_CLOSE", "FAIL_OPEN")
	}
}

// gateway reads a Wasm extension of an EnvoyExtensionPolicy.
func (f *finder) gateway(policy, wasm *node) {
	p := plugin{filters: f.filters, bodies: f.gateways.bodies(policy, wasm)}
	if open := wasm.get("failOpen"); open != nil && open.text == "true" {
		p.unlimited, p.unlimitedPath = open, "failOpen"
	}
	module := cmp.Or(wasm.get("code", "http", "url").string(), wasm.get("code", "image", "url").string())
	f.kubernetes(p, module, wasm, "config")
}

// gatewayModule reads a dynamic module of an EnvoyExtensionPolicy, by its name in the list of the
// EnvoyProxy. Dynamic modules always get bodies.
func (f *finder) gatewayModule(n *node) {
	f.kubernetes(f.native(n, "filterName"), n.get("name").string(), n, "config")
}

// kubernetes reads an object that Istio or Envoy Gateway converts to a StringValue of JSON.
func (f *finder) kubernetes(p plugin, module string, in *node, field string) (ours bool) {
	n := in.get(field)
	if n == nil {
		return f.add(p, module, in, "missing "+field)
	}
	p.document = f.object(n, kubernetesYAML)
	return f.add(p, module, n, "")
}

// policy reads the rules of a RateLimitPolicy. weir controller adds the rest of the configuration.
func (f *finder) policy(spec *node) {
	for _, rules := range []*node{spec.get("rules"), spec.get("defaults", "rules"), spec.get("overrides", "rules")} {
		if rules == nil {
			continue
		}
		backend := readJSON([]byte(policyBackend))
		whole := &node{kind: kindObject, at: rules.at, names: []name{{text: "backend", at: rules.at}, {text: "rules", at: rules.at}}, children: []*node{backend, rules}}
		d := asJSON(whole, kubernetesYAML)
		d.written = true
		f.plugins = append(f.plugins, plugin{document: d, filters: f.filters, bodies: bodiesOfPolicy})
	}
}

// policyBackend stands for the backend that weir controller adds.
const policyBackend = `{"cluster": "weir_backend"}`

// object returns the document for a value of the file.
func (f *finder) object(n *node, of yamlOf) *document {
	if f.yaml {
		return asJSON(n, of)
	}
	return asFile(f.file, n.at, n.end)
}

// add adds a plugin if it is Weir's.
func (f *finder) add(p plugin, module string, n *node, problem string) (ours bool) {
	switch {
	case !strings.Contains(strings.ToLower(path.Base(module)), "weir") && !p.limits():
		return false
	case problem != "":
		f.mistakes = append(f.mistakes, mistake{at: n.at, problem: problem})
	default:
		p.document.written = true
		f.plugins = append(f.plugins, p)
	}
	return true
}

// limits reports whether the configuration has rules with limits, even if it is not valid JSON.
func (p *plugin) limits() bool {
	switch {
	case p.document == nil:
		return false
	case !json.Valid(p.document.text):
		return bytes.Contains(p.document.text, []byte(`"rules"`)) && bytes.Contains(p.document.text, []byte(`"limits"`))
	}
	return limited(readJSON(p.document.text))
}

// clusters returns the names of all clusters that an Envoy with this bootstrap has, or that a dump of its
// configuration has. It is nil if there may be others.
func clusters(bootstrap *node) map[string]bool {
	if dump := dumped(bootstrap); dump != nil {
		return dump
	}
	static := bootstrap.get("static_resources")
	if static == nil || bootstrap.get("dynamic_resources", "cds_config") != nil || bootstrap.get("dynamic_resources", "cds_resources_locator") != nil {
		return nil
	}
	names := map[string]bool{}
	for _, cluster := range static.get("clusters").elements() {
		names[cluster.get("name").string()] = true
	}
	return names
}
