package window

import (
	"encoding/binary"
	"math"
	"slices"
)

// SlidingBuckets keeps the hits of each bucket that has any. It adds up the Width/Precision newest
// buckets, including the present bucket. With a precision of one nanosecond these are the hits of
// (now − Width, now]. That is the sliding log, which Redis users keep in a sorted set
// (https://redis.io/glossary/rate-limiting/), and which `limits` calls a moving window.

// covered is how many buckets a window covers.
func (s Shape) covered() int64 { return s.Width / s.Precision }

// dropBuckets drops the buckets that a window ending at now does not cover.
func dropBuckets(l *Limit, s *State, now int64) {
	oldest := now/l.Precision - l.covered() + 1
	if s.isPacked() {
		if s.log.cut(oldest, math.MaxUint64) {
			return
		}
		s.unpack()
	}
	gone := 0
	for gone < len(s.Buckets) && s.Buckets[gone].Number < oldest {
		gone++
	}
	s.Buckets = slices.Delete(s.Buckets, 0, gone)
}

// sumBuckets is the sum of all buckets. A hit in flight from one bucket to another, such as a
// leased hit that was used, counts once: the backend too counts it once, before the push and after
// it.
func sumBuckets(s *State) (sum uint64) {
	if s.isPacked() {
		return s.log.hits
	}
	sum = s.Hits[0].Total // as countBuckets leaves it
	var added, taken uint64
	for i := range s.Buckets {
		b := &s.Buckets[i]
		sum += b.Sum()
		if b.InFlight > 0 {
			added += uint64(b.InFlight)
		} else {
			taken += uint64(-b.InFlight)
		}
	}
	return sum - min(sum, added, taken)
}

// bucketsLeaveAt is the time when at least that number of hits, the oldest, have left the window.
func bucketsLeaveAt(l *Limit, s *State, hits uint64) int64 {
	switch {
	case hits == 0:
		return s.Newest
	case s.ends != 0: // as countBuckets leaves it
		return s.Start
	case s.isPacked():
		if number, ok := s.log.leaves(hits); ok {
			return number + l.covered()
		}
		s.unpack()
	}
	left := uint64(0)
	for i := range s.Buckets {
		b := &s.Buckets[i]
		leaving := b.Sum()
		if b.InFlight < 0 {
			leaving -= min(leaving, uint64(-b.InFlight)) // they are in another bucket too, or on their way back
		}
		if left += leaving; left >= hits {
			return (s.Buckets[i].Number + l.covered()) * l.Precision
		}
	}
	return s.Newest
}

// lastLeavesAt is the time when the last bucket with hits leaves the window, leased ones included. owed says
// that a bucket counts, too, all of whose hits were given back, of which the backend may have to hear.
func lastLeavesAt(l *Limit, s *State, owed bool) int64 {
	switch {
	case s.ends != 0: // as countBuckets leaves it
		return s.ends
	case s.isPacked():
		return s.log.newest + l.covered()
	}
	for i := len(s.Buckets) - 1; i >= 0; i-- {
		if b := &s.Buckets[i]; b.Sum()|b.Lease > 0 || owed && !b.idle() {
			return (b.Number + l.covered()) * l.Precision
		}
	}
	return s.Newest
}

func bucketNumber(l *Limit, at int64) uint64 { return uint64(at / l.Precision) }

func bucketWindow(s *State, number uint64) *Hits {
	s.unpack()
	for i := range s.Buckets {
		if uint64(s.Buckets[i].Number) == number {
			return &s.Buckets[i].Hits
		}
	}
	return nil
}

// moveBuckets moves the buckets of a clock that was wrong from Newest to now.
func moveBuckets(l *Limit, s *State, now int64) {
	later := s.Newest/l.Precision - now/l.Precision
	s.unpack()
	for i := range s.Buckets {
		s.Buckets[i].Number -= later
	}
	for len(s.Buckets) > 0 && s.Buckets[0].Number < 0 {
		s.Buckets = s.Buckets[1:]
	}
}

// countBucket counts hits in the present bucket. A log is bounded: hits above the limit push out
// the oldest hits. Only rejected requests, costs of responses and other nodes bring such hits.
func countBucket(l *Limit, s *State, cost uint64) {
	number := s.Newest / l.Precision
	if s.isPacked() {
		if s.log.add(number, cost) && s.log.cut(0, l.Max) {
			return
		}
		s.unpack()
	}
	if n := len(s.Buckets); n == 0 || s.Buckets[n-1].Number != number {
		s.Buckets = append(s.Buckets, Bucket{Number: number})
	}
	s.Buckets[len(s.Buckets)-1].count(cost)
	trimLog(l, s)
}

