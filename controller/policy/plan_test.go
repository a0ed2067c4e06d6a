package policy

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	"weir/config"
	"weir/internal/must"
)

// one is a policy of namespace shop or, with a slash in its name, of another. Each is a minute younger than the one before.
type one struct{ name, target, rules string }

// limits are rules with names.
func limits(names ...string) string {
	for i, name := range names {
		names[i] = fmt.Sprintf("{name: %s, limits: [{limit: 1, window: 1h}]}", name)
	}
	return "[" + strings.Join(names, ", ") + "]"
}

// numbered are the names r0, r1 and so on of as many rules as a policy may have.
func numbered() (names []string) {
	for i := range 64 {
		names = append(names, fmt.Sprint("r", i))
	}
	return names
}

func (p one) policy(t *testing.T, age int) *RateLimitPolicy {
	t.Helper()
	namespace, name, other := strings.Cut(p.name, "/")
	if !other {
		namespace, name = "shop", p.name
	}
	kind, target, _ := strings.Cut(p.target, " ")
	group := "gateway.networking.k8s.io"
	if kind == "Namespace" || kind == "Service" {
		group = ""
	}
	if of, granted, foreign := strings.Cut(target, ":"); foreign {
		target = granted + ", namespace: " + of
	}
	target, section, sectioned := strings.Cut(target, "/")
	if sectioned {
		target += ", sectionName: " + section
	}
	policy := &RateLimitPolicy{}
	must.OK(t, yaml.UnmarshalStrict([]byte(fmt.Sprintf("targetRefs: [{group: %q, kind: %s, name: %s}]\n%s", group, kind, target, p.rules)), &policy.Spec))
	policy.ObjectMeta = metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(p.name), Generation: 1, CreationTimestamp: metav1.NewTime(time.Unix(int64(age*60), 0))}
	return policy
}

var public = types.NamespacedName{Namespace: "shop", Name: "public"}

// resources are two routes of shop, one of a tenant, one of nobody's Gateway, and a Gateway.
func resources(implementation Implementation) *Resources {
	route := func(namespace, name string, hosts []string, rules ...string) *Route {
		return &Route{Kind: "HTTPRoute", NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}, Hostnames: hosts, Rules: rules, Parents: []Parent{{Gateway: public}}}
	}
	alone := route("shop", "alone", nil, "")
	alone.Parents = nil
	intern := route("shop", "intern", nil, "")
	intern.Parents[0].Listener = "intern"
	return &Resources{
		Gateways: []*Gateway{{NamespacedName: public, Implementation: implementation, Listeners: []Listener{{"http", "", 80}, {"intern", "*.b.example", 80}, {"tls", "", 443}}}},
		Routes: []*Route{
			route("shop", "app", []string{"a.example", "*.b.example"}, "", "pay"), route("shop", "app2", []string{"c.example"}, ""), route("tenant", "app", []string{"t.example"}, ""), alone, intern,
		},
	}
}

// request is one that Envoy has found a virtual host for; its route is empty if there is none. Of a waypoint's, virtual is the filter chain.
type request struct{ route, virtual, host, path string }

// requests are one for each rule of a route, and one for none.
func requests(i Implementation) map[string]request {
	if i == Istio {
		return map[string]request{
			"app": {"shop.app.0", "a.example:80", "a.example", "/"}, "app/pay": {"pay", "*.b.example:80", "x.b.example", "/"}, "app2": {"shop.app2.0", "c.example:443", "c.example", "/x"},
			"tenant": {"tenant.app.0", "t.example:443", "t.example", "/"}, "none": {"", "a.example:80", "a.example", "/"}, "intern": {"shop.intern.0", "*.b.example:80", "y.b.example", "/"},
		}
	}
	return map[string]request{
		"app":     {"httproute/shop/app/rule/0/match/0/a_example", "shop/public/http/a_example", "a.example", "/"},
		"app/pay": {"httproute/shop/app/rule/1/match/0/*", "shop/public/intern/*", "x.b.example", "/"},
		"app2":    {"httproute/shop/app2/rule/0/match/0/c_example", "shop/public/tls/c_example", "c.example", "/x"},
		"tenant":  {"httproute/tenant/app/rule/0/match/0/t", "shop/public/tls/t", "t.example", "/"}, "none": {"", "shop/public/http/*", "a.example", "/"},
		"intern": {"httproute/shop/intern/rule/0/match/0/*", "shop/public/intern/*", "y.b.example", "/"},
	}
}

// applied are the names of a plan's rules that apply to a request, all of which count in the Gateway's namespace.
func applied(t *testing.T, plan *Plan, r request) []string {
	t.Helper()
	for _, document := range plan.Configurations[public] {
		must.Contains(t, string(document), `"namespace":"shop"`, "document")
	}
	return appliedTo(t, plan, r)
}

// appliedTo is the same for counters of any namespace.
func appliedTo(t *testing.T, plan *Plan, r request) (names []string) {
	t.Helper()
	for _, document := range plan.Configurations[public] {
		must.Get(config.Parse(document))(t)
		var c struct {
			Rules []struct {
				Name   string
				Match  any
				Except []any
			}
		}
		must.OK(t, json.Unmarshal(document, &c))
		for _, rule := range c.Rules {
			if r.meets(rule.Match) && !slices.ContainsFunc(rule.Except, r.meets) {
				names = append(names, strings.TrimPrefix(rule.Name, "shop_"))
			}
		}
	}
	slices.Sort(names)
	return names
}

// meets evaluates the conditions that policies get, and a path's.
func (r request) meets(match any) bool {
	all, _ := match.(map[string]any)
	for field, condition := range all {
		holds, value := false, map[string]string{"host": r.host, "path": r.path}[field]
		switch field {
		case "any":
			holds = slices.ContainsFunc(condition.([]any), r.meets)
		case "not":
			holds = !r.meets(condition)
		case "property":
			holds = true
			for name, of := range condition.(map[string]any) {
				holds = holds && is(map[string]string{"xds.route_name": r.route, "xds.virtual_host_name": r.virtual, "xds.filter_chain_name": r.virtual}[name], of)
			}
		default:
			holds = is(value, condition)
		}
		if !holds {
			return false
		}
	}
	return true
}

