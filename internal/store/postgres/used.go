package postgres

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"weir/internal/store"
	"weir/internal/wire"
)

const (
	// noteAccountant locks the sender's row and records the sequence. It returns no row if the
	// sequence was recorded before.
	noteAccountant = `
INSERT INTO weir.accountants AS a (namespace, sender, sequence, expires_at)
VALUES ($1, $2, $3, coalesce($4, clock_timestamp()) + $5::interval)
ON CONFLICT (namespace, sender) DO UPDATE SET sequence = excluded.sequence, expires_at = greatest(a.expires_at, excluded.expires_at)
WHERE a.sequence < excluded.sequence
RETURNING sequence`

	// LIMIT keeps the planner from another kind of join.
	readLabels = `
SELECT k.day, k.label FROM unnest($2::integer[], $3::bytea[]) k (day, label),
  LATERAL (SELECT FROM weir.used u WHERE (u.namespace, u.day, u.label) = ($1, k.day, k.label) LIMIT 1) u`

	countLabels = `SELECT day, count(*) FROM weir.used WHERE namespace = $1 AND day = ANY ($2::integer[]) GROUP BY day`

	// A label of others has $3 behind its rule's name, whose length is its first byte.
	readOthers = `
SELECT label FROM weir.used
WHERE namespace = $1 AND day = $2 AND CASE WHEN length(label) = 0 THEN false ELSE substring(label FROM get_byte(label, 0) + 2) = $3 END`

	// readLeast returns the labels with the lowest ranks on a day, and locks them. It waits for no
	// lock, because other messages lock rows in another order.
	readLeast = `
SELECT label, hits, base FROM weir.used
WHERE namespace = $1 AND day = $2 AND CASE WHEN length(label) = 0 THEN false ELSE substring(label FROM get_byte(label, 0) + 2) <> $3 END
  AND label <> ALL ($4::bytea[])
ORDER BY hits + base LIMIT $5 FOR UPDATE SKIP LOCKED`

	removeUsed = `
DELETE FROM weir.used u USING unnest($2::integer[], $3::bytea[]) k (day, label)
WHERE u.namespace = $1 AND u.day = k.day AND u.label = k.label`

	// All backends pass rows in the same order, and so take their locks in it. A sum stays within
	// 2^53-1 of zero.
	addUsed = `
INSERT INTO weir.used AS u (namespace, day, label, hits, budget, base)
SELECT $1, k.* FROM unnest($2::integer[], $3::bytea[], $4::bigint[], $5::bytea[], $6::bigint[]) k
ON CONFLICT (namespace, day, label) DO UPDATE
SET hits = greatest(-9007199254740991, least(9007199254740991, u.hits + excluded.hits)),
  budget = CASE WHEN length(excluded.budget) > 0 THEN excluded.budget ELSE u.budget END`

	readUsed = `
SELECT label, hits, budget FROM weir.used WHERE namespace = $1 AND day = $2 AND label > $3 ORDER BY label LIMIT $4`

	sweepUsed = `
DELETE FROM weir.used WHERE ctid = ANY (ARRAY(
  SELECT ctid FROM weir.used WHERE day < $1 ORDER BY day LIMIT $2 FOR UPDATE SKIP LOCKED))`
	sweepAccountants = `
DELETE FROM weir.accountants WHERE ctid = ANY (ARRAY(
  SELECT ctid FROM weir.accountants WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2 FOR UPDATE SKIP LOCKED))`
)

// endOfOthers is what a label of others has behind its rule's name: no identity, and neither a model
// nor a name of the key.
var endOfOthers = make([]byte, len(wire.ID{})+2)

// usedSweep is how many expired rows are removed at a time. Messages can't add as fast.
const usedSweep = 4096

// Account implements [store.Store].
func (s *Store) Account(ctx context.Context, u *wire.Used) (done store.Accounted, err error) {
	if err := cmp.Or(store.CheckUsed(u), ctx.Err()); err != nil {
		return done, err
	}
	err = s.try(ctx, "account", u.Namespace, func(inUse context.Context, c *pgx.Conn) (err error) {
		a := &accounting{store: s, conn: c, used: u, lockTimeout: lockTimeout(ctx), days: map[uint32]*store.UsedDay{}, ranked: map[uint32][]*store.UsedLabel{}}
		done, err = a.run(inUse)
		return err
	})
	if err != nil {
		return store.Accounted{}, err
	}
	return done, nil
}

