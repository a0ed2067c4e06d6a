package envoy_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	wasmfilterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/wasm/v3"
	wasmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/wasm/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	extensionsv1alpha1 "istio.io/api/extensions/v1alpha1"

	"weir/internal/envoytest"
	"weir/internal/must"
)

// Istio's sources of 1.27 to 1.31 show its translation of a WasmPlugin:
// pilot/pkg/model/extensions.go has the plugin's message, and
// pilot/pkg/networking/core/listener_builder.go the connection manager. pkg/wasm/convert.go is the
// agent in the proxy's pod, which fetches the image and replaces it with a local file.

func TestIstioYAMLRuns(t *testing.T) {
	t.Parallel()
	onEnvoy(t, func(t *testing.T, on envoytest.Binary) {
		around := surround(t)
		m := must.Get(readMesh(substitute(t, must.Text(t, "istio.yaml"), map[string]string{"timeout: 200ms": "timeout: " + patience})))(t)
		name, filter := m.extension(t)
		p := around.run(t, on, gateway(t, around, &m, name, deliver(t, name, filter)))

		users := p.at(local, "default")
		refusal := bursts(t, 10, func(i int) (int, answer) {
			return users.untilRefused(t, "GET", "/api/items", fmt.Sprint("x-user: ann", i))
		})
		refusal.matches(t, map[string]string{
			"RateLimit-Policy":  `"per-user";q=10;w=1, "per-user.2";q=300;w=60`,
			"X-RateLimit-Limit": "10",
			"Upstream-Saw":      "",
		})
		users.send(t, "GET", "/api/items", "x-user: bob").passes(t, "per-user", 9, "another user")
		users.send(t, "GET", "/", "x-user: ann0").passes(t, "per-user", -1, "a path that is not limited")
		one, other, normalized := p.at("127.0.0.2", "default"), p.at("127.0.0.3", "default"), p.at("127.0.0.2", "normalizing")
		for i := range 5 {
			one.send(t, "POST", "/login").passes(t, "login", 4-i, "login %d", i)
		}
		one.send(t, "POST", "/login", "x-forwarded-for: 127.0.0.3").refused(t, "login 6")
		must.Equal(t, other.send(t, "POST", "/login").status, http.StatusOK, "login of another address")
		// Istio normalizes these paths by default, and with pathNormalization.
		for _, target := range []string{"/%6cogin", "/x/../login", "/x/%2e%2e/login"} {
			one.send(t, "POST", target).refused(t, "POST %s", target)
		}
		for _, target := range []string{"//login", "/%2flogin", "/x%2f..%2flogin"} {
			one.send(t, "POST", target).passes(t, "login", -1, "POST %s, without pathNormalization (the README can say otherwise)", target)
			normalized.send(t, "POST", target).refused(t, "POST %s, with pathNormalization", target)
		}
		p.until(t, "the backend to have the hits", func() (bool, error) {
			hits, err := p.backend.counted("gateway", "sliding_window", time.Minute)
			return hits >= 10, err
		})
		p.measures(t, "gateway")
		must.Same(t, p.backend.asked(), []string{m.backendHost()}, "callouts")
	})
}

// extension returns the plugin's filter as Istio's proxies get it.
func (m *mesh) extension(t *testing.T) (resource string, filter *wasmfilterv3.Wasm) {
	t.Helper()
	spec := m.plugin.Spec
	// The fields are in the order of their names, and numbers as Go writes them.
	document := must.Get(json.Marshal(spec.GetPluginConfig().AsMap()))(t)
	policies := map[extensionsv1alpha1.FailStrategy]wasmv3.FailurePolicy{
		extensionsv1alpha1.FailStrategy_FAIL_CLOSE:  wasmv3.FailurePolicy_FAIL_CLOSED,
		extensionsv1alpha1.FailStrategy_FAIL_OPEN:   wasmv3.FailurePolicy_FAIL_OPEN,
		extensionsv1alpha1.FailStrategy_FAIL_RELOAD: wasmv3.FailurePolicy_FAIL_RELOAD,
	}
	name := m.plugin.Metadata.Namespace + "." + m.plugin.Metadata.Name + "~istio-translated-wasmplugin" // the name since 1.30
	return "extensions.istio.io/trafficextension/" + name, &wasmfilterv3.Wasm{Config: &wasmv3.PluginConfig{
		Name:          name,
		RootId:        spec.GetPluginName(),
		FailurePolicy: policies[spec.GetFailStrategy()],
		Configuration: packed(t, wrapperspb.String(string(document))),
		// There is no vm_id.
		Vm: &wasmv3.PluginConfig_VmConfig{VmConfig: &wasmv3.VmConfig{
			Runtime: "envoy.wasm.runtime.v8",
			Code: &corev3.AsyncDataSource{Specifier: &corev3.AsyncDataSource_Local{
				Local: &corev3.DataSource{Specifier: &corev3.DataSource_Filename{Filename: pluginFile(t)}},
			}},
		}},
	}}
}

