package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
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

// policyFor is a policy with a rule for a Gateway.
func policyFor(namespace, gateway, rule string) *policy.RateLimitPolicy {
	ref := policy.TargetRef{}
	ref.Group, ref.Kind, ref.Name = "gateway.networking.k8s.io", "Gateway", gatewayv1.ObjectName(gateway)
	return &policy.RateLimitPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: gateway, UID: types.UID(namespace + "/" + gateway), Generation: 1},
		Spec:       policy.Spec{TargetRefs: []policy.TargetRef{ref}, Rules: []json.RawMessage{[]byte(rule)}},
	}
}

// accepted is what a namespace's Gateway of Istio says of a route at it.
func accepted(namespace gatewayv1.Namespace) gatewayv1.RouteParentStatus {
	return gatewayv1.RouteParentStatus{
		ParentRef: gatewayv1.ParentReference{Name: "public", Namespace: &namespace}, ControllerName: "istio.io/gateway-controller", Conditions: []metav1.Condition{{Type: "Accepted", Status: "True"}},
	}
}

// installed are a controller and a Gateway of each namespace, with a policy whose fields are in order, as an API server has them.
func installed(t *testing.T, controller gatewayv1.GatewayController, present []schema.GroupVersionKind, namespaces ...string) (client.Client, []*reconciler) {
	t.Helper()
	mapper := meta.NewDefaultRESTMapper(nil)
	w := newWriter()
	w.present = map[schema.GroupVersionKind]bool{}
	for _, kind := range present {
		mapper.Add(kind, meta.RESTScopeNamespace)
		w.present[kind] = true
	}
	objects := []client.Object{&gatewayv1.GatewayClass{ObjectMeta: metav1.ObjectMeta{Name: "class"}, Spec: gatewayv1.GatewayClassSpec{ControllerName: controller}}}
	for _, namespace := range namespaces {
		objects = append(objects, policyFor(namespace, "public", `{"limits":[{"limit":1,"window":"1h"}],"name":"r","sync_rate":0}`),
			&gatewayv1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "public"}, Spec: gatewayv1.GatewaySpec{GatewayClassName: "class"}})
	}
	c := fake.NewClientBuilder().WithScheme(must.Get(newScheme())(t)).WithRESTMapper(mapper).WithStatusSubresource(&policy.RateLimitPolicy{}).WithObjects(objects...).Build()
	var all []*reconciler
	for _, namespace := range namespaces {
		own := *w
		own.release = "weir-" + namespace
		planner := must.Get(policy.NewPlanner(must.Get(own.with(base, policy.Istio))(t)))(t)
		all = append(all, &reconciler{Client: c, direct: c, events: events.NewFakeRecorder(100), planner: planner, writer: &own, restart: func(error) {}, namespaces: []string{namespace}})
	}
	return c, all
}

