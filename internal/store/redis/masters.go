package redis

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"weir/internal/panics"
	"weir/internal/store"
	"weir/internal/wire"
)

// masters remembers which masters of a cluster have failed, by address. A master that is down, or
// has too few replicas, would delay every push with hits for it.
type masters struct {
	mu     sync.Mutex
	failed map[string]*failure
	closed bool
	trials sync.WaitGroup
}

type failure struct {
	err    error
	tried  time.Time // when the last trial began
	trying bool
}

const (
	// trialEvery is the least time between trials of a failed master.
	trialEvery = 100 * time.Millisecond
	// trialTimeout bounds a trial.
	trialTimeout = time.Second
)

// errLeftAlone is the error of batches that are not sent because their master has failed.
var errLeftAlone = errors.New("nothing is sent there until a trial succeeds")

// failure returns why a master has failed; nil if it has not. If try is true, the caller must try
// the master again.
func (m *masters) failure(addr string) (err error, try bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f := m.failed[addr]
	if f == nil {
		return nil, false
	}
	if try = !m.closed && !f.trying && time.Since(f.tried) >= trialEvery; try {
		f.trying, f.tried = true, time.Now()
		m.trials.Add(1)
	}
	return f.err, try
}

// note records the result of a call to a master.
func (m *masters) note(addr string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f := m.failed[addr]
	switch {
	case err == nil:
		delete(m.failed, addr)
	case f != nil:
		f.err = err
	default:
		if m.failed == nil {
			m.failed = map[string]*failure{}
		}
		m.failed[addr] = &failure{err: err, tried: time.Now()}
	}
}

// tried records the result of a trial.
func (m *masters) tried(addr string, err error) {
	m.note(addr, err)
	m.mu.Lock()
	defer m.mu.Unlock()
	if f := m.failed[addr]; f != nil {
		f.trying = false
	}
	m.trials.Done()
}

// close waits for running trials, and prevents new trials.
func (m *masters) close() {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	m.trials.Wait()
}

// master returns the address of the master that has a key; empty for a single server. It returns an
// error if no server of the cluster can be reached, so that its masters are unknown.
func (s *Store) master(ctx context.Context, key string) (addr string, err error) {
	cluster, ok := s.client.(*goredis.ClusterClient)
	if !ok {
		return "", nil
	}
	client, err := masterForKey(ctx, cluster, key)
	if err != nil {
		return "", err
	}
	return client.Options().Addr, nil
}

// mapTries bounds the attempts to read which master has which slots.
const mapTries = 8

// masterForKey is MasterForKey for a client that may not know the masters yet. It then asks a
// random server, which may be the very server that does not answer. So each attempt has a part of
// the time.
func masterForKey(ctx context.Context, cluster *goredis.ClusterClient, key string) (client *goredis.Client, err error) {
	until, bounded := ctx.Deadline()
	if !bounded {
		return cluster.MasterForKey(ctx, key)
	}
	each := time.Until(until) / mapTries
	for range mapTries {
		part, cancel := context.WithTimeout(ctx, each)
		client, err = cluster.MasterForKey(part, key)
		late := part.Err() != nil
		cancel()
		if err == nil || !late || ctx.Err() != nil {
			break
		}
	}
	return client, err
}

// leftAlone returns why nothing is sent to a master now; nil if it has not failed.
func (s *Store) leftAlone(addr string) error {
	err, try := s.masters.failure(addr)
	if err == nil {
		return nil
	}
	if try {
		go s.try(addr)
	}
	return errors.Join(err, errLeftAlone)
}

// without returns why a key can't be reached now; nil if its master has not failed.
func (s *Store) without(ctx context.Context, key string) error {
	addr, err := s.master(ctx, key)
	if err != nil {
		return err
	}
	return s.leftAlone(addr)
}

// blame returns the error of any batch that means that the batches' master has failed; nil if none does.
func blame(batches []*batch) error {
	for _, b := range batches {
		if b.err != nil && blames(b.err) {
			return b.err
		}
	}
	return nil
}

