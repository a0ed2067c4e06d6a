package engine_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"weir/internal/backend"
	"weir/internal/engine"
	"weir/internal/must"
	"weir/window"
)

// checks are users in the order in which they ask, one time each, for their hits of a window.
var checks = map[string]func(r *rand.Rand) []int{
	"zipf": func(r *rand.Rand) []int {
		users := zipf()
		shuffle(r, users)
		return users
	},
	"zipf, the first last": func(*rand.Rand) []int {
		users := zipf()
		slices.Reverse(users)
		return users
	},
	"zipf, the first first": func(*rand.Rand) []int { return zipf() },
	"uniform": func(r *rand.Rand) (users []int) {
		for i := range 8000 {
			users = append(users, i%2000)
		}
		shuffle(r, users)
		return users
	},
	"round and round": func(*rand.Rand) (users []int) {
		for i := range 8000 {
			users = append(users, i%100)
		}
		return users
	},
	"few": func(r *rand.Rand) (users []int) {
		for i := range 3000 {
			users = append(users, r.IntN(1+i%40))
		}
		return users
	},
	"many in the middle": func(r *rand.Rand) (users []int) {
		for i := range 8000 {
			users = append(users, i%80)
			if i%2 == 0 {
				users[i] = i
			}
		}
		shuffle(r, users)
		return users
	},
	"one among many": func(r *rand.Rand) (users []int) {
		for i := range 8000 {
			users = append(users, i*min(1, i%5))
		}
		shuffle(r, users)
		return users
	},
}

// zipf is users of whom the first ask most, one after the other.
func zipf() (users []int) {
	for rank := 1; rank <= 3000; rank++ {
		for range max(1, 800/rank) {
			users = append(users, rank)
		}
	}
	return users
}

func shuffle(r *rand.Rand, users []int) {
	r.Shuffle(len(users), func(i, j int) { users[i], users[j] = users[j], users[i] })
}

// TestLeastLimit has nodes report of a known check, and holds what a report says is the least limit of
// a shadow rule against that check.
func TestLeastLimit(t *testing.T) {
	for name, check := range checks {
		for _, nodes := range []int{1, 3} {
			t.Run(fmt.Sprint(name, " of ", nodes), func(t *testing.T) {
				t.Parallel()
				r := rand.New(rand.NewPCG(1, 2))
				const width = 10 * time.Second
				shadow := users(window.Limit{Shape: window.Shape{Kind: window.FixedWindow, Width: int64(width)}, Max: 10})
				shadow.shadow = true
				w := newWorld(t, nodes, 1, time.Second.Nanoseconds(), engine.Options{}, shadow)
				type asked struct {
					user   int
					window int64
				}
				exact := map[asked]int{}
				total := 0
				pass := func(d time.Duration) {
					for _, f := range w.nodes {
						f.advance(d / time.Duration(nodes))
					}
				}
				pass(width)
				for range 3 {
					all := check(r)
					for i, user := range all {
						exact[asked{user, w.now / int64(width)}]++
						w.nodes[r.IntN(nodes)].send(fmt.Sprint("user", user))
						if i%max(1, len(all)/9) == 0 {
							pass(time.Second)
						}
					}
					total += len(all)
				}
				pass(width)
				over := func(limit uint64) (share float64) {
					for _, n := range exact {
						share += float64(max(0, n-int(limit)))
					}
					return share / float64(total)
				}
				least := uint64(0)
				for over(least) > 0.001 {
					least++
				}
				b := backend.New(w.store)
				for _, f := range w.nodes {
					f.report()
					must.Get(b.Push(t.Context(), f.reports[len(f.reports)-1]))(t)
				}
				top := must.Get(b.Top(t.Context(), "default", ""))(t)
				m := top.Rules[0].Measured
				l := m.Limits[0]
				must.EqualOrEnd(t, l.Sure != nil, true, "%+v: some are sure", l)
				sure, unseen := *l.Sure, *l.Unseen
				if share := over(sure); share > 0.001 || l.Least > sure || int(l.Hits) != total {
					t.Errorf("%+v: %d are sure to refuse little, and refuse %.2f %%", l, sure, 100*share)
				}
				// Where keys with most hits decide, they are known.
				if least > unseen && (l.Least > least || float64(l.Least) < 0.99*float64(least) || float64(sure) > 1.1*float64(least)) {
					t.Errorf("%+v: want a least limit of %d", l, least)
				}
				// Elsewhere it is that of the sample, within what that can tell.
				if least <= unseen && (l.Least < least/2 || l.Least > 2*least) {
					t.Errorf("%+v: want a least limit of about %d", l, least)
				}
			})
		}
	}
}
