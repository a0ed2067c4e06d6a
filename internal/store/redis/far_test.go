package redis_test

import (
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"weir/internal/must"
	"weir/internal/nightly"
	"weir/internal/store"
	"weir/internal/store/advancetest"
	"weir/internal/store/far"
	"weir/internal/store/redis"
	"weir/internal/store/redis/redistest"
	"weir/internal/wire"
)

// TestAdvance has two backends on a Redis, and now and then a third that knows of nothing yet.
func TestAdvance(t *testing.T) {
	server := redistest.Start(t)
	url, client := server.URL(), raw(t, server)
	advancetest.Run(t, nightly.Or(3000, 15), func(t *testing.T, seed uint64, now func() time.Time) advancetest.Store {
		must.OK(t, client.FlushAll(t.Context()).Err())
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

func TestFleets(t *testing.T) {
	advancetest.Fleets(t, []int{16, 17, 18, 20, 30, 36, 50}, func(t *testing.T, now func() time.Time) (store.Store, func() int) {
		server := redistest.Start(t)
		client := raw(t, server)
		return open(t, server.URL(), now), func() int {
			contents, err := client.HGet(t.Context(), fleetKey, "contents").Result()
			list, ok := far.Parse([]byte(contents))
			if err != nil || !ok {
				t.Fatalf("the fleet is %s, error %v", contents, err)
			}
			return len(list.Limits)
		}
	})
}

const fleetKey = "weir:{ns}:fleet"

// fleet is the fleet of a backend.
type fleet struct {
	*advancetest.Fleet
	client *goredis.Client
}

func newFleet(t *testing.T, server *redistest.Server) *fleet {
	t.Helper()
	f := &fleet{client: raw(t, server)}
	f.Fleet = advancetest.NewFleet(t, func(t *testing.T, now func() time.Time) (store.Store, func() int) {
		return open(t, server.URL(), now), nil
	})
	return f
}

func begin(t *testing.T) *fleet {
	t.Helper()
	f := newFleet(t, redistest.Start(t))
	f.Begin()
	return f
}

// Keys that are far again leave the list, also if somebody else has written how many have.
func TestFarAgain(t *testing.T) {
	f := begin(t)
	advancetest.FarAgain(f.Fleet, func() {
		must.OK(t, f.client.HSet(t.Context(), fleetKey, "gone", "x").Err())
	})
}

// Nobody gets what a sender may have advanced that is silent, until the windows of its hits are over. Then it
// is forgotten.
func TestSilentSendersAreForgotten(t *testing.T) {
	f := begin(t)
	f.Now = f.Now.Add(20 * time.Second)
	f.Hit(1, 5, 6)
	must.Equal(t, must.Get(f.client.HGet(t.Context(), fleetKey, "lost").Result())(t) == "0", false, "no parts are lost")
	f.Now = f.Now.Add(3 * time.Hour)
	for range 3 {
		f.Hit(1, 5, 6)
		f.Now = f.Now.Add(2 * time.Second)
	}
	for _, key := range []string{":heard", ":divisors", ":answered", ":silent"} {
		must.Equal(t, must.Get(f.client.Exists(t.Context(), fleetKey+key).Result())(t), 0, "%s is there", key)
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
			f := begin(t)
			must.OK(t, errors.Join(f.client.Del(t.Context(), fleetKey+key).Err(), f.client.RPush(t.Context(), fleetKey+key, "x").Err()))
			for range 10 {
				f.Now = f.Now.Add(2 * time.Second)
				f.Tells()
				f.Wants("a key", 1, 60, 60, advancetest.Rule)
			}
			f.HasPart()
		})
	}
	f := begin(t)
	must.OK(t, f.client.HSet(t.Context(), fleetKey, "contents", "{", "version", "x", "units", "y").Err())
	f.Tells()
	f.Wants("a key", 1, 600, 600, advancetest.Rule)
}

// A Redis that has lost all gives no part that it does not know of, and versions go on.
func TestLostFleet(t *testing.T) {
	f := begin(t)
	f.Hit(600, 0, 1) // commit.lua has told the last version, and the next is a backend's
	version := f.Tells().Version
	must.OK(t, f.client.FlushAll(t.Context()).Err())
	f.Now = f.Now.Add(time.Second)
	must.Equal(t, f.Tells().Divisor, 0, "the sender hears of a part")
	if n := f.Tells(); n.Divisor == 0 || n.Version <= version {
		t.Errorf("the sender hears %+v, want a version after %d", n, version)
	}
}

// The keys of a fleet expire.
func TestFleetsExpire(t *testing.T) {
	f := begin(t)
	f.Hit(600, 0, 1)
	must.Equal(t, must.Get(f.client.PTTL(t.Context(), fleetKey+":near").Result())(t) > 0, true, "near keys that the last push has made expire")
	f.Now = f.Now.Add(2 * time.Second)
	f.Tells()
	keys := must.Get(f.client.Keys(t.Context(), fleetKey+"*").Result())(t)
	must.EqualOrEnd(t, len(keys) >= 5, true, "there are keys, %v", keys)
	for _, key := range keys {
		if life, err := f.client.PTTL(t.Context(), key).Result(); err != nil || life < 2*time.Hour || life > 4*time.Hour {
			t.Errorf("%s lives for %v, error %v", key, life, err)
		}
	}
}

// Words of several senders may come in one script. Each sender hears what it lacks, though others lack nothing.
func TestWordsTogether(t *testing.T) {
	f := begin(t)
	const senders = 12
	words := make([]wire.Advance, senders)
	says := func(i int, items ...wire.Item) *wire.Push {
		f.Sequence++
		return &wire.Push{Namespace: "ns", Sender: uint64(10 + i), Sequence: f.Sequence, Floor: f.Sequence, Advance: words[i], Items: items}
	}
	tell := func(i int, p *wire.Push) (n wire.Near) {
		out, err := f.Store.Push(t.Context(), p, 1)
		if n = out.Answer.Near; err != nil || n.Divisor == 0 {
			t.Errorf("sender %d hears %+v, error %v", i, n, err)
		}
		words[i].Epoch, words[i].Version, words[i].Divisor = n.Epoch, n.Version, n.Divisor
		return n
	}
	for i := range words {
		words[i] = advancetest.Wants
		tell(i, says(i))
	}
	for round := range 20 {
		for i := range words {
			tell(i, says(i))
		}
		f.Hit(600, round, round+1)
		for i := 0; i < senders; i += 2 {
			tell(i, says(i))
			tell(i, says(i)) // now it is noted that the sender has heard
		}
		var group sync.WaitGroup
		for i := range words {
			p := says(i, wire.Item{LimitCounter: advancetest.Hourly(7000), Newest: uint64(f.Now.UnixMilli()) / 3600_000, Hits: []int64{1}})
			group.Go(func() {
				n := tell(i, p)
				must.Equal(t, n.KeyCount(), i%2, "round %d: keys that sender %d hears of", round, i)
			})
		}
		group.Wait()
	}
}

// Others may change a fleet again and again while a push asks for a rule. The push goes on without.
func TestOthersAreQuicker(t *testing.T) {
	f := begin(t)
	others := f.Store
	tag := uint16(101)
	addr := between(t, f.client.Options().Addr, func(command []string) {
		if len(command) < 4 || command[3] != fleetKey {
			return
		}
		tag += 2
		p := &wire.Push{Namespace: "ns", Sender: uint64(tag), Sequence: 1, Floor: 1, Takes: []wire.Take{advancetest.Thousand(1, 1, tag)}}
		_, err := others.Push(t.Context(), p, 1)
		must.Report(t, err)
	})
	f.Store = open(t, "redis://"+addr, func() time.Time { return f.Now })
	f.Wants("a rule that others do not ask for", 2, 10, 10, 21)
	f.Wants("a rule that others do not ask for", 2, 10, 10, 21)
}
