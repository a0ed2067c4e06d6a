package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/internal/envoytest"
	"weir/internal/must"
)

// app is an upstream with HTTP/1.1 and HTTP/2. Each scenario sets its handler.
type app struct {
	address string
	mu      sync.Mutex
	handler http.HandlerFunc
	paths   []string // of the requests since handler was set
}

func newApp(t *testing.T) *app {
	t.Helper()
	a := &app{}
	server := httptest.NewUnstartedServer(a)
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetHTTP1(true)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	t.Cleanup(server.Close)
	a.address = server.Listener.Addr().String()
	return a
}

func (a *app) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	handler := a.handler
	a.paths = append(a.paths, r.URL.Path)
	a.mu.Unlock()
	if handler != nil {
		handler(w, r)
	}
}

// does sets the handler; nil answers an empty 200.
func (a *app) does(handler http.HandlerFunc) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.handler, a.paths = handler, nil
}

// asked returns the paths of the requests, with spaces between them.
func (a *app) asked() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return strings.Join(a.paths, " ")
}

// http2Client returns a client that uses only HTTP/2.
func http2Client(t *testing.T) *http.Client {
	t.Helper()
	c := client(t)
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	c.Transport.(*http.Transport).Protocols = protocols
	return c
}

// inTurn returns a rule that lets a number of requests an hour pass, in all. Each namespace has its
// own counters.
func inTurn(namespace string, limit int) string {
	return `{"namespace": "` + namespace + `", ` + hourly("r", limit)[1:]
}

// want429 fails unless an answer is a rejection by inTurn's rule.
func (r reply) want429(t *testing.T, limit int) {
	t.Helper()
	must.Equal(t, r.status, http.StatusTooManyRequests, "got status")
	r.want(t, fmt.Sprintf(`
		ratelimit-policy: "r";q=%d;w=3600
		ratelimit: "r";r=0;t=3600
		retry-after: 3600
		x-envoy-ratelimited: true`, limit))
}

// wantLeft fails unless an answer has a status and a rest of the limit.
func (r reply) wantLeft(t *testing.T, status, left int) {
	t.Helper()
	must.Equal(t, r.status, status, "status")
	r.want(t, fmt.Sprintf("x-ratelimit-remaining: %d\nretry-after:\nx-envoy-ratelimited:", left))
}

// websockets enables upgrades, which Envoy otherwise refuses.
var websockets = envoytest.Object{"upgrade_configs": []envoytest.Object{{"upgrade_type": "websocket"}}}

// TestProtocols covers HTTP beyond a GET.
func TestProtocols(t *testing.T) {
	onEveryByNight(t, 1, func(t *testing.T, d driver) {
		upstream := newApp(t)
		config := nodeConfig{clock: newClock(), configuration: inTurn("p", 1), upstream: upstream}
		var n node
		if e, ok := d.(envoys); ok {
			prepared := e.prepare(t, config)
			prepared.hcm = websockets
			prepared.listen(t)
			n = prepared
		} else {
			n = d.node(t, config)
		}
		for _, scenario := range []struct {
			name  string
			limit int
			does  http.HandlerFunc
			run   func(t *testing.T, n node)
		}{
			{"HTTP/1.1 and HTTP/2 count together", 3, nil, countTogether},
			{"HEAD", 2, answerAsAsked, headRequests},
			{"upgrade", 1, echoUpgraded, upgradeRequests},
			{"gRPC", 3, answerAsAsked, grpcRequests},
			{"Expect: 100-continue", 1, countUnexpected, expectContinue},
			{"large bodies", 2, countBody, largeBodies},
		} {
			t.Run(scenario.name, func(t *testing.T) {
				upstream.does(scenario.does)
				namespace := strings.Map(func(c rune) rune {
					if strings.ContainsRune(" /:", c) {
						return '_'
					}
					return c
				}, scenario.name)
				must.OK(t, n.configure(inTurn(namespace, scenario.limit)))
				scenario.run(t, n)
			})
		}
	})
}

func countTogether(t *testing.T, n node) {
	one, two := client(t), http2Client(t)
	ask(t, one, n.url()).wantLeft(t, 200, 2)
	ask(t, two, n.url()).wantLeft(t, 200, 1)
	ask(t, one, n.url()).wantLeft(t, 200, 0)
	ask(t, two, n.url()).want429(t, 3)
	ask(t, one, n.url()).want429(t, 3)
}

