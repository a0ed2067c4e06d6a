package main

import (
	"bytes"
	"io"
	"net/http"
	"testing"

	"weir/internal/envoytest"
	"weir/internal/must"
	"weir/internal/wire"
)

// If weir serve requires no token, pages of other sites can neither read nor change its counters:
// neither through its address, nor through a name of their own that resolves to it. Nodes and
// people still can, with any name that nodes use.
func TestServeIsNoWebSites(t *testing.T) {
	address, _ := startServe(t, []string{"--listen", "127.0.0.1:0"}, nil)
	push := string(wire.AppendPush(nil, &wire.Push{Namespace: "shop", Node: 1, Sender: 1, Sequence: 1, Floor: 1}))
	const (
		reset = `{"id": "00000000000000000000000000000000", "rule": "per-user", "reset": true}`
		limit = `{"overrides": [{"rule": "per-user", "limits": [{"limit": 1, "width_ms": 1000}]}]}`
	)
	rebound := map[string]string{"Host": "evil.example", "Origin": "http://evil.example"}
	with := func(of map[string]string, name, value string) map[string]string {
		all := map[string]string{name: value}
		for name, value := range of {
			all[name] = value
		}
		return all
	}
	form := map[string]string{"Content-Type": "text/plain"}
	js := map[string]string{"Content-Type": "application/json"}
	weir := map[string]string{"Content-Type": wire.ContentType}
	for _, test := range []struct {
		name, method, path, body string
		headers                  map[string]string
		status                   int
	}{
		{"a node by a cluster's name", "POST", wire.PushPath, push, with(weir, "Host", "weir_backend"), 200},
		{"a node by the address", "POST", wire.PushPath, push, weir, 200},
		{"a person by the address", "GET", "/v1/overrides?namespace=shop", "", nil, 200},
		{"a person by a loopback name", "GET", "/v1/overrides?namespace=shop", "", map[string]string{"Host": "localhost:9180"}, 200},
		{"a person's change", "PUT", "/v1/overrides?namespace=shop", limit, with(js, "Content-Type", "application/json; charset=utf-8"), 200},
		{"a probe by any name", "GET", "/readyz", "", map[string]string{"Host": "weir.example"}, 200},

		{"a page's simple request", "POST", "/v1/counter?namespace=shop", reset, with(form, "Origin", "http://evil.example"), 403},
		{"a page that hides where it is from", "POST", "/v1/counter?namespace=shop", reset, with(form, "Origin", "null"), 403},
		{"a page's request, by what the browser says", "POST", "/v1/counter?namespace=shop", reset, with(form, "Sec-Fetch-Site", "cross-site"), 403},
		{"a page's request, from another port", "POST", "/v1/counter?namespace=shop", reset, with(form, "Sec-Fetch-Site", "same-site"), 403},
		{"a form's type", "POST", "/v1/counter?namespace=shop", reset, form, 415},
		{"no type", "POST", "/v1/counter?namespace=shop", reset, nil, 415},
		{"overrides of a form's type", "PUT", "/v1/overrides?namespace=shop", limit, form, 415},
		{"rebound: a look", "GET", "/v1/overrides?namespace=shop", "", map[string]string{"Host": "evil.example"}, 421},
		{"rebound: a list", "GET", "/v1/counters?namespace=shop", "", map[string]string{"Host": "evil.example:9180"}, 421},
		{"rebound: a change", "PUT", "/v1/overrides?namespace=shop", limit, with(rebound, "Content-Type", "application/json"), 421},
		{"rebound: a removal", "DELETE", "/v1/overrides?namespace=shop&rule=per-user&all", "", rebound, 421},
		{"rebound: a push", "POST", wire.PushPath, push, with(rebound, "Content-Type", wire.ContentType), 421},
		{"a push of a page", "POST", wire.PushPath, push, with(weir, "Origin", "http://evil.example"), 403},
		{"a name that begins like one of the range", "GET", "/v1/overrides?namespace=shop", "", map[string]string{"Host": "127.0.0.1.evil.example"}, 421},
	} {
		r := must.Get(http.NewRequestWithContext(t.Context(), test.method, "http://"+address+test.path, bytes.NewReader([]byte(test.body))))(t)
		for name, value := range test.headers {
			r.Header.Set(name, value)
		}
		if r.Host = r.Header.Get("Host"); r.Host == "" {
			r.Host = address
		}
		r.Header.Del("Host")
		answer := must.Get(envoytest.Client.Do(r))(t)
		body, err := io.ReadAll(answer.Body)
		must.Report(t, answer.Body.Close())
		if err != nil || answer.StatusCode != test.status {
			t.Errorf("%s: status %d, want %d: %s%v", test.name, answer.StatusCode, test.status, body, err)
		}
	}
}
