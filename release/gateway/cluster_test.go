//go:build linux

package gateway

import (
	"bufio"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"weir/internal/envoytest"
	"weir/internal/must"
)

// cluster is an API server with what istiod needs. There is no kubelet, no scheduler and no controller: a Deployment has no
// pods. The processes that pods would have run on this machine, and a WorkloadEntry with the pods' labels stands in for them.
type cluster struct {
	*world
	parent     *testing.T // processes run until it ends
	envoy      string
	stopIstiod func()
	stopAPI    func()
}

// TestCluster installs what docs/kubernetes.md and envoy/README.md have somebody install: by kubectl and by Helm, into an API
// server. Istio's own control plane and agent make an Envoy of it.
func TestCluster(t *testing.T) {
	if os.Getenv(inside) == "" {
		return // by night alone: see TestMain
	}
	began := time.Now()
	step := func(what string) { t.Logf("%5.1f s: %s", time.Since(began).Seconds(), what) }
	c := newCluster(t)
	step("API server ready")
	c.crds(t, "ISTIO", "manifests/charts/base/files/crd-all.gen.yaml")
	step("kinds of Istio")
	c.istiod(t)
	step("istiod ready")
	c.apply(t, c.shipped(t))
	c.apply(t, must.Text(t, "testdata/cluster.yaml"), "http: 3000", fmt.Sprint("http: ", c.app), "http: 9180", "http: "+c.backend[strings.LastIndexByte(c.backend, ':')+1:])
	step("envoy/istio.yaml applied")
	ingress := c.agent(t, proxy{namespace: "istio-system", labels: `{"istio":"ingressgateway"}`, port: 8080})
	waitFor(t, "limits at the ingress gateway", func() bool { return ingress.get("/api/q", "nobody").header.Get("RateLimit") != "" })
	step("limits")
	for _, test := range []struct {
		name string
		run  func(*testing.T, *cluster, *proxy)
	}{
		{"shipped", shippedLimits}, {"restricted", podsAreRestricted}, {"unfetched", pluginIsNotFetched}, {"left out", clusterIsLeftOut},
		{"charts", chartsAreApplied}, {"helm", helmInstalls}, {"gateway", gatewayOfTheAPI}, {"bodies", bodiesByEnvoyFilter}, {"tls", backendSpeaksTLSToIstio},
		{"sidecar", sidecarLimits}, {"waypoint", waypointLimits}, {"pods", podsAreApart},
	} {
		if !t.Run(test.name, func(t *testing.T) { test.run(t, c, ingress) }) {
			return
		}
		step(test.name)
	}
}

// newCluster starts etcd and an API server.
func newCluster(t *testing.T) *cluster {
	t.Helper()
	envoy := must.Get(envoytest.Newest())(t)
	c := &cluster{world: newPlace(t), parent: t, envoy: envoy.Path}
	for name, program := range map[string]string{"etcd": "server", "kube-apiserver": "kube-apiserver", "kubectl": "kubectl", "pilot-discovery": "pilot-discovery", "pilot-agent": "pilot-agent", "kube-scheduler": "kube-scheduler", "kube-controller-manager": "kube-controller-manager"} {
		link(t, filepath.Join(os.Getenv("PROGRAMS"), program), filepath.Join(c.dir, "bin", name))
	}
	c.certificate(t, "accounts", "accounts")
	c.certificate(t, "apiserver", "localhost")
	c.write(t, "tokens.csv", token+",admin,admin,system:masters\n")
	c.write(t, "kubeconfig", `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://localhost:6443", certificate-authority: `+filepath.Join(c.dir, "apiserver.crt")+`}}]
users: [{name: u, user: {token: "`+token+`"}}]
contexts: [{name: d, context: {cluster: c, user: u}}]
current-context: d
`)
	c.environment = append(c.environment, "KUBECONFIG="+filepath.Join(c.dir, "kubeconfig"), "CLOUD_PLATFORM=none")
	c.run(t, c.environment, "etcd", "--data-dir=etcd", "--unsafe-no-fsync", "--log-level=error", "--listen-client-urls=http://127.0.0.1:2379", "--advertise-client-urls=http://127.0.0.1:2379", "--listen-peer-urls=http://127.0.0.1:2380")
	c.serveAPI(t)
	for _, namespace := range []string{"istio-system", "shop"} {
		c.command(t, "kubectl", "create", "namespace", namespace)
	}
	return c
}

func (c *cluster) serveAPI(t *testing.T) {
	t.Helper()
	c.stopAPI = c.run(c.parent, c.environment, "kube-apiserver", "--etcd-servers=http://127.0.0.1:2379", "--bind-address=127.0.0.1", "--advertise-address=127.0.0.1",
		"--cert-dir=certs", "--tls-cert-file=apiserver.crt", "--tls-private-key-file=apiserver.key", "--endpoint-reconciler-type=none", "--service-cluster-ip-range=10.96.0.0/16",
		"--authorization-mode=RBAC", "--token-auth-file=tokens.csv", "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=accounts.crt", "--service-account-signing-key-file=accounts.key", "--disable-admission-plugins=ServiceAccount", "--allow-privileged=true")
	waitFor(t, "API server", func() bool { return c.try("kubectl", "get", "--raw", "/readyz") == "" })
}

// try runs a command, and returns what it has said if it has failed.
func (c *cluster) try(name string, arguments ...string) string {
	said, err := c.start(name, arguments...).CombinedOutput()
	if err == nil {
		return ""
	}
	return err.Error() + "\n" + string(said)
}

