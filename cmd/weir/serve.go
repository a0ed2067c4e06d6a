package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.opentelemetry.io/otel/attribute"

	"weir/internal/backend"
	"weir/internal/listen"
	"weir/internal/named"
	"weir/internal/panics"
	"weir/internal/server"
	"weir/internal/traces"
	"weir/internal/trust"
	"weir/internal/ui"
	"weir/internal/warn"
	"weir/playground"
)

func serve(ctx context.Context, args []string, env environment) error {
	flags := flag.NewFlagSet("serve", flag.ContinueOnError)
	address := flags.String("listen", "127.0.0.1:9180", "`address` to listen on")
	page := flags.String("ui", "", "`address` of a page that shows what nodes report; none if empty")
	var store storeFlags
	store.define(flags)
	store.boundFlag(flags)
	store.memoryFlag(flags)
	var parent parentFlags
	parent.define(flags)
	var who trustFlags
	who.define(flags)
	var webhook secret
	webhook.define(flags, "warn-webhook",
		"`URL` that gets a POST of JSON for each key that nears a limit of a rule with warn_at, once a window; better given as WEIR_WARN_WEBHOOK or in a file, if it is a secret",
		"`file` with the URL, in one line")
	var webhookSecret secret
	webhookSecret.define(flags, "warn-webhook-secret", "`secret` that signs what --warn-webhook gets; better given as WEIR_WARN_WEBHOOK_SECRET or in a file", "`file` with the secret, in one line")
	var logs logFlags
	logs.define(flags, slog.LevelInfo)
	delay := flags.Duration("shutdown-delay", 0, "how long to go on after SIGTERM while /readyz says 503, and the rate limit service NOT_SERVING, so that load balancers hear of it first; a second signal ends at once")
	connections := connectionsFlag(flags)
	var descriptors descriptorFlags
	descriptors.define(flags)
	if err := parseFlags(flags, args, env); err != nil {
		return err
	}
	log, err := logs.logger(env.stderr)
	if err != nil {
		return err
	}
	if env.stderr == io.Writer(os.Stderr) {
		// Log lines of net/http get the same form.
		slog.SetLogLoggerLevel(slog.LevelWarn)
		slog.SetDefault(log)
	}
	if *delay < 0 {
		return fmt.Errorf("%w: --shutdown-delay: want 0 or more, got %v", errUsage, *delay)
	}
	limited, err := descriptors.given()
	if err != nil {
		return err
	}
	if err := store.resolve(env); err != nil {
		return err
	}
	if err := parent.read(env); err != nil {
		return err
	}
	trusted, err := who.read(env, log)
	if err != nil {
		return err
	}
	hook, err := readWebhook(&webhook, env)
	if err != nil {
		return err
	}
	signature, err := webhookSecret.read(env)
	if err != nil {
		return err
	}
	l, err := listenFor("--listen", *address, trusted, who.insecure)
	if err != nil {
		return err
	}
	all := closers{l} // if anything fails
	var onPage net.Listener
	if *page != "" {
		if !playground.Built() {
			return errors.Join(errNoPage, all.Close())
		}
		if onPage, err = listenFor("--ui", *page, trusted, who.insecure); err != nil {
			return errors.Join(err, all.Close())
		}
		all = append(all, onPage)
	}
	bound := listen.NewConnections(*connections, log)
	if l = bound.Bound(l); onPage != nil {
		onPage = bound.Bound(onPage)
	}
	var ofNodes int
	store.bytes, ofNodes = store.memory.divide(store.inProcess(), limited, env.getenv)
	opened, relay, err := parent.open(ctx, store, log)
	if err != nil {
		return errors.Join(err, all.Close())
	}
	registry := prometheus.NewRegistry()
	tells := traces.Options{Service: "weir serve", Version: version(), Spans: traces.Wanted("TRACES", env.getenv), Registry: registry, Logger: log}
	telemetry, err := traces.Open(ctx, tells, env.getenv)
	if err != nil {
		return errors.Join(err, all.Close(), opened.Close())
	}
	s := &service{telemetry: telemetry, registry: registry, listener: l, onPage: onPage, store: opened, parent: relay, trusted: trusted, webhook: hook, webhookSecret: signature, delay: *delay, log: log}
	if limited {
		if s.limits, err = descriptors.open(&trusted, bound, env.getenv, log); err != nil {
			return errors.Join(err, all.Close(), opened.Close())
		}
		s.limits.counters.MaxMemory, s.limits.server.More = ofNodes, telemetry.GRPC()
	}
	return s.serve(ctx)
}

