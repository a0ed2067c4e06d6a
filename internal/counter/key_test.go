package counter

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/dchest/siphash"
	"golang.org/x/crypto/blake2s"

	"weir/window"
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

// Every program that shares counters makes the same keys and identities, whatever the parts' length.
func TestKeysStay(t *testing.T) {
	t.Parallel()
	for _, length := range []int{0, 1, 127, 128, 129, 300, 1<<14 - 1, 1 << 14} {
		part := bytes.Repeat([]byte{'x'}, length)
		want := append(binary.AppendUvarint([]byte("before"), uint64(length)), part...)
		if got := AppendPart([]byte("before"), part); !bytes.Equal(got, want) {
			t.Errorf("a part of %d bytes is %.20x…, want %.20x…", length, got, want)
		}
		if got, sum := Identity(part), blake2s.Sum256(part); !bytes.Equal(got[:], sum[:16]) {
			t.Errorf("the identity is %x, want half of %x", got, sum)
		}
	}
}

// The memory that the README promises: 48 bytes for each limit after the first, and what logs and
// sub-buckets take at most.
func TestExtraBytes(t *testing.T) {
	t.Parallel()
	log := window.Limit{Shape: window.Shape{Kind: window.SlidingBuckets, Width: minute, Precision: window.LogPrecision}, Max: 100}
	for _, test := range []struct {
		limits []window.Limit
		want   int
	}{
		{[]window.Limit{perMinute(10)}, 0},
		{[]window.Limit{perMinute(10), perHour(10)}, 48},
		{[]window.Limit{perMinute(10), perHour(10), perHour(20)}, 96},
		{[]window.Limit{log}, log.MaxStateSize(true)},
		{[]window.Limit{perMinute(10), log, log}, 96 + 2*log.MaxStateSize(true)},
	} {
		rule := &Rule{Limits: test.limits, SyncRate: second}
		if got := rule.ExtraBytes(); got != test.want {
			t.Errorf("%d limits: got %d bytes, want %d", len(test.limits), got, test.want)
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
