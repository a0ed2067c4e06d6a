package envoy_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/jwt_authn/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"sigs.k8s.io/yaml"

	"weir/internal/envoytest"
	"weir/internal/must"
)

// pathSettings are the settings of the excerpt in docs/backend.md that normalize paths for rules.
var pathSettings = []string{"normalize_path", "merge_slashes", "path_with_escaped_slashes_action"}

// The excerpt in docs/backend.md runs unchanged. Without its path settings, requests evade the rule
// as the page says; with them they don't.
func TestExcerptRuns(t *testing.T) {
	t.Parallel()
	onEnvoy(t, func(t *testing.T, on envoytest.Binary) {
		around := surround(t)
		p := around.run(t, on, excerptBootstrap(t, around))
		users := p.at(local, "as it is")
		bursts(t, 10, func(i int) (int, answer) { return users.untilRefused(t, "GET", "/", fmt.Sprint("x-user: ann", i)) })
		login, open := p.at("127.0.0.2", "as it is"), p.at("127.0.0.2", "without")
		for i := range 5 {
			// The header shows fewer if the backend's answer to a push overtakes an older answer.
			if a := login.send(t, "POST", "/login"); a.status != http.StatusOK || a.remaining("login") > 4-i {
				t.Errorf("login %d: got %d %s", i, a.status, a.header)
			}
		}
		open.send(t, "POST", "/login").refused(t, "without settings of paths, POST /login")
		for _, target := range []string{"//login", "/%6cogin", "/x/../login", "/x/%2e%2e/login"} {
			open.send(t, "POST", target, "x-user: "+target).passes(t, "login", -1, "without settings of paths, POST %s", target)
			a := login.send(t, "POST", target, "x-user: "+target)
			a.refused(t, "POST %s", target)
			must.Equal(t, a.remaining("login"), 0, "POST %s", target)
		}
		a := login.send(t, "POST", "/%2Flogin")
		must.Equal(t, a.status, http.StatusTemporaryRedirect, "POST /%%2Flogin, want a redirect")
		a.matches(t, map[string]string{"Location": "/login"})
		for _, target := range []string{"/login/", "/LOGIN"} {
			login.send(t, "POST", target, "x-user: "+target).passes(t, "login", -1, "POST %s, another path", target)
		}
		login.send(t, "POST", "/login", "x-forwarded-for: 127.0.0.3").refused(t, "POST /login with another's address")
		// The page's filter removes what clients send as x-user, so all of them share a counter.
		guarded, refused := p.at("127.0.0.4", "guarded"), false
		for i := range 400 {
			if a := guarded.send(t, "GET", "/", fmt.Sprint("x-user: forged", i)); a.status == http.StatusTooManyRequests {
				refused = true
				break
			}
		}
		must.Equal(t, refused, true, "a client got past its limit by another x-user in each request")
		if a := guarded.send(t, "GET", "/healthz"); a.status != http.StatusOK || a.header.Get("RateLimit") != "" {
			t.Errorf("a route without the filter: got %d %s", a.status, a.header)
		}
		must.Same(t, p.backend.asked(), []string{"weir_backend"}, "callouts")
	})
}

// Envoy's own pieces in other pages have only fields that Envoy has.
func TestPieces(t *testing.T) {
	t.Parallel()
	must.OK(t, unmarshal([]byte(excerpt(t, must.Text(t, "../docs/security.md"), 2)), &hcmv3.HttpFilter{}))
	_, marks, _ := strings.Cut(must.Text(t, "../docs/configuration.md"), "\n## Passing on with a mark\n")
	must.OK(t, unmarshal([]byte(excerpt(t, marks, 0)), &routev3.VirtualHost{}))
}

// excerptBootstrap has a listener with the excerpt, one without its path settings, and one with the page's other
// pieces: the filter that removes x-user, and a route without limits. The backend's cluster is the page's, too.
func excerptBootstrap(t *testing.T, around surroundings) []byte {
	t.Helper()
	text := pageExcerpt(t)
	listener := func(name string, without ...string) envoytest.Object {
		manager := envoytest.Object{}
		must.OK(t, yaml.UnmarshalStrict([]byte(text), &manager))
		for _, field := range without {
			if manager[field] == nil {
				t.Errorf("docs/backend.md: the excerpt lacks %s", field)
			}
			delete(manager, field)
		}
		return httpListener(name, manager)
	}
	var (
		manager, route  envoytest.Object
		filters, remove []envoytest.Object
		backend         struct{ Clusters []envoytest.Object }
	)
	clusters := substitute(t, excerpt(t, section(t), 1), map[string]string{"address: weir, port_value: 9180": socket(around.backend.address)})
	for of, into := range map[string]any{
		text: &manager, clusters: &backend, excerpt(t, section(t), 2): &remove, excerpt(t, section(t), 3): &route,
	} {
		must.OK(t, yaml.Unmarshal([]byte(of), into))
	}
	must.OK(t, yaml.Unmarshal(must.Get(json.Marshal(manager["http_filters"]))(t), &filters))
	manager["http_filters"] = append(remove, filters...)
	health := maps.Clone(route)
	health["match"], health["route"] = envoytest.Object{"path": "/healthz"}, envoytest.Object{"cluster": "shop"}
	all := envoytest.Object{"match": envoytest.Object{"prefix": "/"}, "route": envoytest.Object{"cluster": "shop"}}
	guarded := envoytest.Manager("guarded", []envoytest.Object{health, all})
	maps.Copy(guarded, manager)
	bootstrap := must.Get(json.Marshal(envoytest.Object{
		"admin": envoytest.Object{"address": envoytest.Address("127.0.0.1", 0)},
		"static_resources": envoytest.Object{
			"listeners": []envoytest.Object{listener("as it is"), listener("without", pathSettings...), envoytest.Listener("guarded", guarded)},
			"clusters":  append(backend.Clusters, envoytest.Cluster("shop", around.upstream)),
		},
	}))(t)
	return bootstrap
}

// pageExcerpt returns the connection manager of docs/backend.md, with the built plugin's path and
// with [patience].
func pageExcerpt(t *testing.T) string {
	t.Helper()
	return substitute(t, excerpt(t, section(t), 0), map[string]string{
		"/etc/envoy/weir.wasm": pluginFile(t),
		`"token": "change-me"`: `"token": "change-me", "timeout": "` + patience + `"`,
	})
}

// section is what docs/backend.md has of Envoy.
func section(t *testing.T) string {
	t.Helper()
	_, section, _ := strings.Cut(must.Text(t, "../docs/backend.md"), "\n## Into Envoy\n")
	return section
}

// excerpt returns the nth piece of YAML in a document, counted from 0.
func excerpt(t *testing.T, document string, n int) string {
	t.Helper()
	for ; ; n-- {
		_, rest, found := strings.Cut(document, "\n```yaml\n")
		text, rest, closed := strings.Cut(rest, "```\n")
		must.EqualOrEnd(t, found && closed, true, "the document has enough excerpts in YAML")
		if n == 0 {
			return text
		}
		document = "\n" + rest
	}
}
