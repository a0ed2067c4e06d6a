package ratelimit

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"weir/internal/server"
	"weir/internal/store/memory"
	"weir/internal/wire"
)

// serve runs a counter backend as weir serve does.
func serve(t *testing.T, h http.Handler) (url string) {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

func weirServe(token string) http.Handler {
	return server.Handler(memory.New(memory.Options{}), server.Options{Token: token, Logger: slog.New(slog.DiscardHandler)})
}

func dial(t *testing.T, url string, o DialOptions) *Server {
	t.Helper()
	s, err := Dial(url, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// Two programs that dial one backend keep one limit of every kind.
func TestDial(t *testing.T) {
	t.Parallel()
	url := serve(t, weirServe("s3cret"))
	for name, l := range kinds(100) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			options := NamespaceOptions{
				Name: strings.ReplaceAll(name, " ", "-"), Backend: dial(t, url, DialOptions{Token: "s3cret"}), Rules: rule(l),
				Exact: true, Timeout: time.Minute,
			}
			passed := 0
			for range 2 {
				n, err := New(Options{}).NewNamespace(options)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { n.Close(context.Background()) })
				for range 60 {
					if decide(t, limiter(t, n, "r"), 1, "ann").Allowed {
						passed++
					}
				}
			}
			if passed != 100 {
				t.Errorf("%d passed, want 100", passed)
			}
		})
	}
}

// Whatever is in the way, nothing is lost: what a backend has not taken, it gets when it is back.
func TestDialFails(t *testing.T) {
	t.Parallel()
	var answer atomic.Pointer[http.Handler]
	genuine := weirServe("s3cret")
	url := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { (*answer.Load()).ServeHTTP(w, r) }))
	define := func(token string) *Namespace {
		n, err := New(Options{}).NewNamespace(NamespaceOptions{
			Name: "test", Backend: dial(t, url, DialOptions{Token: token}), WindowSizes: []time.Duration{240 * time.Hour},
			SyncRate: time.Hour, Timeout: time.Minute,
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { n.Close(context.Background()) })
		return n
	}
	away := http.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	answer.Store(&away)
	n := define("wrong")
	increment(t, n, "ann", 240*time.Hour, 7)
	for _, test := range []struct {
		name   string
		answer http.HandlerFunc
		want   string
	}{
		{"token", genuine.ServeHTTP, "401 Unauthorized"},
		{"away", away.ServeHTTP, "EOF"},
		{"no answer of Weir's", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }, "want the push's answer"},
		{"another one's answer", func(w http.ResponseWriter, _ *http.Request) {
			if _, err := w.Write(wire.AppendAnswer(nil, &wire.Answer{NowNanos: 1})); err != nil {
				t.Error(err)
			}
		}, "want the push's answer"},
		{"a long answer", func(w http.ResponseWriter, _ *http.Request) {
			if _, err := w.Write(make([]byte, wire.MaxAnswer+1)); err != nil {
				t.Error(err)
			}
		}, "the backend's answer: want at most"},
		{"a proxy's 400", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadRequest) }, "400 Bad Request"},
	} {
		h := http.Handler(test.answer)
		answer.Store(&h)
		// A probe may be under way, and of several pushes one at a time is tried.
		var err error
		for err == nil || !strings.Contains(err.Error(), test.want) {
			if err = n.Sync(t.Context()); t.Context().Err() != nil {
				t.Fatalf("%s: want %q", test.name, test.want)
			}
		}
	}
	trusted := http.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Set("Authorization", "Bearer s3cret")
		genuine.ServeHTTP(w, r)
	}))
	answer.Store(&trusted)
	if err := n.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if got, lost := rate(t, define("s3cret"), "ann", 240*time.Hour), n.Stats().Lost; got < 6 || got > 7 || lost != 0 {
		t.Errorf("the backend has %v hits, want 7, and %d were lost", got, lost)
	}
}

// A push that the backend calls invalid is not sent again; what somebody on the way says is no such
// word.
func TestDialInvalidPush(t *testing.T) {
	t.Parallel()
	s := dial(t, serve(t, weirServe("")), DialOptions{})
	for name, push := range map[string][]byte{"no push": []byte("?"), "too long": make([]byte, wire.MaxBody+1)} {
		if _, err := s.Push(t.Context(), push); !errors.Is(err, ErrRefused) {
			t.Errorf("%s: got %v, want %v", name, err, ErrRefused)
		}
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
