// Package charts has no code. Its test renders the chart.
package charts

import (
	"bytes"
	"cmp"
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"weir/internal/check"
	"weir/internal/commandtest"
	"weir/internal/controllerflags"
	"weir/internal/must"
	"weir/internal/nightly"
	"weir/internal/tools"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"sigs.k8s.io/yaml"
)

// helm is the file of a Helm to render the chart with. A nightly run builds it.
var helm = flag.String("helm", "", "`file` of helm; a nightly run builds one")

// core has the kinds of Kubernetes, with their names in its OpenAPI of 1.31.
var core = map[string]string{
	"Deployment": "io.k8s.api.apps.v1.Deployment", "StatefulSet": "io.k8s.api.apps.v1.StatefulSet",
	"Service": "io.k8s.api.core.v1.Service", "ConfigMap": "io.k8s.api.core.v1.ConfigMap",
	"Namespace": "io.k8s.api.core.v1.Namespace", "Secret": "io.k8s.api.core.v1.Secret",
	"PodDisruptionBudget":     "io.k8s.api.policy.v1.PodDisruptionBudget",
	"HorizontalPodAutoscaler": "io.k8s.api.autoscaling.v2.HorizontalPodAutoscaler",
	"NetworkPolicy":           "io.k8s.api.networking.v1.NetworkPolicy",
	"ServiceAccount":          "io.k8s.api.core.v1.ServiceAccount",
	"Role":                    "io.k8s.api.rbac.v1.Role", "RoleBinding": "io.k8s.api.rbac.v1.RoleBinding",
	"ClusterRole": "io.k8s.api.rbac.v1.ClusterRole", "ClusterRoleBinding": "io.k8s.api.rbac.v1.ClusterRoleBinding",
	"CustomResourceDefinition": "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition",
}

// ofKind returns the schema of a kind. The schemas of testdata are of Kubernetes 1.31, Istio
// 1.31.1, Envoy Gateway 1.9.1 and the Prometheus operator 0.85.0. Their clusters prune or refuse
// unknown fields; this test accepts none.
func ofKind(t *testing.T, kind string) *jsonschema.Schema {
	t.Helper()
	if name, ok := core[kind]; ok {
		return compiled(t, "testdata/schemas/kubernetes.json", "#/$defs/"+name)
	}
	return compiled(t, "testdata/schemas/"+kind+".json", "")
}

// compiled returns the schema of a file, or a part of it.
func compiled(t *testing.T, file, part string) *jsonschema.Schema {
	t.Helper()
	text := must.Get(os.ReadFile(file))(t)
	document := must.Get(jsonschema.UnmarshalJSON(bytes.NewReader(text)))(t)
	c := jsonschema.NewCompiler()
	must.OK(t, c.AddResource("schema.json", document))
	schema, err := c.Compile("schema.json" + part)
	must.OKf(t, err, "%s", file)
	return schema
}

func fromYAML(t *testing.T, text string) (document any) {
	t.Helper()
	asJSON, err := yaml.YAMLToJSONStrict([]byte(text))
	must.OKf(t, err, "%s", text)
	must.OK(t, json.Unmarshal(asJSON, &document))
	return document
}

func valueFiles(t *testing.T) []string {
	t.Helper()
	files := must.Get(filepath.Glob("values/*.yaml"))(t)
	must.AtLeast(t, len(files), 5, "files of values")
	return files
}

// The chart's default values and the files of values/ satisfy its schema.
func TestValues(t *testing.T) {
	t.Parallel()
	schema := compiled(t, "weir/values.schema.json", "")
	for _, file := range append(valueFiles(t), "weir/values.yaml") {
		text := must.Get(os.ReadFile(file))(t)
		values := fromYAML(t, string(text))
		must.Reportf(t, schema.Validate(values), "%s", file)
		backend, _ := values.(map[string]any)["backend"].(map[string]any)
		avoidsItself(t, file, backend["affinity"])
	}
	must.Fails(t, schema.Validate(fromYAML(t, "backend: {replica: 2}")), "a field that is misspelt")
}

// avoidsItself wants each term of an affinity to select the chart's own pods: one without a labelSelector selects none.
func avoidsItself(t *testing.T, file string, affinity any) {
	t.Helper()
	switch value := affinity.(type) {
	case []any:
		for _, element := range value {
			avoidsItself(t, file, element)
		}
	case map[string]any:
		if value["topologyKey"] != nil {
			selector, _ := value["labelSelector"].(map[string]any)
			labels, _ := selector["matchLabels"].(map[string]any)
			must.Equal(t, labels["app.kubernetes.io/name"], any("weir"), "%s: pods that the affinity %v selects", file, value)
		}
		for _, field := range value {
			avoidsItself(t, file, field)
		}
	}
}

