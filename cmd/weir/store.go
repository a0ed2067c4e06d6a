package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9/logging"

	"weir/internal/store"
	"weir/internal/store/memory"
	"weir/internal/store/postgres"
	"weir/internal/store/redis"
)

// openStore opens the store that a --store flag names: memory, or the URL of a Redis or a PostgreSQL. It does not wait for the store to be
// there. The caller closes it. Errors wrap [errUsage], and do not repeat what may hold a password.
func openStore(name string) (store.Store, io.Closer, error) {
	if name == "memory" {
		return memory.New(memory.Options{}), io.NopCloser(nil), nil
	}
	scheme, _, isURL := strings.Cut(name, "://")
	switch {
	case isURL && slices.Contains([]string{"redis", "rediss", "redis+cluster", "rediss+cluster"}, scheme):
		// It would report each failed connection, where the backend tells once that its store fails.
		logging.Disable()
		store, err := redis.Open(name, redis.Options{})
		if err != nil {
			return nil, nil, fmt.Errorf("%w: --store: %w", errUsage, err)
		}
		return store, store, nil
	case isURL && (scheme == "postgres" || scheme == "postgresql"):
		store, err := postgres.Open(name, postgres.Options{})
		if err != nil {
			return nil, nil, fmt.Errorf("%w: --store: %w", errUsage, err)
		}
		return store, store, nil
	}
	// What comes before :// is no secret; anything else might be.
	got := ""
	if isURL {
		got = fmt.Sprintf(", got %.20q", scheme+"://…")
	}
	return nil, nil, fmt.Errorf("%w: --store: want memory, redis://…, rediss://…, redis+cluster://…, rediss+cluster://… or postgres://…%s", errUsage, got)
}
