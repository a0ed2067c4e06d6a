package simulate

import (
	"cmp"
	"math"
	"runtime"
	"slices"
	"sync"

	"weir/internal/heap"
	"weir/window"
)

// variant is a limit by itself, as if the rule had no other limit, and the configuration no other
// rule.
type variant struct {
	limit         window.Limit
	countRejected bool
	// delay is how long a request waits for room, behind at most queue others; 0 is not at all.
	delay int64
	queue int
}

// outcome counts what a variant would have refused.
type outcome struct{ requests, keys uint64 }

// run is a variant on its way through a key's events.
type run struct {
	*variant
	index   int // of the variant, among those that are replayed
	state   window.State
	passed  bool // whether the last request passed
	refused uint64
	// held are the requests that hold places of a limit on requests in flight.
	held held
	// lets are the times at which waiting requests will have room. For places these times are not
	// known, so waiting has the requests themselves.
	lets    []int64
	waiting []event
}

// begin forgets the last key, and keeps the memory of the state.
func (r *run) begin(v *variant, index int) {
	r.state.Reset()
	r.variant, r.index, r.passed, r.refused = v, index, false, 0
	r.held.places, r.held.ends = 0, r.held.ends[:0]
	r.lets, r.waiting = r.lets[:0], r.waiting[:0]
}

// held are the requests that hold places.
type held struct {
	places uint64
	ends   heap.Of[hold]
}

// hold has the places that a request holds until it ends.
type hold struct {
	at   int64
	cost uint64
}

// Before has the hold first that ends first.
func (h hold) Before(other hold) bool { return h.at < other.at }

// Placed does nothing.
func (hold) Placed(int) {}

// replayHeld is replay for a limit on requests in flight.
func (r *run) replayHeld(events []event) {
	for i := range events {
		e := &events[i]
		r.passTime(e.at)
		switch {
		case len(r.waiting) == 0 && r.hold(e, e.at):
		case r.delay > 0 && len(r.waiting) < r.queue && r.possible(e.cost):
			r.waiting = append(r.waiting, *e)
		default:
			r.refused++
		}
	}
}

// passTime ends requests, and gives their places to waiting requests.
func (r *run) passTime(now int64) {
	for len(r.held.ends) > 0 && r.held.ends[0].at <= now {
		at := r.held.ends[0].at
		r.held.places -= heap.Pop(&r.held.ends).cost
		for r.giveUp(at); len(r.waiting) > 0 && r.hold(&r.waiting[0], at); {
			r.waiting = slices.Delete(r.waiting, 0, 1)
		}
	}
	r.giveUp(now)
}

// giveUp refuses the requests that have waited longer than the delay.
func (r *run) giveUp(now int64) {
	for len(r.waiting) > 0 && r.waiting[0].at+r.delay < now {
		r.waiting = slices.Delete(r.waiting, 0, 1)
		r.refused++
	}
}

// hold gives a request its places from now on, unless there are too few.
func (r *run) hold(e *event, now int64) (held bool) {
	if room := r.limit.Max - min(r.limit.Max, r.held.places); r.limit.Max == 0 || e.cost > room {
		return false
	}
	r.held.places += e.cost
	heap.Push(&r.held.ends, hold{now + e.lasts, e.cost})
	return true
}

// wait reports whether a request has room, at once or after a wait.
func (r *run) wait(e *event) (passes bool) {
	l, s := &r.limit, &r.state
	due := 0
	for due < len(r.lets) && r.lets[due] <= e.at {
		due++
	}
	if r.lets = slices.Delete(r.lets, 0, due); len(r.lets) == 0 && l.Allows(s, e.cost) {
		l.Count(s, e.cost)
		return true
	}
	at, ok := l.FitsAt(s, e.cost)
	if at = max(at, e.at); !ok || len(r.lets) >= r.queue || at-e.at > r.delay {
		return false
	}
	l.Advance(s, at)
	l.Count(s, e.cost)
	r.lets = append(r.lets, at)
	return true
}

