package window

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"weir/internal/must"
)

var codecLimits = []Limit{
	fixed(1000, minute), sliding(1000, minute), sliding(MaxHits, MaxWidth), firstHit(1000, minute), subBuckets(1000, minute, second),
	log(100, minute), tokens(6, 1000, minute), tokens(MaxHits, MaxHits, MaxWidth), tokens(MaxHits>>1, MaxHits, MaxWidth),
	{Shape: Shape{Kind: SlidingWindow, Ordinal: 3, Width: minute}, Max: 1000},
	// Their heads have 7, 8 and 9 bytes.
	tokens(1<<13, 1<<13, 3600*second), tokens(1<<20, 1<<20, 3600*second), tokens(1<<27, 1<<27, 3600*second),
}

// A codec writes what its limit writes, and reads that and nothing else.
func TestCodecsAreTheirLimits(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 7))
	for i, l := range codecLimits {
		for _, synced := range []bool{false, true} {
			c := NewCodec(&l, synced)
			var s State
			now := monday
			for range 500 {
				now += pause(random, now, l.Width)
				l.Advance(&s, now)
				if l.Count(&s, cost(random, 100)); synced && random.IntN(3) == 0 && !s.InFlight() {
					s.Claim()
				}
				want := AppendState([]byte("before"), &l, &s, synced)
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
	// The old contents of the states must not matter.
	got := State{Newest: 1, Start: 2, Hits: [2]Hits{{3, 4, 5, 6}, {7, 8, 9, 10}}, Buckets: make([]Bucket, 3), ends: 11}
	expected := State{Buckets: make([]Bucket, 0, 1)}
	c := NewCodec(&l, synced)
	length := c.Decode(b, &got)
	if length == 0 {
		must.EqualOrEnd(t, want, false, "%+v: %x is not read", l, b)
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
		f.Add(AppendState(nil, &l, &s, true))
		f.Add(AppendState(nil, &l, &s, false))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		stored, _ := DecodeLimit(b)
		for _, l := range codecLimits {
			for _, synced := range []bool{false, true} {
				is := len(b) > 0 && stored.Shape == l.Shape && b[0]&syncedBit != 0 == synced && (l.Kind != TokenBucket || stored.Max == l.Max)
				var s State
				if c := NewCodec(&l, synced); c.Decode(b, &s) != 0 {
					checkDecode(t, l, synced, b, is)
				}
			}
		}
	})
}

// Counting in place does what decoding, deciding and encoding does, or nothing. Sub-buckets, too, if nobody asks for all of
// them, stand as they do then.
func TestCountInPlace(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(2, 7))
	counted, full := map[Kind]int{}, map[Kind]int{}
	for range 300_000 {
		l := codecLimits[random.IntN(len(codecLimits))]
		// Sums near where they take more bytes, and near the limit.
		l.Max = []uint64{0, 1, 127, 128, 200, 1<<14 - 1, 1 << 14, 1 << 20, MaxHits}[random.IntN(9)]
		l.Burst = l.Max
		synced, whole := random.IntN(8) == 0, random.IntN(3) == 0
		if l.Precision == LogPrecision {
			l.Max = min(l.Max, 100)
		}
		s := State{Newest: monday + random.Int64N(2*l.Width)}
		l.Advance(&s, s.Newest)
		if l.Kind == SlidingBuckets {
			for range random.IntN(5) {
				l.Advance(&s, s.Newest+random.Int64N(l.Width/3))
				l.Count(&s, near(random, l.Max/4))
			}
		} else {
			s.Start = s.Newest - random.Int64N(l.Width)
			s.Hits = [2]Hits{{Total: near(random, l.Max)}}
			if l.Kind == SlidingWindow {
				s.Hits[1].Total = near(random, l.Max)
			}
		}
		before := AppendState(nil, &l, &s, synced)
		now, hits := s.Newest+pause(random, s.Newest, l.Width), cost(random, 100)
		if l.Kind == SlidingBuckets && random.IntN(2) == 0 {
			now = s.Newest + random.Int64N(l.Precision)
		}

		c := NewCodec(&l, synced)
		b, got := bytes.Clone(before), State{Buckets: make([]Bucket, 1), Hits: [2]Hits{{Lease: 3}, {Pending: 2}}}
		length := c.CountInPlace(b, true, whole, &got, now, hits)
		if length <= 0 && !bytes.Equal(b, before) {
			t.Fatalf("%+v: %x is not counted in, but is %x now", l, before, b)
		}
		if length == 0 {
			continue
		}
		for _, last := range []bool{false, true} {
			want := length
			if last {
				want = 0
			}
			if more := append(bytes.Clone(before), 0); c.CountInPlace(more, last, whole, &State{}, now, hits) != want {
				t.Fatalf("%+v: %x is counted in %v, though something follows the state", l, more, last)
			}
		}
		var want State
		c.Decode(before, &want)
		l.Advance(&want, now)
		must.EqualOrEnd(t, l.Allows(&want, hits), length != Full, "%+v %+v: %d hits have room", l, want, hits)
		if length == Full {
			full[l.Kind]++
		} else {
			counted[l.Kind]++
			must.EqualOrEnd(t, length, len(before), "%+v: counted in %x", l, before)
			l.Count(&want, hits)
			if encoded := c.Append(nil, &want); !bytes.Equal(encoded, b) {
				t.Fatalf("%+v: %x becomes %x, want %x", l, before, b, encoded)
			}
		}
		if l.Kind == SlidingBuckets {
			must.EqualOrEnd(t, whole, false, "sub-buckets are counted in")
			worth, share := l.Worth(&got)
			if at, used := l.Worth(&want); worth != at || share != used || length != Full && l.Standing(&got, now) != l.Standing(&want, now) {
				t.Fatalf("%+v: %x stands like %+v, want %+v", l, before, got, want)
			}
			continue
		}
		if got.Newest != want.Newest || got.Hits[0].Sum() != want.Hits[0].Sum() || got.Hits[1] != want.Hits[1] || l.Kind.Clocked() && clockEnd(&l, &got) != clockEnd(&l, &want) ||
			got.Start != want.Start || len(got.Buckets) > 0 {
			t.Fatalf("%+v: the state is %+v, want %+v", l, got, want)
		}
	}
	for _, k := range []Kind{FixedWindow, SlidingWindow, FirstHitWindow, TokenBucket, SlidingBuckets} {
		must.AtLeast(t, min(counted[k], full[k]), 1000, "kind %d: times that it is counted in place, or full", k)
	}
	must.Equal(t, len(counted), 5, "counted in place: %v", counted)
}

