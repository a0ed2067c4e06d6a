package convert_test

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"weir/internal/convert"
	"weir/internal/envoytest"
	"weir/internal/must"
	"weir/internal/ratelimitservice"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"go.yaml.in/yaml/v4"
	"google.golang.org/grpc"
)

// descriptorsOfRoutes have windows that do not end while the test runs, unless a year does.
const descriptorsOfRoutes = `
domain: DOMAIN
descriptors:
- {key: generic_key, value: foo, rate_limit: {unit: year, requests_per_unit: 2}}
- {key: generic_key, value: bar, rate_limit: {unit: year, requests_per_unit: 1}}
- {key: user, rate_limit: {unit: year, requests_per_unit: 1}}
- {key: query_match, value: foo, rate_limit: {unit: year, requests_per_unit: 1}}
- {key: remote_address, rate_limit: {unit: year, requests_per_unit: 2}}
`

//go:embed testdata/envoy.cases.yaml
var envoyCases []byte

type envoyCase struct {
	Name    string           `yaml:"name"`
	Filters []map[string]any `yaml:"filters"`
	Manager map[string]any   `yaml:"manager"`
	Routes  map[string]any   `yaml:"routes"`
	Hosts   []map[string]any `yaml:"hosts"`
	Ask     []string         `yaml:"ask"`
	Lost    string           `yaml:"lost"`
}

// requests are those of a case. HOST PATH NAME=VALUE…
func (c *envoyCase) requests(t *testing.T) (all []logged) {
	t.Helper()
	for _, said := range c.Ask {
		words := strings.Fields(said)
		r := logged{at: time.Now(), method: "GET", host: words[0], uri: words[1], source: "127.0.0.1", headers: map[string]string{}}
		for _, word := range words[2:] {
			name, value, found := strings.Cut(word, "=")
			must.EqualOrEnd(t, found, true, "%s: %s", c.Name, said)
			r.headers[name] = value
		}
		all = append(all, r, r, r)
	}
	return all
}

// TestEnvoyRoutes sends the same requests through an Envoy that asks the rate limit service, and through the plugin by what
// Envoy's configuration is converted to. Both refuse the same. Where something is lost, the plugin refuses no others.
func TestEnvoyRoutes(t *testing.T) {
	t.Parallel()
	var file struct {
		Cases []envoyCase `yaml:"cases"`
	}
	if err := yaml.Unmarshal(envoyCases, &file); err != nil || len(file.Cases) == 0 {
		t.Fatal(err)
	}
	cases := file.Cases
	answers := answersOfEnvoy(t, cases)
	for i := range cases {
		c := &cases[i]
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			result := must.Get(convert.Convert("ratelimit", []convert.File{
				{Name: "limits.yaml", Text: []byte(strings.Replace(descriptorsOfRoutes, "DOMAIN", domainOf(i), 1))}, {Name: "envoy.json", Text: c.manager(t, domainOf(i))},
			}))(t)
			lost := slices.DeleteFunc(result.Lost, func(l convert.Loss) bool { return strings.Contains(l.Problem, "no action in Envoy's routes") })
			told := func(l convert.Loss) bool { return c.Lost != "" && regexp.MustCompile(c.Lost).MatchString(l.Problem) }
			if c.Lost != "" && !slices.ContainsFunc(lost, told) || slices.ContainsFunc(lost, func(l convert.Loss) bool { return !told(l) }) {
				t.Errorf("want %q, and nothing else, lost is\n%v", c.Lost, lost)
			}
			requests := c.requests(t)
			got := make([]int, len(requests))
			if len(result.Document) > 0 {
				// The plugin counts alone.
				got = decide(t, []byte(strings.Replace(string(result.Document), `"backend": {`, `"sync_rate": -1, "backend": {`, 1)), requests)
			}
			for j, r := range requests {
				weir, envoy := got[j] >= http.StatusBadRequest, answers[i][j] >= http.StatusBadRequest && answers[i][j] != http.StatusNotFound
				if weir && got[j] != answers[i][j] && envoy || weir != envoy && (weir || c.Lost == "") {
					t.Errorf("request %d to %s%s %v: Envoy answers %d, the plugin %d\n%s", j, r.host, r.uri, r.headers, answers[i][j], got[j], result.Document)
				}
			}
		})
	}
}

