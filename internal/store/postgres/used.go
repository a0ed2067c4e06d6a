package postgres

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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
INSERT INTO weir.accountants AS a (namespace, sender, sequence, expires_at) VALUES ($1, $2, $3, $4)
ON CONFLICT (namespace, sender) DO UPDATE SET sequence = excluded.sequence, expires_at = greatest(a.expires_at, excluded.expires_at)
WHERE a.sequence < excluded.sequence
RETURNING sequence`

	// readLabels returns which rows exist, and how many labels each day has.
	readLabels = `
SELECT k.place, u.label IS NOT NULL, coalesce(d.labels, 0)
FROM unnest($2::integer[], $3::bytea[]) WITH ORDINALITY k (day, label, place)
LEFT JOIN weir.used u ON u.namespace = $1 AND u.day = k.day AND u.label = k.label
LEFT JOIN weir.used_days d ON d.namespace = $1 AND d.day = k.day`

	// All backends pass rows in the same order, and so take their locks in it. A sum stays within
	// 2^53-1 of zero.
	addUsed = `
INSERT INTO weir.used AS u (namespace, day, label, hits, budget, base)
SELECT $1, k.* FROM unnest($2::integer[], $3::bytea[], $4::bigint[], $5::bytea[], $6::bigint[]) k
ON CONFLICT (namespace, day, label) DO UPDATE
SET hits = greatest(-9007199254740991, least(9007199254740991, u.hits + excluded.hits)),
  budget = CASE WHEN length(excluded.budget) > 0 THEN excluded.budget ELSE u.budget END`

	// readLeast returns the labels with the lowest ranks on a day, and locks them. It waits for no
	// lock, because other messages lock rows in another order. $4 is the end of a label of others,
	// behind the rule's name.
	readLeast = `
SELECT label, hits, base FROM weir.used
WHERE namespace = $1 AND day = $2 AND CASE WHEN length(label) = 0 THEN false ELSE substring(label FROM get_byte(label, 0) + 2) <> $4 END
ORDER BY hits + base LIMIT $3 FOR UPDATE SKIP LOCKED`

	removeUsed = `
DELETE FROM weir.used u USING unnest($2::integer[], $3::bytea[]) k (day, label)
WHERE u.namespace = $1 AND u.day = k.day AND u.label = k.label`

	addLabels = `
INSERT INTO weir.used_days AS d (namespace, day, labels)
SELECT $1, k.* FROM unnest($2::integer[], $3::bigint[]) k
ON CONFLICT (namespace, day) DO UPDATE SET labels = d.labels + excluded.labels`

	readUsed = `
SELECT label, hits, budget FROM weir.used WHERE namespace = $1 AND day = $2 AND label > $3 ORDER BY label LIMIT $4`

	sweepUsed = `
DELETE FROM weir.used WHERE ctid = ANY (ARRAY(
  SELECT ctid FROM weir.used WHERE day < $1 ORDER BY day LIMIT $2 FOR UPDATE SKIP LOCKED))`
	sweepUsedDays = `
DELETE FROM weir.used_days WHERE ctid = ANY (ARRAY(
  SELECT ctid FROM weir.used_days WHERE day < $1 LIMIT $2 FOR UPDATE SKIP LOCKED))`
	sweepAccountants = `
