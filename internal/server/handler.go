// Package server is the counter backend. It serves a store by HTTP to proxies that push, and to
// people.
//
// [Handler] answers requests. Package listen serves it.
package server

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir/internal/backend"
	"weir/internal/listen"
	"weir/internal/share"
	"weir/internal/store"
	"weir/internal/trust"
	"weir/internal/wire"
	"weir/window"
)

// Options configure a Handler. The zero value is ready to use.
type Options struct {
	// Tokens are the accepted bearer tokens of pushes and reads; nil means that none is required.
	Tokens *trust.Tokens
	// Certificates requires a verified client certificate, over TLS.
	Certificates bool
	// Host is the address at which the handler is served, if requests under /v1 have to name it or a
	// loopback one as their host: what nodes push may name any. If it is empty, all may.
	Host string
	// Registry takes the handler's metrics, and GET /metrics shows it. If nil, the handler makes a
	// registry.
	Registry *prometheus.Registry
	// Logger is told when the store begins to fail, and when it is back, of clients that give up
	// before it answers, and of those that are refused. slog.Default if nil.
	Logger *slog.Logger
	// Warned receives the warnings of a namespace's nodes; nil ignores them. It must not block.
	Warned func(namespace string, warnings []wire.Warning)
	// Backend answers from the store, if others use it too; nil means a new one.
	Backend *backend.Backend
	// Now is the clock for that; nil means time.Now.
	Now func() time.Time
	// Monitor watches the store, if others use it too; nil means a new one, which nobody runs.
	Monitor *Monitor
	// Leaving, once closed, makes /readyz say that the backend is about to end; nil for never.
	Leaving <-chan struct{}
	// Parent answers requests about all regions in place of the handler, if the store is a
	// region's: all of /v1 except pushes. It is nil without a parent.
	Parent http.Handler
	// Identity names a key of a rule by as much of its values as counts, as nodes without a key_secret do; nil if
	// keys can be asked for by their identities alone.
	Identity func(rule string, values []string) wire.ID
	// Ended, once closed, ends streams, which otherwise last for minutes; nil for never.
	Ended <-chan struct{}
}

