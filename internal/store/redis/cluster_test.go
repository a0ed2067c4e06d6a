package redis_test

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir/internal/must"
	"weir/internal/store"
	"weir/internal/store/redis"
	"weir/internal/store/redis/redistest"
	"weir/internal/store/storetest"
	"weir/internal/wire"
	"weir/window"
)

func TestCluster(t *testing.T) {
	cluster := redistest.StartCluster(t)
	for _, test := range []struct {
		name string
		run  func(t *testing.T, cluster *redistest.Cluster)
	}{
		{"store", func(t *testing.T, cluster *redistest.Cluster) {
			storetest.Run(t, func(t testing.TB, now func() time.Time) store.Store {
				cluster.Flush()
				return open(t, cluster.URL(), now)
			})
		}},
		{"one node", testOneNode},
		{"scripts", testScripts},
		{"keys", testKeys},
		{"shared takes", testSharedTakes},
		{"shared takes again", testSharedTakesAgain},
		{"shared takes beside each other", testSharedTakesBeside},
		{"shared takes, late copies", testSharedTakesLate},
		{"shared takes, later", testSharedTakesLater},
		{"shared leases, clocks apart", testClocksApart},
		{"evictions", testEvictions},
		{"moved slots", testMovedSlots},
		{"paused master", testPausedMaster},
		{"killed master", testKilledMaster},
	} {
		t.Run(test.name, func(t *testing.T) {
			cluster.Flush()
			test.run(t, cluster)
		})
	}
}

func BenchmarkCluster(b *testing.B) {
	url := redistest.StartCluster(b).URL()
	b.ResetTimer()
	storetest.Bench(b, func(t testing.TB, now func() time.Time) store.Store { return open(t, url, now) })
}

func fixedItem(id byte, hits int64) wire.Item {
	c := counter(window.FixedWindow, id, 24*time.Hour)
	return wire.Item{LimitCounter: c, Newest: uint64(epoch.UnixMilli()) / c.WidthMillis, Hits: []int64{hits}}
}

func fixedRoom(id byte, limit uint64) wire.Room {
	return wire.Room{LimitCounter: counter(window.FixedWindow, id, 24*time.Hour), Limit: limit, Cost: 1}
}

// sum returns the hits of some keys, or of all if none is named.
func sum(t *testing.T, s store.Store, ids ...byte) (hits int64) {
	t.Helper()
	must.OK(t, s.Counters(t.Context(), "ns", nil, func(c store.LimitCounter) error {
		for _, w := range c.Windows {
			if len(ids) == 0 || slices.ContainsFunc(ids, func(id byte) bool { return c.ID == wire.ID{id} }) {
				hits += w.Hits
			}
		}
		return nil
	}))
	return hits
}

// places returns for the IDs from 0 their partition, as in keys, and their master.
func places(t *testing.T, cluster *redistest.Cluster) (partition []string, master []int) {
	t.Helper()
	store := open(t, cluster.URL(), atEpoch)
	const ids = 64
	p := &wire.Push{Namespace: "ns", Sender: 9999, Sequence: 1, Floor: 1}
	for id := range byte(ids) {
		it := fixedItem(id, 1)
		it.Kind = uint8(window.SlidingWindow)
		p.Items = append(p.Items, it)
	}
	must.Get(store.Push(t.Context(), p, 1))(t)
	partition, master = make([]string, ids), make([]int, ids)
	name := regexp.MustCompile(`^weir:\{ns/([0-3]{3})\}:counter:(..)0{30}:3:0:86400000$`)
	for m := range 3 {
		keys := must.Get(cluster.Client(m).Keys(t.Context(), "*counter*").Result())(t)
		for _, key := range keys {
			match := name.FindStringSubmatch(key)
			must.EqualOrEnd(t, match != nil, true, "key %s", key)
			id := must.Get(strconv.ParseUint(match[2], 16, 8))(t)
			partition[id], master[id] = match[1], m
		}
	}
	cluster.Flush()
	return partition, master
}

// calls returns how many scripts the masters have run.
func calls(t *testing.T, cluster *redistest.Cluster) (n int) {
	t.Helper()
	for m := range 3 {
		for _, command := range []string{"eval", "evalsha"} {
			n += redistest.BusyWith(t, cluster.Client(m), command).Calls
		}
	}
	return n
}

