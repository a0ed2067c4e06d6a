// Package e2e tests the built plugin and the built command as users have them: dist/weir.wasm in a
// proxy-wasm host, dist/weir as a process, and HTTP between them. It knows nothing of their
// internals.
package e2e

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"testing"

	"weir/internal/host"
	"weir/internal/must"
)

const (
	pluginFile  = "../dist/weir.wasm"
	nativeFile  = "../dist/libweir.so" // of make native
	commandFile = "../dist/weir"
	// cacheDir keeps compiled code between runs: with the race detector, compiling takes some 20 s.
	cacheDir = "../dist/cache"
	vmID     = "weir"
)

// module is the plugin, compiled once.
var module *host.Module

func TestMain(m *testing.M) {
	if backend := os.Getenv(asProgram); backend != "" {
		if err := beProgram(backend); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	code, err := runTests(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func runTests(m *testing.M) (code int, err error) {
	wasm, err := os.ReadFile(pluginFile)
	if err != nil {
		return 1, fmt.Errorf("%w; make build makes it", err)
	}
	ctx := context.Background()
	if module, err = host.Compile(ctx, wasm, host.Options{CacheDir: cacheDir}); err != nil {
		return 1, err
	}
	// Scenarios mostly wait for ticks, leases and timeouts, but the start of an Envoy uses a
	// processor.
	parallel := "6"
	if wanted("envoy") || wanted("native") {
		parallel = "4"
	}
	if err := flag.Set("test.parallel", parallel); err != nil {
		return 1, err
	}
	code = m.Run()
	return code, errors.Join(module.Close(ctx), closePool())
}

// worker is a VM of a process with a configuration, which the test drives.
type worker struct {
	t    testing.TB
	vm   *host.VM
	root *host.Root
}

// newWorker starts a VM. The test fails if the plugin refuses the configuration.
func newWorker(t testing.TB, process *host.Process, configuration string) *worker {
	t.Helper()
	w := &worker{t: t}
	w.vm = must.Get(process.NewVM(t.Context(), module, host.VMConfig{ID: vmID}))(t)
	t.Cleanup(func() {
		must.Reportf(t, w.vm.Close(), "close")
	})
	w.root = must.Get(w.vm.NewRoot(host.Plugin{Configuration: []byte(configuration)}))(t)
	return w
}

// send passes a request through all phases, and reports whether it is allowed. Headers are name,
// value, name, value …
func (w *worker) send(headers ...string) (passed bool) {
	w.t.Helper()
	stream := must.Get(w.root.NewStream(host.StreamInfo{Source: "10.0.0.1:1234", Protocol: "HTTP/1.1"}))(w.t)
	defer stream.Close()
	request := host.NewHeaders(append([]string{":method", "GET", ":path", "/", ":authority", "shop.example", ":scheme", "http"}, headers...)...)
	action := must.Get(stream.RequestHeaders(request, true))(w.t)
	if stream.LocalReply() != nil {
		return false
	}
	must.EqualOrEnd(w.t, action, host.Continue, "action without a reply")
	response := host.NewHeaders(":status", "200", "x-ratelimit-limit", "the upstream's", "x-ratelimit-limit", "twice")
	must.Get(stream.ResponseHeaders(response, true))(w.t)
	return true
}

func perUser(limit string) string {
	return `{"rules": [{"name": "per-user", "key": [{"header": "x-user"}], "limits": [` + limit + `]}]}`
}
