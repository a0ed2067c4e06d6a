package server_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"weir/internal/server"
	"weir/internal/store/memory"
	"weir/internal/wire"
)

// Metrics that say whom the backend serves are for those who may read all namespaces. Others get the
// rest, since probes and scrapers have no secrets.
func TestWhoReadsMetrics(t *testing.T) {
	t.Parallel()
	tokens := tokensOf(t, "for-all\nshop for-shop\n")
	spent := wire.AppendUsed(nil, &wire.Used{Namespace: "shop", Sender: 1, Sequence: 1, Rows: []wire.UsedRow{usedBy("tokens", "ann", "", dayOf(2026, 11, 1), 7, nil)}})
	for name, test := range map[string]struct {
		options server.Options
		headers []string
		names   bool
	}{
		"without tokens":             {server.Options{}, nil, true},
		"no token":                   {server.Options{Tokens: tokens}, nil, false},
		"a wrong token":              {server.Options{Tokens: tokens}, []string{"Authorization", "Bearer wrong"}, false},
		"a namespace's token":        {server.Options{Tokens: tokens}, []string{"Authorization", "Bearer for-shop"}, false},
		"a token for all":            {server.Options{Tokens: tokens}, []string{"Authorization", "Bearer for-all"}, true},
		"a token of another scheme":  {server.Options{Tokens: tokens}, []string{"Authorization", "Basic for-all"}, false},
		"no certificate":             {server.Options{Certificates: true}, nil, false},
		"a page of another site":     {server.Options{}, []string{"Origin", "https://other.example"}, false},
		"another name of a loopback": {server.Options{Host: "127.0.0.1:9180"}, nil, false},
	} {
		test.options.Logger = slog.New(slog.DiscardHandler)
		test.options.Now = func() time.Time { return november }
		handler := server.Handler(memory.New(memory.Options{Now: test.options.Now}), test.options)
		account := httptest.NewRequest(http.MethodPost, wire.PushPath, bytes.NewReader(spent))
		account.Header.Set("Content-Type", wire.ContentType)
		if test.options.Tokens != nil {
			account.Header.Set("Authorization", "Bearer for-all")
		}
		if test.options.Certificates {
			account.TLS = &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{{}}}, PeerCertificates: []*x509.Certificate{{}}}
		}
		handler.ServeHTTP(httptest.NewRecorder(), account)
		r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
		for i := 0; i < len(test.headers); i += 2 {
			r.Header.Set(test.headers[i], test.headers[i+1])
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		text := w.Body.String()
		if names := strings.Contains(text, "shop") || strings.Contains(text, "tokens\""); w.Code != http.StatusOK || !strings.Contains(text, "weir_store_partly 0") || names && !test.names {
			t.Errorf("%s: %d, names: %t, want %t", name, w.Code, names, test.names)
		}
		if test.names && !test.options.Certificates && !strings.Contains(text, `weir_used_hits_total{weir_namespace="shop",weir_rule="tokens"} 7`) {
			t.Errorf("%s: want what shop has used, got %s", name, text)
		}
	}
}
