package main

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"weir/controller/policy"
)

// owned are the labels of what controllers write. That named release has the namespace of a controller's lease, as others may be in
// the cluster.
var owned = map[string]string{"app.kubernetes.io/managed-by": "weir-controller"}

const release = "weir.dev/release"

// Kinds that implementations take.
var (
	wasmPlugin      = schema.GroupVersionKind{Group: "extensions.istio.io", Version: "v1alpha1", Kind: "WasmPlugin"}
	envoyFilter     = schema.GroupVersionKind{Group: "networking.istio.io", Version: "v1alpha3", Kind: "EnvoyFilter"}
	extensionPolicy = schema.GroupVersionKind{Group: "gateway.envoyproxy.io", Version: "v1alpha1", Kind: "EnvoyExtensionPolicy"}
	patchPolicy     = schema.GroupVersionKind{Group: "gateway.envoyproxy.io", Version: "v1alpha1", Kind: "EnvoyPatchPolicy"}

	kinds = map[policy.Implementation][]schema.GroupVersionKind{
		policy.Istio: {wasmPlugin, envoyFilter}, policy.EnvoyGateway: {extensionPolicy, patchPolicy},
	}
)

// writer makes of configurations what implementations take, as charts/weir does.
type writer struct {
	plugin, pull   string
	host, port     string // of the backend, empty if there is none
	token, trusted string
	release        string // the namespace of the lease
	present        map[schema.GroupVersionKind]bool
}

// find looks for the kinds that the API server has.
func (w *writer) find(mapper meta.RESTMapper) error {
	w.present = map[schema.GroupVersionKind]bool{}
	for _, some := range kinds {
		for _, kind := range some {
			_, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
			if err != nil && !meta.IsNoMatchError(err) {
				return err
			}
			w.present[kind] = err == nil
		}
	}
	return nil
}

// missing is a kind that an implementation needs and the API server lacks, or empty.
func (w *writer) missing(i policy.Implementation) string {
	for _, kind := range kinds[i] {
		if !w.present[kind] {
			return kind.Kind
		}
	}
	return ""
}

// cached has the client read nothing that another has made.
func (w *writer) cached() map[client.Object]cache.ByObject {
	by := map[client.Object]cache.ByObject{}
	for kind, present := range w.present {
		if present {
			by[object(kind, types.NamespacedName{})] = cache.ByObject{Label: labels.SelectorFromSet(owned)}
		}
	}
	return by
}

func object(kind schema.GroupVersionKind, name types.NamespacedName) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(kind)
	o.SetNamespace(name.Namespace)
	o.SetName(name.Name)
	return o
}

// with is a base configuration with the backend that an implementation's Envoys have.
func (w *writer) with(base map[string]json.RawMessage, i policy.Implementation) ([]byte, error) {
	all := map[string]any{}
	for field, value := range base {
		all[field] = value
	}
	if w.host != "" {
		backend := map[string]any{}
		if given, there := base["backend"]; there {
			if err := json.Unmarshal(given, &backend); err != nil {
				return nil, fmt.Errorf("backend: %w", err)
			}
			if backend == nil {
				return nil, errors.New("backend: want an object, got null")
			}
		}
		backend["cluster"], backend["authority"] = cluster, w.host
		if i == policy.Istio {
			backend["cluster"] = "outbound|" + w.port + "||" + w.host
		}
		if w.token != "" {
			backend["token"] = w.token
		}
		all["backend"] = backend
	}
	return json.Marshal(all)
}

// domain is the cluster's, which the backend's name ends with.
func (w *writer) domain() string {
	_, domain, _ := strings.Cut(w.host, ".svc.")
	return cmp.Or(domain, "cluster.local")
}

// cluster is the backend's in Envoys of Envoy Gateway.
const cluster = "weir_backend"

type fields = map[string]any

// objects are what a Gateway needs for its plugins' configurations.
func (w *writer) objects(g *policy.Gateway, configurations [][]byte) ([]*unstructured.Unstructured, error) {
	if len(configurations) == 0 {
		return nil, nil
	}
	var plugins []any
	for _, text := range configurations {
		var rules map[string]json.RawMessage
		if err := json.Unmarshal(text, &rules); err != nil {
			return nil, err
		}
		whole, err := w.with(rules, g.Implementation)
		if err != nil {
			return nil, err
		}
		plugins = append(plugins, json.RawMessage(whole))
	}
	if g.Implementation == policy.Istio {
		return w.istio(g, plugins)
	}
	return w.envoyGateway(g, plugins)
}

// configurationsOf are those of an object's plugins.
func configurationsOf(o *unstructured.Unstructured) (all []fields) {
	plugins, _, _ := unstructured.NestedSlice(o.Object, "spec", "wasm")
	for _, plugin := range append(plugins, o.Object["spec"]) {
		plugin, _ := plugin.(fields)
		for _, name := range []string{"config", "pluginConfig"} {
			if configuration, ok := plugin[name].(fields); ok {
				all = append(all, configuration)
			}
		}
	}
	return all
}

// pluginName is that of a Gateway's plugin, of which there may be more than one.
func pluginName(i int) string {
	if i == 0 {
		return "weir"
	}
	return "weir-" + strconv.Itoa(i+1)
}

func targetOf(g *policy.Gateway) fields {
	return fields{"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": g.Name}
}

