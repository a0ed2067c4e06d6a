package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	goredis "github.com/redis/go-redis/v9"

	"weir/bench/page"
	"weir/internal/store"
	"weir/internal/store/memory"
	"weir/internal/store/postgres"
	"weir/internal/store/postgres/postgrestest"
	"weir/internal/store/redis"
	"weir/internal/store/redis/redistest"
	"weir/internal/wire"
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
	// ceilings are the ceilings of all workloads. If there are none, the ceiling of each is the
	// store without HTTP.
	ceilings []ceiling
	// counted is a store whose calls are counted, if they can be. count returns how many commands
	// or statements, and how many scripts, the servers have run so far.
	counted store.Store
	count   func(ctx context.Context) (calls, scripts float64, err error)
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

func openRedis(ctx context.Context, t testing.TB, o *options) (*subject, error) {
	server := redistest.Start(t)
	return redisSubject(ctx, t, o, server.URL(), []string{server.Addr}, 1)
}

func openCluster(ctx context.Context, t testing.TB, o *options) (*subject, error) {
	cluster := redistest.StartCluster(t)
	var addrs []string
	for _, s := range cluster.Servers {
		addrs = append(addrs, s.Addr)
	}
	return redisSubject(ctx, t, o, cluster.URL(), addrs, len(addrs)/2)
}

// bulk is how many operations a ceiling for large batches does at once.
const bulk = 1000

// trivial are scripts that do the least work that a script can do for a hit.
var trivial = []string{
	`return redis.call('HINCRBY', KEYS[1], '1', 1)`,
	fmt.Sprintf(`for i = 1, %d do redis.call('HINCRBY', KEYS[1] .. i, '1', 1) end`, bulk),
}

// own returns a prefix for keys that belong to this server of a cluster.
func own(ctx context.Context, client *goredis.Client) (prefix string, err error) {
	for i := range 1000 {
		prefix = fmt.Sprintf("{%d}", i)
		if err = client.Exists(ctx, prefix).Err(); err == nil || !goredis.HasErrorPrefix(err, "MOVED") {
			break
		}
	}
	return prefix, err
}

// redisSubject returns the subject for servers at addresses. The first count of them are masters,
// and the others replicas.
func redisSubject(ctx context.Context, t testing.TB, o *options, url string, addrs []string, count int) (*subject, error) {
	program, err := find("redis-benchmark", "", "apt-get install redis-tools")
	if err != nil {
		return nil, err
	}
	s := &subject{}
	store, err := redis.Open(url, redis.Options{})
	if err != nil {
		return nil, err
	}
	closed(t, store.Close)
	s.store, s.counted = store, store
	hashes := make([]string, len(trivial))
	var clients []*goredis.Client
	var masters []master
	for i, addr := range addrs {
		client := goredis.NewClient(&goredis.Options{Addr: addr})
		closed(t, client.Close)
		info, err := client.InfoMap(ctx, "server").Result()
		if err != nil {
			return nil, err
		}
		pid, err := strconv.Atoi(info["Server"]["process_id"])
		if err != nil {
			return nil, err
		}
		s.server, s.pids = "Redis "+info["Server"]["redis_version"], append(s.pids, pid)
		if i >= count {
			continue
		}
		clients = append(clients, client)
		prefix, err := own(ctx, client)
		if err != nil {
			return nil, err
		}
		masters = append(masters, master{addr, prefix})
		for i, source := range trivial {
			if hashes[i], err = client.ScriptLoad(ctx, source).Result(); err != nil {
				return nil, err
			}
		}
	}
	if len(addrs) > 1 {
		s.server = fmt.Sprintf("%s, %d masters with a replica each", s.server, len(masters))
	}
	tool := func(keys int, command ...string) func(context.Context, int) (float64, error) {
		return redisBenchmark(program, masters, o.senders, keys, command...)
	}
	s.ceilings = []ceiling{
		{name: "HINCRBY", ops: 1, run: tool(counters, "HINCRBY", "KEY", "1", "1")},
		{name: "script of one", ops: 1, run: tool(counters, "EVALSHA", hashes[0], "1", "KEY")},
		{name: fmt.Sprintf("script of %d", bulk), ops: bulk, run: tool(counters/bulk+1, "EVALSHA", hashes[1], "1", "KEY")},
	}
	s.count = func(ctx context.Context) (calls, scripts float64, err error) { return redisCommands(ctx, clients) }
	return s, nil
}

