package redis

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"weir/internal/wire"
)

// masters tells whether a cluster's masters take hits, by their addresses. A master that has
// failed, or has too few replicas, would make every push wait that has anything for it.
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
	// trialEvery is how often it is tried whether a master takes hits again.
	trialEvery = 100 * time.Millisecond
	// trialTimeout bounds a trial.
	trialTimeout = time.Second
)

// errLeftAlone is of what is not sent to a master that has failed.
var errLeftAlone = errors.New("nothing is sent there until a trial succeeds")

// failure is why a master was left alone, and whether the caller is to try it again; nil if it is not.
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

// note notes how a master did.
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

// tried ends a trial.
func (m *masters) tried(addr string, err error) {
	m.note(addr, err)
	m.mu.Lock()
	defer m.mu.Unlock()
	if f := m.failed[addr]; f != nil {
		f.trying = false
	}
	m.trials.Done()
}

// forget forgets a master that is none any more.
func (m *masters) forget(addr string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.failed, addr)
}

// close waits for the trials under way.
func (m *masters) close() {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	m.trials.Wait()
}

// master returns the address of the master that has a key; it is empty for a single server. An
// error says that the cluster can't be reached at all, so that nobody knows its masters.
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

// mapTries is how often a cluster is asked which master has what, at most.
const mapTries = 8

// masterForKey is MasterForKey of a cluster that may not know its masters yet. The server that it
// asks then, by chance, may be the very server that does not answer, so each has a part of the
// time.
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

// leftAlone is why nothing is sent to a master now; nil if it takes hits.
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

// without is why nothing can be had of a key now; nil if its master takes hits.
func (s *Store) without(ctx context.Context, key string) error {
	addr, err := s.master(ctx, key)
	if err != nil {
		return err
	}
	return s.leftAlone(addr)
}

// blames reports whether an error says that a master takes no hits, for a call that began then. A
// caller may have had no patience, and a slot that moves says nothing of others.
func blames(err error, since time.Time) bool {
	switch {
	case errors.Is(err, context.Canceled), goredis.HasErrorPrefix(err, "TRYAGAIN"):
		return false
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return time.Since(since) >= leastPatience
	}
	return true
}

// leastPatience is for how long a master must not have answered to be left alone.
const leastPatience = 50 * time.Millisecond

// time is that of any master that is not left alone.
func (s *Store) time(ctx context.Context, namespace string) (nanos uint64, err error) {
	if s.now != nil {
		return uint64(s.now().UnixNano()), nil
	}
	asked := map[string]bool{}
	for partition := range s.keys.partitions {
		key := s.keys.prefix(namespace, partition)
		addr, errMaster := s.master(ctx, key)
		if errMaster != nil {
			return 0, errMaster
		}
		if asked[addr] {
			continue
		}
		asked[addr] = true
		if err = s.leftAlone(addr); err != nil {
			continue
		}
		master, errMaster := s.client.(*goredis.ClusterClient).MasterForKey(ctx, key)
		if errMaster != nil {
			return 0, errMaster
		}
		now, errNow := master.Time(ctx).Result()
		if err = errNow; err == nil {
			return uint64(now.UnixNano()), nil
		}
	}
	return 0, err
}

// try pushes a trial to those of its counters that a master has.
func (s *Store) try(addr string) {
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
		s.reload(ctx)
		s.masters.tried(addr, errors.New("it is no master"))
		s.masters.forget(addr)
		return
	}
	err := s.committer.commit(ctx, p, 1, batches)
	if err != nil {
		s.reload(ctx)
	}
	s.masters.tried(addr, err)
}