func testScripts(t *testing.T, cluster *redistest.Cluster) {
	partition, _ := places(t, cluster) // this loads the script on all masters
	store := open(t, cluster.URL(), atEpoch)
	for seq, test := range []struct {
		name  string
		ids   []byte
		takes [][]byte
		want  int
	}{
		{name: "nothing", want: 1},
		{name: "one key", ids: []byte{1, 1, 1}, want: 1},
		{name: "a take of an item's key", ids: []byte{1}, takes: [][]byte{{1}, {1}}, want: 1},
	} {
		p := &wire.Push{Namespace: "ns", Sender: 1, Sequence: uint64(seq + 1), Floor: 1}
		for i, id := range test.ids {
			it := fixedItem(id, 1)
			it.Ordinal = uint8(i)
			p.Items = append(p.Items, it)
		}
		for _, ids := range test.takes {
			take := wire.Take{Least: 1, Most: 1}
			for _, id := range ids {
				take.Rooms = append(take.Rooms, fixedRoom(id, 100))
			}
			p.Takes = append(p.Takes, take)
		}
		before := calls(t, cluster)
		must.Get(store.Push(t.Context(), p, 1))(t)
		must.Equal(t, calls(t, cluster)-before, test.want, "%s: scripts", test.name)
	}
	// A large batch needs a script for each partition that it touches, whatever its size there.
	p := &wire.Push{Namespace: "ns", Sender: 1, Sequence: 10, Floor: 1}
	var touched []string
	for id, name := range partition {
		if !slices.Contains(touched, name) {
			touched = append(touched, name)
		}
		p.Items = append(p.Items, fixedItem(byte(id), 1), fixedItem(byte(id), 2))
		p.Takes = append(p.Takes, wire.Take{Least: 1, Most: 1, Rooms: []wire.Room{fixedRoom(byte(id), 100)}})
	}
	before := calls(t, cluster)
	must.Get(store.Push(t.Context(), p, 1))(t)
	must.Equal(t, calls(t, cluster)-before, len(touched), "scripts")
	must.AtMost(t, len(touched), 32, "partitions")
	// The same holds when the masters have forgotten the script.
	for m := range 3 {
		must.OK(t, cluster.Client(m).ScriptFlush(t.Context()).Err())
	}
	p.Sequence++
	must.EqualOrEnd(t, must.Get(store.Push(t.Context(), p, 1))(t).Applied, int64(4*len(p.Takes)), "applied")
	// A take of several partitions needs one more script for each except the first. The first makes the records, the second loads lone.lua.
	other := slices.IndexFunc(partition, func(name string) bool { return name != partition[0] })
	p = &wire.Push{Namespace: "ns", Sender: 1, Sequence: 11, Floor: 1, Takes: []wire.Take{{Least: 1, Most: 1,
		Rooms: []wire.Room{fixedRoom(0, 100), fixedRoom(byte(other), 100)}}}}
	for range 3 {
		before, p.Sequence = calls(t, cluster), p.Sequence+1
		must.EqualOrEnd(t, must.Get(store.Push(t.Context(), p, 1))(t).Answer.Grants[0].Units, 1, "units")
	}
	must.Equal(t, calls(t, cluster)-before, 2, "scripts for a take of two partitions")
}

// testKeys checks the keys in Redis: their hash tags, and that each expires.
func testKeys(t *testing.T, cluster *redistest.Cluster) {
	counters := open(t, cluster.URL(), nil)
	must.Get(store.Join(t.Context(), counters, "ns", 7))(t)
	p := &wire.Push{Namespace: "ns", Sender: 7, Sequence: 1, Floor: 1, Takes: []wire.Take{{Least: 1, Most: 1}}}
	for id := range byte(40) {
		p.Takes[0].Rooms = append(p.Takes[0].Rooms, fixedRoom(id, 1))
	}
	for range 2 { // a grant, and a grant that goes back
		must.Get(counters.Push(t.Context(), p, 1))(t)
		p.Sequence++
		p.Takes[0].Rooms[39].Limit = 0
	}
	want := regexp.MustCompile(`^weir:(\{ns\}:nodes|\{ns/[0-3]{3}\}:(counter:[0-9a-f]{32}:1:0:86400000|sender:0000000000000007(|:[0-9]+|:last)))$`)
	for m := range 3 {
		keys := must.Get(cluster.Client(m).Keys(t.Context(), "*").Result())(t)
		must.EqualOrEnd(t, len(keys) > 0, true, "master %d has keys", m)
		for _, key := range keys {
			must.Equal(t, want.MatchString(key), true, "key %s", key)
			must.Equal(t, must.Get(cluster.Client(m).PTTL(t.Context(), key).Result())(t) > 0, true, "%s expires", key)
		}
	}
}

