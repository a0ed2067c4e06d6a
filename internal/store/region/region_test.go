package region

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
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

// across returns a region in memory with an ocean between it and its parent. It ends with the
// bubble.
func across(t *testing.T, parent *backend.Backend, policy Policy) (*Store, *ocean) {
	t.Helper()
	sea := &ocean{parent: parent, random: rand.New(rand.NewPCG(1, 2))}
	r := New(Options{Parent: sea, Policy: policy, Logger: slog.New(slog.DiscardHandler)})
	must.OK(t, r.Start(t.Context(), memory.New(memory.Options{Now: r.Now, Granter: r})))
	return r, sea
}

func closed(t *testing.T, regions ...*Store) {
	t.Helper()
	for _, r := range regions {
		must.Report(t, r.Close())
	}
}

func hourly(id byte, kind window.Kind, limit uint64) wire.Room {
	r := wire.Room{LimitCounter: wire.LimitCounter{ID: wire.ID{id}, Kind: uint8(kind), WidthMillis: 3600e3}, Limit: limit, Cost: 1}
	if kind == window.TokenBucket {
		r.Burst = limit
	}
	return r
}

// heldKinds are the kinds of which a region holds hits.
var heldKinds = []window.Kind{window.FixedWindow, window.SlidingWindow, window.TokenBucket}

// inBubbles runs a test of each case in a bubble of its own.
func inBubbles[T any](t *testing.T, cases []T, test func(t *testing.T, c T)) {
	for _, c := range cases {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, c) })
		})
	}
}

// client pushes to a region as a sender.
type client struct {
	t        *testing.T
	of       store.Store
	id       uint64
	sequence uint64
}

func (c *client) take(room wire.Room, least, most uint64, lease bool) wire.Grant {
	c.t.Helper()
	return c.push(nil, wire.Take{Least: least, Most: most, Lease: lease, Rooms: []wire.Room{room}}).Grants[0]
}

func (c *client) push(items []wire.Item, takes ...wire.Take) *wire.Answer {
	c.t.Helper()
	c.sequence++
	p := &wire.Push{Namespace: "shop", Sender: c.id, Node: c.id, Sequence: c.sequence, Floor: c.sequence, Items: items, Takes: takes}
	out := must.Get(c.of.Push(context.Background(), p, 1))(c.t)
	return &out.Answer
}

// counted returns the parent's hits of a room's key in the present window.
func counted(t *testing.T, parent *memory.Store, room wire.Room) uint64 {
	t.Helper()
	item := store.Calendar{NowNanos: uint64(time.Now().UnixNano())}.RoomItem(&room, 0)
	out := must.Get(parent.Push(context.Background(), &wire.Push{Namespace: "shop", Sequence: 1, Floor: 1, Items: []wire.Item{item}}, 1))(t)
	return out.Answer.Totals[0].Hits[0]
}

// Requests far from their limit do not wait for the ocean, except the first for a key in a region.
func TestFarFromTheLimit(t *testing.T) {
	inBubbles(t, heldKinds, func(t *testing.T, kind window.Kind) {
		parent := backend.New(memory.New(memory.Options{}))
		regions := [2]*Store{}
		for i := range regions {
			regions[i], _ = across(t, parent, Share)
		}
		waits, asked := 0, 0
		room := hourly(1, kind, 100_000)
		clients := []*client{{t: t, of: regions[0], id: 1}, {t: t, of: regions[1], id: 2}}
		for range 3000 {
			for _, c := range clients {
				began := time.Now()
				must.EqualOrEnd(t, c.take(room, 1, 1, false).Units, 1, "refused far from the limit")
				if asked++; time.Since(began) > 0 {
					waits++
				}
			}
			<-time.After(time.Duration(2+asked%9) * time.Millisecond)
		}
		must.AtMost(t, waits, asked/200, "of %d requests, so many waited", asked)
		t.Logf("%d of %d requests waited", waits, asked)
		closed(t, regions[:]...)
	})
}