// is compares a value as a condition says.
func is(value string, condition any) (holds bool) {
	for by, text := range condition.(map[string]any) {
		switch by {
		case "prefix":
			holds = strings.HasPrefix(value, text.(string))
		case "suffix":
			holds = strings.HasSuffix(value, text.(string))
		case "exact":
			holds = value == text
		case "in":
			holds = slices.Contains(text.([]any), any(value))
		}
	}
	return holds
}

func newPlanner(t *testing.T) *Planner {
	t.Helper()
	return must.Get(NewPlanner([]byte("{}")))(t)
}

func TestPlan(t *testing.T) {
	const everywhere = "app app/pay app2 tenant none intern"
	for _, test := range []struct {
		name     string
		policies []one
		// want has, by rule, the requests that it applies to.
		want map[string]string
		// refused and overridden have, by policy, a part of what it is told.
		refused, overridden map[string]string
	}{
		{"a Gateway's", []one{{"g", "Gateway public", "rules: " + limits("r")}}, map[string]string{"g_r": everywhere}, nil, nil},
		{"a route's", []one{{"p", "HTTPRoute app", "rules: " + limits("r")}}, map[string]string{"p_r": "app app/pay"}, nil, nil},
		{"a rule's", []one{{"p", "HTTPRoute app/pay", "rules: " + limits("r")}}, map[string]string{"p_r": "app/pay"}, nil, nil},
		{
			"a tenant's has its own name", []one{{"p", "HTTPRoute app", "rules: " + limits("r")}, {"tenant/p", "HTTPRoute app", "rules: " + limits("r")}},
			map[string]string{"p_r": "app app/pay", "tenant_p_r": "tenant"}, nil, nil,
		},
		{
			"bare rules are atomic defaults", []one{{"g", "Gateway public", "rules: " + limits("r", "s")}, {"p", "HTTPRoute app", "rules: " + limits("r")}, {"q", "HTTPRoute app/pay", "rules: " + limits("t")}},
			map[string]string{"g_r": "app2 tenant none intern", "g_s": "app2 tenant none intern", "p_r": "app", "q_t": "app/pay"}, nil,
			map[string]string{"g": "s by shop/p at HTTPRoute shop/app", "p": "r by shop/q at HTTPRoute shop/app"},
		},
		{
			"defaults merge by name", []one{{"g", "Gateway public", "defaults: {strategy: merge, rules: " + limits("r", "s") + "}"}, {"p", "HTTPRoute app", "rules: " + limits("r", "t")}},
			map[string]string{"g_r": "app2 tenant none intern", "g_s": everywhere, "p_r": "app app/pay", "p_t": "app app/pay"}, nil, map[string]string{"g": "r by shop/p"},
		},
		{
			"overrides replace all", []one{{"g", "Gateway public", "overrides: {rules: " + limits("r") + "}"}, {"p", "HTTPRoute app", "rules: " + limits("s")}, {"tenant/q", "HTTPRoute app", "overrides: {rules: " + limits("s") + "}"}},
			map[string]string{"g_r": everywhere}, nil, map[string]string{"p": "s by shop/g", "tenant/q": "s by shop/g"},
		},
		{
			"overrides merge by name", []one{{"g", "Gateway public", "overrides: {strategy: merge, rules: " + limits("r") + "}"}, {"p", "HTTPRoute app", "rules: " + limits("r", "s")}},
			map[string]string{"g_r": everywhere, "p_s": "app app/pay"}, nil, map[string]string{"p": "r by shop/g"},
		},
		{"a listener's", []one{{"l", "Gateway public/intern", "rules: " + limits("r")}}, map[string]string{"l_r": "app/pay intern"}, nil, nil},
		{"another listener's of the port", []one{{"l", "Gateway public/http", "rules: " + limits("r")}}, map[string]string{"l_r": "app none"}, nil, nil},
		{
			"a listener's in the hierarchy", []one{
				{"g", "Gateway public", "rules: " + limits("r")}, {"l", "Gateway public/tls", "defaults: {strategy: merge, rules: " + limits("r", "s") + "}"}, {"p", "HTTPRoute app2", "rules: " + limits("s")},
			},
			map[string]string{"g_r": "app app/pay none intern", "l_r": "app2 tenant", "l_s": "tenant", "p_s": "app2"}, nil,
			map[string]string{"g": "r by shop/l at Gateway shop/public/tls", "l": "s by shop/p at HTTPRoute shop/app2"},
		},
		{"a listener that is not there", []one{{"l", "Gateway public/x", "rules: " + limits("r")}}, nil, map[string]string{"l": "Gateway public/x is not there"}, nil},
		{"a namespace's", []one{{"n", "Namespace shop", "rules: " + limits("r")}}, map[string]string{"n_r": everywhere}, nil, nil},
		{
			"a tenant's namespace", []one{{"tenant/n", "Namespace tenant", "rules: " + limits("r")}, {"g", "Gateway public", "overrides: {strategy: merge, rules: " + limits("s") + "}"}},
			map[string]string{"tenant_n_r": "tenant", "g_s": everywhere}, nil, nil,
		},
		{
			"a namespace's overrides", []one{{"n", "Namespace shop", "overrides: {rules: " + limits("r") + "}"}, {"g", "Gateway public", "rules: " + limits("s")}, {"p", "HTTPRoute app", "rules: " + limits("t")}},
			map[string]string{"n_r": everywhere}, nil, map[string]string{"g": "s by shop/n at Gateway shop/public", "p": "t by shop/n at HTTPRoute shop/app"},
		},
		{"another's namespace", []one{{"tenant/n", "Namespace shop", "rules: " + limits("r")}}, nil, map[string]string{"tenant/n": "Namespace shop of namespace shop: want a ReferenceGrant there, from tenant"}, nil},
		{
			"the oldest wins", []one{{"old", "HTTPRoute app2", "rules: " + limits("r")}, {"new", "HTTPRoute app2", "rules: " + limits("s")}},
			map[string]string{"old_r": "app2"}, map[string]string{"new": "HTTPRoute app2 has the older policy shop/old"}, nil,
		},
		{
			"nobody reaches another namespace", []one{{"tenant/g", "Gateway public", "rules: " + limits("r")}, {"tenant/p", "HTTPRoute app2", "rules: " + limits("r")}},
			nil, map[string]string{"tenant/g": "Gateway public is not there", "tenant/p": "HTTPRoute app2 is not there"}, nil,
		},
		{
			"by a grant", []one{{"tenant/p", "HTTPRoute shop:app2", "rules: " + limits("r")}, {"q", "HTTPRoute tenant:app", "rules: " + limits("r")}},
			map[string]string{"tenant_p_r": "app2"}, map[string]string{"q": "HTTPRoute app of namespace tenant: want a ReferenceGrant there, from shop"}, nil,
		},
		{
			"a namespace's own before one by a grant", []one{{"tenant/p", "HTTPRoute shop:app2", "rules: " + limits("r")}, {"q", "HTTPRoute app2", "rules: " + limits("r")}},
			map[string]string{"q_r": "app2"}, map[string]string{"tenant/p": "HTTPRoute app2 has the policy of its own namespace shop/q"}, nil,
		},
		{"a grant for another", []one{{"tenant/p", "HTTPRoute shop:app", "rules: " + limits("r")}}, nil, map[string]string{"tenant/p": "want a ReferenceGrant"}, nil},
		{"a route that no Gateway accepts", []one{{"p", "HTTPRoute alone", "rules: " + limits("r")}}, nil, nil, nil},
		{"a rule that is not there", []one{{"p", "HTTPRoute app/x", "rules: " + limits("r")}}, nil, map[string]string{"p": "HTTPRoute app/x is not there"}, nil},
		{
			"what the parser refuses", []one{{"p", "HTTPRoute app", "defaults: {rules: [{name: r, limits: [{limit: 1, window: 1 minute}]}]}"}},
			nil, map[string]string{"p": `spec.defaults.rules[0].limits[0].window: want a duration`}, nil,
		},
		{
			"own conditions stay", []one{{"p", "HTTPRoute app2", `rules:
- {name: r, match: {any: [{path: {prefix: /x}}]}, limits: [{limit: 1, window: 1h}]}
- {name: s, match: {any: [{path: {prefix: /y}}]}, limits: [{limit: 1, window: 1h}]}
- {name: t, match: {path: {prefix: /x}}, except: [{host: {exact: c.example}}], limits: [{limit: 1, window: 1h}]}`}},
			map[string]string{"p_r": "app2"}, nil, nil,
		},
	} {
		for _, implementation := range []Implementation{Istio, EnvoyGateway} {
			t.Run(test.name+" on "+implementation.String(), func(t *testing.T) {
				r := resources(implementation)
				r.Grants = []Grant{{From: "tenant", To: "shop", Kind: "HTTPRoute", Name: "app2"}}
				for i, p := range test.policies {
					r.Policies = append(r.Policies, p.policy(t, i))
				}
				slices.Reverse(r.Policies)
				plan := newPlanner(t).Plan(r)
				got, want := map[string]string{}, map[string]string{}
				for name, request := range requests(implementation) {
					got[name] = strings.Join(applied(t, plan, request), " ")
					for _, rule := range slices.Sorted(maps.Keys(test.want)) {
						if slices.Contains(strings.Fields(test.want[rule]), name) {
							want[name] = strings.TrimSpace(want[name] + " " + rule)
						} else {
							want[name] += ""
						}
					}
					want[name] += ""
				}
				must.Same(t, got, want, "by %s", plan.Configurations[public])
				for _, o := range plan.Outcomes {
					name := string(o.Policy.UID)
					if want := test.refused[name]; !strings.Contains(o.Refused, want) || (want == "") != (o.Refused == "") || (want == "") != (o.Reason == "") {
						t.Errorf("%s is refused: %q, %q, want %q", name, o.Reason, o.Refused, want)
					}
					if said, want := strings.Join(o.Overridden, "; "), test.overridden[name]; !strings.Contains(said, want) || (want == "") != (said == "") {
						t.Errorf("%s is overridden: %q, want %q", name, said, want)
					}
				}
			})
		}
	}
}

