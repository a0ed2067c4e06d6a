package e2e

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sync/semaphore"

	"weir/internal/envoytest"
	"weir/internal/must"
	"weir/internal/nightly"
)

// maxEnvoys bounds the processes that run at once. Each needs some seconds of a processor at its
// start to compile the plugin. So a scenario gets a process that another scenario has used, with a
// new vm_id.
const maxEnvoys = 6

// pool has the Envoys that no scenario uses.
var pool = struct {
	room *semaphore.Weighted
	mu   sync.Mutex
	idle map[string][]*envoyProcess
	all  []*envoyProcess
}{room: semaphore.NewWeighted(maxEnvoys), idle: map[string][]*envoyProcess{}}

// envoyProcess is an Envoy that reads its listeners from files.
type envoyProcess struct {
	*envoytest.Envoy
	kind  string // processes of the same kind are interchangeable
	dir   string
	files *envoytest.Files
	clock *envoytest.Clock
	// busy is a gauge that shows the rest of a scenario for a while, and resting its value when
	// nothing is left.
	busy    string
	resting int64
	killed  bool // by a scenario
}

// closePool ends all Envoys. It returns an error if an Envoy has ended by itself.
func closePool() error {
	var errs []error
	for _, p := range pool.all {
		errs = append(errs, p.end())
	}
	return errors.Join(errs...)
}

func (p *envoyProcess) end() error {
	var err error
	if !p.killed {
		err = p.Close()
	}
	return errors.Join(err, p.clock.Close(), os.RemoveAll(p.dir))
}

// envoys runs nodes on Envoy, each in a process that no other scenario uses at the same time.
type envoys struct {
	binary envoytest.Binary
	left   *int // nodes that may still be started
	// native runs the plugin as a dynamic module, compiled ahead of time.
	native bool
	// drain is how many seconds replaced listeners live on; 0 means a second.
	drain int
}

// kind returns the kind of process that d needs.
func (d envoys) kind() string {
	kind := d.binary.Version
	if d.native {
		kind += " native"
	}
	if d.drain > 0 {
		kind += fmt.Sprint(" drain ", d.drain)
	}
	return kind
}

// newEnvoys waits until a number of processes can be used, until the test ends. A scenario calls it once: if
// it waited for more while it has some, two might wait for each other.
func newEnvoys(t *testing.T, binary envoytest.Binary, nodes int) envoys {
	t.Helper()
	nodes = min(nodes, 5) // and a scenario that can do with fewer takes few of them
	must.OK(t, pool.room.Acquire(t.Context(), int64(nodes)))
	t.Cleanup(func() { pool.room.Release(int64(nodes)) })
	return envoys{binary: binary, left: &nodes}
}

// beside does nothing: a scenario has only the processes that its parts need one after the other.
func (envoys) beside(*testing.T) {}

// few returns a number that two processors can start.
func (envoys) few(many int) int { return min(many, 3) }

// nanoseconds returns false: Envoy's standard library truncates times to microseconds.
func (envoys) nanoseconds() bool { return false }

// heavy returns a part, because the wazero host covers the rest.
func (envoys) heavy(many int) int { return many / nightly.Or(5, 50) }

// stores returns all kinds in a nightly run. Otherwise a single kind is enough, because the wazero
// host covers the rest.
func (envoys) stores() []string { return nightly.Or(kindsOfStore, []string{"redis"}) }

// take returns an idle process, or starts one.
func (d envoys) take(t *testing.T) *envoyProcess {
	t.Helper()
	pool.mu.Lock()
	if idle := pool.idle[d.kind()]; len(idle) > 0 {
		p := idle[0] // the longest idle
		pool.idle[d.kind()] = idle[1:]
		pool.mu.Unlock()
		p.rest(t)
		return p
	}
	pool.mu.Unlock()
	p := must.Get(d.start(t.Context()))(t)
	pool.mu.Lock()
	defer pool.mu.Unlock()
	pool.all = append(pool.all, p)
	return p
}

