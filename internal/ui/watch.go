package ui

import (
	"net/http"

	"weir/internal/listen"
	"weir/internal/server"
	"weir/internal/trust"
)

// Watch serves the page with the live view of weir serve. backend answers the page's requests, and
// requires a token if token says so.
func Watch(backend, page http.Handler, token bool) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /live.json", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, map[string]any{"live": "serve", "traffic": true, "token": token})
	})
	mux.Handle("GET "+server.WatchPath, backend)
	mux.Handle("GET "+server.CounterPath, backend)
	mux.Handle("GET "+server.NamespacesPath, backend)
	mux.Handle("/", page)
	actions(mux, backend)
	return guardChanges(mux)
}

// actions has a backend answer what a page changes, and who has changed what before.
func actions(mux *http.ServeMux, backend http.Handler) {
	for _, call := range []trust.Call{trust.GetChanges, trust.GetOverrides, trust.SetOverrides, trust.UnsetOverrides, trust.ChangeCounter} {
		mux.Handle(call.Needs().Pattern, backend)
	}
}

// Header is a header that requests must carry if they change something. A page of another origin
// may send it only with this server's permission, which no page gets.
const Header = "x-weir"

// Guard lets a request pass only if its host is the address that it reached, or a loopback address,
// and as [guardChanges] does. So another site's name that resolves to a loopback address reaches
// nothing.
func Guard(address string, next http.Handler) http.Handler {
	next = guardChanges(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !listen.KnownHost(r.Host, address) {
			http.Error(w, "host: want the address that this server listens on", http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// guardChanges lets a request of a page pass only from a page of the same host, and a request other
// than GET and HEAD only with [Header]: a certificate alone does not tell the page from another
// site's.
func guardChanges(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !listen.SameOrigin(r):
			http.Error(w, "origin: want a page of this server", http.StatusForbidden)
		case r.Method != http.MethodGet && r.Method != http.MethodHead && r.Header.Get(Header) == "":
			http.Error(w, Header+": want this header in a request that changes something", http.StatusForbidden)
		default:
			next.ServeHTTP(w, r)
		}
	})
}
