package main

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"weir/bench/page"
	"weir/internal/store"
	"weir/internal/store/memory"
	"weir/internal/store/postgres"
	"weir/internal/store/postgres/postgrestest"
	"weir/internal/store/redis"
	"weir/internal/store/redis/redistest"
)

// kind is a kind of store to measure.
type kind struct {
	name string
	open func(ctx context.Context, t testing.TB, o *options) (*subject, error)
}

// subject is a store with its running server.
type subject struct {
	name, server string // the server's name and version
	workloads    []hits
	store        store.Store
	pids         []int
}

var stores = []kind{
	{"Memory", openMemory},
	{"Redis", openRedis},
	{"Redis Cluster", openCluster},
	{"PostgreSQL", func(ctx context.Context, t testing.TB, o *options) (*subject, error) {
		return openPostgres(ctx, t, o, "")
	}},
	{"PostgreSQL, synchronous_commit=off", func(ctx context.Context, t testing.TB, o *options) (*subject, error) {
		return openPostgres(ctx, t, o, "&synchronous_commit=off")
	}},
}

func (k *kind) full(w *workload) string { return k.name + "/" + w.name }

func (k *kind) wanted(only *regexp.Regexp) bool {
	return slices.ContainsFunc(workloads, func(w workload) bool { return only.MatchString(k.full(&w)) })
}

func openMemory(context.Context, testing.TB, *options) (*subject, error) {
	return &subject{server: "memory", store: memory.New(memory.Options{})}, nil
}

// closed closes a store before its servers end.
func closed(t testing.TB, end func() error) {
	t.Cleanup(func() {
		if err := end(); err != nil {
			t.Error(err)
		}
	})
}

func openRedis(_ context.Context, t testing.TB, _ *options) (*subject, error) {
	server := redistest.Start(t)
	return redisSubject(t, server.URL(), server)
}

func openCluster(_ context.Context, t testing.TB, _ *options) (*subject, error) {
	cluster := redistest.StartCluster(t)
	return redisSubject(t, cluster.URL(), cluster.Servers...)
}

func redisSubject(t testing.TB, url string, servers ...*redistest.Server) (*subject, error) {
	store, err := redis.Open(url, redis.Options{})
	if err != nil {
		return nil, err
	}
	closed(t, store.Close)
	version, err := exec.Command("redis-server", "--version").Output()
	if err != nil {
		return nil, err
	}
	s := &subject{store: store, server: "Redis " + strings.TrimPrefix(strings.Fields(string(version))[2], "v=")}
	if len(servers) > 1 {
		s.server = fmt.Sprintf("%s, %d masters with a replica each", s.server, len(servers)/2)
	}
	for _, server := range servers {
		s.pids = append(s.pids, server.PID())
	}
	return s, nil
}

// openPostgres opens a store in a server that waits for its disk, as servers do by default.
func openPostgres(ctx context.Context, t testing.TB, o *options, parameters string) (*subject, error) {
	server := postgrestest.Start(t, "fsync=on")
	store, err := postgres.Open(server.URL()+parameters+"&pool_max_conns="+strconv.Itoa(o.senders), postgres.Options{})
	if err != nil {
		return nil, err
	}
	closed(t, store.Close)
	conn, err := pgx.Connect(ctx, server.URL())
	if err != nil {
		return nil, err
	}
	closed(t, func() error { return conn.Close(context.Background()) })
	var version string
	if err := conn.QueryRow(ctx, "SHOW server_version").Scan(&version); err != nil {
		return nil, err
	}
	// The server is the parent of the process that serves the connection.
	pids := []int{page.Processes()[int(conn.PgConn().PID())].PPID}
	return &subject{store: store, server: "PostgreSQL " + strings.Fields(version)[0], pids: pids}, nil
}

// measure opens the store, and measures the selected workloads.
func (k *kind) measure(ctx context.Context, t testing.TB, o *options) (*subject, error) {
	s, err := k.open(ctx, t, o)
	if err != nil {
		return nil, err
	}
	s.name = k.name
	service, end, err := serve(s.store, o.senders)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err := end(); err != nil {
			t.Error(err)
		}
	}()
	if err := service.fill(ctx); err != nil {
		return nil, err
	}
	for _, w := range workloads {
		if o.only.MatchString(k.full(&w)) {
			s.workloads = append(s.workloads, hits{workload: w})
		}
	}
	for range o.rounds {
		for i := range s.workloads {
			if err := service.checked(ctx, &s.workloads[i], o.block, s.pids); err != nil {
				return nil, fmt.Errorf("%s: %w", s.workloads[i].name, err)
			}
		}
	}
	return s, nil
}

// checked pushes for a time. It fails unless all hits have arrived exactly once.
func (s *service) checked(ctx context.Context, w *hits, long time.Duration, pids []int) error {
	before, _, err := s.applied()
	if err != nil {
		return err
	}
	start := page.Used(pids...)
	b, err := s.push(ctx, &w.workload, long)
	if err != nil {
		return err
	}
	used := page.Used(pids...) - start
	after, duplicates, err := s.applied()
	if err != nil {
		return err
	}
	sent := float64(len(b.waits) * w.hits())
	most := sent
	if w.lease {
		most *= leased
	}
	if got := after - before; got < sent || got > most || duplicates > 0 {
		return fmt.Errorf("%d pushes of %d hits: %g hits were applied, and %g pushes not", len(b.waits), w.hits(), got, duplicates)
	}
	w.add(b, used)
	return nil
}
