package e2e

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/internal/envoytest"
	"weir/internal/nightly"
)

// A driver runs proxy nodes with the built plugin. A scenario that is written against it runs on
// each: on the wazero host, which is fast and lets a test hold every thread of it in its hands, and
// on Envoy, which is the truth.
type driver interface {
	// node starts a node of a process of its own, until the test ends.
	node(t *testing.T, config nodeConfig) node
	// beside has a part of a scenario run beside its other parts, where there is room for that.
	beside(t *testing.T)
	// few is how many nodes a scenario should have that would like many.
	few(many int) int
	// nanoseconds reports whether the proxy's clock is that fine; Envoy's has microseconds.
	nanoseconds() bool
	// heavy is how many requests a scenario should send that would like many.
	heavy(many int) int
	// stores are the kinds of store that a scenario should run on that would like all.
	stores() []string
}

// nodeConfig says what a node is like.
type nodeConfig struct {
	configuration string
	// workers is 2 if it is 0.
	workers int
	// backend is the address that the cluster "weir" leads to.
	backend string
	// upstream answers what passes; if it is nil all requests get an empty 200.
	upstream http.Handler
	// http2Upstream has it speak HTTP/2.
	http2Upstream bool
	// clock is the node's time, the machine's if nil; ahead is added to the machine's.
	clock *fakeClock
	ahead time.Duration
	// trustedHops is xff_num_trusted_hops.
	trustedHops int
	// stopsHeadersOnly is Envoy's allow_on_headers_stop_iteration.
	stopsHeadersOnly bool
}

// node is a proxy with the plugin. Its methods may be called by several goroutines at once, but for
// configure.
type node interface {
	url() string
	// configure replaces the plugin's configuration. The error has what the proxy and the plugin
	// say against it.
	configure(configuration string) error
	// wantMetric waits until a metric that the plugin has of its namespace has a value, and fails
	// if it does not come to that. The plugin publishes at ticks.
	wantMetric(t *testing.T, name string, want int64)
	// metric is a value as it was published last.
	metric(t *testing.T, name string) int64
	// received waits until the proxy has read so many bytes of requests since it was started.
	received(t *testing.T, bytes int64)
	// said returns the log of the proxy and the plugin since the node was started.
	said() string
	// idle waits until the proxy knows that all its requests have ended.
	idle(t *testing.T)
}

// The reasons why some tests are for one driver alone. All other tests of proxies run on both.
const (
	// For the wazero host alone:
	byInterleaving = "it has another worker act between two host calls"
	byTicks        = "it ticks when the test says, and nothing happens in between"
	byTrap         = "it ends a worker's VM as a trap does"
	byVersion      = "it has nodes with another build of the plugin"
	byCounting     = "it counts host calls, and measures memory to the byte"

	// For Envoy alone:
	byRouting = "retries, redirects, mirrors, upgrades and direct responses are Envoy's"
	byXDS     = "listeners and filters are delivered as a control plane does"
	byKeeping = "the wazero host reads nothing of a body that it does not bring"
	byFilters = "it has filters of Envoy beside the plugin"
	byMemory  = "it measures the memory of the process; TestSpray does the same on the wazero host, to the byte"
)

// alone says which tests are for one driver, and why.
var alone = map[string]string{
	"TestAnotherWorkerBetweenGetAndSet": byInterleaving,
	"TestPagesOfSeveralRules":           byInterleaving,
	"TestDeadBackend":                   byTicks,
	"TestTrappedInFlight":               byTrap,
	"TestRestartedInFlight":             byTicks,
	"TestPausedRequestsEnd":             byTrap,
	"TestSpray":                         byCounting,
	"TestFloodOfAnotherRule":            byCounting,
	"TestLongKeysAreNotKept":            byCounting,
	"TestMemoryIsStable":                byCounting,
	"TestHostCalls":                     byCounting,
	"TestLastVersion":                   byVersion,
	"TestUpdates":                       byXDS,
	"TestKeptBodies":                    byKeeping,
	"TestFlood":                         byMemory,
	"TestRouting":                       byRouting,
	"TestVerifiedTokens":                byFilters,
	"TestDecompressor":                  byFilters,
	"TestRateLimitService":              byFilters,
	"TestRateLimitServiceScripts":       byFilters,
}

