package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"weir/internal/backend"
	"weir/internal/listen"
	"weir/internal/ratelimitservice"
	"weir/internal/server"
	"weir/internal/store/redis"
	"weir/internal/traces"
	"weir/internal/trust"
)

const ratelimitHelp = `
It is weir serve --rate-limit-service for those who have run envoyproxy/ratelimit: its configuration,
its environment variables, its ports. The command is the same where its file is named ratelimit.

  weir ratelimit
  REDIS_URL=redis:6379 RUNTIME_ROOT=/data RUNTIME_SUBDIRECTORY=ratelimit weir ratelimit

Environment:

  RUNTIME_ROOT, RUNTIME_SUBDIRECTORY, RUNTIME_APPDIRECTORY  make the folder of the descriptors, by
      default /srv/runtime_data/current and config; MERGE_DOMAIN_CONFIG has several files share a domain
  CONFIG_TYPE  is FILE, or GRPC_XDS_SOTW for descriptors of an xDS server: CONFIG_GRPC_XDS_SERVER_URL,
      CONFIG_GRPC_XDS_NODE_ID, CONFIG_GRPC_XDS_NODE_METADATA, CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS,
      CONFIG_GRPC_XDS_SERVER_USE_TLS, CONFIG_GRPC_XDS_SERVER_TLS_CACERT, CONFIG_GRPC_XDS_SERVER_TLS_SAN,
      CONFIG_GRPC_XDS_CLIENT_TLS_CERT, CONFIG_GRPC_XDS_CLIENT_TLS_KEY, XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES,
      XDS_CLIENT_BACKOFF_INITIAL_INTERVAL (1s), XDS_CLIENT_BACKOFF_MAX_INTERVAL (60s)
  REDIS_URL, REDIS_TYPE (single, cluster or sentinel), REDIS_AUTH, REDIS_TLS  say where the counters are kept,
      unless WEIR_STORE does, which is as weir serve's --store; with neither they are in memory
  GRPC_HOST, GRPC_PORT (8081), GRPC_UDS, GRPC_MAX_CONNECTION_AGE, GRPC_MAX_CONNECTION_AGE_GRACE  set up
      the gRPC server, and HOST, PORT (8080) that of /json and /healthcheck
  GRPC_SERVER_USE_TLS, GRPC_SERVER_TLS_CERT, GRPC_SERVER_TLS_KEY, GRPC_CLIENT_TLS_CACERT,
      GRPC_CLIENT_TLS_SAN  are files in PEM, read again when they change, and a client's name
  USE_PROMETHEUS, PROMETHEUS_ADDR (:9090), PROMETHEUS_PATH  serve metrics by descriptor, and USE_STATSD (false),
      STATSD_HOST, STATSD_PORT, STATS_FLUSH_INTERVAL (10s) tell a statsd of them by TCP; DISABLE_STATS does neither
  NEAR_LIMIT_RATIO (0.8)  is the share of a limit from which on hits count as near_limit
  REDIS_HEALTH_CHECK_ACTIVE_CONNECTION (false)  makes the service unhealthy while its store takes no hits
  WEIR_SHUTDOWN_DELAY (0s)  is how long to go on after SIGTERM while the health is NOT_SERVING, so that
      Envoy hears of it first; a second signal ends at once
  LIMIT_RESPONSE_HEADERS_ENABLED, LIMIT_LIMIT_HEADER, LIMIT_REMAINING_HEADER, LIMIT_RESET_HEADER,
      RESPONSE_DYNAMIC_METADATA, SHADOW_MODE, QUOTA_MODE, STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT,
      HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED, CACHE_KEY_PREFIX, LOG_LEVEL, LOG_FORMAT  mean what they do
      there; WEIR_RATE_LIMIT_HEADERS is as weir serve's --rate-limit-headers, WEIR_ON_BACKEND_FAILURE as
      its --rate-limit-on-backend-failure, WEIR_REVEAL (hash) as its --rate-limit-reveal,
      WEIR_MAX_CONNECTIONS_PER_ADDRESS as its --max-connections-per-address, WEIR_MAX_MEMORY as its --max-memory

The log says at the start which others of its variables are set and have no effect here.
`

// Default ports of the rate limit service.
const (
	grpcPort = 8081
	httpPort = 8080
)

