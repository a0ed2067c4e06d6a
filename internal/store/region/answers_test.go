package region

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir/internal/backend"
	"weir/internal/must"
	"weir/internal/server"
	"weir/internal/store"
	"weir/internal/store/memory"
	"weir/internal/wire"
	"weir/window"
)

// moody is a parent across an ocean that treats some pushes in a special way.
type moody struct {
	sea *ocean
	mu  sync.Mutex
	is  mood
}

// mood is the state of a parent.
type mood struct {
	// deaf chooses the pushes that get no answer, refuses those that get an error, and apart the
	// counters on a second server, which may be down. nil chooses none.
	deaf    func(p *wire.Push) bool
	refuses func(p *wire.Push) error
	apart   func(of wire.LimitCounter) bool
	down    bool
	// unheard loses the answers of all pushes.
	unheard bool
}

func (m *moody) set(to mood) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.is = to
}

func (m *moody) Push(ctx context.Context, message []byte) ([]byte, error) {
	m.mu.Lock()
	is := m.is
	m.mu.Unlock()
	p, err := wire.DecodePush(message)
	switch {
	case is.unheard:
		if _, err := m.sea.Push(ctx, message); err != nil {
			return nil, err
		}
		<-ctx.Done()
		return nil, errLost
	case err != nil:
		return m.sea.Push(ctx, message) // not a push, but a report
	case is.deaf != nil && is.deaf(p):
		<-ctx.Done()
		return nil, errLost
	case is.refuses != nil && is.refuses(p) != nil:
		if !pause(ctx, 2*oneWay) {
			return nil, errLost
		}
		return nil, is.refuses(p)
	case is.apart != nil:
		return m.severally(ctx, p, is)
	}
	return m.sea.Push(ctx, message)
}

// severally answers like a store with two servers: each records its part of a push.
func (m *moody) severally(ctx context.Context, p *wire.Push, is mood) ([]byte, error) {
	all := wire.Answer{Totals: make([]wire.Total, len(p.Items)), Grants: make([]wire.Grant, len(p.Takes))}
	apart, rest := store.Divide(p, func(item *wire.Item) bool { return is.apart(item.LimitCounter) }, func(take *wire.Take) bool { return is.apart(take.Rooms[0].LimitCounter) })
	for i, part := range []*store.Part{apart, rest} { // in this order all totals include the takes
		if part.Sender ^= uint64(i); is.down && part == apart {
			part.Lack(&all, wire.NotApplied)
			continue
		}
		body, err := m.sea.Push(ctx, wire.AppendPush(nil, &part.Push))
		if err != nil {
			return nil, err
		}
		answer, err := wire.DecodeAnswer(body)
		if err != nil {
			return nil, err
		}
		all.NowNanos, all.Nodes = answer.NowNanos, answer.Nodes
		part.Join(&all, answer)
	}
	return wire.AppendAnswer(nil, &all), nil
}

// below returns a region in memory with such a parent.
func below(t *testing.T, parent *backend.Backend, policy Policy) (*Store, *moody) {
	t.Helper()
	m := &moody{sea: &ocean{parent: parent, random: rand.New(rand.NewPCG(1, 2))}}
	r := New(Options{Parent: m, Policy: policy, Logger: slog.New(slog.DiscardHandler)})
	must.OK(t, r.Start(t.Context(), memory.New(memory.Options{Now: r.Now, Granter: r})))
	return r, m
}

// names reports whether a push has an item of a room's counter.
func names(p *wire.Push, room wire.Room) bool {
	return slices.ContainsFunc(p.Items, func(item wire.Item) bool { return item.LimitCounter == room.LimitCounter })
}

