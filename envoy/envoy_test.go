// Package envoy_test reads the configurations of this folder as Envoy, Istio and the plugin do, and more strictly.
package envoy_test

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	streamv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/stream/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	wasmfilterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/wasm/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3" // occurs in an Any
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
)

var checks = map[string]func(text string) error{
	"envoy.yaml": checkBootstrap,
	"istio.yaml": checkIstio,
}

func TestConfigurations(t *testing.T) {
	for name, check := range checks {
		t.Run(name, func(t *testing.T) {
			if err := check(read(t, name)); err != nil {
				t.Error(err)
			}
		})
	}
}

// mistake is a change of a configuration, and what the error then says.
type mistake struct {
	name, before, after string
	want                string
}

// refuses makes each mistake, one at a time, in the configuration of that name.
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
		{"unknown field", "stat_prefix: users", "stats_prefix: users", `unknown field "stats_prefix"`},
		{"unknown field in an Any", "failure_policy: FAIL_RELOAD", "fail_policy: FAIL_RELOAD", `unknown field "fail_policy"`},
		{"unknown enum value", "failure_policy: FAIL_RELOAD", "failure_policy: FAIL_RETRY", "FAIL_RETRY"},
		{"unknown type", "stream.v3.StdoutAccessLog", "stream.v3.StdoutLog", "StdoutLog"},
		{"deprecated field", "failure_policy: FAIL_RELOAD", "fail_open: true", "fail_open is deprecated"},
		{"field twice", "xff_num_trusted_hops: 0", "xff_num_trusted_hops: 0\n                xff_num_trusted_hops: 1", "already set"},
		{"value outside its bounds", "port_value: 9180", "port_value: 91800", "PortValue"},
		{"value outside its bounds in an Any", "stat_prefix: users", `stat_prefix: ""`, "StatPrefix"},
		{"admin port open", "address: 127.0.0.1", "address: 0.0.0.0", "admin: want a loopback address"},
		{"label that stays in names", "tag_name: weir_rule, regex: '(weir_rule=", "tag_name: weir_rule, regex: '(rule=", "stats_config: stats_tags: want"},
		{"label that is missing", "    - { tag_name: weir_outcome", "    # - { tag_name: weir_outcome", "stats_config: stats_tags: want"},
		{"label that takes the next ones", "(weir_namespace=\\.=(.*?);", "(weir_namespace=\\.=(.*);", "stats_config: stats_tags: want"},
		{"equal ports", "port_value: 10002", "port_value: 10001", "taken by listener users"},
		{"client address left to defaults", "use_remote_address: true", "", "use_remote_address: want it set"},
		{"log without details", "%RESPONSE_CODE_DETAILS%", "", "access_log: want %RESPONSE_CODE_DETAILS%"},
		{"route to no cluster", "route: { cluster: app }", "route: { cluster: shop }", `no cluster "shop"`},
		{"cluster of other endpoints", "cluster_name: app", "cluster_name: shop", "load_assignment: want cluster_name app"},
		{"plugin behind a router", "http_filters:\n", "http_filters:\n                  - { name: first, typed_config: " +
			"{ \"@type\": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router } }\n", "want the router last"},
		{"filter without a type", "http_filters:\n", "http_filters:\n                  - { name: first }\n", "http_filters[0]:"},
		{"plugin twice", "                  - *router", "                  - { name: again, typed_config: " +
			"{ \"@type\": type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm } }\n                  - *router",
			"http_filters[1]: want the plugin once"},
		{"two filter chains", "filter_chains:\n", "filter_chains:\n        - { filters: [] }\n", "want one filter chain"},
		{"no filters", "http_filters:", "early_header_mutation_extensions:", "want the plugin"},
		{"limits that fail open", "failure_policy: FAIL_RELOAD", "failure_policy: FAIL_OPEN", "failure_policy: want FAIL_RELOAD"},
		{"other vm_id", "vm_config: *weir_vm",
			"vm_config: { vm_id: mine, runtime: envoy.wasm.runtime.v8, code: { local: { filename: /etc/envoy/weir.wasm } } }",
			`vm_id: want "weir" as in listener users, got "mine"`},
		{"other file", "vm_config: *weir_vm",
			"vm_config: { vm_id: weir, runtime: envoy.wasm.runtime.v8, code: { local: { filename: /tmp/weir.wasm } } }",
			"vm_config: want it as in listener users"},
		{"equal root_id", "root_id: weir_addresses", "root_id: weir_users", "root_id: taken by listener users"},
		{"configuration of an unknown kind", "google.protobuf.StringValue", "google.protobuf.Value", "want a StringValue or a Struct"},
		{"bad configuration in a string", `"window": "1s"`, `"window": "1 second"`, `rules[0].limits[0].window: want a duration`},
		{"bad configuration in a Struct", "methods: [POST]", "method: POST", "rules[1].match.method: unknown field"},
		{"two bad fields", `"sync_rate": 1,`, `"sync_rte": 1, "capacty": 2,`, "capacty"},
		{"backend is no cluster, string", `"cluster": "weir_backend"`, `"cluster": "weir"`, `backend.cluster: no cluster "weir"`},
		{"backend is no cluster, Struct", "cluster: weir_backend, ", "cluster: weir, ", `backend.cluster: no cluster "weir"`},
		{"no valid authority", "cluster: weir_backend, ", "cluster: weir_backend, authority: a|b, ", `backend.authority: "a|b"`},
		{"shared rule differs", "limit: 60000,", "limit: 6000,", "rule total: want it as in listener users"},
		{"shared table differs", "capacity: 65536", "capacity: 1024", "capacity: want 65536 as in listener users"},
		{"other namespace", "namespace: default", "namespace: mine", `namespace: want "default" as in listener users`},
		{"no rule shared", `"name": "total"`, `"name": "all"`, "rules: want one that listener users has too"},
	})
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// unmarshal reads YAML into a message. It refuses unknown fields, of messages in Anys too, and fields given twice.
func unmarshal(text []byte, into proto.Message) error {
	document, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return err
	}
	return protojson.Unmarshal(document, into)
}

