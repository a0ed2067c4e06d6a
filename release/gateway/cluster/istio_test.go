// Package cluster has Istio's own control plane read what is shipped, without an API server and a network.
package cluster

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"slices"
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

const (
	found = "-: ok"
	lost  = "want a cluster of this Envoy"
	ofAPI = "gateway.networking.k8s.io/gateway-name"
)

// checked is what weir check says about a file.
func checked(t *testing.T, file string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "../../../dist/weir", "check", "-")
	cmd.Stdin = strings.NewReader(file)
	said, _ := cmd.CombinedOutput()
	return string(said)
}

// TestIstio has Istio make the configurations of gateways, and weir check read its dumps of them.
func TestIstio(t *testing.T) {
	const (
		nothing = "no configuration"
		inShop  = "istio: {namespace: shop, "
		far     = "backend: {enabled: false}, configuration: {backend: {cluster: outbound|9180||weir.weir-system.svc.cluster.local}}, "
	)
	shipped := read(t, "../../../envoy/istio.yaml")
	without, _, _ := strings.Cut(shipped, "---\n# Keeps the backend's cluster")
	_, service, _ := strings.Cut(without, "kind: Service\n")
	service, _, _ = strings.Cut("apiVersion: v1\nkind: Service\n"+service, "\n---\n")
	for name, of := range map[string]struct{ resources, namespace, label, value, want string }{
		"istio.yaml":                        {shipped, "istio-system", "istio", "ingressgateway", found},
		"istio.yaml without an EnvoyFilter": {without, "istio-system", "istio", "ingressgateway", lost},
		"WasmPlugin":                        {chart(t, "istio.yaml", ""), "istio-system", "istio", "ingressgateway", found},
		"a backend from elsewhere":          {service + "\n---\n" + chart(t, "istio.yaml", "{"+far+"}"), "istio-system", "istio", "ingressgateway", found},
		"TrafficExtension":                  {chart(t, "traffic-extension.yaml", "backend: {enabled: true}"), "istio-system", "istio", "ingressgateway", found},
		"EnvoyFilter":                       {chart(t, "envoyfilter.yaml", inShop+"}"), "shop", ofAPI, "public", found},
		"EnvoyFilter by labels":             {chart(t, "envoyfilter.yaml", inShop+"targetRefs: [], selector: {"+ofAPI+": public}}"), "shop", ofAPI, "public", found},
		"targetRefs":                        {chart(t, "istio.yaml", inShop+"targetRefs: [{group: gateway.networking.k8s.io, kind: Gateway, name: public}]}"), "shop", ofAPI, "public", found},
		"a selector of one label":           {chart(t, "istio.yaml", inShop+"selector: {"+ofAPI+": public}}"), "shop", ofAPI, "public", found},
		"a selector of two":                 {chart(t, "istio.yaml", inShop+"selector: {istio: ingressgateway, "+ofAPI+": public}}"), "shop", ofAPI, "public", nothing},
	} {
		t.Run(name, func(t *testing.T) {
			istio.SetForTest(t, &features.FilterGatewayClusterConfig, true)
			if said := checked(t, dump(t, of.resources, "router~127.0.0.2", of.namespace, map[string]string{of.label: of.value})); !strings.Contains(said, of.want) {
				t.Errorf("weir check: %s, want %s", said, of.want)
			}
		})
	}
}

