package counter

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/dchest/siphash"
	"golang.org/x/crypto/blake2s"

	"weir/internal/must"
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
		id := new(Identities).Of(key)
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
		must.Same(t, AppendPart([]byte("before"), part), want, "a part of %d bytes", length)
		if got, sum := new(Identities).Of(part), blake2s.Sum256(part); !bytes.Equal(got[:], sum[:16]) {
			t.Errorf("the identity is %x, want half of %x", got, sum)
		}
	}
}

// With a secret a name is a keyed hash, as others who share the counters must make it. Without one
// it stays what it was.
func TestIdentitiesOfSecrets(t *testing.T) {
	key := AppendPart(AppendPart(nil, "per-user"), "ann")
	for secret, want := range map[string]string{
		"":                                      "18a019fb998993edf524cc62b8bc7ba4",
		"0123456789abcdef":                      "eebde2bc9663d5093e7eebe77c32013c",
		"0123456789abcdeg":                      "69b8b60de614ce045ddc936308df7515",
		strings.Repeat("0123456789abcdef", 512): "1f4e14149c901cac375d6151f9689f4e",
	} {
		identities := NewIdentities(secret)
		for range 2 { // one does not change the next
			id := identities.Of(key)
			must.Equal(t, hex.EncodeToString(id[:]), want, "secret %.20q: identity", secret)
		}
		must.Equal(t, identities.Salt() == [2]uint64{}, secret == "", "secret %.20q: no salt", secret)
		must.Equal(t, testing.AllocsPerRun(100, func() { identities.Of(key) }), 0, "secret %.20q: allocations", secret)
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
		{[]window.Limit{log}, window.MaxStateSize(&log, true)},
		{[]window.Limit{perMinute(10), log, log}, 96 + 2*window.MaxStateSize(&log, true)},
	} {
		rule := &Rule{Limits: test.limits, Interval: second}
		must.Equal(t, rule.ExtraBytes(), test.want, "%d limits: bytes", len(test.limits))
	}
}

// BenchmarkHashes compares the hash of every request, the table's, with the hash of a new entry.
func BenchmarkHashes(b *testing.B) {
	key := AppendPart(AppendPart(nil, "per-user"), "0123456789abcdef")
	b.Run("table", func(b *testing.B) {
		for b.Loop() {
			siphash.Hash128(1, 2, key)
		}
	})
	for name, secret := range map[string]string{"identity": "", "identity with a secret": "0123456789abcdef"} {
		b.Run(name, func(b *testing.B) {
			identities := NewIdentities(secret)
			b.ReportAllocs()
			for b.Loop() {
				identities.Of(key)
			}
		})
	}
}