// TestRendered lets Helm lint and render the chart with all values. The resources' schemas,
// kubeconform and weir check check the result.
func TestRendered(t *testing.T) {
	t.Parallel()
	if *helm == "" && !nightly.On() {
		return
	}
	file := *helm
	if file == "" {
		var err error
		file, err = tools.Install("..", tools.Helm)
		must.OK(t, err)
	}
	run := func(arguments ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), file, append(arguments, "--kube-version", "1.31.0")...)
		var out, said bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &said
		err := cmd.Run()
		return out.String() + said.String(), err
	}
	// template renders the chart as a release, and ends the test if Helm does not.
	template := func(release string, arguments ...string) string {
		t.Helper()
		rendered, err := run(append([]string{"template", release, "weir"}, arguments...)...)
		must.OKf(t, err, "%s %v: %s", release, arguments, rendered)
		return rendered
	}
	conforms := kubeconform(t)
	kinds := map[string]bool{}
	for _, values := range valueFiles(t) {
		said, err := run("lint", "weir", "--strict", "-f", values)
		must.Reportf(t, err, "%s: %s", values, said)
		rendered, err := run("template", "weir", "weir", "-n", "weir-system", "-f", values)
		if err != nil {
			t.Errorf("%s: %v\n%s", values, err, rendered)
			continue
		}
		for _, kind := range holds(t, values, rendered) {
			kinds[kind] = true
		}
		said, err = conforms(rendered)
		must.Reportf(t, err, "%s: kubeconform: %s", values, said)
		if report := check.Found(values, []byte(rendered)); report.Refused() {
			t.Errorf("%s: weir check: %+v", values, report.Findings)
		} else if want := strings.Contains(rendered, "pluginConfig") || strings.Contains(rendered, "wasm:"); want && report.Configurations == 0 {
			t.Errorf("%s: weir check finds no configuration", values)
		}
	}
	for _, kind := range []string{
		"Deployment", "StatefulSet", "Service", "ConfigMap", "PodDisruptionBudget", "HorizontalPodAutoscaler", "NetworkPolicy", "ServiceMonitor",
		"PrometheusRule", "DestinationRule", "WasmPlugin", "TrafficExtension", "EnvoyFilter", "EnvoyExtensionPolicy", "EnvoyPatchPolicy",
	} {
		must.Equal(t, kinds[kind], true, "some values have a %s", kind)
	}
	for limit, want := range map[string]string{"512Mi": "322122547", "1.5Gi": "966367641", "500M": "300000000", "1000000000": "600000000", "": ""} {
		rendered := template("weir", "-f", "values/file-store.yaml", "--set", "backend.resources.limits.memory="+limit)
		if want != "" && !strings.Contains(rendered, "- --max-memory="+want+"\n") || want == "" && strings.Contains(rendered, "--max-memory") {
			t.Errorf("with a limit of %q: want --max-memory=%s", limit, want)
		}
	}
	const (
		region = "backend.store.kind=memory,backend.replicas=1,backend.parent.url=http://hub:9180"
		both   = ",backend.parent.ca.configMapRef.name=b"
		ca     = "monitoring.serviceMonitor.ca."
		public = "istio.targetRefs[0].group=gateway.networking.k8s.io,istio.targetRefs[0].kind=Gateway,istio.targetRefs[0].name=public"
	)
	for wrong, want := range map[string]string{
		"backend.store.kind=file":            "want backend.replicas 1",
		"backend.token.secretRef.name=":      "want backend.token.secretRef",
		"backend.replica=2":                  "replica",
		"backend.resources.limits.memory=1x": "want bytes, or a number of",
		"backend.tls.clientCA=true":          "want backend.tls.secretName",
		"istio.resource=Sidecar":             "resource",
		"istio.enabled=true,configuration.rules[0].name=r,configuration.rules[0].match.any[0].if=has(query.a)": "weir compile",
		"istio.enabled=true,istio.phase=x":                                                    "phase",
		"istio.enabled=true,istio.resource=EnvoyFilter,istio.phase=STATS":                     "its plugin is the last filter",
		"istio.enabled=true,backend.tls.secretName=weir-tls,backend.tls.clientCA=true":        "show no certificate",
		"envoyGateway.enabled=true,backend.tls.secretName=weir-tls,backend.tls.clientCA=true": "show no certificate",
		"backend.parent.url=https://hub:9180":                                                 "want backend.store.kind file or memory",
		"backend.parent.token.secretRef.name=weir-parent":                                     "want its url",
		"backend.parent.url=hub:9180":                                                         "/backend/parent/url",
		"backend.parent.onFailure=allow":                                                      "/backend/parent/onFailure",
		region + ",backend.parent.ca.secretRef.name=a":                                        "https only",
		region + ",backend.parent.ca.secretRef.name=a" + both:                                 "not both",
		ca + "secretRef.name=a," + ca + "configMapRef.name=b":                                 "not both",
		// These values have another type, or are out of bounds.
		"backend.replicas=two":                       "/backend/replicas",
		"backend.replicas=0":                         "/backend/replicas",
		"backend.enabled=maybe":                      "/backend/enabled",
		"backend.extraArgs=--insecure":               "/backend/extraArgs",
		"backend.resources=100m":                     "/backend/resources",
		"backend.rateLimitService.port=70000":        "/backend/rateLimitService/port",
		"backend.logLevel=loud":                      "/backend/logLevel",
		"configuration=none":                         "/configuration",
		"envoyGateway.gateways[0]=eg":                "/envoyGateway/gateways/0",
		"envoyGateway.gateways[0].listeners[0]=http": "name",
		"istio.enabled=true,istio.selector=ingress":  "/istio/selector",
		"istio.enabled=true,istio.failStrategy=FAIL": "/istio/failStrategy",
		"istio.enabled=true,istio.targetRefs[0].kind=Gateway,istio.targetRefs[0].name=public": "/istio/targetRefs/0",
		"istio.enabled=true," + public + ",istio.targetRefs[0].kind=Service":                  "/istio/targetRefs/0/kind",
		"istio.enabled=true,istio.selector.app=api," + public:                                 "not both",
		"monitoring.rules.labels=release":                                                     "/monitoring/rules/labels",
		"backend.podDisruptionBudget.maxUnavailable=true":                                     "/backend/podDisruptionBudget/maxUnavailable",
		"backend.autoscaling.enabled=yes":                                                     "/backend/autoscaling/enabled",
		"backend.store.kind=memory,backend.replicas=2":                                        "want backend.replicas 1",
		"backend.store.kind=sqlite":                                                           "/backend/store/kind",
		"backend.store.secretRef=weir":                                                        "/backend/store/secretRef",
		"controller.enabled=true,plugin.image=registry.example/weir-plugin":                   "controller.namespaces: want the namespaces",
		"controller.enabled=true,plugin.image=registry.example/weir-plugin,backend.token.secretRef.name=,backend.insecure=true,configuration.backend.token=a": "controller.namespaces: want the namespaces",
		"backend.token.secretRef.name=,backend.tls.clientCA=": "clientCA",
	} {
		if said, err := run("template", "weir", "weir", "--set", wrong); err == nil || !strings.Contains(said, want) {
			t.Errorf("%s: %v, want %q in\n%.500s", wrong, err, want, said)
		}
	}
	// YAML reads these names as other types, and no Service may have the name of this release.
	for _, odd := range []struct{ release, namespace string }{{"weir", "123"}, {"weir", "1e3"}, {"weir", "true"}, {"1e3", "null"}, {"a.b", "0x1f"}, {strings.Repeat("w", 53), "y"}, {strings.Repeat("w", 48) + "--b", "y"}} {
		for _, values := range valueFiles(t) {
			rendered := template(odd.release, "-n", odd.namespace, "-f", values, "--set-string", "istio.namespace="+odd.namespace+",envoyGateway.namespace="+odd.namespace)
			holds(t, values+" as "+odd.release+" in "+odd.namespace, rendered)
		}
	}
	// What is cut of a long name, or is no letter of a Service's, does not make two of one.
	names := map[string]string{}
	for _, release := range []string{strings.Repeat("w", 50), strings.Repeat("w", 51), strings.Repeat("w", 53), strings.Repeat("w", 52) + "x", strings.Repeat("w", 48) + "--b", "a.b", "a-b", "1x", "weir-1x"} {
		rendered := template(release, "--show-only", "templates/backend.yaml")
		name := regexp.MustCompile(`(?m)^  name: "(.*)"$`).FindStringSubmatch(rendered)[1]
		if other := names[name]; other != "" || len(name) > 50 {
			t.Errorf("%s and %s have the name %s", other, release, name)
		}
		names[name] = release
	}
	if names[strings.Repeat("w", 50)] == "" {
		t.Errorf("a name that fits has another: %v", names)
	}
	// A backend from elsewhere has its cluster kept, too.
	for _, resource := range []string{"WasmPlugin", "EnvoyFilter"} {
		rendered := template("weir", "-f", "values/istio.yaml", "--set", "backend.enabled=false,configuration.backend.cluster=outbound|9180||weir.far.svc.cluster.local,istio.resource="+resource)
		must.Equal(t, strings.Count(rendered, `envoyfilter.istio.io/referenced-services: "weir.far.svc.cluster.local"`), 1, "%s: what keeps the cluster of another's backend", resource)
		holds(t, resource+" with a backend from elsewhere", rendered)
	}
	// What the plugin is for, in each of Istio's resources. Helm merges maps, so a label of one's own has to replace the default.
	for _, resource := range []string{"WasmPlugin", "TrafficExtension", "EnvoyFilter"} {
		for set, want := range map[string]string{
			"istio.enabled=true":                        `{"labels":{"istio":"ingressgateway"}}`,
			"istio.enabled=true,istio.selector.app=api": `{"labels":{"app":"api"}}`,
			"istio.enabled=true," + public:              `[{"group":"gateway.networking.k8s.io","kind":"Gateway","name":"public"}]`,
		} {
			rendered := template("weir", "--set", set+",istio.failStrategy=FAIL_CLOSE,istio.resource="+resource)
			holds(t, resource+" with "+set, rendered)
			// Else istiod may leave the backend's cluster out.
			must.Contains(t, rendered, `envoyfilter.istio.io/referenced-services: "default/weir.default.svc.cluster.local"`, "%s: nothing keeps the backend's cluster", resource)
			if got := targets(t, rendered); len(got) == 0 || slices.ContainsFunc(got, func(one string) bool { return one != want }) {
				t.Errorf("%s with %s is for %q, want %s", resource, set, got, want)
			}
			must.Contains(t, rendered, cmp.Or((map[string]string{"EnvoyFilter": "failure_policy: FAIL_CLOSED\n"}[resource]), "failStrategy: FAIL_CLOSE\n"), "%s has another strategy of failure", resource)
		}
		// All pods of the namespace.
		rendered := template("weir", "--set", "istio.enabled=true,istio.resource="+resource, "--set-json", "istio.selector={}")
		if got := targets(t, rendered); len(got) == 0 || strings.Join(got, "") != "" {
			t.Errorf("%s of no labels is for %q", resource, got)
		}
		holds(t, resource+" of no labels", rendered)
	}
	// A region's parent with the authority from a Secret, and without any.
	rendered := template("weir", "-f", "values/region.yaml", "--set", "backend.parent.ca.configMapRef.name=,backend.parent.ca.secretRef.name=hub-ca")
	for _, want := range []string{
		`"--parent=https://weir.hub.example:9180"`, `"--on-parent-failure=deny"`, "--parent-ca=/etc/weir/parent/ca.crt", "mountPath: /etc/weir/parent, readOnly: true",
		`{name: parent, secret: {secretName: "hub-ca", items: [{key: "ca.crt", path: ca.crt}]}}`, "name: WEIR_PARENT_TOKEN", `{secretKeyRef: {"key":"token","name":"weir-parent"}}`,
	} {
		must.Contains(t, rendered, want, "a region lacks")
	}
	rendered = template("weir", "--set", region)
	if !strings.Contains(rendered, `"--parent=http://hub:9180"`) || strings.Contains(rendered, "parent-ca") || strings.Contains(rendered, "WEIR_PARENT_TOKEN") {
		t.Errorf("a region without a token:\n%s", rendered)
	}
	// A pod that can't start is replaced by a rollback: with the default, OrderedReady, the StatefulSet waits for it.
	fileStore := template("weir", "-f", "values/file-store.yaml")
	must.Contains(t, fileStore, "  podManagementPolicy: Parallel\n", "the StatefulSet")
	// weir serve reads its descriptors again: others restart no pod, which would not start with a mistake in them.
	workload := func(domain string) string {
		_, set, _ := strings.Cut(template("weir", "-f", "values/file-store.yaml", "--set", "backend.rateLimitService.descriptors.domain="+domain), "\nkind: StatefulSet\n")
		return set
	}
	must.Equal(t, workload("other"), workload("shop"), "the StatefulSet with other descriptors")
	// The operator drops a ServiceMonitor that names a key which is not there: the Secret with the certificate may have no ca.crt.
	for set, want := range map[string]string{"": "", ca + "secretRef.name=weir-ca": `ca: {secret: {"key":"ca.crt","name":"weir-ca"}}`, ca + "configMapRef.name=weir-ca": `ca: {configMap: {"key":"ca.crt","name":"weir-ca"}}`} {
		rendered := template("weir", "-f", "values/tls.yaml", "--set", set)
		must.Contains(t, rendered, "serverName: weir.default.svc.cluster.local\n", "the ServiceMonitor with %q", set)
		must.Contains(t, rendered, want, "the ServiceMonitor with %q", set)
		must.Equal(t, strings.Count(rendered, "ca.crt"), min(len(want), 1), "keys ca.crt with %q", set)
	}
	// Prometheus may have a token that reads, where others push alone.
	own := template("weir", "-f", "values/file-store.yaml", "--set", "monitoring.serviceMonitor.token.secretRef.name=reads")
	must.Contains(t, own, `authorization: {credentials: {name: "reads", key: "token"}}`, "a token of the ServiceMonitor's own")
	// Probes show no certificate, and need none.
	must.Contains(t, fileStore, "path: /readyz, port: http, scheme: HTTPS}", "clients' certificates")
	// Another release has the kind of policies.
	const kind = "kind: CustomResourceDefinition\n"
	for set, want := range map[string]int{"true": 1, "false": 0} {
		rendered := template("weir", "-f", "values/controller.yaml", "--set", "controller.crd="+set)
		must.Equal(t, strings.Count(rendered, kind), want, "with controller.crd=%s: %q", set, kind)
		must.Contains(t, rendered, "- controller\n", "with controller.crd=%s", set)
	}
	// Helm installs no two releases in a namespace, where they would share the controller's lease: both have a Role of this name.
	for _, release := range []string{"weir", "other"} {
		rendered := template(release, "-f", "values/controller.yaml", "--show-only", "templates/controller.yaml")
		must.Contains(t, rendered, "kind: Role\nmetadata:\n  name: weir-controller\n", "the controller of %s", release)
		must.Contains(t, rendered, `- {apiGroups: [""], resources: [events], verbs: [create, patch]}`, "who has the lease, as %s,", release)
	}
	// An image with a digest.
	digest := "sha256:" + strings.Repeat("0", 64)
	rendered = template("weir", "-f", "values/istio.yaml", "--set", "image.tag="+digest+",plugin.tag="+digest)
	must.Contains(t, rendered, `"images.example/weir@`+digest, "by digest")
	must.Contains(t, rendered, "oci://images.example/weir-plugin@"+digest, "by digest")
}

