package memory

import (
	"bytes"
	"context"

	"weir/internal/store"
)

const (
	// maxReportBytes bounds the memory of all reports.
	maxReportBytes = 64 << 20
	// rowBytes bounds the memory of a report besides its own bytes.
	rowBytes = 512
)

// Report implements [store.Store].
func (s *Store) Report(ctx context.Context, namespace string, sender uint64, report []byte) error {
	if err := store.CheckReport(namespace, report); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := uint64(s.now().UnixNano())
	s.reports.sweepAll(now)
	key := owned{namespace, sender}
	if before := s.reports.rows[key]; before != nil {
		s.reports.remove(before)
	} else if s.reports.count(namespace) >= store.MaxReports {
		return nil
	}
	s.reports.put(key, now, now+uint64(store.ReportLife), len(report)+rowBytes).value.of = bytes.Clone(report)
	return nil
}

// Reports implements [store.Store].
func (s *Store) Reports(ctx context.Context, namespace string) (all [][]byte, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reports.sweepAll(uint64(s.now().UnixNano()))
	return s.reports.all(namespace), nil
}
