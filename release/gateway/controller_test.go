//go:build linux

package gateway

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
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
	c := &controlled{cluster: newCluster(t)}
	c.program = filepath.Join(c.dir, "bin", "weir-controller")
	build := exec.Command("go", "build", "-o", c.program, ".")
	build.Dir, build.Env = "../../controller", append(os.Environ(), "GOWORK=off")
	if said, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	step("API server ready, controller built")
	c.crds(t, "ISTIO", "manifests/charts/base/files/crd-all.gen.yaml")
	c.crds(t, "GATEWAY_API", "config/crd/experimental/gateway.networking.k8s.io_[a-u]*.yaml")
	c.apply(t, read(t, "../../charts/weir/files/ratelimitpolicy.yaml"))
	c.istiod(t)
	c.command(t, "kubectl", "create", "namespace", "weir-system")
	c.apply(t, read(t, "testdata/controller.yaml"), "http: 3000", fmt.Sprint("http: ", c.app), "http: 9180", "http: "+c.backend[strings.LastIndexByte(c.backend, ':')+1:])
	c.apply(t, read(t, "testdata/gateways.yaml"))
	c.flags = []string{"--plugin", c.registry + "/weir-plugin:v0.1.0", "--backend", "weir.weir-system.svc.cluster.local:9180", "--health", "127.0.0.1:9181", "--lease-namespace", "weir-system"}
	c.begin(t)
	step("istiod and controller run")
	public := c.agent(t, proxy{namespace: "shop", account: "public-istio", labels: `{"gateway.networking.k8s.io/gateway-name":"public"}`, address: "127.0.0.2", port: 8085, offset: 100})
	waitFor(t, "answer of the Gateway", func() bool { return public.get("/", "ann").status == 200 })
	step("Gateway answers")
	c.apply(t, policyOf("all", "Gateway", "public", `rules: [{name: per-user, key: [{header: x-user}], limits: [{limit: 5, window: 1h}]}]`))
	waitFor(t, "limits", func() bool { return public.get("/", "nobody").header.Get("RateLimit") != "" })
	step("limits")
	if got := public.as(t, "GET", "/", "ann", 8); !maps.Equal(got, map[int]int{200: 5, 429: 3}) {
		t.Errorf("%v, want 5 an hour", got)
	}
	step("first 429")
	t.Log(c.command(t, "kubectl", "get", "rlp,wasmplugin,envoyfilter", "-n", "shop", "-o", "yaml"))
}

// begin starts the controller.
func (c *controlled) begin(t *testing.T) {
	t.Helper()
	c.stop = c.run(c.parent, append(c.environment, "KUBECONFIG="+filepath.Join(c.dir, "kubeconfig")), "weir-controller", c.flags...)
	waitFor(t, "the controller", func() bool { return get("http://127.0.0.1:9181/readyz", "").status == 200 })
}

func policyOf(name, kind, target, rules string) string {
	return fmt.Sprintf(`apiVersion: weir.dev/v1alpha1
kind: RateLimitPolicy
metadata: {name: %s, namespace: shop}
spec:
  targetRefs: [{group: gateway.networking.k8s.io, kind: %s, name: %s}]
  %s
`, name, kind, target, rules)
}