// Services at a waypoint of another namespace: each has the rules of its own policy, and the waypoint's override them.
func TestServices(t *testing.T) {
	r := resources(Istio)
	for _, name := range []types.NamespacedName{{Namespace: "shop", Name: "app"}, {Namespace: "tenant", Name: "app"}} {
		r.Routes = append(r.Routes, &Route{Kind: "Service", NamespacedName: name, Rules: []string{""}, Parents: []Parent{{Gateway: public}}, Chains: []string{"inbound-vip|80|http|app." + name.Namespace + ".svc.cluster.local"}})
	}
	r.Routes = append(r.Routes, &Route{Kind: "Service", NamespacedName: types.NamespacedName{Namespace: "shop", Name: "alone"}, Rules: []string{""}, Chains: []string{}, Alone: "no waypoint"})
	r.Policies = []*RateLimitPolicy{
		one{"tenant/p", "Service app", "rules: " + limits("r")}.policy(t, 0), one{"tenant/thief", "Service shop:app", "rules: " + limits("r")}.policy(t, 1),
		one{"g", "Gateway public", "defaults: {strategy: merge, rules: " + limits("r", "all") + "}"}.policy(t, 2), one{"a", "Service alone", "rules: " + limits("r")}.policy(t, 3),
	}
	plan := newPlanner(t).Plan(r)
	for chain, want := range map[string][]string{
		"inbound-vip|80|http|app.tenant.svc.cluster.local": {"g_all", "tenant_p_r"}, "inbound-vip|80|http|app.shop.svc.cluster.local": {"g_all", "g_r"},
		"inbound-vip|81|http|app.tenant.svc.cluster.local": {"g_all", "g_r"}, "inbound-vip|80|http|app.tenant.svc.cluster.local.example": {"g_all", "g_r"}, "": {"g_all", "g_r"},
	} {
		must.Same(t, applied(t, plan, request{virtual: chain}), want, "%s", chain)
	}
	if o := plan.Outcomes[1]; o.Reason != "RefNotPermitted" || len(o.Gateways) > 0 {
		t.Errorf("the thief: %+v", o)
	}
	if o := plan.Outcomes[3]; o.Refused != "" || len(o.Gateways) > 0 || !slices.Equal(o.Missed, []string{"Service alone: no waypoint"}) {
		t.Errorf("without a waypoint: %+v", o)
	}
}