// apart returns two IDs whose partitions are asked in this order, and are on different masters.
func apart(t *testing.T, cluster *redistest.Cluster) (first, second byte, masterOfFirst, masterOfSecond int) {
	t.Helper()
	partition, master := places(t, cluster)
	for id := range partition {
		if partition[id] > partition[0] && master[id] != master[0] {
			return 0, byte(id), master[0], master[id]
		}
		if partition[id] < partition[0] && master[id] != master[0] {
			return byte(id), 0, master[id], master[0]
		}
	}
	t.Fatal("all are on one master")
	return
}

// testSharedTakes lets many requests take from two partitions at a time. They get all that the
// fuller partition has, and nothing is left behind in the other.
func testSharedTakes(t *testing.T, cluster *redistest.Cluster) {
	first, second, _, _ := apart(t, cluster)
	for name, limits := range map[string][2]uint64{"the first is full": {40, 400}, "the second is full": {400, 40}} {
		cluster.Flush()
		var granted atomic.Uint64
		var work sync.WaitGroup
		for sender := range uint64(8) {
			store := open(t, cluster.URL(), atEpoch)
			work.Go(func() {
				for seq := uint64(1); seq <= 15; seq++ {
					p := &wire.Push{Namespace: "ns", Sender: sender, Sequence: seq, Floor: seq}
					for range 2 {
						p.Takes = append(p.Takes, wire.Take{Least: 1, Most: 2, Rooms: []wire.Room{fixedRoom(second, limits[1]), fixedRoom(first, limits[0])}})
					}
					out, err := store.Push(t.Context(), p, 8)
					if err != nil {
						t.Error(err)
						return
					}
					for _, g := range out.Answer.Grants {
						granted.Add(g.Units)
					}
				}
			})
		}
		work.Wait()
		must.Equal(t, granted.Load(), 40, "%s: granted", name)
		store := open(t, cluster.URL(), atEpoch)
		must.Equal(t, sum(t, store, first), 40, "%s: hits of the first counted", name)
		must.Equal(t, sum(t, store, second), 40, "%s: hits of the second counted", name)
	}
}

// full makes a master refuse writes as if its memory was full, or accept them again, and waits
// until a store knows.
func full(t *testing.T, cluster *redistest.Cluster, s store.Store, master int, is bool) {
	t.Helper()
	memory := "0"
	if is {
		memory = "1"
	}
	must.OK(t, cluster.Client(master).ConfigSet(t.Context(), "maxmemory", memory).Err())
	if !is {
		wellAgain(t, cluster, s)
	}
}

// wellAgain waits until a store accepts all hits.
func wellAgain(t *testing.T, cluster *redistest.Cluster, s store.Store) {
	t.Helper()
	var err error
	for range 500 {
		if err = s.Ping(t.Context()); err == nil {
			return
		}
		cluster.Pause(t.Context())
	}
	t.Fatal(err)
}

// testSharedTakesBeside lets two takes of a push meet in a partition. The first is cut short before
// it gets there. When the push comes again, each take gets a grant that equals its counted hits.
func testSharedTakesBeside(t *testing.T, cluster *redistest.Cluster) {
	partition, master := places(t, cluster)
	find := func(fits func(id int) bool) int {
		t.Helper()
		for id := range partition {
			if fits(id) {
				return id
			}
		}
		t.Fatal("no such key")
		return 0
	}
	last := find(func(id int) bool { return partition[id] == slices.Max(partition) })
	away := find(func(id int) bool { return master[id] != master[last] && partition[id] < partition[last] })
	here := find(func(id int) bool { return master[id] == master[last] && partition[id] < partition[last] })
	for name, units := range map[string]uint64{"all": 10, "one of two": 5, "half": 7} {
		cluster.Flush()
		store := open(t, cluster.URL(), atEpoch)
		p := &wire.Push{Namespace: "ns", Sender: 1, Sequence: 1, Floor: 1}
		for _, first := range []int{away, here} {
			p.Takes = append(p.Takes, wire.Take{Least: 2, Most: 5, Rooms: []wire.Room{fixedRoom(byte(first), 100), fixedRoom(byte(last), units)}})
		}
		full(t, cluster, store, master[away], true)
		must.EqualOrEnd(t, must.Get(store.Push(t.Context(), p, 1))(t).Lacking != nil, true, "the answer lacks some")
		full(t, cluster, store, master[away], false)
		out := must.Get(store.Push(t.Context(), p, 1))(t)
		must.OK(t, out.Lacking)
		grants := out.Answer.Grants
		ofAway, ofHere, ofLast := sum(t, store, byte(away)), sum(t, store, byte(here)), sum(t, store, byte(last))
		if g0, g1 := grants[0].Units, grants[1].Units; g0+g1 != units || ofAway != int64(g0) || ofHere != int64(g1) || ofLast != int64(units) {
			t.Errorf("%s: %d and %d units were granted, and %d, %d and %d hits counted; want %d units", name, g0, g1, ofAway, ofHere, ofLast, units)
		}
	}
}