func headRequests(t *testing.T, n node) {
	for left, c := range []*http.Client{client(t), http2Client(t)} {
		r := ask(t, c, n.url(), ":method", "HEAD")
		r.wantLeft(t, 200, 1-left)
		must.Equal(t, r.body, "", "body")
	}
	for _, c := range []*http.Client{client(t), http2Client(t)} {
		r := ask(t, c, n.url(), ":method", "HEAD")
		r.want429(t, 2)
		// The length is that of a GET's answer.
		r.want(t, "content-type: application/problem+json\ncontent-length: 142")
		must.Equal(t, r.body, "", "body")
	}
}

// echoUpgraded answers an upgrade, and then sends back all input.
func echoUpgraded(w http.ResponseWriter, _ *http.Request) {
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nX-RateLimit-Limit: 7\r\n\r\n")
	_, _ = io.Copy(conn, buffered) // until the client closes
}

func upgradeRequests(t *testing.T, n node) {
	conn, r := upgrade(t, n)
	must.EqualOrEnd(t, r.StatusCode, http.StatusSwitchingProtocols, "%s", r.Status)
	wantHeaders(t, r.Header.Values, `
		upgrade: websocket
		x-ratelimit-limit: 1
		x-ratelimit-remaining: 0`)
	for range 3 {
		fmt.Fprint(conn, "hello")
		must.EqualOrEnd(t, string(must.Get(io.ReadAll(io.LimitReader(conn, 5)))(t)), "hello", "got")
	}
	// A rejected upgrade gets a normal answer.
	_, r = upgrade(t, n)
	body := must.Get(io.ReadAll(r.Body))(t)
	rejected := reply{status: r.StatusCode, header: r.Header, body: string(body)}
	rejected.want429(t, 1)
	must.Equal(t, len(body), 142, "body %q", body)
}

// upgrade sends a request on a new connection. Reads of the connection begin after the answer's
// header.
func upgrade(t *testing.T, n node) (io.ReadWriter, *http.Response) {
	t.Helper()
	address := strings.TrimPrefix(n.url(), "http://")
	conn := must.Get(net.Dial("tcp", address))(t)
	t.Cleanup(func() { conn.Close() })
	must.OK(t, conn.SetDeadline(time.Now().Add(hang)))
	fmt.Fprintf(conn, "GET /chat HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", address)
	buffered := bufio.NewReader(conn)
	r := must.Get(http.ReadResponse(buffered, nil))(t)
	return struct {
		io.Reader
		io.Writer
	}{buffered, conn}, r
}

func grpcRequests(t *testing.T, n node) {
	call := func(c *http.Client, contentType string) reply {
		t.Helper()
		return ask(t, c, n.url(), ":method", "POST", ":body", "\x00\x00\x00\x00\x00", "content-type", contentType, "te", "trailers")
	}
	two := http2Client(t)
	for left := range 3 {
		call(two, "application/grpc").wantLeft(t, 200, 2-left)
	}
	for _, contentType := range []string{"application/grpc", "application/grpc+proto"} {
		r := call(two, contentType)
		r.want(t, `
			content-type: application/grpc
			grpc-status: 8
			grpc-message: Rate limit exceeded
			content-length:
			ratelimit: "r";r=0;t=3600
			retry-after: 3600
			x-envoy-ratelimited: true`)
		if r.status != 200 || r.body != "" || len(r.trailer) != 0 {
			t.Errorf("%s: status %d, body %q, trailers %v", contentType, r.status, r.body, r.trailer)
		}
	}
	// gRPC-Web has its trailers in the body, so it is not gRPC for a proxy.
	r := call(two, "application/grpc-web")
	r.want429(t, 3)
	r.want(t, "grpc-status:")
}

// countBody answers with the length of the request's body.
func countBody(w http.ResponseWriter, r *http.Request) {
	n, err := io.Copy(io.Discard, r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	fmt.Fprint(w, n, r.Trailer)
}

// countUnexpected is countBody, and fails if there is an Expect.
func countUnexpected(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Expect") != "" {
		w.WriteHeader(http.StatusExpectationFailed)
	}
	countBody(w, r)
}

// The proxy tells the client to continue before the plugin has decided, and does not forward the
// Expect.
func expectContinue(t *testing.T, n node) {
	if continued, status, body := postExpecting(t, n); !continued || status != 200 || body != "100000 map[]" {
		t.Errorf("allowed: continued %v, status %d, %s bytes", continued, status, body)
	}
	if continued, status, _ := postExpecting(t, n); !continued || status != 429 {
		t.Errorf("rejected: continued %v, status %d", continued, status)
	}
}

