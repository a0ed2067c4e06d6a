package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"weir/internal/must"
	"weir/internal/store"
	"weir/internal/store/postgres"
	"weir/internal/store/postgres/postgrestest"
	"weir/internal/store/storetest"
	"weir/internal/wire"
	"weir/window"
)

func TestMain(m *testing.M) { os.Exit(postgrestest.Main(m)) }

func open(t testing.TB, url string, now func() time.Time) *postgres.Store {
	t.Helper()
	counters := must.Get(postgres.Open(url, postgres.Options{Now: now}))(t)
	t.Cleanup(func() { must.Report(t, counters.Close()) })
	return counters
}

func openFresh(t testing.TB, now func() time.Time) store.Store {
	return open(t, postgrestest.Database(t), now)
}

func TestStore(t *testing.T) { storetest.Run(t, openFresh) }

func BenchmarkStore(b *testing.B) {
	storetest.Bench(b, func(t testing.TB, now func() time.Time) store.Store {
		b.StopTimer()
		defer b.StartTimer()
		return openFresh(t, now)
	})
}

// connect returns a connection besides the store's.
func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	c := must.Get(pgx.Connect(t.Context(), url))(t)
	t.Cleanup(func() { must.Report(t, c.Close(context.WithoutCancel(t.Context()))) })
	return c
}

func exec(t *testing.T, c *pgx.Conn, statements ...string) {
	t.Helper()
	for _, sql := range statements {
		_, err := c.Exec(t.Context(), sql)
		must.OKf(t, err, "%s", sql)
	}
}

func number(t *testing.T, c *pgx.Conn, sql string) (n int64) {
	t.Helper()
	must.OKf(t, c.QueryRow(t.Context(), sql).Scan(&n), "%s", sql)
	return n
}

var (
	epoch, atEpoch   = storetest.Epoch, storetest.AtEpoch
	counter, pushOne = storetest.Counter, storetest.PushOne
	wantTotal        = storetest.WantTotal
)

