package limithttp_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/http/httputil"
	"net/textproto"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"weir/config"
	"weir/internal/must"
	"weir/ratelimit"
	"weir/ratelimit/limithttp"
	"weir/window"
	"weir/window/windowtest"
)

// day is the beginning of a day, and of a week.
var day = time.Unix(1_767_571_200, 0)

// program is a server that limits its requests.
type program struct {
	*ratelimit.Namespace
	nanos atomic.Int64 // of the clock
}

func newProgram(t testing.TB, rules ...ratelimit.Rule) *program {
	t.Helper()
	p := &program{}
	p.set(day)
	p.Namespace = must.Get(ratelimit.NewNamespace(ratelimit.Options{
		Name: "shop", Rules: rules, Now: func() time.Time { return time.Unix(0, p.nanos.Load()) },
	}))(t)
	return p
}

func (p *program) set(now time.Time) { p.nanos.Store(now.UnixNano()) }

func (p *program) limiter(t testing.TB, rule string) *ratelimit.Limiter {
	t.Helper()
	return must.Get(p.Limiter(rule))(t)
}

// each returns demands of a hit for every request, on a rule without a key.
func (p *program) each(t testing.TB, rule string) limithttp.Demands {
	l := p.limiter(t, rule)
	return func(*http.Request) []ratelimit.Demand { return []ratelimit.Demand{l.Demand(nil, 1)} }
}

// limitsOf returns a configuration's limits as a program makes them.
func limitsOf(limits []window.Limit) (made []ratelimit.Limit) {
	for i := range limits {
		l := &limits[i]
		width, precision := time.Duration(l.Width), time.Duration(l.Precision)
		made = append(made, map[window.Kind]ratelimit.Limit{
			window.SlidingWindow:  ratelimit.SlidingWindow(l.Max, width),
			window.SlidingBuckets: ratelimit.SlidingBuckets(l.Max, width, precision),
			window.FixedWindow:    ratelimit.FixedWindow(l.Max, width),
			window.FirstHitWindow: ratelimit.FirstHitWindow(l.Max, width),
			window.TokenBucket:    ratelimit.TokenBucket(l.Max, width, l.Burst),
		}[l.Kind])
	}
	return made
}

func twoASecond() ratelimit.Rule {
	return ratelimit.Rule{Name: "all", Limits: []ratelimit.Limit{ratelimit.FixedWindow(2, time.Second)}}
}

// limited has a handler serve two requests a second.
func limited(t *testing.T, handler http.HandlerFunc) http.Handler {
	t.Helper()
	return limithttp.Middleware(newProgram(t, twoASecond()).each(t, "all"), limithttp.Options{})(handler)
}

// serve starts a server that closes with the test.
func serve(t *testing.T, handler http.Handler) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server
}

var ok = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "served") })

// want checks headers given as lines like "retry-after: 1". A header without a value must be
// absent.
func want(t *testing.T, what string, got http.Header, lines string) {
	t.Helper()
	for line := range strings.Lines(lines) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		value = strings.TrimSpace(value)
		values := got.Values(name)
		switch {
		case name == "", value == "" && len(values) == 0, len(values) == 1 && values[0] == value:
		default:
			t.Errorf("%s: %s: got %q, want %q", what, name, values, value)
		}
	}
}

// The vectors have decisions of the plugin with its headers. The middleware gives the same.
func TestVectors(t *testing.T) {
	for _, vector := range windowtest.Vectors(t) {
		c := must.Get(config.Parse(fmt.Appendf(nil, `{"rules": [{"name": "r", "limits": %s}]}`, vector.Limits)))(t)
		p := newProgram(t, ratelimit.Rule{Name: "r", Limits: limitsOf(c.Rules[0].Limits)})
		rule := p.limiter(t, "r")
		var step windowtest.Step
		handler := limithttp.Middleware(func(*http.Request) []ratelimit.Demand {
			return []ratelimit.Demand{rule.Demand(ratelimit.Key{step.Key}, step.Cost)}
		}, limithttp.Options{})(ok)
		for i := range vector.Steps {
			step = vector.Steps[i]
			p.set(step.Time(t, day))
			what := fmt.Sprintf("%s, step %d", vector.Name, i)
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
			status, refused := http.StatusOK, ""
			if !step.Allowed {
				status, refused = http.StatusTooManyRequests, "true"
			}
			must.Equal(t, w.Code, status, "%s: status", what)
			want(t, what, w.Header(), step.Fields()+"x-envoy-ratelimited: "+refused)
		}
	}
}

