package storetest

import (
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir/internal/must"
	"weir/internal/store"
	"weir/internal/wire"
)

// A push counts once for each sender of each namespace. A copy is answered with the present totals.
func testOnce(t *testing.T, b *bench) {
	var batch []wire.Item
	for _, r := range Rooms(9, 1) {
		batch = append(batch, b.item(r, 3))
	}
	send := func(namespace string, sender uint64, duplicate bool, total uint64) {
		t.Helper()
		out := b.send(&wire.Push{Namespace: namespace, Sender: sender, Sequence: 5, Floor: 5, Items: batch}, 1)
		if out.Duplicate != duplicate || duplicate && (out.Applied != 0 || out.Dropped != 0) || SumOf(out.Answer.Totals[0]) != total {
			t.Errorf("sender %d of %s: outcome %+v, want a duplicate %v and a total of %d", sender, namespace, out, duplicate, total)
		}
	}
	send("ns", 7, false, 3)
	b.send(b.next([]wire.Item{b.item(Room(fixed, fixed, 9, 1), 10)}), 1)
	for range 3 {
		send("ns", 7, true, 13)
	}
	send("ns", math.MaxUint64, false, 16)
	send("ns", math.MaxUint64-1, false, 19)
	send("other", 7, false, 3)
	send("ns", 7, true, 19)
}

func testZombie(t *testing.T, b *bench) {
	r := wide(Room(sliding, 1, 9, 1), day)
	it := b.item(r, 1)
	push := func(seq, floor, want uint64, duplicate bool) {
		t.Helper()
		out := b.send(&wire.Push{Namespace: "ns", Sender: 7, Sequence: seq, Floor: floor, Items: []wire.Item{it}}, 1)
		must.EqualOrEnd(t, SumOf(out.Answer.Totals[0]), want, "sequence %d, floor %d: hits", seq, floor)
		must.EqualOrEnd(t, out.Duplicate, duplicate, "sequence %d, floor %d: known", seq, floor)
	}
	for _, step := range []struct {
		seq, floor, total uint64
		duplicate         bool
	}{
		{1, 1, 1, false},
		{3, 1, 2, false},
		{4, 3, 3, false},
		{2, 1, 3, true},  // new, but below the floor: the sender has its answer
		{1, 1, 3, true},  // seen, and forgotten below the floor
		{3, 1, 3, true},  // seen, and still remembered
		{5, 0, 4, false}, // a floor of nothing does not lower it
		{2, 2, 4, true},
		{5000, 5000, 5, false}, // far above the floor
		{4999, 4999, 5, true},
		{9095, 5000, 6, false}, // the highest sequence above the floor that is accepted
		{9095, 5000, 6, true},
		{5001, 5000, 7, false},
		{9096, 5001, 8, false}, // has the place of 5000 in the memory store
		{5000, 5000, 8, true},
		{5001, 5001, 8, true},
		{wire.MaxHits, wire.MaxHits, 9, false},
		{9097, 9097, 9, true},
	} {
		push(step.seq, step.floor, step.total, step.duplicate)
	}
	// The sender is remembered as long as any of its windows counts, and for at least ten minutes.
	b.clock.advance(48*time.Hour - time.Millisecond)
	push(wire.MaxHits, wire.MaxHits, 9, true)
	p := &wire.Push{Namespace: "ns", Sender: 8, Sequence: 1, Floor: 1, Items: []wire.Item{b.item(wide(r, 1), 1)}}
	b.send(p, 1)
	b.clock.advance(store.SenderLife - time.Millisecond)
	must.Equal(t, b.send(p, 1).Duplicate, true, "the sender is forgotten too soon")
}

// testLate sends hits of each algorithm again, also those of a clock that is ahead as far as it may be. The sender is
// known at least until they would be dropped.
func testLate(t *testing.T, b *bench) {
	for i, r := range Rooms(100, 1) {
		for j, ahead := range []time.Duration{0, store.Ahead} {
			b.clock.set(Epoch.Add(ahead))
			it := b.item(r, 3)
			it.ID[1] = byte(j)
			p := &wire.Push{Namespace: "ns", Sender: uint64(100 + 2*i + j), Sequence: 1, Floor: 1, Items: []wire.Item{it}}
			b.clock.set(Epoch)
			if out := b.send(p, 1); out.Duplicate || out.Applied != 3 {
				t.Errorf("kind %d: outcome %+v, want 3 applied", r.Kind, out)
			}
			for after := time.Second; after < 2*store.Ahead; after += 97 * time.Second {
				b.clock.set(Epoch.Add(after))
				// Others use the counter on.
				other := b.item(r, 1)
				other.ID[1] = byte(j)
				b.send(b.next([]wire.Item{other}), 1)
				if out := b.send(p, 1); out.Applied != 0 || !out.Duplicate && out.Dropped != 3 {
					t.Errorf("kind %d, %v ahead, %v later: outcome %+v, want a duplicate, or 3 dropped", r.Kind, ahead, after, out)
				}
			}
		}
	}
}