func near(random *rand.Rand, limit uint64) uint64 {
	return []uint64{0, 1, limit / 2, limit - min(limit, 1), limit, 126, 127, 128, 1<<14 - 2, 1<<14 - 1, 1 << 14}[random.IntN(11)]
}

// Whatever is in a page, counting in it neither panics nor changes it unless it is a state with
// room.
func FuzzCount(f *testing.F) {
	for _, l := range codecLimits {
		s := State{Newest: monday, Start: monday, Hits: [2]Hits{{Total: 127}, {Total: 3}}}
		f.Add(AppendState(nil, &l, &s, false), monday+second, uint64(1))
	}
	f.Fuzz(func(t *testing.T, before []byte, now int64, hits uint64) {
		for _, l := range codecLimits {
			c := NewCodec(&l, false)
			var got, want State
			b := bytes.Clone(before)
			length := c.CountInPlace(b, true, false, &got, now, hits)
			if length <= 0 && !bytes.Equal(b, before) {
				t.Fatalf("%x is not counted in, but is %x now", before, b)
			}
			if length == 0 {
				continue
			}
			must.EqualOrEnd(t, c.Decode(before, &want), len(before), "%x is no state: bytes counted in", before)
			l.Advance(&want, now)
			at := want.Newest
			if allowed := l.Allows(&want, hits); allowed != (length != Full) || allowed && (c.Decode(b, &want) != len(b) || want.Newest != at) {
				t.Fatalf("%x becomes %x at %d: allowed %v, %+v", before, b, now, allowed, want)
			}
		}
	})
}

