package e2e

import (
	"strings"
	"testing"

	"weir/internal/must"
)

// A proxy's log says that pushes fail, why, and what decides meanwhile, and later that they are
// answered again. It says so once, whatever the number of workers and pushes.
func TestTurnsAreLogged(t *testing.T) {
	onEach(t, 2, func(t *testing.T, d driver) {
		configuration := func(namespace, cluster, failure string) string {
			return `{"namespace": "` + namespace + `", "backend": {"cluster": "` + cluster + `", "token": "wrong", "timeout": "30s"}, "sync_rate": 0.1, "on_backend_failure": "` + failure + `",
			"rules": [{"name": "all", "limits": [{"limit": 5, "window": "1m"}]}]}`
		}
		var way switchable
		way.cut.Store(true)
		n := d.node(t, nodeConfig{
			configuration: configuration("turns-away", "weir", "local"), workers: 4, backend: through(t, &way, serve(t, "memory")),
		})
		const until = "; until they are answered, "
		wantSaid(t, n, "namespace turns-away: pushes to cluster weir fail with 503"+until+"this proxy's own counters decide (on_backend_failure: local)")
		way.cut.Store(false)
		wantSaid(t, n, "namespace turns-away: pushes to cluster weir are answered again")
		must.OK(t, n.configure(configuration("turns-none", "none", "allow")))
		wantSaid(t, n, "namespace turns-none: pushes to cluster none can't be sent: want a cluster with this name"+until+
			"requests pass uncounted (on_backend_failure: allow)")
		wrong := d.node(t, nodeConfig{
			configuration: configuration("turns-refused", "weir", "deny"), workers: 4,
			backend: start(t, "serve", "--listen", "127.0.0.1:0", "--token", "right").Wait(t, `address=(\S+)`),
		})
		wantSaid(t, wrong, "namespace turns-refused: pushes to cluster weir are refused with 401: want a token that the backend knows"+until+
			"requests are refused (on_backend_failure: deny)")
		for said, times := range map[string]int{n.said(): 3, wrong.said(): 1} {
			must.Equal(t, strings.Count(said, ": pushes to cluster "), times, "lines:\n%s", said)
		}
	})
}

// wantSaid waits until a node has logged a line.
func wantSaid(t *testing.T, n node, line string) {
	t.Helper()
	if !soon(func() bool {
		n.metric(t, metricName("failed_pushes_total")) // ticks the node, if it does not tick by itself
		return strings.Contains(n.said(), line)
	}) {
		t.Fatalf("the log has no %q:\n%s", line, n.said())
	}
}
