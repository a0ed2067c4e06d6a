package redis

import (
	"context"
	"errors"
	"fmt"

	goredis "github.com/redis/go-redis/v9"

	"weir/internal/store"
)

// Report implements [store.Store].
func (s *Store) Report(ctx context.Context, namespace string, sender uint64, report []byte) error {
	if err := store.CheckReport(namespace, report); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	err := toldScript.Run(ctx, s.client, []string{s.keys.reports(namespace)}, s.given(), store.ReportLife.Microseconds(), store.MaxReports,
		fmt.Sprintf("%016x", sender), report).Err()
	if err != nil && !errors.Is(err, goredis.Nil) {
		return s.failed(ctx, "report", err)
	}
	return nil
}

// Reports implements [store.Store].
func (s *Store) Reports(ctx context.Context, namespace string) (all [][]byte, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	found, err := toldScript.Run(ctx, s.client, []string{s.keys.reports(namespace)}, s.given(), store.ReportLife.Microseconds()).StringSlice()
	if err != nil {
		return nil, s.failed(ctx, "reports", err)
	}
	for ; len(found) > 1; found = found[2:] {
		all = append(all, []byte(found[1]))
	}
	return all, nil
}