func connectionsFlag(flags *flag.FlagSet) *int {
	most := listen.DefaultConnections
	usage := fmt.Sprintf("keep `N` connections of an address at most, and no more than half of the files that the process may open; "+
		"those that wait for a request make room; raise it for many nodes behind one address (default %d)", most)
	flags.Func("max-connections-per-address", usage, func(text string) (err error) {
		if most, err = strconv.Atoi(text); err != nil || most < 1 {
			return errors.New("want 1 or more")
		}
		return nil
	})
	return &most
}

// readWebhook reads the URL of a webhook. Errors do not repeat it, since it may be a secret.
func readWebhook(s *secret, env environment) (string, error) {
	text, err := s.read(env)
	if err != nil || text == "" {
		return "", err
	}
	if u, err := url.Parse(text); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return "", fmt.Errorf("%w: --warn-webhook: want a URL such as https://hooks.example/weir", errUsage)
	}
	return text, nil
}

// listenFor listens on an address from a flag. Beyond the loopback range, clients must be
// authenticated or --insecure given.
func listenFor(flag, address string, trusted trusted, insecure bool) (net.Listener, error) {
	l, err := listenOn(flag, address)
	if err != nil {
		return nil, err
	}
	if trusted.anybody() && !insecure && !isLoopback(l.Addr()) {
		return nil, errors.Join(fmt.Errorf("%w: %s: anyone who reaches %s could read and change all counters: want --token-file, "+
			"WEIR_TOKEN, or --tls-client-ca; or --insecure, if only trusted clients reach it", errUsage, flag, l.Addr()), l.Close())
	}
	return l, nil
}

// trustFlags say which clients the backend trusts.
type trustFlags struct {
	token        secret
	certificates trust.CertificateFiles
	insecure     bool
}

func (f *trustFlags) define(flags *flag.FlagSet) {
	f.token.define(flags, "token",
		"bearer `token` that proxies must show; better given as WEIR_TOKEN or in a file, which other users can't see",
		"`file` whose lines are a namespace, or * for all, a token, and what it may do, as in: shop 5f0c9e2b7a verbs=read,change name=ann; read again when it changes")
	flags.StringVar(&f.certificates.Certificate, "tls-cert", "", "`file` with the certificate to serve TLS with, in PEM; read again when it changes, and so are the next two")
	flags.StringVar(&f.certificates.Key, "tls-key", "", "`file` with its private key, in PEM without a password")
	flags.StringVar(&f.certificates.ClientCA, "tls-client-ca", "", "`file` with the certificates that sign clients' certificates; then each client must have such a certificate")
	flags.BoolVar(&f.insecure, "insecure", false, "serve anybody who reaches the address, by any name, though it is not a loopback address")
}

// trusted says which clients the backend trusts.
type trusted struct {
	tokens *trust.Tokens // nil for none
	tls    *tls.Config   // nil without TLS
	// certificates means that clients need a certificate.
	certificates bool
	// insecure means that any client is served, under any host name.
	insecure bool
}

// anybody reports whether all clients are trusted.
func (t *trusted) anybody() bool { return t.tokens == nil && !t.certificates }

// host returns the host that requests to an address must name; empty for any. With tokens or
// certificates any host is fine, since a page of another site has neither.
func (t *trusted) host(l net.Listener) string {
	if !t.anybody() || t.insecure || !isLoopback(l.Addr()) {
		return ""
	}
	return l.Addr().String()
}