// start starts a process with all workers that a scenario may need: an idle worker costs nothing.
func (d envoys) start(ctx context.Context) (*envoyProcess, error) {
	dir, err := os.MkdirTemp("", "weir-e2e-")
	if err != nil {
		return nil, err
	}
	p := &envoyProcess{kind: d.kind(), dir: dir, busy: activeVMs}
	if d.native {
		p.busy = drainingListeners
	}
	if p.clock, err = envoytest.NewClock(dir); err != nil {
		return nil, err
	}
	if p.files, err = envoytest.NewFiles(dir); err != nil {
		return nil, err
	}
	// A listener without requests keeps the compiled plugin alive between two scenarios.
	keeper := envoyNode{name: "keeper", config: nodeConfig{configuration: perUser(`{"limit": 1, "window": "1s"}`)}}
	kept, err := keeper.listener()
	if err != nil {
		return nil, err
	}
	listeners := []envoytest.Object{kept}
	if d.native {
		listeners = nil // there is nothing to compile
	}
	bootstrap, err := p.files.Bootstrap(envoytest.Object{"static_resources": envoytest.Object{"listeners": listeners}})
	if err != nil {
		return nil, err
	}
	p.Envoy, err = envoytest.Start(ctx, envoytest.Options{
		Binary: d.binary, Dir: dir, Bootstrap: bootstrap, Clock: p.clock, Workers: envoyWorkers, DrainSeconds: d.drain,
		// A connection of a replaced listener is closed with its next response, and not in the
		// middle of a request when the drain time is over. Access logs are written at once, and not
		// every ten seconds.
		Args: []string{"--drain-strategy", "immediate", "--file-flush-interval-msec", "10"},
	})
	if err != nil {
		return nil, err
	}
	p.resting, err = p.Stat(p.busy)
	return p, err
}

// waitOn waits until something has happened to an Envoy, for as long as a request may take.
func waitOn(t *testing.T, e *envoytest.Envoy, happened func() (bool, error)) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hang)
	defer cancel()
	return e.Wait(ctx, happened)
}

// waitOnStat is [waitOn] of a stat.
func waitOnStat(t *testing.T, e *envoytest.Envoy, name string, wanted func(n int64) bool) error {
	t.Helper()
	var got int64
	err := waitOn(t, e, func() (_ bool, err error) {
		got, err = e.Stat(name)
		return wanted(got), err
	})
	if err != nil {
		return fmt.Errorf("%s is %d: %w", name, got, err)
	}
	return nil
}

const (
	// activeVMs is Envoy's gauge of VMs.
	activeVMs         = "wasm.envoy.wasm.runtime.v8.active"
	drainingListeners = "listener_manager.total_listeners_draining"
)

// rest waits until the VMs of the last scenario have ended, because metrics include them until
// then.
func (p *envoyProcess) rest(t *testing.T) {
	t.Helper()
	must.OK(t, waitOnStat(t, p.Envoy, p.busy, func(n int64) bool { return n == p.resting })) // as at the start
}

// envoyWorkers is the number of workers of each Envoy, in all scenarios.
const envoyWorkers = 4

// kill kills the node's process, like a crash. It is not used again.
func (n *envoyNode) kill(t *testing.T) {
	t.Helper()
	n.killed = true
	must.Report(t, n.Close())
}

// restart kills the node's process and starts the node in another, at another address.
func (d envoys) restart(t *testing.T, n *envoyNode) (address string) {
	t.Helper()
	n.kill(t)
	n.envoyProcess = d.take(t)
	n.furnish(t)
	n.listen(t)
	return n.url()
}

// put gives back a process without anything of the scenario, except metrics.
func (p *envoyProcess) put(t *testing.T) {
	if p.killed {
		return
	}
	ctx := context.WithoutCancel(t.Context())
	if err := errors.Join(p.files.SetListeners(ctx, p.Envoy, nil), p.files.SetClusters(ctx, p.Envoy, nil), p.clock.Run(0)); err != nil {
		t.Errorf("%v\n%s", err, p.Log())
		return // it is not used again
	}
	pool.mu.Lock()
	defer pool.mu.Unlock()
	pool.idle[p.kind] = append(pool.idle[p.kind], p)
}

// envoyNode is a listener with the plugin, in a process without other listeners.
type envoyNode struct {
	*envoyProcess
	config  nodeConfig
	native  bool
	name    string
	address string
	started int              // length of the log at the start
	before  map[string]int64 // metrics at the start
	// routes and hcm are for scenarios on Envoy alone: the connection manager's routes, and its
	// further fields.
	routes []envoytest.Object
	hcm    envoytest.Object
	// discovered means that the plugin's configuration is delivered separately, as Istio does.
	discovered bool
}

// scenarios counts the nodes. Each has its own vm_id and namespace.
var scenarios atomic.Int64

func (d envoys) node(t *testing.T, config nodeConfig) node {
	t.Helper()
	n := d.prepare(t, config)
	n.listen(t)
	return n
}

