package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/internal/commandtest"
	"weir/internal/listen"
	"weir/internal/must"
	"weir/internal/server"
	"weir/internal/store"
	"weir/internal/store/file"
	"weir/internal/store/memory"
	"weir/internal/trust"
	"weir/internal/wire"
	"weir/window"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// oneToken is a token for all namespaces, none if it is empty.
func oneToken(token string) *trust.Tokens {
	tokens, err := trust.OneToken(token)
	if err != nil {
		return nil
	}
	return tokens
}

// open opens a store whose clock stands still.
func open() *memory.Store {
	return memory.New(memory.Options{Now: func() time.Time { return epoch }})
}

func examplePush() *wire.Push {
	return &wire.Push{Namespace: "api", Sender: 1, Sequence: 1, Floor: 1, Items: []wire.Item{
		{
			LimitCounter: wire.LimitCounter{ID: wire.ID{0xab}, Kind: uint8(window.FixedWindow), WidthMillis: 60_000},
			Newest:       uint64(epoch.UnixMilli()) / 60_000, Hits: []int64{5, 2},
		},
		{
			LimitCounter: wire.LimitCounter{ID: wire.ID{0xcd}, Kind: uint8(window.FirstHitWindow), Ordinal: 1, WidthMillis: 1000},
			Newest:       uint64(epoch.UnixNano()) - 5, Hits: []int64{5},
		},
		{
			LimitCounter: wire.LimitCounter{ID: wire.ID{0x0d}, Kind: uint8(window.SlidingBuckets), WidthMillis: 60_000, Precision: 15e9},
			Newest:       uint64(epoch.Unix()) / 15, Hits: []int64{7, 1}, Ages: []uint64{0, 4},
		},
		{
			LimitCounter: wire.LimitCounter{ID: wire.ID{0x0e}, Kind: uint8(window.SlidingBuckets), WidthMillis: 60_000, Precision: 1},
			Limit:        10, Newest: uint64(epoch.UnixNano()) - 7, Hits: []int64{8}, Ages: []uint64{0},
		},
		{
			LimitCounter: wire.LimitCounter{ID: wire.ID{0x0f}, Kind: uint8(window.TokenBucket), WidthMillis: 60_000},
			Limit:        10, Newest: uint64(epoch.UnixNano()) - 9, Hits: []int64{9},
		},
		{
			LimitCounter: wire.LimitCounter{ID: wire.ID{0xcd}, Kind: uint8(window.FirstHitWindow), Ordinal: 1, WidthMillis: 1000},
			Newest:       uint64(epoch.UnixNano()) - 5, Hits: []int64{-3},
		},
	}}
}

// request is one to the server at url, with a push for a body unless changed.
func request(t *testing.T, method, url string, body []byte) *http.Request {
	t.Helper()
	r := must.Get(http.NewRequestWithContext(t.Context(), method, url, bytes.NewReader(body)))(t)
	media := "application/json"
	if r.URL.Path == wire.PushPath {
		media = wire.ContentType
	}
	r.Header.Set("Content-Type", media)
	return r
}

// do sends a request and returns the answer and its body.
func do(t *testing.T, client *http.Client, r *http.Request) (*http.Response, string) {
	t.Helper()
	answer := must.Get(client.Do(r))(t)
	defer answer.Body.Close()
	return answer, string(must.Get(io.ReadAll(answer.Body))(t))
}

// wantStatus sends a request, wants the answer to have a status and its body to hold texts, and returns it.
func wantStatus(t *testing.T, s *httptest.Server, r *http.Request, status int, texts ...string) string {
	t.Helper()
	answer, body := do(t, s.Client(), r)
	must.Equal(t, answer.StatusCode, status, "%s %s: status: %.200s", r.Method, r.URL, body)
	for _, text := range texts {
		must.Contains(t, body, text, "%s %s", r.Method, r.URL)
	}
	return body
}

// readJSON sends a request, which must be answered, and returns what the answer's JSON has.
func readJSON[T any](t *testing.T, s *httptest.Server, r *http.Request) (found T) {
	t.Helper()
	must.OK(t, json.Unmarshal([]byte(wantStatus(t, s, r, 200)), &found))
	return found
}