// A policy becomes a plugin, stays when it breaks, and takes the plugin along when it goes. What nobody has changed is not written
// again.
func TestReconcile(t *testing.T) {
	c, all := installed(t, "istio.io/gateway-controller", []schema.GroupVersionKind{wasmPlugin, envoyFilter}, "shop")
	r, p := all[0], policyFor("shop", "public", "{}")
	pass := func() (plugin *unstructured.Unstructured, version string) {
		t.Helper()
		must.Get(r.Reconcile(t.Context(), reconcile.Request{}))(t)
		must.OK(t, client.IgnoreNotFound(c.Get(t.Context(), client.ObjectKeyFromObject(p), p)))
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
	_, again := pass()
	must.Equal(t, again, version, "the version, unless it is written again")
	plugin.Object["spec"].(fields)["failStrategy"] = "FAIL_OPEN"
	must.OK(t, c.Update(t.Context(), plugin))
	plugin, _ = pass()
	must.Equal(t, plugin.Object["spec"].(fields)["failStrategy"], "FAIL_RELOAD", "failStrategy, which another has changed")
	configuration := func() fields { return plugin.Object["spec"].(fields)["pluginConfig"].(fields) }
	for name, add := range map[string]func(){
		"of a rule": func() { configuration()["rules"].([]any)[0].(fields)["mode"] = "shadow" },
		"of all":    func() { configuration()["access_log"] = true },
	} {
		before := fmt.Sprint(configuration())
		add()
		must.OK(t, c.Update(t.Context(), plugin, client.FieldOwner("kubectl-edit")))
		plugin, version = pass()
		must.Equal(t, fmt.Sprint(configuration()), before, "a field %s that another has added", name)
		_, again := pass()
		must.Equal(t, again, version, "after a field %s: the version, unless it is written again", name)
	}
	r.namespaces = []string{"other", "shops"}
	if plugin, _ = pass(); plugin != nil || !strings.Contains(meta.FindStatusCondition(p.Status.Conditions, "Accepted").Message, "that gets plugins") {
		t.Errorf("a Gateway of another namespace has the plugin, %+v", p.Status)
	}
	r.namespaces = []string{"other", "shop"}
	pass()
	p.Spec, p.Generation = policyFor("shop", "public", `{"name":"r"}`).Spec, 2
	must.OK(t, c.Update(t.Context(), p))
	if plugin, _ = pass(); plugin == nil || meta.IsStatusConditionTrue(p.Status.Conditions, "Accepted") || !meta.IsStatusConditionTrue(p.Status.Conditions, "Programmed") {
		t.Errorf("%+v, %+v", plugin, p.Status)
	}
	must.OK(t, c.Delete(t.Context(), p))
	plugin, _ = pass()
	must.Equal(t, plugin, nil, "the policy is gone: its plugin")
}

// An object that another has made under the name of a Gateway's stays as it is, also when the policy goes, and the policy says so.
func TestAnothersObject(t *testing.T) {
	c, all := installed(t, "istio.io/gateway-controller", []schema.GroupVersionKind{wasmPlugin, envoyFilter}, "shop")
	o, p := object(wasmPlugin, types.NamespacedName{Namespace: "shop", Name: "weir-public"}), policyFor("shop", "public", "{}")
	o.Object["spec"] = fields{"targetRefs": []any{fields{"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "public"}}} // no conflict with the controller's
	must.OK(t, c.Create(t.Context(), o, client.FieldOwner("kubectl")))
	before := fmt.Sprint(o.Object)
	const want = "WasmPlugin weir-public is another's: want it deleted, or of another name"
	if _, err := all[0].Reconcile(t.Context(), reconcile.Request{}); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
	must.OK(t, c.Get(t.Context(), client.ObjectKeyFromObject(p), p))
	if said := meta.FindStatusCondition(p.Status.Conditions, "Programmed"); said.Status != "False" || !strings.Contains(said.Message, want) {
		t.Errorf("%+v, want %s", said, want)
	}
	must.OK(t, c.Delete(t.Context(), p))
	must.Get(all[0].Reconcile(t.Context(), reconcile.Request{}))(t)
	must.OK(t, c.Get(t.Context(), client.ObjectKeyFromObject(o), o))
	must.Equal(t, fmt.Sprint(o.Object), before, "the other's")
}

// Two controllers leave each other's plugins alone, and take over what an older release has written without its name.
func TestTwoControllers(t *testing.T) {
	c, two := installed(t, "istio.io/gateway-controller", []schema.GroupVersionKind{wasmPlugin, envoyFilter}, "a", "b")
	plugin := func(namespace, name string) *unstructured.Unstructured {
		o := object(wasmPlugin, types.NamespacedName{Namespace: namespace, Name: name})
		if c.Get(t.Context(), client.ObjectKeyFromObject(o), o) != nil {
			return nil
		}
		return o
	}
	must.Get(two[0].Reconcile(t.Context(), reconcile.Request{}))(t)
	old := plugin("a", "weir-public")
	old.SetLabels(owned)
	must.OK(t, c.Update(t.Context(), old))
	old.SetName("weir-gone")
	old.SetResourceVersion("")
	must.OK(t, c.Create(t.Context(), old))
	for _, r := range []*reconciler{two[1], two[0], two[1]} {
		must.Get(r.Reconcile(t.Context(), reconcile.Request{}))(t)
		if r == two[1] && plugin("b", "weir-public") == nil || plugin("a", "weir-public") == nil {
			t.Error("a plugin is gone")
		}
	}
	if o := plugin("a", "weir-public"); o.GetLabels()[release] != "weir-a" || plugin("a", "weir-gone") != nil {
		t.Errorf("%v of an older release, which has also %v", o.GetLabels(), plugin("a", "weir-gone"))
	}
	two[1].namespaces = nil
	_, err := two[1].Reconcile(t.Context(), reconcile.Request{})
	must.Contains(t, fmt.Sprint(err), `WasmPlugin weir-public is of the controller whose lease is in namespace "weir-a"`, "a Gateway of two controllers")
}

// Of two controllers one writes a policy's status: that of the first Gateway that the policy is for.
func TestTwoStatuses(t *testing.T) {
	c, two := installed(t, "istio.io/gateway-controller", []schema.GroupVersionKind{wasmPlugin, envoyFilter}, "a", "b")
	both := gatewayv1.HTTPRoute{ObjectMeta: metav1.ObjectMeta{Namespace: "c", Name: "both"}, Spec: gatewayv1.HTTPRouteSpec{Rules: []gatewayv1.HTTPRouteRule{{}}}}
	for _, namespace := range []gatewayv1.Namespace{"b", "a"} {
		both.Status.Parents = append(both.Status.Parents, accepted(namespace))
	}
	must.OK(t, c.Create(t.Context(), &both))
	for _, kind := range []gatewayv1.Kind{"HTTPRoute", "Namespace"} {
		p := policyFor("c", strings.ToLower(string(kind)), `{"limits":[{"limit":1,"window":"1h"}],"name":"r","sync_rate":0}`)
		if p.Spec.TargetRefs[0].Kind, p.Spec.TargetRefs[0].Name = kind, "both"; kind == "Namespace" {
			p.Spec.TargetRefs[0].Group, p.Spec.TargetRefs[0].Name = "", "c"
			p.Spec.Rules, p.Spec.Overrides = nil, &policy.Block{Strategy: "merge", Rules: []json.RawMessage{[]byte(`{"limits":[{"limit":1,"window":"1h"}],"name":"s","sync_rate":0}`)}}
		}
		must.OK(t, c.Create(t.Context(), p))
	}
	var before string
	for i := range 6 {
		must.Get(two[i%2].Reconcile(t.Context(), reconcile.Request{}))(t)
		now := ""
		for _, name := range []types.NamespacedName{{Namespace: "a", Name: "public"}, {Namespace: "b", Name: "public"}, {Namespace: "c", Name: "httproute"}, {Namespace: "c", Name: "namespace"}} {
			p := &policy.RateLimitPolicy{}
			must.OK(t, c.Get(t.Context(), name, p))
			now += fmt.Sprintln(p.ResourceVersion, name)
			if want := "in force at Gateway " + strings.Replace(name.Namespace, "c", "a", 1) + "/public"; i > 0 && meta.FindStatusCondition(p.Status.Conditions, "Programmed").Message != want {
				t.Errorf("%d: %s: %+v, want %s", i, name, p.Status.Conditions, want)
			}
		}
		if i > 2 && now != before {
			t.Errorf("%d: statuses are written again:\n%s%s", i, before, now)
		}
		before = now
	}
}

// A policy that holds for a part of its target says so: a tenant's routes must not lift its limits unseen.
func TestPartly(t *testing.T) {
	c, all := installed(t, "istio.io/gateway-controller", []schema.GroupVersionKind{wasmPlugin, envoyFilter}, "shop")
	name := gatewayv1.SectionName("other.app.0")
	route := &gatewayv1.HTTPRoute{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: "app"}, Spec: gatewayv1.HTTPRouteSpec{Rules: []gatewayv1.HTTPRouteRule{{}, {Name: &name}}}}
	route.Status.Parents = []gatewayv1.RouteParentStatus{accepted("shop")}
	p := policyFor("tenant", "all", `{"limits":[{"limit":1,"window":"1h"}],"name":"r","sync_rate":0}`)
	p.Spec.TargetRefs[0].Group, p.Spec.TargetRefs[0].Kind, p.Spec.TargetRefs[0].Name = "", "Namespace", "tenant"
	must.OK(t, errors.Join(c.Create(t.Context(), route), c.Create(t.Context(), p)))
	must.Get(all[0].Reconcile(t.Context(), reconcile.Request{}))(t)
	must.OK(t, c.Get(t.Context(), client.ObjectKeyFromObject(p), p))
	const want = "in force at Gateway shop/public, but not for all: HTTPRoute tenant/app: its rule other.app.0 has the name of another namespace's rule"
	if said := meta.FindStatusCondition(p.Status.Conditions, "Programmed"); said.Status != "False" || said.Reason != "Partly" || said.Message != want {
		t.Errorf("%+v, want %s", said, want)
	}
}

// A Gateway and a route that are being deleted are served until their finalizers are gone, and have their limits as long.
func TestFinalizers(t *testing.T) {
	c, all := installed(t, "istio.io/gateway-controller", []schema.GroupVersionKind{wasmPlugin, envoyFilter}, "shop")
	gateway := &gatewayv1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "public"}}
	http := &gatewayv1.HTTPRoute{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: "app"}, Spec: gatewayv1.HTTPRouteSpec{Rules: []gatewayv1.HTTPRouteRule{{}}}}
	grpc := &gatewayv1.GRPCRoute{ObjectMeta: http.ObjectMeta, Spec: gatewayv1.GRPCRouteSpec{Rules: []gatewayv1.GRPCRouteRule{{}}}}
	http.Status.Parents = []gatewayv1.RouteParentStatus{accepted("shop")}
	grpc.Status.Parents = http.Status.Parents
	must.OK(t, errors.Join(c.Get(t.Context(), client.ObjectKeyFromObject(gateway), gateway), c.Create(t.Context(), http), c.Create(t.Context(), grpc)))
	var policies []*policy.RateLimitPolicy
	for _, kind := range []gatewayv1.Kind{"HTTPRoute", "GRPCRoute"} {
		p := policyFor("tenant", strings.ToLower(string(kind)), `{"limits":[{"limit":1,"window":"1h"}],"name":"r","sync_rate":0}`)
		p.Spec.TargetRefs[0].Kind, p.Spec.TargetRefs[0].Name = kind, "app"
		must.OK(t, c.Create(t.Context(), p))
		policies = append(policies, p)
	}
	held := []client.Object{gateway, http, grpc}
	for _, o := range held {
		o.SetFinalizers([]string{"tenant.example/hold"})
		must.OK(t, errors.Join(c.Update(t.Context(), o), c.Delete(t.Context(), o)))
	}
	programmed := func(want metav1.ConditionStatus) {
		t.Helper()
		must.Get(all[0].Reconcile(t.Context(), reconcile.Request{}))(t)
		for _, p := range policies {
			must.OK(t, c.Get(t.Context(), client.ObjectKeyFromObject(p), p))
			must.Equal(t, meta.FindStatusCondition(p.Status.Conditions, "Programmed").Status, want, "%s: %+v", p.Name, p.Status.Conditions)
		}
	}
	programmed("True")
	for _, o := range held {
		must.OK(t, c.Get(t.Context(), client.ObjectKeyFromObject(o), o))
		o.SetFinalizers(nil)
		must.OK(t, c.Update(t.Context(), o))
	}
	programmed("False")
}

