package ui

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// The page of weir serve reads two things of the backend, and changes none.
func TestWatchOnlyReads(t *testing.T) {
	t.Parallel()
	is := func(name string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("from", name) })
	}
	handler := Watch(is("backend"), is("page"))
	for asked, want := range map[string]string{
		"GET /v1/watch?namespace=shop": "backend", "GET /v1/counter?namespace=shop&id=ab": "backend",
		"POST /v1/counter?namespace=shop": "page", "PUT /v1/overrides?namespace=shop": "page", "POST /v1/push": "page",
		"GET /v1/counters?namespace=shop": "page", "GET /v1/counter/": "page", "GET /": "page",
	} {
		method, target, _ := strings.Cut(asked, " ")
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, target, nil))
		if got := w.Header().Get("from"); got != want {
			t.Errorf("%s: the %s answers, want the %s", asked, got, want)
		}
	}
}
