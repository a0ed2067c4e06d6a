package node

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"weir/window"
)

var (
	worldsFor  = flag.Duration("worlds-for", 0, "how long to try random worlds; a thousand of them if it is 0")
	firstWorld = flag.Uint64("first-world", 0, "the seed of the first random world")
)

// randomWorld is a world in which nearly everything happens that does in a bad year: pushes are lost
// before or after they were applied, some arrive long after their senders gave up on them, the
// backend is away for longer than a store remembers, clocks jump, configurations are replaced, and
// limits change.
type randomWorld struct {
	*world
	random  *rand.Rand
	shape   window.Shape
	rate    int64
	options Options
	users   int
	quota   uint64
	// most is the largest quota so far. admitted are hits, by user, and alone those of them that were
	// decided without the backend.
	most            uint64
	admitted, alone map[string]int64
	// changed says that the limit was.
	changed bool
	trace   []string
}

func newRandomWorld(t *testing.T, seed uint64) *randomWorld {
	random := rand.New(rand.NewPCG(seed, 99))
	r := &randomWorld{
		random: random, shape: longest[random.IntN(len(longest))], users: 1 + random.IntN(4), quota: []uint64{1, 5, 30, 120, 400}[random.IntN(5)],
		admitted: map[string]int64{}, alone: map[string]int64{},
	}
	r.rate = []int64{0, second / 20, second, 5 * second}[random.IntN(4)]
	r.options = Options{
		Fallback: []Fallback{CountHere, RejectAll}[random.IntN(2)],
	}
	r.most = r.quota
	r.world = newWorld(t, 1+random.IntN(4), 1+random.IntN(2), r.rate, r.options, users(of(r.shape, r.quota)))
	r.world.random = rand.New(rand.NewPCG(seed, 98))
	for _, p := range r.processes {
		p.random = rand.New(rand.NewPCG(seed, random.Uint64()))
	}
	return r
}

func (r *randomWorld) note(format string, args ...any) {
	r.trace = append(r.trace, fmt.Sprintf(format, args...))
}

// step has one thing happen.
func (r *randomWorld) step() {
	f := r.nodes[r.random.IntN(len(r.nodes))]
	user := fmt.Sprint("user", r.random.IntN(r.users))
	switch n := r.random.IntN(1000); {
	case n < 700:
		cost := uint64(1)
		if r.random.IntN(10) == 0 {
			cost = r.random.Uint64N(r.quota + 2)
		}
		r.ask(f, user, cost)
	case n < 930:
		r.advance(time.Duration(r.random.Int64N(int64(300 * time.Millisecond))))
	case n < 950:
		r.lossBefore, r.lossAfter = r.random.Float64()*0.4, r.random.Float64()*0.4
		r.note("loses %.2f before, %.2f after", r.lossBefore, r.lossAfter)
	case n < 970:
		r.lossBefore, r.lossAfter = 0, 0
	case n < 980:
		r.outage()
	case n < 988:
		if r.shape.Precision == window.LogPrecision {
			// Of a log that a clock which jumps has counted in, hits that go back may miss theirs.
			return
		}
		p := f.process
		p.off = r.random.Int64N(4*second) - 2*second
		r.note("a clock is off by %v", time.Duration(p.off))
	case n < 996:
		r.replace(f)
	default:
		// What senders gave up on arrives after all.
		for range min(len(r.zombies), 3) {
			i := r.random.IntN(len(r.zombies))
			r.apply(r.zombies[i])
			r.zombies = slices.Delete(r.zombies, i, i+1)
		}
	}
}

// ask brings a request.
func (r *randomWorld) ask(f *fakeNode, user string, cost uint64) {
	alone := f.Tallies.Alone
	if f.sendOf(user, cost) {
		r.admitted[user] += int64(cost)
		if f.Tallies.Alone != alone {
			r.alone[user] += int64(cost)
		}
	}
}

