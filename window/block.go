package window

// Block is a limit beside those of a rule, from which no request takes hits. It has room until a
// request of its key is refused, and then none for a while. For that time the key stays refused,
// whatever room the other limits have. A block is a hit in a bucket, which the backend distributes
// as it does any other.

const (
	// blockParts is how many buckets make up the time of a block. A block lasts longer than asked
	// for by up to one bucket.
	blockParts = 32
	// blockQuota is above the largest cost of a request.
	blockQuota = MaxLimit
)

// MaxBlock is the longest time of a block, in nanoseconds: 354 days. Its buckets fill the longest window.
const MaxBlock = MaxWidth / (blockParts + 1) * blockParts / (86400e9) * 86400e9

// NewBlock returns a limit that blocks for nanos nanoseconds, a whole number of milliseconds and at most MaxBlock.
func NewBlock(nanos int64) Limit {
	precision := (nanos + blockParts*MinWidth - 1) / (blockParts * MinWidth) * MinWidth
	return Limit{Shape: Shape{Kind: Block, Width: precision * (blockParts + 1), Precision: precision}, Max: blockQuota}
}

// Blocks reports whether limits of the kind are blocks.
func (k Kind) Blocks() bool { return k == Block }

// NewHold returns a limit that blocks until a time that [Limit.BlockUntil] is told, of at most a
// minute from then.
func NewHold() Limit {
	return Limit{Shape: Shape{Kind: Block, Width: MaxSubBuckets * holdPrecision, Precision: holdPrecision}, Max: blockQuota}
}

// holdPrecision is a second: a hold ends with one.
const holdPrecision = int64(1e9)

// BlockUntil activates a block until the end of the second of a time, or of a minute from the time of s
// on if that is earlier. It reports whether that changed s: a block that lasts as long stays. The hit is
// counted as one of the past, so that it leaves then.
func (l *Limit) BlockUntil(s *State, until int64) (changed bool) {
	if !l.Kind.Blocks() || until <= s.Newest {
		return false
	}
	number := (min(until, s.Newest+60*holdPrecision)-1)/l.Precision + 1 - l.covered()
	n := len(s.Buckets)
	for i := range s.Buckets {
		if b := &s.Buckets[i]; b.Number >= number && b.Sum() > 0 {
			return false
		}
	}
	h := bucketWindow(s, uint64(number))
	if h == nil {
		s.Buckets = append(s.Buckets, Bucket{Number: number})
		sortBuckets(s.Buckets, n)
		h = bucketWindow(s, uint64(number))
	}
	h.count(1)
	return true
}

// usedBlock is all of the quota, or nothing.
func usedBlock(l *Limit, s *State) uint64 { return min(sumBuckets(s), 1) * max(l.Max, 1) }

// Block activates a block from the time of s on, and reports whether that changed s. An active
// block uses up its quota, and is prolonged only if extend is set. A limit of another kind stays as
// it is.
func (l *Limit) Block(s *State, extend bool) (changed bool) {
	if !l.Kind.Blocks() {
		return false
	}
	if n := len(s.Buckets); l.Used(s) > 0 && (!extend || s.Buckets[n-1].Number == s.Newest/l.Precision) {
		return false
	}
	countBucket(l, s, 1)
	return true
}
