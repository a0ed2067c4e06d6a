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
	"weir/internal/must"
	"weir/internal/nightly"
)

// A driver runs proxy nodes with the built plugin. A scenario for it runs on both drivers: the
// wazero host, which is fast and lets a test control each of its threads, and Envoy, which is the
// truth.
type driver interface {
	// node starts a node in its own process, until the test ends.
	node(t *testing.T, config nodeConfig) node
	// beside lets a part of a scenario run in parallel with its other parts, if the driver has
	// room.
	beside(t *testing.T)
	// few returns how many nodes to use in a scenario for many nodes.
	few(many int) int
	// nanoseconds reports whether the proxy's clock has nanoseconds. Envoy's has microseconds.
	nanoseconds() bool
	// heavy returns how many requests to send in a scenario for many requests.
	heavy(many int) int
	// stores returns the kinds of store to use in a scenario for all kinds.
	stores() []string
}

type nodeConfig struct {
	configuration string
	// plugin is a file with another build of the plugin; the built one if it is empty. Only Envoy uses it.
	plugin string
	// workers is the number of workers; 0 means 2.
	workers int
	// backend is the address of the cluster "weir".
	backend string
	// upstream answers requests that pass; nil answers an empty 200.
	upstream      http.Handler
	http2Upstream bool
	// clock is the node's clock; nil means the machine's. ahead is added to the machine's clock.
	clock *fakeClock
	ahead time.Duration
	// trustedHops is xff_num_trusted_hops.
	trustedHops int
	// stopsHeadersOnly is Envoy's allow_on_headers_stop_iteration.
	stopsHeadersOnly bool
}

// node is a proxy with the plugin. Its methods are safe for concurrent use, except configure.
type node interface {
	url() string
	// configure replaces the plugin's configuration. The error has the complaints of the proxy and
	// the plugin.
	configure(configuration string) error
	// wantMetric waits until a metric of the plugin's namespace has a value, and fails if it never
	// has. The plugin publishes metrics at ticks.
	wantMetric(t *testing.T, name string, want int64)
	// wantSome fails unless a metric is above 0, or will soon be.
	wantSome(t *testing.T, name string)
	// metric returns the last published value.
	metric(t *testing.T, name string) int64
	// received waits until the proxy has read a number of bytes of requests since its start.
	received(t *testing.T, bytes int64)
	// said returns the log of the proxy and the plugin since the node's start.
	said() string
	// idle waits until the proxy has noticed the end of all its requests.
	idle(t *testing.T)
}

// The reasons for tests that run on a single driver. All other tests of proxies run on both.
const (
	// Only on the wazero host:
	byTrap     = "it ends a worker's VM as a trap does"
	byTicks    = "it decides when the proxy's timers run"
	byVersion  = "it has nodes with another build of the plugin"
	byCounting = "it counts host calls, and measures memory to the byte"

	// Only on Envoy:
	byRouting = "retries, redirects, mirrors, upgrades and direct responses are Envoy's"
	byXDS     = "listeners and filters are delivered as a control plane does"
	byKeeping = "the wazero host reads nothing of a body that it does not bring"
	byFilters = "it has filters of Envoy beside the plugin"
	byLogging = "access logs are Envoy's"
	byMemory  = "it measures the memory of the process; TestSpray does the same on the wazero host, to the byte"
)

// alone has the tests that run on a single driver, with the reasons.
var alone = map[string]string{
	"TestTrappedInFlight":              byTrap,
	"TestDeadBackend":                  byTicks,
	"TestPausedRequestsEnd":            byTrap,
	"TestSpray":                        byCounting,
	"TestLongKeysAreNotKept":           byCounting,
	"TestHostCalls":                    byCounting,
	"TestLastVersion":                  byVersion,
	"TestUpdates":                      byXDS,
	"TestKeptBodies":                   byKeeping,
	"TestFlood":                        byMemory,
	"TestRouting":                      byRouting,
	"TestTunnelsDoNotWait":             byRouting,
	"TestFailuresKeepWhatMayHaveBegun": byRouting,
	"TestMarksOfTwoFilters":            byFilters,
	"TestVerifiedTokens":               byFilters,
	"TestDecompressor":                 byFilters,
	"TestAccessLog":                    byLogging,
	"TestRateLimitService":             byFilters,
	"TestRateLimitServiceScripts":      byFilters,
	"TestManyOverrides":                "it measures the memory of the process",
	"TestRulesMoveUnderLoad":           "it is about the parts as users have them, and TestRulesMove runs on both",
}

// onEnvoyAlone runs a scenario that the wazero host can't run. alone must have its reason.
func onEnvoyAlone(t *testing.T, nodes int, which versions, scenario func(t *testing.T, d envoys)) {
	t.Helper()
	t.Parallel()
	whyAlone(t)
	onEnvoy(t, nodes, which, func(t *testing.T, d driver) { scenario(t, d.(envoys)) })
	onNative(t, nodes, func(t *testing.T, d driver) { scenario(t, d.(envoys)) })
}

