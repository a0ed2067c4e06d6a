// Package listen serves listeners within bounds that hold for all listeners of a process together: on
// connections, on the memory of requests that have not come whole, on headers, and on times.
// [Connections] has them, for HTTP and for gRPC.
package listen

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"weir/internal/panics"
)

const (
	// headerTimeout is how long a request's header may take, from its first byte or from the
	// beginning of the connection, and readTimeout how long its body may take besides.
	headerTimeout = 5 * time.Second
	readTimeout   = 10 * time.Second
	// WriteTimeout is how long an answer may take, unless its handler sets another deadline.
	WriteTimeout = 30 * time.Second
	idleTimeout  = 5 * time.Minute
	// maxHeader bounds the header of a request, in bytes.
	maxHeader = 16 << 10
	// shutdownTimeout is how long requests may take to finish after ctx has ended.
	shutdownTimeout = 10 * time.Second
)

// Serve serves HTTP/1.1 and HTTP/2 on a listener until ctx ends. It uses no TLS unless the listener
// does. Afterwards it lets requests finish for up to 10 seconds. The connections of the listener
// are bounded, if it is one of [Connections.Bound]. Serve closes the listener; others may close it
// too once ctx has ended. It returns nil if ctx has ended and no request was cut off.
func Serve(ctx context.Context, l net.Listener, h http.Handler) error {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{
		Handler:           countingRequests(panics.Handler(h)),
		Protocols:         protocols,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      WriteTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		// WriteTimeout ends a stream by a frame, which can't be sent either on a connection that takes nothing.
		HTTP2:       &http.HTTP2Config{WriteByteTimeout: WriteTimeout},
		ConnState:   NoteState,
		ConnContext: noteConnection,
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	select {
	case <-ctx.Done():
	case err := <-served:
		// If the listener was closed because ctx ended, requests still get to finish.
		if ctx.Err() == nil {
			return fmt.Errorf("serve: %w", err)
		}
	}
	deadline, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	if err := server.Shutdown(deadline); err != nil {
		return errors.Join(fmt.Errorf("serve: requests cut off: %w", err), server.Close())
	}
	return nil
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
