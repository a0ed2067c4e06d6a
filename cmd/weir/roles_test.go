package main

import (
	"crypto/tls"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weir/internal/must"
	"weir/internal/trust/trusttest"
	"weir/internal/wire"
)

// Certificates have verbs by their names, over HTTP/1.1 and HTTP/2, and the log says who may change
// limits.
func TestRolesOfCertificates(t *testing.T) {
	authority := trusttest.New(t)
	certificate, key := authority.Issue(t, "weir")
	tokens := filepath.Join(t.TempDir(), "tokens")
	must.OK(t, os.WriteFile(tokens, []byte("shop certificate=spiffe://test/gateway verbs=push\n* certificate=spiffe://test/ops verbs=change\nshop s3cret verbs=read name=eve\n"), 0o600))
	executeAll(t, nil, []lineTest{{"serve --listen 127.0.0.1:0 --token-file " + tokens, 2, "", "--token-file: want --tls-client-ca with lines of certificate="}})
	address, log := startServe(t, []string{"--listen", "127.0.0.1:0", "--token-file", tokens, "--tls-cert", certificate, "--tls-key", key, "--tls-client-ca", authority.File}, nil)
	if want := "who=\"certificate=spiffe://test/ops in all namespaces\""; !strings.Contains(log, want) || strings.Contains(log, "s3cret") {
		t.Errorf("the log lacks %s: %s", want, log)
	}
	push := wire.AppendPush(nil, &wire.Push{Namespace: "shop", Sender: 1, Sequence: 1, Floor: 1})
	for _, h2 := range []bool{false, true} {
		for _, test := range []struct {
			name, token string
			push, look  int
			set         int
		}{
			{"gateway", "", 200, 403, 403}, {"ops", "", 403, 200, 200}, {"other", "", 401, 401, 401},
			{"other", "s3cret", 403, 200, 403}, {"gateway", "s3cret", 200, 200, 403},
		} {
			own, ownKey := authority.Issue(t, test.name)
			pair := must.Get(tls.LoadX509KeyPair(own, ownKey))(t)
			transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: authority.Pool, Certificates: []tls.Certificate{pair}}, ForceAttemptHTTP2: h2}
			client := &http.Client{Transport: transport}
			for _, call := range []struct {
				method, path string
				body         []byte
				want         int
			}{
				{"POST", wire.PushPath, push, test.push}, {"GET", "/v1/overrides?namespace=shop", nil, test.look}, {"DELETE", "/v1/overrides?namespace=shop&rule=r", nil, test.set},
			} {
				if got, body := askWith(t, client, call.method, "https://"+address+call.path, test.token, call.body); got != call.want {
					t.Errorf("%s %s by %s with %q: status %d, want %d: %s", call.method, call.path, test.name, test.token, got, call.want, body)
				}
			}
			transport.CloseIdleConnections()
		}
	}
}