// Nodes that lease hits of a key at about the same time do not wait for the ocean, except the first.
func TestLeasesFarFromTheLimit(t *testing.T) {
	inBubbles(t, heldKinds, func(t *testing.T, kind window.Kind) {
		random := rand.New(rand.NewPCG(1, 2))
		one, _ := across(t, backend.New(memory.New(memory.Options{})), Share)
		room := hourly(1, kind, 100_000)
		first := &client{t: t, of: one, id: 100}
		first.take(room, 1, 1, false)
		waits, asked := 0, 0
		// A key that is hit seldom, a key that more and more nodes want, and again few.
		for _, every := range []time.Duration{3 * time.Second, time.Second, 200 * time.Millisecond, 50 * time.Millisecond, time.Second, 3 * time.Second} {
			for range 300 {
				<-time.After(time.Duration(random.ExpFloat64() * float64(every)))
				c := &client{t: t, of: one, id: 1 + random.Uint64N(20)}
				began := time.Now()
				must.EqualOrEnd(t, c.take(room, 1, 8, true).Units > 0, true, "far from the limit it passes")
				if asked++; time.Since(began) > 0 {
					waits++
				}
			}
			t.Logf("a lease every %v: %d of %d waited", every, waits, asked)
		}
		<-time.After(10 * time.Second)
		for id := range uint64(3) { // the first leaves some of the few that are held
			began := time.Now()
			(&client{t: t, of: one, id: 200 + id}).take(room, 1, 8, true)
			must.Equal(t, time.Since(began), 0, "lease %d of three at once waited for", id)
		}
		must.AtMost(t, waits, asked/200, "of %d leases, so many waited", asked)
		closed(t, one)
	})
}

// A region has hits of a new window before the first request that comes in its middle.
func TestNewWindow(t *testing.T) {
	inBubbles(t, []window.Kind{window.FixedWindow, window.SlidingWindow}, func(t *testing.T, kind window.Kind) {
		one, _ := across(t, backend.New(memory.New(memory.Options{})), Share)
		room := hourly(1, kind, 1000)
		room.WidthMillis = 30e3
		c := &client{t: t, of: one, id: 1}
		<-time.After(time.Until(time.Now().Truncate(time.Minute).Add(75 * time.Second)))
		for i := range 10 {
			began := time.Now()
			must.EqualOrEnd(t, c.take(room, 1, 1, false).Units, 1, "refused far from the limit")
			if waited := time.Since(began); i > 0 && waited > 0 {
				t.Errorf("request %d waited for %v", i, waited)
			}
			<-time.After(time.Until(began.Add(30 * time.Second)))
		}
		closed(t, one)
	})
}

// Hits that a region has asked for in a new window, and that no node uses, go back.
func TestNewWindowWithoutRequests(t *testing.T) {
	inBubbles(t, []window.Kind{window.FixedWindow, window.SlidingWindow}, func(t *testing.T, kind window.Kind) {
		shared := memory.New(memory.Options{})
		one, _ := across(t, backend.New(shared), Share)
		c, room := &client{t: t, of: one, id: 1}, hourly(1, kind, 100_000)
		for range kind.Windows() { // requests until half a second before each window ends
			<-time.After(time.Until(time.Now().Truncate(time.Hour).Add(time.Hour - 20*time.Second)))
			for range 195 {
				c.take(room, 1, 100, true)
				<-time.After(100 * time.Millisecond)
			}
			<-time.After(2 * time.Minute)
		}
		must.Equal(t, counted(t, shared, room), 0, "hits of the new window at the parent, two minutes later")
		closed(t, one)
	})
}

// While the parent is away, the policy decides how much a region gives out, and its bound covers
// that. Afterwards the parent gets all hits.
func TestPolicies(t *testing.T) {
	const limit = 1000
	for policy, want := range map[Policy]struct{ passed, bound uint64 }{Share: {500, 500}, Local: {1000, 1000}, Deny: {8, 0}} {
		t.Run(policy.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				shared := memory.New(memory.Options{})
				parent := backend.New(shared)
				one, _ := across(t, parent, policy)
				two, sea := across(t, parent, policy)
				room := hourly(1, window.FixedWindow, limit)
				here, there := &client{t: t, of: two, id: 2}, &client{t: t, of: one, id: 1}
				there.take(room, 1, 1, false)
				here.take(room, 1, 1, false)
				<-time.After(15 * time.Second)
				here.take(room, 1, 1, false)
				<-time.After(3 * time.Second)
				sea.cut(10 * time.Minute)
				passed := uint64(2)
				for {
					got := here.take(room, 1, 1, false).Units
					if got == 0 && two.Away() {
						break
					}
					passed += got
				}
				if slack := uint64(20); passed > want.passed+slack || passed+slack < want.passed {
					t.Errorf("%d hits passed, want about %d", passed, want.passed)
				}
				must.Equal(t, two.Overshoot()["shop"], want.bound, "a bound of")
				<-time.After(11 * time.Minute)
				must.Equal(t, two.Away(), false, "the parent is away though the partition is over")
				closed(t, one, two)
				must.Equal(t, counted(t, shared, room), passed+1, "the parent counts hits")
			})
		})
	}
}

