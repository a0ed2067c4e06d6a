package redis_test

import (
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"weir/internal/nightly"
	"weir/internal/store"
	"weir/internal/store/advancetest"
	"weir/internal/store/redis"
	"weir/internal/store/redis/redistest"
	"weir/internal/wire"
	"weir/window"
)

// TestAdvance has two backends on a Redis, and now and then a third that knows of nothing yet.
func TestAdvance(t *testing.T) {
	server := redistest.Start(t)
	url, client := server.URL(), raw(t, server)
	advancetest.Run(t, nightly.Or(3000, 15), func(t *testing.T, seed uint64, now func() time.Time) advancetest.Store {
		if err := client.FlushAll(t.Context()).Err(); err != nil { // a limit is listed after all keys were seen
			t.Fatal(err)
		}
		r := rand.New(rand.NewPCG(seed, 1))
		backends := []*redis.Store{open(t, url, now), open(t, url, now)}
		return advancetest.Store{Store: func() store.Store {
			i := r.IntN(len(backends))
			if r.IntN(8) == 0 {
				backends[i] = open(t, url, now)
			}
			return backends[i]
		}}
	})
}

// fleet is a backend whose clock a test sets, and a sender that has a part of the limits of a rule.
type fleet struct {
	*redis.Store
	t        *testing.T
	client   *goredis.Client
	now      time.Time
	sequence uint64
	word     wire.Advance
}

const (
	fleetKey  = "weir:{ns}:fleet"
	fleetRule = 7
)

// hourly is a counter of a key, in windows of an hour.
func hourly(id int) wire.LimitCounter {
	return wire.LimitCounter{ID: wire.ID{byte(id), byte(id >> 8), 1}, Kind: uint8(window.FixedWindow), WidthMillis: 3600_000}
}

// thousand asks for hits of a key whose limit is 1,000, for a rule: for all of them or none.
func thousand(id int, most uint64, tag uint16) wire.Take {
	return wire.Take{Least: most, Most: most, Rooms: []wire.Room{{LimitCounter: hourly(id), Limit: 1000, Cost: 1, Tag: tag}}}
}

func newFleet(t *testing.T) *fleet {
	t.Helper()
	server := redistest.Start(t)
	f := &fleet{t: t, client: raw(t, server), now: time.Unix(1_767_571_260, 0), word: wire.Advance{Told: true, Wants: true, Settled: true}}
	f.Store = open(t, server.URL(), func() time.Time { return f.now })
	f.begin()
	return f
}

// begin has the sender get its part, and the limit listed.
func (f *fleet) begin() {
	f.t.Helper()
	limits := 0
	for range 3 {
		n := f.push(1, func(p *wire.Push) { p.Advance, p.Takes = f.word, []wire.Take{thousand(9999, 1, fleetRule)} }).Near
		limits += n.LimitCount()
		f.hear(n)
	}
	if f.word.Divisor == 0 || limits != 1 {
		f.t.Fatalf("the sender has a part of 1/%d, and the list %d limits", f.word.Divisor, limits)
	}
}

// hear has the sender go by the newest list.
func (f *fleet) hear(n wire.Near) {
	f.word.Epoch, f.word.Version, f.word.Divisor = n.Epoch, n.Version, n.Divisor
}

func (f *fleet) push(sender uint64, change func(p *wire.Push)) wire.Answer {
	f.t.Helper()
	f.sequence++
	p := &wire.Push{Namespace: "ns", Sender: sender, Sequence: f.sequence, Floor: f.sequence}
	change(p)
	out, err := f.Push(f.t.Context(), p, 1)
	if err != nil {
		f.t.Fatal(err)
	}
	return out.Answer
}

// tells returns what the sender hears.
func (f *fleet) tells() wire.Near {
	f.t.Helper()
	n := f.push(1, func(p *wire.Push) { p.Advance = f.word }).Near
	f.hear(n)
	return n
}

// hit counts hits of keys.
func (f *fleet) hit(hits int64, from, to int) {
	f.t.Helper()
	for ; from < to; from += 256 {
		f.push(2, func(p *wire.Push) {
			for id := from; id < min(from+256, to); id++ {
				p.Items = append(p.Items, wire.Item{LimitCounter: hourly(id), Newest: uint64(f.now.UnixMilli()) / 3600_000, Hits: []int64{hits}})
			}
		})
	}
}