// Counters are shared by a grant alone, and never those of a Gateway's policies.
func TestCounters(t *testing.T) {
	r := resources(Istio)
	for i, of := range []string{"all", "all", "other", "shop"} {
		r.Policies = append(r.Policies, one{fmt.Sprint("p", i), []string{"HTTPRoute app", "HTTPRoute app2", "Gateway public", "HTTPRoute intern"}[i], "counters: " + of + "\nrules: " + limits("r")}.policy(t, i))
	}
	r.Counters = map[string][]string{"shop": {"all", "shop"}, "tenant": {"other"}}
	plan := newPlanner(t).Plan(r)
	var got []string
	for _, document := range plan.Configurations[public] {
		var c struct {
			Namespace string
			Rules     []struct{ Name string }
		}
		must.OK(t, json.Unmarshal(document, &c))
		must.Get(config.Parse(document))(t)
		for _, rule := range c.Rules {
			got = append(got, c.Namespace+" "+rule.Name)
		}
	}
	must.Same(t, slices.Sorted(slices.Values(got)), []string{"all r", "shop shop_p2_r", "shop shop_p3_r"}, "")
	for i, want := range []string{"", "", "spec.counters: want other in the annotation weir.dev/counters of Namespace shop", "spec.counters: want another name than shop"} {
		if o := plan.Outcomes[i]; !strings.HasPrefix(strings.Join(o.Missed, ""), want) || want == "" && len(o.Missed) > 0 || o.Refused != "" {
			t.Errorf("%d: %+v", i, o)
		}
	}
}

// A tenant on Istio may name its rule as Istio names another's: its host tells it apart.
func TestForgedName(t *testing.T) {
	r := resources(Istio)
	r.Policies = []*RateLimitPolicy{one{"p", "HTTPRoute app2", "rules: " + limits("r")}.policy(t, 0)}
	planner := newPlanner(t)
	plan := planner.Plan(r)
	must.Same(t, applied(t, plan, request{"shop.app2.0", "", "t.example", "/"}), nil, "of another host")
	must.Same(t, applied(t, plan, request{"shop.app2.0", "", "c.example", "/"}), []string{"p_r"}, "of its own")
	// What the tenant wants for such a rule is not for the other's.
	r.Routes = append(r.Routes, &Route{Kind: "HTTPRoute", NamespacedName: types.NamespacedName{Namespace: "tenant", Name: "forged"}, Rules: []string{"shop.app2.0"}, Parents: []Parent{{Gateway: public}}})
	r.Policies = append(r.Policies, one{"tenant/p", "HTTPRoute forged", "rules: " + limits("none")}.policy(t, 1))
	plan = planner.Plan(r)
	must.Same(t, applied(t, plan, request{"shop.app2.0", "", "c.example", "/"}), []string{"p_r"}, "of its own, beside a forged name")
	// The listener's limits hold for it.
	forged := r.Routes[len(r.Routes)-1]
	forged.Hostnames = []string{"f.example"}
	r.Policies = append(r.Policies, one{"l", "Gateway public/http", "overrides: {rules: " + limits("cap") + "}"}.policy(t, 2), one{"g", "Gateway public", "rules: " + limits("gate")}.policy(t, 3))
	must.Same(t, applied(t, planner.Plan(r), request{"shop.app2.0", "f.example:80", "f.example", "/"}), []string{"l_cap"}, "at a listener")
	if missed := plan.Outcomes[1].Missed; len(missed) != 1 || !strings.Contains(missed[0], "has the name of another namespace's rule") {
		t.Errorf("the tenant is told %q", missed)
	}
}

// What is told of a policy has a bound, and says how much more there is.
func TestToldOnce(t *testing.T) {
	r := resources(EnvoyGateway)
	r.tenants("tenant", 100)
	r.Policies = []*RateLimitPolicy{one{"g", "Gateway public", "rules: " + limits("a", "b", "c")}.policy(t, 1)}
	for i := range 100 {
		r.Policies = append(r.Policies, one{fmt.Sprint("tenant/p", i), fmt.Sprint("HTTPRoute r", i), "rules: " + limits("r")}.policy(t, i))
	}
	told := newPlanner(t).Plan(r).Outcomes[0].Overridden
	if want := fmt.Sprint(3*100-maxTold, " more"); len(told) != maxTold+1 || told[maxTold] != want || told[0] != "a by tenant/p0 at HTTPRoute tenant/r0" {
		t.Errorf("%q, want %d and %s", told, maxTold, want)
	}
}

// Istio gives on a rule's own name alone. What a tenant wants for a rule of the same name as another namespace's, or as Istio makes
// for one that is not read, reaches neither, unless their hosts tell them apart.
func TestSharedName(t *testing.T) {
	tenants, shops := request{"pay", "", "t.b.example", "/"}, requests(Istio)["app/pay"]
	for _, test := range []struct {
		name                 string
		hosts                []string
		want, theirs         string
		missed, othersMissed int
	}{
		{"pay", nil, "g_gate", "g_gate", 1, 1},
		{"pay", []string{"*.example"}, "g_gate", "g_gate", 1, 1},
		{"pay", []string{"t.example", "t.b.example"}, "g_gate", "g_gate", 1, 1},
		{"pay", []string{"*.t.b.example"}, "g_gate", "g_gate", 1, 1},
		{"pay", []string{"t.example", "*.c.example", "b.example"}, "p_r", "p_r", 0, 0},
		{"other", nil, "p_r", "p_r", 0, 0},
		{"elsewhere.app.0", nil, "p_r", "p_r", 1, 0},
		{"tenant.app.7", nil, "p_r", "p_r", 0, 0},
		{"v1.pay", nil, "p_r", "p_r", 0, 0},
	} {
		r := resources(Istio)
		r.Routes[2].Rules, r.Routes[2].Hostnames = []string{test.name}, test.hosts
		r.Policies = []*RateLimitPolicy{
			one{"tenant/p", "HTTPRoute app", "rules: " + limits("r")}.policy(t, 0), one{"p", "HTTPRoute app", "rules: " + limits("r")}.policy(t, 1), one{"g", "Gateway public", "rules: " + limits("gate")}.policy(t, 2),
		}
		plan := newPlanner(t).Plan(r)
		must.Same(t, applied(t, plan, shops), []string{test.want}, "%s, %q: applied", test.name, test.hosts)
		must.Same(t, applied(t, plan, tenants), []string{test.theirs}, "%s, %q: applied to tenants", test.name, test.hosts)
		if o, other := plan.Outcomes[0], plan.Outcomes[1]; o.Partly != (test.missed > 0) || other.Partly != (test.othersMissed > 0) || len(o.Missed) != test.missed || len(other.Missed) != test.othersMissed || len(o.Gateways) != 1-test.missed || len(other.Gateways) != 1 {
			t.Errorf("%s, %q: %+v, %+v", test.name, test.hosts, o, other)
		}
	}
}

