package simulate

import (
	"cmp"
	"math"
	"math/bits"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"weir/window"
)

// variant is one limit by itself, as though the rule had no other, and there were no other rule.
type variant struct {
	limit         window.Limit
	countRejected bool
}

// outcome is what a variant would have refused.
type outcome struct{ requests, keys uint64 }

// replay is how many of a key's requests the variant refuses. The state is for its memory alone.
func (v *variant) replay(events []event, s *window.State) (refused uint64) {
	s.Reset()
	l := &v.limit
	passed := false
	for i := range events {
		e := &events[i]
		l.Advance(s, e.at)
		switch {
		case e.charge:
			if passed {
				l.Count(s, e.cost)
			}
		case l.Allows(s, e.cost):
			l.Count(s, e.cost)
			passed = true
		default:
			if v.countRejected && v.possible(e.cost) {
				l.CountRejected(s, e.cost)
			}
			passed = false
			refused++
		}
	}
	return refused
}

// possible reports whether a cost could ever pass.
func (v *variant) possible(cost uint64) bool { return v.limit.Max != 0 && cost <= v.limit.Quota() }

// harmless reports whether the variant refuses nothing of a key, as all its hits fit at once.
func (v *variant) harmless(k *key) bool { return v.possible(k.hits) }

// trial replays what a rule was asked for through variants.
type trial struct {
	// keys have the ones with the most hits first.
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

// piece is work for one goroutine: some variants of one key.
type piece struct {
	key      *key
	variants []variant
	outcomes []tally
}

// tally is an outcome that several goroutines add to.
type tally struct{ requests, keys atomic.Uint64 }

// largeKey is how many requests of a key are worth a goroutine for each variant.
const largeKey = 1 << 13

// run tells what each of the variants refuses.
func (t *trial) run(variants []variant) []outcome {
	tallies := make([]tally, len(variants))
	pieces := make(chan piece, 64)
	var group sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		group.Go(func() {
			var w worker
			for p := range pieces {
				w.do(p)
			}
		})
	}
	for _, k := range t.keys {
		if !slices.ContainsFunc(variants, func(v variant) bool { return !v.harmless(k) }) {
			break // as of all keys that follow
		}
		if k.requests < largeKey {
			pieces <- piece{k, variants, tallies}
			continue
		}
		for i := range variants {
			pieces <- piece{k, variants[i : i+1], tallies[i : i+1]}
		}
	}
	close(pieces)
	group.Wait()
	out := make([]outcome, len(variants))
	for i := range tallies {
		out[i] = outcome{tallies[i].requests.Load(), tallies[i].keys.Load()}
	}
	return out
}

// worker has the memory that replays need.
type worker struct {
	events []event
	state  window.State
}

func (w *worker) do(p piece) {
	decoded := false
	for i := range p.variants {
		v := &p.variants[i]
		if v.harmless(p.key) {
			continue
		}
		if !decoded {
			w.events, decoded = p.key.decode(w.events[:0]), true
		}
		if refused := v.replay(w.events, &w.state); refused > 0 {
			p.outcomes[i].requests.Add(refused)
			p.outcomes[i].keys.Add(1)
		}
	}
}

// refuses reports whether a variant refuses more than so many requests.
func (t *trial) refusesMore(v variant, than uint64, w *worker) bool {
	refused := uint64(0)
	for _, k := range t.keys {
		if v.harmless(k) {
			break
		}
		w.events = k.decode(w.events[:0])
		if refused += v.replay(w.events, &w.state); refused > than {
			return true
		}
	}
	return false
}

// least is the least limit that refuses at most so many requests, found by halving: it refuses no
// more, and one less refuses more. It is false if there is none that may be configured.
func (t *trial) least(v variant, atMost uint64) (limit uint64, found bool) {
	if len(t.keys) == 0 {
		return 0, false
	}
	var w worker
	// Above its hits no key is refused anything.
	low, high := uint64(0), min(max(t.keys[0].hits, 1), window.MaxLimit)
	if v.limit.IsLog() {
		high = min(high, v.limit.LargestLog())
	}
	for at := v.limit.Max; ; at *= 2 { // most limits are not far from what they should be
		at = min(max(at, 1), high)
		if !t.refusesMore(v.at(at), atMost, &w) {
			high = at
			break
		}
		if low = at; at == high {
			return 0, false
		}
	}
	for low+1 < high {
		if middle := low + (high-low)/2; t.refusesMore(v.at(middle), atMost, &w) {
			low = middle
		} else {
			high = middle
		}
	}
	return high, true
}

// at is the variant with another limit. A bucket's burst grows and shrinks with it.
func (v *variant) at(limit uint64) variant {
	other := *v
	other.limit.Max = limit
	if v.limit.Kind.Bursts() {
		other.limit.Burst = limit
		if v.limit.Max != 0 {
			high, low := bits.Mul64(v.limit.Burst, limit)
			other.limit.Burst = math.MaxUint64
			if high < v.limit.Max {
				burst, _ := bits.Div64(high, low, v.limit.Max)
				other.limit.Burst = max(burst, 1)
			}
		}
	}
	return other
}

// curve is the variant with limits from a quarter of its own to its eightfold, four for each
// doubling, as far as they are different, and may be configured.
func (v *variant) curve() (points []variant) {
	const perDoubling, from, to = 4, -2 * 4, 3 * 4
	for i := from; i <= to; i++ {
		limit := uint64(math.Round(float64(v.limit.Max) * math.Pow(2, float64(i)/perDoubling)))
		if i == 0 {
			limit = v.limit.Max // whatever floats make of it
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

// algorithms are the same limit by each algorithm. Where a log of the limit would be too large, its
// place is taken by the finest sub-buckets. If the variant is none of these, it is the first.
func (v *variant) algorithms() (all []variant) {
	own := false
	for i := range window.Algorithms {
		a := &window.Algorithms[i]
		other := *v
		other.limit = window.Limit{
			Shape: window.Shape{Kind: a.Kind, Width: v.limit.Width, Precision: a.Precision}, Max: v.limit.Max,
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

// finest is the least precision that a window may have, 0 if it may have none.
func finest(width int64) (precision int64) {
	for n := int64(window.MaxSubBuckets); n >= window.MinSubBuckets; n-- {
		if width%(n*window.MinWidth) == 0 {
			return width / n
		}
	}
	return 0
}