// read reads the files that the flags name. Errors wrap [errUsage].
func (f *trustFlags) read(env environment, log *slog.Logger) (t trusted, err error) {
	t.insecure = f.insecure
	token, err := f.token.given(env)
	if err != nil {
		return t, err
	}
	switch {
	case f.token.file != "":
		if t.tokens, err = trust.ReadTokens(f.token.file, time.Now, log); err != nil {
			return t, fmt.Errorf("%w: --token-file: %w", errUsage, err)
		}
	case token != "":
		if t.tokens, err = trust.OneToken(token); err != nil {
			return t, fmt.Errorf("%w: --token: %w", errUsage, err)
		}
	}
	if t.tokens.Certificates() && f.certificates.ClientCA == "" {
		return t, fmt.Errorf("%w: --token-file: want --tls-client-ca with lines of certificate=", errUsage)
	}
	c := &f.certificates
	if *c == (trust.CertificateFiles{}) {
		return t, nil
	}
	if c.Certificate == "" || c.Key == "" {
		return t, fmt.Errorf("%w: --tls-cert: want it with --tls-key, and --tls-client-ca only with both", errUsage)
	}
	if t.tls, err = trust.Certificates(*c, time.Now, log); err != nil {
		return t, fmt.Errorf("%w: --tls-cert: %w", errUsage, err)
	}
	t.certificates = c.ClientCA != ""
	return t, nil
}

// service is a backend to serve.
type service struct {
	listener net.Listener
	onPage   net.Listener // listener of the page; nil for none
	limits   *rateLimits  // Envoy's rate limit service; nil for none
	store    openStore
	parent   http.Handler // answers requests about all regions; nil without a parent
	trusted  trusted
	// webhook is the URL that receives warnings; empty for none. webhookSecret signs them, unless
	// it is empty.
	webhook, webhookSecret string
	// delay is how long the service goes on after it was told to end.
	delay     time.Duration
	telemetry traces.Telemetry
	// registry has all metrics, which telemetry sends; nil for one of its own.
	registry *prometheus.Registry
	log      *slog.Logger
}

// serve serves until ctx ends and the delay is over, and closes everything.
func (s *service) serve(ctx context.Context) error {
	l, onPage, store, t, log := s.listener, s.onPage, s.store, &s.trusted, s.log
	leaving := ctx.Done()
	ctx, cancel := later(ctx, s.delay, "the counter backend", log)
	defer cancel()
	registry := cmp.Or(s.registry, prometheus.NewRegistry())
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), buildInfo(), caughtPanics())
	// Pass the store itself, because a store in memory has metrics of its own.
	warner := warn.New(warn.Options{Store: store.Store, Logger: log, Registry: registry, Webhook: s.webhook, Secret: s.webhookSecret})
	var warning sync.WaitGroup
	warning.Go(func() { panics.Again(ctx, "warnings", warner.Run) })
	evictions := server.NewEvictions(store.Store, registry, log)
	warning.Go(func() { panics.Again(ctx, "the watch on evictions", evictions.Run) })
	monitor := server.NewMonitor(store.Store, registry, log, time.Now)
	warning.Go(func() { panics.Again(ctx, "the store's monitor", monitor.Run) })
	answers := backend.New(store.Store)
	handler := &drain{Handler: s.telemetry.HTTP(server.Handler(store.Store, server.Options{
		Backend: answers, Warned: warner.Hear,
		Tokens: t.tokens, Certificates: t.certificates, Registry: registry, Logger: log, Monitor: monitor, Leaving: leaving, Ended: ctx.Done(),
		Host: t.host(l), Parent: s.parent, Identity: named.Plain,
	}), trust.Known)}
	log.Info("the counter backend listens", "address", l.Addr().String(), "token_required", t.tokens != nil,
		"tls", t.tls != nil, "certificate_required", t.certificates, "may_change", t.tokens.MayChange())
	if t.anybody() && !isLoopback(l.Addr()) {
		log.Warn("anyone who reaches the counter backend can read and change its counters")
	}
	served := make(chan error, 1)
	if onPage == nil {
		served <- nil
	} else {
		log.Info("the page is served", "address", onPage.Addr().String())
		page := ui.Watch(handler, playground.Handler(), t.tokens != nil)
		if t.anybody() && isLoopback(onPage.Addr()) {
			page = ui.Guard(onPage.Addr().String(), page)
		}
		go func() {
			defer cancel() // if one fails, both end
			served <- listen.Serve(ctx, withTLS(onPage, t), page)
		}()
	}
	limited := make(chan error, 1)
	if s.limits == nil {
		limited <- nil
	} else {
		registry.MustRegister(s.limits.answers.Stats)
		go func() {
			defer cancel()
			limited <- s.limits.serve(ctx, leaving, answers, monitor)
		}()
	}
	before := make(chan int64, 1)
	context.AfterFunc(ctx, func() {
		ended := handler.ended.Load() // whoever reads the log may have one ended at once
		log.Info("the counter backend ends", "requests_under_way", handler.underWay())
		before <- ended // behind the log, so that the line of the end comes after it
	})
	err := listen.Serve(ctx, withTLS(l, t), handler)
	cancel()
	err = errors.Join(err, <-served, <-limited)
	log.Info("the counter backend has ended", "requests_drained", handler.ended.Load()-<-before, "requests_cut_off", handler.underWay())
	warning.Wait()
	s.telemetry.Close()
	if closeErr := store.Close(); closeErr != nil {
		err = errors.Join(err, fmt.Errorf("close the store: %w", closeErr))
	}
	return err
}

