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

// site is the environment of the measured Envoys: the files that they load, and the servers that
// they use.
type site struct {
	// scratch is a folder for this run.
	scratch                                string
	plugin, native, nothing, floor, module string
	// upstream is a port.
	upstream int
	services map[string]*service
	// ends are called at the end, the last first.
	ends []func() error
}

// openSite starts everything that the variants need. Close ends it.
func openSite(ctx context.Context, o *options, chosen []*variant) (*site, error) {
	s := &site{services: map[string]*service{}}
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
	if err := s.modules(ctx, o, chosen); err != nil {
		return err
	}
	var end func()
	if s.upstream, end, err = serveUpstream(); err != nil {
		return err
	}
	s.ends = append(s.ends, func() error { end(); return nil })
	wants := func(name string) bool {
		return slices.ContainsFunc(chosen, func(v *variant) bool { return slices.Contains(v.services, name) })
	}
	// Redis must start before the services that count in it.
	for _, service := range []struct {
		name  string
		start func(context.Context, *options) error
	}{{redisServer, s.startRedis}, {weirServe, s.startWeir}, {weirServeOnRedis, s.startWeirOnRedis}, {rateLimitService, s.startRateLimit}, {weirRateLimit, s.startWeirRateLimit}} {
		if !wants(service.name) {
			continue
		}
		if err := service.start(ctx, o); err != nil {
			return err
		}
	}
	return nil
}

func (s *site) close() (err error) {
	for _, end := range slices.Backward(s.ends) {
		err = errors.Join(err, end())
	}
	s.ends = nil
	return err
}

// modules finds the plugin, and builds the chosen filters that it is compared with.
func (s *site) modules(ctx context.Context, o *options, chosen []*variant) (err error) {
	if s.plugin, err = filepath.Abs(o.plugin); err != nil {
		return err
	}
	if _, err := os.Stat(s.plugin); err != nil {
		return fmt.Errorf("the plugin, which make build leaves there: %w", err)
	}
	if s.native, err = filepath.Abs(o.native); err != nil {
		return err
	}
	probe := &site{plugin: "plugin", native: "native"}
	natively := func(v *variant) bool { return v.wasm != nil && v.wasm(probe) == probe.native }
	if slices.ContainsFunc(chosen, natively) {
		if _, err := os.Stat(s.native); err != nil {
			return fmt.Errorf("the plugin ahead of time, which make native leaves there: %w", err)
		}
	}
	s.module = filepath.Join(s.scratch, "module.so")
	if slices.ContainsFunc(chosen, func(v *variant) bool { return v.wasm != nil && v.wasm(s) == s.module }) {
		if err := compile(ctx, o.dir, s.module); err != nil {
			return err
		}
		probe.module = s.module
	}
	others := func(v *variant) bool { return v.wasm != nil && v.wasm(probe) == "" }
	if !slices.ContainsFunc(chosen, others) {
		return nil
	}
	s.nothing, s.floor = filepath.Join(s.scratch, "nothing.wasm"), filepath.Join(s.scratch, "floor.wasm")
	return errors.Join(assemble(ctx, o.dir, s.nothing), assemble(ctx, o.dir, s.floor))
}

// assemble builds a module from the text with the same name.
func assemble(ctx context.Context, dir, module string) error {
	dir = filepath.Join(dir, "envoy")
	tool := filepath.Join(dir, "node_modules", ".bin", "wat2wasm")
	if _, err := os.Stat(tool); err != nil {
		return fmt.Errorf("the assembler of the floor: %w: run make bench/envoy/node_modules", err)
	}
	text := filepath.Join(dir, strings.TrimSuffix(filepath.Base(module), ".wasm")+".wat")
	if said, err := exec.CommandContext(ctx, tool, text, "-o", module).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", text, err, said)
	}
	return nil
}

// compile makes the dynamic module that is no Weir.
func compile(ctx context.Context, dir, module string) error {
	source := filepath.Join(dir, "envoy", "module", "module.c")
	if said, err := exec.CommandContext(ctx, "gcc", "-O2", "-shared", "-fPIC", "-I", filepath.Join(dir, "..", "native"), source, "-o", module).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", source, err, said)
	}
	return nil
}

