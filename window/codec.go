package window

import "encoding/binary"

// A state in shared data describes itself, so that every proxy can read, carry along, expire and push the states of limits
// that it isn't configured with:
//
//	kind and flags  1 byte   kind in bits 0-3, synced in bit 4, ordinal in bits 5-7
//	width           uvarint  milliseconds
//	buckets         uvarint  that a window has; SlidingBuckets only, 0 for a log
//	limit           uvarint  TokenBucket only
//	newest          8 bytes  nanoseconds, little endian
//	start           uvarint  nanoseconds before newest; FirstHitWindow and TokenBucket only
//	hits            of each window, or for SlidingBuckets a list of buckets
//
// Hits are the sum, a uvarint, or if synced total, diff and flight, the latter two zigzag varints; flight is doubled, plus one if
// the lease, a uvarint, follows. A list of buckets is their
// number, a uvarint, and for each, the newest first, how many buckets it lies before the one before (the first, before
// newest's), times two; plus one where hits follow, as there is more than one hit, or they are synced.
const (
	kindMask     = 0x0f
	syncedBit    = 0x10
	ordinalShift = 5
)

const (
	maxVarint = 10
	// maxHitsSize is what the hits of one window take at most.
	maxHitsSize = 4 * 8
	// maxHeadSize is what comes before the hits at most.
	maxHeadSize = 1 + 6 + 8 + 8 + 8
	// maxBuckets bounds the buckets of one state.
	maxBuckets = 1 << 13
)

// windows is the number of windows whose hits a state of this kind has in State.Hits; 0 for an unknown kind.
func (k Kind) windows() int {
	switch k {
	case FixedWindow, FirstHitWindow, TokenBucket:
		return 1
	case SlidingWindow:
		return 2
	}
	return 0
}

// MaxStateSize is the most bytes that an encoded state of the limit takes.
func (l *Limit) MaxStateSize(synced bool) int {
	if l.Kind != SlidingBuckets {
		return maxHeadSize + l.Kind.windows()*maxHitsSize
	}
	hits := 8
	if synced {
		hits = maxHitsSize
	}
	if l.Precision != LogPrecision {
		return maxHeadSize + 1 + int(l.covered())*(2+hits)
	}
	// The ages of a log's buckets sum to the window, so that they take the most bytes if they are even. At a limit below a
	// hundred or so one hit is worth several; then the sum of hits bounds the bytes for them.
	count := int64(min(l.Max, maxBuckets)) + 1
	age := 1
	for each := 2 * (l.Width/count + 1); each >= 0x80; each >>= 7 {
		age++
	}
	// One hit for each is the worst case, as two together save an age.
	if hits = 0; synced {
		hits = 3
	}
	// An uneven log can take a byte more for each age, if these lie just above the numbers that take one less.
	return maxHeadSize + 2 + int(count)*(age+1+hits) + maxVarint
}

const (
	// MaxLogSize bounds the log of one key. Every request that finds it gets and sets it, and decodes it.
	MaxLogSize = 4096
	// mostLogged is above the limit of every log, as each hit takes 5 bytes. Nobody forgets hits of a log that says it has this limit.
	mostLogged = MaxLogSize / 5
)

// LargestLog is the largest limit whose log, of the window of l, keeps to MaxLogSize.
func (l Limit) LargestLog() (most uint64) {
	for l.Max = 1; l.Max <= MaxLogSize; l.Max++ {
		if l.MaxStateSize(true) <= MaxLogSize {
			most = l.Max
		}
	}
	return most
}

// AppendState appends s in the form of shared data. Unless synced is set, only the sums are kept.
func (l *Limit) AppendState(dst []byte, s *State, synced bool) []byte {
	head := byte(l.Kind)&kindMask | l.Ordinal<<ordinalShift
	if synced {
		head |= syncedBit
	}
	dst = append(dst, head)
	dst = binary.AppendUvarint(dst, uint64(l.Width/MinWidth))
	switch l.Kind {
	case SlidingBuckets:
		buckets := uint64(0)
		if l.Precision != LogPrecision {
			buckets = uint64(l.covered())
		}
		dst = binary.AppendUvarint(dst, buckets)
	case TokenBucket:
		dst = binary.AppendUvarint(dst, l.Max)
	}
	dst = binary.LittleEndian.AppendUint64(dst, uint64(s.Newest))
	switch l.Kind {
	case FirstHitWindow, TokenBucket:
		dst = binary.AppendUvarint(dst, uint64(s.Newest-s.Start))
	case SlidingBuckets:
		return l.appendBuckets(dst, s, synced)
	}
	for i := range l.Kind.windows() {
		dst = s.Hits[i].append(dst, synced)
	}
	return dst
}

func (h *Hits) append(dst []byte, synced bool) []byte {
	if !synced {
		return binary.AppendUvarint(dst, min(h.Sum(), MaxHits))
	}
	dst = binary.AppendUvarint(dst, h.Total)
	dst = binary.AppendVarint(dst, h.Diff)
	if h.Lease == 0 {
		return binary.AppendVarint(dst, 2*h.Flight)
	}
	return binary.AppendUvarint(binary.AppendVarint(dst, 2*h.Flight+1), h.Lease)
}

