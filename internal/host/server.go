package host

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

type workerKey struct{}

type exchangeKey struct{}

func (p *Proxy) initServer() {
	p.server = &http.Server{
		Handler:           p,
		Protocols:         new(http.Protocols),
		ReadHeaderTimeout: time.Minute,
		ConnState:         p.config.ConnState,
		ErrorLog:          slog.NewLogLogger(p.config.Logger.Handler(), slog.LevelDebug),
		// As in Envoy, a connection stays on its worker, with all its streams.
		ConnContext: func(ctx context.Context, _ net.Conn) context.Context {
			return context.WithValue(ctx, workerKey{}, p.nextWorker())
		},
	}
	p.server.Protocols.SetHTTP1(true)
	p.server.Protocols.SetUnencryptedHTTP2(true)
	p.reverse = httputil.ReverseProxy{
		Transport:      p.config.UpstreamTransport,
		FlushInterval:  -1,
		BufferPool:     bufferPool{},
		ErrorLog:       p.server.ErrorLog,
		Rewrite:        func(r *httputil.ProxyRequest) { exchangeOf(r.In).rewrite(r) },
		ModifyResponse: func(r *http.Response) error { return exchangeOf(r.Request).response(r) },
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			exchangeOf(r).upstreamFailed(w, r, err)
		},
	}
}

func (p *Proxy) nextWorker() *worker {
	return p.workers[(p.next.Add(1)-1)%uint64(len(p.workers))]
}

// Serve accepts connections, HTTP/1.1 and HTTP/2 without TLS, until Close; then it returns nil.
// Connections go to the workers in turn.
func (p *Proxy) Serve(l net.Listener) error {
	if err := p.server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// ServeHTTP serves one request. Under a server other than the proxy's own, each request goes to the
// next worker.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !p.inFlight.enter() {
		p.write(w, r, NewHeaders(":status", "503"), nil)
		return
	}
	defer p.inFlight.leave()
	worker, ok := r.Context().Value(workerKey{}).(*worker)
	if !ok {
		worker = p.nextWorker()
	}
	x := &exchange{proxy: p, worker: worker, changed: make(chan struct{}, 1), client: r.Context()}
	x.serve(w, r)
}

var (
	errUnavailable = errors.New("the worker's vm has failed")
	errLocalReply  = errors.New("local reply")
)

// exchange is one request on its way. Its stream belongs to the worker; the handler's goroutine
// owns the rest.
type exchange struct {
	proxy  *Proxy
	worker *worker
	stream *Stream // nil without plugin
	client context.Context
	// changed gets a token when the plugin may have continued or answered the stream.
	changed chan struct{}
	headers *Headers
	bodies  [2]bool // by Direction: whether the plugin wants to see the body, or the trailers behind it
	// ahead reads the body of a request whose headers may wait while the body goes to the plugin.
	// It is nil for all other requests.
	ahead *ahead
	// incoming has the client's trailers once its body has ended. trailers has the trailers for the
	// upstream, and answer has the upstream's.
	incoming *http.Request
	trailers http.Header
	answer   *http.Response
	// waited is how long the plugin has held the stream back, but for waits for the client.
	waited time.Duration
	// connected is this end of the connection to the upstream; nil without one.
	connected atomic.Pointer[string]
}

func exchangeOf(r *http.Request) *exchange { return r.Context().Value(exchangeKey{}).(*exchange) }

func (x *exchange) serve(w http.ResponseWriter, r *http.Request) {
	if strings.EqualFold(r.Header.Get("Expect"), "100-continue") {
		// Envoy too answers before the plugin has decided, unless proxy_100_continue is set.
		w.WriteHeader(http.StatusContinue)
		r.Header.Del("Expect")
	}
	x.headers = requestHeaders(r)
	defer x.close()
	// The upstream may answer before it has read the whole request. The writers of some other
	// servers can't do that.
	if err := http.NewResponseController(w).EnableFullDuplex(); err != nil {
		x.proxy.config.Logger.Debug("full duplex", slog.Any("error", err))
	}
	// A copy, made before anything reads the body: at its end, the server writes the client's
	// trailers into the request.
	forwarded := r.WithContext(context.WithValue(r.Context(), exchangeKey{}, x))
	body, err := x.request(r)
	if x.ahead != nil {
		defer x.ahead.stop() // without it the server would end a read that waits
	}
	if err != nil {
		cut := x.ahead != nil && r.ProtoMajor == 1 && !x.ahead.ended.Load()
		if cut {
			w.Header().Set("Connection", "close") // as Envoy does
		}
		x.reply(w, r, err)
		if cut {
			x.ahead.cut(http.NewResponseController(w))
		}
		return
	}
	if body != nil {
		forwarded.Body, forwarded.ContentLength, forwarded.Trailer = body, -1, nil
	}
	x.proxy.reverse.ServeHTTP(w, forwarded)
}