// post sends a message of the wire's to a server, which must take it, and returns the answer.
func post(t *testing.T, s *httptest.Server, message []byte) string {
	t.Helper()
	answer, body := do(t, s.Client(), request(t, "POST", s.URL+wire.PushPath, message))
	if answer.StatusCode != 200 || answer.Header.Get("Content-Type") != wire.ContentType && body != "" {
		t.Fatalf("status %d, content type %s: %s", answer.StatusCode, answer.Header.Get("Content-Type"), body)
	}
	return body
}

// pushed is [post] of a push.
func pushed(t *testing.T, s *httptest.Server, p *wire.Push) *wire.Answer {
	t.Helper()
	return must.Get(wire.DecodeAnswer([]byte(post(t, s, wire.AppendPush(nil, p)))))(t)
}

// served returns the answer of a handler to a request, which may have a message of the wire's.
func served(t testing.TB, handler http.Handler, method, path string, message []byte) (code int, body string) {
	t.Helper()
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(t.Context(), method, path, bytes.NewReader(message))
	r.Header.Set("Content-Type", wire.ContentType)
	handler.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

// wantMetrics wants a handler's metrics to have lines.
func wantMetrics(t *testing.T, handler http.Handler, lines ...string) {
	t.Helper()
	_, text := served(t, handler, "GET", "/metrics", nil)
	for _, line := range lines {
		must.Contains(t, text, line+"\n", "metrics")
	}
}

func start(t *testing.T, counters store.Store, o server.Options) *httptest.Server {
	t.Helper()
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	s := httptest.NewServer(server.Handler(counters, o))
	t.Cleanup(s.Close)
	return s
}

func TestPush(t *testing.T) {
	s := start(t, open(), server.Options{})
	for range 2 {
		a := pushed(t, s, examplePush())
		if a.NowNanos != uint64(epoch.UnixNano()) || len(a.Totals) != 6 || !slices.Equal(a.Totals[0].Hits, []uint64{5, 0}) {
			t.Errorf("answer %+v, want totals 5 and 0 at the store's time", a)
		}
	}
	wantMetrics(t, s.Config.Handler,
		`weir_http_requests_total{code="200",endpoint="/v1/push"} 2`, "weir_push_items_total 12", "weir_hits_applied_total 34",
		"weir_hits_returned_total 3", "weir_hits_dropped_total 3", "weir_push_duplicates_total 1",
		"weir_push_duration_seconds_count 2", "weir_store_errors_total 0")
	answer, lines := do(t, s.Client(), request(t, "GET", s.URL+"/v1/counters?namespace=api", nil))
	want := []string{
		`{"id":"0d000000000000000000000000000000","kind":"sliding_buckets","ordinal":0,"width_ms":60000,` +
			`"precision_ns":15000000000,"windows":[{"start":"2026-01-01T00:00:00Z","hits":7}]}`,
		`{"id":"0e000000000000000000000000000000","kind":"sliding_log","ordinal":0,"width_ms":60000,` +
			`"precision_ns":1,"windows":[{"start":"2025-12-31T23:59:59.999999993Z","hits":8}]}`,
		`{"id":"0f000000000000000000000000000000","kind":"token_bucket","ordinal":0,"width_ms":60000,"limit":10,` +
			`"windows":[{"start":"2025-12-31T23:59:59.999999991Z","hits":9}]}`,
		`{"id":"ab000000000000000000000000000000","kind":"fixed_window","ordinal":0,"width_ms":60000,` +
			`"windows":[{"start":"2026-01-01T00:00:00Z","hits":5}]}`,
		`{"id":"cd000000000000000000000000000000","kind":"first_hit_window","ordinal":1,"width_ms":1000,` +
			`"windows":[{"start":"2025-12-31T23:59:59.999999995Z","hits":2}]}`,
	}
	got := strings.Split(strings.TrimSpace(lines), "\n")
	slices.Sort(got)
	if answer.StatusCode != 200 || answer.Header.Get("Content-Type") != "application/jsonl" || !slices.Equal(got, want) {
		t.Errorf("status %d, counters\n%s\nwant\n%s", answer.StatusCode, lines, strings.Join(want, "\n"))
	}
	must.Equal(t, wantStatus(t, s, request(t, "GET", s.URL+"/v1/counters?namespace=ap", nil), 200), "", "counters of another namespace")
}

func TestRefused(t *testing.T) {
	const token = "s3cret"
	push := wire.AppendPush(nil, examplePush())
	invalid := examplePush()
	invalid.Items[0].Kind = 77
	takes := threeTakes()
	takes[0].Rooms[1] = takes[0].Rooms[0]
	invalidTake := wire.AppendPush(nil, &wire.Push{Namespace: "api", Sender: 9, Sequence: 1, Floor: 1, Takes: takes})
	for _, test := range []struct {
		name, method, path string
		body               []byte
		header             http.Header
		status             int
		detail             string
	}{
		{"no body", "POST", "/v1/push", nil, nil, 400, "body: invalid push: malformed message at byte 0"},
		{"cut", "POST", "/v1/push", push[:30], nil, 400, "ends too early"},
		{"more", "POST", "/v1/push", append(slices.Clone(push), 0), nil, 400, "after the end"},
		{"invalid", "POST", "/v1/push", wire.AppendPush(nil, invalid), nil, 400, "kind"},
		{"large", "POST", "/v1/push", make([]byte, wire.MaxBody+1), nil, 413, "at most 131072 bytes"},
		{"type", "POST", "/v1/push", push, http.Header{"Content-Type": {"application/json"}}, 415, "want application/x-weir"},
		{"no type", "POST", "/v1/push", push, http.Header{"Content-Type": nil}, 415, "want application/x-weir"},
		{"no token", "POST", "/v1/push", push, http.Header{"Authorization": nil}, 401, "bearer token"},
		{"wrong token", "POST", "/v1/push", push, http.Header{"Authorization": {"Bearer s3cre"}}, 401, "bearer token"},
		{"longer token", "POST", "/v1/push", push, http.Header{"Authorization": {"Bearer s3crets"}}, 401, "bearer token"},
		{"scheme", "POST", "/v1/push", push, http.Header{"Authorization": {"Basic s3cret"}}, 401, "bearer token"},
		{"token only", "POST", "/v1/push", push, http.Header{"Authorization": {"s3cret"}}, 401, "bearer token"},
		{"no token for counters", "GET", "/v1/counters?namespace=api", nil, http.Header{"Authorization": nil}, 401, "bearer token"},
		{"take", "POST", "/v1/push", invalidTake, nil, 400, "body: invalid push: takes[0].rooms[1]: want each counter once"},
		{"cut in a take", "POST", "/v1/push", invalidTake[:len(invalidTake)-1], nil, 400, "ends too early"},
		{"no namespace", "GET", "/v1/counters", nil, nil, 400, "namespace: want 1 to 64"},
		{"namespace", "GET", "/v1/counters?namespace=*", nil, nil, 400, "namespace: want 1 to 64"},
		{"width", "GET", "/v1/counters?namespace=api&width_ms=1s", nil, nil, 400, `width_ms: want up to 64 windows of 1 to 31622400000 ms, got "1s"`},
		{"width of 0", "GET", "/v1/counters?namespace=api&width_ms=1000&width_ms=0", nil, nil, 400, `got "0"`},
		{"wide", "GET", "/v1/counters?namespace=api&width_ms=31622400001", nil, nil, 400, `got "31622400001"`},
		{"empty width", "GET", "/v1/counters?namespace=api&width_ms=", nil, nil, 400, `got ""`},
		{"many widths", "GET", "/v1/counters?namespace=api" + strings.Repeat("&width_ms=7", 65), nil, nil, 400, "want up to 64 windows"},
		{"no token for a window", "GET", "/v1/window?" + exampleWindow, nil, http.Header{"Authorization": nil}, 401, "bearer token"},
		{"window of no namespace", "GET", windowWith("namespace", ""), nil, nil, 400, "namespace: want 1 to 64"},
		{"no id", "GET", windowWith("id", ""), nil, nil, 400, `id: want 32 hexadecimal digits, got ""`},
		{"id", "GET", windowWith("id", "xx000000000000000000000000000000"), nil, nil, 400, "id: want 32"},
		{"short id", "GET", windowWith("id", "ab0000000000000000000000000000"), nil, nil, 400, "id: want 32"},
		{"long id", "GET", windowWith("id", "ab000000000000000000000000000000ab"), nil, nil, 400, "id: want 32"},
		{"odd id", "GET", windowWith("id", "ab0"), nil, nil, 400, "id: want 32"},
		{"no kind", "GET", windowWith("kind", ""), nil, nil, 400, `kind: want fixed_window or sliding_window, got ""`},
		{"kind", "GET", windowWith("kind", "token_bucket"), nil, nil, 400, `kind: want fixed_window or sliding_window, got "token_bucket"`},
		{"window of no width", "GET", windowWith("width_ms", ""), nil, nil, 400, `width_ms: want 1 to 31622400000, got ""`},
		{"window of width 0", "GET", windowWith("width_ms", "0"), nil, nil, 400, "width_ms: want"},
		{"wide window", "GET", windowWith("width_ms", "31622400001"), nil, nil, 400, "width_ms: want"},
		{"no start", "GET", windowWith("start", ""), nil, nil, 400, `start: want a time such as 2026-01-02T15:04:05Z, got ""`},
		{"start", "GET", windowWith("start", "1767225600"), nil, nil, 400, "start: want"},
		{"start before 1970", "GET", windowWith("start", "1969-12-31T23:59:59Z"), nil, nil, 400, "start: want"},
		{"start before 1970 by its zone", "GET", windowWith("start", "1970-01-01T00:59:59+01:00"), nil, nil, 400, "start: want"},
		{"late start", "GET", windowWith("start", "2201-01-01T00:00:00Z"), nil, nil, 400, "start: want"},
		{"ordinal", "GET", windowWith("ordinal", "256"), nil, nil, 400, `ordinal: want 0 to 255, got "256"`},
		{"method of a window", "POST", "/v1/window?" + exampleWindow, nil, nil, 405, ""},
		{"method", "GET", "/v1/push", nil, nil, 405, ""},
		{"method of counters", "POST", "/v1/counters", nil, nil, 405, ""},
		{"method of metrics", "DELETE", "/metrics", nil, nil, 405, ""},
		{"path", "GET", "/v2/push", nil, nil, 404, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			counters := open()
			s := start(t, counters, server.Options{Tokens: oneToken(token)})
			r := request(t, test.method, s.URL+test.path, test.body)
			r.Header.Set("Authorization", "bearer "+token)
			for name, values := range test.header {
				r.Header[name] = values
			}
			answer, body := do(t, s.Client(), r)
			must.EqualOrEnd(t, answer.StatusCode, test.status, "status: %s", body)
			if test.status == 405 && answer.Header.Get("Allow") == "" {
				t.Error("no Allow header")
			}
			if test.status == 401 && answer.Header.Get("WWW-Authenticate") != "Bearer" {
				t.Error("no WWW-Authenticate header")
			}
			if test.detail != "" {
				wantProblem(t, answer, body, test.detail)
			}
			must.Lacks(t, body, token, "answer")
			wantUnchanged(t, counters)
			// And with the token it is served.
			r = request(t, "POST", s.URL+"/v1/push", push)
			r.Header.Set("Authorization", "bEARER  "+token)
			wantStatus(t, s, r, 200)
		})
	}
}

