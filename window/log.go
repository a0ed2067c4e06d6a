package window

import (
	"encoding/binary"
	"math"
	"slices"
)

// A long log is not decoded for each request: it stays packed, in the bytes that its state has in shared
// data. A hit is put before them, hits that have left are cut off behind, and a summary has their sum.
//
// The summary is two buckets without hits behind all others, so that versions that know nothing of it
// read the same hits: they skip such buckets. The first is so far before the oldest bucket as that is
// before the newest, and a nanosecond. The distance of the second is the sum of hits times 65,536 plus
// the length of the buckets in bytes. So that the oldest bucket can be read from its end, hits that
// follow a distance end with a byte 0, which means nothing in a uvarint and ends no other number there.
const (
	// leastPacked is the least number of buckets that have a summary. Fewer are decoded as fast.
	leastPacked = 16
	mostPacked  = 1 << 11
	// mostSummed bounds the sum of hits in a summary.
	mostSummed = 1 << 40
	lengthBits = 16
	// farSize is the size of a distance in the summary, whatever its value, and of the 0 that follows.
	farSize     = 9 + 1
	summarySize = 2 * farSize
	// headroom is the space for a bucket before those that were read.
	headroom = 2 * maxVarint
)

// packed is a log whose buckets have the form of shared data.
type packed struct {
	// buckets[from:to] are the buckets, the newest first, without the newest's distance.
	buckets  []byte
	from, to int
	count    int // of buckets; 0 if the log is in State.Buckets
	pending  int // how many of the newest were counted since the log was read
	hits     uint64
	// newest and oldest are numbers of buckets.
	newest, oldest int64
	several        uint64 // 1 if the newest has more than one hit
	encoded        []byte // scratch
}

// isPacked reports whether the buckets of s are those of s.log.
func (s *State) isPacked() bool { return s.log != nil && s.log.count != 0 }

// number is uvarint, smaller where it is called and a little slower.
//
//go:noinline
func number(b []byte, at int, most uint64) (v uint64, next int) { return uvarint(b, at, most) }

// summarised reports whether the log has a summary in shared data.
//
//go:noinline
func (p *packed) summarised() bool {
	return p.count >= leastPacked && p.count <= mostPacked && p.hits < mostSummed &&
		p.oldest-(p.newest-p.oldest)-mostSummed<<lengthBits > 0
}

// unpackLater reads the log that is all of b, if it has a summary. Otherwise it returns false.
func (c *Codec) unpackLater(b []byte, s *State) bool {
	count, at := number(b, c.length+8, mostPacked+2)
	end := len(b) - summarySize
	if count < leastPacked+2 || at == wrong || end <= at {
		return false
	}
	span, sum := far(b[end:]), far(b[end+farSize:])
	age, body := number(b, at, 1<<63)
	if span == 0 || body == wrong || body > end || sum&(1<<lengthBits-1) != uint64(end-at) {
		return false
	}
	p := s.packed()
	s.Newest = int64(binary.LittleEndian.Uint64(b[c.length:]) & math.MaxInt64)
	p.newest = s.Newest - int64(age>>1)
	p.oldest = p.newest - int64(span-1)
	p.count, p.hits, p.several, p.pending = int(count-2), sum>>lengthBits, age&1, 0
	if s.Newest > maxTime || p.hits < count-2 || !p.summarised() {
		p.count = 0
		return false
	}
	p.grow(end - body)
	copy(p.buckets[headroom:], b[body:end])
	s.Start, s.ends, s.Hits, s.Buckets = 0, 0, [2]Hits{}, s.Buckets[:0]
	return true
}

// packed returns the memory for a packed log.
//
//go:noinline
func (s *State) packed() *packed {
	if s.log == nil {
		s.log = &packed{}
	}
	return s.log
}

// grow makes room for buckets of that many bytes, and headroom before them.
//
//go:noinline
func (p *packed) grow(bytes int) {
	p.from, p.to = headroom, headroom+bytes
	p.buckets = slices.Grow(p.buckets[:0], p.to)[:p.to]
}

// far reads a distance of the summary; 0 if b does not begin with one.
//
//go:noinline
func far(b []byte) (distance uint64) {
	v, next := number(b, 0, 1<<62)
	if next != farSize-1 || v&1 == 0 || b[farSize-1] != 0 {
		return 0
	}
	return v >> 1
}

// putFar writes what far reads.
//
//go:noinline
func putFar(b []byte, distance uint64) {
	b = b[:farSize]
	for i, v := 0, distance<<1|1; i < farSize-1; i, v = i+1, v>>7 {
		b[i] = byte(v) | 0x80
	}
	b[farSize-2] &= 0x7f
	b[farSize-1] = 0
}

