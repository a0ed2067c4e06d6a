package engine_test

import (
	"context"
	"math"
	"slices"
	"strconv"
	"testing"
	"time"

	"weir/internal/backend/backendtest"
	"weir/internal/counter"
	"weir/internal/engine"
	"weir/internal/engine/entry"
	"weir/internal/engine/rule"
	"weir/internal/failure"
	"weir/internal/must"
	"weir/internal/store"
	"weir/internal/store/memory"
	"weir/internal/wire"
	"weir/window"
)

// parted is a store of three partitions, as a cluster has, of which all but the first may fail.
type parted struct {
	store.Store // the first
	others      [2]store.Store
	// fails says how others fail, Answered if they don't. A part in doubt was applied or not.
	fails   [2]wire.Missing
	applies func() bool
	// copies says that another backend, which reaches the partitions, may get pushes first, and its answers
	// get lost.
	copies bool
	// slow says that takes of several partitions are in doubt.
	slow bool
}

func part(w *world) *parted {
	s := &parted{Store: w.store, applies: func() bool { return false }}
	for i := range s.others {
		s.others[i] = memory.New(memory.Options{Now: func() time.Time { return time.Unix(0, w.now) }})
	}
	w.store = s
	return s
}

// partition returns the partition of a key: 0 for the first, or one more than the other's index.
func partition(id wire.ID) int { return int(id.Partition()) % 3 }

// holds reports whether a partition has all rooms of a take.
func holds(which int, t *wire.Take) bool {
	return !slices.ContainsFunc(t.Rooms, func(r wire.Room) bool { return partition(r.ID) != which })
}

// Push implements store.Store.
func (s *parted) Push(ctx context.Context, p *wire.Push, nodes uint64) (out store.Outcome, err error) {
	out.Answer = wire.Answer{
		NowNanos: math.MaxUint64, Nodes: nodes, Totals: make([]wire.Total, len(p.Items)), Grants: make([]wire.Grant, len(p.Takes)),
	}
	for which := range 3 {
		of, _ := store.Divide(p, func(item *wire.Item) bool { return partition(item.ID) == which }, func(take *wire.Take) bool { return holds(which, take) })
		at, fails := s.Store, wire.Answered
		if which > 0 {
			at, fails = s.others[which-1], s.fails[which-1]
		}
		lacks := fails != wire.Answered
		if lacks {
			of.Lack(&out.Answer, fails)
		}
		if lacks && (fails == wire.NotApplied && !s.copies || !s.applies()) {
			continue
		}
		done, err := at.Push(ctx, &of.Push, nodes)
		if err != nil {
			return out, err
		}
		if !lacks {
			out.Answer.NowNanos = done.Answer.NowNanos
			of.Join(&out.Answer, &done.Answer)
		}
	}
	shared, _ := store.Divide(p, func(*wire.Item) bool { return false }, func(take *wire.Take) bool { return !holds(partition(take.Rooms[0].ID), take) })
	return out, s.share(ctx, shared, nodes, &out.Answer)
}

// share applies the takes of several partitions, which have room. If one of the partitions fails, the answer lacks all of them.
func (s *parted) share(ctx context.Context, p *store.Part, nodes uint64, answer *wire.Answer) error {
	fails := wire.Answered
	if s.slow {
		fails = wire.InDoubt
	}
	grants := make([]wire.Grant, len(p.Takes))
	for i := range p.Takes {
		rooms := p.Takes[i].Rooms
		grants[i].Totals = make([]wire.Total, len(rooms))
		for j := range rooms {
			if which := partition(rooms[j].ID); which > 0 {
				fails = max(fails, s.fails[which-1])
			}
		}
	}
	lacks := fails != wire.Answered
	if lacks {
		p.Lack(answer, fails)
	}
	if lacks && (fails == wire.NotApplied && !s.copies || !s.applies()) {
		return nil
	}
	for which, at := range []store.Store{s.Store, s.others[0], s.others[1]} {
		of := p.Push
		of.Sender++ // it has had another part of the push
		of.Takes = nil
		var rooms [][2]int
		for i, t := range p.Takes {
			for j := range t.Rooms {
				if partition(t.Rooms[j].ID) == which {
					of.Takes = append(of.Takes, wire.Take{Least: t.Least, Most: t.Most, Rooms: t.Rooms[j : j+1]})
					rooms = append(rooms, [2]int{i, j})
				}
			}
		}
		if len(rooms) == 0 {
			continue
		}
		done, err := at.Push(ctx, &of, nodes)
		if err != nil {
			return err
		}
		for n, room := range rooms {
			grant, to := &done.Answer.Grants[n], &grants[room[0]]
			to.Units, to.AtNanos, to.Totals[room[1]] = grant.Units, grant.AtNanos, grant.Totals[0]
		}
		answer.NowNanos = done.Answer.NowNanos
	}
	if !lacks {
		p.Join(answer, &wire.Answer{Grants: grants})
	}
	return nil
}

