package sharedata

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"weir/internal/must"
)

// A worker that is alone reads no page that it has written, however many keys there are, until it
// forgets.
func TestRecent(t *testing.T) {
	gets := 0
	data := &fakeData{}
	worker := newCounting(t, data, &Recent{})
	data.before = func(op string) {
		if op == "get" {
			gets++
		}
	}
	for range 100 {
		for _, key := range []string{"ann", "bob"} {
			worker.hit(key)
		}
	}
	must.AtMost(t, gets, 4, "gets of 200 hits of two keys, which are on one or two pages, and none of both was there")
	before := gets
	worker.slot.Recent.Forget()
	worker.hit("ann")
	must.Equal(t, gets, before+1, "gets of what was forgotten")
}

// Whatever others write in between, no hit is lost or counted twice.
func TestRecentBesideOthers(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 5))
		data := &fakeData{}
		workers := []*counting{newCounting(t, data, &Recent{}), newCounting(t, data, &Recent{}), newCounting(t, data, nil)} // the last always reads
		want, recalls := map[string]uint64{}, 0
		interrupted := false
		data.before = func(op string) {
			// Another worker is faster between what one knows and its write.
			if op != "set" || interrupted || random.IntN(8) != 0 {
				return
			}
			interrupted = true
			key := fmt.Sprint(random.IntN(12))
			workers[2].hit(key)
			want[key]++
			interrupted = false
		}
		for worker := 0; len(want) < 12 || random.IntN(5000) != 0; {
			if random.IntN(30) == 0 {
				worker = random.IntN(2)
				workers[worker].slot.Recent.rest = 0
			}
			key := fmt.Sprint(random.IntN(12))
			want[key]++
			if workers[worker].hit(key) {
				recalls++
			}
		}
		data.before = nil
		for key, n := range want {
			workers[2].wantCount(t, key, n)
		}
		if recalls == 0 || t.Failed() {
			t.Fatalf("seed %d: %d were recalled", seed, recalls)
		}
	}
}

// A worker that is wrong rests, so that others who write cost it few writes.
func TestRecentRests(t *testing.T) {
	data := &fakeData{}
	one, other := newCounting(t, data, &Recent{}), newCounting(t, data, &Recent{})
	lost := 0
	for range 10_000 {
		one.hit("ann")
		other.hit("bob")
		one.slot.Recent.Forget()
	}
	data.before = func(op string) {
		if op == "set" {
			lost++
		}
	}
	for range 10_000 {
		one.hit("ann")
		other.hit("bob")
	}
	lost -= 20_000
	must.AtMost(t, lost, 20_000/restAfterWrong+2, "writes that were lost of 20,000")
}

// A number that means something else than a write is never predicted.
func TestRecentNumbers(t *testing.T) {
	for _, next := range []uint32{0, CreateOnly} {
		numbers := Numbers(next - 3)
		worker := newCounting(t, &fakeData{Map: Map{Numbers: &numbers}}, &Recent{})
		for range 10 {
			worker.hit("ann")
		}
		worker.wantCount(t, "ann", 10)
	}
}
