package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"weir/bench/floor"
	"weir/bench/page"
	"weir/internal/host"
)

// wazeroScenarios are those of bench/v8/scenarios.js that are measured here.
var wazeroScenarios = []string{"allowed", "allowed, headers: []", "refused again", "no match"}

// wazeroFigures are of one scenario.
type wazeroFigures struct {
	Name  string `json:"name"`
	Title string `json:"title"`
	// Ratio is the time of the plugin's streams in times of the floor's.
	Ratio page.Spread `json:"ratio"`
	// MoreNanos is what a stream of the plugin's takes beyond one of the floor's.
	MoreNanos page.Spread `json:"more_ns"`
	Nanos     struct {
		Weir    float64 `json:"weir"`
		Floor   float64 `json:"floor"`
		Nothing float64 `json:"nothing"`
	} `json:"ns"`
	// Calls and FloorCalls are the host calls of a request by name.
	Calls      map[string]float64 `json:"calls"`
	FloorCalls map[string]float64 `json:"floor_calls"`
}

const (
	wazeroBlock  = 7 * time.Millisecond
	wazeroWarmUp = 2000 // streams
	vmID         = "bench"
	// begin is some time in 2026.
	begin = 1_795_255_200_000_000_000
)

func measureWazero(ctx context.Context, o *options, f *floor.Filters) (all []wazeroFigures, err error) {
	plugin, err := os.ReadFile(o.plugin)
	if err != nil {
		return nil, fmt.Errorf("read the plugin, which make build leaves there: %w", err)
	}
	var modules [3]*host.Module
	for i, wasm := range [][]byte{plugin, f.Floor, f.Nothing} {
		m, err := host.Compile(ctx, wasm, host.Options{})
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, m.Close(ctx)) }()
		modules[i] = m
	}
	for i := range f.Scenarios {
		s := &scenario{&f.Scenarios[i]}
		say("wazero: %s", s.Title)
		found, err := s.measure(ctx, o, modules, f.Headers)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.Name, err)
		}
		all = append(all, *found)
	}
	return all, nil
}

// scenario is one that is driven here.
type scenario struct{ *floor.Scenario }

// measure drives the plugin, the floor and the filter that does nothing in turns.
func (s *scenario) measure(ctx context.Context, o *options, modules [3]*host.Module, headers [][2]string) (*wazeroFigures, error) {
	const weir, floor, nothing = 0, 1, 2
	var drivers [3]*driver
	for i, configuration := range [][]byte{s.Configuration, s.FloorConfiguration, nil} {
		d, err := s.start(ctx, modules[i], configuration, headers)
		if err != nil {
			return nil, err
		}
		defer func() { _ = d.vm.Kill() }() // all was measured
		drivers[i] = d
	}
	if len(s.PageName) > 0 {
		if status := drivers[floor].process.SharedData(vmID).Set(string(s.PageName), make([]byte, s.PageSize), 0); status != host.StatusOK {
			return nil, fmt.Errorf("set the floor's page: %v", status)
		}
	}
	var counts [3]int
	for i, d := range drivers {
		if err := d.drive(wazeroWarmUp); err != nil {
			return nil, err
		}
		start := time.Now()
		if err := d.drive(wazeroWarmUp); err != nil {
			return nil, err
		}
		counts[i] = max(1, int(wazeroBlock*wazeroWarmUp/time.Since(start)))
	}
	f := &wazeroFigures{Name: s.Name, Title: s.Title}
	var nanos [3][]float64
	rounds := 8 * o.rounds // they are short
	for round := range rounds {
		for i := range drivers {
			// Another one begins each round, so that nobody always comes after the same.
			at := (i + round) % len(drivers)
			start := time.Now()
			if err := drivers[at].drive(counts[at]); err != nil {
				return nil, err
			}
			nanos[at] = append(nanos[at], float64(time.Since(start).Nanoseconds())/float64(counts[at]))
		}
		for _, d := range drivers {
			if err := d.vm.Tick(d.root); err != nil {
				return nil, err
			}
		}
	}
	for i, refused := range [3]bool{weir: s.Refused, floor: s.Refused} {
		if d := drivers[i]; refused && d.replies < d.streams-1 || !refused && d.replies > 0 {
			return nil, fmt.Errorf("%d of %d requests were refused", d.replies, d.streams)
		}
	}
	f.Ratio, f.MoreNanos = ratio(nanos[weir], nanos[floor]), difference(nanos[weir], nanos[floor])
	f.Nanos.Weir, f.Nanos.Floor, f.Nanos.Nothing = page.Median(nanos[weir]), page.Median(nanos[floor]), page.Median(nanos[nothing])
	var err error
	if f.Calls, err = drivers[weir].calls(); err != nil {
		return nil, err
	}
	f.FloorCalls, err = drivers[floor].calls()
	return f, err
}

// driver drives streams through a VM.
type driver struct {
	process  *host.Process
	vm       *host.VM
	root     *host.Root
	info     host.StreamInfo
	request  *host.Headers
	response *host.Headers
	now      int64
	step     int64
	streams  int
	replies  int
}

func (s *scenario) start(ctx context.Context, module *host.Module, configuration []byte, headers [][2]string) (_ *driver, err error) {
	d := &driver{
		info: host.StreamInfo{Source: "203.0.113.7:1234"}, request: host.NewHeaders(), response: host.NewHeaders(":status", "200"),
		now: begin, step: s.StepNanos,
	}
	for _, h := range headers {
		d.request.Add(h[0], h[1])
	}
	d.process = host.NewProcess(host.ProcessConfig{Clock: func() int64 { return d.now }})
	// The same numbers in each run, so that keys fall on the same pages.
	random := rand.NewChaCha8([32]byte{1})
	if d.vm, err = d.process.NewVM(ctx, module, host.VMConfig{ID: vmID, Rand: random}); err != nil {
		return nil, err
	}
	if d.root, err = d.vm.NewRoot(host.Plugin{Name: "bench", Configuration: configuration}); err != nil {
		return nil, errors.Join(err, d.vm.Kill())
	}
	return d, nil
}

// drive drives so many streams to their ends. They share the response's headers: what the filter
// sets there is already there, which saves the host time.
func (d *driver) drive(count int) error {
	for range count {
		d.now += d.step
		s, err := d.root.NewStream(d.info)
		if err != nil {
			return err
		}
		if _, err = s.RequestHeaders(d.request, true); err == nil && s.LocalReply() == nil {
			_, err = s.ResponseHeaders(d.response, false)
		}
		if err != nil {
			return err
		}
		if s.LocalReply() != nil {
			d.replies++
		}
		s.Close()
	}
	d.streams += count
	return nil
}

// calls counts the host calls of an average stream by name.
func (d *driver) calls() (map[string]float64, error) {
	const sample = 1000
	before := d.vm.HostCalls()
	if err := d.drive(sample); err != nil {
		return nil, err
	}
	counts := map[string]float64{}
	for name, n := range d.vm.HostCalls() {
		if n -= before[name]; n > 0 {
			counts[name] = float64(n) / sample
		}
	}
	return counts, nil
}
