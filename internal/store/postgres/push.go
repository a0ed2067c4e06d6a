package postgres

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"weir/internal/store"
	"weir/internal/wire"
	"weir/window"
)

// Push implements [store.Store].
func (s *Store) Push(ctx context.Context, p *wire.Push, nodes uint64) (store.Outcome, error) {
	if err := cmp.Or(store.Check(p), ctx.Err()); err != nil {
		return store.Outcome{}, err
	}
	var out store.Outcome
	err := s.try(ctx, "push", p.Namespace, func(inUse context.Context, c *pgx.Conn) (err error) {
		t := &transaction{store: s, conn: c, push: p, nodes: nodes, lockTimeout: lockTimeout(ctx)}
		out, err = t.run(inUse)
		return err
	})
	if err != nil {
		return store.Outcome{}, err
	}
	return out, nil
}

const (
	begin     = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
	beginRead = "BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY"
	commit    = "COMMIT"

	// settings apply to a transaction. PostgreSQL keeps plans for long, and a plan for a small
	// table must still suit the table when it has grown, so each plan must use an index. The
	// timeout of idle transactions frees the locks of a backend that was cut off before TCP
	// notices. The lock timeout frees connections that wait for a lock that others hold for long.
	settings = `SELECT set_config('enable_seqscan', 'off', true), set_config('idle_in_transaction_session_timeout', '10s', true),
  set_config('lock_timeout', $1, true)`
	limitLocks = `SELECT set_config('lock_timeout', $1, true)`

	// The condition is false, but PostgreSQL evaluates it after it has locked the row. So an
	// existing row is locked and not written, and a missing row is created, which locks it too. All
	// locks are taken in one pass, in the order of the arrays, and no row can be removed meanwhile.
	lockSender = `
INSERT INTO weir.senders (namespace, sender) VALUES ($1, $2)
ON CONFLICT (namespace, sender) DO UPDATE SET floor = excluded.floor WHERE false`
	lockCounters = `
INSERT INTO weir.counters (namespace, id, kind, ordinal, width_ms, precision_ns)
SELECT $1, k.* FROM unnest($2::uuid[], $3::smallint[], $4::smallint[], $5::bigint[], $6::bigint[]) k
ON CONFLICT (namespace, id, kind, ordinal, width_ms, precision_ns) DO UPDATE SET hits = excluded.hits WHERE false`

	readSender = `
SELECT floor, sequences, grant_sequences, grant_units, grant_nanos FROM weir.senders WHERE namespace = $1 AND sender = $2`
	// LIMIT keeps the planner from another kind of join.
	readCounters = `
SELECT k.place, c.*
FROM unnest($2::uuid[], $3::smallint[], $4::smallint[], $5::bigint[], $6::bigint[])
  WITH ORDINALITY k (id, kind, ordinal, width_ms, precision_ns, place),
  LATERAL (SELECT c.refill, c.numbers, c.hits FROM weir.counters c
    WHERE (c.namespace, c.id, c.kind, c.ordinal, c.width_ms, c.precision_ns)
      = ($1, k.id, k.kind, k.ordinal, k.width_ms, k.precision_ns) LIMIT 1) c`
	readTime = `SELECT clock_timestamp()`

	// Two arrays hold the windows of all counters, and each counter has a slice of them. $13 are
	// the kinds whose new expiry always replaces the old, even if it is earlier.
	writeCounters = `
INSERT INTO weir.counters AS c (namespace, id, kind, ordinal, width_ms, precision_ns, refill, numbers, hits, expires_at)
SELECT $1, k.id, k.kind, k.ordinal, k.width_ms, k.precision_ns, k.refill,
  ($10::bigint[])[k.first:k.last], ($11::bigint[])[k.first:k.last], k.expires_at
FROM unnest($2::uuid[], $3::smallint[], $4::smallint[], $5::bigint[], $6::bigint[],
    $7::bigint[], $8::integer[], $9::integer[], $12::timestamptz[])
  k (id, kind, ordinal, width_ms, precision_ns, refill, first, last, expires_at)
ON CONFLICT (namespace, id, kind, ordinal, width_ms, precision_ns) DO UPDATE
SET refill = excluded.refill, numbers = excluded.numbers, hits = excluded.hits,
  expires_at = CASE WHEN excluded.kind = ANY ($13::smallint[]) THEN excluded.expires_at ELSE greatest(c.expires_at, excluded.expires_at) END`
	writeSender = `
UPDATE weir.senders SET floor = $3, sequences = $4, grant_sequences = $5, grant_units = $6, grant_nanos = $7,
  expires_at = greatest(expires_at, $8)
WHERE namespace = $1 AND sender = $2`

	// A locked row is about to be renewed, so it is skipped. PostgreSQL checks the condition again
	// after it has locked a row, so a row that was renewed meanwhile stays.
	sweepCounters = `
DELETE FROM weir.counters WHERE ctid = ANY (ARRAY(
  SELECT ctid FROM weir.counters WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2 FOR UPDATE SKIP LOCKED))`
	sweepSenders = `
DELETE FROM weir.senders WHERE ctid = ANY (ARRAY(
  SELECT ctid FROM weir.senders WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2 FOR UPDATE SKIP LOCKED))`
)

