// Package transport has the transport by which programs reach a backend.
package transport

import (
	"crypto/tls"
	"net"
	"net/http"
	"time"
)

const (
	// A connection of HTTP/2 that brings nothing for quiet is pinged, and closed unless an answer comes
	// within patience. Otherwise requests would go on to use a connection whose other end is gone, until
	// the system gives it up after a quarter of an hour.
	quiet    = 3 * time.Second
	patience = 2 * time.Second
	// mostIdle is how many connections of HTTP/1.1 stay open. The usual two would make nearly each of
	// several requests at once wait for a new connection.
	mostIdle = 64
)

// New returns a transport with the settings of http.DefaultTransport, or Go's own if a program has
// replaced that by another type. config configures TLS unless it is nil.
func New(config *tls.Config) *http.Transport {
	t := &http.Transport{
		Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, MaxIdleConns: 100, IdleConnTimeout: 90 * time.Second,
		DialContext:         (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		TLSHandshakeTimeout: 10 * time.Second,
	}
	if usual, ok := http.DefaultTransport.(*http.Transport); ok {
		t = usual.Clone()
	}
	t.MaxConnsPerHost, t.ResponseHeaderTimeout = 0, 0 // polls wait for half a minute, and would keep pushes from a connection
	if t.HTTP2 == nil {
		t.HTTP2 = &http.HTTP2Config{SendPingTimeout: quiet, PingTimeout: patience}
	}
	t.MaxIdleConnsPerHost = max(t.MaxIdleConnsPerHost, mostIdle)
	if config != nil {
		t.TLSClientConfig = config.Clone()
	}
	return t
}
