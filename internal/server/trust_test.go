package server_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weir/internal/listen"
	"weir/internal/must"
	"weir/internal/server"
	"weir/internal/store"
	"weir/internal/store/memory"
	"weir/internal/trust"
	"weir/internal/trust/trusttest"
	"weir/internal/wire"
)

// tokensOf are tokens by the lines of their file.
func tokensOf(t *testing.T, lines string) *trust.Tokens {
	t.Helper()
	return must.Get(trust.ReadTokens(must.File(t, filepath.Join(t.TempDir(), "tokens"), lines), time.Now, slog.New(slog.DiscardHandler)))(t)
}

// A token of one namespace pushes to and reads that one alone, and says so, however a request names another. What each
// route asks for is in TestMatrix.
func TestTokensOfNamespaces(t *testing.T) {
	counters := open()
	s := start(t, counters, server.Options{Tokens: tokensOf(t, "shop for-shop\nshop for-two\napi for-two\n")})
	send := func(method, path string, body []byte, token string, status int) (answer *http.Response, problem string) {
		t.Helper()
		r := request(t, method, s.URL+path, body)
		r.Header.Set("Authorization", "Bearer "+token)
		answer, problem = do(t, s.Client(), r)
		must.Equal(t, answer.StatusCode, status, "%s with %q: status: %s", path, token, problem)
		return answer, problem
	}
	push := wire.AppendPush(nil, examplePush())
	for _, path := range []string{wire.PushPath, "/v1/counters?namespace=api", "/v1/counters?namespace=api&namespace=shop"} {
		method, body := "GET", []byte(nil)
		if path == wire.PushPath {
			method, body = "POST", push
		}
		answer, problem := send(method, path, body, "for-shop", 403)
		wantProblem(t, answer, problem, "authorization: the token is not for this namespace")
		wantUnchanged(t, counters)
	}
	send("POST", wire.PushPath, push, "for-two", 200)
	send("GET", "/v1/counters?namespace=shop", nil, "for-two", 200)
	send("POST", wire.PushPath, []byte{1, 2, 3}, "for-shop", 400) // a body that is no push is refused as such
	for _, namespace := range []string{"shop", "api"} {
		send("POST", wire.PushPath, wire.AppendReport(nil, &wire.Report{Namespace: namespace, Node: 1, Sender: 1}), "for-two", 200)
	}
	for token, want := range map[string]bool{"for-shop": false, "for-two": true} {
		_, list := send("GET", server.NamespacesPath, nil, token, 200)
		must.Equal(t, strings.Contains(list, `"api"`), want, "%s lists the other namespace: %s", token, list)
	}
	must.Report(t, counters.Counters(t.Context(), "shop", nil, func(c store.LimitCounter) error { return errors.New("a counter of shop") }))
}

