package redis_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"weir/internal/nightly"
	"weir/internal/store"
	"weir/internal/store/redis"
	"weir/internal/store/redis/redistest"
	"weir/internal/store/storetest"
)

// TestAdvance has two backends on a Redis, each of which begins anew now and then.
func TestAdvance(t *testing.T) {
	url := redistest.Start(t).URL()
	storetest.Advance(t, nightly.Or(3000, 60), func(t *testing.T, seed uint64, now func() time.Time) storetest.AdvanceStore {
		r, last := rand.New(rand.NewPCG(seed, 1)), 0
		backends := []*redis.Store{open(t, url, now), open(t, url, now)}
		return storetest.AdvanceStore{
			Store: func() store.Store {
				last = r.IntN(len(backends))
				return backends[last]
			},
			Start: func() { backends[last] = open(t, url, now) },
		}
	})
}
