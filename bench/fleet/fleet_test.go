package main

import (
	"io"
	"os"
	"strings"
	"testing"

	"weir/bench/sim"
)

// The tables of small fleets equal the kept tables: a change must come with new figures in
// README.md.
func TestFiguresAreKept(t *testing.T) {
	got, err := tables(io.Discard, smallFleets(), smallIdle())
	if err != nil {
		t.Fatal(err)
	}
	kept, err := os.ReadFile(quickTables)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(kept) {
		t.Errorf("figures have changed: run go run ./bench/fleet\ngot:\n%s\nwant:\n%s", got, kept)
	}
}

// README.md has a row for each fleet.
func TestReadme(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for line := range strings.Lines(string(readme)) {
		if strings.HasPrefix(line, " ") && !strings.Contains(line, "nodes") && !strings.Contains(line, "Weir") {
			rows++
		}
	}
	if want := len(fleets()) + len(idleFleets()); rows < want {
		t.Errorf("README.md has %d rows, want %d", rows, want)
	}
}

// No fleet passes more than a limit, and the three ways see the same requests.
func TestNothingAbove(t *testing.T) {
	f := usual()
	f.nodes, f.keys, f.limit, f.width, f.warm, f.span = 20, 200, 200, 8*sim.Second, 2*sim.Second, 5*sim.Second
	f.network = sim.Network{Trip: sim.Millisecond}
	weir, err := f.weir()
	if err != nil {
		t.Fatal(err)
	}
	asks, periodic := f.perRequest(), f.periodic()
	if weir.above != 0 || asks.above != 0 || asks.falsely != 0 || asks.waited != asks.requests {
		t.Errorf("weir %d above, asks %d above, %d false, %d of %d waited", weir.above, asks.above, asks.falsely, asks.waited, asks.requests)
	}
	if periodic.above == 0 || periodic.waited != 0 {
		t.Errorf("periodic sync: %d above, %d waited, want some and none", periodic.above, periodic.waited)
	}
	if weir.requests == 0 || weir.requests != periodic.requests || asks.requests != periodic.requests {
		t.Errorf("%d, %d and %d requests", weir.requests, asks.requests, periodic.requests)
	}
}

// Hardly a request waits for a key that has used less than half of its limit, where nodes may advance
// more than a hit or two. The backend, which counts leased hits too, may have more than half.
func TestFarKeysWaitForNothing(t *testing.T) {
	for _, nodes := range []int{30, 50} {
		f := usual()
		f.nodes, f.keys, f.limit, f.width, f.span = nodes, 2000, 2000, 25*sim.Second, 30*sim.Second
		out, err := f.weir()
		if err != nil {
			t.Fatal(err)
		}
		if out.far < out.requests/2 || out.farWaited > out.far/500 || out.waited == 0 {
			t.Errorf("%d nodes: %d requests, %d of them far; %d waited, and %d of those far", nodes, out.requests, out.far, out.waited, out.farWaited)
		}
	}
}

// -rows takes the numbers of rows.
func TestChosen(t *testing.T) {
	some, err := chosen(fleets(), "5,13")
	if err != nil || len(some) != 2 || some[0].nodes != 3000 || some[1].limit != 1000 {
		t.Errorf("got %+v, %v", some, err)
	}
	for _, rows := range []string{"0", "17", "x", "1,", "-1"} {
		if _, err := chosen(fleets(), rows); err == nil {
			t.Errorf("%q is taken", rows)
		}
	}
}

// A node knows the hits of a key's total that were there when it last synchronised.
func TestHistory(t *testing.T) {
	p := &sharing{totals: make([]history, 1)}
	sync := func(at int64, window int64, pending uint64) {
		n := sharer{own: map[int]own{0: {window, pending}}}
		if p.sync(&n, at, sim.Second); n.synced != at || len(n.own) != 0 {
			t.Fatalf("got %+v", n)
		}
	}
	sync(10, 1, 5)
	sync(30, 1, 7)
	sync(20, 1, 1) // this sync is applied later
	sync(40, 2, 3)
	for _, c := range []struct {
		heard, window int64
		want          uint64
	}{{9, 1, 0}, {10, 1, 5}, {25, 1, 6}, {30, 1, 13}, {40, 1, 0}, {40, 2, 3}, {99, 2, 3}} {
		if got := p.totals[0].at(c.heard, c.window); got != c.want {
			t.Errorf("heard at %d, window %d: got %d, want %d", c.heard, c.window, got, c.want)
		}
	}
}

// Half of the waits are below the median.
func TestQuantile(t *testing.T) {
	var w waits
	for range 99 {
		w.add(0)
	}
	w.add(3 * sim.Millisecond)
	w.add(3 * sim.Millisecond)
	if w.quantile(0.5) != 0 || w.quantile(0.99) != 3 {
		t.Errorf("got %g and %g", w.quantile(0.5), w.quantile(0.99))
	}
}
