package window

// Block is a limit beside those of a rule, which no request takes anything of. It has room until a request
// of its key was refused, and then none for a while: so long the key stays refused, whatever room the
// others have. That is a hit in a bucket, which the backend tells to all nodes as it does with any other.

const (
	// blockParts is in how many buckets a block is counted: it lasts for up to one of them more than was
	// asked for.
	blockParts = 32
	// blockQuota is above what a request may cost.
	blockQuota = MaxLimit
)

// NewBlock is a limit that blocks for so many nanoseconds, in whole milliseconds.
func NewBlock(nanos int64) Limit {
	precision := (nanos + blockParts*MinWidth - 1) / (blockParts * MinWidth) * MinWidth
	return Limit{Shape: Shape{Kind: Block, Width: precision * (blockParts + 1), Precision: precision}, Max: blockQuota}
}

// Blocks reports whether the limit blocks a key that was refused.
func (k Kind) Blocks() bool { return k == Block }

// Blocked reports whether a limit that blocks does so at the time of s.
func (l *Limit) Blocked(s *State) bool { return l.Kind.Blocks() && sumBuckets(s) > 0 }

// Block has a limit that blocks do so from the time of s on. It reports whether that changes anything: a
// limit that blocks already goes on only if it is extended.
func (l *Limit) Block(s *State, extend bool) (changed bool) {
	if !l.Kind.Blocks() {
		return false
	}
	if n := len(s.Buckets); l.Blocked(s) && (!extend || s.Buckets[n-1].Number == s.Newest/l.Precision) {
		return false
	}
	l.countBucket(s, 1)
	return true
}
