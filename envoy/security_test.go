package envoy_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"testing"

	"sigs.k8s.io/yaml"

	"weir/internal/envoytest"
	"weir/internal/must"
	"weir/internal/trust/trusttest"
)

// The cluster of docs/security.md sends its certificate and the token to the backend, which refuses
// clients that lack either. The plugin itself has no token.
func TestSecurityClusterRuns(t *testing.T) {
	t.Parallel()
	onEnvoy(t, func(t *testing.T, on envoytest.Binary) {
		authority := trusttest.New(t)
		certificate, key := authority.Issue(t, "weir")
		around := surround(t)
		address := startServe(t, "--token-file", file(t, "tokens", "shop s3cret\n"), "--tls-cert", certificate, "--tls-key", key, "--tls-client-ca", authority.File)
		node, nodeKey := authority.Issue(t, "node")
		document := must.Text(t, "../docs/security.md")
		secret := substitute(t, excerpt(t, document, 1), map[string]string{"/etc/envoy/weir-token": file(t, "token", "Bearer s3cret")})
		clusterOf := func(name string, without ...string) envoytest.Object {
			parsed := envoytest.Object{}
			text := substitute(t, excerpt(t, document, 0), map[string]string{
				"/etc/envoy/node.pem": node, "/etc/envoy/node-key.pem": nodeKey, "/etc/envoy/ca.pem": authority.File,
				"/etc/envoy/weir-token.yaml": file(t, "weir-token.yaml", secret), "exact: weir": "exact: localhost",
				"address: weir, port_value: 9180": socket(address),
			})
			must.OK(t, yaml.UnmarshalStrict([]byte(text), &parsed))
			for _, field := range without {
				if parsed[field] == nil {
					t.Errorf("docs/security.md: the cluster lacks %s", field)
				}
				delete(parsed, field)
			}
			parsed["name"] = name
			return parsed
		}
		// Each plugin decides alone while the backend refuses it.
		listener := func(name, namespace string) envoytest.Object {
			manager := envoytest.Object{}
			text := substitute(t, pageExcerpt(t), map[string]string{
				`"backend": {"cluster": "weir_backend", "token": "change-me",`: fmt.Sprintf(
					`"namespace": %q, "sync_rate": 0, "on_backend_failure": "deny", "backend": {"cluster": %q,`, namespace, name),
			})
			must.OK(t, yaml.UnmarshalStrict([]byte(text), &manager))
			return httpListener(name+" "+namespace, manager)
		}
		bootstrap := must.Get(json.Marshal(envoytest.Object{
			"node":  envoytest.Object{"id": "node", "cluster": "gateways"},
			"admin": envoytest.Object{"address": envoytest.Address("127.0.0.1", 0)},
			"static_resources": envoytest.Object{
				"listeners": []envoytest.Object{
					listener("as_it_is", "shop"), listener("as_it_is", "other"), listener("no_token", "shop"), listener("no_tls", "shop"),
				},
				"clusters": []envoytest.Object{
					clusterOf("as_it_is"), clusterOf("no_token", "typed_extension_protocol_options"), clusterOf("no_tls", "transport_socket"),
					envoytest.Cluster("shop", around.upstream),
				},
			},
		}))(t)
		p := around.run(t, on, bootstrap)
		for i := range 5 {
			p.at("127.0.0.2", "as_it_is shop").send(t, "POST", "/login", fmt.Sprint("x-user: ann", i)).passes(t, "login", 4-i, "login %d", i)
		}
		for _, refused := range []string{"as_it_is shop", "as_it_is other", "no_token shop", "no_tls shop"} {
			p.at("127.0.0.2", refused).send(t, "POST", "/login", "x-user: bob").refused(t, "%s", refused)
		}
	})
}

// file returns a new file with a content.
func file(t *testing.T, name, content string) string {
	t.Helper()
	return must.File(t, filepath.Join(t.TempDir(), name), content)
}