// testSharedTakesAgain repeats takes that were cut short between their partitions.
func testSharedTakesAgain(t *testing.T, cluster *redistest.Cluster) {
	first, second, masterOfFirst, masterOfSecond := apart(t, cluster)
	store := open(t, cluster.URL(), atEpoch)
	counted := func(wantFirst, wantSecond int64) {
		t.Helper()
		must.EqualOrEnd(t, sum(t, store, first), wantFirst, "hits of the first counted")
		must.EqualOrEnd(t, sum(t, store, second), wantSecond, "hits of the second counted")
	}
	push := func(seq uint64) *wire.Push {
		return &wire.Push{Namespace: "ns", Sender: 1, Sequence: seq, Floor: 1, Items: []wire.Item{fixedItem(first, 1)},
			Takes: []wire.Take{{Least: 4, Most: 5, Rooms: []wire.Room{fixedRoom(first, 20), fixedRoom(second, 10)}}}}
	}
	fails := func(p *wire.Push) {
		t.Helper()
		if out, err := store.Push(t.Context(), p, 1); err != nil || out.Lacking == nil || !strings.Contains(out.Lacking.Error(), "OOM") {
			t.Fatalf("outcome %+v, error %v; want Redis's OOM", out, err)
		}
	}
	answers := func(p *wire.Push, units, totalOfFirst, totalOfSecond uint64, duplicate bool) {
		t.Helper()
		out := must.Get(store.Push(t.Context(), p, 1))(t)
		g := out.Answer.Grants[0]
		if g.Units != units || g.Totals[0].Hits[0] != totalOfFirst || g.Totals[1].Hits[0] != totalOfSecond || out.Duplicate != duplicate {
			t.Fatalf("outcome %+v, want %d units, totals %d and %d, duplicate %v", out, units, totalOfFirst, totalOfSecond, duplicate)
		}
	}
	// The repeated take is granted.
	full(t, cluster, store, masterOfSecond, true)
	fails(push(1))
	fails(push(1))
	counted(6, 0)
	full(t, cluster, store, masterOfSecond, false)
	answers(push(1), 5, 6, 5, false)
	answers(push(1), 5, 6, 5, true)
	counted(6, 5)
	// The second partition has less than the first has granted.
	must.Get(store.Push(t.Context(), &wire.Push{Namespace: "ns", Sender: 2, Sequence: 1, Floor: 1, Items: []wire.Item{fixedItem(second, 1)}}, 1))(t)
	answers(push(2), 4, 11, 10, false)
	answers(push(2), 4, 11, 10, true)
	counted(11, 10)
	// The second partition refuses, and the first's grant can't be given back at once.
	full(t, cluster, store, masterOfSecond, true)
	fails(push(3))
	full(t, cluster, store, masterOfSecond, false)
	counted(17, 10)
	full(t, cluster, store, masterOfFirst, true)
	fails(push(3))
	fails(push(3))
	full(t, cluster, store, masterOfFirst, false)
	counted(17, 10)
	answers(push(3), 0, 12, 10, false)
	answers(push(3), 0, 12, 10, true)
	counted(12, 10)
	// A take that is never repeated leaves the first partition's grant: less passes, not more.
	full(t, cluster, store, masterOfSecond, true)
	fails(push(4))
	full(t, cluster, store, masterOfSecond, false)
	counted(18, 10)
}