// trimLog drops a log's oldest hits while the rest is still above the limit.
func trimLog(l *Limit, s *State) {
	if !l.IsLog() || len(s.Buckets) == 0 {
		return
	}
	sum, gone := sumBuckets(s), 0
	// The loop ends with the newest bucket at the latest: without it no hits remain.
	for sum > l.Max+s.Buckets[gone].Sum() {
		sum -= s.Buckets[gone].Sum()
		gone++
	}
	s.Buckets = slices.Delete(s.Buckets, 0, gone)
}

func sumOf(all []uint64) (sum uint64) {
	for _, hits := range all {
		sum += min(hits, MaxHits)
	}
	return sum
}

// knownHits are all hits that the backend is known to count.
func knownHits(s *State) (sum uint64) {
	for i := range s.Buckets {
		sum += s.Buckets[i].Total
	}
	return sum
}

func freeBuckets(s *State, hits uint64) (given uint64) {
	s.unpack()
	for i := len(s.Buckets) - 1; i >= 0 && given < hits; i-- {
		given += s.Buckets[i].giveBackAny(hits - given)
	}
	return given
}

func settleBuckets(l *Limit, s *State, newest bool, total *Totals) {
	mergeBuckets(l, s, newest, total)
	trimLog(l, s)
}

// leaseBucket takes in totals that include the grant. So the log is trimmed only after the grant is
// marked as leased. Otherwise the grant would push out hits that count.
func leaseBucket(l *Limit, s *State, g *Grant, total *Totals) (kept bool) {
	mergeBuckets(l, s, g.Newer, total)
	h := bucketWindow(s, bucketNumber(l, g.At))
	if h == nil {
		trimLog(l, s)
		return false
	}
	hits := min(g.Hits, MaxHits)
	if excess := min(s.excess(l), hits); excess > 0 {
		s.cover(excess)
		hits -= excess
	}
	h.lease(hits)
	trimLog(l, s)
	return true
}

// excess is how many hits a log would have above its limit with a grant, which the totals of an answer include: it
// would forget as many. Pending hits have passed here, and the backend did not know them when it granted these. It
// may have counted those that are on their way.
func (s *State) excess(l *Limit) uint64 {
	pending, sum := int64(0), l.Leased(s)
	if !l.IsLog() {
		return 0
	}
	for i := range s.Buckets {
		b := &s.Buckets[i]
		pending += max(b.Pending, 0)
		sum += b.Sum() - min(b.Sum(), uint64(max(b.InFlight, 0)))
	}
	return min(sum-min(sum, l.Max), uint64(pending))
}

// cover lets pending hits be those that the backend has granted, the oldest first: they are counted there, and
// need no push.
func (s *State) cover(hits uint64) {
	for i := range s.Buckets {
		covered := min(hits, uint64(max(s.Buckets[i].Pending, 0)))
		s.Buckets[i].Pending -= int64(covered)
		hits -= covered
	}
}

// mergeBuckets takes in an answer's totals. An older answer that has no more hits than are known adds none:
// hits may have moved to a later bucket since, as those of a lease do, and would count twice.
func mergeBuckets(l *Limit, s *State, newest bool, total *Totals) {
	s.unpack()
	if !newest && sumOf(total.Hits) <= knownHits(s) {
		return
	}
	oldest := max(0, s.Newest/l.Precision-l.covered()+1)
	known := len(s.Buckets)
	at := known - 1
	// unsaid updates the buckets newer than after that the answer does not mention.
	unsaid := func(after int64) {
		for ; at >= 0 && s.Buckets[at].Number > after; at-- {
			if newest {
				s.Buckets[at].settle(true, 0)
			}
		}
	}
	for i := range min(len(total.Hits), len(total.Ages)) {
		number := int64(min(total.Newest, uint64(maxTime))) - int64(min(total.Ages[i], uint64(maxTime)))
		if number < oldest || number > (s.Newest+l.Width)/l.Precision || total.Hits[i] == 0 {
			continue
		}
		// Ages ascend, so numbers descend, and a single pass through both lists is enough.
		unsaid(number)
		hits := min(total.Hits[i], MaxHits)
		if at >= 0 && s.Buckets[at].Number == number {
			s.Buckets[at].settle(newest, hits)
			at--
		} else {
			s.Buckets = append(s.Buckets, Bucket{Number: number, Hits: Hits{Total: hits}})
		}
	}
	unsaid(-1)
	if len(s.Buckets) == known {
		return
	}
	sortBuckets(s.Buckets, known)
	if last := s.Buckets[len(s.Buckets)-1].Number; last > s.Newest/l.Precision {
		// Another node's clock is ahead, and the newest hit is its.
		s.Newest = last * l.Precision
	}
}

// sortBuckets sorts buckets. The first sorted of them ascend, and the rest descend. It reverses the
// rest, and moves each past newer buckets.
func sortBuckets(buckets []Bucket, sorted int) {
	slices.Reverse(buckets[sorted:])
	for i := sorted; i < len(buckets); i++ {
		for j := i; j > 0 && buckets[j].Number < buckets[j-1].Number; j-- {
			buckets[j], buckets[j-1] = buckets[j-1], buckets[j]
		}
	}
}

