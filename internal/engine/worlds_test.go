package engine_test

import (
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"weir/internal/backend/backendtest"
	"weir/internal/counter"
	"weir/internal/engine"
	"weir/internal/engine/link"
	"weir/internal/engine/rule"
	"weir/internal/failure"
	"weir/internal/must"
	"weir/internal/nightly"
	"weir/internal/store"
	"weir/internal/store/memory"
	"weir/internal/wire"
	"weir/window"
)

var (
	worldsFrom  = flag.Uint64("worlds-from", 0, "seed of the first random world")
	worldsCount = flag.Int("worlds", 0, "random worlds to run on each store; 0 for as many as make test or make test-nightly has")
	worldsFor   = flag.Duration("worlds-for", 0, "how long to run random worlds on each store, instead")
	worldHashes = flag.String("world-hashes", "", "file to which a line is added for each world in memory: its seed, and a hash of all that its nodes sent and wrote")
)

// hashTo makes a world tell at its end, in one hash, all messages and all writes to shared data of its
// nodes. A change of the engine that only moves code leaves the hashes of all worlds as they were.
//
//	go test ./internal/engine -run 'Worlds/memory' -worlds 2000 -world-hashes FILE
func (w *randomWorld) hashTo(file string) {
	w.seen = sha256.New()
	w.store = memory.New(memory.Options{
		Now: func() time.Time { return time.Unix(0, w.now+w.storeOff) }, Random: rand.New(rand.NewPCG(w.seed, 17)).Uint64,
	})
	w.options.Namespace = fmt.Sprint("world-", w.seed) // with no time in it, as messages tell it
	w.t.Cleanup(func() {
		f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		if err == nil {
			_, err = fmt.Fprintf(f, "%v %d %x\n", w.far, w.seed, w.seen.Sum(nil))
			err = errors.Join(err, f.Close())
		}
		must.Report(w.t, err)
	})
}

// TestRandomWorlds runs nodes, a network and a backend through whatever happens to them, by a seed
// that is enough to repeat a world. Hits are conserved at every moment: a process has counted the
// hits that the backend applied of it, and those that it still has to push, less those that it has
// leased. And no limit lets more pass than it says and the overshoot bound tells.
//
// go test ./internal/engine -run RandomWorlds -worlds-for 15m -timeout 0 takes an hour.
func TestRandomWorlds(t *testing.T) {
	for _, backend := range worldStores {
		t.Run(backend.name, func(t *testing.T) {
			runWorlds(t, "TestRandomWorlds/"+backend.name, backend.worlds, false, backend.start(t))
		})
	}
}

// TestFarWorlds runs worlds whose keys are far from their limits until all at once they are not, on the
// stores that tell nodes which keys are near.
func TestFarWorlds(t *testing.T) {
	for _, backend := range worldStores[:3] {
		worlds := nightly.Or(backend.worlds, 6) // in the first four of them the backend is mostly away
		t.Run(backend.name, func(t *testing.T) {
			all := runWorlds(t, "TestFarWorlds/"+backend.name, worlds, true, backend.start(t))
			must.AtLeast(t, all.advanced, uint64(all.passed/100), "of %d hits were advanced", all.passed)
		})
	}
}

// runWorlds runs so many worlds, if no flag says how many, until one fails.
func runWorlds(t *testing.T, name string, worlds int, far bool, open openStore) (all happened) {
	start := time.Now()
	if *worldsCount > 0 {
		worlds = *worldsCount
	}
	for i := 0; i < worlds || *worldsFor > 0; i++ {
		if *worldsFor > 0 && time.Since(start) > *worldsFor {
			break
		}
		seed := *worldsFrom + uint64(i)
		if !t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			w := newRandomWorld(t, seed, far, open)
			defer func() {
				if t.Failed() || w.running {
					t.Logf("again: go test ./internal/engine -run '%s' -worlds-from %d -worlds 1\n%s\n… %s", name, seed, w.about(), strings.Join(w.trace, "\n… "))
				}
			}()
			w.run()
			all.add(&w.happened)
		}) && *worldsFor == 0 {
			break
		}
	}
	t.Logf("%+v", all)
	return all
}

// happened tells what the worlds have seen, so that a run tells whether it has tested anything.
type happened struct {
	worlds, requests, passed, refused, waited, alone, forced, above int
	cancelled, stayed                                               int
	sent, lost, late, again, duplicates, doubled                    int
	crashed, left, replaced, outages, jumps, changed, overrides     int
	evicted, dropped, advanced                                      uint64
}

