package main

import (
	"flag"
	"os"
	"testing"

	"weir/bench/sim"
)

var (
	xn = flag.Int("xn", 100, "")
	xk = flag.Int("xk", 20000, "")
	xl = flag.Uint64("xl", 100000, "")
	xw = flag.Int64("xw", 3600, "")
	xs = flag.Int64("xs", 10, "")
	xt = flag.Int64("xt", 0, "")
)

func TestX(t *testing.T) {
	f := usual()
	f.nodes, f.keys, f.limit, f.width, f.span = *xn, *xk, *xl, *xw*sim.Second, *xs*sim.Second
	if *xt > 0 {
		f.network = sim.Network{Trip: *xt * sim.Millisecond}
	}
	if _, err := busyTable(os.Stdout, []fleet{f}); err != nil {
		t.Fatal(err)
	}
}
