package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"weir/internal/wire"
)

// Overrides is the part of a store that keeps the overrides of namespaces: for each namespace a
// list in package wire's form, which the store does not interpret, and the nodes' reports about it.
type Overrides interface {
	// Overrides returns a namespace's list and its version; an empty list and 0 if there has never
	// been one. If known is the version, the list is left out.
	Overrides(ctx context.Context, namespace string, known uint64) (list []byte, version uint64, err error)

	// SetOverrides replaces a namespace's list if it has the version from; the new list may be
	// empty. If the list has another version, the error wraps [ErrChanged]. The new version is the
	// store's time in microseconds since the Unix epoch or, if that is not above from, from + 1. So
	// versions ascend even if a list was lost in between. After any other error the list may have
	// been replaced.
	SetOverrides(ctx context.Context, namespace string, from uint64, list []byte) (version uint64, err error)

	// Heard records a node's report about a namespace's list, until its next report and for
	// HeardLife. If a namespace has MaxNodes, reports of further nodes are dropped.
	Heard(ctx context.Context, namespace string, told Told) error

	// Told returns the nodes' reports about a namespace's list, in no order.
	Told(ctx context.Context, namespace string) ([]Told, error)
}

// Told is a node's report about its namespace's list of overrides.
type Told struct {
	Node uint64
	// Version is that of the list by which the node decides; 0 if it has none.
	Version uint64
	// Unfit is how many of its overrides the node can't apply.
	Unfit uint64
}

// HeardLife is how long a node's report is kept.
const HeardLife = time.Minute

// MaxOverridden is the most namespaces with a list in a store in memory.
const MaxOverridden = 1024

// ErrChanged is wrapped by the error of replacing a list whose version has changed.
var ErrChanged = errors.New("someone else has changed the list meanwhile")

// CheckOverrides returns an error that wraps [ErrInvalid] if a namespace's list is invalid, as far
// as a store can tell.
func CheckOverrides(namespace string, list []byte) error {
	switch {
	case !wire.IsNamespace(namespace):
		return fmt.Errorf("%w: namespace: want 1 to %d of A-Za-z0-9._-, got %.80q", ErrInvalid, wire.MaxNamespace, namespace)
	case len(list) > wire.MaxOverridesSize:
		return fmt.Errorf("%w: overrides: want a list of at most %d bytes, got %d", ErrInvalid, wire.MaxOverridesSize, len(list))
	}
	return nil
}

// NextVersion returns the version of a list that replaces one with version from.
func NextVersion(from uint64, now time.Time) uint64 {
	return max(from+1, uint64(max(0, now.UnixMicro())))
}
