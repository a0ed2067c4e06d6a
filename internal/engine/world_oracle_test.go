package engine_test

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"weir/internal/counter"
	"weir/internal/engine/rule"
	"weir/internal/failure"
	"weir/internal/model"
	"weir/internal/must"
	"weir/internal/store"
	"weir/internal/wire"
	"weir/window"
)

// randomCounter holds what the oracle knows of a limit of a key.
type randomCounter struct {
	rule, limit int
	user        string
	part        uint64 // of a rule with classes, the largest limit that the part ever had
	admitted    uint64
	// died are hits that processes had passed which ended before the store knew of them. Nobody can
	// tell of those.
	died uint64
	// early are hits that passed alone in processes which ended before they knew of all others.
	early uint64
	// ahead are advanced hits that the backend had not counted when more than the limit passed: the
	// worker that advanced them knows of them, and other workers of its process do not.
	ahead uint64
	// ended are those that passed in processes which ended, and alone all that passed without the
	// backend.
	ended, alone uint64
	// here are hits that passed while each process counted by itself.
	here   uint64
	passed []passedHit
}

type passedHit struct {
	at     int64
	cost   uint64
	window int64 // the start of the window that it was counted in, if windows start with a hit
}

// decided notes what became of a request.
func (q *randomRequest) decided(checks []rule.Check, verdict counter.Verdict, now int64) {
	w, f := q.world, q.node
	if q.done {
		w.t.Fatalf("a request is decided twice")
	}
	q.done = true
	alone := f.Tallies.Alone != q.life.alone[f]
	q.life.alone[f] = f.Tallies.Alone
	if alone {
		w.alone++
	}
	if verdict == counter.Unsure {
		w.t.Fatalf("a request ends unsure")
	}
	if verdict == counter.Allowed {
		w.passed++
	} else {
		w.refused++
	}
	if alone && f.options.OnBackendFailure == failure.Deny && verdict == counter.Allowed {
		w.t.Fatalf("a request passes without the backend")
	}
	for i := range q.checks {
		d := &q.checks[i]
		if checks[i].Over {
			continue // of a class, whose hits another check has
		}
		if alone && f.options.OnBackendFailure != failure.Local && d.Rule.Synced() {
			if bound := f.Overshoot(d.Rule.Index); verdict == counter.Allowed && bound != window.MaxHits {
				w.t.Fatalf("what passes is not counted, and the overshoot bound of rule %d is %d", d.Rule.Index, bound)
			}
			continue
		}
		id := f.id(d.Rule.Index, q.users[i])
		for j := range d.Rule.Limits {
			c := w.counter(id, d.Rule, j, q.users[i])
			c.part = max(c.part, checks[i].Rule.Limits[j].Max)
			switch {
			case verdict == counter.Allowed:
				q.life.counted[rule.CounterOf(id, &d.Rule.Limits[j], d.Rule.Limits[j].Width)] += int64(d.Cost)
				q.life.passed[c] += d.Cost
				if alone {
					q.life.passedAlone[c] += d.Cost
					c.alone += d.Cost
				}
				if d.Rule.Synced() {
					at := now
					if d.Rule.Exact() && w.answering != 0 {
						at = w.answering
					}
					c.admit(w, f, d.Cost, at, &checks[i].Counter.States[j])
				} else if most := w.most(c); w.lasting && !w.rules[c.rule].wasSynced && uint64(q.life.counted[rule.CounterOf(id, &d.Rule.Limits[j], d.Rule.Limits[j].Width)]) > most && !d.Rule.CostsLater && !q.life.evicts() {
					w.t.Fatalf("rule %d, limit %d, user %s: more than %d hits passed in one process", c.rule, c.limit, c.user, most)
				} else {
					c.admitted += d.Cost
					c.here += d.Cost
				}
			case checks[i].Verdict == counter.Rejected && d.Rule.CountRejected && (d.Rule.SyncRate != 0 || alone) && checks[i].Counter.Possible(d.Cost):
				q.life.counted[rule.CounterOf(id, &d.Rule.Limits[j], d.Rule.Limits[j].Width)] += int64(d.Cost)
			}
		}
	}
}

func (w *randomWorld) counter(id [16]byte, r *rule.Rule, limit int, user string) *randomCounter {
	name := rule.CounterOf(id, &r.Limits[limit], r.Limits[limit].Width)
	c := w.hits[name]
	if c == nil {
		c = &randomCounter{rule: r.Index, limit: limit, user: user}
		w.hits[name] = c
	}
	return c
}