// transaction is an attempt at a push.
type transaction struct {
	store *Store
	conn  *pgx.Conn
	push  *wire.Push
	nodes uint64
	// lockTimeout applies to each of the transaction's statements.
	lockTimeout string

	// counters are the push's counters in the order of their locks. The last are counters that are
	// only read, which need no lock.
	counters []*counter
	locked   int
	named    map[wire.LimitCounter]*counter
	sender   sender
	// How many rows the locks have created.
	newCounters, newSenders int64

	calendar store.Calendar
	out      store.Outcome
}

type counter struct {
	wire.LimitCounter
	contents   store.Contents
	changed    bool
	expires    uint64
	unreadable bool
}

func (t *transaction) run(ctx context.Context) (store.Outcome, error) {
	t.name()
	isRead := store.IsRead(t.push)
	if err := t.read(ctx, isRead); err != nil {
		return t.out, err
	}
	t.out.Answer.NowNanos, t.out.Answer.Nodes = t.calendar.NowNanos, t.nodes
	if !isRead {
		t.apply()
		if err := t.write(ctx); err != nil {
			return t.out, err
		}
	}
	t.out.Answer.Totals = make([]wire.Total, len(t.push.Items))
	for i := range t.push.Items {
		t.out.Answer.Totals[i] = t.Total(&t.push.Items[i])
	}
	return t.out, nil
}

// name collects the push's counters.
func (t *transaction) name() {
	written := make(map[wire.LimitCounter]bool)
	for _, item := range t.push.Items {
		hits := slices.ContainsFunc(item.Hits, func(h int64) bool { return h != 0 })
		written[item.LimitCounter] = written[item.LimitCounter] || hits
	}
	for i := range t.push.Takes {
		for j := range t.push.Takes[i].Rooms {
			written[t.push.Takes[i].Rooms[j].LimitCounter] = true
		}
	}
	t.named = make(map[wire.LimitCounter]*counter, len(written))
	t.counters = make([]*counter, 0, len(written))
	for c, w := range written {
		t.named[c] = &counter{LimitCounter: c}
		t.counters = append(t.counters, t.named[c])
		if w {
			t.locked++
		}
	}
	slices.SortFunc(t.counters, func(a, b *counter) int {
		if written[a.LimitCounter] != written[b.LimitCounter] {
			if written[a.LimitCounter] {
				return -1
			}
			return 1
		}
		return cmp.Or(bytes.Compare(a.ID[:], b.ID[:]), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Ordinal, b.Ordinal),
			cmp.Compare(a.WidthMillis, b.WidthMillis), cmp.Compare(a.Precision, b.Precision))
	})
}

