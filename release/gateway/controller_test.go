//go:build linux

package gateway

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"weir/internal/commandtest"
	"weir/internal/must"
)

// controlled is a cluster in which weir controller works, as the account that the chart gives it.
type controlled struct {
	*cluster
	program string
	flags   []string
	stop    func()
}

// TestController attaches policies to Gateways and routes. The API server, Istio's control plane and agent, and Envoy make limits of
// them.
func TestController(t *testing.T) {
	if os.Getenv(inside) == "" {
		return // by night alone: see TestMain
	}
	began := time.Now()
	step := func(what string) { t.Logf("%5.1f s: %s", time.Since(began).Seconds(), what) }
	c := newControlled(t, newCluster(t))
	step("API server ready, controller built")
	c.crds(t, "ISTIO", "manifests/charts/base/files/crd-all.gen.yaml")
	c.crds(t, "GATEWAY_API", "config/crd/experimental/gateway.networking.k8s.io_[a-u]*.yaml")
	c.istiod(t)
	c.command(t, "kubectl", "create", "namespace", "tenant")
	c.installs(t)
	c.apply(t, must.Text(t, "testdata/controller.yaml"), "http: 3000", fmt.Sprint("http: ", c.app), "http: 9180", "http: "+c.backend[strings.LastIndexByte(c.backend, ':')+1:])
	c.apply(t, strings.Replace(must.Text(t, "testdata/gateways.yaml"), "port: 8085}]\n---", "port: 8085, allowedRoutes: {namespaces: {from: All}}}]\n---", 1))
	c.begin(t)
	step("istiod and controller run")
	public := c.agent(t, proxy{namespace: "shop", account: "public-istio", labels: `{"gateway.networking.k8s.io/gateway-name":"public"}`, address: "127.0.0.2", port: 8085, offset: 100})
	waitFor(t, "answer of the Gateway", func() bool { return public.get("/", "ann").status == 200 })
	step("Gateway answers")
	c.apply(t, policyOf("shop", "all", "Gateway", "public", `rules: [{name: per-user, key: [{header: x-user}], limits: [{limit: 5, window: 1h}]}]`))
	waitFor(t, "limits", func() bool { return public.get("/", "nobody").header.Get("RateLimit") != "" })
	step("limits")
	must.Same(t, public.as(t, "GET", "/", "ann", 8), map[int]int{200: 5, 429: 3}, "of 5 an hour")
	step("first 429")
	for _, test := range []struct {
		name string
		run  func(*testing.T, *controlled, *proxy)
	}{{"routes", routesHaveTheirOwn}, {"listeners", listenersAndNamespaces}, {"services", servicesAtAWaypoint}, {"broken", brokenPolicyStays}, {"changes", manyChanges}, {"many", manyPolicies}} {
		if !t.Run(test.name, func(t *testing.T) { test.run(t, c, public) }) {
			return
		}
		step(test.name)
	}
}

func newControlled(t *testing.T, in *cluster) *controlled {
	t.Helper()
	c := &controlled{cluster: in, program: filepath.Join(in.dir, "bin", "weir-controller")}
	build := exec.Command("go", "build", "-o", c.program, ".")
	build.Dir, build.Env = "../../controller", append(os.Environ(), "GOWORK=off")
	commandtest.Run(t, build)
	return c
}

// installs installs the chart. The controller has the rights of its account there, and no more.
func (c *controlled) installs(t *testing.T) {
	t.Helper()
	c.write(t, "values.yaml", must.Text(t, "../../charts/values/controller.yaml"))
	chart := must.Get(filepath.Abs("../../charts/weir"))(t)
	c.command(t, "helm", "install", "weir", chart, "-n", "weir-system", "--create-namespace", "-f", "values.yaml")
	// Another release has other namespaces, and not the kind, which it would take from the first.
	other := []string{"install", "weir", chart, "-n", "tenant", "--create-namespace", "-f", "values.yaml", "--set", "controller.namespaces={tenant}"}
	must.Contains(t, c.try("helm", other...), "ratelimitpolicies.weir.dev", "two releases have the kind")
	c.command(t, "helm", append(other, "--set", "controller.crd=false")...)
	second := []string{"install", "second", chart, "-n", "tenant", "-f", "values.yaml", "--set", "controller.namespaces={default},controller.crd=false"}
	must.Contains(t, c.try("helm", second...), `Role "weir-controller"`, "two releases of a namespace have the lease")
	account := c.command(t, "kubectl", "create", "token", "-n", "weir-system", "weir-controller", "--duration=2h")
	c.write(t, "account.yaml", strings.ReplaceAll(must.Text(t, filepath.Join(c.dir, "kubeconfig")), token, account))
	c.flags = []string{"--plugin", c.registry + "/weir-plugin:v0.1.0", "--backend", "weir.weir-system.svc.cluster.local:9180", "--health", "127.0.0.1:9181", "--lease-namespace", "weir-system", "--namespaces", "shop,default"}
}

