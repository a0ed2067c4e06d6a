package storetest_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"weir/internal/must"
	"weir/internal/store"
	"weir/internal/store/file"
	"weir/internal/store/memory"
	"weir/internal/store/postgres"
	"weir/internal/store/postgres/postgrestest"
	"weir/internal/store/redis"
	"weir/internal/store/redis/redistest"
	"weir/internal/store/storetest"
	"weir/internal/wire"
)

func TestMain(m *testing.M) { os.Exit(postgrestest.Main(m)) }

// allStores returns all other stores, to compare with the store in memory.
func allStores(t testing.TB) *storetest.Alike {
	t.Helper()
	a := &storetest.Alike{
		Exact: func(now func() time.Time) store.Store { return memory.New(memory.Options{Now: now}) },
		// Redis expires keys by its own clock, at the earliest a grace after their windows, and
		// counts microseconds.
		Widths: []uint64{10_000, 59_999, 600_000, 86_400_000, wire.MaxWidthMillis}, Resolution: time.Microsecond, Life: store.Grace - time.Second,
	}
	onPostgres := must.Get(postgres.Open(postgrestest.Database(t), postgres.Options{Now: a.Now}))(t)
	closed(t, onPostgres.Close)
	inFile := must.Get(file.Open(filepath.Join(t.TempDir(), "weir.db"), file.Options{Now: a.Now, NoSync: true}))(t)
	closed(t, inFile.Close)
	a.Others = map[string]store.Store{"PostgreSQL": onPostgres, "file": inFile}
	for name, url := range map[string]string{"Redis": redistest.Start(t).URL(), "Redis Cluster": redistest.StartCluster(t).URL()} {
		// A client without an answer for 3 s asks again by itself. The outcome of the second
		// attempt lacks the hits applied by the first.
		var both turns
		for i := range both.stores {
			onRedis := must.Get(redis.Open(url+"?read_timeout=1m", redis.Options{Now: a.Now}))(t)
			closed(t, onRedis.Close)
			both.stores[i], both.Store = onRedis, onRedis
		}
		a.Others[name] = &both
	}
	return a
}

// turns are two stores on a server that take turns of any length, so neither has seen the latest
// contents.
type turns struct {
	store.Store
	stores [2]store.Store
}

func (s *turns) Push(ctx context.Context, p *wire.Push, nodes uint64) (store.Outcome, error) {
	return s.stores[p.Sequence/3%2].Push(ctx, p, nodes)
}

func closed(t testing.TB, end func() error) {
	t.Cleanup(func() { must.Report(t, end()) })
}

// TestAlike gives all stores the same pushes at random.
func TestAlike(t *testing.T) { allStores(t).RunSeeds(t, 60) }

// FuzzAlike lets a fuzzer choose the pushes.
func FuzzAlike(f *testing.F) {
	a := allStores(f)
	for seed := range uint64(12) {
		f.Add(storetest.Choices(seed, 100<<(seed/2)))
	}
	f.Fuzz(func(t *testing.T, choices []byte) { a.Run(t, choices) })
}
