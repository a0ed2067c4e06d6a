package host

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/internal/commandtest"
	"weir/internal/must"
)

// upstream echoes the request in its headers, and its body.
func upstream(t testing.TB) *url.URL {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Request", r.Method+" "+r.Host+r.URL.RequestURI())
		w.Header().Set("X-Plugin", r.Header.Get("X-Result"))
		w.Header().Set("X-Do", r.Header.Get("X-Do-Response"))
		must.Report(t, http.NewResponseController(w).EnableFullDuplex())
		w.WriteHeader(http.StatusAccepted)
		if _, err := io.Copy(flushed{w}, r.Body); err != nil && r.Context().Err() == nil {
			t.Error(err)
		}
	}))
	return parsed(t, s)
}

// parsed is the address of a server that closes with the test.
func parsed(t testing.TB, s *httptest.Server) *url.URL {
	t.Helper()
	t.Cleanup(s.Close)
	return must.Get(url.Parse(s.URL))(t)
}

// protocols are HTTP/2 without TLS, or HTTP/1.1.
func protocols(http2 bool) *http.Protocols {
	p := new(http.Protocols)
	p.SetHTTP1(!http2)
	p.SetUnencryptedHTTP2(http2)
	return p
}

func listen(t testing.TB) net.Listener {
	t.Helper()
	return must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
}

type flushed struct{ http.ResponseWriter }

func (w flushed) Write(b []byte) (int, error) {
	n, err := w.ResponseWriter.Write(b)
	if f, ok := w.ResponseWriter.(http.Flusher); ok {
		f.Flush()
	}
	return n, err
}

// serve starts a proxy with its own listener.
func serve(t testing.TB, config ProxyConfig) (*Proxy, string) {
	t.Helper()
	config.Module = testModule(t)
	if config.Upstream == nil {
		config.Upstream = upstream(t)
	}
	p := must.Get(NewProxy(t.Context(), config))(t)
	l := listen(t)
	served := make(chan error, 1)
	go func() { served <- p.Serve(l) }()
	t.Cleanup(func() {
		must.Report(t, p.Close(context.Background()))
		must.Report(t, <-served)
	})
	return p, "http://" + l.Addr().String()
}

// client has connections of its own.
func client(t testing.TB) *http.Client {
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

type result struct {
	status int
	header http.Header
	body   string
}

func get(t testing.TB, c *http.Client, url string, header ...string) result {
	t.Helper()
	return send(t, c, http.MethodGet, url, nil, header...)
}

func send(t testing.TB, c *http.Client, method, url string, body io.Reader, header ...string) result {
	t.Helper()
	r := must.Get(http.NewRequestWithContext(t.Context(), method, url, body))(t)
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	answer := must.Get(c.Do(r))(t)
	defer answer.Body.Close()
	b := must.Get(io.ReadAll(answer.Body))(t)
	return result{answer.StatusCode, answer.Header, string(b)}
}

func TestProxyForwards(t *testing.T) {
	_, base := serve(t, ProxyConfig{})
	for name, http2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			c := client(t)
			c.Transport.(*http.Transport).Protocols = protocols(http2)
			r := send(t, c, http.MethodPost, base+"/a%2Fb?c=1", strings.NewReader("mark this"),
				"x-do", "property request protocol;set 0 :path /changed%2F?d=2;set 0 :authority other.example;set 0 a b",
				"x-do-response", "get 0 :path;set 2 :status 203;set 2 x-more 1")
			must.Equal(t, r.status, 203, "status")
			must.Equal(t, r.body, "MARK THIS", "body")
			for name, want := range map[string]string{
				"X-Request": "POST other.example/changed%2F?d=2",
				"X-Plugin":  name + " 0|0|0|0",
				"X-Result":  "2|0|0",
				"X-More":    "1",
			} {
				must.Equal(t, strings.TrimSpace(r.header.Get(name)), want, "%s", name)
			}
		})
	}
}

