package redis

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"weir/internal/must"
	"weir/internal/store"
	"weir/internal/store/redis/redistest"
	"weir/internal/wire"
	"weir/window"
)

func TestMasters(t *testing.T) {
	cluster := redistest.StartCluster(t)
	for _, test := range []struct {
		name string
		run  func(t *testing.T, cluster *redistest.Cluster)
	}{
		{"blamed", testBlamed},
		{"pauses are short", testPausesAreShort},
		{"busy key", testBusyKey},
		{"short waits", testShortWaits},
		{"refused waits", testRefusedWaits},
		{"late trial", testLateTrial},
		{"trial of a moving slot", testTrialOfMovingSlot},
		{"trial without a partition", testTrialWithoutPartition},
		{"trial without time", testTrialWithoutTime},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, cluster) })
	}
}

// onMasters is a store of a cluster, whose masters' failures a test sees and sets.
type onMasters struct {
	*Store
	t        *testing.T
	sequence uint64
}

func openMasters(t *testing.T, cluster *redistest.Cluster, parameters string) *onMasters {
	t.Helper()
	s := must.Get(Open(cluster.URL()+parameters, Options{}))(t)
	t.Cleanup(func() { must.Report(t, s.Close()) })
	return &onMasters{Store: s, t: t, sequence: 1}
}

// push takes a token of a key, for a sender of its own, and returns what the answer lacks.
func (s *onMasters) push(ctx context.Context, sender uint64) error {
	c := wire.LimitCounter{ID: wire.ID{1}, Kind: uint8(window.TokenBucket), WidthMillis: 3_600_000}
	out, err := s.Push(ctx, &wire.Push{Namespace: "ns", Sender: sender, Sequence: s.sequence, Floor: s.sequence, Takes: []wire.Take{
		{Least: 1, Most: 1, Rooms: []wire.Room{{LimitCounter: c, Limit: 1000, Burst: 1000, Cost: 1}}},
	}}, 1)
	return errors.Join(err, out.Lacking)
}

// key is the first part of the names of push's keys.
func (s *onMasters) key() string { return s.keys.prefix("ns", s.keys.partition(wire.ID{1})) }

func (s *onMasters) of(key string) (addr string) {
	s.t.Helper()
	return must.Get(s.master(s.t.Context(), key))(s.t)
}

// left reports whether a master is left alone.
func (s *onMasters) left(addr string) bool {
	s.masters.mu.Lock()
	defer s.masters.mu.Unlock()
	return s.masters.failed[addr] != nil
}

// tries has a master be left alone, tries it, and reports whether it still is.
func (s *onMasters) tries(addr string) bool {
	s.masters.mu.Lock()
	s.masters.failed = map[string]*failure{addr: {err: errReply}}
	s.masters.mu.Unlock()
	if _, try := s.masters.failure(addr); try {
		s.try(addr)
	}
	return s.left(addr)
}

// sets sets a key again and again, until end is called.
func (s *onMasters) sets(key string) (end func()) {
	var group sync.WaitGroup
	ended := make(chan struct{})
	group.Go(func() {
		for {
			select {
			case <-ended:
				return
			default:
				must.Report(s.t, s.client.Set(s.t.Context(), key, "somebody", 50*time.Millisecond).Err())
			}
		}
	})
	return func() {
		close(ended)
		group.Wait()
	}
}

// fails has each script fail.
type fails struct{ err error }

// replied is an error that a server has replied.
type replied string

func (r replied) Error() string { return string(r) }
func (replied) RedisError()     {}

func (fails) DialHook(next goredis.DialHook) goredis.DialHook { return next }

func (f fails) ProcessPipelineHook(goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return func(_ context.Context, cmds []goredis.Cmder) error {
		for _, cmd := range cmds {
			cmd.SetErr(f.err)
		}
		return f.err
	}
}

func (f fails) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) error {
		if strings.HasPrefix(cmd.Name(), "eval") {
			cmd.SetErr(f.err)
			return f.err
		}
		return next(ctx, cmd)
	}
}

