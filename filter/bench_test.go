package filter_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir/internal/counter"
	"weir/internal/proxywasm"
	"weir/sharedata"
	"weir/window"
)

// envoyData is shared data as Envoy has it: a map under one mutex, values copied in and out, and
// one number for each write.
type envoyData struct {
	mutex sync.Mutex
	sharedata.Map
}

func (d *envoyData) Get(key, buffer []byte) (value []byte, cas uint32, found bool) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	return d.Map.Get(key, buffer)
}

func (d *envoyData) Set(key, value []byte, cas uint32) (written bool) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	return d.Map.Set(key, value, cas)
}

// decider has the parts of a worker's VM that decide on one rule.
type decider struct {
	data    *envoyData
	table   *sharedata.Table
	rule    counter.Rule
	slot    sharedata.Slot
	counter counter.Counter
	scratch []byte
	page    []byte // of the floor
	lost    int    // races
	evicted int
}

func newDecider(b *testing.B, data *envoyData, capacity int, syncRate int64) *decider {
	d := &decider{data: data, rule: counter.Rule{Interval: syncRate, Limits: []window.Limit{
		{Shape: window.Shape{Kind: window.SlidingWindow, Width: 60 * minute}, Max: 1e15 - 1},
	}}}
	d.rule.Compile()
	random := rand.New(rand.NewPCG(1, 2))
	var err error
	d.table, err = sharedata.Open(d.data, sharedata.Options{Namespace: "bench", Capacity: capacity}, random.Uint64)
	if err != nil {
		b.Fatal(err)
	}
	return d
}

// decide takes a hit of a key: get, decide, compare-and-set, until no other worker was faster.
func (d *decider) decide(key []byte, now int64) {
	address := d.table.Address(0, key)
	for ; ; d.lost++ {
		d.table.Read(&d.slot, address)
		var meta sharedata.Meta
		var written bool
		if d.counter.CountInPlace(&d.rule, d.slot.Payload(), now, 1, false) {
			meta.ExpiresNanos, meta.Use = d.counter.Worth()
			written = d.table.Rewrite(&d.slot, meta, now)
		} else {
			d.counter.Load(&d.rule, d.slot.Payload())
			if d.counter.Advance(now); !d.counter.Allows(1) {
				return
			}
			d.counter.Count(1)
			d.scratch = d.counter.Append(d.scratch[:0], now)
			meta.ExpiresNanos, meta.Use = d.counter.Worth()
			written = d.table.Write(&d.slot, d.scratch, meta, now)
		}
		if written {
			d.slot.Evicted(func([]byte) { d.evicted++ })
			return
		}
	}
}

// getAndSet gets a page of one entry and sets it again, until no other worker was faster.
func (d *decider) getAndSet() {
	d.scratch = append(d.scratch[:0], "weir:bench:page"...)
	for ; ; d.lost++ {
		page, cas, found := d.data.Get(d.scratch, d.page)
		if !found {
			page, cas = make([]byte, 41), sharedata.CreateOnly
		}
		d.page = page
		if d.data.Set(d.scratch, page, cas) {
			return
		}
	}
}

func benchKeys(n int) [][]byte {
	keys := make([][]byte, n)
	for i := range keys {
		keys[i] = counter.AppendPart(counter.AppendPart(nil, "per-user"), fmt.Sprintf("user-%06d", i))
	}
	return keys
}

// BenchmarkHotKey has workers decide requests that are all of one key: one worker, and eight, take
// turns of some ten milliseconds. So do the floors, which get a page and set it, and decide
// nothing. The metrics are medians of the turns, and of their ratios. On a machine that has less
// than two processors to spare the eight don't race, and the ratio says nothing.
func BenchmarkHotKey(b *testing.B) {
	key := benchKeys(1)[0]
	decide := func(d *decider) { d.decide(key, monday) }
	one, eight := newHotKey(b, 1, decide), newHotKey(b, 8, decide)
	oneFloor, eightFloor := newHotKey(b, 1, (*decider).getAndSet), newHotKey(b, 8, (*decider).getAndSet)
	var ratios, floorRatios, spare []float64
	for b.Loop() {
		spare = append(spare, spareProcessors())
		ratios = append(ratios, eight.turn()/one.turn())
		floorRatios = append(floorRatios, eightFloor.turn()/oneFloor.turn())
	}
	one.check(b, key)
	eight.check(b, key)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(one.perSecond), "decisions/s-of-1-worker")
	b.ReportMetric(median(eight.perSecond), "decisions/s-of-8-workers")
	b.ReportMetric(100*float64(eight.lost())/float64(eight.lost()+eight.decided), "%lost-races")
	b.ReportMetric(median(ratios), "8-workers/1")
	b.ReportMetric(median(floorRatios), "floor-8-workers/1")
	b.ReportMetric(median(spare), "processors-to-spare")
}