// A response that ends with trailers has no piece of its body that ends it. The plugin may change them.
func TestProxyForwardsTrailers(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Trailer", "X-Sum")
			for range 2 {
				if _, err := io.WriteString(flushed{w}, r.URL.Query().Get("body")); err != nil {
					t.Error(err)
				}
			}
			w.Header().Set("X-Sum", "7")
		}))
		s.Config.Protocols = protocols(http2)
		s.Start()
		transport := &http.Transport{Protocols: protocols(http2)}
		t.Cleanup(transport.CloseIdleConnections)
		_, base := serve(t, ProxyConfig{Upstream: parsed(t, s), UpstreamTransport: transport})
		for body, want := range map[string]string{"mark": "MARKMARK", "": ""} {
			answer := must.Get(client(t).Get(base + "/?body=" + body))(t)
			got, err := io.ReadAll(answer.Body)
			must.Reportf(t, errors.Join(err, answer.Body.Close()), "HTTP/2 %t, %q", http2, body)
			must.Equal(t, string(got), want, "HTTP/2 %t, %q", http2, body)
			must.Equal(t, [2]string{answer.Trailer.Get("X-Sum"), answer.Trailer.Get("X-Trailers")}, [2]string{"7", "1"}, "HTTP/2 %t, %q: trailers", http2, body)
		}
	}
}

func TestProxySpreadsConnections(t *testing.T) {
	p, base := serve(t, ProxyConfig{Workers: 3})
	clients := []*http.Client{client(t), client(t), client(t)}
	for range 4 {
		for _, c := range clients {
			must.Equal(t, get(t, c, base).status, http.StatusAccepted, "status")
		}
	}
	for i := range p.Workers() {
		p.Do(i, func(vm *VM, _ *Root) {
			// One define for each stream's context, and one for the root's.
			must.Equal(t, p.Process().Metrics().Snapshot()["created"], 12+4, "contexts in all, canary among them")
			must.Equal(t, vm.HostCalls()["proxy_replace_header_map_value"], 4, "worker %d: responses", i)
		})
	}
}

func TestProxyLocalReply(t *testing.T) {
	p, base := serve(t, ProxyConfig{})
	r := get(t, client(t), base, "x-do", "reply 429 no 8 x-why limit")
	if r.status != 429 || r.body != "no" || r.header.Get("X-Why") != "limit" || r.header.Get("X-Request") != "" ||
		r.header.Get("X-Response-Phases") != "1" {
		t.Errorf("%+v", r)
	}
	r = get(t, client(t), base, "x-do", "reply 429 no 8", "content-type", "application/grpc")
	if r.status != 200 || r.body != "" || r.header.Get("Grpc-Status") != "8" || r.header.Get("Grpc-Message") != "no" {
		t.Errorf("gRPC: %+v", r)
	}
	r = get(t, client(t), base, "x-do-response", "reply 500 late")
	if r.status != 500 || r.body != "late" || r.header.Get("X-Request") != "" {
		t.Errorf("in the response phase: %+v", r)
	}
	must.Equal(t, p.Process().Traffic(), Traffic{Requests: 3, Answered: 2}, "the process has counted")
}

// An answer without a body says no length over HTTP/2, and 0 over HTTP/1.1.
func TestProxyLocalReplyWithoutBody(t *testing.T) {
	_, base := serve(t, ProxyConfig{})
	two := client(t)
	two.Transport.(*http.Transport).Protocols = protocols(true)
	for want, c := range map[string]*http.Client{"0": client(t), "": two} {
		r := get(t, c, base, "x-do", "reply 429 no 8", "content-type", "application/grpc")
		must.Equal(t, [2]string{r.header.Get("Content-Length"), r.header.Get("Grpc-Status")}, [2]string{want, "8"}, "length, and status")
	}
}

