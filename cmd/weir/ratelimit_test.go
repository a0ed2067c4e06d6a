package main

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	xds "github.com/envoyproxy/go-control-plane/pkg/server/v3"
	rlsconf "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"weir/internal/commandtest"
	"weir/internal/envoytest"
	"weir/internal/must"
	"weir/internal/trust/trusttest"
)

// Where the rate limit service keeps counters is told by its variables as Weir's URLs have it.
func TestRedisVariables(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		variables map[string]string
		want, err string
	}{
		{nil, "memory", ""},
		{map[string]string{"REDIS_URL": "redis:6379", "REDIS_SOCKET_TYPE": "tcp"}, "redis://redis:6379", ""},
		{map[string]string{"REDIS_URL": "redis:6379", "REDIS_TLS": "true", "REDIS_AUTH": "a/b"}, "rediss://:a%2Fb@redis:6379", ""},
		{map[string]string{"REDIS_URL": "a:1,b:2", "REDIS_TYPE": "CLUSTER", "REDIS_AUTH": "ann:secret"}, "redis+cluster://ann:secret@a:1,b:2", ""},
		{map[string]string{"REDIS_URL": "rediss://:secret@redis:6379"}, "rediss://:secret@redis:6379", ""},
		{map[string]string{"REDIS_URL": "redis:6379", "WEIR_STORE": "memory"}, "memory", ""},
		{map[string]string{"REDIS_URL": "redis:6379", "REDIS_PERSECOND": "true"}, "redis://redis:6379", ""},
		{map[string]string{"REDIS_URL": "redis://redis:6379/2", "REDIS_AUTH": "secret", "REDIS_TLS": "true"}, "rediss://:secret@redis:6379/2", ""},
		{map[string]string{"REDIS_URL": "rediss://a:1", "REDIS_TYPE": "cluster"}, "rediss+cluster://a:1", ""},
		{map[string]string{"REDIS_URL": "redis://:secret@redis:6379", "REDIS_AUTH": "another"}, "", "REDIS_AUTH: want none, as REDIS_URL has a password"},
		{map[string]string{"REDIS_URL": "tcp://redis:6379"}, "", `REDIS_URL: want host:port, or a URL such as redis://host:6379, got "tcp://…"`},
		{map[string]string{"REDIS_URL": "unix:///run/redis.sock"}, "", "REDIS_URL: want host:port"},
		{map[string]string{"REDIS_URL": "/var/run/redis.sock"}, "", "REDIS_URL: want host:port"},
		{map[string]string{"REDIS_URL": "mymaster,a:1,b:2", "REDIS_TYPE": "sentinel"}, "redis+sentinel://a:1,b:2/mymaster", ""},
		{map[string]string{"REDIS_URL": "m,a:1", "REDIS_TYPE": "sentinel", "REDIS_AUTH": "x", "REDIS_SENTINEL_AUTH": "ann:p&w", "REDIS_TLS": "true"},
			"rediss+sentinel://:x@a:1/m?sentinel_password=p%26w&sentinel_user=ann", ""},
		{map[string]string{"REDIS_URL": "m,a:1", "REDIS_TYPE": "sentinel", "REDIS_SENTINEL_AUTH": "p"}, "redis+sentinel://a:1/m?sentinel_password=p", ""},
		{map[string]string{"REDIS_URL": "a:1", "REDIS_TYPE": "sentinel"}, "", "REDIS_URL: want the master's name and then Sentinels, such as mymaster,a:26379,b:26379"},
		{map[string]string{"REDIS_URL": "a:1", "REDIS_TYPE": "masters"}, "", "REDIS_TYPE: want single, cluster or sentinel"},
		{map[string]string{"REDIS_URL": "redis:6379", "REDIS_TLS_CACERT": "ca.pem"}, "", "REDIS_TLS_CACERT: want none"},
		{map[string]string{"BACKEND_TYPE": "memcache"}, "", "BACKEND_TYPE: want redis"},
		{map[string]string{"REDIS_URL": "redis:6379", "REDIS_TLS": "maybe"}, "", "REDIS_TLS: want true or false"},
	} {
		v := variables{getenv: func(name string) string { return test.variables[name] }}
		logs := logFlags{format: "text"}
		log := must.Get(logs.logger(io.Discard))(t)
		got := v.store(log).name
		err := v.err()
		switch {
		case test.err == "" && (got != test.want || err != nil):
			t.Errorf("%v: got %q, %v", test.variables, got, err)
		case test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)):
			t.Errorf("%v: got the error %v, want %s", test.variables, err, test.err)
		}
	}
}

