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

// A token of one namespace reads and changes that one alone, by every route.
func TestTokensOfNamespaces(t *testing.T) {
	tokens := tokensOf(t, "all-of-them\napi for-api\nshop for-shop\nshop for-two\napi for-two\n")
	counters := open()
	ended := make(chan struct{})
	close(ended) // streams end with their first event
	s := start(t, counters, server.Options{Tokens: tokens, Ended: ended})
	shop := examplePush()
	shop.Namespace = "shop"
	routes := []struct {
		method, path string
		body         []byte
	}{
		{"POST", wire.PushPath, wire.AppendPush(nil, examplePush())},
		{"POST", wire.PushPath, wire.AppendReport(nil, &wire.Report{Namespace: "api"})},
		{"POST", wire.PushPath, wire.AppendUsed(nil, &wire.Used{Namespace: "api", Sender: 1, Sequence: 1})},
		{"GET", server.UsagePath + "?namespace=api", nil},
		{"GET", server.TopPath + "?namespace=api", nil},
		{"GET", server.WatchPath + "?namespace=api", nil},
		{"GET", "/v1/counters?namespace=api", nil},
		{"GET", "/v1/counters?namespace=api&namespace=shop", nil},
		{"GET", windowWith("namespace", "api"), nil},
		{"GET", server.CounterPath + "?namespace=api&id=" + annID, nil},
		{"POST", server.CounterPath + "?namespace=api", []byte(`{"id": "` + annID + `", "rule": "r", "reset": true}`)},
		{"GET", "/v1/overrides?namespace=api", nil},
		{"PUT", "/v1/overrides?namespace=api", []byte(`{"overrides": [{"rule": "r", "limits": [{"limit": 1, "width_ms": 1000}]}]}`)},
		{"DELETE", "/v1/overrides?namespace=api&rule=r", nil},
	}
	for _, route := range routes {
		for token, status := range map[string]int{"for-shop": 403, "for-": 401, "": 401} {
			r := request(t, route.method, s.URL+route.path, route.body)
			r.Header.Set("Authorization", "Bearer "+token)
			answer, body := do(t, s.Client(), r)
			must.Equal(t, answer.StatusCode, status, "%s with %q: status: %s", route.path, token, body)
			if status == 403 {
				wantProblem(t, answer, body, "authorization: the token is not for this namespace")
			}
		}
	}
	wantUnchanged(t, counters)
	if _, version, err := counters.Overrides(t.Context(), "api", 0); version != 0 || err != nil {
		t.Errorf("somebody else has set overrides: version %d, error %v", version, err)
	}
	for _, route := range routes {
		for _, token := range []string{"for-api", "for-two", "all-of-them"} {
			r := request(t, route.method, s.URL+route.path, route.body)
			r.Header.Set("Authorization", "Bearer "+token)
			if answer, body := do(t, s.Client(), r); answer.StatusCode != 200 {
				t.Errorf("%s with %s: status %d: %s", route.path, token, answer.StatusCode, body)
			}
		}
	}
	// A body that is no push is refused as such, whoever sends it.
	r := request(t, "POST", s.URL+wire.PushPath, []byte{1, 2, 3})
	r.Header.Set("Authorization", "Bearer for-shop")
	if answer, body := do(t, s.Client(), r); answer.StatusCode != 400 {
		t.Errorf("status %d, want 400: %s", answer.StatusCode, body)
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