// testSharedTakesLate sends a copy of a take whose sender already has its answer.
func testSharedTakesLate(t *testing.T, cluster *redistest.Cluster) {
	partition, _ := places(t, cluster)
	ids := make([]byte, len(partition))
	for id := range ids {
		ids[id] = byte(id)
	}
	slices.SortFunc(ids, func(a, b byte) int { return strings.Compare(partition[a], partition[b]) })
	ids = slices.CompactFunc(ids, func(a, b byte) bool { return partition[a] == partition[b] })
	store := open(t, cluster.URL(), atEpoch)
	take := func(seq uint64, ids ...byte) {
		t.Helper()
		p := &wire.Push{Namespace: "ns", Sender: 1, Sequence: seq, Floor: seq, Takes: []wire.Take{{Least: 1, Most: 3}}}
		for _, id := range ids {
			p.Takes[0].Rooms = append(p.Takes[0].Rooms, fixedRoom(id, 9))
		}
		out := must.Get(store.Push(t.Context(), p, 1))(t)
		for _, total := range out.Answer.Grants[0].Totals {
			must.Equal(t, len(total.Hits), 1, "totals of all rooms: %+v", out)
		}
	}
	take(1, ids[1], ids[2], ids[3])
	// Only the middle partition gets a new floor. It has forgotten the copy, which is no refusal:
	// after a refusal the first would give back its grant.
	take(2, ids[0], ids[2])
	take(1, ids[1], ids[2], ids[3])
	for i, want := range []int64{3, 3, 6, 3} {
		must.Equal(t, sum(t, store, ids[i]), want, "hits counted in partition %d", i)
	}
}

// testSharedTakesLater repeats a take after the end of the window in which its first partition has
// counted it. The hits that it gives back are not missing in the next window.
func testSharedTakesLater(t *testing.T, cluster *redistest.Cluster) {
	first, second, _, masterOfSecond := apart(t, cluster)
	for _, kind := range []window.Kind{window.FixedWindow, window.FirstHitWindow, window.TokenBucket} {
		now := epoch
		store := open(t, cluster.URL(), func() time.Time { return now })
		ofFirst := wire.Room{LimitCounter: counter(kind, first, time.Minute), Limit: 10, Burst: 10, Cost: 1}
		ofSecond := fixedRoom(second, 0)
		ofSecond.Ordinal = uint8(kind)
		p := &wire.Push{Namespace: "ns", Sender: uint64(kind), Sequence: 1, Floor: 1, Takes: []wire.Take{{Least: 1, Most: 9, Rooms: []wire.Room{ofFirst, ofSecond}}}}
		if kind != window.TokenBucket {
			// The window begins before the take, and ends less than a window after it.
			must.Get(pushOne(t.Context(), store, uint64(kind), now, ofFirst.LimitCounter))(t)
			now = epoch.Add(30 * time.Second)
		}
		full(t, cluster, store, masterOfSecond, true)
		must.EqualOrEnd(t, must.Get(store.Push(t.Context(), p, 1))(t).Lacking != nil, true, "the answer lacks some")
		full(t, cluster, store, masterOfSecond, false)
		now = epoch.Add(time.Minute + time.Second)
		next := &wire.Push{Namespace: "ns", Sender: 99, Sequence: uint64(kind), Floor: 1, Takes: []wire.Take{{Least: 1, Most: 4, Rooms: []wire.Room{ofFirst}}}}
		must.EqualOrEnd(t, must.Get(store.Push(t.Context(), next, 1))(t).Answer.Grants[0].Units, 4, "kind %d: units", kind)
		must.EqualOrEnd(t, must.Get(store.Push(t.Context(), p, 1))(t).Answer.Grants[0].Units, 0, "kind %d: units of the take that was cut short", kind)
		next.Sequence += 10
		next.Takes[0].Most = 10
		must.Equal(t, must.Get(store.Push(t.Context(), next, 1))(t).Answer.Grants[0].Units, 6, "kind %d: units, the others", kind)
	}
}

// testClocksApart puts the servers' clocks on both sides of a window's end.
func testClocksApart(t *testing.T, cluster *redistest.Cluster) {
	first, second, _, _ := apart(t, cluster)
	var asked atomic.Int64
	var step time.Duration
	store := open(t, cluster.URL(), func() time.Time { return epoch.Add(time.Duration(asked.Add(1)-2) * step) })
	for seq, test := range []struct {
		step  time.Duration
		lease bool
		want  uint64
	}{{0, true, 2}, {time.Millisecond, true, 0}, {time.Millisecond, false, 2}} {
		step = test.step
		asked.Store(0)
		p := &wire.Push{Namespace: "ns", Sender: 1, Sequence: uint64(seq + 1), Floor: 1, Takes: []wire.Take{{Least: 1, Most: 2, Lease: test.lease,
			Rooms: []wire.Room{fixedRoom(first, 200), fixedRoom(second, 200)}}}}
		for range 2 {
			out := must.Get(store.Push(t.Context(), p, 1))(t)
			must.Equal(t, out.Answer.Grants[0].Units, test.want, "%+v: units", test)
		}
	}
	// The time of an answer is the earliest.
	asked.Store(0)
	out, err := store.Push(t.Context(), &wire.Push{Namespace: "ns", Sender: 1, Sequence: 9, Floor: 1,
		Items: []wire.Item{fixedItem(first, 1), fixedItem(second, 1)}}, 1)
	if want := uint64(epoch.Add(-time.Millisecond).UnixNano()); err != nil || out.Answer.NowNanos != want {
		t.Errorf("answered at %d, error %v; want %d", out.Answer.NowNanos, err, want)
	}
	must.Equal(t, sum(t, store), 2*2+2*2+1+1-2, "hits in windows that count")
}

