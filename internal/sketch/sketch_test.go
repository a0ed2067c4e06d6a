package sketch

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"weir/internal/must"
)

func idOf(n uint64) (id [16]byte) {
	binary.LittleEndian.PutUint64(id[:], n)
	binary.LittleEndian.PutUint64(id[8:], n*0x9e3779b97f4a7c15)
	return id
}

// orders are streams of keys that make it hard to tell which has most.
var orders = map[string]func(i int, r *rand.Rand) (key, hits uint64){
	"one":                   func(int, *rand.Rand) (uint64, uint64) { return 1, 1 },
	"all different":         func(i int, _ *rand.Rand) (uint64, uint64) { return uint64(i), 1 },
	"round and round":       func(i int, _ *rand.Rand) (uint64, uint64) { return uint64(i % (Keys + 1)), 1 },
	"zipf":                  func(_ int, r *rand.Rand) (uint64, uint64) { return uint64(1 / (r.Float64() + 1e-4)), 1 },
	"heavy last":            func(i int, _ *rand.Rand) (uint64, uint64) { return uint64(i) * min(1, uint64(15_000/max(i, 1))), 1 },
	"heavy first":           func(i int, _ *rand.Rand) (uint64, uint64) { return uint64(i) * min(1, uint64(i/5_000)), 1 },
	"costs":                 func(_ int, r *rand.Rand) (uint64, uint64) { return r.Uint64N(1000), r.Uint64N(100) },
	"every other is random": func(i int, r *rand.Rand) (uint64, uint64) { return uint64(i%2) * r.Uint64(), 1 },
	"blocks":                func(i int, _ *rand.Rand) (uint64, uint64) { return uint64(i / 100), 1 },
}

// wantBounds wants keys to hold what a Heavy promises of the exact counts.
func wantBounds(t *testing.T, exact map[[16]byte]uint64, total uint64, keys []Key, floor, most uint64) {
	t.Helper()
	must.AtMost(t, floor, most, "floor of %d hits", total)
	there := map[[16]byte]bool{}
	for _, k := range keys {
		must.EqualOrEnd(t, there[k.ID], false, "key %x is there twice", k.ID)
		there[k.ID] = true
		if n := exact[k.ID]; n > k.Count || n < k.Count-k.Error || k.Error > most {
			t.Fatalf("key %x: count %d, error %d of at most %d, want %d", k.ID, k.Count, k.Error, most, n)
		}
	}
	for id, n := range exact {
		if !there[id] && n > floor {
			t.Fatalf("key %x with %d hits is missing, floor %d", id, n, floor)
		}
	}
}

func TestHeavyKeepsItsBounds(t *testing.T) {
	for name, next := range orders {
		t.Run(name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, 2))
			generations := [2]Heavy{NewHeavy(false), NewHeavy(false)}
			both, all := map[[16]byte]uint64{}, uint64(0)
			for g := range generations {
				h := &generations[g]
				exact, total := map[[16]byte]uint64{}, uint64(0)
				for i := range 20_000 {
					key, hits := next(i, r)
					id := idOf(key)
					exact[id] += hits
					both[id] += hits
					total += hits
					h.Add(id, hits)
				}
				all += total
				var keys []Key
				for _, e := range h.entries {
					keys = append(keys, Key{Entry: e})
				}
				wantBounds(t, exact, total, keys, h.Floor(), total/Keys)
			}
			keys, floor := Merge(&generations[1], &generations[0])
			must.AtMost(t, len(keys), Keys, "keys")
			for i := range keys[1:] {
				must.EqualOrEnd(t, keys[i].Count >= keys[i+1].Count, true, "keys are in order")
			}
			// The floor of a merge is the count of the first key that was left out.
			wantBounds(t, both, all, keys, floor, 2*all/Keys)
		})
	}
}

// A name goes with its key, however places change.
func TestHeavyNames(t *testing.T) {
	h := NewHeavy(true)
	r := rand.New(rand.NewPCG(3, 4))
	for range 10_000 {
		n := uint64(1 / (r.Float64() + 1e-3))
		if e := h.Add(idOf(n), 1); !h.Named(e) {
			h.SetName(e, binary.LittleEndian.AppendUint64(nil, n))
		}
	}
	for i := range h.entries {
		e := &h.entries[i]
		must.Equal(t, idOf(binary.LittleEndian.Uint64(h.Name(e))), e.ID, "the name is of key")
	}
}

func TestHeavyDoesNotOverflow(t *testing.T) {
	h := NewHeavy(false)
	for range 3 {
		h.Add(idOf(1), math.MaxUint64)
	}
	must.Equal(t, h.entries[0].Count, maxHits, "count")
}

const second = int64(1e9)

