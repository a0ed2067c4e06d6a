package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"weir/controller/policy"
	"weir/internal/check"
	"weir/internal/must"
)

// base is the configuration of newWriter's plugins without rules.
var base = map[string]json.RawMessage{"sync_rate": []byte("1"), "backend": []byte(`{"timeout": "100ms"}`)}

func newWriter() *writer {
	return &writer{plugin: "registry.example/weir-plugin:v1", pull: "Always", host: "weir.weir-system.svc.cluster.local", port: "9180", token: "secret", trusted: "/ca.crt"}
}

// What is written is what weir check takes, and what the chart's own files look like.
func TestObjects(t *testing.T) {
	rules := []byte(`{"namespace": "shop", "rules": [{"name": "tokens", "cost_on_response": "openai", "reserve": {"request_json": "max_tokens", "default": 1}, "limits": [{"limit": 1, "window": "1h"}]}], "sync_rate": 1, "backend": {"timeout": "100ms"}}`)
	for implementation, want := range map[policy.Implementation][]string{
		policy.Istio: {
			`"cluster":"outbound|9180||weir.weir-system.svc.cluster.local"`, `"token":"secret"`, `"timeout":"100ms"`, `"url":"oci://registry.example/weir-plugin:v1"`, `"priority":2`, `"name":"weir2-public"`,
			`"envoyfilter.istio.io/referenced-services":"weir-system/weir.weir-system.svc.cluster.local"`, `"targetRefs":[{"group":"gateway.networking.k8s.io","kind":"Gateway","name":"public"}]`,
		},
		policy.EnvoyGateway: {
			`"cluster":"weir_backend"`, `"authority":"weir.weir-system.svc.cluster.local"`, `"url":"registry.example/weir-plugin:v1"`, `"pullPolicy":"Always"`, `"trusted_ca":{"filename":"/ca.crt"}`,
			`"name":"shop/public/http"`, `config.name==\"weir-2\"`, `"port_value":9180`,
		},
	} {
		g := &policy.Gateway{NamespacedName: types.NamespacedName{Namespace: "shop", Name: "public"}, Implementation: implementation, Listeners: []policy.Listener{{Name: "http", Port: 80}}}
		objects := must.Get(newWriter().objects(g, [][]byte{rules, rules}))(t)
		var all strings.Builder
		for _, o := range objects {
			text := must.Get(o.MarshalJSON())(t)
			all.WriteString("---\n" + strings.ReplaceAll(string(text), `\u003e`, ">"))
			must.Equal(t, gatewayOf(o), g.NamespacedName, "%s is of", text)
		}
		for _, part := range want {
			must.Contains(t, all.String(), part, "%s", implementation)
		}
		report := check.File("objects.yaml", []byte(all.String()))
		must.Equal(t, report.Refused(), false, "%s: refused: %+v", implementation, report.Findings)
		must.Equal(t, report.Configurations, 2, "%s: configurations: %+v", implementation, report.Findings)
		for _, f := range report.Findings {
			if implementation == policy.EnvoyGateway && strings.Contains(f.Problem, "default is taken") {
				t.Errorf("the plugin gets no bodies: %+v", f)
			}
		}
	}
}

// No two Gateways of a namespace have an object of the same name, however many plugins they have.
func TestNamesOfObjects(t *testing.T) {
	seen := map[string]string{}
	for _, name := range []string{"public", "2-public", "2-2-public", "public-2"} {
		g := &policy.Gateway{NamespacedName: types.NamespacedName{Namespace: "shop", Name: name}, Implementation: policy.Istio}
		objects := must.Get(newWriter().objects(g, [][]byte{[]byte(`{}`), []byte(`{}`), []byte(`{}`)}))(t)
		for _, o := range objects {
			key := o.GetKind() + " " + o.GetName()
			if other := seen[key]; other != "" {
				t.Errorf("%s is of %s and of %s", key, other, name)
			}
			seen[key] = name
		}
	}
}

func TestHas(t *testing.T) {
	for _, of := range []struct {
		one, other string
		want       bool
	}{
		{`{"a": 1, "added": true}`, `{"a": 1}`, true}, {`{"a": [{"b": 1, "added": 1}]}`, `{"a": [{"b": 1}]}`, true}, {`{"a": 2}`, `{"a": 1}`, false},
		{`{}`, `{"a": 1}`, false}, {`{"a": [1]}`, `{"a": [1, 2]}`, false}, {`{"a": [1, 2]}`, `{"a": [1]}`, false}, {`{"a": 1}`, `{"a": {"b": 1}}`, false}, {`{"a": "1"}`, `{"a": 1}`, false},
		{`{"pluginConfig": {"a": [{"b": 1}]}, "added": 1}`, `{"pluginConfig": {"a": [{"b": 1}]}}`, true}, {`{"pluginConfig": {"a": [{"b": 1, "added": 1}]}}`, `{"pluginConfig": {"a": [{"b": 1}]}}`, false},
		{`{"wasm": [{"config": {"a": 1, "added": 1}}]}`, `{"wasm": [{"config": {"a": 1}}]}`, false},
	} {
		var one, other any
		must.OK(t, json.Unmarshal([]byte(of.one), &one))
		must.OK(t, json.Unmarshal([]byte(of.other), &other))
		must.Equal(t, has(one, other), of.want, "%s has %s: %t", of.one, of.other, !of.want)
	}
}

func TestWrongFlags(t *testing.T) {
	t.Setenv("WEIR_TOKEN", "secret")
	if err := run(t.Context(), []string{"--plugin", "x", "--backend", "weir:9180"}); err == nil || !strings.HasPrefix(err.Error(), "--namespaces: want ") {
		t.Errorf("%v, want --namespaces", err)
	}
	// A token of the configuration goes into plugins, too.
	t.Setenv("WEIR_TOKEN", "")
	for _, secret := range []string{"token", "key_secret"} {
		file := filepath.Join(t.TempDir(), "base.yaml")
		must.OK(t, os.WriteFile(file, []byte("backend: {cluster: weir, "+secret+": 0123456789abcdef}"), 0o600))
		if err := run(t.Context(), []string{"--plugin", "x", "--configuration", file, "--namespaces", " , "}); err == nil || !strings.HasPrefix(err.Error(), "--namespaces: want ") {
			t.Errorf("%s: %v, want --namespaces", secret, err)
		}
	}
	for list, want := range map[string][]string{"": nil, "*,shop": nil, "shop, *": nil, " shop , default,": {"shop", "default"}} {
		if some, all := namespacesOf(list); !slices.Equal(some, want) || all != strings.Contains(list, "*") {
			t.Errorf("%q: %q, %t", list, some, all)
		}
	}
	for _, wrong := range [][]string{{}, {"--unknown"}, {"--plugin", "x", "y"}, {"--plugin", "x", "--backend", "weir"}, {"--plugin", "x", "--configuration", "none"}} {
		must.Fails(t, run(t.Context(), wrong), "%v", wrong)
	}
}
