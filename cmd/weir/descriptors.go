package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"weir/internal/backend"
	"weir/internal/failure"
	"weir/internal/fields"
	"weir/internal/listen"
	"weir/internal/panics"
	"weir/internal/ratelimitservice"
	"weir/internal/server"
	"weir/ratelimit"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// descriptorFlags configure Envoy's rate limit service, and its descriptors.
type descriptorFlags struct{ listen, http, path, xds, headers, failure, reveal string }

func (f *descriptorFlags) define(flags *flag.FlagSet) {
	flags.StringVar(&f.listen, "rate-limit-service", "", "`address` to serve Envoy's rate limit service at, envoy.service.ratelimit.v3, by gRPC; none if empty")
	flags.StringVar(&f.path, "descriptors", "", "`file` or folder with its configuration, in the form of envoyproxy/ratelimit; read again when it changes")
	flags.StringVar(&f.xds, "descriptors-xds", "", "`HOST:PORT` of an xDS server that has the configuration instead; the variables CONFIG_GRPC_XDS_* are those of weir ratelimit")
	flags.StringVar(&f.headers, "rate-limit-headers", "", "`list` of the headers that Envoy adds to responses: three (RateLimit-Limit, -Remaining and -Reset), "+
		"ratelimit (RateLimit-Policy and RateLimit), retry-after; none if empty")
	flags.StringVar(&f.failure, "rate-limit-on-backend-failure", "local", "`policy` while the store can't be reached: local (by what this instance knows), allow or deny")
	flags.StringVar(&f.reveal, "rate-limit-reveal", "hash", "how much of the `values` of descriptors weir top and weir usage show: hash (none), plain (all), or 1 to 64 characters of each")
	flags.StringVar(&f.http, "rate-limit-http", "", "`address` to serve /json and /healthcheck of the rate limit service at; none if empty")
}

// given reports whether the service was asked for. The error wraps [errUsage].
func (f *descriptorFlags) given() (bool, error) {
	switch {
	case f.listen != "" && (f.path == "") == (f.xds == ""):
		return false, fmt.Errorf("%w: --rate-limit-service: want it with --descriptors or --descriptors-xds", errUsage)
	case f.listen == "" && (f.path != "" || f.xds != "" || f.http != ""):
		return false, fmt.Errorf("%w: --descriptors, --descriptors-xds, --rate-limit-http: want them with --rate-limit-service", errUsage)
	}
	return f.listen != "", nil
}

// open listens at the given addresses, and reads the descriptors.
func (f *descriptorFlags) open(t *trusted, bound *listen.Connections, getenv func(string) string, log *slog.Logger) (r *rateLimits, err error) {
	r = &rateLimits{log: log, connections: bound, certificates: t.certificates, insecure: t.insecure, answers: ratelimitservice.ServiceOptions{Stats: ratelimitservice.NewStats(), Tokens: t.tokens}, server: ratelimitservice.ServerOptions{TLS: requiring(t, "")}}
	if err := r.setHeaders(f.headers); err != nil {
		return nil, fmt.Errorf("%w: --rate-limit-headers: %w", errUsage, err)
	}
	if err := r.setFailure(f.failure); err != nil {
		return nil, fmt.Errorf("%w: --rate-limit-on-backend-failure: %w", errUsage, err)
	}
	if err := r.setReveal(f.reveal); err != nil {
		return nil, fmt.Errorf("%w: --rate-limit-reveal: %w", errUsage, err)
	}
	if f.xds == "" {
		r.source = &ratelimitservice.Source{Path: f.path, Log: log}
	} else {
		v := variables{getenv: getenv}
		source := v.xds(log)
		source.Address = f.xds
		if r.source = source; v.err() != nil {
			return nil, v.err()
		}
	}
	if r.grpc, err = listenOn("--rate-limit-service", f.listen); err != nil {
		return nil, err
	}
	if f.http != "" {
		if r.http, err = listenOn("--rate-limit-http", f.http); err != nil {
			return nil, errors.Join(err, r.close())
		}
	}
	// Report mistakes in files before anything is served.
	if f.path != "" {
		files, err := ratelimitservice.ReadFiles(f.path)
		if err == nil {
			_, err = ratelimitservice.Read(files, ratelimitservice.Options{})
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("--descriptors: %w", err), r.close())
		}
	}
	return r, nil
}

// setFailure sets how requests are decided while the store can't be reached.
func (r *rateLimits) setFailure(name string) (err error) {
	mode := slices.Index(failure.Names[:], name)
	if r.counters.OnBackendFailure = failure.Mode(max(0, mode)); mode < 0 {
		err = fmt.Errorf("want local, allow or deny, got %.80q", name)
	}
	return err
}

// setReveal sets how much of the values of descriptors people may see.
func (r *rateLimits) setReveal(text string) (err error) {
	n, err := strconv.ParseUint(text, 10, 8)
	switch {
	case text == "hash":
		return nil
	case text == "plain":
		n = ratelimit.RevealPlain
	case err != nil || n < 1 || n > 64:
		return fmt.Errorf("want hash, plain or 1 to 64, got %.80q", text)
	}
	r.counters.Reveal = int(n)
	return nil
}

// setHeaders sets the headers that answers have.
func (r *rateLimits) setHeaders(list string) error {
	for name := range strings.SplitSeq(list, ",") {
		switch strings.TrimSpace(name) {
		case "":
		case "three":
			r.answers.Headers = &ratelimitservice.Headers{Limit: "RateLimit-Limit", Remaining: "RateLimit-Remaining", Reset: "RateLimit-Reset"}
		case "ratelimit":
			r.answers.Fields |= fields.RateLimit
		case "retry-after":
			r.answers.Fields |= fields.RetryAfter
		default:
			return fmt.Errorf("want three, ratelimit, retry-after, with commas between, got %.80q", name)
		}
	}
	return nil
}

