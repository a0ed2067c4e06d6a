package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	gatewayv1beta1 "sigs.k8s.io/gateway-api/apis/v1beta1"

	"weir/controller/policy"
)

// reconciler makes everything as all policies want it, whatever has changed: what holds for one policy depends on the others.
type reconciler struct {
	client.Client
	// direct reads what the client's cache leaves out: what others have written.
	direct  client.Reader
	events  events.EventRecorder
	planner *policy.Planner
	writer  *writer
	restart context.CancelCauseFunc
	// namespaces are those whose Gateways get plugins; none is all.
	namespaces []string
}

// watch has each change lead to the same request, so that many at once are one.
func (r *reconciler) watch(m manager.Manager) error {
	everything := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request { return []reconcile.Request{{}} })
	b := ctrl.NewControllerManagedBy(m).Named("policies").WithOptions(options())
	for _, o := range []client.Object{&policy.RateLimitPolicy{}, &gatewayv1.GatewayClass{}, &gatewayv1.Gateway{}, &gatewayv1.HTTPRoute{}, &gatewayv1.GRPCRoute{}, &gatewayv1beta1.ReferenceGrant{}, &corev1.Service{}, &corev1.Namespace{}} {
		b = b.Watches(o, everything)
	}
	for kind, present := range r.writer.present {
		if present {
			b = b.Watches(object(kind, types.NamespacedName{}), everything)
		}
	}
	return b.Complete(r)
}

// Reconcile plans everything and writes what has changed.
func (r *reconciler) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	resources, err := r.read(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	plan := r.planner.Plan(resources)
	there, err := r.owned(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	failed, refused := map[types.NamespacedName]error{}, map[types.NamespacedName]error{}
	var all []error
	for _, gateway := range resources.Gateways {
		if err := r.write(ctx, gateway, plan.Configurations[gateway.NamespacedName], there, refused); err != nil {
			failed[gateway.NamespacedName] = err
			all = append(all, fmt.Errorf("of Gateway %s: %w", gateway, err))
		}
		if gateway.Alone != "" {
			refused[gateway.NamespacedName] = errors.New(gateway.Alone)
		}
	}
	others := map[types.NamespacedName]bool{}
	for _, left := range there {
		// A Gateway that could not be written keeps what it has. What an older release wrote does not say of which controller it is.
		by := left.GetLabels()[release]
		if failed[gatewayOf(left)] == nil && (by == r.writer.release || by == "" && r.serves(left.GetNamespace())) {
			all = append(all, client.IgnoreNotFound(r.Delete(ctx, left)))
		} else if by != "" && by != r.writer.release {
			others[gatewayOf(left)] = true
		}
	}
	for _, gateway := range resources.Gateways {
		delete(others, gateway.NamespacedName)
	}
	maps.Copy(refused, failed)
	for _, o := range plan.Outcomes {
		if resources.AnotherTells(o.Policy, others) {
			continue
		}
		all = append(all, r.tell(ctx, o, refused))
	}
	return reconcile.Result{}, errors.Join(all...)
}

// key names an object of a kind.
type key struct {
	kind string
	types.NamespacedName
}

func keyOf(o *unstructured.Unstructured) key {
	return key{o.GetKind(), client.ObjectKeyFromObject(o)}
}

// owned are the objects that the controller has written.
func (r *reconciler) owned(ctx context.Context) (map[key]*unstructured.Unstructured, error) {
	there := map[key]*unstructured.Unstructured{}
	for kind, present := range r.writer.present {
		if !present {
			continue
		}
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind)
		if err := r.List(ctx, list, client.MatchingLabels(owned), client.UnsafeDisableDeepCopy); err != nil {
			return nil, err
		}
		for i := range list.Items {
			there[keyOf(&list.Items[i])] = &list.Items[i]
		}
	}
	return there, nil
}

