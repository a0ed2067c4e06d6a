// Command straighten makes the jumps of a WebAssembly module direct that Go's compiler has made.
//
//	go run ./scripts/straighten [-names] GO.wasm STRAIGHT.wasm
//
// A goroutine may be resumed anywhere behind a call. So each function of Go's is a loop around a
// table of places to go on, and all other jumps go through that table, too: a place is written to a
// variable, the loop begins again, and an indirect jump leads there. Engines take that for what it
// says. This command makes a jump forward a branch to its place, and leaves in the table what a
// call may return to. It tells the engine which branches are seldom taken, so that cold code stands
// apart from the rest. Functions compute the same as before.
//
// It also packs the module's data, of which one table takes most segments: see [findTable].
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