// traffic lets senders push hits and takes, each push until it is answered.
type traffic struct {
	servers servers
	work    sync.WaitGroup
	stop    chan struct{}
	pushed  chan struct{} // gets a value for each answer while a test listens
	gone    chan struct{} // closed when a sender gives up
	once    sync.Once
	ended   sync.Once
	hits    atomic.Int64
	failed  atomic.Int64
}

// servers are what traffic reaches.
type servers interface {
	URL() string
	Pause(ctx context.Context)
}

func startTraffic(t *testing.T, at servers, parameters string, senders uint64) *traffic {
	tr := &traffic{servers: at, stop: make(chan struct{}), pushed: make(chan struct{}), gone: make(chan struct{})}
	t.Cleanup(tr.end)
	for sender := range senders {
		store := open(t, at.URL()+parameters, atEpoch)
		tr.work.Go(func() {
			for seq := uint64(1); ; seq++ {
				select {
				case <-tr.stop:
					return
				default:
				}
				p := &wire.Push{Namespace: "ns", Sender: sender, Sequence: seq, Floor: seq}
				for id := range byte(30) {
					p.Items = append(p.Items, fixedItem(id, 1+int64(id%3)))
					tr.hits.Add(1 + int64(id%3))
				}
				p.Takes = []wire.Take{{Least: 1, Most: 4, Rooms: []wire.Room{fixedRoom(byte(100+seq%50), 5)}}}
				out, ok := tr.send(t, store, p)
				if !ok {
					tr.once.Do(func() { close(tr.gone) })
					return
				}
				tr.hits.Add(int64(out.Answer.Grants[0].Units))
				select {
				case tr.pushed <- struct{}{}:
				default:
				}
			}
		})
	}
	return tr
}

// send tries until it has an answer.
func (tr *traffic) send(t *testing.T, store *redis.Store, p *wire.Push) (out store.Outcome, ok bool) {
	var err error
	for range 300 {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		out, err = store.Push(ctx, p, 1)
		cancel()
		if err == nil {
			err = out.Lacking
		}
		switch {
		case err == nil:
			return out, true
		case t.Context().Err() != nil:
			return out, false
		}
		tr.failed.Add(1)
		tr.servers.Pause(t.Context())
	}
	t.Errorf("a push fails again and again: %v", err)
	return out, false
}

// wait waits for a number of answers.
func (tr *traffic) wait(answers int) {
	for range answers {
		select {
		case <-tr.pushed:
		case <-tr.gone:
		}
	}
}

func (tr *traffic) end() {
	tr.ended.Do(func() { close(tr.stop) })
	tr.work.Wait()
}

func testMovedSlots(t *testing.T, cluster *redistest.Cluster) {
	_, master := places(t, cluster)
	tr := startTraffic(t, cluster, "", 3)
	tr.wait(5)
	for id := range 3 {
		keys := must.Get(cluster.Client(master[id]).Keys(t.Context(), fmt.Sprintf("*:counter:%02x*", id)).Result())(t)
		must.EqualOrEnd(t, len(keys) > 0, true, "master %d has the key", master[id])
		slot := must.Get(cluster.Client(0).ClusterKeySlot(t.Context(), keys[0]).Result())(t)
		store := open(t, cluster.URL(), atEpoch)
		sequence := uint64(0)
		cluster.MoveSlot(int(slot), master[id], (master[id]+1)%3, func() {
			// The slot may accept pushes now or not.
			sequence++
			p := &wire.Push{Namespace: "ns", Sender: uint64(50 + id), Sequence: sequence, Floor: sequence, Items: []wire.Item{fixedItem(byte(id), 1)}}
			out, err := store.Push(t.Context(), p, 1)
			if err == nil {
				err = out.Lacking
			}
			if err != nil && !strings.Contains(err.Error(), "TRYAGAIN") {
				t.Errorf("while a slot moves: %v", err)
			} else if err == nil {
				tr.hits.Add(1)
			}
		})
		tr.wait(5)
		must.OK(t, cluster.Client(master[id]).Keys(t.Context(), keys[0]).Err())
		must.Equal(t, len(must.Get(cluster.Client((master[id]+1)%3).Keys(t.Context(), keys[0]).Result())(t)), 1, "keys that have moved")
	}
	tr.end()
	must.Equal(t, sum(t, open(t, cluster.URL(), atEpoch)), tr.hits.Load(), "hits counted")
}

