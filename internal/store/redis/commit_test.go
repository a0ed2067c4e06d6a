package redis

import (
	"fmt"
	"testing"
	"time"

	"weir/internal/must"
	"weir/internal/store"
	"weir/internal/store/redis/redistest"
	"weir/internal/wire"
	"weir/window"
)

func TestClockIsNeverAhead(t *testing.T) {
	var c clock
	if _, heard := c.now(); heard {
		t.Fatal("a clock tells the time of a server that was not heard")
	}
	hear := func(name string, server, sent, received, want time.Duration) {
		t.Helper()
		c.hear(server.Microseconds(), sent, received)
		must.Equal(t, c.ahead, want, "%s: ahead by", name)
	}
	hear("a slow answer", 1000*time.Second, 10*time.Second, 14*time.Second, 986*time.Second)
	hear("a quick answer tells more", 1010*time.Second, 21*time.Second, 22*time.Second, 988*time.Second)
	hear("a slow one does not", 1020*time.Second, 30*time.Second, 34*time.Second, 988*time.Second)
	hear("the server's clock was set back", 1000*time.Second, 40*time.Second, 41*time.Second, 960*time.Second)
	hear("and forth", 2000*time.Second, 50*time.Second, 51*time.Second, 1949*time.Second)
}

func TestRecentForgetsWhatIsUsedLeast(t *testing.T) {
	r := recent[int]{most: 10}
	for i := range 100 {
		r.put(fmt.Sprint(i), i, 1)
		r.put("often", i, 1)
	}
	must.AtMost(t, len(r.younger)+len(r.older), 20, "kept")
	got, _ := r.get("often")
	must.Equal(t, got, 99, "often")
	_, ok := r.get("0")
	must.Equal(t, ok, false, "0 is kept, and makes no room")
}

func TestRecentCountsWhatGrows(t *testing.T) {
	r := recent[int]{most: 1000}
	for size := range 100 {
		for i := range 10 {
			r.put(fmt.Sprint(i), 10*size, 10*size)
		}
	}
	sum := 0
	for _, generation := range []map[string]sized[int]{r.younger, r.older} {
		for _, is := range generation {
			sum += is.value
		}
	}
	must.AtMost(t, sum, 2000, "bytes kept of twice 1000")
}

// TestLateGroupsLock changes a group's counter before each of its attempts, until the group locks
// its partition. Then the group writes, and the lock is gone.
func TestLateGroupsLock(t *testing.T) {
	s := must.Get(Open(redistest.Start(t).URL(), Options{}))(t)
	t.Cleanup(func() { must.Report(t, s.Close()) })
	c := wire.LimitCounter{ID: wire.ID{1}, Kind: uint8(window.TokenBucket), WidthMillis: 3_600_000}
	push := func(sender uint64) (*wire.Push, *batch) {
		p := &wire.Push{Namespace: "ns", Sender: sender, Sequence: 1, Floor: 1,
			Takes: []wire.Take{{Least: 1, Most: 1, Rooms: []wire.Room{{LimitCounter: c, Limit: 100, Burst: 100, Cost: 1}}}}}
		r := newRun(s, p, 1)
		return p, r.round("").take(&p.Takes[0], 1, modeTake, []int{0}, &r.out.Answer.Grants[0])
	}
	locked := func() bool {
		n := must.Get(s.client.Exists(t.Context(), s.keys.lock("ns", 0)).Result())(t)
		return n == 1
	}
	late, b := push(1)
	g := &group{c: s.committer, all: []*pending{{p: late, nodes: 1, b: b}}}
	for sender := range uint64(lockAfter + 1) {
		a := g.decide()
		other, b := push(2 + sender)
		must.OK(t, s.committer.commit(t.Context(), other, 1, []*batch{b}))
		if s.committer.send(t.Context(), []*attempt{a}); a.err != nil || a.written {
			t.Fatalf("written %v, error %v; want that it is late", a.written, a.err)
		}
		must.EqualOrEnd(t, locked(), sender == lockAfter, "after %d tries: locked", g.tries)
	}
	s.committer.write(t.Context(), []*group{g})
	if err := g.all[0].err; err != nil || b.state != stateApplied || b.takes[0].grant.Units != 1 {
		t.Errorf("error %v, batch %+v; want a unit", err, b)
	}
	must.Equal(t, locked(), false, "the partition stays locked")
	if found, err := store.CountersOf(t.Context(), s, "ns", c.ID); err != nil || len(found) != 1 || found[0].Windows[0].Hits != lockAfter+2 {
		t.Errorf("counters %+v, error %v; want %d hits", found, err, lockAfter+2)
	}
}

// A name that no message has is left in the script, and would fail there only when it is reached.
func TestScriptNames(t *testing.T) {
	for _, s := range []*script{commitScript, loneScript} {
		must.Same(t, names.FindAllString(s.source, -1), nil, "names in a script that no message has")
	}
}