// Rules that Envoy Gateway refuses are not in force. Patches of listeners without a place of their own in Envoy are not missed.
func TestRefusedByEnvoyGateway(t *testing.T) {
	const holds, none = "True in force at Gateway shop/public", `o jsonPointers were found while evaluating the jsonPath: '$..x'`
	c, all := installed(t, "gateway.envoyproxy.io/gatewayclass-controller", []schema.GroupVersionKind{extensionPolicy, patchPolicy}, "shop")
	p := &policy.RateLimitPolicy{}
	name := types.NamespacedName{Namespace: "shop", Name: "public"}
	for _, test := range []struct {
		kind                            schema.GroupVersionKind
		condition, status, reason, said string
		want                            string
	}{
		{extensionPolicy, "Accepted", "", "", "", holds},
		{extensionPolicy, "Accepted", "True", "Accepted", "", holds},
		{extensionPolicy, "Accepted", "False", "Conflicted", "older", "False Gateway shop/public: EnvoyExtensionPolicy weir-public: Conflicted: older"},
		{patchPolicy, "Programmed", "True", "Programmed", "applied", holds},
		{patchPolicy, "Programmed", "False", "ResourceNotFound", "Unable to find xds resources: x", holds},
		{patchPolicy, "Programmed", "False", "Invalid", "N" + none + "\nn" + none, holds},
		{patchPolicy, "Programmed", "False", "Invalid", "N" + none + "\nunable to unmarshal xds resource", "False Gateway shop/public: EnvoyPatchPolicy weir-public: Invalid: unable to unmarshal xds resource"},
	} {
		must.Get(all[0].Reconcile(t.Context(), reconcile.Request{}))(t)
		for _, kind := range []schema.GroupVersionKind{extensionPolicy, patchPolicy} {
			o := object(kind, types.NamespacedName{Namespace: "shop", Name: "weir-public"})
			must.OK(t, c.Get(t.Context(), client.ObjectKeyFromObject(o), o))
			delete(o.Object, "status")
			if kind == test.kind {
				o.Object["status"] = fields{"ancestors": []any{fields{"conditions": []any{fields{"type": test.condition, "status": test.status, "reason": test.reason, "message": test.said, "observedGeneration": o.GetGeneration()}}}}}
			}
			must.OK(t, c.Update(t.Context(), o))
		}
		must.Get(all[0].Reconcile(t.Context(), reconcile.Request{}))(t)
		must.OK(t, c.Get(t.Context(), name, p))
		said := meta.FindStatusCondition(p.Status.Conditions, "Programmed")
		must.Equal(t, string(said.Status)+" "+said.Message, test.want, "%+v", test)
	}
}

