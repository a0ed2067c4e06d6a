// Package limithttp limits requests to a net/http server by package ratelimit. Clients read the
// same header fields, and the same refusals, as from Weir's plugin.
//
// [Middleware] has a handler serve what limits allow. A function of the program says which
// rules a request is for, by which key, and what it costs.
package limithttp

import (
	"io"
	"net/http"

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
	// XRateLimit stands for X-RateLimit-Limit, -Remaining and -Reset, of the tightest limit.
	XRateLimit Headers = Headers(fields.XRateLimit)
	// RetryAfter stands for Retry-After, on refusals.
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

// Demands says what a request asks of which rules. A request that asks nothing of any is served as
// if there was no middleware.
type Demands func(*http.Request) []ratelimit.Demand

// Options change how a middleware works. The zero value does as the plugin does by default.
type Options struct {
	// Omit are headers not to send. A refusal has x-envoy-ratelimited all the same.
	Omit Headers
	// Reset is the unit of X-RateLimit-Reset.
	Reset ResetUnit
	// Refused answers requests that were refused; if it is nil, a problem document of status 429
	// does. The headers are there already.
	Refused http.Handler
	// Failed answers requests that could not be decided, as [ratelimit.Decide] says: the
	// namespace is closed, or the client did not wait for the backend. If it is nil, status 503
	// does.
	Failed func(http.ResponseWriter, *http.Request, error)
}

// Middleware returns a function that wraps a handler so that it serves what limits allow.
//
// Headers of the decision replace those of the same names that the handler sets. A handler that
// hijacks the connection finds them in the response writer's Header.
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
	defer release()
	if err != nil {
		m.failed(w, r, err)
		return
	}
	h := headers{to: w.Header()}
	m.writer.Write(&d, h.add)
	if !d.Allowed {
		next = m.refused
	}
	// Early: whoever sends the header past the hooks does so with the fields.
	h.set()
	next.ServeHTTP(h.hook(w), r)
	h.final()
}

func refuse(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", fields.ProblemType)
	w.WriteHeader(http.StatusTooManyRequests)
	_, _ = io.WriteString(w, fields.Problem(http.StatusTooManyRequests)) // the client may be gone
}

func unavailable(w http.ResponseWriter, _ *http.Request, _ error) {
	http.Error(w, http.StatusText(http.StatusServiceUnavailable), http.StatusServiceUnavailable)
}

// headers replace those that the response's handler sets.
type headers struct {
	to   http.Header
	list []header
	sent bool // with all that the response has
}

type header struct {
	name  string   // canonical
	value []string // one, without room for another
}

func (h *headers) add(name string, value []byte) {
	h.list = append(h.list, header{http.CanonicalHeaderKey(name), []string{string(value)}})
}

func (h *headers) set() {
	for i := range h.list {
		h.to[h.list[i].name] = h.list[i].value
	}
}

// final sets the headers if the response's are about to be sent.
func (h *headers) final() {
	if !h.sent {
		h.sent = true
		h.set()
	}
}

// hook has headers set last, by whatever call they are sent.
func (h *headers) hook(w http.ResponseWriter) http.ResponseWriter {
	return httpsnoop.Wrap(w, httpsnoop.Hooks{
		WriteHeader: func(send httpsnoop.WriteHeaderFunc) httpsnoop.WriteHeaderFunc {
			return func(status int) {
				// The others of 1xx only come before the response.
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
		FlushError: func(flush httpsnoop.FlushErrorFunc) httpsnoop.FlushErrorFunc {
			return func() error { h.final(); return flush() }
		},
	})
}

// ClientIP returns a part of a key: the network of the client's address, as the selector client_ip
// of the plugin's configuration gives it, with so many bits of an IPv4 or of an IPv6 address. 32
// and 64 are usual. The part is the bytes of an address, and no text.
//
// The address is the request's RemoteAddr. Behind a proxy that is the proxy's, unless something
// before has set it to the address that a trusted header tells.
func ClientIP(r *http.Request, ipv4Prefix, ipv6Prefix int) string {
	var memory [16]byte
	return string(clientip.Network([]byte(r.RemoteAddr), ipv4Prefix, ipv6Prefix, &memory))
}
