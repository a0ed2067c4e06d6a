package ui

import (
	"net/http"

	"weir/internal/server"
)

// Header is a header that requests must carry if they change something. No page of another origin
// can send it without being asked for leave, which nobody gets.
const Header = "x-weir"

// Guard lets requests pass that name the address which they reached, or a loopback address, as
// their host: the name of another site that resolves to a loopback address does not make this
// server that site's. A request from a page has to come from a page of the same host. Requests
// other than GET and HEAD need [Header].
func Guard(address string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !server.KnownHost(r.Host, address):
			http.Error(w, "host: want the address that this server listens on", http.StatusMisdirectedRequest)
		case !server.SameOrigin(r):
			http.Error(w, "origin: want a page of this server", http.StatusForbidden)
		case r.Method != http.MethodGet && r.Method != http.MethodHead && r.Header.Get(Header) == "":
			http.Error(w, Header+": want this header in a request that changes something", http.StatusForbidden)
		default:
			next.ServeHTTP(w, r)
		}
	})
}
