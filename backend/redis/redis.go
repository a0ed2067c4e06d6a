// Package redis is a [backend.Store] in Redis 6 or later, or a server that speaks and scripts like it. Any number of
// backends may share one, and they agree on the time, which is Redis's.
//
// A namespace N has these keys, all with one hash tag:
//
//	weir:{N}:counter:<identity in hex>:<kind>:<ordinal>:<width in ms>   hash: window to hits
//	weir:{N}:sender:<sender in hex>                                     sorted set: sequences applied, and the floor
//
// Counters of kind 4 have :<precision in ns> behind them. A token bucket's hash has its limit besides.
//
// They expire by themselves. A push is one round trip and one script, push.lua; it is sent again when the connection
// breaks, as it can't be applied twice. Redis must not evict keys that have not expired (maxmemory-policy noeviction or
// volatile-ttl), or hits are forgotten. A key or a field under these names that the store has not written does no harm:
// it is not counted, and replaced when its counter is next written.
package redis

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"weir/backend"
	"weir/window"
	"weir/wire"
)

// Options has what a store can be told. The zero value is good.
type Options struct {
	// Now is the clock that the store goes by in place of Redis's if it is not nil. It is for tests: keys expire in
	// Redis when their time has passed there, too.
	Now func() time.Time
}

// Store is a [backend.Store]. Use [Open] to make one.
type Store struct {
	client *goredis.Client
	now    func() time.Time
}

var _ backend.Store = (*Store)(nil)

// Open returns a store in the Redis at a URL such as rediss://user:password@host:6379/0. It does not connect yet.
// Parameters of the URL's query are those of go-redis, read_timeout among them. Errors do not repeat the URL, which may
// hold a password.
func Open(url string, o Options) (*Store, error) {
	options, err := goredis.ParseURL(url)
	if err != nil {
		return nil, errors.New("redis url: want redis://[[user]:password@]host[:port][/database] or rediss://…, " +
			"with special characters of the password escaped as in %2F")
	}
	options.ContextTimeoutEnabled = true
	// Commands are tried again, and more often than senders wait for; each of these tries needs not dial more than once.
	options.DialerRetries = 1
	options.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return &Store{client: goredis.NewClient(options), now: o.Now}, nil
}

// Close ends all connections.
func (s *Store) Close() error { return s.client.Close() }

// Ping implements [backend.Store].
func (s *Store) Ping(ctx context.Context) error {
	if err := s.client.Ping(ctx).Err(); err != nil {
		return fmt.Errorf("redis: %w", err)
	}
	return nil
}

//go:embed push.lua
var pushSource string

var pushScript = goredis.NewScript(pushSource)

// Push implements [backend.Store].
func (s *Store) Push(ctx context.Context, p *wire.Push, nodes uint64) (backend.Outcome, error) {
	if err := backend.Check(p); err != nil {
		return backend.Outcome{}, err
	}
	if err := ctx.Err(); err != nil {
		return backend.Outcome{}, err
	}
	keys, args := s.arguments(p)
	reply, err := pushScript.Run(ctx, s.client, keys, args...).StringSlice()
	if err != nil {
		return backend.Outcome{}, fmt.Errorf("redis: push: %w", err)
	}
	out, err := outcome(p, reply)
	if err != nil {
		return backend.Outcome{}, fmt.Errorf("redis: answer of the push script: %w", err)
	}
	return out, nil
}

// nanosFormat is of numbers that push.lua compares as strings.
const nanosFormat = "%020d"

// arguments are what push.lua describes.
func (s *Store) arguments(p *wire.Push) (keys []string, args []any) {
	now, hits := "", "1"
	if s.now != nil {
		now = strconv.FormatInt(s.now().UnixMicro(), 10)
	}
	if backend.IsRead(p) {
		hits = "0"
	}
	keys = make([]string, 0, 1+len(p.Items))
	keys = append(keys, senderKey(p.Namespace, p.Sender))
	args = make([]any, 0, 9+8*len(p.Items))
	args = append(args, now, p.Sequence, p.Floor, hits,
		backend.SenderLife.Milliseconds(), backend.Grace.Milliseconds(), backend.Ahead.Milliseconds(), backend.WindowsAhead,
		wire.MaxBuckets)
	for i := range p.Items {
		item := &p.Items[i]
		keys = append(keys, counterKey(p.Namespace, item.Counter))
		format, buckets := "%d", uint64(0)
		switch window.Kind(item.Kind) {
		case window.FirstHitWindow, window.TokenBucket:
			format = nanosFormat
		case window.SlidingBuckets:
			if item.Precision != uint64(window.LogPrecision) {
				buckets = item.WidthMillis * 1e6 / item.Precision
			}
		}
		args = append(args, item.Kind, item.WidthMillis, buckets, item.Limit, fmt.Sprintf(format, item.Newest), len(item.Hits))
		for j, h := range item.Hits {
			args = append(args, h)
			if window.Kind(item.Kind) == window.SlidingBuckets {
				args = append(args, fmt.Sprintf(nanosFormat, item.Newest-item.Ages[j]))
			}
		}
	}
	return keys, args
}