// The answers equal those of the plugin's TestHeaderSets and TestRejection.
func TestAnswers(t *testing.T) {
	p := newProgram(t, twoASecond(), ratelimit.Rule{
		Name: "per-user", Limits: []ratelimit.Limit{ratelimit.SlidingWindow(100, time.Minute), ratelimit.TokenBucket(40, time.Minute, 5)},
	})
	all, perUser := p.limiter(t, "all"), p.limiter(t, "per-user")
	server := serve(t, limithttp.Middleware(func(r *http.Request) []ratelimit.Demand {
		if r.URL.Path == "/free" {
			return nil
		}
		return []ratelimit.Demand{
			perUser.Demand(ratelimit.Key{r.Header.Get("x-user")}, 1),
			all.Demand(nil, 1),
		}
	}, limithttp.Options{})(ok))
	p.set(day.Add(250 * time.Millisecond))

	for range 2 {
		get(t, server.Client(), server.URL)
	}
	refused, body := get(t, server.Client(), server.URL)
	must.Equal(t, refused.StatusCode, 429, "")
	must.Equal(t, body, `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Rate limit exceeded","status":429}`, "")
	const policy = `ratelimit-policy: "per-user";q=100;w=60, "per-user.2";q=5, "all";q=2;w=1`
	want(t, "refused", refused.Header, policy+`
		ratelimit: "per-user";r=98;t=90, "per-user.2";r=3;t=2, "all";r=0;t=1
		x-ratelimit-limit: 2
		x-ratelimit-remaining: 0
		x-ratelimit-reset: 1
		retry-after: 1
		x-envoy-ratelimited: true
		content-type: application/problem+json
	`)
	free, _ := get(t, server.Client(), server.URL+"/free")
	want(t, "no rule", free.Header, "ratelimit-policy:\nratelimit:\nx-ratelimit-limit:\nx-ratelimit-remaining:\nx-ratelimit-reset:\nretry-after:\n")

	p.set(day.Add(time.Second))
	allowed, body := get(t, server.Client(), server.URL)
	must.Equal(t, allowed.StatusCode, 200, "")
	must.Equal(t, body, "served", "")
	want(t, "allowed", allowed.Header, policy+`
		ratelimit: "per-user";r=97;t=79, "per-user.2";r=2;t=1, "all";r=1;t=1
		x-ratelimit-limit: 2
		x-ratelimit-remaining: 1
		x-ratelimit-reset: 1
		retry-after:
		x-envoy-ratelimited:
	`)
}

func get(t *testing.T, client *http.Client, address string) (*http.Response, string) {
	t.Helper()
	request := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil))(t)
	return do(t, client, request)
}

func do(t *testing.T, client *http.Client, request *http.Request) (*http.Response, string) {
	t.Helper()
	r := must.Get(client.Do(request))(t)
	defer r.Body.Close()
	body := must.Get(io.ReadAll(r.Body))(t)
	return r, string(body)
}