// spareProcessors is how many times more work goroutines do than a single one, if there is one for
// each processor.
func spareProcessors() float64 {
	var sum atomic.Int64 // so that nothing is optimized away
	spin := func() {
		n := int64(0)
		for i := range int64(10_000_000) {
			n += i ^ n
		}
		sum.Add(n)
	}
	start := time.Now()
	spin()
	alone := time.Since(start)
	var group sync.WaitGroup
	start = time.Now()
	for range runtime.GOMAXPROCS(0) {
		group.Go(spin)
	}
	group.Wait()
	return float64(runtime.GOMAXPROCS(0)) * alone.Seconds() / time.Since(start).Seconds()
}

// hotKey is a key that several workers decide on.
type hotKey struct {
	workers   []*decider
	decide    func(d *decider)
	decided   int
	perSecond []float64
}

func newHotKey(b *testing.B, workers int, decide func(d *decider)) *hotKey {
	k := &hotKey{decide: decide}
	data := &envoyData{}
	for range workers {
		k.workers = append(k.workers, newDecider(b, data, 65536, 0))
	}
	return k
}

// turn decides some more, and tells how many decisions a second that was.
func (k *hotKey) turn() (perSecond float64) {
	// Until all have made enough together: with a fixed share for each, the last worker would have
	// nobody to race with.
	const enough, batch = 200_000, 50
	var begun, ended atomic.Int64
	var group sync.WaitGroup
	start := time.Now()
	for _, d := range k.workers {
		group.Go(func() {
			for begun.Add(batch) <= enough {
				for range batch {
					k.decide(d)
				}
				ended.Add(batch)
			}
		})
	}
	group.Wait()
	k.decided += int(ended.Load())
	k.perSecond = append(k.perSecond, float64(ended.Load())/time.Since(start).Seconds())
	return k.perSecond[len(k.perSecond)-1]
}

// lost are the races.
func (k *hotKey) lost() (races int) {
	for _, d := range k.workers {
		races += d.lost
	}
	return races
}

// check fails if a hit was lost, or counted twice.
func (k *hotKey) check(b *testing.B, key []byte) {
	d := k.workers[0]
	d.table.Read(&d.slot, d.table.Address(0, key))
	d.counter.Load(&d.rule, d.slot.Payload())
	if hits := d.counter.States[0].Hits[0].Sum(); hits != uint64(k.decided) {
		b.Fatalf("%d hits were counted of %d decisions", hits, k.decided)
	}
}

func median(of []float64) float64 {
	sorted := slices.Sorted(slices.Values(of))
	return sorted[len(sorted)/2]
}

// BenchmarkTable is get, decide and set of some keys of many, in random order, in tables that are
// differently full. The floor gets and sets the same pages, and decides nothing. All four take
// turns of about a millisecond, as whatever else a machine does would be taken for a difference
// otherwise; the metrics are medians of the turns, and of their ratios.
//
// The pages of a few keys stay in a processor's own cache whether the table is full or not. Those
// of many do as long as it is not, and the ratio is also one of caches then.
func BenchmarkTable(b *testing.B) {
	for _, used := range []int{512, 4096} {
		b.Run(fmt.Sprint(used, " keys"), func(b *testing.B) { benchmarkTable(b, used) })
	}
}

