package simulate

import (
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/internal/must"
)

// request is a line of a log, with times in milliseconds.
type request struct {
	at, lasts int64
	path      string
}

// some are random requests of two keys, which come in bursts.
func some(n int) (all []request) {
	random := rand.New(rand.NewPCG(7, 8))
	at := int64(1_767_366_000_000)
	for i := range n {
		if at += 1 + random.Int64N(30); i%40 == 0 {
			at += random.Int64N(3000)
		}
		all = append(all, request{at, 20 + random.Int64N(300), []string{"/a", "/b"}[random.IntN(2)]})
	}
	return all
}

// envoyLog is a log of requests, as Envoy writes it.
func envoyLog(all []request) io.Reader {
	var log strings.Builder
	for _, r := range all {
		fmt.Fprintf(&log, "[%s] \"GET %s HTTP/1.1\" 200 - 0 0 %d 1 \"-\" \"-\" \"-\" \"a\" \"1.1.1.1:1\"\n",
			time.UnixMilli(r.at).UTC().Format("2006-01-02T15:04:05.000Z"), r.path, r.lasts)
	}
	return strings.NewReader(log.String())
}

// served tells how many requests a queue refuses, and for how long the others wait. room is the time at which a
// request that begins to wait has room, after those before it; a negative time takes it.
func served(all []request, most int64, queue int, room func(key string, at int64) int64) (refused uint64, waits []int64) {
	lets := map[string][]int64{}
	for _, r := range all {
		line := slices.DeleteFunc(lets[r.path], func(let int64) bool { return let <= r.at })
		at := room(r.path, r.at)
		if len(line) >= queue && at > r.at || at-r.at > most {
			refused++
		} else {
			if at > r.at {
				waits = append(waits, at-r.at)
			}
			room(r.path, -at) // it is taken
			line = append(line, at)
		}
		lets[r.path] = line
	}
	slices.Sort(waits)
	return refused, waits
}

// Requests of a log wait for tokens: the plugin, and the limit by itself, refuse as a queue does, and the
// report tells how long the others have waited.
func TestDelaysOfLogs(t *testing.T) {
	all := some(2000)
	for _, c := range []struct {
		most  int64
		queue int
	}{{500, 100}, {10_000, 3}, {300, 2}} {
		next := map[string]int64{} // when a key's next token is there
		refused, waits := served(all, c.most, c.queue, func(key string, at int64) int64 {
			if at < 0 {
				next[key] = -at + 50
			}
			return max(next[key], at)
		})
		r := simulated(t, fmt.Sprintf(`{"rules": [{"name": "f", "key": ["path"], "delay": {"most": "%dms", "queue": %d},
			"limits": [{"limit": 20, "window": "1s", "algorithm": "token_bucket", "burst": 1}]}]}`, c.most, c.queue), envoyLog(all))
		got := &r.Rules[0]
		if got.Requests != 2000 || got.RefusedByRule != refused || refused == 0 || r.Refused != refused {
			t.Errorf("%v: %d of %d were refused, want %d", c, got.RefusedByRule, got.Requests, refused)
		}
		for _, p := range got.Limits[0].Curve {
			if p.Configured && p.Refused != refused {
				t.Errorf("%v: the limit by itself refuses %d, want %d", c, p.Refused, refused)
			}
		}
		if n := len(waits); got.Delayed != uint64(n) || got.WaitP50Millis != waits[(n-1)/2] || got.WaitP99Millis != waits[(n-1)*99/100] {
			t.Errorf("%v: %d waited, for %d and %d ms, want %d, %d and %d", c, got.Delayed, got.WaitP50Millis, got.WaitP99Millis, n, waits[(n-1)/2], waits[(n-1)*99/100])
		}
		steps := uint64(0)
		for _, s := range r.Timeline {
			steps += s.Refused
		}
		must.Equal(t, steps, refused, "%v: refused in the timeline", c)
		var text, page strings.Builder
		must.OK(t, r.Text(&text))
		must.OK(t, r.HTML(&page))
		for _, out := range []string{text.String(), page.String()} {
			if p99 := time.Duration(got.WaitP99Millis) * time.Millisecond; !strings.Contains(out, p99.String()) || !strings.Contains(out, "waited") {
				t.Errorf("%v: want a wait of %v in\n%s", c, p99, out)
			}
		}
	}
}

// Requests of a log wait for places, which others hold for as long as the log says.
func TestDelaysForPlacesOfLogs(t *testing.T) {
	const places, most, queue = 3, 400, 4
	all := some(2000)
	type waiter struct{ at, lasts int64 }
	type key struct {
		ends    []int64
		waiting []waiter
	}
	keys, refused, waited := map[string]*key{"/a": {}, "/b": {}}, uint64(0), 0
	pass := func(k *key, now int64) {
		for len(k.ends) > 0 && slices.Min(k.ends) <= now {
			at := slices.Min(k.ends)
			k.ends = slices.Delete(k.ends, slices.Index(k.ends, at), slices.Index(k.ends, at)+1)
			for len(k.waiting) > 0 && k.waiting[0].at+most < at {
				refused, k.waiting = refused+1, k.waiting[1:]
			}
			if len(k.waiting) > 0 {
				k.ends, k.waiting = append(k.ends, at+k.waiting[0].lasts), k.waiting[1:]
				waited++
			}
		}
		for len(k.waiting) > 0 && k.waiting[0].at+most < now {
			refused, k.waiting = refused+1, k.waiting[1:]
		}
	}
	for _, r := range all {
		k := keys[r.path]
		switch pass(k, r.at); {
		case len(k.ends) < places && len(k.waiting) == 0:
			k.ends = append(k.ends, r.at+r.lasts)
		case len(k.waiting) < queue:
			k.waiting = append(k.waiting, waiter{r.at, r.lasts})
		default:
			refused++
		}
	}
	for _, k := range keys {
		pass(k, 1<<62)
	}
	r := simulated(t, fmt.Sprintf(`{"rules": [{"name": "f", "key": ["path"], "delay": {"most": "%dms", "queue": %d},
		"limits": [{"limit": %d, "algorithm": "in_flight"}]}]}`, most, queue, places), envoyLog(all))
	got := &r.Rules[0]
	for _, p := range got.Limits[0].Curve {
		if p.Configured && p.Refused != refused {
			t.Errorf("the limit by itself refuses %d, want %d", p.Refused, refused)
		}
	}
	// The plugin looks for a place that has come back every 20 ms.
	if off := int64(got.RefusedByRule) - int64(refused); got.Requests != 2000 || refused < 100 || off < -100 || off > 100 {
		t.Errorf("%d of %d were refused, want about %d", got.RefusedByRule, got.Requests, refused)
	}
	t.Logf("%d waited, want about %d; %d refused, want about %d; waits up to %d and %d ms", got.Delayed, waited, got.RefusedByRule, refused, got.WaitP50Millis, got.WaitP99Millis)
}
