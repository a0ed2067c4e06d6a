package main

import (
	"math/rand/v2"
	"testing"

	"weir/window"
)

func TestDbg(t *testing.T) {
	tr := &truth{limit: window.Limit{Shape: window.Shape{Kind: window.FixedWindow, Width: minute}, Max: 1000}, nodes: 10, rate: second, traffic: "at random", load: 2, seed: 1}
	w, _ := newWorld(worldOptions{seed: tr.seed, places: tr.nodes, workers: workers, network: near, limit: tr.limit, capacity: 1024, syncRate: tr.rate})
	admitted, refused := 0, 0
	w.passed = func() { admitted++ }
	w.refused = func(int64) { refused++ }
	lw, ls := 0, 0
	dump := func() {
		t.Log("at", float64(w.now-monday)/1e9, "admitted", admitted, "refused", refused, "waits", w.waits.requests-lw, "callouts", w.sent-ls)
		lw, ls = w.waits.requests, w.sent
	}
	for at := 60; at < 120; at += 3 {
		w.at(monday+int64(at)*second, dump)
	}
	random := rand.New(rand.NewPCG(tr.seed, 9))
	for at, place, i := monday, 0, 0; ; i++ {
		if at, place = tr.next(random, at, i); at >= monday+120*second {
			break
		}
		w.advance(at)
		w.request(place, random.IntN(workers), onlyKey)
	}
}