// write writes a Gateway's objects, and takes those that stay from the ones that are there.
func (r *reconciler) write(ctx context.Context, gateway *policy.Gateway, configurations [][]byte, there map[key]*unstructured.Unstructured, refused map[types.NamespacedName]error) error {
	if kind := r.writer.missing(gateway.Implementation); kind != "" && len(configurations) > 0 {
		if err := r.writer.find(r.RESTMapper()); err == nil && r.writer.missing(gateway.Implementation) == "" {
			r.restart(errors.New(kind + " has been installed: start again"))
		}
		return errors.New("the API server has no " + kind)
	}
	objects, err := r.writer.objects(gateway, configurations)
	if err != nil {
		return err
	}
	for _, o := range objects {
		before := cmp.Or(there[keyOf(o)], &unstructured.Unstructured{})
		by := before.GetLabels()[release]
		if by != "" && by != r.writer.release {
			return fmt.Errorf("%s %s is of the controller whose lease is in namespace %q: want one controller for a Gateway, or delete it", o.GetKind(), o.GetName(), by)
		}
		if by != r.writer.release || before.GetAnnotations()[sum] != o.GetAnnotations()[sum] || !has(before.Object["spec"], o.Object["spec"]) {
			if there[keyOf(o)] == nil {
				if err := r.free(ctx, o); err != nil {
					return err
				}
			}
			written := o.DeepCopy()
			if err := r.Apply(ctx, client.ApplyConfigurationFromUnstructured(written), client.FieldOwner("weir-controller"), client.ForceOwnership); err != nil {
				return err
			}
			if !has(written.Object["spec"], o.Object["spec"]) {
				// Somebody has added a field to the plugin's configuration, and it is not the controller's to apply.
				own := written.DeepCopy()
				maps.Copy(own.Object["spec"].(fields), o.Object["spec"].(fields))
				if err := r.Patch(ctx, own, client.MergeFrom(written)); err != nil {
					return err
				}
			}
		} else if err := refusal(before); err != nil {
			refused[gateway.NamespacedName] = err
		}
		delete(there, keyOf(o))
	}
	return nil
}

// free returns an error if somebody else has an object of this kind and name. Nothing is added to that, and it is not deleted.
func (r *reconciler) free(ctx context.Context, o *unstructured.Unstructured) error {
	there := object(o.GroupVersionKind(), client.ObjectKeyFromObject(o))
	if err := r.direct.Get(ctx, client.ObjectKeyFromObject(o), there); err != nil {
		return client.IgnoreNotFound(err)
	}
	for name, value := range owned {
		if there.GetLabels()[name] != value {
			return fmt.Errorf("%s %s is another's: want it deleted, or of another name", o.GetKind(), o.GetName())
		}
	}
	return nil
}

// refusal is what Envoy Gateway says of an object that it does not accept, or of patches that it can't apply. A listener that shares
// another's port is a part of that one's in Envoy, and one without a route has no plugin: their patches have no place.
func refusal(o *unstructured.Unstructured) error {
	ancestors, _, _ := unstructured.NestedSlice(o.Object, "status", "ancestors")
	for _, ancestor := range ancestors {
		at, _ := ancestor.(fields)
		conditions, _, _ := unstructured.NestedSlice(at, "conditions")
		for _, condition := range conditions {
			c, _ := condition.(fields)
			if generation, _ := c["observedGeneration"].(int64); c["status"] != "False" || generation != o.GetGeneration() {
				continue
			}
			message, _ := c["message"].(string)
			lines := strings.Split(message, "\n")
			if c["type"] == "Programmed" && c["reason"] != "ResourceNotFound" {
				lines = slices.DeleteFunc(lines, func(line string) bool { return strings.Contains(line, "o jsonPointers were found") })
			} else if c["type"] != "Accepted" {
				continue
			}
			if len(lines) > 0 {
				return fmt.Errorf("%s %s: %v: %s", o.GetKind(), o.GetName(), c["reason"], strings.Join(lines, "; "))
			}
		}
	}
	return nil
}

// gatewayOf is the Gateway that an object was written for.
func gatewayOf(o *unstructured.Unstructured) types.NamespacedName {
	target, _, _ := unstructured.NestedString(o.Object, "spec", "targetRef", "name")
	refs, _, _ := unstructured.NestedSlice(o.Object, "spec", "targetRefs")
	if len(refs) == 1 {
		if ref, ok := refs[0].(fields); ok {
			target, _ = ref["name"].(string)
		}
	}
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: target}
}