// weir ratelimit serves gRPC and HTTP as the variables say, and gives up on those that can't be.
func TestRateLimitService(t *testing.T) {
	t.Parallel()
	root, folder := filepath.Split(descriptorsIn(t, "domain: d\ndescriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: 1}}]"))
	statsd := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer statsd.Close()
	_, statsdPort, err := net.SplitHostPort(statsd.Addr().String())
	must.OK(t, err)
	set := map[string]string{
		"RUNTIME_ROOT": root, "RUNTIME_SUBDIRECTORY": folder, "LOG_LEVEL": "info", "HOST": "127.0.0.1", "GRPC_HOST": "127.0.0.1",
		"PORT": "0", "GRPC_PORT": "0", "LIMIT_RESPONSE_HEADERS_ENABLED": "true", "HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED": "true",
		"USE_PROMETHEUS": "true", "PROMETHEUS_ADDR": "127.0.0.1:0", "USE_STATSD": "true", "STATSD_HOST": "127.0.0.1", "STATSD_PORT": statsdPort,
	}
	address, end := startRateLimit(t.Context(), t, set)
	grpcAddress, httpAddress := address("the rate limit service listens"), address("the rate limit service's /json listens")
	answer, err := pb.NewRateLimitServiceClient(dialRateLimit(t, grpcAddress)).ShouldRateLimit(t.Context(), ofOne)
	if err != nil || answer.GetOverallCode() != pb.RateLimitResponse_OK || len(answer.GetResponseHeadersToAdd()) != 3 {
		t.Errorf("answered %v, %v", answer, err)
	}
	response, err := envoytest.Client.Post("http://"+httpAddress+"/json", "application/json", strings.NewReader(`{"domain":"d","descriptors":[{"entries":[{"key":"k","value":"v"}]}]}`))
	if err != nil || response.StatusCode != http.StatusTooManyRequests {
		t.Errorf("/json: %v, %v", response, err)
	} else {
		response.Body.Close()
	}
	_, metrics := ask(t, "GET", "http://"+address("the rate limit service's metrics listens")+"/metrics", "", nil)
	must.Contains(t, metrics, `ratelimit_service_rate_limit_over_limit{domain="d",key1="k",key2=""} 1`, "the metrics lack")
	end() // and statsd is told
	told := must.Get(statsd.Accept())(t)
	must.Contains(t, string(must.Get(io.ReadAll(told))(t)), "ratelimit.service.rate_limit.d.k.total_hits:2|c\n", "statsd is told")
	told.Close()

	set = map[string]string{"CONFIG_TYPE": "XDS", "SHADOW_MODE": "maybe", "GRPC_MAX_CONNECTION_AGE": "1"}
	for _, want := range []string{"CONFIG_TYPE: want FILE or GRPC_XDS_SOTW", "SHADOW_MODE: want true or false", "GRPC_MAX_CONNECTION_AGE: want a duration"} {
		executeAll(t, set, []lineTest{{"ratelimit", 2, "", want}})
	}
}

// statsd is told of requests that are answered after the service was told to end.
func TestStatsdOfDrained(t *testing.T) {
	t.Parallel()
	statsd := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	told := make(chan string, 1)
	go func() {
		var all strings.Builder
		for {
			connection, err := statsd.Accept()
			if err != nil {
				told <- all.String()
				return
			}
			if _, err := io.Copy(&all, connection); err != nil {
				t.Error(err)
			}
			connection.Close()
		}
	}()
	_, port, err := net.SplitHostPort(statsd.Addr().String())
	must.OK(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	address, end := startRateLimit(ctx, t, descriptorsOf(t, "USE_STATSD", "true", "STATSD_HOST", "127.0.0.1", "STATSD_PORT", port, "STATS_FLUSH_INTERVAL", "1h"))
	client := dialRateLimit(t, address("the rate limit service listens"))
	// The message of this request comes later.
	late := must.Get(client.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true}, pb.RateLimitService_ShouldRateLimit_FullMethodName))(t)
	watching, unwatch := context.WithCancel(t.Context())
	defer unwatch()
	becomes := watchHealth(watching, t, client)
	becomes(healthpb.HealthCheckResponse_SERVING)
	cancel()
	becomes(healthpb.HealthCheckResponse_NOT_SERVING)
	unwatch()
	must.OK(t, late.SendMsg(ofOne))
	must.OK(t, late.CloseSend())
	var answer pb.RateLimitResponse
	must.Report(t, late.RecvMsg(&answer))
	must.Equal(t, answer.GetOverallCode(), pb.RateLimitResponse_OK, "answered")
	end()
	statsd.Close()
	must.Contains(t, <-told, "ratelimit.service.rate_limit.d.k.total_hits:1|c\n", "statsd is told")
}

