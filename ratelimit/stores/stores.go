// Package stores opens the databases that programs of package ratelimit may keep their totals in. It is apart, as it brings their
// clients along; a program that asks weir serve by ratelimit.Dial needs none of them.
package stores

import (
	"fmt"
	"io"

	"weir/internal/store/open"
	"weir/ratelimit"
)

// Store is a ratelimit.Store that the caller closes.
type Store interface {
	ratelimit.Store
	io.Closer
}

type opened struct {
	ratelimit.Store
	io.Closer
}

// Open opens the store of a name, as weir serve --store has them: memory, which is this process's own, redis://…, rediss://…,
// redis+cluster://…, rediss+cluster://… or postgres://…. It does not wait for the database to be there. Errors do not repeat
// what may hold a password.
func Open(name string) (Store, error) {
	s, closer, err := open.Store(name)
	if err != nil {
		return nil, fmt.Errorf("ratelimit: store: %w", err)
	}
	return opened{s, closer}, nil
}
