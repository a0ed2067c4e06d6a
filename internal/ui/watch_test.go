package ui

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"weir/internal/must"
)

// The page of weir serve has the backend answer what the page asks for, and nothing else. A change
// wants the page's header, and no page of another site may ask at all.
func TestWatchRoutes(t *testing.T) {
	t.Parallel()
	is := func(name string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("from", name) })
	}
	handler := Watch(is("backend"), is("page"), true)
	ask := func(asked, origin, header string) *httptest.ResponseRecorder {
		method, target, _ := strings.Cut(asked, " ")
		r := httptest.NewRequestWithContext(t.Context(), method, target, nil)
		r.Header.Set("origin", origin)
		r.Header.Set(Header, header)
		if origin == "" {
			r.Header.Del("origin")
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		return w
	}
	for asked, want := range map[string]string{
		"GET /v1/watch?namespace=shop": "backend", "GET /v1/counter?namespace=shop&id=ab": "backend", "GET /v1/changes?namespace=shop": "backend",
		"POST /v1/counter?namespace=shop": "backend", "PUT /v1/overrides?namespace=shop": "backend", "DELETE /v1/overrides?namespace=shop": "backend",
		"GET /v1/overrides?namespace=shop": "backend", "POST /v1/push": "page", "PUT /v1/prices?namespace=shop": "page",
		"GET /v1/counters?namespace=shop": "page", "GET /v1/counter/": "page", "GET /metrics": "page", "GET /": "page",
	} {
		must.Equal(t, ask(asked, "", "1").Header().Get("from"), want, "%s: answered by", asked)
		must.Equal(t, ask(asked, "https://evil.test", "1").Code, http.StatusForbidden, "%s by another site's page: status", asked)
		must.Equal(t, ask(asked, "", "").Code == http.StatusForbidden, !strings.HasPrefix(asked, "GET"), "%s without the header is refused", asked)
	}
}