// A policy that breaks leaves the last one in force, also where the planner is new.
func TestBrokenPolicy(t *testing.T) {
	r := resources(EnvoyGateway)
	good, bad := one{"p", "HTTPRoute app2", "rules: " + limits("r")}.policy(t, 0), one{"p", "HTTPRoute app", "rules: [{name: r}]"}.policy(t, 0)
	bad.Generation = 2
	planner := newPlanner(t)
	r.Policies = []*RateLimitPolicy{good}
	status := planner.Plan(r).Outcomes[0].InForce
	r.Policies[0] = bad
	must.Same(t, applied(t, planner.Plan(r), requests(EnvoyGateway)["app2"]), []string{"p_r"}, "before a status is written")
	bad.Status.InForce = status
	for range 2 {
		plan := planner.Plan(r)
		o := plan.Outcomes[0]
		if o.Reason != "Invalid" || !strings.HasPrefix(o.Refused, "spec.rules[0]") || o.InForce.Generation != 1 {
			t.Errorf("%+v", o)
		}
		must.Same(t, applied(t, plan, requests(EnvoyGateway)["app2"]), []string{"p_r"}, "")
		planner = newPlanner(t)
	}
}

// More rules than a plugin takes are in several plugins, and none is lost.
func TestManyRules(t *testing.T) {
	r := resources(Istio)
	for i := range 150 {
		name := fmt.Sprint("r", i)
		r.Routes = append(r.Routes, &Route{Kind: "HTTPRoute", NamespacedName: types.NamespacedName{Namespace: "shop", Name: name}, Hostnames: []string{name + ".example"}, Rules: []string{""}, Parents: []Parent{{Gateway: public}}})
		r.Policies = append(r.Policies, one{name, "HTTPRoute " + name, "rules: " + limits("a", "b")}.policy(t, i))
	}
	r.Policies = append(r.Policies, one{"g", "Gateway public", "rules: " + limits("all")}.policy(t, 0))
	plan := newPlanner(t).Plan(r)
	must.Equal(t, len(plan.Configurations[public]), 2, "plugins")
	for i := range 150 {
		name := fmt.Sprint("r", i)
		must.Same(t, applied(t, plan, request{"shop." + name + ".0", "", name + ".example", "/"}), []string{name + "_a", name + "_b"}, "")
	}
	must.Same(t, applied(t, plan, requests(Istio)["app"]), []string{"g_all"}, "")
}

func (r *Resources) tenants(namespace string, n int) {
	for i := range n {
		r.Routes = append(r.Routes, &Route{Kind: "HTTPRoute", NamespacedName: types.NamespacedName{Namespace: namespace, Name: fmt.Sprint("r", i)}, Rules: []string{""}, Parents: []Parent{{Gateway: public}}})
	}
}

// hostile adds routes whose names and hosts are as many and as long as can be, and the hosts of as many labels.
func (r *Resources) hostile(namespace, rule string, n int) {
	for i := range n {
		route := &Route{Kind: "HTTPRoute", NamespacedName: types.NamespacedName{Namespace: namespace, Name: fmt.Sprint("r", i, strings.Repeat("x", 240))}, Parents: []Parent{{Gateway: public}}}
		for j := range 16 {
			name := rule
			if name != "" {
				name += fmt.Sprint("-", i, "-", j)
			}
			route.Rules = append(route.Rules, name)
			route.Hostnames = append(route.Hostnames, fmt.Sprintf("*.%s%d-%d.%s.example", namespace, i, j, strings.Repeat("y.", 99)+"yy"))
		}
		r.Routes = append(r.Routes, route)
	}
}

// Routes without a policy lengthen nobody's rules, and so lift no limits.
func TestBystanders(t *testing.T) {
	for _, implementation := range []Implementation{Istio, EnvoyGateway} {
		r := resources(implementation)
		r.tenants("small", 1)
		r.Grants = []Grant{{From: "platform", To: "evil", Kind: "Namespace"}}
		r.Policies = []*RateLimitPolicy{
			one{"g", "Gateway public", "rules: " + limits("gate")}.policy(t, 0), one{"l", "Gateway public/http", "defaults: {rules: " + limits("cap") + "}"}.policy(t, 1),
			one{"small/p", "HTTPRoute r0", "rules: " + limits("r")}.policy(t, 2), one{"platform/n", "Namespace evil", "overrides: {rules: " + limits("cap") + "}"}.policy(t, 3),
		}
		r.hostile("evil", "", 1)
		sizes := map[int]int{}
		for _, n := range []int{1, 300} {
			r.hostile("evil", "", n)
			r.hostile("evil", "named", n)
			r.hostile("other", "", n)
			plan := newPlanner(t).Plan(r)
			for _, d := range plan.Configurations[public] {
				sizes[n] += len(d)
			}
			for _, route := range []*Route{r.Routes[5], r.Routes[6], r.Routes[len(r.Routes)-1]} {
				host, want := hostnames(route)[0], map[string]string{"evil": "platform_n_cap", "other": "l_cap", "small": "small_p_r"}[route.Namespace]
				at := request{route.Namespace + "." + route.Name + ".0", host + ":80", "a" + host[1:], "/"}
				if implementation == EnvoyGateway {
					at = request{"httproute/" + route.Namespace + "/" + route.Name + "/rule/0/match/0/*", "shop/public/http/*", "", "/"}
				}
				must.Same(t, applied(t, plan, at), []string{want}, "%s: %d at %s", implementation, n, route.Namespace)
			}
			for _, o := range plan.Outcomes {
				must.Equal(t, len(o.Gateways), 1, "%s: %d: Gateways of %+v", implementation, n, o)
			}
		}
		must.AtMost(t, sizes[300]-sizes[1], 3*2*maxRegion, "%s: bytes more than the %d of one route", implementation, sizes[1])
	}
}

