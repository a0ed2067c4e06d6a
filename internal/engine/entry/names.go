package entry

import (
	"encoding/binary"
	"unicode/utf8"

	"weir/internal/clientip"
	"weir/internal/engine/rule"
	"weir/internal/sketch"
	"weir/internal/wire"
)

// names has the names of the keys that were saved last. A referred check has no name.
type names struct {
	ids   [nameSlots][16]byte
	sizes [nameSlots]uint8
	bytes [nameSlots][sketch.MaxName]byte
}

const nameSlots = 64

// keep keeps the name that a key's values have as far as its rule reveals them.
func (n *names) keep(id [16]byte, key []byte, r *rule.Rule) {
	at := id[0] % nameSlots
	n.ids[at], n.sizes[at] = id, uint8(len(appendName(n.bytes[at][:0], key, r)))
}

// AppendNameOf appends the name of a check's key, or of a referred check's as long as it is kept.
func (k *Entries) AppendNameOf(dst []byte, d *rule.Check, id [16]byte) []byte {
	if prefix := len(d.Rule.Prefix); len(d.Key) > prefix {
		return appendName(dst, d.Key[prefix:], d.Rule)
	}
	if n, at := k.names, id[0]%nameSlots; n.ids[at] == id {
		return append(dst, n.bytes[at][:n.sizes[at]]...)
	}
	return dst
}

// appendName appends a key's values as far as its rule reveals them: a number of characters of
// each. A name that is too long is cut.
func appendName(dst, key []byte, r *rule.Rule) []byte {
	start := len(dst)
	var memory [clientip.MaxText]byte
	for values := 0; len(key) > 0 && values < wire.MaxReportValues; values++ {
		length, n := binary.Uvarint(key)
		if n <= 0 || length > uint64(len(key)-n) {
			break
		}
		value := key[n : n+int(length)]
		key = key[n+int(length):]
		if r.Addresses>>values&1 != 0 {
			value = clientip.Text(value, &memory)
		}
		shown := value[:characters(value, int(r.Reveal))]
		// A length takes at most two bytes, and later values need at least one each.
		if room := sketch.MaxName - (len(dst) - start) - 2 - wire.MaxReportValues; len(shown) > max(room, 0) {
			shown = shown[:max(room, 0)]
		}
		dst = wire.AppendValue(dst, shown, len(shown) < len(value))
	}
	return dst
}

// characters returns the bytes of a value's first characters.
func characters(value []byte, count int) (size int) {
	for ; count > 0 && size < len(value); count-- {
		_, n := utf8.DecodeRune(value[size:])
		size += n
	}
	return size
}
