// Package site is the environment of the processes that benchmarks measure: their configurations, the servers that they
// use, and how much time and memory they take.
package site

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/procfs"

	"weir/bench/page"
	"weir/internal/commandtest"
	"weir/internal/envoytest"
	"weir/internal/must"
	"weir/internal/store/redis/redistest"
)

const host = "127.0.0.1"

// RequestHeaders are the headers of a browser behind a proxy, but for the user.
var RequestHeaders = [][2]string{
	{"user-agent", "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0"}, {"accept", "application/json"},
	{"accept-encoding", "gzip, deflate, br"}, {"x-forwarded-for", "203.0.113.7"}, {"x-forwarded-proto", "https"},
	{"x-request-id", "3f0e5b1c-58f4-4c8e-9d0a-1f7f0a8f6a51"},
}

// EventsPath is the path of requests that are answered with a megabyte of events, as a language model streams them.
const EventsPath = "/v1/events"

const event = `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"gpt-5","service_tier":"default","choices":[{"index":0,"delta":{"content":" token"},"finish_reason":null}]}` + "\n\n"

var events = strings.Repeat(event, 1<<20/len(event)) + `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","model":"gpt-5","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":91,"total_tokens":100}}` + "\n\ndata: [DONE]\n\n"

// RequestPath is the path of requests.
const RequestPath = "/api/items?page=2&sort=name"

// Options have the files of what is measured.
type Options struct {
	// Dir is the folder bench.
	Dir                             string
	Plugin, Native, Weir, RateLimit string
}

// Site is the environment of the measured Envoys: the files of their modules, and the servers that they use.
type Site struct {
	testing.TB
	// Scratch is a folder for this run.
	Scratch string
	Files   map[string]string
	// Upstream is a port.
	Upstream int
	Services map[string]*Service
}

// Open starts everything that the chosen Envoys need. It ends with t.
func Open(ctx context.Context, t testing.TB, o Options, chosen ...*Envoy) (s *Site, err error) {
	s = &Site{TB: t, Scratch: t.TempDir(), Files: map[string]string{}, Services: map[string]*Service{}}
	for _, e := range chosen {
		if e.Module != "" && s.Files[e.Module] == "" {
			if s.Files[e.Module], err = s.make(ctx, o, e.Module); err != nil {
				return nil, err
			}
		}
	}
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := "ok\n"
		if r.URL.Path == EventsPath {
			w.Header().Set("content-type", "text/event-stream")
			answer = events
		}
		_, _ = io.WriteString(w, answer) // a client that has left is no failure of the upstream
	}))
	t.Cleanup(upstream.Close)
	s.Upstream = PortOf(upstream.Listener.Addr().String())
	// Redis must start before the services that count in it.
	for _, name := range []string{RedisServer, WeirServe, WeirServeOnRedis, RateLimitService, WeirRateLimit} {
		if slices.ContainsFunc(chosen, func(e *Envoy) bool { return slices.Contains(e.Services, name) }) {
			s.Services[name] = s.serve(o, name)
		}
	}
	return s, nil
}

// make returns the file of a module. It finds Weir's, and builds the others.
func (s *Site) make(ctx context.Context, o Options, module string) (file string, err error) {
	sources, file := filepath.Join(o.Dir, "site"), filepath.Join(s.Scratch, module)
	var build *exec.Cmd
	switch module {
	case Plugin, Native:
		target := "build"
		if file = o.Plugin; module == Native {
			file, target = o.Native, "native"
		}
		if _, err := os.Stat(file); err != nil {
			return "", fmt.Errorf("%w: run make %s", err, target)
		}
		return filepath.Abs(file)
	case ModuleSO:
		build = exec.CommandContext(ctx, "gcc", "-O2", "-shared", "-fPIC", "-I", filepath.Join(o.Dir, "..", "native"), filepath.Join(sources, "module", "module.c"), "-o", file)
	default:
		build = exec.CommandContext(ctx, "wat2wasm", filepath.Join(sources, strings.TrimSuffix(module, ".wasm")+".wat"), "-o", file)
	}
	if said, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s: %w: %s\n%s", module, err, Install, said)
	}
	return file, nil
}

// Service is a process that works for an Envoy.
type Service struct {
	Port int
	PID  int
}

func (s *Site) serve(o Options, name string) *Service {
	if name == RedisServer {
		redis := redistest.Start(s)
		return &Service{PortOf(redis.Addr), redis.PID()}
	}
	redis, store := "", "memory"
	if s.Services[RedisServer] != nil {
		redis = net.JoinHostPort(host, strconv.Itoa(s.Services[RedisServer].Port))
	}
	switch name {
	case WeirServeOnRedis:
		store = "redis://" + redis
		fallthrough
	case WeirServe:
		own := commandtest.FreeAddress(s)
		return &Service{PortOf(own), page.Start(s, "http://"+own+"/healthz", nil, o.Weir, "serve", "--listen", own, "--store", store)}
	}
	command := []string{o.RateLimit}
	if name == WeirRateLimit {
		command = []string{o.Weir, "ratelimit"}
	}
	return RateLimit(s, redis, fmt.Sprintf("{key: user, rate_limit: {unit: minute, requests_per_unit: %d}}", Never), command...)
}