// A namespace's policy holds for all of its routes, with and without names, and for none of another.
func TestRoutesOfANamespace(t *testing.T) {
	r := resources(Istio)
	r.tenants("tenants", 1)
	r.Routes[2].Rules = []string{"", "buy"}
	r.Routes = append(r.Routes, &Route{Kind: "GRPCRoute", NamespacedName: types.NamespacedName{Namespace: "tenant", Name: "rpc"}, Hostnames: []string{"*.t.example"}, Rules: []string{""}, Parents: []Parent{{Gateway: public}}})
	r.Policies = []*RateLimitPolicy{one{"tenant/n", "Namespace tenant", "rules: " + limits("r")}.policy(t, 0), one{"tenant/p", "GRPCRoute rpc", "rules: " + limits("r")}.policy(t, 1)}
	for _, test := range []struct {
		request
		want []string
	}{
		{request{"tenant.app.0", "", "t.example", "/"}, []string{"tenant_n_r"}}, {request{"tenant.new.7", "", "t.example", "/"}, []string{"tenant_n_r"}}, {request{"buy", "", "t.example", "/"}, []string{"tenant_n_r"}},
		{request{"tenant.rpc.0", "", "a.t.example", "/"}, []string{"tenant_p_r"}}, {request{"tenants.r0.0", "", "t.example", "/"}, nil},
		{request{"buy", "", "c.example", "/"}, nil}, {request{"tenant.app.0", "", "c.example", "/"}, nil},
	} {
		must.Same(t, applied(t, newPlanner(t).Plan(r), test.request), test.want, "%v", test.request)
	}
	// Of names that another namespace's rules have and that begin as its own, none but its own.
	forger := &Route{Kind: "HTTPRoute", NamespacedName: types.NamespacedName{Namespace: "evil", Name: "forger"}, Rules: []string{"tenant.x", "tenant.app.7"}, Hostnames: []string{"t.example"}, Parents: []Parent{{Gateway: public}}}
	r.Routes, r.Policies = append(r.Routes, forger), append(r.Policies, one{"g", "Gateway public", "rules: " + limits("gate")}.policy(t, 2))
	for _, test := range []struct{ route, host, want string }{
		{"tenant.x", "t.example", "g_gate"}, {"tenant.app.7", "t.example", "g_gate"}, {"tenant.app.0", "t.example", "tenant_n_r"}, {"buy", "t.example", "tenant_n_r"},
		{"tenant.rpc.0", "a.t.example", "tenant_p_r"}, {"tenant.app.0", "c.example", "g_gate"},
	} {
		must.Same(t, applied(t, newPlanner(t).Plan(r), request{test.route, "", test.host, "/"}), []string{test.want}, "beside forged names: %s at %s", test.route, test.host)
	}
	// Where it has too many to name them, no request of its own loses its limits, and the policy says what else has them.
	r.tenants("tenant", 800)
	plan := newPlanner(t).Plan(r)
	for _, name := range []string{"tenant.x", "tenant.app.0", "tenant.r799.0"} {
		must.Same(t, applied(t, plan, request{name, "", "t.example", "/"}), []string{"tenant_n_r"}, "beside a forged name, of many: %s", name)
	}
	if o := plan.Outcomes[0]; o.Partly || len(o.Missed) != 1 || !strings.Contains(o.Missed[0], "want fewer routes") {
		t.Errorf("of many: %+v", o)
	}
	// Of more names than there is room for, none is another's.
	r.Policies, r.Routes[2].Rules = r.Policies[:1], nil
	for i := range 60 {
		r.Routes[2].Rules = append(r.Routes[2].Rules, fmt.Sprint("r", i, strings.Repeat("x", 200)))
	}
	r.Routes = r.Routes[:5]
	plan = newPlanner(t).Plan(r)
	if o := plan.Outcomes[0]; !o.Partly || len(plan.Configurations[public]) > 0 || len(o.Gateways) > 0 || len(o.Missed) != 1 || !strings.Contains(o.Missed[0], "want fewer rules of routes with a name") {
		t.Errorf("%+v, %s", o, plan.Configurations[public])
	}
}

// On Istio a route of one listener may serve hosts that are another's, where that has no route for them. It stays at its listener.
func TestHostsOfAnotherListener(t *testing.T) {
	r := resources(Istio)
	r.Routes = append(r.Routes, &Route{Kind: "HTTPRoute", NamespacedName: types.NamespacedName{Namespace: "shop", Name: "wide"}, Hostnames: []string{"*.example"}, Rules: []string{""}, Parents: []Parent{{Gateway: public, Listener: "http"}}})
	r.Policies = []*RateLimitPolicy{one{"l", "Gateway public/http", "overrides: {rules: " + limits("cap") + "}"}.policy(t, 1), one{"p", "HTTPRoute intern", "rules: " + limits("r")}.policy(t, 2)}
	plan := newPlanner(t).Plan(r)
	for at, want := range map[request]string{{"shop.wide.0", "*.example:80", "x.b.example", "/"}: "l_cap", {"shop.intern.0", "*.b.example:80", "x.b.example", "/"}: "p_r"} {
		must.Same(t, applied(t, plan, at), []string{want}, "%v", at)
	}
}

// What has no room is left out before it is written out. Of rules of two namespaces that share names, no host is kept with all
// hostnames that cover it.
func TestMemory(t *testing.T) {
	full, alike := resources(Istio), resources(Istio)
	full.hostile("evil", "", 80)
	for i, route := range full.Routes[5:] {
		full.Policies = append(full.Policies, one{fmt.Sprint("evil/p", i), "HTTPRoute " + route.Name, "rules: " + limits(numbered()...)}.policy(t, i))
	}
	alike.hostile("evil", "named", 80)
	alike.hostile("evil2", "named", 80)
	alike.Policies = []*RateLimitPolicy{one{"g", "Gateway public", "rules: " + limits("gate")}.policy(t, 0)}
	for name, r := range map[string]*Resources{"full": full, "alike": alike} {
		planner := newPlanner(t)
		planner.Plan(r) // reads the policies
		var plan *Plan
		_, took := must.Allocated(func() { plan = planner.Plan(r) })
		must.AtLeast(t, len(plan.Configurations[public]), 1, "%s: documents", name)
		must.AtMost(t, took, 80<<20, "%s: bytes allocated", name)
	}
}