func rateLimit(ctx context.Context, args []string, env environment) error {
	flags := flag.NewFlagSet("ratelimit", flag.ContinueOnError)
	if err := parseFlags(flags, args, env); err != nil {
		return err
	}
	v := variables{getenv: env.getenv}
	logs := logFlags{format: v.text("LOG_FORMAT", "text")}
	v.level("LOG_LEVEL", &logs.level)
	log, err := logs.logger(env.stderr)
	if err != nil {
		return fmt.Errorf("%w: LOG_FORMAT: want text or json", errUsage)
	}
	slog.SetDefault(log) // caught panics are told there
	r := v.rateLimits(log)
	v.port("GRPC_PORT", grpcPort)
	v.port("PORT", httpPort)
	tells := v.tracing()
	v.tellUndone(log)
	store := v.store(log)
	if text := env.getenv("WEIR_MAX_MEMORY"); text != "" {
		v.note("WEIR_MAX_MEMORY", store.memory.Set(text))
	}
	config := v.tls(log)
	perAddress := v.count("WEIR_MAX_CONNECTIONS_PER_ADDRESS")
	delay := v.duration("WEIR_SHUTDOWN_DELAY", 0)
	if err := v.err(); err != nil {
		return err
	}
	r.server.TLS, r.certificates = config, config != nil && v.getenv("GRPC_CLIENT_TLS_CACERT") != ""
	r.connections = listen.NewConnections(perAddress, log)
	store.bytes, r.counters.MaxMemory = store.memory.divide(store.inProcess(), true, env.getenv)
	opened, err := store.open(nil)
	if err != nil {
		return err
	}
	if err := v.listen(r); err != nil {
		return errors.Join(err, opened.Close())
	}
	r.registry = prometheus.NewRegistry()
	r.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), buildInfo(), caughtPanics(), r.answers.Stats)
	tells.Registry, tells.Logger = r.registry, log
	telemetry, err := traces.Open(ctx, tells, env.getenv)
	if err != nil {
		return errors.Join(err, r.close(), opened.Close())
	}
	r.server.More = telemetry.GRPC()
	leaving := ctx.Done()
	ctx, cancel := later(ctx, delay, "the rate limit service", log)
	defer cancel()
	var watching sync.WaitGroup
	monitor := server.NewMonitor(opened.Store, r.registry, log, time.Now)
	watching.Go(func() { monitor.Run(ctx) })
	evictions := server.NewEvictions(opened.Store, r.registry, log)
	watching.Go(func() { evictions.Run(ctx) })
	err = r.serve(ctx, leaving, backend.New(opened.Store), monitor)
	cancel()
	watching.Wait()
	telemetry.Close()
	if closeErr := opened.Close(); closeErr != nil {
		err = errors.Join(err, fmt.Errorf("close the store: %w", closeErr))
	}
	return err
}

// variables reads the environment variables of the rate limit service, and collects errors.
type variables struct {
	getenv func(string) string
	errs   []error
}

// err returns the errors. It wraps [errUsage].
func (v *variables) err() error {
	if len(v.errs) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %w", errUsage, errors.Join(v.errs...))
}

// fail reports a wrong variable. It does not repeat the value, which may be a secret.
func (v *variables) fail(name, want string) { v.note(name, errors.New("want "+want)) }

// note keeps an error of a variable, if it is one.
func (v *variables) note(name string, err error) {
	if err != nil {
		v.errs = append(v.errs, fmt.Errorf("%s: %w", name, err))
	}
}

func (v *variables) text(name, otherwise string) string { return cmp.Or(v.getenv(name), otherwise) }

// truth returns false if the variable is not set.
func (v *variables) truth(name string) bool {
	truth, err := strconv.ParseBool(v.text(name, "false"))
	if err != nil {
		v.fail(name, "true or false")
	}
	return truth
}

func (v *variables) duration(name string, otherwise time.Duration) time.Duration {
	d, err := time.ParseDuration(v.text(name, otherwise.String()))
	if err != nil || d < 0 {
		v.fail(name, "a duration such as 24h")
	}
	return d
}

func (v *variables) port(name string, otherwise uint64) string {
	text := v.text(name, strconv.FormatUint(otherwise, 10))
	if _, err := strconv.ParseUint(text, 10, 16); err != nil {
		v.fail(name, "a port from 0 to 65535")
	}
	return text
}

