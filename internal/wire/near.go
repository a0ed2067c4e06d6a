package wire

import "encoding/binary"

// Bounds of what an answer tells of near keys.
const (
	// MaxNearKeys is the most keys of a list, and MaxNearLimits the most limits of rules.
	MaxNearKeys   = 4096
	MaxNearLimits = 128
	// MaxNear bounds, in bytes, what a list adds to an answer.
	MaxNear = 64 + nearLimitSize*MaxNearLimits + nearKeySize*MaxNearKeys

	nearLimitSize = 8
	nearKeySize   = 4
)

// MaxAdvance bounds the hits of a key that a sender advances, whatever the limit is.
const MaxAdvance = 8

// PartLife is for how many nanoseconds a sender's part lasts after an answer, by the backend's time: the
// sender advances no hits of windows that begin later.
const PartLife = int64(10e9)

// NearFrom is how many hits a key of a limit has from which on it is near the limit. Nobody advances
// hits of a near key.
func NearFrom(limit uint64) uint64 { return limit - limit/2 }

// MostAdvanced is how many hits of a key a sender may have let pass that the backend has not counted.
// The parts of all senders together are at most the whole, so all their hits fit beside a key that is
// not near.
func MostAdvanced(limit, divisor uint64) uint64 {
	if divisor == 0 || limit < 4 {
		return 0
	}
	return min(MaxAdvance, (limit/2-1)/divisor)
}

// Advance is a sender's word on the hits that it lets pass before the backend has counted them.
type Advance struct {
	// Told is false in pushes of a format that has none of this.
	Told bool
	// Epoch and Version name the list of near keys that the sender goes by, 0 if it has none.
	Epoch, Version uint64
	// Divisor is of the sender's part of each limit, see [MostAdvanced]. It is 0 if the sender advances
	// nothing.
	Divisor uint64
	// Wants says that the sender has a use for a part.
	Wants bool
	// Settled says that once this push is applied, all hits are counted that the sender had advanced
	// when it sent the push for the first time.
	Settled bool
}

// Near is the backend's word on near keys.
type Near struct {
	// Told is false if the store knows of no near keys.
	Told bool
	// Epoch and Version name the list. A later list has a greater version.
	Epoch, Version uint64
	// Divisor is of the sender's part of each limit from now on, or 0 if it has none.
	Divisor uint64
	// Whole says that this is all of the list. If not, it is all that came after the version which the
	// push named.
	Whole bool
	// Limits has, in eight bytes each, what [NearRule] says of the limits of rules that the list is of.
	// Keys has, in four bytes each, what [NearKey] says of near keys.
	Limits, Keys []byte
}

// AddLimit adds a limit of a rule to the list.
func (n *Near) AddLimit(limit uint64) { n.Limits = binary.LittleEndian.AppendUint64(n.Limits, limit) }

// AddKey adds a key to the list.
func (n *Near) AddKey(key uint32) { n.Keys = binary.LittleEndian.AppendUint32(n.Keys, key) }

// LimitCount is how many limits of rules there are.
func (n *Near) LimitCount() int { return len(n.Limits) / nearLimitSize }

// KeyCount is how many keys there are.
func (n *Near) KeyCount() int { return len(n.Keys) / nearKeySize }

// Limit is the limit at index i.
func (n *Near) Limit(i int) uint64 { return binary.LittleEndian.Uint64(n.Limits[i*nearLimitSize:]) }

// Key is the key at index i.
func (n *Near) Key(i int) uint32 { return binary.LittleEndian.Uint32(n.Keys[i*nearKeySize:]) }

// NearLimit is a limit of so many hits, whatever rule it is of. The counter's identity does not matter.
func (c *LimitCounter) NearLimit(limit uint64) uint64 {
	h := mixed(uint64(c.Kind)<<8 | uint64(c.Ordinal))
	return mixed(mixed(mixed(h^c.WidthMillis)^c.Precision) ^ limit)
}

// NearRule is a limit of a rule in lists of near keys. The rule has the tag of its [Room]s, whether or not
// that is odd.
func NearRule(limit uint64, tag uint16) uint64 { return mixed(limit ^ uint64(tag|1)) }

// NearKey is a key in the list of near keys of a limit, and not 0. Two keys may have the same: then one
// is taken to be near because the other is.
func NearKey(id ID, limit uint64) uint32 {
	return max(1, uint32(mixed(binary.LittleEndian.Uint64(id[:])^limit)>>32))
}

// mixed is the finalizer of SplitMix64, after the golden ratio's step.
//
//go:noinline
func mixed(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Flags of a push's word.
const (
	advanceWants = 1 << iota
	advanceSettled
)

func appendAdvance(dst []byte, a *Advance) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, a.Epoch)
	dst = appendUvarint(dst, a.Version)
	dst = appendUvarint(dst, a.Divisor)
	flags := byte(0)
	if a.Wants {
		flags |= advanceWants
	}
	if a.Settled {
		flags |= advanceSettled
	}
	return append(dst, flags)
}

// SetSettled says that a push settles what its sender has advanced. Its header, which has a word on
// that, begins the message and is head bytes long.
func SetSettled(message []byte, head int) { message[head-3] |= advanceSettled }

func (r *reader) advance() Advance {
	a := Advance{Told: true, Epoch: r.uint64(), Version: r.uvarint(), Divisor: r.uvarint()}
	flags := r.byte()
	if flags&^(advanceWants|advanceSettled) != 0 {
		r.fail("want known flags")
	}
	a.Wants, a.Settled = flags&advanceWants != 0, flags&advanceSettled != 0
	return a
}

// Words of an answer on near keys.
const (
	nearUnknown = iota
	nearPart
	nearWhole
)

func appendNear(dst []byte, n *Near) []byte {
	if !n.Told {
		return append(dst, nearUnknown)
	}
	what := byte(nearPart)
	if n.Whole {
		what = nearWhole
	}
	dst = append(dst, what)
	dst = binary.LittleEndian.AppendUint64(dst, n.Epoch)
	dst = appendUvarint(dst, n.Version)
	dst = appendUvarint(dst, n.Divisor)
	dst = appendUvarint(dst, uint64(len(n.Limits)/nearLimitSize))
	dst = append(dst, n.Limits...)
	dst = appendUvarint(dst, uint64(len(n.Keys)/nearKeySize))
	return append(dst, n.Keys...)
}

// near shares the message's memory.
func (r *reader) near() (n Near) {
	what := r.byte()
	switch {
	case r.err != nil || what == nearUnknown:
		return Near{}
	case what > nearWhole:
		r.fail("want a known word on near keys")
		return Near{}
	}
	n = Near{Told: true, Whole: what == nearWhole, Epoch: r.uint64(), Version: r.uvarint(), Divisor: r.uvarint()}
	n.Limits = r.list(nearLimitSize, MaxNearLimits)
	n.Keys = r.list(nearKeySize, MaxNearKeys)
	return n
}

// list reads a list of at most so many elements of a size.
func (r *reader) list(size, most int) []byte {
	count := r.uvarint()
	if count > uint64(most) {
		r.fail("want a shorter list")
		return nil
	}
	return r.bytes(int(count) * size)
}