func (l *Limit) appendBuckets(dst []byte, s *State, synced bool) []byte {
	count := 0
	for i := range s.Buckets {
		if s.Buckets[i].Hits != (Hits{}) {
			count++
		}
	}
	dst = binary.AppendUvarint(dst, uint64(count))
	last := s.Newest / l.Precision
	for i := len(s.Buckets) - 1; i >= 0; i-- {
		b := &s.Buckets[i]
		if b.Hits == (Hits{}) {
			continue // given back
		}
		age := uint64(last-b.Number) << 1
		last = b.Number
		if !synced && b.Sum() == 1 {
			dst = binary.AppendUvarint(dst, age)
			continue
		}
		dst = binary.AppendUvarint(dst, age|1)
		dst = b.append(dst, synced)
	}
	return dst
}

// decoder takes a state apart. After what can't be right it returns zeros.
type decoder struct {
	b      []byte
	at     int
	failed bool
}

func (d *decoder) uvarint(most uint64) uint64 {
	if d.at < len(d.b) && d.b[d.at] < 0x80 {
		v := uint64(d.b[d.at])
		d.at++
		if v > most {
			d.failed = true
		}
		return v
	}
	v, n := binary.Uvarint(d.b[min(d.at, len(d.b)):])
	if n <= 0 || v > most {
		d.failed = true
		return 0
	}
	d.at += n
	return v
}

func (d *decoder) varint(most int64) int64 {
	v, n := binary.Varint(d.b[min(d.at, len(d.b)):])
	if n <= 0 || v > most || v < -most {
		d.failed = true
		return 0
	}
	d.at += n
	return v
}

func (d *decoder) hits(h *Hits, synced bool) {
	h.Total = d.uvarint(MaxHits)
	if synced {
		h.Diff = d.varint(MaxHits)
		flight := d.varint(2*MaxHits + 1)
		if h.Flight = flight >> 1; flight&1 != 0 {
			h.Lease = d.uvarint(MaxHits)
		}
	}
}

// DecodeLimit reads what the state at the beginning of b says of its limit: the shape, and of the rest only what it takes to
// tell when the state can be forgotten, and to push it. It is false if b begins with no valid state.
func DecodeLimit(b []byte) (l Limit, ok bool) {
	d := decoder{b: b}
	d.limit(&l)
	return l, !d.failed
}

func (d *decoder) limit(l *Limit) (synced bool) {
	if len(d.b) == 0 {
		d.failed = true
		return false
	}
	l.Kind = Kind(d.b[0] & kindMask)
	l.Ordinal = d.b[0] >> ordinalShift
	d.at = 1
	l.Width = int64(d.uvarint(uint64(MaxWidth/MinWidth))) * MinWidth
	switch {
	case l.Width == 0:
		d.failed = true
	case l.Kind == SlidingBuckets:
		buckets := int64(d.uvarint(MaxSubBuckets))
		switch {
		case buckets == 0:
			l.Precision, l.Max = LogPrecision, mostLogged
		case buckets == 1 || l.Width%buckets != 0:
			d.failed = true
		default:
			l.Precision = l.Width / buckets
		}
	case l.Kind == TokenBucket:
		l.Max = d.uvarint(MaxHits)
		l.Burst = l.Max
	case l.Kind.windows() == 0:
		d.failed = true
	}
	return d.b[0]&syncedBit != 0
}

// DecodeState reads the state at the beginning of b into s, and returns its length. The length is 0 if b begins with no valid
// state; s has seen no hit then.
func DecodeState(b []byte, s *State) (length int) {
	s.Reset()
	d := decoder{b: b}
	var l Limit
	synced := d.limit(&l)
	if d.failed || len(b)-d.at < 8 {
		return 0
	}
	newest := binary.LittleEndian.Uint64(b[d.at:])
	d.at += 8
	if newest > uint64(maxTime) {
		return 0
	}
	s.Newest = int64(newest)
	switch l.Kind {
	case FirstHitWindow, TokenBucket:
		s.Start = s.Newest - int64(d.uvarint(newest))
	case SlidingBuckets:
		d.buckets(&l, s, synced)
	}
	for i := range l.Kind.windows() {
		d.hits(&s.Hits[i], synced)
	}
	if d.failed {
		s.Reset()
		return 0
	}
	return d.at
}

func (d *decoder) buckets(l *Limit, s *State, synced bool) {
	// Each takes a byte at least, so that what is allocated is bounded by what is there.
	count := int(d.uvarint(uint64(min(maxBuckets, len(d.b)))))
	number := s.Newest / l.Precision
	for i := range count {
		age := d.uvarint(1<<63 - 1)
		number -= int64(age >> 1)
		if d.failed || number < 0 || i > 0 && age < 2 {
			d.failed = true
			return
		}
		b := Bucket{Number: number, Hits: Hits{Total: 1}}
		if age&1 != 0 {
			d.hits(&b.Hits, synced)
		}
		s.Buckets = append(s.Buckets, b)
	}
	// The newest came first.
	for i, j := 0, len(s.Buckets)-1; i < j; i, j = i+1, j-1 {
		s.Buckets[i], s.Buckets[j] = s.Buckets[j], s.Buckets[i]
	}
}
