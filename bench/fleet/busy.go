package main

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"strings"

	"weir/bench/sim"
	"weir/internal/counter"
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

// requests calls bring for all requests in their order. The measurement begins with the time from,
// which is passed once.
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

// outcome is the result of a way of limiting for a fleet's requests.
type outcome struct {
	requests, waited, falsely, above int
	// far are requests for keys that had used less than half of their limit, and farWaited those of
	// them that waited.
	far, farWaited            int
	calls, bytesUp, bytesDown int
	waits                     waits
}

// waits[i] is how many requests waited for i tenths of a millisecond.
type waits [1 << 13]int

func (w *waits) add(nanos int64) { w[min(nanos/(sim.Millisecond/10), int64(len(w)-1))]++ }

// quantile returns the longest wait in a part of the requests, in milliseconds.
func (w *waits) quantile(part float64) float64 {
	all := 0
	for _, n := range w {
		all += n
	}
	for i, sum := 0, 0; i < len(w); i++ {
		if sum += w[i]; float64(sum) >= part*float64(all) {
			return float64(i) / 10
		}
	}
	return 0
}

// judge observes the requests that a way admits and refuses. It counts nothing before the
// measurement begins.
type judge struct {
	fleet   *fleet
	oracles []*sim.Oracle
	out     outcome
}

func (f *fleet) judge() *judge { return &judge{fleet: f, oracles: make([]*sim.Oracle, f.keys)} }

func (j *judge) of(key int) *sim.Oracle {
	if j.oracles[key] == nil {
		j.oracles[key] = sim.NewOracle(j.fleet.of())
	}
	return j.oracles[key]
}

// decided records the result of a request.
func (j *judge) decided(key int, came, now int64, passed bool) {
	o, counts := j.of(key), came >= j.fleet.from()
	o.Limit.Advance(&o.State, now)
	far := o.Limit.Remaining(&o.State) > j.fleet.limit/2
	falsely, above := false, false
	if passed {
		above = o.Admit(now) > 1
	} else {
		falsely = o.Limit.Allows(&o.State, 1)
	}
	if !counts {
		return
	}
	j.out.requests++
	j.out.waits.add(now - came)
	for _, n := range []struct {
		is bool
		of *int
	}{
		{now > came, &j.out.waited}, {falsely, &j.out.falsely}, {above, &j.out.above},
		{far, &j.out.far}, {far && now > came, &j.out.farWaited},
	} {
		if n.is {
			*n.of++
		}
	}
}

// weir runs the real engine and the real store.
func (f *fleet) weir() (outcome, error) {
	w, err := sim.New(sim.Options{
		Overrides: true, Seed: seed, Places: f.nodes, Workers: workers, Network: f.network, Counters: 8 * f.keys,
		Limit: f.of(), Capacity: max(1024, min(4*f.keys, 65536)), SyncRate: f.rate,
	})
	if err != nil {
		return outcome{}, err
	}
	j := f.judge()
	w.Passed = func(r *sim.Request) { j.decided(r.Number, r.Came, w.Now, true) }
	w.Refused = func(r *sim.Request, _ int64) { j.decided(r.Number, r.Came, w.Now, false) }
	var before sim.Load
	w.At(f.from(), func() { before = w.Backend.Load })
	keys := make([][]byte, f.keys)
	for i := range keys {
		keys[i] = counter.AppendPart(counter.AppendPart(nil, "user"), strconv.Itoa(i))
	}
	f.requests(func(at int64, node, worker, key int) {
		w.Advance(at)
		w.Request(node, worker, keys[key], key)
	})
	w.Advance(f.end())
	load := w.Backend.Minus(before)
	j.out.calls, j.out.bytesUp, j.out.bytesDown = load.Pushes, load.BodyBytes, load.AnswerBytes
	w.Advance(w.Now + 2*sim.Second)
	return j.out, errors.Join(w.Failure(), w.NobodyWaits())
}

// perRequest is a service that is asked about every request, like the service of Envoy's global
// rate limit filter. It decides requests in the order of their arrival.
func (f *fleet) perRequest() outcome {
	j, l := f.judge(), f.of()
	states := make([]window.State, f.keys)
	c := sim.Clock{Now: sim.Monday}
	random := rand.New(rand.NewPCG(seed, 3))
	f.requests(func(at int64, _, _, key int) {
		c.Advance(at)
		allowed := false
		f.network.Carry(&c, random, sim.Minute, func() {
			s := &states[key]
			if l.Advance(s, c.Now); l.Allows(s, 1) {
				l.Count(s, 1)
				allowed = true
			}
		}, func(bool) { j.decided(key, at, c.Now, allowed) })
		if at >= f.from() {
			j.out.calls++
		}
	})
	c.Advance(f.end() + sim.Minute)
	return j.out
}

// busyTable measures fleets with requests. It prints each row as soon as it is measured.
func busyTable(out io.Writer, fleets []fleet) (string, error) {
	var b strings.Builder
	to := io.MultiWriter(&b, out)
	fmt.Fprint(to, "                                                 Weir, of 1,000 requests                         waits, ms       a second at the backend     "+
		"each request asks   periodic sync, of 1,000 requests\n")
	fmt.Fprint(to, " nodes     keys  skew   limit in s  trip, ms    waited   if far   false   above       p50     p99    pushes   kB up  kB down"+
		"     asks  p50, ms      false   above  pushes a second\n")
	for i := range fleets {
		f := &fleets[i]
		weir, err := f.weir()
		if err != nil {
			return b.String(), fmt.Errorf("%d nodes, %d keys, limit %d: %w", f.nodes, f.keys, f.limit, err)
		}
		asks, periodic := f.perRequest(), f.periodic()
		per := func(o *outcome, n int) float64 { return 1000 * float64(n) / float64(max(o.requests, 1)) }
		second := func(n int) float64 { return float64(n) * float64(sim.Second) / float64(f.span) }
		fmt.Fprintf(to, "%6d %8d %5.1f %7d %4d %9.0f %9.1f %8.1f %7.1f %7.1f %9.1f %7.1f %9.0f %7.0f %8.0f %8.0f %8.1f %10.1f %7.1f %16.0f\n",
			f.nodes, f.keys, f.skew, f.limit, f.width/sim.Second, float64(2*f.network.Trip)/float64(sim.Millisecond),
			per(&weir, weir.waited), 1000*float64(weir.farWaited)/float64(max(weir.far, 1)), per(&weir, weir.falsely), per(&weir, weir.above), weir.waits.quantile(0.5), weir.waits.quantile(0.99),
			second(weir.calls), second(weir.bytesUp)/1e3, second(weir.bytesDown)/1e3,
			second(asks.calls), asks.waits.quantile(0.5),
			per(&periodic, periodic.falsely), per(&periodic, periodic.above), second(periodic.calls))
	}
	return b.String(), nil
}
