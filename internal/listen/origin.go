package listen

import (
	"net"
	"net/http"
	"net/url"
	"strings"
)

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
