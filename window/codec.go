package window

import (
	"encoding/binary"
	"math"
)

// A state in shared data describes itself, so that every proxy can read, carry along, expire and
// push the states of limits that it isn't configured with:
//
//	kind and flags  1 byte   kind in bits 0-3, synced in bit 4, ordinal in bits 5-7
//	width           uvarint  milliseconds
//	buckets         uvarint  that a window has; bucketed kinds only, 0 for a log
//	limit           uvarint  kinds that refill only
//	newest          8 bytes  nanoseconds, little endian
//	start           uvarint  nanoseconds before newest; started kinds only
//	hits            of each window, or for bucketed kinds a list of buckets
//
// Hits are the sum, a uvarint. If they are synced, they are total, pending and in flight instead. Pending
// and in flight are zigzag varints. The latter is doubled; one is added if the lease, a uvarint, follows.
// A list of buckets is their number, a uvarint, and then the buckets, the newest first. Each begins
// with its distance, in buckets, from the one before it in the list, and the first from newest's.
// The distance is doubled; one is added if hits follow. They do if they are synced or more than
// one, and those of a sub-bucket that is the newest. A log of many buckets that are not synced ends with a summary: see log.go.
const (
	kindMask     = 0x0f
	syncedBit    = 0x10
	ordinalShift = 5
)

const (
	maxVarint = 10
	// maxHitsSize bounds the bytes of the hits of one window.
	maxHitsSize = 4 * 8
	// maxHeadSize bounds the bytes before the hits.
	maxHeadSize = 1 + 6 + 8 + 8 + 8
	// maxBuckets bounds the buckets of one state.
	maxBuckets = 1 << 13
)

// MaxStateSize is the most bytes that an encoded state of a limit can take.
func MaxStateSize(l *Limit, synced bool) int {
	if !l.Kind.Bucketed() {
		return maxHeadSize + l.Kind.Windows()*maxHitsSize
	}
	hits := 8
	if synced {
		hits = maxHitsSize
	}
	if !l.IsLog() {
		return maxHeadSize + 1 + int(l.covered())*(2+hits)
	}
	// The ages of a log's buckets sum to the window, so the worst case is even ages. At a limit
	// below about a hundred, a single hit may stand for several; then the sum of hits bounds their
	// bytes.
	count := int64(min(l.Max, maxBuckets)) + 1
	age := 1
	for each := 2 * (l.Width/count + 1); each >= 0x80; each >>= 7 {
		age++
	}
	// The worst case is a bucket for each hit, since two hits in a bucket save an age.
	summary := 0
	if hits = 0; synced {
		hits = 3
	} else if count >= leastPacked {
		summary = summarySize
	}
	// If ages lie just above a power of 128, uneven ages can take a byte more each.
	return maxHeadSize + 2 + int(count)*(age+1+hits) + maxVarint + summary
}

const (
	// MaxLogSize bounds the encoded log of one key, in bytes: eight logs fit an entry of shared data, and
	// two keys with one a page of 16 KiB, which every request for one of them gets and sets.
	MaxLogSize = 8064
	// MaxLog bounds the limit of a log: a message to the backend tells the times of 1,024 hits.
	MaxLog = 1000
	// mostLogged is above the limit of every possible log. A log with this limit forgets no hits.
	mostLogged = MaxLog + 1
)

// LargestLog is the largest limit, up to MaxLog, whose log fits MaxLogSize.
func (s Shape) LargestLog() (most uint64) {
	l := Limit{Shape: s}
	for l.Max = 1; l.Max <= MaxLog; l.Max++ {
		if MaxStateSize(&l, true) <= MaxLogSize {
			most = l.Max
		}
	}
	return most
}

// AppendState appends a limit's state in the form of shared data. Without synced it keeps only the
// sums of hits.
func AppendState(dst []byte, l *Limit, s *State, synced bool) []byte {
	if l.Calendar != nil { // as a fixed window with a width of its own
		shape := l.Shape
		shape.Width = l.Calendar.At(s.Newest).Width
		l = &Limit{Shape: shape}
	}
	return appendBody(appendHead(dst, l, synced), l, s, synced)
}

