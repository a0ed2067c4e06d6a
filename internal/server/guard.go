package server

import (
	"net"
	"net/http"
	"net/url"
	"strings"

	"weir/internal/wire"
)

// guard reports whether a request may have been made by those who are let near, and not by a page of
// another site in one's browser, which reaches all that the browser does. If not, it was answered.
func (h *handler) guard(w http.ResponseWriter, r *http.Request) bool {
	switch {
	case h.host != "" && !KnownHost(r.Host, h.host) && !isNodes(r):
		h.refuse(w, r, http.StatusMisdirectedRequest, "host: want a loopback address or "+h.host+" while no token is asked for")
	case !SameOrigin(r):
		h.refuse(w, r, http.StatusForbidden, "origin: want no page of another site")
	default:
		return true
	}
	return false
}

// isNodes reports whether a request is a node's. These name the backend as their proxy's cluster does.
// A browser tells the origin of whatever page posts.
func isNodes(r *http.Request) bool {
	return r.URL.Path == wire.PushPath && r.Header.Get("Origin") == ""
}

// KnownHost reports whether a request's host is the address at which a server listens, or a loopback
// one. Another site's name that resolves to a loopback address is neither, and does not make the
// server that site's.
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

// SameOrigin reports whether a request comes from no page, or from one of its own host and port.
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