// blames reports whether an error means that the master has failed. A caller's deadline may have been too short, and a slot that
// moves, or that no master has, does not affect other slots.
func blames(err error) bool {
	return !errors.Is(err, context.Canceled) && !errors.As(err, new(hurried)) &&
		!goredis.HasErrorPrefix(err, "TRYAGAIN") && !goredis.HasErrorPrefix(err, "CLUSTERDOWN Hash slot")
}

// hurried is the error of a call for which too little time was left, or none.
type hurried struct{ error }

// Unwrap returns what has ended the call.
func (h hurried) Unwrap() error { return h.error }

// leastPatience is how long a call must have waited for its timeout to count as the master's
// failure.
const leastPatience = 50 * time.Millisecond

// late reports whether an error says that a call took too long.
func late(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded)
}

// calendar returns a calendar with the server's time, or that of any master of a cluster that has not failed.
func (s *Store) calendar(ctx context.Context, namespace string) (c store.Calendar, err error) {
	if s.now != nil {
		return store.Calendar{NowNanos: uint64(s.now().UnixNano())}, nil
	}
	cluster, ok := s.client.(*goredis.ClusterClient)
	if !ok {
		now, err := s.client.Time(ctx).Result()
		return store.Calendar{NowNanos: uint64(now.UnixNano())}, err
	}
	asked := map[string]bool{}
	for partition := range s.keys.partitions {
		key := s.keys.prefix(namespace, partition)
		addr, errMaster := s.master(ctx, key)
		if errMaster != nil {
			return c, errMaster
		}
		if asked[addr] {
			continue
		}
		asked[addr] = true
		if err = s.leftAlone(addr); err != nil {
			continue
		}
		master, errMaster := cluster.MasterForKey(ctx, key)
		if errMaster != nil {
			return c, errMaster
		}
		now, errNow := master.Time(ctx).Result()
		if err = errNow; err == nil {
			return store.Calendar{NowNanos: uint64(now.UnixNano())}, nil
		}
	}
	return c, err
}

// try pushes a trial to the counters of a master.
func (s *Store) try(addr string) {
	defer panics.Catch("a trial of Redis", func(err error) { s.masters.tried(addr, err) })
	ctx, cancel := context.WithTimeout(context.Background(), trialTimeout)
	defer cancel()
	p := s.trial.Everywhere()
	trial := newRun(s, p, 1).round("")
	var totals [1]wire.Total
	for i := range p.Items {
		trial.item(&p.Items[i], &totals[0])
	}
	var batches []*batch
	if len(trial.waves) > 0 {
		for _, b := range trial.waves[0] {
			if master, err := s.master(ctx, b.sender); err == nil && master == addr {
				batches = append(batches, b)
			}
		}
	}
	if len(batches) == 0 {
		s.masters.tried(addr, s.reach(ctx, addr))
		return
	}
	if s.committer.commit(ctx, p, 1, batches) != nil {
		s.reload(ctx)
	}
	err := blame(batches)
	for _, b := range batches {
		if errors.As(b.err, new(hurried)) { // a trial's time is long enough, so the server has used it up
			err = b.err
		}
	}
	s.masters.tried(addr, err)
}

// reach asks a master for its time, and whether it has the replicas that pushes wait for, if it still is a master.
func (s *Store) reach(ctx context.Context, addr string) error {
	servers, err := s.servers(ctx, false)
	for _, server := range servers {
		if server.Options().Addr != addr {
			continue
		}
		if err = server.Time(ctx).Err(); err != nil || s.replicas == 0 {
			return err
		}
		reached, err := server.Wait(ctx, s.replicas, s.patience).Result()
		if err == nil && reached < int64(s.replicas) {
			err = fmt.Errorf("it did not reach %d replicas within %v", s.replicas, s.patience)
		}
		return err
	}
	return err
}