// serves reports whether Gateways of a namespace get plugins.
func (r *reconciler) serves(namespace string) bool {
	return len(r.namespaces) == 0 || slices.Contains(r.namespaces, namespace)
}

// read reads what policies are about. Of Gateways and routes it leaves none out that is being deleted: until a finalizer lets it go,
// it is served.
func (r *reconciler) read(ctx context.Context) (*policy.Resources, error) {
	var (
		policies   policy.RateLimitPolicyList
		classes    gatewayv1.GatewayClassList
		gateways   gatewayv1.GatewayList
		http       gatewayv1.HTTPRouteList
		grpc       gatewayv1.GRPCRouteList
		grants     gatewayv1beta1.ReferenceGrantList
		services   corev1.ServiceList
		namespaces corev1.NamespaceList
	)
	for _, list := range []client.ObjectList{&policies, &classes, &gateways, &http, &grpc, &grants, &services, &namespaces} {
		if err := r.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return nil, err
		}
	}
	resources := &policy.Resources{}
	for i := range policies.Items {
		if p := &policies.Items[i]; p.DeletionTimestamp == nil {
			resources.Policies = append(resources.Policies, p)
		}
	}
	by := map[gatewayv1.ObjectName]gatewayv1.GatewayController{}
	for i := range classes.Items {
		by[gatewayv1.ObjectName(classes.Items[i].Name)] = classes.Items[i].Spec.ControllerName
	}
	controllers := map[types.NamespacedName]gatewayv1.GatewayController{}
	for i := range gateways.Items {
		g := &gateways.Items[i]
		controller := by[g.Spec.GatewayClassName]
		implementation := policy.Implementations[string(controller)]
		if implementation == 0 {
			continue
		}
		controllers[client.ObjectKeyFromObject(g)] = controller
		if !r.serves(g.Namespace) {
			continue
		}
		one := &policy.Gateway{NamespacedName: client.ObjectKeyFromObject(g), Implementation: implementation}
		if implementation == policy.Istio {
			one.Alone = r.unlabelled(g, services.Items)
		}
		for _, l := range g.Spec.Listeners {
			if l.Protocol == gatewayv1.HTTPProtocolType || l.Protocol == gatewayv1.HTTPSProtocolType {
				one.Listeners = append(one.Listeners, policy.Listener{Name: string(l.Name), Hostname: string(ptr.Deref(l.Hostname, "")), Port: int(l.Port)})
			}
		}
		resources.Gateways = append(resources.Gateways, one)
	}
	add := func(o client.Object, kind string, hostnames []gatewayv1.Hostname, status *gatewayv1.RouteStatus) *policy.Route {
		route := &policy.Route{Kind: kind, NamespacedName: client.ObjectKeyFromObject(o)}
		for _, name := range hostnames {
			route.Hostnames = append(route.Hostnames, string(name))
		}
		for _, parent := range status.Parents {
			namespace := ptr.Deref(parent.ParentRef.Namespace, gatewayv1.Namespace(o.GetNamespace()))
			name := types.NamespacedName{Namespace: string(namespace), Name: string(parent.ParentRef.Name)}
			// The Gateway decides which routes may attach to it.
			if controllers[name] == parent.ControllerName && ptr.Deref(parent.ParentRef.Kind, "Gateway") == "Gateway" &&
				meta.IsStatusConditionTrue(parent.Conditions, string(gatewayv1.RouteConditionAccepted)) {
				route.Parents = append(route.Parents, policy.Parent{Gateway: name, Listener: string(ptr.Deref(parent.ParentRef.SectionName, ""))})
			}
		}
		resources.Routes = append(resources.Routes, route)
		return route
	}
	for i := range http.Items {
		o := &http.Items[i]
		route := add(o, "HTTPRoute", o.Spec.Hostnames, &o.Status.RouteStatus)
		for _, rule := range o.Spec.Rules {
			route.Rules = append(route.Rules, string(ptr.Deref(rule.Name, "")))
		}
	}
	for i := range grpc.Items {
		o := &grpc.Items[i]
		route := add(o, "GRPCRoute", o.Spec.Hostnames, &o.Status.RouteStatus)
		for _, rule := range o.Spec.Rules {
			route.Rules = append(route.Rules, string(ptr.Deref(rule.Name, "")))
		}
	}
	for _, grant := range grants.Items {
		for _, from := range grant.Spec.From {
			for _, to := range grant.Spec.To {
				group := gatewayv1.Group(gatewayv1.GroupName)
				if to.Kind == "Namespace" || to.Kind == "Service" {
					group = ""
				}
				if string(from.Group) == policy.Version.Group && from.Kind == "RateLimitPolicy" && to.Group == group {
					resources.Grants = append(resources.Grants, policy.Grant{From: string(from.Namespace), To: grant.Namespace, Kind: string(to.Kind), Name: string(ptr.Deref(to.Name, ""))})
				}
			}
		}
	}
	resources.Counters = map[string][]string{}
	labels := map[string]map[string]string{}
	for _, n := range namespaces.Items {
		labels[n.Name] = n.Labels
		for name := range strings.SplitSeq(n.Annotations[policy.CountersAnnotation], ",") {
			resources.Counters[n.Name] = append(resources.Counters[n.Name], strings.TrimSpace(name))
		}
	}
	for i := range services.Items {
		s := &services.Items[i]
		route := &policy.Route{Kind: "Service", NamespacedName: client.ObjectKeyFromObject(s), Rules: []string{""}, Chains: []string{}}
		for _, port := range s.Spec.Ports {
			if port.Protocol == corev1.ProtocolTCP {
				route.Chains = append(route.Chains, fmt.Sprintf("inbound-vip|%d|http|%s.%s.svc.%s", port.Port, s.Name, s.Namespace, r.writer.domain()))
			}
		}
		at, bound := waypointOf(s, labels[s.Namespace]), meta.FindStatusCondition(s.Status.Conditions, "istio.io/WaypointBound")
		switch {
		case len(route.Chains) == 0:
			route.Alone = "it has no TCP port"
		case controllers[at] == "istio.io/mesh-controller" && bound != nil && bound.Status == metav1.ConditionTrue:
			route.Parents = []policy.Parent{{Gateway: at}}
			const label = "istio.io/ingress-use-waypoint"
			value, there := s.Labels[label]
			if !there {
				value = labels[s.Namespace][label]
			}
			if through, _ := strconv.ParseBool(value); !through {
				route.Alone = `requests of Istio's ingress gateways go past its waypoint: want the label ` + label + `: "true" of it or its Namespace`
			}
		case at.Name == "":
			route.Alone = "want a waypoint of Istio, by the label istio.io/use-waypoint: Envoy Gateway and sidecars have no place for it"
		case bound != nil && bound.Status == metav1.ConditionFalse:
			route.Alone = "Istio says of waypoint " + at.String() + ": " + bound.Message
		default:
			route.Alone = "Istio has not bound it to waypoint " + at.String()
		}
		resources.Routes = append(resources.Routes, route)
	}
	return resources, nil
}

