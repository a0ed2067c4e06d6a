package postgres

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"weir/internal/store"
)

const (
	readOverrides = `
SELECT version, CASE WHEN version = $2::bigint THEN NULL ELSE list END FROM weir.overrides WHERE namespace = $1`

	// If two calls add the first list at once, they conflict, and the later finds another version.
	setOverrides = `
INSERT INTO weir.overrides AS o (namespace, version, list)
SELECT $1, greatest($2::bigint + 1, (extract(epoch FROM coalesce($4, clock_timestamp())) * 1000000)::bigint), $3
WHERE $2::bigint = 0 OR EXISTS (SELECT FROM weir.overrides WHERE namespace = $1)
ON CONFLICT (namespace) DO UPDATE SET version = excluded.version, list = excluded.list WHERE o.version = $2::bigint
RETURNING version`
)

const trimEvery = 32

// noteTable has the statements for the notes on a topic.
type noteTable struct{ put, sweep, read, count, trim string }

// noteTables have the tables of topics. Each has a member, and when it said what its columns have.
var noteTables = [store.Topics]noteTable{
	store.Nodes: tableOf("nodes", "node", "joined_at", "''::bytea", nil),
	store.AppliedLists: tableOf("told", "node", "told_at", "convert_to(version || ' ' || unfit, 'UTF8')", []column{
		{"version", "split_part(convert_from(body, 'UTF8'), ' ', 1)::bigint"}, {"unfit", "split_part(convert_from(body, 'UTF8'), ' ', 2)::bigint"},
	}),
	store.Reports:    tableOf("reports", "sender", "reported_at", "report", []column{{"report", "body"}}),
	store.Changes:    tableOf("changes", "change", "changed_at", "record", []column{{"record", "body"}}),
	store.Rules:      tableOf("rules", "digest", "told_at", "rules", []column{{"rules", "body"}}),
	store.Namespaces: tableOf("namespaces", "member", "told_at", "name", []column{{"name", "body"}}),
	store.Tellers:    tableOf("tellers", "sender", "told_at", "note", []column{{"note", "body"}}),
}

// column is a column of a note, and its value by the note's body.
type column struct{ name, value string }

func tableOf(table, member, at, body string, columns []column) noteTable {
	names, values, excluded := "", "", ""
	for _, c := range columns {
		names, values, excluded = names+", "+c.name, values+", "+c.value, excluded+", "+c.name+" = excluded."+c.name
	}
	of := strings.NewReplacer("TABLE", "weir."+table, "MEMBER", member, "SAID_AT", at, "BODY", body,
		"_NAMES", names, "_VALUES", values, "_EXCLUDED", excluded).Replace
	return noteTable{of(putNote), of(sweepNotes), of(readNotes), of(countNotes), of(trimNotes)}
}

const (
	// A new member, or a forgotten one, is recorded as if it had spoken longer ago: so its note
	// expires sooner.
	putNote = `
INSERT INTO TABLE AS n (namespace, MEMBER, SAID_AT_NAMES)
SELECT $1, $2, coalesce($3, clock_timestamp()) - $4::interval + $5::interval_VALUES
FROM (SELECT coalesce($6::bytea, '') AS body) AS note
WHERE $7::integer IS NULL OR EXISTS (SELECT FROM TABLE WHERE namespace = $1 AND MEMBER = $2)
  OR (SELECT count(*) FROM TABLE WHERE namespace = $1) < $7
ON CONFLICT (namespace, MEMBER) DO UPDATE SET SAID_AT = CASE
  WHEN n.SAID_AT > excluded.SAID_AT - $5::interval AND n.SAID_AT < excluded.SAID_AT - $5::interval + 2 * $4::interval
  THEN excluded.SAID_AT + $4::interval - $5::interval ELSE excluded.SAID_AT END_EXCLUDED`

	sweepNotes = `
DELETE FROM TABLE WHERE ctid = ANY (ARRAY(
  SELECT ctid FROM TABLE WHERE SAID_AT <= coalesce($1, clock_timestamp()) - $2::interval LIMIT $3 FOR UPDATE SKIP LOCKED))`

	liveNotes = `
FROM TABLE
WHERE namespace = $1
  AND SAID_AT > coalesce($2, clock_timestamp()) - $3::interval AND SAID_AT < coalesce($2, clock_timestamp()) + $3::interval`
	readNotes = `SELECT MEMBER, BODY` + liveNotes
	// A log's oldest notes leave room for one more. That takes milliseconds, so the notes of one in
	// trimEvery members do it, and a few notes too many are there until then.
	trimNotes = `
DELETE FROM TABLE WHERE ctid = ANY (ARRAY(
  SELECT ctid FROM TABLE WHERE namespace = $1 AND MEMBER <> $2 ORDER BY SAID_AT DESC OFFSET $3 - 1))`
	countNotes = `SELECT count(*) + CASE WHEN bool_or(MEMBER = $4) THEN 0 ELSE 1 END` + liveNotes
)

