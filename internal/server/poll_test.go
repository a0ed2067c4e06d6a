package server_test

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"
	"time"

	"weir/internal/listen"
	"weir/internal/must"
	"weir/internal/server"
	"weir/internal/store/memory"
	"weir/internal/wire"
)

// poll is a push that asks for another list than that of a version.
func poll(t *testing.T, s *httptest.Server, namespace string, of uint64) (answer chan wire.Overrides) {
	t.Helper()
	push := wire.Push{
		Namespace: namespace, Node: 7, Sender: 1, Sequence: 1, Floor: 1,
		Known: wire.Known{Version: of, Asks: true, Within: 1},
	}
	asked := request(t, "POST", s.URL+wire.PushPath, wire.AppendPush(nil, &push))
	answer = make(chan wire.Overrides, 1)
	go func() {
		defer close(answer)
		response, body := do(t, s.Client(), asked)
		if told, err := wire.DecodeAnswer([]byte(body)); err != nil || response.StatusCode != 200 {
			t.Errorf("status %d: %v", response.StatusCode, err)
		} else {
			answer <- told.Overrides
		}
	}()
	return answer
}

// waiting wants a poll to wait, as far as a look at the clock can tell.
func waiting(t *testing.T, answer chan wire.Overrides) {
	t.Helper()
	select {
	case told := <-answer:
		t.Fatalf("it was answered at once: %+v", told)
	case <-time.After(20 * time.Millisecond):
	}
}

// A poll is answered when there is another list, whichever backend it was changed at, and when the
// backend ends. Its answer brings the list.
func TestPolls(t *testing.T) {
	counters, ended := open(), make(chan struct{})
	s, other := start(t, counters, server.Options{Ended: ended}), start(t, counters, server.Options{})
	const body = `{"overrides": [{"rule": "all", "limits": [{"limit": 1, "width_ms": 1000}]}]}`
	known := uint64(0)
	for _, by := range []*httptest.Server{s, other} {
		polls := []chan wire.Overrides{poll(t, s, "shop", known), poll(t, s, "shop", known)}
		for _, p := range polls {
			waiting(t, p)
		}
		version := change(t, by, "PUT", "namespace=shop", body, 1)
		for _, p := range polls {
			if told := <-p; told.Version != version || len(told.Part) == 0 {
				t.Errorf("got %+v, want version %d", told, version)
			}
		}
		// A poll that comes too late need not wait.
		must.Equal(t, (<-poll(t, s, "shop", known)).Version, version, "version told")
		known = version
	}
	p := poll(t, s, "shop", known)
	waiting(t, p)
	close(ended)
	if told := <-p; told.Version != known || len(told.Part) != 0 {
		t.Errorf("got %+v at the end, want version %d alone", told, known)
	}
	must.Equal(t, (<-poll(t, s, "shop", known)).Version, known, "version told after the end")
}

// A poll is answered while its sender still waits.
func TestPollsOfShortPatience(t *testing.T) {
	t.Parallel()
	s := start(t, open(), server.Options{})
	push := wire.Push{Namespace: "shop", Sender: 1, Sequence: 1, Floor: 1, Known: wire.Known{Asks: true, Within: 1 << 50}}
	asked := request(t, "POST", s.URL+wire.PushPath, wire.AppendPush(nil, &push))
	asked.Header.Set("x-envoy-expected-rq-timeout-ms", "8000") // a second is left for the answer
	wantStatus(t, s, asked, 200)
}

// Connections of nodes that poll make room for those of nodes that push.
func TestPollsMakeRoom(t *testing.T) {
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	log := slog.New(slog.DiscardHandler)
	bound := listen.NewConnections(2, log)
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error)
	handler := server.Handler(memory.New(memory.Options{}), server.Options{Logger: log})
	polling := make(chan struct{}, 4)
	go func() {
		served <- listen.Serve(ctx, bound.Bound(listener), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("x-poll") != "" {
				polling <- struct{}{}
			}
			handler.ServeHTTP(w, r)
		}))
	}()
	send := func(known wire.Known, header string) (connection net.Conn) {
		t.Helper()
		connection = must.Get(net.Dial("tcp", listener.Addr().String()))(t)
		t.Cleanup(func() { _ = connection.Close() })
		body := wire.AppendPush(nil, &wire.Push{Namespace: "shop", Sender: 1, Sequence: 1, Floor: 1, Known: known})
		must.Get(fmt.Fprintf(connection, "POST %s HTTP/1.1\r\nHost: weir\r\nContent-Type: %s\r\n%sContent-Length: %d\r\n\r\n%s",
			wire.PushPath, wire.ContentType, header, len(body), body))(t)
		return connection
	}
	var polls []net.Conn
	for range 2 {
		polls = append(polls, send(wire.Known{Asks: true, Within: 1000}, "x-poll: 1\r\n"))
		<-polling
		// The poll that yields first is closed first, so the second is sent when the first yields.
		for waiting := 0; waiting < len(polls); runtime.Gosched() {
			waiting = bound.Idle()
		}
	}
	for range 3 {
		answer := must.Get(http.ReadResponse(bufio.NewReader(send(wire.Known{}, "Connection: close\r\n")), nil))(t)
		must.EqualOrEnd(t, answer.StatusCode, http.StatusOK, "status of a push: %v", answer)
		_ = answer.Body.Close()
	}
	n, err := polls[0].Read(make([]byte, 1))
	must.Fails(t, err, "%d bytes of the first poll, which should be closed", n)
	for _, poll := range polls {
		_ = poll.Close()
	}
	stop()
	must.Report(t, <-served)
}