// What one slot's state brings about says nothing of its master's other slots.
func testBlamed(t *testing.T, cluster *redistest.Cluster) {
	for reply, want := range map[replied]bool{
		"TRYAGAIN Multiple keys request during rehashing of slot": false, "CLUSTERDOWN Hash slot not served": false,
		"CLUSTERDOWN The cluster is down": true, "OOM command not allowed when used memory > 'maxmemory'.": true,
	} {
		s := openMasters(t, cluster, "")
		s.client.AddHook(fails{reply})
		must.Is(t, s.push(t.Context(), 1), reply, "the answer lacks")
		must.Equal(t, s.left(s.of(s.key())), want, "after %q: the master is left alone", reply)
	}
}

// Or a caller's time would be over before go-redis says that a slot moves.
func testPausesAreShort(t *testing.T, cluster *redistest.Cluster) {
	o := openMasters(t, cluster, "").client.(*goredis.ClusterClient).Options()
	if all := time.Duration(o.MaxRedirects) * o.MaxRetryBackoff; all >= leastPatience {
		t.Errorf("a call pauses for up to %v between its tries, want less than %v", all, leastPatience)
	}
	o = openMasters(t, cluster, "?min_retry_backoff=1s&max_retry_backoff=2s").client.(*goredis.ClusterClient).Options()
	must.Equal(t, o.MinRetryBackoff, time.Second, "the least pause, which the URL has")
	must.Equal(t, o.MaxRetryBackoff, 2*time.Second, "the longest pause, which the URL has")
}

// A master has answered each script of pushes that others keep from being written until their deadlines, and has not got those
// that wait for these. On a busy machine a script may be late, but not each time.
func testBusyKey(t *testing.T, cluster *redistest.Cluster) {
	s := openMasters(t, cluster, "")
	addr := s.of(s.key())
	defer s.sets(s.keys.lock("ns", s.keys.partition(wire.ID{1})))()
	for range 10 {
		s.sequence++
		s.masters.note(addr, nil)
		var group sync.WaitGroup
		late := [2]bool{}
		for i := range late {
			group.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 120*time.Millisecond)
				defer cancel()
				late[i] = s.push(ctx, uint64(i)) != nil
			})
		}
		if group.Wait(); late[0] && late[1] && !s.left(addr) {
			return
		}
	}
	t.Error("the master is left alone")
}

// A caller's deadline may be too short for the replicas.
func testShortWaits(t *testing.T, cluster *redistest.Cluster) {
	s := openMasters(t, cluster, "?wait_replicas=2") // there is one of each master
	addr := s.of(s.key())
	defer s.sets(s.key() + "any")() // an idle Redis ends a wait late
	var err error
	lacks := func(patience time.Duration) bool {
		s.sequence++
		s.masters.note(addr, nil)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		err = s.push(ctx, 9)
		return err != nil && strings.Contains(err.Error(), "2 replicas")
	}
	if !lacks(time.Minute) || !s.left(addr) {
		t.Errorf("the master lacks replicas, and is not left alone: %v", err)
	}
	for range 20 {
		if lacks(30*time.Millisecond) && !s.left(addr) {
			return
		}
	}
	t.Errorf("the master is left alone as a push did not wait: %v", err)
}

// A master that refuses to wait for its replicas has failed, however quickly it says so. The error says why.
func testRefusedWaits(t *testing.T, cluster *redistest.Cluster) {
	s := openMasters(t, cluster, "?wait_replicas=1")
	addr := s.of(s.key())
	admin := goredis.NewClient(&goredis.Options{Addr: addr})
	t.Cleanup(func() { _ = admin.Close() }) // it only set a right
	must.OK(t, admin.Do(t.Context(), "acl", "setuser", "default", "-wait").Err())
	err := s.push(t.Context(), 77) // a push that others have sent may have to write nothing
	must.OK(t, admin.Do(t.Context(), "acl", "setuser", "default", "+wait").Err())
	must.Contains(t, fmt.Sprint(err), "NOPERM", "the answer lacks")
	must.Equal(t, s.left(addr), true, "the master is left alone")
}

