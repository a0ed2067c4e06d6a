package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const host = "127.0.0.1"

// site is the environment of the measured Envoys: the files of their modules, and the servers that they use.
type site struct {
	// scratch is a folder for this run.
	scratch string
	files   map[string]string
	// upstream is a port.
	upstream int
	services map[string]*service
	// ends are called at the end, the last first.
	ends []func() error
}

// openSite starts everything that the variants need. Close ends it.
func openSite(ctx context.Context, o *options, chosen []*variant) (*site, error) {
	s := &site{files: map[string]string{}, services: map[string]*service{}}
	if err := s.open(ctx, o, chosen); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *site) open(ctx context.Context, o *options, chosen []*variant) (err error) {
	if s.scratch, err = os.MkdirTemp("", "weir-bench-"); err != nil {
		return err
	}
	s.ends = append(s.ends, func() error { return os.RemoveAll(s.scratch) })
	for _, v := range chosen {
		if v.module != "" && s.files[v.module] == "" {
			if s.files[v.module], err = s.make(ctx, o, v.module); err != nil {
				return err
			}
		}
	}
	if err := s.serveUpstream(); err != nil {
		return err
	}
	// Redis must start before the services that count in it.
	for _, name := range []string{redisServer, weirServe, weirServeOnRedis, rateLimitService, weirRateLimit} {
		if slices.ContainsFunc(chosen, func(v *variant) bool { return slices.Contains(v.services, name) }) {
			if err := s.serve(ctx, o, name); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *site) close() (err error) {
	for _, end := range slices.Backward(s.ends) {
		err = errors.Join(err, end())
	}
	return err
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
		text := strings.TrimSuffix(module, ".wasm") + ".wat"
		build = exec.CommandContext(ctx, filepath.Join(sources, "node_modules", ".bin", "wat2wasm"), filepath.Join(sources, text), "-o", file)
	}
	if said, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s, which gcc builds, or the assembler of make bench/envoy/node_modules: %w\n%s", module, err, said)
	}
	return file, nil
}

// serveUpstream answers every request with a few bytes, or with events.
func (s *site) serveUpstream() error {
	l, err := net.Listen("tcp", address(0))
	if err != nil {
		return err
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// A client that has left is no failure of the upstream.
		switch r.URL.Path {
		case eventsPath:
			stream(w, eventsBytes)
			_, _ = io.WriteString(w, lastEvents)
		case heldPath:
			stream(w, 4*len(oneEvent))
			<-r.Context().Done()
		default:
			_, _ = io.WriteString(w, "ok\n")
		}
	})}
	var group sync.WaitGroup
	group.Go(func() { _ = server.Serve(l) }) // its error says that it was closed
	s.upstream = portOf(l)
	s.ends = append(s.ends, func() error {
		_ = server.Close() // everything is measured
		group.Wait()
		return nil
	})
	return nil
}

// The parts of a language model's stream.
const (
	oneEvent = `data: {"id":"chatcmpl-123","object":"chat.completion.chunk","created":1694268190,"model":"some","choices":[{"index":0,"delta":{"content":" word"},"finish_reason":null}],"usage":null}` + "\n\n"
	// lastEvents have the cost of a stream.
	lastEvents  = `data: {"id":"chatcmpl-123","object":"chat.completion.chunk","created":1694268190,"model":"some","choices":[],"usage":{"total_tokens":5600}}` + "\n\ndata: [DONE]\n\n"
	eventsBytes = 1 << 20
	// pieceBytes is how much of a stream is sent at once. Envoy reads the same at once, so a slow filter does not make it
	// read less often.
	pieceBytes = 16 << 10
)

// stream sends events with at least size bytes.
func stream(w http.ResponseWriter, size int) {
	w.Header().Set("content-type", "text/event-stream")
	piece := strings.Repeat(oneEvent, max(1, min(size, pieceBytes)/len(oneEvent)))
	for sent := 0; sent < size; sent += len(piece) {
		_, _ = io.WriteString(w, piece)
		_ = http.NewResponseController(w).Flush()
	}
}

func address(port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }

