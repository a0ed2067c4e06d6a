package ratelimit

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/must"
)

// In a fleet of programs with rules as they are by default, requests for keys that are far from their limits
// wait for nothing: of 1,000 requests of 100 programs at most 20 wait.
func TestFleetWaitsForNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const nodes, perSecond = 100, 10
		w := newWorld()
		all := make([]*Namespace, nodes)
		for i := range all {
			all[i] = w.node(t, Options{Rules: rule(FixedWindow(100_000, time.Hour))})
		}
		during := func(span time.Duration) {
			var group sync.WaitGroup
			end := time.Now().Add(span)
			for i, n := range all {
				l := limiter(t, n, "r")
				group.Go(func() {
					random := rand.New(rand.NewPCG(1, uint64(i)))
					keys := rand.NewZipf(random, 1.2, 1, 19_999)
					for at := time.Now(); at.Before(end); at = time.Now() {
						<-time.After(time.Duration(random.ExpFloat64() * float64(time.Second) / perSecond))
						if ok, err := l.Allow(t.Context(), fmt.Sprint(keys.Uint64())); !ok || err != nil {
							t.Error("refused", err)
						}
					}
				})
			}
			group.Wait()
		}
		during(10 * time.Second) // all have heard of each other
		stats := func() (s Stats) {
			for _, n := range all {
				of := n.Stats()
				s.WaitedRequests += of.WaitedRequests
				s.AdvancedHits += of.AdvancedHits
			}
			return s
		}
		const span = 10
		before := stats()
		during(span * time.Second)
		after := stats()
		waited, advanced := after.WaitedRequests-before.WaitedRequests, after.AdvancedHits-before.AdvancedHits
		of1000 := float64(waited) / (nodes * perSecond * span / 1000)
		if t.Logf("of 1,000 requests %.1f wait; %d hits advanced", of1000, advanced); of1000 > 20 || advanced == 0 {
			t.Errorf("of 1,000 requests %.1f wait, want at most 20; %d hits were advanced, want some", of1000, advanced)
		}
	})
}

// Calls that wait for room in a fleet get it in their order, and all of the limit and no more passes, though
// the first hits of each window are advanced.
func TestWaitInAFleet(t *testing.T) {
	t.Parallel()
	const nodes, limit, window, windows, every = 10, 300, 30 * time.Second, 4, 900 * time.Millisecond
	for name, of := range map[string]Limit{"fixed": FixedWindow(limit, window), "sliding": SlidingWindow(limit, window)} {
		bubble(t, name, func(t *testing.T) {
			w := newWorld()
			start := time.Now()
			must.EqualOrEnd(t, start.UnixNano()%int64(window), 0, "a window has to begin with the test")
			ctx, stop := context.WithCancel(t.Context())
			time.AfterFunc(windows*window-time.Second, stop)
			var group sync.WaitGroup
			all := make([]*Namespace, nodes)
			var at [nodes][(windows*window - 10*time.Second) / every]time.Duration // when each call had room
			for i := range all {
				all[i] = w.node(t, Options{Rules: rule(of)})
				l := limiter(t, all[i], "r")
				group.Go(func() { // its node has a part of the limits as long as it has requests
					for j := 0; ctx.Err() == nil; j++ {
						<-time.After(time.Second)
						_, err := l.Allow(t.Context(), fmt.Sprint("other", i, j))
						must.Report(t, err)
					}
				})
				for call := range at[i] {
					group.Go(func() {
						at[i][call] = math.MaxInt64
						<-time.After(10*time.Second + time.Duration(call)*every)
						if err := l.Wait(ctx, "k"); err == nil {
							at[i][call] = time.Since(start)
						} else if ctx.Err() == nil {
							t.Error(err)
						}
					})
				}
			}
			group.Wait()
			var passed [windows]int
			advanced := uint64(0)
			for i := range at {
				must.Equal(t, slices.IsSorted(at[i][:]), true, "node %d: calls have room in their order: %v", i, at[i])
				for _, then := range at[i] {
					if then != math.MaxInt64 {
						passed[then/window]++
					}
				}
				advanced += all[i].Stats().AdvancedHits
			}
			sum := 0
			for i := range passed {
				sum += passed[i]
				must.AtMost(t, sum, (i+1)*limit, "%v calls have room in windows of %d: those of %d windows", passed, limit, i+1)
			}
			// A sliding window has little room at first, as the window before weighs on it.
			if name == "fixed" && sum < windows*limit*9/10 {
				t.Errorf("%v calls have room in windows of %d", passed, limit)
			}
			others := uint64(nodes * windows * window / time.Second)
			t.Log(passed, advanced)
			must.AtLeast(t, advanced, others+1, "hits that were advanced, of which up to %d are of other keys", others)
		})
	}
}

