package main

import (
	"testing"

	"weir/bench/page"
	"weir/internal/must"
	"weir/internal/sim"
)

// The tables of small fleets equal the kept tables: a change must come with new figures in
// README.md.
func TestFiguresAreKept(t *testing.T) {
	got := must.Get(tables(smallFleets(), smallIdle()))(t)
	page.Kept(t, "fleet", got)
}

// No fleet passes more than a limit.
func TestNothingAbove(t *testing.T) {
	f := usual()
	f.nodes, f.keys, f.limit, f.width, f.warm, f.span = 20, 200, 200, 8*sim.Second, 2*sim.Second, 5*sim.Second
	f.network = sim.Network{Trip: sim.Millisecond}
	out := must.Get(f.measure())(t)
	must.Equal(t, out.above, 0, "requests above the limit")
	must.AtLeast(t, out.requests, 1, "requests")
}

// Hardly a request waits for a key that has used less than half of its limit, where nodes may advance
// more than a hit or two. The backend, which counts leased hits too, may have more than half.
func TestFarKeysWaitForNothing(t *testing.T) {
	for _, nodes := range []int{30, 50} {
		f := usual()
		f.nodes, f.keys, f.limit, f.width, f.span = nodes, 2000, 2000, 25*sim.Second, 30*sim.Second
		out := must.Get(f.measure())(t)
		if out.far < out.requests/2 || out.farWaited > out.far/500 || out.waited == 0 {
			t.Errorf("%d nodes: %d requests, %d of them far; %d waited, and %d of those far", nodes, out.requests, out.far, out.waited, out.farWaited)
		}
	}
}