// Other versions and programs read these bytes: they stay what they are.
func TestFormat(t *testing.T) {
	t.Parallel()
	const at = 0x0706050403020100
	ordinal := fixed(9, minute)
	ordinal.Ordinal = 7
	hits := Hits{Total: 300, Pending: -2, InFlight: 3, Lease: 130}
	for _, test := range []struct {
		name   string
		limit  Limit
		state  State
		synced bool
		want   string
	}{
		{"fixed window", fixed(9, second), State{Newest: at, Hits: [2]Hits{{Total: 5}}}, false, "01 e807 0001020304050607 05"},
		{"with an ordinal", ordinal, State{Newest: at, Hits: [2]Hits{{Total: 128}}}, false, "e1 e0d403 0001020304050607 8001"},
		{"sliding window", sliding(9, second), State{Newest: at, Hits: [2]Hits{{Total: 5}, {Total: 1 << 14}}}, false, "03 e807 0001020304050607 05 808001"},
		{"synced", fixed(9, second), State{Newest: at, Hits: [2]Hits{hits}}, true, "11 e807 0001020304050607 ac02 03 0e 8201"},
		{"without a lease", fixed(9, second), State{Newest: at, Hits: [2]Hits{{Total: 1, Pending: 1, InFlight: -1}}}, true, "11 e807 0001020304050607 01 02 03"},
		{"first hit", firstHit(9, second), State{Newest: at, Start: at - 200, Hits: [2]Hits{{Total: 5}}}, false, "02 e807 0001020304050607 c801 05"},
		{"token bucket", tokens(300, 9, second), State{Newest: at, Start: at - 1, Hits: [2]Hits{{Total: 5}}}, false, "05 e807 ac02 0001020304050607 01 05"},
		{"sub-buckets", subBuckets(9, minute, second), State{Newest: 100 * second, Buckets: []Bucket{{Number: 97, Hits: Hits{Total: 1}}, {Number: 99, Hits: Hits{Total: 2}}}}, false,
			"04 e0d403 3c 00e8764817000000 02 03 02 04"},
		{"log, synced", log(9, second), State{Newest: 100, Buckets: []Bucket{{Number: 100, Hits: Hits{Pending: 1}}}}, true, "14 e807 00 6400000000000000 01 01 00 02 00"},
	} {
		got := AppendState(nil, &test.limit, &test.state, test.synced)
		must.Equal(t, hex.EncodeToString(got), strings.ReplaceAll(test.want, " ", ""), "%s", test.name)
	}
}