func (c *controlled) begin(t *testing.T) {
	t.Helper()
	environment := append(c.environment, "KUBECONFIG="+filepath.Join(c.dir, "account.yaml"), "WEIR_TOKEN="+token)
	c.stop = c.run(c.parent, environment, "weir", append([]string{"controller"}, c.flags...)...)
	waitFor(t, "the controller", func() bool { return get("http://127.0.0.1:9181/readyz", "").status == 200 })
}

func policyOf(namespace, name, kind, target, rules string) string {
	return fmt.Sprintf(`apiVersion: weir.dev/v1alpha1
kind: RateLimitPolicy
metadata: {name: %s, namespace: %s}
spec:
  targetRefs: [{group: gateway.networking.k8s.io, kind: %s, name: %s}]
  %s
`, name, namespace, kind, target, rules)
}

func (p *proxy) at(t *testing.T, host, path, user string) answer {
	t.Helper()
	request := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, p.url()+path, nil))(t)
	request.Host = host
	request.Header.Set("X-User", user)
	return do(request)
}

// limits reports whether a rule is in an answer's headers.
func (a answer) limits(rule string) bool {
	return strings.Contains(a.header.Get("RateLimit-Policy"), strconv.Quote(rule))
}

// condition is what a policy's status says.
func (c *controlled) condition(t *testing.T, namespace, name, kind string) string {
	t.Helper()
	return c.command(t, "kubectl", "get", "rlp", "-n", namespace, name, "-o", `jsonpath={range .status.conditions[?(@.type=="`+kind+`")]}{.status} {.reason} {.message}{end}`)
}