// postExpecting sends a body after it is told to continue.
func postExpecting(t *testing.T, n node) (continued bool, status int, body string) {
	t.Helper()
	c := client(t)
	c.Transport.(*http.Transport).ExpectContinueTimeout = hang
	traced := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got100Continue: func() { continued = true }})
	r := must.Get(do(c, request(t, n.url(), strings.NewReader(strings.Repeat("x", 100_000)), "expect", "100-continue").WithContext(traced)))(t)
	return continued, r.status, r.body
}

// large is more than the mebibyte that Envoy buffers of a stream.
const large = 5 << 20

func largeBodies(t *testing.T, n node) {
	body := strings.Repeat("x", large)
	for left, c := range []*http.Client{client(t), http2Client(t)} {
		r := ask(t, c, n.url(), ":method", "POST", ":body", body)
		r.wantLeft(t, 200, 1-left)
		must.Equal(t, r.body, fmt.Sprint(large, " map[]"), "bytes that arrived")
	}
}

// routing is a node of Envoy. Each scenario sets its routes.
type routing struct {
	*envoyNode
	app, mirror *app
}

// set gives the node other routes, and a limit with new counters.
func (r *routing) set(t *testing.T, limit int, routes ...envoytest.Object) {
	t.Helper()
	r.routes = routes
	r.config.configuration = inTurn(fmt.Sprint("routing-", scenarios.Add(1)), limit)
	r.app.does(nil)
	r.listen(t)
}

// toApp returns a route of a prefix to the upstream, with further fields.
func toApp(prefix string, more envoytest.Object) envoytest.Object {
	route := envoytest.Object{"cluster": "app", "timeout": "0s"}
	for name, value := range more {
		route[name] = value
	}
	return envoytest.Object{"match": envoytest.Object{"prefix": prefix}, "route": route}
}

// TestRouting covers Envoy's features around the plugin: a request takes its hits each time that it
// passes the filters.
func TestRouting(t *testing.T) {
	onEnvoyAlone(t, 1, all, func(t *testing.T, d envoys) {
		r := &routing{app: newApp(t), mirror: newApp(t)}
		backend := serve(t, "memory")
		r.envoyNode = d.prepare(t, nodeConfig{clock: newClock(), upstream: r.app})
		must.OK(t, r.files.SetClusters(t.Context(), r.Envoy, []envoytest.Object{
			cluster("app", r.app.address), http2Cluster("app2", r.app.address), cluster("mirror", r.mirror.address), cluster("weir", backend),
		}))
		for _, scenario := range []struct {
			name string
			run  func(t *testing.T, r *routing)
		}{
			{"retries", retries},
			{"internal redirect", internalRedirect},
			{"mirror", mirrored},
			{"answers of Envoy's own", ownAnswers},
			{"timeout", timeouts},
			{"disabled on a route", disabledOnRoute},
			{"trailers", trailers},
			{"bodies that wait for the backend", waitingBodies},
			{"Expect: 100-continue of the upstream's", upstreamContinues},
			{"access log", accessLogged},
			{"marks choose the route", marked},
		} {
			t.Run(scenario.name, func(t *testing.T) { scenario.run(t, r) })
		}
	})
}

// A mark chooses another route, at once and after a request has waited for the backend. A client
// can't choose the route by sending the header itself.
func marked(t *testing.T, r *routing) {
	slow := toApp("/", envoytest.Object{"prefix_rewrite": "/slow/"})
	slow["match"] = envoytest.Object{"prefix": "/", "headers": []envoytest.Object{{"name": "x-weir-over", "string_match": envoytest.Object{"contains": "r"}}}}
	for rate, more := range map[string]string{"-1": "", "0": `, "backend": {"cluster": "weir", "timeout": "10s"}`} {
		r.set(t, 1, slow, toApp("/", nil))
		r.config.configuration = fmt.Sprintf(`{"namespace": "marks-%d", "sync_rate": %s%s, "rules": [{"name": "r", "on_full": "mark",
			"limits": [{"limit": 1, "window": "1h"}]}]}`, scenarios.Add(1), rate, more)
		r.listen(t)
		c := client(t)
		for range 3 {
			ask(t, c, r.url(), ":path", "/fast", "x-weir-over", "r").wantLeft(t, 200, 0)
		}
		must.Equal(t, r.app.asked(), "/fast /slow/fast /slow/fast", "sync_rate %s: the upstream was asked for", rate)
	}
}

