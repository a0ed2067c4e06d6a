package host

import (
	"strconv"
	"strings"
)

// StreamInfo holds the facts that Envoy knows of a request besides its headers.
type StreamInfo struct {
	// Source and Destination are addresses with a port, such as "10.0.0.1:1234" and
	// "[2001:db8::1]:443".
	Source, Destination string
	// Protocol is "HTTP/1.1", "HTTP/2" …
	Protocol string
	// OnChange is called when the plugin has continued or answered a stream that was paused or idle
	// between two callbacks. It runs on the VM's goroutine, after the callback that did so.
	OnChange func()
}

// Stream is one request and its response. Call its methods in Envoy's order: RequestHeaders,
// Body, Trailers, the same for the response, and Close, which must always come last.
//
// After [Pause], wait until the plugin continues ([Stream.Paused] is false) or answers
// ([Stream.LocalReply]) the stream in another callback. OnChange is called when it does.
type Stream struct {
	root    *Root
	id      uint32
	info    StreamInfo
	half    [2]half // by Direction
	phase   phase
	local   *LocalReply
	replied bool // a local reply has been asked for
	grpc    bool // the client wants errors the gRPC way
	head    bool // the method is HEAD
	// failed says how a request failed that got an answer of the proxy's own.
	failed failedCall
	// state has the properties that the plugin has set.
	state map[string]string
	busy  bool // inside a call by the owner
}

// failedCall is a request to an upstream that failed.
type failedCall struct {
	details string // in place of an answer
	address string // this end of the connection; empty if there was none
}

type phase int

const (
	requestPhase phase = iota
	responsePhase
	logPhase
	endedPhase
)

// half is one direction of a stream.
type half struct {
	headers, trailers *Headers
	body              []byte // the part that the body callback sees
	kept              []byte // the waiting part of the body before that
	reach             part   // the parts that host calls can reach
	answer            Action // of the last callback
	paused            bool
	stopped           bool // paused by its headers, so that nothing else may come
	resumed           bool // continued inside its own callback
}

// A part is a set of the parts of a direction. Host calls reach the part that the running callback
// is about. While the plugin pauses there, callbacks of other contexts reach it too.
type part uint8

const (
	headersPart part = 1 << iota
	bodyPart
	trailersPart
)

// LocalReply is an answer by the plugin itself.
type LocalReply struct {
	Status uint32
	// Details give the reason for access logs; clients don't see them.
	Details string
	Body    []byte
	// Headers are those of the whole response, :status included, after the response phase. A
	// request of type application/grpc gets :status 200 with grpc-status and grpc-message, and no
	// body.
	Headers *Headers
}

// NewStream makes a stream in a root context: it calls proxy_on_context_create.
func (r *Root) NewStream(info StreamInfo) (*Stream, error) {
	vm := r.vm
	if vm.failure != nil {
		return nil, vm.failure
	}
	if r.state != rootRunning {
		return nil, ErrClosed
	}
	s := &Stream{root: r, id: vm.newID(), info: info}
	vm.contexts[s.id] = scope{r, s}
	r.streams++
	if _, err := vm.call(onContextCreate, scope{r, s}, uint64(s.id), uint64(r.id)); err != nil {
		return nil, err
	}
	return s, nil
}

// RequestHeaders begins the request phase. The plugin changes the headers in place.
func (s *Stream) RequestHeaders(h *Headers, end bool) (Action, error) {
	// Envoy looks at these before a filter can change them.
	s.grpc, s.head = isGRPC(h.Value("content-type")), h.Value(":method") == "HEAD"
	return s.headers(Request, onRequestHeaders, h, end)
}

// ResponseHeaders begins the response phase, in which the plugin can't read the request any more.
func (s *Stream) ResponseHeaders(h *Headers, end bool) (Action, error) {
	s.startResponse()
	return s.headers(Response, onResponseHeaders, h, end)
}

// Paused reports whether the plugin holds a direction back.
func (s *Stream) Paused(d Direction) bool { return s.half[d].paused }

// Stopped reports whether the plugin's headers callback has stopped all of a direction until it
// continues the stream.
func (s *Stream) Stopped(d Direction) bool { return s.half[d].stopped }