// routesHaveTheirOwn has a tenant's route and policy beside those of the Gateway's namespace. A rule of the tenant's has the name
// that Istio gives the other route.
func routesHaveTheirOwn(t *testing.T, c *controlled, public *proxy) {
	c.apply(t, policyOf("tenant", "mine", "HTTPRoute", "app", `rules: [{name: per-user, key: [{header: x-user}], limits: [{limit: 3, window: 1h}]}]`)+`---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: app, namespace: tenant}
spec:
  parentRefs: [{name: public, namespace: shop}]
  hostnames: [tenant.example]
  rules:
    - {backendRefs: [{name: app, namespace: shop, port: 80}]}
    - {name: shop.named.0, matches: [{path: {type: PathPrefix, value: /forged}}], backendRefs: [{name: app, namespace: shop, port: 80}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: open, namespace: tenant}
spec:
  parentRefs: [{name: public, namespace: shop}]
  rules: [{name: pay, matches: [{path: {type: PathPrefix, value: /pay}}], backendRefs: [{name: app, namespace: shop, port: 80}]}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: named, namespace: shop}
spec:
  parentRefs: [{name: public}]
  hostnames: [named.example]
  rules:
    - {backendRefs: [{name: app, port: 80}]}
    - {name: pay, matches: [{path: {type: PathPrefix, value: /pay}}], backendRefs: [{name: app, port: 80}]}
---
apiVersion: gateway.networking.k8s.io/v1beta1
kind: ReferenceGrant
metadata: {name: app, namespace: shop}
spec: {from: [{group: gateway.networking.k8s.io, kind: HTTPRoute, namespace: tenant}], to: [{group: "", kind: Service}]}
---
`+policyOf("shop", "named", "HTTPRoute", "named", `rules: [{name: r, limits: [{limit: 1000, window: 1h}]}]`)+"---\n"+
		policyOf("tenant", "open", "HTTPRoute", "open", `rules: [{name: r, limits: [{limit: 0, window: 1h}]}]`)+"---\n"+
		policyOf("tenant", "thief", "Gateway", "public", `rules: [{name: r, limits: [{limit: 0, window: 1h}]}]`))
	waitFor(t, "the tenant's limit", func() bool { return public.at(t, "tenant.example", "/", "nobody").limits("tenant_mine_per-user") })
	waitFor(t, "the other's", func() bool { return public.at(t, "named.example", "/", "nobody").limits("shop_named_r") })
	must.Same(t, statuses(5, func() answer { return public.at(t, "tenant.example", "/", "ann") }), map[int]int{200: 3, 429: 2}, "of 3 an hour")
	waitFor(t, "status of a rule's name that two namespaces have", func() bool {
		return strings.Contains(c.condition(t, "tenant", "open", "Accepted"), "its rule pay has the name of another namespace's rule")
	})
	for _, host := range []string{"named.example", "else.example"} {
		if a := public.at(t, host, "/pay", "bob"); a.status != 200 || !a.limits("shop_all_per-user") || a.limits("tenant_open_r") || a.limits("shop_named_r") {
			t.Errorf("%s: %d %+v: want the Gateway's default alone", host, a.status, a.header)
		}
	}
	if a := public.at(t, "tenant.example", "/forged", "bob"); !a.limits("shop_all_per-user") || a.limits("tenant_mine_per-user") || a.limits("shop_named_r") {
		t.Errorf("%+v: want the Gateway's default alone", a.header)
	}
	if a := public.at(t, "else.example", "/", "bob"); !a.limits("shop_all_per-user") || a.limits("tenant_mine_per-user") {
		t.Errorf("%+v: want the Gateway's default", a.header)
	}
	waitFor(t, "status of the thief", func() bool {
		return strings.HasPrefix(c.condition(t, "tenant", "thief", "Accepted"), "False TargetNotFound Gateway public is not there")
	})
	waitFor(t, "status of the default", func() bool {
		return strings.Contains(c.condition(t, "shop", "all", "Overridden"), "per-user by tenant/mine at HTTPRoute tenant/app")
	})
	c.apply(t, policyOf("tenant", "second", "HTTPRoute", "app", `rules: [{name: r, limits: [{limit: 0, window: 1h}]}]`))
	waitFor(t, "status of a conflict", func() bool {
		return c.condition(t, "tenant", "second", "Accepted") == "False Conflicted HTTPRoute app has the older policy tenant/mine"
	})
	c.command(t, "kubectl", "delete", "rlp", "-n", "tenant", "second", "thief", "open")
	c.command(t, "kubectl", "delete", "httproute", "-n", "tenant", "open")
}

// listenersAndNamespaces has two listeners of one port, of which one has a policy, and a policy for all of the tenant's routes.
func listenersAndNamespaces(t *testing.T, c *controlled, public *proxy) {
	const listener, other = "listeners: [{name: http, protocol: HTTP, port: 8085, allowedRoutes: {namespaces: {from: All}}}", `, {name: intern, protocol: HTTP, port: 8085, hostname: "*.intern.example"}`
	gateway := "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {name: public, namespace: shop}\nspec:\n  gatewayClassName: istio\n" +
		"  addresses: [{type: Hostname, value: public-istio.shop.svc.cluster.local}]\n  " + listener
	c.apply(t, gateway+other+"]\n---\n"+policyOf("shop", "intern", "Gateway", "public, sectionName: intern", `rules: [{name: r, limits: [{limit: 1000, window: 1h}]}]`)+"---\n"+
		strings.Replace(policyOf("tenant", "namespace", "Namespace", "tenant", `defaults: {strategy: merge, rules: [{name: spare, limits: [{limit: 1000, window: 1h}]}]}`), "gateway.networking.k8s.io", `""`, 1))
	waitFor(t, "the listener's limit", func() bool { return public.at(t, "a.intern.example", "/", "nobody").limits("shop_intern_r") })
	waitFor(t, "the namespace's limit", func() bool { return public.at(t, "tenant.example", "/", "nobody").limits("tenant_namespace_spare") })
	for host, want := range map[string][]string{
		"a.intern.example": {"shop_intern_r"}, "else.example": {"shop_all_per-user"}, "intern.example": {"shop_all_per-user"}, "named.example": {"shop_named_r"},
		"tenant.example": {"tenant_mine_per-user", "tenant_namespace_spare"},
	} {
		a := public.at(t, host, "/", "nobody")
		for _, rule := range []string{"shop_intern_r", "shop_all_per-user", "shop_named_r", "tenant_mine_per-user", "tenant_namespace_spare"} {
			must.Equal(t, a.limits(rule), slices.Contains(want, rule), "%s: %v has %s", host, a.header, rule)
		}
	}
	c.command(t, "kubectl", "delete", "rlp", "-n", "tenant", "namespace")
	c.command(t, "kubectl", "delete", "rlp", "-n", "shop", "intern")
	c.apply(t, gateway+"]\n")
}

