// Package postgres is a [store.Store] in PostgreSQL 14 or later. Any number of backends may share a
// database. They agree on the time: it is PostgreSQL's.
//
// The tables are in a schema of their own, weir. The first use creates it, and so does any use that
// finds it gone. A user that may not create schemas has to own this schema, by CREATE SCHEMA weir
// AUTHORIZATION …:
//
//	weir.counters  a row for each counter: numbers of windows, newest first, and the hits of each in the array beside it;
//	               of a token bucket also refill, the tokens that come back in a window
//	weir.senders   a row for each sender: its floor, the sequences applied from there on, and what their takes were granted
//	weir.nodes     a row for each node of a namespace: when it joined last
//	weir.overrides a row for each namespace that has had overrides: their list, and its version
//	weir.told      a row for each node: what it has told of that list
//	weir.reports   a row for each sender: what it has seen of its keys
//	weir.used      a row for each label and day: how much it has used; weir.used_days says how many labels a day has
//	weir.accountants  a row for each sender: the last sequence that it has told of what keys have used
//	weir.version   one row: 1
//
// Senders and nodes are unsigned; the tables have the signed number of the same 64 bits.
//
// A push is one transaction of two round trips. A read takes a single one. The transaction locks
// the sender's row, then the counters' rows in one order for all, and only then asks for the time.
// READ COMMITTED is enough for that: what is read after its lock was taken stays as it is until the
// transaction ends, and a push depends on nothing else. If a connection breaks, the push is sent
// again, as it can't be applied twice.
//
// A namespace has half of the pool's connections at most. A statement that waits for a lock gives up
// before the caller does, and its connection is used again. A pool does not grow while the server has
// few connections left.
//
// Hits are as durable as PostgreSQL's transactions are. synchronous_commit=off in the URL spares
// each push its wait for the disk, at the risk of the last hits if the server's machine fails.
// Pushes remove rows that have expired: each push two for each row that it adds, or 64 once a
// second. PostgreSQL's autovacuum does the rest. A row that the store has not written does no harm:
// it counts as nothing, and the next push that writes it begins it anew.
package postgres

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"weir/internal/store"
)

// Options configure a store. The zero value is ready to use.
type Options struct {
	// Now is the clock that the store goes by in place of PostgreSQL's if it is not nil. It is for
	// tests.
	Now func() time.Time
}

// Store is a [store.Store]. [Open] makes one. It is safe for concurrent use.
type Store struct {
	pool   *pgxpool.Pool
	places *places
	now    func() time.Time
	// checked says that this version knows the schema.
	checked atomic.Bool
	// Times in nanoseconds, of the store's clock, when rows that have expired were last looked for.
	swept, sweptNodes, sweptUsed atomic.Uint64
	trial                        *store.Trial
}

var _ store.Store = (*Store)(nil)

// Open returns a store in the database at a URL such as
// postgres://user:password@host:5432/database?sslmode=verify-full. It does not connect yet. The
// URL's query may have pgx's parameters: those of libpq, pool_max_conns and similar,
// default_query_exec_mode for poolers without prepared statements, and settings of the server.
// Errors do not repeat the URL, which may hold a password.
func Open(url string, o Options) (*Store, error) {
	scheme, _, _ := strings.Cut(url, "://")
	config, err := pgxpool.ParseConfig(url)
	if scheme != "postgres" && scheme != "postgresql" || err != nil {
		return nil, errors.New("postgres url: want postgres://[user[:password]@]host[:port][/database][?parameters], " +
			"with special characters of the password escaped as in %2F, and parameters, and files that they name, as libpq has them")
	}
	if _, named := config.ConnConfig.RuntimeParams["application_name"]; !named {
		config.ConnConfig.RuntimeParams["application_name"] = "weir"
	}
	// The default of pgx depends on the machine.
	if !strings.Contains(url, "pool_max_conns=") {
		config.MaxConns = defaultConnections
	}
	s := &Store{places: newPlaces(int(config.MaxConns)), now: o.Now, trial: store.NewTrial()}
	config.AfterConnect = s.leaveRoom
	if s.pool, err = pgxpool.NewWithConfig(context.Background(), config); err != nil {
		return nil, errors.New("postgres url: its parameters make no pool of connections")
	}
	return s, nil
}

// defaultConnections is how many connections a store has at most, if its URL has no pool_max_conns.
const defaultConnections = 8

// errCrowded is the error of a connection that would leave too little room for those of others.
var errCrowded = errors.New("the server has few connections left")

