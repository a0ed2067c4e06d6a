package store

import (
	"context"
	"fmt"
	"time"

	"weir/internal/wire"
)

// Reports is the part of a store that briefly keeps the senders' reports about their keys. It does
// not interpret them.
type Reports interface {
	// Report keeps a sender's report until its next report, and for ReportLife. If a namespace has
	// MaxReports, reports of further senders are dropped.
	Report(ctx context.Context, namespace string, sender uint64, report []byte) error

	// Reports returns the reports of a namespace, in no order. Nobody may change their bytes.
	Reports(ctx context.Context, namespace string) ([][]byte, error)
}

const (
	// ReportLife is how long a report is kept.
	ReportLife = 30 * time.Second
	// MaxReports is the most reports of a namespace.
	MaxReports = 512
)

// CheckReport returns an error that wraps [ErrInvalid] if a report is invalid, as far as a store
// can tell.
func CheckReport(namespace string, report []byte) error {
	switch {
	case !wire.IsNamespace(namespace):
		return fmt.Errorf("%w: namespace: want 1 to %d of A-Za-z0-9._-, got %.80q", ErrInvalid, wire.MaxNamespace, namespace)
	case len(report) > wire.MaxReport:
		return fmt.Errorf("%w: report: want at most %d bytes, got %d", ErrInvalid, wire.MaxReport, len(report))
	}
	return nil
}