// Samples of nodes that see the same keys have the same keys below the least threshold, and a key's
// hits are exact, though far more keys come than have room.
func TestSamplesAgree(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	widths := []int64{second, 60 * second}
	start := 1_767_225_600 * second
	a, b := NewSample(widths, start), NewSample(widths, start)
	type window struct{ hash, number uint64 }
	var exact [2]map[window]uint64
	exact[0], exact[1] = map[window]uint64{}, map[window]uint64{}
	hashes := make([]uint64, 5000)
	for i := range hashes {
		hashes[i] = r.Uint64()
	}
	for i := range 50_000 {
		now := start + int64(i)*second/5000 // ten seconds
		hash, hits := hashes[r.IntN(len(hashes))], r.Uint64N(5)
		for j, w := range widths {
			exact[j][window{hash, uint64(now / w)}] += hits
		}
		[]*Sample{a, b}[r.IntN(2)].Add(hash, hits, now)
	}
	ta, _ := a.Threshold()
	tb, _ := b.Threshold()
	threshold := min(ta, tb)
	seen := map[uint64]bool{}
	for _, s := range []*Sample{a, b} {
		must.AtMost(t, len(s.keys), SampleKeys, "keys")
		s.Each(threshold, func(hash uint64, _ bool) { seen[hash] = true })
	}
	want := 0
	for _, hash := range hashes {
		if hash > threshold {
			continue
		}
		want++
		must.Equal(t, seen[hash], true, "key %x below the threshold is there", hash)
		for j := range widths {
			got := map[uint64]uint64{}
			for _, s := range []*Sample{a, b} {
				newest, hits := s.Asked(hash, j)
				for age, n := range hits {
					got[newest-uint64(age)] += uint64(n)
				}
			}
			for w, n := range exact[j] {
				if w.hash == hash && got[w.number] != n {
					t.Errorf("key %x asked for %d in window %d of width %d, want %d", hash, got[w.number], w.number, j, n)
				}
			}
		}
	}
	must.AtLeast(t, want, SampleKeys/4, "keys")
	must.Equal(t, len(seen), want, "keys seen")
}

// A sample grows again when a flood is over, and says from when on it is whole.
func TestSampleRecovers(t *testing.T) {
	s := NewSample([]int64{second}, 0)
	r := rand.New(rand.NewPCG(7, 8))
	for range 100_000 {
		s.Add(r.Uint64(), 1, second)
	}
	low, _ := s.Threshold()
	if low > math.MaxUint64/100 {
		t.Fatalf("threshold %x after a flood", low)
	}
	now := second
	for range 64 {
		now += 121 * second
		s.Tend(now)
	}
	if threshold, since := s.Threshold(); threshold != math.MaxUint64 || since == 0 || since > now {
		t.Errorf("threshold %x since %d", threshold, since)
	}
	s.Refuse(1, now)
	s.Add(1, 1, now)
	s.Refuse(1, now)
	refused := 0
	s.Each(math.MaxUint64, func(hash uint64, r bool) {
		if hash == 1 && r {
			refused++
		}
	})
	must.Equal(t, refused, 1, "refused")
}

func TestNothingIsAllocated(t *testing.T) {
	h, s := NewHeavy(true), NewSample([]int64{second}, 0)
	r := rand.New(rand.NewPCG(9, 10))
	name := make([]byte, MaxName)
	now := int64(0)
	must.Equal(t, testing.AllocsPerRun(10_000, func() {
		now += second / 100
		hash := r.Uint64()
		e := h.Add(idOf(hash), 1)
		h.SetName(e, name)
		s.Add(hash, 1, now)
		s.Refuse(hash, now)
		s.Tend(now)
	}), 0, "allocations")
}

// The bounds of a window's busiest keys hold in any order, and when the clock goes back.
func TestBusyKeepsItsBounds(t *testing.T) {
	for name, next := range orders {
		t.Run(name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, 2))
			s := NewSample([]int64{second, 7 * second}, 0)
			type window struct{ width, number, hash uint64 }
			exact := map[window]uint64{}
			for i := range 20_000 {
				key, hits := next(i, r)
				now := int64(i) * second / 2000
				if i%100 == 99 {
					now -= second / 2
				}
				s.Add(key, hits, now)
				exact[window{0, uint64(now / second), key}] += hits
				exact[window{1, uint64(now / (7 * second)), key}] += hits
			}
			for width := range uint64(2) {
				newest, windows := s.Busy(int(width))
				totals := make([]uint64, len(windows))
				for w, n := range exact {
					age := newest - w.number
					if w.width != width || age >= BusyWindows {
						continue
					}
					totals[age] += n
					low, high := uint64(0), uint64(windows[age].Floor)
					for _, k := range windows[age].Keys {
						if k.Hash == w.hash {
							low, high = uint64(k.Hits), uint64(k.Most())
						}
					}
					if n < low || n > high {
						t.Fatalf("a key has %d hits in window %d of width %d, and is said to have %d to %d", n, age, width, low, high)
					}
				}
				for age, w := range windows {
					if len(w.Keys) > BusyKeys || uint64(w.Hits) != totals[age] || uint64(w.Floor) > totals[age]/BusyKeys+totals[age]/20 {
						t.Errorf("window %d of width %d: %d keys, floor %d of %d hits, want %d", age, width, len(w.Keys), w.Floor, w.Hits, totals[age])
					}
				}
			}
		})
	}
}