func (r *run) replay(events []event) {
	l, s := &r.limit, &r.state
	if l.Kind.Held() {
		r.replayHeld(events)
		return
	}
	for i := range events {
		e := &events[i]
		l.Advance(s, max(e.at, s.Newest)) // waiting requests are counted ahead
		switch {
		case r.delay > 0 && !e.charge && !e.back:
			if r.passed = r.wait(e); !r.passed {
				r.refused++
			}
		case e.charge:
			if r.passed {
				l.Count(s, e.cost)
			}
		case e.back:
			if r.passed {
				l.GiveBack(s, l.Number(s), e.cost)
			}
		case l.Allows(s, e.cost):
			l.Count(s, e.cost)
			r.passed = true
		default:
			if r.countRejected && r.possible(e.cost) {
				l.Count(s, l.Rejected(s, e.cost))
			}
			r.passed = false
			r.refused++
		}
	}
}

// possible reports whether a cost could ever pass.
func (v *variant) possible(cost uint64) bool { return v.limit.Max != 0 && cost <= v.limit.Quota() }

// harmless reports whether the variant refuses nothing to a key, because all its hits fit at once.
func (v *variant) harmless(k *key) bool { return v.possible(k.hits) }

// trial replays a rule's history through variants.
type trial struct {
	// keys are in the order of their hits, most first.
	keys []*key
}

func newTrial(h *history) *trial {
	t := &trial{keys: make([]*key, len(h.keys))}
	for i := range h.keys {
		t.keys[i] = &h.keys[i]
	}
	slices.SortStableFunc(t.keys, func(a, b *key) int { return cmp.Compare(b.hits, a.hits) })
	return t
}

// piece is work for a goroutine: some variants of a key.
type piece struct {
	key  *key
	from int // the first of the variants
	to   int // after the last
}

// largeKey is how many requests of a key justify a goroutine for each variant.
const largeKey = 1 << 13

func (t *trial) run(variants []variant) []outcome {
	out := make([]outcome, len(variants))
	pieces := make(chan piece, 64)
	var group sync.WaitGroup
	var mu sync.Mutex // guards out
	for range runtime.GOMAXPROCS(0) {
		group.Go(func() {
			own := make([]outcome, len(variants))
			var w worker
			for p := range pieces {
				for _, r := range w.replay(p.key, variants[p.from:p.to]) {
					o := &own[p.from+r.index]
					if o.requests += r.refused; r.refused > 0 {
						o.keys++
					}
				}
			}
			mu.Lock()
			defer mu.Unlock()
			for i := range own {
				out[i].requests += own[i].requests
				out[i].keys += own[i].keys
			}
		})
	}
	for _, k := range t.keys {
		if !slices.ContainsFunc(variants, func(v variant) bool { return !v.harmless(k) }) {
			break // the same is true of all later keys
		}
		if k.requests < largeKey {
			pieces <- piece{k, 0, len(variants)}
			continue
		}
		for i := range variants {
			pieces <- piece{k, i, i + 1}
		}
	}
	close(pieces)
	group.Wait()
	return out
}

// worker has the memory for replays, which read a key's events in batches.
type worker struct {
	events [1024]event
	runs   []run
}

// replay replays a key's events through the variants that may refuse some. The runs are valid until
// the next call.
func (w *worker) replay(k *key, variants []variant) []run {
	n := 0
	for i := range variants {
		if variants[i].harmless(k) {
			continue
		}
		if n == len(w.runs) {
			w.runs = append(w.runs, run{})
		}
		w.runs[n].begin(&variants[i], i)
		n++
	}
	for r := k.reader(); len(r.rest) > 0 && n > 0; {
		events := r.read(w.events[:0])
		for i := range w.runs[:n] {
			w.runs[i].replay(events)
		}
	}
	for i := range w.runs[:n] {
		w.runs[i].passTime(math.MaxInt64)
	}
	return w.runs[:n]
}

