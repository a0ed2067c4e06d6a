package server

import (
	"net"
	"net/http"
	"net/url"
	"strings"

	"weir/internal/wire"
)

// guard reports whether a request may come from a trusted sender, and not from a page of another
// site, which can reach everything that its browser can. If not, guard has answered it.
func (h *handler) guard(w http.ResponseWriter, r *http.Request) bool {
	switch {
	case h.host != "" && !KnownHost(r.Host, h.host) && !isNodes(r):
		h.refuse(w, r, http.StatusMisdirectedRequest, "host: want a loopback address or "+h.host+", because no token is required")
	case !SameOrigin(r):
		h.refuse(w, r, http.StatusForbidden, "origin: want no request by a page of another site")
	default:
		return true
	}
	return false
}

// isNodes reports whether a request comes from a node. Nodes use the authority of their proxy's
// cluster as the host. A browser always sends the origin of a page that posts.
func isNodes(r *http.Request) bool {
	return r.URL.Path == wire.PushPath && r.Header.Get("Origin") == ""
}

// KnownHost reports whether a request's host is the address at which a server listens, or a
// loopback address. Another site's name that resolves to a loopback address is neither, so a page
// of that site can't reach the server by it.
func KnownHost(host, address string) bool {
	if host == address {
		return true
	}
	name := host
	if n, _, err := net.SplitHostPort(host); err == nil {
		name = n
	}
	name = strings.TrimSuffix(strings.TrimPrefix(name, "["), "]")
	ip := net.ParseIP(name)
	return strings.EqualFold(name, "localhost") || ip != nil && ip.IsLoopback()
}

// SameOrigin reports whether a request comes from no page, or from a page of the same host and
// port.
func SameOrigin(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "cross-site", "same-site":
		if r.Method != http.MethodGet {
			return false
		}
	}
	origin := r.Header.Get("Origin")
	if origin == "" {
		return true
	}
	u, err := url.Parse(origin)
	return err == nil && u.Host != "" && strings.EqualFold(u.Host, r.Host)
}