// Over TLS clients need a certificate for whatever has to do with counters, and the token besides.
func TestCertificates(t *testing.T) {
	a, stranger := trusttest.New(t), trusttest.New(t)
	certificate, key := a.Issue(t, "weir")
	config := must.Get(trust.Certificates(trust.CertificateFiles{Certificate: certificate, Key: key, ClientCA: a.File}, time.Now, slog.New(slog.DiscardHandler)))(t)
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	handler := server.Handler(open(), server.Options{Tokens: oneToken("s3cret"), Certificates: true, Logger: slog.New(slog.DiscardHandler)})
	go func() { served <- listen.Serve(ctx, tls.NewListener(l, config), handler) }()
	t.Cleanup(func() {
		cancel()
		must.Report(t, <-served)
	})
	client := func(h2 bool, pair ...string) *http.Client {
		own := &tls.Config{RootCAs: a.Pool}
		if len(pair) > 0 {
			own.Certificates = []tls.Certificate{must.Get(tls.LoadX509KeyPair(pair[0], pair[1]))(t)}
		}
		transport := &http.Transport{TLSClientConfig: own, ForceAttemptHTTP2: h2}
		t.Cleanup(transport.CloseIdleConnections)
		return &http.Client{Transport: transport}
	}
	url := "https://" + l.Addr().String()
	known, knownKey := a.Issue(t, "node")
	for _, h2 := range []bool{false, true} {
		for _, test := range []struct {
			client *http.Client
			path   string
			token  string
			status int
		}{
			{client(h2), "/healthz", "", 200},
			{client(h2), "/metrics", "", 200},
			{client(h2), "/v1/counters?namespace=api", "s3cret", 403},
			{client(h2, known, knownKey), "/v1/counters?namespace=api", "s3cret", 200},
			{client(h2, known, knownKey), "/v1/counters?namespace=api", "", 401},
		} {
			r := request(t, "GET", url+test.path, nil)
			r.Header.Set("Authorization", "Bearer "+test.token)
			answer, body := do(t, test.client, r)
			must.Equal(t, answer.StatusCode, test.status, "%s: status, with %s", test.path, body)
			must.Equal(t, answer.ProtoMajor == 2, h2, "%s: HTTP/2", test.path)
		}
		other, otherKey := stranger.Issue(t, "node")
		if answer, err := client(h2, other, otherKey).Do(request(t, "GET", url+"/v1/counters?namespace=api", nil)); err == nil {
			t.Errorf("a stranger's certificate: status %d, want no connection", answer.StatusCode)
			_ = answer.Body.Close()
		}
	}
	// Without TLS nobody has a certificate.
	plain := start(t, open(), server.Options{Certificates: true})
	answer, body := do(t, plain.Client(), request(t, "GET", plain.URL+"/v1/counters?namespace=api", nil))
	if wantProblem(t, answer, body, "want a client certificate"); answer.StatusCode != 403 || strings.Contains(body, "counter\"") {
		t.Errorf("status %d: %s", answer.StatusCode, body)
	}
}

// routes are requests for each call of the server in a namespace, by who may send them: tokens with
// one verb, and those without verbs.
var routes = []struct {
	call         trust.Call
	method, path string
	body         string
	may          string
}{
	{trust.GetCounters, "GET", "/v1/counters", "", "read change admin none"},
	{trust.GetWindow, "GET", "/v1/window?id=" + annID + "&kind=fixed_window&width_ms=60000&start=2026-01-01T00:00:00Z", "", "read change admin none"},
	{trust.GetCounter, "GET", "/v1/counter?id=" + annID, "", "read change admin none"},
	{trust.GetOverrides, "GET", "/v1/overrides", "", "read change admin none"},
	{trust.GetPrices, "GET", "/v1/prices", "", "read change admin none"},
	{trust.GetUsage, "GET", "/v1/usage", "", "read change admin none"},
	{trust.GetTop, "GET", "/v1/top", "", "read change admin none"},
	{trust.GetWatch, "GET", "/v1/watch", "", "read change admin none"},
	{trust.GetChanges, "GET", "/v1/changes", "", "read change admin none"},
	{trust.GetNamespaces, "GET", "/v1/namespaces", "", "read change admin none"},
	{trust.ChangeCounter, "POST", "/v1/counter", `{"id": "` + annID + `", "rule": "r", "reset": true}`, "change admin none"},
	{trust.SetOverrides, "PUT", "/v1/overrides", `{"overrides": [{"rule": "r", "limits": [{"limit": 1, "width_ms": 1000}]}]}`, "change admin none"},
	{trust.UnsetOverrides, "DELETE", "/v1/overrides?rule=r", "", "change admin none"},
	{trust.SetOverrides, "PUT", "/v1/overrides", `{"overrides": [{"rule": "*", "mode": "off"}, {"rule": "r", "mode": "shadow"}]}`, "change admin none"},
	{trust.SetOverrides, "PUT", "/v1/overrides?force", `{"overrides": [{"rule": "r", "key": ["a"], "pattern": "prefix", "limits": [{"limit": 1, "width_ms": 1000}]}]}`, "change admin none"},
	{trust.UnsetOverrides, "DELETE", "/v1/overrides?rule=*&whole", "", "change admin none"},
	{trust.SetPrices, "PUT", "/v1/prices", `{"list": "l", "models": {"m": {"input": 1}}}`, "change admin none"},
	{trust.UnsetPrices, "DELETE", "/v1/prices?list=l", "", "change admin none"},
	{trust.PushHits, "POST", wire.PushPath, "push", "push admin none"},
	{trust.PushHits, "POST", wire.PushPath, "report", "push admin none"},
	{trust.PushHits, "POST", wire.PushPath, "used", "push admin none"},
	{trust.GetLive, "GET", "/livez", "", "push read change admin none nobody"},
	{trust.GetReady, "GET", "/readyz", "", "push read change admin none nobody"},
	{trust.GetHealth, "GET", "/healthz", "", "push read change admin none nobody"},
	{trust.GetMetrics, "GET", "/metrics", "", "push read change admin none nobody"},
}