// appendHead appends the part that all states of the limit have in common.
func appendHead(dst []byte, l *Limit, synced bool) []byte {
	head := byte(l.Kind)&kindMask | l.Ordinal<<ordinalShift
	if synced {
		head |= syncedBit
	}
	dst = append(dst, head)
	dst = appendLong(dst, uint64(l.Width/MinWidth))
	if l.Kind.Bucketed() {
		buckets := uint64(0)
		if !l.IsLog() {
			buckets = uint64(l.covered())
		}
		dst = appendLong(dst, buckets)
	}
	if l.Kind.Refills() {
		dst = appendLong(dst, l.Max)
	}
	return dst
}

func appendBody(dst []byte, l *Limit, s *State, synced bool) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, uint64(s.Newest))
	switch {
	case l.Kind.Bucketed():
		return appendBuckets(dst, l, s, synced)
	case l.Kind.Started():
		dst = appendUvarint(dst, uint64(s.Newest-s.Start))
	}
	if dst = s.Hits[0].append(dst, synced); l.Kind.looksBack() {
		dst = s.Hits[1].append(dst, synced)
	}
	return dst
}

// appendUvarint is binary.AppendUvarint with a fast path for small values, which most are.
func appendUvarint(dst []byte, v uint64) []byte {
	if v < 1<<7 {
		return append(dst, byte(v))
	}
	if v < 1<<14 {
		return append(dst, byte(v)|0x80, byte(v>>7))
	}
	return appendLong(dst, v)
}

//go:noinline // it is rare, and large
func appendLong(dst []byte, v uint64) []byte { return binary.AppendUvarint(dst, v) }

func (h *Hits) append(dst []byte, synced bool) []byte {
	if !synced {
		return appendUvarint(dst, min(h.Sum(), MaxHits))
	}
	dst = appendUvarint(dst, h.Total)
	dst = appendUvarint(dst, zigzag(h.Pending))
	if h.Lease == 0 {
		return appendUvarint(dst, zigzag(2*h.InFlight))
	}
	return appendUvarint(appendUvarint(dst, zigzag(2*h.InFlight+1)), h.Lease)
}

func zigzag(v int64) uint64 { return uint64(v<<1) ^ uint64(v>>63) }

// Readers of states return the next position, or wrong for bytes that can't be valid. A reader that
// starts at wrong returns wrong, so only the last result needs a check.
const wrong = -1

// uvarint reads a number up to most. If next is wrong, v means nothing.
func uvarint(b []byte, at int, most uint64) (v uint64, next int) {
	if uint(at) >= uint(len(b)) {
		return v, wrong
	}
	v, n := uint64(b[at]), 1
	if v >= 1<<7 {
		if v, n = binary.Uvarint(b[at:]); n <= 0 {
			return v, wrong
		}
	}
	if v > most {
		return v, wrong
	}
	return v, at + n
}

// sum reads the hits of a window from a state that is not synced.
func sum(b []byte, at int) (hits uint64, next int) {
	if uint(at) < uint(len(b)) && b[at] < 1<<7 {
		return uint64(b[at]), at + 1
	}
	return longSum(b, at)
}

func longSum(b []byte, at int) (hits uint64, next int) {
	for shift := 0; uint(at) < uint(len(b)) && shift < 63; shift += 7 {
		hits |= uint64(b[at]&0x7f) << shift
		if at++; b[at-1] < 1<<7 && hits <= MaxHits {
			return hits, at
		}
	}
	return hits, wrong
}

// varint reads a number from -most to most.
func varint(b []byte, at int, most int64) (v int64, next int) {
	u, next := uvarint(b, at, 2*uint64(most))
	return int64(u>>1) ^ -int64(u&1), next
}

func (h *Hits) decode(b []byte, at int, synced bool) (next int) {
	h.Pending, h.InFlight, h.Lease = 0, 0, 0
	h.Total, at = sum(b, at)
	if !synced {
		return at
	}
	h.Pending, at = varint(b, at, MaxHits)
	var inFlight int64
	inFlight, at = varint(b, at, 2*MaxHits+1)
	if h.InFlight = inFlight >> 1; inFlight&1 != 0 {
		h.Lease, at = uvarint(b, at, MaxHits)
	}
	return at
}