// The status repeats the spec that is in force. No policy is so large that an API server would not store both.
func TestLargePolicy(t *testing.T) {
	scheme := runtime.NewScheme()
	must.OK(t, policy.AddToScheme(scheme))
	rule := func(bytes int) json.RawMessage {
		const start, end = `{"name":"r","limits":[{"limit":1,"window":"1h"}],"match":{"path":{"in":["/`, `"]}}}`
		text := start
		for i := 0; bytes-len(end)-len(text) > 4000; i++ {
			text += fmt.Sprintf(`%03d%s","/`, i, strings.Repeat("x", 2000))
		}
		return json.RawMessage(text + strings.Repeat("y", bytes-len(end)-len(text)) + end)
	}
	const most = 64 << 10
	p := policyFor("shop", "public", "{}")
	c := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(p).WithObjects(p).Build()
	planner := must.Get(policy.NewPlanner([]byte("{}")))(t)
	r := &reconciler{Client: c, direct: c, events: events.NewFakeRecorder(100), planner: planner, writer: newWriter()}
	for i, bytes := range []int{most, most + 1, 1 << 20} {
		must.OK(t, c.Get(t.Context(), client.ObjectKeyFromObject(p), p))
		p.Generation, p.Spec.Rules = int64(i+1), []json.RawMessage{rule(bytes)}
		must.OK(t, c.Update(t.Context(), p))
		o := planner.Plan(&policy.Resources{Policies: []*policy.RateLimitPolicy{p}, Gateways: []*policy.Gateway{{NamespacedName: types.NamespacedName{Namespace: "shop", Name: "public"}, Implementation: policy.Istio}}}).Outcomes[0]
		must.OK(t, r.tell(t.Context(), o, nil))
		must.OK(t, c.Get(t.Context(), client.ObjectKeyFromObject(p), p))
		accepted := meta.FindStatusCondition(p.Status.Conditions, "Accepted")
		if want := fmt.Sprintf("generation 1 stays in force: spec.rules: want at most 65536 bytes, got %d", bytes); (accepted.Status == "True") != (i == 0) || i > 0 && accepted.Message != want || p.Status.InForce.Generation != 1 {
			t.Errorf("%d bytes: %+v, of generation %d", bytes, accepted, p.Status.InForce.Generation)
		}
		text := must.Get(json.Marshal(p))(t)
		must.AtMost(t, len(text), bytes+most+10_000, "bytes of an object with %d bytes of rules", bytes)
	}
}