// redisCommands returns how many commands scripts have called on servers, and the number of
// scripts.
func redisCommands(ctx context.Context, clients []*goredis.Client) (calls, scripts float64, err error) {
	for _, client := range clients {
		info, err := client.InfoMap(ctx, "commandstats").Result()
		if err != nil {
			return 0, 0, err
		}
		for name, stats := range info["Commandstats"] {
			n, err := strconv.ParseFloat(strings.TrimPrefix(strings.Split(stats, ",")[0], "calls="), 64)
			if err != nil {
				return 0, 0, fmt.Errorf("redis: %s: %w", name, err)
			}
			switch name, _, _ := strings.Cut(strings.TrimPrefix(name, "cmdstat_"), "|"); name {
			case "eval", "evalsha":
				scripts += n
			case "info", "cluster", "hello", "client", "ping", "replconf", "psync", "script", "command", "config", "readonly", "select":
				// Commands of connections and replicas don't count.
			default:
				calls += n
			}
		}
	}
	return calls, scripts, nil
}

// table is the table that pgbench writes to: a row for each counter.
const table = `
CREATE TABLE ceiling (k integer PRIMARY KEY, hits bigint NOT NULL) WITH (fillfactor = 70);
INSERT INTO ceiling SELECT k, 1 FROM generate_series(0, $n - 1) k;
VACUUM ANALYZE ceiling`

// upserts are the simplest statements that add hits.
var upserts = []string{
	fmt.Sprintf(`\set k random(0, %d)
INSERT INTO ceiling VALUES (:k, 1) ON CONFLICT (k) DO UPDATE SET hits = ceiling.hits + 1;
`, counters-1),
	fmt.Sprintf(`\set k random(0, %d)
INSERT INTO ceiling SELECT g, 1 FROM generate_series(:k::integer, :k::integer + %d) g ON CONFLICT (k) DO UPDATE SET hits = ceiling.hits + 1;
`, counters-bulk, bulk-1),
}