// DecodeLimit reads the limit's part of the state at the beginning of b: the shape, and everything
// needed to push the state and to know when it expires. ok is false if b does not begin with a
// valid state.
func DecodeLimit(b []byte) (l Limit, ok bool) {
	at := decodeHead(b, &l)
	return l, at != wrong
}

// decodeHead reads everything before the hits.
func decodeHead(b []byte, l *Limit) (next int) {
	if len(b) == 0 {
		return wrong
	}
	l.Kind = Kind(b[0] & kindMask)
	l.Ordinal = b[0] >> ordinalShift
	width, at := uvarint(b, 1, uint64(MaxWidth/MinWidth))
	l.Width = int64(width) * MinWidth
	if l.Kind.Bucketed() {
		var buckets uint64
		if buckets, at = uvarint(b, at, MaxSubBuckets); buckets == 0 {
			l.Precision, l.Max = LogPrecision, mostLogged
		} else {
			l.Precision = l.Width / int64(buckets)
		}
	}
	if l.Kind.Refills() {
		l.Max, at = uvarint(b, at, MaxHits)
	}
	if l.Kind.Bursts() {
		l.Burst = l.Max
	}
	if l.fault(MinSubBuckets) != Sound {
		return wrong
	}
	return at
}

// DecodeState reads the state at the beginning of b into s, and returns its length in bytes. If b
// does not begin with a valid state, it returns 0 and resets s.
func DecodeState(b []byte, s *State) (length int) {
	var l Limit
	at := decodeHead(b, &l)
	if at != wrong {
		at = decodeBody(b, at, &l, s, b[0]&syncedBit != 0)
	}
	if at == wrong {
		s.Reset()
		return 0
	}
	return at
}

// decodeBody reads everything after the head.
func decodeBody(b []byte, at int, l *Limit, s *State, synced bool) (next int) {
	if at+8 > len(b) {
		return wrong
	}
	newest := binary.LittleEndian.Uint64(b[at:])
	if newest > uint64(maxTime) {
		return wrong
	}
	at += 8
	s.begin(int64(newest), 0, 0, 0)
	switch {
	case l.Kind.Bucketed():
		return decodeBuckets(b, at, l, s, synced)
	case l.Kind.Started():
		var since uint64
		since, at = uvarint(b, at, newest)
		s.Start = s.Newest - int64(since)
	}
	if at = s.Hits[0].decode(b, at, synced); l.Kind.looksBack() {
		return s.Hits[1].decode(b, at, synced)
	}
	return at
}

// Codec reads and writes the states of one limit, whose head it has encoded in advance. It is safe
// for concurrent use.
type Codec struct {
	_ [0]func() // keeps Go from generating an equality function

	limit  *Limit
	head   [2]uint64 // little endian
	mask   [2]uint64 // selects the bytes of head that are in use
	length int
	synced bool
	plain  bool // states are a time and each window's sum of hits
	two    bool // there are two windows
	one    bool // states are a time, a start and a sum of hits
	log    bool // states are logs that may have a summary
	parts  bool // states are a time and a list of sub-buckets
}

// NewCodec returns a codec for states of a limit, which must not change afterwards.
func NewCodec(l *Limit, synced bool) Codec {
	c := Codec{limit: l, synced: synced, two: l.Kind.looksBack()}
	var head [16]byte
	c.length = len(appendHead(head[:0], l, synced))
	c.plain = l.Kind.Clocked() && l.Calendar == nil && !synced
	c.log = l.IsLog() && !synced
	c.one = l.Kind.Started() && !synced
	c.parts = l.Kind == SlidingBuckets && !c.log && !synced
	for i := range c.head {
		c.head[i] = binary.LittleEndian.Uint64(head[8*i:])
		c.mask[i] = 1<<(8*max(c.length-8*i, 0)) - 1
	}
	return c
}

