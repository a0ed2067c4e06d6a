package transport

import (
	"context"
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/test/bufconn"

	"weir/internal/must"
	"weir/internal/trust/trusttest"
)

// pipes is a listener whose connections are in memory.
type pipes struct {
	*bufconn.Listener
	// silent is the number of connections that bring nothing any more, and dialled that of all.
	silent, dialled atomic.Int64
}

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	near, err := p.DialContext(ctx)
	return &line{near, p, p.dialled.Add(1)}, err
}

// line is a connection that takes everything, and brings nothing once it is silent.
type line struct {
	net.Conn
	of     *pipes
	number int64
}

func (l *line) silent() bool { return l.number <= l.of.silent.Load() }

func (l *line) Read(b []byte) (n int, err error) {
	for n == 0 && err == nil {
		if n, err = l.Conn.Read(b); l.silent() {
			n = 0
		}
	}
	return n, err
}

func (l *line) Write(b []byte) (int, error) {
	if l.silent() {
		return len(b), nil
	}
	return l.Conn.Write(b)
}

// A connection whose other end is gone without a word is soon replaced.
func TestSilentConnection(t *testing.T) {
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2.0"} {
		t.Run(protocol, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { replaced(t, protocol) })
		})
	}
}

func replaced(t *testing.T, protocol string) {
	authority := trusttest.New(t)
	pair := must.Get(tls.LoadX509KeyPair(authority.Issue(t, "weir")))(t)
	p := &pipes{Listener: bufconn.Listen(1 << 10)}
	s := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, err := io.WriteString(w, r.Proto); err != nil {
				t.Error(err)
			}
		}),
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}}, ErrorLog: log.New(io.Discard, "", 0),
	}
	if protocol == "HTTP/1.1" {
		s.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){}
	}
	served := make(chan error)
	go func() { served <- s.ServeTLS(p, "", "") }()
	client := New(&tls.Config{RootCAs: authority.Pool})
	client.DialContext = p.dial
	ask := func() (string, error) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		r := must.Get(http.NewRequestWithContext(ctx, http.MethodPost, "https://localhost/v1/push", strings.NewReader("push")))(t)
		answer, err := client.RoundTrip(r)
		if err != nil {
			return "", err
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		return string(body), err
	}
	if got, err := ask(); got != protocol || err != nil {
		t.Fatalf("answer %q, %v, want %s", got, err, protocol)
	}
	p.silent.Store(p.dialled.Load())
	var err error
	tries := 0
	for ; tries < 10; tries++ {
		if _, err = ask(); err == nil {
			break
		}
	}
	must.Reportf(t, err, "after %d tries", tries)
	must.Equal(t, p.dialled.Load(), 2, "connections after %d tries", tries)
	client.CloseIdleConnections()
	must.Report(t, s.Close())
	must.Is(t, <-served, http.ErrServerClosed, "")
}

// A program's bound on its connections keeps no push from the backend while polls wait for their answers, and a transport of
// another type leaves connections and handshakes their ends.
func TestProgramsTransport(t *testing.T) {
	usual := http.DefaultTransport
	defer func() { http.DefaultTransport = usual }()
	bounded := usual.(*http.Transport).Clone()
	bounded.MaxConnsPerHost = 2
	for name, of := range map[string]http.RoundTripper{"bounded": bounded, "of another type": struct{ http.RoundTripper }{usual}} {
		http.DefaultTransport = of
		t.Run(name, func(t *testing.T) { synctest.Test(t, pushedBesidePolls) })
	}
}

func pushedBesidePolls(t *testing.T) {
	client := New(nil)
	if client.DialContext == nil || client.IdleConnTimeout == 0 || client.TLSHandshakeTimeout == 0 || client.MaxIdleConns == 0 {
		t.Errorf("no bound of a time or a number: %+v", client)
	}
	p := &pipes{Listener: bufconn.Listen(1 << 10)}
	client.DialContext = p.dial
	polls, news := make(chan struct{}), make(chan struct{})
	s := &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/poll" {
			polls <- struct{}{}
			<-news
		}
	})}
	served := make(chan error)
	go func() { served <- s.Serve(p) }()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ask := func(path string) {
		answer, err := client.RoundTrip(must.Get(http.NewRequestWithContext(ctx, http.MethodPost, "http://localhost"+path, nil))(t))
		if err != nil {
			t.Errorf("%s: %v", path, err)
			return
		}
		must.Report(t, answer.Body.Close())
	}
	var asking sync.WaitGroup
	for range 2 {
		asking.Go(func() { ask("/poll") })
		<-polls
	}
	ask("/push")
	close(news)
	asking.Wait()
	client.CloseIdleConnections()
	must.Report(t, s.Close())
	must.Is(t, <-served, http.ErrServerClosed, "")
}