// prepare returns a node that does not listen yet, with its clusters: weir, and app for the
// upstream.
func (d envoys) prepare(t *testing.T, config nodeConfig) *envoyNode {
	t.Helper()
	if *d.left--; *d.left < 0 {
		t.Fatal("more nodes than the scenario has said")
	}
	n := d.named(config)
	n.envoyProcess = d.take(t)
	t.Cleanup(func() {
		n.put(t)
		*d.left++
	})
	n.furnish(t)
	return n
}

func (d envoys) named(config nodeConfig) *envoyNode {
	return &envoyNode{config: config, native: d.native, name: fmt.Sprint("node", scenarios.Add(1))}
}

// furnish adds everything to the node's process that the node needs besides its listener.
func (n *envoyNode) furnish(t *testing.T) {
	t.Helper()
	config := n.config
	upstream := config.serveUpstream(t)
	n.started = len(n.Log())
	n.before = must.Get(n.Stats("^(wasmcustom|dynamicmodulescustom)"))(t)
	clock := n.clock.Run(config.ahead)
	if config.clock != nil {
		clock = config.clock.drive(n.clock)
	}
	must.OK(t, clock)
	app := cluster
	if config.http2Upstream {
		app = http2Cluster
	}
	clusters := []envoytest.Object{app("app", upstream.Listener.Addr().String())}
	if config.backend != "" {
		clusters = append(clusters, cluster("weir", config.backend))
	}
	must.OK(t, n.files.SetClusters(t.Context(), n.Envoy, clusters))
	n.routes = []envoytest.Object{{"match": envoytest.Object{"prefix": "/"}, "route": envoytest.Object{"cluster": "app", "timeout": "0s"}}}
}

// listen creates the node's listener, or replaces it according to the node's fields.
func (n *envoyNode) listen(t *testing.T) {
	t.Helper()
	must.OK(t, n.update())
	n.locate(t)
}

// locate reads the address at which the node listens.
func (n *envoyNode) locate(t *testing.T) {
	t.Helper()
	listeners := must.Get(n.Listeners())(t)
	n.address = "http://" + listeners[n.name]
}

func (n *envoyNode) update() error {
	if n.discovered {
		typed, err := n.typedPlugin()
		if err == nil {
			err = n.files.SetFilter(context.Background(), n.Envoy, n.name, typed)
		}
		if err != nil || n.address != "" {
			return err
		}
	}
	listener, err := n.listener()
	if err != nil {
		return err
	}
	return n.files.SetListeners(context.Background(), n.Envoy, []envoytest.Object{listener})
}

func (n *envoyNode) url() string { return n.address }

func (n *envoyNode) configure(configuration string) error {
	before := n.config.configuration
	n.config.configuration = configuration
	err := n.update()
	if err != nil {
		n.config.configuration = before
	}
	return err
}

// said returns the output of the process since the node's start.
func (n *envoyNode) said() string { return n.Log()[n.started:] }

func (n *envoyNode) metric(t *testing.T, name string) int64 {
	t.Helper()
	name = n.stat(name)
	value := must.Get(n.Stat(name))(t)
	return value - n.before[name]
}

// stat returns Envoy's name of a metric. For a dynamic module the labels follow the name.
func (n *envoyNode) stat(name string) string {
	if !n.native {
		return "wasmcustom." + name
	}
	prefix, rest, _ := strings.Cut(name, ".")
	var labels strings.Builder
	for {
		label, after, found := strings.Cut(rest, ";.;")
		key, value, _ := strings.Cut(label, "=.=")
		if !found {
			return "dynamicmodulescustom." + prefix + "." + rest + labels.String()
		}
		fmt.Fprintf(&labels, ".%s.%s", key, value)
		rest = after
	}
}

func (n *envoyNode) wantMetric(t *testing.T, name string, want int64) {
	t.Helper()
	var got int64
	if waitOn(t, n.Envoy, func() (bool, error) {
		got = n.metric(t, name)
		return got == want, nil
	}) != nil {
		t.Errorf("%s: got %d, want %d", name, got, want)
	}
}

func (n *envoyNode) wantSome(t *testing.T, name string) {
	t.Helper()
	if waitOn(t, n.Envoy, func() (bool, error) { return n.metric(t, name) > 0, nil }) != nil {
		t.Errorf("%s: 0, want more", name)
	}
}

func (n *envoyNode) received(t *testing.T, bytes int64) {
	t.Helper()
	must.Report(t, waitOnStat(t, n.Envoy, "http."+n.name+".downstream_cx_rx_bytes_total", func(got int64) bool { return got >= bytes }))
}

