package redis_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir/internal/must"
	"weir/internal/store"
	"weir/internal/store/redis"
	"weir/internal/store/redis/redistest"
	"weir/internal/wire"
	"weir/window"
)

// TestBackendsShareLimits lets senders take from a counter of each kind through several backends,
// and send pushes again through others. Exactly the limit is granted, and a push gets the same
// grant each time.
func TestBackendsShareLimits(t *testing.T) {
	for name, url := range map[string]string{"server": redistest.Start(t).URL(), "cluster": redistest.StartCluster(t).URL()} {
		backends := []*redis.Store{open(t, url, nil), open(t, url, nil)}
		for kind, c := range map[string]wire.LimitCounter{
			"fixed": counter(window.FixedWindow, 1, 366*24*time.Hour), "sliding": counter(window.SlidingWindow, 2, 366*24*time.Hour),
			"first hit": counter(window.FirstHitWindow, 3, time.Hour), "buckets": buckets(4, time.Hour, 15*time.Minute),
			"log": buckets(5, time.Hour, 1), "tokens": counter(window.TokenBucket, 6, 366*24*time.Hour),
		} {
			t.Run(name+"/"+kind, func(t *testing.T) {
				const limit, senders = 300, 8
				var granted, applied atomic.Int64
				var group sync.WaitGroup
				for i := range uint64(senders) {
					group.Go(func() {
						random := rand.New(rand.NewPCG(i, 0))
						for sequence := uint64(1); sequence <= 80; sequence++ {
							p := &wire.Push{Namespace: "ns", Sender: i, Sequence: sequence, Floor: sequence, Takes: []wire.Take{
								{Least: 1, Most: 1 + random.Uint64N(3), Rooms: []wire.Room{{LimitCounter: c, Limit: limit, Burst: limit, Cost: 1}}},
							}}
							p.Sender += uint64(c.ID[0]) << 32
							var first store.Outcome
							for try := range 1 + random.IntN(3) {
								out, err := backends[random.IntN(len(backends))].Push(t.Context(), p, 1)
								if err != nil {
									t.Error(err)
									return
								}
								if granted := out.Answer.Grants[0]; try == 0 {
									first = out
								} else if !out.Duplicate || out.Applied != 0 || granted.Units != first.Answer.Grants[0].Units || granted.AtNanos != first.Answer.Grants[0].AtNanos {
									t.Errorf("again %+v, want as at first %+v", out, first)
								}
							}
							granted.Add(int64(first.Answer.Grants[0].Units))
							applied.Add(first.Applied)
						}
					})
				}
				group.Wait()
				must.Equal(t, granted.Load(), limit, "units that were granted")
				must.Equal(t, applied.Load(), limit, "hits that were applied")
				for _, b := range backends {
					must.Equal(t, sum(t, b, c.ID[0]), limit, "hits that are counted")
				}
			})
		}
	}
}

// TestPushesWaitForTheLock locks a partition. Pushes whose counters must be as they were seen wait
// for the lock, and others do not.
func TestPushesWaitForTheLock(t *testing.T) {
	counters, client := begun(t, atEpoch)
	const lock = "weir:{ns}:lock"
	passed := false
	for sequence := uint64(1); sequence < 100 && !passed; sequence++ {
		must.OK(t, client.Set(t.Context(), lock, "somebody", 50*time.Millisecond).Err())
		must.Get(pushOne(t.Context(), counters, sequence, epoch, counter(window.FixedWindow, 1, time.Minute)))(t)
		n := must.Get(client.Exists(t.Context(), lock).Result())(t)
		passed = n == 1
	}
	must.Equal(t, passed, true, "a window of the clock waits for the lock")
	for sequence := range uint64(3) {
		must.OK(t, client.Set(t.Context(), lock, "somebody", 50*time.Millisecond).Err())
		must.Equal(t, must.Get(pushOne(t.Context(), counters, 100+sequence, epoch, counter(window.TokenBucket, 2, time.Minute)))(t).Applied, 1, "a token bucket: it applied")
		must.Equal(t, must.Get(client.Exists(t.Context(), lock).Result())(t), 0, "that a token bucket waits for the end of it")
	}
}

// TestLocksThatDoNotEnd sets locks that no backend has made, and locks that live too long because
// the server's clock was set back. No push waits for them.
func TestLocksThatDoNotEnd(t *testing.T) {
	const lock = "weir:{ns}:lock"
	counters, client := begun(t, atEpoch)
	sequence := uint64(0)
	for name, command := range map[string][]any{
		"for ever": {"set", lock, "somebody"}, "for an hour": {"set", lock, "somebody", "px", 3_600_000},
		"a list": {"rpush", lock, "somebody"},
	} {
		must.OK(t, errors.Join(client.Del(t.Context(), lock).Err(), client.Do(t.Context(), command...).Err()))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		sequence++
		must.Equal(t, must.Get(pushOne(ctx, counters, sequence, epoch, counter(window.TokenBucket, 2, time.Minute)))(t).Applied, 1, "%s: it applied", name)
		cancel()
	}
}
