package counter

import (
	"encoding/binary"

	"golang.org/x/crypto/blake2s"
)

// AppendPart appends a part of a key: the rule's name, then the value of each selector. The part's
// length comes before it, so that no two lists of parts give the same key.
func AppendPart[P ~string | ~[]byte](key []byte, part P) []byte {
	if len(part) < 1<<7 {
		key = append(key, byte(len(part)))
	} else {
		key = appendLength(key, len(part))
	}
	return append(key, part...)
}

//go:noinline
func appendLength(key []byte, length int) []byte { return binary.AppendUvarint(key, uint64(length)) }

// Identity is a key's name in the backend: the same in every process, without saying what the key
// is.
func Identity(key []byte) (id [16]byte) {
	sum := blake2s.Sum256(key)
	copy(id[:], sum[:])
	return id
}

// bytesPerLimit is what each further limit of a rule adds to the memory that a counter may take.
const bytesPerLimit = 48

// ExtraBytes is the memory that a table should have for each counter of the rule beyond the usual:
// for further limits, and for logs and sub-buckets in full.
func (r *Rule) ExtraBytes() int {
	size := (len(r.Limits) - 1) * bytesPerLimit
	for i := range r.Limits {
		if r.Limits[i].Kind.Bucketed() {
			size += r.Limits[i].MaxStateSize(r.Synced())
		}
	}
	return size
}
