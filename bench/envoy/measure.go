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
	"testing"
	"time"

	"github.com/prometheus/procfs"

	"weir/bench/page"
	"weir/bench/site"
	"weir/internal/envoytest"
)

// bench measures variants.
type bench struct {
	*options
	*site.Site
	binary    envoytest.Binary
	processor string // for Envoy
	client    *http.Client
}

func measure(ctx context.Context, t testing.TB, o *options, chosen []*variant) (f *figures, err error) {
	b := &bench{options: o, client: &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}}
	if _, err := exec.LookPath("h2load"); err != nil {
		return nil, fmt.Errorf("%w: %s", err, site.Install)
	}
	if b.binary, err = binary(o.envoy); err != nil {
		return nil, err
	}
	if b.processor, err = site.Pin(ctx, o.workers); err != nil {
		return nil, err
	}
	configurations := make([]*site.Envoy, len(chosen))
	for i, v := range chosen {
		configurations[i] = &v.Envoy
	}
	if b.Site, err = site.Open(ctx, t, o.Options, configurations...); err != nil {
		return nil, err
	}
	f = &figures{options: o}
	if f.machine, err = b.machine(); err != nil {
		return nil, err
	}
	byName := map[string]*measured{}
	for _, v := range chosen {
		m := &measured{variant: v, than: byName[v.base]}
		if v.Module != "" {
			info, err := os.Stat(b.Files[v.Module])
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
		m, err := site.MemoryOf(p.envoy.PID())
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
	// requests and rate are those of the benchmark, or fewer for a variant with large answers.
	requests, rate int
}

// start starts an Envoy, records the cost of the start, and warms it up.
func (b *bench) start(ctx context.Context, m *measured) (p *proxy, err error) {
	begin := time.Now()
	e, err := b.Start(ctx, &m.Envoy, b.binary, b.processor, b.workers)
	if err != nil {
		return nil, err
	}
	took := begun{wall: time.Since(begin).Seconds()}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.Close())
		}
	}()
	if took.cpu, err = started(e.PID()); err != nil {
		return nil, err
	}
	if took.Memory, err = site.MemoryOf(e.PID()); err != nil {
		return nil, err
	}
	m.begun = append(m.begun, took)
	listeners, err := e.Listeners()
	if err != nil {
		return nil, err
	}
	p = &proxy{
		bench: b, measured: m, envoy: e, address: "http://" + listeners["http"],
		requests: max(b.requests/max(m.fewer, 1), b.connections), rate: max(b.rate/max(m.fewer, 1), 1),
	}
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
	decorated := m.Module != "" && !m.bare
	if got := answer.Header.Get("X-Ratelimit-Limit") != ""; answer.StatusCode != m.status() || got != decorated {
		return nil, fmt.Errorf("want status %d, and headers of the limit: %t, got %s with %v\n%s", m.status(), decorated, answer.Status, answer.Header, e.Log())
	}
	_, err = p.ask(ctx)
	return p, err
}

// started returns the processor time of a process's start, including threads that have ended.
func started(pid int) (seconds float64, err error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return 0, err
	}
	s, err := p.Stat()
	return s.CPUTime(), err
}

func (p *proxy) get(ctx context.Context) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.address+site.RequestPath, nil)
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
	for _, name := range p.variant.Services {
		pids = append(pids, p.Site.Services[name].PID)
	}
	return site.Micros(p.requests, pids, do)
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
	module, err := os.ReadFile(b.Plugin)
	if err != nil {
		return "", err
	}
	with := ""
	if b.Services[site.RateLimitService] != nil {
		if info, err := buildinfo.ReadFile(b.RateLimit); err == nil {
			with = ", ratelimit " + info.Main.Version
		}
	}
	return fmt.Sprintf("weir.wasm of %s B, SHA-256 %.6x…; Envoy %s%s, %s",
		page.Thousands(len(module)), sha256.Sum256(module), b.binary.Version, with, site.Machine()), nil
}