// Overrides implements [store.Store].
func (s *Store) Overrides(ctx context.Context, namespace string, known uint64) (list []byte, version uint64, err error) {
	err = s.try(ctx, "overrides", namespace, func(inUse context.Context, c *pgx.Conn) error {
		var found int64
		list, version = nil, 0
		err := c.QueryRow(inUse, readOverrides, namespace, int64(known)).Scan(&found, &list)
		if version = uint64(found); errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		return err
	})
	return list, version, err
}

// SetOverrides implements [store.Store].
func (s *Store) SetOverrides(ctx context.Context, namespace string, from uint64, list []byte) (version uint64, err error) {
	if err := store.CheckOverrides(namespace, list); err != nil {
		return 0, err
	}
	if list == nil {
		list = []byte{}
	}
	err = s.try(ctx, "set overrides", namespace, func(inUse context.Context, c *pgx.Conn) error {
		var set int64
		err := c.QueryRow(inUse, setOverrides, namespace, int64(from), list, s.given()).Scan(&set)
		if version = uint64(set); errors.Is(err, pgx.ErrNoRows) {
			return store.ErrChanged
		}
		return err
	})
	return version, err
}

// Note implements [store.Store].
func (s *Store) Note(ctx context.Context, topic store.Topic, namespace string, note store.Note) (nodes uint64, err error) {
	if err := store.CheckNote(topic, namespace, note); err != nil {
		return 0, err
	}
	table, terms, member := &noteTables[topic], topic.Terms(), int64(note.Member)
	err = s.try(ctx, topic.String(), namespace, func(inUse context.Context, c *pgx.Conn) error {
		var batch pgx.Batch
		given := s.given()
		batch.Queue(limitLocks, lockTimeout(ctx))
		if !note.Asks {
			if due(&s.sweptNotes[topic], s.nanos()) {
				batch.Queue(table.sweep, given, terms.Life, terms.Most)
			}
			most := &terms.Most
			if terms.Log {
				if most = nil; note.Member%trimEvery == 0 {
					batch.Queue(table.trim, namespace, member, terms.Most)
				}
			}
			batch.Queue(table.put, namespace, member, given, terms.Life, terms.Newcomer, note.Body, most)
		}
		if topic == store.Nodes {
			batch.Queue(table.count, namespace, given, terms.Life, member).QueryRow(func(row pgx.Row) error { return row.Scan(&nodes) })
		}
		return c.SendBatch(inUse, &batch).Close()
	})
	return nodes, err
}

// Notes implements [store.Store].
func (s *Store) Notes(ctx context.Context, topic store.Topic, namespace string) (all []store.Note, err error) {
	err = s.try(ctx, topic.String(), namespace, func(inUse context.Context, c *pgx.Conn) error {
		rows, err := c.Query(inUse, noteTables[topic].read, namespace, s.given(), topic.Terms().Life)
		if err != nil {
			return err
		}
		all, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (n store.Note, err error) {
			var member int64
			err = row.Scan(&member, &n.Body)
			n.Member = uint64(member)
			return n, err
		})
		return err
	})
	return all, err
}

// given returns the time that replaces PostgreSQL's; nil if none does.
func (s *Store) given() *time.Time {
	if s.now == nil {
		return nil
	}
	now := s.now()
	return &now
}