// Istio gives plugins to the pods of a Gateway by a label, which pods have that somebody has deployed by hand for a Gateway with
// addresses only if they wrote it.
func TestDeployedByHand(t *testing.T) {
	c, all := installed(t, "istio.io/gateway-controller", []schema.GroupVersionKind{wasmPlugin, envoyFilter}, "shop")
	for namespace, selector := range map[string]map[string]string{
		"shop": {"app": "ingress"}, "istio-system": {"gateway.networking.k8s.io/gateway-name": "public"},
	} {
		must.OK(t, c.Create(t.Context(), &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "ingress"}, Spec: corev1.ServiceSpec{Selector: selector}}))
	}
	must.OK(t, c.Create(t.Context(), &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "own"}, Spec: corev1.ServiceSpec{Selector: map[string]string{"gateway.networking.k8s.io/gateway-name": "public"}}}))
	hostname, ip := gatewayv1.HostnameAddressType, gatewayv1.IPAddressType
	g, p := &gatewayv1.Gateway{}, &policy.RateLimitPolicy{}
	name := types.NamespacedName{Namespace: "shop", Name: "public"}
	for _, test := range []struct {
		addresses []gatewayv1.GatewaySpecAddress
		wants     string // the label in the selector of this one
	}{
		{nil, ""},
		{[]gatewayv1.GatewaySpecAddress{{Type: &ip, Value: "192.0.2.1"}}, ""},
		{[]gatewayv1.GatewaySpecAddress{{Type: &hostname, Value: "own"}}, ""},
		{[]gatewayv1.GatewaySpecAddress{{Type: &hostname, Value: "own.shop.svc.cluster.local"}, {Type: &ip, Value: "192.0.2.1"}}, ""},
		{[]gatewayv1.GatewaySpecAddress{{Type: &hostname, Value: "ingress"}}, "ingress"},
		{[]gatewayv1.GatewaySpecAddress{{Type: &hostname, Value: "none"}}, "none"},
		{[]gatewayv1.GatewaySpecAddress{{Type: &hostname, Value: "own"}, {Type: &hostname, Value: "ingress.istio-system.svc.cluster.local"}}, "ingress.istio-system.svc.cluster.local"},
	} {
		must.OK(t, c.Get(t.Context(), name, g))
		g.Spec.Addresses = test.addresses
		must.OK(t, c.Update(t.Context(), g))
		must.Get(all[0].Reconcile(t.Context(), reconcile.Request{}))(t)
		must.OK(t, c.Get(t.Context(), name, p))
		said := meta.FindStatusCondition(p.Status.Conditions, "Programmed")
		if want := "in the selector of its Service " + test.wants + ", in its namespace"; (said.Status == "True") != (test.wants == "") || test.wants != "" && !strings.Contains(said.Message, want) {
			t.Errorf("%+v: %+v, want %s", test.addresses, said, want)
		}
	}
}

