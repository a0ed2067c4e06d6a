package counter

import (
	"fmt"
	"testing"

	"github.com/dchest/siphash"
)

// Parts that could be confused if they were only joined give different keys, and keys different
// identities.
func TestKeysAreTold(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for _, parts := range [][]string{{"a", "bc"}, {"ab", "c"}, {"abc"}, {"abc", ""}, {"", "abc"}, {"a", "b", "c"}, {"\x01a"}, {"\x00", "\x00"}, {"\x00\x00"}} {
		var key []byte
		for _, part := range parts {
			key = AppendPart(key, part)
		}
		id := Identity(key)
		for _, told := range []string{string(key), string(id[:])} {
			if other, ok := seen[told]; ok {
				t.Errorf("%q and %s are the same", parts, other)
			}
			seen[told] = fmt.Sprintf("%q", parts)
		}
	}
}

// BenchmarkHashes compares the hash of every request, the table's, with the one of a new entry.
func BenchmarkHashes(b *testing.B) {
	key := AppendPart(AppendPart(nil, "per-user"), "0123456789abcdef")
	b.Run("table", func(b *testing.B) {
		for b.Loop() {
			siphash.Hash128(1, 2, key)
		}
	})
	b.Run("identity", func(b *testing.B) {
		for b.Loop() {
			Identity(key)
		}
	})
}
