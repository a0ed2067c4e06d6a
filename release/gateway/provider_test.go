//go:build linux

package gateway

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"weir/internal/envoytest"
	"weir/internal/must"
	"weir/internal/store/redis/redistest"
)

const system = "envoy-gateway-system" // the namespace of Envoy Gateway

// What docs/kubernetes.md has somebody do for Envoy Gateway.
var (
	acceptsPatches = regexp.MustCompile(`helm upgrade eg \S+ --version (\S+) -n ` + system + ` \\\n +--reuse-values --set (\S+)`)
	creates        = regexp.MustCompile(`(?m)^ +kubectl create (.*\\\n)?.*$`)
	serviceInImage = regexp.MustCompile("(?s)```yaml\n(rateLimit:\n.*?)```")
)

var answered = regexp.MustCompile(`(?m)^weir.*::rq_success::([1-9][0-9]*)$`)

// TestEnvoyGatewayInCluster goes the way of docs/kubernetes.md from an empty API server: Envoy Gateway reads there what Helm has
// installed. The test runs the Envoy, and then the rate limit service, of the Deployments that it makes.
func TestEnvoyGatewayInCluster(t *testing.T) {
	if os.Getenv(inside) == "" {
		return // by night alone: see TestMain
	}
	c := newCluster(t)
	c.redis = strings.Replace(redistest.Start(t).URL(), "redis://127.0.0.1", "localhost", 1)
	c.run(t, c.environment, "weir", "serve", "--store", "memory", "--listen", "127.0.0.1:9180") // at its Service's address
	began := time.Now()
	c.controller(t)
	c.apply(t, must.Text(t, "testdata/envoy-gateway.yaml"), "port: 3000", fmt.Sprint("port: ", c.app))
	for _, command := range creates.FindAllString(section(t, "Envoy Gateway"), -1) {
		c.command(t, "kubectl", strings.Fields(strings.NewReplacer("kubectl ", "", "\\\n", "", `"$TOKEN"`, token).Replace(command))...)
	}
	c.install(t, "Envoy Gateway", "install", "0.1.0")
	envoy := c.envoyOf(t, "eg")
	at := &proxy{address: "127.0.0.1", port: 8090}
	waitFor(t, "limits", func() bool { return at.get("/", "ann").header.Get("RateLimit") != "" })
	waitFor(t, "the limit", func() bool { return at.get("/", "ann").status == http.StatusTooManyRequests })
	t.Logf("from the chart of Envoy Gateway to the first 429: %v, on Envoy %s", time.Since(began).Round(time.Millisecond), envoy)
	waitFor(t, "answers of the backend", func() bool { return answered.MatchString(get("http://127.0.0.1:19000/clusters", "").body) })
	must.Same(t, at.as(t, "GET", "/", "bob", 310), map[int]int{200: 300, 429: 10}, "of 300 an hour")
	c.command(t, "helm", "uninstall", "weir", "-n", "weir-system")
	waitFor(t, "end of the limits", func() bool { return at.get("/", "nobody").header.Get("RateLimit") == "" })
	t.Run("policies", func(t *testing.T) { policiesOfListeners(t, newControlled(t, c), at) })
	c.serviceOf(t)
	waitFor(t, "limits of a BackendTrafficPolicy", func() bool { return strings.HasPrefix(at.get("/", "nobody").header.Get("X-RateLimit-Limit"), "100,") })
	must.Same(t, at.as(t, "GET", "/", "ann", 110), map[int]int{200: 100, 429: 10}, "of 100 an hour")
}

