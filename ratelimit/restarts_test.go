package ratelimit

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/must"
	"weir/internal/nightly"
)

var restartsFor = flag.Duration("restarts-for", nightly.Or(10*time.Minute, time.Second), "how long to run nodes that restart")

// Many clients ask three nodes at once, and some give up. The nodes restart meanwhile: in good
// order, cut short by a context, or killed. Pushes and answers are lost, late and doubled. No
// algorithm lets more pass than its limit, whether the backend decides every request or leases. No
// call waits too long, and the backend gets all hits that have passed.
//
// For a long run: go test -race ./ratelimit -run Restarts_hammer -restarts-for 1h -timeout 0
func TestRestarts_hammer(t *testing.T) {
	t.Parallel()
	var all seen
	start := time.Now()
	for seed := uint64(0); seed == 0 || time.Since(start) < *restartsFor; seed++ {
		for name, l := range kinds(restartsLimit) {
			for _, exact := range []bool{false, true} {
				for _, lossy := range []bool{false, true} {
					ok := t.Run(fmt.Sprintf("%s/exact=%v/lossy=%v/%d", name, exact, lossy, seed), func(t *testing.T) {
						synctest.Test(t, func(t *testing.T) {
							r := &restarts{
								world: newWorld(), limit: l, exact: exact, lossy: lossy, passed: map[string]uint64{},
								random: rand.New(rand.NewPCG(seed, uint64(len(name)))),
							}
							r.run(t)
							all.add(&r.seen)
						})
					})
					if !ok {
						return
					}
				}
			}
		}
	}
	t.Logf("%+v", all)
	least := slices.Min([]uint64{all.passed, all.refused, all.gaveUp, all.shut, all.orderly, all.cut, all.killed, all.lost, all.late, all.doubled})
	must.AtLeast(t, least, 1, "times that each of these happens: of what never happens the test shows nothing")
}

const (
	restartsLimit = 40
	// The number of keys that clients use at a time, each for a while, so that nodes restart while
	// some keys have hits left.
	restartsUsers = 4
	restartsApart = 300 * time.Millisecond
)

// seen counts events, so that a run shows whether it has tested anything.
type seen struct {
	passed, refused, gaveUp, shut uint64 // calls
	orderly, cut, killed          uint64 // ends of nodes
	lost, late, doubled           uint64 // pushes and answers
}

func (s *seen) add(o *seen) {
	s.passed, s.refused, s.gaveUp, s.shut = s.passed+o.passed, s.refused+o.refused, s.gaveUp+o.gaveUp, s.shut+o.shut
	s.orderly, s.cut, s.killed = s.orderly+o.orderly, s.cut+o.cut, s.killed+o.killed
	s.lost, s.late, s.doubled = s.lost+o.lost, s.late+o.late, s.doubled+o.doubled
}

// restarts is nodes of a world that restart.
type restarts struct {
	*world
	limit        Limit
	exact, lossy bool
	began        time.Time

	mu     sync.Mutex // of what follows
	random *rand.Rand
	passed map[string]uint64 // hits, by user
	seen
}

// below returns a random number.
func (r *restarts) below(n int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.random.IntN(n)
}

func (r *restarts) noted(of *uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	*of++
}

// roughWay is a node's unreliable connection to the backend.
type roughWay struct {
	*restarts
	cut atomic.Bool
}