func (f *fleet) wants(what string, id int, most, want uint64, tag uint16) {
	f.t.Helper()
	if got := f.push(3, func(p *wire.Push) { p.Takes = []wire.Take{thousand(id, most, tag)} }).Grants[0].Units; got != want {
		f.t.Errorf("%s: got %d hits, want %d", what, got, want)
	}
}

// A key is near in the window in which half of its limit is used, also if senders say so whose clocks are ahead,
// and in the next one if most of the limit is used. A window stays on the list until no sender's clock is in it.
func TestNearInAWindow(t *testing.T) {
	f := newFleet(t)
	counter := hourly(0)
	name, window := counter.NearLimit(1000), uint64(f.now.UnixMilli())/3600_000
	sender := uint64(10)
	near := func(what string, key int, number uint64, want bool) {
		t.Helper()
		sender++
		n := f.push(sender, func(p *wire.Push) { p.Advance = wire.Advance{Told: true} }).Near
		got := false
		for i := range n.KeyCount() {
			got = got || n.Key(i) == wire.NearKey(hourly(key).ID, wire.NearWindow(name, number))
		}
		if got != want {
			t.Errorf("%s: near %t, want %t", what, got, want)
		}
	}
	f.hit(600, 1, 3)
	f.hit(400, 2, 3)
	f.push(2, func(p *wire.Push) {
		p.Items = []wire.Item{{LimitCounter: hourly(3), Newest: window + 1, Hits: []int64{600}}}
	})
	near("half is used", 1, window, true)
	near("half is used, the next window", 1, window+1, false)
	near("all is used", 2, window, true)
	near("all is used, the next window", 2, window+1, true)
	near("used in the next window", 3, window, false)
	near("used in the next window, that one", 3, window+1, true)
	begins := time.UnixMilli(int64(window+1) * 3600_000)
	f.now = begins.Add(3 * time.Second)
	near("a window that is over, reviewed", 1, window, true)
	near("a window that is over", 1, window, true)
	take := thousand(9998, 1, 31)
	take.Rooms[0].Limit = 500
	for range 3 {
		f.push(3, func(p *wire.Push) { p.Advance, p.Takes = wire.Advance{Told: true}, []wire.Take{take} })
	}
	thousandth := name
	name = counter.NearLimit(500)
	near("a window that was over before the limit was asked for", 1, window, true)
	name = thousandth
	f.now = begins.Add(14 * time.Second)
	near("a window that is long over, before its review", 1, window, true)
	near("a window that is long over", 1, window, false)
	near("used before its window", 3, window+1, true)
}

// However many senders there are, each of them has a part in the end.
func TestEachSenderHasAPart(t *testing.T) {
	for _, senders := range []int{16, 17, 18, 20, 30, 36, 50} {
		f := newFleet(t)
		words := make([]wire.Advance, senders-1) // besides the fleet's own
		for round := range 4 {
			for i := range words {
				words[i].Told, words[i].Wants, words[i].Settled = true, true, true
				n := f.push(uint64(100+i), func(p *wire.Push) { p.Advance = words[i] }).Near
				words[i].Epoch, words[i].Version, words[i].Divisor = n.Epoch, n.Version, n.Divisor
				if round == 3 && n.Divisor == 0 {
					t.Errorf("sender %d of %d has no part", i, senders)
				}
			}
			f.tells()
			f.now = f.now.Add(4 * time.Second) // a part that may be smaller is looked at every three seconds
		}
		if f.word.Divisor == 0 {
			t.Errorf("the first of %d senders has no part", senders)
		}
	}
}

// Two rules may have the same limit. Senders advance hits of those that the list names, and hits are left for
// them by takes of these alone.
func TestRulesAreToldApart(t *testing.T) {
	f := newFleet(t)
	f.wants("a rule whose hits nobody advances", 1, 1000, 1000, 20)
	f.wants("a rule that is asked for", 2, 1, 1, 21)
	if n := f.tells(); !n.Whole || n.LimitCount() != 2 {
		t.Errorf("the sender hears %+v", n)
	}
	for _, tag := range []uint16{20, 21, 7, 0} {
		f.wants("hits which the sender may have advanced", 3, 1000, 0, tag)
	}
	f.hit(500, 3, 4)
	f.tells()
	f.tells() // it knows that the key is near
	f.wants("what is left", 3, 500, 500, 21)
}