// A state is of no use beyond the bounds of what it says, to whomever reads it.
func TestStateBounds(t *testing.T) {
	t.Parallel()
	head := func(kind Kind, numbers ...uint64) []byte {
		b := []byte{byte(kind)}
		for _, v := range numbers {
			b = binary.AppendUvarint(b, v)
		}
		return b
	}
	body := func(head []byte, newest int64, hits ...uint64) []byte {
		b := binary.LittleEndian.AppendUint64(head, uint64(newest))
		for _, v := range hits {
			b = binary.AppendUvarint(b, v)
		}
		return b
	}
	longest := uint64(MaxWidth / MinWidth)
	for _, test := range []struct {
		name string
		b    []byte
		want bool
	}{
		{"nothing", nil, false},
		{"a window", body(head(FixedWindow, 1), monday, 5), true},
		{"no width", body(head(FixedWindow, 0), monday, 5), false},
		{"the longest", body(head(FixedWindow, longest), monday, 5), true},
		{"a longer one", body(head(FixedWindow, longest+1), monday, 5), false},
		{"no kind", body(head(0, 1), monday, 5), false},
		{"an unknown kind", body(head(LastKind+1, 1), monday, 5), false},
		{"the end of time", body(head(FixedWindow, 1), maxTime, 5), true},
		{"after that", body(head(FixedWindow, 1), maxTime+1, 5), false},
		{"before the epoch", body(head(FixedWindow, 1), -1, 5), false},
		{"started at the epoch", body(head(FirstHitWindow, 1), 7, 7, 5), true},
		{"started before that", body(head(FirstHitWindow, 1), 7, 8, 5), false},
		{"all hits that there may be", body(head(FixedWindow|syncedBit, 1), monday, MaxHits, zigzag(-MaxHits), zigzag(2*MaxHits)), true},
		{"and a lease", body(head(FixedWindow|syncedBit, 1), monday, MaxHits, zigzag(MaxHits), zigzag(2*MaxHits+1), MaxHits), true},
		{"more hits", body(head(FixedWindow|syncedBit, 1), monday, MaxHits+1, 0, 0), false},
		{"more to push", body(head(FixedWindow|syncedBit, 1), monday, 0, zigzag(MaxHits+1), 0), false},
		{"more in flight", body(head(FixedWindow|syncedBit, 1), monday, 0, 0, zigzag(2*MaxHits+2)), false},
		{"more leased", body(head(FixedWindow|syncedBit, 1), monday, 0, 0, 2, MaxHits+1), false},
		{"two buckets", body(head(SlidingBuckets, 10, 2), monday, 0), true},
		{"one bucket", body(head(SlidingBuckets, 10, 1), monday, 0), false},
		{"64 buckets", body(head(SlidingBuckets, 64, 64), monday, 0), true},
		{"65 buckets", body(head(SlidingBuckets, 65, 65), monday, 0), false},
		{"a log", body(head(SlidingBuckets, 10, 0), monday, 0), true},
		{"the first bucket", body(head(SlidingBuckets, 10, 0), 7, 1, 7<<1), true},
		{"one before that", body(head(SlidingBuckets, 10, 0), 7, 1, 8<<1), false},
		{"two hits in the second bucket of two", body(head(SlidingBuckets, 10, 0), 7, 2, 3<<1, 4<<1|1, 2), true},
		{"two buckets that are one", body(head(SlidingBuckets, 10, 0), 7, 2, 3<<1, 0), false},
		{"two buckets that are one, with hits", body(head(SlidingBuckets, 10, 0), 7, 2, 3<<1, 1, 2), false},
		{"fewer buckets than it says", body(head(SlidingBuckets, 10, 0), 7, 3, 0, 2), false},
		{"as many buckets as there may be", append(body(head(SlidingBuckets, 10, 0), monday, maxBuckets, 0), bytes.Repeat([]byte{2}, maxBuckets-1)...), true},
		{"more of them", append(body(head(SlidingBuckets, 10, 0), monday, maxBuckets+1, 0), bytes.Repeat([]byte{2}, maxBuckets)...), false},
		{"a bucket as far from the next as can be said", body(head(SlidingBuckets, 10, 0), maxTime, 2, 0, math.MaxUint64, 1), false},
		{"a token bucket", body(head(TokenBucket, 1, MaxHits), monday, 0, 5), true},
		{"a larger one", body(head(TokenBucket, 1, MaxHits+1), monday, 0, 5), false},
	} {
		s := State{Newest: 7, Start: 8, Hits: [2]Hits{{Total: 1}, {Total: 2}}, Buckets: make([]Bucket, 1), ends: 3}
		length := DecodeState(test.b, &s)
		limit, ok := DecodeLimit(test.b)
		if (length == len(test.b) && length > 0) != test.want || !test.want && (length != 0 || !reflect.DeepEqual(s, State{Buckets: []Bucket{}})) || test.want && !ok {
			t.Errorf("%s: %d bytes of %d are read as %+v of %+v", test.name, length, len(test.b), s, limit)
		}
		if !ok {
			continue
		}
		// A codec of its limit reads the same, and counts in nothing else.
		c := NewCodec(&limit, test.b[0]&syncedBit != 0)
		got := State{Buckets: make([]Bucket, 3)}
		if length := c.Decode(test.b, &got); length == len(test.b) != test.want || !test.want && length != 0 {
			t.Errorf("%s: the limit's codec reads %d bytes of %d", test.name, length, len(test.b))
		}
		if limit.Max = 1000; !test.want && c.CountInPlace(test.b, true, false, &got, maxTime, 1) != 0 {
			t.Errorf("%s: counted in", test.name)
		}
	}
}