// read reads the rows that the push needs, and locks them first unless the push is a read.
func (t *transaction) read(ctx context.Context, isRead bool) error {
	var batch pgx.Batch
	var row senderRow
	if isRead {
		batch.Queue(beginRead)
	} else {
		batch.Queue(begin)
	}
	batch.Queue(settings, t.lockTimeout)
	if !isRead {
		batch.Queue(lockSender, t.push.Namespace, int64(t.push.Sender)).Exec(counted(&t.newSenders))
		batch.Queue(readSender, t.push.Namespace, int64(t.push.Sender)).QueryRow(func(r pgx.Row) error {
			return r.Scan(&row.floor, &row.sequences, &row.grantSequences, &row.grantUnits, &row.grantNanos)
		})
		if t.locked > 0 {
			batch.Queue(lockCounters, keys(t.push.Namespace, t.counters[:t.locked])...).Exec(counted(&t.newCounters))
		}
	}
	if len(t.counters) > 0 {
		batch.Queue(readCounters, keys(t.push.Namespace, t.counters)...).Query(t.readRows)
	}
	batch.Queue(readTime).QueryRow(t.store.clock(&t.calendar))
	if isRead {
		batch.Queue(commit)
	}
	if err := t.conn.SendBatch(ctx, &batch).Close(); err != nil || isRead {
		return err
	}
	var ok bool
	if t.sender, ok = row.sender(); !ok {
		t.out.Repaired++
	}
	for _, c := range t.counters[:t.locked] {
		if c.unreadable {
			t.out.Repaired++
			c.changed, c.expires = true, t.calendar.NowNanos
		}
	}
	return nil
}

func counted(rows *int64) func(pgconn.CommandTag) error {
	return func(tag pgconn.CommandTag) error {
		*rows = tag.RowsAffected()
		return nil
	}
}

func (t *transaction) readRows(rows pgx.Rows) error {
	for rows.Next() {
		var place int64
		var row counterRow
		if err := rows.Scan(&place, &row.refill, &row.numbers, &row.hits); err != nil {
			return err
		}
		c := t.counters[place-1]
		contents, ok := row.contents(c.LimitCounter)
		c.contents, c.unreadable = contents, !ok
	}
	return rows.Err()
}

// clock sets a calendar to the time of a row of readTime, or to that which replaces it.
func (s *Store) clock(calendar *store.Calendar) func(pgx.Row) error {
	return func(row pgx.Row) error {
		var now time.Time
		err := row.Scan(&now)
		if s.now != nil {
			now = s.now()
		}
		calendar.NowNanos = uint64(now.UnixNano())
		return err
	}
}

// apply applies the push to the rows that were read.
func (t *transaction) apply() {
	if t.out.Duplicate = t.sender.note(t.push); t.out.Duplicate {
		// The grants of the first time; none if they are forgotten.
		grants := t.sender.granted(t.push.Sequence)
		for i := range t.push.Takes {
			g := grant{nanos: t.calendar.NowNanos}
			if i < len(grants) {
				g = grants[i]
			}
			t.out.Answer.Grants = append(t.out.Answer.Grants, t.calendar.Again(&t.push.Takes[i], g.units, g.nanos, t))
		}
		return
	}
	for i := range t.push.Items {
		t.Add(&t.push.Items[i])
	}
	for i := range t.push.Takes {
		g := t.calendar.Decide(&t.push.Takes[i], t.nodes, t)
		t.out.Answer.Grants = append(t.out.Answer.Grants, g)
		t.sender.grants = append(t.sender.grants, grant{t.push.Sequence, g.Units, g.AtNanos})
	}
	t.sender.forget()
}

// Total implements [store.Ledger].
func (t *transaction) Total(item *wire.Item) wire.Total {
	return t.calendar.Total(&t.named[item.LimitCounter].contents, item)
}

// Add implements [store.Ledger].
func (t *transaction) Add(item *wire.Item) {
	c := t.named[item.LimitCounter]
	expires, changed := t.calendar.Add(&c.contents, item, &t.out)
	if !changed {
		return
	}
	c.changed = true
	if !window.Kind(c.Kind).Refills() {
		expires = max(expires, c.expires)
	}
	c.expires = expires
}