// targets returns what each of Istio's resources is for, as JSON: its targetRefs, or its selector with labels in place of matchLabels.
func targets(t *testing.T, rendered string) (all []string) {
	t.Helper()
	for part := range strings.SplitSeq(rendered, "\n---\n") {
		document, _ := fromYAML(t, part).(map[string]any)
		if version, _ := document["apiVersion"].(string); !strings.Contains(version, "istio.io/") {
			continue
		}
		spec, _ := document["spec"].(map[string]any)
		var text []byte
		for _, field := range []string{"targetRefs", "selector", "workloadSelector"} {
			if spec[field] != nil {
				one := must.Get(json.Marshal(spec[field]))(t)
				text = append(text, one...)
			}
		}
		all = append(all, strings.Replace(string(text), "matchLabels", "labels", 1))
	}
	return all
}

// kubeconform returns a function that checks resources by that program, with the schemas of
// testdata under the names that it expects. Outside of nightly runs it is not built, and nothing is
// checked.
func kubeconform(t *testing.T) (conforms func(resources string) (said string, err error)) {
	t.Helper()
	if !nightly.On() {
		return func(string) (string, error) { return "", nil }
	}
	file := must.Get(tools.Install("..", tools.Kubeconform))(t)
	dir := t.TempDir()
	write := func(kind string, schema []byte) {
		must.OK(t, os.WriteFile(filepath.Join(dir, strings.ToLower(kind)+".json"), schema, 0o600))
	}
	schemas := must.Get(filepath.Glob("testdata/schemas/[A-Z]*.json"))(t)
	for _, name := range append(schemas, "testdata/schemas/kubernetes.json") {
		schema := must.Get(os.ReadFile(name))(t)
		if kind := strings.TrimSuffix(filepath.Base(name), ".json"); kind != "kubernetes" {
			write(kind, schema)
			continue
		}
		for kind, name := range core {
			var all map[string]any
			must.OK(t, json.Unmarshal(schema, &all))
			all["$ref"] = "#/$defs/" + name
			part := must.Get(json.Marshal(all))(t)
			write(kind, part)
		}
	}
	return func(resources string) (string, error) {
		cmd := exec.CommandContext(t.Context(), file, "-strict", "-schema-location", filepath.Join(dir, "{{.ResourceKind}}.json"))
		cmd.Stdin = strings.NewReader(resources)
		said, err := cmd.CombinedOutput()
		return string(said), err
	}
}

