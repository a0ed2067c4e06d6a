package region

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/backend"
	"weir/internal/must"
	"weir/internal/store"
	"weir/internal/store/memory"
	"weir/internal/wire"
	"weir/window"
)

// A region that knows no others still does not count itself as the only region: others may start
// while the parent is away.
func TestOthersComeMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 1000
		parent := backend.New(memory.New(memory.Options{}))
		one, sea := across(t, parent, Share)
		room := hourly(1, window.FixedWindow, limit)
		here := &client{t: t, of: one, id: 1}
		passed := here.take(room, 1, 1, false).Units
		<-time.After(3 * time.Second)
		sea.cut(time.Hour)
		two, _ := across(t, parent, Share)
		there := &client{t: t, of: two, id: 2}
		for _, c := range []*client{there, here} {
			for refused := 0; refused < 3; {
				got := c.take(room, 1, 1, false).Units
				passed += got
				if got == 0 {
					refused++
				}
			}
		}
		if bound := one.Overshoot()["shop"]; passed > limit+bound || bound == 0 {
			t.Errorf("%d hits of %d passed, and the bound is %d", passed, limit, bound)
		}
		sea.cut(0)
		<-time.After(15 * time.Second)
		closed(t, one, two)
	})
}

// Items and rooms that a region's own store accepts never lead to a push that the parent refuses.
// The region would repeat such a push for ever, and the parent would seem away.
func TestHostileNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		random := rand.New(rand.NewPCG(3, 4))
		parent := backend.New(memory.New(memory.Options{}))
		one, sea := across(t, parent, Share)
		hostile := &client{t: t, of: one, id: 66}
		sizes := []uint64{0, 1, 7, 150, 1 << 40, wire.MaxHits}
		size := func() uint64 { return sizes[random.IntN(len(sizes))] }
		for range 400 {
			kind := heldKinds[random.IntN(3)]
			room := hourly(byte(random.IntN(4)), kind, size())
			room.WidthMillis = 1000 // so hits may lie many windows ahead
			if room.Burst = 0; kind == window.TokenBucket {
				room.Limit, room.Burst = max(1, room.Limit), max(1, size())
			}
			room.Cost = max(1, size())
			item := store.Calendar{NowNanos: uint64(time.Now().UnixNano())}.RoomItem(&room, 0)
			item.Limit = room.Limit
			if kind != window.TokenBucket { // in future windows, and in several
				item.Newest += uint64(random.IntN(store.WindowsAhead + 2))
				item.Hits = make([]int64, 1+random.IntN(4))
			}
			for i := range item.Hits {
				item.Hits[i] = int64(size()) * int64(1-2*random.IntN(2))
			}
			most := max(1, size())
			take := wire.Take{Least: max(1, min(most, size())), Most: most, Lease: random.IntN(2) == 0, Rooms: []wire.Room{room}}
			p := wire.Push{Namespace: "shop", Sender: 66, Sequence: 1, Floor: 1, Items: []wire.Item{item}, Takes: []wire.Take{take}}
			if store.Check(&p) != nil {
				p.Takes = nil
				if store.Check(&p) != nil {
					continue
				}
			}
			hostile.push(p.Items, p.Takes...)
			if err := sea.refusal(); err != nil || one.Away() {
				t.Fatalf("the parent refuses a push with %v after %+v", err, p)
			}
			<-time.After(400 * time.Millisecond)
		}
		closed(t, one)
	})
}

// Counters that no node uses any more don't grow a region while the parent is away.
func TestFundsAreBounded(t *testing.T) {
	s := New(Options{})
	for i := range uint64(maxFunds + 1000) {
		id := wire.ID{}
		id[0], id[1], id[2] = byte(i), byte(i>>8), byte(i>>16)
		f := s.fund(key{"shop", wire.LimitCounter{ID: id, Kind: uint8(window.FixedWindow), WidthMillis: 1000}})
		s.hasten(f) // as if the parent did not answer
	}
	if due := len(s.due["shop"]); len(s.funds) > maxFunds || due > len(s.funds) {
		t.Errorf("%d funds, %d of them due, want %d at most", len(s.funds), due, maxFunds)
	}
}

