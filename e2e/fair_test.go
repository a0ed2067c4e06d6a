package e2e

import (
	"net/http"
	"strconv"
	"sync"
	"testing"

	"weir/internal/must"
)

const (
	fairShares = `{"backend": {"cluster": "weir", "timeout": "5s"}, "rules": [
		{"name": "exact", "match": {"path": {"exact": "/exact"}}, "sync_rate": 0, ` + fairOf2000 + `,
		{"name": "leased", "match": {"path": {"exact": "/leased"}}, "sync_rate": 0.2, ` + fairOf2000 + `]}`
	fairOf2000 = `"key": [{"header": "x-team"}, {"header": "x-user"}], "limits": [{"limit": 2000, "window": "366d", "algorithm": "fixed_window"}],
		"cost": {"header": "x-cost", "least": 0},
		"classes": {"by": {"header": "x-class"}, "of": {"interactive": {"guaranteed": 0.6}, "batch": {"guaranteed": 0.1, "most": 0.3}}, "fair": true}}`
)

// A user who floods two nodes has no more of its class than each of four others, who send one request
// after the other and have all of their parts.
func TestFairShares(t *testing.T) {
	onEach(t, 2, func(t *testing.T, d driver) {
		started, addresses := nodes(t, d, 2, nodeConfig{configuration: fairShares, backend: serve(t, "memory"), workers: 2})
		users := []string{"ann", "bob", "cleo", "dan"}
		const part = 1800 / 5
		for _, rule := range []string{"exact", "leased"} {
			own := client(t)
			asks := func(i int, user, cost string) reply {
				return ask(t, own, addresses[i%2], ":path", "/"+rule, "x-team", "red", "x-user", user, "x-class", "interactive", "x-cost", cost)
			}
			passed := map[string]int{}
			for _, user := range append(users, "eve") {
				for i := range addresses {
					if asks(i, user, "1").status == http.StatusOK {
						passed[user]++
					}
				}
			}
			for i := range addresses { // until the node has heard of all keys
				must.EqualOrEnd(t, soon(func() bool { return asks(i, "eve", "0").header.Get("x-ratelimit-limit") == strconv.Itoa(part/2) }), true, "%s: node %d knows of all keys", rule, i)
			}
			var flood sync.WaitGroup
			var floods [4]int
			for i := range floods {
				flood.Go(func() {
					for client := client(t); ; floods[i]++ {
						r, err := send(t, client, addresses[i%2], ":path", "/"+rule, "x-team", "red", "x-user", "eve", "x-class", "interactive")
						if err != nil {
							t.Error(err)
							return
						}
						if r.status != http.StatusOK {
							return // it has its part
						}
					}
				})
			}
			for i := range part + 100 {
				for _, user := range users {
					if asks(i, user, "1").status == http.StatusOK {
						passed[user]++
					}
				}
			}
			flood.Wait()
			for _, n := range floods {
				passed["eve"] += n
			}
			t.Log(rule, passed)
			least := part
			if rule == "leased" {
				least -= part / 10 // what is leased at the other node
			}
			for user, n := range passed {
				must.AtMost(t, n, part, "%s: what %s has", rule, user)
				must.AtLeast(t, n, least, "%s: what %s has", rule, user)
			}
			must.Equal(t, asks(0, "ann", "1").header.Get("x-ratelimit-remaining"), "0", "%s: hits that ann is told of", rule)
			for _, n := range started {
				n.wantSome(t, metricName("uneven_requests_total", rule))
			}
		}
	})
}