DELETE FROM weir.accountants WHERE ctid = ANY (ARRAY(
  SELECT ctid FROM weir.accountants WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2 FOR UPDATE SKIP LOCKED))`
)

// usedSweep is how many expired rows are removed at a time. Messages can't add as fast.
const usedSweep = 4096

// Account implements [store.Store].
func (s *Store) Account(ctx context.Context, u *wire.Used) (done store.Accounted, err error) {
	if err := store.CheckUsed(u); err != nil {
		return done, err
	}
	if err := ctx.Err(); err != nil {
		return done, err
	}
	err = s.try(ctx, u.Namespace, func(inUse context.Context, c *pgx.Conn) (err error) {
		a := &accounting{store: s, conn: c, used: u, lockTimeout: lockTimeout(ctx), least: map[uint32][]usedRow{}}
		done, err = a.run(inUse)
		return err
	})
	if err != nil {
		return store.Accounted{}, fmt.Errorf("postgres: account: %w", err)
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
	done        store.Accounted
	// removed are rows whose place another label has taken, and least the rows of each day that are
	// the next to be.
	removed []usedRow
	least   map[uint32][]usedRow
}

// usedRow is a row to add to the table.
type usedRow struct {
	day    uint32
	label  []byte
	hits   int64
	budget []byte
	base   int64 // see store.Displaces
}

func (a *accounting) run(ctx context.Context) (store.Accounted, error) {
	if err := a.note(ctx); err != nil || a.done.Duplicate {
		return a.done, err
	}
	rows, added, err := a.place(ctx, a.rows())
	if err != nil {
		return a.done, err
	}
	return a.done, a.write(ctx, rows, added)
}

// note begins the transaction, and records the message in it.
func (a *accounting) note(ctx context.Context) error {
	now, noted := time.Time{}, int64(0)
	var batch pgx.Batch
	batch.Queue(begin)
	batch.Queue(settings, a.lockTimeout)
	batch.Queue(readTime).QueryRow(func(row pgx.Row) error { return row.Scan(&now) })
	if err := a.conn.SendBatch(ctx, &batch).Close(); err != nil {
		return err
	}
	if a.store.now != nil {
		now = a.store.now()
	}
	a.calendar.NowNanos = uint64(now.UnixNano())
	err := a.conn.QueryRow(ctx, noteAccountant, a.used.Namespace, int64(a.used.Sender), int64(a.used.Sequence), now.Add(store.UsedSenderLife)).Scan(&noted)
	if errors.Is(err, pgx.ErrNoRows) {
		a.done.Duplicate = true
		_, err = a.conn.Exec(ctx, commit)
	}
	return err
}

// rows returns the message's rows in the order of their locks, with each label of a day once.
func (a *accounting) rows() (rows []usedRow) {
	for i := range a.used.Rows {
		r := &a.used.Rows[i]
		rows = append(rows, usedRow{day: a.calendar.UsedDay(r.Day), label: r.Label, hits: r.Hits, budget: r.Budget})
	}
	return merged(rows)
}

func merged(rows []usedRow) []usedRow {
	slices.SortStableFunc(rows, compareRows)
	last := 0
	for i := 1; i < len(rows); i++ {
		if r := &rows[i]; rows[last].day == r.day && bytes.Equal(rows[last].label, r.label) {
			rows[last].hits = wire.Sum(rows[last].hits, r.hits)
			if len(r.budget) > 0 {
				rows[last].budget = r.budget
			}
			continue
		}
		last++
		rows[last] = rows[i]
	}
	return rows[:min(len(rows), last+1)]
}

// look reports which rows exist, and how many labels each row's day has.
func (a *accounting) look(ctx context.Context, rows []usedRow) (there []bool, labels []int64, err error) {
	there, labels = make([]bool, len(rows)), make([]int64, len(rows))
	days, names, _, _, _ := columns(rows)
	found, err := a.conn.Query(ctx, readLabels, a.used.Namespace, days, names)
	if err != nil {
		return nil, nil, err
	}
	var place, count int64
	var is bool
	_, err = pgx.ForEachRow(found, []any{&place, &is, &count}, func() error {
		there[place-1], labels[place-1] = is, count
		return nil
	})
	return there, labels, err
}

// displaced takes the row with the lowest rank of a day out of the table, if it makes room for a new
// row among those of the message.
func (a *accounting) displaced(ctx context.Context, by *usedRow, rows []usedRow) (row usedRow, is bool, err error) {
	if _, known := a.least[by.day]; !known {
		found, err := a.conn.Query(ctx, readLeast, a.used.Namespace, int32(by.day), 2*len(rows), make([]byte, len(wire.ID{})+2))
		if err != nil {
			return row, false, err
		}
		least, err := pgx.CollectRows(found, func(of pgx.CollectableRow) (r usedRow, err error) {
			r.day = by.day
			return r, of.Scan(&r.label, &r.hits, &r.base)
		})
		if err != nil {
			return row, false, err
		}
		// The message's own rows stay.
		a.least[by.day] = slices.DeleteFunc(least, func(r usedRow) bool {
			_, own := slices.BinarySearchFunc(rows, r, compareRows)
			return own
		})
	}
	least := a.least[by.day]
	if len(least) == 0 || !store.Displaces(by.hits, least[0].hits, rand.Float64()) {
		return row, false, nil
	}
	a.least[by.day] = least[1:]
	a.removed = append(a.removed, least[0])
	return least[0], true, nil
}

func compareRows(a, b usedRow) int {
	return cmp.Or(cmp.Compare(a.day, b.day), bytes.Compare(a.label, b.label))
}

// place gives rows that exceed the bound of labels the label of others, or the place of another, and
// returns how many labels are new for each day.
func (a *accounting) place(ctx context.Context, rows []usedRow) (placed []usedRow, added map[uint32]int64, err error) {
	added = map[uint32]int64{}
	there, labels, err := a.look(ctx, rows)
	if err != nil {
		return nil, nil, err
	}
	var others []usedRow
	for i, r := range rows {
		if there[i] || labels[i]+added[r.day] < store.MaxUsed {
			if !there[i] {
				added[r.day]++
			}
			placed = append(placed, r)
			continue
		}
		ofRule, _ := store.OthersLabel(r.label)
		if !bytes.Equal(r.label, ofRule) {
			a.done.Folded++
			least, makesRoom, err := a.displaced(ctx, &r, rows)
			if err != nil {
				return nil, nil, err
			}
			if makesRoom {
				r.base = wire.Sum(least.base, least.hits)
				placed = append(placed, r)
				ofRule, _ = store.OthersLabel(least.label)
				r = least
			}
		}
		others = append(others, usedRow{day: r.day, label: ofRule, hits: r.hits})
	}
	if others = merged(others); len(others) == 0 {
		return placed, added, nil
	}
	if there, labels, err = a.look(ctx, others); err != nil {
		return nil, nil, err
	}
	for i, r := range others {
		if !there[i] && labels[i]+added[r.day] >= store.MaxUsed+store.MaxUsedOthers {
			_, r.label = store.OthersLabel(r.label)
		} else if !there[i] {
			added[r.day]++
		}
		placed = append(placed, r)
	}
	return merged(placed), added, nil
}

func (a *accounting) write(ctx context.Context, rows []usedRow, added map[uint32]int64) error {
	var batch pgx.Batch
	if len(rows) > 0 {
		if days, labels, _, _, _ := columns(a.removed); len(days) > 0 {
			batch.Queue(removeUsed, a.used.Namespace, days, labels)
		}
		days, labels, hits, budgets, bases := columns(rows)
		batch.Queue(addUsed, a.used.Namespace, days, labels, hits, budgets, bases)
	}
	if len(added) > 0 {
		var days []int32
		for day := range added {
			days = append(days, int32(day))
		}
		slices.Sort(days)
		counts := make([]int64, len(days))
		for i, day := range days {
			counts[i] = added[uint32(day)]
		}
		batch.Queue(addLabels, a.used.Namespace, days, counts)
	}
	if due(&a.store.sweptUsed, a.calendar.NowNanos) {
		oldest := a.calendar.UsedDay(0)
		batch.Queue(sweepUsed, int32(oldest), usedSweep)
		batch.Queue(sweepUsedDays, int32(oldest), usedSweep)
		batch.Queue(sweepAccountants, time.Unix(0, int64(a.calendar.NowNanos)), usedSweep)
	}
	batch.Queue(commit)
	return a.conn.SendBatch(ctx, &batch).Close()
}

func columns(rows []usedRow) (days []int32, labels [][]byte, hits []int64, budgets [][]byte, bases []int64) {
	for i := range rows {
		days, labels = append(days, int32(rows[i].day)), append(labels, rows[i].label)
		hits, budgets, bases = append(hits, rows[i].hits), append(budgets, append([]byte{}, rows[i].budget...)), append(bases, rows[i].base)
	}
	return days, labels, hits, budgets, bases
}

// Used implements [store.Store]. It reads pages, each in a transaction of its own.
func (s *Store) Used(ctx context.Context, namespace string, from, to uint32, visit func(wire.UsedRow) error) error {
	calendar := store.Calendar{}
	err := s.try(ctx, namespace, func(inUse context.Context, c *pgx.Conn) error {
		var now time.Time
		if err := c.QueryRow(inUse, readTime).Scan(&now); err != nil {
			return err
		}
		if s.now != nil {
			now = s.now()
		}
		calendar.NowNanos = uint64(now.UnixNano())
		return nil
	})
	if err != nil {
		return fmt.Errorf("postgres: used: %w", err)
	}
	for day := max(from, calendar.UsedDay(from)); day <= min(to, calendar.UsedDay(to)); day++ {
		if err := s.usedOn(ctx, namespace, day, visit); err != nil {
			return err
		}
	}
	return nil
}

// usedOn visits the labels of a day.
func (s *Store) usedOn(ctx context.Context, namespace string, day uint32, visit func(wire.UsedRow) error) error {
	for after := []byte{}; ; {
		var page []wire.UsedRow
		err := s.try(ctx, namespace, func(inUse context.Context, c *pgx.Conn) error {
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
			return fmt.Errorf("postgres: used: %w", err)
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
