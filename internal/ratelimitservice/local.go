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
type Local struct{ Backend *backend.Backend }

// Push implements [ratelimit.Backend].
func (l Local) Push(ctx context.Context, push []byte) ([]byte, error) {
	reply, err := l.Backend.Push(ctx, push)
	if errors.Is(err, store.ErrInvalid) {
		err = fmt.Errorf("%w: %w", ratelimit.ErrPushRefused, err)
	}
	return reply.Body, err
}