// countBuckets is [Codec.CountInPlace] for sub-buckets, if the hits belong to the newest bucket. The buckets are read once,
// and not listed: s has none, but the sum of all as Hits[0], the time when the oldest leaves as Start, and that when the newest
// leaves as ends. That is enough to say how the limit stands, and what its entry is worth.
func (c *Codec) countBuckets(b []byte, last bool, s *State, now int64, cost uint64) (length int) {
	if !c.begins(b) {
		return 0
	}
	l, body := c.limit, b[c.length:]
	newest := binary.LittleEndian.Uint64(body)
	now = notBefore(newest, now)
	present := int64(newest) / l.Precision
	count, end := number(body, 8, MaxSubBuckets)
	if now < 0 || now >= min((present+1)*l.Precision, maxTime+1) {
		return 0
	}
	oldest, all, hits, from, to := present, uint64(0), uint64(0), 0, 0
	for i := range count {
		if uint(end) >= uint(len(body)) {
			return 0
		}
		age, of := uint64(body[end]), uint64(1)
		if end++; age >= 1<<7 {
			age, end = number(body, end-1, 1<<56)
		}
		at := end
		switch {
		case age&1 == 0:
		case uint(at) < uint(len(body)-1) && body[at] >= 1<<7 && body[at+1] < 1<<7: // most often, if there are many hits
			of, end = uint64(body[at]&0x7f)|uint64(body[at+1])<<7, at+2
		default:
			of, end = sum(body, at)
		}
		switch {
		case i == 0 && age == 1: // it is the present bucket, and tells its hits
			hits, from, to = of, at, end
		case i == 0 || age < 2 || of == 0:
			return 0
		}
		oldest -= int64(age >> 1)
		all += of
	}
	switch {
	case end == wrong || last && end != len(body) || oldest < 0 || (present-oldest)*l.Precision >= l.Width || hits == 0 || cost-1 >= MaxHits:
		return 0
	case all+cost <= l.Max && !putUvarint(body, from, to, hits+cost):
		return 0
	}
	s.begin(now, oldest*l.Precision+l.Width, present*l.Precision+l.Width, all)
	if all+cost > l.Max {
		return Full
	}
	s.Hits[0].Total += cost
	binary.LittleEndian.PutUint64(body, uint64(now))
	return c.length + end
}

func appendBuckets(dst []byte, l *Limit, s *State, synced bool) []byte {
	if !synced && l.IsLog() && (s.isPacked() || len(s.Buckets) >= leastPacked) {
		if log := s.appendLog(dst); log != nil {
			return log
		}
	}
	s.unpack()
	count := len(s.Buckets)
	for i := range s.Buckets {
		if s.Buckets[i].leftOut(synced) {
			count--
		}
	}
	dst = appendUvarint(dst, uint64(count))
	last, short := s.Newest/l.Precision, !synced && l.IsLog()
	for i := len(s.Buckets) - 1; i >= 0; i-- {
		b := &s.Buckets[i]
		if b.leftOut(synced) {
			continue
		}
		age := uint64(last-b.Number) << 1
		if last = b.Number; short && b.Sum() == 1 {
			dst = appendUvarint(dst, age)
			continue
		}
		short = !synced // the newest sub-bucket tells its hits whatever they are, so that more are counted in place
		dst = b.append(appendUvarint(dst, age|1), synced)
	}
	return dst
}

// leftOut reports whether encoded buckets lack this one, because all of its hits were given back.
func (b *Bucket) leftOut(synced bool) bool { return b.Sum() == 0 && (!synced || b.idle()) }

func decodeBuckets(b []byte, at int, l *Limit, s *State, synced bool) (next int) {
	count, at := uvarint(b, at, maxBuckets)
	if at == wrong || count > uint64(len(b)-at) { // each takes at least a byte
		return wrong
	}
	number, left := s.Newest/l.Precision, int(count)
	if left > cap(s.Buckets) {
		s.Buckets = make([]Bucket, 2*left)
	}
	s.Buckets = s.Buckets[:left]
	for i := range count {
		var age uint64
		age, at = uvarint(b, at, math.MaxUint64)
		number -= int64(age >> 1)
		if at == wrong || number < 0 || i > 0 && age < 2 {
			return wrong
		}
		to := &s.Buckets[left-1] // the newest come first
		*to = Bucket{Number: number, Hits: Hits{Total: 1}}
		if age&1 != 0 {
			at = to.decode(b, at, synced)
		}
		if !to.idle() { // as in the summary of a log
			left--
		}
	}
	s.Buckets = s.Buckets[:copy(s.Buckets, s.Buckets[left:])]
	return at
}
