package main

import (
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"time"

	"github.com/prometheus/procfs"

	"weir/bench/page"
	"weir/internal/envoytest"
)

// bench measures variants.
type bench struct {
	o         *options
	s         *site
	fs        procfs.FS
	binary    envoytest.Binary
	processor string // for Envoy
	client    *http.Client
}

func measure(ctx context.Context, o *options, chosen []*variant) (f *figures, err error) {
	b := &bench{o: o, client: &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}}
	if _, err := exec.LookPath("h2load"); err != nil {
		return nil, fmt.Errorf("%w: %s", err, install)
	}
	if b.binary, err = binary(o.envoy); err != nil {
		return nil, err
	}
	if b.fs, err = procfs.NewDefaultFS(); err != nil {
		return nil, fmt.Errorf("processor time, which /proc tells on Linux: %w", err)
	}
	if b.processor, err = pin(ctx, b.fs, o.workers); err != nil {
		return nil, err
	}
	if b.s, err = openSite(ctx, o, chosen); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.s.close()) }()
	machine, err := b.machine()
	if err != nil {
		return nil, err
	}
	f = &figures{Machine: machine, Requests: o.requests, Rounds: o.rounds, Processes: o.processes, Connections: o.connections, Rate: o.rate, Streams: o.streams}
	for _, v := range chosen {
		m := &measured{Name: v.name, Title: v.title, Base: v.base, Wasm: v.wasm != nil, services: v.services, streams: v.streams}
		if m.Wasm {
			info, err := os.Stat(v.wasm(b.s))
			if err != nil {
				return nil, err
			}
			m.ModuleBytes = info.Size()
		}
		f.Variants = append(f.Variants, m)
	}
	for process := range o.processes {
		say("processes %d of %d", process+1, o.processes)
		if err := b.measureProcesses(ctx, process, chosen, f); err != nil {
			return nil, err
		}
	}
	return f, f.summarize()
}

// measureProcesses starts a process of each variant, and measures all of them in each round.
func (b *bench) measureProcesses(ctx context.Context, process int, chosen []*variant, f *figures) (err error) {
	proxies := make([]*proxy, len(chosen))
	for i, v := range chosen {
		p, err := b.start(ctx, v, f.Variants[i])
		if err != nil {
			return fmt.Errorf("%s: %w", v.title, err)
		}
		defer func() { err = errors.Join(err, p.envoy.Close()) }()
		proxies[i] = p
	}
	for _, m := range f.Variants {
		m.samples = append(m.samples, nil)
	}
	for round := range b.o.rounds {
		for i := range proxies {
			// Each round begins with another variant, so that none always follows the same.
			at := (i + round) % len(proxies)
			s, err := proxies[at].ask(ctx, proxies[at].requests())
			if err != nil {
				return fmt.Errorf("%s: %w", chosen[at].title, err)
			}
			m := f.Variants[at]
			m.samples[process] = append(m.samples[process], s)
		}
	}
	for i, p := range proxies {
		if err := p.finish(ctx, f.Variants[i]); err != nil {
			return fmt.Errorf("%s: %w", chosen[i].title, err)
		}
		if err := p.check(ctx); err != nil {
			return fmt.Errorf("%s: %w", chosen[i].title, err)
		}
		m, err := memoryOf(b.fs, p.envoy.PID())
		if err != nil {
			return err
		}
		f.Variants[i].loaded = append(f.Variants[i].loaded, m)
	}
	return nil
}

// proxy is a process of a variant.
type proxy struct {
	*bench
	variant *variant
	envoy   *envoytest.Envoy
	address string
	url     string
	sent    int64
}

// start starts an Envoy, records the cost of the start, and warms it up.
func (b *bench) start(ctx context.Context, v *variant, m *measured) (p *proxy, err error) {
	bootstrap, err := v.bootstrap(b.s)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(b.s.scratch, v.name+"-")
	if err != nil {
		return nil, err
	}
	begin := time.Now()
	e, err := envoytest.Start(ctx, envoytest.Options{Binary: b.binary, Dir: dir, Bootstrap: bootstrap, Workers: b.o.workers, Prefix: []string{"taskset", "-c", b.processor}})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.Close())
		}
	}()
	took := begun{wall: time.Since(begin).Seconds()}
	took.cpu, err = started(b.fs, e.PID())
	if err != nil {
		return nil, err
	}
	if took.memory, err = memoryOf(b.fs, e.PID()); err != nil {
		return nil, err
	}
	m.begun = append(m.begun, took)
	listeners, err := e.Listeners()
	if err != nil {
		return nil, err
	}
	p = &proxy{bench: b, variant: v, envoy: e, address: "http://" + listeners["http"]}
	if p.url = p.address + requestPath; v.streams {
		p.url = p.address + eventsPath
	}
	// For variants that refuse, the first request uses up the limit.
	if _, err := p.get(ctx); err != nil {
		return nil, err
	}
	answer, err := p.get(ctx)
	if err != nil {
		return nil, err
	}
	if decorated := answer.Header.Get("X-Ratelimit-Limit") != ""; answer.StatusCode != v.status || decorated != v.decorated {
		return nil, fmt.Errorf("want status %d, and headers of the limit: %t, got %s with %v\n%s", v.status, v.decorated, answer.Status, answer.Header, e.Log())
	}
	_, err = p.ask(ctx, p.requests())
	return p, err
}

// streamShare is how many other requests a request with a megabyte of answer stands for.
const streamShare = 50

// requests returns how many requests are measured at a time.
func (p *proxy) requests() int {
	if p.variant.streams {
		return max(p.o.connections, p.o.requests/streamShare)
	}
	return p.o.requests
}

