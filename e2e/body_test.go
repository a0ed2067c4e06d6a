package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weir/internal/must"
)

// asked reserves the number in a request's body, and charges it.
const asked = `{"rules": [{"name": "r", "key": [{"header": "x-key"}], "limits": [{"limit": 10000, "window": "366d", "algorithm": "fixed_window"}],
	"reserve": {"request_json": "max_tokens", "default": 50, "most": 20000}, "cost_on_response": {"response_json": "tokens"}}]}`

// tokens returns an upstream that answers with the length of the body, and a cost of 10.
func tokens(t *testing.T) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		must.Report(t, err)
		w.Header().Set("content-type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]int{"tokens": 10, "got": len(body)})
	})
}

// A request waits for its body, and goes on with all of it. If the proxy stops only headers, it
// takes the number in the body, and otherwise the default.
func TestReserveOfBody(t *testing.T) {
	onEveryByNight(t, 1, func(t *testing.T, d driver) {
		proxy := d.node(t, nodeConfig{configuration: asked, workers: 1, upstream: tokens(t), stopsHeadersOnly: true})
		for _, http2 := range []bool{false, true} {
			for i, c := range []struct {
				body   string
				want   string // rest of 10,000
				pieces bool
			}{
				{body: `{"model":"m","max_tokens":1000}`, want: "9000"},
				{body: `{"max_tokens":1000,"x":"` + strings.Repeat("x", 3_000_000) + `"}`, want: "9000"},
				{body: `{"x":"` + strings.Repeat("x", 30_000) + `","max_tokens":1000}`, want: "9000"},
				{body: `{"x":"` + strings.Repeat("x", 3_000_000) + `","max_tokens":1000}`, want: "9950"},
				{body: `{"max_tokens":6000}`, want: "4000"},
				{body: `{"x":1}`, want: "9950"},
				{body: `max_tokens=1`, want: "9950"},
				{body: `{"model":"m","max_tokens":1000}`, want: "9000", pieces: true},
				{body: `{"model":"m"}`, want: "9950", pieces: true},
				{want: "9950"},
			} {
				wantReserved(t, proxy.url(), http2, fmt.Sprint(http2, i), c.body, c.pieces, c.want)
			}
		}
		for _, http2 := range []bool{false, true} {
			for _, body := range []string{`{"max_tokens":10001}`, `{"max_tokens":30000,"x":"` + strings.Repeat("x", 3_000_000) + `"}`} {
				must.Equal(t, ask(t, clientOf(t, http2), proxy.url(), ":method", "POST", ":body", body).status, http.StatusTooManyRequests, "%.60s: status", body)
			}
		}
	})
}

// A refused call of JSON-RPC is answered by its id, after the backend was asked, too; a batch costs one for each of its calls.
func TestJSONRPC(t *testing.T) {
	onEveryByNight(t, 1, func(t *testing.T, d driver) {
		proxy := d.node(t, nodeConfig{workers: 1, upstream: tokens(t), stopsHeadersOnly: true, backend: serve(t, "memory"), configuration: `{"backend": {"cluster": "weir"},
			"rules": [{"name": "r", "key": [{"header": "x-key"}], "sync_rate": 0, "limits": [{"limit": 3, "window": "366d", "algorithm": "fixed_window"}],
			"cost": {"request_json": "#", "default": 1}, "response": {"preset": "jsonrpc", "status": 200}}]}`})
		client := clientOf(t, true)
		call := func(key, body string) string {
			return ask(t, client, proxy.url(), ":method", "POST", "x-key", key, "content-type", "application/json", ":body", body).body
		}
		for i, c := range []struct{ body, id string }{
			{`[{"id":1,"method":"a"},{"id":2,"method":"b"}]`, ""}, {`[{"id":1},{"id":2}]`, "null"}, {`{"id":"q","method":"a"}`, ""}, {`{"id":"q-\"7","method":"a"}`, `"q-\"7"`},
		} {
			got := call("k", c.body)
			var answer struct {
				Error struct{ Code int }
				ID    json.RawMessage
			}
			if err := json.Unmarshal([]byte(got), &answer); err != nil || (answer.Error.Code == -32005) != (c.id != "") || string(answer.ID) != c.id {
				t.Errorf("call %d: %s, want id %s", i, got, c.id)
			}
		}
	})
}

