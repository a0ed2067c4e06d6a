package filter_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"weir/internal/must"
	"weir/internal/proxywasm"
	"weir/internal/wire"
)

// The requests of a configuration's only rule go a straight way if it is a plain rule. A plugin that decides all of
// them the general way answers the same, by the same host calls, and counts the same.
func TestOnlyRule(t *testing.T) {
	passed, refused := 0, 0
	for seed := range uint64(100) {
		random := rand.New(rand.NewPCG(seed, 6))
		var limits []string
		for _, algorithm := range []string{"sliding_window", "fixed_window", "token_bucket", "sliding_log"} {
			if random.IntN(2) == 0 {
				limits = append(limits, fmt.Sprintf(`{"limit": %d, "window": "1m", "algorithm": %q}`, 1+random.IntN(20), algorithm))
			}
		}
		if len(limits) == 0 {
			limits = append(limits, `{"limit": 3, "window": "1s"}`)
		}
		configuration := fmt.Sprintf(`{%s "rules": [{"name": "only", %s %s %s %s "limits": [%s]}]}`,
			pick(random, "", `"headers": [],`),
			pick(random, "", `"key": [{"header": "x-user"}],`, `"key": ["client_ip"],`, `"key": [{"header": "x-user"}, {"cookie": "id"}],`, `"key": [{"query": "page"}],`),
			pick(random, "", `"cost": 0,`, `"cost": 2,`),
			pick(random, "", `"count_rejected": true,`, `"block": "10s",`, `"warn_at": [0.5],`),
			pick(random, "", `"mode": "shadow",`),
			strings.Join(limits, ", "))
		straight, general := newProxy(t).start(configuration), newProxy(t).start(configuration)
		must.Equal(t, general.plugin.GoAround(), true, "the straight way is to be had with %s", configuration)
		both := []*fakeVM{straight, general}
		for step := range 300 {
			after, user, turn := random.Int64N(5*second), fmt.Sprint("user-", random.IntN(3)), random.IntN(100)
			loses, mode := turn < 10, pick(random, wire.Configured, wire.Enforce, wire.Shadow, wire.Off)
			for _, v := range both {
				if v.now += after; turn == 99 {
					done := proxywasm.Use(v)
					v.plugin.Move(0, mode)
					done()
				}
				lost := !loses
				v.before = func(_ *fakeVM, op string) {
					if !lost && op == "set" {
						lost = true
						v.race()
					}
				}
				v.source = []byte("10.0.0." + user[5:] + ":1234")
			}
			path := "/items?page=" + user
			var was [2]bool
			for i, v := range both {
				v.receive("GET", path, []string{"x-user", user, "cookie", "id=" + user})
				was[i] = v.stream()
			}
			if was[0] {
				passed++
			} else {
				refused++
			}
			where := fmt.Sprintf("request %d of world %d, %s", step, seed, configuration)
			must.EqualOrEnd(t, was[0], was[1], "passed: %s", where)
			must.Same(t, straight.response, general.response, "headers: %s", where)
			must.Same(t, straight.reply, general.reply, "refusal: %s", where)
		}
		for _, v := range both {
			v.tick()
			// By chance keys share a page, or a place where pages are remembered.
			delete(v.calls, "get")
			delete(v.calls, "set")
			for name, m := range v.metrics {
				if strings.Contains(name, "lost_races") {
					v.counts[m] = 0
				}
			}
		}
		must.Same(t, straight.calls, general.calls, "host calls with %s", configuration)
		must.Same(t, straight.counts, general.counts, "counts with %s", configuration)
	}
	must.AtLeast(t, min(passed, refused), 1000, "the fewer of requests that passed and that were refused")
}
