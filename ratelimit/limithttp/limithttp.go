// Package limithttp limits the requests to a net/http server by package ratelimit. Clients get the
// same header fields and refusals as from Weir's plugin.
//
// [Middleware] passes the allowed requests to a handler. A function of the program says which rules
// apply to a request, its keys, and its costs.
package limithttp

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"

	"github.com/felixge/httpsnoop"

	"weir/internal/clientip"
	"weir/internal/fields"
	"weir/ratelimit"
	"weir/ratelimit/internal/answer"
)

// Headers is a set of response headers.
type Headers uint8

const (
	// RateLimit stands for RateLimit-Policy and RateLimit, which list every limit.
	RateLimit Headers = Headers(fields.RateLimit)
	// XRateLimit stands for X-RateLimit-Limit, -Remaining and -Reset, which describe the tightest
	// limit.
	XRateLimit Headers = Headers(fields.XRateLimit)
	// RetryAfter stands for Retry-After, which only refusals have.
	RetryAfter Headers = Headers(fields.RetryAfter)
)

// ResetUnit is the unit of X-RateLimit-Reset.
type ResetUnit uint8

const (
	// Seconds counts seconds from now.
	Seconds ResetUnit = ResetUnit(fields.Seconds)
	// Epoch is Unix time in seconds.
	Epoch ResetUnit = ResetUnit(fields.Epoch)
	// Milliseconds counts milliseconds from now.
	Milliseconds ResetUnit = ResetUnit(fields.Milliseconds)
)

// Demands returns what a request takes from which rules. A request without demands passes as if
// there were no middleware.
type Demands func(*http.Request) []ratelimit.Demand

// Options configure a middleware. The zero value has the plugin's defaults.
type Options struct {
	// Omit are headers not to send. Refusals have x-envoy-ratelimited all the same.
	Omit Headers
	// Reset is the unit of X-RateLimit-Reset.
	Reset ResetUnit
	// Refused answers refused requests; nil means a problem document with status 429, and gRPC's
	// RESOURCE_EXHAUSTED for its calls. The headers
	// of the decision are set before.
	Refused http.Handler
	// Failed answers requests that [ratelimit.Decide] returned an error for: the namespace is
	// closed, the client left while the request waited for the backend, or the demands are invalid.
	// nil means status 503.
	Failed func(http.ResponseWriter, *http.Request, error)
}

// Middleware returns a function that wraps a handler and passes only allowed requests to it.
//
// The decision's headers replace headers of the same names that the handler sets. A handler that
// hijacks the connection finds them in the response writer's Header. Such a request holds its places
// in flight until the connection is closed, as a WebSocket's does in the plugin.
func Middleware(demands Demands, o Options) func(http.Handler) http.Handler {
	m := &middleware{demands: demands, refused: o.Refused, failed: o.Failed, writer: answer.NewWriter(fields.Set(o.Omit), fields.ResetUnit(o.Reset))}
	if m.refused == nil {
		m.refused = http.HandlerFunc(refuse)
	}
	if m.failed == nil {
		m.failed = unavailable
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { m.serve(w, r, next) })
	}
}

type middleware struct {
	demands Demands
	refused http.Handler
	failed  func(http.ResponseWriter, *http.Request, error)
	writer  *answer.Writer
}

func (m *middleware) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	demands := m.demands(r)
	if len(demands) == 0 {
		next.ServeHTTP(w, r)
		return
	}
	release, d, err := ratelimit.Acquire(r.Context(), demands...)
	h := headers{to: w.Header(), release: release}
	defer h.end()
	if err != nil {
		m.failed(w, r, err)
		return
	}
	m.writer.Write(&d, h.add)
	if !d.Allowed {
		next = m.refused
	}
	// Set before the handler runs, for writers that send the header past the hooks.
	h.set()
	next.ServeHTTP(h.hook(w), r)
	h.final()
}

func refuse(w http.ResponseWriter, r *http.Request) {
	if contentType := r.Header.Get("Content-Type"); contentType == "application/grpc" || strings.HasPrefix(contentType, "application/grpc+") {
		// Trailers-Only, as from the plugin: of anything else a client makes another status.
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("Grpc-Status", "8") // RESOURCE_EXHAUSTED
		w.Header().Set("Grpc-Message", fields.Exceeded)
		return
	}
	w.Header().Set("Content-Type", fields.ProblemType)
	w.WriteHeader(http.StatusTooManyRequests)
	_, _ = io.WriteString(w, fields.Problem(http.StatusTooManyRequests, "")) // the client may be gone
}

func unavailable(w http.ResponseWriter, _ *http.Request, _ error) {
	http.Error(w, http.StatusText(http.StatusServiceUnavailable), http.StatusServiceUnavailable)
}

// headers are the decision's, which replace those that the handler sets.
type headers struct {
	to   http.Header
	list []header
	sent bool // whether they are final
	// release gives the request's places back. hijacked means that the connection does so.
	release  func()
	hijacked bool
}

