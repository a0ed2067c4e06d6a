package redis_test

import (
	"testing"
	"time"

	"weir/internal/store/redis/redistest"
	"weir/internal/wire"
)

// A server that starts again has its keys in another order. A walk that was under way begins again.
func TestWalkAndRestart(t *testing.T) {
	server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	f := &fleet{t: t, client: raw(t, server), now: time.Unix(1_767_571_260, 0), word: wire.Advance{Told: true, Wants: true, Settled: true}}
	f.Store = open(t, server.URL(), func() time.Time { return f.now })
	const near = 4000
	f.hit(600, 0, near)
	limits, keys := 0, 0
	for i := range 60 {
		if i == 4 {
			server.Restart()
		}
		n := f.push(1, func(p *wire.Push) {
			if p.Advance = f.word; i == 0 {
				p.Takes = []wire.Take{thousand(9999, 1, fleetRule)}
			}
		}).Near
		limits, keys = limits+n.LimitCount(), keys+n.KeyCount()
		f.hear(n)
	}
	noted, err := f.client.ZCard(t.Context(), fleetKey+":near").Result()
	if err != nil || limits == 0 || noted != near {
		t.Errorf("%d limits are listed, and %d keys near, of %d; error %v", limits, noted, near, err)
	}
}
