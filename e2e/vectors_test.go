package e2e

import (
	"fmt"
	"net/http"
	"testing"

	"weir/internal/must"
	"weir/window/windowtest"
)

// TestVectors runs the vectors through the plugin in a proxy: over two connections in turns, with the
// test's clock.
func TestVectors(t *testing.T) {
	onEach(t, 1, func(t *testing.T, d driver) {
		clock := newClock()
		proxy := d.node(t, nodeConfig{clock: clock, configuration: perUser(`{"limit": 1, "window": "1s"}`)})
		for i, vector := range windowtest.Vectors(t) {
			if vector.Nanoseconds && !d.nanoseconds() {
				continue
			}
			t.Run(vector.Name, func(t *testing.T) {
				// Each vector has its own counters.
				must.OK(t, proxy.configure(fmt.Sprintf(`{"namespace": "v%d", "rules": [{"name": "r", "key": [{"header": "x-key"}], "cost": {"header": "x-cost", "least": 0}, "limits": %s}]}`,
					i, vector.Limits)))
				clients := []*http.Client{client(t), client(t)}
				for i, step := range vector.Steps {
					clock.set(t, step.Time(t, monday))
					r := ask(t, clients[i%2], proxy.url(), "x-key", step.Key, "x-cost", fmt.Sprint(step.Cost))
					must.Equal(t, r.status == http.StatusOK, step.Allowed, "step %d: status %d", i, r.status)
					r.want(t, step.Fields())
				}
			})
		}
	})
}
