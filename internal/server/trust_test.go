package server_test

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weir/internal/listen"
	"weir/internal/must"
	"weir/internal/server"
	"weir/internal/store"
	"weir/internal/trust"
	"weir/internal/trust/trusttest"
	"weir/internal/wire"
)

// tokensOf are tokens by the lines of their file.
func tokensOf(t *testing.T, lines string) *trust.Tokens {
	t.Helper()
	file := filepath.Join(t.TempDir(), "tokens")
	must.OK(t, os.WriteFile(file, []byte(lines), 0o600))
	return must.Get(trust.ReadTokens(file, time.Now, slog.New(slog.DiscardHandler)))(t)
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
			p := must.Get(tls.LoadX509KeyPair(pair[0], pair[1]))(t)
			own.Certificates = []tls.Certificate{p}
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
			if answer.StatusCode != test.status || (answer.ProtoMajor == 2) != h2 {
				t.Errorf("%s: status %d, want %d; %s: %s", test.path, answer.StatusCode, test.status, answer.Proto, body)
			}
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
