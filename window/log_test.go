package window

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"weir/internal/must"
)

// firstAppend writes the buckets of a log that is not synced as v0.1.0 did.
func firstAppend(dst []byte, l *Limit, s *State) []byte {
	dst = binary.LittleEndian.AppendUint64(appendHead(dst, l, false), uint64(s.Newest))
	count := 0
	for i := range s.Buckets {
		if !s.Buckets[i].idle() {
			count++
		}
	}
	dst = binary.AppendUvarint(dst, uint64(count))
	last := s.Newest
	for _, b := range slices.Backward(s.Buckets) {
		if b.idle() {
			continue
		}
		age := uint64(last-b.Number) << 1
		if last = b.Number; b.Sum() == 1 {
			dst = binary.AppendUvarint(dst, age)
		} else {
			dst = binary.AppendUvarint(binary.AppendUvarint(dst, age|1), min(b.Sum(), MaxHits))
		}
	}
	return dst
}

// firstDecode reads the hits of a log as v0.1.0 did, without those that have left before.
func firstDecode(b []byte) (newest int64, buckets []Bucket, ok bool) {
	var l Limit
	at := decodeHead(b, &l)
	if at == wrong || at+8 > len(b) {
		return 0, nil, false
	}
	newest = int64(binary.LittleEndian.Uint64(b[at:]))
	count, at := uvarint(b, at+8, maxBuckets)
	number := newest
	for i := range count {
		var age uint64
		age, at = uvarint(b, at, math.MaxUint64)
		if number -= int64(age >> 1); at == wrong || number < 0 || i > 0 && age < 2 {
			return 0, nil, false
		}
		hits := uint64(1)
		if age&1 != 0 {
			hits, at = sum(b, at)
		}
		if hits > 0 {
			buckets = append(buckets, Bucket{Number: number, Hits: Hits{Total: hits}})
		}
	}
	slices.Reverse(buckets)
	return newest, buckets, at == len(b)
}

// told is everything that a log says of itself, without its form.
type told struct {
	standing       Standing
	used           uint64
	fits, resets   int64
	fitsOK, has    bool
	forget, number int64
	share          float32
}

func tell(l *Limit, s *State, hits uint64) (t told) {
	t.standing = l.Standing(s, s.Newest)
	t.used = l.Used(s)
	t.fits, t.fitsOK = l.FitsAt(s, hits)
	t.resets, t.has = l.ResetAt(s)
	t.forget, t.share = l.Worth(s)
	t.number = int64(l.Number(s))
	return t
}

// followLog does random things to a log that stays packed from one write to the next as long as it can,
// and to one that is decoded whole each time. Both say the same, and have the same bytes, which v0.1.0
// reads as the same hits. It returns how often the first was packed, and how often hits were refused.
func followLog(t *testing.T, random *rand.Rand, l Limit, steps int) (packedTimes, refused int) {
	t.Helper()
	c := NewCodec(&l, false)
	var encoded []byte
	var a State
	now := monday + random.Int64N(1e15)
	even := l.Width / int64(max(l.Max, 1))
	for step := range steps {
		switch random.IntN(150) {
		case 0:
			now += random.Int64N(2 * l.Width)
		case 1:
			now -= random.Int64N(l.Width)
		case 2: // the same nanosecond
		default:
			now += random.Int64N(2*even + even/2 + 1)
		}
		cost := uint64(1)
		switch random.IntN(30) {
		case 0, 1, 2, 3:
			cost = random.Uint64N(5)
		case 4:
			cost = 1 + random.Uint64N(l.Max)
		}
		var b State
		if len(encoded) > 0 {
			if c.Decode(encoded, &a) != len(encoded) || DecodeState(encoded, &b) != len(encoded) {
				t.Fatalf("step %d: %x can't be read", step, encoded)
			}
			newest, buckets, ok := firstDecode(encoded)
			if !ok || newest != b.Newest || !reflect.DeepEqual(buckets, append([]Bucket(nil), b.Buckets...)) {
				t.Fatalf("step %d: v0.1.0 reads %x as %v, %v, want %v", step, encoded, ok, buckets, b.Buckets)
			}
			if random.IntN(20) == 0 { // v0.1.0 was here
				encoded = firstAppend(nil, &l, &b)
				must.EqualOrEnd(t, c.Decode(encoded, &a), len(encoded), "step %d: %x of v0.1.0 can't be read", step, encoded)
			}
		}
		if a.isPacked() {
			packedTimes++
		}
		l.Advance(&a, now)
		l.Advance(&b, now)
		must.EqualOrEnd(t, tell(&l, &a, cost), tell(&l, &b, cost), "step %d: a packed log says", step)
		number := l.Number(&a)
		switch allowed := l.Allows(&b, cost); {
		case l.Allows(&a, cost) != allowed:
			t.Fatalf("step %d: a packed log allows %v", step, !allowed)
		case allowed || random.IntN(8) == 0:
			l.Count(&a, cost)
			l.Count(&b, cost)
		default:
			refused++
		}
		switch random.IntN(30) {
		case 0:
			l.GiveBack(&a, number, cost)
			l.GiveBack(&b, number, cost)
		case 1:
			must.EqualOrEnd(t, l.GiveBackNewest(&a, cost), l.GiveBackNewest(&b, cost), "step %d: are given back", step)
		case 2:
			l.Advance(&a, now+even)
			l.Advance(&b, now+even)
		}
		must.EqualOrEnd(t, tell(&l, &a, cost), tell(&l, &b, cost), "step %d: then a packed log says", step)
		encoded = c.Append(encoded[:0], &a)
		if want := AppendState(nil, &l, &b, false); !bytes.Equal(encoded, want) {
			t.Fatalf("step %d: a packed log becomes %x, want %x", step, encoded, want)
		}
		must.AtMost(t, len(encoded), MaxStateSize(&l, false), "step %d: bytes", step)
	}
	return packedTimes, refused
}

