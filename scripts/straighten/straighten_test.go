package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
	"github.com/tetratelabs/wazero/sys"

	"weir/internal/commandtest"
	"weir/internal/must"
)

// build builds the program in testdata, with its names.
func build(t testing.TB, flags ...string) []byte {
	t.Helper()
	file := filepath.Join(t.TempDir(), "program.wasm")
	command := exec.Command("go", append(append([]string{"build", "-o", file}, flags...), "./testdata/program")...)
	command.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm")
	commandtest.Run(t, command)
	return must.Get(os.ReadFile(file))(t)
}

// run runs a program, and returns what it prints. It ends with 7.
func run(t *testing.T, module []byte) string {
	t.Helper()
	ctx := context.Background()
	runtime := wazero.NewRuntime(ctx)
	defer runtime.Close(ctx)
	wasi_snapshot_preview1.MustInstantiate(ctx, runtime)
	var output bytes.Buffer
	_, err := runtime.InstantiateWithConfig(ctx, module, wazero.NewModuleConfig().WithStdout(&output).WithStderr(&output).WithSysWalltime())
	var exit *sys.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 7 {
		t.Errorf("got %v, want exit code 7: %s", err, output.String())
	}
	return output.String()
}

// A program does the same, however its functions are left and resumed.
func TestProgram(t *testing.T) {
	before := build(t, "-ldflags=-w")
	want := run(t, before)
	if !strings.Contains(want, "integer divide by zero") || !strings.Contains(want, "second") || strings.Contains(want, "never") {
		t.Fatalf("the program: got %s", want)
	}
	for _, names := range []bool{false, true} {
		after := must.Get(straighten(before, names))(t)
		must.Equal(t, run(t, after), want, "names %v", names)
	}
}

// No jump forward goes through a function's table any more, and the table has the places only that
// calls return to.
func TestJumps(t *testing.T) {
	module := must.Get(straighten(build(t, "-ldflags=-w"), true))(t)
	tables, back := 0, 0
	for _, body := range bodies(t, module) {
		f := must.Get(decode(body))(t)
		for i := range f.code {
			switch in := &f.code[i]; in.op {
			case opBrTable:
				tables++
			case opBr:
				if i >= 2 && f.code[i-1].op == opLocalSet && f.code[i-1].value == 0 && f.code[i-2].op == opI32Const {
					back++
				}
			}
		}
	}
	if tables < 500 || back == 0 || back > 3*tables {
		t.Errorf("got %d tables, and %d jumps through them", tables, back)
	}
}

// Memory begins with the same bytes, of far fewer segments.
func TestData(t *testing.T) {
	before := build(t, "-ldflags=-w")
	after := must.Get(straighten(before, false))(t)
	must.AtMost(t, len(after), len(before)*9/10, "bytes of %d", len(before))
	must.Same(t, memory(t, after), memory(t, before), "memory begins with other bytes")
	must.AtMost(t, len(segments(t, after)), len(segments(t, before))/8, "segments")
}

// memory returns the memory of a new instance.
func memory(t *testing.T, module []byte) []byte {
	t.Helper()
	ctx := t.Context()
	runtime := wazero.NewRuntime(ctx)
	defer runtime.Close(ctx)
	wasi_snapshot_preview1.MustInstantiate(ctx, runtime)
	instance := must.Get(runtime.InstantiateWithConfig(ctx, module, wazero.NewModuleConfig().WithStartFunctions()))(t)
	all, _ := instance.Memory().Read(0, instance.Memory().Size())
	return bytes.Clone(all)
}

func segments(t *testing.T, module []byte) []dataSegment {
	t.Helper()
	return must.Get(dataSegments(find(must.Get(sections(module))(t), dataSection)))(t)
}

// Segments keep their bytes wherever they lie, and those that Go's linker does not make are refused.
func TestPack(t *testing.T) {
	gap := strings.Repeat("\x00", widestGap)
	for _, test := range []struct{ name, section, want string }{
		{"none", "\x00", "\x00"},
		{"zeros only", "\x01\x00\x41\x01\x0b\x02\x00\x00", "\x00"},
		{"apart by the widest gap, in any order", "\x02\x00\x41\x12\x0b\x01b\x00\x41\x01\x0b\x01a", "\x01\x00\x41\x01\x0b\x12a" + gap + "b"},
		{"further apart", "\x02\x00\x41\x01\x0b\x01a\x00\x41\x13\x0b\x01b", "\x02\x00\x41\x01\x0b\x01a\x00\x41\x13\x0b\x01b"},
		{"at offsets of two bytes", "\x02\x00\x41\xc0\x00\x0b\x01a\x00\x41\xc1\x00\x0b\x01b", "\x01\x00\x41\xc0\x00\x0b\x02ab"},
		{"with zeros before and behind", "\x01\x00\x41\x01\x0b\x03\x00a\x00", "\x01\x00\x41\x02\x0b\x01a"},
		{"one over the other", "\x02\x00\x41\x01\x0b\x02aa\x00\x41\x02\x0b\x01b", "segments of data overlap"},
		{"passive", "\x01\x01\x02ab", "has no constant offset"},
		{"at a global's offset", "\x01\x00\x23\x00\x0b\x01a", "has no constant offset"},
		{"cut off", "\x01\x00\x41\x01\x0b\x02a", "malformed module: section of data"},
		{"too long", "\x00\x00", "malformed module: section of data"},
	} {
		got, err := pack([]byte(test.section), table{})
		if err != nil && !strings.Contains(err.Error(), test.want) || err == nil && string(got) != test.want {
			t.Errorf("%s: got %q, %v, want %q", test.name, got, err, test.want)
		}
	}
}

// bodies returns the bodies of a module's functions.
func bodies(t testing.TB, module []byte) (all [][]byte) {
	t.Helper()
	r := reader{b: find(must.Get(sections(module))(t), codeSection)}
	for n := r.u32(); n > 0; n-- {
		all = append(all, r.bytes(r.u32()))
	}
	return all
}

func TestRefused(t *testing.T) {
	module := build(t, "-ldflags=-w")
	for _, test := range []struct {
		name   string
		module []byte
		want   string
	}{
		{"empty", nil, "want a module of WebAssembly 1.0"},
		{"text", []byte("(module)"), "want a module of WebAssembly 1.0"},
		{"cut off", module[:len(module)/2], "malformed module: section 10"},
		{"with a function to start with", slices.Concat(module, []byte{startSection, 1, 0}), "already has a start function"},
		{"without names", build(t, "-ldflags=-s"), "build the module without -ldflags=-s"},
	} {
		_, err := straighten(test.module, false)
		must.Contains(t, fmt.Sprint(err), test.want, "%s", test.name)
	}
}

// Whatever a function is made of, it is refused, or can still be read.
func FuzzFunction(f *testing.F) {
	module := build(f, "-ldflags=-w")
	for n, b := range bodies(f, module) {
		if len(b) < 400 && n%16 == 0 {
			f.Add(b)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		function, err := decode(b)
		if err != nil {
			return
		}
		function.straighten(7)
		again, hints := function.encode()
		for _, h := range hints {
			if op := again[h.offset]; op != opIf && op != opBrIf {
				t.Errorf("a hint at %d, of instruction %#x", h.offset, op)
			}
		}
		_, err = decode(again)
		must.Reportf(t, err, "got %x", again)
	})
}
