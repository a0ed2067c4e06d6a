// Command straighten makes jumps direct in a WebAssembly module that Go's compiler has made.
//
//	go run ./scripts/straighten [-names] GO.wasm STRAIGHT.wasm
//
// A goroutine may be resumed after any call. So each function of Go is a loop around a table of
// places to resume at, and all other jumps use that table too: the code writes a place to a variable,
// the loop begins again, and an indirect jump leads to the place. Engines do not optimize that. This
// command turns a forward jump into a branch to its place, and keeps in the table only the places to
// which calls may return. It tells the engine which branches are seldom taken, so that cold code is
// kept apart. Functions compute the same as before.
//
// It also packs the module's data, in which a single table takes most segments: see [findTable].
//
// Names are dropped from the module unless -names is set.
package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	names := flag.Bool("names", false, "keep the names of functions")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: straighten [-names] GO.wasm STRAIGHT.wasm")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() != 2 {
		flag.Usage()
		os.Exit(2)
	}
	if err := rewrite(flag.Arg(0), flag.Arg(1), *names); err != nil {
		fmt.Fprintf(os.Stderr, "straighten %s: %v\n", flag.Arg(0), err)
		os.Exit(1)
	}
}

func rewrite(from, to string, names bool) error {
	module, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if module, err = straighten(module, names); err != nil {
		return err
	}
	return os.WriteFile(to, module, 0o644)
}