// everywhere pushes a hit of each key from 30 on whose master is known.
type everywhere struct {
	store  *redis.Store
	master []int
	pushes []*wire.Push
}

func (e *everywhere) push(sequence uint64) *wire.Push {
	p := &wire.Push{Namespace: "ns", Sender: 77, Sequence: sequence, Floor: 1}
	for id := 30; id < len(e.master); id++ {
		p.Items = append(p.Items, fixedItem(byte(id), 1))
	}
	return p
}

// lacks pushes, and wants in-time answers for all keys except those of a master. It returns the
// state of the missing parts.
func (e *everywhere) lacks(t *testing.T, lost int) (missing wire.Missing) {
	t.Helper()
	p := e.push(uint64(len(e.pushes) + 1))
	e.pushes = append(e.pushes, p)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	out, err := e.store.Push(ctx, p, 1)
	if err != nil || ctx.Err() != nil {
		t.Fatalf("error %v, of the context %v; want an answer before it ends", err, ctx.Err())
	}
	for i, m := range out.Answer.Missing {
		if on := e.master[30+i]; (m != wire.Answered) != (on == lost) {
			t.Fatalf("key %d on master %d: missing %d; want what is on master %d, and nothing else", 30+i, on, m, lost)
		}
		missing = max(missing, m)
	}
	return missing
}

// untilLeftAlone pushes until nothing is sent to the master, and then some more.
func (e *everywhere) untilLeftAlone(t *testing.T, lost int) {
	t.Helper()
	for range 100 {
		if e.lacks(t, lost) == wire.NotApplied {
			break
		}
	}
	for range 5 {
		must.Equal(t, e.lacks(t, lost) == wire.Answered, false, "a master takes hits that is lost")
	}
	must.Is(t, e.store.Ping(t.Context()), store.ErrPartly, "ping: error")
}

// again repeats all pushes, and returns the number of their hits.
func (e *everywhere) again(t *testing.T, cluster *redistest.Cluster) (hits int64) {
	t.Helper()
	wellAgain(t, cluster, e.store)
	for _, p := range e.pushes {
		must.Is(t, must.Get(e.store.Push(t.Context(), p, 1))(t).Lacking, nil, "again: the answer lacks")
		hits += int64(len(p.Items))
	}
	return hits
}

// testPausedMaster pauses a master. Keys of the others are still answered.
func testPausedMaster(t *testing.T, cluster *redistest.Cluster) {
	_, master := places(t, cluster)
	e := &everywhere{store: open(t, cluster.URL(), atEpoch), master: master}
	cluster.Servers[1].Pause()
	e.untilLeftAlone(t, 1)
	cluster.Servers[1].Resume()
	hits := e.again(t, cluster)
	must.Equal(t, sum(t, e.store), hits, "hits counted")
}

// testKilledMaster kills a master during pushes. Writes that Redis has answered are lost unless a
// replica had them, which wait_replicas ensures. So pushes to the new master's partitions wait
// until it has a replica, and all others succeed.
func testKilledMaster(t *testing.T, cluster *redistest.Cluster) {
	_, master := places(t, cluster)
	const parameters = "?wait_replicas=1&wait_timeout=500ms" // a busy machine may leave a replica without a processor for long
	e := &everywhere{store: open(t, cluster.URL()+parameters, atEpoch), master: master}
	tr := startTraffic(t, cluster, parameters, 4)
	tr.wait(50)
	cluster.KillMaster(1)
	e.untilLeftAlone(t, 1)
	cluster.ReturnMaster(1)
	tr.wait(50)
	tr.end()
	tr.hits.Add(e.again(t, cluster))
	counters := open(t, cluster.URL(), atEpoch)
	must.Equal(t, sum(t, counters), tr.hits.Load(), "hits counted")
	must.AtLeast(t, tr.failed.Load(), 1, "pushes that failed, so that the master was missed")
	must.Equal(t, must.Get(store.Join(t.Context(), counters, "ns", 1))(t), 1, "nodes")
	must.Report(t, counters.Ping(t.Context()))
}

