package ratelimit

import (
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"weir/internal/must"
	"weir/internal/server"
	"weir/internal/store/memory"
	"weir/internal/trust"
	"weir/internal/trust/trusttest"
	"weir/internal/wire"
)

// serve runs a counter backend like weir serve.
func serve(t *testing.T, h http.Handler) (url string) {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

// oneToken returns a token for all namespaces; none if it is empty.
func oneToken(token string) *trust.Tokens {
	tokens, err := trust.OneToken(token)
	if err != nil {
		return nil
	}
	return tokens
}

func weirServe(token string) http.Handler {
	return server.Handler(memory.New(memory.Options{}), server.Options{Tokens: oneToken(token), Logger: slog.New(slog.DiscardHandler)})
}

func dial(t *testing.T, url string, o DialOptions) *Client {
	t.Helper()
	s := must.Get(Dial(url, o))(t)
	t.Cleanup(func() { must.Report(t, s.Close()) })
	return s
}

// Two programs that dial the same backend share a limit of every kind.
func TestDial(t *testing.T) {
	t.Parallel()
	url := serve(t, weirServe("s3cret"))
	for name, l := range kinds(100) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			options := Options{
				Name: strings.ReplaceAll(name, " ", "-"), Backend: dial(t, url, DialOptions{Token: "s3cret"}), Rules: rule(l),
				Exact: true, Timeout: time.Minute,
			}
			passed := 0
			for range 2 {
				n := node(t, options)
				for range 60 {
					if decide(t, limiter(t, n, "r"), 1, "ann").Allowed {
						passed++
					}
				}
			}
			must.Equal(t, passed, 100, "passed")
		})
	}
}

// No failure loses hits: if the backend could not accept them, it gets them when it is back.
func TestDialFails(t *testing.T) {
	t.Parallel()
	var answer atomic.Pointer[http.Handler]
	genuine := weirServe("s3cret")
	url := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { (*answer.Load()).ServeHTTP(w, r) }))
	define := func(token string) *Namespace {
		return node(t, Options{
			Backend: dial(t, url, DialOptions{Token: token}), Windows: []time.Duration{240 * time.Hour}, SyncRate: time.Hour, Timeout: time.Minute,
		})
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
		{"no answer of Weir's", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }, "want the answer to a push"},
		{"another one's answer", func(w http.ResponseWriter, _ *http.Request) {
			_, err := w.Write(wire.AppendAnswer(nil, &wire.Answer{NowNanos: 1}))
			must.Report(t, err)
		}, "want the answer to a push"},
		{"a long answer", func(w http.ResponseWriter, _ *http.Request) {
			_, err := w.Write(make([]byte, wire.MaxAnswer+wire.MaxNear+1))
			must.Report(t, err)
		}, "the backend's answer: want at most"},
		{"a proxy's 400", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadRequest) }, "400 Bad Request"},
	} {
		h := http.Handler(test.answer)
		answer.Store(&h)
		// A probe may be under way, and of several pushes only one is tried at a time.
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
	must.Report(t, n.Close(t.Context()))
	must.Between(t, rate(t, define("s3cret"), "ann", 240*time.Hour), 6, 7, "hits of 7 that the backend has")
	must.Equal(t, n.Stats().LostHits, 0, "hits were lost")
}

// A push whose connection ends, as that of a backend that leaves, is sent once more on another.
func TestDialConnectionEnds(t *testing.T) {
	t.Parallel()
	var arrived atomic.Int32
	genuine := weirServe("")
	s := dial(t, serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if arrived.Add(1) == 2 {
			_, err := io.ReadAll(r.Body)
			must.Report(t, err)
			panic(http.ErrAbortHandler)
		}
		must.Equal(t, len(r.Header.Values("X-Idempotency-Key")), 0, "keys that are sent")
		genuine.ServeHTTP(w, r)
	})), DialOptions{})
	for i := range uint64(2) {
		answer := must.Get(s.Push(t.Context(), wire.AppendPush(nil, &wire.Push{Namespace: "ns", Sender: 1, Sequence: i + 1, Floor: 1})))(t)
		must.Get(wire.DecodeAnswer(answer))(t)
	}
	must.Equal(t, arrived.Load(), 3, "pushes that have arrived")
}

// A push that the backend calls invalid is not sent again. The same status from a server in between
// does not count.
func TestDialInvalidPush(t *testing.T) {
	t.Parallel()
	s := dial(t, serve(t, weirServe("")), DialOptions{})
	for name, push := range map[string][]byte{"no push": []byte("?"), "too long": make([]byte, wire.MaxBody+1)} {
		_, err := s.Push(t.Context(), push)
		must.Is(t, err, ErrPushRefused, name)
	}
}

// idle is a transport that records when its idle connections are closed.
type idle struct {
	http.RoundTripper
	closed int
}

func (i *idle) CloseIdleConnections() { i.closed++ }

// A client does not close connections that it shares with the rest of the program.
func TestDialSharesConnections(t *testing.T) {
	usual := http.DefaultTransport
	defer func() { http.DefaultTransport = usual }()
	shared := &idle{RoundTripper: usual}
	http.DefaultTransport = shared
	url := serve(t, weirServe(""))
	greeting := wire.AppendPush(nil, &wire.Push{Namespace: "ns", Sender: 1, Sequence: 1, Floor: 1})
	for _, o := range []DialOptions{{}, {HTTPClient: http.DefaultClient}} {
		c := must.Get(Dial(url, o))(t)
		must.Get(c.Push(t.Context(), greeting))(t)
		must.Report(t, c.Close())
		must.Equal(t, shared.closed, 0, "times closed")
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

// A program sends its certificate to a server that requires it, and verifies the server's.
func TestDialTLS(t *testing.T) {
	authority := trusttest.New(t)
	certificate, key := authority.Issue(t, "weir")
	config := must.Get(trust.Certificates(trust.CertificateFiles{Certificate: certificate, Key: key, ClientCA: authority.File}, time.Now, slog.New(slog.DiscardHandler)))(t)
	s := httptest.NewUnstartedServer(server.Handler(memory.New(memory.Options{}), server.Options{Certificates: true, Logger: slog.New(slog.DiscardHandler)}))
	s.TLS, s.EnableHTTP2 = config, true
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.StartTLS()
	t.Cleanup(s.Close)
	pair := must.Get(tls.LoadX509KeyPair(certificate, key))(t)
	greeting := wire.AppendPush(nil, &wire.Push{Namespace: "ns", Sender: 1, Sequence: 1, Floor: 1})
	for _, test := range []struct {
		tls  *tls.Config
		want string
	}{
		{&tls.Config{RootCAs: authority.Pool, Certificates: []tls.Certificate{pair}}, "<nil>"},
		{&tls.Config{RootCAs: authority.Pool}, "want a client certificate"},
		{&tls.Config{RootCAs: trusttest.New(t).Pool, Certificates: []tls.Certificate{pair}}, "unknown authority"},
		{nil, "unknown authority"},
	} {
		backend := dial(t, s.URL, DialOptions{TLS: test.tls})
		_, err := backend.Push(t.Context(), greeting)
		must.Contains(t, fmt.Sprint(err), test.want, "")
		must.Report(t, backend.Close())
	}
	for url, o := range map[string]DialOptions{
		"http://weir:9180":  {TLS: &tls.Config{}},
		"https://weir:9180": {TLS: &tls.Config{}, HTTPClient: &http.Client{}},
	} {
		_, err := Dial(url, o)
		must.Contains(t, fmt.Sprint(err), "want TLS only with an https URL", "%s", url)
	}
}