// Push implements Backend.
func (w *roughWay) Push(ctx context.Context, push []byte) ([]byte, error) {
	fate := 100
	if w.lossy {
		fate = w.below(100)
	}
	travels := func() error {
		select {
		case <-time.After(time.Duration(w.below(20)) * time.Millisecond):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if travels() != nil || w.cut.Load() {
		return nil, errLost
	}
	arrive := func() ([]byte, error) {
		reply, err := w.backend.Push(context.WithoutCancel(ctx), push)
		return reply.Body, err
	}
	again := func(wait time.Duration) {
		push = slices.Clone(push) // the caller may reuse it
		time.AfterFunc(wait, func() { _, _ = arrive() })
	}
	switch {
	case fate < 8: // it does not arrive
		w.noted(&w.lost)
		return nil, errLost
	case fate < 14: // it arrives when its node has given up on it
		w.noted(&w.late)
		again(time.Duration(w.below(2000)) * time.Millisecond)
		return nil, errLost
	case fate < 22: // its answer is lost
		w.noted(&w.lost)
		_, _ = arrive()
		return nil, errLost
	case fate < 28: // its answer is late
		w.noted(&w.late)
		answer, err := arrive()
		<-ctx.Done()
		return answer, err
	case fate < 40: // it arrives again, before or after its answer
		w.noted(&w.doubled)
		again(time.Duration(w.below(500)) * time.Millisecond)
		if w.below(2) == 0 {
			_, _ = arrive()
		}
	}
	answer, err := arrive()
	return answer, errors.Join(err, travels())
}

// start makes a node.
func (r *restarts) start(t *testing.T) (*Namespace, *roughWay) {
	way := &roughWay{restarts: r}
	o := Options{Name: "test", Backend: way, Rules: rule(r.limit), Exact: r.exact}
	if r.lossy {
		o.OnBackendFailure = FailDeny // otherwise nodes without answers would admit hits that others have
	}
	n, err := NewNamespace(o)
	must.Report(t, err)
	return n, way
}

func (r *restarts) run(t *testing.T) {
	const nodes, clients = 3, 5
	lasts := nightly.Or(20*time.Second, 4*time.Second)
	r.began = time.Now()
	end := r.began.Add(lasts)
	var running sync.WaitGroup
	for range nodes {
		var node atomic.Pointer[Namespace]
		n, way := r.start(t)
		node.Store(n)
		for range clients {
			running.Go(func() {
				for time.Now().Before(end) {
					r.ask(t, node.Load())
					<-time.After(time.Duration(r.below(200)) * time.Millisecond)
				}
			})
		}
		running.Go(func() {
			for time.Now().Before(end) {
				<-time.After(time.Duration(r.below(3000)) * time.Millisecond)
				old, oldWay := n, way
				if r.below(2) == 0 { // the next node starts before the old ends
					n, way = r.start(t)
					node.Store(n)
					r.stop(t, old, oldWay)
				} else {
					r.stop(t, old, oldWay)
					n, way = r.start(t)
					node.Store(n)
				}
			}
			if err := n.Close(context.Background()); err != nil && !r.lossy {
				t.Error(err)
			}
		})
	}
	running.Wait()
	pause(10 * time.Second) // late messages arrive
	var hits uint64
	for user, passed := range r.passed {
		hits += passed
		must.AtMost(t, passed, restartsLimit, "%s: hits that passed", user)
	}
	if has := r.sum(t); has < int64(hits) || r.killed+r.cut == 0 && !r.lossy && has != int64(hits) {
		t.Errorf("%d hits passed, and the backend has %d", hits, has)
	}
}

// stop ends a node.
func (r *restarts) stop(t *testing.T, n *Namespace, way *roughWay) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	switch r.below(5) {
	case 0:
		r.noted(&r.killed)
		way.cut.Store(r.lossy) // a node that misses the backend for a moment before it ends may decide alone
		cancel()
	case 1:
		r.noted(&r.cut)
		time.AfterFunc(time.Duration(r.below(100))*time.Millisecond, cancel)
	default:
		r.noted(&r.orderly)
	}
	start := time.Now()
	second := make(chan error)
	go func() { second <- n.Close(ctx) }()
	err := n.Close(ctx)
	must.AtMost(t, time.Since(start), n.timeout+longestLeaving, "Close took")
	if <-second; ctx.Err() == nil && !r.lossy && err != nil {
		t.Error(err)
	}
	_, err = limiter(t, n, "r").Decide(context.Background(), Key{"ann"}, 1)
	must.Is(t, err, ErrClosed, "after Close")
}

// ask asks a node, and may give up.
func (r *restarts) ask(t *testing.T, n *Namespace) {
	user, cost := strconv.Itoa(int(time.Since(r.began)/restartsApart)+r.below(restartsUsers)), uint64(1+r.below(3))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	gives := r.below(4) == 0
	if gives {
		time.AfterFunc(time.Duration(r.below(30))*time.Millisecond, cancel)
	}
	start := time.Now()
	d, err := limiter(t, n, "r").Decide(ctx, Key{user}, cost)
	must.AtMost(t, time.Since(start), n.timeout+5*time.Millisecond, "a call has waited")
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case errors.Is(err, ErrClosed):
		r.shut++
	case gives && errors.Is(err, context.Canceled):
		r.gaveUp++
	case err != nil:
		t.Error(err)
	case d.Allowed:
		r.seen.passed++
		r.passed[user] += cost
	default:
		r.refused++
	}
}