// source is the origin of descriptors.
type source interface {
	// Load reads the descriptors for a service, if they are available at once.
	Load(of *ratelimitservice.Service) error
	// Watch reloads the descriptors whenever they change, until ctx ends, and then calls changed
	// each time.
	Watch(ctx context.Context, of *ratelimitservice.Service, changed func())
}

// rateLimits is Envoy's rate limit service with its listeners.
type rateLimits struct {
	grpc, http net.Listener // http may be nil
	source     source
	counters   ratelimitservice.CounterOptions
	answers    ratelimitservice.ServiceOptions
	server     ratelimitservice.ServerOptions
	log        *slog.Logger
	// metrics is for Prometheus; nil for none. statsd is the address of a statsd that gets metrics
	// at intervals; empty for none.
	metrics     net.Listener
	registry    *prometheus.Registry // nil without metrics
	metricsPath string
	statsd      string
	statsdEvery time.Duration
	// certificates means that clients of gRPC need a certificate, and insecure that clients of /json may
	// name any host.
	certificates, insecure bool
	// connections bounds those of all listeners.
	connections *listen.Connections
	// awaitDomain makes the service healthy only once it has a domain, and awaitStore only while the
	// store takes hits.
	awaitDomain, awaitStore bool
}

func (r *rateLimits) close() error {
	err := r.grpc.Close()
	for _, l := range []net.Listener{r.http, r.metrics} {
		if l != nil {
			err = errors.Join(err, l.Close())
		}
	}
	return err
}

// gcPercent is how much the heap may grow beyond the memory in use, in place of Go's 100: requests
// leave much garbage, and little memory is in use.
const gcPercent = 300

// healthEvery is how often the health that clients of gRPC watch follows the store's.
const healthEvery = time.Second

// serve serves until ctx ends. Once leaving is closed, it says that it is not healthy. It closes the
// listeners, but not the backend.
func (r *rateLimits) serve(ctx context.Context, leaving <-chan struct{}, b *backend.Backend, m *server.Monitor) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	o := r.counters
	o.Backend = ratelimitservice.Local{Backend: b, Pushed: func(ctx context.Context, reply *backend.Reply, err error) { m.Pushed(ctx, reply, err) }}
	counters := ratelimitservice.NewCounters(o)
	answers := r.answers
	answers.Counters = counters
	answers.GiveBack = r.certificates
	service := ratelimitservice.NewService(answers)
	grpc := ratelimitservice.NewServer(service, r.server)
	healthy := func() bool {
		select {
		case <-leaving:
			return false
		case <-ctx.Done():
			return false
		default:
		}
		return service.Configured() && (service.Domains() > 0 || !r.awaitDomain) && (!r.awaitStore || m.Takes(ctx))
	}
	handler := ratelimitservice.HandlerOptions{Healthy: healthy, GiveBack: isLocal(r.http)}
	if isLocal(r.http) && !r.insecure {
		handler.Host = r.http.Addr().String()
	}
	if err := r.source.Load(service); err != nil {
		r.log.Error("the descriptors are invalid: requests get an error until they are corrected", "error", err)
	}
	grpc.Healthy(healthy())
	r.log.Info("the rate limit service listens", "address", r.grpc.Addr().String(), "tls", r.server.TLS != nil)
	if r.server.TLS == nil && !isLoopback(r.grpc.Addr()) {
		r.log.Warn("anyone who reaches the rate limit service can use up its limits")
	}
	var running, telling sync.WaitGroup
	running.Go(func() {
		panics.Again(ctx, "the watch on descriptors", func(ctx context.Context) { r.source.Watch(ctx, service, func() { grpc.Healthy(healthy()) }) })
	})
	running.Go(func() {
		ticks := time.Tick(healthEvery)
		for {
			select {
			case <-leaving:
				grpc.Leave()
				return
			case <-ctx.Done():
				return
			case <-ticks:
				grpc.Healthy(healthy())
			}
		}
	})
	// Requests under way are answered after ctx has ended, and statsd is told of their hits, too.
	answering, answered := context.WithCancel(context.WithoutCancel(ctx))
	defer answered()
	if r.statsd != "" {
		telling.Go(func() {
			panics.Again(answering, "statsd", func(ctx context.Context) {
				answers.Stats.Statsd(ctx, r.statsd, r.statsdEvery, func(err error) { r.log.Warn("statsd can't be reached", "error", err) })
			})
		})
	}
	errs := make(chan error, 3)
	running.Go(func() {
		defer cancel() // if one fails, all end
		errs <- grpc.Serve(ctx, r.connections.Bound(r.grpc))
	})
	serveHTTP := func(what string, l net.Listener, h http.Handler) {
		if l == nil {
			errs <- nil
			return
		}
		r.log.Info(what+" listens", "address", l.Addr().String())
		running.Go(func() {
			defer cancel()
			errs <- listen.Serve(ctx, r.connections.Bound(l), h)
		})
	}
	serveHTTP("the rate limit service's /json", r.http, ratelimitservice.Handler(service, handler))
	metrics := http.NewServeMux()
	metrics.Handle("GET "+cmp.Or(r.metricsPath, "/metrics"), promhttp.HandlerFor(r.registry, promhttp.HandlerOpts{}))
	serveHTTP("the rate limit service's metrics", r.metrics, metrics)
	running.Wait()
	answered()
	telling.Wait()
	err := errors.Join(<-errs, <-errs, <-errs)
	closing, done := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer done()
	if closeErr := counters.Close(closing); closeErr != nil {
		err = errors.Join(err, fmt.Errorf("close the rate limit service's counters: %w", closeErr))
	}
	return err
}