// Values that no variable can have are told by the variable's name, and not repeated.
func TestImpossibleVariables(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, value, want string }{
		{"GRPC_PORT", "65536", "GRPC_PORT: want a port from 0 to 65535"},
		{"GRPC_PORT", "-1", "GRPC_PORT: want a port"},
		{"PORT", "http", "PORT: want a port"},
		{"GRPC_HOST", "no such host.example", "GRPC_HOST"},
		{"GRPC_UDS", "/no/such/folder/socket", "GRPC_UDS"},
		{"LOG_LEVEL", "loud", "LOG_LEVEL: want debug, info, warn or error"},
		{"LOG_FORMAT", "xml", "LOG_FORMAT: want text or json"},
		{"GRPC_MAX_CONNECTION_AGE", "-1h", "GRPC_MAX_CONNECTION_AGE: want a duration"},
		{"GRPC_MAX_CONNECTION_AGE_GRACE", "1e400s", "GRPC_MAX_CONNECTION_AGE_GRACE: want a duration"},
		{"GRPC_SERVER_USE_TLS", "true", "GRPC_SERVER_TLS_CERT"},
		{"REDIS_URL", "redis://:\x00secret@host", "REDIS_URL: redis url: want redis://"},
		{"WEIR_STORE", "nowhere://secret", "WEIR_STORE: want memory"},
		{"NEAR_LIMIT_RATIO", "80", "NEAR_LIMIT_RATIO: want a number from 0 to 1"},
		{"NEAR_LIMIT_RATIO", "NaN", "NEAR_LIMIT_RATIO: want a number from 0 to 1"},
		{"WEIR_SHUTDOWN_DELAY", "10", "WEIR_SHUTDOWN_DELAY: want a duration"},
		{"WEIR_REVEAL", "65", "WEIR_REVEAL: want hash, plain or 1 to 64"},
		{"WEIR_ON_BACKEND_FAILURE", "error", "WEIR_ON_BACKEND_FAILURE: want local, allow or deny"},
		{"WEIR_RATE_LIMIT_HEADERS", "all", "WEIR_RATE_LIMIT_HEADERS: want three, ratelimit, retry-after"},
		{"STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT", "2", "STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT: want true or false"},
		{"MERGE_DOMAIN_CONFIG", "yes", "MERGE_DOMAIN_CONFIG: want true or false"},
		{"CONFIG_TYPE", "grpc", "CONFIG_TYPE: want FILE or GRPC_XDS_SOTW"},
	} {
		set := map[string]string{
			"HOST": "127.0.0.1", "GRPC_HOST": "127.0.0.1", "PORT": "0", "GRPC_PORT": "0", "WEIR_STORE": "memory", "RUNTIME_ROOT": t.TempDir(),
		}
		if set[test.name] = test.value; test.name == "REDIS_URL" {
			delete(set, "WEIR_STORE")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		code, _, said := execute(ctx, set, "", "ratelimit")
		cancel()
		if code == 0 || !strings.Contains(said, test.want) || strings.Contains(said, "secret") {
			t.Errorf("%s=%q: code %d\n%s", test.name, test.value, code, said)
		}
	}
}

// startRateLimit runs weir ratelimit with variables. address returns the address in a line of its
// log, and end ends it.
func startRateLimit(ctx context.Context, t *testing.T, set map[string]string) (address func(of string) string, end func()) {
	find, end := startCommand(ctx, t, []string{"ratelimit"}, set)
	return func(of string) string {
		t.Helper()
		return find(of + `" (?:address|from)=(\S+)`)
	}, end
}

// startCommand runs weir with arguments and variables. find waits until the log has an expression,
// and returns its first group. end ends the command.
func startCommand(ctx context.Context, t *testing.T, args []string, set map[string]string) (find func(expression string) string, end func()) {
	ctx, cancel := context.WithCancel(ctx)
	log, ended := &commandtest.Output{}, make(chan int, 1)
	go func() {
		ended <- run(ctx, args, environment{stdout: io.Discard, stderr: log, getenv: func(name string) string { return set[name] }})
	}()
	find = func(expression string) string {
		t.Helper()
		for over := false; ; {
			if match := regexp.MustCompile(expression).FindStringSubmatch(log.String()); match != nil {
				return match[len(match)-1]
			}
			if over {
				t.Fatalf("its log lacks %s:\n%s", expression, log)
			}
			select {
			case code := <-ended: // it has logged all
				ended <- code
				over = true
			case <-time.After(time.Millisecond):
			}
		}
	}
	return find, func() {
		t.Helper()
		cancel()
		must.Equal(t, <-ended, 0, "it ends with")
	}
}