// The plugin sees the headers of an upgrade's answer, and may refuse it. Then both sides talk past
// it.
func TestProxyUpgrades(t *testing.T) {
	echo := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\nX-Do: %s\r\n\r\n", r.Header.Get("X-Do-Response"))
		_, _ = io.Copy(conn, buffered) // until the proxy closes
	}))
	_, base := serve(t, ProxyConfig{Upstream: parsed(t, echo)})
	ask := func(do string) *http.Response {
		t.Helper()
		r := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, base, nil))(t)
		r.Header = http.Header{"Connection": {"Upgrade"}, "Upgrade": {"echo"}, "X-Do-Response": {do}}
		answer := must.Get(client(t).Do(r))(t)
		t.Cleanup(func() { answer.Body.Close() })
		return answer
	}
	r := ask("set 2 x-more 1")
	if r.StatusCode != http.StatusSwitchingProtocols || r.Header.Get("X-More") != "1" || r.Header.Get("Upgrade") != "echo" {
		t.Fatalf("%s %v", r.Status, r.Header)
	}
	both := r.Body.(io.ReadWriter)
	for range 3 {
		must.Get(io.WriteString(both, "mark"))(t)
		got := make([]byte, 4)
		must.Get(io.ReadFull(both, got))(t)
		must.EqualOrEnd(t, string(got), "mark", "echo")
	}
	r = ask("reply 403 late")
	body, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != 403 || string(body) != "late" {
		t.Errorf("in the response phase: %s, body %q, %v", r.Status, body, err)
	}
}

// The body may come before the plugin has decided, and the upstream hears nothing of it.
func TestProxyExpectContinue(t *testing.T) {
	_, base := serve(t, ProxyConfig{})
	for _, do := range []string{"", "reply 429 no 8"} {
		continued := false
		r := must.Get(http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
			Got100Continue: func() { continued = true },
		}), http.MethodPost, base, strings.NewReader("body")))(t)
		r.Header = http.Header{"Expect": {"100-continue"}, "X-Do": {do}}
		c := client(t)
		c.Transport.(*http.Transport).ExpectContinueTimeout = time.Minute
		answer := must.Get(c.Do(r))(t)
		body, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if want := map[string]string{"": "body", "reply 429 no 8": "no"}[do]; err != nil || !continued || string(body) != want {
			t.Errorf("%q: continued %v, body %q, %v", do, continued, body, err)
		}
	}
}

// Parts of a body pass as they come, in both directions.
func TestProxyStreams(t *testing.T) {
	_, base := serve(t, ProxyConfig{})
	in, out := io.Pipe()
	r := must.Get(http.NewRequestWithContext(t.Context(), http.MethodPost, base, in))(t)
	wrote := make(chan error, 1)
	go func() {
		_, err := out.Write([]byte("one\n"))
		wrote <- err
	}()
	answer := must.Get(client(t).Do(r))(t)
	defer answer.Body.Close()
	lines := bufio.NewReader(answer.Body)
	for _, next := range []string{"mark two\n", "three\n", ""} {
		line := must.Get(lines.ReadString('\n'))(t)
		must.OK(t, <-wrote)
		t.Logf("%q", line)
		go func() {
			if next == "" {
				wrote <- out.Close()
				return
			}
			_, err := out.Write([]byte(next))
			wrote <- err
		}()
	}
	must.Equal(t, string(must.Get(io.ReadAll(lines))(t)), "", "the rest")
	must.Report(t, <-wrote)
}

