// Split divides the C file that wasm2c writes into several files, which compile in parallel and in
// less memory: a header with everything that functions share, a file with the data, and files with
// functions of about the same size.
//
//	go run ./scripts/split weir.c DIR PARTS
//
// The files are DIR/code.h and DIR/code-0.c to DIR/code-PARTS.c. DIR/code-0.c has the data.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "split:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 3 {
		return errors.New("want a C file, a directory and the number of parts")
	}
	parts, err := strconv.Atoi(args[2])
	if err != nil || parts < 1 {
		return fmt.Errorf("parts: %q is no positive number", args[2])
	}
	source, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}
	c, err := divide(source)
	if err != nil {
		return fmt.Errorf("%s: %w", args[0], err)
	}
	return c.write(args[1], parts)
}

type code struct {
	header    []byte   // macros, inline functions and declarations
	data      []byte   // segments, tables, and functions that make an instance
	functions [][]byte // of the module
}

var (
	state        = []byte("static bool s_module_initialized = false;\n")
	firstData    = []byte("static void init_globals(")
	lastData     = []byte("static void init_elem_instances(")
	exports      = []byte("\n/* export: ")
	endFunction  = []byte("\n}\n\n")
	static       = []byte("static ")
	stackMacro   = "#undef FUNC_PROLOGUE\n#define FUNC_PROLOGUE STACK_CHECK(instance)\n"
	sharedTypes  = []byte("static u32 func_types[")
	beginInit    = []byte("static void init_func_types(void) {")
	declarations = []byte("\nstatic ")

	// A register has the memory's address.
	access     = []byte("&mem->data[addr]")
	nearAccess = []byte("wasm_memory + addr")
	// An unused read is left out, because no address can trap. Other reads become operands.
	forcedRead = []byte(`wasm_asm("" ::"r"(result));`)
)

// divide finds the parts by lines that wasm2c 1.0.32 always writes.
func divide(source []byte) (c code, err error) {
	cut := func(from []byte, at []byte) (before, rest []byte) {
		i := bytes.Index(from, at)
		if i < 0 {
			err = errors.Join(err, fmt.Errorf("no line %q: is it another version of wasm2c?", at))
			return from, nil
		}
		return from[:i], from[i:]
	}
	preamble, rest := cut(source, state)
	rest = bytes.TrimPrefix(rest, state)
	types, rest := cut(rest, beginInit)
	typesInit, rest := cut(rest, endFunction)
	declared, rest := cut(rest, firstData)
	data, rest := cut(rest, lastData)
	tail, rest := cut(rest, endFunction)
	rest = bytes.TrimPrefix(rest, endFunction)
	functions, rest := cut(rest, exports)
	if !bytes.Contains(preamble, access) || !bytes.Contains(preamble, forcedRead) {
		err = errors.Join(err, errors.New("no known access to memory: is it another version of wasm2c?"))
	}
	if err != nil {
		return c, err
	}
	preamble = bytes.ReplaceAll(bytes.ReplaceAll(preamble, access, nearAccess), forcedRead, nil)
	c.header = bytes.Join([][]byte{
		[]byte("#pragma once\n"), preamble, []byte(stackMacro),
		bytes.Replace(types, sharedTypes, []byte("extern u32 func_types["), 1),
		bytes.ReplaceAll(declared[len(endFunction)-1:], declarations, []byte("\n")),
	}, nil)
	c.data = bytes.Join([][]byte{
		state, bytes.Replace(types, static, nil, 1), typesInit, endFunction, data, tail, endFunction, rest,
	}, nil)
	functions = append(bytes.Clone(functions), '\n') // the exports follow the last function
	for len(bytes.TrimSpace(functions)) > 0 {
		f, after := cut(functions, endFunction)
		if err != nil {
			return c, err
		}
		c.functions = append(c.functions, append(bytes.TrimPrefix(bytes.TrimLeft(f, "\n"), static), endFunction...))
		functions = bytes.TrimPrefix(after, endFunction)
	}
	return c, nil
}

func (c *code) write(dir string, parts int) error {
	total := 0
	for _, f := range c.functions {
		total += len(f)
	}
	include := []byte("#include \"code.h\"\n\n")
	files := make([][]byte, parts+1)
	for i := range files {
		files[i] = bytes.Clone(include)
	}
	files[0] = append(files[0], c.data...)
	written := 0
	for _, f := range c.functions {
		part := 1 + written*parts/total
		files[part] = append(files[part], f...)
		written += len(f)
	}
	err := os.WriteFile(filepath.Join(dir, "code.h"), c.header, 0o644)
	for i, f := range files {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, fmt.Sprintf("code-%d.c", i)), f, 0o644))
	}
	return err
}