// TestKept compares what weir check says about an EnvoyFilter, beside a plugin and istiod's setting, with the clusters that
// Istio gives the plugin's proxy.
func TestKept(t *testing.T) {
	const (
		host      = "weir.weir-system.svc.cluster.local"
		kept      = "weir-system/" + host
		setting   = "kind: Deployment\nmetadata: {name: istiod}\nspec: {env: [{name: PILOT_FILTER_GATEWAY_CLUSTER_CONFIG, value: T}]}\n---\n"
		service   = "apiVersion: v1\nkind: Service\nmetadata: {name: weir, namespace: weir-system}\nspec: {ports: [{name: http, port: 9180}]}\n---\n"
		public    = "targetRefs: [{group: gateway.networking.k8s.io, kind: Gateway, name: public}], "
		byLabel   = "selector: {matchLabels: {" + ofAPI + ": public}}, "
		ingress   = "selector: {matchLabels: {istio: ingressgateway}}, "
		byPlugin  = "apiVersion: extensions.istio.io/v1alpha1\nkind: WasmPlugin\nmetadata: {name: weir, namespace: %s}\nspec: {%surl: 'oci://images.example/weir-plugin:v1', pluginConfig: {backend: {cluster: 'outbound|9180||" + host + "'}, rules: [{name: r, limits: [{limit: 1, window: 1s}]}]}}\n---\n"
		byFilter  = "apiVersion: networking.istio.io/v1alpha3\nkind: EnvoyFilter\nmetadata: {name: weir, namespace: %s, annotations: {envoyfilter.istio.io/referenced-services: '%s'}}\nspec: {%sconfigPatches: []}\n"
		waypoint  = "targetRefs: [{group: gateway.networking.k8s.io, kind: Gateway, name: waypoint}], "
		waypoints = "targetRefs: [{group: gateway.networking.k8s.io, kind: GatewayClass, name: istio-waypoint}], "
	)
	for name, of := range map[string]struct {
		in, plugin, filterIn, filter, annotation string
		kept                                     bool
	}{
		"for the Gateway":                {"shop", public, "shop", public, kept, true},
		"for all of the namespace":       {"shop", public, "shop", "", kept, true},
		"for all of the mesh":            {"shop", public, "istio-system", "", kept, true},
		"in another namespace":           {"shop", public, "weir-system", "", kept, false},
		"for a Gateway of another":       {"shop", public, "istio-system", public, kept, false},
		"for another Gateway":            {"shop", public, "shop", strings.Replace(public, "public", "other", 1), kept, false},
		"without a group":                {"shop", public, "shop", strings.Replace(public, "group: gateway.networking.k8s.io, ", "", 1), kept, false},
		"by the label of the Gateway":    {"shop", public, "shop", "workloadSelector: {labels: {" + ofAPI + ": public}}, ", kept, true},
		"by another label":               {"shop", public, "shop", "workloadSelector: {labels: {app: other}}, ", kept, false},
		"for the Gateway of a label":     {"shop", byLabel, "shop", public, kept, true},
		"by the same label":              {"istio-system", ingress, "istio-system", "workloadSelector: {labels: {istio: ingressgateway}}, ", kept, true},
		"by the label, elsewhere":        {"istio-system", ingress, "shop", "workloadSelector: {labels: {istio: ingressgateway}}, ", kept, false},
		"of a Service of no namespace":   {"shop", public, "shop", "", host, true},
		"of a Service of another":        {"shop", public, "shop", "", "shop/" + host, false},
		"after others":                   {"shop", public, "shop", "", "a/b," + kept, true},
		"after a space":                  {"shop", public, "shop", "", "a/b, " + kept, false},
		"for the waypoint":               {"shop", waypoint, "shop", waypoint, kept, true},
		"for all waypoints":              {"shop", waypoint, "istio-system", waypoints, kept, true},
		"for all waypoints, elsewhere":   {"shop", waypoint, "shop", waypoints, kept, false},
		"for all but a waypoint":         {"shop", waypoint, "shop", "", kept, false},
		"for all but a waypoint, around": {"shop", waypoint, "istio-system", "", kept, false},
	} {
		t.Run(name, func(t *testing.T) {
			istio.SetForTest(t, &features.FilterGatewayClusterConfig, true)
			resources := service + fmt.Sprintf(byPlugin, of.in, of.plugin) + fmt.Sprintf(byFilter, of.filterIn, of.annotation, of.filter)
			kind, labels := "router~127.0.0.2", map[string]string{ofAPI: "public"}
			switch {
			case of.plugin == waypoint:
				istio.SetForTest(t, &features.EnableAmbient, true)
				kind, labels[ofAPI] = "waypoint~127.0.0.4", "waypoint"
				resources += "---\n" + read(t, "../testdata/waypoint.yaml")
			case of.in == "istio-system":
				labels = map[string]string{"istio": "ingressgateway"}
			}
			want := map[bool]string{true: found, false: lost}[of.kept]
			if said := checked(t, dump(t, resources, kind, of.in, labels)); !strings.Contains(said, want) {
				t.Errorf("Istio's configuration: %s, want %s", said, want)
			}
			if said := checked(t, setting+resources); strings.Contains(said, "don't get this cluster") == of.kept {
				t.Errorf("of the resources: %s", said)
			}
		})
	}
}

// TestIncoming wants the chart's EnvoyFilter to limit what comes to a sidecar, and the other resources what it sends, too. At a
// waypoint the tunnels' CONNECTs are not limited.
func TestIncoming(t *testing.T) {
	const (
		sidecar  = "selector: {app: app}"
		waypoint = "targetRefs: [{group: gateway.networking.k8s.io, kind: Gateway, name: waypoint}]"
	)
	for _, of := range []struct{ resource, target, want string }{
		{"EnvoyFilter", sidecar, "inbound"}, {"WasmPlugin", sidecar, "inbound others"}, {"TrafficExtension", sidecar, "inbound others"},
		{"EnvoyFilter", waypoint, "inbound"}, {"WasmPlugin", waypoint, "inbound"},
	} {
		t.Run(of.resource+" "+of.target, func(t *testing.T) {
			resources, kind, labels := chart(t, "istio.yaml", "istio: {namespace: shop, "+of.target+", resource: "+of.resource+"}"), "sidecar~127.0.0.1", map[string]string{"app": "app"}
			if of.target == waypoint {
				istio.SetForTest(t, &features.EnableAmbient, true)
				resources += "\n---\n" + read(t, "../testdata/waypoint.yaml") + "\n---\n" + served
				kind, labels = "waypoint~127.0.0.4", map[string]string{ofAPI: "waypoint"}
			}
			all := &admin.ConfigDump{}
			ok(t, protojson.Unmarshal([]byte(dump(t, resources, kind, "shop", labels)), all))
			limited := map[string]bool{}
			for _, part := range all.Configs {
				listeners := &admin.ListenersConfigDump{}
				if part.UnmarshalTo(listeners) != nil {
					continue
				}
				for _, l := range listeners.DynamicListeners {
					written, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(l)
					ok(t, err)
					if extension.Match(written) {
						limited[map[bool]string{true: "inbound", false: "others"}[l.Name == "virtualInbound" || l.Name == "main_internal"]] = true
					}
				}
			}
			if got := strings.Join(slices.Sorted(maps.Keys(limited)), " "); got != of.want {
				t.Errorf("limits %s, want %s", got, of.want)
			}
		})
	}
}

