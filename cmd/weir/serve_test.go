package main

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"weir/internal/must"
	"weir/internal/trust/trusttest"
	"weir/internal/wire"
)

// After SIGTERM weir serve first fails at /readyz and still accepts pushes. Then it completes the
// requests under way, and its log, in JSON, has their number.
func TestServeDrains(t *testing.T) {
	p := serveProcess(t, []string{"--log-format", "json", "--log-level", "debug", "--shutdown-delay", "5s"}, []string{"WEIR_TOKEN=s3cret"})
	type entry struct {
		Level, Msg, Address, Source string
		Status                      int
		Drained                     *int `json:"requests_drained"`
		UnderWay                    *int `json:"requests_under_way"`
		CutOff                      *int `json:"requests_cut_off"`
	}
	lines := 0
	next := func(message string) (e entry) {
		t.Helper()
		lines++
		line := p.Wait(t, "(.*)")
		if err := json.Unmarshal([]byte(line), &e); err != nil || !strings.HasPrefix(e.Msg, message) {
			t.Fatalf("want %q in JSON, got %s: %v", message, line, err)
		}
		return e
	}
	address := next("the counter backend listens").Address
	body := wire.AppendPush(nil, &wire.Push{Namespace: "shop", Node: 1, Sender: 1, Sequence: 1, Floor: 1})
	wantStatus(t, "POST", "http://"+address+wire.PushPath, "wrong", body, 401)
	if e := next("requests are refused"); e.Level != "WARN" || e.Source != "127.0.0.1" || e.Status != 401 {
		t.Errorf("got %+v", e)
	}
	wantStatus(t, "GET", "http://"+address+"/metrics", "", nil, http.StatusOK, `weir_build_info{go_version="go`)

	ended := make(chan error, 1)
	go func() { ended <- p.End() }()
	next("the counter backend is about to end")
	wantStatus(t, "GET", "http://"+address+"/readyz", "", nil, http.StatusServiceUnavailable, "about to end")
	wantStatus(t, "POST", "http://"+address+wire.PushPath, "s3cret", body, http.StatusOK)
	next("push")
	// A push whose body is not complete is under way when weir serve ends.
	slow := must.Get(net.Dial("tcp", address))(t)
	t.Cleanup(func() { slow.Close() })
	head := "POST " + wire.PushPath + " HTTP/1.1\r\nHost: weir\r\nAuthorization: Bearer s3cret\r\nContent-Type: " + wire.ContentType + "\r\nExpect: 100-continue\r\nContent-Length: "
	must.Get(slow.Write(append([]byte(head), []byte(strconv.Itoa(len(body))+"\r\n\r\n")...)))(t)
	answer := bufio.NewReader(slow)
	must.Contains(t, must.Get(answer.ReadString('\n'))(t), "100 Continue", "answer")
	if e := next("the counter backend ends"); e.UnderWay == nil || *e.UnderWay != 1 {
		t.Errorf("want one request under way, got %+v", e)
	}
	must.Get(io.Copy(slow, bytes.NewReader(body)))(t)
	must.EqualOrEnd(t, must.Get(answer.ReadString('\n'))(t), "\r\n", "")
	must.Contains(t, must.Get(answer.ReadString('\n'))(t), "200 OK", "the push that was under way")
	next("push")
	if e := next("the counter backend has ended"); e.Drained == nil || *e.Drained != 1 || e.CutOff == nil || *e.CutOff != 0 {
		t.Errorf("want one drained, got %+v", e)
	}
	must.Report(t, <-ended)
	must.Equal(t, strings.Count(p.Printed(), "\n"), lines, "%s: lines", p.Printed())
}