// A request that does not wait for room does not wait for the confirmation that a full key stays full either.
func TestFullKeysRefuseAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		l := limiter(t, w.node(t, Options{Rules: rule(FixedWindow(200, time.Hour))}), "r")
		for range 300 {
			must.Get(l.Allow(t.Context(), "k"))(t)
		}
		before := l.namespace.Stats()
		for range 100 {
			pause(100 * time.Millisecond)
			must.Equal(t, must.Get(l.Allow(t.Context(), "k"))(t), false, "passes")
		}
		must.Equal(t, l.namespace.Stats().WaitedRequests-before.WaitedRequests, 0, "of 100 requests for a full key waited")
	})
}

// No more is said to remain than does, though some hits pass before the backend has counted them. A few times it is less: unused
// hits of a lease, for example, which is a part of what remains, count until the backend has them back.
func TestRemainingWithAdvancedHits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 1000
		w := newWorld()
		n := w.node(t, Options{Rules: rule(FixedWindow(limit, 24*time.Hour))})
		l := limiter(t, n, "r")
		random := rand.New(rand.NewPCG(1, 2))
		used, mixed, exact := map[string]uint64{}, 0, 0
		for call := range 2000 {
			key, cost := strconv.Itoa(random.IntN(10)), 1+random.Uint64N(9)
			advanced := n.Stats().AdvancedHits
			d := must.Get(l.Decide(t.Context(), Key{key}, cost))(t)
			if d.Allowed {
				used[key] += cost
			}
			if n.Stats().AdvancedHits == advanced && advanced > 0 {
				mixed++
			}
			rest := limit - used[key]
			if d.Remaining == rest {
				exact++
			}
			if d.Remaining > rest || 2*d.Remaining < rest || !d.Allowed && d.Remaining >= cost {
				t.Fatalf("call %d, for %d hits, of key %s: %d remain, want %d, or somewhat less", call, cost, key, d.Remaining, rest)
			}
			<-time.After(time.Duration(random.IntN(2000)) * time.Microsecond)
		}
		must.AtLeast(t, n.Stats().AdvancedHits, 1, "hits advanced")
		must.AtLeast(t, mixed, 1, "calls that asked the backend after that")
		must.AtLeast(t, exact, 1900, "times of 2000 that what remains is told as it is")
	})
}

// Close gives back a part of the limits that was on its way, and waits for no more than that.
func TestCloseGivesPartsBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		n := w.node(t, Options{Rules: rule(FixedWindow(1000, 24*time.Hour))})
		l := limiter(t, n, "r")
		for i := range 40 {
			decide(t, l, 1, strconv.Itoa(i))
			<-time.After(100 * time.Millisecond)
		}
		must.Equal(t, n.Stats().AdvancedHits > 0, true, "hits were advanced")
		<-time.After(8 * time.Second) // without requests, the part ends
		w.set(func() { w.trip = 400 * time.Millisecond })
		decide(t, l, 1, "another")
		began := time.Now()
		must.OK(t, n.Close(t.Context()))
		must.AtMost(t, time.Since(began), 4*time.Second, "Close took")
	})
}