// servicesAtAWaypoint has a waypoint that Services of two namespaces have, and a Service that has none.
func servicesAtAWaypoint(t *testing.T, c *controlled, _ *proxy) {
	c.istiod(t, "PILOT_ENABLE_AMBIENT=true")
	c.apply(t, strings.Replace(must.Text(t, "testdata/waypoint.yaml"), "port: 15008}]", "port: 15008, allowedRoutes: {namespaces: {from: All}}}]", 1))
	c.command(t, "kubectl", "label", "service", "-n", "shop", "app", "istio.io/use-waypoint=waypoint")
	service := func(name, labels string) string {
		return "apiVersion: v1\nkind: Service\nmetadata: {name: " + name + ", namespace: tenant, labels: {" + labels + "}}\nspec: {selector: {app: app}, ports: [{name: http, port: 80}]}\n---\n"
	}
	c.apply(t, service("app", "istio.io/use-waypoint: waypoint, istio.io/use-waypoint-namespace: shop")+service("alone", "istio.io/use-waypoint: none")+`apiVersion: networking.istio.io/v1
kind: WorkloadEntry
metadata: {name: app, namespace: tenant}
spec: {address: 127.0.0.1, labels: {app: app}, ports: {http: `+strconv.Itoa(c.app)+"}}\n")
	waypoint, ask := c.waypoint(t)
	defer waypoint.stop()
	for _, name := range []string{"app.shop", "app.tenant"} {
		waitFor(t, "answer of "+name, func() bool { return ask(name, "nobody").status == http.StatusOK })
	}
	of := func(namespace, name, target, rules string) string {
		return strings.Replace(policyOf(namespace, name, "Service", target, rules), "gateway.networking.k8s.io", `""`, 1) + "---\n"
	}
	limited := func(n int) string {
		return fmt.Sprintf(`rules: [{name: r, key: [{header: x-user}], limits: [{limit: %d, window: 366d, algorithm: fixed_window}]}]`, n)
	}
	c.apply(t, of("tenant", "service", "app", limited(4))+of("tenant", "thief", "app, namespace: shop", limited(0))+of("tenant", "alone", "alone", limited(0))+policyOf("shop", "waypoint", "Gateway", "waypoint", limited(7)))
	waitFor(t, "the Service's limit", func() bool { return ask("app.tenant", "nobody").limits("tenant_service_r") })
	waitFor(t, "the waypoint's limit", func() bool { return ask("app.shop", "nobody").limits("shop_waypoint_r") })
	for name, want := range map[string]int{"app.tenant": 4, "app.shop": 7} {
		must.Same(t, statuses(9, func() answer { return ask(name, "ann") }), map[int]int{200: want, 429: 9 - want}, "%s", name)
	}
	for name, want := range map[string][2]string{
		"thief": {"Accepted", "False RefNotPermitted Service app of namespace shop: want a ReferenceGrant there, from tenant"},
		"alone": {"Programmed", "False Nowhere no Gateway has a rule of this policy; Service alone: want a waypoint of Istio"},
	} {
		waitFor(t, "status of "+name, func() bool { return strings.HasPrefix(c.condition(t, "tenant", name, want[0]), want[1]) })
	}
	// With the grant the policy of another namespace holds, and shares counters that its Namespace grants.
	c.command(t, "kubectl", "annotate", "namespace", "tenant", "weir.dev/counters=common")
	c.apply(t, of("tenant", "thief", "app, namespace: shop", "counters: common\n  "+limited(3))+`apiVersion: gateway.networking.k8s.io/v1beta1
kind: ReferenceGrant
metadata: {name: limits, namespace: shop}
spec: {from: [{group: weir.dev, kind: RateLimitPolicy, namespace: tenant}], to: [{group: "", kind: Service, name: app}]}
`)
	waitFor(t, "the granted limit", func() bool { return ask("app.shop", "nobody").limits("r") })
	must.Same(t, statuses(9, func() answer { return ask("app.shop", "bob") }), map[int]int{200: 3, 429: 6}, "by the granted policy")
	if shown := c.command(t, "weir", "policy", "-n", "tenant"); !regexp.MustCompile(`(?m)^tenant/thief +Service app in shop +True +True`).MatchString(shown) || !regexp.MustCompile(`(?m)^shop/waypoint +Service shop/app +r +3 a 366d +tenant/thief$`).MatchString(shown) {
		t.Errorf("weir policy: %s", shown)
	}
	waitFor(t, "answer of weir why", func() bool { // once the proxy has told its rules
		said, _ := c.start("weir", "why", "--backend", "http://"+c.backend, "common", "bob").Output()
		return regexp.MustCompile(`(?m)^r +refuses +3 of 3 used`).Match(said)
	})
	counters := c.command(t, "weir", "counter", "get", "--backend", "http://"+c.backend, "common", "r", "bob")
	must.Contains(t, counters, "3", "the backend's counter of namespace common")
	c.command(t, "kubectl", "delete", "rlp", "-n", "tenant", "service", "thief", "alone")
	c.command(t, "kubectl", "delete", "rlp", "-n", "shop", "waypoint")
	c.istiod(t)
}

