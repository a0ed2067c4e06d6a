// Package envoy_test runs the configurations of this folder, and those in the documentation, on
// real Envoys. It also checks them for settings that Envoy, Istio and the plugin accept but that
// should not be there.
package envoy_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/stream/v3" // used in an Any, like the other imports without a name
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	wasmfilterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/wasm/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	wasmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/wasm/v3"
	"golang.org/x/net/http/httpguts"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protopath"
	"google.golang.org/protobuf/reflect/protorange"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	"sigs.k8s.io/yaml"

	"weir/config"
	"weir/internal/must"
)

var checks = map[string]func(text string) error{
	"envoy.yaml": checkBootstrap,
	"istio.yaml": checkIstio,
}

func TestConfigurations(t *testing.T) {
	for name, check := range checks {
		t.Run(name, func(t *testing.T) {
			must.Report(t, check(read(t, name)))
		})
	}
}

// mistake is a change of a configuration, and the expected error.
type mistake struct {
	name, before, after string
	want                string
}

// refuses makes each mistake, one at a time, in a configuration.
func refuses(t *testing.T, name string, mistakes []mistake) {
	t.Helper()
	text := read(t, name)
	for _, m := range mistakes {
		t.Run(m.name, func(t *testing.T) {
			if !strings.Contains(text, m.before) {
				t.Fatalf("%s has no %q to change", name, m.before)
			}
			err := checks[name](strings.Replace(text, m.before, m.after, 1))
			if err == nil {
				t.Fatal("accepted")
			}
			if !strings.Contains(err.Error(), m.want) {
				t.Errorf("got the error\n%v\nwant one with %q", err, m.want)
			}
		})
	}
}

func TestBootstrapMistakes(t *testing.T) {
	refuses(t, "envoy.yaml", []mistake{
		{"deprecated field", "failure_policy: FAIL_RELOAD", "fail_open: true", "fail_open is deprecated"},
		{"admin port open", "address: 127.0.0.1", "address: 0.0.0.0", "admin: want a loopback address"},
		{"equal ports", "port_value: 10002", "port_value: 10001", "taken by listener users"},
		{"client address left to defaults", "use_remote_address: true", "", "use_remote_address: want it set"},
		{"limits that fail open", "failure_policy: FAIL_RELOAD", "failure_policy: FAIL_OPEN", "failure_policy: want FAIL_RELOAD"},
		{"equal root_id", "root_id: weir_addresses", "root_id: weir_users", "root_id: taken by listener users"},
		{"backend is no cluster, string", `"cluster": "weir_backend"`, `"cluster": "weir"`, `backend.cluster: no cluster "weir"`},
		{"backend is no cluster, Struct", "cluster: weir_backend, ", "cluster: weir, ", `backend.cluster: no cluster "weir"`},
		{"no valid authority", "cluster: weir_backend, ", "cluster: weir_backend, authority: a|b, ", `backend.authority: "a|b"`},
		{"shared table differs", "capacity: 65536", "capacity: 1024", "capacity: want 65536 as in listener users"},
	})
}

func read(t *testing.T, name string) string {
	t.Helper()
	text := must.Get(os.ReadFile(name))(t)
	return string(text)
}

// unmarshal parses YAML into a message. It refuses unknown fields, also of messages in Anys, and
// fields given twice.
func unmarshal(text []byte, into proto.Message) error {
	document, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return err
	}
	return protojson.Unmarshal(document, into)
}

// checkDeprecated refuses deprecated fields, which Envoy still accepts for a while.
func checkDeprecated(m proto.Message) error {
	return protorange.Range(m.ProtoReflect(), func(p protopath.Values) error {
		last := p.Index(-1)
		if last.Step.Kind() != protopath.FieldAccessStep {
			return nil
		}
		field := last.Step.FieldDescriptor()
		if options, ok := field.Options().(*descriptorpb.FieldOptions); ok && options.GetDeprecated() {
			return fmt.Errorf("%s: %s is deprecated", p.Path, field.Name())
		}
		return nil
	})
}

