// Command fleet measures what a fleet of 10 to 10,000 proxies costs its clients and its backend: how many requests wait and
// for how long, how many are refused falsely or pass above a limit, and how many pushes and bytes the backend gets. It runs
// the plugin's own engine on simulated nodes, and the backend's own store behind a simulated network, under a virtual
// clock. It prints tables, and updates README.md in its folder.
//
// TestReal measures real nodes against a real weir serve.
package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"

	"weir/bench/page"
	"weir/internal/counter"
	"weir/internal/sim"
	"weir/window"
)

func main() {
	page.Main("fleet", run)
}

func run(context.Context) error {
	busy, errBusy := busyTable(fleets())
	idle, errIdle := idleTable(idleFleets())
	small, errSmall := tables(smallFleets(), smallIdle())
	if err := errors.Join(errBusy, errIdle, errSmall); err != nil {
		return err
	}
	fmt.Print(busy, idle)
	return page.KeepStudy("fleet", small, map[string]string{"busy": busy, "idle": idle})
}

func tables(busy []fleet, idle []idleFleet) (string, error) {
	first, errFirst := busyTable(busy)
	second, errSecond := idleTable(idle)
	return first + second, errors.Join(errFirst, errSecond)
}

// usual returns the fleet from which others differ in a few things: its limits are far from nearly
// all keys.
func usual() fleet {
	return fleet{
		nodes: 300, perNode: 10, keys: 20_000, skew: 1.2, limit: 100_000, width: 60 * sim.Minute, rate: sim.Second, network: sim.Near,
		warm: 20 * sim.Second, span: 10 * sim.Second,
	}
}

// fleets returns the rows of the table.
func fleets() (all []fleet) {
	add := func(change func(f *fleet)) {
		f := usual()
		change(&f)
		all = append(all, f)
	}
	// A few proxies and many users.
	for _, nodes := range []int{1, 3} {
		add(func(f *fleet) {
			f.nodes, f.perNode, f.keys, f.skew, f.limit, f.width = nodes, 1000, 100_000, 0, 1000, sim.Minute
		})
	}
	for _, nodes := range []int{10, 100, 300, 1000, 3000} {
		add(func(f *fleet) { f.nodes = nodes })
	}
	add(func(f *fleet) { f.nodes, f.perNode = 10_000, 1 })
	for _, keys := range []int{100, 1_000_000} {
		add(func(f *fleet) { f.keys = keys })
	}
	add(func(f *fleet) { f.skew = 0 })
	// The hottest keys have more requests than these limits. The end of the minute is measured.
	for _, limit := range []uint64{100, 1000, 10_000} {
		for _, nodes := range []int{30, 300} {
			add(func(f *fleet) { f.nodes, f.limit, f.width, f.span = nodes, limit, sim.Minute, 45*sim.Second })
		}
	}
	add(func(f *fleet) { f.network = sim.Network{Trip: 75 * sim.Millisecond} })
	return all
}

// smallFleets returns a part of the rows that takes a second or two.
func smallFleets() (all []fleet) {
	for _, nodes := range []int{10, 50} {
		f := usual()
		f.nodes, f.keys = nodes, 2000
		all = append(all, f)
		f.limit, f.width = 1000, 25*sim.Second
		all = append(all, f)
	}
	return all
}

// idleFleet is nodes without requests.
type idleFleet struct {
	nodes, workers int
	rate           int64
}

// Idle nodes are measured for idleSpan, after idleWarm.
const idleSpan, idleWarm = 2 * sim.Minute, sim.Minute

func idleFleets() (all []idleFleet) {
	for _, nodes := range []int{10, 1000} {
		all = append(all, idleFleet{nodes, 1, sim.Second})
	}
	return append(all, idleFleet{100, 8, sim.Second}, idleFleet{100, 2, sim.Second / 5}, idleFleet{100, 2, 5 * sim.Second})
}

func smallIdle() []idleFleet { return []idleFleet{{10, 2, sim.Second}} }

func (f *idleFleet) measure() (load sim.Load, err error) {
	w, err := sim.New(sim.Options{
		Overrides: true, Seed: seed, Places: f.nodes, Workers: f.workers, Network: sim.Near, Capacity: 1024, SyncRate: f.rate,
		Limit: window.Limit{Shape: window.Shape{Kind: window.SlidingWindow, Width: sim.Minute}, Max: 1000},
	})
	if err != nil {
		return load, err
	}
	w.Advance(sim.Monday + idleWarm)
	before := w.Backend.Load
	w.Advance(sim.Monday + idleWarm + idleSpan)
	return w.Backend.Minus(before), errors.Join(w.Failure(), w.NobodyWaits())
}

func idleTable(fleets []idleFleet) (string, error) {
	rows := []string{"idle nodes\tworkers\tsync_rate\tpushes a second\tof each node\tbytes up a push\tdown"}
	for i := range fleets {
		f := &fleets[i]
		load, err := f.measure()
		if err != nil {
			return "", fmt.Errorf("%d idle nodes: %w", f.nodes, err)
		}
		second := float64(load.Pushes) * float64(sim.Second) / float64(idleSpan)
		each := float64(max(load.Pushes, 1))
		rows = append(rows, fmt.Sprintf("%d\t%d\t%.1f\t%.1f\t%.3f\t%.0f\t%.0f", f.nodes, f.workers, float64(f.rate)/float64(sim.Second), second,
			second/float64(f.nodes), float64(load.BodyBytes)/each, float64(load.AnswerBytes)/each))
	}
	return page.Table(rows...), nil
}

