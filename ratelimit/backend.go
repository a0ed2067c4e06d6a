package ratelimit

import (
	"context"
	"errors"
)

// Backend keeps the totals of all nodes. Its implementations are [Client], which asks weir serve, and
// Store of package stores, which uses a database.
type Backend interface {
	// Push delivers a push, and returns the backend's answer. Both have the plugin's wire format.
	// Push does not keep the slice after it returns. If the backend will never accept this push,
	// the error wraps [ErrPushRefused]. After any other error the push may or may not have arrived,
	// and the namespace sends it again.
	//
	// Push must be safe for concurrent use.
	Push(ctx context.Context, push []byte) (answer []byte, err error)
}

// ErrPushRefused is wrapped by the error of a push that the backend will never accept, because the
// two sides disagree about the format.
var ErrPushRefused = errors.New("push refused")