// A limit with too many near keys leaves the list. All of it can be had again when the sender knows that.
// Once fewer keys are near, the limit comes back.
func TestTooManyNearKeys(t *testing.T) {
	f := newFleet(t)
	f.hit(500, 0, wire.MaxNearKeys+1)
	f.wants("hits which the sender may have advanced", 60_000, 1000, 0, fleetRule)
	if n := f.tells(); !n.Whole || n.LimitCount() != 0 || n.KeyCount() != 0 {
		t.Fatalf("the sender hears of %d limits and %d keys", n.LimitCount(), n.KeyCount())
	}
	f.wants("before it is known that the sender knows", 60_000, 1000, 0, fleetRule)
	f.tells()
	f.wants("all", 60_000, 1000, 1000, fleetRule)
	f.hit(600, 70_000, 70_001)
	for range 30 {
		f.now = f.now.Add(5 * time.Second)
		if n := f.tells(); n.LimitCount() != 0 {
			t.Fatal("the limit does not rest")
		}
	}
	for range 3 {
		f.now = f.now.Add(20 * time.Minute)
		f.wants("a key", 80_000, 1, 1, fleetRule)
	}
	f.hit(700, 0, 3)
	limits, keys := 0, 0
	for range 40 {
		n := f.tells()
		limits, keys = limits+n.LimitCount(), keys+n.KeyCount()
		f.now = f.now.Add(time.Second)
	}
	if limits != 1 || keys < 3 {
		t.Errorf("the sender hears of %d limits and %d keys, want 1 and 3", limits, keys)
	}
}

// Keys that are far again leave the list. When many have, senders get all of it, also if somebody else has written how many have.
func TestFarAgain(t *testing.T) {
	for _, gone := range []string{"0", "x"} {
		t.Run(gone, func(t *testing.T) {
			f := newFleet(t)
			f.hit(600, 0, 200)
			if n := f.tells(); n.Whole || n.KeyCount() != 200 {
				t.Fatalf("the sender hears of %d keys", n.KeyCount())
			}
			for range 3 {
				f.now = f.now.Add(20 * time.Minute)
				f.wants("a key", 80_000, 1, 1, fleetRule)
			}
			f.hit(600, 0, 10)
			if err := f.client.HSet(t.Context(), fleetKey, "gone", gone).Err(); err != nil {
				t.Fatal(err)
			}
			whole := false
			for range 40 {
				f.now = f.now.Add(time.Second)
				if n := f.tells(); n.Whole {
					whole = true
					if n.KeyCount() != 10 || n.LimitCount() != 1 {
						t.Errorf("the list has %d keys and %d limits, want 10 and 1", n.KeyCount(), n.LimitCount())
					}
				}
			}
			if !whole || f.word.Divisor == 0 {
				t.Errorf("whole list: %t, divisor %d", whole, f.word.Divisor)
			}
		})
	}
}

// A limit that nobody asks for is forgotten.
func TestStaleLimits(t *testing.T) {
	f := newFleet(t)
	f.hit(600, 0, 2)
	for range 8 {
		f.now = f.now.Add(15 * time.Minute)
		for range 3 {
			f.now = f.now.Add(time.Second)
			f.tells()
		}
	}
	f.now = f.now.Add(time.Minute)
	f.tells()
	contents, err := f.client.HGet(t.Context(), fleetKey, "contents").Result()
	if err != nil || !strings.Contains(contents, `"Limits":[]`) {
		t.Errorf("the fleet is %s, error %v", contents, err)
	}
	if n, err := f.client.ZCard(t.Context(), fleetKey+":near").Result(); err != nil || n != 0 {
		t.Errorf("%d keys are near, error %v", n, err)
	}
}