// A node that asks for more than a limit has does not make its region take the limit from others.
func TestGreedyNode(t *testing.T) {
	inBubbles(t, []bool{false, true}, func(t *testing.T, lease bool) {
		const limit = 1000
		parent := backend.New(memory.New(memory.Options{}))
		one, _ := across(t, parent, Share)
		two, _ := across(t, parent, Share)
		room := hourly(1, window.FixedWindow, limit)
		greedy, other, gone := &client{t: t, of: one, id: 1}, &client{t: t, of: two, id: 2}, uint64(0)
		if lease {
			gone = greedy.take(room, 1, wire.MaxHits, true).Units
			<-time.After(15 * time.Second)
		}
		for n := range (limit - gone - 60) / 5 {
			if !lease {
				gone += greedy.take(room, 5*limit, 5*limit, false).Units
			}
			if got := other.take(room, 5, 5, false).Units; got == 0 {
				t.Fatalf("refused after %d of %d hits, of which the other region has %d", 5*n, limit, gone)
			}
			<-time.After(100 * time.Millisecond)
		}
		closed(t, one, two)
	})
}

// If the parent's store is full, a flood of keys makes it forget no region's part of a key that uses
// more of its limit. Else the region would tell all its hits again.
func TestFullParent(t *testing.T) {
	inBubbles(t, heldKinds, func(t *testing.T, kind window.Kind) {
		one, _ := across(t, backend.New(memory.New(memory.Options{MaxCounters: 400})), Share)
		room, sequence := hourly(1, kind, 1000), byte(0)
		c, flood := &client{t: t, of: one, id: 1}, &client{t: t, of: one, id: 2}
		for n := range 20 {
			must.EqualOrEnd(t, c.take(room, 1, 20, false).Units, 20, "of 20 hits, after %d of a limit of 1,000", 20*n)
			<-time.After(70 * time.Second)
			for i := range 300 {
				key := room
				key.ID[1], key.ID[2], key.ID[3] = byte(i), byte(i>>8), 1+sequence
				flood.take(key, 1, 1, false)
			}
			sequence++
			<-time.After(70 * time.Second)
		}
		closed(t, one)
	})
}

// Namespaces that nodes invent while the parent is away don't grow a region.
func TestBoundsAreBounded(t *testing.T) {
	s := New(Options{})
	c := store.Calendar{NowNanos: uint64(time.Now().UnixNano())}
	room := hourly(1, window.FixedWindow, 1000)
	for i := range maxBounds + 1000 {
		s.exceed(c, fmt.Sprint("n", i), &room)
	}
	larger := room
	larger.Limit = 2000
	s.exceed(c, "n0", &larger)
	must.Equal(t, len(s.Overshoot()), maxBounds, "bounds")
	must.Equal(t, s.Overshoot()["n0"], 1000, "the bound of the first namespace")
}

// crowd is a parent that does not answer while it is deaf, and refuses the namespaces of others.
type crowd struct {
	*ocean
	of string

	mu        sync.Mutex
	deaf      bool
	now, most int // messages without an answer
}

func (c *crowd) Push(ctx context.Context, message []byte) ([]byte, error) {
	c.mu.Lock()
	deaf := c.deaf
	c.now++
	c.most = max(c.most, c.now)
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.now--
	}()
	if deaf {
		<-ctx.Done()
		return nil, errLost
	}
	if p, err := wire.DecodePush(message); err == nil && p.Namespace != c.of && p.Namespace != identityNamespace {
		if !pause(ctx, 2*oneWay) {
			return nil, errLost
		}
		return nil, fmt.Errorf("%w: not for you", ErrRefused)
	}
	return c.ocean.Push(ctx, message)
}

