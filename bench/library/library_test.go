// Package library measures a decision of Weir's library beside golang.org/x/time/rate, which has a bucket for each
// key in a map under a lock.
package library

import (
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"weir/ratelimit"
)

// perKey is what most programs have: a map of limiters.
type perKey struct {
	mu sync.Mutex
	of map[string]*rate.Limiter
}

func (p *perKey) allow(key string) bool {
	p.mu.Lock()
	l := p.of[key]
	if l == nil {
		l = rate.NewLimiter(1e9, 1e9)
		p.of[key] = l
	}
	p.mu.Unlock()
	return l.Allow()
}

func BenchmarkDecision(b *testing.B) {
	// A decision tells how the limit stands, too. Allow only tells whether there was room, as rate does.
	allow := func(of ratelimit.Limit) func(b *testing.B) func(string) bool {
		return func(b *testing.B) func(string) bool {
			l, err := ratelimit.NewLimiter(of)
			if err != nil {
				b.Fatal(err)
			}
			return func(key string) bool {
				allowed, err := l.Allow(b.Context(), key)
				return allowed && err == nil
			}
		}
	}
	weir := func(of ratelimit.Limit) func(b *testing.B) func(string) bool {
		return func(b *testing.B) func(string) bool {
			l, err := ratelimit.NewLimiter(of)
			if err != nil {
				b.Fatal(err)
			}
			return func(key string) bool {
				d, err := l.Decide(b.Context(), ratelimit.Key{key}, 1)
				return d.Allowed && err == nil
			}
		}
	}
	const most = 999_999_999_999_999
	for _, subject := range []struct {
		name string
		of   func(*testing.B) func(key string) bool
	}{
		{"rate", func(*testing.B) func(string) bool { return (&perKey{of: map[string]*rate.Limiter{}}).allow }},
		{"fixed", weir(ratelimit.FixedWindow(most, time.Minute))},
		{"fixed, Allow", allow(ratelimit.FixedWindow(most, time.Minute))},
		{"bucket, Allow", allow(ratelimit.TokenBucket(1_000_000_000, time.Second, 1_000_000_000))},
		{"sliding", weir(ratelimit.SlidingWindow(most, time.Minute))},
		{"bucket", weir(ratelimit.TokenBucket(1_000_000_000, time.Second, 1_000_000_000))},
		{"buckets", weir(ratelimit.SlidingBuckets(most, time.Minute, time.Second))},
		{"log", weir(ratelimit.SlidingLog(500, time.Minute))},
	} {
		for _, n := range []int{1, 100_000} {
			b.Run(subject.name+"/"+strconv.Itoa(n), func(b *testing.B) {
				keys := make([]string, n)
				for i := range keys {
					keys[i] = "user-" + strconv.Itoa(i)
				}
				allow := subject.of(b)
				for _, key := range keys {
					allow(key)
				}
				b.ReportAllocs()
				b.ResetTimer()
				b.RunParallel(func(pb *testing.PB) {
					random := rand.New(rand.NewPCG(1, 2))
					for pb.Next() {
						allow(keys[random.IntN(n)])
					}
				})
			})
		}
	}
}