func TestOptions(t *testing.T) {
	for _, test := range []struct {
		o                limithttp.Options
		allowed, refused string
	}{
		{limithttp.Options{Omit: limithttp.RateLimit | limithttp.XRateLimit | limithttp.RetryAfter},
			"ratelimit:\nratelimit-policy:\nx-ratelimit-limit:\n", "ratelimit:\nx-ratelimit-limit:\nretry-after:\nx-envoy-ratelimited: true"},
		{limithttp.Options{Omit: limithttp.XRateLimit},
			"ratelimit-policy: \"all\";q=2;w=1\nx-ratelimit-limit:\nx-ratelimit-remaining:\nx-ratelimit-reset:", "x-ratelimit-limit:\nretry-after: 1"},
		{limithttp.Options{Omit: limithttp.RateLimit, Reset: limithttp.Milliseconds},
			"ratelimit-policy:\nratelimit:\nx-ratelimit-reset: 750", "x-ratelimit-reset: 750\nretry-after: 1"},
		{limithttp.Options{Reset: limithttp.Epoch}, "x-ratelimit-reset: 1767571201", "x-ratelimit-reset: 1767571201"},
		{limithttp.Options{Refused: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("retry-after", "later")
			http.Error(w, "slower", http.StatusServiceUnavailable)
		})}, "ratelimit: \"all\";r=1;t=1", "ratelimit: \"all\";r=0;t=1\nretry-after: 1\ncontent-type: text/plain; charset=utf-8"},
	} {
		p := newProgram(t, twoASecond())
		p.set(day.Add(250 * time.Millisecond))
		handler := limithttp.Middleware(p.each(t, "all"), test.o)(ok)
		for i, lines := range []string{test.allowed, "", test.refused} {
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
			want(t, fmt.Sprintf("%+v, request %d", test.o, i), w.Result().Header, lines)
		}
	}
}

// Headers show a limit with its quota, and with a window if that is a whole number of seconds.
func TestPolicy(t *testing.T) {
	p := newProgram(t, ratelimit.Rule{Name: "all", Limits: []ratelimit.Limit{
		ratelimit.SlidingLog(100, 90*time.Second), ratelimit.TokenBucket(10, time.Minute, 5), ratelimit.TokenBucket(7, time.Second, 5),
		ratelimit.FixedWindow(3, time.Millisecond), ratelimit.CalendarWindow(9, ratelimit.Month, "UTC", ratelimit.Anchor{}),
		ratelimit.TokenBucket(0, time.Second, 5),
	}})
	w := httptest.NewRecorder()
	limithttp.Middleware(p.each(t, "all"), limithttp.Options{})(ok).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	want(t, "policy", w.Header(), `ratelimit-policy: "all";q=100;w=90, "all.2";q=5;w=30, "all.3";q=5, "all.4";q=3, "all.5";q=9, "all.6";q=0`)
}

// A request without a decision is not served.
func TestFailures(t *testing.T) {
	p := newProgram(t, twoASecond())
	must.OK(t, p.Close(context.Background()))
	request := httptest.NewRequest(http.MethodGet, "/", nil)
	never := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("served") })
	w := httptest.NewRecorder()
	limithttp.Middleware(p.each(t, "all"), limithttp.Options{})(never).ServeHTTP(w, request)
	must.Equal(t, w.Code, http.StatusServiceUnavailable, "")
	want(t, "closed", w.Header(), "ratelimit:\nx-envoy-ratelimited:\n")

	var failed error
	o := limithttp.Options{Failed: func(_ http.ResponseWriter, _ *http.Request, err error) { failed = err }}
	limithttp.Middleware(p.each(t, "all"), o)(never).ServeHTTP(httptest.NewRecorder(), request)
	must.Is(t, failed, ratelimit.ErrClosed, "")
}

// silent is a backend that never answers.
type silent struct{}

func (silent) Push(ctx context.Context, _ []byte) ([]byte, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// If a client leaves while its request waits for the backend, the request is not served.
func TestClientGone(t *testing.T) {
	n := must.Get(ratelimit.NewNamespace(ratelimit.Options{
		Name: "shop", Rules: []ratelimit.Rule{twoASecond()}, Backend: silent{}, Exact: true, Timeout: time.Hour,
	}))(t)
	p := program{Namespace: n}
	ctx, leave := context.WithCancel(t.Context())
	leave()
	// Hits without an answer can't be pushed any more, so there is nothing to wait for.
	t.Cleanup(func() { n.Close(ctx) })
	var failed error
	handler := limithttp.Middleware(p.each(t, "all"), limithttp.Options{
		Failed: func(_ http.ResponseWriter, _ *http.Request, err error) { failed = err },
	})(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("served") }))
	handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
	must.Is(t, failed, context.Canceled, "")
}