// unlabelled is why Istio does not know the pods of a Gateway that it has not deployed itself; empty if it does. It has deployed
// those without addresses, or with one IP address.
func (r *reconciler) unlabelled(g *gatewayv1.Gateway, services []corev1.Service) string {
	const label = "gateway.networking.k8s.io/gateway-name"
	if all := g.Spec.Addresses; len(all) == 0 || len(all) == 1 && ptr.Deref(all[0].Type, gatewayv1.IPAddressType) == gatewayv1.IPAddressType {
		return ""
	}
	for _, address := range g.Spec.Addresses {
		if ptr.Deref(address.Type, gatewayv1.HostnameAddressType) == gatewayv1.HostnameAddressType && !slices.ContainsFunc(services, func(s corev1.Service) bool {
			return s.Namespace == g.Namespace && s.Spec.Selector[label] == g.Name && (address.Value == s.Name || address.Value == s.Name+"."+s.Namespace+".svc."+r.writer.domain())
		}) {
			return fmt.Sprintf("want the label %s: %s on its pods and in the selector of its Service %s, in its namespace: Istio gives no plugin to others", label, g.Name, address.Value)
		}
	}
	return ""
}

// waypointOf is the waypoint that a Service, or else its Namespace, asks for; its name is empty if they ask for none.
func waypointOf(s *corev1.Service, namespace map[string]string) types.NamespacedName {
	for _, labels := range []map[string]string{s.Labels, namespace} {
		if name := labels["istio.io/use-waypoint"]; name == "none" {
			break
		} else if name != "" {
			return types.NamespacedName{Namespace: cmp.Or(labels["istio.io/use-waypoint-namespace"], s.Namespace), Name: name}
		}
	}
	return types.NamespacedName{}
}

