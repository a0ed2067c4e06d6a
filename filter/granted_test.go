package filter_test

import (
	"strings"
	"testing"

	"weir/internal/must"
)

// A node knows hits that the backend does not know yet, as the rule has just got a backend. A request that
// the backend would let pass is refused for these, and is told how its own key stands.
func TestRefusedThoughGranted(t *testing.T) {
	const rule = `{"name": "user", "key": [{"header": "x-user"}], "limits": [
		{"limit": 2, "window": "1h", "algorithm": "fixed_window"}, {"limit": 9, "window": "1d", "algorithm": "fixed_window"}]}`
	w := newWorld(t, 1, 1, synced("-1", rule))
	for range 2 {
		must.EqualOrEnd(t, w.vms[0].send("x-user", "ann"), true, "refused within the limit")
	}
	v, _ := w.vms[0].replace(strings.Replace(synced("0", rule), `"sync_rate": -1`, `"sync_rate": 0`, 1))
	must.EqualOrEnd(t, v.send("x-user", "ann"), false, "passed above the limit")
	must.Equal(t, v.reply.details, "weir_rate_limited:user", "refused by")
	want(t, v.reply.headers, `
		ratelimit: "user";r=0;t=3600, "user.2";r=7;t=86400
		retry-after: 3600
	`)
}