func TestNoReplicas(t *testing.T) {
	server := redistest.Start(t)
	c := counter(window.FixedWindow, 1, time.Minute)
	_, err := pushOne(t.Context(), open(t, server.URL()+"?wait_replicas=1", atEpoch), 1, epoch, c)
	must.Contains(t, fmt.Sprint(err), "1 replicas", "too few replicas")
	// The failed push may have been applied, and was.
	if out, err := pushOne(t.Context(), open(t, server.URL(), atEpoch), 1, epoch, c); err != nil || !out.Duplicate || out.Answer.Totals[0].Hits[0] != 1 {
		t.Errorf("outcome %+v, error %v; want a duplicate", out, err)
	}
}

func TestTLS(t *testing.T) {
	server, roots := redistest.StartTLS(t, "--user", "weir", "on", ">s3cret/:@", "~*", "+@all", "--user", "default", "off")
	c := counter(window.FixedWindow, 1, time.Minute)
	try := func(url string, o redis.Options) (store.Outcome, error) {
		t.Helper()
		store := must.Get(redis.Open(url, o))(t)
		defer func() { must.Report(t, store.Close()) }()
		return pushOne(t.Context(), store, 1, epoch, c)
	}
	trusting := redis.Options{Now: atEpoch, RootCAs: roots}
	must.Equal(t, must.Get(try("rediss://weir:s3cret%2F%3A%40@"+server.Addr, trusting))(t).Answer.Totals[0].Hits[0], 1, "total")
	for url, o := range map[string]redis.Options{
		"rediss://weir:s3cret%2F%3A%40@" + server.Addr:      {Now: atEpoch}, // the system does not trust this certificate
		"rediss://weir:hunter2@" + server.Addr:              trusting,
		"rediss://" + server.Addr:                           trusting,
		"redis://weir:s3cret%2F%3A%40@" + server.Addr:       trusting,
		"rediss+cluster://weir:hunter2@" + server.Addr:      trusting,
		"rediss+cluster://weir:s3cret%2F%3A%40@localhost:1": trusting,
	} {
		if _, err := try(url, o); err == nil || strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: error %v, want one without the password", url, err)
		}
	}
}

func TestClusterURL(t *testing.T) {
	for url, want := range map[string]string{
		"redis+cluster://host/?wait_replicas=x": "wait_replicas", "redis://host?wait_replicas=17": "wait_replicas",
		"redis://host?wait_timeout=x": "wait_timeout", "redis://host?wait_timeout=5s": "wait_timeout",
		"redis+cluster://host/1": "no database", "redis+cluster://host:x": "want redis", "redis+cluster://hunter2@host@host?x=1": "want redis",
		"redis+cluster://host,host:x:y": "want redis", "redis+cluster://a:1,b": "want redis", "http+cluster://hunter2@host": "want redis",
	} {
		if _, err := redis.Open(url, redis.Options{}); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: error %v, want %q", url, err, want)
		}
	}
	for _, url := range []string{"redis+cluster://host", "rediss+cluster://user:a%2Fb%40@h1:1,h2:2,[::1]:3/?read_timeout=2s&addr=h4:4&wait_replicas=2&wait_timeout=50ms"} {
		store, err := redis.Open(url, redis.Options{})
		if err != nil {
			t.Errorf("%s: %v", url, err)
		} else if err := store.Close(); err != nil {
			t.Error(err)
		}
	}
}

// testOneNode opens a store with a few of the nodes, some of which do not exist.
func testOneNode(t *testing.T, cluster *redistest.Cluster) {
	for _, url := range []string{"redis+cluster://127.0.0.1:1," + cluster.Servers[5].Addr, "redis+cluster://" + cluster.Servers[0].Addr + ",127.0.0.1:1",
		"redis+cluster://127.0.0.1:1/?addr=" + cluster.Servers[1].Addr} {
		for id := range byte(5) {
			_, err := pushOne(t.Context(), open(t, url, atEpoch), 1, epoch, counter(window.FixedWindow, id, time.Minute))
			must.Reportf(t, err, "%s", url)
		}
	}
}