// leaveRoom looks at a new connection. A pool's first connection is always welcome. Later
// connections are refused if the server has less than a tenth of its connections left, or less than
// three: a backend that starts now, or again, must find a connection.
func (s *Store) leaveRoom(ctx context.Context, c *pgx.Conn) error {
	if s.pool.Stat().TotalConns() <= 1 {
		return nil
	}
	var crowded bool
	err := c.QueryRow(ctx, connectionsLeft).Scan(&crowded)
	if err == nil && crowded {
		err = errCrowded
	}
	return err
}

const connectionsLeft = `
SELECT most - used < greatest(3, most / 10)
FROM (SELECT current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
    - coalesce(current_setting('reserved_connections', true)::int, 0) AS most) AS _,
  (SELECT sum(numbackends) AS used FROM pg_stat_database) AS _used`

// Close closes all connections, and waits for those in use.
func (s *Store) Close() error {
	s.pool.Close()
	return nil
}

// Ping implements [store.Store]. It also checks the schema.
func (s *Store) Ping(ctx context.Context) error {
	trial := s.trial.Next()
	err := s.try(ctx, trial.Namespace, func(inUse context.Context, c *pgx.Conn) error { return s.check(inUse, c) })
	if err != nil {
		return fmt.Errorf("postgres: %w", err)
	}
	_, err = s.Push(ctx, trial, 1)
	return err
}

// attempts bounds how often one call is tried.
const attempts = 5

// try gives run a connection to a database that has the schema, and a context for its use. It does so
// again after an error that another attempt can mend. An attempt that has failed has changed nothing,
// unless the connection broke.
func (s *Store) try(ctx context.Context, namespace string, run func(context.Context, *pgx.Conn) error) error {
	missing := false
	for attempt := 1; ; attempt++ {
		again, err := s.attempt(ctx, namespace, missing, run)
		missing = hasCode(err, "42P01", "3F000")                   // undefined_table, invalid_schema_name
		again = again || missing || hasCode(err, "40001", "40P01") // serialization_failure, deadlock_detected
		if !again || attempt == attempts || ctx.Err() != nil {
			return err
		}
	}
}

// attempt reports whether a connection that it had broke, or there was no room for one beside others.
func (s *Store) attempt(ctx context.Context, namespace string, missing bool, run func(context.Context, *pgx.Conn) error) (again bool, err error) {
	if err := s.places.take(ctx, namespace); err != nil {
		return false, err
	}
	defer s.places.give(namespace)
	pooled, err := s.pool.Acquire(ctx)
	if err != nil {
		if errors.Is(err, errCrowded) || hasCode(err, "53300") { // too_many_connections
			// Those that are being made may be refused, too.
			stat := s.pool.Stat()
			s.places.crowded(int(stat.AcquiredConns() + stat.IdleConns()))
			return true, err
		}
		return false, err
	}
	// A connection whose transaction has not ended does not return to the pool, but is closed.
	defer pooled.Release()
	c := pooled.Conn()
	inUse, cancel := outlasting(ctx)
	defer cancel()
	if missing {
		err = c.PgConn().Exec(inUse, schema).Close()
	}
	if err == nil && !s.checked.Load() {
		err = s.check(inUse, c)
	}
	if err == nil {
		err = run(inUse, c)
	}
	if hasCode(err, "55P03") { // lock_not_available
		err = fmt.Errorf("%w: %w", context.DeadlineExceeded, err)
	}
	switch {
	case err == nil:
	case !c.IsClosed():
		if c.PgConn().TxStatus() != idle {
			err = errors.Join(err, c.PgConn().Exec(inUse, "ROLLBACK").Close())
		}
	case inUse.Err() == nil:
		// Others that wait in the pool are likely to be as dead: the server was stopped.
		s.pool.Reset()
		return true, err
	}
	return false, err
}

// idle is the status of a connection without a transaction.
const idle = 'I'

// outlasting is a context for the use of a connection. pgx closes a connection when the context ends,
// and a new one costs the server a process. So this one goes on for a little longer than the caller's:
// by then what waits for a lock has given up.
func outlasting(ctx context.Context) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(lastsLonger, cancel) })
	return longer, func() {
		stop()
		cancel()
	}
}

const (
	lastsLonger = time.Second
	// longestLock bounds how long a statement waits for a lock, of callers who wait for ever, too.
	longestLock = 2 * time.Second
)

