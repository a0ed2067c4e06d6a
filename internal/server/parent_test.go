package server_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"weir/internal/must"
	"weir/internal/server"
)

// The parent gets the region's token in place of the client's, and nothing else by which it would know the client. It is
// no region itself, and the client is told if it does not answer.
func TestToParent(t *testing.T) {
	t.Parallel()
	var got http.Header
	parent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.Header }))
	t.Cleanup(parent.Close)
	at := must.Get(url.Parse(parent.URL))(t)
	for i, token := range []string{"", "s3cret"} {
		s := start(t, open(), server.Options{Tokens: oneToken("client"), Parent: server.ToParent(at, token, http.DefaultTransport, slog.New(slog.DiscardHandler))})
		ask := func(status int, texts ...string) {
			t.Helper()
			r := request(t, "GET", s.URL+server.TopPath+"?namespace=shop", nil)
			for name, value := range map[string]string{"Authorization": "Bearer client", "Cookie": "a=b", "Origin": s.URL} {
				r.Header.Set(name, value)
			}
			if status == http.StatusConflict {
				r.Header.Set(server.RegionHeader, "1")
			}
			wantStatus(t, s, r, status, texts...)
		}
		ask(http.StatusOK)
		must.Equal(t, got.Get("Authorization")+got.Get("Cookie")+got.Get("Origin")+got.Get(server.RegionHeader), []string{"1", "Bearer s3cret1"}[i], "with the token %q: the parent gets", token)
		ask(http.StatusConflict, "there are only two levels")
		if token != "" {
			parent.Close()
			ask(http.StatusBadGateway, "the parent does not answer")
		}
	}
}