// serve starts a service.
func (s *site) serve(ctx context.Context, o *options, name string) error {
	ports, err := freePorts(3)
	if err != nil {
		return err
	}
	port, health, debug := ports[0], ports[1], ports[2]
	if name == redisServer {
		return s.start(ctx, name, port, accepts(address(port)), nil, "redis-server", "--port", strconv.Itoa(port), "--bind", host, "--dir", s.scratch, "--save", "", "--appendonly", "no", "--daemonize", "no")
	}
	redis, store := "", "memory"
	if s.services[redisServer] != nil {
		redis = address(s.services[redisServer].port)
	}
	switch name {
	case weirServeOnRedis:
		store = "redis://" + redis
		fallthrough
	case weirServe:
		return s.start(ctx, name, port, answers(port, "/healthz"), nil, o.weir, "serve", "--listen", address(port), "--store", store)
	}
	// A rate limit service is configured by its environment.
	folder := filepath.Join(s.scratch, "ratelimit", "config")
	limits := fmt.Sprintf("domain: %s\ndescriptors: [{key: user, rate_limit: {unit: minute, requests_per_unit: %d}}]\n", namespace, never)
	if err := errors.Join(os.MkdirAll(folder, 0o700), os.WriteFile(filepath.Join(folder, "bench.yaml"), []byte(limits), 0o600)); err != nil {
		return err
	}
	command := []string{o.ratelimit}
	if name == weirRateLimit {
		command = []string{o.weir, "ratelimit"}
	}
	return s.start(ctx, name, port, answers(health, "/healthcheck"), []string{
		"RUNTIME_ROOT=" + filepath.Join(s.scratch, "ratelimit"), "RUNTIME_SUBDIRECTORY=", "RUNTIME_WATCH_ROOT=false", "DISABLE_STATS=true", "LOG_LEVEL=warn",
		"HOST=" + host, "PORT=" + strconv.Itoa(health), "GRPC_HOST=" + host, "GRPC_PORT=" + strconv.Itoa(port),
		"DEBUG_HOST=" + host, "DEBUG_PORT=" + strconv.Itoa(debug), "REDIS_SOCKET_TYPE=tcp", "REDIS_URL=" + redis,
	}, command...)
}

// service is a process that works for an Envoy.
type service struct {
	port int
	pid  int
}

// startTimeout bounds the time until a service is ready.
const startTimeout = 30 * time.Second

// start starts a service, and returns when it is ready.
func (s *site) start(ctx context.Context, name string, port int, ready func() bool, environment []string, command ...string) error {
	cmd, log, exited := exec.CommandContext(ctx, command[0], command[1:]...), &bytes.Buffer{}, make(chan struct{})
	cmd.Stdout, cmd.Stderr, cmd.Env = log, log, append(os.Environ(), environment...)
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, install)
	}
	s.services[name] = &service{port, cmd.Process.Pid}
	go func() {
		_ = cmd.Wait() // the process was killed
		close(exited)
	}()
	s.ends = append(s.ends, func() error {
		if err := cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return err
		}
		<-exited
		return nil
	})
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for !ready() {
		select {
		case <-exited:
			return fmt.Errorf("%s does not start: %s\n%s", name, cmd.ProcessState, log)
		case <-ctx.Done():
			return fmt.Errorf("%s does not start: %w", name, ctx.Err())
		case <-time.After(10 * time.Millisecond):
		}
	}
	return nil
}

// install is the hint of errors about missing parts.
const install = "run make build and scripts/test-dependencies bench"

func accepts(address string) func() bool {
	return func() bool {
		c, err := net.Dial("tcp", address)
		return err == nil && c.Close() == nil
	}
}

func answers(port int, path string) func() bool {
	client := &http.Client{Timeout: time.Second}
	return func() bool {
		answer, err := client.Get("http://" + address(port) + path)
		return err == nil && answer.Body.Close() == nil && answer.StatusCode == http.StatusOK
	}
}

// freePorts returns different free ports.
func freePorts(n int) (ports []int, err error) {
	for range n {
		l, err := net.Listen("tcp", address(0))
		if err != nil {
			return nil, err
		}
		defer func() { _ = l.Close() }() // only after all ports are found
		ports = append(ports, portOf(l))
	}
	return ports, nil
}

func portOf(l net.Listener) int {
	if a, ok := l.Addr().(*net.TCPAddr); ok {
		return a.Port
	}
	return 0
}
