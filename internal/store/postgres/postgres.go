// Package postgres is a [store.Store] in PostgreSQL 14 or later. Any number of backends may share a
// database. They all go by PostgreSQL's clock.
//
// The tables are in a schema named weir. The first call creates it, and so does any call that finds
// it gone. If the user may not create schemas, an administrator must create it: CREATE SCHEMA weir
// AUTHORIZATION …. The tables are:
//
//	weir.counters     a row per counter: numbers of windows, newest first, and an array of their hits;
//	                  refill is the number of tokens that return to a token bucket in a window
//	weir.senders      a row per sender: its floor, the applied sequences from there on, and the grants
//	                  of their takes
//	weir.nodes        a row per node of a namespace: when it joined last
//	weir.overrides    a row per namespace that has had overrides: their list and its version
//	weir.told         a row per node: by which list it decides
//	weir.reports      a row per sender: its last report on its keys
//	weir.changes      a row per change that people have made: its record
//	weir.used         a row per label and day: how many hits the label has used
//	weir.accountants  a row per sender: the last sequence of its messages on used hits
//	weir.version      one row: 1
//
// Senders and nodes are unsigned numbers. The tables hold the signed numbers with the same 64 bits.
//
// A push is one transaction of two round trips, and a read needs a single round trip. The
// transaction locks the sender's row, then the counters' rows in an order that all backends use,
// and only then reads the clock. READ COMMITTED is enough: a row read after its lock was taken
// can't change before the transaction ends, and a push depends on no other rows. If a connection
// breaks, the push is sent again, because it can't be applied twice.
//
// A namespace uses at most half of the pool's connections. A statement that waits for a lock gives
// up before its caller does, so its connection can be used again. A pool does not grow while the
// server has few connections left.
//
// Hits are as durable as PostgreSQL's transactions. With synchronous_commit=off in the URL, a push
// does not wait for the disk, and the last hits may be lost if the server's machine fails. Pushes
// remove expired rows: two for each row that a push adds, or 64 once a second. PostgreSQL's
// autovacuum frees their space. A row that the store can't have written is harmless: it counts as
// empty, and the next push to it replaces it.
package postgres

import (
	"cmp"
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
	// checked means that the schema's version was compared with Format.
	checked atomic.Bool
	// The store's times, in nanoseconds, of the last removals of expired rows.
	swept, sweptUsed atomic.Uint64
	sweptNotes       [store.Topics]atomic.Uint64
	// left is when the pool last left a standby, in nanoseconds.
	left  atomic.Uint64
	trial *store.Trial
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
			"with special characters in the password escaped as in %2F, and with libpq's parameters, whose files must exist")
	}
	if _, named := config.ConnConfig.RuntimeParams["application_name"]; !named {
		config.ConnConfig.RuntimeParams["application_name"] = "weir"
	}
	// The default of pgx depends on the machine.
	if !strings.Contains(url, "pool_max_conns=") {
		config.MaxConns = defaultConnections
	}
	// A connection that is being made keeps its place in the pool, even if nobody waits for it any more. The pool's
	// default is two minutes.
	if config.ConnConfig.ConnectTimeout == 0 {
		config.ConnConfig.ConnectTimeout = connectTimeout
	}
	s := &Store{places: newPlaces(int(config.MaxConns)), now: o.Now, trial: store.NewTrial()}
	config.AfterConnect = s.leaveRoom
	if s.pool, err = pgxpool.NewWithConfig(context.Background(), config); err != nil {
		return nil, errors.New("postgres url: its parameters are not valid for a pool of connections")
	}
	return s, nil
}

// defaultConnections bounds a store's connections if its URL has no pool_max_conns.
const defaultConnections = 8

// connectTimeout bounds the making of a connection if its URL has no connect_timeout.
const connectTimeout = 5 * time.Second

// errCrowded refuses a new connection that would leave too few for other backends.
var errCrowded = errors.New("the server has few connections left")

// leaveRoom is called for each new connection. It always accepts a pool's first connection. It
// refuses others if the server has less than a tenth of its connections left, or fewer than three:
// a backend that starts must find a connection.
func (s *Store) leaveRoom(ctx context.Context, c *pgx.Conn) error {
	if s.pool.Stat().TotalConns() <= 1 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, longestLock) // the pool's has no end
	defer cancel()
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
	if err := s.try(ctx, "ping", trial.Namespace, s.check); err != nil {
		return err
	}
	_, err := s.Push(ctx, trial, 1)
	return err
}

