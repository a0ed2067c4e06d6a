// Package backend measures how many hits a second the counter backend takes with each store, through its HTTP handler.
package backend

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"

	"weir/bench/page"
	"weir/internal/must"
	"weir/internal/server"
	"weir/internal/store"
	"weir/internal/store/memory"
	"weir/internal/store/postgres"
	"weir/internal/store/postgres/postgrestest"
	"weir/internal/store/redis"
	"weir/internal/store/redis/redistest"
	"weir/internal/wire"
)

// stores open the measured stores, and return the processes of their servers.
var stores = []struct {
	name string
	open func(b *testing.B) (store.Store, []int)
}{
	{"Memory", func(*testing.B) (store.Store, []int) { return memory.New(memory.Options{}), nil }},
	{"Redis", func(b *testing.B) (store.Store, []int) {
		server := redistest.Start(b)
		return onRedis(b, server.URL(), server)
	}},
	{"RedisCluster", func(b *testing.B) (store.Store, []int) {
		cluster := redistest.StartCluster(b)
		return onRedis(b, cluster.URL(), cluster.Servers...)
	}},
	{"PostgreSQL", func(b *testing.B) (store.Store, []int) { return onPostgres(b, "") }},
	{"PostgreSQL,synchronous_commit=off", func(b *testing.B) (store.Store, []int) { return onPostgres(b, "&synchronous_commit=off") }},
}

func onRedis(b *testing.B, url string, servers ...*redistest.Server) (store.Store, []int) {
	s := must.Get(redis.Open(url, redis.Options{}))(b)
	closed(b, s.Close)
	var pids []int
	for _, server := range servers {
		pids = append(pids, server.PID())
	}
	return s, pids
}

// onPostgres opens a store in a server that waits for its disk, as servers do by default.
func onPostgres(b *testing.B, parameters string) (store.Store, []int) {
	server := postgrestest.Start(b, "fsync=on")
	s := must.Get(postgres.Open(server.URL()+parameters+"&pool_max_conns="+strconv.Itoa(senders), postgres.Options{}))(b)
	closed(b, s.Close)
	conn := must.Get(pgx.Connect(b.Context(), server.URL()))(b)
	closed(b, func() error { return conn.Close(context.Background()) })
	// The server is the parent of the process that serves the connection.
	return s, []int{page.Processes()[int(conn.PgConn().PID())].PPID}
}

// closed closes a store before its servers end.
func closed(t testing.TB, end func() error) {
	t.Cleanup(func() {
		must.Report(t, end())
	})
}

// BenchmarkPush has all senders push at once. An operation is a push.
func BenchmarkPush(b *testing.B) {
	for _, k := range stores {
		b.Run(k.name, func(b *testing.B) {
			store, pids := k.open(b)
			s := serve(b, store)
			for _, w := range workloads {
				b.Run(w.name, func(b *testing.B) {
					own, server := ownCPU(), page.Used(pids...)
					b.ResetTimer()
					waits := s.push(b, &w, b.N)
					b.StopTimer()
					perHit := func(used time.Duration) float64 { return float64(used.Microseconds()) / float64(b.N*w.hits()) }
					b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "pushes/s")
					b.ReportMetric(page.Quantile(waits, 0.5), "p50-ms")
					b.ReportMetric(page.Quantile(waits, 0.99), "p99-ms")
					b.ReportMetric(perHit(ownCPU()-own), "own-µs/hit")
					if len(pids) > 0 {
						b.ReportMetric(perHit(page.Used(pids...)-server), "server-µs/hit")
					}
				})
			}
		})
	}
}

// All hits of each workload arrive.
func TestMemory(t *testing.T) {
	s := serve(t, memory.New(memory.Options{}))
	for _, w := range workloads {
		if waits := s.push(t, &w, 20); len(waits) != 20 || page.Quantile(waits, 0.5) <= 0 {
			t.Errorf("%s: %v", w.name, waits)
		}
	}
}

// service is a backend with a store, and its senders.
type service struct {
	metrics *prometheus.Registry
	senders []*sender
}

// serve starts a backend whose counters all exist.
func serve(t testing.TB, store store.Store) *service {
	s := &service{metrics: prometheus.NewRegistry()}
	backend := httptest.NewServer(server.Handler(store, server.Options{Registry: s.metrics}))
	t.Cleanup(backend.Close)
	connections := &http.Transport{MaxIdleConnsPerHost: senders}
	t.Cleanup(connections.CloseIdleConnections)
	for i := range senders {
		s.senders = append(s.senders, &sender{
			node: 1 + uint64(i/workers), id: rand.Uint64(), random: rand.New(rand.NewPCG(4, uint64(i))),
			client: &http.Client{Transport: connections}, url: backend.URL + wire.PushPath,
		})
	}
	filler := &sender{id: rand.Uint64()}
	for first := 0; first < counters; first += wire.MaxItems {
		p := filler.named()
		for i := first; i < min(first+wire.MaxItems, counters); i++ {
			p.Items = append(p.Items, itemOf(i))
		}
		must.Get(store.Push(t.Context(), p, 1))(t)
	}
	return s
}

// push has senders send n pushes, and returns how long each took, in milliseconds. The test fails unless all hits have
// arrived exactly once.
func (s *service) push(t testing.TB, w *workload, n int) (waits []float64) {
	t.Helper()
	before, _ := s.applied(t)
	var sent atomic.Int64
	var lock sync.Mutex
	var failures error
	var group sync.WaitGroup
	for _, sender := range s.senders {
		group.Go(func() {
			for sent.Add(1) <= int64(n) {
				p := sender.next(w)
				began := time.Now()
				err := sender.push(t.Context(), p)
				took := time.Since(began)
				lock.Lock()
				failures = errors.Join(failures, err)
				waits = append(waits, took.Seconds()*1000)
				lock.Unlock()
			}
		})
	}
	group.Wait()
	must.OK(t, failures)
	hits := float64(n * w.hits())
	most := hits
	if w.lease {
		most *= leased
	}
	after, duplicates := s.applied(t)
	if got := after - before; got < hits || got > most || duplicates > 0 {
		t.Fatalf("%d pushes of %d hits: %g hits were applied, and %g pushes not", n, w.hits(), got, duplicates)
	}
	return waits
}

// applied returns how many hits the backend has applied, and how many pushes were duplicates.
func (s *service) applied(t testing.TB) (hits, duplicates float64) {
	t.Helper()
	families := must.Get(s.metrics.Gather())(t)
	for _, f := range families {
		switch f.GetName() {
		case "weir_hits_applied_total":
			hits = f.GetMetric()[0].GetCounter().GetValue()
		case "weir_push_duplicates_total":
			duplicates = f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	return hits, duplicates
}

// ownCPU returns the processor time of this process.
func ownCPU() time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		return 0
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