// crds gives the API server the kinds in files of a module.
func (c *cluster) crds(t *testing.T, module, files string) {
	t.Helper()
	all := must.Get(filepath.Glob(filepath.Join(os.Getenv(module), files)))(t)
	must.AtLeast(t, len(all), 1, "%s of %s", files, module)
	c.command(t, "kubectl", "apply", "--server-side", "-R", "-f", strings.Join(all, ","))
	c.command(t, "kubectl", "wait", "--for=condition=Established", "crd", "--all", "--timeout=120s")
}

// istiod starts Istio's control plane, with more settings, in the place of the one before. PyPI's Envoy has no extensions of
// Istio's, which the settings leave out.
func (c *cluster) istiod(t *testing.T, more ...string) {
	t.Helper()
	if c.stopIstiod != nil {
		c.stopIstiod()
	}
	environment := append(c.environment, "POD_NAMESPACE=istio-system", "POD_NAME=istiod-1", "CLUSTER_ID=Kubernetes", "PILOT_ENABLE_STATUS=true",
		"PILOT_ENABLE_ALPN_FILTER=false", "PILOT_ENABLE_METADATA_EXCHANGE=false", "VALIDATION_WEBHOOK_CONFIG_NAME=istio-validator")
	c.stopIstiod = c.run(c.parent, append(environment, more...), "pilot-discovery", "discovery", "--kubeconfig=kubeconfig", "--httpAddr=127.0.0.1:8089", "--httpsAddr=127.0.0.1:15017",
		"--grpcAddr=127.0.0.1:15010", "--secureGRPCAddr=127.0.0.1:15012", "--monitoringAddr=127.0.0.1:15014")
	waitFor(t, "istiod", func() bool { return get("http://127.0.0.1:8089/ready", "").status == http.StatusOK })
	waitFor(t, "istiod's authority", func() bool {
		return c.try("kubectl", "get", "configmap", "-n", "istio-system", "istio-ca-root-cert") == ""
	})
	root := c.command(t, "kubectl", "get", "configmap", "-n", "istio-system", "istio-ca-root-cert", "-o", `jsonpath={.data.root-cert\.pem}`)
	c.write(t, "root-cert.pem", root)
	// Istio's own checks of its resources, at istiod's address in the place of a Service.
	c.apply(t, strings.Replace(must.Text(t, "testdata/webhook.yaml"), "AUTHORITY", base64.StdEncoding.EncodeToString([]byte(root)), 1))
	waitFor(t, "istiod's checks", func() bool {
		return strings.Contains(c.tryInput("kind: EnvoyFilter\napiVersion: networking.istio.io/v1alpha3\nmetadata: {name: x, namespace: shop}\nspec: {configPatches: [{applyTo: CLUSTER, patch: {operation: ADD}}]}\n"), "denied the request")
	})
}

// tryInput has the API server check resources.
func (c *cluster) tryInput(resources string) string {
	cmd := c.start("kubectl", "apply", "--server-side", "--validate=strict", "--dry-run=server", "-f", "-")
	cmd.Stdin = strings.NewReader(resources)
	said, err := cmd.CombinedOutput()
	if err == nil {
		return ""
	}
	return string(said)
}

// apply has the API server take resources, without a field that it does not know. Of each two strings more the second goes
// into the place of the first.
func (c *cluster) apply(t *testing.T, resources string, replace ...string) {
	t.Helper()
	c.write(t, "apply.yaml", strings.NewReplacer(replace...).Replace(resources))
	c.command(t, "kubectl", "apply", "--server-side", "--force-conflicts", "--validate=strict", "-f", "apply.yaml")
}

// shipped is envoy/istio.yaml: only the images' names are others.
func (c *cluster) shipped(t *testing.T) string {
	t.Helper()
	return strings.NewReplacer("images.example/weir-plugin:1", c.registry+"/weir-plugin:v0.1.0", "images.example/weir:1", c.registry+"/weir:v0.1.0", "change-me", token).Replace(must.Text(t, "../../envoy/istio.yaml"))
}

// proxy is an Envoy that Istio's agent runs.
type proxy struct {
	kind, namespace, account, labels string
	address                          string // of the pod, 127.0.0.1 if it is empty
	port                             int    // that it listens on
	offset                           int    // of the ports of the agent and of Envoy's administration
	start                            func(*testing.T)
	stop                             func()
}