// If the parent does not answer for a counter, the policy decides for that counter alone. The
// push's other counters are not affected, and the parent does not count as away.
func TestCounterWithoutAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 100
		shared := memory.New(memory.Options{})
		parent := backend.New(shared)
		one, _ := across(t, parent, Share)
		two, m := below(t, parent, Share)
		there, here := &client{t: t, of: one, id: 1}, &client{t: t, of: two, id: 2}
		stuck, full := hourly(1, window.FixedWindow, limit), hourly(2, window.FixedWindow, limit)
		here.take(stuck, 1, 1, false)
		here.take(full, 1, 1, false)
		there.take(full, limit-1, limit-1, false)
		<-time.After(3 * time.Second)
		m.set(mood{deaf: func(p *wire.Push) bool { return names(p, stuck) }})
		must.Equal(t, here.take(stuck, 1, 1, false).Units, 1, "refused by the policy, though the parent does not answer")
		<-time.After(attemptTimeout)
		must.Equal(t, two.Away(), false, "the parent seems away, which has no answer for one counter")
		for i, want := range []uint64{1, 1, 5} {
			room := stuck
			room.Cost = want
			answer := here.push(nil, wire.Take{Least: 1, Most: 1, Rooms: []wire.Room{room}}, wire.Take{Least: 1, Most: 1, Rooms: []wire.Room{full}})
			must.Equal(t, answer.Grants[0].Units, 1, "push %d: refused by the policy, though the parent does not answer for it", i)
			must.Equal(t, answer.Grants[1].Units, 0, "push %d: passed above a limit that the parent says is used up", i)
			<-time.After(1700 * time.Millisecond)
			must.Equal(t, two.Away(), false, "push %d: the parent seems away", i)
		}
		began := time.Now()
		if here.take(hourly(3, window.FixedWindow, limit), 1, 1, false).Units != 1 || time.Since(began) < 2*oneWay {
			t.Error("a counter that the parent answers for is not asked for")
		}
		must.Equal(t, two.Overshoot()["shop"], limit/2, "a bound of")
		m.set(mood{})
		<-time.After(10 * time.Second)
		closed(t, one, two)
		must.Equal(t, counted(t, shared, stuck), 9, "the parent counts hits")
	})
}

// If the parent refuses a push of a node or of a namespace, other pushes are not affected.
func TestRefusedPush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		parent := backend.New(memory.New(memory.Options{}))
		two, m := below(t, parent, Local)
		here := &client{t: t, of: two, id: 2}
		log := hourly(1, window.FirstHitWindow, 10)
		m.set(mood{refuses: func(p *wire.Push) error {
			if p.Sender == here.id || p.Namespace == "private" {
				return fmt.Errorf("%w: not of yours", ErrRefused)
			}
			return nil
		}})
		asks := func(namespace string, room wire.Room) error {
			here.sequence++
			p := &wire.Push{Namespace: namespace, Sender: here.id, Node: 1, Sequence: here.sequence, Floor: here.sequence,
				Takes: []wire.Take{{Least: 1, Most: 1, Rooms: []wire.Room{room}}}}
			_, err := two.Push(t.Context(), p, 1)
			must.Equal(t, two.Away(), false, "%s: the parent seems away", namespace)
			return err
		}
		for range 5 {
			must.Equal(t, asks("shop", log) != nil, true, "a push that the parent refuses is not answered")
			must.Report(t, asks("private", hourly(2, window.FixedWindow, 10)))
			<-time.After(time.Second)
		}
		must.Same(t, two.Overshoot(), map[string]uint64{"private": 10}, "bounds, in the namespace that the parent refuses")
		m.set(mood{})
		<-time.After(10 * time.Second)
		closed(t, two)
	})
}

// A parent whose store has lost some of its servers answers for the others.
func TestPartOfTheParent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := memory.New(memory.Options{})
		two, m := below(t, backend.New(shared), Deny)
		here := &client{t: t, of: two, id: 2}
		lost, there := keysOf(two, true, 1)[0], keysOf(two, false, 1)[0]
		apart := func(of wire.LimitCounter) bool { return of == lost.LimitCounter }
		m.set(mood{apart: apart, down: true})
		takes := []wire.Take{{Least: 1, Most: 1, Rooms: []wire.Room{lost}}, {Least: 1, Most: 1, Rooms: []wire.Room{there}}}
		for i := range 20 {
			began := time.Now()
			answer := here.push(nil, takes...)
			if answer.Grants[0].Units != 0 || answer.Grants[1].Units != 1 || two.Away() {
				t.Errorf("push %d: %d and %d units, away %v, want 0 and 1, and not away", i, answer.Grants[0].Units, answer.Grants[1].Units, two.Away())
			}
			if took := time.Since(began); i > 1 && took > 0 {
				t.Errorf("push %d waited %v for what the parent has said that it lacks", i, took)
			}
			<-time.After(300 * time.Millisecond)
		}
		m.set(mood{apart: apart})
		<-time.After(10 * time.Second)
		must.Equal(t, here.take(lost, 1, 1, false).Units, 1, "refused though the parent has all of its counters again")
		closed(t, two)
		for room, want := range map[*wire.Room]uint64{&lost: 1, &there: 20} {
			must.Equal(t, counted(t, shared, *room), want, "the parent counts hits")
		}
	})
}