// admit notes hits that have passed, and says what is wrong if they are too many.
func (c *randomCounter) admit(w *randomWorld, f *fakeNode, cost uint64, now int64, s *window.State) {
	c.admitted += cost
	if !w.lasting {
		// The next window may have started by the time of an answer that is late, or none.
		if p := (passedHit{now, cost, s.Start}); now >= s.Start && (s.Start != 0 || !w.rules[c.rule].limits[c.limit].Kind.Started()) {
			c.passed = append(c.passed, p)
		}
		return
	}
	w.shared(c)
	most := w.most(c) + c.here
	if c.admitted <= most {
		return
	}
	told, early, anew := w.told(c.rule), w.early(c), w.anew(c)
	c.ahead = max(c.ahead, w.ahead(c))
	if c.admitted > most+told+c.died+early+anew+c.ahead {
		w.t.Fatalf("rule %d, limit %d, user %s: %d hits passed of %d, %d died with processes, %d came early, %d may be forgotten, %d were advanced and are not counted, and the overshoot bound is %d; %d nodes known, breaker open: %v",
			c.rule, c.limit, c.user, c.admitted, most, c.died, early, anew, c.ahead, told, f.Nodes(), f.BreakerOpen())
	}
	if told < window.MaxHits {
		w.above++
	}
}

// shared wants the parts of a limit together to be within the largest that it ever was, or to have passed
// with the backend away. Each part may be larger by a hit of a smaller limit.
func (w *randomWorld) shared(of *randomCounter) {
	r := &w.rules[of.rule]
	if r.classes == nil {
		return
	}
	most, admitted := max(r.most[of.limit], r.moved[of.limit][""])+uint64(len(r.classes)), uint64(0)
	for _, c := range w.hits {
		if c.rule == of.rule && c.limit == of.limit && !strings.HasSuffix(c.user, "+") {
			admitted += c.admitted
			most += c.here + c.died + w.early(c) + w.anew(c)
		}
	}
	if admitted > most && admitted > most+w.told(of.rule) {
		w.t.Fatalf("rule %d, limit %d: classes have %d hits of %d", of.rule, of.limit, admitted, most)
	}
}

// most is the largest that a limit ever was.
func (w *randomWorld) most(c *randomCounter) uint64 {
	r := &w.rules[c.rule]
	if r.classes != nil {
		return c.part
	}
	if r.together {
		return max(r.most[c.limit], r.moved[c.limit][""])
	}
	return max(r.most[c.limit], r.moved[c.limit][c.user])
}

// told is the largest overshoot bound that processes tell now, or told last if they have gone.
func (w *randomWorld) told(rule int) (bound uint64) {
	bound = w.rules[rule].toldLast
	for _, l := range w.lives {
		for _, f := range l.nodes {
			f.ReadLink() // as each tick does before it tells
			bound = max(bound, f.Overshoot(rule))
		}
	}
	return bound
}

// early are a counter's hits that passed alone in processes which do not know of all others yet, or
// not any more. Their bounds are too low. Nor do they tell of processes that have ended, of whose hits
// those that pass alone may not have heard.
func (w *randomWorld) early(c *randomCounter) (hits uint64) {
	hits = c.early + min(c.ended, c.alone)
	for _, l := range w.lives {
		if len(l.nodes) > 0 && !l.nodes[0].knows(w.present()) {
			hits += l.passedAlone[c]
		}
	}
	return hits
}

// anew are a counter's hits that passed alone in processes where keys had to make room: there it may
// have begun anew.
func (w *randomWorld) anew(c *randomCounter) (hits uint64) {
	for _, l := range w.lives {
		if l.evicts() {
			hits += l.passedAlone[c]
		}
	}
	return hits
}

// ahead are a counter's advanced hits that the backend has not counted, if some pass without it.
func (w *randomWorld) ahead(of *randomCounter) (hits uint64) {
	if of.alone == 0 {
		return 0
	}
	for _, l := range w.lives {
		for _, f := range l.nodes {
			f.OnCredit(func(sender, sequence uint64, item *wire.Item) {
				if _, applied := w.applied[pushName{sender, sequence}]; w.hits[item.LimitCounter] == of && !applied {
					for _, n := range item.Hits {
						hits += uint64(n)
					}
				}
			})
		}
	}
	return hits
}

// present is how many processes have not ended.
func (w *randomWorld) present() (n int) {
	for _, l := range w.lives {
		n += min(1, len(l.nodes))
	}
	return n
}