// policiesOfListeners has weir controller attach policies to one of two listeners of a port, and to a tenant's namespace.
func policiesOfListeners(t *testing.T, c *controlled, at *proxy) {
	c.installs(t)
	c.begin(t)
	defer c.stop()
	c.apply(t, must.Text(t, "testdata/envoy-gateway-tenant.yaml"))
	limited := func(n int) string {
		return fmt.Sprintf(`rules: [{name: per-user, key: [{header: x-user}], limits: [{limit: %d, window: 366d, algorithm: fixed_window}]}]`, n)
	}
	c.apply(t, policyOf("default", "all", "Gateway", "eg", limited(20))+"---\n"+policyOf("default", "intern", "Gateway", "eg, sectionName: intern", limited(7))+"---\n"+
		strings.Replace(policyOf("tenant", "namespace", "Namespace", "tenant", limited(5)), "gateway.networking.k8s.io", `""`, 1))
	waitFor(t, "the listener's limit", func() bool { return at.at(t, "a.intern.example", "/", "nobody").limits("default_intern_per-user") })
	waitFor(t, "the namespace's limit", func() bool { return at.at(t, "tenant.example", "/", "nobody").limits("tenant_namespace_per-user") })
	waitFor(t, "the Gateway's limit", func() bool { return at.at(t, "else.example", "/", "nobody").limits("default_all_per-user") })
	pass := func(user, host string, want int, headers ...string) {
		t.Helper()
		statuses := map[int]int{}
		for range 25 {
			request := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, at.url(), nil))(t)
			request.Host = host
			request.Header.Set("X-User", user)
			for i := 0; i < len(headers); i += 2 {
				request.Header.Set(headers[i], headers[i+1])
			}
			statuses[do(request).status]++
		}
		must.Equal(t, statuses[200], want, "%s at %s: passed of 25", user, host)
		must.Equal(t, statuses[429], 25-want, "%s at %s: refused of 25", user, host)
	}
	pass("ann", "a.intern.example", 7)
	pass("ann", "else.example", 20) // a counter of its own
	pass("ann", "tenant.example", 5)
	// The route of all listeners is at the one that has the host, whatever else a client writes.
	pass("bob", "A.intern.EXAMPLE:8090", 7)
	pass("bob", "b.intern.example", 0, "X-Forwarded-Host", "else.example", "X-Envoy-Original-Path", "/", "X-Forwarded-Port", "80")
	pass("bob", "intern.example", 20) // is none of *.intern.example
	// Overrides of the listener are above the namespace's rules, at that listener alone.
	c.apply(t, policyOf("default", "intern", "Gateway", "eg, sectionName: intern", "overrides: {"+limited(3)+"}"))
	waitFor(t, "the override", func() bool { return at.at(t, "tenant.intern.example", "/", "nobody").limits("default_intern_per-user") })
	pass("eve", "tenant.intern.example", 3)
	pass("eve", "tenant.example", 5)
	must.Contains(t, c.condition(t, "tenant", "namespace", "Overridden"), "per-user by default/intern", "")
	c.command(t, "kubectl", "delete", "rlp", "--all", "-A")
	waitFor(t, "end of the policies", func() bool { return at.at(t, "else.example", "/", "nobody").header.Get("RateLimit") == "" })
	c.apply(t, must.Text(t, "testdata/envoy-gateway.yaml"), "port: 3000", fmt.Sprint("port: ", c.app))
}

// serviceOf runs the service of Envoy Gateway's global limits, as its Deployment has it, and applies the shipped policy.
func (c *cluster) serviceOf(t *testing.T) {
	t.Helper()
	var made deployment
	must.OK(t, json.Unmarshal([]byte(c.command(t, "kubectl", "get", "deployment", "-n", system, "envoy-ratelimit", "-o", "json")), &made))
	container := made.Spec.Template.Spec.Containers[0]
	if want := c.registry + "/weir:v0.1.0"; container.Image != want || !slices.Equal(container.Command, []string{"/bin/ratelimit"}) {
		t.Errorf("%s %v, want /bin/ratelimit of %s", container.Image, container.Command, want)
	}
	environment := c.environment
	for _, v := range container.Env {
		line := v.Name + "=" + v.Value
		environment = append(environment, line)
		if !strings.HasPrefix(line, "REDIS_URL=") && !slices.Contains(strings.Fields(must.Text(t, "testdata/ratelimit.env")), line) {
			t.Errorf("testdata/ratelimit.env lacks %s", line)
		}
	}
	port := freePort(t)
	environment = append(append(environment, ownPorts(t, port)...), "GRPC_HOST="+address)
	c.pod(t, "weir", "secret/envoy-rate-limit", "certs").run(c.parent, environment, "weir", "ratelimit")
	c.apply(t, must.Text(t, "../../envoy/gateway/rate-limits.yaml")+must.Text(t, "testdata/ratelimit-endpoints.yaml"), "8081", strconv.Itoa(port))
}

