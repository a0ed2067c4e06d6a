package main

import (
	"context"
	"io"
	"maps"
	"net"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	goredis "github.com/redis/go-redis/v9"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"weir/internal/must"
	"weir/internal/store/redis/redistest"
	"weir/internal/trust/trusttest"
)

// descriptorsOf writes a configuration, and returns variables of weir ratelimit that serves it.
func descriptorsOf(t *testing.T, more ...string) map[string]string {
	t.Helper()
	set := map[string]string{
		"RUNTIME_ROOT": descriptorsIn(t, oneLimit), "LOG_LEVEL": "info", "HOST": "127.0.0.1", "GRPC_HOST": "127.0.0.1", "PORT": "0", "GRPC_PORT": "0",
		"USE_PROMETHEUS": "true", "PROMETHEUS_ADDR": "127.0.0.1:0",
	}
	for i := 0; i < len(more); i += 2 {
		set[more[i]] = more[i+1]
	}
	return set
}

var ofOne = &pb.RateLimitRequest{Domain: "d", Descriptors: []*common.RateLimitDescriptor{{Entries: []*common.RateLimitDescriptor_Entry{{Key: "k", Value: "v"}}}}}

func dialRateLimit(t *testing.T, target string) *grpc.ClientConn {
	t.Helper()
	client := must.Get(grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials())))(t)
	t.Cleanup(func() { client.Close() })
	return client
}

// passes asks the service for a hit, and wants it to pass.
func passes(t *testing.T, client *grpc.ClientConn) {
	t.Helper()
	must.Equal(t, must.Get(pb.NewRateLimitServiceClient(client).ShouldRateLimit(t.Context(), ofOne))(t).GetOverallCode(), pb.RateLimitResponse_OK, "answered")
}

// watchHealth returns a function that waits for the service's next health.
func watchHealth(ctx context.Context, t *testing.T, client *grpc.ClientConn) (becomes func(healthpb.HealthCheckResponse_ServingStatus)) {
	t.Helper()
	watched := must.Get(healthpb.NewHealthClient(client).Watch(ctx, &healthpb.HealthCheckRequest{Service: "ratelimit"}))(t)
	return func(want healthpb.HealthCheckResponse_ServingStatus) {
		t.Helper()
		must.EqualOrEnd(t, must.Get(watched.Recv())(t).GetStatus(), want, "its health is")
	}
}

// A Redis that takes no hits is told in the log and the metrics, whatever is wrong with it, even if no
// request comes. The service is as healthy as REDIS_HEALTH_CHECK_ACTIVE_CONNECTION says.
func TestRateLimitTellsOfItsStore(t *testing.T) {
	t.Parallel()
	for name, broken := range map[string]func(t *testing.T) (url, reason string, mend func()){
		"away": func(t *testing.T) (string, string, func()) {
			redis := redistest.Start(t)
			redis.Stop()
			return redis.URL(), "refused|deadline", redis.Restart
		},
		"wrong password": func(t *testing.T) (string, string, func()) {
			redis := redistest.Start(t, "--requirepass", "right")
			client := goredis.NewClient(&goredis.Options{Addr: redis.Addr, Password: "right"})
			return "redis://:wrong@" + redis.Addr, "WRONGPASS", func() { set(t, client, "requirepass", "wrong") }
		},
		"a replica": func(t *testing.T) (string, string, func()) {
			master := redistest.Start(t)
			host, port, err := net.SplitHostPort(master.Addr)
			must.OK(t, err)
			redis := redistest.Start(t, "--replicaof", host+" "+port)
			return redis.URL(), "READONLY", func() {
				client := goredis.NewClient(&goredis.Options{Addr: redis.Addr})
				defer client.Close()
				must.OK(t, client.Do(t.Context(), "REPLICAOF", "NO", "ONE").Err())
			}
		},
		"full": func(t *testing.T) (string, string, func()) {
			redis := redistest.Start(t, "--maxmemory", "1", "--maxmemory-policy", "noeviction")
			client := goredis.NewClient(&goredis.Options{Addr: redis.Addr})
			return redis.URL(), "OOM", func() { set(t, client, "maxmemory", "0") }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, reason, mend := broken(t)
			set := descriptorsOf(t, "REDIS_URL", url, "REDIS_HEALTH_CHECK_ACTIVE_CONNECTION", "true")
			find, end := startCommand(t.Context(), t, []string{"ratelimit"}, set)
			client := dialRateLimit(t, find(`the rate limit service listens" address=(\S+)`))
			at := find(`/json listens" address=(\S+)`)
			metrics := find(`metrics listens" address=(\S+)`)
			if line := find(`level=ERROR msg="the store fails"(.*)`); !regexp.MustCompile(reason).MatchString(line) {
				t.Errorf("the log does not tell of %s: %s", reason, line)
			}
			if _, text := ask(t, "GET", "http://"+metrics+"/metrics", "", nil); !regexp.MustCompile(`(?m)^weir_store_errors_total [1-9]`).MatchString(text) {
				t.Errorf("the metrics do not tell:\n%s", text)
			}
			// Requests are answered by what the instance knows.
			passes(t, client)
			wantStatus(t, "GET", "http://"+at+"/healthcheck", "", nil, http.StatusInternalServerError)
			becomes := watchHealth(t.Context(), t, client)
			becomes(healthpb.HealthCheckResponse_NOT_SERVING)
			mend()
			becomes(healthpb.HealthCheckResponse_SERVING)
			find(`msg="the store is back"`)
			wantStatus(t, "GET", "http://"+at+"/healthcheck", "", nil, http.StatusOK)
			end()
		})
	}
}

