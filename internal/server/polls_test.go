package server

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"testing"

	"weir/internal/listen"
	"weir/internal/must"
	"weir/internal/store/memory"
	"weir/internal/wire"
)

// Connections of nodes that poll make room for those of nodes that push.
func TestPollsMakeRoom(t *testing.T) {
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	log := slog.New(slog.DiscardHandler)
	bound := listen.NewConnections(2, log)
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error)
	handler := Handler(memory.New(memory.Options{}), Options{Logger: log})
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
	if n, err := polls[0].Read(make([]byte, 1)); err == nil {
		t.Errorf("%d bytes of the first poll, want it closed", n)
	}
	for _, poll := range polls {
		_ = poll.Close()
	}
	stop()
	must.Report(t, <-served)
}
