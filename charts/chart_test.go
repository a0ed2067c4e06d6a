// Package charts has no code: its test renders the chart.
package charts

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"

	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"weir/internal/check"
	"weir/internal/nightly"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"sigs.k8s.io/yaml"
)

// helm is a build of Helm to render the chart with; a nightly run builds one.
var helm = flag.String("helm", "", "`file` of helm; a nightly run builds one")

const helmSource = "helm.sh/helm/v3/cmd/helm@v3.19.5"

// compiled is a schema. ok says that there is one: those of testdata are of Istio 1.31.1 and Envoy Gateway 1.9.1,
// whose clusters prune fields that they do not know; the test wants none.
func compiled(t *testing.T, file string) (schema *jsonschema.Schema, ok bool) {
	t.Helper()
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false
	}
	if err != nil {
		t.Fatal(err)
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("schema.json", document); err != nil {
		t.Fatal(err)
	}
	if schema, err = c.Compile("schema.json"); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return schema, true
}

func fromYAML(t *testing.T, text string) (document any) {
	t.Helper()
	asJSON, err := yaml.YAMLToJSONStrict([]byte(text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if err := json.Unmarshal(asJSON, &document); err != nil {
		t.Fatal(err)
	}
	return document
}

func valueFiles(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("values/*.yaml")
	if err != nil || len(files) < 5 {
		t.Fatalf("%d files of values: %v", len(files), err)
	}
	return files
}

// The values that the chart has, and those of values/, are such as its schema describes.
func TestValues(t *testing.T) {
	t.Parallel()
	schema, ok := compiled(t, "weir/values.schema.json")
	if !ok {
		t.Fatal("no schema")
	}
	for _, file := range append(valueFiles(t), "weir/values.yaml") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(fromYAML(t, string(text))); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
	if schema.Validate(fromYAML(t, "backend: {replica: 2}")) == nil {
		t.Error("a field that is misspelt passes")
	}
}

// The chart's dashboard and alerts are those of monitoring/.
func TestMonitoring(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"dashboard.json", "rules.yaml"} {
		here, err := os.ReadFile(filepath.Join("weir/files", name))
		there, e := os.ReadFile(filepath.Join("../monitoring", name))
		if err != nil || e != nil || !bytes.Equal(here, there) {
			t.Errorf("weir/files/%s is not monitoring/%s, %v, %v: copy it", name, name, err, e)
		}
	}
}

// TestRendered has Helm lint and render the chart by all values, and the resources' schemas and weir check read what
// comes out.
func TestRendered(t *testing.T) {
	t.Parallel()
	if *helm == "" && !nightly.On() {
		return
	}
	file := *helm
	if file == "" {
		dir := t.TempDir()
		build := exec.CommandContext(t.Context(), "go", "install", helmSource)
		build.Dir, build.Env = dir, append(os.Environ(), "GOBIN="+dir, "GOWORK=off", "GOFLAGS=-mod=mod")
		if said, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, said)
		}
		file = filepath.Join(dir, "helm")
	}
	run := func(arguments ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), file, append(arguments, "--kube-version", "1.31.0")...)
		var out, said bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &said
		err := cmd.Run()
		return out.String() + said.String(), err
	}
	kinds := map[string]bool{}
	for _, values := range valueFiles(t) {
		if said, err := run("lint", "weir", "--strict", "-f", values); err != nil {
			t.Errorf("%s: %v\n%s", values, err, said)
		}
		rendered, err := run("template", "weir", "weir", "-n", "weir-system", "-f", values)
		if err != nil {
			t.Errorf("%s: %v\n%s", values, err, rendered)
			continue
		}
		for part := range strings.SplitSeq(rendered, "\n---\n") {
			document, _ := fromYAML(t, part).(map[string]any)
			kind, _ := document["kind"].(string)
			if kind == "" {
				continue
			}
			kinds[kind] = true
			if schema, ok := compiled(t, filepath.Join("testdata/schemas", kind+".json")); ok {
				if err := schema.Validate(document); err != nil {
					t.Errorf("%s: %s: %v", values, kind, err)
				}
			}
		}
		if report := check.Found(values, []byte(rendered)); report.Refused() {
			t.Errorf("%s: weir check: %+v", values, report.Findings)
		} else if want := strings.Contains(rendered, "pluginConfig") || strings.Contains(rendered, "wasm:"); want && report.Configurations == 0 && values != "values/traffic-extension.yaml" {
			t.Errorf("%s: weir check finds no configuration", values)
		}
	}
	for _, kind := range []string{
		"Deployment", "StatefulSet", "Service", "ConfigMap", "PodDisruptionBudget", "HorizontalPodAutoscaler", "NetworkPolicy", "ServiceMonitor",
		"PrometheusRule", "WasmPlugin", "TrafficExtension", "EnvoyFilter", "EnvoyExtensionPolicy", "EnvoyPatchPolicy",
	} {
		if !kinds[kind] {
			t.Errorf("no values have a %s", kind)
		}
	}
	for wrong, want := range map[string]string{
		"backend.store.kind=file":          "want backend.replicas 1",
		"backend.token.secretRef.name=":    "want backend.token.secretRef",
		"backend.replica=2":                "replica",
		"backend.tls.clientCA=true":        "want backend.tls.secretName",
		"istio.resource=Sidecar":           "resource",
		"istio.enabled=true,istio.phase=x": "phase",
	} {
		if said, err := run("template", "weir", "weir", "--set", wrong); err == nil || !strings.Contains(said, want) {
			t.Errorf("%s: %v, want %q in\n%.500s", wrong, err, want, said)
		}
	}
}
