package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"weir/config"
	"weir/internal/check"
	"weir/internal/host"
	"weir/internal/listen"
	"weir/internal/store"
	"weir/internal/trust"
	"weir/internal/ui"
	"weir/playground"
)

// exampleConfiguration is the configuration that weir run runs without --config.
//
//go:embed example.json
var exampleConfiguration []byte

type runFlags struct {
	config, listen, ui, upstream, wasm string
	store                              storeFlags
	nodes, workers                     int
}

// vmID is the vm_id that the plugins of a node share.
const vmID = "weir"

// closeTimeout is how long requests in flight may take to finish.
const closeTimeout = 5 * time.Second

// runNodes runs weir run: proxy nodes with the plugin, a counter backend and an upstream, in this
// process.
func runNodes(ctx context.Context, args []string, env environment) error {
	var f runFlags
	flags := flag.NewFlagSet("run", flag.ContinueOnError)
	flags.StringVar(&f.config, "config", "", configUsage+"; an example if empty")
	flags.IntVar(&f.nodes, "nodes", 2, "`number` of proxies; proxy i listens on the port + i, counted from 0")
	flags.IntVar(&f.workers, "workers", 2, "`number` of workers of each proxy")
	flags.StringVar(&f.listen, "listen", "127.0.0.1:8080", "`address` of the first proxy")
	flags.StringVar(&f.ui, "ui", "", "`address` of the page with the playground and the live view; "+usualUI+" if empty, or a free port where that is taken; \"none\" for none")
	flags.StringVar(&f.upstream, "upstream", "", "base `URL` to forward requests to; if empty, an upstream of this command answers with the request, or at "+chatPath+" like a model")
	f.store.define(flags)
	var logs logFlags
	logs.define(flags, slog.LevelWarn)
	flags.StringVar(&f.wasm, "wasm", "", "the plugin's `file`; weir.wasm beside this command if empty")
	if err := parseFlags(flags, args, env); err != nil {
		return err
	}
	if err := f.store.resolve(env); err != nil {
		return err
	}
	if f.nodes < 1 || f.workers < 1 {
		return fmt.Errorf("%w: want at least one proxy with one worker, got %d with %d", errUsage, f.nodes, f.workers)
	}
	configuration, err := f.configuration(env)
	if err != nil {
		return err
	}
	if f.store.url.value+f.store.url.file != "" && configuration.Config.Backend.Cluster == "" {
		return fmt.Errorf("%w: %s: want a configuration with a backend: without one each proxy counts for itself", errUsage, f.store.url.origin())
	}
	r := &runner{flags: f, env: env, document: configuration.Document, config: configuration.Config}
	lines := env.stderr
	// On a terminal a table shows the nodes' work, below the log.
	if terminalOf(env.stderr) != nil {
		if r.table = newTable(env.stdout); r.table != nil {
			lines = r.table
		}
	}
	if r.log, err = logs.logger(lines); err != nil {
		return err
	}
	r.connections = listen.NewConnections(0, r.log)
	return r.run(ctx)
}

// configuration returns that of --config, or else the example.
func (f *runFlags) configuration(env environment) (*check.Configuration, error) {
	if f.config != "" {
		return readConfiguration(f.config, env)
	}
	parsed, err := config.Parse(exampleConfiguration)
	return &check.Configuration{Document: exampleConfiguration, Config: parsed}, err
}

type runner struct {
	flags    runFlags
	env      environment
	document []byte
	config   *config.Config
	log      *slog.Logger
	table    *table // nil where there is no terminal
	// processes are the nodes' processes, once they run.
	processes []*host.Process
	// connections bounds those of all listeners.
	connections *listen.Connections
	// lines lead from the nodes to the backend.
	lines ui.Lines
}