// lockTimeout is how long statements wait for a lock, as PostgreSQL takes it: half of the time that the
// caller waits, who then still hears of it.
func lockTimeout(ctx context.Context) string {
	wait := longestLock
	if until, bounded := ctx.Deadline(); bounded {
		wait = min(wait, time.Until(until)/2)
	}
	return strconv.FormatInt(max(1, wait.Milliseconds()), 10) + "ms"
}

// hasCode reports whether the server has reported an error of one of these codes.
func hasCode(err error, codes ...string) bool {
	var reported *pgconn.PgError
	return errors.As(err, &reported) && slices.Contains(codes, reported.Code)
}

//go:embed schema.sql
var schema string

// Format is the version of the schema that this package reads and writes.
const Format = 1

// check wants a schema of this package's.
func (s *Store) check(ctx context.Context, c *pgx.Conn) error {
	var found int
	err := c.QueryRow(ctx, "SELECT version FROM weir.version").Scan(&found)
	if errors.Is(err, pgx.ErrNoRows) {
		// As if it was not there.
		return &pgconn.PgError{Severity: "ERROR", Code: "42P01", Message: "weir.version is empty"}
	}
	if err != nil {
		return err
	}
	if found != Format {
		return fmt.Errorf("the schema weir has version %d, this program needs %d", found, Format)
	}
	s.checked.Store(true)
	return nil
}

// Join implements [store.Store].
func (s *Store) Join(ctx context.Context, namespace string, node uint64) (nodes uint64, err error) {
	err = s.try(ctx, namespace, func(inUse context.Context, c *pgx.Conn) error {
		var batch pgx.Batch
		given, now := s.given(), time.Now()
		if given != nil {
			now = *given
		}
		batch.Queue(limitLocks, lockTimeout(ctx))
		batch.Queue(joinNode, namespace, int64(node), given, store.NodeLife, store.Newcomer, store.MaxNodes)
		batch.Queue(countNodes, namespace, given, store.NodeLife).QueryRow(func(row pgx.Row) error { return row.Scan(&nodes) })
		if due(&s.sweptNodes, uint64(now.UnixNano())) {
			batch.Queue(sweepNodes, given, store.NodeLife, store.MaxNodes)
		}
		return c.SendBatch(inUse, &batch).Close()
	})
	if err != nil {
		return 0, fmt.Errorf("postgres: join: %w", err)
	}
	return nodes, nil
}

// Nodes implements [store.Store].
func (s *Store) Nodes(ctx context.Context, namespace string, node uint64) (nodes uint64, err error) {
	err = s.try(ctx, namespace, func(inUse context.Context, c *pgx.Conn) error {
		return c.QueryRow(inUse, countNodesWith, namespace, s.given(), store.NodeLife, int64(node)).Scan(&nodes)
	})
	if err != nil {
		return 0, fmt.Errorf("postgres: nodes: %w", err)
	}
	return nodes, nil
}

// given is the time that takes the place of PostgreSQL's, or nil.
func (s *Store) given() *time.Time {
	if s.now == nil {
		return nil
	}
	now := s.now()
	return &now
}

const (
	// A node that is new, or was forgotten, is noted as if it had joined longer ago, so that it is
	// forgotten sooner.
	joinNode = `
INSERT INTO weir.nodes AS n (namespace, node, joined_at)
SELECT $1, $2, coalesce($3, clock_timestamp()) - $4::interval + $5::interval
WHERE EXISTS (SELECT FROM weir.nodes WHERE namespace = $1 AND node = $2)
  OR (SELECT count(*) FROM weir.nodes WHERE namespace = $1) < $6
ON CONFLICT (namespace, node) DO UPDATE SET joined_at = CASE
  WHEN n.joined_at > excluded.joined_at - $5::interval AND n.joined_at < excluded.joined_at - $5::interval + 2 * $4::interval
  THEN excluded.joined_at + $4::interval - $5::interval ELSE excluded.joined_at END`

	activeNodes = `
FROM weir.nodes
WHERE namespace = $1
  AND joined_at > coalesce($2, clock_timestamp()) - $3::interval AND joined_at < coalesce($2, clock_timestamp()) + $3::interval`
	countNodes     = `SELECT count(*)` + activeNodes
	countNodesWith = `SELECT count(*) + CASE WHEN bool_or(node = $4) THEN 0 ELSE 1 END` + activeNodes

	sweepNodes = `
DELETE FROM weir.nodes WHERE ctid = ANY (ARRAY(
  SELECT ctid FROM weir.nodes WHERE joined_at <= coalesce($1, clock_timestamp()) - $2::interval LIMIT $3 FOR UPDATE SKIP LOCKED))`
)