func withTLS(l net.Listener, t *trusted) net.Listener {
	if t.tls == nil {
		return l
	}
	return tls.NewListener(l, t.tls)
}

// requiring returns the TLS configuration of a listener that accepts only clients with a
// certificate, if there is a CA. If name is not empty, the certificate must have that name.
func requiring(t *trusted, name string) *tls.Config {
	if t.tls == nil || !t.certificates {
		return t.tls
	}
	config := t.tls.Clone()
	config.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		of, err := t.tls.GetConfigForClient(hello)
		if err != nil {
			return nil, err
		}
		of = of.Clone()
		of.ClientAuth = tls.RequireAndVerifyClientCert
		if name != "" {
			of.VerifyConnection = func(c tls.ConnectionState) error { return c.PeerCertificates[0].VerifyHostname(name) }
		}
		return of, nil
	}
	return config
}

// isLocal reports whether only programs of this machine reach a listener.
func isLocal(l net.Listener) bool {
	return l != nil && (isLoopback(l.Addr()) || l.Addr().Network() == "unix")
}

func isLoopback(a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

// drain counts a handler's requests, so that the log can say at the end what became of those under
// way.
type drain struct {
	http.Handler
	begun, ended atomic.Int64
}

func (d *drain) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.begun.Add(1)
	defer d.ended.Add(1) // even if the handler aborts the connection
	d.Handler.ServeHTTP(w, r)
}

// underWay returns how many requests were not answered yet.
func (d *drain) underWay() int64 { return d.begun.Load() - d.ended.Load() }

// later returns a context that ends a delay after ctx, or when it is cancelled. The log says so of
// what ends.
func later(ctx context.Context, delay time.Duration, what string, log *slog.Logger) (context.Context, context.CancelFunc) {
	if delay == 0 {
		return context.WithCancel(ctx)
	}
	delayed, cancel := context.WithCancel(context.WithoutCancel(ctx))
	context.AfterFunc(ctx, func() {
		log.Info(what+" is about to end; it accepts requests until then, and says that it is not ready", "in", delay)
		select {
		case <-time.After(delay):
			cancel()
		case <-delayed.Done():
		}
	})
	return delayed, cancel
}

// logFlags configure the log of weir serve and weir run.
type logFlags struct {
	format string
	level  slog.Level
}

func (f *logFlags) define(flags *flag.FlagSet, from slog.Level) {
	flags.StringVar(&f.format, "log-format", "text", "`format` of log lines: text or json")
	flags.TextVar(&f.level, "log-level", from, "log from this `level` on: debug, info, warn or error")
}

