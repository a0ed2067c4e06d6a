package ratelimit

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"weir/internal/server"
	"weir/internal/store"
	"weir/internal/store/memory"
	"weir/internal/wire"
	"weir/window"
)

// serveBackend runs a counter backend as weir serve does.
func serveBackend(t *testing.T, counters store.Store, token string) *httptest.Server {
	t.Helper()
	backend := httptest.NewServer(server.Handler(counters, server.Options{Token: token, Logger: slog.New(slog.DiscardHandler)}))
	t.Cleanup(backend.Close)
	return backend
}

func dial(t *testing.T, url string, o DialOptions) *Backend {
	t.Helper()
	b, err := Dial(url, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// Every kind of limit, as a rule of one namespace.
func everyKind() []Rule {
	return []Rule{{Name: "r", Limits: []window.Limit{
		FixedWindow(100, time.Minute), FirstHitWindow(100, time.Minute), SlidingWindow(100, time.Minute),
		SlidingBuckets(100, time.Minute, time.Second), SlidingLog(100, time.Minute), TokenBucket(100, time.Minute, 100),
	}}}
}

// Two processes that dial one backend know each other's hits, of every kind of limit; a third one fetches them.
func TestDial(t *testing.T) {
	t.Parallel()
	clock := newFakeClock()
	backend := serveBackend(t, memory.New(memory.Options{Now: clock.now}), "s3cret")
	start := func() *Namespace {
		return define(t, clock, NamespaceOptions{Store: dial(t, backend.URL, DialOptions{Token: "s3cret"}), Rules: everyKind()})
	}
	one, two := start(), start()
	limiter(t, one, "r").Decide(30, "ann")
	limiter(t, two, "r").Decide(40, "ann")
	syncAll(t, one, two, one)
	three := start()
	if err := three.Fetch(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, n := range []*Namespace{one, two, three} {
		if d := limiter(t, n, "r").Decide(0, "ann"); d.Remaining != 30 {
			t.Errorf("process %d: %d remaining, want 30", i, d.Remaining)
		}
	}
}

// What a backend refuses or fails at is an error that says so. Hits are kept, and arrive once it is back.
func TestDialFails(t *testing.T) {
	t.Parallel()
	clock, counters := newFakeClock(), memory.New(memory.Options{})
	var answer atomic.Pointer[http.HandlerFunc]
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { (*answer.Load())(w, r) }))
	t.Cleanup(backend.Close)
	n := define(t, clock, NamespaceOptions{Store: dial(t, backend.URL, DialOptions{Token: "wrong"}), WindowSizes: []time.Duration{time.Hour}})
	clock.advance(time.Since(clock.now()))
	if _, err := n.Increment("ann", time.Hour, 7); err != nil {
		t.Fatal(err)
	}
	genuine := server.Handler(counters, server.Options{Token: "s3cret", Logger: slog.New(slog.DiscardHandler)})
	for _, test := range []struct {
		name   string
		answer http.HandlerFunc
		want   string
	}{
		{"token", genuine.ServeHTTP, "401 Unauthorized"},
		{"away", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "EOF"},
		{"no answer of Weir's", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }, "the backend's answer"},
		{"another one's answer", func(w http.ResponseWriter, _ *http.Request) {
			if _, err := w.Write(wire.AppendAnswer(nil, &wire.Answer{NowNanos: 1})); err != nil {
				t.Error(err)
			}
		}, "want 1 totals"},
		{"a proxy's 400", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadRequest) }, "400 Bad Request"},
	} {
		answer.Store(&test.answer)
		if err := n.Sync(t.Context()); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %q", test.name, err, test.want)
		}
	}
	trusted := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Set("Authorization", "Bearer s3cret")
		genuine.ServeHTTP(w, r)
	})
	answer.Store(&trusted)
	syncAll(t, n)
	if got := sums(t, dial(t, backend.URL, DialOptions{}), "test"); len(got) != 1 || only(got) != 7 {
		t.Errorf("the backend has %v, want 7 hits", got)
	}
	if n.Lost() != 0 {
		t.Errorf("%d hits were lost", n.Lost())
	}
}

func only(sums map[string]int64) (n int64) {
	for _, n = range sums {
	}
	return n
}

// A push that the backend calls invalid is not sent again; what somebody on the way says is no such word.
func TestDialInvalidPush(t *testing.T) {
	t.Parallel()
	b := dial(t, serveBackend(t, memory.New(memory.Options{}), "").URL, DialOptions{})
	if _, err := b.Push(context.Background(), &wire.Push{Namespace: "test"}, 1); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("got %v, want %v", err, store.ErrInvalid)
	}
}

func TestDialBadURL(t *testing.T) {
	t.Parallel()
	for _, base := range []string{"", "weir:9180", "redis://weir", "http://", "http://user:hunter2@weir", "http://weir?token=hunter2", "http://we ir"} {
		if _, err := Dial(base, DialOptions{}); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: got %v", base, err)
		}
	}
}

// A counter's line is read as it was written.
func TestCounterLines(t *testing.T) {
	t.Parallel()
	for _, l := range everyKind()[0].Limits {
		c := store.Counter{Counter: counterOf(wire.ID{1, 2, 3}, &l), Windows: []store.Window{{Number: 1_767_225, Hits: -4}}}
		if l.Kind == window.TokenBucket {
			c.Limit = l.Max
		}
		line := c.Line()
		if got, err := line.Counter(); err != nil || !reflect.DeepEqual(got, c) {
			t.Errorf("%s: got %+v, %v, want %+v", line.Kind, got, err, c)
		}
	}
	bad := store.CounterLine{ID: "zz", Kind: "fixed_window", WidthMillis: 1}
	if _, err := bad.Counter(); err == nil {
		t.Error("a line without an id was read")
	}
}
