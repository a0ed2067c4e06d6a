package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"weir/internal/wire"
)

// Overrides is where a store keeps the overrides of namespaces: of each a list, as package wire has
// it, which the store does not look into, and what nodes have told of it.
type Overrides interface {
	// Overrides is a namespace's list and its version: none, and 0, if there has never been one. If
	// it has the version known, the list is left out.
	Overrides(ctx context.Context, namespace string, known uint64) (list []byte, version uint64, err error)

	// SetOverrides replaces a namespace's list, which may become empty, if it has the version from.
	// If it has another version, the error wraps [ErrChanged]. The new version is the store's time
	// in microseconds since the Unix epoch, or if that is not greater than from, the next number:
	// so versions ascend, even if a list was lost in between. After any other error the list may
	// have been replaced.
	SetOverrides(ctx context.Context, namespace string, from uint64, list []byte) (version uint64, err error)

	// Heard notes what a node has told of a namespace's list, until it tells something else, and for
	// HeardLife. If a namespace has MaxNodes, others are not noted.
	Heard(ctx context.Context, namespace string, told Told) error

	// Told returns what nodes have told of a namespace's list, in no order.
	Told(ctx context.Context, namespace string) ([]Told, error)
}

// Told is a node's report on its namespace's list of overrides.
type Told struct {
	Node uint64
	// Version is that of the list by which the node decides, 0 if it has none.
	Version uint64
	// Unfit is how many of its overrides the node can't apply.
	Unfit uint64
}

// HeardLife is how long what a node has told is noted.
const HeardLife = time.Minute

// MaxOverridden is the most namespaces of which a store in memory keeps a list.
const MaxOverridden = 1024

// ErrChanged is wrapped by the error of a change of a list that has another version.
var ErrChanged = errors.New("somebody else has changed the list")

// CheckOverrides tells what is wrong with a namespace's list, as far as a store looks. The error
// wraps [ErrInvalid].
func CheckOverrides(namespace string, list []byte) error {
	switch {
	case !ValidNamespace(namespace):
		return fmt.Errorf("%w: namespace: want 1 to %d of A-Za-z0-9._-, got %.80q", ErrInvalid, wire.MaxNamespace, namespace)
	case len(list) > wire.MaxOverridesSize:
		return fmt.Errorf("%w: overrides: want a list of at most %d bytes, got %d", ErrInvalid, wire.MaxOverridesSize, len(list))
	}
	return nil
}

// NextVersion is that of a list that takes the place of one of version from.
func NextVersion(from uint64, now time.Time) uint64 {
	return max(from+1, uint64(max(0, now.UnixMicro())))
}