const exampleWindow = "namespace=api&id=ab000000000000000000000000000000&kind=fixed_window&width_ms=60000&start=2026-01-01T00:00:00Z"

// windowWith asks for it, with one parameter changed.
func windowWith(name, value string) string {
	query, err := url.ParseQuery(exampleWindow)
	if err != nil {
		return err.Error()
	}
	query.Set(name, value)
	return "/v1/window?" + query.Encode()
}

func TestWindow(t *testing.T) {
	now := epoch
	s := start(t, memory.New(memory.Options{Now: func() time.Time { return now }}), server.Options{})
	p := examplePush()
	p.Items[2] = wire.Item{
		LimitCounter: wire.LimitCounter{ID: wire.ID{0xab}, Kind: uint8(window.SlidingWindow), Ordinal: 3, WidthMillis: 1000},
		Newest:       uint64(epoch.Unix()), Hits: []int64{7, 4},
	}
	pushed(t, s, p)
	sliding := func(start string) string {
		return "/v1/window?namespace=api&id=AB000000000000000000000000000000&kind=sliding_window&width_ms=1000&ordinal=3&start=" + start
	}
	now = now.Add(time.Millisecond)
	for _, test := range []struct{ path, want string }{
		{"/v1/window?" + exampleWindow, `{"start":"2026-01-01T00:00:00Z","hits":5}`},
		// Any time in the window names it, in any zone.
		{windowWith("start", "2026-01-01T01:00:59.999999999+01:00"), `{"start":"2026-01-01T00:00:00Z","hits":5}`},
		{windowWith("start", "2026-01-01T00:01:00Z"), `{"start":"2026-01-01T00:01:00Z","hits":0}`},
		{windowWith("start", "1970-01-01T00:00:00Z"), `{"start":"1970-01-01T00:00:00Z","hits":0}`},
		{windowWith("start", "2200-12-31T23:59:59Z"), `{"start":"2200-12-31T23:59:00Z","hits":0}`},
		{windowWith("namespace", "other"), `{"start":"2026-01-01T00:00:00Z","hits":0}`},
		{windowWith("ordinal", "1"), `{"start":"2026-01-01T00:00:00Z","hits":0}`},
		{windowWith("id", "ac000000000000000000000000000000"), `{"start":"2026-01-01T00:00:00Z","hits":0}`},
		{sliding("2026-01-01T00:00:00.5Z"), `{"start":"2026-01-01T00:00:00Z","hits":7}`},
		{sliding("2025-12-31T23:59:59Z"), `{"start":"2025-12-31T23:59:59Z","hits":4}`},
	} {
		answer, body := do(t, s.Client(), request(t, "GET", s.URL+test.path, nil))
		if answer.StatusCode != 200 || answer.Header.Get("Content-Type") != "application/json" || body != test.want+"\n" {
			t.Errorf("%s: status %d: %swant %s", test.path, answer.StatusCode, body, test.want)
		}
	}
}

