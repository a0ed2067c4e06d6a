// Package stores opens the databases that programs of package ratelimit may keep their totals in.
// It is apart, as it brings their clients along. A program that asks weir serve by ratelimit.Dial
// needs none of them.
package stores

import (
	"context"
	"errors"
	"fmt"
	"io"

	"weir/internal/backend"
	"weir/internal/store"
	"weir/internal/store/open"
	"weir/ratelimit"
)

// Store is a [ratelimit.Backend] in a database. It may be used by any number of goroutines, and
// namespaces.
type Store struct {
	backend *backend.Backend
	closer  io.Closer
}

var _ ratelimit.Backend = (*Store)(nil)

// Open opens the store of a name, as weir serve --store has them: memory, which is this process's
// own, file:PATH, which one process has at a time, redis://…, rediss://…, redis+cluster://…, rediss+cluster://… or postgres://…. It does not
// wait for a database to be there. A file that can't be opened is an error at once. Errors do not repeat what may hold a password.
func Open(name string) (*Store, error) {
	s, closer, err := open.Store(name, open.Options{})
	if err != nil {
		return nil, fmt.Errorf("ratelimit: store: %w", err)
	}
	return &Store{backend: backend.New(s), closer: closer}, nil
}

// Push implements [ratelimit.Backend].
func (s *Store) Push(ctx context.Context, push []byte) (answer []byte, err error) {
	reply, err := s.backend.Push(ctx, push)
	if errors.Is(err, store.ErrInvalid) {
		err = fmt.Errorf("%w: %w", ratelimit.ErrPushRefused, err)
	}
	return reply.Body, err
}

// Close closes the connections to the database, or the file.
func (s *Store) Close() error { return s.closer.Close() }
