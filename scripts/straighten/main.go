// Command straighten makes the jumps of a WebAssembly module direct that Go's compiler has made.
//
//	go run ./scripts/straighten [-names] MODULE.wasm
//
// A goroutine may be resumed anywhere behind a call. So each function of Go's is a loop around a
// table of places to go on, and all other jumps go through that table, too: a place is written to a
// variable, the loop begins again, and an indirect jump leads there. Engines take that for what it
// says. This command makes a jump forward a branch to its place, and leaves in the table what a
// call may return to. It tells the engine which branches are seldom taken, so that what is cold
// stands apart from what is not. What functions compute is the same.
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
		fmt.Fprintln(flag.CommandLine.Output(), "usage: straighten [-names] MODULE.wasm")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() != 1 {
		flag.Usage()
		os.Exit(2)
	}
	if err := rewrite(flag.Arg(0), *names); err != nil {
		fmt.Fprintf(os.Stderr, "straighten %s: %v\n", flag.Arg(0), err)
		os.Exit(1)
	}
}

// rewrite puts a straightened module in the place of a file's. The file is as it was, or new.
func rewrite(file string, names bool) error {
	module, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if module, err = straighten(module, names); err != nil {
		return err
	}
	scratch := file + ".straight"
	if err := os.WriteFile(scratch, module, 0o644); err != nil {
		return err
	}
	return os.Rename(scratch, file)
}
