// Package redis is a [store.Store] in Redis 6 or later, in a server with the same protocol and
// scripts, or in a Redis Cluster. Any number of backends may share it. They all go by Redis's clock.
//
// A namespace N has these keys:
//
//	weir:{N}:counter:<identity in hex>:<kind>:<ordinal>:<width in ms>   hash: window to hits; a log is a string of records
//	weir:{N}:sender:<sender in hex>                                     sorted set: applied sequences, their grants, and the floor
//	weir:{N}:lock                                                       string: the backend that may write counters as they were seen
//	weir:{N}:nodes                                                      sorted set: nodes, and when they joined
//	weir:{N}:overrides                                                  hash: the list of overrides, and its version
//	weir:{N}:told                                                       hash: nodes, and by which list they decide
//	weir:{N}:reports                                                    hash: senders, and their reports on their keys
//	weir:{N}:fleet                                                      hash: limits whose hits are advanced, senders' parts, and their sums
//	weir:{N}:fleet:near                                                 sorted set: near keys, and the versions that list them
//	weir:{N}:fleet:heard, :divisors, :answered and :silent              sorted sets: senders by what their parts have
//	weir:{N}:used:<day>                                                 hash: labels to their used hits of a day
//	weir:{N}:used:sender:<sender in hex>                                string: the last sequence of the sender's messages on used hits
//
// The key of a counter with a precision ends in :<precision in ns>. A token bucket's hash also has its
// limit. A log's string has 16 bytes for each moment with hits.
//
// All keys expire, except the overrides. A push is decided here, by the contents that were seen
// last, and written by a script, commit.lua, in one round trip. If others have written meanwhile, it
// is decided again. If the connection breaks, it is sent again, because it can't be applied twice.
// Redis must not evict keys that have not expired (only maxmemory-policy noeviction prevents that),
// or hits are forgotten. A key or a field with these names that the store has not written is
// harmless: it is not counted, and is replaced when its counter is next written, or a window later.
//
// The takes of a push that get all that they ask for in windows of the clock are written by lone.lua, with few commands, if
// nothing else is to be done: the sender's record is known to live on. What lone.lua does not settle it leaves to commit.lua,
// which does the same. So a repeated push is always answered by commit.lua.
//
// # Large pushes
//
// Redis serves nobody else while a script runs. So a push that has to read many logs is divided into
// several scripts, which run one after the other. Each has its own entry in the sender's record,
// with +1, +2 and so on after the sequence. Items and takes are divided in the same way whenever the
// push comes. So if the push is cut short and sent again, no script is applied twice. Others may see
// a part of the push. A take is never divided.
//
// A script reads at most twice as much of a log as the requested limits need, even if the log is
// longer. wire.MaxAnswer bounds the sum of these limits, and so how much Redis reads for a push.
//
// # Redis Cluster
//
// In a cluster the counters and senders of a namespace are in 32 partitions, with the hash tags
// {N/000} to {N/332}, which are spread evenly over the slots. A key's identity, and so all of its
// limits, is in one partition. A push needs a script for each partition that it touches, and sends
// the scripts together. Each partition has its own record of the sender. If some partitions fail,
// for instance while a replica takes over or a slot moves, the answer lacks their parts. The push is
// sent again, and each partition applies it once.
//
// If a take's rooms are in one partition, it is a single step, as on one server. If they are in
// several, it is a step, and a round trip, for each. If a later partition has not granted as much as
// the first have, a last step gives the surplus back. Each step has its own record of the sender,
// with :1, :2 and so on, or :last, after its key. Such a take never passes more than the limits, and
// in the end gets all of its rooms or none. If it is cut short, it can be repeated with the same
// answer. Until it ends, totals include its hits, and takes of others may be refused for them. If
// its sender never repeats it, that lasts until their window ends. A window that starts with its
// first hit stays begun even if that hit is given back.
//
// A counter goes by the clock of its server. The time of an answer is the earliest of the servers
// that were asked. A grant has a single time, which names windows. So a lease over several
// partitions is refused while their servers' clocks are in different windows, and always if it has
// a room of a sliding log.
//
// # Replicas
//
// Redis answers before its replicas have a write. If the server is then lost, and a replica takes
// over, the write is lost. With wait_replicas=n in the URL, a push is answered when n replicas of
// each of its servers have it. If they don't have it within 100 ms, or the URL's wait_timeout, its
// part fails and is sent again. So hits survive the loss of a server. But while a server has fewer
// replicas, it counts nothing.
package redis

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"weir/internal/store"
	"weir/internal/wire"
)

// Format is the version of the keys' contents. It changes when an older version of Weir could not
// read them, and then all keys get other names.
const Format = 1