// One tenant's large policy is left out, and nobody else's.
func TestOneLargePolicy(t *testing.T) {
	for _, n := range []int{50, 200} {
		r := resources(EnvoyGateway)
		for i := range n {
			namespace := fmt.Sprint("t", i)
			r.tenants(namespace, 1)
			r.Policies = append(r.Policies, one{namespace + "/p", "HTTPRoute r0", "rules: " + limits("r")}.policy(t, i))
		}
		r.tenants("evil", 500)
		large := one{"evil/n", "HTTPRoute r0", "rules: " + limits(numbered()...)}.policy(t, n)
		for i := range 499 {
			ref := large.Spec.TargetRefs[0]
			ref.Name = gatewayv1.ObjectName(fmt.Sprint("r", i+1))
			large.Spec.TargetRefs = append(large.Spec.TargetRefs, ref)
		}
		r.Policies = append(r.Policies, large)
		for i, o := range newPlanner(t).Plan(r).Outcomes {
			must.Equal(t, len(o.Gateways), min(1, n-i), "%d: Gateways of %s", n, nameOf(o.Policy))
		}
	}
}

// Tenants whose rules are for more places than an object holds keep nobody else's rules from the Gateway, nor the Gateway's from them.
func TestHugeRule(t *testing.T) {
	for want, tenants := range map[string]int{"the rule r with all its places: want at most 900000 bytes": 1, "the Gateway's plugins have no room for all policies' rules": 2} {
		r := resources(Istio)
		r.Policies = []*RateLimitPolicy{one{"p", "HTTPRoute app2", "rules: " + limits("r")}.policy(t, 1), one{"g", "Gateway public", "rules: " + limits("r")}.policy(t, 2)}
		for tenant := range tenants {
			namespace := fmt.Sprint("tenant", tenant)
			from := len(r.Routes)
			r.hostile(namespace, "", 180/tenants)
			wide := one{namespace + "/n", "HTTPRoute x", "rules: " + limits("r")}.policy(t, tenant)
			wide.Spec.TargetRefs = nil
			for _, route := range r.Routes[from:] {
				ref := TargetRef{}
				ref.Group, ref.Kind, ref.Name = "gateway.networking.k8s.io", "HTTPRoute", gatewayv1.ObjectName(route.Name)
				wide.Spec.TargetRefs = append(wide.Spec.TargetRefs, ref)
			}
			r.Policies = append(r.Policies, wide)
		}
		plan := newPlanner(t).Plan(r)
		left := slices.IndexFunc(plan.Outcomes, func(o *Outcome) bool { return len(o.Missed) > 0 })
		if left < 0 {
			t.Fatalf("%d: none is left out", tenants)
		}
		o := plan.Outcomes[left]
		if len(o.Gateways) > 0 || len(o.Missed) != 1 || !strings.HasPrefix(o.Missed[0], "Gateway shop/public: the policy is left out: "+want) {
			t.Errorf("%d: %q, %q", tenants, o.Missed, o.Gateways)
		}
		for _, route := range r.Routes[5:] {
			want := []string{route.Namespace + "_n_r"}
			if route.Namespace == o.Policy.Namespace {
				want = []string{"g_r"}
			}
			if strings.HasPrefix(route.Name, "r1x") {
				must.Same(t, applied(t, plan, request{route.Namespace + "." + route.Name + ".0", "", "a" + route.Hostnames[0][1:], "/"}), want, "%d: %s", tenants, route.Namespace)
			}
		}
		must.Same(t, applied(t, plan, requests(Istio)["app2"]), []string{"p_r"}, "")
	}
}

// No tenant takes the Gateway from others: what its plugins have no room for is left out, of those with most the youngest first. The
// Gateway's own rules hold in its place.
func TestRoom(t *testing.T) {
	const own = "g_gate"
	var logs []string
	for i := range 8 {
		logs = append(logs, fmt.Sprintf("{limit: 800, window: %dh, algorithm: sliding_log}", i+1))
	}
	var large []string
	for i := range 64 {
		large = append(large, fmt.Sprintf("{name: r%d, key: [client_ip], limits: [%s]}", i, strings.Join(logs, ", ")))
	}
	heavy := "rules: [" + strings.Join(large, ", ") + "]"
	each := func(n int, rules string) (all []one) {
		for i := range n {
			all = append(all, one{fmt.Sprintf("tenant/p%d", i), fmt.Sprintf("HTTPRoute r%d", i), rules})
		}
		return all
	}
	long := strings.ReplaceAll(limits("r"), "limits", `match: {not: {path: {in: [`+strings.TrimSuffix(strings.Repeat("/"+strings.Repeat("x", 4000)+"%d, ", 15), ", ")+`]}}}, limits`)
	for i := range 15 {
		long = strings.Replace(long, "%d", fmt.Sprint(i), 1)
	}
	for _, test := range []struct {
		name     string
		routes   int
		policies []one
		gate     []string // the Gateway's rules
		// first and last are those at the tenant's first route and its last.
		first, last string
		documents   int // at most
	}{
		{"equal rules of a shared counter", 40, each(40, "counters: all\nrules: "+limits("r")), []string{"gate"}, "r", "r", 2},
		{"unequal rules of a shared counter", 2, append(each(1, "counters: all\nrules: "+limits("r")), one{"tenant/other", "HTTPRoute r1", "counters: all\nrules: [{name: r, limits: [{limit: 2, window: 1h}]}]"}), []string{"gate"}, "r", own, 2},
		{"rules", 70, each(70, "rules: "+limits(numbered()...)), []string{"gate"}, "tenant_p0_r0", own, maxPlugins},
		{"bytes", 20, each(20, "rules: "+long), []string{"gate"}, "tenant_p0_r", own, maxPlugins},
		{"rules that fill a plugin by the few", 30, each(30, heavy), []string{"gate"}, "tenant_p0_r0", own, maxPlugins},
		{"places", 300, each(300, "rules: "+limits("r")), append([]string{"gate"}, numbered()[1:]...), "tenant_p0_r", own, maxPlugins},
		{"a namespace", 3000, []one{{"tenant/n", "Namespace tenant", "rules: " + limits("r")}}, append([]string{"gate"}, numbered()[1:]...), "tenant_n_r", "tenant_n_r", 1},
	} {
		r := resources(EnvoyGateway)
		r.Counters = map[string][]string{"tenant": {"all"}}
		r.tenants("tenant", test.routes)
		r.tenants("small", 1)
		for i, p := range append(test.policies, one{"small/p", "HTTPRoute r0", "rules: " + limits("r")}, one{"g", "Gateway public", "rules: " + limits(slices.Clone(test.gate)...)}) {
			r.Policies = append(r.Policies, p.policy(t, i))
		}
		plan := newPlanner(t).Plan(r)
		documents, bytes := plan.Configurations[public], 0
		for _, d := range documents {
			must.Get(config.Parse(d))(t)
			bytes += len(d)
		}
		must.AtMost(t, len(documents), test.documents, "%s: documents", test.name)
		must.AtMost(t, bytes, maxEnvoyGateway, "%s: bytes", test.name)
		for place, want := range map[string]string{"tenant/r0": test.first, fmt.Sprint("tenant/r", test.routes-1): test.last, "small/r0": "small_p_r", "shop/app": own} {
			if got := appliedTo(t, plan, request{route: "httproute/" + place + "/rule/0/match/0/*"}); !slices.Contains(got, want) {
				t.Errorf("%s: %s has %v, want %s", test.name, place, got, want)
			}
		}
		for _, o := range plan.Outcomes {
			left := len(o.Missed) > 0 && strings.HasPrefix(o.Missed[0], "Gateway shop/public: the policy is left out: ")
			if o.Refused != "" || left != o.Partly || left != (len(o.Gateways) == 0) || left && o.Policy.Namespace != "tenant" {
				t.Errorf("%s: %s: %q, %q at %q", test.name, nameOf(o.Policy), o.Refused, o.Missed, o.Gateways)
			}
		}
	}
}