func TestCountersOfWidths(t *testing.T) {
	s := start(t, open(), server.Options{})
	pushed(t, s, examplePush())
	for query, want := range map[string]int{
		"": 5, "&width_ms=1000": 1, "&width_ms=60000": 4, "&width_ms=60000&width_ms=1000": 5, "&width_ms=1": 0,
		strings.Repeat("&width_ms=60000", 64): 4,
	} {
		answer, lines := do(t, s.Client(), request(t, "GET", s.URL+"/v1/counters?namespace=api"+query, nil))
		must.Equal(t, answer.StatusCode, 200, "%s: status, with %s", query, lines)
		must.Equal(t, strings.Count(lines, "\n"), want, "%s: counters in\n%s", query, lines)
	}
}

func TestTakes(t *testing.T) {
	s := start(t, open(), server.Options{})
	push := func(node, sequence uint64) *wire.Answer {
		t.Helper()
		return pushed(t, s, &wire.Push{Namespace: "api", Node: node, Sender: node, Sequence: sequence, Floor: 1, Takes: threeTakes()})
	}
	at := uint64(epoch.UnixNano())
	want := []wire.Grant{
		{Units: 3, AtNanos: at, Totals: []wire.Total{{Newest: at / 60e9, Hits: []uint64{3}}, {Newest: at / 15e9, Hits: []uint64{9}, Ages: []uint64{0}}}},
		{Units: 8, AtNanos: at, Totals: []wire.Total{{Newest: at, Hits: []uint64{24}}}},
		{AtNanos: at, Totals: []wire.Total{{Newest: at, Hits: []uint64{0}}}},
	}
	for range 2 {
		if a := push(1, 1); a.Nodes != 1 || !reflect.DeepEqual(a.Grants, want) {
			t.Errorf("answer %+v, want one node, and grants %+v", a, want)
		}
	}
	// The answer counts the nodes of all pushes; each is counted once, whatever it pushes.
	if a := push(2, 1); a.Nodes != 2 || a.Grants[0].Units != 0 || a.Grants[1].Units != 6 {
		t.Errorf("answer %+v, want two nodes, nothing left of the first, and a lease of 6 units", a)
	}
	must.Equal(t, push(2, 2).Nodes, 2, "nodes")
}