// refusesMore reports whether a variant refuses more requests, or something to more keys.
func (t *trial) refusesMore(v variant, than outcome, w *worker) bool {
	var refused outcome
	variants := []variant{v}
	for _, k := range t.keys {
		runs := w.replay(k, variants)
		if len(runs) == 0 {
			break // the same is true of all later keys
		}
		if refused.requests += runs[0].refused; runs[0].refused > 0 {
			refused.keys++
		}
		if refused.requests > than.requests || refused.keys > than.keys {
			return true
		}
	}
	return false
}

// least returns the least limit that refuses at most atMost, by bisection; nil if no limit that can be
// configured does.
func (t *trial) least(v variant, atMost outcome) *uint64 {
	if len(t.keys) == 0 {
		return nil
	}
	var w worker
	// A limit of all its hits refuses nothing to a key.
	low, high := uint64(0), min(max(t.keys[0].hits, 1), window.MaxLimit)
	if v.limit.IsLog() {
		high = min(high, v.limit.LargestLog())
	}
	for at := v.limit.Max; ; at *= 2 { // most limits are near the least
		at = min(max(at, 1), high)
		if !t.refusesMore(v.at(at), atMost, &w) {
			high = at
			break
		}
		if low = at; at == high {
			return nil
		}
	}
	for low+1 < high {
		if middle := low + (high-low)/2; t.refusesMore(v.at(middle), atMost, &w) {
			low = middle
		} else {
			high = middle
		}
	}
	return &high
}

// at returns the variant with another limit. A bucket's burst changes in proportion.
func (v *variant) at(limit uint64) variant {
	other := *v
	other.limit.Max = limit
	if v.limit.Kind.Bursts() {
		other.limit.Burst = limit
		if v.limit.Max != 0 {
			other.limit.Burst = math.MaxUint64
			if burst, _, ok := window.MulDiv(v.limit.Burst, limit, v.limit.Max); ok {
				other.limit.Burst = max(burst, 1)
			}
		}
	}
	return other
}

// curve returns the variant with limits from a quarter of its own to eight times of it, four for
// each doubling. It leaves out equal limits, and those that can't be configured.
func (v *variant) curve() (points []variant) {
	const perDoubling, from, to = 4, -2 * 4, 3 * 4
	for i := from; i <= to; i++ {
		limit := uint64(math.Round(float64(v.limit.Max) * math.Pow(2, float64(i)/perDoubling)))
		if i == 0 {
			limit = v.limit.Max // without an error of floats
		}
		if limit == 0 || len(points) > 0 && points[len(points)-1].limit.Max >= limit {
			continue
		}
		if p := v.at(limit); p.limit.Fault() == window.Sound {
			points = append(points, p)
		}
	}
	return points
}

// algorithms returns the same limit with each algorithm. If a log would be too large, the finest
// sub-buckets take its place. If the variant is none of these, it comes first.
func (v *variant) algorithms() (all []variant) {
	if v.limit.Kind.Held() {
		return []variant{*v} // the others limit something else
	}
	own := false
	for _, a := range window.Algorithms {
		if a.Kind.Held() {
			continue // it limits something else
		}
		other := *v
		other.limit = window.Limit{
			Shape: window.Shape{Kind: a.Kind, Width: v.limit.Width, Precision: a.Precision}, Max: v.limit.Max,
		}
		if a.Kind == v.limit.Kind {
			other.limit.Calendar = v.limit.Calendar
		}
		if a.Kind.Bursts() {
			other.limit.Burst = max(v.limit.Max, 1)
			if v.limit.Kind.Bursts() {
				other.limit.Burst = v.limit.Burst
			}
		}
		if other.limit.Fault() == window.LargeLog {
			other.limit.Precision = finest(v.limit.Width)
		}
		if other.limit.Fault() != window.Sound {
			continue
		}
		own = own || other.limit == v.limit
		all = append(all, other)
	}
	if !own {
		all = slices.Insert(all, 0, *v)
	}
	return all
}

// finest returns the least precision that a window can have, or 0 for none.
func finest(width int64) (precision int64) {
	for n := int64(window.MaxSubBuckets); n >= window.MinSubBuckets; n-- {
		if width%(n*window.MinWidth) == 0 {
			return width / n
		}
	}
	return 0
}
