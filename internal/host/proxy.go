package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// FailurePolicy decides about the requests of a worker whose VM has failed.
type FailurePolicy int

const (
	// FailClosed answers 503.
	FailClosed FailurePolicy = iota
	// FailReload makes a new VM for the next request, at most once a second; until then it is
	// FailClosed.
	FailReload
)

// reloadInterval is the least time between two new VMs of a worker under FailReload.
const reloadInterval = time.Second

// ProxyConfig configures [NewProxy]. Module and Upstream are required.
type ProxyConfig struct {
	Module *Module
	// Process is shared by the proxies of one Envoy; nil is a new process.
	Process *Process
	// VMID is Envoy's vm_id.
	VMID string
	// Plugin is the first configuration.
	Plugin Plugin
	// Workers is the number of worker threads, each with its own VM; 0 is 1.
	Workers int
	// Upstream is the base URL that requests are forwarded to.
	Upstream *url.URL
	// UpstreamTransport makes requests to the upstream. nil is a transport that the proxy makes and
	// closes.
	UpstreamTransport http.RoundTripper
	// CalloutTransport makes HTTP callouts; tests inject faults here. nil is a transport that the
	// proxy makes and closes.
	CalloutTransport http.RoundTripper
	FailurePolicy    FailurePolicy
	// TrustedHops is Envoy's xff_num_trusted_hops with use_remote_address: source.address is the
	// address at this place from the end of X-Forwarded-For. With 0, or too short a list, it is the
	// connection's.
	TrustedHops int
	// ManualTicks disables the timers: only [Proxy.Tick] ticks.
	ManualTicks bool
	// ConnState is http.Server's; nil for none.
	ConnState func(net.Conn, http.ConnState)
	// Logger gets the plugin's and the proxy's messages. nil logs nothing.
	Logger *slog.Logger
}

// Proxy is one Envoy process that serves HTTP through a plugin. It is safe for concurrent use.
type Proxy struct {
	config    ProxyConfig
	process   *Process
	release   func()
	workers   []*worker
	next      atomic.Uint64 // counts connections, for round robin
	reverse   httputil.ReverseProxy
	owned     []*http.Transport
	server    *http.Server
	inFlight  gate // requests and callouts
	polls     gate // callouts that Idle doesn't wait for
	ctx       context.Context
	cancel    context.CancelFunc
	configure sync.Mutex // held during a Configure, and by Close
	closed    bool
}

// NewProxy tries the configuration in a canary VM, then starts the workers. If the plugin refuses,
// the error wraps a [*StartError]. The canary's writes to shared data and metrics stay.
func NewProxy(ctx context.Context, config ProxyConfig) (_ *Proxy, err error) {
	if config.Module == nil || config.Upstream == nil {
		return nil, errors.New("proxy: module and upstream are required")
	}
	config.Workers = max(config.Workers, 1)
	config.Logger = cmp.Or(config.Logger, slog.New(slog.DiscardHandler))
	p := &Proxy{config: config, process: config.Process}
	if p.process == nil {
		p.process = NewProcess(ProcessConfig{})
	}
	p.inFlight.left.L = &p.inFlight.mu
	p.polls.left.L = &p.polls.mu
	p.config.UpstreamTransport = p.transport(config.UpstreamTransport)
	p.config.CalloutTransport = p.transport(config.CalloutTransport)
	p.ctx, p.cancel = context.WithCancel(context.WithoutCancel(ctx))
	p.release = p.process.acquire(config.VMID) // from the canary to the workers
	p.initServer()
	defer func() {
		if err != nil {
			err = errors.Join(err, p.Close(ctx))
		}
	}()
	if err := p.canary(config.Plugin); err != nil {
		return nil, err
	}
	for i := range config.Workers {
		w, err := p.newWorker(i)
		if err != nil {
			return nil, fmt.Errorf("worker %d: %w", i, err)
		}
		p.workers = append(p.workers, w)
	}
	return p, nil
}

// transport returns the user's transport, or else a new transport that the proxy closes.
func (p *Proxy) transport(own http.RoundTripper) http.RoundTripper {
	if own != nil {
		return own
	}
	t := &http.Transport{MaxIdleConnsPerHost: 256, IdleConnTimeout: time.Minute, DisableCompression: true}
	p.owned = append(p.owned, t)
	return t
}

// Process returns the process that the proxy's VMs belong to.
func (p *Proxy) Process() *Process { return p.process }

