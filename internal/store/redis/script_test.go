package redis_test

import (
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"weir/internal/store/redis/redistest"
	"weir/internal/wire"
)

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
					p.Items = append(p.Items, wire.Item{LimitCounter: hourly(1 + (4*n+i)%counters), Newest: uint64(now().UnixMilli()) / 3600_000, Hits: []int64{1}})
				}
				word := &words[n%senders]
				if kind.fleet {
					p.Advance = *word
					p.Advance.Told, p.Advance.Wants, p.Advance.Settled = true, true, true
				}
				out, err := s.Push(b.Context(), p, 1)
				if err != nil {
					b.Fatal(err)
				}
				if near := &out.Answer.Near; near.Told {
					word.Epoch, word.Version, word.Divisor = near.Epoch, near.Version, near.Divisor
				}
			}
			take := func(id, tag int) wire.Take {
				return wire.Take{Least: 1, Most: 1, Rooms: []wire.Room{{LimitCounter: hourly(id), Limit: 1_000_000, Cost: 1, Tag: uint16(tag)}}}
			}
			tag := 0
			if kind.fleet {
				tag = fleetRule
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
			before := scriptTime(b, client)
			n := 0
			for b.Loop() {
				var takes []wire.Take
				for i := range kind.takes {
					takes = append(takes, take(1+(4*n+i)%counters, tag))
				}
				push(n, takes...)
				n++
			}
			after := scriptTime(b, client)
			b.ReportMetric((after.micros-before.micros)/(after.calls-before.calls), "redis-µs/script")
			b.ReportMetric(float64(without), "without-part")
			b.ReportMetric((after.calls-before.calls)/float64(b.N), "scripts/push")
		})
	}
}

type busyTime struct{ calls, micros float64 }

// scriptTime reads how many scripts have run, and for how long.
func scriptTime(b *testing.B, client *goredis.Client) (s busyTime) {
	b.Helper()
	stats, err := client.InfoMap(b.Context(), "commandstats").Result()
	if err != nil {
		b.Fatal(err)
	}
	for field := range strings.SplitSeq(stats["Commandstats"]["cmdstat_evalsha"], ",") {
		name, value, _ := strings.Cut(field, "=")
		switch number, _ := strconv.ParseFloat(value, 64); name {
		case "calls":
			s.calls = number
		case "usec":
			s.micros = number
		}
	}
	return s
}
