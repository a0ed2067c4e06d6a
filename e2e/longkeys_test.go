package e2e

import (
	"fmt"
	"strings"
	"testing"

	"weir/internal/host"
)

// However long their keys are, requests that wait for the backend, or for what their response costs,
// do not make the VM's memory grow by them.
func TestLongKeysAreNotKept(t *testing.T) {
	onWazeroAlone(t, longKeysAreNotKept)
}

func longKeysAreNotKept(t *testing.T) {
	const requests, length, most = 4000, 50_000, 16 << 20
	for _, test := range []struct {
		name, options, rule string
		action              host.Action
	}{
		{"waiting for the backend", `"backend": {"cluster": "weir"}, "sync_rate": 0,`, ``, host.Pause},
		{"cost on response", ``, `"cost_on_response": {"response_header": "x-cost"},`, host.Continue},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorker(t, host.NewProcess(host.ProcessConfig{Clock: newClock().now, Clusters: map[string]string{"weir": "127.0.0.1:1"}}),
				`{`+test.options+` "rules": [{"name": "r", "key": [{"header": "x-user"}], `+test.rule+` "limits": [{"limit": 5, "window": "1h"}]}]}`)
			before := w.vm.MemorySize()
			padding := strings.Repeat("k", length)
			streams := make([]*host.Stream, requests)
			for i := range streams {
				var err error
				if streams[i], err = w.root.NewStream(host.StreamInfo{Source: "10.0.0.1:1", Protocol: "HTTP/1.1"}); err != nil {
					t.Fatal(err)
				}
				headers := host.NewHeaders(":method", "GET", ":path", "/", ":authority", "shop.example", "x-user", fmt.Sprint(i, padding))
				if action, err := streams[i].RequestHeaders(headers, true); err != nil || action != test.action {
					t.Fatalf("request %d: action %v, %v", i, action, err)
				}
			}
			after := w.vm.MemorySize()
			t.Logf("%d requests with keys of %d bytes: from %.1f to %.1f MiB", requests, length, float64(before)/(1<<20), float64(after)/(1<<20))
			if after > most {
				t.Errorf("the VM has %.1f MiB, want at most %d", float64(after)/(1<<20), most>>20)
			}
			for _, s := range streams {
				s.Close()
			}
		})
	}
}

// BenchmarkLongKey is a request with a key of 60,000 bytes that was never seen, and with one that
// was.
func BenchmarkLongKey(b *testing.B) {
	padding := strings.Repeat("k", 60_000)
	for _, test := range []struct {
		name string
		keys func(i int) string
	}{
		{"new", func(i int) string { return fmt.Sprint(i, padding) }},
		{"known", func(int) string { return padding }},
	} {
		b.Run(test.name, func(b *testing.B) {
			w := newWorker(b, host.NewProcess(host.ProcessConfig{Clock: newClock().now, Clusters: map[string]string{"weir": "127.0.0.1:1"}}),
				`{"backend": {"cluster": "weir"}, "on_backend_failure": "local", "rules": [{"name": "r", "key": [{"header": "x-user"}], "limits": [{"limit": 999999999, "window": "1h"}]}]}`)
			for i := 0; b.Loop(); i++ {
				stream, err := w.root.NewStream(host.StreamInfo{Source: "10.0.0.1:1", Protocol: "HTTP/1.1"})
				if err != nil {
					b.Fatal(err)
				}
				if _, err := stream.RequestHeaders(host.NewHeaders(":method", "GET", ":path", "/", ":authority", "shop.example", "x-user", test.keys(i)), true); err != nil {
					b.Fatal(err)
				}
				stream.Close()
			}
		})
	}
}
