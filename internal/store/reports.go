package store

import (
	"context"
	"fmt"
	"time"

	"weir/internal/wire"
)

// Reports is where a store keeps for a while what senders have seen of their keys. It does not look
// into reports.
type Reports interface {
	// Report keeps a sender's report, in the place of the one before, until another comes, and for
	// ReportLife. If a namespace has MaxReports, those of others are not kept.
	Report(ctx context.Context, namespace string, sender uint64, report []byte) error

	// Reports are a namespace's, in no order. Nobody changes their bytes.
	Reports(ctx context.Context, namespace string) ([][]byte, error)
}

const (
	// ReportLife is how long a report is kept.
	ReportLife = 30 * time.Second
	// MaxReports is the most reports of a namespace.
	MaxReports = 512
)

// CheckReport tells what is wrong with a report, as far as a store looks. The error wraps
// [ErrInvalid].
func CheckReport(namespace string, report []byte) error {
	switch {
	case !ValidNamespace(namespace):
		return fmt.Errorf("%w: namespace: want 1 to %d of A-Za-z0-9._-, got %.80q", ErrInvalid, wire.MaxNamespace, namespace)
	case len(report) > wire.MaxReport:
		return fmt.Errorf("%w: report: want at most %d bytes, got %d", ErrInvalid, wire.MaxReport, len(report))
	}
	return nil
}
