package ui

import (
	"net/http"
	"slices"

	"weir/internal/server"
	"weir/internal/trust"
)

// Watch serves the page with the live view of weir serve. backend answers the page's requests, and
// requires a token if token says so.
func Watch(backend, page http.Handler, token bool) http.Handler {
	mux := http.NewServeMux()
	lists := slices.ContainsFunc(trust.Calls(), func(c trust.Call) bool { return c.Needs().Pattern == "GET "+namespacesPath })
	mux.HandleFunc("GET /live.json", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, map[string]any{"live": "serve", "traffic": true, "token": token, "namespaces": lists})
	})
	mux.Handle("GET "+server.WatchPath, backend)
	mux.Handle("GET "+server.CounterPath, backend)
	mux.Handle("GET "+namespacesPath, backend)
	mux.Handle("/", page)
	actions(mux, backend)
	return guardChanges(mux)
}

// namespacesPath is the path of the namespaces that a backend knows. Without such a call the page
// wants a namespace to be typed.
const namespacesPath = "/v1/namespaces"

// actions has a backend answer what a page changes, and who has changed what before.
func actions(mux *http.ServeMux, backend http.Handler) {
	for _, call := range []trust.Call{trust.GetChanges, trust.GetOverrides, trust.SetOverrides, trust.UnsetOverrides, trust.ChangeCounter} {
		mux.Handle(call.Needs().Pattern, backend)
	}
}
