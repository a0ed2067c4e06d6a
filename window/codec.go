package window

import "encoding/binary"

// A state in shared data describes itself, so that every proxy can read, carry along, expire and push the states of limits
// that it isn't configured with:
//
//	kind and flags  1 byte   kind in bits 0-3, synced in bit 4, ordinal in bits 5-7
//	width           uvarint  milliseconds
//	newest          8 bytes  nanoseconds, little endian
//	start           uvarint  nanoseconds before newest; FirstHitWindow only
//	hits            for each bucket the sum, a uvarint, or if synced total, diff and flight, the latter two zigzag varints
const (
	kindMask     = 0x0f
	syncedBit    = 0x10
	ordinalShift = 5
)

// MaxStateSize is the most bytes that one encoded state takes.
const MaxStateSize = 1 + 6 + 8 + 9 + MaxBuckets*3*8

// AppendState appends s in the form of shared data. Unless synced is set, only the sums are kept.
func (l *Limit) AppendState(dst []byte, s *State, synced bool) []byte {
	head := byte(l.Kind)&kindMask | l.Ordinal<<ordinalShift
	if synced {
		head |= syncedBit
	}
	dst = append(dst, head)
	dst = binary.AppendUvarint(dst, uint64(l.Width/MinWidth))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(s.Newest))
	if l.Kind == FirstHitWindow {
		dst = binary.AppendUvarint(dst, uint64(s.Newest-s.Start))
	}
	for i := range l.Kind.Buckets() {
		h := &s.Hits[i]
		if !synced {
			dst = binary.AppendUvarint(dst, min(h.Sum(), MaxHits))
			continue
		}
		dst = binary.AppendUvarint(dst, h.Total)
		dst = binary.AppendVarint(dst, h.Diff)
		dst = binary.AppendVarint(dst, h.Flight)
	}
	return dst
}

// DecodeState reads the state at the beginning of b into s, and returns its shape and length. The length is 0 if b begins
// with no valid state; what s holds then is undefined.
func DecodeState(b []byte, s *State) (shape Shape, length int) {
	if len(b) == 0 {
		return Shape{}, 0
	}
	shape.Kind = Kind(b[0] & kindMask)
	shape.Ordinal = b[0] >> ordinalShift
	synced := b[0]&syncedBit != 0
	at := 1
	millis, n := binary.Uvarint(b[at:])
	if n <= 0 || millis == 0 || millis > uint64(MaxWidth/MinWidth) {
		return Shape{}, 0
	}
	shape.Width = int64(millis) * MinWidth
	if at += n; len(b)-at < 8 {
		return Shape{}, 0
	}
	newest := binary.LittleEndian.Uint64(b[at:])
	if newest > uint64(maxTime) {
		return Shape{}, 0
	}
	at += 8
	*s = State{Newest: int64(newest)}
	if shape.Kind == FirstHitWindow {
		age, n := binary.Uvarint(b[at:])
		if n <= 0 || age > newest {
			return Shape{}, 0
		}
		at += n
		s.Start = int64(newest - age)
	}
	buckets := shape.Kind.Buckets()
	if buckets == 0 {
		return Shape{}, 0
	}
	for i := range buckets {
		h := &s.Hits[i]
		if at, h.Total = decodeHits(b, at); at < 0 {
			return Shape{}, 0
		}
		if !synced {
			continue
		}
		if at, h.Diff = decodeSigned(b, at); at < 0 {
			return Shape{}, 0
		}
		if at, h.Flight = decodeSigned(b, at); at < 0 {
			return Shape{}, 0
		}
	}
	return shape, at
}

// decodeHits reads a number of hits at b[at:] and returns where the next one begins, or -1.
func decodeHits(b []byte, at int) (next int, hits uint64) {
	if at < len(b) && b[at] < 0x80 {
		return at + 1, uint64(b[at])
	}
	hits, n := binary.Uvarint(b[at:])
	if n <= 0 || hits > MaxHits {
		return -1, 0
	}
	return at + n, hits
}

// decodeSigned is decodeHits for numbers with a sign.
func decodeSigned(b []byte, at int) (next int, hits int64) {
	hits, n := binary.Varint(b[at:])
	if n <= 0 || hits > MaxHits || hits < -MaxHits {
		return -1, 0
	}
	return at + n, hits
}