// Full reports whether so much of a body waits that its sender must pause.
func (s *Stream) Full(d Direction) bool {
	h := &s.half[d]
	return h.paused && len(h.kept) > bufferLimit
}

// LocalReply returns the plugin's own answer, or nil. It must not be sent while the response is
// paused.
func (s *Stream) LocalReply() *LocalReply { return s.local }

// TakeBody returns the part of a body that a pause kept back, and forgets it.
func (s *Stream) TakeBody(d Direction) []byte {
	h := &s.half[d]
	body := h.body
	if len(h.kept) > 0 {
		body = append(h.kept, body...)
	}
	h.kept, h.body = nil, nil
	return body
}

// Close ends the stream, complete or not: it calls proxy_on_log, proxy_on_done and proxy_on_delete.
// A second call does nothing.
func (s *Stream) Close() {
	if s.phase >= logPhase {
		return
	}
	vm := s.root.vm
	s.phase = logPhase
	for _, cb := range []callback{onLog, onDone, onDelete} {
		if _, err := vm.call(cb, scope{s.root, s}, uint64(s.id)); err != nil {
			break
		}
	}
	s.phase = endedPhase
	delete(vm.contexts, s.id)
	s.root.streams--
	s.root.finish()
}

func (s *Stream) headers(d Direction, cb callback, h *Headers, end bool) (Action, error) {
	s.half[d].headers = h
	action, err := s.run(d, cb, headersPart, uint64(h.Len()), flag(end))
	only := s.root.plugin.AllowOnHeadersStopIteration && s.half[d].answer == Pause
	s.half[d].stopped = s.half[d].paused && !only
	return action, err
}

// Body hands the next part of a body to the plugin. It returns the bytes that may continue to the
// upstream or the client: none while the plugin pauses, and later all that it kept back. With an error it
// returns all bytes that the VM held, for owners that let traffic pass a failed plugin. While
// headers that stop everything wait, the error is [ErrStopped].
func (s *Stream) Body(d Direction, chunk []byte, end bool) ([]byte, Action, error) {
	h, cb := &s.half[d], [...]callback{onRequestBody, onResponseBody}[d]
	if h.stopped {
		return nil, Pause, ErrStopped
	}
	if s.root.vm.guest[cb] == nil && !h.paused {
		return chunk, s.action(d), s.root.vm.failure
	}
	h.body = append(h.body, chunk...)
	action, err := s.run(d, cb, bodyPart, uint64(len(h.body)), flag(end))
	switch {
	case err != nil || action == Continue:
		return s.TakeBody(d), action, err
	case !h.paused:
	case h.answer == PauseWatermark:
		h.kept, h.body = append(h.kept, h.body...), nil
	case d == Request && len(h.kept)+len(h.body) > bufferLimit:
		s.reply(s.newLocalReply(413, "request_payload_too_large", []byte("Payload Too Large"), &Headers{}, -1))
		s.root.vm.drain()
	}
	return nil, Pause, s.root.vm.failure
}

// Trailers ends a request or a response that has trailers.
func (s *Stream) Trailers(d Direction, t *Headers) (Action, error) {
	if s.half[d].stopped {
		return Pause, ErrStopped
	}
	s.half[d].trailers = t
	return s.run(d, [...]callback{onRequestTrailers, onResponseTrailers}[d], trailersPart, uint64(t.Len()))
}