// A key whose counter is emptied at the parent has its whole limit again, over all regions, and no
// more.
func TestEmptied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := memory.New(memory.Options{})
		r, _ := across(t, backend.New(shared), Share)
		c := &client{t: t, of: r, id: 1}
		room := hourly(1, window.FixedWindow, 500)
		must.EqualOrEnd(t, c.take(room, 500, 500, false).Units, 500, "units")
		must.EqualOrEnd(t, c.take(room, 1, 1, false).Units, 0, "units of a full key")
		of := store.LimitCounter{LimitCounter: room.LimitCounter, Windows: []store.Window{{Number: store.NumberAt(room.LimitCounter, uint64(time.Now().UnixNano())), Hits: 500}}}
		calendar := store.Calendar{NowNanos: uint64(time.Now().UnixNano())}
		p := &wire.Push{Namespace: "shop", Sender: 77, Sequence: 1, Floor: 1, Items: calendar.GiveBack(&of, wire.MaxHits)}
		must.Get(shared.Push(t.Context(), p, 1))(t)
		c.take(room, 1, 1, false) // makes the key known to the region
		<-time.After(3 * time.Second)
		passed := uint64(0)
		for range 3 {
			passed += c.take(room, 1, 500, false).Units
			<-time.After(2 * time.Second)
		}
		if passed < 499 || passed > 500 {
			t.Errorf("%d hits passed after the counter was emptied, want 500, or 499 if the first passed", passed)
		}
		closed(t, r)
	})
}

// The parent decides the kinds that a region does not hold. While it is away, the answer lacks
// them.
func TestRelayed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := memory.New(memory.Options{})
		r, sea := across(t, backend.New(shared), Share)
		c := &client{t: t, of: r, id: 1}
		log := hourly(1, window.SlidingBuckets, 10)
		log.Precision = 1
		first := hourly(2, window.FirstHitWindow, 10)
		fixed := hourly(3, window.FixedWindow, 10)
		takes := []wire.Take{{Least: 3, Most: 3, Rooms: []wire.Room{fixed}}, {Least: 2, Most: 2, Rooms: []wire.Room{log, fixed}}, {Least: 4, Most: 4, Rooms: []wire.Room{first}}}
		answer := c.push(nil, takes...)
		for i, want := range []uint64{3, 2, 4} {
			must.Equal(t, answer.Grants[i].Units, want, "take %d: units", i)
		}
		sea.cut(time.Minute)
		answer = c.push(nil, takes...)
		if len(answer.Missing) != 3 || answer.Missing[0] != wire.Answered || answer.Missing[1] != wire.InDoubt || answer.Missing[2] != wire.InDoubt {
			t.Errorf("missing %v", answer.Missing)
		}
		<-time.After(70 * time.Second)
		closed(t, r)
		must.Equal(t, counted(t, shared, first), 4, "the parent counts hits")
	})
}

// The parent counts all limits of a key that has one of a kind that a region does not hold: what it has granted goes back
// there, too, and a push that comes twice counts once.
func TestKeyOfSeveralKinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := memory.New(memory.Options{})
		r, _ := across(t, backend.New(shared), Share)
		c := &client{t: t, of: r, id: 1}
		log, fixed, held := hourly(1, window.SlidingBuckets, 10), hourly(1, window.FixedWindow, 10), hourly(2, window.FixedWindow, 10)
		log.Precision = 1
		must.Equal(t, c.push(nil, wire.Take{Least: 5, Most: 5, Rooms: []wire.Room{fixed, log}}).Grants[0].Units, 5, "units")
		at := store.Calendar{NowNanos: uint64(time.Now().UnixNano())}
		for _, test := range []struct{ hits, want int64 }{{-3, 2}, {4, 6}, {-6, 0}} {
			items := []wire.Item{at.RoomItem(&fixed, 1), at.RoomItem(&log, 1), at.RoomItem(&held, 1)}
			for i, hits := range []int64{test.hits, test.hits, 1} {
				items[i].Hits[0] = hits
			}
			for range 2 {
				must.Equal(t, int64(c.push(items).Totals[0].Hits[0]), test.want, "after %d more: hits in the answer", test.hits)
				c.sequence--
			}
			c.sequence++
			<-time.After(3 * time.Second)
			must.Equal(t, int64(counted(t, shared, fixed)), test.want, "after %d more: the parent counts hits", test.hits)
		}
		closed(t, r)
		must.Equal(t, counted(t, shared, held), 3, "the parent counts hits of another key")
	})
}

