package filter_test

import (
	"fmt"
	"testing"
	"time"

	"weir/internal/must"
)

const blockRule = `{"name": "r", "key": [{"header": "x-key"}], "block": "10m", "limits": [{"limit": 2, "window": "1m", "algorithm": "fixed_window"}]}`

// wantRetry wants a request to be refused until so many seconds have passed, or to pass if they are 0.
func (v *fakeVM) wantRetry(t *testing.T, what, key, seconds string) {
	t.Helper()
	s, got := v.open("x-key", key), ""
	if s != nil {
		v.finish(s)
	} else {
		got = v.reply.headers["retry-after"]
	}
	must.Equal(t, got, seconds, "%s: Retry-After", what)
}

// A key that was refused stays refused for so long, whatever room comes back, and a request meanwhile does not
// prolong that. Other keys are none of its business.
func TestBlock(t *testing.T) {
	p := newProxy(t)
	v, other := p.start(`{"rules": [`+blockRule+`]}`), p.start(`{"rules": [`+blockRule+`]}`)
	for range 2 {
		v.wantRetry(t, "within the limit", "ann", "")
	}
	v.wantRetry(t, "above it", "ann", "619") // and up to a bucket of 18.75 s more
	must.Equal(t, v.reply.headers["ratelimit"], `"r";r=0;t=619`, "ratelimit")
	v.wantRetry(t, "another key", "bob", "")
	p.now += 300 * second
	other.wantRetry(t, "another worker, and the window has room", "ann", "319")
	must.Equal(t, other.reply.headers["ratelimit"], `"r";r=0;t=319`, "ratelimit of a key that is blocked")
	p.now += 300 * second
	v.wantRetry(t, "after ten minutes", "ann", "19")
	p.now += 20 * second
	v.wantRetry(t, "after a bucket more", "ann", "")
	must.Equal(t, v.count("blocked_keys_total"), 1, "keys were blocked")
}

// Shadow rules block nobody, and count whom they would have blocked. Rules that mark go on to mark.
func TestBlockOfOthers(t *testing.T) {
	v := newProxy(t).start(`{"rules": [{"name": "s", "mode": "shadow", "block": "1m", "limits": [{"limit": 1, "window": "1s"}]},
		{"name": "m", "on_full": "mark", "block": "1m", "limits": [{"limit": 1, "window": "1s"}]}]}`)
	for i := range 3 {
		s := v.open()
		must.EqualOrEnd(t, s != nil, true, "request %d passes", i)
		must.EqualOrEnd(t, v.request["x-weir-over"] != nil, i > 0, "request %d is marked", i)
		v.reset(s)
		v.now += 30 * second * int64(min(i, 1)) // the second is in the same second
	}
	v.tick()
	v.wantShadow("s", 1, 2)
}

// A block is known to all nodes, whether or not they have asked for the key before; it is in the store, and
// outlasts the nodes. Overrides of limits change nothing of it.
func TestBlockOfNodes(t *testing.T) {
	for _, rate := range []string{"0", "0.5"} {
		w := newWorld(t, 3, 1, synced(rate, blockRule))
		ask := func(v *fakeVM, key string) (passed bool) { return v.send("x-key", key) }
		for range 2 {
			must.EqualOrEnd(t, ask(w.vms[0], "ann"), true, "sync_rate %s: refused within the limit", rate)
		}
		must.EqualOrEnd(t, ask(w.vms[0], "ann"), false, "sync_rate %s: passed above the limit", rate)
		often(4, w.advance, 500*time.Millisecond) // it is told at the next push
		w.advance(5 * time.Minute)
		for i, v := range w.vms {
			if ask(v, "ann") || !ask(v, "bob") && i < 2 {
				t.Errorf("sync_rate %s: node %d does not know who is blocked", rate, i)
			}
		}
		w.advance(6 * time.Minute)
		must.Equal(t, ask(w.vms[1], "ann"), true, "sync_rate %s: a key is blocked for too long", rate)
	}
}

// A response's cost blocks nobody, even if the key's counter has made room for others meanwhile.
func TestCostsDoNotBlock(t *testing.T) {
	w := newWorld(t, 1, 1, `{"backend": {"cluster": "weir"}, "sync_rate": 0.5, "capacity": 1, "rules": [{"name": "r", "key": [{"header": "x-key"}],
		"block": "10m", "reserve": 1, "cost_on_response": "openai", "limits": [{"limit": 1000000, "window": "30d", "algorithm": "fixed_window"}]}]}`)
	v := w.vms[0]
	ask := func(key string) *stream { return v.opened("x-key", key) }
	var open []*stream
	for i := range 300 { // far more than the table keeps
		s := ask(fmt.Sprint("user-", i))
		must.EqualOrEnd(t, s != nil, true, "user %d passes: %+v", i, v.reply)
		open = append(open, s)
		w.advance(100 * time.Millisecond)
	}
	for _, s := range open {
		v.answers(s, `{"usage":{"total_tokens":5}}`)
	}
	w.quiet()
	for i := range 300 {
		s := ask(fmt.Sprint("user-", i))
		must.EqualOrEnd(t, s != nil, true, "user %d is not blocked: %+v", i, v.reply)
		v.reset(s)
		w.advance(100 * time.Millisecond)
	}
}

// A request that asks the backend for hits of several rules is refused if any of them has none. Where none
// of them lacks room any more when the answer comes, nobody knows which it was, and none blocks its key.
func TestRefusalsOfOthersDoNotBlock(t *testing.T) {
	const short = `{"name": "short", "limits": [{"limit": 1, "window": "1s", "algorithm": "fixed_window"}]}`
	blocks := func(limit string) string {
		return `{"name": "r", "key": [{"header": "x-key"}], "block": "10m", "limits": [{"limit": ` + limit + `, "window": "1s", "algorithm": "fixed_window"}]}`
	}
	for _, test := range []struct {
		name, rules string
		blocked     bool
	}{
		{"another rule's", short + ", " + blocks("100"), false},
		{"its own", blocks("1"), true},
	} {
		w := newWorld(t, 2, 1, synced("0", test.rules))
		v := w.vms[0]
		w.crossing("x-key", "ann")()
		must.EqualOrEnd(t, v.reply != nil, true, "%s: it is refused", test.name)
		w.advance(time.Second)
		must.Equal(t, v.send("x-key", "ann"), !test.blocked, "%s: passed after the window", test.name)
	}
}
