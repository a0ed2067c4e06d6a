package window

import (
	"bytes"
	"math/rand/v2"
	"reflect"
	"testing"
)

var codecLimits = []Limit{
	fixed(1000, minute), sliding(1000, minute), sliding(MaxHits, MaxWidth), firstHit(1000, minute), subBuckets(1000, minute, second),
	log(100, minute), tokens(6, 1000, minute), tokens(MaxHits, MaxHits, MaxWidth), tokens(MaxHits>>1, MaxHits, MaxWidth),
	{Shape: Shape{Kind: SlidingWindow, Ordinal: 3, Width: minute}, Max: 1000},
}

// A codec writes what its limit writes, and reads that and nothing else.
func TestCodecsAreTheirLimits(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 7))
	for i, l := range codecLimits {
		for _, synced := range []bool{false, true} {
			c := l.Codec(synced)
			var s State
			now := monday
			for range 500 {
				now += pause(random, now, l.Width)
				l.Advance(&s, now)
				if l.Count(&s, cost(random, 100)); synced && random.IntN(3) == 0 && !s.InFlight() {
					l.Claim(&s)
				}
				want := l.AppendState([]byte("before"), &s, synced)
				if got := c.Append([]byte("before"), &s); !bytes.Equal(got, want) {
					t.Fatalf("%+v: wrote %x, want %x", l, got, want)
				}
				for j, other := range codecLimits {
					for _, alike := range []bool{false, true} {
						checkDecode(t, other, alike, append(want[len("before"):], 1, 2), i == j && alike == synced)
					}
				}
			}
		}
	}
}

// checkDecode wants a codec to read what DecodeState reads, if that is its limit's.
func checkDecode(t *testing.T, l Limit, synced bool, b []byte, want bool) {
	t.Helper()
	// What the states have from before is not to matter.
	got := State{Newest: 1, Start: 2, Hits: [2]Hits{{3, 4, 5, 6}, {7, 8, 9, 10}}, Buckets: make([]Bucket, 3), ends: 11}
	expected := State{Buckets: make([]Bucket, 0, 1)}
	c := l.Codec(synced)
	length := c.Decode(b, &got)
	if length == 0 {
		if want {
			t.Fatalf("%+v: %x is not read", l, b)
		}
		return
	}
	if !want || DecodeState(b, &expected) != length || !reflect.DeepEqual(got, expected) {
		t.Fatalf("%+v: %x is read as %+v in %d bytes, want %v, %+v", l, b, got, length, want, expected)
	}
}

// Whatever codecs read, DecodeState reads too, as a state of a limit of the same shape.
func FuzzCodec(f *testing.F) {
	for _, l := range codecLimits {
		s := State{Newest: monday, Start: monday, Hits: [2]Hits{{Total: 200}, {Total: 3}}}
		f.Add(l.AppendState(nil, &s, true))
		f.Add(l.AppendState(nil, &s, false))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		stored, _ := DecodeLimit(b)
		for _, l := range codecLimits {
			for _, synced := range []bool{false, true} {
				is := len(b) > 0 && stored.Shape == l.Shape && b[0]&syncedBit != 0 == synced && (l.Kind != TokenBucket || stored.Max == l.Max)
				var s State
				if c := l.Codec(synced); c.Decode(b, &s) != 0 {
					checkDecode(t, l, synced, b, is)
				}
			}
		}
	})
}

// Counting in place does what decoding, deciding and encoding does, or nothing.
func TestCountInPlace(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(2, 7))
	counted := map[Kind]int{}
	for range 200_000 {
		l := codecLimits[random.IntN(len(codecLimits))]
		// Sums near where they take more bytes, and near the limit.
		l.Max = []uint64{0, 1, 127, 128, 200, 1<<14 - 1, 1 << 14, 1 << 20, MaxHits}[random.IntN(9)]
		l.Burst = l.Max
		synced := random.IntN(8) == 0
		if l.Precision == LogPrecision {
			l.Max = min(l.Max, 100)
		}
		s := State{Newest: monday + random.Int64N(2*l.Width)}
		l.Advance(&s, s.Newest)
		if l.Kind != SlidingBuckets {
			s.Start = s.Newest - random.Int64N(l.Width)
			s.Hits = [2]Hits{{Total: near(random, l.Max)}}
			if l.Kind == SlidingWindow {
				s.Hits[1].Total = near(random, l.Max)
			}
		}
		before := l.AppendState(nil, &s, synced)
		now, hits := s.Newest+pause(random, s.Newest, l.Width), cost(random, 100)

		c := l.Codec(synced)
		b, got := bytes.Clone(before), State{Buckets: make([]Bucket, 1), Hits: [2]Hits{{Lease: 3}, {Diff: 2}}}
		if c.CountInPlace(b, true, &got, now, hits) == 0 {
			if !bytes.Equal(b, before) {
				t.Fatalf("%+v: %x is not counted in, but is %x now", l, before, b)
			}
			continue
		}
		for _, last := range []bool{false, true} {
			if more := append(bytes.Clone(before), 0); c.CountInPlace(more, last, &State{}, now, hits) == len(before) == last {
				t.Fatalf("%+v: %x is counted in %v, though something follows the state", l, more, !last)
			}
		}
		var want State
		c.Decode(before, &want)
		l.Advance(&want, now)
		if !l.Allows(&want, hits) {
			t.Fatalf("%+v %+v: %d hits are counted, though they have no room", l, want, hits)
		}
		l.Count(&want, hits)
		if encoded := c.Append(nil, &want); !bytes.Equal(encoded, b) {
			t.Fatalf("%+v: %x becomes %x, want %x", l, before, b, encoded)
		}
		if got.Newest != want.Newest || got.Hits[0].Sum() != want.Hits[0].Sum() || got.Hits[1] != want.Hits[1] || l.end(&got) != l.end(&want) ||
			got.Start != 0 || len(got.Buckets) > 0 {
			t.Fatalf("%+v: the state is %+v, want %+v", l, got, want)
		}
		counted[l.Kind]++
	}
	if counted[FixedWindow] < 1000 || counted[SlidingWindow] < 1000 || len(counted) != 2 {
		t.Errorf("counted in place: %v", counted)
	}
}

func near(random *rand.Rand, limit uint64) uint64 {
	return []uint64{0, 1, limit / 2, limit - min(limit, 1), limit, 126, 127, 128, 1<<14 - 2, 1<<14 - 1, 1 << 14}[random.IntN(11)]
}

// Whatever is in a page, counting in it neither panics nor changes it unless it is a state with
// room.
func FuzzCount(f *testing.F) {
	for _, l := range codecLimits {
		s := State{Newest: monday, Start: monday, Hits: [2]Hits{{Total: 127}, {Total: 3}}}
		f.Add(l.AppendState(nil, &s, false), monday+second, uint64(1))
	}
	f.Fuzz(func(t *testing.T, before []byte, now int64, hits uint64) {
		for _, l := range codecLimits {
			c := l.Codec(false)
			var got, want State
			b := bytes.Clone(before)
			if c.CountInPlace(b, true, &got, now, hits) == 0 {
				if !bytes.Equal(b, before) {
					t.Fatalf("%x is not counted in, but is %x now", before, b)
				}
				continue
			}
			if c.Decode(before, &want) != len(before) {
				t.Fatalf("%x is counted in, but is no state", before)
			}
			l.Advance(&want, now)
			if allowed := l.Allows(&want, hits); !allowed || c.Decode(b, &want) != len(b) || want.Newest != now {
				t.Fatalf("%x becomes %x at %d: allowed %v, %+v", before, b, now, allowed, want)
			}
		}
	})
}