func benchmarkTable(b *testing.B, used int) {
	const capacity = 65536
	percents := [2]int{10, 90}
	var decides, floors [2]func(i int)
	for at, percent := range percents {
		data := &envoyData{}
		d := newDecider(b, data, capacity, 0)
		keys := benchKeys(capacity * percent / 100)
		for _, key := range keys {
			d.decide(key, monday)
		}
		rand.New(rand.NewPCG(3, 4)).Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
		names := make([][]byte, used)
		watched := &watchedData{envoyData: data}
		table, err := sharedata.Open(watched, sharedata.Options{Namespace: "bench", Capacity: capacity}, rand.Uint64)
		if err != nil {
			b.Fatal(err)
		}
		for i := range names {
			table.Read(&d.slot, table.Address(0, keys[i]))
			names[i] = watched.last
		}
		decides[at] = func(i int) { d.decide(keys[i], monday) }
		floors[at] = func(i int) {
			var cas uint32
			d.page, cas, _ = data.Get(names[i], d.page)
			if !data.Set(names[i], d.page, cas) {
				b.Error("nobody else writes")
			}
		}
	}
	pass := func(f func(i int)) float64 {
		const turn = 4096
		start := time.Now()
		for i := range turn {
			f(i % used)
		}
		return float64(time.Since(start).Nanoseconds()) / turn
	}
	var nanos, toFloor [2][]float64
	var toFirst []float64
	for b.Loop() {
		// Each comes after what leaves other pages in the processor's caches.
		decide := [2]float64{pass(decides[0]), pass(decides[1])}
		floor := [2]float64{pass(floors[0]), pass(floors[1])}
		for at := range percents {
			nanos[at] = append(nanos[at], decide[at])
			toFloor[at] = append(toFloor[at], decide[at]/floor[at])
		}
		toFirst = append(toFirst, decide[1]/decide[0])
	}
	b.ReportMetric(0, "ns/op")
	for at, percent := range percents {
		b.ReportMetric(median(nanos[at]), fmt.Sprint("ns-at-", percent, "%"))
		b.ReportMetric(median(toFloor[at]), fmt.Sprint("floors-at-", percent, "%"))
	}
	b.ReportMetric(median(toFirst), "90%/10%")
}

// watchedData knows what was asked for last.
type watchedData struct {
	*envoyData
	last []byte
}

func (w *watchedData) Get(key, buffer []byte) (value []byte, cas uint32, found bool) {
	w.last = bytes.Clone(key)
	return w.envoyData.Get(key, buffer)
}

// BenchmarkCapacity fills a table with keys up to its capacity, and says how much memory that
// takes.
func BenchmarkCapacity(b *testing.B) {
	const capacity = 65536
	keys := benchKeys(capacity)
	for name, syncRate := range map[string]int64{"counted here": 0, "synchronised": second} {
		b.Run(name, func(b *testing.B) {
			var data *envoyData
			var d *decider
			for b.Loop() {
				data = &envoyData{}
				d = newDecider(b, data, capacity, syncRate)
				for _, key := range keys {
					d.decide(key, monday)
				}
			}
			b.ReportMetric(float64(data.Bytes())/capacity, "B/counter")
			b.ReportMetric(100*float64(d.evicted)/capacity, "%evicted")
		})
	}
}

// BenchmarkMatch finds the rules of a request and their keys. The floor reads one header of the
// same fake host.
func BenchmarkMatch(b *testing.B) {
	rules := func(n int, match func(i int) string) string {
		document := `{"rules": [`
		for i := range n {
			if i > 0 {
				document += ", "
			}
			document += fmt.Sprintf(`{"name": "rule-%d", %s "key": [{"header": "x-user"}], "limits": [{"limit": 1000, "window": "1m"}]}`, i, match(i))
		}
		return document + `]}`
	}
	all := func(int) string { return "" }
	last := func(i int) string {
		return fmt.Sprintf(`"match": {"path": {"prefix": %q}},`, map[bool]string{true: "/api/", false: fmt.Sprintf("/v%d/", i)}[i == 9])
	}
	request := map[string][]byte{":method": []byte("GET"), ":path": []byte("/api/items?page=2"), "x-user": []byte("user-000001")}
	for _, test := range []struct {
		name, configuration string
		matches             int
	}{
		{"one rule", rules(1, all), 1},
		{"no rule of nine", rules(9, last), 0},
		{"one rule of ten", rules(10, last), 1},
		{"ten rules of ten", rules(10, all), 10},
	} {
		b.Run(test.name, func(b *testing.B) {
			p := newProxy(b)
			v := p.start(test.configuration)
			v.request, p.calls = request, nil
			defer proxywasm.Use(v)()
			b.ReportAllocs()
			for b.Loop() {
				checks := v.plugin.Find()
				if n := len(checks); n != test.matches {
					b.Fatalf("%d rules match, want %d", n, test.matches)
				}
			}
		})
	}
	b.Run("floor", func(b *testing.B) {
		p := newProxy(b)
		v := p.start(rules(1, all))
		v.request, p.calls = request, nil
		defer proxywasm.Use(v)()
		var key []byte
		for b.Loop() {
			value, _ := proxywasm.RequestHeader("x-user")
			key = append(key[:0], value...)
		}
	})
}