// If weir serve requires no token, pages of other sites can neither read nor change its counters:
// neither through its address, nor through a name of their own that resolves to it. Nodes and
// people still can, with any name that nodes use.
func TestServeIsNoWebSites(t *testing.T) {
	address, _ := startServe(t, nil, nil)
	push := string(wire.AppendPush(nil, &wire.Push{Namespace: "shop", Node: 1, Sender: 1, Sequence: 1, Floor: 1}))
	const (
		reset = `{"id": "00000000000000000000000000000000", "rule": "per-user", "reset": true}`
		limit = `{"overrides": [{"rule": "per-user", "limits": [{"limit": 1, "width_ms": 1000}]}]}`
	)
	of := func(kind string, more ...string) (headers []string) {
		return append([]string{"Content-Type", kind}, more...)
	}
	const form, js = "text/plain", "application/json"
	rebound := []string{"Host", "evil.example", "Origin", "http://evil.example"}
	for _, test := range []struct {
		name, method, path, body string
		headers                  []string
		status                   int
	}{
		{"a node by a cluster's name", "POST", wire.PushPath, push, of(wire.ContentType, "Host", "weir_backend"), 200},
		{"a node by the address", "POST", wire.PushPath, push, of(wire.ContentType), 200},
		{"a person by the address", "GET", "/v1/overrides?namespace=shop", "", []string{}, 200},
		{"a person by a loopback name", "GET", "/v1/overrides?namespace=shop", "", []string{"Host", "localhost:9180"}, 200},
		{"a person's change", "PUT", "/v1/overrides?namespace=shop", limit, of("application/json; charset=utf-8"), 200},
		{"a probe by any name", "GET", "/readyz", "", []string{"Host", "weir.example"}, 200},

		{"a page's simple request", "POST", "/v1/counter?namespace=shop", reset, of(form, "Origin", "http://evil.example"), 403},
		{"a page that hides where it is from", "POST", "/v1/counter?namespace=shop", reset, of(form, "Origin", "null"), 403},
		{"a page's request, by what the browser says", "POST", "/v1/counter?namespace=shop", reset, of(form, "Sec-Fetch-Site", "cross-site"), 403},
		{"a page's request, from another port", "POST", "/v1/counter?namespace=shop", reset, of(form, "Sec-Fetch-Site", "same-site"), 403},
		{"a form's type", "POST", "/v1/counter?namespace=shop", reset, of(form), 415},
		{"no type", "POST", "/v1/counter?namespace=shop", reset, []string{}, 415},
		{"overrides of a form's type", "PUT", "/v1/overrides?namespace=shop", limit, of(form), 415},
		{"rebound: a look", "GET", "/v1/overrides?namespace=shop", "", []string{"Host", "evil.example"}, 421},
		{"rebound: a list", "GET", "/v1/counters?namespace=shop", "", []string{"Host", "evil.example:9180"}, 421},
		{"rebound: a change", "PUT", "/v1/overrides?namespace=shop", limit, of(js, rebound...), 421},
		{"rebound: a removal", "DELETE", "/v1/overrides?namespace=shop&rule=per-user&all", "", rebound, 421},
		{"rebound: a push", "POST", wire.PushPath, push, of(wire.ContentType, rebound...), 421},
		{"a push of a page", "POST", wire.PushPath, push, of(wire.ContentType, "Origin", "http://evil.example"), 403},
		{"a name that begins like one of the range", "GET", "/v1/overrides?namespace=shop", "", []string{"Host", "127.0.0.1.evil.example"}, 421},
	} {
		status, body := ask(t, test.method, "http://"+address+test.path, "", []byte(test.body), test.headers...)
		must.Equal(t, status, test.status, "%s: %s: status", test.name, body)
	}
}

// Certificates have verbs by their names, over HTTP/1.1 and HTTP/2, and the log says who may change
// limits.
func TestRolesOfCertificates(t *testing.T) {
	authority := trusttest.New(t)
	certificate, key := authority.Issue(t, "weir")
	tokens := must.File(t, filepath.Join(t.TempDir(), "tokens"), "shop certificate=spiffe://test/gateway verbs=push\n* certificate=spiffe://test/ops verbs=change\nshop s3cret verbs=read name=eve\n")
	executeAll(t, nil, []lineTest{{"serve --listen 127.0.0.1:0 --token-file " + tokens, 2, "", "--token-file: want --tls-client-ca with lines of certificate="}})
	address, p := startServe(t, []string{"--token-file", tokens, "--tls-cert", certificate, "--tls-key", key, "--tls-client-ca", authority.File}, nil)
	if want := "who=\"certificate=spiffe://test/ops in all namespaces\""; !strings.Contains(p.Printed(), want) || strings.Contains(p.Printed(), "s3cret") {
		t.Errorf("the log lacks %s: %s", want, p.Printed())
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
			pair := must.Get(tls.LoadX509KeyPair(authority.Issue(t, test.name)))(t)
			transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: authority.Pool, Certificates: []tls.Certificate{pair}}, ForceAttemptHTTP2: h2}
			client := &http.Client{Transport: transport}
			for _, call := range []struct {
				method, path string
				body         []byte
				want         int
			}{
				{"POST", wire.PushPath, push, test.push}, {"GET", "/v1/overrides?namespace=shop", nil, test.look}, {"DELETE", "/v1/overrides?namespace=shop&rule=r", nil, test.set},
			} {
				got, body := askWith(t, client, call.method, "https://"+address+call.path, test.token, call.body)
				must.Equal(t, got, call.want, "%s %s by %s with %q: status, with %s", call.method, call.path, test.name, test.token, body)
			}
			transport.CloseIdleConnections()
		}
	}
}
