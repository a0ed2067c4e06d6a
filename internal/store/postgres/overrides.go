package postgres

import (
	"context"
	"errors"
	"fmt"

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

	heard = `
INSERT INTO weir.told AS t (namespace, node, version, unfit, told_at)
SELECT $1, $2, $3, $4, coalesce($5, clock_timestamp())
WHERE EXISTS (SELECT FROM weir.told WHERE namespace = $1 AND node = $2)
  OR (SELECT count(*) FROM weir.told WHERE namespace = $1) < $6
ON CONFLICT (namespace, node) DO UPDATE SET version = excluded.version, unfit = excluded.unfit, told_at = excluded.told_at`

	sweepTold = `
DELETE FROM weir.told WHERE ctid = ANY (ARRAY(
  SELECT ctid FROM weir.told WHERE told_at <= coalesce($1, clock_timestamp()) - $2::interval LIMIT $3 FOR UPDATE SKIP LOCKED))`

	readTold = `
SELECT node, version, unfit FROM weir.told
WHERE namespace = $1
  AND told_at > coalesce($2, clock_timestamp()) - $3::interval AND told_at < coalesce($2, clock_timestamp()) + $3::interval`
)

// Overrides implements [store.Store].
func (s *Store) Overrides(ctx context.Context, namespace string, known uint64) (list []byte, version uint64, err error) {
	err = s.try(ctx, namespace, func(inUse context.Context, c *pgx.Conn) error {
		var found int64
		list, version = nil, 0
		err := c.QueryRow(inUse, readOverrides, namespace, int64(known)).Scan(&found, &list)
		if version = uint64(found); errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		return err
	})
	if err != nil {
		return nil, 0, fmt.Errorf("postgres: overrides: %w", err)
	}
	return list, version, nil
}

// SetOverrides implements [store.Store].
func (s *Store) SetOverrides(ctx context.Context, namespace string, from uint64, list []byte) (version uint64, err error) {
	if err := store.CheckOverrides(namespace, list); err != nil {
		return 0, err
	}
	if list == nil {
		list = []byte{}
	}
	err = s.try(ctx, namespace, func(inUse context.Context, c *pgx.Conn) error {
		var set int64
		err := c.QueryRow(inUse, setOverrides, namespace, int64(from), list, s.given()).Scan(&set)
		if version = uint64(set); errors.Is(err, pgx.ErrNoRows) {
			return store.ErrChanged
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("postgres: set overrides: %w", err)
	}
	return version, nil
}

// Heard implements [store.Store].
func (s *Store) Heard(ctx context.Context, namespace string, told store.Told) error {
	err := s.try(ctx, namespace, func(inUse context.Context, c *pgx.Conn) error {
		var batch pgx.Batch
		batch.Queue(sweepTold, s.given(), store.HeardLife, store.MaxNodes)
		batch.Queue(heard, namespace, int64(told.Node), int64(told.Version), int64(told.Unfit), s.given(), store.MaxNodes)
		return c.SendBatch(inUse, &batch).Close()
	})
	if err != nil {
		return fmt.Errorf("postgres: heard: %w", err)
	}
	return nil
}

// Told implements [store.Store].
func (s *Store) Told(ctx context.Context, namespace string) (all []store.Told, err error) {
	err = s.try(ctx, namespace, func(inUse context.Context, c *pgx.Conn) error {
		rows, err := c.Query(inUse, readTold, namespace, s.given(), store.HeardLife)
		if err != nil {
			return err
		}
		all, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (t store.Told, err error) {
			var node, version, unfit int64
			err = row.Scan(&node, &version, &unfit)
			t.Node, t.Version, t.Unfit = uint64(node), uint64(version), uint64(unfit)
			return t, err
		})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("postgres: told: %w", err)
	}
	return all, nil
}
