package wire

import "encoding/binary"

// Bounds of the part of an answer about near keys.
const (
	// MaxNearKeys is the most keys in a list, and MaxNearLimits the most limits of rules.
	MaxNearKeys   = 4096
	MaxNearLimits = 128
	// MaxNear bounds the bytes that a list adds to an answer.
	MaxNear = 64 + nearLimitSize*MaxNearLimits + nearKeySize*MaxNearKeys

	nearLimitSize = 8
	nearKeySize   = 4
)

// MaxAdvance bounds the hits of a key that a sender may advance, however large the limit.
const MaxAdvance = 8

// PartLife is how long a sender's part lasts after an answer, in nanoseconds, by the backend's
// clock. The sender advances no hits for windows that begin later.
const PartLife = int64(10e9)

// NearFrom returns how many hits make a key near a limit. Nodes advance no hits of a near key.
func NearFrom(limit uint64) uint64 { return limit - limit/2 }

// MostAdvanced returns how many hits of a key a sender may admit before the backend has counted
// them. The parts of all senders add up to at most the whole, so all of their hits fit the limit of
// a key that is not near.
func MostAdvanced(limit, divisor uint64) uint64 {
	if divisor == 0 || limit < 4 {
		return 0
	}
	return min(MaxAdvance, (limit/2-1)/divisor)
}

// Advance is a sender's part of a push about hits that it admits before the backend has counted
// them.
type Advance struct {
	_ [0]func() // keeps Go from generating an equality function

	// Present is false for pushes in a format without this part.
	Present bool
	// Epoch and Version name the sender's list of near keys; 0 if it has none.
	Epoch, Version uint64
	// Divisor gives the sender's part of each limit: see [MostAdvanced]. It is 0 if the sender
	// advances nothing.
	Divisor uint64
	// Wants means that the sender can use a part.
	Wants bool
	// Settled means that this push, once applied, completes the counting of all hits that the
	// sender had advanced when it first sent the push.
	Settled bool
}

// Near is the backend's part of an answer about near keys.
type Near struct {
	// Present is false if the store keeps no list of near keys.
	Present bool
	// Epoch and Version name the list. Later lists have greater versions.
	Epoch, Version uint64
	// Divisor gives the sender's part of each limit from now on; 0 for none.
	Divisor uint64
	// Whole means that this is the whole list. Otherwise it is the part after the version in the
	// push.
	Whole bool
	// Limits has eight bytes for each limit of a rule that the list covers, in the form of
	// [NearRule]. Keys has four bytes for each near key, in the form of [NearKey].
	Limits, Keys []byte
}

// AddLimit adds a limit of a rule to the list.
func (n *Near) AddLimit(limit uint64) { n.Limits = binary.LittleEndian.AppendUint64(n.Limits, limit) }

// AddKey adds a key to the list.
func (n *Near) AddKey(key uint32) { n.Keys = binary.LittleEndian.AppendUint32(n.Keys, key) }

// LimitCount returns the number of limits.
func (n *Near) LimitCount() int { return len(n.Limits) / nearLimitSize }

// KeyCount returns the number of keys.
func (n *Near) KeyCount() int { return len(n.Keys) / nearKeySize }

// Limit returns the limit at index i.
func (n *Near) Limit(i int) uint64 { return binary.LittleEndian.Uint64(n.Limits[i*nearLimitSize:]) }

// Key returns the key at index i.
func (n *Near) Key(i int) uint32 { return binary.LittleEndian.Uint32(n.Keys[i*nearKeySize:]) }

// NearLimit returns a hash of the counter's shape and of a limit, whatever the rule. The counter's
// identity does not matter.
func (c *LimitCounter) NearLimit(limit uint64) uint64 {
	h := mixed(nearForm<<16 | uint64(c.Kind)<<8 | uint64(c.Ordinal))
	return mixed(mixed(mixed(h^c.WidthMillis)^c.Precision) ^ limit)
}

// nearForm is the form of keys in lists. Senders that know another form find none of their limits in
// a list, and advance nothing.
const nearForm = 2

// NearWindow returns the form of a limit in a window with a number, for [NearKey]. Windows that slide
// have the number 0: their keys are near until they are far again. A key of a fixed window is near in
// that window only.
func NearWindow(limit, number uint64) uint64 { return mixed(limit + 2*number) }

// NearFull is [NearWindow] for keys that were seen full in the window.
func NearFull(limit, number uint64) uint64 { return mixed(limit + 2*number + 1) }

// NearRule returns the form of a rule's limit in lists of near keys. tag is that of the rule's
// [Room]s; its lowest bit does not matter.
func NearRule(limit uint64, tag uint16) uint64 { return mixed(limit ^ uint64(tag|1)) }

// NearKey returns the form of a key in the list of near keys, from that of a limit's window. It is not
// 0. Two keys may have the same form: then a key may be treated as near because the other is.
func NearKey(id ID, limit uint64) uint32 {
	return max(1, uint32(mixed(binary.LittleEndian.Uint64(id[:])^limit)>>32))
}

// mixed is the finalizer of SplitMix64, after its step by the golden ratio.
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
	dst = appendUvarints(dst, a.Version, a.Divisor)
	flags := byte(0)
	if a.Wants {
		flags |= advanceWants
	}
	if a.Settled {
		flags |= advanceSettled
	}
	return append(dst, flags)
}

func (r *reader) advance() Advance {
	a := Advance{Present: true, Epoch: r.uint64(), Version: r.uvarint(), Divisor: r.uvarint()}
	flags := r.byte()
	if flags&^(advanceWants|advanceSettled) != 0 {
		r.fail("want known flags")
	}
	a.Wants, a.Settled = flags&advanceWants != 0, flags&advanceSettled != 0
	return a
}

// Values of an answer's byte about near keys.
const (
	nearUnknown = iota
	nearPart
	nearWhole
)

func appendNear(dst []byte, n *Near) []byte {
	if !n.Present {
		return append(dst, nearUnknown)
	}
	what := byte(nearPart)
	if n.Whole {
		what = nearWhole
	}
	dst = append(dst, what)
	dst = binary.LittleEndian.AppendUint64(dst, n.Epoch)
	dst = appendUvarints(dst, n.Version, n.Divisor, uint64(len(n.Limits)/nearLimitSize))
	dst = append(dst, n.Limits...)
	dst = appendUvarint(dst, uint64(len(n.Keys)/nearKeySize))
	return append(dst, n.Keys...)
}

// near reads an answer's part about near keys. It shares the message's memory.
func (r *reader) near() (n Near) {
	what := r.byte()
	switch {
	case r.err != nil || what == nearUnknown:
		return Near{}
	case what > nearWhole:
		r.fail("want a known value for near keys")
		return Near{}
	}
	n = Near{Present: true, Whole: what == nearWhole, Epoch: r.uint64(), Version: r.uvarint(), Divisor: r.uvarint()}
	n.Limits = r.list(nearLimitSize, MaxNearLimits)
	n.Keys = r.list(nearKeySize, MaxNearKeys)
	return n
}

// list reads a list of at most most elements.
func (r *reader) list(size, most int) []byte {
	return r.bytes(r.most(r.uvarint(), most) * size)
}