// Append does what [AppendState] does.
func (c *Codec) Append(dst []byte, s *State) []byte {
	if c.limit.Calendar != nil {
		return AppendState(dst, c.limit, s, c.synced)
	}
	end := len(dst) + c.length
	dst = binary.LittleEndian.AppendUint64(dst, c.head[0])
	if c.length > 8 {
		dst = binary.LittleEndian.AppendUint64(dst, c.head[1])
	}
	if !c.plain {
		return appendBody(dst[:end], c.limit, s, c.synced)
	}
	dst = binary.LittleEndian.AppendUint64(dst[:end], uint64(s.Newest))
	dst = appendUvarint(dst, min(s.Hits[0].Sum(), MaxHits))
	if c.two {
		dst = appendUvarint(dst, min(s.Hits[1].Sum(), MaxHits))
	}
	return dst
}

// Decode does what [DecodeState] does for states of this limit. If b begins with anything else, it
// returns 0 and the content of s is undefined.
func (c *Codec) Decode(b []byte, s *State) (length int) {
	if c.limit.Calendar != nil {
		if len(b) == 0 || c.synced != (b[0]&syncedBit != 0) || !Reads(c.limit, b) {
			return 0
		}
		return DecodeState(b, s)
	}
	if !c.begins(b) {
		return 0
	}
	if !c.plain {
		if c.log && c.unpackLater(b, s) {
			return len(b)
		}
		return max(decodeBody(b, c.length, c.limit, s, c.synced), 0)
	}
	newest := binary.LittleEndian.Uint64(b[c.length:])
	if newest > uint64(maxTime) {
		return 0
	}
	total, length := sum(b, c.length+8)
	s.begin(int64(newest), 0, 0, total)
	if c.two {
		s.Hits[1].Total, length = sum(b, length)
	}
	return max(length, 0)
}

// begins reports whether b begins as states of the limit do, up to the newest time, which alone has eight bytes.
func (c *Codec) begins(b []byte) bool {
	return len(b) >= c.length+8 && (binary.LittleEndian.Uint64(b)^c.head[0])&c.mask[0] == 0 &&
		(c.length <= 8 || (binary.LittleEndian.Uint64(b[8:])^c.head[1])&c.mask[1] == 0)
}

// Full is what [Codec.CountInPlace] returns if the hits have no room.
const Full = -1

// CountInPlace counts cost hits in the encoded state at the beginning of b. It works if the state is
// not synced and takes as many bytes afterwards, and the hits have room: nearly every request finds such a
// state. Then b and s are as [Codec.Decode], [Limit.Advance], [Limit.Count] and [Codec.Append] would leave them,
// and the result is the state's length. Sub-buckets are counted in only if s need not be whole: see countBuckets.
// In all other cases b is unchanged. If the hits have no room, the result is Full, and s is as Advance would leave it, but without sub-buckets;
// otherwise the result is 0, and the content of s is undefined. If last is set, the state must end the payload.
func (c *Codec) CountInPlace(b []byte, last, whole bool, s *State, now int64, cost uint64) (length int) {
	switch {
	case c.one:
		return c.countStarted(b, last, s, now, cost)
	case c.parts && !whole:
		return c.countBuckets(b, last, s, now, cost)
	case !c.plain:
		return 0
	}
	length, w := c.countClocked(b, last, now, cost)
	if length != 0 {
		s.begin(w.newest, 0, w.ends, w.current)
		s.Hits[1].Total = w.previous
	}
	return length
}

// IsAhead reports whether the state at the beginning of b, which was found [Full], is of a time after now.
func (c *Codec) IsAhead(b []byte, now int64) bool {
	return int64(binary.LittleEndian.Uint64(b[c.length:])) > now
}

// Plain reports whether states are a time and the hits of windows of the clock, which are not synced: then
// [Codec.CountPlain] counts in them.
func (c *Codec) Plain() bool { return c.plain }

// CountPlain is CountInPlace for at least one hit in a plain state, of which it says no more than [Limit.Worth] does.
func (c *Codec) CountPlain(b []byte, last bool, now int64, cost uint64) (length int, forgetAt int64, share float32) {
	length, w := c.countClocked(b, last, now, cost)
	if c.two {
		w.ends += c.limit.Width
	}
	return length, w.ends, shareOf(w.current+w.previous, c.limit.Max)
}