func (r *runner) run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var group sync.WaitGroup
	defer group.Wait()
	defer cancel(nil)
	// If one part fails, all end.
	start := func(serve func(context.Context) error) {
		group.Go(func() {
			if err := serve(ctx); err != nil {
				cancel(err)
			}
		})
	}

	// Report an address in use before compiling the plugin, which takes seconds.
	at, err := r.listen()
	if err != nil {
		return err
	}
	defer at.close()
	upstream, err := r.upstream(start)
	if err != nil {
		return err
	}
	clusters := map[string]string{}
	backendAddress := ""
	var counters store.Store
	if cluster := r.config.Backend.Cluster; cluster != "" {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		backendAddress = l.Addr().String()
		clusters[cluster] = backendAddress
		var t trusted
		if token := r.config.Backend.Token; token != "" {
			if t.tokens, err = trust.OneToken(token); err != nil {
				return errors.Join(fmt.Errorf("backend.token: %w", err), l.Close())
			}
		}
		opened, err := r.flags.store.open(nil)
		if err != nil {
			return errors.Join(err, l.Close())
		}
		if err := opened.try(ctx); err != nil {
			err = fmt.Errorf("the store accepts no hits: %w\nIs it running, and is --store right? Without --store the counters are kept in memory", err)
			return errors.Join(err, opened.Close(), l.Close())
		}
		counters = opened.Store
		start(func(ctx context.Context) error {
			return (&service{listener: r.connections.Bound(l), store: opened, trusted: t, log: r.log}).serve(ctx)
		})
	}
	nodes, err := r.nodes(ctx, at.nodes, upstream, clusters, start)
	if err != nil {
		return errors.Join(err, context.Cause(ctx))
	}
	page := r.page(at.page, nodes, backendAddress, counters, start)
	for i, address := range nodes {
		fmt.Fprintf(r.env.stdout, "proxy %-7d http://%s (%d workers)\n", i, address, r.flags.workers)
	}
	if backendAddress != "" {
		fmt.Fprintf(r.env.stdout, "backend       http://%s (%s)\n", backendAddress, r.flags.store.kind())
	}
	fmt.Fprintf(r.env.stdout, "upstream      %s\n", upstream)
	if page != "" {
		fmt.Fprintf(r.env.stdout, "playground    %s\n", page)
	}
	fmt.Fprintf(r.env.stdout, "try           curl -i -H 'x-user: ann' http://%s/\n", nodes[0])
	if r.table != nil {
		r.table.nodes = r.processes
		r.table.run(ctx)
	}
	<-ctx.Done()
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

// usualUI is the usual address of the playground.
const usualUI = "127.0.0.1:9181"

// notBuilt says why there is no page, and what to do.
const notBuilt = "is not in this command: make build puts it there"

var errNoPage = fmt.Errorf("%w: --ui: the page "+notBuilt, errUsage)

// places are the listeners of weir run.
type places struct {
	nodes []net.Listener
	page  net.Listener // nil if none is wanted or available
}

// close closes the listeners that were not served. The others are closed by then, which is no
// error.
func (p *places) close() {
	for _, l := range append(p.nodes, p.page) {
		if l != nil {
			_ = l.Close()
		}
	}
}

// listen opens the addresses in the flags.
func (r *runner) listen() (_ *places, err error) {
	hostName, portText, err := net.SplitHostPort(r.flags.listen)
	if err != nil {
		return nil, fmt.Errorf("%w: --listen: %w", errUsage, err)
	}
	port, err := strconv.Atoi(portText)
	if err != nil || port < 0 || port > 65535 {
		return nil, fmt.Errorf("%w: --listen: want a port number, got %.20q", errUsage, portText)
	}
	p := new(places)
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	for i := range r.flags.nodes {
		at := 0 // any free port
		if port != 0 {
			at = port + i
		}
		l, err := listenOn("--listen", net.JoinHostPort(hostName, strconv.Itoa(at)))
		if err != nil {
			return nil, fmt.Errorf("proxy %d: %w", i, err)
		}
		p.nodes = append(p.nodes, l)
	}
	switch {
	case r.flags.ui == "none" || r.flags.ui == "" && !playground.Built():
		return p, nil
	case !playground.Built():
		return p, errNoPage
	}
	if p.page, err = listenOn("--ui", cmp.Or(r.flags.ui, usualUI)); err != nil && r.flags.ui == "" {
		p.page, err = listenOn("--ui", "127.0.0.1:0")
	}
	return p, err
}

// page serves the page with the playground and, on a loopback address, the live view of the nodes.
// It returns the page's URL, or how to get one; empty if none is wanted.
func (r *runner) page(l net.Listener, nodes []string, backend string, counters store.Store, start func(func(context.Context) error)) (page string) {
	switch {
	case r.flags.ui == "none":
		return ""
	case l == nil:
		return notBuilt
	}
	page = "http://" + l.Addr().String() + "/"
	if !isLoopback(l.Addr()) {
		// Anyone who reaches the live view may change what runs here.
		start(func(ctx context.Context) error {
			return listen.Serve(ctx, r.connections.Bound(l), playground.Handler())
		})
		return page + " (without the live view, which needs a loopback address)"
	}
	view := ui.New(ui.Options{
		Config: r.config, Processes: r.processes, VMID: vmID, Nodes: nodes, Lines: &r.lines, Backend: backend, Store: counters, Page: playground.Handler(), Logger: r.log,
	})
	start(view.Run)
	start(func(ctx context.Context) error {
		return listen.Serve(ctx, r.connections.Bound(l), view.Handler(l.Addr().String()))
	})
	return page
}

