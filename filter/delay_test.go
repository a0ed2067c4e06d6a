package filter_test

import (
	"fmt"
	"testing"
	"time"

	"weir/internal/must"
)

const smoothRule = `{"rules": [{"name": "r", "key": [{"header": "x-key"}], "delay": {"most": "5s", "queue": 3},
	"limits": [{"limit": 10, "window": "1s", "algorithm": "token_bucket", "burst": 1}]}]}`

// Requests without room are let go in time, and tell how long they have waited. TestDelayModel shows which, and when.
func TestDelay(t *testing.T) {
	v := newProxy(t).start(smoothRule)
	v.pause("x-key", "ann")
	waiting := v.paused(3, "x-key", "ann")
	if v.pause("x-key", "ann") != nil || v.reply == nil || v.reply.status != 429 {
		t.Fatalf("the queue is full: got %+v", v.reply)
	}
	for i, s := range waiting {
		for v.ended[s.ID()] == 0 && v.now < monday+second {
			v.now += 1e6
			v.tick()
		}
		v.response = map[string]string{}
		v.respond(s, true)
		must.Equal(t, v.response["x-ratelimit-delayed"], fmt.Sprint(100*(i+1)), "request %d was delayed by, in ms", i)
		v.reset(s)
	}
	must.Equal(t, v.count("delayed_requests_total"), 3, "requests were delayed")
}

// A request whose class will have no room in time takes no place in a line: it is refused at once, by its
// class's rule. One whose class has room waits.
func TestDelayBesideClasses(t *testing.T) {
	v := newProxy(t).start(`{"rules": [` + classed(ofHour, "") + `, ` + smoothRule[len(`{"rules": [`):])
	send := func(class string) *stream { return v.pause("x-key", "k", "x-user", "ann", "x-class", class) }
	for range 20 {
		must.EqualOrEnd(t, send("rest") == nil && v.reply == nil, true, "its class has room: %+v", v.reply)
		v.now += second / 10
	}
	send("interactive")
	for i := range 3 {
		if send("rest") != nil || v.reply == nil || v.reply.headers["x-ratelimit-limit"] != "20" || v.reply.headers["retry-after"] != "3598" {
			t.Fatalf("request %d of a class without room: %+v", i, v.reply)
		}
		must.EqualOrEnd(t, send("interactive") != nil, true, "request %d of another waits: %+v", i, v.reply)
	}
}

// A request does not wait for longer than it may, whoever else takes the room, and those that wait as their
// configuration is replaced are let go all the same.
func TestDelayEnds(t *testing.T) {
	v := newProxy(t).start(smoothRule)
	v.pause("x-key", "ann")
	s := v.pause("x-key", "ann")
	next, gone := v.replace(smoothRule)
	must.Equal(t, gone, false, "the configuration is gone, and with it who lets the request go")
	for range 200 {
		v.now += 1e6
		v.tick()
		next.tick()
	}
	must.Equal(t, v.ended[s.ID()], 1, "times the request was let go")
	// A window that has no room for longer than most refuses at once.
	v = newProxy(t).start(`{"rules": [{"name": "r", "delay": {"most": "5s", "queue": 3}, "limits": [{"limit": 1, "window": "1m", "algorithm": "fixed_window"}]}]}`)
	v.pause()
	if v.pause() != nil || v.reply == nil || v.reply.headers["retry-after"] != "60" {
		t.Errorf("got %+v", v.reply)
	}
	v.now += 56 * second
	must.Equal(t, v.pause() != nil, true, "a request waits for a window that begins in time")
}

// A request that has waited for as long as it may, and has no room still, is refused, without a
// backend too: nobody knows when a place comes back.
func TestDelayRunsOut(t *testing.T) {
	v := newProxy(t).start(`{"rules": [{"name": "r", "delay": {"most": "1s", "queue": 3}, "limits": [{"limit": 1, "algorithm": "in_flight"}]}]}`)
	v.pause()
	holder := v.last
	s := v.pause()
	must.EqualOrEnd(t, s != nil, true, "a request waits for a place: %+v", v.reply)
	pass := func(ms int) {
		for range ms {
			v.now += 1e6
			v.tick()
		}
	}
	pass(900)
	must.EqualOrEnd(t, v.ended[s.ID()], 0, "it goes on too early: %+v", v.reply)
	if pass(150); v.ended[s.ID()] != 1 || v.reply == nil || v.reply.status != 429 {
		t.Fatalf("it was answered %d times, by %+v", v.ended[s.ID()], v.reply)
	}
	s = v.pause()
	must.EqualOrEnd(t, s != nil, true, "the next waits")
	v.reset(holder)
	must.EqualOrEnd(t, v.ended[s.ID()], 0, "let go before a tick")
	if pass(60); v.ended[s.ID()] != 1 || v.reply != nil {
		t.Errorf("it was let go %d times, by %+v, though the place is free", v.ended[s.ID()], v.reply)
	}
}