// level also reads levels in the form of logrus.
func (v *variables) level(name string, into *slog.Level) {
	switch text := strings.ToLower(v.text(name, "warn")); text {
	case "trace":
		*into = slog.LevelDebug
	case "warning":
		*into = slog.LevelWarn
	case "fatal", "panic":
		*into = slog.LevelError
	default:
		if into.UnmarshalText([]byte(text)) != nil {
			v.fail(name, "debug, info, warn or error")
		}
	}
}

// rateLimits returns the service by the environment, without listeners and TLS.
func (v *variables) rateLimits(log *slog.Logger) *rateLimits {
	r := &rateLimits{
		log: log, awaitDomain: v.truth("HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED"), awaitStore: v.truth("REDIS_HEALTH_CHECK_ACTIVE_CONNECTION"),
		counters: ratelimitservice.CounterOptions{KeyPrefix: v.text("CACHE_KEY_PREFIX", "")},
		answers: ratelimitservice.ServiceOptions{
			Shadow: v.truth("SHADOW_MODE"), Quota: v.truth("QUOTA_MODE"), Metadata: v.truth("RESPONSE_DYNAMIC_METADATA"),
			Stats: ratelimitservice.NewStats(),
		},
		server: ratelimitservice.ServerOptions{
			MaxConnectionAge:      v.duration("GRPC_MAX_CONNECTION_AGE", 24*time.Hour),
			MaxConnectionAgeGrace: v.duration("GRPC_MAX_CONNECTION_AGE_GRACE", time.Hour),
		},
	}
	if near, err := strconv.ParseFloat(v.text("NEAR_LIMIT_RATIO", fmt.Sprint(ratelimitservice.NearRatio)), 32); err != nil || !(near >= 0 && near <= 1) {
		v.fail("NEAR_LIMIT_RATIO", "a number from 0 to 1")
	} else {
		r.answers.Stats.Near = float32(near)
	}
	switch v.text("CONFIG_TYPE", "FILE") {
	case "FILE":
		path := filepath.Join(v.text("RUNTIME_ROOT", "/srv/runtime_data/current"), v.text("RUNTIME_SUBDIRECTORY", ""), v.text("RUNTIME_APPDIRECTORY", "config"))
		r.source = &ratelimitservice.Source{Path: path, Options: v.options(), Log: log}
	case "GRPC_XDS_SOTW":
		r.source = v.xds(log)
	default:
		v.fail("CONFIG_TYPE", "FILE or GRPC_XDS_SOTW")
	}
	if r.metricsPath = v.text("PROMETHEUS_PATH", "/metrics"); !strings.HasPrefix(r.metricsPath, "/") || strings.ContainsAny(r.metricsPath, "{} ") {
		v.fail("PROMETHEUS_PATH", "a path such as /metrics")
	}
	if v.truth("USE_STATSD") && !v.truth("DISABLE_STATS") {
		r.statsd = net.JoinHostPort(v.text("STATSD_HOST", "localhost"), v.port("STATSD_PORT", 8125))
		if r.statsdEvery = v.duration("STATS_FLUSH_INTERVAL", 10*time.Second); r.statsdEvery == 0 {
			v.fail("STATS_FLUSH_INTERVAL", "a duration such as 10s")
		}
	}
	v.note("WEIR_RATE_LIMIT_HEADERS", r.setHeaders(v.getenv("WEIR_RATE_LIMIT_HEADERS")))
	v.note("WEIR_ON_BACKEND_FAILURE", r.setFailure(v.text("WEIR_ON_BACKEND_FAILURE", "local")))
	v.note("WEIR_REVEAL", r.setReveal(v.text("WEIR_REVEAL", "hash")))
	if v.truth("LIMIT_RESPONSE_HEADERS_ENABLED") {
		r.answers.Headers = &ratelimitservice.Headers{
			Limit:     v.text("LIMIT_LIMIT_HEADER", "RateLimit-Limit"),
			Remaining: v.text("LIMIT_REMAINING_HEADER", "RateLimit-Remaining"),
			Reset:     v.text("LIMIT_RESET_HEADER", "RateLimit-Reset"),
		}
	}
	return r
}