// request runs the request phase, and waits while the plugin pauses. body is the rest of the
// request after the plugin has seen it, or nil if the plugin doesn't look at the rest.
func (x *exchange) request(r *http.Request) (body io.ReadCloser, err error) {
	info := StreamInfo{
		Source:   x.proxy.source(r),
		Protocol: r.Proto,
		OnChange: x.signal,
	}
	if strings.HasPrefix(r.Proto, "HTTP/2") {
		info.Protocol = "HTTP/2"
	}
	if local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok {
		info.Destination = local.String()
	}
	end := r.Body == nil || r.Body == http.NoBody
	x.incoming, x.trailers = r, http.Header{}
	for name := range r.Trailer {
		x.trailers[name] = nil // announced by the client
	}
	filtered := &filteredBody{exchange: x, direction: Request, source: r.Body}
	err = x.phase(Request, filtered, func() (Action, error) {
		x.worker.reload()
		var err error
		if x.stream, err = x.worker.root.NewStream(info); err != nil {
			x.stream = nil
			return Pause, err
		}
		guest := &x.worker.vm.guest
		x.bodies = [2]bool{
			guest[onRequestBody] != nil || guest[onRequestTrailers] != nil, guest[onResponseBody] != nil || guest[onResponseTrailers] != nil,
		}
		action, err := x.stream.RequestHeaders(x.headers, end)
		if err == nil && action == Pause && !end && !x.stream.Stopped(Request) {
			x.ahead = readAhead(r.Body)
		}
		return action, err
	})
	x.proxy.process.count(errors.Is(err, errLocalReply), x.waited)
	if end || !x.bodies[Request] && x.ahead == nil {
		return nil, err
	}
	return filtered, err
}

// phase runs a callback on the worker, and waits until the plugin lets the direction continue. The
// error is errLocalReply, errUnavailable, or the client's when it leaves. If the VM fails
// meanwhile, the stream hangs until the client leaves, as in Envoy. body, unless it is nil, gets
// the part that was kept back. It also takes the parts that come while only the headers wait.
func (x *exchange) phase(d Direction, body *filteredBody, callback func() (Action, error)) error {
	for {
		var err error
		action, replied := Continue, false
		ran := x.worker.do(func() {
			// Another context may have answered the stream since its last callback.
			if x.stream == nil || x.stream.LocalReply() == nil {
				action, err = callback()
			}
			replied = x.stream != nil && x.stream.LocalReply() != nil
		})
		switch {
		case !ran:
			return errUnavailable
		case err != nil:
			return errors.Join(errUnavailable, err)
		case action == Continue && !replied:
			return nil
		}
		next, err := x.wait(d, body)
		if err != nil || next == nil {
			return err
		}
		callback = func() (Action, error) { return body.pass(*next) }
	}
}

// wait waits until the plugin lets a direction continue, or for the next part of a body that the
// plugin sees meanwhile.
func (x *exchange) wait(d Direction, body *filteredBody) (next *chunk, err error) {
	for {
		var state struct{ replied, paused, full bool }
		ran := x.worker.do(func() {
			s := x.stream
			state.replied = s.LocalReply() != nil
			state.paused = s.Paused(d) || state.replied && s.Paused(Response)
			state.full = s.Full(d)
			if !state.paused && !state.replied && body != nil {
				body.ready = append(body.ready, s.TakeBody(d)...)
			}
		})
		switch {
		case !ran:
			return nil, errUnavailable
		case state.paused:
		case state.replied:
			return nil, errLocalReply
		default:
			return nil, nil
		}
		var chunks <-chan chunk
		if d == Request && x.ahead != nil && body.err == nil && !state.full {
			chunks = x.ahead.chunks
		}
		began := time.Now()
		select {
		case <-x.changed:
			x.waited += time.Since(began)
		case c := <-chunks:
			return &c, nil
		case <-x.client.Done():
			return nil, x.client.Err()
		}
	}
}