// accounting is an attempt to apply a message on used hits.
type accounting struct {
	store       *Store
	conn        *pgx.Conn
	used        *wire.Used
	lockTimeout string
	calendar    store.Calendar
	// days have what the message needs of its days. The hits of rows are those to add to them, but
	// those of ranked rows, which are locked, all that they have.
	days   map[uint32]*store.UsedDay
	ranked map[uint32][]*store.UsedLabel
}

func (a *accounting) run(ctx context.Context) (done store.Accounted, err error) {
	if done.Duplicate, err = a.note(ctx); err != nil || done.Duplicate {
		return done, err
	}
	if err := a.read(ctx); err != nil {
		return done, err
	}
	for i := range a.used.Rows {
		r := &a.used.Rows[i]
		if a.days[a.calendar.UsedDay(r.Day)].Add(r, func() bool { return true }) {
			done.Folded++
		}
	}
	return done, a.write(ctx)
}

// note begins the transaction, and records the message in it. If it was recorded before, the
// transaction ends.
func (a *accounting) note(ctx context.Context) (known bool, err error) {
	var noted int64
	var batch pgx.Batch
	batch.Queue(begin)
	batch.Queue(settings, a.lockTimeout)
	batch.Queue(noteAccountant, a.used.Namespace, int64(a.used.Sender), int64(a.used.Sequence), a.store.given(), store.UsedSenderLife).
		QueryRow(func(row pgx.Row) error {
			err := row.Scan(&noted)
			if known = errors.Is(err, pgx.ErrNoRows); known {
				return nil
			}
			return err
		})
	batch.Queue(readTime).QueryRow(a.store.clock(&a.calendar))
	if err := a.conn.SendBatch(ctx, &batch).Close(); err != nil {
		return false, err
	}
	if known {
		_, err = a.conn.Exec(ctx, commit)
	}
	return known, err
}

// read reads which of the message's labels its days have, and what else the decision needs of days
// that lack some.
func (a *accounting) read(ctx context.Context) error {
	days, labels := make([]int32, len(a.used.Rows)), make([][]byte, len(a.used.Rows))
	for i := range a.used.Rows {
		day := a.calendar.UsedDay(a.used.Rows[i].Day)
		days[i], labels[i] = int32(day), a.used.Rows[i].Label
		if a.days[day] == nil {
			a.days[day] = store.NewUsedDay()
		}
	}
	var day int32
	var label []byte
	err := a.each(ctx, []any{&day, &label}, func() { a.has(uint32(day), label) }, readLabels, a.used.Namespace, days, labels)
	if err != nil {
		return err
	}
	missing := map[int32]int{}
	for i, label := range labels {
		if a.days[uint32(days[i])].Rows[string(label)] == nil {
			missing[days[i]]++
		}
	}
	var full []int32
	if len(missing) > 0 {
		var count int
		err = a.each(ctx, []any{&day, &count}, func() {
			if a.days[uint32(day)].Labels = count; count+missing[day] > store.MaxUsed {
				full = append(full, day)
			}
		}, countLabels, a.used.Namespace, slices.Collect(maps.Keys(missing)))
	}
	for _, day := range full {
		if err == nil {
			err = a.readRanks(ctx, day, labels, missing[day])
		}
	}
	return err
}

// readRanks reads which labels of others a day has, and which of its labels may make room. Those of
// the message stay.
func (a *accounting) readRanks(ctx context.Context, of int32, labels [][]byte, missing int) error {
	day, count := a.days[uint32(of)], a.days[uint32(of)].Labels
	var label []byte
	err := a.each(ctx, []any{&label}, func() { a.has(uint32(of), label) }, readOthers, a.used.Namespace, of, endOfOthers)
	if err == nil {
		var hits, base int64
		err = a.each(ctx, []any{&label, &hits, &base}, func() {
			row := &store.UsedLabel{Label: string(label), Hits: hits, Base: base}
			day.Put(row, true)
			a.ranked[uint32(of)] = append(a.ranked[uint32(of)], row)
		}, readLeast, a.used.Namespace, of, endOfOthers, labels, 2*missing)
	}
	day.Labels = count
	return err
}