func wantProblem(t *testing.T, answer *http.Response, body, detail string) {
	t.Helper()
	var problem struct {
		Title, Detail string
		Status        int
	}
	must.OKf(t, json.Unmarshal([]byte(body), &problem), "%s", body)
	if problem.Title != http.StatusText(answer.StatusCode) || problem.Status != answer.StatusCode ||
		!strings.Contains(problem.Detail, detail) || answer.Header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("%s %s, want a problem with %q", answer.Header.Get("Content-Type"), body, detail)
	}
}

func wantUnchanged(t *testing.T, counters store.Store) {
	t.Helper()
	for _, namespace := range []string{"api", "other"} {
		must.Report(t, counters.Counters(context.WithoutCancel(t.Context()), namespace, nil, func(c store.LimitCounter) error {
			t.Errorf("%s: counter %+v, want none", namespace, c)
			return nil
		}))
	}
}

// brokenStore fails as long as it is told to.
type brokenStore struct {
	store.Store
	err   error
	notes map[store.Topic]error // of notes on some topics
}

func (s *brokenStore) Push(ctx context.Context, p *wire.Push, nodes uint64) (store.Outcome, error) {
	if s.err != nil {
		return store.Outcome{}, s.err
	}
	return s.Store.Push(ctx, p, nodes)
}