func (x *exchange) signal() {
	select {
	case x.changed <- struct{}{}:
	default:
	}
}

// reply ends an exchange that does not go to the upstream.
func (x *exchange) reply(w http.ResponseWriter, r *http.Request, err error) {
	switch {
	case errors.Is(err, errLocalReply):
		l := x.stream.LocalReply()
		x.proxy.write(w, r, l.Headers, l.Body)
	case errors.Is(err, errUnavailable):
		x.proxy.write(w, r, NewHeaders(":status", "503"), nil)
	default:
		panic(http.ErrAbortHandler) // the client has gone
	}
}

// rewrite builds the request for the upstream from the headers after the plugin's changes.
func (x *exchange) rewrite(r *httputil.ProxyRequest) {
	out := r.Out
	if x.bodies[Request] || x.ahead != nil {
		out.Trailer = x.trailers
	}
	if u, err := url.ParseRequestURI(x.headers.Value(":path")); err == nil {
		out.URL.Path, out.URL.RawPath, out.URL.RawQuery = u.Path, u.RawPath, u.RawQuery
	}
	out = out.WithContext(httptrace.WithClientTrace(out.Context(), &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) {
		address := i.Conn.LocalAddr().String()
		x.connected.Store(&address)
	}}))
	r.Out = out
	r.SetURL(x.proxy.config.Upstream)
	upgrade := out.Header.Get("Upgrade")
	out.Method = x.headers.Value(":method")
	out.Host = x.headers.Value(":authority")
	out.Header = httpHeader(x.headers)
	if upgrade != "" {
		out.Header.Set("Connection", "Upgrade")
		out.Header.Set("Upgrade", upgrade)
	}
	if _, ok := out.Header["User-Agent"]; !ok {
		out.Header["User-Agent"] = nil // or else the transport sets its own
	}
	if x.bodies[Request] || x.ahead != nil {
		out.Header.Del("Content-Length")
	}
}

// response runs the response phase on an upstream's answer.
func (x *exchange) response(r *http.Response) error {
	if x.stream == nil {
		return nil
	}
	h := responseHeaders(r.StatusCode, r.Header)
	upgraded := r.StatusCode == http.StatusSwitchingProtocols
	end := !upgraded && (r.ContentLength == 0 || r.Request.Method == http.MethodHead)
	err := x.phase(Response, nil, func() (Action, error) { return x.stream.ResponseHeaders(h, end) })
	switch {
	case upgraded && err == nil:
		// The bytes that follow are no body, and the plugin sees none of them.
		upgrade := r.Header.Get("Upgrade")
		r.Header = httpHeader(h)
		r.Header.Set("Connection", "Upgrade")
		r.Header.Set("Upgrade", upgrade)
		return nil
	case errors.Is(err, errLocalReply) && !upgraded:
		l := x.stream.LocalReply()
		if err := r.Body.Close(); err != nil {
			return err
		}
		h = l.Headers
		r.Body = io.NopCloser(bytes.NewReader(l.Body))
		r.ContentLength = int64(len(l.Body))
		r.Trailer = nil
	case err != nil:
		return err // upstreamFailed answers
	case x.bodies[Response] && !end:
		x.answer = r
		r.Body = &filteredBody{exchange: x, direction: Response, source: r.Body}
		r.ContentLength = -1
		h.Del("content-length")
	}
	r.StatusCode = status(h)
	r.Header = httpHeader(h)
	return nil
}

