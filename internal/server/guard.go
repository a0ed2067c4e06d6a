package server

import (
	"net/http"

	"weir/internal/listen"
	"weir/internal/wire"
)

// guard reports whether a request may come from a trusted sender, and not from a page of another
// site, which can reach everything that its browser can. If not, guard has answered it.
func (h *handler) guard(w http.ResponseWriter, r *http.Request) bool {
	switch code := h.guarded(r); code {
	case http.StatusMisdirectedRequest:
		h.refuse(w, r, code, "host: want a loopback address or "+h.host+", because no token is required")
		return false
	case http.StatusForbidden:
		h.refuse(w, r, code, "origin: want no request by a page of another site")
		return false
	}
	return true
}

// guarded returns the status for a request that guard refuses, and 0 for others.
func (h *handler) guarded(r *http.Request) int {
	switch {
	case h.host != "" && !listen.KnownHost(r.Host, h.host) && !isNodes(r):
		return http.StatusMisdirectedRequest
	case !listen.SameOrigin(r):
		return http.StatusForbidden
	}
	return 0
}

// isNodes reports whether a request comes from a node. Nodes use the authority of their proxy's
// cluster as the host. A browser always sends the origin of a page that posts.
func isNodes(r *http.Request) bool {
	return r.URL.Path == wire.PushPath && r.Header.Get("Origin") == ""
}
