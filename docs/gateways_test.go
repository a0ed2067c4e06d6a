package docs

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"sigs.k8s.io/yaml"

	"weir/internal/must"
)

// TestGateways checks what rate-limit-service.md has for gateways, and pages for Envoy Gateway, by their own schemas. testdata has
// these of Contour 1.33.0, Emissary 3.10.0, agentgateway 1.4.1, Gloo 1.22.1, kgateway's branch main (its commits 01f4512d and
// 063b2e96), and of EnvoyProxy in Envoy Gateway 1.9.1, as far as pages use their fields: they know the names of others beside
// these, and refuse the rest.
func TestGateways(t *testing.T) {
	t.Parallel()
	schema := func(file string) any {
		return must.Get(jsonschema.UnmarshalJSON(bytes.NewReader(must.Get(os.ReadFile(file))(t))))(t)
	}
	const envoyGateway = "gateway.envoyproxy.io/v1alpha1"
	schemas := schema("testdata/gateways.json").(map[string]any)
	for _, kind := range []string{"EnvoyExtensionPolicy", "EnvoyPatchPolicy"} {
		schemas[envoyGateway+"/"+kind] = schema("../charts/testdata/schemas/" + kind + ".json")
	}
	_, section, _ := strings.Cut(must.Text(t, "rate-limit-service.md"), "\n## Gateways that ask it\n")
	section, _, _ = strings.Cut(section, "\n## ")
	samples := fenced.FindAllStringSubmatch(section, -1)
	for _, page := range pages(t) {
		for _, sample := range fenced.FindAllStringSubmatch(must.Text(t, page), -1) {
			if strings.Contains(sample[2], "apiVersion: "+envoyGateway) {
				samples = append(samples, sample)
			}
		}
	}
	checked := 0
	for _, sample := range samples {
		for document := range strings.SplitSeq(sample[2], "---\n") {
			var resource map[string]any
			must.OK(t, yaml.UnmarshalStrict([]byte(document), &resource))
			name := fmt.Sprintf("%s/%s", resource["apiVersion"], resource["kind"])
			of, ok := schemas[name]
			if !ok {
				t.Errorf("testdata has no schema of %s", name)
				continue
			}
			c := jsonschema.NewCompiler()
			must.OK(t, c.AddResource("schema.json", of))
			schema := must.Get(c.Compile("schema.json"))(t)
			delete(resource, "apiVersion")
			delete(resource, "kind")
			must.Reportf(t, schema.Validate(resource), "%s", name)
			checked++
		}
	}
	must.AtLeast(t, checked, 17, "resources checked")
}
