package e2e

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"weir/internal/host"
	"weir/internal/nightly"
)

func TestDecisionsAndHeaders(t *testing.T) {
	t.Parallel()
	clock := newClock()
	w := newWorker(t, host.NewProcess(host.ProcessConfig{Clock: clock.now}), perUser(
		`{"limit": 100, "window": "1m"}, {"limit": 3, "window": "1s", "algorithm": "fixed_window"}`))
	clock.advance(t, 30*time.Second)
	for range 3 {
		if r := w.send("x-user", "ann"); !r.passed {
			t.Fatal("rejected within the limit")
		}
	}
	r := w.send("x-user", "ann")
	if r.passed || r.status != 429 || r.details != "weir_rate_limited:per-user" || r.body == "" {
		t.Errorf("above the limit: got %+v", r)
	}
	r.want(t, `
		ratelimit-policy: "per-user";q=100;w=60, "per-user.2";q=3;w=1
		ratelimit: "per-user";r=97;t=50, "per-user.2";r=0;t=1
		x-ratelimit-limit: 3
		x-ratelimit-remaining: 0
		x-ratelimit-reset: 1
		retry-after: 1
		x-envoy-ratelimited: true
		content-type: application/problem+json
	`)
	clock.advance(t, time.Second)
	r = w.send("x-user", "ann")
	r.want(t, `
		ratelimit: "per-user";r=96;t=44, "per-user.2";r=2;t=1
		x-ratelimit-limit: 3
		x-ratelimit-remaining: 2
		retry-after:
	`)
	if !r.passed || !w.send("x-user", "bob").passed {
		t.Error("rejected within the limit")
	}
}

func TestGRPCRequests(t *testing.T) {
	t.Parallel()
	w := newWorker(t, host.NewProcess(host.ProcessConfig{Clock: newClock().now}), perUser(`{"limit": 0, "window": "1m"}`))
	r := w.send("content-type", "application/grpc+proto")
	r.want(t, `
		:status: 200
		content-type: application/grpc
		grpc-status: 8
		grpc-message: Rate limit exceeded
		x-envoy-ratelimited: true
	`)
	if r.body != "" {
		t.Errorf("got the body %q", r.body)
	}
}

func TestRefusedConfiguration(t *testing.T) {
	t.Parallel()
	vm, err := host.NewProcess(host.ProcessConfig{}).NewVM(t.Context(), module, host.VMConfig{ID: vmID})
	if err != nil {
		t.Fatal(err)
	}
	_, err = vm.NewRoot(host.Plugin{Configuration: []byte(`{"rules": [{"name": "a b", "limits": [{"limit": 1, "window": "1 minute"}]}], "sync": 1}`)})
	var refused *host.StartError
	if !errors.As(err, &refused) {
		t.Fatalf("got %v", err)
	}
	for _, path := range []string{"rules[0].name", `rules[0].limits[0].window: want a duration`, "sync: unknown field"} {
		if log := strings.Join(refused.Log, "\n"); !strings.Contains(log, path) {
			t.Errorf("the log lacks %q:\n%s", path, log)
		}
	}
	if err := vm.Close(); err != nil {
		t.Error(err)
	}
}