// onEnvoyAlone runs a scenario that the wazero host can't. The list above must have its reason.
func onEnvoyAlone(t *testing.T, nodes int, which versions, scenario func(t *testing.T, d envoys)) {
	t.Helper()
	t.Parallel()
	whyAlone(t)
	onEnvoy(t, nodes, which, func(t *testing.T, d driver) { scenario(t, d.(envoys)) })
	onNative(t, nodes, func(t *testing.T, d driver) { scenario(t, d.(envoys)) })
}

// notNative says which tests of Envoys the native form does not pass, and why.
var notNative = map[string]string{
	"TestVerifiedTokens": "a dynamic module can't read what lies deep in dynamic metadata; such a configuration is refused",
	"TestTurnsAreLogged": "a module's callout to a cluster that Envoy does not know fails later, and the host says why",
	"TestKeptBodies":     "a module is always shown the bodies of paused requests",
}

// onWazeroAlone runs a test that no Envoy can. The list above must have its reason.
func onWazeroAlone(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	whyAlone(t)
	if wanted("wazero") {
		t.Parallel()
		test(t)
	}
}

// whyAlone fails a test that has no reason to run on one driver only.
func whyAlone(t *testing.T) {
	t.Helper()
	name, _, _ := strings.Cut(t.Name(), "/")
	if alone[name] == "" {
		t.Fatalf("%s: why does it not run on both drivers?", name)
	}
}

// The environment's WEIR_PROXIES says which proxies tests run on: envoy, wazero, native, or the first
// two if it says nothing. The race detector sees nothing of what Envoy does, so make test has them
// apart. native is Envoy with the plugin ahead of time, which make native takes minutes for.
func wanted(proxy string) bool {
	only := os.Getenv("WEIR_PROXIES")
	return only == "" && proxy != "native" || only == proxy
}

// onEach runs a scenario on each driver. On Envoy it has to say how many nodes it starts at most.
func onEach(t *testing.T, nodes int, scenario func(t *testing.T, d driver)) {
	t.Helper()
	t.Parallel()
	onWazero(t, scenario)
	onEnvoy(t, nodes, newest, scenario)
	onNative(t, nodes, scenario)
}

// onEvery is onEach with all Envoys, the oldest too.
func onEvery(t *testing.T, nodes int, scenario func(t *testing.T, d driver)) {
	t.Helper()
	t.Parallel()
	onWazero(t, scenario)
	onEnvoy(t, nodes, all, scenario)
	onNative(t, nodes, scenario)
}

// onEachByNight is onEach in a nightly run, and otherwise on the wazero host alone: the engine decides
// such a scenario, and the proxy has no part in it that other scenarios lack.
func onEachByNight(t *testing.T, nodes int, scenario func(t *testing.T, d driver)) {
	t.Helper()
	if nightly.On() {
		onEach(t, nodes, scenario)
		return
	}
	t.Parallel()
	onWazero(t, scenario)
}

// onEveryByNight is onEach, and in a nightly run onEvery.
func onEveryByNight(t *testing.T, nodes int, scenario func(t *testing.T, d driver)) {
	t.Helper()
	nightly.Or(onEvery, onEach)(t, nodes, scenario)
}

// onWazero runs a scenario on the wazero host only.
func onWazero(t *testing.T, scenario func(t *testing.T, d driver)) {
	t.Helper()
	if !wanted("wazero") {
		return
	}
	t.Run("wazero", func(t *testing.T) {
		t.Parallel()
		scenario(t, wazero{})
	})
}

// onEnvoy runs a scenario on Envoys only.
func onEnvoy(t *testing.T, nodes int, which versions, scenario func(t *testing.T, d driver)) {
	t.Helper()
	if !wanted("envoy") || testing.Short() {
		return
	}
	for _, binary := range which(t) {
		t.Run("envoy "+binary.Version, func(t *testing.T) {
			t.Parallel()
			scenario(t, newEnvoys(t, binary, nodes))
		})
	}
}