// checkBootstrap checks for settings that run but are wrong.
func checkBootstrap(text string) error {
	bootstrap := new(bootstrapv3.Bootstrap)
	if err := unmarshal([]byte(text), bootstrap); err != nil {
		return err
	}
	if err := checkDeprecated(bootstrap); err != nil {
		return err
	}
	admin := bootstrap.GetAdmin().GetAddress().GetSocketAddress()
	if ip := net.ParseIP(admin.GetAddress()); ip == nil || !ip.IsLoopback() {
		return fmt.Errorf("admin: want a loopback address, got %q", admin.GetAddress())
	}
	clusters := make(map[string]bool)
	for _, c := range bootstrap.GetStaticResources().GetClusters() {
		clusters[c.GetName()] = true
	}
	ports := map[uint32]string{admin.GetPortValue(): "admin"}
	var plugins []plugin
	for _, l := range bootstrap.GetStaticResources().GetListeners() {
		port := l.GetAddress().GetSocketAddress().GetPortValue()
		if other, taken := ports[port]; taken {
			return fmt.Errorf("listener %s: port %d is taken by %s", l.GetName(), port, other)
		}
		ports[port] = "listener " + l.GetName()
		p, err := checkListener(l, clusters)
		if err != nil {
			return fmt.Errorf("listener %s: %w", l.GetName(), err)
		}
		plugins = append(plugins, p)
		if len(plugins) == 1 {
			continue
		}
		if err := checkTogether(plugins[0], p); err != nil {
			return fmt.Errorf("listener %s: %w", l.GetName(), err)
		}
	}
	return nil
}

// plugin is the Weir filter of a listener.
type plugin struct {
	listener string
	envoy    *wasmv3.PluginConfig
	weir     *config.Config
}

func checkListener(l *listenerv3.Listener, clusters map[string]bool) (plugin, error) {
	p := plugin{listener: l.GetName()}
	manager := new(hcmv3.HttpConnectionManager)
	if err := l.GetFilterChains()[0].GetFilters()[0].GetTypedConfig().UnmarshalTo(manager); err != nil {
		return p, err
	}
	if manager.GetUseRemoteAddress() == nil {
		return p, errors.New("use_remote_address: want it set, client addresses depend on it")
	}
	wasm := new(wasmfilterv3.Wasm)
	if err := manager.GetHttpFilters()[0].GetTypedConfig().UnmarshalTo(wasm); err != nil {
		return p, err
	}
	p.envoy = wasm.GetConfig()
	var err error
	if p.weir, err = checkPlugin(p.envoy, clusters); err != nil {
		return p, fmt.Errorf("plugin %s: %w", p.envoy.GetName(), err)
	}
	return p, nil
}

func checkPlugin(p *wasmv3.PluginConfig, clusters map[string]bool) (*config.Config, error) {
	if p.GetFailurePolicy() != wasmv3.FailurePolicy_FAIL_RELOAD {
		return nil, fmt.Errorf("failure_policy: want FAIL_RELOAD, got %s", p.GetFailurePolicy())
	}
	document, err := handedOver(p.GetConfiguration())
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	c, err := config.Parse(document)
	if err != nil {
		return nil, err
	}
	return c, checkBackend(c.Backend, clusters)
}

// handedOver returns a plugin's configuration as Envoy passes it to the plugin.
func handedOver(configuration *anypb.Any) ([]byte, error) {
	m, err := configuration.UnmarshalNew()
	if err != nil {
		return nil, err
	}
	switch m := m.(type) {
	case *wrapperspb.StringValue:
		return []byte(m.GetValue()), nil
	case *structpb.Struct:
		return proto.Marshal(m)
	default:
		return nil, fmt.Errorf("want a StringValue or a Struct, got %s", m.ProtoReflect().Descriptor().FullName())
	}
}

func checkBackend(b config.Backend, clusters map[string]bool) error {
	if !clusters[b.Cluster] {
		return fmt.Errorf("backend.cluster: no cluster %q", b.Cluster)
	}
	// Go's HTTP server, and so the backend, answers other hosts with 400.
	if !httpguts.ValidHostHeader(b.Authority) {
		return fmt.Errorf("backend.authority: %q is no valid Host", b.Authority)
	}
	return nil
}

// checkTogether checks the conditions for two plugins with the same VM and namespace. Its errors
// are about the second.
func checkTogether(first, second plugin) error {
	as := "as in listener " + first.listener
	switch {
	case first.envoy.GetRootId() == second.envoy.GetRootId():
		return errors.New("root_id: taken by listener " + first.listener)
	case first.weir.Capacity != second.weir.Capacity:
		return fmt.Errorf("capacity: want %d %s, got %d", first.weir.Capacity, as, second.weir.Capacity)
	}
	return nil
}