// agent starts Istio's agent as in a pod, with a token and the authority of the cluster.
func (c *cluster) agent(t *testing.T, p proxy) *proxy {
	t.Helper()
	if p.kind == "" {
		p.kind = "router"
	}
	if p.account == "" {
		p.account = "default-of-" + fmt.Sprint(p.port)
	}
	if p.address == "" {
		p.address = "127.0.0.1"
	}
	here := &cluster{world: &world{dir: filepath.Join(c.dir, fmt.Sprint("proxy-", p.port)), environment: c.environment}}
	for _, dir := range []string{"var/lib/istio/envoy", "etc/istio/proxy", "var/run/secrets/tokens", "var/run/secrets/istio"} {
		must.OK(t, os.MkdirAll(filepath.Join(here.dir, dir), 0o700))
	}
	if said := c.try("kubectl", "create", "serviceaccount", "-n", p.namespace, p.account); said != "" && !strings.Contains(said, "already exists") {
		t.Fatal(said)
	}
	here.write(t, "var/lib/istio/envoy/envoy_bootstrap_tmpl.json", strings.ReplaceAll(must.Text(t, filepath.Join(os.Getenv("ISTIO"), "tools/packaging/common/envoy_bootstrap.json")), "if .metadata_discovery", "if false"))
	here.write(t, "var/run/secrets/tokens/istio-token", c.command(t, "kubectl", "create", "token", "-n", p.namespace, p.account, "--audience=istio-ca"))
	here.write(t, "var/run/secrets/istio/root-cert.pem", must.Text(t, filepath.Join(c.dir, "root-cert.pem")))
	environment := append(c.environment, "POD_NAMESPACE="+p.namespace, fmt.Sprint("POD_NAME=pod-", p.port), "INSTANCE_IP="+p.address, "SERVICE_ACCOUNT="+p.account,
		"ISTIO_META_CLUSTER_ID=Kubernetes", "ISTIO_META_MESH_ID=cluster.local", "ISTIO_METAJSON_LABELS="+p.labels, "WASM_INSECURE_REGISTRIES="+c.registry,
		"ISTIO_META_INTERCEPTION_MODE=NONE", fmt.Sprint("ENVOY_STATUS_PORT=", 15021+p.offset), fmt.Sprint("ENVOY_PROMETHEUS_PORT=", 15090+p.offset),
		fmt.Sprintf("PROXY_CONFIG={binaryPath: %s, discoveryAddress: 'istiod.istio-system.svc:15012', concurrency: 1, proxyAdminPort: %d, statusPort: %d}", c.envoy, 15000+p.offset, 15020+p.offset))
	if p.kind == "waypoint" {
		environment = append(environment, "ISTIO_META_ENABLE_HBONE=true", "OUTPUT_CERTS="+here.dir)
	}
	link(t, filepath.Join(c.dir, "bin/pilot-agent"), filepath.Join(here.dir, "bin/pilot-agent"))
	p.start = func(t *testing.T) {
		t.Helper()
		p.stop = here.run(c.parent, environment, "pilot-agent", "proxy", p.kind, "--domain", p.namespace+".svc.cluster.local", "--proxyLogLevel=warning,wasm:info", "--log_output_level=default:warn,wasm:debug")
		waitFor(t, "the proxy at "+fmt.Sprint(p.port), func() bool { return p.ready() })
	}
	p.start(t)
	return &p
}

// ready reports whether the pod would be: this is the probe of Istio's charts.
func (p *proxy) ready() bool {
	return get(fmt.Sprintf("http://127.0.0.1:%d/healthz/ready", 15021+p.offset), "").status == http.StatusOK
}

func (p *proxy) url() string { return fmt.Sprintf("http://%s:%d", p.address, p.port) }

func (p *proxy) get(path, user string) answer { return get(p.url()+path, user) }

// admin is an answer of Envoy's administration.
func (p *proxy) admin(path string) string {
	return get(fmt.Sprintf("http://127.0.0.1:%d%s", 15000+p.offset, path), "").body
}

// as sends requests of a method, and says how many had which status.
func (p *proxy) as(t *testing.T, method, path, user string, requests int) map[int]int {
	t.Helper()
	return statuses(requests, func() answer {
		request := must.Get(http.NewRequestWithContext(t.Context(), method, p.url()+path, nil))(t)
		request.Header.Set("X-User", user)
		return do(request)
	})
}

// statuses says how many answers had which status.
func statuses(answers int, ask func() answer) map[int]int {
	counted := map[int]int{}
	for range answers {
		counted[ask().status]++
	}
	return counted
}

var successes = regexp.MustCompile(`(?m)^outbound\|9180\|\|weir\.weir-system\.svc\.cluster\.local::.*::rq_success::([1-9][0-9]*)$`)

func shippedLimits(t *testing.T, c *cluster, ingress *proxy) {
	must.Same(t, ingress.as(t, "POST", "/login", "ann", 7), map[int]int{200: 5, 429: 2}, "of 5 logins a minute")
	waitFor(t, "user at the limit", func() bool { return ingress.get("/api/items", "bob").status == http.StatusTooManyRequests })
	must.Same(t, ingress.as(t, "GET", "/", "bob", 20), map[int]int{200: 20}, "of a path without limits")
	waitFor(t, "answers of the backend", func() bool { return successes.MatchString(ingress.admin("/clusters")) })
	for _, resource := range []string{"namespace/weir-system", "secret/weir", "deployment/weir", "service/weir"} {
		c.command(t, "kubectl", "get", "-n", "weir-system", resource)
	}
}

// podsAreRestricted has the API server admit a pod of istio.yaml's Deployment where only restricted pods are.
func podsAreRestricted(t *testing.T, c *cluster, _ *proxy) {
	c.command(t, "kubectl", "create", "namespace", "restricted")
	c.command(t, "kubectl", "label", "namespace", "restricted", "pod-security.kubernetes.io/enforce=restricted")
	var deployment struct {
		Spec struct {
			Template struct {
				Spec map[string]any `json:"spec"`
			} `json:"template"`
		} `json:"spec"`
	}
	must.OK(t, json.Unmarshal([]byte(c.command(t, "kubectl", "get", "-n", "weir-system", "deployment/weir", "-o", "json")), &deployment))
	pod := func() string {
		text := must.Get(json.Marshal(map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "weir", "namespace": "restricted"}, "spec": deployment.Spec.Template.Spec}))(t)
		return c.tryInput(string(text))
	}
	must.Equal(t, pod(), "", "")
	container := deployment.Spec.Template.Spec["containers"].([]any)[0].(map[string]any)
	delete(container["securityContext"].(map[string]any), "seccompProfile")
	must.Contains(t, pod(), `violates PodSecurity "restricted:latest": seccompProfile`, "as it was before")
}