func set(t *testing.T, client *goredis.Client, name, value string) {
	t.Helper()
	defer client.Close()
	must.OK(t, client.ConfigSet(t.Context(), name, value).Err())
}

// By default, the service is healthy while its store is away, as envoyproxy/ratelimit is.
func TestRateLimitHealthyWithoutStore(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	redis.Stop()
	find, end := startCommand(t.Context(), t, []string{"ratelimit"}, descriptorsOf(t, "REDIS_URL", redis.URL()))
	find(`msg="the store fails"`)
	wantStatus(t, "GET", "http://"+find(`/json listens" address=(\S+)`)+"/healthcheck", "", nil, http.StatusOK)
	redis.Restart() // what was counted is pushed at the end
	end()
}

// For the delay after SIGTERM the service says that it is not serving, under all names, and goes on to
// answer old connections and new.
func TestRateLimitShutdownDelay(t *testing.T) {
	t.Parallel()
	set := descriptorsOf(t, "WEIR_STORE", "memory", "WEIR_SHUTDOWN_DELAY", "5s")
	for name, args := range map[string][]string{
		"weir ratelimit": {"ratelimit"},
		"weir serve": {"serve", "--listen", "127.0.0.1:0", "--rate-limit-service", "127.0.0.1:0", "--rate-limit-http", "127.0.0.1:0",
			"--descriptors", set["RUNTIME_ROOT"] + "/config", "--shutdown-delay", "5s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			find, end := startCommand(ctx, t, args, set)
			target, at := find(`the rate limit service listens" address=(\S+)`), find(`/json listens" address=(\S+)`)
			old := dialRateLimit(t, target)
			becomes := watchHealth(t.Context(), t, old)
			becomes(healthpb.HealthCheckResponse_SERVING)
			cancel()
			becomes(healthpb.HealthCheckResponse_NOT_SERVING)
			must.Equal(t, must.Get(healthpb.NewHealthClient(old).Check(t.Context(), &healthpb.HealthCheckRequest{}))(t).GetStatus(), healthpb.HealthCheckResponse_NOT_SERVING, "the server's health is")
			wantStatus(t, "GET", "http://"+at+"/healthcheck", "", nil, http.StatusInternalServerError)
			for _, client := range []*grpc.ClientConn{old, dialRateLimit(t, target)} {
				passes(t, client)
			}
			end()
		})
	}
}

// A program that serves Envoy alone has weir serve's log and metrics of its store, too.
func TestServeTellsOfTheStoreOfTheRateLimitService(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	set := descriptorsOf(t)
	find, end := startCommand(t.Context(), t, []string{"serve", "--listen", "127.0.0.1:0", "--store", redis.URL(), "--rate-limit-service", "127.0.0.1:0",
		"--descriptors", set["RUNTIME_ROOT"] + "/config"}, nil)
	at := find(`the counter backend listens" address=(\S+)`)
	client := dialRateLimit(t, find(`the rate limit service listens" address=(\S+)`))
	redis.Stop()
	passes(t, client)
	find(`level=ERROR msg="the store fails"`)
	if _, text := ask(t, "GET", "http://"+at+"/metrics", "", nil); !regexp.MustCompile(`(?m)^weir_store_errors_total [1-9]`).MatchString(text) {
		t.Errorf("the metrics do not tell:\n%s", text)
	}
	redis.Restart()
	find(`msg="the store is back"`)
	end()
}

