package listen

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"weir/internal/must"
)

// pipes is a listener of connections in memory.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if c, ok := <-p; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (p pipes) Close() error {
	close(p)
	return nil
}

func (pipes) Addr() net.Addr { return &net.UnixAddr{} }

// A connection of HTTP/2 whose client takes nothing is closed when an answer may take no longer: without that it would
// stay for ever, with all its requests. One with a stream that is silent for longer than that stays.
func TestNothingIsTaken(t *testing.T) {
	for name, takes := range map[string]bool{"taken": true, "not taken": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, ended := make(pipes), make(chan struct{})
				ctx, stop := context.WithCancel(t.Context())
				served := make(chan error, 1)
				go func() {
					served <- Serve(ctx, l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						defer close(ended)
						out := http.NewResponseController(w)
						for out.Flush() == nil && out.SetWriteDeadline(time.Time{}) == nil {
							select {
							case <-r.Context().Done():
								return
							case <-time.After(2 * WriteTimeout):
							}
						}
					}))
				}()
				client, server := net.Pipe()
				l <- server
				if takes {
					go func() { _, _ = io.Copy(io.Discard, client) }()
				}
				must.Get(io.WriteString(client, http2.ClientPreface))(t)
				framer := http2.NewFramer(client, nil)
				must.OK(t, framer.WriteSettings())
				var header bytes.Buffer
				encoder := hpack.NewEncoder(&header)
				for _, field := range [][2]string{{":method", "GET"}, {":scheme", "http"}, {":path", "/"}, {":authority", "weir"}} {
					must.OK(t, encoder.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]}))
				}
				must.OK(t, framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: header.Bytes(), EndHeaders: true, EndStream: true}))
				<-time.After(5 * WriteTimeout)
				over := false
				select {
				case <-ended:
					over = true
				default:
				}
				must.Equal(t, over, !takes, "the request is over")
				must.Report(t, client.Close())
				stop()
				must.OK(t, <-served)
			})
		})
	}
}
