package main

import (
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"github.com/prometheus/procfs"

	"weir/bench/page"
	"weir/internal/envoytest"
)

// bench measures variants.
type bench struct {
	*options
	*site
	fs        procfs.FS
	binary    envoytest.Binary
	processor string // for Envoy
	client    *http.Client
}

func measure(ctx context.Context, t testing.TB, o *options, chosen []*variant) (f *figures, err error) {
	b := &bench{options: o, client: &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}}
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
	if b.site, err = openSite(ctx, t, o, chosen); err != nil {
		return nil, err
	}
	f = &figures{options: o}
	if f.machine, err = b.machine(); err != nil {
		return nil, err
	}
	byName := map[string]*measured{}
	for _, v := range chosen {
		m := &measured{variant: v, than: byName[v.base]}
		if v.module != "" {
			info, err := os.Stat(b.files[v.module])
			if err != nil {
				return nil, err
			}
			m.bytes = info.Size()
		}
		f.variants, byName[v.name] = append(f.variants, m), m
	}
	for process := range o.processes {
		say("processes %d of %d", process+1, o.processes)
		if err := b.measureProcesses(ctx, process, f.variants); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// measureProcesses starts a process of each variant, and measures all of them in each round.
func (b *bench) measureProcesses(ctx context.Context, process int, all []*measured) (err error) {
	proxies := make([]*proxy, len(all))
	for i, m := range all {
		p, err := b.start(ctx, m)
		if err != nil {
			return fmt.Errorf("%s: %w", m.title, err)
		}
		defer func() { err = errors.Join(err, p.envoy.Close()) }()
		m.samples, proxies[i] = append(m.samples, nil), p
	}
	for round := range b.rounds {
		for i := range proxies {
			// Each round begins with another variant, so that none always follows the same.
			p := proxies[(i+round)%len(proxies)]
			s, err := p.ask(ctx)
			if err != nil {
				return fmt.Errorf("%s: %w", p.title, err)
			}
			p.samples[process] = append(p.samples[process], s)
		}
	}
	for _, p := range proxies {
		if err := errors.Join(p.wait(ctx), p.check(ctx)); err != nil {
			return fmt.Errorf("%s: %w", p.title, err)
		}
		m, err := memoryOf(b.fs, p.envoy.PID())
		if err != nil {
			return err
		}
		p.loaded = append(p.loaded, m)
	}
	return nil
}

// proxy is a process of a variant.
type proxy struct {
	*bench
	*measured
	envoy   *envoytest.Envoy
	address string
	sent    int // requests
}

// start starts an Envoy, records the cost of the start, and warms it up.
func (b *bench) start(ctx context.Context, m *measured) (p *proxy, err error) {
	bootstrap, err := m.bootstrap(b.site)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(b.scratch, m.name+"-")
	if err != nil {
		return nil, err
	}
	begin := time.Now()
	e, err := envoytest.Start(ctx, envoytest.Options{Binary: b.binary, Dir: dir, Bootstrap: bootstrap, Workers: b.workers, Prefix: []string{"taskset", "-c", b.processor}})
	if err != nil {
		return nil, err
	}
	took := begun{wall: time.Since(begin).Seconds()}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.Close())
		}
	}()
	if took.cpu, err = started(b.fs, e.PID()); err != nil {
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
	p = &proxy{bench: b, measured: m, envoy: e, address: "http://" + listeners["http"]}
	// For variants that refuse, the first request uses up the limit.
	var answer *http.Response
	for range 2 {
		if answer, err = p.get(ctx); err != nil {
			return nil, err
		}
		if err = answer.Body.Close(); err != nil {
			return nil, err
		}
		p.sent++
	}
	decorated := m.module != "" && !m.bare
	if got := answer.Header.Get("X-Ratelimit-Limit") != ""; answer.StatusCode != m.status() || got != decorated {
		return nil, fmt.Errorf("want status %d, and headers of the limit: %t, got %s with %v\n%s", m.status(), decorated, answer.Status, answer.Header, e.Log())
	}
	_, err = p.ask(ctx)
	return p, err
}

