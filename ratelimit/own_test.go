package ratelimit

import (
	"context"
	"errors"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/must"
)

// watched tells whether a caller of the package sends a push itself.
type watched struct {
	*world
	own   int
	keeps bool
}

func (a *watched) KeepsDeadlines() bool { return a.keeps }

func (a *watched) Push(ctx context.Context, push []byte) ([]byte, error) {
	stack := make([]byte, 1<<14)
	a.set(func() {
		if by := string(stack[:runtime.Stack(stack, false)]); strings.Contains(by, "AllowN") || strings.Contains(by, "DecideEach") {
			a.own++
		}
	})
	return a.world.Push(ctx, push)
}

// A call sends its push itself, unless its context has a deadline that comes sooner than the push is given up, or pushes may
// take long. With a deadline it never waits longer; that a context was cancelled it hears when its push ends.
func TestOwnPushes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		timeout, deadline, cancel time.Duration
		slow, foreign             bool
		own                       bool
		lasts                     time.Duration
		fails                     error
	}{
		"no deadline":        {own: true, lasts: 10 * time.Millisecond},
		"a late deadline":    {deadline: time.Second, own: true, lasts: 10 * time.Millisecond},
		"an early deadline":  {deadline: 150 * time.Millisecond, lasts: 10 * time.Millisecond},
		"no answer, early":   {deadline: 150 * time.Millisecond, slow: true, lasts: 150 * time.Millisecond, fails: context.DeadlineExceeded},
		"no answer, late":    {deadline: time.Second, slow: true, own: true, lasts: 200 * time.Millisecond},
		"cancelled":          {cancel: 7 * time.Millisecond, own: true, lasts: 10 * time.Millisecond},
		"cancelled, slow":    {cancel: 7 * time.Millisecond, slow: true, own: true, lasts: 200 * time.Millisecond},
		"another's backend":  {foreign: true, lasts: 10 * time.Millisecond},
		"pushes take long":   {timeout: time.Minute, lasts: 10 * time.Millisecond},
		"long, no answer":    {timeout: time.Minute, slow: true, cancel: 7 * time.Millisecond, lasts: 7 * time.Millisecond, fails: context.Canceled},
		"cancelled long ago": {cancel: time.Nanosecond, fails: context.Canceled},
	} {
		alone := func(l *Limiter, ctx context.Context) (bool, error) { return l.Allow(ctx, "ann") }
		each := func(l *Limiter, ctx context.Context) (bool, error) {
			all, err := DecideEach(ctx, l.Demand(Key{"ann"}, 1), l.Demand(Key{"ben"}, 1))
			return all[0].Allowed && all[1].Allowed, err
		}
		for i, allow := range []func(*Limiter, context.Context) (bool, error){alone, each} {
			synctest.Test(t, func(t *testing.T) {
				held := make(chan struct{}, 1) // a lock of the program, which holds it while it calls
				b := &watched{world: newWorld(), keeps: !c.foreign}
				b.slow = c.slow
				told := 0
				n := node(t, Options{Backend: b, Exact: true, Timeout: c.timeout, Rules: rule(FixedWindow(10, time.Hour)), OnPushError: func(error) {
					held <- struct{}{}
					told++
					<-held
				}})
				l := limiter(t, n, "r")
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if c.deadline > 0 {
					ctx, cancel = context.WithTimeout(ctx, c.deadline)
					defer cancel()
				}
				if c.cancel == time.Nanosecond {
					cancel()
				} else if c.cancel > 0 {
					time.AfterFunc(c.cancel, cancel)
				}
				start := time.Now()
				held <- struct{}{}
				allowed, err := allow(l, ctx)
				<-held
				if lasted := time.Since(start); lasted != c.lasts || !errors.Is(err, c.fails) || allowed != (err == nil) {
					t.Errorf("%s, %d: after %v: %t, %v; want %v and %v", name, i, lasted, allowed, err, c.lasts, c.fails)
				}
				b.set(func() {
					must.Equal(t, b.own == 1, c.own, "%s, %d: the caller sent %d pushes, its own", name, i, b.own)
				})
				pause(time.Second)
				if held <- struct{}{}; c.slow && c.timeout == 0 && told == 0 {
					t.Errorf("%s, %d: a push that failed was not told", name, i)
				}
				<-held
			})
		}
	}
}

// Calls send their own pushes by Dial, unless an HTTPClient may hold them up.
func TestDialKeepsDeadlines(t *testing.T) {
	t.Parallel()
	own := must.Get(Dial("http://127.0.0.1:1", DialOptions{}))(t)
	foreign := must.Get(Dial("http://127.0.0.1:1", DialOptions{HTTPClient: http.DefaultClient}))(t)
	must.Equal(t, keepsDeadlines(own), true, "by its own transport")
	must.Equal(t, keepsDeadlines(foreign), false, "by another's transport")
}

// A call of DecideEach that is decided at once waits for no push, though it has begun one for calls to come.
func TestEachWaitsForItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &watched{world: newWorld(), keeps: true}
		n := node(t, Options{Backend: b, Rules: rule(FixedWindow(1000, time.Hour))})
		l, late := limiter(t, n, "r"), uint64(0)
		for range 990 {
			start := time.Now()
			must.Get(DecideEach(t.Context(), l.Demand(Key{"ann"}, 1)))(t)
			if time.Since(start) > 0 {
				late++
			}
			synctest.Wait()
		}
		must.Equal(t, late, n.Stats().WaitedRequests, "calls took time")
		b.set(func() {
			must.AtLeast(t, b.own, 1, "calls that sent a push themselves")
			must.AtMost(t, late, 100, "calls that waited")
		})
		must.Report(t, n.Close(t.Context()))
	})
}