func flag(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

// run runs a callback of one direction, then the calls that it deferred. When run returns, the
// response phase of a local reply is over, or paused.
func (s *Stream) run(d Direction, cb callback, p part, args ...uint64) (Action, error) {
	if s.phase >= logPhase {
		return Pause, ErrClosed
	}
	vm, h := s.root.vm, &s.half[d]
	h.reach |= p
	h.resumed = false
	outer := s.busy
	s.busy = true
	defer func() { s.busy = outer }()
	var all [4]uint64
	all[0] = uint64(s.id)
	result, err := vm.invoke(cb, scope{s.root, s}, all[:1+copy(all[1:], args)]...)
	if err != nil {
		return Pause, err
	}
	h.answer = Action(result)
	if h.paused = h.answer != Continue && !h.resumed; !h.paused {
		h.reach = 0
	}
	vm.drain()
	return s.action(d), vm.failure
}

// action returns the owner's answer after a callback of one direction.
func (s *Stream) action(d Direction) Action {
	if s.half[d].paused || s.local != nil && d == Request {
		return Pause
	}
	return Continue
}

func (s *Stream) resume(d Direction) {
	h := &s.half[d]
	h.paused, h.stopped, h.resumed, h.reach = false, false, true, 0
	s.changed()
}

// reply answers the request, once: like Envoy, it ignores further replies. The response phase runs
// when the callback has returned. If it runs already, the reply replaces the upstream's response.
func (s *Stream) reply(l *LocalReply) {
	if s.replied || s.phase >= logPhase {
		return
	}
	s.replied = true
	s.root.vm.after(func() {
		if s.phase >= logPhase {
			return
		}
		first := s.phase == requestPhase
		s.startResponse()
		s.half[Response].paused, s.half[Response].stopped = false, false
		s.local = l
		if first {
			// An error is the VM's failure, which the caller of drain reports.
			if _, err := s.headers(Response, onResponseHeaders, l.Headers, len(l.Body) == 0); err != nil {
				s.root.vm.log(LevelDebug, err.Error())
			}
		}
	})
	s.changed()
}

func (s *Stream) startResponse() {
	if s.phase == requestPhase {
		s.phase = responsePhase
		s.half[Request].reach, s.half[Request].paused, s.half[Request].stopped = 0, false, false
	}
}

// changed calls OnChange later, unless the owner waits for one of its own calls to return.
func (s *Stream) changed() {
	if s.busy || s.info.OnChange == nil {
		return
	}
	s.root.vm.after(s.info.OnChange)
}

// headerMap finds a header map for reading.
func (s *Stream) headerMap(d Direction, p part) (*Headers, Status) {
	h := &s.half[d]
	m := h.headers
	if p == trailersPart {
		m = h.trailers
	}
	switch {
	case s.phase == logPhase && m == nil:
		return nil, StatusNotFound
	case s.phase == logPhase, h.reach&p != 0:
		return m, StatusOK
	}
	return nil, StatusBadArgument
}

// isGRPC reports whether a request of this type is gRPC. As in Envoy, other capitals or parameters
// make another type.
func isGRPC(contentType string) bool {
	rest, ok := strings.CutPrefix(contentType, "application/grpc")
	return ok && (rest == "" || rest[0] == '+')
}

// newLocalReply makes the response in the way of Envoy's prepareLocalReply.
func (s *Stream) newLocalReply(status uint32, details string, body []byte, headers *Headers, grpc int32) *LocalReply {
	l := &LocalReply{Status: status, Details: details, Body: body}
	l.Headers = NewHeaders(":status", strconv.Itoa(int(status)))
	l.Headers.fields = append(l.Headers.fields, headers.fields...)
	l.Headers.Del("content-length")
	switch {
	case s.grpc:
		if grpc < 0 {
			grpc = grpcStatus(status)
		}
		l.Headers.Set(":status", "200")
		l.Headers.Set("content-type", "application/grpc")
		l.Headers.Set("grpc-status", strconv.Itoa(int(grpc)))
		if len(body) > 0 && !s.head {
			l.Headers.Set("grpc-message", percentEncode(string(body)))
		}
		l.Body = nil
	case len(body) > 0:
		l.Headers.Set("content-length", strconv.Itoa(len(body)))
		if _, ok := l.Headers.Get("content-type"); !ok {
			l.Headers.Set("content-type", "text/plain")
		}
	default:
		l.Headers.Del("content-type")
	}
	if s.head {
		l.Body = nil
	}
	return l
}

// grpcStatus returns the gRPC status for an HTTP status.
//
// See https://github.com/grpc/grpc/blob/master/doc/http-grpc-status-mapping.md.
func grpcStatus(status uint32) int32 {
	switch status {
	case 400:
		return 13 // INTERNAL
	case 401:
		return 16 // UNAUTHENTICATED
	case 403:
		return 7 // PERMISSION_DENIED
	case 404:
		return 12 // UNIMPLEMENTED
	case 429, 502, 503, 504:
		return 14 // UNAVAILABLE
	}
	return 2 // UNKNOWN
}

// percentEncode encodes a grpc-message: all bytes but printable ASCII, and the percent sign.
func percentEncode(s string) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '%' {
			b.Write([]byte{'%', hex[c>>4], hex[c&15]})
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}
