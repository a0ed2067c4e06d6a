package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"weir/internal/host"
	"weir/internal/must"
	"weir/internal/nightly"
)

// A hundred thousand keys, a million in a nightly run, grow neither shared data beyond its bound
// nor the VM's memory, and do not free a key that was at its limit.
func TestSpray(t *testing.T) {
	onWazeroAlone(t, func(t *testing.T) {
		const capacity = 10_000
		keys := nightly.Or(1_000_000, 100_000)
		clock := newClock()
		process := host.NewProcess(host.ProcessConfig{Clock: clock.now})
		w := newWorker(t, process, `{"capacity": 10000, "rules": [{"name": "per-user", "key": [{"header": "x-user"}], "limits": [{"limit": 5, "window": "1h"}]}]}`)
		for w.send("x-user", "ann") {
		}
		data := process.SharedData(vmID)
		memory := int64(0)
		for i := range keys {
			must.EqualOrEnd(t, w.send("x-user", fmt.Sprint("random-", i)), true, "the first request of key %d was rejected", i)
			if i == keys/10 {
				memory = w.vm.MemorySize()
			}
		}
		perCounter := float64(data.Bytes()) / capacity
		t.Logf("after %d keys: %d bytes of shared data, %.1f a counter of the capacity; VM memory %d", keys, data.Bytes(), perCounter, w.vm.MemorySize())
		must.AtMost(t, perCounter, 96, "bytes of shared data a counter")
		must.Equal(t, w.vm.MemorySize(), memory, "the VM's memory grew from %d to", memory)
		clock.advance(t, 2*time.Second) // longer than the VM remembers refusals
		must.Equal(t, w.send("x-user", "ann"), false, "a key that was at its limit passes after the flood")
	})
}

// A request's cost is counted in host calls.
func TestHostCalls(t *testing.T) {
	onWazeroAlone(t, func(t *testing.T) {
		for _, test := range []struct {
			name, options string
			limit         int
			want          string
		}{
			{"allowed", ``, 100, "get_current_time_nanoseconds:1 get_header_map_value:1 replace_header_map_value:5 set_shared_data:1"},
			{"allowed without headers", `"headers": [],`, 100, "get_current_time_nanoseconds:1 get_header_map_value:1 set_shared_data:1"},
			{"rejected again", ``, 1, "get_current_time_nanoseconds:1 get_header_map_value:2 send_local_response:1"},
		} {
			w := newWorker(t, host.NewProcess(host.ProcessConfig{Clock: newClock().now}), `{`+test.options+fmt.Sprintf(
				`"rules": [{"name": "r", "key": [{"header": "x-user"}], "limits": [{"limit": %d, "window": "1h"}]}]}`, test.limit))
			w.send("x-user", "ann")
			w.send("x-user", "ann")
			before := w.vm.HostCalls()
			w.send("x-user", "ann")
			var got []string
			for _, name := range []string{"get_current_time_nanoseconds", "get_header_map_value", "get_shared_data", "replace_header_map_value",
				"send_local_response", "set_shared_data"} {
				if n := w.vm.HostCalls()["proxy_"+name] - before["proxy_"+name]; n > 0 {
					got = append(got, fmt.Sprintf("%s:%d", name, n))
				}
			}
			all := uint64(0)
			for name, n := range w.vm.HostCalls() {
				all += n - before[name]
			}
			must.Equal(t, strings.Join(got, " "), test.want, "%s: (%d calls in all)", test.name, all)
		}
	})
}