// upstreamFailed answers for an upstream that did not, and runs the response phase on that answer,
// as for every local reply. If the error came from the response phase, it ends the exchange.
func (x *exchange) upstreamFailed(w http.ResponseWriter, r *http.Request, err error) {
	if x.client.Err() != nil {
		panic(http.ErrAbortHandler)
	}
	if errors.Is(err, errUnavailable) || errors.Is(err, errLocalReply) {
		x.reply(w, r, err)
		return
	}
	body := []byte("upstream connect error or disconnect/reset before headers. reset reason: connection failure")
	h := NewHeaders(":status", "503", "content-length", strconv.Itoa(len(body)), "content-type", "text/plain")
	if x.stream != nil {
		failed := func() (Action, error) {
			x.stream.failed = failedCall{details: "upstream_reset_before_response_started{connection_termination}"}
			if address := x.connected.Load(); address != nil {
				x.stream.failed.address = *address
			}
			return x.stream.ResponseHeaders(h, false)
		}
		if err := x.phase(Response, nil, failed); err != nil {
			x.reply(w, r, err)
			return
		}
	}
	x.proxy.write(w, r, h, body)
}

// close ends the stream once the worker gets to it.
func (x *exchange) close() {
	x.worker.post(func() {
		if x.stream != nil {
			x.stream.Close()
		}
	})
}

// chunk is the next part of a body, and the error of the read.
type chunk struct {
	data []byte
	err  error
}

// ahead reads a body while the exchange waits for other events too, one chunk ahead.
type ahead struct {
	chunks  chan chunk
	done    chan struct{}
	stop    func() // closes done
	stopped chan struct{}
	ended   atomic.Bool // there is no more to read
	rest    chunk       // of a chunk that Read has begun
}

func readAhead(source io.ReadCloser) *ahead {
	a := &ahead{chunks: make(chan chunk), done: make(chan struct{}), stopped: make(chan struct{})}
	a.stop = sync.OnceFunc(func() { close(a.done) })
	go func() {
		defer close(a.stopped)
		for {
			c := chunk{data: make([]byte, 32<<10)}
			var n int
			n, c.err = source.Read(c.data)
			c.data = c.data[:n]
			a.ended.Store(c.err != nil)
			select {
			case a.chunks <- c:
			case <-a.done:
				return
			}
			if c.err != nil {
				return
			}
		}
	}()
	return a
}

// lastRead is how long a client may go on sending after its answer. If the connection ended with
// unread bytes, the client would not see the answer.
const lastRead = 500 * time.Millisecond

// cut ends a body soon after the answer, on a connection that closes with it. Otherwise the server,
// and Close of the proxy, would wait for a client that may never send the rest.
func (a *ahead) cut(w *http.ResponseController) {
	a.stop()
	if w.Flush() == nil && w.SetReadDeadline(time.Now().Add(lastRead)) == nil {
		<-a.stopped // the server would lift the deadline from a read that still runs
	}
}

func (a *ahead) Read(p []byte) (int, error) {
	if len(a.rest.data) == 0 && a.rest.err == nil {
		select {
		case a.rest = <-a.chunks:
		case <-a.done:
			return 0, http.ErrBodyReadAfterClose
		}
	}
	n := copy(p, a.rest.data)
	if a.rest.data = a.rest.data[n:]; len(a.rest.data) > 0 {
		return n, nil
	}
	return n, a.rest.err
}

// filteredBody shows the plugin each part of a body before the part continues.
type filteredBody struct {
	exchange  *exchange
	direction Direction
	source    io.ReadCloser
	ready     []byte
	buffer    []byte
	err       error
}

func (b *filteredBody) Read(p []byte) (int, error) {
	for len(b.ready) == 0 {
		if b.err != nil {
			return 0, b.err
		}
		source := io.Reader(b.source)
		if a := b.exchange.ahead; a != nil && b.direction == Request {
			source = a
		}
		if b.buffer == nil {
			b.buffer = make([]byte, 32<<10)
		}
		n, err := source.Read(b.buffer)
		if n == 0 && err == nil {
			continue
		}
		c := chunk{b.buffer[:n], err}
		if err := b.exchange.phase(b.direction, b, func() (Action, error) { return b.pass(c) }); err != nil {
			b.err = err
			return 0, err
		}
	}
	n := copy(p, b.ready)
	b.ready = b.ready[n:]
	return n, nil
}

