package postgres

import (
	"bytes"
	"context"
	"math"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"weir/internal/store"
	"weir/internal/wire"
)

// pageSize is how many rows a page has.
const pageSize = 500

const readPage = `
SELECT id, kind, ordinal, width_ms, precision_ns, refill, numbers, hits, clock_timestamp() FROM weir.counters
WHERE namespace = $1 AND (id, kind, ordinal, width_ms, precision_ns) > ($2, $3, $4, $5, $6) AND id <= $9
  AND (cardinality($7::bigint[]) = 0 OR width_ms = ANY ($7))
ORDER BY namespace, id, kind, ordinal, width_ms, precision_ns LIMIT $8`

// place is a counter's key in its namespace, in the order of the index.
type place struct {
	id               pgtype.UUID
	kind, ordinal    int16
	width, precision int64
}

// counter returns the limit counter of this key, if a store can have it.
func (p *place) counter() (c wire.LimitCounter, ok bool) {
	if p.kind < 0 || p.kind > math.MaxUint8 || p.ordinal < 0 || p.ordinal > math.MaxUint8 || p.width < 0 || p.precision < 0 {
		return c, false
	}
	c = wire.LimitCounter{
		ID: p.id.Bytes, Kind: uint8(p.kind), Ordinal: uint8(p.ordinal), WidthMillis: uint64(p.width), Precision: uint64(p.precision),
	}
	return c, store.ValidCounter(c)
}

// Counters implements [store.Store]. It reads pages of a few hundred counters, each in its own
// transaction. A single long transaction would keep the server from reusing the space of old row
// versions.
func (s *Store) Counters(ctx context.Context, namespace string, only *store.Wanted, visit func(store.LimitCounter) error) error {
	widths := []int64{}
	next := place{id: pgtype.UUID{Valid: true}, kind: math.MinInt16} // before all others
	last := pgtype.UUID{Bytes: [16]byte(bytes.Repeat([]byte{0xff}, 16)), Valid: true}
	if only != nil {
		for _, w := range only.Widths {
			widths = append(widths, int64(w))
		}
		if only.Key != nil {
			next.id.Bytes, last.Bytes = *only.Key, *only.Key
		}
	}
	for {
		var page []store.LimitCounter
		var read int
		after := next
		err := s.try(ctx, "counters", namespace, func(inUse context.Context, c *pgx.Conn) error {
			page, read = nil, 0
			var batch pgx.Batch
			batch.Queue(beginRead)
			batch.Queue(settings, lockTimeout(ctx))
			batch.Queue(readPage, namespace, after.id, after.kind, after.ordinal, after.width, after.precision, widths, pageSize, last).
				Query(func(rows pgx.Rows) error {
					for rows.Next() {
						read++
						found, ok, err := s.live(rows, &next)
						if err != nil {
							return err
						}
						if ok {
							page = append(page, found)
						}
					}
					return rows.Err()
				})
			batch.Queue(commit)
			return c.SendBatch(inUse, &batch).Close()
		})
		if err != nil {
			return err
		}
		for _, c := range page {
			if err := visit(c); err != nil {
				return err
			}
		}
		if read < pageSize {
			return nil
		}
	}
}

// live reads a row of readPage and its place, and reports whether the counter has a window that
// counts.
func (s *Store) live(rows pgx.Rows, at *place) (found store.LimitCounter, ok bool, err error) {
	var row counterRow
	var now time.Time
	err = rows.Scan(&at.id, &at.kind, &at.ordinal, &at.width, &at.precision, &row.refill, &row.numbers, &row.hits, &now)
	if err != nil {
		return found, false, err
	}
	if found.LimitCounter, ok = at.counter(); !ok {
		return found, false, nil
	}
	contents, ok := row.contents(found.LimitCounter)
	if !ok {
		return found, false, nil
	}
	if s.now != nil {
		now = s.now()
	}
	calendar := store.Calendar{NowNanos: uint64(now.UnixNano())}
	found.Limit, found.Windows = contents.Limit, contents.Windows
	found.Windows = calendar.Counting(found)
	return found, len(found.Windows) > 0, nil
}
