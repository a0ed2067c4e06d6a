package ratelimit

import (
	"context"
	"errors"
)

// Backend is where nodes bring their counts together: weir serve, by [Dial], or a database, by Open
// of package stores.
type Backend interface {
	// Push brings a push to where the counts are, and returns the answer. Both are in the plugin's
	// wire format. The push is the caller's again once Push has returned. If the backend will never
	// take the push, the error wraps [ErrPushRefused]. After any other error the push may have
	// arrived, and is sent again.
	//
	// Push may be called from any number of goroutines.
	Push(ctx context.Context, push []byte) (answer []byte, err error)
}

// ErrPushRefused is wrapped by the error of a push that a backend will never take. It happens only
// if the backend disagrees about the form of a push.
var ErrPushRefused = errors.New("push refused")