// Counters implements store.Store.
func (s *parted) Counters(ctx context.Context, namespace string, only *store.Wanted, visit func(store.LimitCounter) error) error {
	if err := s.Store.Counters(ctx, namespace, only, visit); err != nil {
		return err
	}
	for _, other := range s.others {
		if err := other.Counters(ctx, namespace, only, visit); err != nil {
			return err
		}
	}
	return nil
}

// Two of three partitions fail. Keys of the first are decided by the backend as ever, however many
// of the others ask, and for however long; those of the others as the configuration says.
func TestOnlyWhatAPartitionHolds(t *testing.T) {
	for _, rate := range []int64{0, second} {
		for _, fallback := range []failure.Mode{failure.Local, failure.Deny} {
			testOnlyWhatAPartitionHolds(t, rate, fallback, 0)
			testOnlyWhatAPartitionHolds(t, rate, fallback, 1) // a hit more at each response
		}
	}
}

func testOnlyWhatAPartitionHolds(t *testing.T, rate int64, fallback failure.Mode, charge uint64) {
	const rounds, each, most = 200, 20, wire.Partitions
	w := newWorld(t, 1, 2, rate, engine.Options{OnBackendFailure: fallback}, users(long))
	s := part(w)
	s.fails = [2]wire.Missing{wire.NotApplied, wire.NotApplied}
	var asked, allowed [2]int
	for round := range rounds {
		for key := range each {
			user, of := strconv.Itoa(key*(1+round/20)), 0 // others join in
			f := w.any()
			if partition(f.id(0, user)) > 0 {
				of = 1
			}
			if asked[of]++; f.send(user) {
				allowed[of]++
			}
			if charge > 0 {
				f.force(user, charge)
			}
		}
		w.advance(100 * time.Millisecond)
		for _, f := range w.nodes {
			if f.BreakerOpen() || f.Backlog().Pushes > most {
				t.Fatalf("rate %d, charge %d, round %d: the breaker is open: %v; %d batches without an answer", rate, charge, round, f.BreakerOpen(), f.Backlog().Pushes)
			}
		}
	}
	want := asked
	if fallback == failure.Deny {
		want[1] = 0
	}
	must.Equal(t, allowed, want, "rate %d, fallback %d, charge %d: of the partitions' %v, allowed", rate, fallback, charge, asked)
	must.AtLeast(t, asked[1], 1, "asked of the second")
	s.fails = [2]wire.Missing{}
	w.quiet()
	must.Equal(t, w.sum(), int64(allowed[0]+allowed[1]+int(charge)*rounds*each), "rate %d, fallback %d, charge %d: hits counted, and passed or charged", rate, fallback, charge)
}

// Hits of evicted counters that wait for partitions that are away leave room to those of others.
func TestOrphansLeaveRoomToOtherPartitions(t *testing.T) {
	w := newWorld(t, 1, 1, second, engine.Options{Capacity: 16}, users(long))
	s := part(w)
	s.fails = [2]wire.Missing{wire.NotApplied, wire.NotApplied}
	var sent [2]int64
	for i := range 9000 {
		user := strconv.Itoa(i)
		sent[min(partition(w.nodes[0].id(0, user)), 1)]++
		w.nodes[0].charge(user)
		if i%10 == 0 {
			w.advance(100 * time.Millisecond)
		}
	}
	s.fails = [2]wire.Missing{}
	w.quiet()
	healthy := backendtest.Sum(t, s.Store, "default")
	must.Equal(t, healthy, sent[0], "hits of the partition that was there")
	lost := w.tallied(func(t *entry.Tallies) uint64 { return t.Lost })
	if all := w.sum(); all+int64(lost) != sent[0]+sent[1] || lost == 0 {
		t.Errorf("of %d hits %d are counted and %d lost", sent, all, lost)
	}
}