// TestManyStores lets several stores take and push at once, each push twice, some of them to new
// counters, in any order. The grants equal the limit, and every hit counts once.
func TestManyStores(t *testing.T) {
	url := postgrestest.Database(t)
	const limit, pushes = 1000, 80
	shared := wire.Room{LimitCounter: counter(window.FixedWindow, 1, 24*time.Hour), Limit: limit, Cost: 1}
	var granted, applied atomic.Int64
	var senders sync.WaitGroup
	var stores []*postgres.Store
	for sender := range uint64(9) {
		counters := open(t, url, atEpoch)
		stores = append(stores, counters)
		for range 2 {
			senders.Go(func() {
				for sequence := uint64(1); sequence <= pushes; sequence++ {
					p := &wire.Push{Namespace: "ns", Sender: sender, Sequence: sequence, Floor: 1,
						Takes: []wire.Take{{Least: 1, Most: 2, Rooms: []wire.Room{shared}}, {Least: 1, Most: 1, Rooms: []wire.Room{shared}}}}
					for id := range byte(5) {
						c := counter(window.FixedWindow, 10+id, time.Duration(sequence)*24*time.Hour)
						p.Items = append(p.Items, wire.Item{LimitCounter: c, Newest: uint64(epoch.UnixMilli()) / c.WidthMillis, Hits: []int64{1}})
					}
					if sender%2 == 0 {
						slices.Reverse(p.Items)
					}
					out, err := counters.Push(t.Context(), p, 1)
					for errors.Is(err, context.DeadlineExceeded) { // locked for longer than a push waits, on a busy machine
						out, err = counters.Push(t.Context(), p, 1)
					}
					if err != nil {
						t.Error(err)
						return
					}
					if !out.Duplicate {
						granted.Add(int64(out.Answer.Grants[0].Units + out.Answer.Grants[1].Units))
						applied.Add(out.Applied)
					}
				}
			})
		}
	}
	senders.Wait()
	must.Equal(t, granted.Load(), limit, "granted")
	must.Equal(t, applied.Load(), limit+9*pushes*5, "applied")
	sums := make(map[wire.ID]int64)
	for _, c := range contents(t, stores[0]) {
		sums[c.ID] += c.Windows[0].Hits
	}
	for id := range byte(5) {
		must.Equal(t, sums[wire.ID{10 + id}], 9*pushes, "hits of counter %d", id)
	}
	must.Equal(t, sums[wire.ID{1}], limit, "hits of the limit")
	// Sessions report their statistics at the latest when they end.
	for _, counters := range stores {
		must.Report(t, counters.Close())
	}
	raw := connect(t, url)
	for number(t, raw, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'weir'") > 0 {
		if t.Context().Err() != nil {
			t.Fatal("sessions do not end")
		}
	}
	must.Equal(t, number(t, raw, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"), 0, "deadlocks")
}

func TestGrantsOfASenderAreBounded(t *testing.T) {
	url := postgrestest.Database(t)
	s, raw := open(t, url, atEpoch), connect(t, url)
	const pushes, most = 20, 16
	storetest.GrantsAreBounded(t, s, pushes, pushes-most+2, func(sequence uint64) {
		if n := number(t, raw, "SELECT cardinality(grant_units) FROM weir.senders"); n > most*wire.MaxItems {
			t.Fatalf("after sequence %d the sender has %d grants", sequence, n)
		}
	})
}

func TestRestart(t *testing.T) {
	server := postgrestest.Start(t)
	storetest.Restart(t, open(t, server.URL(), nil), func() { server.Stop(t) }, func() { server.Restart(t) })
}

// name leads connections to an address that may change, as a name does, and counts them.
type name struct {
	at   net.Listener
	to   atomic.Pointer[string]
	made atomic.Int64
}

func (n *name) lead() {
	pass := func(to, from net.Conn) {
		_, _ = io.Copy(to, from)
		to.Close()
		from.Close()
	}
	for {
		c, err := n.at.Accept()
		if err != nil {
			return
		}
		n.made.Add(1)
		server, err := net.Dial("tcp", *n.to.Load())
		if err != nil {
			c.Close()
			continue
		}
		go pass(server, c)
		go pass(c, server)
	}
}

// TestFailover makes the server a standby, and later leads its name to another server. A standby costs
// one connection a second, and any write that it refuses finds the other.
func TestFailover(t *testing.T) {
	first, second := postgrestest.Start(t), postgrestest.Start(t)
	n := &name{at: must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)}
	t.Cleanup(func() { must.Report(t, n.at.Close()) })
	go n.lead()
	u := must.Get(url.Parse(first.URL()))(t)
	u.Host = n.at.Addr().String()
	var s *postgres.Store
	now, sequence := epoch, uint64(0)
	pushes := func() error {
		sequence++
		_, err := s.Push(t.Context(), hit("ns", 1, sequence), 1)
		return err
	}
	joins := func() error {
		_, err := store.Join(t.Context(), s, "ns", 1)
		return err
	}
	for code, write := range map[string]func() error{"0A000": pushes, "25006": joins} {
		n.to.Store(&first.Addr)
		s = open(t, u.String(), func() time.Time { return now })
		must.OK(t, pushes())
		must.OK(t, joins())
		first.Standby(t)
		refused := func() {
			t.Helper()
			var why *pgconn.PgError
			if err := write(); !errors.As(err, &why) || why.Code != code {
				t.Errorf("a write on a standby: %v, want %s", err, code)
			}
		}
		refused()
		made := n.made.Load()
		for range 5 {
			refused()
		}
		must.Equal(t, n.made.Load()-made, 1, "connections within a second")
		n.to.Store(&second.Addr)
		now = now.Add(time.Second)
		refused()
		must.Report(t, write())
		first.Promote(t)
	}
}

// TestRestartUnderWay stops the server while senders push. Each sends a failed push again until it
// is answered.
func TestRestartUnderWay(t *testing.T) {
	server := postgrestest.Start(t)
	const pushes = 100
	c, now := counter(window.SlidingWindow, 1, 24*time.Hour), time.Now()
	var senders sync.WaitGroup
	reached := make(chan struct{}, 4*pushes)
	for sender := range uint64(4) {
		counters := open(t, server.URL(), nil)
		senders.Go(func() {
			for sequence := uint64(1); sequence <= pushes; sequence++ {
				p := &wire.Push{Namespace: "ns", Sender: sender, Sequence: sequence, Floor: sequence,
					Items: []wire.Item{{LimitCounter: c, Newest: uint64(now.UnixMilli()) / c.WidthMillis, Hits: []int64{1}}}}
				for t.Context().Err() == nil {
					if _, err := counters.Push(t.Context(), p, 1); err == nil {
						break
					}
				}
				reached <- struct{}{}
			}
		})
	}
	for range 2 {
		for range pushes {
			<-reached
		}
		server.Restart(t)
	}
	senders.Wait()
	wantTotal(t, open(t, server.URL(), nil), 1, now, c, 4*pushes+1)
}

func TestSchemaAtOnce(t *testing.T) {
	url := postgrestest.Database(t)
	var stores sync.WaitGroup
	for i := range uint64(8) {
		counters := open(t, url, atEpoch)
		stores.Go(func() {
			must.Is(t, counters.Ping(t.Context()), nil, "store %d", i)
		})
	}
	stores.Wait()
	must.Equal(t, number(t, connect(t, url), "SELECT sum(version) FROM weir.version"), 1, "sum of the versions")
}

func TestSchemaVanishes(t *testing.T) {
	url := postgrestest.Database(t)
	counters, c := open(t, url, atEpoch), counter(window.FixedWindow, 1, time.Hour)
	raw := connect(t, url)
	join := func(context.Context) error { _, err := store.Join(t.Context(), counters, "ns", 1); return err }
	for name, call := range map[string]func(context.Context) error{
		"ping": counters.Ping,
		"join": join,
		"push": func(ctx context.Context) error { _, err := pushOne(ctx, counters, 1, epoch, c); return err },
		"counters": func(ctx context.Context) error {
			return counters.Counters(ctx, "ns", nil, func(store.LimitCounter) error { return nil })
		},
	} {
		// Twice, so that the second time the server has the prepared statements.
		for range 2 {
			must.Reportf(t, call(t.Context()), "%s", name)
			exec(t, raw, "DROP SCHEMA weir CASCADE")
		}
		must.Is(t, join(t.Context()), nil, "join")
		exec(t, raw, "DROP TABLE weir.counters, weir.senders, weir.nodes")
		must.Reportf(t, call(t.Context()), "%s without tables", name)
	}
}

func TestSchemaOfAnotherVersion(t *testing.T) {
	url := postgrestest.Database(t)
	exec(t, connect(t, url), "CREATE SCHEMA weir", "CREATE TABLE weir.version (version integer)", "INSERT INTO weir.version VALUES (2)")
	counters := open(t, url, atEpoch)
	want := "the schema weir has version 2, this program needs 1"
	must.Contains(t, fmt.Sprint(counters.Ping(t.Context())), want, "ping")
	_, err := pushOne(t.Context(), counters, 1, epoch, counter(window.FixedWindow, 1, time.Hour))
	must.Contains(t, fmt.Sprint(err), want, "push")
}

// TestOwnedSchema uses a user who may only create tables in the schema.
func TestOwnedSchema(t *testing.T) {
	server := postgrestest.Start(t)
	raw := connect(t, server.URL())
	exec(t, raw, "CREATE USER app PASSWORD 'hunter2'")
	u := must.Get(url.Parse(server.URL()))(t)
	u.User = url.UserPassword("app", "hunter2")
	must.Contains(t, fmt.Sprint(open(t, u.String(), nil).Ping(t.Context())), "permission denied", "a user without rights")
	exec(t, raw, "CREATE SCHEMA weir AUTHORIZATION app")
	wantTotal(t, open(t, u.String(), atEpoch), 1, epoch, counter(window.FixedWindow, 1, time.Hour), 1)
	u.User = url.UserPassword("app", "hunter3")
	if err := open(t, u.String(), nil).Ping(t.Context()); err == nil || strings.Contains(err.Error(), "hunter3") {
		t.Errorf("error %v, want one without the password", err)
	}
}

func TestBadURL(t *testing.T) {
	for _, url := range []string{
		"postgres://u:hunter2/x@host:5432/db", "postgres://host:hunter2/db", "postgres://:%zzhunter2@host",
		"http://hunter2@host", "postgres://host/db?sslmode=hunter2", "postgres://host?pool_max_conns=hunter2", "hunter2",
		"host=localhost password=hunter2", "postgres://host?sslmode=verify-full&sslrootcert=/hunter2",
	} {
		if _, err := postgres.Open(url, postgres.Options{}); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: error %v, want one that does not repeat it", url, err)
		}
	}
}

