package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"weir/bench/page"
	"weir/internal/store/redis/redistest"
)

const host = "127.0.0.1"

// site is the environment of the measured Envoys: the files of their modules, and the servers that they use.
type site struct {
	testing.TB
	// scratch is a folder for this run.
	scratch string
	files   map[string]string
	// upstream is a port.
	upstream int
	services map[string]*service
}

// openSite starts everything that the variants need. It ends with t.
func openSite(ctx context.Context, t testing.TB, o *options, chosen []*variant) (s *site, err error) {
	s = &site{TB: t, scratch: t.TempDir(), files: map[string]string{}, services: map[string]*service{}}
	for _, v := range chosen {
		if v.module != "" && s.files[v.module] == "" {
			if s.files[v.module], err = s.make(ctx, o, v.module); err != nil {
				return nil, err
			}
		}
	}
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "ok\n") // a client that has left is no failure of the upstream
	}))
	t.Cleanup(upstream.Close)
	s.upstream = portOf(upstream.Listener.Addr().String())
	// Redis must start before the services that count in it.
	for _, name := range []string{redisServer, weirServe, weirServeOnRedis, rateLimitService, weirRateLimit} {
		if slices.ContainsFunc(chosen, func(v *variant) bool { return slices.Contains(v.services, name) }) {
			s.services[name] = s.serve(o, name)
		}
	}
	return s, nil
}

// make returns the file of a module. It finds Weir's, and builds the others.
func (s *site) make(ctx context.Context, o *options, module string) (file string, err error) {
	sources, file := filepath.Join(o.dir, "envoy"), filepath.Join(s.scratch, module)
	var build *exec.Cmd
	switch module {
	case plugin, native:
		target := "build"
		if file = o.plugin; module == native {
			file, target = o.native, "native"
		}
		if _, err := os.Stat(file); err != nil {
			return "", fmt.Errorf("%w: run make %s", err, target)
		}
		return filepath.Abs(file)
	case moduleSO:
		build = exec.CommandContext(ctx, "gcc", "-O2", "-shared", "-fPIC", "-I", filepath.Join(o.dir, "..", "native"), filepath.Join(sources, "module", "module.c"), "-o", file)
	default:
		build = exec.CommandContext(ctx, "wat2wasm", filepath.Join(sources, strings.TrimSuffix(module, ".wasm")+".wat"), "-o", file)
	}
	if said, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s: %w: %s\n%s", module, err, install, said)
	}
	return file, nil
}

// service is a process that works for an Envoy.
type service struct {
	port int
	pid  int
}

// serve starts a service.
func (s *site) serve(o *options, name string) *service {
	if name == redisServer {
		redis := redistest.Start(s)
		return &service{portOf(redis.Addr), redis.PID()}
	}
	addresses := page.FreeAddresses(s, 3)
	own, health, debug := addresses[0], addresses[1], addresses[2]
	redis, store := "", "memory"
	if s.services[redisServer] != nil {
		redis = net.JoinHostPort(host, strconv.Itoa(s.services[redisServer].port))
	}
	switch name {
	case weirServeOnRedis:
		store = "redis://" + redis
		fallthrough
	case weirServe:
		return &service{portOf(own), page.Start(s, "http://"+own+"/healthz", nil, o.weir, "serve", "--listen", own, "--store", store)}
	}
	// A rate limit service is configured by its environment.
	folder := filepath.Join(s.scratch, "ratelimit", "config")
	limits := fmt.Sprintf("domain: %s\ndescriptors: [{key: user, rate_limit: {unit: minute, requests_per_unit: %d}}]\n", namespace, never)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		s.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "bench.yaml"), []byte(limits), 0o600); err != nil {
		s.Fatal(err)
	}
	command := []string{o.ratelimit}
	if name == weirRateLimit {
		command = []string{o.weir, "ratelimit"}
	}
	return &service{portOf(own), page.Start(s, "http://"+health+"/healthcheck", []string{
		"RUNTIME_ROOT=" + filepath.Join(s.scratch, "ratelimit"), "RUNTIME_SUBDIRECTORY=", "RUNTIME_WATCH_ROOT=false", "DISABLE_STATS=true", "LOG_LEVEL=warn",
		"HOST=" + host, "PORT=" + strconv.Itoa(portOf(health)), "GRPC_HOST=" + host, "GRPC_PORT=" + strconv.Itoa(portOf(own)),
		"DEBUG_HOST=" + host, "DEBUG_PORT=" + strconv.Itoa(portOf(debug)), "REDIS_SOCKET_TYPE=tcp", "REDIS_URL=" + redis,
	}, command...)}
}

// install is the hint of errors about missing parts.
const install = "run make build and scripts/test-dependencies bench"

// portOf returns the port of an address; 0 if it has none.
func portOf(address string) int {
	_, port, _ := net.SplitHostPort(address)
	n, _ := strconv.Atoi(port)
	return n
}
