package ratelimitservice

import (
	"context"
	"errors"
	"fmt"

	"weir/internal/backend"
	"weir/internal/store"
	"weir/ratelimit"
)

// Local is a backend in the same process, to which counters push without a network.
type Local struct {
	Backend *backend.Backend
	// Pushed is told the result of each push; nil for nobody.
	Pushed func(ctx context.Context, r *backend.Reply, err error)
}

// KeepsDeadlines reports that Push ends when its context's deadline passes. See [ratelimit.Backend].
func (l Local) KeepsDeadlines() bool { return true }

// Push implements [ratelimit.Backend].
func (l Local) Push(ctx context.Context, push []byte) ([]byte, error) {
	reply, err := l.Backend.Push(ctx, push)
	if l.Pushed != nil {
		l.Pushed(ctx, &reply, err)
	}
	if errors.Is(err, store.ErrInvalid) {
		err = fmt.Errorf("%w: %w", ratelimit.ErrPushRefused, err)
	}
	return reply.Body, err
}