// write writes the changed rows, removes some expired rows, and commits.
func (t *transaction) write(ctx context.Context) error {
	var batch pgx.Batch
	if changed := slices.DeleteFunc(slices.Clone(t.counters), func(c *counter) bool { return !c.changed }); len(changed) > 0 {
		batch.Queue(writeCounters, append(keys(t.push.Namespace, changed), records(changed)...)...)
	}
	batch.Queue(writeSender, append([]any{t.push.Namespace, int64(t.push.Sender)}, t.senderColumns()...)...)
	// Remove more rows than the push adds, so that expired rows do not pile up. Unused rows that a
	// lock has created are removed first.
	counters, senders := 2*t.newCounters, 2*t.newSenders
	if due(&t.store.swept, t.calendar.NowNanos) {
		counters, senders = max(counters, sweepStep), max(senders, sweepStep)
	}
	now := time.Unix(0, int64(t.calendar.NowNanos))
	if counters > 0 {
		batch.Queue(sweepCounters, now, counters)
	}
	if senders > 0 {
		batch.Queue(sweepSenders, now, senders)
	}
	batch.Queue(commit)
	return t.conn.SendBatch(ctx, &batch).Close()
}

// sweepStep is how many expired rows a push removes although it adds none, once in sweepEvery.
const (
	sweepStep  = 64
	sweepEvery = time.Second
)

// due returns true to one caller per sweepEvery, which must then do what is due.
func due(done *atomic.Uint64, nowNanos uint64) bool {
	last := done.Load()
	ago := max(nowNanos, last) - min(nowNanos, last) // the clock may have been set back
	return ago >= uint64(sweepEvery) && done.CompareAndSwap(last, nowNanos)
}

// keys returns the arguments that name counters.
func keys(namespace string, counters []*counter) []any {
	ids := make([]pgtype.UUID, len(counters))
	kinds, ordinals := make([]int16, len(counters)), make([]int16, len(counters))
	widths, precisions := make([]int64, len(counters)), make([]int64, len(counters))
	for i, c := range counters {
		ids[i] = pgtype.UUID{Bytes: c.ID, Valid: true}
		kinds[i], ordinals[i] = int16(c.Kind), int16(c.Ordinal)
		widths[i], precisions[i] = int64(c.WidthMillis), int64(c.Precision)
	}
	return []any{namespace, ids, kinds, ordinals, widths, precisions}
}

// refilling are all kinds that refill.
var refilling = func() (kinds []int16) {
	for k := window.Kind(1); k <= window.LastKind; k++ {
		if k.Refills() {
			kinds = append(kinds, int16(k))
		}
	}
	return kinds
}()

// records returns the arguments of writeCounters after keys.
func records(counters []*counter) []any {
	refills, expires := make([]int64, len(counters)), make([]time.Time, len(counters))
	firsts, lasts := make([]int32, len(counters)), make([]int32, len(counters))
	numbers, hits := make([]int64, 0, len(counters)), make([]int64, 0, len(counters))
	for i, c := range counters {
		refills[i], expires[i] = int64(c.contents.Limit), expiry(c.expires)
		firsts[i] = int32(len(numbers) + 1)
		slices.SortFunc(c.contents.Windows, store.NewestFirst)
		for _, w := range c.contents.Windows {
			numbers, hits = append(numbers, int64(w.Number)), append(hits, w.Hits)
		}
		lasts[i] = int32(len(numbers))
	}
	return []any{refills, firsts, lasts, numbers, hits, expires, refilling}
}

// senderColumns returns the arguments of writeSender after the key.
func (t *transaction) senderColumns() []any {
	sequences := make([]int64, len(t.sender.applied))
	for i, sequence := range t.sender.applied {
		sequences[i] = int64(sequence)
	}
	granted, units, nanos := make([]int64, len(t.sender.grants)), make([]int64, len(t.sender.grants)), make([]int64, len(t.sender.grants))
	for i, g := range t.sender.grants {
		granted[i], units[i], nanos[i] = int64(g.sequence), int64(g.units), int64(g.nanos)
	}
	return []any{int64(t.sender.floor), sequences, granted, units, nanos, expiry(t.calendar.NotedUntil(t.push))}
}

// expiry rounds a time up to a minute. So most pushes leave the column and its index unchanged.
func expiry(nanos uint64) time.Time { return time.Unix(int64(nanos/1e9/60+1)*60, 0) }