func TestPackedLogs(t *testing.T) {
	t.Parallel()
	times, refused, steps := 0, 0, 0
	for seed := range uint64(40) {
		random := rand.New(rand.NewPCG(seed, 9))
		l := log([]uint64{1, 15, 17, 40, 130, 400, 1000}[random.IntN(7)], []int64{MinWidth, 100 * MinWidth, second, minute, 3600 * second, MaxWidth}[random.IntN(6)])
		n := 1500
		packedTimes, no := followLog(t, random, l, n)
		times, refused, steps = times+packedTimes, refused+no, steps+n
	}
	if times < steps/3 || refused < steps/20 || refused > steps*2/3 {
		t.Errorf("of %d logs %d were packed, and %d had no room: such runs show little", steps, times, refused)
	}
}

func FuzzPackedLog(f *testing.F) {
	f.Add(uint64(1), uint64(500), int64(60_000))
	f.Add(uint64(2), uint64(17), int64(1))
	f.Fuzz(func(t *testing.T, seed, most uint64, millis int64) {
		l := log(1+most%1000, (1+millis&(1<<34-1)%(MaxWidth/MinWidth))*MinWidth)
		followLog(t, rand.New(rand.NewPCG(seed, 1)), l, 300)
	})
}

// Whatever bytes a log has, whatever is asked of it, nothing panics, it is written and read again, and no
// hits come from nowhere.
func FuzzBrokenLog(f *testing.F) {
	l := log(500, minute)
	s := State{}
	for i := range int64(40) {
		l.Advance(&s, monday+i*second)
		l.Count(&s, 1+uint64(i)%3)
	}
	whole := AppendState(nil, &l, &s, false)
	f.Add(whole, int64(0), uint64(1), -1, byte(0))
	f.Add(whole, minute/2, uint64(100), 30, byte(0x80))
	f.Fuzz(func(t *testing.T, b []byte, later int64, cost uint64, at int, becomes byte) {
		if at >= 0 && at < len(b) {
			b = bytes.Clone(b)
			b[at] = becomes
		}
		c := NewCodec(&l, false)
		var s State
		if c.Decode(b, &s) == 0 {
			return
		}
		sum := l.Used(&s)
		l.Advance(&s, s.Newest+max(0, min(later, minute)))
		must.AtMost(t, l.Used(&s), sum, "%x: hits of %d", b, sum)
		l.FitsAt(&s, min(cost, 500))
		l.Standing(&s, s.Newest)
		l.Count(&s, min(cost, 500))
		encoded := c.Append(nil, &s)
		used := l.Used(&s)
		var again State
		if c.Decode(encoded, &again) != len(encoded) || l.Used(&again) != used {
			t.Fatalf("%x: %d hits are written as %x", b, used, encoded)
		}
		l.GiveBackNewest(&s, 3)
		must.AtMost(t, l.Used(&s), used, "%x: hits after some went back", b)
	})
}
