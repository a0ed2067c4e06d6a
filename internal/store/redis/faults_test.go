package redis_test

import (
	"math"
	"strconv"
	"testing"
	"time"

	"weir/internal/must"
	"weir/internal/store/advancetest"
	"weir/internal/store/redis"
	"weir/internal/store/redis/redistest"
	"weir/internal/wire"
)

// A sender may say anything of its part. It and others get answers.
func TestForgedWords(t *testing.T) {
	f := begin(t)
	for _, n := range []uint64{math.MaxUint64, 1 << 63, 1 << 53, wire.MaxHits, 1} {
		for range 3 {
			f.Push(1, func(p *wire.Push) {
				p.Advance = wire.Advance{Present: true, Wants: true, Settled: true, Epoch: n, Version: n, Divisor: n}
			})
		}
	}
	f.Tells()
}

// A field of a fleet that somebody else has written does no harm to a backend that begins.
func TestForeignFields(t *testing.T) {
	for _, field := range []string{"revision", "version", "contents", "gone", "units", "lost", "senders", "swept", "reviewed"} {
		for _, value := range []string{"x", "", "-1", "inf", "nan", "1e300", "18446744073709551616", "9007199254740991"} {
			t.Run(field+"="+value, func(t *testing.T) {
				f := begin(t)
				f.Hit(600, 0, 1)
				must.OK(t, f.client.HSet(t.Context(), fleetKey, field, value).Err())
				f.Store = open(t, "redis://"+f.client.Options().Addr, func() time.Time { return f.Now })
				for i := range 20 {
					f.Now = f.Now.Add(2 * time.Second)
					f.Tells()
					f.Wants("a key", 100+i, 60, 60, advancetest.Rule)
					f.Wants("a key of a new rule", 200+i, 60, 60, uint16(21+2*i))
					f.Hit(600, i+1, i+2)
				}
				f.Now = f.Now.Add(time.Hour)
				for range 15 {
					f.Now = f.Now.Add(2 * time.Second)
					f.Tells()
				}
			})
		}
	}
}

// A key of a fleet that somebody else has written is noticed though nobody asks for hits, and told. Reviews need all of them.
func TestForeignKeysAreTold(t *testing.T) {
	for _, key := range []string{"", ":near", ":heard", ":divisors", ":answered", ":silent"} {
		t.Run(key, func(t *testing.T) {
			f := begin(t)
			f.Tells()
			must.OK(t, f.client.Del(t.Context(), fleetKey+key).Err())
			must.OK(t, f.client.RPush(t.Context(), fleetKey+key, "x").Err())
			repaired := int64(0)
			for range 10 {
				f.Now = f.Now.Add(2 * time.Second)
				f.Sequence++
				p := &wire.Push{Namespace: "ns", Sender: 1, Sequence: f.Sequence, Floor: f.Sequence, Advance: f.Word}
				out := must.Get(f.Store.Push(t.Context(), p, 1))(t)
				f.Hear(out.Answer.Near)
				repaired += out.Repaired
			}
			must.Equal(t, repaired, 1, "fleets that were begun anew")
			must.Equal(t, must.Get(f.client.Type(t.Context(), fleetKey+key).Result())(t) == "list", false, "the key is there")
		})
	}
}

// A fleet one of whose keys is lost leaves what its senders may have advanced, or takes their parts away.
func TestLostKeys(t *testing.T) {
	for _, key := range []string{"", ":near", ":heard", ":divisors", ":answered", ":silent"} {
		for _, silent := range []bool{false, true} {
			t.Run(key+strconv.FormatBool(silent), func(t *testing.T) {
				f := begin(t)
				if silent {
					f.Now = f.Now.Add(20 * time.Second)
					f.Hit(1, 50, 51)
				}
				must.OK(t, f.client.Del(t.Context(), fleetKey+key).Err())
				f.Now = f.Now.Add(2 * time.Second)
				n := f.Tells()
				got := f.Push(3, func(p *wire.Push) { p.Takes = []wire.Take{advancetest.Thousand(1, 1000, advancetest.Rule)} }).Grants[0].Units
				if n.Divisor > 0 && got > 0 {
					t.Errorf("the sender has a part of 1/%d, and %d hits are granted", n.Divisor, got)
				}
				// In the end all of a limit can be had.
				f.Now = f.Now.Add(5 * time.Hour)
				for range 200 {
					f.Now = f.Now.Add(2 * time.Second)
					f.Hit(1, 50, 51)
				}
				f.Wants("all, when the sender is forgotten", 2, 1000, 1000, advancetest.Rule)
				f.HasPart()
			})
		}
	}
}