// outage has the backend away while requests come.
func (r *randomWorld) outage() {
	lasts := []time.Duration{3 * time.Second, 30 * time.Second, 12 * time.Minute}[r.random.IntN(3)]
	r.note("the backend is away for %v", lasts)
	before, after := r.lossBefore, r.lossAfter
	r.lossBefore, r.lossAfter = 1, 0
	for range 20 {
		f := r.nodes[r.random.IntN(len(r.nodes))]
		user := fmt.Sprint("user", r.random.IntN(r.users))
		r.ask(f, user, 1)
		r.advance(lasts / 20)
	}
	r.lossBefore, r.lossAfter = before, after
}

// replace has a new configuration take the place of a node's.
func (r *randomWorld) replace(old *fakeNode) {
	if r.random.IntN(3) == 0 {
		r.changed = true
		r.quota = 1 + r.random.Uint64N(2*r.quota)
		r.most = max(r.most, r.quota)
	}
	r.note("a node is replaced, with a limit of %d", r.quota)
	heir := old.process.startOf(r.rate, r.options, users(of(r.shape, r.quota)))
	old.AddHeld(old.now())
	old.Release()
	if old.Unfinished() {
		heir.Inherit(old.Node)
	}
	old.pushes = nil // nobody hears their answers any more
	r.nodes = slices.DeleteFunc(r.nodes, func(f *fakeNode) bool { return f == old })
}

// run lets things happen, and then everything come to rest. It returns what is wrong.
func (r *randomWorld) run(steps int) (wrong string) {
	for range steps {
		r.step()
		for user, hits := range r.admitted {
			// A log keeps as many hits as its limit, so that one which was lowered has forgotten some.
			if forgets := r.changed && r.shape.Precision == window.LogPrecision; hits > int64(r.most)+r.alone[user] && !forgets {
				return fmt.Sprintf("%s: %d hits passed, of a limit of %d, and %d were decided alone", user, hits, r.most, r.alone[user])
			}
			if r.options.Fallback == RejectAll && r.alone[user] > 0 {
				return fmt.Sprintf("%s: %d hits passed without the backend", user, r.alone[user])
			}
		}
	}
	for _, p := range r.processes {
		p.off = 0
	}
	r.quiet()
	for range 4 {
		r.advance(time.Hour) // leases that are not used go back
	}
	for _, f := range r.nodes {
		f.Leave()
	}
	r.quiet()
	sum := int64(0)
	for _, hits := range r.admitted {
		sum += hits
	}
	for _, f := range r.nodes {
		if left := f.left(); left != "" {
			return "left: " + left
		}
	}
	lost := int64(r.tallied(func(t *Tallies) uint64 { return t.Lost }))
	switch got := r.sum(); {
	case r.shape.Kind == window.TokenBucket:
		// Tokens come back, and a changed limit rounds.
	case r.shape.Precision == window.LogPrecision && (len(r.alone) > 0 || r.changed):
		// A log over its limit forgets its oldest hits.
	case r.shape.Precision == window.LogPrecision && got > sum-lost:
		// What goes back to a time that the store has not heard of yet is dropped, and stays counted.
	case got != sum-lost:
		return fmt.Sprintf("the backend has %d hits, want %d, of which %d were lost", got, sum, lost)
	}
	return ""
}

// Whatever happens, no more passes than the limit and what nodes have decided alone, which is nothing
// where these reject; and the backend has what passed: no hit is lost or doubled.
//
// go test ./internal/node -run RandomWorlds -worlds-for 1h tries more.
func TestRandomWorlds(t *testing.T) {
	begin, tried := time.Now(), 0
	for seed := *firstWorld; ; seed++ {
		if tried++; *worldsFor == 0 && tried > 1000 || *worldsFor > 0 && time.Since(begin) > *worldsFor {
			break
		}
		r := newRandomWorld(t, seed)
		if wrong := r.run(600); wrong != "" {
			last := r.trace[max(0, len(r.trace)-12):]
			t.Fatalf("world %d: %+v, sync rate %v, fallback %d, %d processes, %d nodes, %d users: %s\n%q\n-first-world %d tries it again",
				seed, r.shape, time.Duration(r.rate), r.options.Fallback, len(r.processes), len(r.nodes), r.users, wrong, last, seed)
		}
	}
	t.Logf("%d worlds", tried-1)
}