// A server may answer a trial's scripts so late that the last has no time left. It has failed then, as such a trial has told
// nothing good of it.
func testLateTrial(t *testing.T, cluster *redistest.Cluster) {
	s := openMasters(t, cluster, "")
	addr := s.of(s.key())
	s.client.AddHook(fails{context.DeadlineExceeded})
	must.Equal(t, s.tries(addr), true, "a master that answers late is left alone")
}

// A trial of a master one of whose slots moves succeeds.
func testTrialOfMovingSlot(t *testing.T, cluster *redistest.Cluster) {
	s := openMasters(t, cluster, "")
	must.OK(t, s.Ping(t.Context()))
	key := s.keys.sender(store.TrialNamespace, 0, s.trial.Everywhere().Sender, "")
	slot := must.Get(cluster.Client(0).ClusterKeySlot(t.Context(), key).Result())(t)
	addr, from, again := s.of(key), 0, 0
	for cluster.Servers[from].Addr != addr {
		from++
	}
	cluster.MoveSlot(int(slot), from, (from+1)%3, func() {
		if err := s.Ping(t.Context()); err != nil && strings.Contains(err.Error(), "TRYAGAIN") {
			again++
		}
		must.Equal(t, s.tries(addr), false, "the master is left alone")
	})
	must.Equal(t, again > 0, true, "the slot was not there for a trial")
}

// A trial may have no partition on a master. Then the master's time is asked for, and a server that is no master is forgotten.
func testTrialWithoutPartition(t *testing.T, cluster *redistest.Cluster) {
	s := openMasters(t, cluster, "")
	s.keys = keys{partitions: 1}
	other := 0
	for cluster.Servers[other].Addr == s.of(s.keys.sender(store.TrialNamespace, 0, 1, "")) {
		other++
	}
	hung := cluster.Servers[other]
	for replicas, left := range []bool{false, false, true} { // there is one of each master
		waits := openMasters(t, cluster, fmt.Sprint("?wait_timeout=500ms&wait_replicas=", replicas))
		waits.keys = s.keys
		must.Equal(t, waits.tries(hung.Addr), left, "the master is left alone by pushes that need %d replicas", replicas)
	}
	hung.Pause()
	must.Equal(t, s.tries(hung.Addr), true, "a master that hangs is left alone")
	hung.Resume()
	for range 20 {
		if !s.tries(hung.Addr) {
			break
		}
	}
	must.Equal(t, s.left(hung.Addr), false, "a master that answers again is left alone")
	must.Equal(t, s.tries(cluster.Servers[5].Addr), false, "a replica is left alone")
}

// A trial whose time is over before anything is sent says nothing of a master.
func testTrialWithoutTime(t *testing.T, cluster *redistest.Cluster) {
	s := openMasters(t, cluster, "")
	s.keys = keys{partitions: 1} // or the batches of a trial don't wait for others
	addr := s.of(s.keys.sender(store.TrialNamespace, 0, 1, ""))
	must.Equal(t, s.tries(addr), false, "a master that answers is left alone")
	before := &lane{}
	key := line{namespace: store.TrialNamespace, first: s.trial.Everywhere().Items[0].LimitCounter}
	s.committer.lanes[key] = before
	left := make(chan bool, 1)
	go func() { left <- s.tries(addr) }()
	for waits := false; !waits && len(left) == 0; {
		s.committer.mu.Lock()
		if waits = len(before.waiting) > 0; waits {
			before.waiting[0].until = time.Unix(0, 0)
		}
		s.committer.mu.Unlock()
		runtime.Gosched()
	}
	s.committer.follow(key, before, s.committer.next(key, before))
	must.Equal(t, <-left, true, "a master that was not tried is left alone")
}
