package engine_test

import (
	"math/rand/v2"
	"testing"

	"weir/internal/engine"
	"weir/window"
)

// Another worker handles requests between every get and every set, as deep as there are workers:
// nothing is lost, and nothing passes too much.
func TestAdversary(t *testing.T) {
	for _, kind := range []window.Kind{window.SlidingWindow, window.FixedWindow, window.FirstHitWindow} {
		const most = 300
		w := newWorld(t, 1, 3, -1, engine.Options{}, users(limit(kind, most, hour)))
		passed, sent, depth := 0, 0, 0
		random := rand.New(rand.NewPCG(7, 7))
		send := func(f *fakeNode) {
			sent++
			if f.send("ann") {
				passed++
			}
		}
		w.processes[0].before = func(f *fakeNode, _ string) {
			if depth == len(w.nodes)-1 {
				return
			}
			depth++
			for i, other := range w.nodes {
				if other != f && i > depth-1 && random.IntN(2) == 0 {
					send(other)
				}
			}
			depth--
		}
		for sent < 3*most {
			depth = 0
			send(w.nodes[0])
		}
		if passed != most {
			t.Errorf("%d: passed %d of %d, want %d", kind, passed, sent, most)
		}
		if w.nodes[0].Tallies.LostRaces == 0 {
			t.Errorf("%d: no race was lost, so none was tested", kind)
		}
	}
}

// The same with two rules, of which the second refuses what the first has taken: what was given
// back is there again, for good, so that the users' quotas add up to all.
func TestAdversaryOfSeveralRules(t *testing.T) {
	for seed := range uint64(50) {
		w := newWorld(t, 1, 2, -1, engine.Options{}, all(sliding(100)), users(sliding(25)))
		random := rand.New(rand.NewPCG(seed, 1))
		names := []string{"ann", "bob", "cid", "dan"}
		passed := map[string]int{}
		send := func(f *fakeNode, user string) {
			if f.send(user) {
				passed[user]++
				passed["all"]++
			}
		}
		nested := false
		w.processes[0].before = func(f *fakeNode, op string) {
			if f == w.nodes[0] && !nested && op == "set" && random.IntN(3) > 0 {
				nested = true
				for range random.IntN(3) + 1 {
					send(w.nodes[1], names[random.IntN(len(names))])
				}
				nested = false
			}
		}
		for range 150 {
			send(w.nodes[0], names[random.IntN(len(names))])
		}
		w.processes[0].before = nil
		for range 60 {
			for _, user := range names {
				send(w.nodes[0], user)
			}
		}
		if passed["all"] != 100 {
			t.Fatalf("seed %d: passed %v, want 100 in all", seed, passed)
		}
		for _, user := range names {
			if passed[user] > 25 {
				t.Fatalf("seed %d: %s passed %d, want at most 25", seed, user, passed[user])
			}
		}
	}
}

// A worker finds all quota taken, by a request that another rule refuses at this moment. The hits
// that come back are there for the worker's next request, whenever that is.
func TestRefusalOfHitsThatComeBack(t *testing.T) {
	w := newWorld(t, 1, 2, -1, engine.Options{}, all(sliding(2)), users(sliding(1)))
	mine, other := w.nodes[0], w.nodes[1]
	sets := 0
	w.processes[0].before = func(f *fakeNode, op string) {
		if f != mine || op != "set" {
			return
		}
		switch sets++; sets {
		case 1: // of what all share: the other worker is faster, and takes ann's quota
			if !other.send("ann") {
				t.Error("the first request does not pass")
			}
		case 3: // of ann's own, after what all share was taken at the second attempt
			if other.send("bob") {
				t.Error("passed though nothing is left")
			}
		}
	}
	if mine.send("ann") {
		t.Error("more than ann's quota")
	}
	if sets != 4 {
		t.Fatalf("%d sets, want two of what all share, one of ann's and one that gives back", sets)
	}
	if !other.send("bob") {
		t.Error("refused for hits that are back")
	}
}