func (s *brokenStore) Note(ctx context.Context, topic store.Topic, namespace string, note store.Note) (uint64, error) {
	if err := s.notes[topic]; err != nil {
		return 0, err
	}
	return s.Store.Note(ctx, topic, namespace, note)
}

func (s *brokenStore) Ping(context.Context) error { return s.err }

func (s *brokenStore) Counters(ctx context.Context, namespace string, only *store.Wanted, visit func(store.LimitCounter) error) error {
	return errors.Join(s.Store.Counters(ctx, namespace, only, visit), s.err)
}

func TestStoreFails(t *testing.T) {
	counters := &brokenStore{Store: open(), err: errors.New("out of order")}
	log, clock := &commandtest.Output{}, &clock{}
	s := start(t, counters, server.Options{Logger: slog.New(slog.NewTextHandler(log, nil)), Now: clock.now})
	body := wire.AppendPush(nil, examplePush())
	for range 2 {
		clock.advance(time.Second)
		for method, path := range map[string]string{"POST": "/v1/push", "GET": "/healthz"} {
			answer, text := do(t, s.Client(), request(t, method, s.URL+path, body))
			must.Equal(t, answer.StatusCode, 503, "%s: status", path)
			wantProblem(t, answer, text, "the store")
			must.Lacks(t, text, "out of order", "%s, to strangers", path)
		}
	}
	wantStatus(t, s, request(t, "GET", s.URL+"/v1/counters?namespace=api", nil), 503)
	wantMetrics(t, s.Config.Handler, "weir_store_errors_total 5")
	wantStatus(t, s, request(t, "GET", s.URL+"/v1/window?"+exampleWindow, nil), 503)
	// A push that can't be told of how many nodes it is one is not applied, as where no node is known.
	counters.err, counters.notes = nil, map[store.Topic]error{store.Nodes: counters.err}
	other := examplePush()
	other.Namespace, other.Node = "other", 5
	wantStatus(t, s, request(t, "POST", s.URL+"/v1/push", wire.AppendPush(nil, other)), 503)
	wantUnchanged(t, counters)
	counters.notes = nil
	for range 2 {
		clock.advance(time.Second)
		wantStatus(t, s, request(t, "POST", s.URL+"/v1/push", body), 200)
	}
	if got := log.String(); strings.Count(got, "\n") != 2 || !strings.Contains(got, "out of order") || !strings.Contains(got, "is back") {
		t.Errorf("log, want one line of the failure and one of its end:\n%s", got)
	}
	// A list that is cut off does not look whole.
	counters.err = errors.New("half-way")
	r, err := s.Client().Do(request(t, "GET", s.URL+"/v1/counters?namespace=api", nil))
	if err == nil {
		_, err = io.ReadAll(r.Body)
		must.Report(t, r.Body.Close())
	}
	must.Fails(t, err, "a list that is cut off")
}

// failing is a listener of one connection, which whoever ends its context closes in the same moment.
type failing struct {
	net.Listener
	ended <-chan struct{}
	taken bool
}