// knows reports whether a node's bound is for so many processes.
func (f *fakeNode) knows(processes int) bool {
	peak, _ := f.PassedAlone()
	return max(f.Nodes(), peak) >= uint64(processes)
}

// ends notes what a process tells last.
func (w *randomWorld) ends(l *life, nodes ...*fakeNode) {
	for _, f := range nodes {
		w.evicted += f.Tallies.Evicted
		w.advanced += f.Tallies.Advanced
		l.evicted = l.evicted || f.Tallies.Evicted > 0
		for i := range w.rules {
			f.ReadLink()
			if _, ever := f.PassedAlone(); ever {
				w.rules[i].toldLast = max(w.rules[i].toldLast, f.Overshoot(i))
			}
		}
	}
	if l.nodes = slices.DeleteFunc(l.nodes, func(f *fakeNode) bool { return slices.Contains(nodes, f) }); len(l.nodes) > 0 {
		return
	}
	for c, hits := range l.passed {
		c.ended += hits
	}
	if !nodes[0].knows(w.present() + 1) {
		for c, hits := range l.passedAlone {
			c.early += hits
		}
	}
	for name, c := range w.hits {
		if left := l.counted[name] - l.has[name]; left > 0 && w.rules[c.rule].wasSynced {
			c.died += uint64(left)
		}
	}
}

// conserved says what is wrong if hits were lost or doubled.
func (w *randomWorld) conserved() {
	if !w.lasting {
		return
	}
	for _, l := range w.lives {
		if len(l.nodes) > 0 {
			w.conservedBy(l)
		}
	}
}

// conservedBy wants what a process has counted to be what the store has applied of it, and what it
// still has to say, less what it has leased.
func (w *randomWorld) conservedBy(l *life) {
	if !w.lasting {
		return
	}
	wants, leased, pending := map[wire.LimitCounter]int64{}, map[wire.LimitCounter]int64{}, map[wire.LimitCounter]int64{}
	for c, hits := range l.has {
		wants[c] += hits
	}
	for _, f := range l.nodes {
		f.Unpushed(func(c wire.LimitCounter, hits int64) { pending[c] += hits })
		for _, p := range f.Pushes() {
			if p.Filling {
				return
			}
			done, applied := w.applied[pushName{p.Sender, p.Sequence}]
			if applied {
				for c, hits := range done.grants {
					leased[c] += hits
				}
				continue
			}
			push, err := wire.DecodePush(p.Body)
			must.OK(w.t, err)
			for i := range push.Items {
				for _, hits := range push.Items[i].Hits {
					pending[push.Items[i].LimitCounter] += hits
				}
			}
		}
	}
	f := l.nodes[0]
	for name, c := range w.hits {
		if !w.summed(c) {
			continue
		}
		state := &f.stored(c.rule, c.user).Counter.States[c.limit]
		add := func(h *window.Hits) {
			pending[name] += h.Pending
			leased[name] += int64(h.Lease)
		}
		if f.rule(c.rule).Limits[c.limit].Kind.Bucketed() {
			for i := range state.Buckets {
				add(&state.Buckets[i].Hits)
			}
		} else {
			for i := range state.Hits {
				add(&state.Hits[i])
			}
		}
	}
	for name, c := range w.hits {
		if !w.summed(c) {
			continue
		}
		if want := wants[name] + pending[name] - leased[name]; want < l.counted[name] || want > l.counted[name] && !given(name) {
			w.t.Fatalf("process %d has counted %d hits of rule %d, limit %d (%+v), user %s; the store has applied %d, %d are pending, and %d leased: %d are lost",
				l.number, l.counted[name], c.rule, c.limit, f.rule(c.rule).Limits[c.limit], c.user, wants[name], pending[name], leased[name], l.counted[name]-want)
		}
	}
}

// summed reports whether a counter's hits are all known to the backend, sooner or later.
func (w *randomWorld) summed(c *randomCounter) bool {
	return !w.rules[c.rule].wasLocal && w.rules[c.rule].limits[c.limit].Precision != window.LogPrecision
}

// given reports whether hits come back by themselves. A late grant of tokens is used only as far as
// they can't have come back since, so that a bucket gives less than it could.
func given(c wire.LimitCounter) bool { return window.Kind(c.Kind).Refills() }

// gone wants what a process that has left in good order has counted to be at the store.
func (w *randomWorld) gone(l *life) {
	if !w.lasting {
		return
	}
	for name, c := range w.hits {
		if w.summed(c) && (l.has[name] < l.counted[name] || l.has[name] > l.counted[name] && !given(name)) {
			w.t.Fatalf("process %d has left, and counted %d hits of rule %d, limit %d, user %s, of which the store has %d",
				l.number, l.counted[name], c.rule, c.limit, c.user, l.has[name])
		}
	}
}

