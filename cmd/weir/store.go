package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"weir/internal/store"
	"weir/internal/store/file"
	"weir/internal/store/memory"
	"weir/internal/store/open"
	"weir/internal/store/region"
)

type storeFlags struct {
	// url is the flag, and name the value that resolve finds.
	url  secret
	name string
	// from names the flag or the variable in errors; empty for --store.
	from string
	// maxCounters bounds a store in memory or in a file; 0 means the store's own bound.
	maxCounters int
	// memory bounds what the counters take.
	memory maxMemory
	// bytes is the part of memory for the store.
	bytes int
}

// maxMemory bounds the memory of a process's counters, in bytes; 0 for no bound.
type maxMemory int64

const (
	// leastMemory is less than the smallest process has besides.
	leastMemory = 16 << 20
	// besidesMemory is the memory of a process without counters: code, which is half of it, connections,
	// messages.
	besidesMemory = 64 << 20
)

// Set implements flag.Value. It takes bytes, or a number of Ki, Mi or Gi, as in Kubernetes.
func (m *maxMemory) Set(text string) error {
	number, shift := text, 0
	for i, unit := range []string{"Ki", "Mi", "Gi"} {
		if rest, has := strings.CutSuffix(text, unit); has {
			number, shift = rest, 10*(i+1)
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 1 || n > 1<<46>>shift || n<<shift < leastMemory {
		return fmt.Errorf("want %dMi or more, in bytes, Ki, Mi or Gi", leastMemory>>20)
	}
	*m = maxMemory(n << shift)
	return nil
}

// divide divides the memory between a store, if it keeps its counters in this process, and the nodes
// of the rate limit service, if there are any. It has Go collect garbage in time: some of the memory
// is for that.
func (m maxMemory) divide(inProcess, withNodes bool, getenv func(string) string) (ofStore, ofNodes int) {
	if m == 0 {
		return 0, 0
	}
	if getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(int64(m) + besidesMemory/2)
	}
	live := int(m) / 8 * 5
	switch {
	case inProcess && withNodes:
		return live / 4 * 3, live / 4
	case inProcess:
		return live, 0
	}
	return 0, live
}

// mostCounters is more than fits the memory of any machine.
const mostCounters = 1 << 30

func (f *storeFlags) define(flags *flag.FlagSet) {
	f.url.define(flags, "store",
		"`store` that keeps the counters: memory, file:PATH, or the URL of a store: redis://…, redis+cluster://…, redis+sentinel://…, rediss… of these for TLS, or postgres://…; "+
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

func (f *storeFlags) memoryFlag(flags *flag.FlagSet) {
	flags.Func("max-memory", "`BYTES` that the counters of this process take at most, those of --store memory or file:PATH and of --rate-limit-service, "+
		"with what Go needs to collect garbage; in bytes, or with Ki, Mi or Gi; beside it the process takes some 64Mi; when it is full, counters make room as with --max-counters; no bound if it is left out", f.memory.Set)
}

// inProcess reports whether the store keeps its counters in this process.
func (f *storeFlags) inProcess() bool { return f.kind() == "memory" || f.kind() == "file" }

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
	o := open.Options{MaxCounters: f.maxCounters, MaxMemory: f.bytes}
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