// tokensOfVerbs are tokens of each verb for the namespace shop, and for all.
const tokensOfVerbs = "shop shop-push verbs=push name=p\nshop shop-read verbs=read\nshop shop-change verbs=change name=ann\nshop shop-admin verbs=admin\nshop shop-none\n" +
	"* all-push verbs=push\n* all-read verbs=read\n* all-change verbs=change\n* all-admin verbs=admin\nall-none\n"

// Every call is answered by whoever has its verb in the namespace, and refused for everybody else.
func TestMatrix(t *testing.T) {
	ended := make(chan struct{})
	close(ended) // streams end with their first event
	s := start(t, open(), server.Options{Tokens: tokensOf(t, tokensOfVerbs), Ended: ended})
	tried := map[trust.Call]bool{trust.RateLimit: true, trust.RateLimitGiveBack: true, trust.GetNames: true} // elsewhere
	for _, route := range routes {
		tried[route.call] = true
		path, _, _ := strings.Cut(route.path, "?")
		must.Equal(t, route.method+" "+path, route.call.Needs().Pattern, "the call's route")
		anybody := strings.Contains(route.may, "nobody")
		for _, verb := range []string{"push", "read", "change", "admin", "none", "nobody", ""} {
			for _, all := range []string{"shop-", "all-"} {
				for _, namespace := range []string{"shop", "api", "shop2", "sho", "Shop", "", "*"} {
					known := verb != "nobody" && verb != ""
					want := 200
					switch {
					case anybody:
					case !known:
						want = 401
					case !wire.IsNamespace(namespace):
						want = 400
					case all == "shop-" && namespace != "shop", !strings.Contains(route.may, verb):
						want = 403
					}
					token := all + verb
					answer, body := do(t, s.Client(), routed(t, s.URL, route.method, route.path, route.body, namespace, token))
					must.Equal(t, answer.StatusCode, want, "%s %s in %q with %s: status: %.200s", route.method, route.path, namespace, token, body)
					names := strings.Contains(body, `weir_namespace="shop"`)
					if mayName := all == "all-" && known && verb != "push"; route.call == trust.GetMetrics && names != mayName {
						t.Errorf("/metrics with %s names namespaces: %v", token, names)
					}
				}
			}
		}
		if route.call == trust.PushHits {
			// What /metrics names.
			used := wire.AppendUsed(nil, &wire.Used{Namespace: "shop", Sender: 1, Sequence: 1, Rows: []wire.UsedRow{{Label: wire.AppendUsedLabel(nil, &wire.UsedLabel{Rule: "r"}), Day: 20454, Hits: 1}}})
			wantStatus(t, s, routed(t, s.URL, "POST", wire.PushPath, string(used), "", "all-push"), 200)
		}
	}
	for _, call := range trust.Calls() {
		must.Equal(t, tried[call], true, "somebody has tried %s", call.Needs().Pattern)
	}
}