// Handler serves a store:
//
//   - POST /v1/push takes a wire.Push and answers with a wire.Answer. 400 with a reason for a body
//     that is none, 413 above wire.MaxBody, 415 for another Content-Type, 503 if the store fails. If
//     x-envoy-expected-rq-timeout-ms says how long the sender waits, the answer comes before: it may
//     lack what the store can't reach in time.
//     Nothing has changed after a 4xx; after a 503 the push may have been applied, and is to be
//     sent again.
//   - GET /v1/counters?namespace=N streams the counters that count, one JSON object a line; with
//     &width_ms=W, once or more, those of these widths. If the store fails half-way, the connection
//     breaks, so that what came does not pass for all.
//   - GET /v1/window?namespace=N&id=I&kind=K&width_ms=W&start=T is one window of the clock: its
//     start and hits; &ordinal=O for one of several limits that are alike.
//   - GET /v1/counter?namespace=N&id=I is a key's [Counter]; with &rule=R and &key=V, once for each
//     value, by the override in force, and without an id by what nodes without a key_secret call that key; with &limit=… by these limits, or else by those that nodes
//     have told of rule R. POST has a [CounterChange],
//     and answers with [CounterChanged].
//   - GET /v1/overrides?namespace=N tells [Overrides], with &rule=R those of a rule, and with &some the
//     first of them; with &version=V nodes know them that have this version or a later one. PUT sets those of
//     a body of this form, unless a rule that nodes have told of can't have them; with &force it does
//     not look; DELETE with &rule=R removes the override of &key=V, once for each value, with
//     &pattern=P and &part=N that of many keys, or with &all all of the rule's keys, or with &whole that of the whole rule. Both answer with
//     [Changed].
//   - GET /v1/top?namespace=N tells [backend.Top], with &rule=R of that rule only, and with &keys=K of the first K
//     keys of each list how they stand now.
//   - GET /v1/namespaces tells [Namespaces]; with &namespace=N of that one, and its rules.
//   - GET /v1/usage?namespace=N tells [Usage] of this month, with &rule=R of that rule only, and with
//     &month=2026-11, or &month=2026-01..2026-11, of other months, or with &day=2026-11-16 of a day.
//     &by=key,model,day,month says by which of these; by key if it is not given.
//   - GET /v1/changes?namespace=N tells [Changes], with &since=T those since a time. Calls that change
//     something take a &reason, which has at most [backend.MaxReason] bytes, and 503 if no record of
//     the change can be kept: then nothing has changed. POST /v1/counter takes an Idempotency-Key, so
//     that a call which comes again changes nothing more.
//   - GET /v1/watch?namespace=N tells a [WatchedMoment] and [Watched] every two seconds for ten
//     minutes, as server-sent events, and first the moments of the last hour in which somebody has
//     watched, those after the number that Last-Event-ID says: all of five minutes, and some of those before.
//   - GET /readyz is 200 if the store takes hits, else 503, as when the backend is about to end. Its
//     text says if the store takes only some. A hit of its own tells, once a second at most. GET
//     /healthz is the same.
//   - GET /livez is 200.
//   - GET /metrics is for Prometheus: all metrics for those who may read all namespaces, and for others
//     those that name no namespace, rule or descriptor.
//
// Few requests at a time may read or change whole lists of counters, overrides or prices: others wait for
// [backend.Timeout], and then get 503.
//
// With Options.Parent all of /v1 but pushes is answered by the parent, 502 if that does not answer; and
// a region is refused with 409.
//
// Paths under /v1 answer 401 without a token, 403 without a certificate, to a page of another site
// or if the token is not for the namespace or lacks a verb there ([trust.Calls]), 421 to another
// host than Options.Host has, and 415 to a body of JSON that does not say so in its Content-Type.
// Reasons are JSON problem documents (RFC 9457).
func Handler(counters store.Store, o Options) http.Handler {
	o.Registry = cmp.Or(o.Registry, prometheus.NewRegistry())
	if m, ok := counters.(inMemory); ok {
		o.Registry.MustRegister(memorySize(m))
	}
	if f, ok := counters.(store.OnDisk); ok {
		o.Registry.MustRegister(fileSize(f))
	}
	if r, ok := counters.(regional); ok {
		o.Registry.MustRegister(regionState(r))
	}
	o.Logger = cmp.Or(o.Logger, slog.Default())
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Backend == nil {
		o.Backend = backend.New(counters)
		o.Backend.Now = o.Now
	}
	h := &handler{store: counters, metrics: newMetrics(o.Registry), log: o.Logger, backend: o.Backend, host: o.Host, leaving: o.Leaving, ended: o.Ended, parent: o.Parent, identity: o.Identity}
	h.refused = refused{log: o.Logger, now: o.Now, sources: map[refusal]*unlogged{}}
	h.watchers.Most, h.glances.Most, h.lookers.Most, h.polls.Most = maxWatchers, maxLookers, maxLookers, min(maxPolls, listen.MostFiles()/4)
	h.listers.Most, h.readers.Most, h.changers.Most, h.uploads.Most, h.waiting.Most = maxListers, maxReaders, maxChangers, maxUploads, maxWaiting
	h.backend.OnWarnings(o.Warned)
	if h.health = o.Monitor; h.health == nil {
		h.health = NewMonitor(counters, o.Registry, o.Logger, o.Now)
	}
	authorized := func(next http.HandlerFunc) http.Handler { return h.authorize(o.Tokens, o.Certificates, next) }
	mux := http.NewServeMux()
	for call, does := range map[trust.Call]answer{
		trust.GetCounters:    {do: h.counters, queue: &h.listers},
		trust.GetWindow:      {do: h.window},
		trust.GetCounter:     {do: h.counter, reads: "counters"},
		trust.ChangeCounter:  {do: h.changeCounter, queue: &h.changers},
		trust.GetOverrides:   {do: h.overrides, queue: &h.readers},
		trust.SetOverrides:   {do: h.setOverrides, queue: &h.changers},
		trust.UnsetOverrides: {do: h.unsetOverrides, queue: &h.changers},
		trust.GetPrices:      {do: h.prices, queue: &h.readers},
		trust.SetPrices:      {do: h.setPrices, queue: &h.changers},
		trust.UnsetPrices:    {do: h.unsetPrices, queue: &h.changers},
		trust.GetUsage:       {do: h.usage, reads: "usage"},
		trust.GetTop:         {do: h.top, reads: "reports"},
		trust.GetWatch:       {do: h.watch},
		trust.GetChanges:     {do: h.changes, reads: "records"},
		trust.GetNamespaces:  {do: h.namespaces, reads: "reports"},
	} {
		if h.parent != nil {
			if does = (answer{do: h.relay}); call.Changes() {
				does.do = h.relayChange
			}
		}
		mux.Handle(call.Needs().Pattern, authorized(func(w http.ResponseWriter, r *http.Request) {
			if namespace, ok := h.namespace(w, r, call); ok {
				h.answer(w, r, namespace, does, call.Changes())
			}
		}))
	}
	for call, handler := range map[trust.Call]http.Handler{
		trust.PushHits:   authorized(h.push),
		trust.GetLive:    http.HandlerFunc(h.livez),
		trust.GetReady:   http.HandlerFunc(h.readyz),
		trust.GetHealth:  http.HandlerFunc(h.readyz),
		trust.GetMetrics: h.metricsOf(o.Registry, o.Tokens, o.Certificates),
	} {
		mux.Handle(call.Needs().Pattern, handler)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s := &statusWriter{ResponseWriter: w, code: http.StatusOK}
		// Count the request even if a handler aborts the connection.
		defer func() { h.metrics.request(endpoint(r.Pattern), s.code) }()
		mux.ServeHTTP(s, r)
	})
}