// Nobody gets what a sender may have advanced that is silent, until the windows of its hits are over. Then it
// is forgotten.
func TestSilentSenders(t *testing.T) {
	f := newFleet(t)
	part := wire.MostAdvanced(1000, f.word.Divisor)
	f.wants("a live sender", 1, 1000-part, 1000-part, fleetRule)
	f.wants("the rest", 1, 1, 0, fleetRule)
	f.now = f.now.Add(20 * time.Second)
	grant := f.push(3, func(p *wire.Push) { p.Takes = []wire.Take{thousand(1, 1, fleetRule)} }).Grants[0]
	if grant.Units != 0 || grant.Totals[0].Hits[0] != 1000 && grant.Totals[0].Hits[0] != 1000-part {
		t.Errorf("a silent sender: %+v", grant)
	}
	if grant = f.push(3, func(p *wire.Push) { p.Takes = []wire.Take{thousand(1, 1, fleetRule)} }).Grants[0]; grant.Units != 0 || grant.Totals[0].Hits[0] != 1000 {
		t.Errorf("a sender that is known to be silent: %+v, want that all is used", grant)
	}
	f.now = f.now.Add(time.Hour)
	f.wants("the next window", 1, 1000, 1000, fleetRule)
	f.now = f.now.Add(2 * time.Hour)
	for range 3 {
		f.hit(1, 5, 6)
		f.now = f.now.Add(2 * time.Second)
	}
	for _, key := range []string{":heard", ":divisors", ":answered", ":silent"} {
		if n, err := f.client.Exists(t.Context(), fleetKey+key).Result(); err != nil || n != 0 {
			t.Errorf("%s is there, error %v", key, err)
		}
	}
	if units, err := f.client.HMGet(t.Context(), fleetKey, "units", "lost", "senders").Result(); err != nil || units[0] != "0" || units[1] != "0" || units[2] != "0" {
		t.Errorf("parts of %v are given, lost and of senders, error %v", units, err)
	}
}

// A key of a fleet that somebody else has written does no harm: all is forgotten, the sender loses its part,
// and gets another.
func TestForeignFleets(t *testing.T) {
	for _, key := range []string{"", ":near", ":heard", ":divisors", ":answered", ":silent"} {
		t.Run(key, func(t *testing.T) {
			f := newFleet(t)
			if err := errors.Join(f.client.Del(t.Context(), fleetKey+key).Err(), f.client.RPush(t.Context(), fleetKey+key, "x").Err()); err != nil {
				t.Fatal(err)
			}
			for range 10 {
				f.now = f.now.Add(2 * time.Second)
				f.tells()
				f.wants("a key", 1, 60, 60, fleetRule)
			}
			f.hasPart()
		})
	}
	f := newFleet(t)
	if err := f.client.HSet(t.Context(), fleetKey, "contents", "{", "version", "x", "units", "y").Err(); err != nil {
		t.Fatal(err)
	}
	f.tells()
	f.wants("a key", 1, 600, 600, fleetRule)
}

// hasPart wants the sender to have a part.
func (f *fleet) hasPart() {
	f.t.Helper()
	for range 3 {
		f.tells()
	}
	if f.word.Divisor == 0 {
		f.t.Error("the sender has no part")
	}
}

// A Redis that has lost all gives no part that it does not know of, and versions go on.
func TestLostFleet(t *testing.T) {
	f := newFleet(t)
	version := f.word.Version
	if err := f.client.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	f.now = f.now.Add(time.Second)
	if n := f.tells(); n.Divisor != 0 {
		t.Errorf("the sender hears %+v", n)
	}
	if n := f.tells(); n.Divisor == 0 || n.Version <= version {
		t.Errorf("the sender hears %+v, want a version after %d", n, version)
	}
}

// The keys of a fleet expire.
func TestFleetsExpire(t *testing.T) {
	f := newFleet(t)
	f.hit(600, 0, 1)
	f.now = f.now.Add(2 * time.Second)
	f.tells()
	keys, err := f.client.Keys(t.Context(), fleetKey+"*").Result()
	if err != nil || len(keys) < 5 {
		t.Fatalf("keys %v, error %v", keys, err)
	}
	for _, key := range keys {
		if life, err := f.client.PTTL(t.Context(), key).Result(); err != nil || life < 2*time.Hour || life > 4*time.Hour {
			t.Errorf("%s lives for %v, error %v", key, life, err)
		}
	}
}

// Parts of all senders are never more than a whole, and all get one in the end.
func TestPartsAreAWhole(t *testing.T) {
	f := newFleet(t)
	words := map[uint64]*wire.Advance{1: &f.word}
	r := rand.New(rand.NewPCG(33, 1))
	for round := range 400 {
		f.now = f.now.Add(100 * time.Millisecond)
		for range 10 {
			sender := 10 + r.Uint64N(60)
			if words[sender] == nil {
				words[sender] = &wire.Advance{Told: true, Wants: true, Settled: true}
			}
			w := words[sender]
			n := f.push(sender, func(p *wire.Push) { p.Advance = *w }).Near
			w.Epoch, w.Version, w.Divisor = n.Epoch, n.Version, max(w.Divisor, n.Divisor)
			if n.Divisor == 0 {
				w.Divisor = 0
			}
		}
		if round%20 == 0 {
			f.tells()
		}
		sum := 0.0
		for _, w := range words {
			if w.Divisor > 0 {
				sum += 1 / float64(w.Divisor)
			}
		}
		if sum > 1 {
			t.Fatalf("round %d: parts are %.3f together", round, sum)
		}
	}
	for sender, w := range words {
		if w.Divisor == 0 {
			t.Errorf("sender %d has no part", sender)
		}
	}
}

