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
)

// A policy becomes a plugin, stays when it breaks, and takes the plugin along when it goes. What nobody has changed is not written
// again.
func TestReconcile(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{policy.AddToScheme, gatewayv1.Install} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
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
	planner, err := policy.NewPlanner([]byte("{}"))
	if err != nil {
		t.Fatal(err)
	}
	r := &reconciler{Client: c, events: events.NewFakeRecorder(100), planner: planner, writer: newWriter(t), restart: func(error) {}}
	r.writer.present = map[schema.GroupVersionKind]bool{wasmPlugin: true, envoyFilter: true}
	pass := func() (plugin *unstructured.Unstructured, version string) {
		t.Helper()
		if _, err := r.Reconcile(t.Context(), reconcile.Request{}); err != nil {
			t.Fatal(err)
		}
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
	if err := c.Update(t.Context(), plugin); err != nil {
		t.Fatal(err)
	}
	if plugin, _ = pass(); plugin.Object["spec"].(fields)["failStrategy"] != "FAIL_RELOAD" {
		t.Error("another's change stays")
	}
	p.Spec, p.Generation = of(`{"name":"r"}`), 2
	if err := c.Update(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if plugin, _ = pass(); plugin == nil || meta.IsStatusConditionTrue(p.Status.Conditions, "Accepted") || !meta.IsStatusConditionTrue(p.Status.Conditions, "Programmed") {
		t.Errorf("%+v, %+v", plugin, p.Status)
	}
	if err := c.Delete(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if plugin, _ = pass(); plugin != nil {
		t.Error("the plugin outlives the policy")
	}
}
