package test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir/internal/envoytest"
	"weir/internal/must"
	"weir/internal/nightly"
)

// inWasm returns the plugin of filter for Envoy's wasm host.
func inWasm(file, name, configuration string) object {
	vmID, policy, found := strings.Cut(name, "?failure_policy=")
	if !found {
		policy = "FAIL_CLOSED"
	}
	return object{"name": "weir", "typed_config": envoytest.Typed("envoy.extensions.filters.http.wasm.v3.Wasm", object{"config": object{
		"name": "weir", "root_id": "weir", "failure_policy": policy,
		"vm_config": object{"vm_id": vmID, "runtime": "envoy.wasm.runtime.v8", "code": object{
			"local": object{"filename": filepath.Join(filepath.Dir(file), "traps.wasm")}}},
		"configuration": envoytest.Typed("google.protobuf.StringValue", object{"value": configuration}),
	}})}
}

// TestFailedStays lets a VM fail. For configurations with FAIL_CLOSED and FAIL_OPEN it stays
// failed, and a new configuration gets a running VM. Envoy's wasm host does the same.
func TestFailedStays(t *testing.T) {
	t.Parallel()
	file := build(t)
	for form, filter := range map[string]func(file, name, configuration string) object{"native": filter, "wasm": inWasm} {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			e, files := startUpdated(t, 1)
			set := func(first, second string) {
				t.Helper()
				must.OK(t, files.SetListeners(t.Context(), e, []object{
					listener("closed", filter(file, "both", first)), listener("open", filter(file, "both?failure_policy=FAIL_OPEN", second)),
				}))
			}
			set("1", "1")
			closed, open := address(t, e, "closed"), address(t, e, "open")
			wantStatus(t, open, "answer", 418)
			wantStatus(t, closed, "unreachable", 503)
			for range 50 {
				wantStatus(t, closed, "answer", 503)
				wantStatus(t, open, "answer", 200)
			}
			set("2", "1")
			wantStatus(t, address(t, e, "closed"), "answer", 418)
			wantStatus(t, open, "answer", 200)
			set("2", "2")
			wantStatus(t, address(t, e, "open"), "answer", 418)
		})
	}
}

// TestAnsweredAndFailed has calls that answer a request, and then trap. Such a request ends whatever
// the policy, as with Envoy's wasm host.
func TestAnsweredAndFailed(t *testing.T) {
	t.Parallel()
	file := build(t)
	for form, filter := range map[string]func(file, name, configuration string) object{"native": filter, "wasm": inWasm} {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			policies := []string{"FAIL_CLOSED", "FAIL_OPEN", "FAIL_RELOAD"}
			var listeners []object
			for _, policy := range policies {
				listeners = append(listeners, listener(policy, filter(file, policy+"?failure_policy="+policy, "")))
			}
			e := start(t, listeners...)
			for _, policy := range policies {
				wantStatus(t, address(t, e, policy), "both", 503)
			}
		})
	}
}

// TestMetricsOfAll has configurations with metrics of their own in one VM. Each has its counter, and
// keeps it when another configuration comes.
func TestMetricsOfAll(t *testing.T) {
	t.Parallel()
	file := build(t)
	e, files := startUpdated(t, 1)
	var listeners []object
	for _, name := range []string{"metric_a", "metric_b", "metric_c"} {
		listeners = append(listeners, listener(name, filter(file, "m", name)))
		must.OK(t, files.SetListeners(t.Context(), e, listeners))
		for _, l := range listeners {
			counter := "dynamicmodulescustom." + l["name"].(string)
			before := must.Get(e.Stat(counter))(t)
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			if err := e.Wait(ctx, func() (bool, error) {
				now, err := e.Stat(counter)
				return now > before, err
			}); err != nil {
				t.Errorf("%s stays at %d: %v", counter, before, err)
			}
			cancel()
		}
	}
}

// TestNoMemory limits a process's addresses. It refuses the configuration, and lives on.
func TestNoMemory(t *testing.T) {
	t.Parallel()
	file := build(t)
	e, files := envoytest.RunFiles(t, envoytest.Options{Prefix: []string{"prlimit", "--as=4000000000"}})
	err := files.SetListeners(t.Context(), e, []object{listener("app", filter(file, "a", ""))})
	if err == nil || !strings.Contains(e.Log(), "there is no memory for a VM") {
		t.Errorf("got %v, want it to be refused for memory, and\n%s", err, e.Log())
	}
	must.OK(t, files.SetListeners(t.Context(), e, []object{listener("app")}))
	wantStatus(t, address(t, e, "app"), "", 200)
}