// A configuration update makes a new context in the same VM. The rule's counters stay, the new
// limit holds at once, and streams of the old context end normally.
func TestReconfigured(t *testing.T) {
	t.Parallel()
	process := host.NewProcess(host.ProcessConfig{Clock: newClock().now})
	w := newWorker(t, process, perUser(`{"limit": 10, "window": "1h"}`))
	for range 6 {
		w.send("x-user", "ann")
	}
	old, err := w.root.NewStream(host.StreamInfo{Source: "10.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := old.RequestHeaders(host.NewHeaders(":method", "GET", ":path", "/", "x-user", "ann"), true); err != nil {
		t.Fatal(err)
	}
	w.configure(perUser(`{"limit": 8, "window": "1h"}, {"limit": 100, "window": "1d"}`))
	w.send("x-user", "ann").want(t, `ratelimit: "per-user";r=0;t=4050, "per-user.2";r=99;t=172800`)
	if w.send("x-user", "ann").passed {
		t.Error("the changed limit does not hold")
	}
	response := host.NewHeaders(":status", "200")
	if _, err := old.ResponseHeaders(response, true); err != nil {
		t.Fatal(err)
	}
	if got, _ := response.Get("x-ratelimit-limit"); got != "10" {
		t.Errorf("stream of the old configuration: got limit %q", got)
	}
	old.Close()
}

// TestAnotherWorkerBetweenGetAndSet lets another worker handle a request between every get and
// every set: no hit is lost, and no request passes above the limit.
func TestAnotherWorkerBetweenGetAndSet(t *testing.T) {
	onWazeroAlone(t, anotherWorkerBetweenGetAndSet)
}

func anotherWorkerBetweenGetAndSet(t *testing.T) {
	for _, limit := range []string{
		`{"limit": 500, "window": "1h", "algorithm": "fixed_window"}`,
		`{"limit": 500, "window": "1h", "algorithm": "fixed_window", "start": "first_hit"}`,
		`{"limit": 500, "window": "1h"}, {"limit": 600, "window": "1d"}`,
	} {
		process := host.NewProcess(host.ProcessConfig{Clock: newClock().now})
		mine, other := newWorker(t, process, perUser(limit)), newWorker(t, process, perUser(limit))
		passed := 0
		process.SetSharedDataHook(func(access host.SharedDataAccess) {
			if access.VM == mine.vm && access.Set && other.send("x-user", "ann").passed {
				passed++
			}
		})
		for range 1000 {
			if mine.send("x-user", "ann").passed {
				passed++
			}
		}
		if passed != 500 {
			t.Errorf("%s: passed %d, want 500", limit, passed)
		}
		process.SetSharedDataHook(nil)
		other.tick()
		mine.tick()
		if lost := process.Metrics().Value(metricName("lost_races_total")); lost < 100 {
			t.Errorf("%d races were lost, so few were tested", lost)
		}
	}
}

// A hundred thousand keys, a million in a nightly run, grow neither shared data beyond its bound
// nor the VM's memory, and do not free a key that was at its limit.
func TestSpray(t *testing.T) {
	onWazeroAlone(t, spray)
}

func spray(t *testing.T) {
	const capacity = 10_000
	keys := nightly.Or(1_000_000, 100_000)
	clock := newClock()
	process := host.NewProcess(host.ProcessConfig{Clock: clock.now})
	w := newWorker(t, process, `{"capacity": 10000, "rules": [{"name": "per-user", "key": [{"header": "x-user"}], "limits": [{"limit": 5, "window": "1h"}]}]}`)
	for w.send("x-user", "ann").passed {
	}
	data := process.SharedData(vmID)
	memory := int64(0)
	for i := range keys {
		if !w.send("x-user", fmt.Sprint("random-", i)).passed {
			t.Fatalf("the first request of key %d was rejected", i)
		}
		if i == keys/10 {
			memory = w.vm.MemorySize()
		}
	}
	perCounter := float64(data.Bytes()) / capacity
	t.Logf("after %d keys: %d bytes of shared data, %.1f a counter of the capacity; VM memory %d", keys, data.Bytes(), perCounter, w.vm.MemorySize())
	if perCounter > 96 {
		t.Errorf("%.1f bytes of shared data a counter, want at most 96", perCounter)
	}
	if got := w.vm.MemorySize(); got != memory {
		t.Errorf("the VM's memory grew from %d to %d", memory, got)
	}
	clock.advance(t, 2*time.Second) // longer than the VM remembers refusals
	if w.send("x-user", "ann").passed {
		t.Error("a key that was at its limit passes after the flood")
	}
}

// After warm-up a stream leaves nothing in the VM's heap.
func TestMemoryIsStable(t *testing.T) {
	onWazeroAlone(t, memoryIsStable)
}

func memoryIsStable(t *testing.T) {
	w := newWorker(t, host.NewProcess(host.ProcessConfig{Clock: newClock().now}), perUser(`{"limit": 100000, "window": "1h"}`))
	send := func(n int) {
		for range n {
			w.send("x-user", "ann")
		}
	}
	send(1000)
	before := w.vm.MemorySize()
	requests := nightly.Or(200_000, 50_000)
	send(requests)
	if after := w.vm.MemorySize(); after != before {
		t.Errorf("the VM's memory grew from %d to %d over %d requests", before, after, requests)
	}
}

// A request's cost is counted in host calls.
func TestHostCalls(t *testing.T) {
	onWazeroAlone(t, hostCalls)
}

func hostCalls(t *testing.T) {
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
		if joined := strings.Join(got, " "); joined != test.want {
			t.Errorf("%s: got %s (%d calls in all), want %s", test.name, joined, all, test.want)
		}
	}
}
