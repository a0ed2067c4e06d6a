// Package stores opens a database that keeps the totals of programs with package ratelimit. It is
// separate because it links the databases' clients. A program that uses ratelimit.Dial links none
// of them.
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

// Store is a [ratelimit.Backend] in a database. It is safe for concurrent use, and several
// namespaces may share it.
type Store struct {
	backend *backend.Backend
	closer  io.Closer
}

var _ ratelimit.Backend = (*Store)(nil)

// Open opens a store by its name, as weir serve --store does: memory (of this process), file:PATH
// (for one process at a time), redis://…, redis+cluster://…, redis+sentinel://…, rediss… of these for TLS, or
// postgres://…. It does not wait for a database to be reachable. A file that can't be opened is an
// error at once. Errors don't repeat parts of the name that may hold a password.
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

// KeepsDeadlines reports that Push ends when its context's deadline passes. See [ratelimit.Backend].
func (s *Store) KeepsDeadlines() bool { return true }

// Close closes the connections to the database, or the file.
func (s *Store) Close() error { return s.closer.Close() }