// pluginIsNotFetched asks for an image that is not there.
func pluginIsNotFetched(t *testing.T, c *cluster, ingress *proxy) {
	patch := func(url, strategy string) {
		t.Helper()
		c.command(t, "kubectl", "patch", "wasmplugin", "-n", "istio-system", "weir", "--type=merge", "-p", fmt.Sprintf(`{"spec": {"url": "oci://%s/%s", "failStrategy": %q}}`, c.registry, url, strategy))
	}
	probe := func() int {
		request := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, ingress.url(), nil))(t)
		request.Host = "weir-probe.internal"
		return do(request).status
	}
	waitFor(t, "answer to the probe", func() bool { return probe() == http.StatusOK })
	for _, of := range unfetched {
		patch("weir-plugin:none-"+strings.ToLower(of.strategy), of.strategy)
		c.notFetched(t, ingress, of)
		want := of.status
		must.Equal(t, probe(), want, "%s: the probe gets", of.strategy)
		must.Equal(t, ingress.ready(), true, "%s: the proxy is ready (if it is not, the document can say so)", of.strategy)
	}
	// The image comes, and the plugin with it once the resource's spec changes, or in a new pod.
	for image, fetch := range map[string]func(){
		"weir-plugin-late": func() {
			c.command(t, "kubectl", "patch", "wasmplugin", "-n", "istio-system", "weir", "--type=merge", "-p", `{"spec": {"priority": 1}}`)
		},
		"weir-plugin-later": func() { ingress.stop(); ingress.start(t) },
	} {
		patch(image+":v0.1.0", "FAIL_RELOAD")
		waitFor(t, "refusal", func() bool { return ingress.get("/api/items", "eve").status == http.StatusForbidden })
		c.copyImage(t, "weir-plugin", image, "v0.1.0")
		fetch()
		waitFor(t, "limits by "+image, func() bool { return ingress.get("/api/items", "eve").header.Get("RateLimit") != "" })
	}
	patch("weir-plugin:v0.1.0", "FAIL_RELOAD")
}

// unfetched is what Istio's agent does while it can't fetch a plugin, by its strategy.
var unfetched = []struct {
	strategy, check string
	status          int
}{
	{"FAIL_RELOAD", "refuses all requests with 403", http.StatusForbidden},
	{"FAIL_CLOSE", "refuses all requests with 403", http.StatusForbidden},
	{"FAIL_OPEN", "lets requests pass without limits", http.StatusOK},
}

// notFetched wants a proxy, and weir check, to tell of a plugin that can't be fetched.
func (c *cluster) notFetched(t *testing.T, p *proxy, of struct {
	strategy, check string
	status          int
}) {
	t.Helper()
	waitFor(t, of.check, func() bool {
		said := c.dumped(t, p)
		return strings.Contains(said, "could not fetch the plugin of") && strings.Contains(said, of.check)
	})
	if a := p.get("/api/items", "eve"); a.status != of.status || a.status == http.StatusForbidden && a.body != "RBAC: access denied" {
		t.Errorf("%s: %d %s", of.strategy, a.status, a.body)
	}
}

func (c *cluster) copyImage(t *testing.T, from, to, tag string) {
	t.Helper()
	manifest := do(c.at(t, http.MethodGet, from+"/manifests/"+tag, ""))
	for _, digest := range regexp.MustCompile(`sha256:[0-9a-f]{64}`).FindAllString(manifest.body, -1) {
		if a := do(c.at(t, http.MethodPost, to+"/blobs/uploads/?mount="+digest+"&from="+from, "")); a.status != http.StatusCreated {
			blob := do(c.at(t, http.MethodGet, from+"/blobs/"+digest, ""))
			a := do(c.at(t, http.MethodPost, to+"/blobs/uploads/?digest="+digest, blob.body))
			must.EqualOrEnd(t, a.status, http.StatusCreated, "%s: %s", digest, a.body)
		}
	}
	request := c.at(t, http.MethodPut, to+"/manifests/"+tag, manifest.body)
	request.Header.Set("Content-Type", manifest.header.Get("Content-Type"))
	a := do(request)
	must.EqualOrEnd(t, a.status, http.StatusCreated, "%s", a.body)
}

func (c *cluster) at(t *testing.T, method, path, body string) *http.Request {
	t.Helper()
	return must.Get(http.NewRequestWithContext(t.Context(), method, "http://"+c.registry+"/v2/"+path, strings.NewReader(body)))(t)
}

// dumped is what weir check says about a proxy's configuration.
func (c *cluster) dumped(t *testing.T, p *proxy) string {
	t.Helper()
	cmd := c.start("weir", "check", "-")
	cmd.Stdin = strings.NewReader(p.admin("/config_dump"))
	said, _ := cmd.CombinedOutput()
	return string(said)
}