func (l *failing) Accept() (net.Conn, error) {
	if l.taken {
		<-l.ended
		return nil, net.ErrClosed
	}
	l.taken = true
	return l.Listener.Accept()
}

// A request that is being served when the end comes is finished, also if its listener is closed as the
// context ends and before the server has noticed. Afterwards nobody listens.
func TestServe(t *testing.T) {
	for i := range 50 {
		l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
		ctx, stop := context.WithCancel(t.Context())
		entered, finish, finished := make(chan struct{}), make(chan struct{}), make(chan struct{})
		handler := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			close(entered)
			<-finish
			close(finished)
		})
		listener := l
		if i > 0 {
			listener = &failing{Listener: l, ended: ctx.Done()}
		}
		served := make(chan error, 1)
		go func() { served <- listen.Serve(ctx, listener, handler) }()
		answered := make(chan error, 1)
		go func() {
			answer, err := (&http.Client{Transport: new(http.Transport)}).Do(request(t, "GET", "http://"+l.Addr().String(), nil))
			if err == nil {
				err = answer.Body.Close()
			}
			answered <- err
		}()
		<-entered
		stop()
		select {
		case err := <-served:
			t.Errorf("the server has ended with a request under way: %v", err)
			close(finish)
			<-answered
			return
		case <-time.After(time.Millisecond): // time enough for most to go wrong in
		}
		close(finish)
		must.Report(t, errors.Join(<-answered, <-served))
		<-finished
		if c, err := net.Dial("tcp", l.Addr().String()); err == nil {
			t.Error("the listener is still open", c.Close())
		}
	}
}

// FuzzPush posts any body: it is a push, or refused without a change. Nothing is the server's
// fault.
func FuzzPush(f *testing.F) {
	push := wire.AppendPush(nil, examplePush())
	f.Add(push)
	f.Add(push[:len(push)/2])
	f.Add([]byte{})
	f.Add([]byte("q\x03api\x00\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x01\x01\x00\x00\x00\x06\x00\x00\x00\x00")) // a report
	for _, change := range []func(p *wire.Push){
		func(p *wire.Push) { p.Items[0].Kind = 9 },
		func(p *wire.Push) { p.Items[0].Newest = 0 },
		func(p *wire.Push) { p.Items[1].Hits = []int64{1, 1} },
		func(p *wire.Push) { p.Sequence = 1 << 60 },
		func(p *wire.Push) { p.Items = nil },
		func(p *wire.Push) { p.Items[1].Newest = 1<<64 - 1 },
		func(p *wire.Push) { p.Items[3].Newest = 1<<64 - 1 },
		func(p *wire.Push) { p.Items[4].Newest = 1<<64 - 1 },
		func(p *wire.Push) { p.Items[4].Limit, p.Items[4].Hits = 0, []int64{-wire.MaxHits} },
		func(p *wire.Push) { p.Takes = threeTakes() },
		func(p *wire.Push) { p.Takes, p.Items = threeTakes()[1:], nil },
		func(p *wire.Push) { p.Takes = threeTakes(); p.Takes[0].Rooms[1].Cost = wire.MaxHits },
		func(p *wire.Push) { p.Takes = threeTakes(); p.Takes[1].Rooms[0].Limit = 0 },
		func(p *wire.Push) { p.Takes = threeTakes(); p.Takes[2].Rooms[0].Kind = 9 },
	} {
		p := examplePush()
		change(p)
		f.Add(wire.AppendPush(nil, p))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		counters := open()
		handler := server.Handler(counters, server.Options{Logger: slog.New(slog.DiscardHandler)})
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, request(t, "POST", wire.PushPath, body))
		switch {
		case w.Code == 200 && wire.IsReport(body):
			if _, err := wire.DecodeReport(body); err != nil || w.Body.Len() > 0 {
				t.Fatalf("taken, though %v, and answered with %d bytes", err, w.Body.Len())
			}
		case w.Code == 200 && wire.IsUsed(body):
			if used, err := wire.DecodeUsed(body); err != nil || !wire.AnswersUsed(w.Body.Bytes(), used.Sequence) {
				t.Fatalf("taken, though %v, and answered with %x", err, w.Body.Bytes())
			}
		case w.Code == 200:
			p, err := wire.DecodePush(body)
			must.OKf(t, err, "taken")
			a := must.Get(wire.DecodeAnswer(w.Body.Bytes()))(t)
			must.AtMost(t, w.Body.Len(), wire.MaxAnswer, "bytes of an answer")
			must.EqualOrEnd(t, len(a.Totals), len(p.Items), "totals")
			must.EqualOrEnd(t, len(a.Grants), len(p.Takes), "grants")
			for i, g := range a.Grants {
				take := &p.Takes[i]
				if g.Units != 0 && (g.Units < take.Least || g.Units > take.Most) {
					t.Fatalf("take %d: %d units, want 0, or %d to %d", i, g.Units, take.Least, take.Most)
				}
				for j := range take.Rooms {
					if r := &take.Rooms[j]; g.Units != 0 && r.Cost > max(r.Limit, r.Burst)/g.Units {
						t.Fatalf("take %d: %d units of %d hits, of a limit of %d", i, g.Units, r.Cost, r.Limit)
					}
				}
			}
			for i := range a.Totals {
				if window.Kind(p.Items[i].Kind) == window.SlidingBuckets {
					continue
				}
				must.EqualOrEnd(t, len(a.Totals[i].Hits), len(p.Items[i].Hits), "item %d: totals of %d windows", i, len(p.Items[i].Hits))
			}
		case w.Code >= 400 && w.Code < 500:
			wantUnchanged(t, counters)
		default:
			t.Fatalf("status %d: %s", w.Code, w.Body)
		}
	})
}