// notNative has the tests that the native form does not pass on Envoy, with the reasons.
var notNative = map[string]string{
	"TestVerifiedTokens": "a dynamic module can't read what lies deep in dynamic metadata; such a configuration is refused",
	"TestTurnsAreLogged": "a module's callout to a cluster that Envoy does not know fails later, and the host says why",
	"TestKeptBodies":     "a module is always shown the bodies of paused requests",
}

// onWazeroAlone runs a test that Envoy can't run. alone must have its reason.
func onWazeroAlone(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	whyAlone(t)
	if wanted("wazero") {
		t.Parallel()
		test(t)
	}
}

// whyAlone fails a test that is not in alone.
func whyAlone(t *testing.T) {
	t.Helper()
	name, _, _ := strings.Cut(t.Name(), "/")
	if alone[name] == "" {
		t.Fatalf("%s: why does it not run on both drivers?", name)
	}
}

// The environment variable WEIR_PROXIES chooses the proxies for tests: envoy, wazero, native, or
// the first two if it is empty. make test runs them separately, because the race detector does not
// see into Envoy. native is Envoy with the plugin compiled ahead of time, which takes make native
// minutes.
func wanted(proxy string) bool {
	only := os.Getenv("WEIR_PROXIES")
	return only == "" && proxy != "native" || only == proxy
}

// onEach runs a scenario on each driver. nodes is the most nodes that it starts on Envoy.
func onEach(t *testing.T, nodes int, scenario func(t *testing.T, d driver)) {
	t.Helper()
	t.Parallel()
	aloneOnEach(t, nodes, scenario)
}

// aloneOnEach is onEach for a scenario that a busy machine would disturb: it runs before the scenarios
// that run beside each other.
func aloneOnEach(t *testing.T, nodes int, scenario func(t *testing.T, d driver)) {
	t.Helper()
	onWazero(t, scenario)
	onEnvoy(t, nodes, newest, scenario)
	onNative(t, nodes, scenario)
}

// onEvery is onEach with all Envoys, including the oldest.
func onEvery(t *testing.T, nodes int, scenario func(t *testing.T, d driver)) {
	t.Helper()
	t.Parallel()
	onWazero(t, scenario)
	onEnvoy(t, nodes, all, scenario)
	onNative(t, nodes, scenario)
}

// onEachByNight is onEach in a nightly run. Otherwise the scenario runs only on the wazero host:
// the engine decides it, and the proxy's part is covered by other scenarios.
func onEachByNight(t *testing.T, nodes int, scenario func(t *testing.T, d driver)) {
	t.Helper()
	if nightly.On() {
		onEach(t, nodes, scenario)
		return
	}
	t.Parallel()
	onWazero(t, scenario)
}

// onEveryByNight is onEvery in a nightly run, and otherwise onEach.
func onEveryByNight(t *testing.T, nodes int, scenario func(t *testing.T, d driver)) {
	t.Helper()
	nightly.Or(onEvery, onEach)(t, nodes, scenario)
}

// onWazero runs a scenario only on the wazero host.
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

// onEnvoy runs a scenario only on Envoys.
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

// onNative runs a scenario on the newest Envoy with the plugin compiled ahead of time.
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

// versions chooses the Envoys for a scenario.
type versions func(t *testing.T) []envoytest.Binary

func all(t *testing.T) []envoytest.Binary {
	t.Helper()
	return must.Get(envoytest.Binaries())(t)
}

func newest(t *testing.T) []envoytest.Binary {
	t.Helper()
	return all(t)[:1]
}

// nodes starts n equal nodes, and returns their addresses.
func nodes(t *testing.T, d driver, n int, config nodeConfig) (started []node, addresses []string) {
	t.Helper()
	for range n {
		next := d.node(t, config)
		started, addresses = append(started, next), append(addresses, next.url())
	}
	return started, addresses
}

// fakeClock is a clock of nodes that a test sets.
type fakeClock struct {
	mu    sync.Mutex
	nanos int64
	of    []*envoytest.Clock
}

// monday is the start of an hour, and of many windows.
var monday = time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC)

func newClock() *fakeClock { return &fakeClock{nanos: monday.UnixNano()} }

// newClockNow returns a clock with the machine's time, which the backend uses.
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
		must.OK(t, clock.Stop(at))
	}
}

// drive makes the clock set an Envoy's clock too.
func (c *fakeClock) drive(clock *envoytest.Clock) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.of = append(c.of, clock)
	return clock.Stop(time.Unix(0, c.nanos))
}

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

// through returns the address of a proxy to a backend. Its transport may lose, delay or repeat
// callouts.
func through(t *testing.T, transport http.RoundTripper, backend string) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := forward(w, r, backend, transport); err != nil {
			panic(http.ErrAbortHandler) // cuts the proxy's connection
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
	// A proxy that gives up a callout closes the connection. Then it is random whether the backend
	// applies it.
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