// A policy that is accepted makes only what the plugin takes, at however many places.
func TestDeepRule(t *testing.T) {
	refused := 0
	for _, implementation := range []Implementation{Istio, EnvoyGateway} {
		for depth := 45; depth < 64; depth++ {
			r := resources(implementation)
			r.tenants("tenant", 70)
			for i, route := range r.Routes[5:] {
				route.Hostnames = []string{fmt.Sprint("a", i, ".example"), fmt.Sprint("*.b", i, ".example")}
			}
			match := strings.Repeat(`{"not": `, depth) + `{"path": {"prefix": "/"}}` + strings.Repeat("}", depth)
			r.Policies = []*RateLimitPolicy{
				one{"tenant/deep", "Namespace tenant", `rules: [{"name": "r", "match": ` + match + `, "limits": [{"limit": 1, "window": "1h"}]}]`}.policy(t, 0),
				one{"l", "Gateway public/intern", "overrides: {strategy: merge, rules: " + limits("all") + "}"}.policy(t, 1),
			}
			plan := newPlanner(t).Plan(r)
			if o := plan.Outcomes[0]; o.Refused != "" {
				refused++
			} else if len(o.Gateways) == 0 {
				t.Errorf("%s, %d deep: %+v", implementation, depth, o.Missed)
			}
			for _, d := range plan.Configurations[public] {
				must.Get(config.Parse(d))(t)
			}
		}
	}
	must.AtLeast(t, refused, 1, "refused")
}

// The number of replicas is for rules that divide their limits. Others may stand beside them, or alone.
func TestReplicas(t *testing.T) {
	for base, rule := range map[string]string{`{"replicas": 3}`: "sync_rate: share", `{"replicas": 3, "sync_rate": "share"}`: "sync_rate: -1"} {
		planner := must.Get(NewPlanner([]byte(base)))(t)
		rules := []string{"rules: [{name: r, limits: [{limit: 9, window: 1h}]}]", "rules: [{name: r, " + rule + ", limits: [{limit: 9, window: 1h}]}]"}
		for _, some := range [][]string{rules[:1], rules[1:], rules} {
			r := resources(Istio)
			for i, text := range some {
				r.Policies = append(r.Policies, one{fmt.Sprint("p", i), []string{"HTTPRoute app2", "Gateway public"}[i], "defaults: {strategy: merge, " + text + "}"}.policy(t, i))
			}
			plan := planner.Plan(r)
			for _, o := range plan.Outcomes {
				must.Equal(t, o.Refused, "", "%s: %s is refused", base, some)
			}
			if got := applied(t, plan, requests(Istio)["app2"]); len(got) == 0 {
				t.Errorf("%s: %s: none apply", base, some)
			}
		}
	}
}

// What weir convert makes of other policies is accepted.
func TestConverted(t *testing.T) {
	files := must.Get(filepath.Glob("../../internal/convert/testdata/policies-*/want.json"))(t)
	must.AtLeast(t, len(files), 2, "files of policies")
	for _, file := range files {
		var list RateLimitPolicyList
		must.OK(t, yaml.UnmarshalStrict(must.Get(os.ReadFile(file))(t), &list))
		planner := newPlanner(t)
		for i := range list.Items {
			p := &list.Items[i]
			if c := planner.check(p, &p.Spec); c.refused != "" || len(c.rules) == 0 {
				t.Errorf("%s: %s: %q, %d rules", file, p.Name, c.refused, len(c.rules))
			}
		}
	}
}

func TestRuleName(t *testing.T) {
	seen := map[string][3]string{}
	for _, parts := range [][3]string{
		{"a", "b", "c"}, {"a", "b", "c_d"}, {"a", "b-c", "d"}, {"a-b", "c", "d"}, {"a", "b", strings.Repeat("x", 64)}, {"a", "c", strings.Repeat("x", 64)},
		{"a", strings.Repeat("y", 200), "c"}, {"a", strings.Repeat("y", 201), "c"}, {strings.Repeat("n", 63), "b", "c"}, {strings.Repeat("n", 63), "b", "d"},
	} {
		name := RuleName(parts[0], parts[1], parts[2])
		must.AtMost(t, len(name), maxName, "%v: characters of %q", parts, name)
		if before, twice := seen[name]; twice {
			t.Errorf("%v and %v are both %s", before, parts, name)
		}
		seen[name] = parts
	}
}