// Hits of a small limit that a node gives back are available to other regions at once, because such
// limits are not leased.
func TestSmallLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		parent := backend.New(memory.New(memory.Options{}))
		one, _ := across(t, parent, Share)
		two, _ := across(t, parent, Share)
		here, there := &client{t: t, of: one, id: 1}, &client{t: t, of: two, id: 2}
		room := hourly(1, window.FixedWindow, 100)
		grant := here.take(room, 60, 60, false)
		item := store.Calendar{NowNanos: grant.AtNanos}.RoomItem(&room, 0)
		item.Hits[0] = -7
		here.push([]wire.Item{item})
		<-time.After(2 * time.Second)
		must.Equal(t, there.take(room, 1, 100, false).Units, 47, "units")
		closed(t, one, two)
	})
}

// The parent's store loses its memory, and gets the hits of a region's nodes again.
func TestParentForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, sea := across(t, backend.New(memory.New(memory.Options{})), Share)
		c := &client{t: t, of: r, id: 1}
		room := hourly(1, window.FixedWindow, 1000)
		must.EqualOrEnd(t, c.take(room, 700, 700, false).Units, 700, "units")
		<-time.After(3 * time.Second)
		empty := memory.New(memory.Options{})
		sea.parent = backend.New(empty)
		passed := uint64(700)
		for range 6 {
			passed += c.take(room, 1, 1000, false).Units
			<-time.After(2 * time.Second)
		}
		must.Equal(t, passed, 1000, "hits passed")
		closed(t, r)
		must.Equal(t, counted(t, empty, room), 1000, "the parent counts hits")
	})
}

// Hits under way back to the parent count once, and belong to no region.
func TestGivenBackOnTheWay(t *testing.T) {
	inBubbles(t, heldKinds, func(t *testing.T, kind window.Kind) {
		shared := memory.New(memory.Options{})
		one, _ := across(t, backend.New(shared), Share)
		room := hourly(1, kind, 1000)
		c := &client{t: t, of: one, id: 1}
		granted := c.take(room, 1, 500, true).Units
		item := store.Calendar{NowNanos: uint64(time.Now().UnixNano())}.RoomItem(&room, 0)
		read := func(hits int64) uint64 {
			item.Hits[0] = hits
			return c.push([]wire.Item{item}).Totals[0].Hits[0]
		}
		if got := read(-int64(granted)); granted == 0 || got != 0 {
			t.Errorf("%d are left of %d that were given back", got, granted)
		}
		for range 1000 {
			<-time.After(10 * time.Millisecond)
			must.EqualOrEnd(t, read(0), 0, "hits are counted, and none was used")
		}
		closed(t, one)
		must.Equal(t, counted(t, shared, room), 0, "the parent counts")
	})
}

