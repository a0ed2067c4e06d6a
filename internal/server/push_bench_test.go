package server_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"

	"weir/internal/listen"
	"weir/internal/server"
	"weir/internal/wire"
)

// BenchmarkPush measures a push of one hit in the handler, and in all of the server on one
// connection.
func BenchmarkPush(b *testing.B) {
	push := examplePush()
	push.Items = push.Items[:1]
	push.Node = 7
	handler := server.Handler(open(), server.Options{Logger: slog.New(slog.DiscardHandler)})
	body := func() []byte {
		push.Sequence++
		push.Floor = push.Sequence
		return wire.AppendPush(nil, push)
	}
	b.Run("handler", func(b *testing.B) {
		b.ReportAllocs()
		w := &discard{header: http.Header{}}
		for b.Loop() {
			r, err := http.NewRequest("POST", wire.PushPath, bytes.NewReader(body()))
			if err != nil {
				b.Fatal(err)
			}
			r.Header["Content-Type"] = []string{wire.ContentType}
			if handler.ServeHTTP(w, r); w.code > 200 {
				b.Fatal(w.code)
			}
		}
	})
	b.Run("connection", func(b *testing.B) {
		b.ReportAllocs()
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- listen.Serve(b.Context(), listener, handler) }()
		connection, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			b.Fatal(err)
		}
		answers := bufio.NewReader(connection)
		for b.Loop() {
			body := body()
			if _, err := fmt.Fprintf(connection, "POST %s HTTP/1.1\r\nHost: weir\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s",
				wire.PushPath, wire.ContentType, len(body), body); err != nil {
				b.Fatal(err)
			}
			answer, err := http.ReadResponse(answers, nil)
			if err != nil || answer.StatusCode != 200 {
				b.Fatal(answer, err)
			}
			if _, err := io.Copy(io.Discard, answer.Body); err != nil {
				b.Fatal(err)
			}
		}
		if err := connection.Close(); err != nil {
			b.Error(err)
		}
	})
}

// discard is an answer that nobody reads.
type discard struct {
	header http.Header
	code   int
}

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) Write(b []byte) (int, error) { return len(b), nil }
func (d *discard) WriteHeader(code int)        { d.code = code }