// outcome reads the script's reply.
func outcome(p *wire.Push, reply []string) (out backend.Outcome, err error) {
	next := func() (n uint64) {
		if err != nil {
			return 0
		}
		if len(reply) == 0 {
			err = errors.New("too short")
			return 0
		}
		n, err = strconv.ParseUint(reply[0], 10, 64)
		reply = reply[1:]
		return n
	}
	out.Answer.NowNanos = next()
	out.Duplicate = next() != 0
	out.Applied, out.Returned, out.Dropped, out.Repaired = int64(next()), int64(next()), int64(next()), int64(next())
	out.Answer.Totals = make([]wire.Total, len(p.Items))
	clock := backend.Clock{NowNanos: out.Answer.NowNanos}
	for i := range p.Items {
		item := &p.Items[i]
		t := wire.Total{Newest: next()}
		n := next()
		if n > uint64(len(reply)) {
			return out, errors.New("too short")
		}
		if window.Kind(item.Kind) == window.SlidingBuckets {
			buckets := make([]backend.Window, n)
			for j := range buckets {
				hits := int64(next())
				buckets[j] = backend.Window{Number: next(), Hits: hits}
			}
			slices.SortFunc(buckets, func(a, b backend.Window) int { return cmp.Compare(b.Number, a.Number) })
			t = clock.BucketTotal(item, buckets)
		} else {
			t.Hits = make([]uint64, n)
			for j := range t.Hits {
				t.Hits[j] = next()
			}
		}
		out.Answer.Totals[i] = t
	}
	return out, err
}

// Join implements [backend.Store].
func (s *Store) Join(ctx context.Context, namespace string, node uint64) (nodes uint64, err error) {
	return 1, nil
}

// Counters implements [backend.Store]. It walks all keys of the database, and remembers which counters it has visited.
func (s *Store) Counters(ctx context.Context, namespace string, widths []uint64, visit func(backend.Counter) error) error {
	visited := make(map[wire.Counter]struct{})
	var cursor uint64
	for {
		keys, next, err := s.client.Scan(ctx, cursor, counterPrefix(namespace)+"*", 1000).Result()
		if err != nil {
			return fmt.Errorf("redis: scan: %w", err)
		}
		var counters []wire.Counter
		for _, key := range keys {
			c, ok := parseCounterKey(namespace, key)
			if _, twice := visited[c]; ok && !twice {
				visited[c] = struct{}{}
				counters = append(counters, c)
			}
		}
		live, err := s.live(ctx, namespace, counters)
		if err != nil {
			return fmt.Errorf("redis: counters: %w", err)
		}
		for _, c := range live {
			if err := visit(c); err != nil {
				return err
			}
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

// live reads counters, and returns those that have a window that counts.
func (s *Store) live(ctx context.Context, namespace string, counters []wire.Counter) ([]backend.Counter, error) {
	if len(counters) == 0 {
		return nil, nil
	}
	pipe := s.client.Pipeline()
	serverTime := pipe.Time(ctx)
	hashes := make([]*goredis.MapStringStringCmd, len(counters))
	for i, c := range counters {
		hashes[i] = pipe.HGetAll(ctx, counterKey(namespace, c))
	}
	// A key of another type fails alone, and is not ours.
	if _, err := pipe.Exec(ctx); err != nil && !wrongType(err) {
		return nil, err
	}
	now, err := serverTime.Result()
	if err != nil {
		return nil, err
	}
	if s.now != nil {
		now = s.now()
	}
	clock := backend.Clock{NowNanos: uint64(now.UnixNano())}
	var live []backend.Counter
	for i, c := range counters {
		fields, err := hashes[i].Result()
		if wrongType(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		found := backend.Counter{Counter: c, Windows: parseWindows(fields)}
		if limit, err := strconv.ParseUint(fields["limit"], 10, 64); err == nil {
			found.Limit = limit
		}
		if found.Windows = clock.Counting(found); len(found.Windows) > 0 {
			live = append(live, found)
		}
	}
	return live, nil
}

func wrongType(err error) bool { return err != nil && goredis.HasErrorPrefix(err, "WRONGTYPE") }

func parseWindows(fields map[string]string) []backend.Window {
	windows := make([]backend.Window, 0, len(fields))
	for field, value := range fields {
		number, errNumber := strconv.ParseUint(field, 10, 64)
		hits, errHits := strconv.ParseInt(value, 10, 64)
		if errNumber == nil && errHits == nil && hits <= wire.MaxHits && hits >= -wire.MaxHits {
			windows = append(windows, backend.Window{Number: number, Hits: hits})
		}
	}
	return windows
}

func counterPrefix(namespace string) string { return "weir:{" + namespace + "}:counter:" }

func counterKey(namespace string, c wire.Counter) string {
	key := fmt.Sprintf("%s%x:%d:%d:%d", counterPrefix(namespace), c.ID, c.Kind, c.Ordinal, c.WidthMillis)
	if c.Precision != 0 {
		key += fmt.Sprintf(":%d", c.Precision)
	}
	return key
}

func senderKey(namespace string, sender uint64) string {
	return fmt.Sprintf("weir:{%s}:sender:%016x", namespace, sender)
}

// parseCounterKey takes apart what counterKey has made, and nothing else.
func parseCounterKey(namespace, key string) (c wire.Counter, ok bool) {
	parts := strings.Split(strings.TrimPrefix(key, counterPrefix(namespace)), ":")
	if len(parts) < 4 || len(parts) > 5 || len(parts[0]) != hex.EncodedLen(len(c.ID)) {
		return c, false
	}
	_, errID := hex.Decode(c.ID[:], []byte(parts[0]))
	kind, errKind := strconv.ParseUint(parts[1], 10, 8)
	ordinal, errOrdinal := strconv.ParseUint(parts[2], 10, 8)
	width, errWidth := strconv.ParseUint(parts[3], 10, 64)
	var precision uint64
	var errPrecision error
	if len(parts) == 5 {
		precision, errPrecision = strconv.ParseUint(parts[4], 10, 64)
	}
	if errors.Join(errID, errKind, errOrdinal, errWidth, errPrecision) != nil {
		return c, false
	}
	c.Kind, c.Ordinal, c.WidthMillis, c.Precision = uint8(kind), uint8(ordinal), width, precision
	return c, backend.ValidCounter(c) && counterKey(namespace, c) == key
}