// logger returns a logger as the flags say. Its error wraps [errUsage].
func (f *logFlags) logger(w io.Writer) (*slog.Logger, error) {
	options := &slog.HandlerOptions{Level: f.level}
	switch f.format {
	case "text":
		return slog.New(slog.NewTextHandler(w, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, options)), nil
	}
	return nil, fmt.Errorf("%w: --log-format: want text or json, got %.80q", errUsage, f.format)
}

// tracing is what the variables of envoyproxy/ratelimit say of traces.
func (v *variables) tracing() traces.Options {
	o := traces.Options{Service: v.text("TRACING_SERVICE_NAME", "RateLimit"), Version: version(), Protocol: "http/protobuf"}
	if v.text("TRACING_EXPORTER_PROTOCOL", "http") == "grpc" {
		o.Protocol = "grpc"
	}
	for attributed, name := range map[string]string{"service.namespace": "TRACING_SERVICE_NAMESPACE", "service.instance.id": "TRACING_SERVICE_INSTANCE_ID"} {
		if text := v.getenv(name); text != "" {
			o.More = append(o.More, attribute.String(attributed, text))
		}
	}
	share, err := strconv.ParseFloat(v.text("TRACING_SAMPLING_RATE", "1"), 64)
	if err != nil || !(share >= 0 && share <= 1) {
		v.fail("TRACING_SAMPLING_RATE", "a number from 0 to 1")
	}
	o.Share, o.Spans = share, v.truth("TRACING_ENABLED")
	return o
}

// listenOn listens on an address from a flag. Errors say what to do.
func listenOn(flag, address string) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("another program listens on %s: end it, or choose another address with %s", address, flag)
	case errors.Is(err, syscall.EACCES):
		return nil, fmt.Errorf("this user may not listen on %s: choose a port above 1023 with %s", address, flag)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return nil, fmt.Errorf("%s is no address of this machine: choose one with %s, such as 127.0.0.1 or 0.0.0.0", address, flag)
	case err != nil:
		return nil, fmt.Errorf("%s: want an address such as 127.0.0.1:9180: %w", flag, err)
	}
	return l, nil
}

// listenAtSocket listens on a Unix socket from a variable. It takes the place of a socket at which
// nobody listens, as a process that was killed leaves it.
func listenAtSocket(variable, path string) (net.Listener, error) {
	l, err := net.Listen("unix", path)
	if !errors.Is(err, syscall.EADDRINUSE) {
		if err != nil {
			err = fmt.Errorf("%s: want the path of a socket to make: %w", variable, err)
		}
		return l, err
	}
	inUse := fmt.Errorf("%s: another program listens on %s: end it, or choose another path", variable, path)
	if found, err := os.Lstat(path); err == nil && found.Mode()&fs.ModeSocket == 0 {
		return nil, fmt.Errorf("%s: want the path of a socket to make, but %s is something else, and was not changed", variable, path)
	}
	if !stale(path) {
		return nil, inUse
	}
	// Another process may have taken the stale socket's place by now. So the socket is moved away
	// first, and back if somebody listens.
	aside := path[:len(path)-1] + "~" // a path of a socket can't be much longer
	if err := os.Rename(path, aside); err != nil {
		return nil, fmt.Errorf("%s: nobody listens on %s, and it can't be replaced: %w", variable, path, err)
	}
	if !stale(aside) {
		return nil, errors.Join(inUse, os.Rename(aside, path))
	}
	if err := os.Remove(aside); err != nil {
		return nil, fmt.Errorf("%s: %w", variable, err)
	}
	if l, err = net.Listen("unix", path); err != nil {
		err = fmt.Errorf("%s: %w", variable, err)
	}
	return l, err
}

// stale reports whether nobody listens on a socket.
func stale(path string) bool {
	c, err := net.Dial("unix", path)
	if err == nil {
		_ = c.Close() // nothing was sent
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}
