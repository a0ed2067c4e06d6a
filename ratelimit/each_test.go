package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/must"
	"weir/internal/panics"
	"weir/window"
)

// counting counts the pushes to a backend, and the bytes of its answers.
type counting struct {
	Backend
	pushes atomic.Int32
	bytes  atomic.Int64
}

func (c *counting) Push(ctx context.Context, push []byte) ([]byte, error) {
	c.pushes.Add(1)
	answer, err := c.Backend.Push(ctx, push)
	c.bytes.Add(int64(len(answer)))
	return answer, err
}

// Demands of several namespaces are each decided by themselves, and the backend of each is asked for all of
// them together, at the same time.
func TestEachByItself(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		counted := &counting{Backend: w}
		var limiters []*Limiter
		for _, exact := range []bool{true, false, true} {
			n := must.Get(NewNamespace(Options{Name: fmt.Sprint("n", len(limiters)), Backend: counted, Exact: exact, Rules: rule(FixedWindow(3, time.Hour))}))(t)
			defer func() { must.Report(t, n.Close(context.Background())) }()
			limiters = append(limiters, limiter(t, n, "r"))
		}
		for i, cost := range []uint64{2, 2, 1, 0, 1} {
			pause(time.Minute)
			var demands []Demand
			for j := range 150 {
				// Every second key is asked for one hit at first.
				d := limiters[j%3].Demand(Key{fmt.Sprint(j)}, cost)
				if i == 0 && j/3%2 == 1 {
					d.cost = 1
				}
				demands = append(demands, d)
			}
			begin := time.Now()
			counted.pushes.Store(0)
			decisions := must.Get(DecideEach(t.Context(), demands...))(t)
			if pushes, took := counted.pushes.Load(), time.Since(begin); pushes == 0 || pushes > 6 || took > 3*w.trip {
				t.Errorf("step %d: %d pushes, which took %v", i, pushes, took)
			}
			for j, d := range decisions {
				left := [][]uint64{{1, 1, 0, 0, 0}, {2, 0, 0, 0, 0}}[j/3%2][i]
				allowed := [][]bool{{true, false, true, true, false}, {true, true, false, true, false}}[j/3%2][i]
				if d.Allowed != allowed || d.Remaining != left || d.Limiter != limiters[j%3] {
					t.Errorf("step %d, demand %d: allowed %t, %d are left, want %t, %d", i, j, d.Allowed, d.Remaining, allowed, left)
				}
			}
		}
	})
}

// Calls that come together ask by one push, though none knows of the others.
func TestEachTogether(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // in turns
	counted := &counting{Backend: newWorld()}
	n := node(t, Options{Backend: counted, Exact: true, Collect: 1, Rules: rule(FixedWindow(3, time.Hour))})
	l, begin := limiter(t, n, "r"), make(chan struct{})
	var working sync.WaitGroup
	const calls = 32
	for i := range calls {
		working.Go(func() {
			<-begin
			if d, err := DecideEach(t.Context(), l.Demand(Key{fmt.Sprint(i)}, 1)); err != nil || !d[0].Allowed {
				t.Errorf("call %d: %v, %v", i, d, err)
			}
		})
	}
	runtime.Gosched()
	close(begin)
	if working.Wait(); counted.pushes.Load() > 2 { // and 6 if the first did not wait for those behind it
		t.Errorf("%d calls asked by %d pushes", calls, counted.pushes.Load())
	}
	must.Report(t, n.Close(t.Context()))
}