// routed is a request with a token in a namespace. The body push is a push in that namespace.
func routed(t *testing.T, url, method, path, body, namespace, token string) *http.Request {
	t.Helper()
	if strings.HasPrefix(path, wire.PushPath) {
		switch body {
		case "push":
			push := examplePush()
			push.Namespace = namespace
			body = string(wire.AppendPush(nil, push))
		case "report":
			body = string(wire.AppendReport(nil, &wire.Report{Namespace: namespace, Node: 1, Sender: 1}))
		case "used":
			body = string(wire.AppendUsed(nil, &wire.Used{Namespace: namespace, Sender: 1, Sequence: 1, Rows: []wire.UsedRow{{Label: wire.AppendUsedLabel(nil, &wire.UsedLabel{Rule: "r"}), Day: 20454, Hits: 1}}}))
		}
	} else if strings.Contains(path, "?") {
		path += "&namespace=" + namespace
	} else {
		path += "?namespace=" + namespace
	}
	r := request(t, method, url+path, []byte(body))
	r.Header.Set("Authorization", "Bearer "+token)
	return r
}

// Paths that are written in other ways, other methods and other headers lead nowhere, or to the same
// refusal: no token does more by them, and nothing changes. They are sent as they are.
func TestForgedPaths(t *testing.T) {
	counters := memory.New(memory.Options{})
	s := start(t, counters, server.Options{Tokens: tokensOf(t, tokensOfVerbs)})
	send := func(line, token, more, body string) (status string) {
		t.Helper()
		c := must.Get(net.Dial("tcp", s.Listener.Addr().String()))(t)
		defer c.Close()
		must.Get(io.WriteString(c, line+" HTTP/1.1\r\nHost: weir\r\nConnection: close\r\nContent-Type: application/json\r\nAuthorization: Bearer "+token+"\r\n"+more+"\r\n"+body))(t)
		answer := must.Get(io.ReadAll(c))(t)
		_, status, _ = strings.Cut(string(answer), " ")
		return status[:min(3, len(status))]
	}
	const body = `{"overrides": [{"rule": "r", "limits": [{"limit": 1, "width_ms": 1000}]}]}`
	length := fmt.Sprintf("Content-Length: %d\r\n", len(body))
	for _, token := range []string{"shop-push", "shop-read", "all-push", "all-read", "", "none"} {
		for _, path := range []string{
			"/v1/overrides", "//v1/overrides", "/v1//overrides", "/v1/overrides/", "/v1/%6fverrides", "/v1%2foverrides", "/V1/overrides", "/v1/./overrides",
			"/v1/counters/../overrides", "/livez/../v1/overrides", "/livez%2f..%2fv1/overrides", "/v1/push/../overrides", "http://weir/v1/overrides", "/v1/overrides;x", "/v1/overrides%00", "/metrics/../v1/overrides", "*",
		} {
			for _, method := range []string{"PUT", "put", "POST", "PATCH", "DELETE", "GET", "HEAD", "OPTIONS", "TRACE", "CONNECT", "X"} {
				for _, query := range []string{"?namespace=shop&rule=r&all", "?namespace=shop&namespace=api&rule=r&all"} {
					for _, more := range []string{"", "X-HTTP-Method-Override: PUT\r\n", "Authorization: Bearer all-admin\r\n", "X-Original-URL: /v1/overrides\r\nX-Forwarded-Prefix: /v1\r\n"} {
						if strings.Contains(more, "all-admin") && token == "" {
							continue // that is the admin's token, in the second of two headers
						}
						status := send(method+" "+path+query, token, more+length, body)
						looks := (method == "GET" || method == "HEAD") && strings.HasSuffix(token, "-read")
						if status == "200" && !looks {
							t.Errorf("%s %s%s with %s and %q: status %s", method, path, query, token, more, status)
						}
					}
				}
			}
		}
	}
	for _, namespace := range []string{"shop", "api"} {
		if _, version, err := counters.Overrides(t.Context(), namespace, 0); version != 0 || err != nil {
			t.Errorf("somebody has set overrides of %s: version %d, error %v", namespace, version, err)
		}
	}
	must.Equal(t, send("PUT /v1/overrides?namespace=shop", "shop-change", length, body), "200", "as it should be: status")
}