// TestUpdatesUnderLoad replaces a listener under load. Its requests wait for ticks and are
// answered, and none fails. Meanwhile VMs of another vm_id trap and restart.
func TestUpdatesUnderLoad(t *testing.T) {
	t.Parallel()
	file := build(t)
	e, files := startUpdated(t, 2, "--drain-strategy", "immediate")
	set := func(i int) {
		t.Helper()
		must.OK(t, files.SetListeners(t.Context(), e, []object{
			listener("app", filter(file, "a", fmt.Sprint(i))), listener("traps", filter(file, "traps?failure_policy=FAIL_RELOAD", fmt.Sprint(i))),
		}))
	}
	set(0)
	traps := address(t, e, "traps")
	app := address(t, e, "app")
	var over atomic.Bool
	var sent atomic.Int64
	var group sync.WaitGroup
	for i, do := range []string{"wait", "answer", "pass", "pass"} {
		want := map[string]int{"answer": 418}[do]
		if want == 0 {
			want = 200
		}
		group.Go(func() {
			client := &http.Client{Transport: &http.Transport{}, Timeout: time.Minute}
			defer client.CloseIdleConnections()
			for !over.Load() && !t.Failed() {
				if got, err := ask(t.Context(), client, app, do); err != nil || got != want {
					t.Errorf("client %d: x-do %q: got %d, %v, want %d", i, do, got, err, want)
				}
				sent.Add(1)
			}
		})
	}
	for i := range nightly.Or(200, 20) {
		for before := sent.Load(); sent.Load() < before+50 && !t.Failed(); {
			send(t, traps, "unreachable")
		}
		set(i + 1)
	}
	over.Store(true)
	group.Wait()
	t.Logf("%d requests", sent.Load())
}

func ask(ctx context.Context, client *http.Client, address, do string) (status int, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address, nil)
	if err != nil {
		return 0, err
	}
	r.Header.Set("x-do", do)
	response, err := client.Do(r)
	if err != nil {
		return 0, err
	}
	return response.StatusCode, response.Body.Close()
}

// TestResets lets many streams wait, and then resets all of them at once.
func TestResets(t *testing.T) {
	t.Parallel()
	const connections = 10
	streams := nightly.Or(10_000, 2000)
	e := start(t, listener("app", filter(build(t), "app", "")))
	app := address(t, e, "app")
	ctx, leave := context.WithCancel(t.Context())
	var group sync.WaitGroup
	for range connections {
		protocols := new(http.Protocols)
		protocols.SetUnencryptedHTTP2(true)
		client := &http.Client{Transport: &http.Transport{Protocols: protocols}}
		t.Cleanup(client.CloseIdleConnections)
		for range streams / connections {
			group.Go(func() {
				if status, err := ask(ctx, client, app, "forever"); err == nil {
					t.Errorf("status %d", status)
				}
			})
		}
	}
	active(t, e, "app", int64(streams))
	leave()
	group.Wait()
	active(t, e, "app", 0)
	wantStatus(t, app, "wait", 200)
	wantStatus(t, app, "answer", 418)
}

// TestCallouts ends configurations, and Envoy, during callouts that no server answers.
func TestCallouts(t *testing.T) {
	t.Parallel()
	file := build(t)
	hole, err := net.Listen("tcp", "127.0.0.1:0") // nothing accepts
	must.OK(t, err)
	defer hole.Close()
	e, files := startUpdated(t, 1, "--drain-strategy", "immediate")
	must.OK(t, files.SetClusters(t.Context(), e, []object{envoytest.Cluster("hole", hole.Addr().String())}))
	other := listener("other", filter(file, "other", ""))
	set := func(listeners ...object) {
		t.Helper()
		must.OK(t, files.SetListeners(t.Context(), e, listeners))
	}
	call := func(listener string) net.Conn {
		t.Helper()
		c := must.Get(net.Dial("tcp", address(t, e, listener)))(t)
		fmt.Fprint(c, "GET / HTTP/1.1\r\nhost: a\r\nx-do: call\r\n\r\n")
		active(t, e, listener, 1)
		return c
	}
	for i, listeners := range [][]object{{other}, nil, {other}} {
		set(append([]object{listener("app", filter(file, "app", fmt.Sprint(i)))}, listeners...)...)
		client := call("app")
		if i == 2 {
			client.Close() // the stream ends, and the callout goes on
			active(t, e, "app", 0)
		}
		set(listeners...)
		client.Close()
		drained(t, e)
	}
	set(other)
	wantStatus(t, address(t, e, "other"), "wait", 200)
	defer call("other").Close() // Envoy ends during this callout
}

// drained waits until replaced listeners have ended.
func drained(t *testing.T, e *envoytest.Envoy) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	must.Report(t, e.Wait(ctx, func() (bool, error) {
		n, err := e.Stat("listener_manager.total_listeners_draining")
		return n == 0, err
	}))
}
