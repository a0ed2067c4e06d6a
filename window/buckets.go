package window

// SlidingBuckets keeps the hits of each bucket that has any, and looks at the Width/Precision newest buckets, the one that the
// present is in among them. With a precision of one nanosecond these are the hits of (now − Width, now]: the sliding log, as
// Redis's users keep it in a sorted set (https://redis.io/glossary/rate-limiting/), and `limits` calls it a moving window.

// covered is the number of buckets that a window covers.
func (l *Limit) covered() int64 { return l.Width / l.Precision }

// dropBuckets forgets the buckets that a window ending at now does not cover.
func (l *Limit) dropBuckets(s *State, now int64) {
	oldest := now/l.Precision - l.covered() + 1
	gone := 0
	for gone < len(s.Buckets) && s.Buckets[gone].Number < oldest {
		gone++
	}
	if gone > 0 {
		s.Buckets = s.Buckets[:copy(s.Buckets, s.Buckets[gone:])]
	}
}

func sumBuckets(s *State) (sum uint64) {
	for i := range s.Buckets {
		sum += s.Buckets[i].Sum()
	}
	return sum
}

// bucketsLeaveAt is the time when the oldest buckets with at least so many hits are no longer covered.
func (l *Limit) bucketsLeaveAt(s *State, hits uint64) int64 {
	if hits == 0 {
		return s.Newest
	}
	left := uint64(0)
	for i := range s.Buckets {
		if left += s.Buckets[i].Sum(); left >= hits {
			return (s.Buckets[i].Number + l.covered()) * l.Precision
		}
	}
	return s.Newest
}

// lastLeavesAt is the time when no bucket with anything in it is covered any more.
func (l *Limit) lastLeavesAt(s *State) int64 {
	for i := len(s.Buckets) - 1; i >= 0; i-- {
		if !s.Buckets[i].idle() {
			return (s.Buckets[i].Number + l.covered()) * l.Precision
		}
	}
	return s.Newest
}

// takeBucket counts hits in the present's bucket. A log is bounded: hits above the limit, which only rejected requests, costs of
// responses and other nodes can bring, push out the oldest.
func (l *Limit) takeBucket(s *State, cost uint64) {
	number := s.Newest / l.Precision
	if n := len(s.Buckets); n == 0 || s.Buckets[n-1].Number != number {
		s.Buckets = append(s.Buckets, Bucket{Number: number})
	}
	s.Buckets[len(s.Buckets)-1].take(cost)
	l.trimLog(s)
}

// trimLog forgets a log's oldest hits while what remains is above the limit.
func (l *Limit) trimLog(s *State) {
	if l.Precision != LogPrecision {
		return
	}
	sum, gone := sumBuckets(s), 0
	for gone < len(s.Buckets)-1 && sum-s.Buckets[gone].Sum() > l.Max {
		sum -= s.Buckets[gone].Sum()
		gone++
	}
	if gone > 0 {
		s.Buckets = s.Buckets[:copy(s.Buckets, s.Buckets[gone:])]
	}
}
