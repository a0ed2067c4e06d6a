package e2e

import (
	"net/http"
	"strings"
	"testing"

	"weir/internal/must"
)

const countered = `{"namespace": "countered", "backend": {"cluster": "weir", "timeout": "5s"}, "sync_rate": 0.2, "rules": [
	{"name": "per-user", "key": [{"header": "x-user"}], "limits": [{"limit": 60, "window": "366d", "algorithm": "fixed_window"}]}]}`

// anew is a client whose requests come to any worker, each on a connection of its own.
var anew = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// Three nodes with two workers each refuse a key. After its counter was emptied, or hits were given
// back, it passes again at all nodes together that number of times.
func TestCountersAreEmptied(t *testing.T) {
	onEachByNight(t, 3, func(t *testing.T, d driver) {
		backend := serve(t, "memory")
		_, addresses := nodes(t, d, 3, nodeConfig{configuration: countered, backend: backend, workers: 2})
		send := func(address, user string) (passed bool) {
			t.Helper()
			r := ask(t, anew, address, "x-user", user)
			if r.status != http.StatusOK && r.status != http.StatusTooManyRequests {
				t.Fatalf("status %d", r.status)
			}
			return r.status == http.StatusOK
		}
		exhaust := func() (passed int) {
			t.Helper()
			for range 40 {
				for _, address := range addresses {
					if send(address, "ann") {
						passed++
					}
				}
			}
			return passed
		}
		must.EqualOrEnd(t, exhaust(), 60, "passed")
		send(addresses[0], "bob")
		want := func(out string, parts ...string) {
			t.Helper()
			for _, part := range parts {
				must.Contains(t, out, part, "")
			}
		}
		// Once a node has told its rules.
		tells(t, backend, "fixed window of 366d: 60 of 60 used", "counter", "get", "countered", "per-user", "ann")
		want(weir(t, backend, "counter", "get", "countered", "per-user", "zoe", "--allow-none"), "nobody has hit it")
		for range 3 {
			want(weir(t, backend, "counter", "reset", "countered", "per-user", "ann", "--wait", "60s"),
				"60 given back\n", "nothing is counted now\n", "known to 3 of 3 nodes\n")
			for i, address := range addresses {
				must.Equal(t, send(address, "ann"), true, "node %d refuses though the counter was emptied", i)
			}
			must.Equal(t, exhaust(), 57, "passed then")
			want(weir(t, backend, "counter", "grant", "countered", "per-user", "ann", "15", "--wait", "60s"),
				"15 given back\n", "45 of 60 used", "known to 3 of 3 nodes\n")
			must.Equal(t, exhaust(), 15, "passed, with 15 given back")
		}
		// Other users' counters are unchanged.
		want(weir(t, backend, "counter", "get", "countered", "per-user", "bob"), "1 of 60 used")
		settle(t, backend, "countered", 61)
	})
}

// A key that one node has blocked is blocked on all nodes until its counter is reset.
func TestBlocksEnd(t *testing.T) {
	onEachByNight(t, 3, func(t *testing.T, d driver) {
		backend := serve(t, stores["redis"](t).url)
		_, addresses := nodes(t, d, 3, nodeConfig{backend: backend, workers: 2, configuration: strings.Replace(
			strings.Replace(countered, `"limit": 60`, `"limit": 2`, 1), `"limits"`, `"block": "1h", "limits"`, 1)})
		wants := func(what, address string, status int) {
			t.Helper()
			must.Equal(t, ask(t, anew, address, "x-user", "ann").status, status, "%s: status", what)
		}
		for range 3 {
			wants("the first", addresses[0], http.StatusOK)
			wants("the second", addresses[1], http.StatusOK)
			for range 3 {
				wants("above the limit", addresses[2], http.StatusTooManyRequests)
			}
			if !pushed.until(t, func() bool {
				return strings.Contains(weir(t, backend, "counter", "get", "countered", "per-user", "ann"), "block of 1h")
			}) {
				t.Errorf("the backend knows of no block: %s", weir(t, backend, "counter", "get", "countered", "per-user", "ann"))
			}
			weir(t, backend, "counter", "grant", "countered", "per-user", "ann", "1", "--wait", "60s")
			for _, address := range addresses {
				wants("blocked, with room", address, http.StatusTooManyRequests)
			}
			must.Contains(t, weir(t, backend, "counter", "reset", "countered", "per-user", "ann", "--wait", "60s"), "nothing is counted now", "")
		}
	})
}
