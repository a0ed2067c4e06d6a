package ratelimit

import (
	"context"
	"errors"
)

// Backend keeps the totals of all nodes. Its implementations are [Client], which asks weir serve, and
// Store of package stores, which uses a database. A backend that also has a method KeepsDeadlines() bool that returns
// true says that its Push ends when its context's deadline passes: a request that waits for its own push then sends it
// itself, which costs half.
type Backend interface {
	// Push delivers a push, and returns the backend's answer. Both have the plugin's wire format.
	// Push does not keep the slice after it returns. If the backend will never accept this push,
	// the error wraps [ErrPushRefused]. After any other error the push may or may not have arrived,
	// and the namespace sends it again.
	//
	// Push must be safe for concurrent use.
	Push(ctx context.Context, push []byte) (answer []byte, err error)
}

// keepsDeadlines reports whether a backend's Push surely ends at its context's deadline.
func keepsDeadlines(b Backend) bool {
	k, ok := b.(interface{ KeepsDeadlines() bool })
	return ok && k.KeepsDeadlines()
}

// ErrPushRefused is wrapped by the error of a push that the backend will never accept, because the
// two sides disagree about the format.
var ErrPushRefused = errors.New("push refused")