// controller starts Envoy Gateway with the configuration that its chart makes.
func (c *cluster) controller(t *testing.T) {
	t.Helper()
	c.crds(t, "GATEWAY", "charts/gateway-helm/charts/crds/crds")
	must.OK(t, os.CopyFS(filepath.Join(c.dir, "gateway-helm"), os.DirFS(filepath.Join(os.Getenv("GATEWAY"), "charts/gateway-helm"))))
	c.write(t, "gateway-helm/values.yaml", strings.NewReplacer("${GatewayImage}", "envoyproxy/gateway:v1.9.1", "${GatewayImagePullPolicy}", "IfNotPresent").Replace(must.Text(t, filepath.Join(c.dir, "gateway-helm/values.tmpl.yaml"))))
	page := section(t, "Envoy Gateway")
	shown := acceptsPatches.FindStringSubmatch(page)
	if shown == nil || !strings.HasSuffix(modules["GATEWAY"], "@"+shown[1]) {
		t.Fatalf("docs/kubernetes.md: no command for the Envoy Gateway of the test: %q", shown)
	}
	c.command(t, "kubectl", "create", "namespace", system)
	c.write(t, "service.yaml", "config:\n  envoyGateway:\n    "+strings.NewReplacer("\n", "\n    ", "registry.example", c.registry, "redis.default.svc.cluster.local:6379", c.redis).Replace(serviceInImage.FindStringSubmatch(page)[1]))
	// Without the Job of the chart, whose command is next. The other settings are for what has a pod of its own in a cluster, and
	// for a service on this machine.
	c.apply(t, c.command(t, "helm", "template", "eg", "gateway-helm", "-n", system, "-f", "service.yaml", "--no-hooks", "--kube-version", kubernetes, "--set", "topologyInjector.enabled=false,"+shown[2]+
		",config.envoyGateway.extensionApis.enableBackend=true,config.envoyGateway.admin.address.port=19099,config.envoyGateway.telemetry.metrics.prometheus.disable=true"))
	c.environment = append(c.environment, "ENVOY_GATEWAY_NAMESPACE="+system)
	c.command(t, "envoy-gateway", "certgen", "--disable-topology-injector")
	pod := c.pod(t, "envoy-gateway", "secret/envoy-gateway", "certs", "configmap/envoy-gateway-config", "config")
	pod.run(c.parent, c.environment, "envoy-gateway", "server", "--config-path", "config/envoy-gateway.yaml")
}

// pod makes a folder for a process, with volumes: the files of each resource are in the folder that is named after it.
func (c *cluster) pod(t *testing.T, program string, volumes ...string) *world {
	t.Helper()
	w := &world{dir: filepath.Join(c.dir, "pod-"+program), environment: c.environment}
	link(t, filepath.Join(c.dir, "bin", program), filepath.Join(w.dir, "bin", program))
	for i := 0; i < len(volumes); i += 2 {
		var volume struct{ Data map[string]string }
		must.OK(t, json.Unmarshal([]byte(c.command(t, "kubectl", "get", "-n", system, volumes[i], "-o", "json")), &volume))
		must.OK(t, os.MkdirAll(filepath.Join(w.dir, volumes[i+1]), 0o700))
		for name, text := range volume.Data {
			if strings.HasPrefix(volumes[i], "secret/") {
				decoded := must.Get(base64.StdEncoding.DecodeString(text))(t)
				text = string(decoded)
			}
			w.write(t, filepath.Join(volumes[i+1], name), text)
		}
	}
	return w
}

// deployment is what a test reads of one.
type deployment struct {
	Metadata struct{ Name string }
	Spec     struct {
		Template struct {
			Spec struct {
				Containers []struct {
					Name, Image   string
					Args, Command []string
					Env           []struct{ Name, Value string }
				}
			}
		}
	}
}

// envoyOf runs the Envoy of a Gateway by the arguments of its Deployment, and returns the version.
func (c *cluster) envoyOf(t *testing.T, gateway string) (version string) {
	t.Helper()
	var made struct{ Items []deployment }
	waitFor(t, "Deployment of the Gateway", func() bool {
		text := c.command(t, "kubectl", "get", "deployment", "-n", system, "-l", "gateway.envoyproxy.io/owning-gateway-name="+gateway, "-o", "json")
		return json.Unmarshal([]byte(text), &made) == nil && len(made.Items) == 1
	})
	for _, container := range made.Items[0].Spec.Template.Spec.Containers {
		if container.Name != "envoy" {
			continue
		}
		binaries := must.Get(envoytest.Binaries())(t)
		for _, binary := range binaries {
			if strings.Contains(container.Image, "v"+binary.Version) {
				link(t, binary.Path, filepath.Join(c.dir, "bin/envoy"))
				version = binary.Version
			}
		}
		if version == "" {
			t.Fatalf("scripts/test-dependencies has not installed the Envoy of %s", container.Image)
		}
		pod := c.pod(t, "envoy", "secret/envoy", "certs", "configmap/"+made.Items[0].Metadata.Name, "sds")
		names := strings.NewReplacer("$(ENVOY_POD_NAME)", "envoy-1", "$(ENVOY_SERVICE_ZONE)", "")
		for i := range container.Args {
			container.Args[i] = names.Replace(container.Args[i])
		}
		pod.run(c.parent, append(c.environment, "ENVOY_POD_NAMESPACE="+system, "ENVOY_POD_NAME=envoy-1"), "envoy", append(container.Args, "--use-dynamic-base-id")...)
	}
	return version
}
