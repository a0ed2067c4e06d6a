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

// Identities are the names of keys in the backend: the same in every process that has the same
// secret. Without a secret, anybody who sees a name can check a guess of its key; with a secret,
// only its holders can. The zero value has none.
type Identities struct {
	keyed  bool
	secret [blake2s.Size]byte // its hash
}

// NewIdentities makes those of a secret of any length, none if it is empty.
func NewIdentities(secret string) (i Identities) {
	if secret != "" {
		i.keyed, i.secret = true, blake2s.Sum256([]byte(secret))
	}
	return i
}

// Of returns a key's name: half of its hash, or with a secret half of the hash of both hashes. That
// makes one block of BLAKE2s. Its own keyed mode, which takes keys of any length, would make the
// plugin 11 KB larger.
func (i *Identities) Of(key []byte) (id [16]byte) {
	sum := blake2s.Sum256(key)
	if i.keyed {
		var block [2 * blake2s.Size]byte
		copy(block[:], i.secret[:])
		copy(block[blake2s.Size:], sum[:])
		sum = blake2s.Sum256(block[:])
	}
	copy(id[:], sum[:])
	return id
}

// Salt tells apart in a table what has other names in the backend: entries keep theirs. It is 0
// without a secret.
func (i *Identities) Salt() (salt [2]uint64) {
	if i.keyed {
		id := i.Of(nil)
		salt[0], salt[1] = binary.LittleEndian.Uint64(id[:]), binary.LittleEndian.Uint64(id[8:])
	}
	return salt
}

// bytesPerLimit is how much each further limit of a rule adds to the memory that a counter may
// take.
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