// clusterIsLeftOut has istiod send gateways only the clusters that their routes need.
func clusterIsLeftOut(t *testing.T, c *cluster, ingress *proxy) {
	const lost = "want a cluster of this Envoy"
	setting := `apiVersion: apps/v1
kind: Deployment
metadata: {name: istiod}
spec: {template: {spec: {containers: [{env: [{name: PILOT_FILTER_GATEWAY_CLUSTER_CONFIG, value: "true"}]}]}}}
---
`
	has := func() bool { return strings.Contains(ingress.admin("/clusters"), "outbound|9180||weir.weir-system") }
	c.istiod(t, "PILOT_FILTER_GATEWAY_CLUSTER_CONFIG=true")
	// A Service that no route needs shows when istiod's new configuration has come.
	waitFor(t, "end of another cluster", func() bool { return !strings.Contains(ingress.admin("/clusters"), "outbound|80||unused.shop") })
	must.Equal(t, has(), true, "the shipped EnvoyFilter keeps the cluster")
	must.Equal(t, strings.Contains(c.dumped(t, ingress), lost), false, "weir check misses the cluster")
	c.command(t, "kubectl", "delete", "envoyfilter", "-n", "istio-system", "weir")
	waitFor(t, "end of the backend's cluster", func() bool { return !has() && strings.Contains(c.dumped(t, ingress), lost) })
	without, _, _ := strings.Cut(c.shipped(t), "---\n# Keeps the backend's cluster")
	c.write(t, "without.yaml", setting+without)
	must.Contains(t, c.command(t, "weir", "check", "without.yaml"), "gateways don't get this cluster", "weir check does not tell")
	c.write(t, "with.yaml", setting+c.shipped(t))
	must.Lacks(t, c.command(t, "weir", "check", "with.yaml"), "gateways don't get this cluster", "weir check")
	// These do not keep it.
	c.apply(t, `apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: weir, namespace: istio-system}
spec: {host: weir.weir-system.svc.cluster.local, trafficPolicy: {connectionPool: {tcp: {connectTimeout: 1s}}}}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: weir, namespace: istio-system}
spec: {hosts: [weir.weir-system.svc.cluster.local], location: MESH_INTERNAL, resolution: STATIC, ports: [{number: 9180, name: http, protocol: HTTP}], endpoints: [{address: 127.0.0.1}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: seen, namespace: istio-system}
spec:
  hosts: [seen.internal]
  gateways: [istio-system/gateway]
  http: [{route: [{destination: {host: unused.shop.svc.cluster.local, port: {number: 80}}}]}]
`)
	waitFor(t, "change", func() bool { return strings.Contains(ingress.admin("/clusters"), "outbound|80||unused.shop") })
	must.Equal(t, has(), false, "a DestinationRule or a ServiceEntry keeps the cluster (if so, the document can say it)")
	c.command(t, "kubectl", "delete", "-n", "istio-system", "destinationrule/weir", "serviceentry/weir", "virtualservice/seen")
	c.apply(t, c.shipped(t))
	waitFor(t, "the backend's cluster", has)
	c.istiod(t)
}

// chartsAreApplied has the API server check what the chart makes of all values.
func chartsAreApplied(t *testing.T, c *cluster, _ *proxy) {
	c.crds(t, "GATEWAY", "charts/gateway-helm/charts/crds/crds")
	c.crds(t, "PROMETHEUS", "example/prometheus-operator-crd/*_servicemonitors.yaml")
	c.crds(t, "PROMETHEUS", "example/prometheus-operator-crd/*_prometheusrules.yaml")
	c.istiod(t) // It looks for the Gateway API's kinds when it starts.
	files := must.Get(filepath.Glob("../../charts/values/*.yaml"))(t)
	must.AtLeast(t, len(files), 5, "files of values")
	for _, file := range files {
		c.write(t, "these.yaml", must.Text(t, file))
		rendered := c.command(t, "helm", "template", "others", "oci://"+c.registry+"/weir-chart", "--plain-http", "--version", "0.1.0", "-n", "weir-system", "-f", "these.yaml", "--kube-version", kubernetes)
		must.Equal(t, c.tryInput(rendered), "", "%s", file)
	}
	c.write(t, "rate-limits.yaml", must.Text(t, "../../envoy/gateway/rate-limits.yaml"))
	must.Equal(t, c.tryInput(must.Text(t, "../../envoy/gateway/rate-limits.yaml")), "", "")
}

// install has Helm install, or upgrade, as a section of docs/kubernetes.md says, with more settings.
func (c *cluster) install(t *testing.T, section, verb, version string, more ...string) {
	t.Helper()
	install, values := shown(t, section)
	c.write(t, "values.yaml", strings.ReplaceAll(values, "registry.example", c.registry))
	arguments := strings.Fields(verb + " " + strings.ReplaceAll(install[1], "registry.example", c.registry) + " --version " + version + " " + install[2] + " -f values.yaml --plain-http --set " + install[3] + "=" + token)
	c.command(t, "helm", append(arguments, more...)...)
}

// hour are values by which exactly 100 requests of a user pass.
const hour = "configuration: {sync_rate: 0, backend: {timeout: 5s}, rules: [{name: per-user, key: [{header: x-user}], limits: [{limit: 100, window: 1h, algorithm: sliding_log}]}]}"

// atTheLimit wants exactly 100 of a user's requests to pass.
func (p *proxy) atTheLimit(t *testing.T, user string) {
	t.Helper()
	must.Same(t, p.as(t, "GET", "/", user, 120), map[int]int{200: 100, 429: 20}, "%s: of 100 an hour", user)
}

