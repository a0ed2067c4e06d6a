package e2e

import (
	"net/http"
	"testing"

	"weir/internal/must"
)

// Three proxies without a backend pass as much as their parts of a limit, together no more than all
// of it. How many there are says a text, on Envoy a number, too; a module can't ask.
func TestShare(t *testing.T) {
	onEach(t, 3, func(t *testing.T, d driver) {
		replicas := []string{`{"property": ["xds", "node", "metadata", "TEXT"]}`, `{"property": ["node", "metadata", "TEXT"]}`, "3"}
		if e, ok := d.(envoys); ok {
			replicas[1] = `{"property": ["node", "metadata", "REPLICAS"]}`
			if e.native {
				replicas[0], replicas[1] = "3", "3"
			}
		}
		client := client(t)
		for _, of := range replicas {
			n := d.node(t, nodeConfig{configuration: `{"sync_rate": "share", "replicas": ` + of + `, ` +
				perUser(`{"limit": 100, "window": "366d"}`)[1:]})
			passed := 0
			for range 100 {
				if ask(t, client, n.url(), "x-user", "ann").status == http.StatusOK {
					passed++
				}
			}
			must.Equal(t, passed, 33, "replicas %s: pass", of)
		}
	})
}
