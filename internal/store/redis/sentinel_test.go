package redis_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"weir/internal/must"
	"weir/internal/store/redis/redistest"
	"weir/window"
)

// A master dies while senders push, and another takes over; then one that runs becomes a replica. Senders repeat what nobody
// has answered. All hits are counted once.
func TestSentinel(t *testing.T) {
	t.Parallel()
	w := redistest.StartWatched(t)
	tr := startTraffic(t, w, "?wait_replicas=1", 3)
	tr.wait(30)
	w.KillMaster()
	tr.wait(30)
	afterKill := tr.failed.Load()
	w.Failover()
	tr.wait(30)
	tr.end()
	s := open(t, w.URL(), atEpoch)
	if got, _ := sum(t, s, 0); got != tr.hits.Load() {
		t.Errorf("%d hits counted, want %d", got, tr.hits.Load())
	}
	if failed := tr.failed.Load(); afterKill == 0 || failed == afterKill {
		t.Errorf("%d pushes failed, %d of them after the first master: a master was not missed", failed, afterKill)
	}
	must.Report(t, s.Ping(t.Context()))
}

func TestNoSentinel(t *testing.T) {
	t.Parallel()
	w := redistest.StartWatched(t)
	for _, test := range []struct{ url, want string }{
		{strings.Replace(w.URL(), "/mymaster", "/other", 1), `a Sentinel knows no master "other"`},
		{"redis+sentinel://127.0.0.1:1,127.0.0.1:2/mymaster", "one of 2 Sentinels"},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		_, err := pushOne(ctx, open(t, test.url, atEpoch), 1, epoch, counter(window.FixedWindow, 1, time.Minute))
		cancel()
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error %v, want %q", test.url, err, test.want)
		}
	}
}
