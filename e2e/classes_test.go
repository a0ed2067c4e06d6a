package e2e

import (
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"weir/internal/must"
)

// ofClasses has a rule whose requests the backend decides, and one with leases.
const ofClasses = `{"namespace": "classes", "backend": {"cluster": "weir", "timeout": "5s"}, "rules": [` + exactClasses + `"sync_rate": 0}, ` + leasedClasses + `"sync_rate": 0.2}]}`

const (
	exactClasses  = `{"name": "exact", "match": {"path": {"exact": "/exact"}}, ` + classesOf1000
	leasedClasses = `{"name": "leased", "match": {"path": {"exact": "/leased"}}, ` + classesOf1000
	classesOf1000 = `"key": [{"header": "x-user"}], "limits": [{"limit": 1000, "window": "366d", "algorithm": "fixed_window"}],
		"classes": {"by": {"header": "x-class"}, "of": {"interactive": {"guaranteed": 0.6}, "batch": {"guaranteed": 0.1, "most": 0.3}}}, `
)

// A flood of batch at two nodes keeps no interactive request from the part of its class, takes no more than
// batch may have, and the limit holds. Where each request is decided by the backend, the last hit is given
// out; people see what each part has.
func TestClasses(t *testing.T) {
	onEach(t, 2, func(t *testing.T, d driver) {
		backend := serve(t, "memory")
		_, addresses := nodes(t, d, 2, nodeConfig{configuration: ofClasses, backend: backend, workers: 2})
		for _, rule := range []string{"exact", "leased"} {
			var batch atomic.Int64
			stop := make(chan struct{})
			var flood sync.WaitGroup
			for i := range 4 {
				flood.Go(func() {
					for client := client(t); ; {
						select {
						case <-stop:
							return
						default:
						}
						if r, err := send(t, client, addresses[i%2], ":path", "/"+rule, "x-user", "ann", "x-class", "batch"); err != nil {
							t.Error(err)
							return
						} else if r.status == http.StatusOK {
							batch.Add(1)
						}
					}
				})
			}
			own := client(t)
			ask := func(i int) int {
				return ask(t, own, addresses[i%2], ":path", "/"+rule, "x-user", "ann", "x-class", "interactive").status
			}
			for i := range 600 {
				if status := ask(i); status != http.StatusOK {
					t.Fatalf("%s: interactive request %d: status %d, while batch has %d", rule, i, status, batch.Load())
				}
			}
			close(stop)
			flood.Wait()
			borrowed := int64(0)
			for i := range 200 {
				if ask(i) == http.StatusOK {
					borrowed++
				}
			}
			if n := batch.Load(); n > 300 || n < 200 || borrowed > 100 || rule == "exact" && (n != 300 || borrowed != 100) {
				t.Errorf("%s: batch has %d of 300 and interactive has borrowed %d of 100", rule, n, borrowed)
			}
			if rule != "exact" {
				continue
			}
			for value, want := range map[string]string{"interactive": "600", "batch": "100", "batch+": "200", "": "300"} {
				must.Contains(t, weir(t, backend, "counter", "get", "classes", rule, "ann", value), want, "%q has", value)
			}
		}
	})
}
