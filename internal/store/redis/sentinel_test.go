package redis_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"weir/internal/must"
	"weir/internal/store"
	"weir/internal/store/redis"
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

// Servers and Sentinels that want TLS and passwords of their own are used like others, by a master after another. What is
// wrong with one of these is said, without the passwords.
func TestSentinelTLS(t *testing.T) {
	t.Parallel()
	w, roots := redistest.StartWatchedTLS(t)
	url := w.URL() + "&wait_replicas=1"
	trusting := redis.Options{Now: atEpoch, RootCAs: roots}
	c := counter(window.FixedWindow, 1, time.Minute)
	s := must.Get(redis.Open(url, trusting))(t)
	defer func() { must.Report(t, s.Close()) }()
	for i := range 3 {
		if i > 0 {
			w.Failover()
		}
		var out store.Outcome
		err := errors.New("no push")
		for range 300 {
			if out, err = pushOne(t.Context(), s, uint64(i)+1, epoch, c); err == nil {
				break
			}
			w.Pause(t.Context())
		}
		if err != nil || out.Answer.Totals[0].Hits[0] != uint64(i)+1 {
			t.Fatalf("after %d failovers: %+v, error %v", i, out.Answer, err)
		}
	}
	for url, test := range map[string]struct {
		options redis.Options
		want    string
	}{
		url: {redis.Options{Now: atEpoch}, "certificate signed by unknown authority"},
		strings.Replace(url, "rediss", "redis", 1):    {trusting, "one of 4 Sentinels"},
		strings.Replace(url, "hidden", "s3cret", 1):   {trusting, "WRONGPASS"},
		strings.Replace(url, "s3cret@", "hidden@", 1): {trusting, "WRONGPASS"},
		strings.Replace(url, ":s3cret@", "", 1):       {trusting, "unauthenticated"},
	} {
		s := must.Get(redis.Open(url, test.options))(t)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		_, err := pushOne(ctx, s, 9, epoch, c)
		cancel()
		if must.Report(t, s.Close()); err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "hidden") || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: error %v, want %q", url, err, test.want)
		}
	}
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
