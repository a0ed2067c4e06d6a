package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"weir/internal/store"
)

const (
	putReport = `
INSERT INTO weir.reports AS r (namespace, sender, report, reported_at)
SELECT $1, $2, $3, coalesce($4, clock_timestamp())
WHERE EXISTS (SELECT FROM weir.reports WHERE namespace = $1 AND sender = $2)
  OR (SELECT count(*) FROM weir.reports WHERE namespace = $1) < $5
ON CONFLICT (namespace, sender) DO UPDATE SET report = excluded.report, reported_at = excluded.reported_at`

	sweepReports = `
DELETE FROM weir.reports WHERE ctid = ANY (ARRAY(
  SELECT ctid FROM weir.reports WHERE reported_at <= coalesce($1, clock_timestamp()) - $2::interval LIMIT $3 FOR UPDATE SKIP LOCKED))`

	readReports = `
SELECT report FROM weir.reports
WHERE namespace = $1
  AND reported_at > coalesce($2, clock_timestamp()) - $3::interval AND reported_at < coalesce($2, clock_timestamp()) + $3::interval`
)

// Report implements [store.Store].
func (s *Store) Report(ctx context.Context, namespace string, sender uint64, report []byte) error {
	if err := store.CheckReport(namespace, report); err != nil {
		return err
	}
	if report == nil {
		report = []byte{}
	}
	err := s.try(ctx, namespace, func(inUse context.Context, c *pgx.Conn) error {
		var batch pgx.Batch
		batch.Queue(sweepReports, s.given(), store.ReportLife, store.MaxReports)
		batch.Queue(putReport, namespace, int64(sender), report, s.given(), store.MaxReports)
		return c.SendBatch(inUse, &batch).Close()
	})
	if err != nil {
		return fmt.Errorf("postgres: report: %w", err)
	}
	return nil
}

// Reports implements [store.Store].
func (s *Store) Reports(ctx context.Context, namespace string) (all [][]byte, err error) {
	err = s.try(ctx, namespace, func(inUse context.Context, c *pgx.Conn) error {
		rows, err := c.Query(inUse, readReports, namespace, s.given(), store.ReportLife)
		if err != nil {
			return err
		}
		all, err = pgx.CollectRows(rows, pgx.RowTo[[]byte])
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("postgres: reports: %w", err)
	}
	return all, nil
}