func (p *proxy) get(ctx context.Context) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.address+requestPath, nil)
	if err != nil {
		return nil, err
	}
	for _, h := range requestHeaders {
		request.Header.Set(h[0], h[1])
	}
	return p.client.Do(request)
}

// Before requests are measured, their number divided by leadIn is sent. While others were asked, other data filled the
// processor's caches, and the plugin gave back its leased hits.
const leadIn = 8

// during returns the processor time of Envoy, and then that of each of its services, in µs for each of the requests that
// do sends.
func (p *proxy) during(ctx context.Context, do func() error) (micros []float64, err error) {
	if _, err := p.load(ctx, max(min(p.connections, p.requests), p.requests/leadIn)); err != nil {
		return nil, err
	}
	pids := []int{p.envoy.PID()}
	for _, name := range p.variant.services {
		pids = append(pids, p.site.services[name].pid)
	}
	micros = make([]float64, len(pids))
	add := func(times float64) error {
		for i, pid := range pids {
			used, err := ran(p.fs, pid)
			if err != nil {
				return err
			}
			micros[i] += times * float64(used.Nanoseconds()) / 1000 / float64(p.requests)
		}
		return nil
	}
	return micros, errors.Join(add(-1), do(), add(1))
}

// ask sends requests, and measures their cost.
func (p *proxy) ask(ctx context.Context) (sample, error) {
	var elapsed time.Duration
	micros, err := p.during(ctx, func() (err error) {
		elapsed, err = p.load(ctx, p.requests)
		return err
	})
	if err != nil {
		return sample{}, err
	}
	return sample{envoy: micros[0], services: micros[1:], busy: micros[0] * float64(p.requests) * 1000 / float64(elapsed)}, nil
}

// wait measures how long clients wait for answers, and the cost of requests, at a rate at which all variants have time to
// spare.
func (p *proxy) wait(ctx context.Context) error {
	var took []float64
	micros, err := p.during(ctx, func() (err error) {
		took, err = p.loadPaced(ctx)
		return err
	})
	if err != nil {
		return err
	}
	at := func(share float64) float64 { return took[min(int(share*float64(len(took))), len(took)-1)] }
	p.paced = append(p.paced, latency{at(0.5), at(0.99), at(0.999), micros[0]})
	return nil
}

// countTimeout is longer than plugins take to publish their counters.
const countTimeout = 10 * time.Second

// check returns an error unless the requests were handled as the variant intends.
func (p *proxy) check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, countTimeout)
	defer cancel()
	for name, least := range map[string]int64{p.counted: int64(p.sent - 1), p.called(): 1} {
		var last int64
		if err := p.envoy.Wait(ctx, func() (_ bool, err error) {
			if name == "" {
				return true, nil
			}
			last, err = p.envoy.Stat(name)
			return last >= least, err
		}); err != nil {
			return fmt.Errorf("%s: want %d at least, got %d: %w", name, least, last, err)
		}
	}
	return nil
}

// machine describes the measured build, the software and the machine.
func (b *bench) machine() (string, error) {
	module, err := os.ReadFile(b.plugin)
	if err != nil {
		return "", err
	}
	with, processor := "", ""
	if b.services[rateLimitService] != nil {
		if info, err := buildinfo.ReadFile(b.ratelimit); err == nil {
			with = ", ratelimit " + info.Main.Version
		}
	}
	if all, err := b.fs.CPUInfo(); err == nil && len(all) > 0 {
		processor = all[0].ModelName
	}
	return fmt.Sprintf("weir.wasm of %s B, SHA-256 %.6x…; Envoy %s%s, %s, %d processors",
		page.Thousands(len(module)), sha256.Sum256(module), b.binary.Version, with, processor, runtime.NumCPU()), nil
}