// options returns how to read a configuration.
func (v *variables) options() (o ratelimitservice.Options) {
	o.MergeDomains = v.truth("MERGE_DOMAIN_CONFIG")
	if v.truth("STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT") {
		o.Charge = ratelimitservice.ChargeRefusing
	}
	return o
}

// xds returns the xDS server of the environment.
func (v *variables) xds(log *slog.Logger) *ratelimitservice.XDS {
	x := &ratelimitservice.XDS{
		Address: v.text("CONFIG_GRPC_XDS_SERVER_URL", "localhost:18000"), Node: v.text("CONFIG_GRPC_XDS_NODE_ID", "default"),
		Metadata: v.pairs("CONFIG_GRPC_XDS_NODE_METADATA", "="), Headers: v.pairs("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", ":"),
		MaxMessage: v.count("XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES"),
		FirstPause: v.duration("XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", time.Second), LastPause: v.duration("XDS_CLIENT_BACKOFF_MAX_INTERVAL", time.Minute),
		Options: v.options(), Log: log,
	}
	if x.FirstPause <= 0 || x.LastPause < x.FirstPause {
		v.fail("XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", "a duration such as 1s, up to XDS_CLIENT_BACKOFF_MAX_INTERVAL")
	}
	if !v.truth("CONFIG_GRPC_XDS_SERVER_USE_TLS") {
		return x
	}
	x.TLS = &tls.Config{MinVersion: tls.VersionTLS12, ServerName: v.getenv("CONFIG_GRPC_XDS_SERVER_TLS_SAN")}
	if file := v.getenv("CONFIG_GRPC_XDS_SERVER_TLS_CACERT"); file != "" {
		var err error
		if x.TLS.RootCAs, err = trust.Authorities(file); err != nil {
			v.fail("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", "a file with certificates in PEM")
		}
	}
	if file, key := v.getenv("CONFIG_GRPC_XDS_CLIENT_TLS_CERT"), v.getenv("CONFIG_GRPC_XDS_CLIENT_TLS_KEY"); file != "" || key != "" {
		// Certificates are read again for each connection, because those of a cluster last for a
		// day.
		x.TLS.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			certificate, err := tls.LoadX509KeyPair(file, key)
			return &certificate, err
		}
		if _, err := x.TLS.GetClientCertificate(nil); err != nil {
			v.fail("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", "a file with a certificate in PEM, and CONFIG_GRPC_XDS_CLIENT_TLS_KEY with its key")
		}
	}
	return x
}

// pairs reads pairs of names and values, separated by commas.
func (v *variables) pairs(name, between string) map[string]string {
	pairs := map[string]string{}
	for pair := range strings.SplitSeq(v.getenv(name), ",") {
		if key, value, ok := strings.Cut(pair, between); ok {
			pairs[strings.TrimSpace(key)] = strings.TrimSpace(value)
		} else if pair != "" {
			v.fail(name, "pairs such as name"+between+"value, with commas between")
		}
	}
	return pairs
}

// count returns 0 if the variable is not set.
func (v *variables) count(name string) int {
	n, err := strconv.ParseUint(v.text(name, "0"), 10, 31)
	if err != nil {
		v.fail(name, "a whole number")
	}
	return int(n)
}

// listen opens the listeners of the environment.
func (v *variables) listen(r *rateLimits) (err error) {
	if socket := v.getenv("GRPC_UDS"); socket != "" {
		if r.grpc, err = listenAtSocket("GRPC_UDS", socket); err != nil {
			return err
		}
	} else if r.grpc, err = listenOn("GRPC_HOST, GRPC_PORT", net.JoinHostPort(v.text("GRPC_HOST", "0.0.0.0"), v.port("GRPC_PORT", grpcPort))); err != nil {
		return err
	}
	if r.http, err = listenOn("HOST, PORT", net.JoinHostPort(v.text("HOST", "0.0.0.0"), v.port("PORT", httpPort))); err != nil {
		return errors.Join(err, r.close())
	}
	if v.truth("USE_PROMETHEUS") && !v.truth("DISABLE_STATS") {
		if r.metrics, err = listenOn("PROMETHEUS_ADDR", v.text("PROMETHEUS_ADDR", ":9090")); err != nil {
			return errors.Join(err, r.close())
		}
	}
	return v.err()
}