// validate runs the rules that Envoy's API has for its messages, on those in Anys too, and refuses deprecated fields.
func validate(m proto.Message) error {
	return protorange.Range(m.ProtoReflect(), func(p protopath.Values) error {
		last := p.Index(-1)
		switch last.Step.Kind() {
		case protopath.FieldAccessStep:
			field := last.Step.FieldDescriptor()
			if options, ok := field.Options().(*descriptorpb.FieldOptions); ok && options.GetDeprecated() {
				return fmt.Errorf("%s: %s is deprecated", p.Path, field.Name())
			}
		case protopath.RootStep, protopath.AnyExpandStep:
			// google.protobuf's own types have no rules.
			if v, ok := last.Value.Message().Interface().(interface{ ValidateAll() error }); ok {
				if err := v.ValidateAll(); err != nil {
					return fmt.Errorf("%s: %w", p.Path, err)
				}
			}
		}
		return nil
	})
}

func checkBootstrap(text string) error {
	bootstrap := new(bootstrapv3.Bootstrap)
	if err := unmarshal([]byte(text), bootstrap); err != nil {
		return err
	}
	if err := validate(bootstrap); err != nil {
		return err
	}
	admin := bootstrap.GetAdmin().GetAddress().GetSocketAddress()
	if ip := net.ParseIP(admin.GetAddress()); ip == nil || !ip.IsLoopback() {
		return fmt.Errorf("admin: want a loopback address, got %q", admin.GetAddress())
	}
	if err := checkStatsTags(bootstrap); err != nil {
		return fmt.Errorf("stats_config: %w", err)
	}
	clusters := make(map[string]bool)
	for _, c := range bootstrap.GetStaticResources().GetClusters() {
		if c.GetLoadAssignment().GetClusterName() != c.GetName() {
			return fmt.Errorf("cluster %s: load_assignment: want cluster_name %[1]s", c.GetName())
		}
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

// checkStatsTags cuts the labels out of a metric's name as Envoy does: what an expression's first group matches goes, and the second
// is the value.
func checkStatsTags(bootstrap *bootstrapv3.Bootstrap) error {
	name := "wasmcustom.weir.weir_namespace=.=eu.shop-1;.;weir_rule=.=per-user;.;weir_outcome=.=allowed;.;requests_total"
	rest, labels := name, map[string]string{}
	for _, tag := range bootstrap.GetStatsConfig().GetStatsTags() {
		expression, err := regexp.Compile(tag.GetRegex())
		if err != nil {
			return fmt.Errorf("tag %s: %w", tag.GetTagName(), err)
		}
		if groups := expression.FindStringSubmatch(name); len(groups) == 3 {
			rest, labels[tag.GetTagName()] = strings.Replace(rest, groups[1], "", 1), groups[2]
		}
	}
	want := map[string]string{"weir_namespace": "eu.shop-1", "weir_rule": "per-user", "weir_outcome": "allowed"}
	if rest != "wasmcustom.weir.requests_total" || !maps.Equal(labels, want) {
		return fmt.Errorf("stats_tags: want those of Weir's metrics, got %v and %s of %s", labels, rest, name)
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
	if len(l.GetFilterChains()) != 1 || len(l.GetFilterChains()[0].GetFilters()) != 1 {
		return plugin{}, errors.New("want one filter chain of one filter")
	}
	manager := new(hcmv3.HttpConnectionManager)
	if err := l.GetFilterChains()[0].GetFilters()[0].GetTypedConfig().UnmarshalTo(manager); err != nil {
		return plugin{}, err
	}
	if manager.GetUseRemoteAddress() == nil {
		return plugin{}, errors.New("use_remote_address: want it set, client addresses depend on it")
	}
	if err := checkAccessLog(manager); err != nil {
		return plugin{}, fmt.Errorf("access_log: %w", err)
	}
	for _, host := range manager.GetRouteConfig().GetVirtualHosts() {
		for i, route := range host.GetRoutes() {
			if name := route.GetRoute().GetCluster(); !clusters[name] {
				return plugin{}, fmt.Errorf("virtual host %s: routes[%d]: no cluster %q", host.GetName(), i, name)
			}
		}
	}
	p := plugin{listener: l.GetName()}
	filters := manager.GetHttpFilters()
	for i, f := range filters {
		m, err := f.GetTypedConfig().UnmarshalNew()
		if err != nil {
			return plugin{}, fmt.Errorf("http_filters[%d]: %w", i, err)
		}
		// Filters behind the router never see a request.
		if _, isRouter := m.(*routerv3.Router); isRouter != (i == len(filters)-1) {
			return plugin{}, fmt.Errorf("http_filters[%d]: want the router last, and only there", i)
		}
		if wasm, ok := m.(*wasmfilterv3.Wasm); ok {
			if p.envoy != nil {
				return plugin{}, fmt.Errorf("http_filters[%d]: want the plugin once", i)
			}
			p.envoy = wasm.GetConfig()
		}
	}
	if p.envoy == nil {
		return plugin{}, errors.New("http_filters: want the plugin")
	}
	var err error
	if p.weir, err = checkPlugin(p.envoy, clusters); err != nil {
		return plugin{}, fmt.Errorf("plugin %s: %w", p.envoy.GetName(), err)
	}
	return p, nil
}

func checkAccessLog(manager *hcmv3.HttpConnectionManager) error {
	const details = "%RESPONSE_CODE_DETAILS%"
	for _, log := range manager.GetAccessLog() {
		stdout := new(streamv3.StdoutAccessLog)
		if err := log.GetTypedConfig().UnmarshalTo(stdout); err != nil {
			return err
		}
		if strings.Contains(stdout.GetLogFormat().GetTextFormatSource().GetInlineString(), details) {
			return nil
		}
	}
	return errors.New("want " + details + ", which tells Weir's answers from the upstream's")
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

// handedOver returns a plugin's configuration as Envoy gives it to the plugin.
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
	// Go's HTTP server, and so the backend, answers others with 400.
	if !httpguts.ValidHostHeader(b.Authority) {
		return fmt.Errorf("backend.authority: %q is no valid Host", b.Authority)
	}
	return nil
}

// checkTogether checks what two plugins need to share a VM and counters; its errors speak of the second.
func checkTogether(first, second plugin) error {
	as := "as in listener " + first.listener
	a, b := first.envoy, second.envoy
	switch {
	case a.GetVmConfig().GetVmId() != b.GetVmConfig().GetVmId():
		return fmt.Errorf("vm_id: want %q %s, got %q", a.GetVmConfig().GetVmId(), as, b.GetVmConfig().GetVmId())
	case !proto.Equal(a.GetVmConfig(), b.GetVmConfig()):
		return errors.New("vm_config: want it " + as + ", or each has a VM of its own")
	case a.GetRootId() == b.GetRootId():
		return errors.New("root_id: taken by listener " + first.listener)
	case first.weir.Namespace != second.weir.Namespace:
		return fmt.Errorf("namespace: want %q %s, got %q", first.weir.Namespace, as, second.weir.Namespace)
	case first.weir.Capacity != second.weir.Capacity:
		return fmt.Errorf("capacity: want %d %s, got %d", first.weir.Capacity, as, second.weir.Capacity)
	}
	shared := false
	for _, rule := range first.weir.Rules {
		for _, other := range second.weir.Rules {
			if rule.Name != other.Name {
				continue
			}
			if !reflect.DeepEqual(rule, other) {
				return fmt.Errorf("rule %s: want it %s", rule.Name, as)
			}
			shared = true
		}
	}
	if !shared {
		return errors.New("rules: want one that listener " + first.listener + " has too")
	}
	return nil
}