// finish compares the store's sums, when all have left.
func (w *randomWorld) finish() {
	for _, l := range w.lives {
		if len(l.nodes) > 0 {
			w.t.Fatalf("process %d does not end: %s", l.number, l.nodes[0].left())
		}
	}
	for _, f := range w.nodes {
		if f.Tallies.Corrupt+f.Tallies.Lost > 0 {
			w.t.Fatalf("tallies %+v", f.Tallies)
		}
	}
	if !w.lasting {
		for _, c := range w.hits {
			w.judge(c)
		}
		return
	}
	sums, total := map[wire.LimitCounter]int64{}, int64(0)
	err := w.store.Counters(context.Background(), w.options.Namespace, nil, func(c store.LimitCounter) error {
		for _, in := range c.Windows {
			sums[c.LimitCounter] += in.Hits
			total += in.Hits
		}
		return nil
	})
	must.OK(w.t, err)
	if total != w.net && !w.logs {
		w.t.Fatalf("the store has %d hits, and has said that it applied %d", total, w.net)
	}
	for name, c := range w.hits {
		want := int64(0)
		for _, l := range w.lives {
			want += l.has[name]
		}
		if got := sums[name]; w.rules[c.rule].limits[c.limit].Precision == window.LogPrecision {
			continue
		} else if got < want || got > want+int64(w.dropped) && (!w.rules[c.rule].countRejected || w.rules[c.rule].rate != 0) {
			w.t.Fatalf("rule %d, limit %d, user %s: the store has %d hits, want %d", c.rule, c.limit, c.user, got, want)
		}
	}
}

// judgeWindows wants no more than a limit to pass in each of the windows that start with a hit. They
// start when the backend counts it, which is before it passes.
func (w *randomWorld) judgeWindows(c *randomCounter, l window.Limit) {
	slices.SortStableFunc(c.passed, func(a, b passedHit) int { return cmp.Compare(a.window, b.window) })
	start, sum := int64(0), uint64(0)
	for _, p := range c.passed {
		if p.cost > 0 && p.window-start >= l.Width {
			start, sum = p.window, 0
		}
		if sum += p.cost; sum > l.Max {
			w.t.Fatalf("rule %d, limit %d (%+v), user %s: at %v %d hits have passed in the window that starts at %v",
				c.rule, c.limit, l, c.user, time.Duration(p.at-monday), sum, time.Duration(start-monday))
		}
	}
}

// judge has the algorithm's definition look at all that has passed.
func (w *randomWorld) judge(c *randomCounter) {
	slices.SortStableFunc(c.passed, func(a, b passedHit) int { return cmp.Compare(a.at, b.at) })
	l := w.rules[c.rule].limits[c.limit]
	if l.Kind.Bucketed() {
		// A hit leaves a window after the backend has granted it, if it does not hear in time when the
		// hit has passed: answers come late, and pushes are lost. Then a lease may have lain for five
		// eighths of the window.
		late := w.options.Timeout + second/8
		if w.lost+w.outages > 0 {
			late = max(late, l.Width/8*5)
		}
		l.Width = max(1, l.Width-late) / l.Precision * l.Precision
		l.Width = max(l.Width, l.Precision)
	}
	m := &model.Counter{Limit: model.Limit{Max: l.Max, Burst: l.Burst, Window: l.Width, Precision: l.Precision}}
	switch l.Kind {
	case window.FixedWindow:
		m.Algorithm = model.FixedWindow
	case window.FirstHitWindow:
		w.judgeWindows(c, l)
		return
	case window.SlidingWindow:
		m.Algorithm = model.SlidingWindow
	case window.SlidingBuckets:
		m.Algorithm = model.SubBuckets
	case window.TokenBucket:
		m.Algorithm = model.TokenBucket
		// Parts of a token count. And a request that has waited passes when the answer comes: the
		// tokens that come back on the way may pass at once, too.
		late := min(w.options.Timeout, w.slow) + second/8
		m.Burst += 1 + uint64(late)*l.Max/uint64(l.Width)
	}
	for _, p := range c.passed {
		if !m.Fits(p.at, p.cost) {
			w.t.Fatalf("rule %d, limit %d (%+v), user %s: at %v %d hits passed that do not fit", c.rule, c.limit, l, c.user, time.Duration(p.at-monday), p.cost)
		}
		m.Take(p.at, p.cost)
	}
}