func domainOf(i int) string { return "d" + strconv.Itoa(i) }

// manager is the connection manager of a case, whose filters ask for a domain.
func (c *envoyCase) manager(t *testing.T, domain string) []byte {
	t.Helper()
	filters := []any{}
	for _, said := range append(slices.Clip(c.Filters), map[string]any{})[:max(1, len(c.Filters))] {
		fields := envoytest.Object{
			"domain": domain, "timeout": "5s", "failure_mode_deny": true,
			"rate_limit_service": envoytest.Object{"transport_api_version": "V3", "grpc_service": envoytest.Object{"envoy_grpc": envoytest.Object{"cluster_name": "limits"}}},
		}
		filter := envoytest.Object{"name": "envoy.filters.http.ratelimit"}
		for name, value := range said {
			if name == "name" || name == "disabled" {
				filter[name] = value
			} else {
				fields[name] = value
			}
		}
		filter["typed_config"] = envoytest.Typed("envoy.extensions.filters.http.ratelimit.v3.RateLimit", fields)
		filters = append(filters, filter)
	}
	filters = append(filters, envoytest.Router())
	routes := envoytest.Object{"name": "routes", "virtual_hosts": c.Hosts}
	maps.Copy(routes, c.Routes)
	for i, host := range c.Hosts {
		host["name"] = strconv.Itoa(i)
	}
	fields := envoytest.Object{"stat_prefix": "case", "http_filters": filters, "route_config": routes}
	maps.Copy(fields, c.Manager)
	return must.Get(json.MarshalIndent(envoytest.Typed("envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager", fields), "", " "))(t)
}

// answersOfEnvoy are the statuses that Envoy answers to the cases' requests.
func answersOfEnvoy(t *testing.T, cases []envoyCase) (answers [][]int) {
	t.Helper()
	upstream := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(upstream.Close)
	limits := envoytest.Cluster("limits", serviceOf(t, len(cases)))
	limits["typed_extension_protocol_options"] = envoytest.Object{
		"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": envoytest.Typed("envoy.extensions.upstreams.http.v3.HttpProtocolOptions", envoytest.Object{
			"explicit_http_config": envoytest.Object{"http2_protocol_options": envoytest.Object{}},
		}),
	}
	var listeners []any
	for i := range cases {
		listeners = append(listeners, envoytest.Object{"name": domainOf(i), "address": envoytest.Address("127.0.0.1", 0), "filter_chains": []any{
			envoytest.Object{"filters": []any{envoytest.Object{"name": "manager", "typed_config": json.RawMessage(cases[i].manager(t, domainOf(i)))}}},
		}})
	}
	bootstrap := must.Get(json.Marshal(envoytest.Object{
		"admin": envoytest.Object{"address": envoytest.Address("127.0.0.1", 0)},
		"static_resources": envoytest.Object{
			"listeners": listeners,
			"clusters":  []any{envoytest.Cluster("app", upstream.Listener.Addr().String()), limits},
		},
	}))(t)
	addresses := must.Get(envoytest.Run(t, envoytest.Options{Bootstrap: bootstrap}).Listeners())(t)
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	for i := range cases {
		var statuses []int
		for _, r := range cases[i].requests(t) {
			request := must.Get(http.NewRequestWithContext(t.Context(), r.method, "http://"+addresses[domainOf(i)], nil))(t)
			request.URL.Opaque, request.Host = r.uri, r.host
			for name, value := range r.headers {
				request.Header.Set(name, value)
			}
			response := must.Get(client.Do(request))(t)
			response.Body.Close()
			statuses = append(statuses, response.StatusCode)
		}
		answers = append(answers, statuses)
	}
	return answers
}

// serviceOf is the address of a rate limit service with the descriptors of n cases.
func serviceOf(t *testing.T, n int) string {
	t.Helper()
	var files []ratelimitservice.File
	for i := range n {
		files = append(files, ratelimitservice.File{Name: fmt.Sprint(i), Text: []byte(strings.Replace(descriptorsOfRoutes, "DOMAIN", domainOf(i), 1))})
	}
	service := newService(t, files...)
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	server := grpc.NewServer()
	pb.RegisterRateLimitServiceServer(server, service)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop) // before the service's counters are closed
	return listener.Addr().String()
}
