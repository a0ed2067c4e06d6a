// Package envoy_test runs the configurations of this folder, and those in the documentation, on
// real Envoys. It also checks that parts of them fit together, where Envoy, Istio and the plugin accept
// what does not.
package envoy_test

import (
	"fmt"
	"testing"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/stream/v3" // used in an Any, like the other imports without a name
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	wasmfilterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/wasm/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	wasmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/wasm/v3"
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

// The plugins of envoy.yaml share a virtual machine and a namespace: each needs its own root_id, and both the same capacity and
// backend. What else could be wrong in the file shows as it runs.
func TestEnvoyYAML(t *testing.T) {
	t.Parallel()
	bootstrap := new(bootstrapv3.Bootstrap)
	must.OK(t, unmarshal([]byte(must.Text(t, "envoy.yaml")), bootstrap))
	must.OK(t, checkDeprecated(bootstrap))
	listeners := bootstrap.GetStaticResources().GetListeners()
	roots, shared := map[string]bool{}, map[string]bool{}
	for _, l := range listeners {
		manager, filter := new(hcmv3.HttpConnectionManager), new(wasmfilterv3.Wasm)
		must.OK(t, l.GetFilterChains()[0].GetFilters()[0].GetTypedConfig().UnmarshalTo(manager))
		must.OK(t, manager.GetHttpFilters()[0].GetTypedConfig().UnmarshalTo(filter))
		plugin := filter.GetConfig()
		if manager.GetUseRemoteAddress() == nil || plugin.GetFailurePolicy() != wasmv3.FailurePolicy_FAIL_RELOAD {
			t.Errorf("listener %s: want use_remote_address set, as client addresses depend on it, and failure_policy FAIL_RELOAD", l.GetName())
		}
		c := must.Get(config.Parse(handedOver(t, plugin.GetConfiguration())))(t)
		roots[plugin.GetRootId()], shared[fmt.Sprint(c.Capacity, c.Backend)] = true, true
	}
	if len(listeners) != 2 || len(roots) != 2 || len(shared) != 1 {
		t.Errorf("%d listeners with the root_ids %v, and the capacity and backend %v: want two, with one capacity and backend", len(listeners), roots, shared)
	}
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

// handedOver returns a plugin's configuration as Envoy passes it to the plugin.
func handedOver(t *testing.T, configuration *anypb.Any) []byte {
	t.Helper()
	m := must.Get(configuration.UnmarshalNew())(t)
	if text, ok := m.(*wrapperspb.StringValue); ok {
		return []byte(text.GetValue())
	}
	return must.Get(proto.Marshal(m.(*structpb.Struct)))(t)
}