// serveUpstream answers every request with a few bytes, or with events.
func serveUpstream() (port int, end func(), err error) {
	l, err := net.Listen("tcp", address(0))
	if err != nil {
		return 0, nil, err
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
	group.Go(func() {
		// Serve returns an error when the server is closed.
		_ = server.Serve(l)
	})
	return portOf(l), func() {
		_ = server.Close() // everything is measured
		group.Wait()
	}, nil
}

// The parts of a language model's stream.
const (
	oneEvent = `data: {"id":"chatcmpl-123","object":"chat.completion.chunk","created":1694268190,"model":"some","choices":[{"index":0,"delta":{"content":" word"},"finish_reason":null}],"usage":null}` + "\n\n"
	// lastEvents have the cost of a stream.
	lastEvents  = `data: {"id":"chatcmpl-123","object":"chat.completion.chunk","created":1694268190,"model":"some","choices":[],"usage":{"total_tokens":5600}}` + "\n\ndata: [DONE]\n\n"
	eventsBytes = 1 << 20
)

// pieceBytes is how much of a stream is sent at once. Envoy reads the same at once, so a slow
// filter does not make it read less often.
const pieceBytes = 16 << 10

// stream sends events with at least size bytes.
func stream(w http.ResponseWriter, size int) {
	w.Header().Set("content-type", "text/event-stream")
	piece := strings.Repeat(oneEvent, max(1, min(size, pieceBytes)/len(oneEvent)))
	for sent := 0; sent < size; sent += len(piece) {
		_, _ = io.WriteString(w, piece)
		_ = http.NewResponseController(w).Flush()
	}
}

// startWeir starts the plugin's backend.
func (s *site) startWeir(ctx context.Context, o *options) error {
	return s.startBackend(ctx, o, weirServe, "memory")
}

func (s *site) startWeirOnRedis(ctx context.Context, o *options) error {
	return s.startBackend(ctx, o, weirServeOnRedis, "redis://"+address(s.services[redisServer].port))
}

func (s *site) startBackend(ctx context.Context, o *options, name, store string) error {
	ports, err := freePorts(1)
	if err != nil {
		return err
	}
	return s.start(ctx, name, ports[0], answers(ports[0], "/healthz"), nil, o.weir, "serve", "--listen", address(ports[0]), "--store", store)
}

func (s *site) startRedis(ctx context.Context, _ *options) error {
	ports, err := freePorts(1)
	if err != nil {
		return err
	}
	return s.start(ctx, redisServer, ports[0], accepts(address(ports[0])), nil, "redis-server", "--port", strconv.Itoa(ports[0]), "--bind", host,
		"--dir", s.scratch, "--save", "", "--appendonly", "no", "--daemonize", "no")
}

func address(port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }

// startRateLimit starts Envoy's rate limit service.
func (s *site) startRateLimit(ctx context.Context, o *options) error {
	return s.startLimits(ctx, rateLimitService, o.ratelimit)
}

// startWeirRateLimit starts Weir in place of Envoy's rate limit service.
func (s *site) startWeirRateLimit(ctx context.Context, o *options) error {
	return s.startLimits(ctx, weirRateLimit, o.weir, "ratelimit")
}

// startLimits starts a rate limit service, which its environment configures.
func (s *site) startLimits(ctx context.Context, name, file string, args ...string) error {
	ports, err := freePorts(3)
	if err != nil {
		return err
	}
	grpc, health, debug := ports[0], ports[1], ports[2]
	folder := filepath.Join(s.scratch, "ratelimit", "config")
	limits := fmt.Sprintf("domain: %s\ndescriptors: [{key: user, rate_limit: {unit: minute, requests_per_unit: %d}}]\n", namespace, never)
	if err := errors.Join(os.MkdirAll(folder, 0o700), os.WriteFile(filepath.Join(folder, "bench.yaml"), []byte(limits), 0o600)); err != nil {
		return err
	}
	if file, err = filepath.Abs(file); err != nil {
		return err
	}
	return s.start(ctx, name, grpc, answers(health, "/healthcheck"), []string{
		"RUNTIME_ROOT=" + filepath.Join(s.scratch, "ratelimit"), "RUNTIME_SUBDIRECTORY=", "RUNTIME_WATCH_ROOT=false", "DISABLE_STATS=true", "LOG_LEVEL=warn",
		"HOST=" + host, "PORT=" + strconv.Itoa(health), "GRPC_HOST=" + host, "GRPC_PORT=" + strconv.Itoa(grpc),
		"DEBUG_HOST=" + host, "DEBUG_PORT=" + strconv.Itoa(debug), "REDIS_SOCKET_TYPE=tcp", "REDIS_URL=" + address(s.services[redisServer].port),
	}, append([]string{file}, args...)...)
}

// service is a process that works for an Envoy.
type service struct {
	port   int
	cmd    *exec.Cmd
	log    *bytes.Buffer
	exited chan struct{}
}

// startTimeout bounds the time until a service is ready.
const startTimeout = 30 * time.Second

// start starts a service, and returns when it is ready.
func (s *site) start(ctx context.Context, name string, port int, ready func() bool, environment []string, command ...string) error {
	p := &service{port: port, cmd: exec.CommandContext(ctx, command[0], command[1:]...), log: &bytes.Buffer{}, exited: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	p.cmd.Env = append(os.Environ(), environment...)
	if err := p.cmd.Start(); err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, install)
	}
	s.services[name] = p
	go func() {
		_ = p.cmd.Wait() // the process was killed
		close(p.exited)
	}()
	s.ends = append(s.ends, func() error {
		if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return err
		}
		<-p.exited
		return nil
	})
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for !ready() {
		select {
		case <-p.exited:
			return fmt.Errorf("%s does not start: %s\n%s", name, p.cmd.ProcessState, p.log)
		case <-ctx.Done():
			return fmt.Errorf("%s does not start: %w", name, ctx.Err())
		case <-ticker.C:
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
	url := "http://" + address(port) + path
	client := &http.Client{Timeout: time.Second}
	return func() bool {
		answer, err := client.Get(url)
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