// has notes that a day has a label.
func (a *accounting) has(day uint32, label []byte) {
	if d := a.days[day]; d.Rows[string(label)] == nil {
		d.Put(&store.UsedLabel{Label: string(label)}, false)
	}
}

// each calls visit for each row of a query, which it has scanned.
func (a *accounting) each(ctx context.Context, scans []any, visit func(), query string, args ...any) error {
	rows, err := a.conn.Query(ctx, query, args...)
	if err != nil {
		return err
	}
	_, err = pgx.ForEachRow(rows, scans, func() error {
		visit()
		return nil
	})
	return err
}

// write writes what has changed, removes what has expired, and commits.
func (a *accounting) write(ctx context.Context) error {
	var batch pgx.Batch
	var removed, changed columns
	for _, of := range slices.Sorted(maps.Keys(a.days)) { // the order of all locks
		rows := a.days[of].Rows
		for _, label := range slices.Sorted(maps.Keys(a.days[of].Changed)) {
			if rows[label] != nil {
				changed.add(of, rows[label])
			}
		}
		for _, row := range a.ranked[of] {
			if rows[row.Label] == nil {
				removed.add(of, row)
			}
		}
	}
	if len(removed.days) > 0 {
		batch.Queue(removeUsed, a.used.Namespace, removed.days, removed.labels)
	}
	if len(changed.days) > 0 {
		batch.Queue(addUsed, a.used.Namespace, changed.days, changed.labels, changed.hits, changed.budgets, changed.bases)
	}
	if due(&a.store.sweptUsed, a.calendar.NowNanos) {
		batch.Queue(sweepUsed, int32(a.calendar.UsedDay(0)), usedSweep)
		batch.Queue(sweepAccountants, time.Unix(0, int64(a.calendar.NowNanos)), usedSweep)
	}
	batch.Queue(commit)
	return a.conn.SendBatch(ctx, &batch).Close()
}

// columns are the arguments of a statement on many rows.
type columns struct {
	days            []int32
	labels, budgets [][]byte
	hits, bases     []int64
}

func (c *columns) add(day uint32, row *store.UsedLabel) {
	c.days, c.labels, c.budgets = append(c.days, int32(day)), append(c.labels, []byte(row.Label)), append(c.budgets, append([]byte{}, row.Budget...))
	c.hits, c.bases = append(c.hits, row.Hits), append(c.bases, row.Base)
}

// Used implements [store.Store]. It reads pages, each in a transaction of its own.
func (s *Store) Used(ctx context.Context, namespace string, from, to uint32, visit func(wire.UsedRow) error) error {
	calendar := store.Calendar{}
	err := s.try(ctx, "used", namespace, func(inUse context.Context, c *pgx.Conn) error {
		return s.clock(&calendar)(c.QueryRow(inUse, readTime))
	})
	if err != nil {
		return err
	}
	for day := max(from, calendar.UsedDay(from)); day <= min(to, calendar.UsedDay(to)); day++ {
		if err := s.usedOn(ctx, namespace, day, visit); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) usedOn(ctx context.Context, namespace string, day uint32, visit func(wire.UsedRow) error) error {
	for after := []byte{}; ; {
		var page []wire.UsedRow
		err := s.try(ctx, "used", namespace, func(inUse context.Context, c *pgx.Conn) error {
			rows, err := c.Query(inUse, readUsed, namespace, int32(day), after, pageSize)
			if err != nil {
				return err
			}
			page, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (r wire.UsedRow, err error) {
				err = row.Scan(&r.Label, &r.Hits, &r.Budget)
				r.Day = day
				return r, err
			})
			return err
		})
		if err != nil {
			return err
		}
		for i := range page {
			after = page[i].Label
			if _, ok := wire.DecodeUsedLabel(page[i].Label); !ok {
				continue // another program has written it
			}
			if err := visit(page[i]); err != nil {
				return err
			}
		}
		if len(page) < pageSize {
			return nil
		}
	}
}
