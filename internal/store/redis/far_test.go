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

// TestAdvance has two backends on a Redis, and now and then a third that knows of nothing yet.
func TestAdvance(t *testing.T) {
	url := redistest.Start(t).URL()
	storetest.Advance(t, nightly.Or(3000, 60), func(t *testing.T, seed uint64, now func() time.Time) storetest.AdvanceStore {
		r := rand.New(rand.NewPCG(seed, 1))
		backends := []*redis.Store{open(t, url, now), open(t, url, now)}
		return storetest.AdvanceStore{Store: func() store.Store {
			i := r.IntN(len(backends))
			if r.IntN(8) == 0 {
				backends[i] = open(t, url, now)
			}
			return backends[i]
		}}
	})
}