// unwrapped is a response writer whose further methods are only reachable through Unwrap.
type unwrapped struct{ w http.ResponseWriter }

func (u unwrapped) Header() http.Header         { return u.w.Header() }
func (u unwrapped) Write(b []byte) (int, error) { return u.w.Write(b) }
func (u unwrapped) WriteHeader(status int)      { u.w.WriteHeader(status) }
func (u unwrapped) Unwrap() http.ResponseWriter { return u.w }

// However a handler sends its header, it has the limit's fields, which replace the handler's fields
// of the same names.
func TestHeadersReplace(t *testing.T) {
	upstream := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("RateLimit", `"upstream";r=1`)
		w.Header().Set("X-RateLimit-Limit", "1")
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(http.StatusTeapot)
	}))
	target := must.Get(url.Parse(upstream.URL))(t)
	set := func(w http.ResponseWriter) {
		w.Header().Set("RateLimit", `"handler";r=1`)
		w.Header().Add("X-Ratelimit-Limit", "1")
		w.Header().Add("X-Ratelimit-Limit", "2")
		w.Header().Del("X-Ratelimit-Remaining")
	}
	fails := func(err error) {
		must.Report(t, err)
	}
	wrote := func(_ int, err error) { fails(err) }
	for name, handler := range map[string]http.HandlerFunc{
		"nothing":      func(http.ResponseWriter, *http.Request) {},
		"headers only": func(w http.ResponseWriter, _ *http.Request) { set(w) },
		"status":       func(w http.ResponseWriter, _ *http.Request) { set(w); w.WriteHeader(http.StatusNoContent) },
		"write":        func(w http.ResponseWriter, _ *http.Request) { set(w); fmt.Fprint(w, "body") },
		"write string": func(w http.ResponseWriter, _ *http.Request) { set(w); wrote(io.WriteString(w, "body")) },
		"copy": func(w http.ResponseWriter, _ *http.Request) {
			set(w)
			_, err := io.Copy(w, io.LimitReader(strings.NewReader("body"), 3))
			fails(err)
		},
		"flush": func(w http.ResponseWriter, _ *http.Request) {
			set(w)
			w.(http.Flusher).Flush()
			set(w) // too late
			fmt.Fprint(w, "body")
		},
		"flush by controller": func(w http.ResponseWriter, _ *http.Request) {
			set(w)
			fails(http.NewResponseController(w).Flush())
			fmt.Fprint(w, "body")
		},
		"deadlines": func(w http.ResponseWriter, _ *http.Request) {
			set(w)
			fails(http.NewResponseController(w).SetWriteDeadline(time.Now().Add(time.Minute)))
		},
		"early hints": func(w http.ResponseWriter, _ *http.Request) {
			set(w)
			w.WriteHeader(http.StatusEarlyHints)
			set(w)
			w.WriteHeader(http.StatusOK)
		},
		"proxy": httputil.NewSingleHostReverseProxy(target).ServeHTTP,
	} {
		for _, version := range []int{1, 2} {
			p := newProgram(t, ratelimit.Rule{Name: "all", Limits: []ratelimit.Limit{ratelimit.FixedWindow(9, time.Minute)}})
			server := httptest.NewUnstartedServer(limithttp.Middleware(p.each(t, "all"), limithttp.Options{})(handler))
			server.EnableHTTP2 = version == 2
			server.StartTLS()
			r, _ := get(t, server.Client(), server.URL)
			must.Equal(t, r.ProtoMajor, version, "HTTP/")
			want(t, fmt.Sprintf("%s, HTTP/%d", name, version), r.Header, `
				ratelimit-policy: "all";q=9;w=60
				ratelimit: "all";r=8;t=60
				x-ratelimit-limit: 9
				x-ratelimit-remaining: 8
				x-ratelimit-reset: 60
			`)
			server.Close()
		}
	}
}