// brokenPolicyStays breaks a policy, starts another controller, and wants what was before.
func brokenPolicyStays(t *testing.T, c *controlled, public *proxy) {
	c.apply(t, policyOf("tenant", "mine", "HTTPRoute", "app", `rules: [{name: per-user, limits: [{limit: 3, window: 1 minute}]}]`))
	waitFor(t, "refusal", func() bool {
		return strings.HasPrefix(c.condition(t, "tenant", "mine", "Accepted"), "False Invalid generation 1 stays in force: spec.rules[0].limits[0].window: want a duration")
	})
	must.Equal(t, c.condition(t, "tenant", "mine", "Programmed"), "False Partly in force at Gateway shop/public, but not for all: HTTPRoute tenant/app: its rule shop.named.0 has the name of another namespace's rule", "")
	c.stop()
	c.begin(t)
	c.apply(t, policyOf("shop", "named", "HTTPRoute", "named", `rules: [{name: s, limits: [{limit: 1000, window: 1h}]}]`))
	waitFor(t, "work of the next controller", func() bool { return public.at(t, "named.example", "/", "nobody").limits("shop_named_s") })
	must.Equal(t, public.at(t, "tenant.example", "/", "ann").status, http.StatusTooManyRequests, "by the broken policy's limit")
	must.Contains(t, c.command(t, "kubectl", "get", "events", "-n", "tenant", "-o", "jsonpath={.items[*].reason}"), "Invalid", "events")
}