// Requests are of two keys. Those whose partitions are there are decided by the backend as ever, once it is known which are not: an
// answer that lacks a question does not tell, and lacks others besides.
func TestQuestionsOfTwoPartitions(t *testing.T) {
	const most = 200
	for _, fallback := range []failure.Mode{failure.Local, failure.Deny} {
		w := newWorld(t, 1, 2, 0, engine.Options{OnBackendFailure: fallback}, users(long), users(long))
		s := part(w)
		s.fails = [2]wire.Missing{wire.NotApplied, wire.NotApplied}
		var requests, healthy []*fakeRequest
		for round := range most {
			for range 20 {
				f, user := w.any(), strconv.Itoa(w.random.IntN(500))
				r, verdict := f.request(user)
				if verdict != counter.Unsure {
					r.verdicts = append(r.verdicts, verdict)
				}
				if requests = append(requests, r); round >= most/2 && partition(f.id(0, user))+partition(f.id(1, user)) == 0 {
					healthy = append(healthy, r)
				}
			}
			w.advance(20 * time.Millisecond)
			for _, f := range w.nodes {
				for of := range wire.Partitions {
					if away := f.Away()&(1<<of) != 0; away != (of%3 != 0) && round >= most/2 {
						t.Fatalf("fallback %d, round %d: partition %d is away: %v", fallback, round, of, away)
					}
				}
				if f.BreakerOpen() || f.Backlog().Pushes > 3*wire.Partitions/2 {
					t.Fatalf("fallback %d, round %d: the breaker is open: %v; %d batches without an answer", fallback, round, f.BreakerOpen(), f.Backlog().Pushes)
				}
			}
		}
		s.fails = [2]wire.Missing{}
		w.quiet()
		must.Equal(t, allowed(healthy), len(healthy), "fallback %d: requests pass whose partitions are there", fallback)
		must.Equal(t, w.sum(), int64(2*allowed(requests)), "fallback %d: hits counted of requests that passed", fallback)
		w.wantNothingLeft("fallback %d", fallback)
	}
}

// A partition that is away decides nothing about a request's keys in others: the limit that is there holds, and takes no hits of a
// request that is refused because of the other.
func TestOthersThanALostPartition(t *testing.T) {
	const limited = 20
	for _, rate := range []int64{0, second} {
		for _, fallback := range []failure.Mode{failure.Local, failure.Allow, failure.Deny} {
			w := newWorld(t, 1, 2, rate, engine.Options{OnBackendFailure: fallback}, users(long), users(limit(window.FixedWindow, limited, 300*day)))
			s := part(w)
			s.fails = [2]wire.Missing{wire.NotApplied, wire.NotApplied}
			f, user, other := w.nodes[0], "", ""
			for i := 0; user == "" || other == ""; i++ {
				name := strconv.Itoa(i)
				switch lost := f.id(0, name).Partition(); {
				case user == "" && partition(f.id(0, name)) > 0 && partition(f.id(1, name)) == 0:
					user = name
				case user != "" && lost == f.id(0, user).Partition() && lost == f.id(1, name).Partition():
					other = name
				}
			}
			for _, f := range w.nodes {
				for round := 0; !f.Away().Has(f.id(0, user)); round++ { // the node learns that it is
					must.EqualOrEnd(t, round < 100, true, "the partition is known to be away in time")
					f.request(other)
					w.advance(20 * time.Millisecond)
				}
			}
			passed := 0
			for range 4 * limited {
				r, verdict := w.any().request(user)
				w.advance(20 * time.Millisecond)
				if verdict == counter.Allowed || slices.Contains(r.verdicts, counter.Allowed) {
					passed++
				}
			}
			least, most := limited/2, limited
			if fallback == failure.Deny {
				least, most = 0, 0
			}
			must.Between(t, passed, least, most, "rate %d, fallback %d: requests that passed", rate, fallback)
			s.fails = [2]wire.Missing{}
			w.quiet()
			w.wantNothingLeft("rate %d, fallback %d", rate, fallback)
		}
	}
}

// A server answers questions of one partition in time, and never those of several: only these are decided without it, and few of them
// wait to be repeated.
func TestLateForSeveralPartitions(t *testing.T) {
	w := newWorld(t, 1, 1, 0, engine.Options{OnBackendFailure: failure.Allow}, users(long), users(long))
	s := part(w)
	s.slow = true
	f, lone := w.nodes[0], 0
	for round := range 200 {
		for range 20 {
			f.request(strconv.Itoa(w.random.IntN(500)))
		}
		w.advance(20 * time.Millisecond)
		if n := f.Backlog().Pushes; n > wire.Partitions || f.BreakerOpen() {
			t.Fatalf("round %d: the breaker is open: %v; %d batches without an answer", round, f.BreakerOpen(), n)
		}
	}
	must.Equal(t, f.Away(), 0, "partitions without a push")
	for user := range 500 {
		user := strconv.Itoa(user)
		if f.id(0, user).Partition() == f.id(1, user).Partition() {
			r, verdict := f.request(user)
			must.EqualOrEnd(t, verdict, counter.Unsure, "a question of one partition")
			w.advance(20 * time.Millisecond)
			must.Same(t, r.verdicts, []counter.Verdict{counter.Allowed}, "its verdict")
			lone++
		}
	}
	must.Equal(t, lone > 0, true, "there are such questions")
}