// A request that the proxy answers while it waits, as it does at a time-out, costs nothing, and does not wait on.
func TestDelayedRequestThatTheProxyAnswers(t *testing.T) {
	v := newProxy(t).start(`{"rules": [{"name": "r", "delay": {"most": "1m", "queue": 9}, "cost": {"request_json": "n", "default": 1}, "cost_on_response": {"header": "x-cost"},
		"limits": [{"limit": 2, "window": "1m", "algorithm": "fixed_window"}]}]}`)
	begin := func(end bool) (s *stream) {
		v.receive("POST", "/", []string{"x-cost", "50"})
		s, _ = v.begin(end)
		return s
	}
	v.pause()
	v.pause()
	line, body := begin(true), begin(false)
	must.EqualOrEnd(t, [2]any{line.Waits(), v.plugin.Bodies()}, [2]any{true, 1}, "one waits for room, and another for its body")
	for _, s := range []*stream{line, body} {
		v.respond(s, true, ":status", "408")
	}
	must.Equal(t, [2]any{line.Waits(), v.plugin.Bodies()}, [2]any{false, 0}, "they wait still")
	v.reset(line)
	v.reset(body)
	must.Equal(t, v.used(), 2, "hits are taken")
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
	must.Equal(t, v.ended[other.ID()], 1, "times that the one which has waited was let go")
	must.Equal(t, v.reply == nil, true, "the second hit of the hour was for it: %+v", v.reply)
	v.now += 2 * second
	if s := v.pause(); s != nil || v.reply == nil || v.reply.details != "weir_rate_limited:w" {
		t.Errorf("got %+v", v.reply)
	}
}

// Nodes with a backend let no more through than the limit, together. A request that waits asks for room when
// there may be some, and not again and again. The next room comes when an answer has taken the last, so a slot
// is longer by the time that an answer takes.
func TestDelayOfNodes(t *testing.T) {
	const slot = 100 // milliseconds
	for _, c := range []struct {
		rate  string
		every int // how many milliseconds answers come after each other
	}{{"0", 1}, {"0.2", 1}, {"0", 33}, {"0.2", 33}} {
		rate := c.rate
		w := newWorld(t, 2, 2, synced(rate, `{"name": "r", "delay": {"most": "3s", "queue": 20},
			"limits": [{"limit": 10, "window": "1s", "algorithm": "token_bucket", "burst": 1}]}`))
		start, passed, refused, asked := w.now, 0, 0, 0
		type waiter struct {
			v *fakeVM
			s *stream
		}
		var waiting []waiter
		for ms := range 10_000 {
			if w.random.IntN(60) == 0 { // some 17 a second, for 10
				v := w.any()
				if s := v.pause(); s != nil {
					waiting = append(waiting, waiter{v, s})
				} else if v.reply != nil {
					refused++
				} else {
					passed++
				}
			}
			w.pass(time.Millisecond)
			for _, v := range w.vms {
				if ms%max(int(v.tickMillis), 1) == 0 {
					v.tick()
				}
				if ms%c.every == 0 {
					asked += len(v.callouts)
					w.deliver(v)
				}
			}
			for i := 0; i < len(waiting); i++ {
				if h := waiting[i]; h.v.ended[h.s.ID()] > 0 {
					if h.s.Answered() {
						refused++
					} else {
						passed++
					}
					h.v.reset(h.s)
					waiting = append(waiting[:i], waiting[i+1:]...)
					i--
				}
			}
		}
		seconds := int((w.now - start) / second)
		must.Between(t, passed, 10*seconds*slot/(slot+c.every)-2, 10*seconds+1, "sync_rate %s: passed in %d s", rate, seconds)
		t.Logf("sync_rate %s, answers each %d ms: %d passed, %d refused, %d wait, %d callouts", rate, c.every, passed, refused, len(waiting), asked)
		must.AtMost(t, asked, 10*(passed+refused), "sync_rate %s: callouts for %d requests", rate, passed+refused)
	}
}