// Options configure a store. The zero value is ready to use.
type Options struct {
	// Now is the store's clock in place of Redis's, if it is not nil. It is for tests: in Redis
	// keys still expire by Redis's own time.
	Now func() time.Time
	// RootCAs are who may have signed the certificates of servers; the system's if nil.
	RootCAs *x509.CertPool
}

// Store is a [store.Store]. [Open] makes one. It is safe for concurrent use.
type Store struct {
	client    goredis.UniversalClient
	keys      keys
	sentinels *sentinels // that know which server client is to reach; nil for none
	now       func() time.Time
	// replicas is how many must have a push before it is answered.
	replicas  int
	patience  time.Duration
	trial     *store.Trial
	masters   masters
	committer *committer
	fleets    recent[*fleet]
	walks     recent[*walk]  // by namespace
	near      recent[uint64] // since when keys are near, as far as this backend has seen, by their members
	walking   sync.Mutex     // held for a step of a walk
}

var _ store.Store = (*Store)(nil)

// Open returns a store in the Redis at a URL such as rediss://user:password@host:6379/0, or in the
// Redis Cluster of which redis+cluster://user:password@host:6379,host:6379 names some nodes
// (rediss+cluster:// with TLS), or in the master that the Sentinels at redis+sentinel://user:password@host:26379,host/master/0
// name. It does not connect yet. Parameters of the URL's query are those of
// go-redis, read_timeout among them, wait_replicas, which is 0 by default, and auth, which gets passwords that expire. Errors do not repeat
// the URL, which may hold a password. Nothing is logged, and go-redis's logger, which all clients of
// a process share, stays as it is.
func Open(url string, o Options) (*Store, error) {
	at, err := parseURL(url)
	if err != nil {
		return nil, fmt.Errorf("redis url: %w", err)
	}
	s := &Store{now: o.Now, replicas: at.replicas, patience: at.patience, trial: store.NewTrial()}
	hook := waitHook{replicas: at.replicas, timeout: at.patience}
	newClient := func(options *goredis.Options) *goredis.Client {
		// Commands are tried again, and more often than senders wait for; each of these tries needs not
		// dial more than once. Pipelines and single commands need no pools of their own. No server has
		// anything to tell that it was not asked for, as it could by RESP3, nor needs to know the client's
		// name, which takes a right and is logged where a user has it not.
		options.ContextTimeoutEnabled, options.DialerRetries, options.DisableIdentity = true, 1, true
		options.PipelinePoolSize = cmp.Or(options.PipelinePoolSize, -1)
		options.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
		if options.TLSConfig != nil {
			options.TLSConfig = options.TLSConfig.Clone() // all servers of a cluster have the same
			options.TLSConfig.RootCAs = o.RootCAs
		}
		options.Protocol = cmp.Or(options.Protocol, 2)
		options.Dialer = quietly(cmp.Or(options.DialTimeout, dialTimeout), options.TLSConfig)
		if at.sentinels != nil {
			at.sentinels.open(options)
		}
		if at.credentials != nil {
			options.CredentialsProviderContext = at.credentials
			options.ConnMaxLifetime = cmp.Or(options.ConnMaxLifetime, renewedAfter)
		}
		client := goredis.NewClient(options)
		client.AddHook(hook)
		return client
	}
	if at.cluster == nil {
		s.client, s.keys, s.sentinels = newClient(at.server), keys{partitions: 1}, at.sentinels
	} else {
		options := at.cluster
		// All pauses of a call together are less than leastPatience, or its caller's time would be over before the error that says
		// that a slot moves.
		options.MinRetryBackoff = cmp.Or(options.MinRetryBackoff, 2*time.Millisecond)
		options.MaxRetryBackoff = cmp.Or(options.MaxRetryBackoff, 8*time.Millisecond)
		options.ContextTimeoutEnabled, options.NewClient = true, newClient
		s.client, s.keys = goredis.NewClusterClient(options), keys{partitions: clusterPartitions}
	}
	s.committer, s.fleets.most, s.walks.most, s.near.most = newCommitter(s), seenFleets, seenFleets, seenNear
	return s, nil
}

// Close closes all connections.
func (s *Store) Close() error {
	s.masters.close()
	return errors.Join(s.client.Close(), s.sentinels.close())
}

// Ping implements [store.Store]. It tries all partitions.
func (s *Store) Ping(ctx context.Context) error {
	p := s.trial.Next()
	if s.keys.partitions > 1 {
		p = s.trial.Everywhere()
	}
	out, err := s.Push(ctx, p, 1)
	if err != nil || out.Lacking == nil {
		return err
	}
	lacks := 0
	for _, m := range out.Answer.Missing {
		if m != wire.Answered {
			lacks++
		}
	}
	return fmt.Errorf("redis: %w: %d of %d partitions take no hits: %w", store.ErrPartly, lacks, s.keys.partitions, out.Lacking)
}