type answer struct {
	// do returns what is written as JSON; nil if the request was answered.
	do func(w http.ResponseWriter, r *http.Request, namespace string) (body any, err error)
	// reads is what it reads much of, so that few may at a time; empty for little.
	reads string
	// queue bounds how many do it at a time while others wait, since scripts ask many at once; nil for any number.
	queue *share.Room[string]
}

const (
	// maxListers bounds the requests at a time that list counters. A listing lasts as long as its client takes it, and
	// a store may remember what it has listed.
	maxListers = 16
	// maxReaders and maxChangers bound those that read and change overrides, prices and counters. Those of a full list
	// of overrides take up to 130 MB each.
	maxReaders, maxChangers = 4, 4
	// maxUploads bounds those changes whose bodies have maxEarly bytes or more. Their places are taken before the rest of
	// their bodies has come. Others' bodies come first: those of all that wait are half of what package listen allows.
	maxUploads, maxEarly = 2, 16 << 10
	// maxWaiting bounds those that wait for a place, whatever they want to do. Each counts meanwhile among the requests
	// that package listen bounds, unless it is one of HTTP/1.1 without a body.
	maxWaiting = 512
)

// mistake is why a request gets no answer: its client's fault, or nobody's. Other errors are the store's.
type mistake struct {
	code   int
	detail string
}

func (m mistake) Error() string { return m.detail }

func wrong(format string, args ...any) error {
	return mistake{http.StatusBadRequest, fmt.Sprintf(format, args...)}
}

