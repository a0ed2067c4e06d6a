package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"weir/internal/store"
	"weir/internal/store/file"
	"weir/internal/store/memory"
	"weir/internal/store/open"
	"weir/internal/store/region"
)

// storeFlags say which store to open.
type storeFlags struct {
	// url is the flag, and name the value that resolve finds.
	url  secret
	name string
	// from names the flag or the variable in errors; empty for --store.
	from string
	// maxCounters bounds a store in memory or in a file; 0 means the store's own bound.
	maxCounters int
}

// mostCounters is more than fits the memory of any machine.
const mostCounters = 1 << 30

// define defines --store and --store-file.
func (f *storeFlags) define(flags *flag.FlagSet) {
	f.url.define(flags, "store",
		"`store` that keeps the counters: memory, file:PATH, or the URL of a store: redis://…, rediss://…, redis+cluster://… or postgres://…; "+
			"a URL with a password is better given as WEIR_STORE or in a file, which other users can't see (default memory)",
		"`file` with the value of --store")
}

// resolve finds the store's name. Errors do not repeat it.
func (f *storeFlags) resolve(env environment) (err error) {
	if f.name, err = f.url.read(env); f.name == "" {
		f.name = "memory"
	}
	f.from = f.url.origin()
	return err
}

// boundFlag defines --max-counters.
func (f *storeFlags) boundFlag(flags *flag.FlagSet) {
	usage := fmt.Sprintf("keep `N` counters at most, in --store memory or file:PATH only; when it is full, the counters that used the least of their limits make room (default %d)", memory.DefaultMaxCounters)
	flags.Func("max-counters", usage, func(text string) error {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > mostCounters {
			return fmt.Errorf("want 1 to %d", mostCounters)
		}
		f.maxCounters = n
		return nil
	})
}

// kind returns the kind of store. The part of the name before the colon is no secret.
func (f *storeFlags) kind() string {
	kind, _, _ := strings.Cut(f.name, ":")
	return kind
}

// openStore is a store with a Close method.
type openStore struct {
	store.Store
	io.Closer
}

// open opens the store, whose server need not be running yet. Errors wrap [errUsage], except those
// about the state of a file. granter is a region's; nil without a parent.
func (f storeFlags) open(granter *region.Store) (openStore, error) {
	o := open.Options{MaxCounters: f.maxCounters}
	if granter != nil {
		o.Granter, o.Now = granter, granter.Now
	}
	from := cmp.Or(f.from, "--store")
	s, closer, err := open.Store(f.name, o)
	var unfit *file.Error
	switch {
	case errors.Is(err, open.ErrUnbounded):
		return openStore{}, fmt.Errorf("%w: --max-counters: want it with --store memory or file:PATH only", errUsage)
	case errors.As(err, &unfit):
		return openStore{}, fmt.Errorf("%s: %w", from, err)
	case errors.Is(err, open.ErrNoGranter):
		return openStore{}, err
	case err != nil:
		return openStore{}, fmt.Errorf("%w: %s: %w", errUsage, from, err)
	}
	return openStore{s, closer}, nil
}

// tryTimeout is how long to wait for a store.
const tryTimeout = 5 * time.Second

// try checks whether the store accepts hits.
func (s openStore) try(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	return s.Ping(ctx)
}