// A proxy that stops headers only reads the body meanwhile: the plugin may let it go on, or answer
// a client that has not sent all of it, and perhaps never will.
func TestProxyReadsBodyWhileHeadersWait(t *testing.T) {
	for _, test := range []struct {
		command, header, part, rest string
		want                        result
	}{
		{"reply 503 busy", "Transfer-Encoding: chunked", "9\nwait for \n", "", result{status: 503, body: "busy"}},
		{"reply 503 busy", "Content-Length: 17", "wait for ", "", result{status: 503, body: "busy"}},
		{"continue 0", "Transfer-Encoding: chunked", "9\nwait for \n", "8\nthe rest\n0\n\n", result{status: 202, body: "wait for the rest"}},
	} {
		var conn net.Conn
		t.Cleanup(func() { // when the proxy is closed
			must.Report(t, conn.Close())
		})
		p, base := serve(t, ProxyConfig{Plugin: Plugin{Configuration: []byte("tick 1"), AllowOnHeadersStopIteration: true}, ManualTicks: true})
		conn = must.Get(net.Dial("tcp", strings.TrimPrefix(base, "http://")))(t)
		write := func(text string) {
			t.Helper()
			must.Get(conn.Write([]byte(strings.ReplaceAll(text, "\n", "\r\n"))))(t)
		}
		write("POST / HTTP/1.1\nHost: a\nX-Do: pause;wait " + test.command + "\n" + test.header + "\n\n" + test.part)
		until(func() (seen bool) {
			p.Do(0, func(vm *VM, _ *Root) { seen = vm.Callbacks()["proxy_on_request_body"] > 0 })
			return seen
		})
		must.OK(t, p.Tick())
		write(test.rest)
		answer := must.Get(http.ReadResponse(bufio.NewReader(conn), nil))(t)
		body, err := io.ReadAll(answer.Body)
		if err != nil || answer.StatusCode != test.want.status || string(body) != test.want.body || answer.Close != (test.rest == "") {
			t.Errorf("%s, %s: got status %d, body %q, close %v, %v", test.command, test.header, answer.StatusCode, body, answer.Close, err)
		}
	}
}

func streams(p *Proxy, worker int) (n int) {
	p.Do(worker, func(vm *VM, _ *Root) {
		for _, s := range vm.contexts {
			if s.stream != nil {
				n++
			}
		}
	})
	return n
}

// until waits for a condition that another goroutine brings about.
func until(condition func() bool) {
	for !condition() {
		runtime.Gosched()
	}
}

// waits begins a request that waits in the first worker, until its client leaves or it is answered.
func waits(t *testing.T, p *Proxy, base, do string) (leave func(), gone chan error) {
	t.Helper()
	ctx, leave := context.WithCancel(t.Context())
	r := must.Get(http.NewRequestWithContext(ctx, http.MethodGet, base, nil))(t)
	r.Header.Set("x-do", do)
	gone = make(chan error, 1)
	go func() {
		_, err := client(t).Do(r)
		gone <- err
	}()
	until(func() bool { return streams(p, 0) == 1 })
	return leave, gone
}

func TestProxyClientLeavesWhilePaused(t *testing.T) {
	p, base := serve(t, ProxyConfig{})
	leave, gone := waits(t, p, base, "pause")
	leave()
	must.Is(t, <-gone, context.Canceled, "client")
	until(func() bool { return streams(p, 0) == 0 })
	for _, name := range []string{"logs", "deletes"} {
		must.Equal(t, p.Process().Metrics().Snapshot()[name], 1, "%s", name)
	}
}