// reload has a cluster's client ask soon which server has which keys. By itself it asks only after
// a while or a redirection.
func (s *Store) reload(ctx context.Context) {
	if cluster, ok := s.client.(*goredis.ClusterClient); ok {
		cluster.ReloadState(ctx)
	}
}

// Counters implements [store.Store]. It scans all keys of the database, or of all masters of a
// cluster one by one, and remembers which counters it has visited. It may miss a counter that moves
// to another master meanwhile. For a single key the server searches the names of all keys, too: that
// is rarely asked for, and an index would cost every push.
func (s *Store) Counters(ctx context.Context, namespace string, only *store.Wanted, visit func(store.LimitCounter) error) error {
	servers, err := s.servers(ctx, false)
	if err != nil {
		return fmt.Errorf("redis: %w", err)
	}
	pattern := s.keys.counters(namespace)
	if only != nil && only.Key != nil {
		pattern = s.keys.countersOf(namespace, *only.Key)
	}
	visited := make(map[wire.LimitCounter]struct{})
	for _, server := range servers {
		if err := s.scan(ctx, server, namespace, pattern, func(c wire.LimitCounter) bool {
			_, twice := visited[c]
			visited[c] = struct{}{}
			return !twice && only.Wants(c)
		}, visit); err != nil {
			return err
		}
	}
	return nil
}

// servers are those that have keys, and with replicas those that may have them next.
func (s *Store) servers(ctx context.Context, replicas bool) (servers []*goredis.Client, err error) {
	switch client := s.client.(type) {
	case *goredis.Client:
		servers = append(servers, client)
	case *goredis.ClusterClient:
		var mu sync.Mutex
		each := client.ForEachMaster
		if replicas {
			each = client.ForEachShard
		}
		err = each(ctx, func(_ context.Context, server *goredis.Client) error {
			mu.Lock()
			defer mu.Unlock()
			servers = append(servers, server)
			return nil
		})
	}
	return servers, err
}

// scan visits those counters of a namespace on a server whose keys match a pattern and that are
// wanted.
func (s *Store) scan(ctx context.Context, server *goredis.Client, namespace, pattern string, wanted func(wire.LimitCounter) bool,
	visit func(store.LimitCounter) error) error {
	var cursor uint64
	for {
		found, next, err := server.Scan(ctx, cursor, pattern, 1000).Result()
		if err != nil {
			s.reload(ctx)
			return fmt.Errorf("redis: scan: %w", err)
		}
		var counters []wire.LimitCounter
		for _, key := range found {
			if c, ok := s.keys.parse(namespace, key); ok && wanted(c) {
				counters = append(counters, c)
			}
		}
		live, err := s.live(ctx, server, namespace, counters)
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

// live reads counters that a server has, and returns those that have a window that counts.
func (s *Store) live(ctx context.Context, server *goredis.Client, namespace string, counters []wire.LimitCounter) ([]store.LimitCounter, error) {
	if len(counters) == 0 {
		return nil, nil
	}
	pipe := s.client.Pipeline() // which follows those that have moved
	hashes, logs := make([]*goredis.MapStringStringCmd, len(counters)), make([]*goredis.StringCmd, len(counters))
	for i, c := range counters {
		if key := s.keys.counter(namespace, c); c.Shape().IsLog() {
			logs[i] = pipe.Get(ctx, key)
		} else {
			hashes[i] = pipe.HGetAll(ctx, key)
		}
	}
	// A key of another type fails alone, and is not ours; one may have expired since.
	if _, err := pipe.Exec(ctx); err != nil && !notOurs(err) {
		return nil, err
	}
	now, err := server.Time(ctx).Result()
	if err != nil {
		return nil, err
	}
	if s.now != nil {
		now = s.now()
	}
	calendar := store.Calendar{NowNanos: uint64(now.UnixNano())}
	var live []store.LimitCounter
	for i, c := range counters {
		found := store.LimitCounter{LimitCounter: c}
		if logs[i] != nil {
			records, err := logs[i].Result()
			if err != nil && !notOurs(err) {
				return nil, err
			}
			found.Windows = parseRecords(records).contents.Windows
		} else {
			fields, err := hashes[i].Result()
			if err != nil && !notOurs(err) {
				return nil, err
			}
			is := make([]string, 0, 2*len(fields))
			for _, field := range slices.Sorted(maps.Keys(fields)) { // of a first-hit window the first counts alone
				is = append(is, field, fields[field])
			}
			contents := parseHash(c, is).contents
			found.Windows, found.Limit = contents.Windows, contents.Limit
		}
		if found.Windows = calendar.Counting(found); len(found.Windows) > 0 {
			live = append(live, found)
		}
	}
	return live, nil
}

// notOurs reports whether an error of reading a key says that no counter is there.
func notOurs(err error) bool {
	return errors.Is(err, goredis.Nil) || err != nil && goredis.HasErrorPrefix(err, "WRONGTYPE")
}
