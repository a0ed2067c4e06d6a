package engine_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"weir/internal/counter"
	"weir/internal/engine"
	"weir/internal/engine/entry"
	"weir/internal/failure"
	"weir/internal/must"
	"weir/window"
)

// Other workers handle requests between every get and every set, as deep as there are workers, by two rules of which
// the second refuses what the first has taken. Nothing passes too much, and what was given back is there again, for
// good: the users' quotas add up to all.
func TestAdversary(t *testing.T) {
	for _, kind := range []window.Kind{window.SlidingWindow, window.FixedWindow, window.FirstHitWindow} {
		races := uint64(0)
		for seed := range uint64(20) {
			w := newWorld(t, 1, 3, -1, engine.Options{}, all(limit(kind, 100, hour)), users(limit(kind, 25, hour)))
			random := rand.New(rand.NewPCG(seed, 1))
			names := []string{"ann", "bob", "cid", "dan"}
			passed := map[string]int{}
			send := func(f *fakeNode, user string) {
				if f.send(user) {
					passed[user]++
					passed["all"]++
				}
			}
			busy := map[*fakeNode]bool{}
			w.processes[0].before = func(f *fakeNode, _ string) {
				busy[f] = true
				if other := w.nodes[random.IntN(len(w.nodes))]; !busy[other] && random.IntN(3) > 0 {
					for range random.IntN(3) + 1 {
						send(other, names[random.IntN(len(names))])
					}
				}
				delete(busy, f)
			}
			for range 60 {
				send(w.nodes[0], names[random.IntN(len(names))])
			}
			w.processes[0].before = nil
			races += w.tallied(func(t *entry.Tallies) uint64 { return t.LostRaces })
			for range 60 {
				for _, user := range names {
					send(w.nodes[0], user)
				}
			}
			if passed["all"] != 100 || max(passed["ann"], passed["bob"], passed["cid"], passed["dan"]) > 25 {
				t.Fatalf("kind %d, seed %d: passed %v, want 100 in all, and at most 25 each", kind, seed, passed)
			}
		}
		must.AtLeast(t, races, 100, "kind %d: races that were lost", kind)
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
			must.Equal(t, other.send("ann"), true, "the first request does not pass")
		case 3: // of ann's own, after what all share was taken at the second attempt
			must.Equal(t, other.send("bob"), false, "passed though nothing is left")
		}
	}
	must.Equal(t, mine.send("ann"), false, "more than ann's quota")
	must.EqualOrEnd(t, sets, 4, "sets: two of what all share, one of ann's and one that gives back")
	must.Equal(t, other.send("bob"), true, "refused for hits that are back")
}

// Another worker takes each lease that a request has waited for, before it can. The backend has hits for all, so the
// request asks again for as long as it may wait. Then it is refused: on_backend_failure is for a backend that does not answer.
func TestLeasesThatOthersTake(t *testing.T) {
	for name, test := range map[string]struct {
		thefts int
		each   time.Duration // that passes with each
		want   counter.Verdict
	}{
		"often":      {8, time.Millisecond, counter.Allowed},
		"until late": {8, 100 * time.Millisecond, counter.Rejected},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1, 2, second, engine.Options{OnBackendFailure: failure.Allow}, users(sliding(1_000_000)))
			mine, other := w.nodes[0], w.nodes[1]
			w.quiet()
			thefts, stealing, answering := 0, false, false
			w.processes[0].before = func(f *fakeNode, op string) {
				if f != mine || op != "get" || stealing || !answering || thefts == test.thefts {
					return
				}
				stealing = true
				if mine.leased(0, "ann") > 0 {
					thefts++
					for mine.leased(0, "ann") > 0 {
						must.EqualOrEnd(t, other.send("ann"), true, "the other worker has no room")
					}
				}
				stealing = false
			}
			r, verdict := mine.request("ann")
			for rounds := 0; r.Waiting() && rounds < 20; rounds++ {
				w.pass(test.each)
				answering = true
				mine.answerAll()
				answering = false
			}
			if len(r.verdicts) > 0 {
				verdict = r.verdicts[0]
			}
			if verdict != test.want || thefts < 2 || mine.Tallies.Late != 0 {
				t.Errorf("%v after %d thefts, %+v; want %v, none late", verdict, thefts, mine.Tallies, test.want)
			}
		})
	}
}