var serviceName = regexp.MustCompile(`^[a-z]([-a-z0-9]*[a-z0-9])?$`)

var (
	argumentFlag = regexp.MustCompile(`(?m)^ +- "?(--[a-z-]+)`)
	argumentOne  = regexp.MustCompile(`(?m)^ +args:\n +- ([a-z]+)$`)
)

// helpOf returns a function that says what the help of a command of weir is.
func helpOf(t *testing.T) func(command string) string {
	t.Helper()
	known := map[string]string{}
	return func(command string) string {
		if known[command] == "" {
			known[command] = commandtest.Run(t, exec.CommandContext(t.Context(), "../dist/weir", command, "--help"))
		}
		return known[command]
	}
}

// The controller's Deployment gives flags that the program has.
func TestFlagsOfTheController(t *testing.T) {
	t.Parallel()
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	controllerflags.Define(flags)
	template := must.Get(os.ReadFile("weir/templates/controller.yaml"))(t)
	var given []string
	for _, found := range regexp.MustCompile(`--([a-z-]+)=`).FindAllStringSubmatch(string(template), -1) {
		if given = append(given, found[1]); flags.Lookup(found[1]) == nil {
			t.Errorf("weir controller has no --%s", found[1])
		}
	}
	slices.Sort(given)
	must.Equal(t, strings.Join(given, " "), "backend configuration lease-namespace namespaces plugin pull-policy trusted-ca", "what the chart gives")
}