func testTakesOnce(_ *testing.T, b *bench) {
	for _, r := range Rooms(100, 2) {
		r = wide(r, day)
		push := func(seq, floor uint64, takes ...wire.Take) *wire.Push {
			return &wire.Push{Namespace: "ns", Sender: uint64(r.ID[0]) + 100, Sequence: seq, Floor: floor, Takes: takes}
		}
		b.clock.set(Epoch.Add(50 * time.Second))
		first, third := push(1, 1, Take(1, 3, r), Take(1, 2, r), Take(99, 99, r)), push(3, 1, Take(1, 1, r))
		b.like(first)
		at := uint64(b.clock.now().UnixNano())
		b.clock.advance(time.Second)
		// Later pushes come in any order, also without takes. Copies have the present totals.
		b.like(third)
		b.like(push(4, 0))
		b.like(push(2, 1, Take(1, 1, r)))
		for range 2 {
			b.again(first, at, 3, 2, 0)
			b.again(third, at+1e9, 1)
		}
		// The grants are remembered as long as the sender may send the push again.
		b.clock.advance(store.SenderLife - time.Millisecond)
		b.again(third, at+1e9, 1)
		b.like(push(5, 3, Take(1, 1, r)))
		b.again(third, at+1e9, 1)
		now := uint64(b.clock.now().UnixNano())
		b.again(first, now, 0, 0, 0)
		b.again(push(2, 2, Take(1, 1, r)), now, 0)
		// A push below the floor that never came before gets nothing either.
		b.like(push(9, 9, Take(1, 1, r)))
		b.again(push(8, 8, Take(1, 1, r)), now, 0)
	}
	// A refused take is not tried again, even if there is room by then, and its rejected hits count once.
	r := Room(fixed, 107, 4, 1)
	r.CountRejected = true
	refused := b.next(nil, Take(5, 5, r), Take(1, 9, r), Take(1, 1, r))
	b.like(refused)
	for range 2 {
		b.again(refused, uint64(b.clock.now().UnixNano()), 0, 4, 0)
	}
	b.list()
}

// GrantsAreBounded wants a sender whose floor does not move to have a bounded number of grants. None of its pushes is
// applied twice. The grants of its first push, which has no answer, and of its latest pushes are remembered: when all
// come again, those of its pushes from kept on. It calls check after each push.
func GrantsAreBounded(t *testing.T, s store.Store, pushes, kept uint64, check func(sequence uint64)) {
	r := wide(Room(fixed, 1, 1e12, 1), day)
	for _, again := range []bool{false, true} {
		for sequence := uint64(1); sequence <= pushes; sequence++ {
			p := &wire.Push{Namespace: "ns", Sender: 1, Sequence: sequence, Floor: 1, Takes: slices.Repeat([]wire.Take{Take(1, 1, r)}, wire.MaxItems)}
			out := must.Get(s.Push(t.Context(), p, 1))(t)
			must.Equal(t, out.Duplicate, again, "sequence %d is known", sequence)
			want := uint64(1)
			if again && sequence > 1 && sequence < kept {
				want = 0
			}
			for _, g := range []wire.Grant{out.Answer.Grants[0], out.Answer.Grants[wire.MaxItems-1]} {
				must.Equal(t, g.Units, want, "sequence %d, known %v: units", sequence, again)
			}
			check(sequence)
		}
	}
	found := must.Get(store.CountersOf(t.Context(), s, "ns", r.ID))(t)
	if len(found) != 1 || len(found[0].Windows) != 1 || found[0].Windows[0].Hits != int64(pushes*wire.MaxItems) {
		t.Errorf("counters %+v, want each take's hit once", found)
	}
}

// testTakesLate sends takes again as late as possible: when their windows have just ended, or after an outage of nearly
// a day. Meanwhile others use the store, which makes it forget expired data, and the counter if that lasts.
func testTakesLate(_ *testing.T, b *bench) {
	for _, width := range []uint64{minute, 60 * minute, day, 30 * day} {
		for _, r := range Rooms(100, 2) {
			begin := Epoch.Add(59 * time.Second)
			b.clock.set(begin)
			r = wide(r, width)
			r.Ordinal = uint8(bits.TrailingZeros64(width))
			p := &wire.Push{Namespace: "ns", Sender: 100 + uint64(r.ID[0]) + width, Sequence: 1, Takes: []wire.Take{Take(1, 3, r)}}
			b.like(p)
			again := time.Duration(p.AgainNanos())
			for _, late := range []time.Duration{2 * time.Second, again / 2, again, again + store.SenderLife - time.Second} {
				b.clock.set(begin.Add(late))
				b.again(p, uint64(begin.UnixNano()), 3)
				b.push(nil, Take(1, 1, wide(Room(fixed, 99, 1000, 1), day)), Take(1, 1, r))
				b.again(p, uint64(begin.UnixNano()), 3)
			}
		}
	}
}