// upstream returns the upstream that nodes forward requests to.
func (r *runner) upstream(start func(func(context.Context) error)) (*url.URL, error) {
	if r.flags.upstream != "" {
		u, err := url.Parse(r.flags.upstream)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return nil, fmt.Errorf("%w: --upstream: want a URL such as http://127.0.0.1:3000, got %.80q", errUsage, r.flags.upstream)
		}
		return u, nil
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	start(func(ctx context.Context) error {
		return listen.Serve(ctx, r.connections.Bound(l), http.HandlerFunc(ownUpstream))
	})
	return &url.URL{Scheme: "http", Host: l.Addr().String()}, nil
}

func (r *runner) nodes(
	ctx context.Context, at []net.Listener, upstream *url.URL, clusters map[string]string, start func(func(context.Context) error),
) (addresses []string, err error) {
	module, err := r.compile(ctx)
	if err != nil {
		return nil, err
	}
	for i, l := range at {
		process := host.NewProcess(host.ProcessConfig{NodeID: "node-" + strconv.Itoa(i), Clusters: clusters})
		r.processes = append(r.processes, process)
		proxy, err := host.NewProxy(ctx, host.ProxyConfig{
			Module:  module,
			Process: process,
			VMID:    vmID,
			// Rules may read bodies.
			Plugin:   host.Plugin{Name: "weir", RootID: "weir", Configuration: r.document, AllowOnHeadersStopIteration: true},
			Workers:  r.flags.workers,
			Upstream: upstream,
			// The page simulates faults of the backend here.
			CalloutTransport: r.lines.Transport(i),
			Logger:           r.log.With("node", i),
			ConnState:        listen.NoteState,
		})
		if err != nil {
			return nil, fmt.Errorf("proxy %d: %w", i, err)
		}
		start(func(ctx context.Context) error { return serveProxy(ctx, proxy, r.connections.Bound(l)) })
		addresses = append(addresses, l.Addr().String())
	}
	return addresses, nil
}

// serveProxy serves a node until ctx ends.
func serveProxy(ctx context.Context, proxy *host.Proxy, l net.Listener) error {
	served := make(chan error, 1)
	go func() { served <- proxy.Serve(l) }()
	var err error
	select {
	case err = <-served:
	case <-ctx.Done():
	}
	deadline, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	return errors.Join(err, proxy.Close(deadline))
}

func (r *runner) compile(ctx context.Context) (*host.Module, error) {
	name := r.flags.wasm
	if name == "" {
		executable, err := os.Executable()
		if err != nil {
			return nil, err
		}
		name = filepath.Join(filepath.Dir(executable), "weir.wasm")
	}
	wasm, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) && r.flags.wasm == "" {
		return nil, fmt.Errorf("there is no plugin at %s, where make build leaves it beside this command: run that, or name it with --wasm", name)
	}
	if err != nil {
		return nil, fmt.Errorf("--wasm: %w", err)
	}
	return compileKept(ctx, wasm)
}

// compileKept compiles a plugin. The code is kept in the user's cache folder, so that the next run with the
// plugin starts a second of CPU time earlier. Without such a folder, or if the code there is damaged or
// can't be written, the plugin is compiled all the same.
func compileKept(ctx context.Context, wasm []byte) (*host.Module, error) {
	caches, err := os.UserCacheDir()
	if err != nil || os.Getenv("SUDO_UID") != "" { // sudo may leave the user's folder, whose code root must not run
		return host.Compile(ctx, wasm, host.Options{})
	}
	own := filepath.Join(caches, "weir", "compiled") // a folder that nothing else has
	hash := sha256.Sum256(wasm)
	folder := filepath.Join(own, hex.EncodeToString(hash[:16]))
	removeOthers(own, folder)
	if module, err := host.Compile(ctx, wasm, host.Options{CacheDir: folder}); err == nil {
		return module, nil
	}
	module, err := host.Compile(ctx, wasm, host.Options{})
	if err == nil {
		_ = os.RemoveAll(folder) // damaged code would stay
	}
	return module, err
}

// removeOthers removes the code of other plugins, so that builds of a plugin do not fill the disk: each
// takes some 13 MB. It ignores errors.
func removeOthers(dir, but string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, entry := range entries {
		if name := filepath.Join(dir, entry.Name()); name != but {
			_ = os.RemoveAll(name)
		}
	}
}