// helmInstalls takes istio.yaml away, and has Helm install the chart, upgrade it under load, and go back.
func helmInstalls(t *testing.T, c *cluster, ingress *proxy) {
	c.write(t, "apply.yaml", c.shipped(t))
	c.command(t, "kubectl", "delete", "-n", "istio-system", "wasmplugin/weir", "envoyfilter/weir")
	c.command(t, "kubectl", "delete", "-n", "weir-system", "deployment/weir", "service/weir", "secret/weir")
	waitFor(t, "end of the limits", func() bool { return ingress.get("/api/q", "nobody").header.Get("RateLimit") == "" })
	c.command(t, "kubectl", "create", "secret", "generic", "weir", "-n", "weir-system", "--from-literal=token="+token, "--from-literal=store=redis://redis:6379")
	// With the page's limit of a minute some requests would pass meanwhile, as they should. Hits that a plugin has not pushed go with
	// it, so that this one has a sync_rate of 0, and another user comes once the backend answers.
	c.write(t, "hour.yaml", hour)
	began := time.Now()
	c.install(t, "Istio", "install", "0.1.0", "-f", "hour.yaml")
	waitFor(t, "limits", func() bool { return ingress.get("/", "ann").header.Get("RateLimit") != "" })
	waitFor(t, "the limit", func() bool { return ingress.get("/", "ann").status == http.StatusTooManyRequests })
	t.Logf("from helm install to the first 429: %v", time.Since(began).Round(time.Millisecond))
	waitFor(t, "answers of the backend", func() bool {
		ingress.get("/", "ann")
		return successes.MatchString(ingress.admin("/clusters"))
	})
	waitFor(t, "the limit of another user", func() bool { return ingress.get("/", "zoe").status == http.StatusTooManyRequests })
	first := ingress.modules()
	end, ended := make(chan struct{}), make(chan map[int]int)
	go func() {
		statuses := map[int]int{}
		for {
			select {
			case <-end:
				ended <- statuses
				return
			default:
				statuses[ingress.get("/", "zoe").status]++
			}
		}
	}()
	for _, next := range []struct{ what, version string }{{"upgrade", "0.2.0"}, {"rollback", "0.1.0"}} {
		began := time.Now()
		if next.what == "upgrade" {
			c.install(t, "Istio", "upgrade", next.version, "-f", "hour.yaml")
		} else {
			c.command(t, "helm", "rollback", "weir", "-n", "weir-system")
		}
		waitFor(t, "plugin of "+next.version, func() bool {
			return strings.Contains(c.command(t, "kubectl", "get", "wasmplugin", "-n", "istio-system", "weir", "-o", "jsonpath={.spec.url}"), "weir-plugin:v"+next.version)
		})
		waitFor(t, "module of "+next.version, func() bool {
			now := ingress.modules()
			return now != "[]" && (now == first) == (next.what == "rollback")
		})
		t.Logf("%s: %v", next.what, time.Since(began).Round(time.Millisecond))
	}
	close(end)
	statuses := <-ended
	t.Logf("requests of a user at the limit meanwhile: %v", statuses)
	must.AtLeast(t, statuses[429], 100, "refusals")
	must.Equal(t, len(statuses), 1, "kinds of answers, which are only refusals")
}

var moduleFile = regexp.MustCompile(`"filename": "(/var/lib/istio/data/[^"]+)"`)

// modules are the files of the plugins that a proxy runs.
func (p *proxy) modules() string {
	return fmt.Sprint(moduleFile.FindAllStringSubmatch(p.admin("/config_dump?resource=ecds_filters"), -1))
}

// gatewayOfTheAPI limits requests at a Gateway of the Gateway API, which Istio makes: by targetRefs.
func gatewayOfTheAPI(t *testing.T, c *cluster, ingress *proxy) {
	c.apply(t, must.Text(t, "testdata/gateways.yaml"))
	public := c.agent(t, proxy{namespace: "shop", account: "public-istio", labels: `{"gateway.networking.k8s.io/gateway-name":"public"}`, address: "127.0.0.2", port: 8085, offset: 100})
	t.Cleanup(public.stop)
	waitFor(t, "answer of the Gateway", func() bool { return public.get("/", "ann").status == http.StatusOK })
	// As it was: Helm merged this label with the default's.
	c.install(t, "Istio", "upgrade", "0.1.0", "--set", `istio.namespace=shop,istio.selector.istio=ingressgateway,istio.selector.gateway\.networking\.k8s\.io/gateway-name=public`)
	c.command(t, "kubectl", "get", "wasmplugin", "-n", "shop", "weir")
	// A header that a route adds shows when the configuration has come.
	c.command(t, "kubectl", "patch", "httproute", "-n", "shop", "app", "--type=json", "-p", `[{"op": "add", "path": "/spec/rules/0/filters", "value": [{"type": "ResponseHeaderModifier", "responseHeaderModifier": {"add": [{"name": "x-seen", "value": "1"}]}}]}]`)
	waitFor(t, "the header", func() bool { return public.get("/", "ann").header.Get("X-Seen") != "" })
	// If they are limited, the document can say so.
	must.Same(t, public.as(t, "GET", "/", "ann", 120), map[int]int{200: 120}, "by a selector of two labels")
	must.Equal(t, strings.Contains(public.admin("/config_dump"), "shop.weir"), false, "the proxy has the plugin")
	for i, of := range []string{`istio.selector.gateway\.networking\.k8s\.io/gateway-name=public`, "istio.targetRefs[0].group=gateway.networking.k8s.io,istio.targetRefs[0].kind=Gateway,istio.targetRefs[0].name=public"} {
		namespace := "gateway-" + fmt.Sprint(i)
		c.install(t, "Istio", "upgrade", "0.1.0", "-f", "hour.yaml", "--set", "istio.namespace=shop,configuration.namespace="+namespace+",configuration.rules[0].name="+namespace+","+of)
		waitFor(t, "limits by "+of, func() bool {
			return public.get("/", "nobody").limits(namespace)
		})
		waitFor(t, "answers of the backend", func() bool { public.get("/", "nobody"); return successes.MatchString(public.admin("/clusters")) })
		public.atTheLimit(t, namespace)
	}
}