func (h *happened) add(o *happened) {
	h.worlds++
	for _, sum := range []struct{ to, of *int }{
		{&h.requests, &o.requests}, {&h.passed, &o.passed}, {&h.refused, &o.refused}, {&h.waited, &o.waited}, {&h.alone, &o.alone},
		{&h.forced, &o.forced}, {&h.sent, &o.sent}, {&h.lost, &o.lost}, {&h.late, &o.late}, {&h.again, &o.again},
		{&h.duplicates, &o.duplicates}, {&h.crashed, &o.crashed}, {&h.left, &o.left}, {&h.replaced, &o.replaced},
		{&h.cancelled, &o.cancelled}, {&h.stayed, &o.stayed}, {&h.doubled, &o.doubled}, {&h.outages, &o.outages}, {&h.jumps, &o.jumps}, {&h.changed, &o.changed}, {&h.overrides, &o.overrides}, {&h.above, &o.above},
	} {
		*sum.to += *sum.of
	}
	h.evicted += o.evicted
	h.advanced += o.advanced
	h.dropped += o.dropped
}

// randomWorld is a world whose network takes its time.
type randomWorld struct {
	*world
	happened
	seed     uint64
	options  engine.Options
	rules    []randomRule
	users    int
	lives    []*life
	storeOff int64 // the store's clock, from the world's
	away     int64 // until when nothing comes through
	lossy    bool
	slow     int64 // the most that a way takes
	callouts []*randomCallout
	messages [][]byte         // that may come again
	paused   []*randomRequest // that wait, and some that did
	idle     []*randomRequest // whose memory is used again
	// lasting worlds have windows that outlast them, so that sums are exact whatever happens. In the
	// others windows come and go, and no clock jumps.
	lasting bool
	// far worlds have rules whose hits are advanced.
	far bool
	// logs says that sliding logs last, too: they have no sums, as they keep no more hits than
	// their limit, and no limit moves then, nor a clock jumps.
	logs bool
	// applied are the pushes that the store has applied, by whom.
	applied   map[pushName]appliedPush
	senders   map[uint64]*life // by process
	hits      map[wire.LimitCounter]*randomCounter
	answering int64 // when the backend decided what is being answered
	trace     []string
	running   bool
	net       int64 // what the store says that it has applied, less what was given back
}

type randomRule struct {
	fakeRule
	most []uint64 // the largest that a limit of the configuration ever was
	// moved are the largest overrides of the limits by user, and toldLast the largest overshoot bound
	// that a process told which has gone.
	moved    []map[string]uint64
	toldLast uint64
	// wasLocal and wasSynced say that each process has counted by itself, or with a backend.
	wasLocal, wasSynced bool
}

// life is one life of a process.
type life struct {
	*fakeProcess
	number  int
	nodes   []*fakeNode
	next    map[*fakeNode]int64 // ticks
	leaving bool
	jumped  bool // its clock did
	// heirs have taken the place of nodes that are not wanted any more. These stay for as long as
	// requests wait for them.
	heirs map[*fakeNode]*fakeNode
	// counted has the hits that the process has counted, and has those of them that the store has
	// applied.
	counted, has map[wire.LimitCounter]int64
	alone        map[*fakeNode]uint64
	// passed are hits, and passedAlone those of them that passed without the backend.
	passed, passedAlone map[*randomCounter]uint64
	evicted             bool // by nodes that have gone
}

// evicts reports whether a node of the process has evicted counters: all share a table.
func (l *life) evicts() bool {
	return l.evicted || slices.ContainsFunc(l.nodes, func(f *fakeNode) bool { return f.Tallies.Evicted > 0 })
}

type pushName struct{ sender, sequence uint64 }

type appliedPush struct {
	at     int64
	grants map[wire.LimitCounter]int64
}

// randomCallout is a push on its way.
type randomCallout struct {
	life               *life
	node               *fakeNode
	ticket             engine.Ticket
	body, answer       []byte
	arrives, back, due int64 // 0 if it does not arrive, or not any more
	decided            int64
}

// randomRequest is a request, and what it asks for.
type randomRequest struct {
	engine.Wait
	world  *randomWorld
	life   *life
	node   *fakeNode
	checks []rule.Check
	users  []string
	began  int64
	done   bool // or it has gone
}