// onNative runs a scenario on the newest Envoy with the plugin ahead of time.
func onNative(t *testing.T, nodes int, scenario func(t *testing.T, d driver)) {
	t.Helper()
	name, _, _ := strings.Cut(t.Name(), "/")
	if !wanted("native") || notNative[name] != "" {
		return
	}
	for _, binary := range newest(t) {
		t.Run("native "+binary.Version, func(t *testing.T) {
			t.Parallel()
			d := newEnvoys(t, binary, nodes)
			d.native = true
			scenario(t, d)
		})
	}
}

// versions chooses the Envoys that a scenario runs on.
type versions func(t *testing.T) []envoytest.Binary

func all(t *testing.T) []envoytest.Binary {
	t.Helper()
	binaries, err := envoytest.Binaries()
	if err != nil {
		t.Fatal(err)
	}
	return binaries
}

func newest(t *testing.T) []envoytest.Binary {
	t.Helper()
	return all(t)[:1]
}

// nodes starts several nodes that are alike, and gives their addresses.
func nodes(t *testing.T, d driver, n int, config nodeConfig) (started []node, addresses []string) {
	t.Helper()
	for range n {
		next := d.node(t, config)
		started, addresses = append(started, next), append(addresses, next.url())
	}
	return started, addresses
}

// fakeClock is a clock of nodes that a test moves.
type fakeClock struct {
	mu    sync.Mutex
	nanos int64
	of    []*envoytest.Clock
}

// monday is a start of an hour, and of a multiple of many windows.
var monday = time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC)

func newClock() *fakeClock { return &fakeClock{nanos: monday.UnixNano()} }

// newClockNow makes a clock with the machine's time, as the backend's clock is the machine's.
func newClockNow() *fakeClock { return &fakeClock{nanos: time.Now().UnixNano()} }

func (c *fakeClock) now() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nanos
}

func (c *fakeClock) advance(t testing.TB, d time.Duration) {
	t.Helper()
	c.set(t, time.Unix(0, c.now()).Add(d))
}

func (c *fakeClock) set(t testing.TB, at time.Time) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nanos = at.UnixNano()
	for _, clock := range c.of {
		if err := clock.Stop(at); err != nil {
			t.Fatal(err)
		}
	}
}

// drive has the clock move an Envoy's, too.
func (c *fakeClock) drive(clock *envoytest.Clock) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.of = append(c.of, clock)
	return clock.Stop(time.Unix(0, c.nanos))
}

// serveUpstream starts a node's upstream.
func (n *nodeConfig) serveUpstream(t *testing.T) *httptest.Server {
	t.Helper()
	handler := n.upstream
	if handler == nil {
		handler = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	}
	upstream := httptest.NewUnstartedServer(handler)
	upstream.Config.Protocols = n.upstreamProtocols()
	upstream.Start()
	t.Cleanup(upstream.Close)
	return upstream
}

func (n *nodeConfig) upstreamProtocols() *http.Protocols {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(!n.http2Upstream)
	protocols.SetUnencryptedHTTP2(n.http2Upstream)
	return protocols
}

// through is a backend's address that leads there through a transport, which may lose, delay or
// double callouts.
func through(t *testing.T, transport http.RoundTripper, backend string) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := forward(w, r, backend, transport); err != nil {
			panic(http.ErrAbortHandler) // the proxy sees its connection cut
		}
	}))
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

func forward(w http.ResponseWriter, r *http.Request, backend string, transport http.RoundTripper) error {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	// A proxy that gives a callout up closes the connection; whether the backend then applies it is
	// left to chance.
	out, err := http.NewRequestWithContext(r.Context(), r.Method, "http://"+backend+r.URL.RequestURI(), bytes.NewReader(body))
	if err != nil {
		return err
	}
	out.Header = r.Header.Clone()
	response, err := transport.RoundTrip(out)
	if err != nil {
		return err
	}
	answer, err := io.ReadAll(response.Body)
	if err = errors.Join(err, response.Body.Close()); err != nil {
		return err
	}
	for name, values := range response.Header {
		w.Header()[name] = values
	}
	w.WriteHeader(response.StatusCode)
	_, err = w.Write(answer)
	return err
}
