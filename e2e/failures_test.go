package e2e

import (
	"fmt"
	"net/http"
	"testing"

	"weir/internal/envoytest"
	"weir/internal/must"
)

// A reservation stays taken if Envoy ends a request that the upstream may have begun, and goes back if
// the upstream has failed, or was never reached.
func TestFailuresKeepWhatMayHaveBegun(t *testing.T) {
	onEnvoyAlone(t, 1, all, func(t *testing.T, d envoys) {
		const rule = `{"name": %q, "match": {"headers": {"x-rule": {"exact": %[1]q}}}, "key": ["path"], "limits": [{"limit": 1000, "window": "366d", "algorithm": "fixed_window"}], "reserve": 100, "cost_on_response": "openai"%s}`
		upstream := newApp(t)
		upstream.does(func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/slow", "/tries":
				<-r.Context().Done()
			case "/reset":
				panic(http.ErrAbortHandler)
			case "/failed":
				w.WriteHeader(http.StatusGatewayTimeout)
			}
		})
		n := d.prepare(t, nodeConfig{workers: 1, configuration: `{"rules": [` + fmt.Sprintf(rule, "silent", "") + `, ` + fmt.Sprintf(rule, "gives", `, "on_failure": "give_back"`) + `, ` +
			fmt.Sprintf(rule, "keeps", `, "on_failure": "keep"`) + `]}`})
		must.OK(t, n.files.SetClusters(t.Context(), n.Envoy, []envoytest.Object{
			cluster("app", upstream.address), cluster("gone", "127.0.0.1:1"),
		}))
		gone := toApp("/gone", envoytest.Object{"cluster": "gone"})
		tries := toApp("/tries", envoytest.Object{"retry_policy": envoytest.Object{"retry_on": "5xx", "num_retries": 1, "per_try_timeout": "0.1s"}})
		own := envoytest.Object{"match": envoytest.Object{"prefix": "/own"}, "direct_response": envoytest.Object{"status": 503}}
		n.routes = []envoytest.Object{toApp("/slow", envoytest.Object{"timeout": "0.2s"}), tries, gone, own, toApp("/", nil)}
		n.listen(t)
		for path, want := range map[string]struct {
			status int
			left   string // without on_failure
		}{
			"/slow": {504, "900"}, "/tries": {504, "900"}, "/reset": {503, "900"}, "/gone": {503, "1000"}, "/own": {503, "1000"}, "/failed": {504, "1000"},
		} {
			for rule, left := range map[string]string{"silent": want.left, "gives": "1000", "keeps": "900"} {
				must.Equal(t, ask(t, client(t), n.url(), ":path", path, "x-rule", rule).status, want.status, "%s, %s: status", path, rule)
				// The next request tells what is left beside its own reservation.
				want := map[string]string{"900": "800", "1000": "900"}[left]
				must.Equal(t, ask(t, client(t), n.url(), ":path", path, "x-rule", rule).header.Get("x-ratelimit-remaining"), want, "%s, %s: then are left", path, rule)
			}
		}
	})
}

// A filter adds to the marks of one before it, and takes away what clients send.
func TestMarksOfTwoFilters(t *testing.T) {
	onEnvoyAlone(t, 1, all, func(t *testing.T, d envoys) {
		const rules = `{"namespace": %q, "rules": [{"name": %[1]q, "on_full": "mark", "limits": [{"limit": %d, "window": "366d", "algorithm": "fixed_window"}]}]}`
		n := d.prepare(t, nodeConfig{workers: 1, upstream: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header()["X-Over"] = r.Header.Values("x-weir-over")
		})})
		var filters []envoytest.Object
		name := n.name
		for _, configuration := range []string{fmt.Sprintf(rules, "small", 1), fmt.Sprintf(rules, "large", 3)} {
			n.config.configuration, n.name = configuration, fmt.Sprint(name, len(filters))
			plugin := must.Get(n.plugin())(t)
			plugin["name"] = n.name
			filters = append(filters, plugin)
		}
		n.name = name
		n.hcm = envoytest.Object{"http_filters": append(filters, envoytest.Router())}
		n.listen(t)
		for i, want := range []string{"", "small", "small", "small, large", "small, large"} {
			r := ask(t, client(t), n.url(), "x-weir-over", "mine")
			must.Equal(t, r.status, http.StatusOK, "request %d: status", i)
			must.Equal(t, r.header.Get("x-over"), want, "request %d: marked by", i)
		}
	})
}
