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
// limits and rates change. A request is one of all rules.
type randomWorld struct {
	*world
	random  *rand.Rand
	shape   window.Shape
	rules   []*randomRule
	options Options
	users   int
	// admitted are hits, by user, and alone those of them that were decided without the backend.
	admitted, alone map[string]int64
	// changed says that a limit or a rate was, and moved that it was a rate.
	changed, moved bool
	trace          []string
}

// randomRule is a rule of a random world.
type randomRule struct {
	rate  int64
	quota uint64
	// most is the largest quota so far.
	most uint64
	// here are the hits that were admitted while the rule was counted in one process by itself, by
	// user, and of those of each process.
	here      map[string]int64
	inProcess map[*fakeProcess]map[string]int64
	synced    bool // whether it has ever had a backend
}

// randomRates are what a rule may have: the first is of none with a backend.
var randomRates = []int64{-1, 0, second / 20, second, 5 * second}

func newRandomWorld(t *testing.T, seed uint64) *randomWorld {
	random := rand.New(rand.NewPCG(seed, 99))
	r := &randomWorld{
		random: random, shape: longest[random.IntN(len(longest))], users: 1 + random.IntN(4),
		admitted: map[string]int64{}, alone: map[string]int64{},
	}
	r.options = Options{Fallback: []Fallback{CountHere, RejectAll}[random.IntN(2)]}
	// Half of the worlds have one rule, which needs the backend as the first one always does.
	for i := range max(1, random.IntN(6)-2) {
		rule := &randomRule{here: map[string]int64{}, inProcess: map[*fakeProcess]map[string]int64{}}
		rule.quota = []uint64{1, 5, 30, 120, 400}[random.IntN(5)]
		rule.most = rule.quota
		rule.move(random, i == 0)
		r.rules = append(r.rules, rule)
	}
	r.world = newWorld(t, 1+random.IntN(4), 1+random.IntN(2), 0, r.options, r.counts()...)
	r.world.random = rand.New(rand.NewPCG(seed, 98))
	for _, p := range r.processes {
		p.random = rand.New(rand.NewPCG(seed, random.Uint64()))
	}
	return r
}

// move gives a rule a rate.
func (r *randomRule) move(random *rand.Rand, backend bool) {
	rates := randomRates
	if backend {
		rates = rates[1:]
	}
	r.rate = rates[random.IntN(len(rates))]
	r.synced = r.synced || r.rate >= 0
}

// counts are the rules of a new node.
func (r *randomWorld) counts() (rules []fakeRule) {
	for _, rule := range r.rules {
		rules = append(rules, users(of(r.shape, rule.quota)).at(rule.rate))
	}
	return rules
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
			cost = r.random.Uint64N(r.rules[0].quota + 2)
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
		for i, rule := range r.rules {
			if f.counts[i].rate < 0 {
				rule.here[user] += int64(cost)
				if rule.inProcess[f.process] == nil {
					rule.inProcess[f.process] = map[string]int64{}
				}
				rule.inProcess[f.process][user] += int64(cost)
			}
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
	i := r.random.IntN(len(r.rules))
	rule := r.rules[i]
	if r.random.IntN(3) == 0 {
		r.changed = true
		rule.quota = 1 + r.random.Uint64N(2*rule.quota)
		rule.most = max(rule.most, rule.quota)
	}
	if len(r.rules) > 1 && r.random.IntN(3) == 0 {
		r.changed, r.moved = true, true
		rule.move(r.random, i == 0)
	}
	r.note("a node is replaced, with a limit of %d and a rate of %v in rule %d", rule.quota, time.Duration(rule.rate), i)
	heir := old.process.startOf(0, r.options, r.counts()...)
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
		if wrong := r.tooMany(); wrong != "" {
			return wrong
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
	// least is what the rules have admitted with a backend, and most what they may have pushed
	// besides, when they got one or lost it.
	least, most := int64(0), int64(0)
	for _, rule := range r.rules {
		for user, hits := range r.admitted {
			if least += hits - rule.here[user]; rule.synced {
				most += hits
			}
		}
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
	case r.shape.Precision == window.LogPrecision && got > least-lost:
		// What goes back to a time that the store has not heard of yet is dropped, and stays counted.
	case got < least-lost || got > most-lost || !r.moved && got != least-lost:
		return fmt.Sprintf("the backend has %d hits, want %d to %d, of which %d were lost", got, least, most, lost)
	}
	return ""
}

// tooMany says who has been admitted more than that.
func (r *randomWorld) tooMany() string {
	if r.changed && r.shape.Precision == window.LogPrecision {
		return "" // a log keeps as many hits as its limit, so that one which was lowered has forgotten some
	}
	for user, hits := range r.admitted {
		if r.options.Fallback == RejectAll && r.alone[user] > 0 {
			return fmt.Sprintf("%s: %d hits passed without the backend", user, r.alone[user])
		}
		for i, rule := range r.rules {
			if hits > int64(rule.most)+r.alone[user]+rule.here[user] {
				return fmt.Sprintf("%s: %d hits passed, of a limit of %d in rule %d, and %d were decided alone, %d in one process",
					user, hits, rule.most, i, r.alone[user], rule.here[user])
			}
			for p, here := range r.processes {
				// Once it is synchronised, what a node has lost sight of may pass again.
				if hits := rule.inProcess[here][user]; hits > int64(rule.most) && !rule.synced {
					return fmt.Sprintf("%s: %d hits passed in process %d, of a limit of %d in rule %d", user, hits, p, rule.most, i)
				}
			}
		}
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
			var rules []string
			for _, rule := range r.rules {
				rules = append(rules, fmt.Sprintf("%d at %v", rule.quota, time.Duration(rule.rate)))
			}
			t.Fatalf("world %d: %+v, %q, fallback %d, %d processes, %d nodes, %d users: %s\n%q\n-first-world %d tries it again",
				seed, r.shape, rules, r.options.Fallback, len(r.processes), len(r.nodes), r.users, wrong, last, seed)
		}
	}
	t.Logf("%d worlds", tried-1)
}