func newRandomWorld(t testing.TB, seed uint64, far bool, open openStore) *randomWorld {
	r := rand.New(rand.NewPCG(seed, 15))
	w := &randomWorld{
		far: far, world: newWorld(t, 0, 0, 0, engine.Options{}), seed: seed, lasting: seed%3 != 0,
		applied: map[pushName]appliedPush{}, senders: map[uint64]*life{}, hits: map[wire.LimitCounter]*randomCounter{},
	}
	w.random = r
	w.logs = w.lasting && !far && r.IntN(4) == 0
	w.now += r.Int64N(hour)
	w.store = open(t, func() time.Time { return time.Unix(0, w.now+w.storeOff) })
	w.options = engine.Options{
		Namespace:        fmt.Sprintf("world-%d-%d", seed, time.Now().UnixNano()),
		OnBackendFailure: pickOf(r, failure.Local, failure.Local, failure.Allow, failure.Deny),
		Capacity:         pickOf(r, 1<<12, 1<<12, 64),
		Timeout:          pickOf(r, second/5, second),
		KeySecret:        fmt.Sprint("secret of world ", seed),
	}
	if !w.lasting {
		w.options.OnBackendFailure = failure.Deny
	}
	if *worldHashes != "" {
		w.hashTo(*worldHashes)
	}
	w.users = pickOf(r, 1, 3, 10, 300)
	w.slow = pickOf(r, 0, second/1000, second/50, second/4)
	for i := range 1 + r.IntN(3) {
		w.rules = append(w.rules, w.newRule(i > 0 && r.IntN(4) == 0))
	}
	// A rule at 0 beside a rule that leases may count its rejected hits here or there.
	if slices.ContainsFunc(w.rules, func(r randomRule) bool { return r.rate != 0 }) {
		for i := range w.rules {
			w.rules[i].countRejected = w.rules[i].countRejected && w.rules[i].rate != 0
		}
	}
	lives := 5
	if far {
		lives = 9
	}
	for range 1 + r.IntN(lives) {
		w.begin()
	}
	return w
}