// Whatever namespaces and counters nodes invent, a region has a bounded number of messages on their
// way to a parent that does not answer or refuses them, forgets counters that it has in none of
// them, and still asks for the hits of others.
func TestCrowdOfNamespaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := memory.New(memory.Options{})
		parent := &crowd{ocean: &ocean{parent: backend.New(shared), random: rand.New(rand.NewPCG(1, 2))}, of: "shop"}
		one := New(Options{Parent: parent, Logger: slog.New(slog.DiscardHandler)})
		must.OK(t, one.Start(t.Context(), memory.New(memory.Options{Now: one.Now, Granter: one})))
		set := func(deaf bool) {
			parent.mu.Lock()
			defer parent.mu.Unlock()
			parent.deaf = deaf
		}
		flood := func(round, namespaces int) {
			t.Helper()
			for i := range namespaces {
				held, relayed := hourly(1, window.FixedWindow, 1000), hourly(2, window.FirstHitWindow, 1000)
				for _, room := range []wire.Room{held, relayed} {
					ctx, cancel := context.WithTimeout(t.Context(), 100*time.Microsecond)
					p := &wire.Push{Namespace: fmt.Sprintf("n%d-%d", round, i), Sender: 1, Sequence: uint64(i + 1), Floor: uint64(i + 1),
						Takes: []wire.Take{{Least: 1, Most: 1, Rooms: []wire.Room{room}}}}
					if _, err := one.Push(ctx, p, 1); err != nil && Holds(&room.LimitCounter) && ctx.Err() == nil {
						t.Fatal(err)
					}
					cancel()
				}
			}
			<-time.After(20 * time.Second)
		}
		set(true)
		flood(1, 3000)
		set(false)
		flood(2, 1500) // the parent refuses these, and may have got the others
		room := hourly(1, window.FixedWindow, 1000)
		c := &client{t: t, of: one, id: 1}
		must.Equal(t, c.take(room, 1, 1, false).Units, 1, "refused because of other namespaces")
		<-time.After(10 * time.Second)
		must.Equal(t, counted(t, shared, room) > 0, true, "the parent hears of a namespace in spite of others")
		parent.mu.Lock()
		must.AtMost(t, parent.most, maxPushes+maxRelays+10, "messages on their way at once")
		parent.mu.Unlock()
		busy := 0
		one.mu.Lock()
		for _, f := range one.funds {
			if f.busy {
				busy++
			}
		}
		one.mu.Unlock()
		if busy > 2*maxPushes { // those on their way, and those that the parent may have got before it refused them
			t.Errorf("%d counters can't be forgotten", busy)
		}
		must.Equal(t, one.Close() != nil, true, "closed, and not as if the parent had all hits")
	})
}

// A correction that was not recorded does not prevent later corrections.
func TestKeepAfterAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, _ := across(t, backend.New(memory.New(memory.Options{})), Share)
		<-time.After(2 * time.Second)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		must.EqualOrEnd(t, one.keep(ended, one.record) != nil, true, "it is not kept with an ended context")
		must.Report(t, one.keep(t.Context(), one.record))
		// As after a write whose caller had given up.
		must.Get(one.Own.SetOverrides(t.Context(), identityNamespace, one.version, one.record.encode()))(t)
		for range 2 {
			must.Report(t, one.keep(t.Context(), one.record))
		}
		closed(t, one)
	})
}

// A counter that was forgotten between the tick that made it due and its push is pushed once, even
// if a node has asked for it meanwhile.
func TestForgottenWhileDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, _ := across(t, backend.New(memory.New(memory.Options{})), Share)
		of := func(id byte) key { return key{"shop", hourly(id, window.FixedWindow, 1000).LimitCounter} }
		due := func(k key) *fund {
			one.mu.Lock()
			defer one.mu.Unlock()
			f := one.fund(k)
			one.makeDue(f)
			return f
		}
		forget := func(f *fund) {
			one.mu.Lock()
			defer one.mu.Unlock()
			one.undue(f)
			delete(one.funds, f.key)
		}
		gone, twice := due(of(1)), due(of(2))
		forget(gone)
		forget(twice)
		again := due(of(2))
		b := one.gather("shop", []*fund{gone, twice, again})
		if len(b.funds) != 2 || b.funds[0] != gone || b.funds[1] != again || len(b.push.Items) != 4 {
			t.Errorf("the push is of %d counters, want the forgotten one, and the one that is asked for anew", len(b.funds))
		}
		if one.funds[gone.key] != gone || one.funds[again.key] != again || len(one.due) != 0 {
			t.Errorf("%d funds, %d of them due, want those of the push, and none due", len(one.funds), len(one.due))
		}
		one.send(b)
		<-time.After(10 * time.Second) // what the region's own loop has begun is over then
		synctest.Wait()
		if !gone.known || gone.busy || !again.known || again.busy {
			t.Error("the parent's answer is of no fund")
		}
		closed(t, one)
	})
}