// With TLS a client needs a certificate of the right name, and the descriptors come from a server that
// asks for one, too.
func TestRateLimitServiceTLS(t *testing.T) {
	t.Parallel()
	authority := trusttest.New(t)
	certificate, key := authority.Issue(t, "weir")
	pair := must.Get(tls.LoadX509KeyPair(certificate, key))(t)
	snapshots := cache.NewSnapshotCache(false, cache.IDHash{}, nil)
	snapshot := must.Get(cache.NewSnapshot("1", map[resource.Type][]types.Resource{resource.RateLimitConfigType: {&rlsconf.RateLimitConfig{
		Name: "d", Domain: "d", Descriptors: []*rlsconf.RateLimitDescriptor{{
			Key: "k", RateLimit: &rlsconf.RateLimitPolicy{Unit: rlsconf.RateLimitUnit_DAY, RequestsPerUnit: 3},
		}},
	}}}))(t)
	must.OK(t, snapshots.SetSnapshot(t.Context(), "gateway", snapshot))
	mutual := &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: authority.Pool, ClientCAs: authority.Pool, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS12}
	control := grpc.NewServer(grpc.Creds(credentials.NewTLS(mutual)))
	discovery.RegisterAggregatedDiscoveryServiceServer(control, xds.NewServer(context.Background(), snapshots, nil))
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	go func() { _ = control.Serve(l) }() // it ends when it is stopped
	defer control.Stop()

	set := map[string]string{
		"LOG_LEVEL": "info", "HOST": "127.0.0.1", "GRPC_HOST": "127.0.0.1", "PORT": "0", "GRPC_PORT": "0", "WEIR_STORE": "memory",
		"GRPC_SERVER_USE_TLS": "true", "GRPC_SERVER_TLS_CERT": certificate, "GRPC_SERVER_TLS_KEY": key, "GRPC_CLIENT_TLS_CACERT": authority.File,
		"GRPC_CLIENT_TLS_SAN": "localhost", "CONFIG_TYPE": "GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_SERVER_URL": l.Addr().String(),
		"CONFIG_GRPC_XDS_NODE_ID": "gateway", "CONFIG_GRPC_XDS_SERVER_USE_TLS": "true", "CONFIG_GRPC_XDS_SERVER_TLS_CACERT": authority.File,
		"CONFIG_GRPC_XDS_SERVER_TLS_SAN": "localhost", "CONFIG_GRPC_XDS_CLIENT_TLS_CERT": certificate, "CONFIG_GRPC_XDS_CLIENT_TLS_KEY": key,
	}
	ask := func(address string, own *tls.Config) error {
		t.Helper()
		client := must.Get(grpc.NewClient(address, grpc.WithTransportCredentials(credentials.NewTLS(own))))(t)
		defer client.Close()
		answer, err := pb.NewRateLimitServiceClient(client).ShouldRateLimit(t.Context(), ofOne)
		if err == nil && answer.GetStatuses()[0].GetCurrentLimit().GetRequestsPerUnit() != 3 {
			t.Errorf("answered %v", answer)
		}
		return err
	}
	address, end := startRateLimit(t.Context(), t, set)
	at := address("the rate limit service listens")
	address("the descriptors were read")
	must.Report(t, ask(at, mutual)) // it has a certificate
	must.Fails(t, ask(at, &tls.Config{RootCAs: authority.Pool, MinVersion: tls.VersionTLS12}), "asked without a certificate")
	end()
	set["GRPC_CLIENT_TLS_SAN"] = "gateway"
	address, end = startRateLimit(t.Context(), t, set)
	must.Fails(t, ask(address("the rate limit service listens"), mutual), "asked with a certificate of another name")
	end()
	set["CONFIG_GRPC_XDS_SERVER_TLS_CACERT"], set["CONFIG_GRPC_XDS_CLIENT_TLS_KEY"], set["XDS_CLIENT_BACKOFF_MAX_INTERVAL"] = key, "", "1ms"
	for _, want := range []string{"CONFIG_GRPC_XDS_SERVER_TLS_CACERT: want", "CONFIG_GRPC_XDS_CLIENT_TLS_CERT: want", "XDS_CLIENT_BACKOFF_INITIAL_INTERVAL: want"} {
		executeAll(t, set, []lineTest{{"ratelimit", 2, "", want}})
	}
}