func TestProxyTick(t *testing.T) {
	for _, manual := range []bool{true, false} {
		t.Run(fmt.Sprint("manual ", manual), func(t *testing.T) {
			p, base := serve(t, ProxyConfig{Plugin: Plugin{Configuration: []byte("tick 1")}, ManualTicks: manual})
			answer := make(chan result, 1)
			go func() { answer <- get(t, client(t), base, "x-do", "pause;wait continue 0") }()
			if manual {
				until(func() bool { return streams(p, 0) == 1 })
				must.OK(t, p.Tick())
			}
			must.Equal(t, (<-answer).status, http.StatusAccepted, "status")
			if !manual {
				until(func() bool { return p.Process().Metrics().Snapshot()["ticks"] > 2 })
			}
		})
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// refusing returns an address that refuses connections until the test ends.
func refusing(t *testing.T) (address string) {
	t.Helper()
	address = commandtest.FreeAddress(t)
	commandtest.Hold(t, address)
	return address
}

func TestProxyCallouts(t *testing.T) {
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		must.Report(t, err)
		switch r.URL.Path {
		case "/hang":
			<-r.Context().Done()
		case "/cut":
			w.Header().Set("Content-Length", "100")
			w.WriteHeader(200)
		default:
			fmt.Fprint(w, r.Host, " ", string(body), " ", r.Header.Get("X-Call"))
		}
	}))
	defer backend.Close()
	process := NewProcess(ProcessConfig{Clusters: map[string]string{
		"backend": backend.URL, "refused": refusing(t), "faulty": backend.Listener.Addr().String()}})
	p, base := serve(t, ProxyConfig{Process: process, CalloutTransport: roundTripper(
		func(r *http.Request) (*http.Response, error) {
			if r.URL.Path == "/fault" {
				return nil, errors.New("interposed")
			}
			return http.DefaultTransport.RoundTrip(r)
		})})
	for _, test := range []struct {
		call   string
		status int
		body   string
	}{
		{"backend /ok 5000", 202, ""},
		{"backend /ok 0", 202, ""},
		{"backend /hang 20", 503, `callout 504 "upstream request timeout" 1`},
		{"backend /cut 5000", 503, `callout  "" 0`},
		{"refused / 5000", 503, `callout 503 "upstream connect error`},
		{"faulty /fault 5000", 503, `callout 503 "upstream connect error`},
	} {
		r := get(t, client(t), base, "x-do", "call "+test.call+";pause")
		if r.status != test.status || !strings.HasPrefix(r.body, test.body) {
			t.Errorf("%s: %d %q", test.call, r.status, r.body)
		}
		if test.status == 202 {
			must.Equal(t, get(t, client(t), base, "x-do", "last").header.Get("X-Plugin"), `200 "backend ping 1" 1`, "%s: answer", test.call)
		}
	}
	must.Equal(t, p.Process().Metrics().Snapshot()["answers"], 6, "answers")
	// One of them has waited for 20 ms until its call was given up. The others may have their answers before the proxy holds them back.
	if got := p.Process().Traffic(); got.Requests != 8 || got.Answered != 4 || got.Waited < 1 || got.Waited > 6 || got.WaitedNanos < 20e6 {
		t.Errorf("the process has counted %+v", got)
	}
}

func TestProxyUpstreamDown(t *testing.T) {
	_, base := serve(t, ProxyConfig{Upstream: &url.URL{Scheme: "http", Host: refusing(t)}})
	if r := get(t, client(t), base); r.status != 503 || r.header.Get("X-Response-Phases") != "1" {
		t.Errorf("%+v", r)
	}
}

func TestProxyRefusesConfiguration(t *testing.T) {
	_, err := NewProxy(t.Context(), ProxyConfig{Module: testModule(t), Upstream: upstream(t),
		Plugin: Plugin{Configuration: []byte("refuse not this one")}})
	var start *StartError
	if !errors.As(err, &start) || !strings.Contains(err.Error(), "not this one") {
		t.Errorf("error %v", err)
	}
}

func TestProxyConfigure(t *testing.T) {
	p, base := serve(t, ProxyConfig{VMID: "vm", Workers: 2, Plugin: Plugin{Configuration: []byte("incr canary")}})
	v, _, _ := p.Process().SharedData("vm").Get("canary")
	must.Equal(t, string(v), "3", "counted by the canary and two workers")
	must.Equal(t, p.Process().Metrics().Snapshot()["dones"], 0, "the canary was told its end")
	answer := make(chan result, 1)
	go func() { answer <- get(t, client(t), base, "x-do", "pause;wait continue 0") }()
	until(func() bool { return streams(p, 0) == 1 })
	roots := func(worker int) (n int, current uint32) {
		p.Do(worker, func(vm *VM, r *Root) { n, current = len(vm.roots()), r.ID() })
		return n, current
	}
	must.Contains(t, fmt.Sprint(p.Configure([]byte("refuse this"))), "this", "error")
	must.Equal(t, p.Process().Metrics().Snapshot()["configured"], 4, "configurations, three at the start and the canary that refused")
	if n, current := roots(0); n != 1 || current != 1 {
		t.Errorf("after a refusal: %d roots, current %d", n, current)
	}
	must.OK(t, p.Configure([]byte("tick 1")))
	if n, current := roots(1); n != 1 || current == 1 {
		t.Errorf("idle worker: %d roots, current %d", n, current)
	}
	// The new root's tick lets the old root's stream go on; then the old root ends.
	must.Equal(t, (<-answer).status, http.StatusAccepted, "status")
	until(func() bool { n, _ := roots(0); return n == 1 })
}