// answer answers a request. changes says that an answer without an error has written to the store.
func (h *handler) answer(w http.ResponseWriter, r *http.Request, namespace string, does answer, changes bool) {
	if does.reads != "" {
		if !h.lookers.Enter(namespace) {
			h.problem(w, http.StatusServiceUnavailable, "too many requests are reading "+does.reads+": try again")
			return
		}
		defer h.lookers.Leave(namespace)
	}
	if queue := does.queue; queue != nil {
		if queue == &h.changers && !arrived(r) {
			queue = &h.uploads
		}
		if !h.wait(r.Context(), namespace, queue) {
			h.problem(w, http.StatusServiceUnavailable, "too many such requests are under way: try again")
			return
		}
		defer queue.Leave(namespace)
	}
	body, err := does.do(w, r, namespace)
	switch of, wrong := errors.AsType[mistake](err); {
	case wrong:
		h.problem(w, of.code, of.detail)
	case err == nil && body == nil:
	case changes && errors.Is(err, store.ErrInvalid):
		h.problem(w, http.StatusBadRequest, "body: "+strings.TrimPrefix(err.Error(), store.ErrInvalid.Error()+": "))
	case h.health.succeeded(r.Context(), err, changes && err == nil):
		h.json(w, body)
	case errors.Is(err, backend.ErrUnrecorded):
		h.problem(w, http.StatusServiceUnavailable, backend.ErrUnrecorded.Error())
	default:
		h.problem(w, http.StatusServiceUnavailable, "the store failed")
	}
}

// arrived waits for a request's body, but not for all of a large one, and reports whether it has all.
func arrived(r *http.Request) bool {
	body, _ := io.ReadAll(io.LimitReader(r.Body, maxEarly)) // whoever reads on gets the error, too
	r.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(body), r.Body), r.Body}
	return len(body) < maxEarly
}

// wait waits for a place in a queue, and reports whether there was one in time.
func (h *handler) wait(ctx context.Context, namespace string, queue *share.Room[string]) bool {
	if !h.waiting.Enter(namespace) {
		return false
	}
	defer h.waiting.Leave(namespace)
	ctx, cancel := context.WithTimeout(ctx, backend.Timeout)
	defer cancel()
	return queue.Wait(ctx, namespace)
}

type handler struct {
	store   store.Store
	metrics *metrics
	log     *slog.Logger
	health  *Monitor
	backend *backend.Backend
	parent  http.Handler // nil without a parent
	host    string
	refused refused
	leaving <-chan struct{}
	// identity names keys by their values; nil if it can't.
	identity func(rule string, values []string) wire.ID
	// watchers are the open streams, glances those that read what they show, watched what that was, and ended is closed when
	// they should end.
	watchers, glances share.Room[string]
	// lookers are the requests that are reading reports.
	lookers share.Room[string]
	// listers, readers, changers and uploads are the requests at work on whole lists: see maxListers. waiting are those
	// that wait for a place among them.
	listers, readers, changers, uploads, waiting share.Room[string]
	// polls are the pushes whose answers wait for a new list of overrides.
	polls   share.Room[string]
	watched watchedNamespaces
	ended   <-chan struct{}
}

func (h *handler) push(w http.ResponseWriter, r *http.Request) {
	body, ok := h.body(w, r, wire.ContentType, wire.MaxBody)
	if !ok {
		return
	}
	// A body that is not a push has no namespace, and is refused below.
	namespace, named := wire.PushNamespace(body)
	if named && !h.permits(w, r, trust.PushHits, namespace) {
		return
	}
	ctx, cancel := awaited(r)
	defer cancel()
	if wire.Polls(body) && !h.poll(ctx, w, r, namespace, body) {
		return
	}
	start := time.Now()
	reply, err := h.backend.Push(ctx, body)
	took := time.Since(start)
	h.metrics.duration.Observe(took.Seconds())
	h.log.LogAttrs(ctx, slog.LevelDebug, "push", slog.String("namespace", namespace), slog.Duration("took", took), slog.Any("error", err))
	switch {
	case errors.Is(err, wire.ErrVersion):
		// The sender should keep the push: another backend may be able to read it.
		h.problem(w, http.StatusUnsupportedMediaType, "body: "+err.Error())
		return
	case errors.Is(err, store.ErrInvalid):
		h.problem(w, http.StatusBadRequest, "body: "+err.Error())
		return
	}
	if !h.health.Pushed(ctx, &reply, err) {
		detail := "the store failed"
		if errors.Is(err, store.ErrFull) {
			detail = err.Error()
		}
		h.problem(w, http.StatusServiceUnavailable, detail)
		return
	}
	h.metrics.push(&reply)
	w.Header().Set("Content-Type", wire.ContentType)
	h.write(w, reply.Body)
}