// canary tries a configuration in its own VM, on the caller's goroutine. In Envoy, the main thread
// does so.
func (p *Proxy) canary(plugin Plugin) error {
	vm, err := p.process.NewVM(p.ctx, p.config.Module, VMConfig{ID: p.config.VMID, Logger: p.config.Logger.With(slog.Bool("canary", true))})
	if err != nil {
		return err
	}
	_, err = vm.NewRoot(plugin)
	return errors.Join(err, vm.Kill())
}

// Configure gives the plugin a new configuration, in all workers or in none. First a canary tries
// it, then each worker makes a new root context in its VM. If all accept, new requests go to the
// new contexts, and the old contexts end with their last streams.
func (p *Proxy) Configure(configuration []byte) error {
	p.configure.Lock()
	defer p.configure.Unlock()
	if p.closed {
		return ErrClosed
	}
	plugin := p.workers[0].plugin
	plugin.Configuration = slices.Clone(configuration)
	if err := p.canary(plugin); err != nil {
		return err
	}
	roots := make([]*Root, len(p.workers))
	var errs []error
	for i, w := range p.workers {
		w.do(func() {
			w.frozen = true
			if w.vm.Err() != nil {
				return // the next VM starts with the new configuration
			}
			var err error
			if roots[i], err = w.vm.NewRoot(plugin); err != nil {
				errs = append(errs, fmt.Errorf("worker %d: %w", w.index, err))
			}
		})
	}
	accepted := len(errs) == 0
	for i, w := range p.workers {
		w.do(func() {
			w.frozen = false
			retired := roots[i]
			if accepted {
				w.plugin = plugin
				if roots[i] != nil {
					retired, w.root = w.root, roots[i]
				}
			}
			if retired != nil {
				retired.Close()
			}
		})
	}
	return errors.Join(errs...)
}

// Workers returns the number of workers.
func (p *Proxy) Workers() int { return len(p.workers) }

// Do runs f on a worker's goroutine with its VM and current root context, and returns when f has.
// Use it to read a VM's figures, or to hold the worker up. f must not keep its arguments.
func (p *Proxy) Do(worker int, f func(vm *VM, root *Root)) {
	w := p.workers[worker]
	w.do(func() { f(w.vm, w.root) })
}

// Tick calls proxy_on_tick once in every root context that has a tick period, worker after worker.
func (p *Proxy) Tick() error {
	var errs []error
	for _, w := range p.workers {
		w.do(func() {
			for _, root := range w.vm.roots() {
				if root.period > 0 {
					errs = append(errs, w.vm.Tick(root))
				}
			}
		})
	}
	return errors.Join(errs...)
}

// Close ends the proxy, which takes no new connections. Requests in flight end, or are cut when ctx
// ends. Then callouts are dropped, all contexts end (done, delete), and the VMs are freed. The
// Module stays open.
func (p *Proxy) Close(ctx context.Context) error {
	p.configure.Lock()
	defer p.configure.Unlock()
	if p.closed {
		return nil
	}
	p.closed = true
	err := p.server.Shutdown(ctx)
	if err != nil && ctx.Err() != nil {
		err = cmp.Or(err, p.server.Close())
	}
	p.inFlight.close()
	p.polls.close()
	p.cancel()
	p.inFlight.wait()
	p.polls.wait()
	for _, w := range p.workers {
		err = errors.Join(err, w.close())
	}
	for _, t := range p.owned {
		t.CloseIdleConnections()
	}
	p.release()
	return err
}

// Idle waits until no request and no callout is under way, and the workers have received all
// answers. It does not wait for callouts with long timeouts, which wait for news. It is meant for a
// proxy with ManualTicks, which does nothing by itself.
func (p *Proxy) Idle() {
	for {
		p.inFlight.wait()
		for i := range p.workers {
			p.Do(i, func(*VM, *Root) {}) // a worker's inbox is in order, so all earlier posts are done
		}
		if p.inFlight.empty() {
			return
		}
	}
}

// gate counts requests or callouts that are under way, and admits none once it is closed.
type gate struct {
	mu     sync.Mutex
	closed bool
	inside int
	left   sync.Cond // of mu: inside is 0
}

func (g *gate) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed {
		g.inside++
	}
	return !g.closed
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.inside--; g.inside == 0 {
		g.left.Broadcast()
	}
}

func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
}

// wait waits until inside is 0.
func (g *gate) wait() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.inside > 0 {
		g.left.Wait()
	}
}

func (g *gate) empty() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.inside == 0
}