// A part is told when replicas have it, though the push that gets it has no hits.
func TestPartsWaitForReplicas(t *testing.T) {
	f := begin(t)
	f.Store = open(t, "redis://"+f.client.Options().Addr+"?wait_replicas=1&wait_timeout=1ms", func() time.Time { return f.Now })
	for range 3 {
		f.Sequence++
		p := &wire.Push{Namespace: "ns", Sender: 9, Sequence: f.Sequence, Floor: f.Sequence, Advance: advancetest.Wants}
		out, err := f.Store.Push(t.Context(), p, 1)
		must.Fails(t, err, "without a replica the sender hears %+v", out.Answer.Near)
	}
}

// A server that has lost that a limit was listed tells senders so that heard it, be its version less than theirs or more.
func TestLostList(t *testing.T) {
	for _, later := range []bool{false, true} {
		t.Run(strconv.FormatBool(later), func(t *testing.T) {
			server := redistest.Start(t)
			f := newFleet(t, server)
			f.Hit(1, 0, 3000)
			f.Push(1, func(p *wire.Push) {
				p.Advance, p.Takes = f.Word, []wire.Take{advancetest.Thousand(9999, 1, advancetest.Rule)}
			})
			f.Tells()
			was := must.Get(f.client.Dump(t.Context(), fleetKey).Result())(t)
			limits := 0
			for range 30 {
				f.Now = f.Now.Add(time.Millisecond)
				n := f.Tells()
				limits += n.LimitCount()
			}
			if limits == 0 || f.Word.Divisor == 0 {
				t.Fatalf("the sender hears of %d limits, and has a part of 1/%d", limits, f.Word.Divisor)
			}
			must.OK(t, f.client.RestoreReplace(t.Context(), fleetKey, 0, was).Err())
			if f.Now = f.Now.Add(time.Second); later {
				f.Hit(600, 5000, 5001)
			}
			heard := f.Word.Version
			if n := f.Tells(); n.Divisor != 0 && (!n.Whole || n.Version < heard || n.LimitCount() != 0) {
				t.Errorf("the sender, which has heard version %d, keeps the limit: it hears %+v", heard, n)
			}
		})
	}
}

// A replica that hangs lacks all that backends have written meanwhile. A push that tells of this waits for the replica, though
// the push has no hits and changes nothing.
func TestNewsWaitForReplicas(t *testing.T) {
	for name, change := range map[string]func(f *fleet, sender uint64) wire.Advance{
		"a near key": func(f *fleet, sender uint64) wire.Advance {
			n := f.Push(sender, func(p *wire.Push) { p.Advance = advancetest.Wants }).Near
			f.Hit(600, 0, 1)
			return wire.Advance{Present: true, Wants: true, Settled: true, Epoch: n.Epoch, Version: n.Version, Divisor: n.Divisor}
		},
		"a part that the sender did not hear of": func(f *fleet, sender uint64) wire.Advance {
			n := f.Push(sender, func(p *wire.Push) { p.Advance = advancetest.Wants }).Near
			return wire.Advance{Present: true, Wants: true, Epoch: n.Epoch, Version: n.Version}
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := begin(t)
			f.Tells()
			replica := follow(t, f.client)
			replica.Pause()
			const sender = 9
			word := change(f, sender)
			waits := func(timeout string) *redis.Store {
				return open(t, "redis://"+f.client.Options().Addr+"?wait_replicas=1&wait_timeout="+timeout, func() time.Time { return f.Now })
			}
			f.Sequence++
			p := &wire.Push{Namespace: "ns", Sender: sender, Sequence: f.Sequence, Floor: f.Sequence, Advance: word}
			out, err := waits("50ms").Push(t.Context(), p, 1)
			must.Fails(t, err, "the replica lacks that the sender hears %+v", out.Answer.Near)
			replica.Resume()
			must.Equal(t, must.Get(waits("4s").Push(t.Context(), p, 1))(t).Answer.Near.Divisor > 0, true, "with the replica the sender hears of a part")
		})
	}
}