// A request whose body can't be read takes the most, or is refused and takes nothing.
func TestUnreadBodies(t *testing.T) {
	onEach(t, 1, func(t *testing.T, d driver) {
		const rule = `{"name": %[1]q, "match": {"path": {"exact": "/%[1]s"}}, "limits": [{"limit": 10000, "window": "366d", "algorithm": "fixed_window"}], "key": [{"header": "x-key"}],
			"reserve": {"request_json": "max_tokens", "default": 50, "most": 2000, "unread": %[1]q}, "cost_on_response": {"response_json": "tokens"}}`
		proxy := d.node(t, nodeConfig{
			configuration: `{"rules": [` + fmt.Sprintf(rule, "most") + `, ` + fmt.Sprintf(rule, "refuse") + `]}`,
			workers:       1, upstream: tokens(t), stopsHeadersOnly: true,
		})
		padding := strings.Repeat("x", 100_000)
		for i, c := range []struct {
			body, encoding string
			read           bool
		}{
			{`{"max_tokens":1000}`, "", true}, {`{"max_tokens":1,"max_tokens":1e3}`, "", true},
			{`{"max_tokens":1,"x":"` + padding + `","max_tokens":8000}`, "", false}, {`{"max_tokens":1}`, "gzip", false}, {`{"max_tokens":-1}`, "", false},
		} {
			for _, http2 := range []bool{false, true} {
				for path, left := range map[string]string{"/most": "8000", "/refuse": "10000"} {
					headers := []string{":method", "POST", ":path", path, ":body", c.body, "x-key", fmt.Sprint(i, http2)}
					if c.encoding != "" {
						headers = append(headers, "content-encoding", c.encoding)
					}
					status := http.StatusOK
					if c.read {
						left = "9000"
					} else if path == "/refuse" {
						status = http.StatusBadRequest
					}
					r := ask(t, clientOf(t, http2), proxy.url(), headers...)
					must.Equal(t, r.status, status, "%s, %.40s: status", path, c.body)
					must.Equal(t, r.header.Get("x-ratelimit-remaining"), left, "%s, %.40s: are left", path, c.body)
					if r.status == http.StatusBadRequest && (r.header.Get("content-type") != "application/problem+json" || !json.Valid([]byte(r.body))) {
						t.Errorf("the answer is %v, %s", r.header, r.body)
					}
				}
			}
		}
	})
}

// A prompt reserves no less, and is bounded no less, if nothing tells its length.
func TestPromptsOfUnknownLength(t *testing.T) {
	onEach(t, 1, func(t *testing.T, d driver) {
		const limit, prompt, most = 1_000_000, 300_000, 200_000
		proxy := d.node(t, nodeConfig{workers: 1, upstream: tokens(t), stopsHeadersOnly: true, configuration: fmt.Sprintf(
			`{"rules": [{"name": "r", "key": [{"header": "x-key"}], "limits": [{"limit": %d, "window": "366d", "algorithm": "fixed_window"}], "most_per_request": 250000,
			"reserve": {"request_json": "max_tokens", "default": 50, "most": 2000, "prompt": {"bytes_per_token": 3, "most": %d}}, "cost_on_response": {"response_json": "tokens"}},
			{"name": "small", "match": {"path": {"exact": "/small"}}, "limits": [{"limit": %[1]d, "window": "366d"}], "most_per_request": 150000, "headers": [],
			"reserve": {"request_json": "max_tokens", "default": 50, "most": 2000, "prompt": {"bytes_per_token": 3}}, "cost_on_response": {"response_json": "tokens"}}]}`, limit, most)})
		short, long := `{"max_tokens":1000}`, `{"max_tokens":1000,"x":"`+strings.Repeat("x", prompt)+`"}`
		for i, c := range []struct {
			body, encoding string
			sized          bool
			left           int
			small          int // status at a lower bound
		}{
			{long, "", true, limit - 1000 - (len(long)+2)/3, http.StatusOK},
			{long, "", false, limit - 2000 - most, http.StatusBadRequest}, // in HTTP/1.1 chunked
			{long, "gzip", true, limit - 2000 - most, http.StatusBadRequest},
			{long, "gzip", false, limit - 2000 - most, http.StatusBadRequest},
			{short, "", false, limit - 1000 - 7, http.StatusOK},
		} {
			for _, http2 := range []bool{false, true} {
				for path, status := range map[string]int{"/": http.StatusOK, "/small": c.small} {
					var body io.Reader = strings.NewReader(c.body)
					if !c.sized {
						body = io.MultiReader(body)
					}
					request := request(t, proxy.url(), body, ":path", path, "x-key", fmt.Sprint(i, http2, path))
					if c.encoding != "" {
						request.Header.Set("content-encoding", c.encoding)
					}
					left := c.left
					if status != http.StatusOK {
						left = limit
					}
					r := must.Get(do(clientOf(t, http2), request))(t)
					must.Equal(t, r.status, status, "%d, %s, HTTP/2 %t: status", i, path, http2)
					must.Equal(t, r.header.Get("x-ratelimit-remaining"), fmt.Sprint(left), "%d, %s, HTTP/2 %t: are left", i, path, http2)
				}
			}
		}
	})
}