// most is how long a condition's message may be, in bytes.
const most = 4096

// tell writes what has become of a policy into its status, and into an event if that has changed.
func (r *reconciler) tell(ctx context.Context, o *policy.Outcome, failed map[types.NamespacedName]error) error {
	status := policy.Status{Conditions: slices.Clone(o.Policy.Status.Conditions), InForce: o.InForce}
	set := func(kind, reason, message string, holds bool) {
		c := metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: reason, Message: cut(message, most), ObservedGeneration: o.Policy.Generation}
		if holds {
			c.Status = metav1.ConditionTrue
		}
		if meta.SetStatusCondition(&status.Conditions, c) && kind != "Overridden" {
			level := corev1.EventTypeNormal
			if !holds {
				level = corev1.EventTypeWarning
			}
			r.events.Eventf(o.Policy, nil, level, reason, "Reconcile", "%s", cut(c.Message, 1000))
		}
	}
	if o.Refused == "" {
		set("Accepted", "Accepted", strings.Join(append([]string{"accepted"}, o.Missed...), "; "), true)
	} else {
		message := o.Refused
		if o.InForce != nil && o.Reason == "Invalid" {
			message = fmt.Sprintf("generation %d stays in force: %s", o.InForce.Generation, message)
		}
		set("Accepted", o.Reason, message, false)
	}
	var at, not []string
	for _, name := range o.Gateways {
		if err := failed[name]; err != nil {
			not = append(not, fmt.Sprintf("Gateway %s: %v", name, err))
		} else {
			at = append(at, name.String())
		}
	}
	switch {
	case len(not) > 0:
		set("Programmed", "Failed", strings.Join(not, "; "), false)
	case len(at) > 0 && o.Partly:
		set("Programmed", "Partly", "in force at Gateway "+strings.Join(at, ", ")+", but not for all: "+strings.Join(o.Missed, "; "), false)
	case len(at) > 0:
		set("Programmed", "Programmed", "in force at Gateway "+strings.Join(at, ", "), true)
	default:
		set("Programmed", "Nowhere", strings.Join(append([]string{"no Gateway has a rule of this policy"}, o.Missed...), "; "), false)
	}
	if len(o.Overridden) > 0 {
		set("Overridden", "Overridden", strings.Join(o.Overridden, "; "), true)
	} else {
		meta.RemoveStatusCondition(&status.Conditions, "Overridden")
	}
	if equality.Semantic.DeepEqual(status, o.Policy.Status) {
		return nil
	}
	changed := o.Policy.DeepCopyObject().(*policy.RateLimitPolicy)
	changed.Status = status
	err := r.Status().Update(ctx, changed)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil // its change leads here again
	}
	return err
}

// cut is the beginning of a text of at most some bytes. Half a rune would be stored as another, and so differ at each pass.
func cut(text string, bytes int) string {
	return strings.ToValidUTF8(text[:min(len(text), bytes)], "")
}

// options has one pass follow another soon after it has failed, and much later each time.
func options() controller.Options {
	return controller.Options{RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](100*time.Millisecond, 30*time.Second)}
}