// attempts bounds the attempts of a call.
const attempts = 5

// try calls run with a connection to a database that has the schema, and with a context for the
// connection's use. It tries again after errors that may not recur. A failed attempt has changed
// nothing, unless the connection broke. An error has the name of the store's call.
func (s *Store) try(ctx context.Context, call, namespace string, run func(context.Context, *pgx.Conn) error) error {
	missing := false
	for attempt := 1; ; attempt++ {
		again, err := s.attempt(ctx, namespace, missing, run)
		missing = hasCode(err, "42P01", "3F000")                   // undefined_table, invalid_schema_name
		again = again || missing || hasCode(err, "40001", "40P01") // serialization_failure, deadlock_detected
		switch {
		case err == nil:
			return nil
		case !again || attempt == attempts || ctx.Err() != nil:
			return fmt.Errorf("postgres: %s: %w", call, err)
		}
	}
}

// attempt is an attempt of try. It returns again if the connection broke, or if there were too few
// connections.
func (s *Store) attempt(ctx context.Context, namespace string, missing bool, run func(context.Context, *pgx.Conn) error) (again bool, err error) {
	if err := s.places.take(ctx, namespace); err != nil {
		return false, err
	}
	defer s.places.give(namespace)
	pooled, err := s.pool.Acquire(ctx)
	if err != nil {
		if errors.Is(err, errCrowded) || hasCode(err, "53300") { // too_many_connections
			// Connections that are just being made may be refused too.
			stat := s.pool.Stat()
			s.places.crowded(int(stat.AcquiredConns() + stat.IdleConns()))
			return true, err
		}
		return false, err
	}
	// The pool closes a connection whose transaction has not ended.
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
		// Who has given up meanwhile is answered with that, and not with the lock.
		err = fmt.Errorf("%w: %w", cmp.Or(ctx.Err(), context.DeadlineExceeded), err)
	}
	switch {
	case err == nil:
	case !c.IsClosed():
		if c.PgConn().TxStatus() != idle {
			err = errors.Join(err, c.PgConn().Exec(inUse, "ROLLBACK").Close())
		}
		// A standby refuses a transaction that may write (feature_not_supported), and any other write
		// (read_only_sql_transaction). After a failover the URL's name leads elsewhere, but only new
		// connections do.
		if hasCode(err, "0A000", "25006") && due(&s.left, s.nanos()) {
			s.pool.Reset()
		}
	case inUse.Err() == nil:
		// The server was probably stopped, so the pool's idle connections are dead too.
		s.pool.Reset()
		return true, err
	}
	return false, err
}

// nanos is this process's time, or that which replaces PostgreSQL's.
func (s *Store) nanos() uint64 {
	if s.now != nil {
		return uint64(s.now().UnixNano())
	}
	return uint64(time.Now().UnixNano())
}

// idle is the status of a connection outside of a transaction.
const idle = 'I'

// outlasting returns a context that ends a little later than the caller's. pgx closes a connection
// when its context ends, and a new connection costs the server a process. By the later end,
// statements that wait for a lock have given up and the connection can be used again.
func outlasting(ctx context.Context) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(lastsLonger, cancel) })
	return longer, func() {
		stop()
		cancel()
	}
}

const (
	// longestLock bounds the wait for a lock even if the caller has no deadline.
	longestLock = 2 * time.Second
	lastsLonger = longestLock + time.Second
)

// lockTimeout returns the lock_timeout of a call's statements: half of the time until the caller's
// deadline, so the caller still gets the error.
func lockTimeout(ctx context.Context) string {
	wait := longestLock
	if until, bounded := ctx.Deadline(); bounded {
		wait = min(wait, time.Until(until)/2)
	}
	return strconv.FormatInt(max(1, wait.Milliseconds()), 10) + "ms"
}

// hasCode reports whether err is an error of the server with one of these codes.
func hasCode(err error, codes ...string) bool {
	var reported *pgconn.PgError
	return errors.As(err, &reported) && slices.Contains(codes, reported.Code)
}

//go:embed schema.sql
var schema string

// Format is the version of the schema that this package reads and writes.
const Format = 1

// check returns an error unless the schema has the version Format.
func (s *Store) check(ctx context.Context, c *pgx.Conn) error {
	var found int
	err := c.QueryRow(ctx, "SELECT version FROM weir.version").Scan(&found)
	if errors.Is(err, pgx.ErrNoRows) {
		// Handle it as a missing table, so that try runs the schema.
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
