package filter

import (
	"fmt"
	"testing"
)

const smoothRule = `{"rules": [{"name": "r", "key": [{"header": "x-key"}], "delay": {"most": "5s", "queue": 3},
	"limits": [{"limit": 10, "window": "1s", "algorithm": "token_bucket", "burst": 1}]}]}`

// Requests without room are let go one after the other, in their order, and tell how long they have waited.
// Above the queue they are refused at once, and one that leaves makes room.
func TestDelay(t *testing.T) {
	v := newProxy(t).start(smoothRule)
	if v.pause("x-key", "ann") != nil || v.reply != nil {
		t.Fatal("the first request does not pass at once")
	}
	var waiting []*stream
	for i := range 3 {
		s := v.pause("x-key", "ann")
		if s == nil {
			t.Fatalf("request %d does not wait: %+v", i, v.reply)
		}
		waiting = append(waiting, s)
	}
	if v.pause("x-key", "ann") != nil || v.reply == nil || v.reply.status != 429 {
		t.Fatalf("the queue is full: got %+v", v.reply)
	}
	if v.pause("x-key", "bob") != nil || v.reply != nil {
		t.Fatal("another key waits")
	}
	v.reset(waiting[1])
	if waiting[1] = v.pause("x-key", "ann"); waiting[1] == nil {
		t.Fatal("one that has left made no room")
	}
	order := []*stream{waiting[0], waiting[2], waiting[1]}
	for i, s := range order {
		for ms := range 101 {
			v.now += 1e6
			if v.tick(); v.ended[s.id] > 0 {
				break
			}
			if ms == 100 {
				t.Fatalf("request %d waits for longer than a tenth of a second", i)
			}
		}
		for _, other := range order[i+1:] {
			if v.ended[other.id] > 0 {
				t.Fatalf("a request overtakes request %d", i)
			}
		}
		v.response = map[string]string{}
		v.respond(s, true)
		if got, want := v.response["x-ratelimit-delayed"], fmt.Sprint(100*(i+1)); got != want {
			t.Errorf("request %d was delayed by %s ms, want %s", i, got, want)
		}
		v.reset(s)
	}
	if got := v.count("delayed_requests_total"); got != 4 {
		t.Errorf("%d requests were delayed, want 4", got)
	}
}

// A request does not wait for longer than it may, whoever else takes the room, and those that wait as their
// configuration is replaced are let go all the same.
func TestDelayEnds(t *testing.T) {
	v := newProxy(t).start(smoothRule)
	v.pause("x-key", "ann")
	s := v.pause("x-key", "ann")
	next, gone := v.replace(smoothRule)
	if gone {
		t.Error("the configuration is gone, and with it who lets the request go")
	}
	for range 200 {
		v.now += 1e6
		v.tick()
		next.tick()
	}
	if v.ended[s.id] != 1 {
		t.Errorf("the request was let go %d times", v.ended[s.id])
	}
	// A window that has no room for longer than most refuses at once.
	v = newProxy(t).start(`{"rules": [{"name": "r", "delay": {"most": "5s", "queue": 3}, "limits": [{"limit": 1, "window": "1m", "algorithm": "fixed_window"}]}]}`)
	v.pause()
	if v.pause() != nil || v.reply == nil || v.reply.headers["retry-after"] != "60" {
		t.Errorf("got %+v", v.reply)
	}
	v.now += 56 * second
	if v.pause() == nil {
		t.Error("a request does not wait for a window that begins in time")
	}
}

// A request that waits holds nothing of its other rules.
func TestDelayTakesNothing(t *testing.T) {
	v := newProxy(t).start(`{"rules": [{"name": "r", "delay": {"most": "5s", "queue": 3}, "limits": [{"limit": 1, "window": "1s", "algorithm": "token_bucket"}]},
		{"name": "w", "limits": [{"limit": 2, "window": "1h", "algorithm": "fixed_window"}]}]}`)
	v.pause()
	first, other := v.pause(), v.pause()
	v.reset(first)
	for range 1100 {
		v.now += 1e6
		v.tick()
	}
	if v.ended[other.id] != 1 || v.reply != nil {
		t.Errorf("the second hit of the hour was not for the one that has waited: %+v", v.reply)
	}
	v.now += 2 * second
	if s := v.pause(); s != nil || v.reply == nil || v.reply.details != "weir_rate_limited:w" {
		t.Errorf("got %+v", v.reply)
	}
}