// Hits go back to where they were counted, whatever of the key the region has counted itself: for a take of several keys of
// which one is relayed that is the parent, even if it first refuses to hear of it, and otherwise a region.
func TestGivenBackWhereCounted(t *testing.T) {
	type give struct {
		kind                  window.Kind
		here, together, there uint64 // hits by a take in this region, by one with a relayed key, and in another region
		back, more            uint64 // given back, and taken later
		refused               bool
	}
	var cases []give
	for _, kind := range heldKinds {
		cases = append(cases,
			give{kind: kind, together: 10, back: 10},
			give{kind: kind, here: 4, together: 10, back: 10, more: 3},
			give{kind: kind, here: 20, together: 10, back: 10},
			give{kind: kind, together: 10, back: 4, refused: true},
			give{kind: kind, there: 5, back: 3, more: 1},
			give{kind: kind, here: 2, back: 5, more: 1}, // which nobody has counted
		)
	}
	inBubbles(t, cases, func(t *testing.T, g give) {
		shared := memory.New(memory.Options{})
		parent := backend.New(shared)
		other, _ := across(t, parent, Share)
		r, m := below(t, parent, Share)
		held, relayed := hourly(1, g.kind, 100), hourly(2, window.FirstHitWindow, 100)
		here, there := &client{t: t, of: r, id: 1}, &client{t: t, of: other, id: 2}
		take := func(c *client, hits uint64, rooms ...wire.Room) (grant wire.Grant) {
			if hits > 0 {
				grant = c.push(nil, wire.Take{Least: hits, Most: hits, Rooms: rooms}).Grants[0]
				must.EqualOrEnd(t, grant.Units, hits, "units")
			}
			<-time.After(3 * time.Second)
			return grant
		}
		take(here, g.here, held)
		take(there, g.there, held)
		grant := take(here, g.together, held, relayed)
		item := store.Calendar{NowNanos: uint64(time.Now().UnixNano())}.RoomItem(&held, 0)
		item.Limit, item.Hits[0] = held.Limit, -int64(g.back)
		items := []wire.Item{item}
		if g.together > 0 {
			item := store.Calendar{NowNanos: grant.AtNanos}.RoomItem(&relayed, 0)
			item.Newest, item.Hits[0] = grant.Totals[1].Newest, -int64(g.back)
			items = append(items, item)
		}
		if g.refused {
			m.set(mood{refuses: func(p *wire.Push) error {
				if names(p, held) && p.Sender != here.id {
					return fmt.Errorf("%w: not now", ErrRefused)
				}
				return nil
			}})
		}
		left := g.here + g.together + g.there - min(g.back, g.here+g.together+g.there)
		here.push(items)
		<-time.After(3 * time.Second)
		m.set(mood{})
		take(here, g.more, held)
		for _, c := range []*client{here, there} {
			item.Hits[0] = 0
			c.push([]wire.Item{item}) // the region asks the parent
			<-time.After(3 * time.Second)
			must.Equal(t, c.push([]wire.Item{item}).Totals[0].Hits[0], left+g.more, "region %d counts hits", c.id)
		}
		closed(t, r, other)
		must.Equal(t, counted(t, shared, held), left+g.more, "the parent counts hits")
		must.Equal(t, counted(t, shared, relayed), g.together-min(g.back, g.together), "the parent counts hits of the relayed key")
	})
}

// late is a store that delays pushes with takes.
type late struct{ Own }

func (l *late) Push(ctx context.Context, p *wire.Push, nodes uint64) (store.Outcome, error) {
	if len(p.Takes) > 0 {
		<-time.After(5 * time.Second)
	}
	return l.Own.Push(ctx, p, nodes)
}

// A take that has found room still has it when the own store decides: the region does not give the
// hits back meanwhile.
func TestRoomIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := New(Options{Parent: &ocean{parent: backend.New(memory.New(memory.Options{})), random: rand.New(rand.NewPCG(1, 2))}, Logger: slog.New(slog.DiscardHandler)})
		must.OK(t, one.Start(t.Context(), &late{memory.New(memory.Options{Now: one.Now, Granter: one})}))
		c := &client{t: t, of: one, id: 1}
		room := hourly(1, window.FixedWindow, 100) // a region holds nothing of it ahead
		must.Equal(t, c.take(room, 101, 101, false).Units, 0, "101 of 100 pass")
		must.Equal(t, c.take(room, 1, 1, false).Units, 1, "the first is refused")
		closed(t, one)
	})
}

// A region's parent hears of the rules of the region's nodes, which tell them to the region alone,
// and again when it has forgotten them.
func TestParentKnowsRules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, sea := across(t, backend.New(memory.New(memory.Options{})), Share)
		region := backend.New(r)
		told := wire.AppendTold(nil, 0, []wire.RuleShape{{Name: "per-user"}})
		report := wire.Report{Namespace: "ns", Node: 1, Sender: 1, Digest: wire.DigestOf(told), Rules: []wire.RuleReport{{Name: "per-user", Every: 1}}}
		asked := 0
		for range 12 {
			report.AtNanos = uint64(time.Now().UnixNano())
			reply := must.Get(region.Push(t.Context(), wire.AppendReport(nil, &report)))(t)
			if report.Told = nil; string(reply.Body) == wire.TellRules {
				report.Told = told
				asked++
			}
			<-time.After(5 * time.Second)
			known, err := sea.parent.Configurations(t.Context(), "ns")
			if top, errTop := sea.parent.Top(t.Context(), "ns", ""); err != nil || errTop != nil || len(top.Rules) != 1 {
				t.Fatalf("%+v, %v %v", top, err, errTop)
			}
			if backend.RuleOf(known, "per-user") != nil && asked == 1 {
				asked++ // of the first parent
				sea.parent = backend.New(memory.New(memory.Options{}))
			} else if backend.RuleOf(known, "per-user") != nil {
				asked++
				break
			}
		}
		must.Equal(t, asked, 3, "the parent knows the rules %d times, and the node was asked once", asked-1)
		closed(t, r)
	})
}