// end ends the request, unless its connection lives on.
func (h *headers) end() {
	if !h.hijacked {
		h.release()
	}
}

// hijackedConn is a connection that holds a request's places until it is closed.
type hijackedConn struct {
	net.Conn
	release func()
}

// Close implements net.Conn.
func (c *hijackedConn) Close() error {
	defer c.release()
	return c.Conn.Close()
}

// CloseWrite closes the half that sends, which reverse proxies look for.
func (c *hijackedConn) CloseWrite() error {
	if conn, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return conn.CloseWrite()
	}
	return errors.ErrUnsupported
}

// NetConn returns the connection that a handler would have got without the middleware.
func (c *hijackedConn) NetConn() net.Conn { return c.Conn }

type header struct {
	name  string   // canonical
	value []string // one element, with no capacity for a second
}

func (h *headers) add(name string, value []byte) {
	h.list = append(h.list, header{http.CanonicalHeaderKey(name), []string{string(value)}})
}

func (h *headers) set() {
	for i := range h.list {
		h.to[h.list[i].name] = h.list[i].value
	}
}

// final sets the headers just before the response's are sent.
func (h *headers) final() {
	if !h.sent {
		h.sent = true
		h.set()
	}
}

// hook returns a writer that sets the headers last, whatever call sends them.
func (h *headers) hook(w http.ResponseWriter) http.ResponseWriter {
	return httpsnoop.Wrap(withHijack(w), httpsnoop.Hooks{
		WriteHeader: func(send httpsnoop.WriteHeaderFunc) httpsnoop.WriteHeaderFunc {
			return func(status int) {
				// Other 1xx statuses only precede the response.
				if status >= 200 || status == http.StatusSwitchingProtocols {
					h.final()
				}
				send(status)
			}
		},
		Write: func(write httpsnoop.WriteFunc) httpsnoop.WriteFunc {
			return func(b []byte) (int, error) { h.final(); return write(b) }
		},
		WriteString: func(write httpsnoop.WriteStringFunc) httpsnoop.WriteStringFunc {
			return func(s string) (int, error) { h.final(); return write(s) }
		},
		ReadFrom: func(read httpsnoop.ReadFromFunc) httpsnoop.ReadFromFunc {
			return func(from io.Reader) (int64, error) { h.final(); return read(from) }
		},
		Flush: func(flush httpsnoop.FlushFunc) httpsnoop.FlushFunc {
			return func() { h.final(); flush() }
		},
		Hijack: func(hijack httpsnoop.HijackFunc) httpsnoop.HijackFunc {
			return func() (net.Conn, *bufio.ReadWriter, error) {
				conn, buffer, err := hijack()
				if err != nil {
					return conn, buffer, err
				}
				h.hijacked = true
				return &hijackedConn{conn, h.release}, buffer, nil
			}
		},
		FlushError: func(flush httpsnoop.FlushErrorFunc) httpsnoop.FlushErrorFunc {
			return func() error { h.final(); return flush() }
		},
	})
}

// withHijack returns a writer with Hijack if only one behind w has it, or else its hook would be passed over.
func withHijack(w http.ResponseWriter) http.ResponseWriter {
	if _, ok := w.(http.Hijacker); ok || !hijacks(w) {
		return w
	}
	if _, ok := w.(http.Flusher); ok {
		return flusher{hijacker{w}}
	}
	return hijacker{w}
}

// hijacks reports whether a writer has Hijack, or unwraps to one that has.
func hijacks(w http.ResponseWriter) bool {
	if _, ok := w.(http.Hijacker); ok {
		return true
	}
	u, ok := w.(interface{ Unwrap() http.ResponseWriter })
	return ok && hijacks(u.Unwrap())
}

// hijacker is a writer with the Hijack of one behind it.
type hijacker struct{ http.ResponseWriter }

// Unwrap leads to the writer's other methods.
func (h hijacker) Unwrap() http.ResponseWriter { return h.ResponseWriter }

// Hijack implements http.Hijacker.
func (h hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return http.NewResponseController(h.ResponseWriter).Hijack()
}

// flusher is a hijacker whose writer flushes.
type flusher struct{ hijacker }

// Flush implements http.Flusher.
func (f flusher) Flush() { _ = f.FlushError() }

// FlushError is Flush with its error, for http.ResponseController.
func (f flusher) FlushError() error { return http.NewResponseController(f.ResponseWriter).Flush() }

// ClientIP returns a part of a key: the network of the client's address, as the plugin's selector
// client_ip gives it. The prefixes say how many bits of an IPv4 and of an IPv6 address to keep; 32
// and 64 are usual. The part has the raw bytes of the address, not text.
//
// The address is the request's RemoteAddr. Behind a proxy that is the proxy's address, unless an
// earlier handler has replaced it by that of a trusted header.
func ClientIP(r *http.Request, ipv4Prefix, ipv6Prefix int) string {
	var memory [16]byte
	return string(clientip.Network([]byte(r.RemoteAddr), ipv4Prefix, ipv6Prefix, &memory))
}
