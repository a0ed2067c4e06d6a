package listen

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/test/bufconn"

	"weir/internal/must"
)

// piped is a client of HTTP/2 in memory, with its server. It takes what is sent, if it should.
type piped struct {
	*testing.T
	*http2.Framer
	bound *Connections
	next  uint32
}

// pipe has an exchange of a client with a handler, under a clock of its own.
func pipe(t *testing.T, takes bool, handler http.HandlerFunc, exchange func(*piped)) {
	synctest.Test(t, func(t *testing.T) {
		l, bound := bufconn.Listen(1), NewConnections(0, slog.New(slog.DiscardHandler))
		ctx, stop := context.WithCancel(t.Context())
		served := make(chan error, 1)
		go func() { served <- Serve(ctx, bound.Bound(l), handler) }()
		client := must.Get(l.Dial())(t)
		if takes {
			go func() { _, _ = io.Copy(io.Discard, client) }()
		}
		must.Get(io.WriteString(client, http2.ClientPreface))(t)
		exchange(&piped{t, http2.NewFramer(client, client), bound, 1})
		must.Report(t, client.Close())
		stop()
		must.OK(t, <-served)
	})
}

// ask sends a request, whose body comes later unless it ends at once.
func (p *piped) ask(ends bool) {
	p.Helper()
	var header bytes.Buffer
	encoder := hpack.NewEncoder(&header)
	for _, field := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":path", "/"}, {":authority", "weir"}} {
		must.OK(p, encoder.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]}))
	}
	must.OK(p, p.WriteHeaders(http2.HeadersFrameParam{StreamID: p.next, BlockFragment: header.Bytes(), EndHeaders: true, EndStream: ends}))
	p.next += 2
}

// A connection of HTTP/2 whose client takes nothing is closed when an answer may take no longer: without that it would
// stay for ever, with all its requests. One with a stream that is silent for longer than that stays.
func TestNothingIsTaken(t *testing.T) {
	for name, takes := range map[string]bool{"taken": true, "not taken": false} {
		t.Run(name, func(t *testing.T) {
			ended := make(chan struct{})
			pipe(t, takes, func(w http.ResponseWriter, r *http.Request) {
				defer close(ended)
				out := http.NewResponseController(w)
				for out.Flush() == nil && out.SetWriteDeadline(time.Time{}) == nil {
					select {
					case <-r.Context().Done():
						return
					case <-time.After(2 * WriteTimeout):
					}
				}
			}, func(p *piped) {
				must.OK(p, p.WriteSettings())
				p.ask(true)
				<-time.After(5 * WriteTimeout)
				over := false
				select {
				case <-ended:
					over = true
				default:
				}
				must.Equal(p, over, !takes, "the request is over")
			})
		})
	}
}

// Answers by HTTP/2 that are so small that net/http sends them when their handlers have returned count when their client
// has taken nothing of them for a while, until it takes them, or they end.
func TestAnswersCountUntilTaken(t *testing.T) {
	for name, room := range map[string]uint32{"taken": 100, "never taken": 0} {
		t.Run(name, func(t *testing.T) {
			pipe(t, true, func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(w, "small")
			}, func(p *piped) {
				must.OK(p, p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}))
				held := func(want int, when string) {
					p.Helper()
					synctest.Wait()
					p.bound.mu.Lock()
					defer p.bound.mu.Unlock()
					must.Equal(p, p.bound.held, want*pendingBytes, "bytes held "+when)
				}
				for range 3 {
					p.ask(true)
				}
				held(0, "at once")
				<-time.After(takenWithin)
				held(3, "after a while")
				must.OK(p, p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: room}))
				if room == 0 {
					<-time.After(WriteTimeout)
				}
				held(0, "in the end")
			})
		})
	}
}

// A request by HTTP/2 that is answered without its body keeps its stream until the body has come: clients that still send
// may take a reset for a failure, and have no answer.
func TestUnreadBodies(t *testing.T) {
	pipe(t, false, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
	}, func(p *piped) {
		answers := make(chan http2.FrameType, 10)
		go func() {
			for {
				frame, err := p.ReadFrame()
				if err != nil {
					return
				}
				if of := frame.Header(); of.Type == http2.FrameHeaders || of.Type == http2.FrameRSTStream {
					answers <- of.Type
				}
			}
		}()
		must.OK(p, p.WriteSettings())
		p.ask(false)
		for range 4 {
			must.OK(p, p.WriteData(1, false, make([]byte, 1<<14)))
			synctest.Wait()
			must.Equal(p, len(answers), 0, "answers before the end of the body")
		}
		must.OK(p, p.WriteData(1, true, nil))
		must.Equal(p, <-answers, http2.FrameHeaders, "the answer")
		synctest.Wait()
		must.Equal(p, len(answers), 0, "frames after the answer")
	})
}

// A known host of a request is an address, and not a name like an address.
func TestKnownHost(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]bool{
		"10.1.2.3:9181": true, "localhost": true, "LOCALHOST:80": true, "127.0.0.1:1": true, "127.9.9.9": true, "[::1]:9181": true, "[::1]": true,
		"": false, "10.1.2.3:1": false, "evil.test": false, "localhost.evil.test": false, "127.0.0.1.evil.test:9181": false, "evil.test:9181": false,
		"0.0.0.0:9181": false, "2130706433": false,
	} {
		must.Equal(t, KnownHost(host, "10.1.2.3:9181"), want, "%q", host)
	}
}