// Partitions fail in every way, and come back, again and again: each hit is counted once, whether
// counters stay or make room for others.
func TestPartitionsExactlyOnce(t *testing.T) {
	for _, capacity := range []int{0, 16} {
		for _, rate := range []int64{0, second / 10} {
			for _, rules := range []int{1, 2} {
				testPartitionsExactlyOnce(t, capacity, rate, rules, false)
				testPartitionsExactlyOnce(t, capacity, rate, rules, true)
			}
		}
	}
}

func testPartitionsExactlyOnce(t *testing.T, capacity int, rate int64, rules int, copies bool) {
	w := newWorld(t, 2, 2, rate, engine.Options{Capacity: capacity}, slices.Repeat([]fakeRule{users(long)}, rules)...)
	s := part(w)
	s.copies = copies
	s.applies = func() bool { return w.random.IntN(2) == 0 }
	var passed int64
	var waiting []*fakeRequest
	for step := range 1000 {
		if step%10 == 0 {
			s.fails = [2]wire.Missing{wire.Missing(w.random.IntN(3)), wire.Missing(w.random.IntN(3))}
			w.lossBefore, w.lossAfter = float64(w.random.IntN(2))*0.2, float64(w.random.IntN(2))*0.2
		}
		f := w.any()
		for range 12 { // of which some are asked for together
			r, verdict := f.request(strconv.Itoa(w.random.IntN(60)))
			if waiting = append(waiting, r); verdict == counter.Allowed {
				passed++
			}
		}
		w.advance(20 * time.Millisecond)
		for _, f := range w.nodes {
			for of := range wire.Partitions {
				if away := f.Away()&(1<<of) != 0; away && of%3 == 0 && rules == 1 { // others may be suspected for a while
					t.Fatalf("capacity %d, rate %d, %d rules, copies %v: partition %d gets no push, which never fails", capacity, rate, rules, copies, of)
				}
			}
		}
	}
	s.fails = [2]wire.Missing{}
	w.quiet()
	passed += int64(allowed(waiting))
	must.Equal(t, w.sum(), int64(rules)*passed, "capacity %d, rate %d, %d rules, copies %v: hits counted of %d requests that passed", capacity, rate, rules, copies, passed)
	must.Equal(t, w.tallied(func(t *entry.Tallies) uint64 { return t.Lost }), 0, "capacity %d, rate %d, %d rules, copies %v: hits given up", capacity, rate, rules, copies)
}

// Partitions stay away for longer than a backend remembers a sender's pushes. Their missing hits
// are counted once when they are back.
func TestAwayForLong(t *testing.T) {
	w := newWorld(t, 1, 1, second/100, engine.Options{}, users(long))
	s := part(w)
	s.fails = [2]wire.Missing{wire.NotApplied, wire.InDoubt}
	s.applies = func() bool { return w.random.IntN(2) == 0 }
	f, allowed, pushes := w.any(), int64(0), w.pushes
	for w.pushes < pushes+2*engine.MaxBehind {
		for key := range 8 {
			count(&allowed, f.send(strconv.Itoa(key)))
		}
		w.advance(20 * time.Millisecond)
	}
	s.fails = [2]wire.Missing{}
	w.quiet()
	must.Equal(t, w.sum(), allowed, "hits counted, and passed")
	must.Equal(t, w.tallied(func(t *entry.Tallies) uint64 { return t.Lost }), 0, "given up")
}

// An answer that lacks a question for keys of two partitions does not tell which of them is away. It is the one that the answer lacks
// besides, or that is known to be away by then; else both are taken for it.
func TestWhichPartitionAQuestionLacks(t *testing.T) {
	for name, test := range map[string]struct {
		other, together, both bool // whether another question is for the first key alone, and is in the same push; whether both are away
	}{
		"alone":                       {false, false, true},
		"beside one of the first key": {true, true, false},
		"after one of the first key":  {true, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			w, f := joined(t, 0, engine.Options{}, users(long), users(long))
			s, user := part(w), "0"
			for i := 0; partition(f.id(0, user)) == 0 || partition(f.id(1, user)) != 0; i++ {
				user = strconv.Itoa(i)
			}
			s.fails = [2]wire.Missing{wire.NotApplied, wire.NotApplied}
			ask := func(rules ...int) {
				var checks []rule.Check
				for _, at := range rules {
					checks = append(checks, f.check(at, user, 1))
				}
				must.Equal(t, f.Decide(checks, f.time(), &newRequest().Wait), counter.Unsure, "hits of rules %v", rules)
			}
			asks := func() {
				if test.other {
					ask(0)
				}
				ask(0, 1)
			}
			if test.together {
				f.Together(asks)
				f.Engine.Send()
			} else {
				asks()
			}
			f.answerAll()
			away := wire.PartitionOf(f.id(0, user))
			if test.both {
				away |= wire.PartitionOf(f.id(1, user))
			}
			must.Equal(t, f.Away(), away, "partitions that are away")
		})
	}
}