func packed(t *testing.T, m proto.Message) *anypb.Any {
	t.Helper()
	return must.Get(anypb.New(m))(t)
}

// backendHost returns the host of callouts.
func (m *mesh) backendHost() string {
	return m.service.Metadata.Name + "." + m.service.Metadata.Namespace + ".svc.cluster.local"
}

// deliver writes a filter's resource into a file, which an Envoy reads in place of a control plane.
func deliver(t *testing.T, name string, filter *wasmfilterv3.Wasm) (file string) {
	t.Helper()
	resource := must.Get(protojson.Marshal(packed(t, &corev3.TypedExtensionConfig{Name: name, TypedConfig: packed(t, filter)})))(t)
	response := must.Get(json.Marshal(envoytest.Object{"version_info": "1", "resources": []json.RawMessage{resource}}))(t)
	file = filepath.Join(t.TempDir(), "ecds.json")
	must.OK(t, os.WriteFile(file, response, 0o600))
	return file
}

// gateway returns the bootstrap of an Envoy like Istio's ingress gateway, with the filter from a
// file. Its listener default is like Istio's default, which normalizes with pathNormalization
// DECODE_AND_MERGE_SLASHES.
func gateway(t *testing.T, around surroundings, m *mesh, resource, file string) []byte {
	t.Helper()
	listener := func(name string, more envoytest.Object) envoytest.Object {
		manager := envoytest.Object{
			"use_remote_address": true,
			"normalize_path":     true,
			"http_filters": []envoytest.Object{
				{"name": resource, "config_discovery": envoytest.Object{
					"config_source": envoytest.Object{
						"resource_api_version": "V3", "initial_fetch_timeout": "0s", "path_config_source": envoytest.Object{"path": file},
					},
					"type_urls": []string{
						"type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm",
						"type.googleapis.com/envoy.extensions.filters.http.rbac.v3.RBAC",
					},
				}},
				{"name": "envoy.filters.http.router", "typed_config": envoytest.Typed("envoy.extensions.filters.http.router.v3.Router", nil)},
			},
		}
		maps.Copy(manager, more)
		return httpListener(name, manager)
	}
	bootstrap := must.Get(json.Marshal(envoytest.Object{
		"node":         envoytest.Object{"id": "gateway", "cluster": "gateway"},
		"admin":        envoytest.Object{"address": envoytest.Address("127.0.0.1", 0)},
		"stats_config": statistics(t),
		"static_resources": envoytest.Object{
			"listeners": []envoytest.Object{
				listener("default", nil),
				listener("normalizing", envoytest.Object{"merge_slashes": true, "path_with_escaped_slashes_action": "UNESCAPE_AND_FORWARD"}),
			},
			"clusters": []envoytest.Object{
				envoytest.Cluster(fmt.Sprintf("outbound|%d||%s", m.service.Spec.Ports[0].Port, m.backendHost()), around.backend.address),
				envoytest.Cluster("shop", around.upstream),
			},
		},
	}))(t)
	return bootstrap
}

// statistics returns Istio's settings of statistics, from
// tools/packaging/common/envoy_bootstrap.json, with the tags of the README.
func statistics(t *testing.T) envoytest.Object {
	t.Helper()
	match := regexp.MustCompile(`extraStatTags: \[([a-z_, ]+)\]`).FindStringSubmatch(must.Text(t, "README.md"))
	if match == nil {
		t.Fatal("README.md: want extraStatTags: […]")
	}
	var tags []envoytest.Object
	for tag := range strings.SplitSeq(match[1], ", ") {
		tags = append(tags, envoytest.Object{"tag_name": tag, "regex": "(" + tag + `=\.=(.*?);\.;)`})
	}
	var included []envoytest.Object
	for _, prefix := range []string{"reporter=", "cluster_manager", "listener_manager", "server", "cluster.xds-grpc", "wasm", "component", "istio"} {
		included = append(included, envoytest.Object{"prefix": prefix})
	}
	return envoytest.Object{
		"use_all_default_tags": false,
		"stats_tags":           tags,
		"stats_matcher":        envoytest.Object{"inclusion_list": envoytest.Object{"patterns": included}},
	}
}