func http2Cluster(name string, addresses ...string) envoytest.Object {
	c := envoytest.Cluster(name, addresses...)
	// Go's server sends a window update for each read. Envoy's default of 10 for each frame of data
	// would treat that as a flood.
	setProtocol(c, envoytest.Object{"explicit_http_config": envoytest.Object{
		"http2_protocol_options": envoytest.Object{"max_inbound_window_update_frames_per_data_frame_sent": 1000},
	}})
	return c
}

// The router, after the filters, asks a failing upstream again.
func retries(t *testing.T, r *routing) {
	r.set(t, 2, toApp("/", envoytest.Object{"retry_policy": envoytest.Object{
		"retry_on": "5xx", "num_retries": 2, "retry_back_off": envoytest.Object{"base_interval": "0.001s"},
	}}))
	failed := 0
	r.app.does(func(w http.ResponseWriter, _ *http.Request) {
		if failed++; failed <= 2 { // one after the other
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	c := client(t)
	ask(t, c, r.url(), ":path", "/a").wantLeft(t, 200, 1)
	ask(t, c, r.url(), ":path", "/b").wantLeft(t, 200, 0)
	ask(t, c, r.url(), ":path", "/c").want429(t, 2)
	must.Equal(t, r.app.asked(), "/a /a /a /b", "the upstream was asked for")
}

// An internal redirect begins a new stream: the request passes the filters again, and takes its
// hits again.
func internalRedirect(t *testing.T, r *routing) {
	r.set(t, 3, toApp("/", envoytest.Object{"internal_redirect_policy": envoytest.Object{}}))
	r.app.does(func(w http.ResponseWriter, request *http.Request) {
		if request.URL.Path == "/old" {
			w.Header().Set("location", "http://"+request.Host+"/new")
			w.WriteHeader(http.StatusFound)
		}
	})
	c := client(t)
	ask(t, c, r.url(), ":path", "/old").wantLeft(t, 200, 1)
	// The first pass takes the last hit, and the second is refused.
	ask(t, c, r.url(), ":path", "/old").want429(t, 3)
	ask(t, c, r.url(), ":path", "/new").want429(t, 3)
	must.Equal(t, r.app.asked(), "/old /new /old", "the upstream was asked for")
}

// Requests are mirrored after the filters, and only if they pass.
func mirrored(t *testing.T, r *routing) {
	r.set(t, 2, toApp("/", envoytest.Object{"request_mirror_policies": []envoytest.Object{{"cluster": "mirror"}}}))
	seen := make(chan string, 10)
	r.mirror.does(func(_ http.ResponseWriter, request *http.Request) { seen <- request.URL.Path })
	c := client(t)
	ask(t, c, r.url(), ":path", "/a").wantLeft(t, 200, 1)
	ask(t, c, r.url(), ":path", "/b").wantLeft(t, 200, 0)
	ask(t, c, r.url(), ":path", "/c").want429(t, 2)
	// Envoy counts a copy before it answers.
	must.Equal(t, must.Get(r.Stat("cluster.mirror.upstream_rq_total"))(t), 2, "requests were mirrored")
	paths := map[string]bool{}
	for range 2 {
		select {
		case path := <-seen:
			paths[path] = true
		case <-time.After(hang):
			t.Fatal("the mirror has not got two requests")
		}
	}
	must.Same(t, paths, map[string]bool{"/a": true, "/b": true}, "what the mirror has got")
}

// Answers of Envoy without an upstream are limited like others.
func ownAnswers(t *testing.T, r *routing) {
	for _, route := range []struct {
		answer envoytest.Object
		status int
	}{
		{envoytest.Object{"direct_response": envoytest.Object{"status": 418, "body": envoytest.Object{"inline_string": "tea"}}}, 418},
		{envoytest.Object{"redirect": envoytest.Object{"path_redirect": "/new"}}, 301},
	} {
		route.answer["match"] = envoytest.Object{"prefix": "/"}
		r.set(t, 1, route.answer)
		c := client(t)
		c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		ask(t, c, r.url()).wantLeft(t, route.status, 0)
		ask(t, c, r.url()).want429(t, 1)
	}
	// The filters run even if no route matches.
	r.set(t, 1, toApp("/somewhere", nil))
	ask(t, client(t), r.url()).wantLeft(t, 404, 0)
	ask(t, client(t), r.url()).want429(t, 1)
}

// A request that times out at the upstream has taken a hit.
func timeouts(t *testing.T, r *routing) {
	r.set(t, 2, toApp("/slow", envoytest.Object{"timeout": "0.01s"}), toApp("/", nil))
	r.app.does(func(_ http.ResponseWriter, request *http.Request) {
		if request.URL.Path == "/slow" {
			<-request.Context().Done()
		}
	})
	c := client(t)
	ask(t, c, r.url(), ":path", "/slow").wantLeft(t, 504, 1)
	ask(t, c, r.url()).wantLeft(t, 200, 0)
	ask(t, c, r.url()).want429(t, 2)
}

// A route may disable the filter.
func disabledOnRoute(t *testing.T, r *routing) {
	free := toApp("/free", nil)
	free["typed_per_filter_config"] = envoytest.Object{"weir": envoytest.Typed("envoy.config.route.v3.FilterConfig", envoytest.Object{"disabled": true})}
	r.set(t, 1, free, toApp("/", nil))
	c := client(t)
	for range 3 {
		got := ask(t, c, r.url(), ":path", "/free")
		got.want(t, nothing)
		must.Equal(t, got.status, 200, "status")
	}
	ask(t, c, r.url()).wantLeft(t, 200, 0)
	ask(t, c, r.url()).want429(t, 1)
	ask(t, c, r.url(), ":path", "/free").want(t, nothing)
}

// postWithTrailer sends a large body and a trailer.
func postWithTrailer(t *testing.T, address string) (reply, error) {
	t.Helper()
	request := request(t, address, io.LimitReader(zeros{}, large))
	request.Trailer = http.Header{"X-Checksum": {"abc"}}
	return do(http2Client(t), request)
}

// zeros is an endless body.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

var wholeWithTrailer = fmt.Sprint(large, " map[X-Checksum:[abc]]")

// The rest of a request arrives complete after its headers.
func trailers(t *testing.T, r *routing) {
	r.set(t, 1, toApp("/", envoytest.Object{"cluster": "app2"}))
	r.app.does(countBody)
	got := must.Get(postWithTrailer(t, r.url()))(t)
	got.wantLeft(t, 200, 0)
	must.Equal(t, got.body, wholeWithTrailer, "arrived")
}

// A request that is paused until the backend answers loses nothing meanwhile.
func waitingBodies(t *testing.T, r *routing) {
	for _, headersOnly := range []bool{false, true} {
		r.config.stopsHeadersOnly = headersOnly
		r.set(t, 1, toApp("/", envoytest.Object{"cluster": "app2"}))
		r.config.configuration = `{"sync_rate": 0, "backend": {"cluster": "weir", "timeout": "60s"}, ` + r.config.configuration[1:]
		r.listen(t)
		r.app.does(countBody)
		got := must.Get(postWithTrailer(t, r.url()))(t)
		got.wantLeft(t, 200, 0)
		must.Equal(t, got.body, wholeWithTrailer, "arrived")
		// Windows are the backend's, which uses the machine's clock.
		must.Equal(t, ask(t, client(t), r.url()).status, 429, "status")
	}
	r.config.stopsHeadersOnly = false
}

// If the upstream must confirm an Expect, no rejected client sends a body.
func upstreamContinues(t *testing.T, r *routing) {
	r.hcm = envoytest.Object{"proxy_100_continue": true}
	r.set(t, 1, toApp("/", nil))
	r.hcm = nil
	r.app.does(countBody)
	if continued, status, body := postExpecting(t, r); !continued || status != 200 || body != "100000 map[]" {
		t.Errorf("allowed: continued %v, status %d, %s bytes", continued, status, body)
	}
	if continued, status, _ := postExpecting(t, r); continued || status != 429 {
		t.Errorf("rejected: continued %v, status %d", continued, status)
	}
}

// The access log shows who has answered.
func accessLogged(t *testing.T, r *routing) {
	r.set(t, 1, toApp("/", nil))
	c := client(t)
	ask(t, c, r.url(), ":path", "/logged?1")
	ask(t, c, r.url(), ":path", "/logged?2")
	must.OK(t, waitOn(t, r.Envoy, func() (bool, error) { return strings.Contains(r.said(), "/logged?2 "), nil }))
	for _, want := range []string{"access GET /logged?1 200 via_upstream -\n", "access GET /logged?2 429 weir_rate_limited:r"} {
		must.Contains(t, r.said(), want, "")
	}
}
