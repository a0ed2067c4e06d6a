package e2e

import (
	"fmt"
	"strings"
	"testing"

	"weir/internal/host"
	"weir/internal/must"
)

// Requests with very long keys that wait for the backend, or for their response's cost, do not grow
// the VM's memory by the keys. Compared with the same number of short keys, the VM has only the
// memory that the collector has yet to free, a small part of all keys.
func TestLongKeysAreNotKept(t *testing.T) {
	onWazeroAlone(t, func(t *testing.T) {
		const requests, length = 4000, 50_000
		const more = requests * length / 16
		for _, test := range []struct {
			name, options, rule string
			action              host.Action
		}{
			{"waiting for the backend", `"backend": {"cluster": "weir"}, "sync_rate": 0,`, ``, host.Pause},
			{"cost on response", ``, `"cost_on_response": {"response_header": "x-cost"},`, host.Continue},
		} {
			t.Run(test.name, func(t *testing.T) {
				memory := func(padding string) int64 {
					w := newWorker(t, host.NewProcess(host.ProcessConfig{Clock: newClock().now, Clusters: map[string]string{"weir": "127.0.0.1:1"}}),
						`{`+test.options+` "rules": [{"name": "r", "key": [{"header": "x-user"}], `+test.rule+` "limits": [{"limit": 5, "window": "1h"}]}]}`)
					for i := range requests {
						stream := must.Get(w.root.NewStream(host.StreamInfo{Source: "10.0.0.1:1", Protocol: "HTTP/1.1"}))(t)
						defer stream.Close()
						headers := host.NewHeaders(":method", "GET", ":path", "/", ":authority", "shop.example", "x-user", fmt.Sprint(i, padding))
						must.EqualOrEnd(t, must.Get(stream.RequestHeaders(headers, true))(t), test.action, "request %d: action", i)
					}
					return w.vm.MemorySize()
				}
				short, long := memory(""), memory(strings.Repeat("k", length))
				t.Logf("%d requests: %.1f MiB with short keys, %.1f with keys of %d bytes", requests, float64(short)/(1<<20), float64(long)/(1<<20), length)
				must.AtMost(t, long, short+more, "bytes of the VM with long keys, and with short ones %d", short)
			})
		}
	})
}