// clocked is a state with windows of the clock, all of whose hits are totals.
type clocked struct {
	newest, ends      int64
	current, previous uint64
}

// countClocked is CountInPlace for a kind with windows of the clock.
func (c *Codec) countClocked(b []byte, last bool, now int64, cost uint64) (length int, w clocked) {
	if len(b) < c.length+9 || (binary.LittleEndian.Uint64(b)^c.head[0])&c.mask[0] != 0 {
		return 0, w
	}
	body, width, most := b[c.length:], uint64(c.limit.Width), c.limit.Max
	newest := binary.LittleEndian.Uint64(body)
	ends := (newest/width + 1) * width
	now = notBefore(newest, now)
	current, at := sum(body, 8)
	previous, end := uint64(0), at
	if c.two {
		previous, end = sum(body, at)
	}
	if uint64(now) > uint64(maxTime) || cost > MaxHits || end == wrong || last && end != len(body) {
		return 0, w
	}
	before := previous
	if uint64(now) >= ends {
		if previous = 0; c.two && uint64(now)-ends < width {
			previous = current
		}
		current, ends = 0, (uint64(now)/width+1)*width
	}
	w = clocked{now, int64(ends), current, previous}
	// The previous window's hits wear off, which only makes more room.
	if most == 0 || current+previous+cost > most && (cost > most || current+MulDivUp(previous, ends-uint64(now), width) > most-cost) {
		return Full, w
	}
	if previous != before && !putUvarint(body, at, end, previous) {
		return 0, w
	}
	if w.current += cost; !putUvarint(body, 8, at, w.current) {
		if previous != before {
			putUvarint(body, at, end, before)
		}
		return 0, w
	}
	binary.LittleEndian.PutUint64(body, uint64(now))
	return c.length + end, w
}

// countStarted is CountInPlace for a kind that starts with a hit.
func (c *Codec) countStarted(b []byte, last bool, s *State, now int64, cost uint64) (length int) {
	if !c.begins(b) {
		return 0
	}
	body := b[c.length:]
	newest := binary.LittleEndian.Uint64(body)
	since, at := uvarint(body, 8, newest)
	hits, end := sum(body, at)
	now = notBefore(newest, now)
	if uint64(now) > uint64(maxTime) || cost-1 >= MaxHits || end == wrong || last && end != len(body) {
		return 0
	}
	s.begin(int64(newest), int64(newest-since), 0, hits)
	l := c.limit
	expireStarted(l, s, now)
	if s.Newest = now; !l.Allows(s, cost) {
		return Full
	}
	countStarted(s, cost)
	if !fits(at-8, uint64(s.Newest-s.Start)) || !putUvarint(body, at, end, min(s.Hits[0].Sum(), MaxHits)) {
		return 0
	}
	putUvarint(body, 8, at, uint64(s.Newest-s.Start))
	binary.LittleEndian.PutUint64(body, uint64(s.Newest))
	return c.length + end
}

// notBefore is now, or the time of a state that another goroutine or worker has just written, as for [Limit.Advance]. A
// state of a clock that was wrong has no such time.
func notBefore(newest uint64, now int64) int64 {
	switch ahead := newest - uint64(now); {
	case newest <= uint64(now):
		return now
	case ahead <= uint64(maxBack):
		return int64(newest)
	}
	return math.MaxInt64
}

// fits reports whether a number takes exactly size bytes.
func fits(size int, v uint64) bool {
	return v>>(7*size) == 0 && (size == 1 || v>>(7*size-7) != 0)
}

// putUvarint writes a number to b[at:end] if it takes exactly these bytes, and reports whether it did.
//
//go:noinline // at three places it would make the plugin larger
func putUvarint(b []byte, at, end int, v uint64) (put bool) {
	if !fits(end-at, v) {
		return false
	}
	for end--; at < end; at++ {
		b[at] = byte(v) | 0x80
		v >>= 7
	}
	b[at] = byte(v)
	return true
}
