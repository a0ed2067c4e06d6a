package main

import (
	"math/rand/v2"
	"testing"

	"weir/internal/node"
	"weir/window"
)

func TestDbg(t *testing.T) {
	tr := &truth{limit: window.Limit{Shape: window.Shape{Kind: window.FixedWindow, Width: minute}, Max: 1000}, nodes: 10, rate: second, traffic: "bursts", load: 2, seed: 1}
	w, _ := newWorld(worldOptions{seed: tr.seed, places: tr.nodes, workers: workers, network: near, limit: tr.limit, capacity: 1024, syncRate: tr.rate})
	admitted := 0
	w.passed = func() { admitted++ }
	dump := func() {
		t.Log("at", float64(w.now-monday)/1e9, "admitted", admitted)
		for _, n := range w.nodes {
			v := n.workers[0]
			d := node.Demand{Rule: &v.rules[0], Key: onlyKey}
			v.node.Look(&d, v.now())
			h := d.Cell.States[0].Hits[0]
			if h.Lease > 0 || h.Diff != 0 || h.Flight != 0 {
				t.Logf("node %d total %d diff %d flight %d lease %d due in %v backlog %+v %+v", n.place, h.Total, h.Diff, h.Flight, h.Lease, float64(d.Cell.Sync().Due.In(v.now()))/1e9, n.workers[0].node.Backlog(), n.workers[1].node.Backlog())
			}
		}
	}
	for _, at := range []float64{0.1, 0.5, 1, 1.5, 1.8, 2, 3, 4, 5, 10} {
		w.at(monday+int64(at*1e9), dump)
	}
	random := rand.New(rand.NewPCG(tr.seed, 9))
	for at, place, i := monday, 0, 0; ; i++ {
		if at, place = tr.next(random, at, i); at >= monday+20*second {
			break
		}
		w.advance(at)
		w.request(place, random.IntN(workers), onlyKey)
	}
	w.advance(monday + 20*second)
}