// A client that leaves before its body is read takes nothing.
func TestClientLeavesBeforeItsBody(t *testing.T) {
	onEach(t, 1, func(t *testing.T, d driver) {
		proxy := d.node(t, nodeConfig{configuration: asked, workers: 1, upstream: tokens(t), stopsHeadersOnly: true})
		for _, http2 := range []bool{false, true} {
			key := fmt.Sprint("http2 ", http2)
			for _, sent := range []string{`{"model":"m","max_tok`, `{"model":"m","max_tokens":7000`} {
				ctx, leave := context.WithCancel(t.Context())
				in, out := io.Pipe()
				request := request(t, proxy.url(), in, "x-key", key).WithContext(ctx)
				go func() {
					_, err := io.WriteString(out, sent)
					leave()
					out.CloseWithError(errors.Join(context.Canceled, err)) // otherwise the client waits for the rest
				}()
				r, err := do(clientOf(t, http2), request)
				must.Fails(t, err, "%s, %q: status %d", key, sent, r.status)
			}
			proxy.idle(t)
			wantReserved(t, proxy.url(), http2, key, `{"max_tokens":1000}`, false, "9000")
		}
	})
}

// If the proxy holds back the body of a paused request, the request takes the default, and none
// hangs.
func TestKeptBodies(t *testing.T) {
	onEnvoyAlone(t, 1, all, func(t *testing.T, d envoys) {
		proxy := d.node(t, nodeConfig{configuration: asked, workers: 1, upstream: tokens(t)})
		for i := range 3 {
			for _, http2 := range []bool{false, true} {
				wantReserved(t, proxy.url(), http2, fmt.Sprint(http2, i), `{"max_tokens":1000}`, i == 1, "9950")
				wantReserved(t, proxy.url(), http2, fmt.Sprint(http2, i, "large"), `{"max_tokens":1000,"x":"`+strings.Repeat("x", 3_000_000)+`"}`, false, "9950")
			}
		}
	})
}

// The nodes of weir run pass bodies to the plugin, so users can try rules on them.
func TestRunBringsBodies(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "asked.json")
	must.OK(t, os.WriteFile(file, []byte(asked), 0o600))
	upstream := httptest.NewServer(tokens(t))
	t.Cleanup(upstream.Close)
	p := start(t, "run", "--config", file, "--upstream", upstream.URL, "--listen", "127.0.0.1:0", "--ui", "none", "--nodes", "1", "--workers", "1")
	wantReserved(t, p.Wait(t, `^proxy 0 +(http://\S+)`), false, "ann", `{"max_tokens":1000}`, false, "9000")
}

// wantReserved sends a body, and compares the rest of the limit after the decision, and the body
// that the upstream got.
func wantReserved(t *testing.T, address string, http2 bool, key, body string, pieces bool, want string) {
	t.Helper()
	var reader io.Reader = strings.NewReader(body)
	if pieces {
		// Each piece is sent after the proxy has read the last.
		in, out := io.Pipe()
		go func() {
			for i := range len(body) {
				if _, err := out.Write([]byte(body[i : i+1])); err != nil {
					t.Error(err)
				}
			}
			out.Close()
		}()
		reader = in
	}
	r, err := do(clientOf(t, http2), request(t, address, reader, "x-key", key))
	if err != nil {
		t.Errorf("%.60s: %v", body, err)
		return
	}
	must.Equal(t, r.header.Get("x-ratelimit-remaining"), want, "%.60s: status %d, are left", body, r.status)
	must.Contains(t, r.body, fmt.Sprintf(`"got":%d,`, len(body)), "%.60s: the upstream says", body)
}