// Headers that only a wrapped writer can send have the limit's fields too.
func TestUnwrap(t *testing.T) {
	flushes := limited(t, func(w http.ResponseWriter, _ *http.Request) {
		must.Report(t, http.NewResponseController(w).Flush())
	})
	server := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { flushes.ServeHTTP(unwrapped{w}, r) }))
	r, _ := get(t, server.Client(), server.URL)
	want(t, "unwrapped", r.Header, "ratelimit: \"all\";r=1;t=1\nx-ratelimit-limit: 2")
}

// An early hint has only fields of the handler that the response has too.
func TestEarlyHints(t *testing.T) {
	server := serve(t, limited(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Link", "</style.css>")
		w.WriteHeader(http.StatusEarlyHints)
	}))
	hints := 0
	trace := &httptrace.ClientTrace{Got1xxResponse: func(status int, h textproto.MIMEHeader) error {
		hints++
		want(t, "hints", http.Header(h), "link: </style.css>")
		return nil
	}}
	request := must.Get(http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), trace), http.MethodGet, server.URL, nil))(t)
	r, _ := do(t, server.Client(), request)
	want(t, "response", r.Header, "link: </style.css>\nratelimit: \"all\";r=1;t=1")
	must.Equal(t, hints, 1, "hints")
}

// A handler can hijack the connection and answer with the limit's fields.
func TestHijack(t *testing.T) {
	server := serve(t, limited(t, func(w http.ResponseWriter, _ *http.Request) {
		var header bytes.Buffer
		must.Report(t, w.Header().Write(&header))
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nConnection: close\r\n%s\r\nhijacked", &header)
	}))
	r, body := get(t, server.Client(), server.URL)
	must.Equal(t, body, "hijacked", "")
	want(t, "hijacked", r.Header, "ratelimit: \"all\";r=1;t=1\nx-ratelimit-remaining: 1")
}

// A hijacked connection holds its place in flight until it is closed, whether the handler closes it or
// another goroutine after the handler has returned, and however far behind others' writers it is.
func TestHijackedConnectionsHoldTheirPlaces(t *testing.T) {
	for name, behind := range map[string]func(w *hijackable) http.ResponseWriter{
		"nothing":  func(w *hijackable) http.ResponseWriter { return w },
		"a writer": func(w *hijackable) http.ResponseWriter { return unwrapped{unwrapped{w}} },
		"a writer that flushes": func(w *hijackable) http.ResponseWriter {
			return struct {
				unwrapped
				http.Flusher
			}{unwrapped{w}, w}
		},
	} {
		t.Run(name, func(t *testing.T) { holdTheirPlaces(t, behind) })
	}
}

func holdTheirPlaces(t *testing.T, behind func(w *hijackable) http.ResponseWriter) {
	_, flushes := behind(&hijackable{}).(http.Flusher)
	l := must.Get(ratelimit.NewLimiter(ratelimit.InFlight(1)))(t)
	conns := make(chan net.Conn, 2)
	handler := limithttp.Middleware(func(*http.Request) []ratelimit.Demand { return []ratelimit.Demand{l.Demand(nil, 1)} }, limithttp.Options{})(http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			_, does := w.(http.Flusher)
			must.Equal(t, does, flushes, "whether the handler's writer flushes")
			conn, _, err := http.NewResponseController(w).Hijack()
			if r.URL.Path == "/fails" {
				return
			}
			if err != nil {
				t.Error(err)
				return
			}
			conns <- conn
		}))
	ask := func(path string) (status int) {
		t.Helper()
		mine, theirs := net.Pipe()
		t.Cleanup(func() { mine.Close() })
		w := &hijackable{ResponseRecorder: httptest.NewRecorder(), conn: theirs}
		if path == "/fails" {
			w.err = http.ErrHijacked
		}
		handler.ServeHTTP(behind(w), httptest.NewRequest(http.MethodGet, path, nil))
		return w.Code
	}
	must.EqualOrEnd(t, ask("/fails"), http.StatusOK, "the first")
	for i := range 2 {
		must.EqualOrEnd(t, ask("/"), http.StatusOK, "round %d", i)
		must.EqualOrEnd(t, len(conns), 1, "round %d: connections", i)
		must.Equal(t, ask("/"), http.StatusTooManyRequests, "round %d: a second beside one that is open", i)
		conn := <-conns
		for range 2 { // closed once more, it gives nothing back that others hold
			_ = conn.Close()
		}
	}
}

