package redis_test

import (
	"sync/atomic"
	"testing"
	"time"

	"weir/internal/must"
	"weir/internal/store"
	"weir/internal/store/advancetest"
	"weir/internal/store/redis"
	"weir/internal/store/redis/redistest"
	"weir/internal/wire"
	"weir/window"
)

// TestForms has a backend write what it has decided by the contents that it saw last, though another has written since. Hits
// are added to windows of the clock if that changes no decision. All else must be as it was seen, or it is decided again;
// of a log, as much as its limit needs.
func TestForms(t *testing.T) {
	server := redistest.Start(t)
	client, ours, others := raw(t, server), open(t, server.URL(), atEpoch), open(t, server.URL(), atEpoch)
	sequence := uint64(0)
	push := func(s *redis.Store, r wire.Room, ago uint64, hits, takes int64) store.Outcome {
		t.Helper()
		sequence++
		p := &wire.Push{Namespace: "ns", Sender: 1, Sequence: sequence, Floor: sequence, Items: []wire.Item{store.Calendar{NowNanos: uint64(epoch.UnixNano()) - ago}.RoomItem(&r, 0)}}
		if p.Items[0].Hits[0] = hits; takes > 0 {
			p.Takes = []wire.Take{{Least: uint64(takes), Most: uint64(takes), Rooms: []wire.Room{r}}}
		}
		return must.Get(s.Push(t.Context(), p, 1))(t)
	}
	for id, test := range []struct {
		name         string
		of           wire.LimitCounter
		limit        uint64
		others, hits int64
		takes        int64
		scripts      int
		want, units  uint64
	}{
		{"a window", counter(window.FixedWindow, 0, time.Minute), 1000, 5, 1, 0, 1, 7, 0},
		{"a window, and a take with room", counter(window.FixedWindow, 0, time.Minute), 10, 4, 0, 1, 1, 6, 1},
		{"a window, and a take with just room", counter(window.FixedWindow, 0, time.Minute), 10, 8, 0, 1, 1, 10, 1},
		{"a window, and a take with no more room", counter(window.FixedWindow, 0, time.Minute), 10, 9, 0, 1, 3, 10, 0}, // lone.lua is first
		{"a sliding window", counter(window.SlidingWindow, 0, time.Hour), 1000, 5, 1, 1, 1, 8, 1},
		{"a window, given back", counter(window.FixedWindow, 0, time.Minute), 1000, 5, -1, 0, 1, 5, 0},
		{"one of two windows, given back", counter(window.SlidingWindow, 0, time.Hour), 1000, 5, -1, 0, 1, 5, 0},
		{"a window of most hits", counter(window.FixedWindow, 0, time.Minute), 1000, wire.MaxHits - 2, 2, 0, 3, wire.MaxHits, 0},
		{"a first hit", counter(window.FirstHitWindow, 0, time.Minute), 1000, 5, 1, 0, 2, 7, 0},
		{"tokens", counter(window.TokenBucket, 0, time.Minute), 1000, 5, 1, 0, 2, 7, 0},
		{"buckets", buckets(0, time.Minute, 15*time.Second), 1000, 5, 1, 0, 2, 7, 0},
		{"a log", buckets(0, time.Minute, 1), 1000, 5, 1, 0, 2, 7, 0},
	} {
		test.of.ID = wire.ID{byte(1 + id)}
		r := wire.Room{LimitCounter: test.of, Limit: test.limit, Burst: test.limit, Cost: 1}
		push(ours, r, 0, 1, 0)
		push(others, r, 0, test.others, 0)
		before := redistest.BusyWith(t, client, "evalsha")
		out := push(ours, r, 0, test.hits, test.takes)
		if got := redistest.BusyWith(t, client, "evalsha").Calls - before.Calls; got != test.scripts || out.Answer.Totals[0].Hits[0] != test.want || test.takes > 0 && out.Answer.Grants[0].Units != test.units {
			t.Errorf("%s: %d scripts, %+v; want %d, %d hits and %d units", test.name, got, out, test.scripts, test.want, test.units)
		}
	}
	long := wire.Room{LimitCounter: buckets(99, time.Minute, 1), Limit: 4000}
	for ago := range uint64(200) {
		push(others, long, 1+ago, 1, 0)
	}
	for _, test := range []struct {
		limit   uint64
		ago     uint64 // of what others add meanwhile
		scripts int
	}{{1, 300, 1}, {1, 2, 2}} {
		r := long
		r.Limit = test.limit
		push(ours, r, 0, 0, 0)
		push(others, long, test.ago, 1, 0)
		before := redistest.BusyWith(t, client, "evalsha")
		push(ours, r, 0, 0, 0)
		must.Equal(t, redistest.BusyWith(t, client, "evalsha").Calls-before.Calls, test.scripts, "a log of which a limit of %d is read, and a hit %d ns ago comes: scripts", test.limit, test.ago)
	}
}

