package engine_test

import (
	"path/filepath"
	"testing"
	"time"

	"weir/internal/must"
	"weir/internal/nightly"
	"weir/internal/store"
	"weir/internal/store/file"
	"weir/internal/store/memory"
	"weir/internal/store/postgres"
	"weir/internal/store/postgres/postgrestest"
	"weir/internal/store/redis"
	"weir/internal/store/redis/redistest"
)

// openStore opens a world's store, which has the world's clock and ends with the test.
type openStore func(t testing.TB, now func() time.Time) store.Store

// worldStores are the stores of random worlds, and how many of these each has.
var worldStores = []struct {
	name   string
	worlds int
	start  func(t testing.TB) openStore
}{
	{"memory", nightly.Or(1000, 25), func(testing.TB) openStore {
		return func(_ testing.TB, now func() time.Time) store.Store { return memory.New(memory.Options{Now: now}) }
	}},
	{"file", nightly.Or(100, 2), func(testing.TB) openStore {
		return func(t testing.TB, now func() time.Time) store.Store {
			s, err := file.Open(filepath.Join(t.TempDir(), "weir.db"), file.Options{Now: now, NoSync: true})
			return opened(t, s, err)
		}
	}},
	{"redis", nightly.Or(100, 2), func(t testing.TB) openStore { return redisAt(redistest.Start(t).URL()) }},
	{"cluster", nightly.Or(100, 2), func(t testing.TB) openStore { return redisAt(redistest.StartCluster(t).URL()) }},
	{"postgres", nightly.Or(50, 2), func(t testing.TB) openStore {
		url := postgrestest.Start(t).Database(t)
		return func(t testing.TB, now func() time.Time) store.Store {
			s, err := postgres.Open(url, postgres.Options{Now: now})
			return opened(t, s, err)
		}
	}},
}

func redisAt(url string) openStore {
	return func(t testing.TB, now func() time.Time) store.Store {
		s, err := redis.Open(url, redis.Options{Now: now})
		return opened(t, s, err)
	}
}

// opened is a store that ends with the test.
func opened(t testing.TB, s interface {
	store.Store
	Close() error
}, err error) store.Store {
	t.Helper()
	must.OK(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}