// manyChanges changes a policy 500 times while clients ask. The controller and the API server are killed meanwhile.
func manyChanges(t *testing.T, c *controlled, public *proxy) {
	const limit, changes = 50, 500
	rules := func(i int) string {
		return fmt.Sprintf(`rules: [{name: r, key: [{header: x-user}], limits: [{limit: %d, window: 366d, algorithm: fixed_window}]}, {name: other, limits: [{limit: %d, window: 1h}]}]`, limit, 1_000_000+i)
	}
	c.apply(t, policyOf("shop", "named", "HTTPRoute", "named", rules(0)))
	waitFor(t, "limits", func() bool { return public.at(t, "named.example", "/", "nobody").limits("shop_named_other") })
	var asking sync.WaitGroup
	var over atomic.Bool
	var asked, passed, failed atomic.Int64
	defer func() { over.Store(true); asking.Wait() }()
	for i := range 4 {
		asking.Go(func() {
			for n := 0; !over.Load(); n++ {
				user := []string{"ann", fmt.Sprint("other", i, n/limit)}[n%2] // ann soon has nothing left
				switch a := public.at(t, "named.example", "/", user); {
				case a.status != http.StatusOK && (a.status != http.StatusTooManyRequests || user != "ann"):
					if failed.Add(1) < 9 {
						t.Errorf("%s: %+v", user, a)
					}
				case a.status == http.StatusOK && user == "ann":
					passed.Add(1)
				}
				asked.Add(1)
			}
		})
	}
	kill := func(program string) {
		for pid := range strings.FieldsSeq(c.command(t, "pgrep", "-f", "^"+program)) {
			must.OK(t, syscall.Kill(must.Get(strconv.Atoi(pid))(t), syscall.SIGKILL))
		}
	}
	began := time.Now()
	for i := range changes {
		switch i {
		case changes / 3:
			kill(c.program)
			c.stop()
			c.begin(t)
		case 2 * changes / 3:
			kill(filepath.Join(c.dir, "bin", "kube-apiserver"))
			c.stopAPI()
			c.serveAPI(t)
		}
		c.apply(t, policyOf("shop", "named", "HTTPRoute", "named", rules(i+1)))
	}
	applied := time.Now()
	waitFor(t, "the last change", func() bool {
		return strings.Contains(public.at(t, "named.example", "/", "nobody").header.Get("RateLimit-Policy"), fmt.Sprintf(`"shop_named_other";q=%d`, 1_000_000+changes))
	})
	limited := time.Since(applied)
	over.Store(true)
	asking.Wait()
	t.Logf("%d changes in %v, the last one in force %v later; of %d requests %d failed, and of ann's %d passed", changes, applied.Sub(began).Round(time.Second), limited.Round(time.Millisecond), asked.Load(), failed.Load(), passed.Load())
	must.Equal(t, passed.Load(), limit, "passed")
}

// manyPolicies has a thousand policies for two hundred routes.
func manyPolicies(t *testing.T, c *controlled, public *proxy) {
	var all strings.Builder
	for i := range 200 {
		fmt.Fprintf(&all, "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {name: r%d, namespace: shop}\nspec:\n  parentRefs: [{name: public}]\n  hostnames: [r%d.example]\n  rules:\n", i, i)
		for rule := range 5 {
			fmt.Fprintf(&all, "    - {name: s%d, matches: [{path: {type: PathPrefix, value: /s%d}}], backendRefs: [{name: app, port: 80}]}\n", rule, rule)
		}
		for rule := range 5 {
			all.WriteString("---\n" + policyOf("shop", fmt.Sprintf("p%d-%d", i, rule), "HTTPRoute", fmt.Sprintf("r%d, sectionName: s%d", i, rule), `rules: [{name: r, limits: [{limit: 1000, window: 1h}]}]`))
		}
		all.WriteString("---\n")
	}
	began := time.Now()
	c.apply(t, all.String())
	applied := time.Now()
	waitFor(t, "the last limit", func() bool { return public.at(t, "r199.example", "/s4", "ann").limits("shop_p199-4_r") })
	waitFor(t, "the first limit", func() bool { return public.at(t, "r0.example", "/s0", "ann").limits("shop_p0-0_r") })
	limited := time.Now()
	waitFor(t, "all statuses", func() bool {
		return strings.Count(c.command(t, "kubectl", "get", "rlp", "-n", "shop", "-o", "jsonpath={.items[*].status.conditions[*].reason}"), "Programmed") == 1002
	})
	program := strings.TrimSpace(c.command(t, "pgrep", "-f", "^"+c.program))
	_, peak, _ := strings.Cut(must.Text(t, "/proc/"+program+"/status"), "VmHWM:")
	peak, _, _ = strings.Cut(peak, "\n")
	t.Logf("kubectl has applied all after %v; the last limit came %v later, the last status %v later; the controller's memory was at most %s",
		applied.Sub(began).Round(time.Second), limited.Sub(applied).Round(time.Millisecond), time.Since(applied).Round(time.Millisecond), strings.TrimSpace(peak))
	began = time.Now()
	c.apply(t, policyOf("shop", "p100-3", "HTTPRoute", "r100, sectionName: s3", `rules: [{name: changed, limits: [{limit: 1000, window: 1h}]}]`))
	waitFor(t, "a change", func() bool { return public.at(t, "r100.example", "/s3", "ann").limits("shop_p100-3_changed") })
	t.Logf("a change reaches the proxy after %v", time.Since(began).Round(time.Millisecond))
}