// A window of the clock counts hits in place as long as they take no more bytes, and their time and
// window are the state's.
func TestCountedInPlace(t *testing.T) {
	t.Parallel()
	const start = monday
	for _, test := range []struct {
		name        string
		total, cost uint64
		at, now     int64
		want        bool
	}{
		{"the first hit", 0, 1, start, start, true},
		{"nothing", 5, 0, start, start, true},
		{"all that a byte takes", 100, 27, start, start, true},
		{"one more", 100, 28, start, start, false},
		{"the least that takes two", 1 << 7, 0, start, start, true},
		{"all that two take", 1 << 13, 1<<13 - 1, start, start, true},
		{"one more than that", 1 << 13, 1 << 13, start, start, false},
		{"what takes three", 1 << 14, 1, start, start, true},
		{"all that three take", 1 << 20, 1<<20 - 1, start, start, true},
		{"one more than three take", 1 << 20, 1 << 20, start, start, false},
		{"all that there may be", MaxHits - 1, 1, start, start, true},
		{"the window's last nanosecond", 5, 1, start, start + minute - 1, true},
		{"the next window", 5, 1, start, start + minute, true},
		{"the next window, in fewer bytes", 1 << 7, 1, start, start + minute, false},
		{"a later one", 5, 1, start, start + 3*minute, true},
		{"a clock that went back", 5, 1, start + maxBack, start, true},
		{"a clock that was wrong", 5, 1, start + maxBack + 1, start, false},
		{"the end of time", 5, 1, maxTime, maxTime, true},
		{"after that", 5, 1, maxTime, maxTime + 1, false},
		{"more than there may be", 0, MaxHits + 1, start, start, false},
		{"all that there may be, which take eight", 0, MaxHits, start, start, false},
	} {
		for _, l := range []Limit{fixed(1<<60, minute), sliding(1<<60, minute)} {
			c := NewCodec(&l, false)
			var got State
			b := AppendState(nil, &l, &State{Newest: test.at, Hits: [2]Hits{{Total: test.total}}}, false)
			for _, last := range []bool{true, false} {
				counted := c.CountInPlace(bytes.Clone(b), last, true, &got, test.now, test.cost)
				if counted == len(b) != test.want || !test.want && counted != 0 {
					t.Errorf("%s, kind %d: counted in %d bytes of %d", test.name, l.Kind, counted, len(b))
				}
			}
		}
	}
}

// A clock before 1970 counts nothing in: no state has such a time.
func TestClockBeforeTime(t *testing.T) {
	t.Parallel()
	for _, l := range leasing {
		c := NewCodec(&l, false)
		s := State{}
		b := AppendState(nil, &l, &s, false)
		must.Equal(t, c.CountInPlace(b, true, false, &s, -1, 1), 0, "%+v: bytes counted in", l)
	}
}