// A store in a file tells how large that is, and how much it keeps.
func TestFileMetrics(t *testing.T) {
	counters := must.Get(file.Open(filepath.Join(t.TempDir(), "weir.db"), file.Options{Now: func() time.Time { return epoch }, NoSync: true}))(t)
	backend := start(t, counters, server.Options{})
	pushed(t, backend, examplePush())
	_, text := served(t, backend.Config.Handler, "GET", "/metrics", nil)
	for _, line := range []string{`weir_memory_counters [1-9]`, `weir_store_file_bytes [1-9]`, `weir_store_file_free_bytes [1-9]`} {
		must.Equal(t, regexp.MustCompile(`(?m)^`+line).MatchString(text), true, "want %s in\n%s", line, text)
	}
	must.Report(t, counters.Close())
}

// A store in memory tells how much it keeps.
func TestMemoryMetrics(t *testing.T) {
	counters := memory.New(memory.Options{MaxCounters: 3, Now: func() time.Time { return epoch }})
	backend := start(t, counters, server.Options{})
	pushed(t, backend, examplePush())
	wantMetrics(t, backend.Config.Handler,
		"weir_memory_counters 3", "weir_memory_senders 1", `weir_memory_evicted_total{record="counter"} 2`, `weir_memory_evicted_total{record="sender"} 0`, `weir_memory_refused_total{record="sender"} 0`,
		"weir_memory_grant_bytes 0", `weir_memory_evicted_total{record="grants"} 0`)
}

// threeTakes are valid: with two limits, a lease, and with a rule that counts rejected hits.
func threeTakes() []wire.Take {
	of := func(id byte, kind window.Kind, precision uint64) wire.LimitCounter {
		return wire.LimitCounter{ID: wire.ID{id}, Kind: uint8(kind), WidthMillis: 60_000, Precision: precision}
	}
	return []wire.Take{
		{Least: 2, Most: 5, Rooms: []wire.Room{
			{LimitCounter: of(0xaa, window.FixedWindow, 0), Limit: 10, Cost: 1}, {LimitCounter: of(0xaa, window.SlidingBuckets, 15e9), Limit: 10, Cost: 3},
		}},
		{Least: 1, Most: 9, Lease: true, Rooms: []wire.Room{{LimitCounter: of(0xbb, window.TokenBucket, 0), Limit: 10, Burst: 101, Cost: 3}}},
		{Least: 11, Most: 11, Rooms: []wire.Room{{LimitCounter: of(0xcc, window.FirstHitWindow, 0), Limit: 10, Cost: 1, CountRejected: true}}},
	}
}