// What envoy/istio.yaml has in the place of the chart fits the same schemas.
func TestShipped(t *testing.T) {
	t.Parallel()
	text := must.Get(os.ReadFile("../envoy/istio.yaml"))(t)
	must.Equal(t, strings.Join(holds(t, "istio.yaml", string(text)), " "), "Namespace Secret Deployment Service WasmPlugin EnvoyFilter", "kinds")
}

// holds checks each resource by its schema, and returns the kinds.
func holds(t *testing.T, of, rendered string) (kinds []string) {
	t.Helper()
	help := helpOf(t)
	for part := range strings.SplitSeq(rendered, "\n---\n") {
		document, _ := fromYAML(t, part).(map[string]any)
		kind, _ := document["kind"].(string)
		if kind == "" {
			continue
		}
		kinds = append(kinds, kind)
		if _, err := os.Stat("testdata/schemas/" + kind + ".json"); err != nil && core[kind] == "" {
			t.Errorf("%s: no schema of a %s: %v", of, kind, err)
			continue
		}
		must.Reportf(t, ofKind(t, kind).Validate(document), "%s: %s", of, kind)
		metadata, _ := document["metadata"].(map[string]any)
		must.Reportf(t, compiled(t, "testdata/schemas/kubernetes.json", "#/$defs/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta").Validate(metadata), "%s: %s: metadata", of, kind)
		for _, argument := range argumentFlag.FindAllStringSubmatch(part, -1) {
			command := argumentOne.FindStringSubmatch(part)
			if command == nil {
				t.Fatalf("%s: arguments of no command:\n%s", of, part)
			}
			if said := help(command[1]); !strings.Contains(said, "\n  "+argument[1]+" ") && !strings.Contains(said, "\n  "+argument[1]+"\n") {
				t.Errorf("%s: weir %s has no %s", of, command[1], argument[1])
			}
		}
		if name, _ := metadata["name"].(string); kind == "Service" && (len(name) > 63 || !serviceName.MatchString(name)) {
			t.Errorf("%s: no Service may be named %q", of, name)
		}
	}
	return kinds
}