// If the parent answers for a part of what is relayed, only the rest is missing.
func TestRelayedInPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		two, m := below(t, backend.New(memory.New(memory.Options{})), Deny)
		here := &client{t: t, of: two, id: 2}
		lost, there, held := hourly(1, window.FirstHitWindow, 10), hourly(2, window.FirstHitWindow, 10), hourly(3, window.FixedWindow, 10)
		m.set(mood{apart: func(of wire.LimitCounter) bool { return of == lost.LimitCounter }, down: true})
		var takes []wire.Take
		for _, room := range []wire.Room{lost, there, held} {
			takes = append(takes, wire.Take{Least: 1, Most: 1, Rooms: []wire.Room{room}})
		}
		answer := here.push([]wire.Item{store.Calendar{NowNanos: uint64(time.Now().UnixNano())}.RoomItem(&lost, 1)}, takes...)
		if want := []wire.Missing{wire.NotApplied, wire.NotApplied, wire.Answered, wire.Answered}; !slices.Equal(answer.Missing, want) || answer.Grants[1].Units != 1 || answer.Grants[2].Units != 1 {
			t.Errorf("missing %v, want %v; grants %+v", answer.Missing, want, answer.Grants)
		}
		answer = here.push(nil, takes[:2]...) // nothing that the region holds
		if want := []wire.Missing{wire.NotApplied, wire.Answered}; !slices.Equal(answer.Missing, want) || answer.Grants[1].Units != 1 {
			t.Errorf("missing %v, want %v; grants %+v", answer.Missing, want, answer.Grants)
		}
		closed(t, two)
	})
}

// While the parent lacks what nodes have relayed, the log says so once, and once that it has all again.
func TestLackingIsToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		two, m := below(t, backend.New(memory.New(memory.Options{})), Deny)
		var log bytes.Buffer
		monitor := server.NewMonitor(two, prometheus.NewRegistry(), slog.New(slog.NewTextHandler(&log, nil)), time.Now)
		lost := hourly(1, window.FirstHitWindow, 10)
		message := wire.AppendPush(nil, &wire.Push{Namespace: "shop", Sender: 1, Node: 1, Sequence: 1, Floor: 1,
			Takes: []wire.Take{{Least: 1, Most: 1, Rooms: []wire.Room{lost}}}})
		node, end := backend.New(two), time.Now().Add(time.Minute)
		m.set(mood{apart: func(of wire.LimitCounter) bool { return of == lost.LimitCounter }, down: true})
		for time.Now().Before(end.Add(time.Minute)) {
			if time.Now().Before(end) { // the node sends it again, unchanged
				reply, err := node.Push(t.Context(), message)
				must.Equal(t, monitor.Pushed(t.Context(), &reply, err), true, "a push that is answered in part fails")
			} else {
				monitor.Takes(t.Context())
			}
			<-time.After(1700 * time.Millisecond)
		}
		closed(t, two)
		must.Equal(t, strings.Count(log.String(), "hits of some keys only"), 1, "times told that some are lacking:\n%s", &log)
		must.Equal(t, strings.Count(log.String(), "all hits again"), 1, "times told that none is:\n%s", &log)
	})
}

// keysOf returns n keys whose own counter at a region's parent is in partition 0, or that have none of their two counters
// there.
func keysOf(r *Store, there bool, n int) (rooms []wire.Room) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := 1; len(rooms) < n; i++ {
		room := hourly(byte(i), window.FixedWindow, 1000)
		room.ID[1] = byte(i >> 8)
		f := r.fund(key{"shop", room.LimitCounter})
		delete(r.funds, f.key)
		if of := room.ID.Partition(); there == (of == 0) && (there || f.mine.ID.Partition() != 0) {
			rooms = append(rooms, room)
		}
	}
	return rooms
}