// pass runs the callbacks for the next part of the body, and keeps the bytes that may continue. The
// last part waits for the trailers' callback.
func (b *filteredBody) pass(c chunk) (Action, error) {
	x := b.exchange
	b.err = c.err
	end := errors.Is(c.err, io.EOF)
	if len(c.data) == 0 && !end {
		return x.stream.action(b.direction), nil
	}
	var came http.Header
	if b.direction == Request {
		came = x.incoming.Trailer
	} else {
		came = x.answer.Trailer
	}
	trailers := &Headers{}
	if end {
		trailers.addAll(came)
	}
	data, action, err := x.stream.Body(b.direction, c.data, end && trailers.Len() == 0)
	b.ready = append(b.ready, data...)
	if err != nil || trailers.Len() == 0 {
		return action, err
	}
	if action, err = x.stream.Trailers(b.direction, trailers); err == nil && action == Continue {
		b.ready = append(b.ready, x.stream.TakeBody(b.direction)...)
	}
	if b.direction == Request {
		came = x.trailers
	}
	maps.Copy(came, httpHeader(trailers))
	return action, err
}

func (b *filteredBody) Close() error { return b.source.Close() }

// requestHeaders returns a request's headers as Envoy shows them.
func requestHeaders(r *http.Request) *Headers {
	h := &Headers{fields: make([]field, 0, len(r.Header)+6)}
	path := r.RequestURI
	if path == "" || path[0] != '/' {
		path = r.URL.RequestURI()
	}
	h.Add(":authority", r.Host)
	h.Add(":path", path)
	h.Add(":method", r.Method)
	h.Add(":scheme", "http")
	h.addAll(r.Header)
	if _, ok := h.Get("x-request-id"); !ok {
		h.Add("x-request-id", newRequestID())
	}
	return h
}

func newRequestID() string {
	var b [16]byte
	if _, err := rand.Read(b[:]); err != nil {
		panic(err) // never: crypto/rand promises it
	}
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

func responseHeaders(status int, header http.Header) *Headers {
	h := &Headers{fields: make([]field, 0, len(header)+4)}
	h.Add(":status", strconv.Itoa(status))
	h.addAll(header)
	return h
}

// httpHeader leaves out pseudo headers and hop-by-hop headers.
func httpHeader(h *Headers) http.Header {
	out := make(http.Header, h.Len())
	for name, value := range h.All() {
		switch name {
		case "connection", "keep-alive", "proxy-connection", "te", "transfer-encoding", "upgrade", "host":
			continue
		}
		if name != "" && name[0] != ':' {
			out.Add(name, value)
		}
	}
	return out
}

// status returns the response's status, or 500 if the plugin has set an impossible one.
func status(h *Headers) int {
	n, err := strconv.Atoi(h.Value(":status"))
	if err != nil || n < 200 || n > 999 {
		return http.StatusInternalServerError
	}
	return n
}

// write sends a response that does not come from the upstream.
func (p *Proxy) write(w http.ResponseWriter, r *http.Request, h *Headers, body []byte) {
	header := w.Header()
	maps.Copy(header, httpHeader(h))
	if r.ProtoMajor > 1 && header.Get("Content-Length") == "" {
		header["Content-Length"] = nil // or else the server sends 0; Envoy does so over HTTP/1.1 only
	}
	w.WriteHeader(status(h))
	if _, err := w.Write(body); err != nil {
		p.config.Logger.Debug("write response", slog.Any("error", err)) // the client is gone, or the method is HEAD
	}
}

// source returns the client address that Envoy would trust.
func (p *Proxy) source(r *http.Request) string {
	if n := p.config.TrustedHops; n > 0 {
		hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
		if len(hops) >= n {
			if addr, err := netip.ParseAddr(strings.TrimSpace(hops[len(hops)-n])); err == nil {
				return netip.AddrPortFrom(addr, 0).String()
			}
		}
	}
	return r.RemoteAddr
}

// bufferPool provides the buffers for copying bodies.
type bufferPool struct{}

var buffers = sync.Pool{New: func() any { return new([32 << 10]byte) }}

func (bufferPool) Get() []byte { return buffers.Get().(*[32 << 10]byte)[:] }

func (bufferPool) Put(b []byte) { buffers.Put((*[32 << 10]byte)(b)) }