// served is a Service that the waypoint serves.
const served = `apiVersion: v1
kind: Service
metadata: {name: served, namespace: shop, labels: {istio.io/use-waypoint: waypoint}}
spec: {clusterIP: 10.96.1.1, selector: {app: app}, ports: [{name: http, port: 80}]}
`

// TestTLS wants the chart to have gateways speak TLS to a backend with a certificate, and to its rate limit service.
func TestTLS(t *testing.T) {
	const tls = "istio: {trustedCA: /ca.crt}, backend: {rateLimitService: {enabled: true}, tls: {secretName: "
	for more, want := range map[string]int{tls + `""}}`: 0, tls + "weir-tls}}": 2} {
		text := dump(t, chart(t, "istio.yaml", "{"+more+"}"), "router~127.0.0.2", "istio-system", map[string]string{"istio": "ingressgateway"})
		got := strings.Count(text, `:/ca.crt"`)
		if got != want || want > 0 && !strings.Contains(text, `"weir.weir-system.svc.cluster.local"`) {
			t.Errorf("%q: TLS to %d clusters, want %d", more, got, want)
		}
	}
}

// chart renders the chart by a file of charts/values and more values.
func chart(t *testing.T, file, more string) string {
	t.Helper()
	values := map[string]any{}
	for _, text := range []string{read(t, "../../../charts/values/"+file), more} {
		var these map[string]any
		ok(t, yaml.Unmarshal([]byte(text), &these))
		values = util.MergeTables(these, values)
	}
	c, err := loader.Load("../../../charts/weir")
	ok(t, err)
	all, err := util.ToRenderValues(c, values, common.ReleaseOptions{Name: "weir", Namespace: "weir-system"}, common.DefaultCapabilities)
	ok(t, err)
	files, err := engine.Render(c, all)
	ok(t, err)
	return files["weir/templates/backend.yaml"] + "\n---\n" + files["weir/templates/istio.yaml"]
}

// extension is the name of a filter that a proxy asks for.
var extension = regexp.MustCompile(`"name": ?"([^"]+)", ?"config_discovery"`)

// dump is the configuration that Istio gives a proxy of a kind, with its address, and with these labels, in front of the application of TestCluster.
func dump(t *testing.T, resources, kind, namespace string, labels map[string]string) string {
	t.Helper()
	var all struct{ kubernetes, istio []string }
	for _, resource := range strings.Split(resources+"\n---\n"+read(t, "../testdata/cluster.yaml")+"\n---\n"+read(t, "../testdata/gateways.yaml"), "\n---\n") {
		var of struct{ APIVersion string }
		ok(t, yaml.Unmarshal([]byte(resource), &of))
		if strings.Contains(of.APIVersion, "istio.io/") {
			all.istio = append(all.istio, resource)
		} else if of.APIVersion != "" {
			all.kubernetes = append(all.kubernetes, resource)
		}
	}
	s := xds.NewFakeDiscoveryServer(t, xds.FakeOptions{KubernetesObjectString: strings.Join(all.kubernetes, "\n---\n"), ConfigString: strings.Join(all.istio, "\n---\n")})
	proxy := s.ConnectADS().WithID(kind + "~pod.shop~shop.svc.cluster.local").WithMetadata(model.NodeMetadata{Namespace: namespace, Labels: labels, IstioVersion: "1.31.0"}).WithTimeout(time.Minute)
	// An answer to another request may come before.
	ask := func(kind string, names ...string) {
		for answer := proxy.RequestResponseAck(t, &discovery.DiscoveryRequest{TypeUrl: kind, ResourceNames: names}); answer.TypeUrl != kind; {
			answer = proxy.ExpectResponse(t)
		}
	}
	shown := func() string {
		answer, all := httptest.NewRecorder(), &admin.ConfigDump{}
		s.Discovery.ConfigDump(answer, httptest.NewRequest(http.MethodGet, "/debug/config_dump?proxyID=pod.shop", nil))
		ok(t, protojson.Unmarshal(answer.Body.Bytes(), all))
		// As Envoy names fields.
		text, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(all)
		ok(t, err)
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
	ok(t, err)
	return string(text)
}

// ok ends a test that an error keeps from going on. This module has not the package must.
func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
