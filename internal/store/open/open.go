// Package open opens stores by their names.
package open

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"weir/internal/store"
	"weir/internal/store/file"
	"weir/internal/store/memory"
	"weir/internal/store/postgres"
	"weir/internal/store/redis"
)

// Options configure a store. The zero value is ready to use.
type Options struct {
	// MaxCounters is as in [memory.Options], for stores in memory and in a file. Others must have
	// 0.
	MaxCounters int
	// MaxMemory is as in [memory.Options], for stores in memory and in a file. Others keep nothing.
	MaxMemory int
	// Granter is as in [memory.Options], for stores in memory and in a file. Others must have nil.
	Granter store.Granter
	// Now is the clock of stores in memory and in a file; nil means time.Now.
	Now func() time.Time
}

// ErrUnbounded is returned for a MaxCounters of a store that can't bound its counters.
var ErrUnbounded = errors.New("only a store in memory or in a file can bound its counters")

// ErrNoGranter is returned for a Granter of a store that can't have one.
var ErrNoGranter = errors.New("only a store in memory or in a file can have a parent")

// Formats returns the names and versions of the stores' formats. Backends can share a store only if
// their formats are equal.
func Formats() string {
	return fmt.Sprintf("file %d, PostgreSQL %d, Redis %d", file.Format, postgres.Format, redis.Format)
}

// Store opens a store by name: memory, file: and a path, or the URL of a Redis, a Redis Cluster or
// a PostgreSQL. It does not wait for a server to be reachable. A file that can't be opened is a
// [file.Error]. The caller must close the store. Errors do not repeat parts that may hold a
// password.
func Store(name string, o Options) (store.Store, io.Closer, error) {
	if name == "memory" {
		return memory.New(memory.Options{MaxCounters: o.MaxCounters, MaxMemory: o.MaxMemory, Granter: o.Granter, Now: o.Now}), io.NopCloser(nil), nil
	}
	if path, ok := strings.CutPrefix(name, "file:"); ok {
		return inFile(path, o)
	}
	scheme, _, isURL := strings.Cut(name, "://")
	switch {
	case isURL && o.MaxCounters != 0:
		return nil, nil, ErrUnbounded
	case isURL && o.Granter != nil:
		return nil, nil, ErrNoGranter
	case isURL && slices.Contains(redis.Schemes, scheme):
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
	// The part before :// is no secret; anything else might be.
	got := ""
	if isURL {
		got = fmt.Sprintf(", got %.20q", scheme+"://…")
	}
	return nil, nil, fmt.Errorf("want memory, file:PATH, redis://…, redis+cluster://…, redis+sentinel://…, rediss… of these for TLS, or postgres://…%s", got)
}

// inFile opens a store in a file. It also accepts a URL, as other programs write it:
// file:///a/weir.db means file:/a/weir.db.
func inFile(path string, o Options) (store.Store, io.Closer, error) {
	if rest, isURL := strings.CutPrefix(path, "//"); isURL && !strings.HasPrefix(rest, "/") || path == "" {
		return nil, nil, errors.New("want a path after file:, such as file:/var/lib/weir/weir.db")
	} else if isURL {
		path = rest
	}
	store, err := file.Open(path, file.Options{MaxCounters: o.MaxCounters, MaxMemory: o.MaxMemory, Granter: o.Granter, Now: o.Now})
	if err != nil {
		return nil, nil, err
	}
	return store, store, nil
}