func (n *envoyNode) idle(t *testing.T) {
	t.Helper()
	must.Report(t, waitOnStat(t, n.Envoy, "http."+n.name+".downstream_rq_active", func(active int64) bool { return active == 0 }))
}

// listener returns the node's listener, as a control plane would deliver it.
func (n *envoyNode) listener() (envoytest.Object, error) {
	plugin, err := n.plugin()
	if err != nil {
		return nil, err
	}
	manager := envoytest.Manager(n.name, n.routes, plugin)
	maps.Copy(manager, envoytest.Object{
		"use_remote_address":   true,
		"xff_num_trusted_hops": n.config.trustedHops,
		// HTTP/1.1's trailers are disabled by default.
		"http_protocol_options": envoytest.Object{"enable_trailers": true},
		"access_log":            accessLog("access %REQ(:METHOD)% %REQ(:PATH)% %RESPONSE_CODE% %RESPONSE_CODE_DETAILS% %RESPONSE_FLAGS%\n"),
	})
	maps.Copy(manager, n.hcm)
	return envoytest.Listener(n.name, manager), nil
}

// accessLog writes a line for each finished request.
func accessLog(line string) []envoytest.Object {
	return []envoytest.Object{{"name": "stdout", "typed_config": envoytest.Typed("envoy.extensions.access_loggers.stream.v3.StdoutAccessLog", envoytest.Object{
		"log_format": envoytest.Object{"text_format_source": envoytest.Object{"inline_string": line}},
	})}}
}

const (
	wasmFilter   = "envoy.extensions.filters.http.wasm.v3.Wasm"
	nativeFilter = "envoy.extensions.filters.http.dynamic_modules.v3.DynamicModuleFilter"
)

// plugin is the HTTP filter.
func (n *envoyNode) plugin() (envoytest.Object, error) {
	if n.discovered {
		if n.native {
			return n.files.Discovery(n.name, nativeFilter), nil
		}
		return n.files.Discovery(n.name, wasmFilter), nil
	}
	typed, err := n.typedPlugin()
	return envoytest.Object{"name": "weir", "typed_config": typed}, err
}

// typedPlugin returns the filter's configuration. Each node has its own vm_id, because processes
// are reused.
func (n *envoyNode) typedPlugin() (envoytest.Object, error) {
	if n.native {
		return n.typedModule()
	}
	file, err := filepath.Abs(cmp.Or(n.config.plugin, pluginFile))
	if err != nil {
		return nil, err
	}
	config := envoytest.Object{
		"name": "weir", "root_id": "weir",
		"vm_config": envoytest.Object{
			"vm_id": n.name, "runtime": "envoy.wasm.runtime.v8", "code": envoytest.Object{"local": envoytest.Object{"filename": file}},
		},
		"configuration": envoytest.Typed("google.protobuf.StringValue", envoytest.Object{"value": n.config.configuration}),
	}
	if n.config.stopsHeadersOnly {
		config["allow_on_headers_stop_iteration"] = true
	}
	return envoytest.Typed(wasmFilter, envoytest.Object{"config": config}), nil
}

func (n *envoyNode) typedModule() (envoytest.Object, error) {
	file, err := filepath.Abs(nativeFile)
	if err != nil {
		return nil, err
	}
	return envoytest.Typed(nativeFilter, envoytest.Object{
		"dynamic_module_config": envoytest.Object{"module": envoytest.Object{"local": envoytest.Object{"filename": file}}, "do_not_close": true},
		"filter_name":           n.name,
		"filter_config":         envoytest.Typed("google.protobuf.StringValue", envoytest.Object{"value": n.config.configuration}),
	}), nil
}

func cluster(name string, addresses ...string) envoytest.Object {
	c := envoytest.Cluster(name, addresses...)
	// An idle connection that its server is just closing would fail a request, which nothing
	// repeats.
	setProtocol(c, envoytest.Object{
		"common_http_protocol_options": envoytest.Object{"idle_timeout": "60s"},
		"explicit_http_config":         envoytest.Object{"http_protocol_options": envoytest.Object{"enable_trailers": true}},
	})
	return c
}

// setProtocol sets how a cluster is spoken to.
func setProtocol(cluster, options envoytest.Object) {
	const name = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
	cluster["typed_extension_protocol_options"] = envoytest.Object{name: envoytest.Typed(name, options)}
}
