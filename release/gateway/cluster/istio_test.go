// Package cluster has Istio's own control plane read what is shipped, without an API server and a network.
package cluster

import (
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	admin "github.com/envoyproxy/go-control-plane/envoy/admin/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"istio.io/istio/pilot/pkg/features"
	"istio.io/istio/pilot/pkg/model"
	types "istio.io/istio/pilot/pkg/xds/v3"
	"istio.io/istio/pilot/test/xds"
	istio "istio.io/istio/pkg/test"
	"sigs.k8s.io/yaml"
)

// TestIstio has Istio make the configurations of gateways, and weir check read its dumps of them.
func TestIstio(t *testing.T) {
	const (
		found   = "-: ok"
		lost    = "want a cluster of this Envoy"
		nothing = "no configuration"
		ofAPI   = "gateway.networking.k8s.io/gateway-name"
		inShop  = "istio: {namespace: shop, "
	)
	shipped := read(t, "../../../envoy/istio.yaml")
	without, _, _ := strings.Cut(shipped, "---\n# Keeps the backend's cluster")
	for name, of := range map[string]struct{ resources, namespace, label, value, want string }{
		"istio.yaml":                        {shipped, "istio-system", "istio", "ingressgateway", found},
		"istio.yaml without an EnvoyFilter": {without, "istio-system", "istio", "ingressgateway", lost},
		"WasmPlugin":                        {chart(t, "istio.yaml", ""), "istio-system", "istio", "ingressgateway", found},
		"TrafficExtension":                  {chart(t, "traffic-extension.yaml", "backend: {enabled: true}"), "istio-system", "istio", "ingressgateway", found},
		"EnvoyFilter":                       {chart(t, "envoyfilter.yaml", inShop+"}"), "shop", ofAPI, "public", found},
		"EnvoyFilter by labels":             {chart(t, "envoyfilter.yaml", inShop+"targetRefs: [], selector: {"+ofAPI+": public}}"), "shop", ofAPI, "public", found},
		"targetRefs":                        {chart(t, "istio.yaml", inShop+"targetRefs: [{group: gateway.networking.k8s.io, kind: Gateway, name: public}]}"), "shop", ofAPI, "public", found},
		"a selector of one label":           {chart(t, "istio.yaml", inShop+"selector: {"+ofAPI+": public}}"), "shop", ofAPI, "public", found},
		"a selector of two":                 {chart(t, "istio.yaml", inShop+"selector: {istio: ingressgateway, "+ofAPI+": public}}"), "shop", ofAPI, "public", nothing},
	} {
		t.Run(name, func(t *testing.T) {
			istio.SetForTest(t, &features.FilterGatewayClusterConfig, true)
			cmd := exec.CommandContext(t.Context(), "../../../dist/weir", "check", "-")
			cmd.Stdin = strings.NewReader(dump(t, of.resources, of.namespace, map[string]string{of.label: of.value}))
			if said, _ := cmd.CombinedOutput(); !strings.Contains(string(said), of.want) {
				t.Errorf("weir check: %s, want %s", said, of.want)
			}
		})
	}
}

// chart renders the chart by a file of charts/values and more values.
func chart(t *testing.T, file, more string) string {
	t.Helper()
	values := map[string]any{}
	for _, text := range []string{read(t, "../../../charts/values/"+file), more} {
		var these map[string]any
		if err := yaml.Unmarshal([]byte(text), &these); err != nil {
			t.Fatal(err)
		}
		values = util.MergeTables(these, values)
	}
	c, err := loader.Load("../../../charts/weir")
	if err != nil {
		t.Fatal(err)
	}
	all, err := util.ToRenderValues(c, values, common.ReleaseOptions{Name: "weir", Namespace: "weir-system"}, common.DefaultCapabilities)
	if err != nil {
		t.Fatal(err)
	}
	files, err := engine.Render(c, all)
	if err != nil {
		t.Fatal(err)
	}
	return files["weir/templates/backend.yaml"] + "\n---\n" + files["weir/templates/istio.yaml"]
}

// extension is the name of a filter that a proxy asks for.
var extension = regexp.MustCompile(`"name": ?"([^"]+)", ?"config_discovery"`)

// dump is the configuration that Istio gives a gateway with these labels, in front of the application of TestCluster.
func dump(t *testing.T, resources, namespace string, labels map[string]string) string {
	t.Helper()
	var all struct{ kubernetes, istio []string }
	for _, resource := range strings.Split(resources+"\n---\n"+read(t, "../testdata/cluster.yaml")+"\n---\n"+read(t, "../testdata/gateways.yaml"), "\n---\n") {
		var of struct{ APIVersion string }
		if err := yaml.Unmarshal([]byte(resource), &of); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(of.APIVersion, "istio.io/") {
			all.istio = append(all.istio, resource)
		} else if of.APIVersion != "" {
			all.kubernetes = append(all.kubernetes, resource)
		}
	}
	s := xds.NewFakeDiscoveryServer(t, xds.FakeOptions{KubernetesObjectString: strings.Join(all.kubernetes, "\n---\n"), ConfigString: strings.Join(all.istio, "\n---\n")})
	const id = "router~127.0.0.2~pod.shop~shop.svc.cluster.local"
	proxy := s.ConnectADS().WithID(id).WithMetadata(model.NodeMetadata{Namespace: namespace, Labels: labels, IstioVersion: "1.31.0"}).WithTimeout(time.Minute)
	// An answer to another request may come before.
	ask := func(kind string, names ...string) {
		for answer := proxy.RequestResponseAck(t, &discovery.DiscoveryRequest{TypeUrl: kind, ResourceNames: names}); answer.TypeUrl != kind; {
			answer = proxy.ExpectResponse(t)
		}
	}
	shown := func() string {
		answer, all := httptest.NewRecorder(), &admin.ConfigDump{}
		s.Discovery.ConfigDump(answer, httptest.NewRequest(http.MethodGet, "/debug/config_dump?proxyID=pod.shop", nil))
		if err := protojson.Unmarshal(answer.Body.Bytes(), all); err != nil {
			t.Fatal(err)
		}
		// As Envoy names fields.
		text, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(all)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	ask(types.ClusterType)
	ask(types.ListenerType)
	for _, name := range extension.FindAllStringSubmatch(shown(), -1) {
		ask(types.ExtensionConfigurationType, name[1])
	}
	return shown()
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
