package engine_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"weir/internal/counter"
	"weir/internal/engine"
	"weir/internal/engine/rule"
	"weir/internal/must"
	"weir/window"
)

// Requests of one check go a straight way, in a page that was copied, remembered or borrowed.
// A node that decides all of them the general way gives the same answers, and its table has the same bytes.
func TestStraightWay(t *testing.T) {
	t.Parallel()
	straight, refused, remembered, evicted, back := map[window.Kind]int{}, 0, 0, uint64(0), 0
	for seed := range uint64(30) {
		random := rand.New(rand.NewPCG(seed, 4))
		most := 1 + random.Uint64N(100)
		var all []window.Limit
		for _, shape := range longest {
			if shape.Width = minute; shape.Precision > 1 {
				shape.Precision = second
			}
			all = append(all, of(shape, most))
		}
		random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		one, three := users(all[0]), users(slices.Clone(all[1:4])...)
		one.countRejected, one.marks, three.costsLater = random.IntN(3) == 0, random.IntN(3) == 0, random.IntN(3) == 0
		var nodes [3]*fakeNode
		for i := range nodes {
			p := newProcess(t)
			options := engine.Options{Capacity: 6, Recalls: i == 1}
			if i == 2 {
				options.Lends = &p.Map
			}
			nodes[i] = p.startOf(-1, options, one, three)
		}
		nodes[0].GoAround()
		now := monday + random.Int64N(1e15)
		for step := range 1000 {
			now += random.Int64N(minute / int64(most) / 8)
			if random.IntN(100) == 0 {
				before := now
				now += random.Int64N(2*minute) - minute
				back += int(min(max(before-now, 0), 1))
			}
			at, user, hits := random.IntN(2), fmt.Sprint("user-", random.IntN(1+3*int(seed))), random.Uint64N(3)
			if random.IntN(50) == 0 {
				hits = []uint64{most, window.MaxHits, window.MaxHits + 1}[random.IntN(3)]
			}
			both, giveBack := random.IntN(8) == 0, random.IntN(20) == 0
			if random.IntN(200) == 0 { // another writes what is no page
				page := append([]byte("weir2:default:"), 0, 0, byte(random.IntN(nodes[0].Table().Pages())))
				for _, f := range nodes {
					f.process.Set(page, []byte("none"), 0)
				}
			}
			var told [3]string
			for i, f := range nodes {
				checks := f.checks
				for j := range checks {
					d := &checks[j]
					d.Rule, d.Key, d.Cost = f.rule((at+j)%2), append(d.Key[:0], f.key((at+j)%2, user)...), hits
				}
				if !both {
					checks = checks[:1]
				}
				verdict := counter.Unsure
				if !both && i > 0 {
					verdict = f.DecideOne(checks, now)
				}
				if verdict == counter.Unsure {
					verdict = f.Decide(checks, now, &engine.Wait{Patience: -1})
				} else if straight[checks[0].Rule.Limits[0].Kind]++; verdict == counter.Rejected {
					if refused++; f.Remembers(&checks[0], now) {
						remembered++
					}
				}
				told[i] = tell(checks, now, verdict)
				if giveBack {
					f.Charges.GiveBack(&checks[0], 1, now)
				}
			}
			if told[1] != told[0] || told[2] != told[0] {
				t.Fatalf("seed %d, step %d: %d hits of %s:\n%s\n%s, by remembered pages\n%s, by borrowed ones", seed, step, hits, user, told[0], told[1], told[2])
			}
			for i, f := range nodes[1:] {
				if a, b := pagesOf(nodes[0]), pagesOf(f); !bytes.Equal(a, b) {
					t.Fatalf("seed %d, step %d: %d hits of %s, %s:\n%x\nis the table of the general way, and this of way %d:\n%x", seed, step, hits, user, told[0], a, i, b)
				}
			}
		}
		evicted += nodes[2].Tallies.Evicted
		for i, f := range nodes {
			if f.Tallies.Evicted != nodes[0].Tallies.Evicted || f.Tallies.Corrupt == 0 || i == 2 && f.Tallies != nodes[0].Tallies {
				t.Errorf("seed %d: way %d: %+v", seed, i, f.Tallies)
			}
		}
	}
	for _, shape := range longest {
		must.AtLeast(t, straight[shape.Kind], 1000, "of kind %d went the straight way", shape.Kind)
	}
	if refused < 1000 || remembered < 50 || evicted < 1000 || back < 100 {
		t.Errorf("%d refused, %d of these remembered, %d evicted, %d times back: such runs show little", refused, remembered, evicted, back)
	}
}

// tell says how the limits of decided checks stand.
func tell(checks []rule.Check, now int64, verdict counter.Verdict) string {
	text := fmt.Sprint("verdict ", verdict)
	for i := range checks {
		d := &checks[i]
		for j := range d.Rule.Limits {
			text += fmt.Sprintf(", %v %+v", d.Verdict, d.Standing(j, now))
		}
	}
	return text
}

// pagesOf returns all pages of a node's table.
func pagesOf(f *fakeNode) (all []byte) {
	for i := range f.Table().Pages() {
		page, _, _ := f.process.Get(append([]byte("weir2:default:"), byte(i>>16), byte(i>>8), byte(i)), nil)
		all = append(append(all, page...), 0xff)
	}
	return all
}