// bodiesByEnvoyFilter has the plugin read requests' bodies, by the resource that can give it them.
func bodiesByEnvoyFilter(t *testing.T, c *cluster, ingress *proxy) {
	c.write(t, "bodies.yaml", `istio: {resource: EnvoyFilter}
configuration:
  namespace: bodies
  rules: [{name: tokens, key: [{header: x-user}], cost_on_response: openai, reserve: {request_json: max_tokens, default: 100}, limits: [{limit: 1000, window: 1h}]}]
`)
	c.install(t, "Istio", "upgrade", "0.1.0", "-f", "bodies.yaml")
	post := func() answer {
		request := must.Get(http.NewRequestWithContext(t.Context(), http.MethodPost, ingress.url()+"/v1/chat/completions", strings.NewReader(`{"max_tokens": 600}`)))(t)
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("X-User", fmt.Sprint("user", time.Now().UnixNano()))
		return do(request)
	}
	waitFor(t, "limits by an EnvoyFilter", func() bool { return strings.Contains(post().header.Get("RateLimit"), `"tokens"`) })
	must.Contains(t, post().header.Get("RateLimit"), `"tokens";r=400`, "")
	if dump := ingress.admin("/config_dump?resource=ecds_filters"); !moduleFile.MatchString(dump) || strings.Contains(dump, "http_uri") {
		t.Errorf("want a file that the agent has fetched, got %s", dump)
	}
	for _, of := range unfetched {
		c.install(t, "Istio", "upgrade", "0.1.0", "-f", "bodies.yaml", "--set", "plugin.tag=none-of-"+strings.ToLower(of.strategy)+",istio.failStrategy="+of.strategy)
		c.notFetched(t, ingress, of)
	}
	c.command(t, "helm", "uninstall", "weir", "-n", "weir-system")
	waitFor(t, "end of the limits", func() bool { return post().header.Get("RateLimit") == "" })
}

// backendSpeaksTLSToIstio gives the backend a certificate. By the chart's DestinationRule gateways check it, and by another
// authority do without the backend.
func backendSpeaksTLSToIstio(t *testing.T, c *cluster, ingress *proxy) {
	for _, name := range []string{"backend", "other"} {
		c.certificate(t, name, "weir.weir-system.svc.cluster.local")
	}
	port := freePort(t)
	stop := c.run(t, c.environment, "weir", "serve", "--store", "memory", "--listen", fmt.Sprint("127.0.0.1:", port), "--tls-cert", "backend.crt", "--tls-key", "backend.key")
	defer stop()
	listens := func(port string) {
		c.command(t, "kubectl", "patch", "workloadentry", "-n", "weir-system", "weir", "--type=merge", "-p", `{"spec": {"ports": {"http": `+port+`}}}`)
	}
	listens(fmt.Sprint(port))
	state := func(what string) bool {
		return regexp.MustCompile(fmt.Sprintf(`(?m)^outbound\|9180\|\|weir\..*::127.0.0.1:%d::%s::[1-9]`, port, what)).MatchString(ingress.admin("/clusters"))
	}
	for _, of := range []struct{ authority, count string }{{"backend.crt", "rq_success"}, {"other.crt", "cx_connect_fail"}} {
		file := filepath.Join(c.dir, of.authority)
		c.install(t, "Istio", "upgrade", "0.1.0", "--install", "-f", "hour.yaml", "--set", "configuration.namespace="+of.authority+",backend.tls.secretName=weir-tls,istio.trustedCA="+file)
		waitFor(t, "limits by "+of.authority, func() bool {
			return ingress.get("/", "nobody").header.Get("RateLimit") != "" && strings.Contains(ingress.admin("/config_dump?resource=ecds_filters"), of.authority)
		})
		waitFor(t, of.count+" by "+of.authority, func() bool { ingress.get("/", "nobody"); return state(of.count) })
		if of.count == "rq_success" {
			ingress.atTheLimit(t, "tls")
		}
	}
	c.command(t, "helm", "uninstall", "weir", "-n", "weir-system")
	listens(c.backend[strings.LastIndexByte(c.backend, ':')+1:])
	waitFor(t, "end of the limits", func() bool { return ingress.get("/", "nobody").header.Get("RateLimit") == "" })
}

