package host

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"weir/internal/must"
)

// plugin is built and compiled once for all tests.
var plugin func() (*Module, error)

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "host")
	if err != nil {
		panic(err)
	}
	plugin = sync.OnceValues(func() (*Module, error) { return buildPlugin(filepath.Join(dir, "plugin.wasm")) })
	code := m.Run()
	if err := os.RemoveAll(dir); err != nil {
		panic(err)
	}
	os.Exit(code)
}

func buildPlugin(file string) (*Module, error) {
	build := exec.Command("go", "build", "-buildmode=c-shared", "-o", file, ".")
	build.Dir = filepath.Join("testdata", "plugin")
	build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build test plugin: %w\n%s", err, out)
	}
	wasm, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	// The interpreter: under the race detector the compiler takes longer than all tests.
	return Compile(context.Background(), wasm, Options{Interpreter: true})
}

func testModule(t testing.TB) *Module {
	t.Helper()
	return must.Get(plugin())(t)
}

type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(j, &slog.HandlerOptions{Level: LevelTrace}))
}

func (j *journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, string(b))
	return len(b), nil
}

func (j *journal) has(parts ...string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
line:
	for _, l := range j.lines {
		for _, p := range parts {
			if !strings.Contains(l, p) {
				continue line
			}
		}
		return true
	}
	return false
}

func newVM(t testing.TB, p *Process, config VMConfig) *VM {
	t.Helper()
	vm := must.Get(p.NewVM(t.Context(), testModule(t), config))(t)
	t.Cleanup(func() { must.Report(t, vm.Kill()) })
	return vm
}

func newRoot(t testing.TB, vm *VM, configuration string) *Root {
	t.Helper()
	return must.Get(vm.NewRoot(Plugin{Name: "plug", RootID: "rid", Configuration: []byte(configuration)}))(t)
}

func newStream(t testing.TB, r *Root) *Stream {
	t.Helper()
	return must.Get(r.NewStream(StreamInfo{}))(t)
}

// ask runs commands in the request phase of a new stream.
func ask(t testing.TB, r *Root, commands string) (*Stream, string) {
	t.Helper()
	s := must.Get(r.NewStream(StreamInfo{Source: "10.0.0.1:1234", Destination: "[2001:db8::1]:80", Protocol: "HTTP/1.1"}))(t)
	h := NewHeaders(":authority", "example.com", ":path", "/a/b?c=d", ":method", "GET", ":scheme", "http",
		"X-Two", "1", "x-two", "2", "x-request-id", "rq", "x-do", commands)
	must.Get(s.RequestHeaders(h, true))(t)
	return s, h.Value("x-result")
}

// assemble makes a module by hand: what stock Go can't make. It imports
// proxy_set_tick_period_milliseconds (function 0) and proxy_get_buffer_bytes (1), and exports functions,
// given by name, of one of the types below, with a body in bytecode.
func assemble(functions ...function) []byte {
	text := func(s string) []byte { return append([]byte{byte(len(s))}, s...) }
	imported := func(name string, kind byte) []byte {
		return slices.Concat(text("env"), text(name), []byte{0, kind})
	}
	var types, exports, bodies [][]byte
	for i, f := range functions {
		types = append(types, []byte{f.kind})
		exports = append(exports, append(text(f.name), 0, byte(2+i)))
		body := append(append([]byte{0}, f.body...), end)
		bodies = append(bodies, append([]byte{byte(len(body))}, body...))
	}
	out := []byte{0, 'a', 's', 'm', 1, 0, 0, 0}
	for _, s := range []struct {
		id    byte
		items [][]byte
	}{
		{1, [][]byte{{0x60, 0, 0}, {0x60, 1, i32, 1, i32}, {0x60, 2, i32, i32, 1, i32}, {0x60, 3, i32, i32, i32, 1, i32}, {0x60, 5, i32, i32, i32, i32, i32, 1, i32}}},
		{2, [][]byte{imported("proxy_set_tick_period_milliseconds", i32ToI32), imported("proxy_get_buffer_bytes", fiveToI32)}},
		{3, types},
		{5, [][]byte{{0, 1}}},
		{7, append(exports, append(text("memory"), 2, 0))},
		{10, bodies},
	} {
		body := []byte{byte(len(s.items))}
		body = append(body, slices.Concat(s.items...)...)
		out = append(append(out, s.id), binary.AppendUvarint(nil, uint64(len(body)))...)
		out = append(out, body...)
	}
	return out
}

type function struct {
	name string
	kind byte
	body []byte
}

// Types and opcodes.
const (
	toNothing, i32ToI32, twoToI32, threeToI32, fiveToI32 = 0, 1, 2, 3, 4

	i32                       = 0x7f
	end, call, drop, constant = 0x0b, 0x10, 0x1a, 0x41
)

var (
	abi    = function{abiVersion, toNothing, nil}
	malloc = function{"malloc", i32ToI32, []byte{constant, 32}}
)

func startAssembled(t *testing.T, p *Process, functions ...function) (*VM, error) {
	t.Helper()
	m := must.Get(Compile(t.Context(), assemble(functions...), Options{Interpreter: true, CacheDir: t.TempDir()}))(t)
	t.Cleanup(func() { must.Report(t, m.Close(context.Background())) })
	return p.NewVM(t.Context(), m, VMConfig{ID: "vm"})
}