func (v *variables) store(log *slog.Logger) storeFlags {
	if name := v.getenv("WEIR_STORE"); name != "" {
		return storeFlags{name: name, from: "WEIR_STORE"}
	}
	if v.text("BACKEND_TYPE", "redis") != "redis" {
		v.fail("BACKEND_TYPE", "redis; WEIR_STORE names other stores")
	}
	address := v.getenv("REDIS_URL")
	if address == "" {
		log.Warn("the counters are in memory, and no other instance shares them: REDIS_URL or WEIR_STORE says where they are kept")
		return storeFlags{name: "memory"}
	}
	scheme, rest, isURL := strings.Cut(address, "://")
	const want = "host:port, or a URL such as redis://host:6379"
	switch {
	case !isURL:
		scheme, rest = "redis", address
	case !slices.Contains(redis.Schemes, scheme):
		v.fail("REDIS_URL", fmt.Sprintf("%s, got %.20q", want, scheme+"://…"))
	}
	if strings.HasPrefix(rest, "/") {
		v.fail("REDIS_URL", want+"; Weir has no Unix sockets to Redis")
	}
	for _, name := range []string{"REDIS_TLS_CLIENT_CERT", "REDIS_TLS_CLIENT_KEY", "REDIS_TLS_CACERT"} {
		if v.getenv(name) != "" {
			v.fail(name, "none: Redis is to have a certificate that the system trusts, and to ask for none")
		}
	}
	kind, cluster := strings.CutSuffix(scheme, "+cluster")
	if v.truth("REDIS_TLS") {
		kind = "rediss"
	}
	switch of := strings.ToLower(v.text("REDIS_TYPE", "single")); of {
	case "single":
	case "cluster":
		cluster = true
	case "sentinel":
		// The master's name comes first, as in mymaster,a:26379,b:26379.
		master, hosts, found := strings.Cut(rest, ",")
		if isURL || !found || master == "" {
			v.fail("REDIS_URL", "the master's name and then Sentinels, such as mymaster,a:26379,b:26379")
		}
		kind, rest = kind+"+sentinel", hosts+"/"+url.PathEscape(master)
		if user, password, of := strings.Cut(v.getenv("REDIS_SENTINEL_AUTH"), ":"); of {
			rest += "?" + url.Values{"sentinel_user": {user}, "sentinel_password": {password}}.Encode()
		} else if user != "" {
			rest += "?" + url.Values{"sentinel_password": {user}}.Encode()
		}
	default:
		v.fail("REDIS_TYPE", "single, cluster or sentinel")
	}
	if cluster {
		kind += "+cluster"
	}
	if auth := v.getenv("REDIS_AUTH"); auth != "" {
		if authority, _, _ := strings.Cut(rest, "/"); strings.Contains(authority, "@") {
			v.fail("REDIS_AUTH", "none, as REDIS_URL has a password")
		}
		user, password, named := strings.Cut(auth, ":")
		if !named {
			user, password = "", auth
		}
		rest = url.UserPassword(user, password).String() + "@" + rest
	}
	return storeFlags{name: kind + "://" + rest, from: "REDIS_URL"}
}

// tls returns the TLS configuration of the gRPC server; nil for none.
func (v *variables) tls(log *slog.Logger) *tls.Config {
	if !v.truth("GRPC_SERVER_USE_TLS") {
		return nil
	}
	files := trust.CertificateFiles{
		Certificate: v.getenv("GRPC_SERVER_TLS_CERT"), Key: v.getenv("GRPC_SERVER_TLS_KEY"), ClientCA: v.getenv("GRPC_CLIENT_TLS_CACERT"),
	}
	config, err := trust.Certificates(files, time.Now, log)
	if err != nil {
		v.note("GRPC_SERVER_TLS_CERT", err)
		return nil
	}
	return requiring(&trusted{tls: config, certificates: files.ClientCA != ""}, v.getenv("GRPC_CLIENT_TLS_SAN"))
}

// undone is a variable of envoyproxy/ratelimit that has no effect here.
type undone struct {
	name string
	// neutral are values, with spaces between, that ask for what Weir does anyway.
	neutral string
	// instead says what Weir does. It is empty if nobody notices a difference.
	instead string
}