func TestProxyFailurePolicies(t *testing.T) {
	t.Run("closed", func(t *testing.T) {
		_, base := serve(t, ProxyConfig{})
		for _, do := range []string{"panic", ""} {
			must.Equal(t, get(t, client(t), base, "x-do", do).status, 503, "%q: status", do)
		}
	})
	t.Run("reload", func(t *testing.T) {
		var mu sync.Mutex
		now := int64(1e18)
		clock := func() int64 {
			mu.Lock()
			defer mu.Unlock()
			return now
		}
		p, base := serve(t, ProxyConfig{FailurePolicy: FailReload, Process: NewProcess(ProcessConfig{Clock: clock})})
		for i, step := range []struct {
			do      string
			advance int64
			want    int
		}{
			{"panic", 0, 503},
			{"", 0, 202}, // a new VM
			{"panic", 0, 503},
			{"", 999e6, 503}, // too early
			{"", 1e6, 202},
		} {
			mu.Lock()
			now += step.advance
			mu.Unlock()
			must.Equal(t, get(t, client(t), base, "x-do", step.do).status, step.want, "step %d: status", i)
		}
		must.Equal(t, p.Process().Metrics().Snapshot()["configured"], 4, "configurations: canary, first, and two new VMs")
	})
}

// Streams that wait in a VM that traps hang until their clients leave.
func TestProxyTrapLeavesWaitingStreams(t *testing.T) {
	p, base := serve(t, ProxyConfig{})
	leave, gone := waits(t, p, base, "pause;wait continue 0")
	must.Equal(t, get(t, client(t), base, "x-do", "panic").status, 503, "status")
	select {
	case err := <-gone:
		t.Errorf("the waiting stream ended: %v", err)
	default:
	}
	leave()
	must.Is(t, <-gone, context.Canceled, "client")
	until(func() bool { return streams(p, 0) == 0 })
}

func TestProxyTrustedHops(t *testing.T) {
	_, base := serve(t, ProxyConfig{TrustedHops: 2})
	for forwarded, want := range map[string]string{
		"1.1.1.1, 2.2.2.2, 3.3.3.3": "2.2.2.2:0 0",
		"2001:db8::1, 3.3.3.3":      "[2001:db8::1]:0 0",
		"3.3.3.3":                   "127.0.0.1:",
		"nonsense, 3.3.3.3":         "127.0.0.1:",
	} {
		r := get(t, client(t), base, "X-Forwarded-For", forwarded, "x-do", "property source address")
		if got := r.header.Get("X-Plugin"); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q, want %q", forwarded, got, want)
		}
	}
}

// Close ends contexts and leaves nothing behind, even with a client that waits.
func TestProxyClose(t *testing.T) {
	module, target := testModule(t), upstream(t)
	before := runtime.NumGoroutine()
	p := must.Get(NewProxy(t.Context(), ProxyConfig{Module: module, Upstream: target, Workers: 2, VMID: "vm",
		Plugin: Plugin{Configuration: []byte("tick 1;sdset a b 0")}}))(t)
	l := listen(t)
	served := make(chan error, 1)
	go func() { served <- p.Serve(l) }()
	conn := must.Get(net.Dial("tcp", l.Addr().String()))(t)
	must.Get(io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\nX-Do: pause\r\n\r\n"))(t)
	until(func() bool { return streams(p, 0) == 1 })
	now, cancel := context.WithCancel(context.Background())
	cancel()
	must.Is(t, p.Close(now), context.Canceled, "close")
	must.Report(t, <-served)
	must.Equal(t, p.Process().Metrics().Snapshot()["deletes"], 3, "contexts that ended, a stream and two roots")
	must.Equal(t, p.Process().SharedData("vm").Len(), 0, "keys are left")
	must.Is(t, p.Configure(nil), ErrClosed, "configure")
	must.Report(t, conn.Close())
	until(func() bool { return runtime.NumGoroutine() <= before })
}