// fleet is nodes with requests for many keys. All nodes have the same traffic.
type fleet struct {
	nodes   int
	perNode float64 // requests per second
	keys    int
	// skew is the exponent of Zipf's law: the key of rank k has about k^-skew of the requests of
	// the hottest key. With 0 all keys have the same number.
	skew    float64
	limit   uint64 // per key, in a window of the clock
	width   int64
	rate    int64 // sync_rate
	network sim.Network
	// Only span is measured, after warm.
	warm, span int64
}

// seed makes the study come out the same every time.
const seed = 20260102

// workers are the threads of a node.
const workers = 1

func (f *fleet) of() window.Limit {
	return window.Limit{Shape: window.Shape{Kind: window.FixedWindow, Width: f.width}, Max: f.limit}
}

// requests calls bring for all requests in their order.
func (f *fleet) requests(bring func(at int64, node, worker, key int)) {
	random := rand.New(rand.NewPCG(seed, 4))
	key := func() int { return random.IntN(f.keys) }
	if f.skew > 0 {
		zipf := rand.NewZipf(random, f.skew, 1, uint64(f.keys-1))
		key = func() int { return int(zipf.Uint64()) }
	}
	gap := float64(sim.Second) / (f.perNode * float64(f.nodes))
	for at := sim.Monday + int64(random.ExpFloat64()*gap); at < f.end(); at += int64(random.ExpFloat64() * gap) {
		bring(at, random.IntN(f.nodes), random.IntN(workers), key())
	}
}

func (f *fleet) from() int64 { return sim.Monday + f.warm }

func (f *fleet) end() int64 { return f.from() + f.span }

// outcome is what became of a fleet's requests. It counts nothing before the measurement begins.
type outcome struct {
	requests, waited, falsely, above int
	// far are requests for keys that had used less than half of their limit, and farWaited those of
	// them that waited.
	far, farWaited int
	load           sim.Load
	waits          []float64 // milliseconds, of each request
}

// decided records the result of a request for a key, whose oracle has all that were admitted before.
func (out *outcome) decided(f *fleet, o *sim.Oracle, came, now int64, passed bool) {
	o.Limit.Advance(&o.State, now)
	far := o.Limit.Remaining(&o.State) > f.limit/2
	falsely, above := false, false
	if passed {
		above = o.Admit(now) > 1
	} else {
		falsely = o.Limit.Allows(&o.State, 1)
	}
	if came < f.from() {
		return
	}
	out.requests++
	out.waits = append(out.waits, float64(now-came)/float64(sim.Millisecond))
	for _, n := range []struct {
		is bool
		of *int
	}{{now > came, &out.waited}, {falsely, &out.falsely}, {above, &out.above}, {far, &out.far}, {far && now > came, &out.farWaited}} {
		if n.is {
			*n.of++
		}
	}
}

// measure runs the real engine and the real store.
func (f *fleet) measure() (out outcome, err error) {
	w, err := sim.New(sim.Options{
		Overrides: true, Seed: seed, Places: f.nodes, Workers: workers, Network: f.network, Counters: 8 * f.keys,
		Limit: f.of(), Capacity: max(1024, min(4*f.keys, 65536)), SyncRate: f.rate,
	})
	if err != nil {
		return out, err
	}
	keys, oracles := make([][]byte, f.keys), make([]*sim.Oracle, f.keys)
	for i := range keys {
		keys[i] = counter.AppendPart(counter.AppendPart(nil, "user"), strconv.Itoa(i))
	}
	decided := func(r *sim.Request, passed bool) {
		if oracles[r.Number] == nil {
			oracles[r.Number] = sim.NewOracle(f.of())
		}
		out.decided(f, oracles[r.Number], r.Came, w.Now, passed)
	}
	w.Passed = func(r *sim.Request) { decided(r, true) }
	w.Refused = func(r *sim.Request, _ int64) { decided(r, false) }
	var before sim.Load
	w.At(f.from(), func() { before = w.Backend.Load })
	f.requests(func(at int64, node, worker, key int) {
		w.Advance(at)
		w.Request(node, worker, keys[key], key)
	})
	w.Advance(f.end())
	out.load = w.Backend.Minus(before)
	w.Advance(w.Now + 2*sim.Second)
	return out, errors.Join(w.Failure(), w.NobodyWaits())
}

// busyTable measures fleets with requests.
func busyTable(fleets []fleet) (string, error) {
	rows := []string{"nodes\tkeys\tskew\tlimit\tin s\ttrip, ms\twaited, of 1,000\tif far\tfalse\tabove\twait p50, ms\tp99, ms\tpushes a second\tkB up\tkB down"}
	for i := range fleets {
		f := &fleets[i]
		out, err := f.measure()
		if err != nil {
			return "", fmt.Errorf("%d nodes, %d keys, limit %d: %w", f.nodes, f.keys, f.limit, err)
		}
		per := func(n, of int) float64 { return 1000 * float64(n) / float64(max(of, 1)) }
		second := func(n int) float64 { return float64(n) * float64(sim.Second) / float64(f.span) }
		rows = append(rows, fmt.Sprintf("%d\t%d\t%.1f\t%d\t%d\t%.0f\t%.1f\t%.1f\t%.1f\t%.1f\t%.1f\t%.1f\t%.0f\t%.0f\t%.0f",
			f.nodes, f.keys, f.skew, f.limit, f.width/sim.Second, float64(2*f.network.Trip)/float64(sim.Millisecond),
			per(out.waited, out.requests), per(out.farWaited, out.far), per(out.falsely, out.requests), per(out.above, out.requests),
			page.Quantile(out.waits, 0.5), page.Quantile(out.waits, 0.99),
			second(out.load.Pushes), second(out.load.BodyBytes)/1e3, second(out.load.AnswerBytes)/1e3))
	}
	return page.Table(rows...), nil
}
