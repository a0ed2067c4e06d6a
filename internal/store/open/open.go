// Package open opens a store by its name.
package open

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"weir/internal/store"
	"weir/internal/store/memory"
	"weir/internal/store/postgres"
	"weir/internal/store/redis"
)

// Options has what a store can be told beside its name. The zero value is good.
type Options struct {
	// MaxCounters is that of [memory.Options]. No other store has it.
	MaxCounters int
}

// ErrUnbounded is the error for a MaxCounters of a store that has none.
var ErrUnbounded = errors.New("only a store in memory has a most number of counters")

// Store opens the store of a name: memory, or the URL of a Redis, a Redis Cluster or a PostgreSQL.
// It does not wait for the store to be there. The caller closes it. Errors do not repeat what may
// hold a password.
func Store(name string, o Options) (store.Store, io.Closer, error) {
	if name == "memory" {
		return memory.New(memory.Options{MaxCounters: o.MaxCounters}), io.NopCloser(nil), nil
	}
	scheme, _, isURL := strings.Cut(name, "://")
	switch {
	case isURL && o.MaxCounters != 0:
		return nil, nil, ErrUnbounded
	case isURL && slices.Contains([]string{"redis", "rediss", "redis+cluster", "rediss+cluster"}, scheme):
		store, err := redis.Open(name, redis.Options{})
		if err != nil {
			return nil, nil, err
		}
		return store, store, nil
	case isURL && (scheme == "postgres" || scheme == "postgresql"):
		store, err := postgres.Open(name, postgres.Options{})
		if err != nil {
			return nil, nil, err
		}
		return store, store, nil
	}
	// What comes before :// is no secret; anything else might be.
	got := ""
	if isURL {
		got = fmt.Sprintf(", got %.20q", scheme+"://…")
	}
	return nil, nil, fmt.Errorf("want memory, redis://…, rediss://…, redis+cluster://…, rediss+cluster://… or postgres://…%s", got)
}