// A sender that dropped its part can get it again by an answer to a push that says so. An earlier push that
// comes late takes no part away.
func TestLateWords(t *testing.T) {
	f := newFleet(t)
	late := f.sequence + 1
	f.sequence++
	again := wire.Advance{Told: true, Wants: true}
	if n := f.push(1, func(p *wire.Push) { p.Advance = again }).Near; n.Divisor == 0 {
		t.Fatal("the sender has no part again")
	}
	if _, err := f.Push(t.Context(), &wire.Push{Namespace: "ns", Sender: 1, Sequence: late, Floor: late, Advance: wire.Advance{Told: true, Settled: true}}, 1); err != nil {
		t.Fatal(err)
	}
	f.wants("hits which the sender may have advanced", 1, 1000, 0, fleetRule)
}

// A sender whose list is of another epoch hears all of the list, though its version is the newest.
func TestOtherEpoch(t *testing.T) {
	f := newFleet(t)
	f.tells()
	f.word.Epoch++
	epoch := f.word.Epoch
	if n := f.tells(); !n.Whole || n.LimitCount() != 1 || n.Epoch == epoch {
		t.Errorf("the sender hears %+v", n)
	}
}

// Words of several senders may come in one script. Each sender hears what it lacks, though others lack nothing.
func TestWordsTogether(t *testing.T) {
	f := newFleet(t)
	const senders = 12
	words := make([]wire.Advance, senders)
	says := func(i int, items ...wire.Item) *wire.Push {
		f.sequence++
		return &wire.Push{Namespace: "ns", Sender: uint64(10 + i), Sequence: f.sequence, Floor: f.sequence, Advance: words[i], Items: items}
	}
	tell := func(i int, p *wire.Push) (n wire.Near) {
		out, err := f.Push(t.Context(), p, 1)
		if n = out.Answer.Near; err != nil || n.Divisor == 0 {
			t.Errorf("sender %d hears %+v, error %v", i, n, err)
		}
		words[i].Epoch, words[i].Version, words[i].Divisor = n.Epoch, n.Version, n.Divisor
		return n
	}
	for i := range words {
		words[i] = wire.Advance{Told: true, Wants: true, Settled: true}
		tell(i, says(i))
	}
	for round := range 20 {
		for i := range words {
			tell(i, says(i))
		}
		f.hit(600, round, round+1)
		for i := 0; i < senders; i += 2 {
			tell(i, says(i))
			tell(i, says(i)) // now it is noted that the sender has heard
		}
		var group sync.WaitGroup
		for i := range words {
			p := says(i, wire.Item{LimitCounter: hourly(7000), Newest: uint64(f.now.UnixMilli()) / 3600_000, Hits: []int64{1}})
			group.Go(func() {
				if n := tell(i, p); n.KeyCount() != i%2 {
					t.Errorf("round %d: sender %d hears of %d keys", round, i, n.KeyCount())
				}
			})
		}
		group.Wait()
	}
}

// Others may change a fleet again and again while a push asks for a rule. The push goes on without.
func TestOthersAreQuicker(t *testing.T) {
	f := newFleet(t)
	others := f.Store
	tag := uint16(101)
	addr := between(t, f.client.Options().Addr, func(command []string) {
		if len(command) < 4 || command[3] != fleetKey {
			return
		}
		tag += 2
		p := &wire.Push{Namespace: "ns", Sender: uint64(tag), Sequence: 1, Floor: 1, Takes: []wire.Take{thousand(1, 1, tag)}}
		if _, err := others.Push(t.Context(), p, 1); err != nil {
			t.Error(err)
		}
	})
	f.Store = open(t, "redis://"+addr, func() time.Time { return f.now })
	f.wants("a rule that others do not ask for", 2, 10, 10, 21)
	f.wants("a rule that others do not ask for", 2, 10, 10, 21)
}