// openPostgres opens a store in a server that waits for its disk, as servers do by default.
func openPostgres(ctx context.Context, t testing.TB, o *options, parameters string) (*subject, error) {
	program, err := find("pgbench", "/usr/lib/postgresql/*/bin", "apt-get install postgresql, or postgresql-contrib where it is apart")
	if err != nil {
		return nil, err
	}
	open := func(server *postgrestest.Server) (*postgres.Store, *pgx.Conn, error) {
		store, err := postgres.Open(server.URL()+parameters+"&pool_max_conns="+strconv.Itoa(o.senders), postgres.Options{})
		if err != nil {
			return nil, nil, err
		}
		closed(t, store.Close)
		conn, err := pgx.Connect(ctx, server.URL())
		if err != nil {
			return nil, nil, err
		}
		closed(t, func() error { return conn.Close(context.Background()) })
		return store, conn, nil
	}
	server := postgrestest.Start(t, "fsync=on")
	store, conn, err := open(server)
	if err != nil {
		return nil, err
	}
	s := &subject{store: store}
	for sql := range strings.SplitSeq(strings.ReplaceAll(table, "$n", strconv.Itoa(counters)), ";") {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return nil, err
		}
	}
	var version string
	if err := conn.QueryRow(ctx, "SHOW server_version").Scan(&version); err != nil {
		return nil, err
	}
	s.server = "PostgreSQL " + strings.Fields(version)[0]
	s.pids = []int{page.Processes()[int(conn.PgConn().PID())].PPID}
	// pgbench needs a session's settings in another form.
	at := server.URL()
	if name, value, ok := strings.Cut(strings.TrimPrefix(parameters, "&"), "="); ok {
		at += "&options=-c%20" + name + "%3D" + value
	}
	s.ceilings = []ceiling{
		{name: "upsert of one", ops: 1, run: pgbench(program, at, t.TempDir(), upserts[0], o.senders)},
		{name: fmt.Sprintf("upsert of %d", bulk), ops: bulk, run: pgbench(program, at, t.TempDir(), upserts[1], o.senders)},
	}

	// Counting statements takes time, so it has its own server. That counts BEGIN and COMMIT only
	// once if they are prepared, so they are left out.
	counting := postgrestest.Start(t, "shared_preload_libraries=pg_stat_statements")
	counted, conn, err := open(counting)
	if err != nil {
		return nil, err
	}
	if _, err := conn.Exec(ctx, "CREATE EXTENSION pg_stat_statements"); err != nil {
		return nil, err
	}
	s.counted = counted
	s.count = func(ctx context.Context) (statements, _ float64, err error) {
		err = conn.QueryRow(ctx, `
SELECT coalesce(sum(calls), 0) FROM pg_stat_statements
WHERE query NOT LIKE '%pg_stat_statements%' AND query NOT LIKE 'BEGIN%' AND query NOT LIKE 'COMMIT%'`).Scan(&statements)
		return statements, 0, err
	}
	return s, nil
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
	direct := len(s.ceilings) == 0
	for _, w := range workloads {
		if !o.only.MatchString(k.full(&w)) {
			continue
		}
		s.workloads = append(s.workloads, hits{workload: w})
		if direct {
			s.ceilings = append(s.ceilings, ceiling{name: w.name + ", no HTTP", of: w.name, ops: w.hits(), run: func(ctx context.Context, _ int) (float64, error) {
				b, err := service.each(&w, o.block, 1, func(_ *sender, p *wire.Push) error {
					_, err := s.store.Push(ctx, p, 1)
					return err
				})
				return float64(len(b.waits)) / b.elapsed.Seconds(), err
			}})
		}
	}
	for i := range s.ceilings {
		if err := s.ceilings[i].warm(ctx, o.block/4); err != nil {
			return nil, err
		}
	}
	for range o.rounds {
		for i := range s.ceilings {
			c, used, began := &s.ceilings[i], page.Used(s.pids...), time.Now()
			if err := c.timed(ctx, o.block); err != nil {
				return nil, err
			}
			c.add(c.pace, page.Used(s.pids...)-used, time.Since(began))
		}
		for i := range s.workloads {
			if err := service.checked(ctx, &s.workloads[i], o.block, s.pids); err != nil {
				return nil, fmt.Errorf("%s: %w", s.workloads[i].name, err)
			}
		}
	}
	for i := range s.workloads {
		if w := &s.workloads[i]; s.count != nil {
			if err := w.count(ctx, s, o.senders); err != nil {
				return nil, fmt.Errorf("%s: %w", w.name, err)
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
	b, err := s.push(ctx, &w.workload, long, 1)
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
	w.add(sent/b.elapsed.Seconds(), used, b.elapsed)
	w.ownMicros, w.waits = append(w.ownMicros, float64(b.cpu.Microseconds())/sent), append(w.waits, b.waits...)
	return nil
}

// perSender is how many pushes of each sender are counted.
const perSender = 20

// count measures how many commands or statements a push costs.
func (w *hits) count(ctx context.Context, s *subject, senders int) (err error) {
	service, end, err := serve(s.counted, senders)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	// Create the counters, let nodes join, and open connections.
	if err := service.fill(ctx); s.counted != s.store && err != nil {
		return err
	}
	var calls, scripts float64
	for _, pushes := range []int{2, perSender} {
		before, scriptsBefore := calls, scripts
		if _, err := service.push(ctx, &w.workload, 0, pushes); err != nil {
			return err
		}
		if calls, scripts, err = s.count(ctx); err != nil {
			return err
		}
		w.calls, w.scripts = (calls-before)/float64(pushes*senders), (scripts-scriptsBefore)/float64(pushes*senders)
	}
	return nil
}