// Calls whose keys overlap, of nodes whose pushes are lost, and of callers that go, never take more than a
// limit, and what is counted is what was allowed.
func TestEach_hammer(t *testing.T) {
	t.Parallel()
	for _, exact := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			const limit, keys = 20, 30
			w := newWorld()
			var allowed [keys]atomic.Int64
			var gone, refused atomic.Int64
			var working sync.WaitGroup
			var all []*Namespace
			for of := range 2 {
				n := w.node(t, Options{Rules: rule(FixedWindow(limit, time.Hour)), Exact: exact, OnBackendFailure: FailDeny})
				all = append(all, n)
				l := limiter(t, n, "r")
				for by := range 4 {
					working.Go(func() {
						random := rand.New(rand.NewPCG(uint64(of), uint64(by)))
						for range 60 {
							var demands []Demand
							var asked []int
							for range 1 + random.IntN(keys) {
								asked = append(asked, random.IntN(keys)) // the same twice now and then
								demands = append(demands, l.Demand(Key{fmt.Sprint(asked[len(asked)-1])}, 1))
							}
							ctx, cancel := context.WithTimeout(t.Context(), time.Duration(random.IntN(60))*time.Millisecond)
							decisions, err := DecideEach(ctx, demands...)
							cancel()
							if err != nil && !errors.Is(err, context.DeadlineExceeded) {
								t.Error(err)
							}
							for i, d := range decisions {
								switch {
								case d.Allowed:
									allowed[asked[i]].Add(1)
								case d.At.IsZero():
									gone.Add(1)
								default:
									refused.Add(1)
								}
							}
							<-time.After(time.Duration(random.IntN(200)) * time.Millisecond)
						}
					})
				}
			}
			pause(time.Second)
			w.loseOneOf(4)
			pause(time.Second)
			w.set(func() { w.away = true })
			pause(time.Second)
			w.set(func() { w.away, w.loses = false, nil })
			working.Wait()
			pause(10 * time.Second)
			var sum int64
			for key := range allowed {
				n := allowed[key].Load()
				sum += n
				must.AtMost(t, n, limit, "exact %t: hits of key %d that were allowed", exact, key)
			}
			for _, n := range all {
				must.Report(t, n.Close(t.Context()))
			}
			if counted := w.sum(t); counted != sum || sum == 0 || gone.Load() == 0 || refused.Load() == 0 {
				t.Errorf("exact %t: %d hits were allowed, and %d are counted; %d demands were refused, and of %d the caller has gone", exact, sum, counted, refused.Load(), gone.Load())
			}
		})
	}
}

// Wherever the node panics while it decides several demands, each of them is decided, and the limits hold.
func TestEach_panics(t *testing.T) {
	for _, exact := range []bool{true, false} {
		caught := 0
		for at := 1; at <= 60; at++ {
			synctest.Test(t, func(t *testing.T) {
				w, before := newWorld(), panics.Caught()
				var reads, fault atomic.Int32
				n := w.node(t, Options{Exact: exact, Rules: rule(FixedWindow(3, time.Hour)), Now: func() time.Time {
					if fault.Load() > 0 && reads.Add(1) == fault.Load() {
						panic("a fault of the clock")
					}
					return time.Now()
				}})
				pause(time.Minute)
				l := limiter(t, n, "r")
				var demands []Demand
				for _, key := range []string{"a", "b", "c", "d"} {
					demands = append(demands, l.Demand(Key{key}, 1))
				}
				passed := map[string]int{}
				ask := func() {
					decisions, err := DecideEach(t.Context(), demands...)
					must.Is(t, err, nil, "exact %t, a panic at reading %d", exact, at)
					for i, d := range decisions {
						if d.At.IsZero() || d.Limiter != l {
							t.Errorf("exact %t, a panic at reading %d: demand %d got %+v", exact, at, i, d)
						}
						if d.Allowed {
							passed[demands[i].key[0]]++
						}
					}
				}
				fault.Store(int32(at))
				ask()
				fault.Store(0)
				caught += int(panics.Caught() - before)
				pause(20 * time.Second) // the breaker has closed again
				for range 5 {
					ask()
					pause(time.Second)
				}
				for _, d := range demands {
					// Hits that the backend has granted are lost to a node that panics as it hears of them.
					must.Between(t, passed[d.key[0]], 2, 3, "exact %t, a panic at reading %d: hits of %s that have passed", exact, at, d.key)
				}
			})
		}
		must.AtLeast(t, caught, 8, "exact %t: panics that were caught", exact)
	}
}