// BenchmarkScript measures how long a push keeps Redis busy: its script's time by Redis's own count. A fleet has 300
// senders with parts. Each push has a hit of each of 4 counters that are far from their limits.
func BenchmarkScript(b *testing.B) {
	for _, kind := range []struct {
		name  string
		fleet bool
		takes int
	}{{"items, no fleet", false, 0}, {"items, fleet", true, 0}, {"items and a take, no fleet", false, 1}, {"items and a take, fleet", true, 1}} {
		b.Run(kind.name, func(b *testing.B) {
			server := redistest.Start(b)
			var ahead atomic.Int64
			now := func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
			client, s := raw(b, server), open(b, server.URL(), now)
			const senders, counters = 300, 1000
			words := make([]wire.Advance, senders)
			sequence := uint64(0)
			push := func(n int, takes ...wire.Take) {
				sequence++
				p := &wire.Push{Namespace: "ns", Sender: uint64(1 + n%senders), Sequence: sequence, Floor: sequence, Takes: takes}
				for i := range 4 {
					p.Items = append(p.Items, wire.Item{LimitCounter: advancetest.Hourly(1 + (4*n+i)%counters), Newest: uint64(now().UnixMilli()) / 3600_000, Hits: []int64{1}})
				}
				word := &words[n%senders]
				if kind.fleet {
					p.Advance = *word
					p.Advance.Present, p.Advance.Wants, p.Advance.Settled = true, true, true
				}
				out := must.Get(s.Push(b.Context(), p, 1))(b)
				if near := &out.Answer.Near; near.Present {
					word.Epoch, word.Version, word.Divisor = near.Epoch, near.Version, near.Divisor
				}
			}
			take := func(id, tag int) wire.Take {
				return wire.Take{Least: 1, Most: 1, Rooms: []wire.Room{{LimitCounter: advancetest.Hourly(id), Limit: 1_000_000, Cost: 1, Tag: uint16(tag)}}}
			}
			tag := 0
			if kind.fleet {
				tag = advancetest.Rule
			}
			push(0, take(1, tag))
			for i := range 20 * senders { // until each has its fair part
				if push(i); i%senders == 0 {
					ahead.Add(int64(4 * time.Second))
				}
			}
			without := 0
			for i := range words {
				if kind.fleet && words[i].Divisor == 0 {
					without++
				}
			}
			before := redistest.BusyWith(b, client, "evalsha")
			n := 0
			for b.Loop() {
				var takes []wire.Take
				for i := range kind.takes {
					takes = append(takes, take(1+(4*n+i)%counters, tag))
				}
				push(n, takes...)
				n++
			}
			after := redistest.BusyWith(b, client, "evalsha")
			b.ReportMetric(float64(after.Micros-before.Micros)/float64(after.Calls-before.Calls), "redis-µs/script")
			b.ReportMetric(float64(without), "without-part")
			b.ReportMetric(float64(after.Calls-before.Calls)/float64(b.N), "scripts/push")
		})
	}
}