// timeoutHeader is how long the sender waits for an answer, in milliseconds. Envoy adds it.
const timeoutHeader = "X-Envoy-Expected-Rq-Timeout-Ms"

// leastTimeout is the least timeout that is respected, so that no sender can make the store seem
// slow.
const leastTimeout = 20

// awaited returns the context of a request, ended when its sender stops waiting.
func awaited(r *http.Request) (context.Context, context.CancelFunc) {
	millis, err := strconv.ParseUint(r.Header.Get(timeoutHeader), 10, 32)
	if err != nil {
		return r.Context(), func() {}
	}
	return context.WithTimeout(r.Context(), time.Duration(max(millis, leastTimeout))*time.Millisecond)
}

func (h *handler) counters(w http.ResponseWriter, r *http.Request, namespace string) (any, error) {
	var widths []uint64
	for _, text := range r.URL.Query()["width_ms"] {
		width, err := strconv.ParseUint(text, 10, 64)
		if err != nil || width == 0 || width > wire.MaxWidthMillis || len(widths) == maxWidths {
			return nil, wrong("width_ms: want up to %d windows of 1 to %d ms, got %.80q", maxWidths, wire.MaxWidthMillis, text)
		}
		widths = append(widths, width)
	}
	w.Header().Set("Content-Type", "application/jsonl")
	out := http.NewResponseController(w)
	lines := json.NewEncoder(w)
	written := 0
	var broken error
	err := h.store.Counters(r.Context(), namespace, &store.Wanted{Widths: widths}, func(c store.LimitCounter) error {
		if written%1024 == 0 {
			// A long list takes longer than one answer may, but none of its parts does.
			if broken = out.SetWriteDeadline(time.Now().Add(listen.WriteTimeout)); broken != nil {
				return broken
			}
		}
		written++
		broken = lines.Encode(c.Line())
		return broken
	})
	switch {
	case broken != nil:
		// The client is gone, and the store is not to blame.
		panic(http.ErrAbortHandler)
	case written == 0 && err != nil:
		return nil, err
	case !h.health.succeeded(r.Context(), err, false):
		panic(http.ErrAbortHandler)
	}
	return nil, nil
}

// maxWidths bounds the widths in a request.
const maxWidths = 64

// namespace returns the namespace of a request, which is empty for all of them. If it is invalid, or the
// sender may not call there, it has answered the request.
func (h *handler) namespace(w http.ResponseWriter, r *http.Request, call trust.Call) (namespace string, ok bool) {
	if call == trust.GetNamespaces && !r.URL.Query().Has("namespace") {
		// A parent does not know which of them a region's clients may read.
		return "", h.parent == nil || h.permits(w, r, call, "")
	}
	namespace = r.URL.Query().Get("namespace")
	if ok = wire.IsNamespace(namespace); !ok {
		h.problem(w, http.StatusBadRequest, fmt.Sprintf("namespace: want 1 to %d of A-Za-z0-9._-, got %.80q", wire.MaxNamespace, namespace))
		return namespace, false
	}
	return namespace, h.permits(w, r, call, namespace)
}

// window answers with the hits of one window.
func (h *handler) window(_ http.ResponseWriter, r *http.Request, namespace string) (any, error) {
	item, err := windowAsked(r.URL.Query())
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), backend.Timeout)
	defer cancel()
	// A push without hits is a read, and needs no sender of its own.
	out, err := h.store.Push(ctx, &wire.Push{Namespace: namespace, Sequence: 1, Floor: 1, Items: []wire.Item{item}}, 1)
	if err != nil {
		return nil, err
	}
	line := store.WindowLine{Start: time.Unix(0, int64(store.StartNanos(item.LimitCounter, item.Newest))).UTC()}
	if total := &out.Answer.Totals[0]; len(total.Hits) > 0 {
		line.Hits = int64(min(total.Hits[0], wire.MaxHits))
	}
	return line, nil
}