// A demand whose every try panics is an error of the call, and the others take their hits once.
func TestEach_panicsAlways(t *testing.T) {
	t.Parallel()
	fault := FixedWindow(3, time.Hour)
	fault.limit.Calendar = struct{ window.Calendar }{} // its methods panic
	n := define(t, newFakeClock(), Options{Rules: []Rule{{Name: "r", Limits: []Limit{FixedWindow(3, time.Hour)}}, {Name: "faulty", Limits: []Limit{fault}}}})
	l := limiter(t, n, "r")
	d, err := DecideEach(t.Context(), l.Demand(Key{"a"}, 1), limiter(t, n, "faulty").Demand(nil, 1), l.Demand(Key{"b"}, 1))
	if err == nil || !d[0].Allowed || d[1].Allowed || !d[2].Allowed {
		t.Errorf("%v, %v", d, err)
	}
	for _, key := range []string{"a", "b"} {
		must.Equal(t, decide(t, l, 0, key).Remaining, 2, "hits that are left of %s", key)
	}
}

// A demand that can't be decided is an error of the call.
func TestEachErrors(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		l := limiter(t, w.node(t, Options{Exact: true, Rules: rule(FixedWindow(3, time.Hour))}), "r")
		places := must.Get(NewLimiter(InFlight(1)))(t)
		closed := must.Get(NewLimiter(FixedWindow(1, time.Hour)))(t)
		must.OK(t, closed.namespace.Close(t.Context()))
		must.Equal(t, len(must.Get(DecideEach(t.Context()))(t)), 0, "decisions of no demands")
		for name, demand := range map[string]Demand{"none": {}, "places": places.Demand(nil, 1), "closed": closed.Demand(nil, 1)} {
			if _, err := DecideEach(t.Context(), l.Demand(Key{name}, 1), demand); err == nil || name == "closed" && !errors.Is(err, ErrClosed) {
				t.Errorf("%s: %v", name, err)
			}
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		alone := must.Get(NewLimiter(FixedWindow(3, time.Hour)))(t)
		d, err := DecideEach(gone, l.Demand(Key{"waits"}, 1), alone.Demand(nil, 1), l.Demand(Key{"waits, too"}, 1))
		if !errors.Is(err, context.Canceled) || d[0].Allowed || !d[1].Allowed || d[2].Allowed {
			t.Errorf("the caller has gone: %v, %v", d, err)
		}
		// An error keeps no demand of another namespace from its decision, and the first demand's is that of the call.
		for i, test := range []struct {
			ctx     context.Context
			demands []Demand
			want    error
		}{
			{t.Context(), []Demand{closed.Demand(nil, 1), alone.Demand(Key{"0"}, 1), l.Demand(Key{"0"}, 1), closed.Demand(nil, 1)}, ErrClosed},
			{gone, []Demand{closed.Demand(nil, 1), l.Demand(Key{"1"}, 1), alone.Demand(Key{"1"}, 1)}, ErrClosed},
			{gone, []Demand{l.Demand(Key{"2"}, 1), closed.Demand(nil, 1), alone.Demand(Key{"2"}, 1)}, context.Canceled},
		} {
			d, err := DecideEach(test.ctx, test.demands...)
			must.Is(t, err, test.want, "call %d", i)
			for j := range d {
				of := test.demands[j].limiter
				must.Equal(t, d[j].Allowed, of == alone || of == l && test.ctx != gone, "call %d: whether demand %d is allowed", i, j)
			}
		}
		pause(time.Second)
		must.Equal(t, decide(t, l, 0, "waits").Remaining, 3, "hits are left of a key whose caller has gone")
	})
}