// sidecarLimits limits requests at an application's sidecars, which a selector chooses.
func sidecarLimits(t *testing.T, c *cluster, _ *proxy) {
	c.apply(t, must.Text(t, "testdata/sidecar.yaml"), "127.0.0.1:3000", fmt.Sprint("127.0.0.1:", c.app))
	c.write(t, "hour.yaml", hour)
	install := func(resource string) {
		c.install(t, "Istio", "upgrade", "0.1.0", "--install", "-f", "hour.yaml", "--set", "istio.namespace=shop,istio.selector.app=app,configuration.namespace=sidecars-"+resource+",configuration.rules[0].name="+resource+",istio.resource="+resource)
	}
	install("WasmPlugin")
	sidecar := c.agent(t, proxy{kind: "sidecar", namespace: "shop", account: "app", labels: `{"app":"app","at":"one"}`, address: "127.0.0.3", port: 8086, offset: 200})
	defer func() { sidecar.stop() }()
	other := c.agent(t, proxy{kind: "sidecar", namespace: "shop", account: "app", labels: `{"app":"app","at":"two"}`, address: "127.0.0.5", port: 8087, offset: 400})
	defer func() { other.stop() }()
	for _, resource := range []string{"WasmPlugin", "EnvoyFilter"} {
		install(resource)
		for _, p := range []*proxy{sidecar, other} {
			waitFor(t, "limits by "+resource, func() bool {
				return p.get("/", "nobody").limits(resource)
			})
			waitFor(t, "answers of the backend", func() bool { p.get("/", "nobody"); return successes.MatchString(p.admin("/clusters")) })
		}
		// They let 100 pass together.
		must.Same(t, sidecar.as(t, "GET", "/", resource, 60), map[int]int{200: 60}, "%s: at one sidecar", resource)
		must.Same(t, other.as(t, "GET", "/", resource, 60), map[int]int{200: 40, 429: 20}, "%s: then at the other", resource)
	}
	// A Sidecar resource without the backend's namespace takes its cluster away.
	c.command(t, "kubectl", "patch", "sidecar", "-n", "shop", "one", "--type=merge", "-p", `{"spec": {"egress": [{"hosts": ["shop/*"]}]}}`)
	waitFor(t, "weir check tells that the cluster is gone", func() bool { return strings.Contains(c.dumped(t, sidecar), "want a cluster of this Envoy") })
	c.command(t, "helm", "uninstall", "weir", "-n", "weir-system")
}

// block is one of a page.
var block = regexp.MustCompile("(?s)```yaml\n(.*?)```")

// waypoint starts a waypoint of ambient mode. It is asked as a ztunnel would: each connection is in a CONNECT to a Service's address.
func (c *cluster) waypoint(t *testing.T) (waypoint *proxy, ask func(service, user string) answer) {
	t.Helper()
	waypoint = c.agent(t, proxy{kind: "waypoint", namespace: "shop", account: "waypoint", labels: `{"gateway.networking.k8s.io/gateway-name":"waypoint"}`, address: "127.0.0.4", port: 15008, offset: 300})
	own := filepath.Join(c.dir, "proxy-15008")
	certificate := must.Get(tls.LoadX509KeyPair(filepath.Join(own, "cert-chain.pem"), filepath.Join(own, "key.pem")))(t)
	tunnel := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{Certificates: []tls.Certificate{certificate}, InsecureSkipVerify: true}} //nolint:gosec // the name is a SPIFFE identity
	addresses := map[string]string{}
	return waypoint, func(service, user string) answer {
		if addresses[service] == "" {
			name, namespace, _ := strings.Cut(service, ".")
			addresses[service] = c.command(t, "kubectl", "get", "service", "-n", namespace, name, "-o", "jsonpath={.spec.clusterIP}") + ":80"
		}
		inner, write := io.Pipe()
		defer write.Close()
		outer := must.Get(http.NewRequestWithContext(t.Context(), http.MethodConnect, "https://127.0.0.4:15008", inner))(t)
		outer.Host = addresses[service]
		connected, err := tunnel.RoundTrip(outer)
		if err != nil {
			return answer{body: err.Error()}
		}
		defer connected.Body.Close()
		if connected.StatusCode != http.StatusOK {
			return answer{body: "CONNECT: " + connected.Status}
		}
		// The authority is the client's own choice.
		if _, err := io.WriteString(write, "GET / HTTP/1.1\r\nHost: app.shop\r\nX-User: "+user+"\r\n\r\n"); err != nil {
			return answer{body: err.Error()}
		}
		response, err := http.ReadResponse(bufio.NewReader(connected.Body), nil)
		if err != nil {
			return answer{body: err.Error()}
		}
		defer response.Body.Close()
		return answer{status: response.StatusCode, header: response.Header}
	}
}

func waypointLimits(t *testing.T, c *cluster, _ *proxy) {
	c.istiod(t, "PILOT_ENABLE_AMBIENT=true")
	c.apply(t, must.Text(t, "testdata/waypoint.yaml"))
	c.command(t, "kubectl", "label", "service", "-n", "shop", "app", "istio.io/use-waypoint=waypoint")
	_, text, _ := strings.Cut(section(t, "Istio"), "\n### A waypoint\n")
	c.write(t, "waypoint.yaml", block.FindStringSubmatch(text)[1])
	c.write(t, "hour.yaml", hour)
	install := func(resource string) {
		c.install(t, "Istio", "upgrade", "0.1.0", "--install", "-f", "waypoint.yaml", "-f", "hour.yaml", "--set", "configuration.namespace=waypoints-"+resource+",configuration.rules[0].name="+resource+",istio.resource="+resource)
	}
	install("WasmPlugin")
	waypoint, asks := c.waypoint(t)
	defer waypoint.stop()
	ask := func(user string) answer { return asks("app.shop", user) }
	for _, resource := range []string{"EnvoyFilter", "WasmPlugin"} {
		install(resource)
		waitFor(t, "limits by "+resource, func() bool {
			return ask("nobody").limits(resource)
		})
		waitFor(t, "answers of the backend", func() bool { ask("nobody"); return successes.MatchString(waypoint.admin("/clusters")) })
		must.Same(t, statuses(120, func() answer { return ask(resource) }), map[int]int{200: 100, 429: 20}, "%s: of 100 an hour", resource)
	}
	// The EnvoyFilter beside the plugin keeps the backend's cluster.
	c.command(t, "kubectl", "delete", "envoyfilter", "-n", "shop", "weir")
	waitFor(t, "weir check tells that the cluster is gone", func() bool { return strings.Contains(c.dumped(t, waypoint), "want a cluster of this Envoy") })
	c.command(t, "helm", "uninstall", "weir", "-n", "weir-system")
}