// TestURL checks the effect of parameters of the pool, of libpq and of the server.
func TestURL(t *testing.T) {
	address := postgrestest.Database(t)
	plain := open(t, strings.Replace(address, "sslmode=disable", "sslmode=require", 1), nil)
	must.Equal(t, plain.Ping(t.Context()) != nil, true, "a server without TLS fails")
	postgresql := strings.Replace(address, "postgres://", "postgresql://", 1)
	for _, mode := range []string{"cache_statement", "cache_describe", "describe_exec", "exec", "simple_protocol"} {
		t.Run(mode, func(t *testing.T) {
			counters := open(t, fmt.Sprintf("%s&pool_max_conns=1&synchronous_commit=off&application_name=%s&default_query_exec_mode=%s", postgresql, mode, mode), atEpoch)
			raw := connect(t, address)
			log := wire.LimitCounter{ID: wire.ID{1}, Kind: uint8(window.SlidingBuckets), WidthMillis: 60_000, Precision: 1}
			room := wire.Room{LimitCounter: counter(window.FixedWindow, 2, time.Minute), Limit: 3, Cost: 2}
			p := &wire.Push{Namespace: mode, Sender: 1, Sequence: 1, Floor: 1, Takes: []wire.Take{{Least: 1, Most: 2, Rooms: []wire.Room{room}}},
				Items: []wire.Item{{LimitCounter: log, Limit: 5, Newest: uint64(epoch.UnixNano()), Hits: []int64{2, 1}, Ages: []uint64{0, 5}}}}
			for i := range 2 {
				out, err := counters.Push(t.Context(), p, 1)
				if err != nil || out.Answer.Grants[0].Units != 1 || !slices.Equal(out.Answer.Totals[0].Hits, []uint64{2, 1}) || out.Duplicate != (i == 1) {
					t.Fatalf("push %d: outcome %+v, error %v; want a unit and both hits", i, out, err)
				}
			}
			must.Equal(t, must.Get(store.Join(t.Context(), counters, mode, 1<<63))(t), 1, "one")
			visits := 0
			must.OK(t, counters.Counters(t.Context(), mode, &store.Wanted{Widths: []uint64{60_000}}, func(store.LimitCounter) error { visits++; return nil }))
			must.Equal(t, visits, 2, "counters")
			must.Equal(t, number(t, raw, "SELECT count(*) FROM pg_stat_activity WHERE application_name = '"+mode+"'"), 1, "connections")
		})
	}
}