// A long message is cut between two runes: half of one would not be what the API server stores, and be written at each pass.
func TestLongMessage(t *testing.T) {
	c, all := installed(t, "istio.io/gateway-controller", nil, "shop")
	p := policyFor("shop", "public", "{}")
	var first string
	for range 2 {
		must.OK(t, c.Get(t.Context(), client.ObjectKeyFromObject(p), p))
		must.OK(t, all[0].tell(t.Context(), &policy.Outcome{Policy: p, Reason: "Invalid", Refused: "x" + strings.Repeat("ü", most)}, nil))
		must.OK(t, c.Get(t.Context(), client.ObjectKeyFromObject(p), p))
		first = cmp.Or(first, p.ResourceVersion)
		must.Equal(t, meta.FindStatusCondition(p.Status.Conditions, "Accepted").Message, "x"+strings.Repeat("ü", most/2-1), "")
		must.Equal(t, p.ResourceVersion, first, "what is written")
	}
}

// A Service has the waypoint that it asks for, or else its Namespace, once Istio has bound it. Its filter chains are of TCP. Whether
// ingress gateways go through it is for the Service to say, and else for its Namespace.
func TestWaypoints(t *testing.T) {
	scheme := must.Get(newScheme())(t)
	own := types.NamespacedName{Namespace: "shop", Name: "waypoint"}
	const past = "requests of Istio's ingress gateways go past its waypoint"
	objects := []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{"istio.io/use-waypoint": "waypoint", "istio.io/ingress-use-waypoint": "true"}, Annotations: map[string]string{policy.CountersAnnotation: "a, b"}}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "tenant"}},
		&gatewayv1.GatewayClass{ObjectMeta: metav1.ObjectMeta{Name: "waypoints"}, Spec: gatewayv1.GatewayClassSpec{ControllerName: "istio.io/mesh-controller"}},
		&gatewayv1.GatewayClass{ObjectMeta: metav1.ObjectMeta{Name: "istio"}, Spec: gatewayv1.GatewayClassSpec{ControllerName: "istio.io/gateway-controller"}},
		&gatewayv1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: own.Namespace, Name: own.Name}, Spec: gatewayv1.GatewaySpec{GatewayClassName: "waypoints"}},
		&gatewayv1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: own.Namespace, Name: "public"}, Spec: gatewayv1.GatewaySpec{GatewayClassName: "istio"}},
	}
	tests := []struct {
		namespace, name string
		labels          map[string]string
		bound           metav1.ConditionStatus
		ports           []corev1.ServicePort
		want            string // why it has no waypoint, or what goes past it
	}{
		{"shop", "of-namespace", nil, metav1.ConditionTrue, []corev1.ServicePort{{Port: 53, Protocol: corev1.ProtocolUDP}, {Port: 53, Protocol: corev1.ProtocolTCP}}, ""},
		{"tenant", "of-another", map[string]string{"istio.io/use-waypoint": "waypoint", "istio.io/use-waypoint-namespace": "shop", "istio.io/ingress-use-waypoint": "true"}, metav1.ConditionTrue, []corev1.ServicePort{{Port: 53, Protocol: corev1.ProtocolTCP}}, ""},
		{"tenant", "past", map[string]string{"istio.io/use-waypoint": "waypoint", "istio.io/use-waypoint-namespace": "shop"}, metav1.ConditionTrue, []corev1.ServicePort{{Port: 53, Protocol: corev1.ProtocolTCP}}, past},
		{"shop", "past-by-its-own", map[string]string{"istio.io/ingress-use-waypoint": "no"}, metav1.ConditionTrue, []corev1.ServicePort{{Port: 53, Protocol: corev1.ProtocolTCP}}, past},
		{"tenant", "not-asked", nil, "", []corev1.ServicePort{{Port: 53, Protocol: corev1.ProtocolTCP}}, "want a waypoint of Istio"},
		{"shop", "none", map[string]string{"istio.io/use-waypoint": "none"}, "", []corev1.ServicePort{{Port: 53, Protocol: corev1.ProtocolTCP}}, "want a waypoint of Istio"},
		{"shop", "no-waypoint", map[string]string{"istio.io/use-waypoint": "public"}, metav1.ConditionTrue, []corev1.ServicePort{{Port: 53, Protocol: corev1.ProtocolTCP}}, "Istio has not bound it to waypoint shop/public"},
		{"shop", "denied", nil, metav1.ConditionFalse, []corev1.ServicePort{{Port: 53, Protocol: corev1.ProtocolTCP}}, "Istio says of waypoint shop/waypoint: denied"},
		{"shop", "not-bound", nil, "", []corev1.ServicePort{{Port: 53, Protocol: corev1.ProtocolTCP}}, "Istio has not bound it to waypoint shop/waypoint"},
		{"shop", "no-port", nil, metav1.ConditionTrue, []corev1.ServicePort{{Port: 53, Protocol: corev1.ProtocolUDP}}, "it has no TCP port"},
	}
	for _, test := range tests {
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: test.namespace, Name: test.name, Labels: test.labels}, Spec: corev1.ServiceSpec{Ports: test.ports}}
		if test.bound != "" {
			s.Status.Conditions = []metav1.Condition{{Type: "istio.io/WaypointBound", Status: test.bound, Message: "denied"}}
		}
		objects = append(objects, s)
	}
	r := &reconciler{Client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build(), writer: newWriter()}
	resources := must.Get(r.read(t.Context()))(t)
	for _, test := range tests {
		route := resources.Routes[slices.IndexFunc(resources.Routes, func(r *policy.Route) bool { return r.Name == test.name })]
		if bound := test.want == "" || test.want == past; bound && (!slices.Equal(route.Parents, []policy.Parent{{Gateway: own}}) || !slices.Equal(route.Chains, []string{"inbound-vip|53|http|" + test.name + "." + test.namespace + ".svc.cluster.local"})) ||
			!bound && len(route.Parents) > 0 || !strings.HasPrefix(route.Alone, test.want) || test.want == "" && route.Alone != "" {
			t.Errorf("%s: %+v, want %q", test.name, route, test.want)
		}
	}
	must.Same(t, resources.Counters["shop"], []string{"a", "b"}, "counters: %q", resources.Counters)
}
