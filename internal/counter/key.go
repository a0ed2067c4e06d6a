package counter

import (
	"encoding/binary"

	"golang.org/x/crypto/blake2s"

	"weir/window"
)

// AppendPart appends a part to a key: the rule's name, or the value of a selector. It is preceded
// by its length, so that different lists of parts give different keys.
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

// Identities are the names of keys in the backend: the same in every process with the same secret.
// Without a secret, anyone who sees a name can check a guess of its key; with a secret, only its
// holders can. The zero value has no secret.
type Identities struct {
	keyed  bool
	secret [blake2s.Size]byte // its hash
}

// NewIdentities returns the identities for a secret of any length; empty for none.
func NewIdentities(secret string) (i Identities) {
	if secret != "" {
		i.keyed, i.secret = true, blake2s.Sum256([]byte(secret))
	}
	return i
}

// Of returns a key's name: half of its hash or, with a secret, half of the hash of both hashes,
// which is one block of BLAKE2s. BLAKE2s has a keyed mode, which takes keys of any length, but it
// would make the plugin 11 KB larger.
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

// Salt separates in a table the keys that have other names in the backend, because entries keep
// their names. It is 0 without a secret.
func (i *Identities) Salt() (salt [2]uint64) {
	if i.keyed {
		id := i.Of(nil)
		salt[0], salt[1] = binary.LittleEndian.Uint64(id[:]), binary.LittleEndian.Uint64(id[8:])
	}
	return salt
}

// bytesPerLimit is the memory that each further limit of a rule adds to a counter, in bytes.
const bytesPerLimit = 48

// ExtraBytes is the memory per counter that a table should reserve for the rule beyond the usual:
// for further limits, and for full logs and sub-buckets.
func (r *Rule) ExtraBytes() int {
	size := (len(r.Limits) - 1) * bytesPerLimit
	for i := range r.Limits {
		if r.Limits[i].Kind.Bucketed() {
			size += window.MaxStateSize(&r.Limits[i], r.Synced())
		}
	}
	return size
}