func TestPostgresClock(t *testing.T) {
	url := postgrestest.Database(t)
	counters, raw := open(t, url, nil), connect(t, url)
	storetest.ServersClock(t, counters, func() (now time.Time) {
		must.OK(t, raw.QueryRow(t.Context(), "SELECT clock_timestamp()").Scan(&now))
		return now
	})
	for _, node := range []uint64{1, 2, 2, 1<<64 - 1} {
		must.Get(store.Join(t.Context(), counters, "ns", node))(t)
	}
	must.Equal(t, must.Get(store.Join(t.Context(), counters, "ns", 1))(t), 3, "nodes")
}

// TestTimeAfterLocks lets a push wait for another that has locked its counter. The time of its
// answer is after the end of the other, so a counter's time does not go back.
func TestTimeAfterLocks(t *testing.T) {
	url := postgrestest.Database(t)
	counters, raw := open(t, url, nil), connect(t, url)
	c := counter(window.FirstHitWindow, 1, time.Hour)
	wantTotal(t, counters, 1, time.Now(), c, 1)
	exec(t, raw, "BEGIN", "SELECT FROM weir.counters FOR UPDATE")
	done := make(chan uint64)
	go func() {
		out, err := pushOne(t.Context(), counters, 2, time.Now(), c)
		must.Report(t, err)
		done <- out.Answer.NowNanos
	}()
	watch := connect(t, url)
	for number(t, watch, "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'weir' AND wait_event_type = 'Lock'") == 0 {
		if t.Context().Err() != nil {
			t.Fatal("the push does not wait for the lock")
		}
	}
	var released time.Time
	must.OK(t, raw.QueryRow(t.Context(), "SELECT clock_timestamp()").Scan(&released))
	exec(t, raw, "COMMIT")
	must.AtLeast(t, <-done, uint64(released.UnixNano()), "answered before the lock was released, at")
}

// TestDeadlock lets the server abort a push twice, as it does if another program locks in another
// order.
func TestDeadlock(t *testing.T) {
	for _, code := range []string{"deadlock_detected", "serialization_failure"} {
		t.Run(code, func(t *testing.T) {
			url := postgrestest.Database(t)
			counters, raw := open(t, url, atEpoch), connect(t, url)
			c := counter(window.FixedWindow, 1, time.Hour)
			wantTotal(t, counters, 1, epoch, c, 1)
			exec(t, raw, "CREATE SEQUENCE times",
				"CREATE FUNCTION give_up() RETURNS trigger AS $$ BEGIN IF nextval('times') <= 2 THEN RAISE "+code+"; END IF; RETURN NULL; END $$ LANGUAGE plpgsql",
				"CREATE TRIGGER give_up AFTER UPDATE ON weir.counters FOR EACH ROW EXECUTE FUNCTION give_up()")
			wantTotal(t, counters, 2, epoch, c, 2)
			must.Equal(t, number(t, raw, "SELECT last_value FROM times"), 3, "times tried")
			exec(t, raw, "ALTER SEQUENCE times INCREMENT -1 MINVALUE -9")
			_, err := pushOne(t.Context(), counters, 3, epoch, c)
			must.Contains(t, fmt.Sprint(err), code, "it ends")
		})
	}
}