// While the parent has lost a partition, neither its keys nor the pushes that wait for it keep the parent from hearing of
// other keys. Later it has every hit once.
func TestLostPartition(t *testing.T) {
	for name, test := range map[string]struct {
		keys    int
		further uint64 // pushes of the namespace meanwhile
	}{
		"many keys":   {keys: 2 * maxFlying},
		"many pushes": {keys: 1, further: store.MaxAhead},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				shared := memory.New(memory.Options{})
				two, m := below(t, backend.New(shared), Share)
				lost, there := keysOf(two, true, test.keys), keysOf(two, false, 2)
				here := &client{t: t, of: two, id: 2}
				here.take(there[0], 1, 1, false)
				apart := func(of wire.LimitCounter) bool { return of.ID.Partition() == 0 }
				m.set(mood{apart: apart, down: true})
				for i := range lost {
					answer := here.push(nil, wire.Take{Least: 1, Most: 1, Rooms: []wire.Room{lost[i]}}, wire.Take{Least: 1, Most: 1, Rooms: []wire.Room{there[0]}})
					must.Equal(t, answer.Grants[0].Units, 1, "push %d: units by the policy", i)
					must.Equal(t, answer.Grants[1].Units, 1, "push %d: units", i)
					<-time.After(300 * time.Millisecond)
				}
				<-time.After(10 * time.Second)
				places := 0
				for two.pushes.Enter("shop") {
					places++
				}
				must.Equal(t, places, maxPushes/2, "places free for a single namespace")
				for range places {
					two.pushes.Leave("shop")
				}
				two.mu.Lock()
				two.senders["shop"].sequence += test.further
				two.mu.Unlock()
				here.take(there[1], 1, 1, false)
				<-time.After(3 * time.Second)
				must.Equal(t, counted(t, shared, there[1]) > 0, true, "the parent hears of a key in another partition")
				m.set(mood{apart: apart})
				<-time.After(20 * time.Second)
				closed(t, two)
				for _, room := range append(lost, there[1]) {
					must.Equal(t, counted(t, shared, room), 1, "the parent counts hits of %v", room.ID[:2])
				}
				must.Equal(t, counted(t, shared, there[0]), uint64(1+len(lost)), "the parent counts hits of a key in the same pushes")
			})
		})
	}
}

// A bucket that the region decides alone for an hour admits, above its limit, also the tokens that
// return meanwhile.
func TestBoundOfABucket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, sea := across(t, backend.New(memory.New(memory.Options{})), Share)
		c := &client{t: t, of: r, id: 1}
		room := hourly(1, window.TokenBucket, 1000)
		passed := c.take(room, 1, 1, false).Units
		<-time.After(3 * time.Second)
		sea.cut(2 * time.Hour)
		for began := time.Now(); time.Since(began) < time.Hour; {
			got := c.take(room, 1, 1, false).Units
			if passed += got; got == 0 {
				<-time.After(10 * time.Second)
			}
		}
		if bound := r.Overshoot()["shop"]; passed > bound || passed < 900 {
			t.Errorf("%d hits passed beside those of other regions, and the bound is %d", passed, bound)
		}
		<-time.After(2 * time.Hour)
		closed(t, r)
	})
}

// The log says once a minute that nodes wait less long than the parent's answers take. It does not
// say so of other nodes, nor while the parent is away.
func TestNodesThatDoNotWait(t *testing.T) {
	for timeout, want := range map[time.Duration]int{100 * time.Millisecond: 2, 400 * time.Millisecond: 0} {
		t.Run(timeout.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				sea := &ocean{parent: backend.New(memory.New(memory.Options{})), random: rand.New(rand.NewPCG(1, 2))}
				r := New(Options{Parent: sea, Logger: slog.New(slog.NewTextHandler(&log, nil))})
				must.OK(t, r.Start(t.Context(), memory.New(memory.Options{Now: r.Now, Granter: r})))
				c := &client{t: t, of: r, id: 1}
				c.take(hourly(0, window.FixedWindow, 1000), 1, 1, false) // waits until the answer comes
				for i := range byte(80) {
					ctx, cancel := context.WithTimeout(t.Context(), timeout)
					c.sequence++
					room := hourly(i+1, window.FixedWindow, 1000)
					p := &wire.Push{Namespace: "shop", Sender: 1, Sequence: c.sequence, Floor: c.sequence, Takes: []wire.Take{{Least: 1, Most: 1, Rooms: []wire.Room{room}}}}
					_, err := r.Push(ctx, p, 1)
					must.Report(t, err)
					cancel()
					<-time.After(time.Second)
				}
				sea.cut(2 * time.Minute)
				for range 80 {
					c.take(hourly(200, window.FixedWindow, 1000), 1, 1, false)
					<-time.After(time.Second)
				}
				<-time.After(time.Minute)
				closed(t, r)
				must.Equal(t, strings.Count(log.String(), "set their backend.timeout to twice answers_take\" answers_take=150ms"), want, "times told:\n%s", &log)
			})
		})
	}
}
