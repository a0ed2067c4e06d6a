package e2e

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"weir/internal/envoytest"
	"weir/internal/must"
)

// readsBodies counts tunnels of a model, which a body may name.
const readsBodies = `{"rules": [{"name": "r", "key": [{"request_json": "model", "default": "none"}], "limits": [{"limit": 10, "window": "366d", "algorithm": "fixed_window"}]},
	{"name": "tokens", "headers": [], "limits": [{"limit": 10000, "window": "366d"}], "cost_on_response": "openai",
	"reserve": {"request_json": "max_tokens", "default": 50, "prompt": {"bytes_per_token": 4}}}]}`

// A request for a tunnel has no body that could come before the answer, so it goes on at once. The
// node's clock stands still, and with it the time that a request waits for its body.
func TestTunnelsDoNotWait(t *testing.T) {
	onEnvoyAlone(t, 1, all, func(t *testing.T, d envoys) {
		n := d.prepare(t, nodeConfig{configuration: readsBodies, workers: 1, stopsHeadersOnly: true, clock: newClock(), upstream: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Upgrade") != "" {
				echoUpgraded(w, r)
				return
			}
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			_, _ = io.Copy(w, r.Body) // until the client has ended
		})})
		n.hcm = envoytest.Object{
			"upgrade_configs":        []envoytest.Object{{"upgrade_type": "websocket"}, {"upgrade_type": "CONNECT"}},
			"http2_protocol_options": envoytest.Object{"allow_connect": true},
		}
		tunnel := envoytest.Object{"cluster": "app", "timeout": "0s", "upgrade_configs": []envoytest.Object{{"upgrade_type": "CONNECT", "connect_config": envoytest.Object{}}}}
		n.routes = append([]envoytest.Object{{"match": envoytest.Object{"connect_matcher": envoytest.Object{}}, "route": tunnel}}, n.routes...)
		n.listen(t)
		address := strings.TrimPrefix(n.url(), "http://")
		dial := func() net.Conn {
			conn := must.Get(net.Dial("tcp", address))(t)
			t.Cleanup(func() { conn.Close() })
			must.OK(t, conn.SetDeadline(time.Now().Add(hang)))
			return conn
		}
		left := 10
		wantLeft := func(what, status, remaining string) {
			t.Helper()
			if left--; !strings.HasPrefix(status, "200") && !strings.HasPrefix(status, "101") || remaining != fmt.Sprint(left) {
				t.Errorf("%s: status %s, %q are left, want %d", what, status, remaining, left)
			}
		}
		for _, request := range []string{
			"CONNECT app:443 HTTP/1.1\r\nHost: app:443\r\n\r\n",
			"GET /chat HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
		} {
			conn := dial()
			fmt.Fprint(conn, request)
			r, err := http.ReadResponse(bufio.NewReader(conn), nil)
			must.OKf(t, err, "%q", request)
			wantLeft(request, r.Status, r.Header.Get("x-ratelimit-remaining"))
		}
		for what, headers := range map[string][]string{
			"CONNECT":          {":method", "CONNECT", ":authority", "app:443"},
			"extended CONNECT": {":method", "CONNECT", ":protocol", "websocket", ":scheme", "http", ":path", "/chat", ":authority", "a"},
		} {
			status, remaining := openStream(t, dial(), headers)
			wantLeft(what+" of HTTP/2", status, remaining)
		}
	})
}

// openStream opens a stream of HTTP/2 that stays open, and returns the status of its answer and how
// many hits are left by it.
func openStream(t *testing.T, conn net.Conn, headers []string) (status, remaining string) {
	t.Helper()
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for i := 0; i < len(headers); i += 2 {
		must.OK(t, encoder.WriteField(hpack.HeaderField{Name: headers[i], Value: headers[i+1]}))
	}
	fmt.Fprint(conn, http2.ClientPreface)
	framer := http2.NewFramer(conn, conn)
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	must.OK(t, framer.WriteSettings())
	must.OK(t, framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndHeaders: true}))
	for {
		frame, err := framer.ReadFrame()
		must.OKf(t, err, "%v", headers)
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				err = framer.WriteSettingsAck()
			}
		case *http2.MetaHeadersFrame:
			for _, field := range frame.RegularFields() {
				if field.Name == "x-ratelimit-remaining" {
					remaining = field.Value
				}
			}
			return frame.PseudoValue("status"), remaining
		case *http2.RSTStreamFrame:
			t.Fatalf("%v: reset, %v", headers, frame.ErrCode)
		}
		must.OK(t, err)
	}
}