// unpack moves a packed log's buckets to State.Buckets. All that decides without it asks isPacked first.
//
//go:noinline
func (s *State) unpack() {
	if !s.isPacked() {
		return
	}
	p, l := s.log, Limit{Shape: Shape{Precision: LogPrecision}}
	p.encoded, _ = p.append(p.encoded[:0], int64(p.count), s.Newest)
	s.Buckets, p.count = s.Buckets[:0], 0
	if decodeBuckets(p.encoded, 0, &l, s, false) == wrong || sumBuckets(s) != p.hits {
		// No version writes this. The hits count for as long as they might.
		s.Buckets = append(s.Buckets[:0], Bucket{Number: p.newest, Hits: Hits{Total: p.hits}})
	}
	for i := max(0, len(s.Buckets)-p.pending); i < len(s.Buckets); i++ {
		h := &s.Buckets[i].Hits
		h.Total, h.Pending = 0, int64(h.Total)
	}
}

// appendLog appends the buckets of a log that is not synced, with their number. It returns nil if they have
// no summary.
//
//go:noinline
func (s *State) appendLog(dst []byte) []byte {
	p := s.packed()
	scratch := p.count == 0
	if scratch {
		p.pack(s.Buckets)
	}
	has := p.summarised()
	if has {
		var summary [summarySize]byte
		var begin int
		dst, begin = p.append(dst, int64(p.count)+2, s.Newest)
		putFar(summary[:], uint64(p.newest-p.oldest)+1)
		putFar(summary[farSize:], p.hits<<lengthBits|uint64(len(dst)-begin))
		dst = append(dst, summary[:]...)
	}
	if scratch {
		p.count = 0
	}
	if !has {
		return nil
	}
	return dst
}

// pack takes in buckets, the oldest first.
func (p *packed) pack(buckets []Bucket) {
	p.grow(headroom * len(buckets))
	p.from, p.hits, p.oldest = p.to, 0, 0
	for i := range buckets {
		if b := &buckets[i]; b.Sum() != 0 && !p.add(b.Number, b.Sum()) {
			p.count = 0
			return
		}
	}
}

// append appends a number of buckets, and the buckets.
//
//go:noinline
func (p *packed) append(dst []byte, count, newest int64) (_ []byte, begin int) {
	dst = appendLong(dst, uint64(count))
	begin = len(dst)
	dst = appendLong(dst, uint64(newest-p.newest)<<1|p.several)
	return append(dst, p.buckets[p.from:p.to]...), begin
}

// add counts hits in a bucket newer than all others. It returns false if the log has to be unpacked for
// that.
func (p *packed) add(number int64, hits uint64) bool {
	if p.from < headroom || hits >= mostSummed || p.count > 0 && number <= p.newest {
		return false
	}
	var head [headroom]byte
	b, several := head[:0], uint64(0)
	if hits != 1 {
		b, several = appendLong(b, hits), 1
		b[len(b)-1] |= 0x80
		b = append(b, 0)
	}
	if p.count == 0 {
		p.oldest = number
	} else {
		b = appendLong(b, uint64(number-p.newest)<<1|p.several)
	}
	p.from -= len(b)
	copy(p.buckets[p.from:], b)
	p.newest, p.several = number, several
	p.hits += hits
	p.count++
	p.pending++
	return true
}

// last reads the oldest of more than one bucket, of those that end at to. It returns their end without
// it, or wrong if no log ends like this.
//
//go:noinline
func (p *packed) last(to int) (age int64, hits uint64, end int) {
	at, hits, flag := p.begin(to), 1, uint64(0)
	if to-at > 1 && p.buckets[to-1] == 0 {
		hits, _ = number(p.buckets[:to], at, mostSummed)
		if flag, to, at = 1, at, p.begin(at); hits < 2 {
			return 0, 0, wrong
		}
	}
	v, next := number(p.buckets[:to], at, 1<<63)
	if next != to || v < 2 || v&1 != flag || hits >= p.hits || int64(v>>1) > p.newest-p.oldest {
		return 0, 0, wrong
	}
	return int64(v >> 1), hits, at
}

// begin is where the uvarint begins that ends at to.
//
//go:noinline
func (p *packed) begin(to int) (at int) {
	at = max(to-1, p.from)
	for at > p.from && p.buckets[at-1] >= 0x80 {
		at--
	}
	return at
}

// cut drops the buckets before oldest, and the oldest while the rest has that many hits. ok is false if the
// log can't be read; then it has to be unpacked.
func (p *packed) cut(oldest int64, most uint64) (ok bool) {
	for p.count > 1 && (p.oldest < oldest || p.hits > most) {
		age, hits, end := p.last(p.to)
		if end == wrong {
			return false
		}
		if p.oldest >= oldest && p.hits <= most+hits {
			break
		}
		p.to, p.hits, p.oldest, p.count = end, p.hits-hits, p.oldest+age, p.count-1
	}
	if p.newest < oldest {
		p.count = 0
	}
	return true
}

// leaves is the number of the first bucket with which that many hits have left. ok is as for cut.
func (p *packed) leaves(hits uint64) (number int64, ok bool) {
	number = p.oldest
	for to := p.to; number < p.newest; {
		age, of, end := p.last(to)
		if end == wrong {
			return 0, false
		}
		if of >= hits {
			return number, true
		}
		number, to, hits = number+age, end, hits-of
	}
	return p.newest, true
}