// longestSocket is the length of the longest path of a socket.
const longestSocket = len(syscall.RawSockaddrUnix{}.Path) - 1

// A socket at which nobody listens is replaced, however long its path is. Any other socket is left alone, and so is any other file.
func TestRateLimitSocket(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s")
	path += strings.Repeat("s", longestSocket-len(path))
	l := must.Get(net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"}))(t)
	l.SetUnlinkOnClose(false) // as if the process had been killed
	l.Close()
	variables := descriptorsOf(t, "WEIR_STORE", "memory", "GRPC_UDS", path)
	find, end := startCommand(t.Context(), t, []string{"ratelimit"}, variables)
	find(`the rate limit service listens" address=(\S+)`)
	client := dialRateLimit(t, "unix://"+path)
	passes(t, client)
	refused := func(want string) {
		t.Helper()
		executeAll(t, variables, []lineTest{{"ratelimit", 1, "", want}})
	}
	refused("GRPC_UDS: another program listens on " + path)
	passes(t, client) // the first instance answers still
	end()
	must.File(t, path, "mine")
	refused("GRPC_UDS: want the path of a socket to make, but " + path + " is something else")
	must.Equal(t, must.Text(t, path), "mine", "the file has")
}

// theirVariables are those of envoyproxy/ratelimit, of July 2026, and two that it no longer has or does
// not have yet.
var theirVariables = strings.Fields(`
BACKEND_TYPE CACHE_KEY_PREFIX CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS
CONFIG_GRPC_XDS_CLIENT_TLS_CERT CONFIG_GRPC_XDS_CLIENT_TLS_KEY CONFIG_GRPC_XDS_NODE_ID
CONFIG_GRPC_XDS_NODE_METADATA CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL
CONFIG_GRPC_XDS_SERVER_TLS_CACERT CONFIG_GRPC_XDS_SERVER_TLS_SAN CONFIG_GRPC_XDS_SERVER_URL
CONFIG_GRPC_XDS_SERVER_USE_TLS CONFIG_TYPE DEBUG_HOST DEBUG_PORT DISABLE_STATS
EXPIRATION_JITTER_MAX_SECONDS EXTRA_TAGS FORCE_START_WITHOUT_INITIAL_CONFIG GRPC_CLIENT_TLS_CACERT
GRPC_CLIENT_TLS_SAN GRPC_HOST GRPC_MAX_CONNECTION_AGE GRPC_MAX_CONNECTION_AGE_GRACE GRPC_PORT
GRPC_SERVER_TLS_CERT GRPC_SERVER_TLS_KEY GRPC_SERVER_USE_TLS GRPC_UDS
HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED HOST LIMIT_LIMIT_HEADER LIMIT_REMAINING_HEADER
LIMIT_RESET_HEADER LIMIT_RESPONSE_HEADERS_ENABLED LOCAL_CACHE_SIZE_IN_BYTES LOG_FORMAT LOG_LEVEL
MEMCACHE_HOST_PORT MEMCACHE_MAX_IDLE_CONNS MEMCACHE_SRV MEMCACHE_SRV_REFRESH MEMCACHE_TLS
MEMCACHE_TLS_CACERT MEMCACHE_TLS_CLIENT_CERT MEMCACHE_TLS_CLIENT_KEY
MEMCACHE_TLS_SKIP_HOSTNAME_VERIFICATION MERGE_DOMAIN_CONFIG NEAR_LIMIT_RATIO PORT PROMETHEUS_ADDR
PROMETHEUS_MAPPER_YAML PROMETHEUS_PATH PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS QUOTA_MODE
REDIS_AUTH REDIS_CLUSTER_PIPELINE_PARALLELISM REDIS_HEALTH_CHECK_ACTIVE_CONNECTION REDIS_PERSECOND
REDIS_PERSECOND_AUTH REDIS_PERSECOND_CLUSTER_PIPELINE_PARALLELISM REDIS_PERSECOND_PIPELINE_LIMIT
REDIS_PERSECOND_PIPELINE_WINDOW REDIS_PERSECOND_POOL_ON_EMPTY_BEHAVIOR REDIS_PERSECOND_POOL_SIZE
REDIS_PERSECOND_SENTINEL_AUTH REDIS_PERSECOND_SOCKET_TYPE REDIS_PERSECOND_TIMEOUT
REDIS_PERSECOND_TLS REDIS_PERSECOND_TYPE REDIS_PERSECOND_URL REDIS_PIPELINE_LIMIT
REDIS_PIPELINE_WINDOW REDIS_POOL_ON_EMPTY_BEHAVIOR REDIS_POOL_SIZE REDIS_SENTINEL_AUTH
REDIS_SOCKET_TYPE REDIS_STARTUP_INITIAL_INTERVAL REDIS_STARTUP_MAX_ELAPSED_TIME
REDIS_STARTUP_MAX_INTERVAL REDIS_TIMEOUT REDIS_TLS REDIS_TLS_CACERT REDIS_TLS_CLIENT_CERT
REDIS_TLS_CLIENT_KEY REDIS_TLS_SKIP_HOSTNAME_VERIFICATION REDIS_TYPE REDIS_URL
RESPONSE_DYNAMIC_METADATA RUNTIME_APPDIRECTORY RUNTIME_IGNOREDOTFILES RUNTIME_ROOT
RUNTIME_SUBDIRECTORY RUNTIME_WATCH_ROOT SHADOW_MODE STATSD_HOST STATSD_PORT STATS_FLUSH_INTERVAL
STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT TRACING_ENABLED TRACING_EXPORTER_PROTOCOL
TRACING_SAMPLING_RATE TRACING_SERVICE_INSTANCE_ID TRACING_SERVICE_NAME TRACING_SERVICE_NAMESPACE
USE_DOG_STATSD USE_DOG_STATSD_MOGRIFIERS USE_PROMETHEUS USE_STATSD
XDS_CLIENT_BACKOFF_INITIAL_INTERVAL XDS_CLIENT_BACKOFF_JITTER XDS_CLIENT_BACKOFF_MAX_INTERVAL
XDS_CLIENT_BACKOFF_RANDOM_FACTOR XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES
USE_CALENDAR_MONTH_RATE_LIMIT SANITIZE_DESCRIPTOR_METRIC_DOTS`)

// Each variable of envoyproxy/ratelimit is read, or told at the start to have no effect, or counts there
// only if another variable says so.
func TestEveryVariable(t *testing.T) {
	t.Parallel()
	authority := trusttest.New(t)
	certificate, key := authority.Issue(t, "weir")
	read := map[string]bool{}
	for _, more := range []map[string]string{
		{"REDIS_URL": "redis:6379", "PORT": "none"}, {"REDIS_URL": "mymaster,redis:26379", "REDIS_TYPE": "sentinel", "PORT": "none"}, {"CONFIG_TYPE": "GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_SERVER_USE_TLS": "true"},
		{"GRPC_SERVER_USE_TLS": "true", "GRPC_SERVER_TLS_CERT": certificate, "GRPC_SERVER_TLS_KEY": key},
		{"USE_STATSD": "true", "LIMIT_RESPONSE_HEADERS_ENABLED": "true"}, {"GRPC_UDS": "/no/such/socket"},
	} {
		set := descriptorsOf(t)
		if maps.Copy(set, more); set["REDIS_URL"] == "" {
			set["WEIR_STORE"] = "memory"
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		run(ctx, []string{"ratelimit"}, environment{stdout: io.Discard, stderr: io.Discard, getenv: func(name string) string {
			read[name] = true
			return set[name]
		}})
	}
	for _, name := range theirVariables {
		// These do something there only if another variable says so, which is told instead, or refused.
		behind := strings.HasPrefix(name, "REDIS_PERSECOND_") || strings.HasPrefix(name, "MEMCACHE_")
		told := slices.ContainsFunc(undoneVariables, func(u undone) bool { return u.name == name })
		if !read[name] && !told && !behind {
			t.Errorf("%s is ignored", name)
		}
	}
	// A variable that asks for what Weir does anyway needs no words.
	set := descriptorsOf(t, "WEIR_STORE", "memory", "USE_CALENDAR_MONTH_RATE_LIMIT", "1", "EXTRA_TAGS", "a:b",
		"USE_DOG_STATSD", "false", "REDIS_SOCKET_TYPE", "TCP", "LOCAL_CACHE_SIZE_IN_BYTES", "0", "RUNTIME_WATCH_ROOT", "false")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, log := execute(ctx, set, "", "ratelimit")
	var told []string
	for _, match := range regexp.MustCompile(`level=WARN msg="(\w+) has no effect" instead="[^"]+"`).FindAllStringSubmatch(log, -1) {
		told = append(told, match[1])
	}
	must.Same(t, told, []string{"EXTRA_TAGS", "USE_CALENDAR_MONTH_RATE_LIMIT"}, "it tells of: %s", log)
}
