package window

import (
	"fmt"
	"sync"
	"testing"
)

// BenchmarkState is all that a decision does with one limit: the state is read from the form of
// shared data, a hit is taken, and the state is written again. The floor counts a hit in a map
// under a mutex, which is all that the simplest limiter in a program does.
func BenchmarkState(b *testing.B) {
	for _, test := range []struct {
		name  string
		limit Limit
	}{
		{"fixed window", fixed(1_000_000, minute)},
		{"first hit", firstHit(1_000_000, minute)},
		{"sliding window", sliding(1_000_000, minute)},
		{"60 sub-buckets", subBuckets(1_000_000, minute, second)},
		{"log of 400 hits", log(500, minute)},
		{"token bucket", tokens(1_000_000, 1_000_000, minute)},
	} {
		b.Run(test.name, func(b *testing.B) {
			var s State
			l, now := &test.limit, monday
			codec := NewCodec(l, false)
			// Afterwards a window is full of hits.
			next := func(encoded []byte) []byte {
				now += minute / 400
				if len(encoded) > 0 && codec.Decode(encoded, &s) != len(encoded) {
					b.Fatal("the state can't be read")
				}
				if l.Advance(&s, now); l.Allows(&s, 1) {
					l.Count(&s, 1)
				}
				return codec.Append(encoded[:0], &s)
			}
			var encoded []byte
			for range 1000 {
				encoded = next(encoded)
			}
			b.ReportAllocs()
			for b.Loop() {
				encoded = next(encoded)
			}
		})
	}
	b.Run("floor", func(b *testing.B) {
		var mutex sync.Mutex
		counts := map[string]uint64{}
		for i := range 1000 {
			counts[fmt.Sprintf("user-%06d", i)] = 1
		}
		key := "user-000500"
		for b.Loop() {
			mutex.Lock()
			if counts[key] < MaxHits {
				counts[key]++
			}
			mutex.Unlock()
		}
	})
}