// clocked returns the names of the kinds with windows of the clock.
func clocked() (names []string) {
	for k := window.Kind(1); k <= window.LastKind; k++ {
		if k.Clocked() {
			names = append(names, window.Shape{Kind: k}.Name())
		}
	}
	return names
}

func windowAsked(query url.Values) (item wire.Item, err error) {
	if item.ID, err = counterID(query.Get("id")); err != nil {
		return item, err
	}
	kind := window.Named(query.Get("kind"))
	if !kind.Clocked() {
		return item, wrong("kind: want %s, got %.80q", strings.Join(clocked(), " or "), query.Get("kind"))
	}
	item.Kind = uint8(kind)
	width, errWidth := strconv.ParseUint(query.Get("width_ms"), 10, 64)
	start, errStart := time.Parse(time.RFC3339Nano, query.Get("start"))
	if item.WidthMillis = width; errWidth != nil || !store.ValidCounter(item.LimitCounter) {
		return item, wrong("width_ms: want 1 to %d, got %.80q", wire.MaxWidthMillis, query.Get("width_ms"))
	}
	if errStart != nil || start.Unix() < 0 || start.Year() > 2200 {
		return item, wrong("start: want a time such as 2026-01-02T15:04:05Z, got %.80q", query.Get("start"))
	}
	if text := query.Get("ordinal"); text != "" {
		ordinal, err := strconv.ParseUint(text, 10, 8)
		if err != nil {
			return item, wrong("ordinal: want 0 to 255, got %.80q", text)
		}
		item.Ordinal = uint8(ordinal)
	}
	item.Newest, item.Hits = store.NumberAt(item.LimitCounter, uint64(start.UnixNano())), []int64{0}
	return item, nil
}

// write sends a body. If that fails, the client has gone, and will ask again if it still needs the
// answer.
func (h *handler) write(w http.ResponseWriter, body []byte) {
	if _, err := w.Write(body); err != nil {
		h.log.Debug("answer not sent", "error", err)
	}
}

func (h *handler) problem(w http.ResponseWriter, code int, detail string) {
	if err := problem(w, code, detail); err != nil {
		h.log.Debug("answer not sent", "error", err)
	}
}

func problem(w http.ResponseWriter, code int, detail string) error {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(code)
	document := struct {
		Title  string `json:"title"`
		Status int    `json:"status"`
		Detail string `json:"detail"`
	}{http.StatusText(code), code, detail}
	return json.NewEncoder(w).Encode(document)
}

type clientKey struct{}

// isOf reports whether a request's body has a media type. A page of another site can send only text
// and forms, and none of the types that are required. If the type is wrong, isOf has answered the
// request.
func (h *handler) isOf(w http.ResponseWriter, r *http.Request, media string) bool {
	given, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err == nil && given == media {
		return true
	}
	w.Header().Set("Accept", media)
	h.problem(w, http.StatusUnsupportedMediaType, "content-type: want "+media)
	return false
}

// body reads a request's body, which is to have a media type and at most most bytes. If ok is false,
// the request was answered.
func (h *handler) body(w http.ResponseWriter, r *http.Request, media string, most int64) (body []byte, ok bool) {
	if !h.isOf(w, r, media) {
		return nil, false
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, most))
	switch _, tooLarge := errors.AsType[*http.MaxBytesError](err); {
	case tooLarge:
		h.problem(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("body: want at most %d bytes", most))
	case err != nil:
		h.problem(w, http.StatusBadRequest, "body: it ends too early")
	}
	return body, err == nil
}