func pickOf[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// syncedRates are those with a backend.
var syncedRates = []int64{0, 0, second / 20, second, second, 5 * second}

// move gives a rule a rate.
func (r *randomRule) move(rate int64) {
	r.fakeRule = r.at(rate)
	r.wasLocal, r.wasSynced = r.wasLocal || rate < 0, r.wasSynced || rate >= 0
}

// newRule makes a rule, of each process by itself if it is local.
func (w *randomWorld) newRule(local bool) (rule randomRule) {
	r := w.random
	rule.together = r.IntN(3) == 0
	rule.move(pickOf(r, syncedRates...))
	if local {
		rule = randomRule{fakeRule: rule.here(), wasLocal: true}
	}
	tokens := false
	if w.far && !local && r.IntN(8) > 0 {
		return w.farRule()
	}
	for range 1 + r.IntN(3) {
		hits := pickOf[uint64](r, 1, 3, 10, 50, 101, 150, 300)
		shape := longest[r.IntN(len(longest))]
		for w.lasting && !w.logs && shape.Precision == window.LogPrecision {
			shape = longest[r.IntN(len(longest))]
		}
		if !w.lasting {
			width := pickOf(r, second, 3*second, 10*second, minute)
			shape.Width = width
			if shape.Precision == 150*day {
				shape.Precision = width / pickOf[int64](r, 2, 5, 10)
			}
		}
		tokens = tokens || shape.Kind == window.TokenBucket
		rule.limits = append(rule.limits, of(shape, hits))
		rule.most = append(rule.most, hits)
		rule.moved = append(rule.moved, map[string]uint64{})
	}
	window.SetOrdinals(rule.limits)
	rule.countRejected = w.lasting && !tokens && r.IntN(5) == 0
	rule.costsLater = w.lasting && !local && r.IntN(4) == 0
	if w.seed%5 == 2 && !local {
		rule.countRejected, rule.costsLater, rule.together = false, false, false
		rule.classes = []engine.Class{{Name: "interactive", Guaranteed: 500, Most: 1000}, {Name: "batch", Guaranteed: 100, Most: 400}}
	}
	return rule
}

// farRule makes a rule whose hits are advanced.
func (w *randomWorld) farRule() (rule randomRule) {
	r := w.random
	rule.together = r.IntN(6) == 0
	rule.move(pickOf(r, second/20, second/4, second, second))
	for range 1 + r.IntN(2) {
		l := limit(pickOf(r, window.FixedWindow, window.SlidingWindow), pickOf[uint64](r, 101, 150, 300, 1000), 300*day)
		if !w.lasting {
			l.Width = pickOf(r, 5*second, 20*second, minute)
		}
		rule.limits = append(rule.limits, l)
		rule.most = append(rule.most, l.Max)
		rule.moved = append(rule.moved, map[string]uint64{})
	}
	window.SetOrdinals(rule.limits)
	return rule
}

func (w *randomWorld) about() string {
	s := fmt.Sprintf("lasting %v, fallback %d, capacity %d, timeout %v, %d users, ways take up to %v, %d lives", w.lasting,
		w.options.OnBackendFailure, w.options.Capacity, time.Duration(w.options.Timeout), w.users, time.Duration(w.slow), len(w.lives))
	for i := range w.rules {
		s += fmt.Sprintf("\nrule %d: %+v", i, w.rules[i])
	}
	return s + fmt.Sprintf("\n%+v", w.happened)
}

// note keeps what happens, for whoever looks for the reason of a failure.
func (w *randomWorld) note(format string, args ...any) {
	const kept = 60
	if len(w.trace) > 2*kept {
		w.trace = append(w.trace[:0], w.trace[kept:]...)
	}
	w.trace = append(w.trace, fmt.Sprintf("%v: ", time.Duration(w.now-monday))+fmt.Sprintf(format, args...))
}

// begin starts a process of one or two workers.
func (w *randomWorld) begin() {
	l := &life{
		fakeProcess: &fakeProcess{world: w.world, random: rand.New(rand.NewPCG(w.seed, uint64(len(w.lives))+100))}, number: len(w.lives),
		next: map[*fakeNode]int64{}, heirs: map[*fakeNode]*fakeNode{}, counted: map[wire.LimitCounter]int64{}, has: map[wire.LimitCounter]int64{}, alone: map[*fakeNode]uint64{}, passed: map[*randomCounter]uint64{}, passedAlone: map[*randomCounter]uint64{},
	}
	w.lives = append(w.lives, l)
	for range 1 + w.random.IntN(2) {
		l.nodes = append(l.nodes, w.startNode(l, nil))
	}
	w.note("process %d starts", l.number)
}

// startNode starts a node, in the place of another unless before is nil.
func (w *randomWorld) startNode(l *life, before *engine.Engine) *fakeNode {
	var rules []fakeRule
	for i := range w.rules {
		rules = append(rules, w.rules[i].fakeRule)
	}
	options := w.options
	options.Before = before
	f := l.startOf(0, options, rules...)
	l.next[f] = w.now + w.random.Int64N(int64(f.tickMillis)*1e6)
	w.senders[f.Table().ID()] = l
	return f
}

// takers are the nodes that take requests.
func (l *life) takers() []*fakeNode {
	return slices.DeleteFunc(slices.Clone(l.nodes), func(f *fakeNode) bool { return l.heirs[f] != nil })
}

// alive are the processes that take requests.
func (w *randomWorld) alive() (lives []*life) {
	for _, l := range w.lives {
		if len(l.nodes) > 0 && !l.leaving {
			lives = append(lives, l)
		}
	}
	return lives
}

// run has things happen, and then has everything come to an end.
func (w *randomWorld) run() {
	w.running = true
	for range 600 + w.random.IntN(600) {
		w.happen()
		if w.random.IntN(20) == 0 {
			w.conserved()
		}
		switch w.random.IntN(12) {
		case 0:
			w.pass(w.random.Int64N(second))
		case 1, 2, 3, 4:
			w.pass(w.random.Int64N(second / 50))
		case 5:
			if w.random.IntN(20) == 0 {
				w.pass(w.random.Int64N(20 * second))
			}
		}
	}
	w.lossy, w.away = false, 0
	w.pass(10 * second)
	must.EqualOrEnd(w.t, len(w.waits()), 0, "requests wait for ever")
	w.conserved()
	for _, l := range w.alive() {
		w.leave(l)
	}
	w.pass(10 * second)
	w.finish()
	w.running = false
}

// happen has one thing happen.
func (w *randomWorld) happen() {
	r := w.random
	lives := w.alive()
	if len(lives) == 0 {
		w.begin()
		return
	}
	l := lives[r.IntN(len(lives))]
	switch n := r.IntN(1000); {
	case n < 880:
		for range 1 + r.IntN(1+r.IntN(20)) {
			w.request(l)
		}
	case n < 890:
		w.cancel(l)
	case n < 900:
		w.lossy = !w.lossy
	case n < 920:
		if len(w.messages) > 0 {
			w.duplicates++
			body := w.messages[r.IntN(len(w.messages))]
			for range 1 + r.IntN(2) {
				w.applyOnce(body)
			}
		}
	case n < 925 && len(w.lives) < 12:
		w.begin()
	case n < 930:
		w.crash(l)
	case n < 935:
		w.leave(l)
	case n < 945:
		w.replace(l)
	case n < 955:
		w.outages++
		w.away = w.now + pickOf(r, second, 3*second, 30*second, 11*minute)
		w.note("the backend is away for %v", time.Duration(w.away-w.now))
		if r.IntN(2) == 0 {
			w.pass(r.Int64N(w.away - w.now))
		}
	case n < 970 && w.lasting && !w.logs:
		w.jumps++
		jump := pickOf(r, second/2, 10*second, minute, hour)
		jump = r.Int64N(2*jump) - jump
		if r.IntN(2) == 0 {
			w.storeOff += jump
			w.note("the store's clock jumps by %v", time.Duration(jump))
		} else {
			l.off += jump
			l.jumped = true
			w.note("the clock of process %d jumps by %v", l.number, time.Duration(jump))
		}
	case n < 980 && w.lasting && !w.logs:
		w.change()
	case n < 990 && w.lasting:
		w.charge(l)
	case n < 995 && w.lasting && !w.logs:
		w.override()
	case w.lasting && !w.logs:
		w.moveRate()
	}
}

// request brings one to a process, of one or more rules.
func (w *randomWorld) request(l *life) {
	r := w.random
	f := pickOf(r, l.takers()...)
	q := &randomRequest{}
	if last := len(w.idle) - 1; last >= 0 {
		q, w.idle = w.idle[last], w.idle[:last]
	}
	*q = randomRequest{Wait: q.Wait, world: w, life: l, node: f, began: w.now}
	q.Request = q
	user := strconv.Itoa(r.IntN(w.users))
	for i := range f.options.Rules {
		if len(q.checks) > 0 && r.IntN(2) == 0 {
			continue
		}
		cost := uint64(1)
		switch n := r.IntN(10); {
		case n == 0:
			cost = r.Uint64N(4)
		case n == 1 && (!w.far || r.IntN(50) == 0):
			cost = 1 + r.Uint64N(f.rule(i).Limits[0].Max)
		}
		of := f.rule(i)
		if classes := len(of.Classes); classes > 0 {
			class := r.IntN(classes+1) - 1
			for place := range of.Places(class) {
				part := of.Place(class, place)
				q.checks = append(q.checks, rule.Check{Ref: rule.Ref{Rule: part, Cost: cost}, Key: f.key(i, part.Value)})
				q.users = append(q.users, part.Value)
			}
			continue
		}
		if of.Advances && r.IntN(4) == 0 {
			of = f.smaller(i)
		}
		q.checks = append(q.checks, rule.Check{Ref: rule.Ref{Rule: of, Cost: cost}, Key: f.key(i, user)})
		q.users = append(q.users, user)
	}
	w.requests++
	if f.HasRetries() {
		f.Retry(f.time())
	}
	checks := slices.Clone(q.checks)
	if verdict := f.Decide(checks, f.time(), &q.Wait); verdict != counter.Unsure {
		q.decided(checks, verdict, f.time())
	} else {
		w.waited++
		w.paused = append(w.paused, q)
	}
	w.collect(l, f)
}

// smaller is a rule with smaller limits for the same keys, as if a plan changed.
func (f *fakeNode) smaller(at int) *rule.Rule {
	if f.smallers == nil {
		f.smallers = make([]*rule.Rule, len(f.options.Rules))
	}
	if f.smallers[at] == nil {
		limits := slices.Clone(f.rule(at).Limits)
		for i := range limits {
			limits[i].Max -= limits[i].Max / 3
		}
		f.smallers[at] = f.rule(at).Variant(limits)
	}
	return f.smallers[at]
}

// Decided implements Request.
func (q *randomRequest) Decided(checks []rule.Check, now int64, verdict counter.Verdict) {
	q.world.inTime(q)
	q.decided(checks, verdict, now)
}

// waits returns the requests that wait. The memory of others is used again.
func (w *randomWorld) waits() []*randomRequest {
	w.paused = slices.DeleteFunc(w.paused, func(q *randomRequest) bool {
		if q.done {
			w.idle = append(w.idle, q)
		}
		return q.done
	})
	return w.paused
}

// cancel has requests go that wait, and others have their memory at once. The process may end
// meanwhile.
func (w *randomWorld) cancel(l *life) {
	for range w.random.IntN(5) {
		w.request(l)
	}
	for _, q := range w.waits() {
		if w.random.IntN(2) == 0 {
			q.done = true
			q.Leave()
			w.cancelled++
		}
	}
	w.waits()
	for range w.random.IntN(5) {
		w.request(l)
	}
	switch w.random.IntN(10) {
	case 0:
		w.replace(l)
	case 1:
		w.leave(l)
	}
}

// abandoned wants no request to wait for a node that has ended in good order.
func (w *randomWorld) abandoned(f *fakeNode) {
	for _, q := range w.waits() {
		if q.node == f {
			w.t.Fatalf("a request waits for a node that is gone")
		}
	}
}

// inTime says what is wrong if a request has waited for longer than it may: until the tick after its
// time is over, which comes soon. After a jump of the clock it may begin to wait anew.
func (w *randomWorld) inTime(q *randomRequest) {
	most := w.options.Timeout + 2e6
	if q.life.jumped {
		most *= 2
	}
	if waited := w.now - q.began; waited > most {
		w.t.Fatalf("a request has waited for %v, want %v at most", time.Duration(waited), time.Duration(most))
	}
}

// charge takes hits whether or not there is room, as responses do.
func (w *randomWorld) charge(l *life) {
	f := pickOf(w.random, l.takers()...)
	user := strconv.Itoa(w.random.IntN(w.users))
	for i := range f.options.Rules {
		if !f.rule(i).CostsLater {
			continue
		}
		d := f.check(i, user, 1+w.random.Uint64N(5))
		f.Force(&d, f.time())
		w.forced++
		id := f.id(i, user)
		for j := range f.rule(i).Limits {
			w.counter(id, f.rule(i), j, user)
			l.counted[rule.CounterOf(id, &f.rule(i).Limits[j], f.rule(i).Limits[j].Width)] += int64(d.Cost)
		}
	}
	w.collect(l, f)
}

// collect puts a node's pushes on their way.
func (w *randomWorld) collect(l *life, f *fakeNode) {
	l.next[f] = min(l.next[f], w.now+int64(f.tickMillis)*1e6)
	for _, p := range f.taken() {
		w.sent++
		c := &randomCallout{life: l, node: f, ticket: p.ticket, body: p.body, due: w.now + w.options.Timeout}
		way := func() int64 { return w.now + 1 + w.random.Int64N(w.slow+1) }
		c.arrives = way()
		if w.now < w.away || w.lossy && w.random.IntN(4) == 0 {
			w.lost++
			c.arrives = 0
			if w.random.IntN(3) == 0 { // it arrives when its sender has given up on it
				w.late++
				c.arrives = w.now + w.random.Int64N(minute)
			}
		}
		w.messages = append(w.messages, p.body)
		if len(w.messages) > 100 {
			w.messages = slices.Delete(w.messages, 0, 50)
		}
		w.callouts = append(w.callouts, c)
	}
}

// pass lets time pass, and what is due in it happen.
func (w *randomWorld) pass(nanos int64) {
	end := w.now + nanos
	for {
		at, do := end, func() {}
		for _, c := range w.callouts {
			for _, due := range []int64{c.arrives, c.back, c.due} {
				if due != 0 && due <= at {
					at, do = due, func() { w.step(c) }
				}
			}
		}
		for _, l := range w.lives {
			for _, f := range l.nodes {
				if next := l.next[f]; next < at {
					at, do = next, func() { w.tick(l, f) }
				}
			}
		}
		w.now = max(w.now, at)
		if do(); at >= end && at == w.now && !w.dueBy(end) {
			return
		}
	}
}

func (w *randomWorld) dueBy(end int64) bool {
	return slices.ContainsFunc(w.callouts, func(c *randomCallout) bool {
		return c.arrives != 0 && c.arrives <= end || c.back != 0 && c.back <= end || c.due != 0 && c.due <= end
	})
}

func (w *randomWorld) tick(l *life, f *fakeNode) {
	f.tick()
	l.next[f] = w.now + int64(f.tickMillis)*1e6
	w.collect(l, f)
	if (l.leaving || l.heirs[f] != nil) && f.Waits() {
		return
	}
	if l.leaving {
		f.Leave()
		w.collect(l, f)
	} else if l.heirs[f] != nil {
		w.inherit(l, f)
		return
	}
	if l.leaving && f.Left() {
		w.abandoned(f)
		if !f.Unfinished() {
			w.ends(l, f)
			if len(l.nodes) == 0 {
				w.gone(l)
			}
			return
		}
		w.note("process %d ends before it has left", l.number)
		w.ends(l, slices.Clone(l.nodes)...)
	}
}

// step takes a callout to where it is now.
func (w *randomWorld) step(c *randomCallout) {
	switch {
	case c.arrives != 0 && c.arrives <= w.now:
		c.arrives = 0
		c.answer, c.decided = w.applyOnce(c.body)
		if (!w.lossy || w.random.IntN(4) != 0) && w.now >= w.away {
			c.back = w.now + 1 + w.random.Int64N(w.slow+1)
		}
	case c.back != 0 && c.back <= w.now:
		c.back = 0
		w.end(c, link.PushAnswered)
	default:
		w.end(c, link.PushLost)
	}
	w.callouts = slices.DeleteFunc(w.callouts, func(c *randomCallout) bool { return c.arrives == 0 && c.due == 0 })
}

// end ends a callout, if there is still somebody who made it.
func (w *randomWorld) end(c *randomCallout, outcome link.Outcome) {
	if c.due == 0 {
		return
	}
	c.due, c.back = 0, 0
	if !slices.Contains(c.life.nodes, c.node) {
		return
	}
	if outcome == link.PushAnswered {
		w.answering = c.decided
	}
	c.node.Answered(c.ticket, outcome, c.answer)
	for c.answer != nil && w.random.IntN(10) == 0 { // again, or after it was given up
		w.doubled++
		w.answering = c.decided
		c.node.Answered(c.ticket, link.PushAnswered, c.answer)
	}
	w.answering = 0
	w.collect(c.life, c.node)
}

// sortNear sorts near keys, which the memory store has in no order.
func sortNear(n *wire.Near) {
	keys := make([]uint32, n.KeyCount())
	for i := range keys {
		keys[i] = n.Key(i)
	}
	slices.Sort(keys)
	n.Keys = n.Keys[:0]
	for _, key := range keys {
		n.AddKey(key)
	}
}

// applyOnce brings a push to the store, and keeps account of it. decided is when it came for the
// first time.
func (w *randomWorld) applyOnce(body []byte) (answer []byte, decided int64) {
	push, outcome := backendtest.Push(w.t, w.store, body)
	outcome.Answer.Overrides = backendtest.Tell(w.t, w.store, push)
	if w.seen != nil {
		sortNear(&outcome.Answer.Near)
	}
	answer = wire.AppendAnswer(nil, &outcome.Answer)
	name := pushName{push.Sender, push.Sequence}
	known, again := w.applied[name]
	if store.IsRead(push) {
		return answer, w.now
	}
	if outcome.Duplicate {
		// A push below its sender's floor is not wanted any more.
		w.again++
		return answer, known.at
	}
	if again {
		w.t.Fatalf("push %d of sender %x is applied twice", push.Sequence, push.Sender)
	}
	done := appliedPush{at: w.now, grants: map[wire.LimitCounter]int64{}}
	l := w.senders[push.Node]
	for i := range push.Items {
		for _, hits := range push.Items[i].Hits {
			l.has[push.Items[i].LimitCounter] += hits
		}
	}
	for i := range push.Takes {
		for j := range push.Takes[i].Rooms {
			room := &push.Takes[i].Rooms[j]
			hits := int64(outcome.Answer.Grants[i].Units * room.Cost)
			done.grants[room.LimitCounter] += hits
			l.has[room.LimitCounter] += hits
		}
	}
	w.applied[name] = done
	w.net += outcome.Applied - outcome.Returned
	if outcome.Dropped != 0 {
		w.dropped += uint64(outcome.Dropped)
		w.note("the store drops %d hits of process %d, push %d", outcome.Dropped, l.number, push.Sequence)
	}
	return answer, w.now
}

// crash ends a process. All that it knows is gone.
func (w *randomWorld) crash(l *life) {
	w.conservedBy(l)
	w.crashed++
	w.note("process %d crashes", l.number)
	w.paused = slices.DeleteFunc(w.paused, func(q *randomRequest) bool { return q.life == l })
	w.ends(l, slices.Clone(l.nodes)...)
}

// leave has a process end in good order.
func (w *randomWorld) leave(l *life) {
	w.left++
	w.note("process %d leaves", l.number)
	l.leaving = true
	for _, f := range l.nodes {
		f.Retry(f.time())
		if f.Waits() {
			w.stayed++
			continue
		}
		f.Leave()
		w.collect(l, f)
	}
}

// replace has a plugin context take the place of another.
func (w *randomWorld) replace(l *life) {
	w.replaced++
	for _, f := range l.takers() {
		heir := w.startNode(l, f.Engine)
		l.nodes = append(l.nodes, heir)
		l.heirs[f] = heir
		f.Retry(f.time())
		w.collect(l, f)
		if !f.Waits() {
			w.inherit(l, f)
		} else {
			w.stayed++
		}
	}
	w.note("process %d replaces its configuration", l.number)
}

// inherit has a node go whose place another node has taken.
func (w *randomWorld) inherit(l *life, f *fakeNode) {
	w.evicted += f.Tallies.Evicted
	w.advanced += f.Tallies.Advanced
	l.evicted = l.evicted || f.Tallies.Evicted > 0
	heir := l.heirs[f]
	for l.heirs[heir] != nil {
		heir = l.heirs[heir]
	}
	heir.Inherit(f.Engine)
	w.abandoned(f)
	l.nodes = slices.DeleteFunc(l.nodes, func(other *fakeNode) bool { return other == f })
}

// change has all processes get another limit, one after the other. Missing tokens of a bucket would
// be converted, and a class may lose its part of a bucket with its part of another limit.
func (w *randomWorld) change() {
	r := &w.rules[w.random.IntN(len(w.rules))]
	i := w.random.IntN(len(r.limits))
	if bucket := func(l window.Limit) bool { return l.Kind == window.TokenBucket }; bucket(r.limits[i]) || r.classes != nil && slices.ContainsFunc(r.limits, bucket) {
		return
	}
	w.changed++
	r.limits = slices.Clone(r.limits)
	r.limits[i].Max = pickOf[uint64](w.random, 1, 3, 10, 50, 101, 150, 300)
	r.most[i] = max(r.most[i], r.limits[i].Max)
	w.note("a limit becomes %d", r.limits[i].Max)
	for _, l := range w.alive() {
		w.replace(l)
		w.pass(w.random.Int64N(second))
	}
}

// moveRate has all processes synchronise a rule at another rate, or not any more, one after the other.
func (w *randomWorld) moveRate() {
	i := w.random.IntN(len(w.rules))
	r := &w.rules[i]
	exact := func(r randomRule) bool { return r.countRejected && r.rate == 0 } // none comes beside it
	if r.countRejected || r.costsLater || slices.ContainsFunc(w.rules, exact) {
		return
	}
	rates := syncedRates
	if i > 0 { // the first one needs the backend
		rates = append([]int64{-1, -1}, rates...)
	}
	r.move(pickOf(w.random, rates...))
	w.note("rule %d gets a rate of %v", i, time.Duration(r.rate))
	for _, l := range w.alive() {
		w.replace(l)
		w.pass(w.random.Int64N(second))
	}
}

// override has overrides come or go, while nodes hear of them in their own time. Missing tokens of
// a bucket would be converted.
func (w *randomWorld) override() {
	var list []wire.Override
	for i := range w.rules {
		r := &w.rules[i]
		tokens := slices.ContainsFunc(r.limits, func(l window.Limit) bool { return l.Kind == window.TokenBucket })
		for user := 0; user < w.users && user < 5; user++ {
			if tokens || (r.together || r.classes != nil) && user > 0 || w.random.IntN(2) == 0 {
				continue
			}
			o := wire.Override{Rule: fmt.Sprint("rule ", i)}
			name := ""
			switch {
			case r.classes != nil:
				o.Values = []string{""}
			case !r.together:
				name = strconv.Itoa(user)
				o.Values = []string{name}
			}
			for j := range r.limits {
				hits := pickOf[uint64](w.random, 0, 1, 5, 40, 120, 400)
				o.Limits = append(o.Limits, wire.OverrideLimit{Max: hits, WidthMillis: uint64(r.limits[j].Width / 1e6)})
				r.moved[j][name] = max(r.moved[j][name], hits)
			}
			list = append(list, o)
		}
	}
	backendtest.Set(w.t, w.store, w.options.Namespace, wire.List(list))
	w.overrides++
	w.note("%d overrides come", len(list))
}