// A sum in more bytes than it needs is not counted in: it would be written in fewer.
func TestLongSumIsNotCountedIn(t *testing.T) {
	t.Parallel()
	for _, l := range []Limit{fixed(1000, minute), sliding(1000, minute)} {
		b := AppendState(nil, &l, &State{Newest: monday}, false)
		sum := len(b) - l.Kind.Windows()
		for _, hits := range []byte{0, 5, 100, 126, 0x85} {
			long := append(bytes.Clone(b[:sum]), hits|0x80)
			if hits >= 0x80 {
				long = append(long, 0x80) // in three bytes
			}
			c := NewCodec(&l, false)
			var s State
			if long = append(long, b[sum:]...); c.Decode(long, &s) != len(long) || s.Hits[0].Total != uint64(hits&0x7f) || c.CountInPlace(long, true, true, &s, monday, 1) != 0 {
				t.Errorf("%+v: %x is counted in, or not read: %+v", l, long, s.Hits)
			}
		}
	}
}

// A table is made for these sizes, and no state is longer.
func TestMaxStateSize(t *testing.T) {
	t.Parallel()
	most := Hits{MaxHits, MaxHits, MaxHits, MaxHits}
	full := func(l Limit, hits Hits) State {
		s := State{Newest: maxTime}
		for i := range l.covered() {
			s.Buckets = append(s.Buckets, Bucket{Number: maxTime/l.Precision - l.covered() + 1 + i, Hits: hits})
		}
		return s
	}
	// even is a log whose hits are as far from each other as may be.
	even := func(l Limit) State {
		s := State{Newest: maxTime}
		for i := range int64(l.Max) + 1 {
			s.Buckets = append(s.Buckets, Bucket{Number: maxTime - l.Width + 1 + i*(l.Width/int64(l.Max+1)), Hits: Hits{Total: 1}})
		}
		return s
	}
	large, small := subBuckets(1000, 64*minute, minute), subBuckets(10, minute, minute/2)
	for _, test := range []struct {
		name   string
		limit  Limit
		state  State
		synced bool
		want   int
	}{
		{"fixed window", fixed(9, MaxWidth), State{Newest: maxTime, Hits: [2]Hits{most}}, true, 63},
		{"sliding window", sliding(9, MaxWidth), State{Newest: maxTime, Hits: [2]Hits{most, most}}, true, 95},
		{"token bucket", tokens(MaxHits, 9, MaxWidth), State{Newest: maxTime, Hits: [2]Hits{most}}, true, 63},
		{"sub-buckets", large, full(large, Hits{Total: MaxHits}), false, 672},
		{"sub-buckets, synced", large, full(large, most), true, 2208},
		{"two sub-buckets", small, full(small, Hits{Total: MaxHits}), false, 52},
		{"log", log(100, minute), even(log(100, minute)), false, 669},
		{"log, synced", log(100, minute), even(log(100, minute)), true, 952},
		{"log of a second", log(500, second), even(log(500, second)), true, 4051},
		{"short log", log(1, MinWidth), even(log(1, MinWidth)), false, 51},
		{"log whose hits are just so far apart that their ages take three bytes", log(121, MinWidth), even(log(121, MinWidth)), false, 551},
		{"log whose ages just take two bytes", log(1220, 10*MinWidth), even(log(1220, 10*MinWidth)), false, 3726},
		{"log whose ages just take three", log(1464, 12*MinWidth), even(log(1464, 12*MinWidth)), false, 5923},
		{"long log", log(367, MaxWidth), even(log(367, MaxWidth)), true, 4091},
	} {
		length := len(AppendState(nil, &test.limit, &test.state, test.synced))
		if got := MaxStateSize(&test.limit, test.synced); got != test.want || length > got {
			t.Errorf("%s: at most %d bytes, want %d; a state takes %d", test.name, got, test.want, length)
		}
	}
	// So docs/configuration.md says.
	for _, test := range []struct {
		width int64
		want  uint64
	}{{MinWidth, 1000}, {minute, 1000}, {3600 * second, 890}, {24 * 3600 * second, 801}, {MaxWidth, 728}} {
		must.Equal(t, log(0, test.width).LargestLog(), test.want, "hits of the largest log of %d ms", test.width/MinWidth)
	}
}
