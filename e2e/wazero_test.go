package e2e

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"testing"
	"time"

	"weir/internal/commandtest"
	"weir/internal/host"
	"weir/internal/must"
	"weir/internal/nightly"
)

// wazero runs nodes on this repository's proxy-wasm host.
type wazero struct{}

func (wazero) beside(t *testing.T) { t.Parallel() }
func (wazero) few(many int) int    { return many }

// heavy returns a smaller part for make test-fast.
func (wazero) heavy(many int) int {
	if testing.Short() {
		return many / 10
	}
	return nightly.Or(many, many/10)
}

// stores returns only the memory for make test-fast.
func (wazero) stores() []string {
	if testing.Short() {
		return []string{"memory"}
	}
	return kindsOfStore
}

func (wazero) nanoseconds() bool { return true }

func (wazero) node(t *testing.T, config nodeConfig) node {
	t.Helper()
	return startProxy(t, config, host.ProxyConfig{})
}

// proxyNode is a node on the wazero host. Its proxy gives a test more control.
type proxyNode struct {
	*host.Proxy
	address string
	log     *commandtest.Output
}

func (p *proxyNode) said() string { return p.log.String() }

// startProxy starts a node on the wazero host. more has the options that only that host has.
func startProxy(t *testing.T, config nodeConfig, more host.ProxyConfig) *proxyNode {
	t.Helper()
	upstream := must.Get(url.Parse(config.serveUpstream(t).URL))(t)
	process := host.ProcessConfig{NodeMetadata: map[string]string{"TEXT": "3"}, Clusters: map[string]string{"weir": config.backend}}
	switch {
	case config.clock != nil:
		process.Clock = config.clock.now
	case config.ahead != 0:
		process.Clock = func() int64 { return time.Now().Add(config.ahead).UnixNano() }
	}
	more.Process = host.NewProcess(process)
	more.Module, more.VMID, more.Upstream = cmp.Or(more.Module, module), vmID, upstream
	more.Plugin = host.Plugin{Configuration: []byte(config.configuration), AllowOnHeadersStopIteration: config.stopsHeadersOnly}
	if config.http2Upstream {
		transport := &http.Transport{Protocols: config.upstreamProtocols()}
		t.Cleanup(transport.CloseIdleConnections)
		more.UpstreamTransport = transport
	}
	more.Workers = cmp.Or(config.workers, 2)
	more.TrustedHops = config.trustedHops
	log := new(commandtest.Output)
	more.Logger = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelWarn}))
	proxy := must.Get(host.NewProxy(t.Context(), more))(t)
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	served := make(chan error, 1)
	go func() { served <- proxy.Serve(l) }()
	t.Cleanup(func() { must.Report(t, errors.Join(proxy.Close(context.Background()), <-served)) })
	return &proxyNode{Proxy: proxy, address: "http://" + l.Addr().String(), log: log}
}

// received returns at once: this host passes all input to the plugin at once, and the plugin can
// pause only after that.
func (p *proxyNode) received(*testing.T, int64) {}

func (p *proxyNode) idle(t *testing.T) {
	t.Helper()
	for worker := range p.Workers() {
		streams := 0
		if !soon(func() bool {
			p.Do(worker, func(_ *host.VM, root *host.Root) { streams = root.Streams() })
			return streams == 0
		}) {
			t.Fatalf("%d requests do not end", streams)
		}
	}
}

func (p *proxyNode) url() string { return p.address }

func (p *proxyNode) configure(configuration string) error { return p.Configure([]byte(configuration)) }

func (p *proxyNode) metric(t *testing.T, name string) int64 {
	t.Helper()
	must.OK(t, p.Tick())
	return p.Process().Metrics().Snapshot()[name]
}

func (p *proxyNode) wantSome(t *testing.T, name string) {
	t.Helper()
	must.AtLeast(t, p.metric(t, name), 1, "%s", name)
}

func (p *proxyNode) wantMetric(t *testing.T, name string, want int64) {
	t.Helper()
	must.Equal(t, p.metric(t, name), want, "%s", name)
}
