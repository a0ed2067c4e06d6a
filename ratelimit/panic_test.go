package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/must"
	"weir/internal/panics"
)

// faulty is a backend of a world, and a clock, that panic once when they are told to.
type faulty struct {
	*world
	inPush, inAnswer, inClock atomic.Bool
}

func (f *faulty) Push(ctx context.Context, push []byte) ([]byte, error) {
	if f.inPush.CompareAndSwap(true, false) {
		panic("a fault of the backend")
	}
	answer, err := f.world.Push(ctx, push)
	if f.inAnswer.CompareAndSwap(true, false) {
		f.inClock.Store(true) // the node asks for the time as it takes in the answer
	}
	return answer, err
}

func (f *faulty) now() time.Time {
	if f.inClock.CompareAndSwap(true, false) {
		panic("a fault of the node")
	}
	return time.Now()
}

// A panic in any of a namespace's goroutines ends neither the process nor the namespace. The request under
// way gets the answer for a backend that is away, and later requests are decided as before.
func TestPanics(t *testing.T) {
	for _, fault := range []string{"push", "answer", "decision", "tick"} {
		for mode, want := range map[FailureMode]bool{FailLocal: true, FailAllow: true, FailDeny: false} {
			for _, exact := range []bool{false, true} {
				synctest.Test(t, func(t *testing.T) {
					name := fmt.Sprintf("%s, mode %d, exact %v", fault, mode, exact)
					f, caught := &faulty{world: newWorld()}, panics.Caught()
					var told atomic.Int32
					n := node(t, Options{
						Backend: f, Now: f.now, Exact: exact, OnBackendFailure: mode, Rules: rule(FixedWindow(10, time.Hour)),
						OnPushError: func(err error) { told.Add(1) },
					})
					pause(time.Minute)
					l := limiter(t, n, "r")
					passed := 0
					if decide(t, l, 1, "k").Allowed {
						passed++
					}
					pause(time.Second)
					switch fault {
					case "push":
						f.inPush.Store(true)
					case "answer":
						f.inAnswer.Store(true)
					default:
						f.inClock.Store(true)
					}
					if fault == "tick" {
						pause(time.Second)
					} else {
						d, err := l.Decide(t.Context(), Key{"another"}, 1)
						if err != nil || d.Allowed != want || len(d.Limiter.Name()) == 0 {
							t.Errorf("%s: the request got %+v, %v, want it allowed %v", name, d, err, want)
						}
					}
					must.Equal(t, panics.Caught()-caught, 1, "%s: panics were caught", name)
					pause(10 * time.Second) // the breaker has closed again
					if fault == "push" && told.Load() != 1 {
						t.Errorf("%s: %d errors of pushes were told", name, told.Load())
					}
					for range 20 {
						if decide(t, l, 1, "k").Allowed {
							passed++
						}
						pause(10 * time.Millisecond)
					}
					must.Equal(t, passed, 10, "%s: passed", name)
					must.Is(t, n.Close(t.Context()), nil, "%s: Close", name)
				})
			}
		}
	}
}

// Without a backend, too, a call whose decision panics is decided. If it panics again, it has an error.
func TestPanicsAlone(t *testing.T) {
	faults := 0
	n := node(t, Options{Rules: rule(FixedWindow(10, time.Hour)), Now: func() time.Time {
		if faults > 0 {
			faults--
			panic("a fault of the clock")
		}
		return time.Now()
	}})
	l := limiter(t, n, "r")
	for i, test := range []struct {
		faults  int
		allowed bool
		err     error
	}{{0, true, nil}, {1, true, nil}, {2, false, panics.Err}, {0, true, nil}} {
		faults = test.faults
		if d, err := l.Decide(t.Context(), Key{"k"}, 1); d.Allowed != test.allowed || !errors.Is(err, test.err) {
			t.Errorf("step %d: got %+v, %v", i, d, err)
		}
	}
	faults = 1
	must.Is(t, l.GiveBack(t.Context(), Key{"k"}, 1), panics.Err, "a panic of GiveBack")
	must.Equal(t, decide(t, l, 0, "k").Remaining, 7, "are left")
}

// A namespace that begins anew changes nothing that calls read that are under way: nothing passes above the limit.
func TestPanicsBesideEachOther(t *testing.T) {
	var calls, passed, failed atomic.Int64
	n := node(t, Options{Rules: rule(FixedWindow(1000, 8000*time.Hour)), Now: func() time.Time {
		if calls.Add(1)%200 < 8 {
			panic("a fault of the clock")
		}
		return time.Now()
	}})
	l := limiter(t, n, "r")
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for range 10_000 {
				if ok, err := l.Allow(t.Context(), "k"); err != nil {
					failed.Add(1)
				} else if ok {
					passed.Add(1)
				}
			}
		})
	}
	group.Wait()
	must.AtMost(t, passed.Load(), 1000, "calls that have passed")
	must.AtLeast(t, failed.Load(), 1, "calls that failed")
}

// A question takes nothing, nor does it turn a window: a clock that goes back finds its hits.
func TestQuestionTurnsNoWindow(t *testing.T) {
	for name, l := range map[string]Limit{"fixed": FixedWindow(2, time.Hour), "sliding": SlidingWindow(2, time.Hour)} {
		clock := newFakeClock()
		of := limiter(t, define(t, clock, Options{Rules: rule(l)}), "r")
		clock.advance(clock.now().Truncate(time.Hour).Add(2*time.Hour - time.Second).Sub(clock.now()))
		decide(t, of, 2, "k")
		clock.advance(1500 * time.Millisecond)
		decide(t, of, 0, "k")
		clock.advance(-time.Second)
		must.Equal(t, decide(t, of, 1, "k").Allowed, false, "%s: a third of 2 is allowed", name)
	}
}
