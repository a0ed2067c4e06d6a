package main

import (
	"fmt"
	"io"

	"github.com/redis/go-redis/v9/logging"

	"weir/internal/store"
	"weir/internal/store/open"
)

// openStore opens the store that a --store flag names. Errors wrap [errUsage].
func openStore(name string) (store.Store, io.Closer, error) {
	// go-redis would report each failed connection, where the backend tells once that its store
	// fails.
	logging.Disable()
	s, closer, err := open.Store(name)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: --store: %w", errUsage, err)
	}
	return s, closer, nil
}