// readJSON reads a JSON body such as like into given. If it returns false, the request was answered.
func (h *handler) readJSON(w http.ResponseWriter, r *http.Request, most int64, given any, like string) bool {
	body, ok := h.body(w, r, "application/json", most)
	if !ok {
		return false
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(given)
	if err == nil {
		if _, behind := decoder.Token(); !errors.Is(behind, io.EOF) {
			err = errors.New("more behind it")
		}
	}
	if err != nil {
		problem := "body: want a JSON object such as " + like
		if unknown, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
			problem += ", which has no field " + unknown
		} else if strings.HasPrefix(err.Error(), "overrides") {
			problem = "body: " + err.Error()
		}
		h.problem(w, http.StatusBadRequest, problem)
		return false
	}
	return true
}

// authorize lets requests pass that have a certificate and a token, if these are required. It
// stores who sends them in their context.
func (h *handler) authorize(tokens *trust.Tokens, certificates bool, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if code, reason := h.guard(r); code != 0 {
			h.refuse(w, r, code, reason)
			return
		}
		if h.parent != nil && r.Header.Get(RegionHeader) != "" {
			h.refuse(w, r, http.StatusConflict, tooDeep)
			return
		}
		if certificates && trust.CertificateOf(r.TLS) == nil {
			h.refuse(w, r, http.StatusForbidden, "want a client certificate")
			return
		}
		client, known := clientOf(r, tokens)
		if !known {
			w.Header().Set("WWW-Authenticate", "Bearer")
			h.refuse(w, r, http.StatusUnauthorized, "authorization: want the bearer token")
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), clientKey{}, client)))
	})
}

// clientOf returns who sends a request. known is false if it has none of the tokens, and no
// certificate that counts as one.
func clientOf(r *http.Request, tokens *trust.Tokens) (client trust.Client, known bool) {
	certificate := trust.CertificateOf(r.TLS)
	if tokens == nil {
		return trust.Trusted(certificate), true
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if token = strings.TrimSpace(token); !strings.EqualFold(scheme, "Bearer") {
		token = ""
	}
	return tokens.Client(token, certificate)
}

// refuse refuses a request whose sender is not trusted, and logs that.
func (h *handler) refuse(w http.ResponseWriter, r *http.Request, code int, reason string) {
	h.refused.add(r, code, reason)
	h.problem(w, code, reason)
}

// permits reports whether a request's sender may call for a namespace. If not, it has answered the
// request.
func (h *handler) permits(w http.ResponseWriter, r *http.Request, call trust.Call, namespace string) bool {
	client, _ := r.Context().Value(clientKey{}).(trust.Client)
	if refusal := client.May(call, namespace); refusal != trust.Allowed {
		h.refuse(w, r, http.StatusForbidden, string(refusal))
		return false
	}
	return true
}

// endpoint returns a metric's label for a route's pattern.
func endpoint(pattern string) string {
	if _, path, ok := strings.Cut(pattern, " "); ok {
		return path
	}
	return "other"
}

// statusWriter remembers an answer's status.
type statusWriter struct {
	http.ResponseWriter
	code int
}

func (w *statusWriter) WriteHeader(code int) {
	w.code = code
	w.ResponseWriter.WriteHeader(code)
}

// Unwrap is for http.ResponseController.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// guard returns why a request can't come from a trusted sender, and 0 if it may: a page of another site can
// reach everything that its browser can.
func (h *handler) guard(r *http.Request) (code int, reason string) {
	switch {
	case h.host != "" && !listen.KnownHost(r.Host, h.host) && !isNodes(r):
		return http.StatusMisdirectedRequest, "host: want a loopback address or " + h.host + ", because no token is required"
	case !listen.SameOrigin(r):
		return http.StatusForbidden, "origin: want no request by a page of another site"
	}
	return 0, ""
}

// isNodes reports whether a request comes from a node. Nodes use the authority of their proxy's
// cluster as the host. A browser always sends the origin of a page that posts.
func isNodes(r *http.Request) bool {
	return r.URL.Path == wire.PushPath && r.Header.Get("Origin") == ""
}