// hijackable is a recorder with a connection.
type hijackable struct {
	*httptest.ResponseRecorder
	conn net.Conn
	err  error
}

func (h *hijackable) Hijack() (net.Conn, *bufio.ReadWriter, error) { return h.conn, nil, h.err }

// A switch of protocols is a response.
func TestSwitchingProtocols(t *testing.T) {
	server := serve(t, limited(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "Upgrade")
		w.Header().Set("Upgrade", "echo")
		w.Header().Set("RateLimit", "handler")
		w.WriteHeader(http.StatusSwitchingProtocols)
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		conn.Close()
	}))
	request := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil))(t)
	request.Header.Set("Connection", "Upgrade")
	request.Header.Set("Upgrade", "echo")
	r, _ := do(t, server.Client(), request)
	must.Equal(t, r.StatusCode, http.StatusSwitchingProtocols, "")
	want(t, "switched", r.Header, "ratelimit: \"all\";r=1;t=1")
}

// A handler's writer has all abilities of the server's writer, and no others.
func TestWriterIsWhole(t *testing.T) {
	limited(t, func(w http.ResponseWriter, _ *http.Request) {
		_, hijacks := w.(http.Hijacker)
		must.Equal(t, hijacks, false, "whether a handler can hijack what has no connection")
	}).ServeHTTP(unwrapped{httptest.NewRecorder()}, httptest.NewRequest(http.MethodGet, "/", nil))
	server := serve(t, limited(t, func(w http.ResponseWriter, _ *http.Request) {
		_, reads := w.(io.ReaderFrom)
		_, writes := w.(io.StringWriter)
		_, hijacks := w.(http.Hijacker)
		_, flushes := w.(http.Flusher)
		fmt.Fprint(w, reads, writes, hijacks, flushes)
	}))
	_, body := get(t, server.Client(), server.URL)
	must.Equal(t, body, "true true true true", "")
}

func TestClientIP(t *testing.T) {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	for _, test := range []struct {
		address, want string
	}{
		{"192.0.2.77:1234", "\xc0\x00\x02\x00"},
		{"[2001:db8::1]:1234", "\x20\x01\x0d\xb8\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"},
		{"@", "@"},
	} {
		r.RemoteAddr = test.address
		must.Equal(t, limithttp.ClientIP(r, 24, 64), test.want, "%s", test.address)
	}
}

// nowhere is a response writer that keeps the header.
type nowhere http.Header

func (n nowhere) Header() http.Header       { return http.Header(n) }
func (nowhere) Write(b []byte) (int, error) { return len(b), nil }
func (nowhere) WriteHeader(int)             {}

func BenchmarkMiddleware(b *testing.B) {
	for _, bench := range []struct {
		name  string
		limit uint64
		omit  limithttp.Headers
	}{
		{"allowed", 1e15 - 1, 0},
		{"allowed, no header", 1e15 - 1, limithttp.RateLimit | limithttp.XRateLimit},
		{"refused", 0, 0},
	} {
		b.Run(bench.name, func(b *testing.B) {
			p := newProgram(b, ratelimit.Rule{Name: "all", Limits: []ratelimit.Limit{ratelimit.SlidingWindow(bench.limit, time.Minute)}})
			handler := limithttp.Middleware(p.each(b, "all"), limithttp.Options{Omit: bench.omit})(
				http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
			request, w := httptest.NewRequest(http.MethodGet, "/", nil), nowhere{}
			b.ReportAllocs()
			for b.Loop() {
				handler.ServeHTTP(w, request)
			}
		})
	}
}