const (
	noMapper   = "metrics have the first key as the label key1, and the others joined in key2"
	ownPool    = "Weir decides how many connections to Redis it has"
	ownBatches = "Weir joins calls of Redis by itself"
	noWait     = "no request waits for Redis for long, and Weir starts while it is away"
	xdsPauses  = "the pauses between calls of the xDS server are those of XDS_CLIENT_BACKOFF_INITIAL_INTERVAL and XDS_CLIENT_BACKOFF_MAX_INTERVAL"
	noDogStats = "there is no DogStatsD: USE_STATSD tells a statsd, and USE_PROMETHEUS Prometheus"
	noPerUnit  = "all counters are in the Redis of REDIS_URL"
	noDebug    = "there is no debug port"
)

// undoneVariables are all of them, with those that its released versions do not have yet, but not
// those that do something only if another of them says so: REDIS_PERSECOND_ and MEMCACHE_.
var undoneVariables = []undone{
	{"DEBUG_HOST", "", noDebug},
	{"DEBUG_PORT", "", noDebug},
	{"FORCE_START_WITHOUT_INITIAL_CONFIG", "true", "Weir starts without descriptors: it is not healthy, and answers with an error"},
	{"CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL", "", xdsPauses},
	{"XDS_CLIENT_BACKOFF_RANDOM_FACTOR", "", xdsPauses},
	{"XDS_CLIENT_BACKOFF_JITTER", "", xdsPauses},
	{"USE_DOG_STATSD", "false", noDogStats},
	{"USE_DOG_STATSD_MOGRIFIERS", "", noDogStats},
	{"EXTRA_TAGS", "", "metrics have no tags: Prometheus can add labels to all that it reads of an instance"},
	{"PROMETHEUS_MAPPER_YAML", "", noMapper},
	{"PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS", "false", "response times are not told"},
	{"SANITIZE_DESCRIPTOR_METRIC_DOTS", "false", "names of metrics for statsd keep the dots of descriptors, except those of addresses"},
	{"RUNTIME_IGNOREDOTFILES", "true", "files that begin with a dot are left out"},
	{"RUNTIME_WATCH_ROOT", "true false", ""}, // files are read again every second, however they change
	{"EXPIRATION_JITTER_MAX_SECONDS", "", "a counter stays in Redis as long as it counts"},
	{"LOCAL_CACHE_SIZE_IN_BYTES", "0", "instances remember refused keys by themselves"},
	{"USE_CALENDAR_MONTH_RATE_LIMIT", "false", "a unit of month has 30 days: window: month in place of the unit has those of the calendar"},
	{"REDIS_SOCKET_TYPE", "tcp", "Weir reaches Redis by TCP, and by TLS if REDIS_TLS says so"},
	{"REDIS_POOL_SIZE", "", ownPool},
	{"REDIS_POOL_ON_EMPTY_BEHAVIOR", "", ownPool},
	{"REDIS_POOL_ON_EMPTY_WAIT_DURATION", "", ownPool},
	{"REDIS_PIPELINE_WINDOW", "0 0s", ownBatches},
	{"REDIS_PIPELINE_LIMIT", "0", ownBatches},
	{"REDIS_CLUSTER_PIPELINE_PARALLELISM", "", ownBatches},
	{"REDIS_TLS_SKIP_HOSTNAME_VERIFICATION", "false", "Redis is to have a certificate for the host in REDIS_URL"},
	{"REDIS_TIMEOUT", "", noWait},
	{"REDIS_STARTUP_INITIAL_INTERVAL", "", noWait},
	{"REDIS_STARTUP_MAX_INTERVAL", "", noWait},
	{"REDIS_STARTUP_MAX_ELAPSED_TIME", "", noWait},
	{"REDIS_PERSECOND", "false", noPerUnit},
}

// tellUndone logs each variable that is set and has no effect.
func (v *variables) tellUndone(log *slog.Logger) {
	for _, u := range undoneVariables {
		value := v.getenv(u.name)
		if value == "" || u.instead == "" {
			continue
		}
		if !slices.ContainsFunc(strings.Fields(u.neutral), func(neutral string) bool { return alike(value, neutral) }) {
			log.Warn(u.name+" has no effect", "instead", u.instead)
		}
	}
}

// alike reports whether two values of a variable mean the same: 1, t and TRUE are true.
func alike(a, b string) bool {
	first, err := strconv.ParseBool(a)
	second, errSecond := strconv.ParseBool(b)
	return strings.EqualFold(a, b) || err == nil && errSecond == nil && first == second
}
