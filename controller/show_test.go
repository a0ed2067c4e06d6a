package main

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"weir/controller/policy"
	"weir/internal/must"
)

// Policies are shown with what their status says, and rules where they are in force after overrides and defaults.
func TestShow(t *testing.T) {
	scheme := must.Get(newScheme())(t)
	of := func(namespace, name, kind, target, rules string) *policy.RateLimitPolicy {
		p := policyFor(namespace, target, rules)
		p.Name, p.UID, p.Spec.TargetRefs[0].Kind = name, types.UID(namespace+"/"+name), gatewayv1.Kind(kind)
		p.Spec.Rules, p.Spec.Defaults = nil, &policy.Block{Strategy: "merge", Rules: p.Spec.Rules}
		p.Status.Conditions = []metav1.Condition{{Type: "Accepted", Status: "True", Message: "accepted"}}
		return p
	}
	odd := of("tenant", "odd", "Gateway", "public", `{"name":"r","limits":[{"limit":1,"window":"1h"}]}`)
	odd.Status.Conditions = []metav1.Condition{{Type: "Accepted", Status: "False", Message: "Gateway public\n\x1b is not there"}, {Type: "Programmed", Status: "False", Message: "nowhere"}}
	mine := of("tenant", "mine", "HTTPRoute", "app", `{"name":"r","limits":[{"limit":3,"window":"1m"},{"limit":2,"window":"1s"}]}`)
	// Rules that need a backend are in force by the configuration that was written. The tenant's own Gateway has no plugin.
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(wasmPlugin, meta.RESTScopeNamespace)
	plugin := object(wasmPlugin, types.NamespacedName{Namespace: "shop", Name: "weir-public"})
	plugin.SetLabels(owned)
	plugin.Object["spec"] = fields{
		"targetRefs":   []any{fields{"name": "public"}},
		"pluginConfig": fields{"namespace": "shop", "rules": []any{}, "sync_rate": int64(1), "backend": fields{"cluster": "weir"}},
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithRESTMapper(mapper).WithObjects(
		plugin, &gatewayv1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: "public"}, Spec: gatewayv1.GatewaySpec{GatewayClassName: "istio"}},
		of("shop", "all", "Gateway", "public", `{"name":"all","sync_rate":0,"limits":[{"limit":100,"window":"1h"}]}`), mine, odd,
		&gatewayv1.GatewayClass{ObjectMeta: metav1.ObjectMeta{Name: "istio"}, Spec: gatewayv1.GatewayClassSpec{ControllerName: "istio.io/gateway-controller"}},
		&gatewayv1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "public"}, Spec: gatewayv1.GatewaySpec{GatewayClassName: "istio"}},
		&gatewayv1.HTTPRoute{
			ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: "app"}, Spec: gatewayv1.HTTPRouteSpec{Rules: []gatewayv1.HTTPRouteRule{{}}},
			Status: gatewayv1.HTTPRouteStatus{RouteStatus: gatewayv1.RouteStatus{Parents: []gatewayv1.RouteParentStatus{accepted("shop")}}},
		},
	).Build()
	for namespace, want := range map[string]string{
		"": `POLICY TARGETS ACCEPTED PROGRAMMED SAID
shop/all Gateway public True -
tenant/mine HTTPRoute app True -
tenant/odd Gateway public False False Gateway public is not there; nowhere

GATEWAY WHERE RULE LIMITS POLICY
shop/public * all 100 a 1h shop/all
shop/public HTTPRoute tenant/app r 3 a 1m, 2 a 1s tenant/mine
shop/public HTTPRoute tenant/app all 100 a 1h shop/all
`,
		"tenant": `POLICY TARGETS ACCEPTED PROGRAMMED SAID
tenant/mine HTTPRoute app True -
tenant/odd Gateway public False False Gateway public is not there; nowhere

GATEWAY WHERE RULE LIMITS POLICY
shop/public HTTPRoute tenant/app r 3 a 1m, 2 a 1s tenant/mine
shop/public HTTPRoute tenant/app all 100 a 1h shop/all
`,
		"none": "POLICY TARGETS ACCEPTED PROGRAMMED SAID\n",
	} {
		var out strings.Builder
		must.OK(t, show(t.Context(), c, &out, namespace))
		got := regexp.MustCompile(` +(\n?)`).ReplaceAllString(out.String(), " $1")
		must.Equal(t, strings.ReplaceAll(got, " \n", "\n"), want, "%q", namespace)
	}
}

// Plugins of a controller with replicas have them only beside shared limits. A plugin that can't be read hides none of the others.
func TestShowBases(t *testing.T) {
	c, all := installed(t, "istio.io/gateway-controller", []schema.GroupVersionKind{wasmPlugin, envoyFilter}, "a", "b", "tenant")
	r := all[0]
	r.namespaces = []string{"a", "b"}
	base := map[string]json.RawMessage{"sync_rate": []byte("1"), "replicas": []byte("2")}
	r.planner = must.Get(policy.NewPlanner(must.Get(r.writer.with(base, policy.Istio))(t)))(t)
	p := policyFor("a", "public", "{}")
	must.OK(t, c.Get(t.Context(), client.ObjectKeyFromObject(p), p))
	p.Generation, p.Spec.Rules = 2, []json.RawMessage{[]byte(`{"name":"r","sync_rate":"share","limits":[{"limit":10,"window":"1h"}]}`)}
	must.OK(t, c.Update(t.Context(), p))
	must.Get(r.Reconcile(t.Context(), reconcile.Request{}))(t)
	foreign := object(wasmPlugin, types.NamespacedName{Namespace: "tenant", Name: "any"})
	foreign.SetLabels(owned)
	foreign.Object["spec"] = fields{"targetRefs": []any{fields{"name": "public"}}, "pluginConfig": fields{"bogus": int64(1)}}
	must.OK(t, c.Create(t.Context(), foreign))
	for range 4 {
		var out strings.Builder
		must.OK(t, show(t.Context(), c, &out, ""))
		if got := regexp.MustCompile(` +`).ReplaceAllString(out.String(), " "); !strings.Contains(got, `
GATEWAY WHERE RULE LIMITS POLICY
a/public * r 10 a 1h a/public
b/public * r 1 a 1h b/public
tenant/public its plugin can't be read: bogus: unknown field`) {
			t.Errorf("got %q", got)
		}
	}
}
