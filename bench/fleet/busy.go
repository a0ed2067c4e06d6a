package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"

	"weir/bench/page"
	"weir/internal/counter"
	"weir/internal/sim"
	"weir/window"
)

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
