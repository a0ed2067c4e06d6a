// Package test runs the native host in a real Envoy. In place of the real plugin it uses a plugin
// of a few functions, which is translated in seconds and traps on request. The scenarios of e2e use
// the real plugin.
package test

import (
	"bufio"
	"context"
	"debug/elf"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/internal/commandtest"
	"weir/internal/envoytest"
	"weir/internal/must"
	"weir/internal/nightly"
)

type object = envoytest.Object

// library is native/testdata/traps.wat linked with the host, which all tests share.
var library struct {
	dir, file string
	once      sync.Once
}

func TestMain(m *testing.M) {
	var err error
	if library.dir, err = os.MkdirTemp("", "native"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	if err := os.RemoveAll(library.dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// build translates native/testdata/traps.wat and links it with the host, once.
func build(t *testing.T) (file string) {
	t.Helper()
	library.once.Do(func() {
		library.file = compile(t, library.dir, "libtraps.so", "-O1", "-shared", "-fPIC", "-fvisibility=hidden")
	})
	if library.file == "" {
		t.Fatal("the library was not built: another test says why")
	}
	return library.file
}

// compile translates native/testdata/traps.wat and compiles it with the host, with flags of gcc and
// further sources from native/, into a folder.
func compile(t *testing.T, dir, name string, flags ...string) (file string) {
	t.Helper()
	root := must.Get(filepath.Abs("../.."))(t)
	sources := must.Get(filepath.Glob(root + "/native/*.c"))(t)
	must.AtLeast(t, len(sources), 1, "sources")
	file = filepath.Join(dir, name)
	gcc := append([]string{"gcc", "-std=gnu11", "-D_GNU_SOURCE", "-DNDEBUG", "-w", "-I", root + "/native", "-I", dir, "-o", file,
		dir + "/code-0.c", dir + "/code-1.c"}, sources...)
	for _, command := range [][]string{
		{"wat2wasm", root + "/native/testdata/traps.wat", "-o", dir + "/traps.wasm"},
		{"wasm2c", dir + "/traps.wasm", "-n", "weir", "-o", dir + "/weir.c"},
		{"go", "run", root + "/scripts/split", dir + "/weir.c", dir, "1"},
		append(append(gcc, flags...), "-lpthread"),
	} {
		commandtest.Run(t, exec.CommandContext(t.Context(), command[0], command[1:]...))
	}
	return file
}

var hostileCalls = flag.Int("hostile-calls", nightly.Or(1_000_000, 30_000), "how many host calls TestHostile makes with each seed")

// TestHostile makes invalid host calls under AddressSanitizer: the host stays within the plugin's
// memory. Each run has new seeds, which a failure names.
func TestHostile(t *testing.T) {
	t.Parallel()
	program := compile(t, t.TempDir(), "hostile", "-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "../alone/hostile.c")
	for range 4 {
		seed := strconv.FormatUint(rand.Uint64(), 10)
		commandtest.Run(t, exec.CommandContext(t.Context(), program, seed, strconv.Itoa(*hostileCalls)))
	}
}

// TestSharedData gets and sets values of 20,000 keys, and compares them with what was set last.
func TestSharedData(t *testing.T) {
	t.Parallel()
	program := compile(t, t.TempDir(), "shared", "-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "../alone/shared.c")
	seed := strconv.FormatUint(rand.Uint64(), 10)
	must.Contains(t, commandtest.Run(t, exec.CommandContext(t.Context(), program, seed, "300000")), " refused", "seed %s", seed)
}

// TestSoak lets four workers send requests while configurations replace each other and end in any
// thread, and VMs trap and restart. It runs under AddressSanitizer and under ThreadSanitizer.
func TestSoak(t *testing.T) {
	t.Parallel()
	for _, sanitizers := range []string{"address,undefined", "thread"} {
		t.Run(sanitizers, func(t *testing.T) {
			t.Parallel()
			program := compile(t, t.TempDir(), "soak", "-O1", "-g", "-fsanitize="+sanitizers, "../alone/soak.c")
			t.Log(commandtest.Run(t, exec.CommandContext(t.Context(), program, strconv.Itoa(nightly.Or(1_000_000, 20_000)))))
		})
	}
}

// filter returns the plugin as a filter. Its name has the vm_id and the failure policy.
func filter(file, name, configuration string) object {
	return object{"name": "weir", "typed_config": envoytest.Typed("envoy.extensions.filters.http.dynamic_modules.v3.DynamicModuleFilter", object{
		"dynamic_module_config": object{"module": object{"local": object{"filename": file}}, "do_not_close": true},
		"filter_name":           name,
		"filter_config":         envoytest.Typed("google.protobuf.StringValue", object{"value": configuration}),
	})}
}

// listener answers each request that passes the filters with the status 200.
func listener(name string, filters ...object) object {
	return listenerOf(name, []object{{"match": object{"prefix": "/"}, "direct_response": object{"status": 200}}}, filters...)
}

func listenerOf(name string, routes []object, filters ...object) object {
	manager := envoytest.Manager(name, routes, filters...)
	manager["http2_protocol_options"] = object{"max_concurrent_streams": 2000}
	return envoytest.Listener(name, manager)
}

// start starts an Envoy with a single worker, until the test ends.
func start(t *testing.T, listeners ...object) *envoytest.Envoy {
	t.Helper()
	bootstrap := must.Get(json.Marshal(object{
		"admin":            object{"address": envoytest.Address("127.0.0.1", 0)},
		"static_resources": object{"listeners": listeners},
	}))(t)
	return envoytest.Run(t, envoytest.Options{Bootstrap: bootstrap})
}

// startUpdated starts an Envoy that reads its listeners from files, until the test ends.
func startUpdated(t *testing.T, workers int, args ...string) (*envoytest.Envoy, *envoytest.Files) {
	t.Helper()
	return envoytest.RunFiles(t, envoytest.Options{Workers: workers, Args: args})
}

func address(t *testing.T, e *envoytest.Envoy, listener string) string {
	t.Helper()
	addresses := must.Get(e.Listeners())(t)
	return addresses[listener]
}

// anew asks on a new connection each time: a connection that is kept leads to a listener that a test
// has replaced.
var anew = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// send sends a request with an action for the plugin.
func send(t *testing.T, address, do string) (status int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	r := must.Get(http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address, nil))(t)
	if do != "" {
		r.Header.Set("x-do", do)
	}
	response, err := anew.Do(r)
	must.OKf(t, err, "x-do %q", do)
	defer response.Body.Close()
	must.Get(io.Copy(io.Discard, response.Body))(t)
	return response.StatusCode
}

func wantStatus(t *testing.T, address, do string, want int) {
	t.Helper()
	must.Equal(t, send(t, address, do), want, "x-do %q", do)
}

// TestTraps lets VMs trap in any possible way. failure_policy decides the answer to their requests.
// Other VMs and Envoy go on.
func TestTraps(t *testing.T) {
	t.Parallel()
	file := build(t)
	traps := map[string]string{
		"host told to read out of bounds": "it reached beyond its memory",
		"unreachable":                     "unreachable code", "division by zero": "division by zero", "recursion": "its stack is exhausted",
		"growth": "unreachable code", "exit": "it has ended itself",
	}
	listeners := []object{listener("healthy", filter(file, "healthy", ""))}
	for trap := range traps {
		listeners = append(listeners, listener(trap, filter(file, trap, "")),
			listener("open "+trap, filter(file, "open "+trap+"?failure_policy=FAIL_OPEN", "")))
	}
	e := start(t, listeners...)
	// A read beyond the memory finds zeros.
	wantStatus(t, address(t, e, "healthy"), "out of bounds", 200)
	for trap, said := range traps {
		before := len(e.Log())
		closed, open := address(t, e, trap), address(t, e, "open "+trap)
		wantStatus(t, closed, "", 200)
		wantStatus(t, closed, trap[:1], 503)
		wantStatus(t, closed, "", 503)
		wantStatus(t, open, trap[:1], 200)
		wantStatus(t, open, "answer", 200)
		// Envoy may answer a request before it writes its log.
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		if err := e.Wait(ctx, func() (bool, error) {
			return strings.Count(e.Log()[before:], "has failed: "+said) == 2, nil
		}); err != nil {
			t.Errorf("%s: want two lines of %q: %v, got\n%s", trap, said, err, e.Log()[before:])
		}
		cancel()
		wantStatus(t, address(t, e, "healthy"), "answer", 418)
	}
}

// TestReload restarts a VM, at most once a second.
func TestReload(t *testing.T) {
	t.Parallel()
	e := start(t, listener("reload", filter(build(t), "reload?failure_policy=FAIL_RELOAD", "")))
	reload := address(t, e, "reload")
	for range 2 {
		wantStatus(t, reload, "unreachable", 503)
		wantStatus(t, reload, "", 503)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		if err := e.Wait(ctx, func() (bool, error) {
			return send(t, reload, "") == 200, nil
		}); err != nil {
			t.Error("the VM does not start again", err)
		}
		cancel()
		wantStatus(t, reload, "answer", 418)
	}
}

// TestPaused lets requests wait: for a tick, for ever until their clients leave, and for a VM that
// fails meanwhile.
func TestPaused(t *testing.T) {
	t.Parallel()
	file := build(t)
	e := start(t, listener("a", filter(file, "a", "")), listener("b", filter(file, "b?failure_policy=FAIL_OPEN", "")))
	a, b := address(t, e, "a"), address(t, e, "b")
	for range 20 {
		wantStatus(t, a, "wait", 200)
	}
	// A client that leaves must leave nothing behind.
	gone := must.Get(net.Dial("tcp", a))(t)
	fmt.Fprint(gone, "GET / HTTP/1.1\r\nhost: a\r\nx-do: forever\r\n\r\n")
	active(t, e, "a", 1)
	wantStatus(t, a, "wait", 200)
	must.OK(t, gone.Close())
	active(t, e, "a", 0)
	wantStatus(t, a, "wait", 200)

	for address, want := range map[string]string{a: "HTTP/1.1 503", b: "HTTP/1.1 200"} {
		waiting := must.Get(net.Dial("tcp", address))(t)
		defer waiting.Close()
		fmt.Fprint(waiting, "GET / HTTP/1.1\r\nhost: a\r\nx-do: forever\r\n\r\n")
		active(t, e, map[string]string{a: "a", b: "b"}[address], 1)
		send(t, address, "unreachable")
		line, err := bufio.NewReader(waiting).ReadString('\n')
		if err != nil || !strings.HasPrefix(line, want) {
			t.Errorf("a request whose VM fails while it waits: got %q, %v, want %s", line, err, want)
		}
	}
}

// active waits until a listener has want active requests.
func active(t *testing.T, e *envoytest.Envoy, name string, want int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var got int64
	if err := e.Wait(ctx, func() (_ bool, err error) {
		got, err = e.Stat("http." + name + ".downstream_rq_active")
		return got == want, err
	}); err != nil {
		t.Errorf("active requests: got %d, want %d: %v", got, want, err)
	}
}

// TestConfigurations gives Envoy configurations that the plugin refuses, that make it trap, and
// that a module does not support. Envoy refuses them, and running configurations go on.
func TestConfigurations(t *testing.T) {
	t.Parallel()
	file := build(t)
	e, files := startUpdated(t, 2)
	set := func(name, configuration string) error {
		return files.SetListeners(t.Context(), e, []object{listener("app", filter(file, name, configuration))})
	}
	must.OK(t, set("a", "accepted"))
	for _, c := range []struct{ name, configuration, said string }{
		{"a", "refused", ""},
		{"a", "traps", "the VM of worker -1 has failed: unreachable code"},
		{"a?failure_policy=FAIL_SAFE", "", "want VM_ID or VM_ID?failure_policy="},
		{"a", `{"key": [{"jwt_claim": "sub", "metadata" : "payload"}]}`, "it reads dynamic metadata"},
		{"a", `{"key": [{"property": [ "metadata", "x"]}]}`, "it reads dynamic metadata"},
		{"a", `{"match": {"property" : {"route_name": {"in": ["\"{"]}, "metadata.filter_metadata.x.y": {"exact": "z"}}}}`, "it reads dynamic metadata"},
	} {
		before := len(e.Log())
		must.Fails(t, set(c.name, c.configuration), "%s %s", c.name, c.configuration)
		must.Contains(t, e.Log()[before:], c.said, "%s %s: log", c.name, c.configuration)
		wantStatus(t, address(t, e, "app"), "answer", 418)
		wantStatus(t, address(t, e, "app"), "wait", 200)
	}
	for i := range 30 {
		must.OK(t, set("a", fmt.Sprint("accepted ", i)))
		wantStatus(t, address(t, e, "app"), "wait", 200)
	}
}

// TestGlibc checks that the library needs no symbols newer than glibc 2.31, the version of Debian
// 11 and Ubuntu 20.04.
func TestGlibc(t *testing.T) {
	t.Parallel()
	library := must.Get(elf.Open(build(t)))(t)
	defer library.Close()
	symbols := must.Get(library.ImportedSymbols())(t)
	must.AtLeast(t, len(symbols), 1, "symbols")
	for _, s := range symbols {
		var minor int
		if n, _ := fmt.Sscanf(s.Version, "GLIBC_2.%d", &minor); n == 1 && minor > 31 {
			t.Errorf("%s@%s: want a version up to GLIBC_2.31", s.Name, s.Version)
		}
	}
}
