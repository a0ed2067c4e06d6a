package main

import (
	"encoding/json"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"weir/controller/policy"
	"weir/internal/must"
)

// A policy becomes a plugin, stays when it breaks, and takes the plugin along when it goes. What nobody has changed is not written
// again.
func TestReconcile(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{policy.AddToScheme, gatewayv1.Install} {
		must.OK(t, add(scheme))
	}
	of := func(rule string) policy.Spec {
		ref := gatewayv1.LocalPolicyTargetReferenceWithSectionName{}
		ref.Group, ref.Kind, ref.Name = "gateway.networking.k8s.io", "Gateway", "public"
		return policy.Spec{TargetRefs: []gatewayv1.LocalPolicyTargetReferenceWithSectionName{ref}, Rules: []json.RawMessage{[]byte(rule)}}
	}
	p := &policy.RateLimitPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "p", UID: "p", Generation: 1}, Spec: of(`{"name":"r","limits":[{"limit":1,"window":"1h"}]}`)}
	c := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&policy.RateLimitPolicy{}).WithObjects(
		p,
		&gatewayv1.GatewayClass{ObjectMeta: metav1.ObjectMeta{Name: "istio"}, Spec: gatewayv1.GatewayClassSpec{ControllerName: "istio.io/gateway-controller"}},
		&gatewayv1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "public"}, Spec: gatewayv1.GatewaySpec{GatewayClassName: "istio"}},
	).Build()
	planner := must.Get(policy.NewPlanner([]byte("{}")))(t)
	r := &reconciler{Client: c, events: events.NewFakeRecorder(100), planner: planner, writer: newWriter(t), restart: func(error) {}}
	r.writer.present = map[schema.GroupVersionKind]bool{wasmPlugin: true, envoyFilter: true}
	pass := func() (plugin *unstructured.Unstructured, version string) {
		t.Helper()
		must.Get(r.Reconcile(t.Context(), reconcile.Request{}))(t)
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(p), p); client.IgnoreNotFound(err) != nil {
			t.Fatal(err)
		}
		plugin = object(wasmPlugin, types.NamespacedName{Namespace: "shop", Name: "weir-public"})
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(plugin), plugin); err != nil {
			return nil, ""
		}
		return plugin, plugin.GetResourceVersion()
	}
	plugin, version := pass()
	if plugin == nil || !meta.IsStatusConditionTrue(p.Status.Conditions, "Accepted") || !meta.IsStatusConditionTrue(p.Status.Conditions, "Programmed") {
		t.Fatalf("%+v, %+v", plugin, p.Status)
	}
	if _, again := pass(); again != version {
		t.Error("written again")
	}
	plugin.Object["spec"].(fields)["failStrategy"] = "FAIL_OPEN"
	must.OK(t, c.Update(t.Context(), plugin))
	if plugin, _ = pass(); plugin.Object["spec"].(fields)["failStrategy"] != "FAIL_RELOAD" {
		t.Error("another's change stays")
	}
	p.Spec, p.Generation = of(`{"name":"r"}`), 2
	must.OK(t, c.Update(t.Context(), p))
	if plugin, _ = pass(); plugin == nil || meta.IsStatusConditionTrue(p.Status.Conditions, "Accepted") || !meta.IsStatusConditionTrue(p.Status.Conditions, "Programmed") {
		t.Errorf("%+v, %+v", plugin, p.Status)
	}
	must.OK(t, c.Delete(t.Context(), p))
	if plugin, _ = pass(); plugin != nil {
		t.Error("the plugin outlives the policy")
	}
}