func (w *writer) istio(g *policy.Gateway, plugins []any) (all []*unstructured.Unstructured, err error) {
	for i, configuration := range plugins {
		name := "weir-" + g.Name
		if i > 0 {
			name = "weir" + strconv.Itoa(i+1) + "-" + g.Name // no other Gateway's, such as that of 2-public
		}
		o, err := w.made(wasmPlugin, g, name, nil, fields{
			"targetRefs": []any{targetOf(g)}, "url": "oci://" + w.plugin, "imagePullPolicy": w.pull, "phase": "AUTHZ", "failStrategy": "FAIL_RELOAD",
			"priority": len(plugins) - i, "pluginConfig": configuration,
		})
		if err != nil {
			return nil, err
		}
		all = append(all, o)
	}
	if w.host == "" {
		return all, nil
	}
	// Keeps the backend's cluster where istiod sends gateways only what their routes need.
	namespace := strings.SplitN(w.host+"..", ".", 3)[1]
	o, err := w.made(envoyFilter, g, "weir-"+g.Name, map[string]string{"envoyfilter.istio.io/referenced-services": namespace + "/" + w.host}, fields{
		"targetRefs": []any{targetOf(g)}, "configPatches": []any{},
	})
	return append(all, o), err
}

func (w *writer) envoyGateway(g *policy.Gateway, plugins []any) (all []*unstructured.Unstructured, err error) {
	var wasm, patches []any
	for i, configuration := range plugins {
		name := pluginName(i)
		wasm = append(wasm, fields{
			"name": name, "rootID": "weir", "failOpen": false, "config": configuration,
			"code": fields{"type": "Image", "image": fields{"url": w.plugin}, "pullPolicy": w.pull},
		})
		for _, listener := range g.Listeners {
			// The plugin gets requests' bodies, and restarts after a failure.
			for _, add := range []struct {
				field string
				value any
			}{{"allow_on_headers_stop_iteration", true}, {"failure_policy", "FAIL_RELOAD"}} {
				patches = append(patches, fields{
					"type": "type.googleapis.com/envoy.config.listener.v3.Listener", "name": g.Namespace + "/" + g.Name + "/" + listener.Name,
					"operation": fields{"op": "add", "jsonPath": `$..http_filters[?(@.typed_config.config.name=="` + name + `")].typed_config.config`, "path": "/" + add.field, "value": add.value},
				})
			}
		}
	}
	if w.host != "" {
		// A route to the backend would let clients reach it.
		patches = append(patches, fields{
			"type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "name": cluster,
			"operation": fields{"op": "add", "path": "", "value": w.cluster()},
		})
	}
	o, err := w.made(extensionPolicy, g, "weir-"+g.Name, nil, fields{"targetRefs": []any{targetOf(g)}, "wasm": wasm})
	if err != nil {
		return nil, err
	}
	patch, err := w.made(patchPolicy, g, "weir-"+g.Name, nil, fields{"targetRef": targetOf(g), "type": "JSONPatch", "jsonPatches": patches})
	return []*unstructured.Unstructured{o, patch}, err
}

// cluster is the backend's, in Envoy's form.
func (w *writer) cluster() fields {
	port, _ := strconv.Atoi(w.port)
	c := fields{
		"name": cluster, "type": "STRICT_DNS", "connect_timeout": "1s", "dns_lookup_family": "V4_PREFERRED",
		"load_assignment": fields{"cluster_name": cluster, "endpoints": []any{fields{"lb_endpoints": []any{fields{
			"endpoint": fields{"address": fields{"socket_address": fields{"address": w.host, "port_value": port}}},
		}}}}},
	}
	if w.trusted != "" {
		c["transport_socket"] = fields{"name": "envoy.transport_sockets.tls", "typed_config": fields{
			"@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext", "sni": w.host,
			"common_tls_context": fields{"validation_context": fields{
				"trusted_ca":                    fields{"filename": w.trusted},
				"match_typed_subject_alt_names": []any{fields{"san_type": "DNS", "matcher": fields{"exact": w.host}}},
			}},
		}}
	}
	return c
}

// sum is the annotation with which the controller sees that it has written a spec.
const sum = "weir.dev/sum"

// made is an object in the form that the client reads.
func (w *writer) made(kind schema.GroupVersionKind, g *policy.Gateway, name string, annotations map[string]string, spec fields) (*unstructured.Unstructured, error) {
	text, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	o := object(kind, types.NamespacedName{Namespace: g.Namespace, Name: name})
	digest := sha256.Sum256(text)
	all := map[string]string{sum: hex.EncodeToString(digest[:8])}
	maps.Copy(all, annotations)
	o.SetAnnotations(all)
	labels := maps.Clone(owned)
	labels[release] = w.release
	o.SetLabels(labels)
	var read fields
	if err := utiljson.Unmarshal(text, &read); err != nil {
		return nil, err
	}
	o.Object["spec"] = read
	return o, nil
}

// has reports whether one value has all of another's. An API server adds defaults, but none to a plugin's configuration,
// which has to be the other's.
func has(one, other any) bool {
	switch other := other.(type) {
	case fields:
		one, ok := one.(fields)
		for field, value := range other {
			exactly := field == "pluginConfig" || field == "config"
			if !ok || !has(one[field], value) || exactly && !has(value, one[field]) {
				return false
			}
		}
		return ok
	case []any:
		one, ok := one.([]any)
		return ok && slices.EqualFunc(one, other, has)
	}
	return reflect.DeepEqual(one, other)
}