// RateLimit starts a rate limit service on a Redis. It ends with t.
func RateLimit(t testing.TB, redis, descriptor string, command ...string) *Service {
	t.Helper()
	root, addresses := t.TempDir(), commandtest.FreeAddresses(t, 3)
	own, health, debug := addresses[0], addresses[1], addresses[2]
	folder := filepath.Join(root, "config")
	must.OK(t, os.MkdirAll(folder, 0o700))
	limits := fmt.Sprintf("domain: %s\ndescriptors: [%s]\n", Namespace, descriptor)
	must.OK(t, os.WriteFile(filepath.Join(folder, "bench.yaml"), []byte(limits), 0o600))
	// A rate limit service is configured by its environment.
	return &Service{PortOf(own), page.Start(t, "http://"+health+"/healthcheck", []string{
		"RUNTIME_ROOT=" + root, "RUNTIME_SUBDIRECTORY=", "RUNTIME_WATCH_ROOT=false", "DISABLE_STATS=true", "LOG_LEVEL=warn",
		"HOST=" + host, "PORT=" + strconv.Itoa(PortOf(health)), "GRPC_HOST=" + host, "GRPC_PORT=" + strconv.Itoa(PortOf(own)),
		"DEBUG_HOST=" + host, "DEBUG_PORT=" + strconv.Itoa(PortOf(debug)), "REDIS_SOCKET_TYPE=tcp", "REDIS_URL=" + redis,
	}, command...)}
}

// Install is the hint of errors about missing parts.
const Install = "run make build and scripts/test-dependencies bench"

// Start starts an Envoy on a processor.
func (s *Site) Start(ctx context.Context, e *Envoy, processor string) (*envoytest.Envoy, error) {
	bootstrap, err := e.Bootstrap(s)
	if err != nil {
		return nil, err
	}
	binary, err := envoytest.Newest()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(s.Scratch, "envoy-")
	if err != nil {
		return nil, err
	}
	return envoytest.Start(ctx, envoytest.Options{Binary: binary, Dir: dir, Bootstrap: bootstrap, Workers: 1, Prefix: []string{"taskset", "-c", processor}})
}

// PortOf returns the port of an address; 0 if it has none.
func PortOf(address string) int {
	_, port, _ := net.SplitHostPort(address)
	n, _ := strconv.Atoi(port)
	return n
}

// Ran returns how long the threads of a process have run so far. It reads schedstat, which counts
// nanoseconds. stat counts hundredths of a second, and includes threads that have ended; a ready
// Envoy ends none.
func Ran(pid int) (sum time.Duration, err error) {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return 0, fmt.Errorf("processor time, which /proc tells on Linux: %w", err)
	}
	threads, err := fs.AllThreads(pid)
	if err != nil {
		return 0, err
	}
	if len(threads) == 0 {
		return 0, fmt.Errorf("process %d has no threads", pid)
	}
	for _, t := range threads {
		s, err := t.Schedstat()
		if err != nil {
			return 0, fmt.Errorf("thread %d: %w", t.PID, err)
		}
		sum += time.Duration(s.RunningNanoseconds)
	}
	return sum, nil
}

// Micros returns the processor time that processes take while do runs, in µs for each of n: a value for each
// process.
func Micros(n int, pids []int, do func() error) ([]float64, error) {
	values := make([]float64, len(pids))
	add := func(times float64) error {
		for i, pid := range pids {
			used, err := Ran(pid)
			if err != nil {
				return err
			}
			values[i] += times * float64(used.Nanoseconds()) / 1000 / float64(n)
		}
		return nil
	}
	return values, errors.Join(add(-1), do(), add(1))
}

// Memory is a process's memory in MiB. Own counts the pages that it has written, which no other
// process has. Pages of its program and libraries that it has only read are in Resident alone.
type Memory struct{ Resident, Own float64 }

// MemoryOf returns the memory of a process.
func MemoryOf(pid int) (m Memory, err error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return m, err
	}
	s, err := p.ProcSMapsRollup()
	const mebibyte = 1 << 20
	return Memory{Resident: float64(s.Rss) / mebibyte, Own: float64(s.PrivateDirty) / mebibyte}, err
}

// Pin assigns a processor to Envoy, and the others to this process and the processes that it
// starts. It returns Envoy's processor for taskset.
func Pin(ctx context.Context) (envoy string, err error) {
	self, err := procfs.Self()
	if err != nil {
		return "", err
	}
	status, err := self.NewStatus()
	if err != nil {
		return "", err
	}
	allowed := status.CpusAllowedList
	if len(allowed) < 2 {
		return "", fmt.Errorf("want two processors, one for Envoy and one for what asks it, got %v", allowed)
	}
	var rest []string
	for _, n := range allowed[:len(allowed)-1] {
		rest = append(rest, strconv.FormatUint(n, 10))
	}
	// -a includes all threads of this process. Processes that they start inherit the setting.
	command := exec.CommandContext(ctx, "taskset", "-a", "-c", "-p", strings.Join(rest, ","), strconv.Itoa(os.Getpid()))
	if output, err := command.CombinedOutput(); err != nil {
		return "", fmt.Errorf("taskset: %w: install util-linux\n%s", err, output)
	}
	return strconv.FormatUint(allowed[len(allowed)-1], 10), nil
}

// Machine describes the machine.
func Machine() string {
	model := "unknown"
	if fs, err := procfs.NewDefaultFS(); err == nil {
		if all, err := fs.CPUInfo(); err == nil && len(all) > 0 {
			model = all[0].ModelName
		}
	}
	return fmt.Sprintf("%s, %d processors", model, runtime.NumCPU())
}