// finish takes the measurements that each process needs once.
func (p *proxy) finish(ctx context.Context, m *measured) error {
	if p.variant.streams {
		held, err := p.hold(ctx)
		m.held = append(m.held, held)
		return err
	}
	l, err := p.wait(ctx)
	m.latencies = append(m.latencies, l)
	return err
}

// hold measures the additional memory of its own that the process has for each open stream, in KiB.
func (p *proxy) hold(ctx context.Context) (each float64, err error) {
	before, err := memoryOf(p.fs, p.envoy.PID())
	if err != nil {
		return 0, err
	}
	var open []io.Closer
	defer func() {
		for _, body := range open {
			err = errors.Join(err, body.Close())
		}
	}()
	for range p.o.streams {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.address+heldPath, nil)
		if err != nil {
			return 0, err
		}
		for _, h := range slices.Concat(requestHeaders, p.variant.headers) {
			request.Header.Set(h[0], h[1])
		}
		answer, err := p.client.Do(request)
		if err != nil {
			return 0, err
		}
		open = append(open, answer.Body)
		if _, err := io.ReadFull(answer.Body, make([]byte, len(oneEvent))); err != nil {
			return 0, err
		}
	}
	after, err := memoryOf(p.fs, p.envoy.PID())
	return 1024 * (after.own - before.own) / float64(p.o.streams), err
}

func (p *proxy) get(ctx context.Context) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url, nil)
	if err != nil {
		return nil, err
	}
	for _, h := range slices.Concat(requestHeaders, p.variant.headers) {
		request.Header.Set(h[0], h[1])
	}
	p.sent++
	answer, err := p.client.Do(request)
	if err != nil {
		return nil, err
	}
	return answer, answer.Body.Close()
}

// Before requests are measured, their number divided by leadIn is sent. While others were asked,
// other data filled the processor's caches, and the plugin gave back its leased hits.
const leadIn = 8

// ask sends requests, and measures their cost.
func (p *proxy) ask(ctx context.Context, requests int) (s sample, err error) {
	if _, err := p.send(ctx, max(min(p.o.connections, requests), requests/leadIn)); err != nil {
		return s, err
	}
	before, err := p.used()
	if err != nil {
		return s, err
	}
	elapsed, err := p.send(ctx, requests)
	if err != nil {
		return s, err
	}
	after, err := p.used()
	if err != nil {
		return s, err
	}
	micros := func(i int) float64 { return float64((after[i] - before[i]).Nanoseconds()) / 1000 / float64(requests) }
	s = sample{envoy: micros(0), busy: float64(after[0]-before[0]) / float64(elapsed)}
	for i := range p.variant.services {
		s.services = append(s.services, micros(i+1))
	}
	return s, nil
}

// wait measures how long clients wait for answers, and the cost of requests, at a rate at which all
// variants have time to spare.
func (p *proxy) wait(ctx context.Context) (l latency, err error) {
	if _, err := p.send(ctx, max(p.o.connections, p.o.requests/leadIn)); err != nil {
		return l, err
	}
	before, err := p.used()
	if err != nil {
		return l, err
	}
	p.sent += int64(p.o.requests)
	took, err := paced(ctx, p.url, p.o.requests, p.o.connections, p.o.rate, p.variant, p.s.scratch)
	if err != nil {
		return l, err
	}
	after, err := p.used()
	if err != nil {
		return l, err
	}
	at := func(share float64) float64 { return took[min(int(share*float64(len(took))), len(took)-1)] }
	return latency{at(0.5), at(0.99), at(0.999), float64((after[0] - before[0]).Nanoseconds()) / 1000 / float64(p.o.requests)}, nil
}

func (p *proxy) send(ctx context.Context, requests int) (time.Duration, error) {
	p.sent += int64(requests)
	return load(ctx, p.url, requests, p.o.connections, p.variant)
}

// used returns the processor time of Envoy so far, and then that of each of its services.
func (p *proxy) used() ([]time.Duration, error) {
	pids := []int{p.envoy.PID()}
	for _, name := range p.variant.services {
		pids = append(pids, p.s.services[name].cmd.Process.Pid)
	}
	all := make([]time.Duration, len(pids))
	for i, pid := range pids {
		var err error
		if all[i], err = ran(p.fs, pid); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// countTimeout is longer than plugins take to publish their counters.
const countTimeout = 10 * time.Second

// check returns an error unless the requests were handled as the variant intends.
func (p *proxy) check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, countTimeout)
	defer cancel()
	for _, c := range []struct {
		name  string
		least int64
	}{{p.variant.counted, p.sent - 1}, {p.variant.called, 1}} {
		if c.name == "" {
			continue
		}
		var last int64
		if err := p.envoy.Wait(ctx, func() (_ bool, err error) {
			last, err = p.envoy.Stat(c.name)
			return last >= c.least, err
		}); err != nil {
			return fmt.Errorf("%s: want %d at least, got %d: %w", c.name, c.least, last, err)
		}
	}
	return nil
}

// machine describes the machine and the software.
func (b *bench) machine() (machine, error) {
	module, err := os.ReadFile(b.o.plugin)
	if err != nil {
		return machine{}, err
	}
	m := machine{
		Plugin: fmt.Sprintf("%s B, SHA-256 %.6x…", page.Thousands(float64(len(module))), sha256.Sum256(module)),
		Envoy:  b.binary.Version, Architecture: runtime.GOARCH, Processors: runtime.NumCPU(),
	}
	if all, err := b.fs.CPUInfo(); err == nil && len(all) > 0 {
		m.Processor = all[0].ModelName
	}
	if b.s.services[rateLimitService] != nil {
		if info, err := buildinfo.ReadFile(b.o.ratelimit); err == nil {
			m.RateLimit = info.Main.Version
		}
	}
	return m, nil
}
