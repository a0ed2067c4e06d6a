package entry

import (
	"encoding/binary"

	"weir/internal/clientip"
	"weir/internal/counter"
	"weir/internal/wire"
)

// Shape is a pattern of a rule's overrides. Textual addresses are those of programs, whose keys have their texts, or
// their bytes as of limithttp.ClientIP.
type Shape struct {
	wire.Pattern
	Textual bool
}

// Append appends the name of the keys that are like a key, which begins with a prefix: an override of
// such keys has the same. It reports whether there is one. No key has such a name.
func (s *Shape) Append(dst, key []byte, prefix int) ([]byte, bool) {
	like := false
	dst = append(dst, 0, s.Kind, s.Part, byte(s.Bits>>8), byte(s.Bits))
	dst = append(dst, key[:prefix]...)
	key = key[prefix:]
	for part := 0; len(key) > 0; part++ {
		length, n := binary.Uvarint(key)
		if n <= 0 || length > uint64(len(key)-n) {
			return dst, false
		}
		value := key[n : n+int(length)]
		key = key[n+int(length):]
		if part != int(s.Part) {
			dst = counter.AppendPart(dst, value)
			continue
		}
		var memory [16]byte
		if value, like = s.cut(value, &memory); !like {
			return dst, false
		}
		dst = counter.AppendPart(dst, value)
	}
	return dst, like
}

// cut returns the part of a value that the pattern is about.
func (s *Shape) cut(value []byte, memory *[16]byte) ([]byte, bool) {
	bits, bytes := int(s.Bits), int(s.Bits/8)
	if s.Kind == wire.ByNetwork {
		if s.Textual && (s.V6 || len(value) != 4) { // no text of an IPv4 address is so short
			value = clientip.Network(value, bits, bits, memory)
		}
		if len(value) <= len(memory) {
			value = memory[:copy(memory[:], value)]
			clientip.Mask(value, bits)
		}
		return value, s.V6 && len(value) == 16 || !s.V6 && len(value) == 4
	}
	if len(value) < bytes {
		return nil, false
	}
	if s.Kind == wire.BySuffix {
		return value[len(value)-bytes:], true
	}
	return value[:bytes], true
}
