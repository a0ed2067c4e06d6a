package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"weir/internal/must"
)

// The code of one plugin is kept, and used again. Damaged code is made anew. A folder that can't be
// written does no harm.
func TestCompileKept(t *testing.T) {
	wasm := slices.Concat(
		[]byte("\x00asm\x01\x00\x00\x00"),
		[]byte("\x01\x09\x02\x60\x00\x00\x60\x01\x7f\x01\x7f"), // two types
		[]byte("\x03\x03\x02\x00\x01"),                         // a function of each
		[]byte("\x07\x24\x02\x17proxy_abi_version_0_2_1\x00\x00\x06malloc\x00\x01"),
		[]byte("\x0a\x09\x02\x02\x00\x0b\x04\x00\x20\x00\x0b"),
	)
	other := slices.Concat(wasm, []byte("\x00\x03\x01x\x00")) // with a custom section
	caches := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", caches)
	kept := func() (files []string) {
		t.Helper()
		must.OK(t, filepath.WalkDir(caches, func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.Type().IsRegular() {
				files = append(files, path)
			}
			return err
		}))
		return files
	}
	compiles := func(what string, wasm []byte) {
		t.Helper()
		module, err := compileKept(t.Context(), wasm)
		must.OKf(t, err, "%s", what)
		must.Reportf(t, module.Close(t.Context()), "%s", what)
	}

	// Another program's cache may have the same name.
	foreign := filepath.Join(caches, "weir", "of-another-program")
	must.OK(t, os.MkdirAll(foreign, 0o700))
	compiles("a plugin", wasm)
	first := kept()
	must.EqualOrEnd(t, len(first), 1, "%q are kept, want a file", first)
	written := must.Get(os.Stat(first[0]))(t)
	compiles("the plugin again", wasm)
	must.Equal(t, os.SameFile(written, must.Get(os.Stat(first[0]))(t)), true, "the code was not written anew")
	must.OK(t, os.Truncate(first[0], written.Size()/2))
	compiles("with damaged code", wasm)
	must.Same(t, kept(), nil, "damaged, and kept")
	compiles("once more", wasm)
	compiles("another plugin", other)
	if files := kept(); len(files) != 1 || files[0] == first[0] {
		t.Errorf("%q are kept of two plugins, want the other's file", files)
	}
	must.Get(os.Stat(foreign))(t) // another program's folder stays

	must.OK(t, os.RemoveAll(filepath.Dir(foreign)))
	t.Setenv("SUDO_UID", "1000")
	compiles("by sudo", wasm)
	must.Same(t, kept(), nil, "left by sudo")
	t.Setenv("SUDO_UID", "")
	compiles("not by sudo", wasm)
	t.Setenv("XDG_CACHE_HOME", filepath.Join(kept()[0], "no-folder"))
	compiles("where no folder can be", wasm)
	t.Setenv("XDG_CACHE_HOME", "")
	t.Setenv("HOME", "")
	compiles("without a home", wasm)
	if _, err := compileKept(t.Context(), []byte("no wasm")); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what is no plugin: %v", err)
	}
}