// testHammer lets many senders push hits and takes of a few counters of each algorithm at the same time. Their pushes come
// in any order, each up to three times, some of these at once.
func testHammer(t *testing.T, b *bench) {
	const senders, batches, limit, apart = 8, 40, 40, 8
	counted, taken := Rooms(wire.MaxHits, 1), Rooms(limit, 1)
	granted := make([]atomic.Uint64, len(taken))
	var work sync.WaitGroup
	for sender := range uint64(senders) {
		work.Go(func() {
			random := rand.New(rand.NewPCG(sender, 2))
			for first := uint64(1); first <= batches; first += apart {
				var pushes []*wire.Push
				for seq := first; seq < first+apart; seq++ {
					p := &wire.Push{Namespace: "ns", Sender: sender, Sequence: seq, Floor: first}
					for i, r := range counted {
						r.Ordinal = 1
						it := b.item(r, int64(seq))
						if r.Precision == 1 {
							it.Newest -= sender
						}
						p.Items, p.Takes = append(p.Items, it), append(p.Takes, Take(1, 1+random.Uint64N(3), taken[i]))
					}
					pushes = append(pushes, slices.Repeat([]*wire.Push{p}, 1+random.IntN(3))...)
				}
				random.Shuffle(len(pushes), func(i, j int) { pushes[i], pushes[j] = pushes[j], pushes[i] })
				var copies sync.WaitGroup
				var units sync.Map // by sequence
				for half := range slices.Chunk(pushes, (len(pushes)+1)/2) {
					copies.Go(func() {
						for _, p := range half {
							var got []uint64
							for _, g := range b.send(p, 1).Answer.Grants {
								got = append(got, g.Units)
							}
							had, known := units.LoadOrStore(p.Sequence, got)
							if known && !slices.Equal(had.([]uint64), got) {
								t.Errorf("sequence %d: units %v, want what a copy has, %v", p.Sequence, got, had)
							}
							for i := range got {
								if !known {
									granted[i].Add(got[i])
								}
							}
						}
					})
				}
				copies.Wait()
			}
		})
		work.Go(func() { b.counters("ns") })
	}
	work.Wait()
	for i, r := range taken {
		must.Equal(t, granted[i].Load(), limit, "kind %d: units granted", r.Kind)
		b.used(r, limit)
	}
	must.Equal(t, b.sum("ns"), int64(len(taken)*limit+senders*len(counted)*batches*(batches+1)/2), "sum: every batch once")
}

// testLeasesHammer lets ten nodes lease all that they can, and then take the rest for requests. The
// sum of the leases does not depend on the order: once a lease is refused, all further leases are.
func testLeasesHammer(t *testing.T, b *bench) {
	const limit, nodes = 1000, 10
	for _, test := range []struct {
		room          wire.Room
		leased, taken uint64
	}{
		{Room(fixed, 1, limit, 1), 981, 19}, {Room(tokens, 2, limit, 1), 981, 19}, {Room(sliding, 3, limit, 3), 314, 19},
	} {
		r := test.room
		var leased, taken atomic.Uint64
		var work sync.WaitGroup
		for node := range uint64(nodes) {
			work.Go(func() {
				asked, got := Take(1, 100, r), &leased
				asked.Lease = true
				for seq := uint64(1); seq <= 2*limit; seq++ {
					p := &wire.Push{Namespace: "ns", Sender: 100*uint64(r.ID[0]) + node, Sequence: seq, Floor: seq, Takes: []wire.Take{asked}}
					units := b.send(p, nodes).Answer.Grants[0].Units
					if got.Add(units); units > 0 {
						continue
					} else if !asked.Lease {
						return
					}
					asked, got = Take(1, 1, r), &taken
				}
				t.Errorf("kind %d: node %d is never refused", r.Kind, node)
			})
		}
		work.Wait()
		must.Equal(t, leased.Load(), test.leased, "kind %d: units leased", r.Kind)
		must.Equal(t, taken.Load(), test.taken, "kind %d: units taken", r.Kind)
		b.used(r, (test.leased+test.taken)*r.Cost)
	}
}
