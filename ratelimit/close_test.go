package ratelimit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/must"
)

// A call whose context has ended leaves its memory to the next call. The next call is answered
// correctly, even if the namespace is closed meanwhile.
func TestCloseAnswersACallWhoseMemoryWasUsedBefore(t *testing.T) {
	t.Parallel()
	for name, deadline := range map[string]bool{"without a deadline": false, "with a deadline": true} {
		bubble(t, name, func(t *testing.T) {
			w := newWorld()
			w.slow = true
			n := w.node(t, Options{Rules: rule(FixedWindow(10, time.Hour)), Exact: true})
			l := limiter(t, n, "r")
			gone, leave := context.WithTimeout(t.Context(), 10*time.Millisecond)
			defer leave()
			if _, err := l.Decide(gone, Key{"ann"}, 1); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatal(err)
			}
			ctx := t.Context()
			if deadline {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, time.Minute)
				defer cancel()
			}
			start := time.Now()
			waited := make(chan time.Duration, 1)
			go func() {
				_, _ = l.Decide(ctx, Key{"ann"}, 1)
				waited <- time.Since(start)
			}()
			pause(10 * time.Millisecond)
			closed := make(chan struct{})
			go func() {
				n.Close(t.Context())
				close(closed)
			}()
			pause(5 * time.Minute)
			select {
			case lasted := <-waited:
				must.AtMost(t, lasted, n.timeout, "the call waited")
			default:
				t.Error("the call still waits, five minutes after the namespace was closed")
			}
			select {
			case <-closed:
			default:
				t.Error("Close has not returned after five minutes")
			}
		})
	}
}

// If a namespace is closed while calls wait for the backend, the backend still answers them:
// restarts let no more pass than the limit.
func TestRestartsKeepTheLimit(t *testing.T) {
	t.Parallel()
	const limit, restarts, calls = 5, 5, 4
	eachKind(t, limit, func(t *testing.T, _ string, l Limit, exact bool) {
		w := newWorld()
		passed, told := 0, uint64(0)
		for range restarts {
			n := w.node(t, Options{Rules: rule(l), Exact: exact})
			decided := make(chan bool, calls)
			for range calls {
				go func() { decided <- decide(t, limiter(t, n, "r"), 1, "ann").Allowed }()
			}
			synctest.Wait()
			must.Report(t, n.Close(t.Context()))
			for range calls {
				if <-decided {
					passed++
				}
			}
			told = max(told, limiter(t, n, "r").OvershootBound())
			_, err := limiter(t, n, "r").Decide(t.Context(), Key{"ann"}, 1)
			must.Is(t, err, ErrClosed, "after Close")
		}
		must.Equal(t, passed, limit, "in %d restarts, passed", restarts)
		must.Equal(t, told, 0, "overshoot bound")
	})
}

// Whoever cuts Close short reads why, of which namespace, and whether the backend lacks anything, hits or usage.
func TestCloseCutShortSaysWhatIsLeft(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		reveal int
		exact  bool
		hits   uint64
		want   string
	}{
		"nothing":      {want: "close: context canceled"},
		"told":         {exact: true, hits: 1, want: "close: context canceled"},
		"usage":        {reveal: RevealPlain, exact: true, hits: 1, want: "close: not all hits and usage were pushed: context canceled"},
		"hits":         {hits: 2, want: "close: not all hits and usage were pushed: context canceled"},
		"both of them": {reveal: RevealPlain, hits: 2, want: "close: not all hits and usage were pushed: context canceled"},
	} {
		bubble(t, name, func(t *testing.T) {
			n := newWorld().node(t, Options{Exact: test.exact, Rules: []Rule{{Name: "r", Limits: []Limit{FixedWindow(1000, time.Hour)}, Reveal: test.reveal}}})
			for range test.hits {
				decide(t, limiter(t, n, "r"), 1, "ann")
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			err := n.Close(ctx)
			must.Is(t, err, context.Canceled, "")
			must.Equal(t, fmt.Sprint(err), `ratelimit: namespace "test": `+test.want, "")
			pause(time.Second) // what was on its way arrives
		})
	}
}

// Close tells of hits that its own pushes have lost, and blames no failure of a push before it.
func TestCloseTellsWhatFailedMeanwhile(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		before, after error
		want          string
	}{
		"refused":                  {nil, fmt.Errorf("%w: too odd", ErrPushRefused), `close: 3 hits are lost: ratelimit: namespace "test": push: push refused: too odd`},
		"away, and then refused":   {errors.New("away"), fmt.Errorf("%w: too odd", ErrPushRefused), `close: 3 hits are lost: ratelimit: namespace "test": push: push refused: too odd`},
		"away all the time":        {errors.New("away"), errors.New("away still"), `close: not all hits and usage were pushed: ratelimit: namespace "test": push: away still`},
		"away, and then cut short": {errors.New("away"), nil, "close: not all hits and usage were pushed: context canceled"},
	} {
		bubble(t, name, func(t *testing.T) {
			var fails atomic.Pointer[error]
			fails.Store(new(cmp.Or(test.before, test.after)))
			held := make(chan struct{})
			defer close(held)
			n := node(t, Options{Windows: []time.Duration{time.Hour}, Backend: answers(func([]byte) ([]byte, error) {
				if err := *fails.Load(); err != nil {
					return nil, err
				}
				<-held
				return nil, errors.New("late")
			})})
			must.Equal(t, increment(t, n, "k", time.Hour, 3), 3, "rate")
			if test.before != nil {
				must.Equal(t, n.Sync(t.Context()) != nil, true, "a push fails")
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if fails.Store(&test.after); test.after == nil {
				cancel()
			}
			must.Equal(t, fmt.Sprint(n.Close(ctx)), `ratelimit: namespace "test": `+test.want, "")
		})
	}
}
