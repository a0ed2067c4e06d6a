package engine_test

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"hash"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"weir/internal/backend"
	"weir/internal/backend/backendtest"
	"weir/internal/counter"
	"weir/internal/engine"
	"weir/internal/engine/entry"
	"weir/internal/engine/link"
	"weir/internal/engine/rule"
	"weir/internal/must"
	"weir/internal/store"
	"weir/internal/wire"
	"weir/sharedata"
	"weir/window"
)

const (
	second = int64(1e9)
	minute = 60 * second
	hour   = 60 * minute
	day    = 24 * hour
	monday = 1_767_571_200 * second
)

// limit is a limit of so many hits in a window. A bucket holds the same number of tokens.
func limit(kind window.Kind, hits uint64, width int64) window.Limit {
	l := window.Limit{Shape: window.Shape{Kind: kind, Width: width}, Max: hits}
	if kind.Bursts() {
		l.Burst = hits
	}
	return l
}

// fixed is so many hits in an hour of the clock.
func fixed(hits uint64) window.Limit { return limit(window.FixedWindow, hits, hour) }

// sliding is so many hits in an hour.
func sliding(hits uint64) window.Limit { return limit(window.SlidingWindow, hits, hour) }

// longest has windows so long that none ends, and so that a token needs longer to come back than a
// test lasts, of every algorithm.
var longest = []window.Shape{
	{Kind: window.FixedWindow, Width: 300 * day},
	{Kind: window.SlidingWindow, Width: 300 * day},
	{Kind: window.FirstHitWindow, Width: 300 * day},
	{Kind: window.SlidingBuckets, Width: 300 * day, Precision: 150 * day},
	{Kind: window.SlidingBuckets, Width: 300 * day, Precision: window.LogPrecision},
	{Kind: window.TokenBucket, Width: 300 * day},
}

// of is a limit of a shape.
func of(s window.Shape, hits uint64) window.Limit {
	l := limit(s.Kind, hits, s.Width)
	l.Precision = s.Precision
	return l
}

// fakeRule is a rule, and whom it counts: each user, or all together.
type fakeRule struct {
	limits        []window.Limit
	together      bool
	countRejected bool
	marks         bool
	costsLater    bool
	own           bool  // whether it has a rate of its own
	rate          int64 // if so
	shadow        bool
	reveal        uint8
	warnAt        []uint16
	delay         rule.Delay
	classes       []rule.Class // whose parts have the place of users
}

// at is the rule with a rate of its own.
func (r fakeRule) at(rate int64) fakeRule {
	r.own, r.rate = true, rate
	return r
}

// here is the rule, counted in each process by itself.
func (r fakeRule) here() fakeRule { return r.at(-1) }

func users(limits ...window.Limit) fakeRule { return fakeRule{limits: limits} }

func all(limits ...window.Limit) fakeRule { return fakeRule{limits: limits, together: true} }

// world is some processes and a backend, on one clock.
type world struct {
	t         testing.TB
	now       int64
	runs      int64 // by how much each look at the clock finds it further, as at a real one
	store     store.Store
	teller    *backend.Backend     // takes messages about usage, unless it is nil
	senders   map[uint64]*fakeNode // of these messages: the first to send any
	processes []*fakeProcess
	nodes     []*fakeNode // of all processes
	random    *rand.Rand
	// lossBefore and lossAfter are the shares of pushes that are lost before or after they were
	// applied.
	lossBefore, lossAfter float64
	// pushes were made, of which questions were of nothing else than what is new.
	pushes, questions int
	zombies           [][]byte // pushes whose senders gave up on them
	takes             uint64   // of a sender that is no node
	// holds has polls wait for a list, and cuts that they are lost.
	holds, cuts bool
	// seen, if it is not nil, takes all messages and all writes to shared data.
	seen hash.Hash
}

// fakeProcess is a process with several nodes, and what they share.
type fakeProcess struct {
	*world
	sharedata.Map
	off    int64 // its clock, from the world's
	random *rand.Rand
	// before runs ahead of each access to shared data, with the node that makes it.
	before func(f *fakeNode, op string)
}

// newWorld has processes with so many nodes each, whose rules have a rate, but for those that have
// their own.
func newWorld(t testing.TB, processes, nodes int, rate int64, options engine.Options, rules ...fakeRule) *world {
	t.Helper()
	w := &world{t: t, now: monday, random: rand.New(rand.NewPCG(11, 3))}
	w.store = emptyStore(w)
	for i := range processes {
		p := &fakeProcess{world: w, random: rand.New(rand.NewPCG(7, uint64(i)+3))}
		w.processes = append(w.processes, p)
		for range nodes {
			p.startOf(rate, options, rules...)
		}
	}
	return w
}

// alone is a world of one node.
func alone(t testing.TB, rate int64, options engine.Options, rules ...fakeRule) (*world, *fakeNode) {
	t.Helper()
	w := newWorld(t, 1, 1, rate, options, rules...)
	return w, w.nodes[0]
}

// joined is a world of one node, which has heard from its backend.
func joined(t testing.TB, rate int64, options engine.Options, rules ...fakeRule) (*world, *fakeNode) {
	t.Helper()
	w, f := alone(t, rate, options, rules...)
	w.advance(time.Second)
	return w, f
}

// newProcess is the only one of its world.
func newProcess(t testing.TB) *fakeProcess {
	return newWorld(t, 1, 0, 0, engine.Options{}).processes[0]
}

// start makes a node with one rule, in the namespace default.
func (p *fakeProcess) start(syncRate int64, limits ...window.Limit) *fakeNode {
	p.t.Helper()
	return p.startOf(syncRate, engine.Options{}, users(limits...))
}

// startOf makes a node whose rules have a rate, but for those that have their own.
func (p *fakeProcess) startOf(rate int64, options engine.Options, rules ...fakeRule) *fakeNode {
	p.t.Helper()
	f := &fakeNode{process: p, settle: p.deliver, counts: rules, checks: make([]rule.Check, len(rules))}
	options.Data, options.Random, options.Host, options.Owner = f, p.random.Uint64, f, f
	if options.Timeout == 0 {
		options.Timeout = second / 5
	}
	if options.Namespace == "" {
		options.Namespace = "default"
	}
	if options.Capacity == 0 {
		options.Capacity = 1 << 16
	}
	options.Rules = nil
	for i, r := range rules {
		if !r.own {
			r.rate = rate
		}
		options.Rules = append(options.Rules, rule.Rule{
			Rule: counter.Rule{Limits: slices.Clone(r.limits)}, SyncRate: r.rate, Prefix: f.prefix(i), CountRejected: r.countRejected, Marks: r.marks,
			CostsLater: r.costsLater, Classes: r.classes,
			Shadow: r.shadow, Reveal: r.reveal, WarnAt: r.warnAt, Delay: r.delay,
		})
	}
	f.options, f.identities = options, counter.NewIdentities(options.KeySecret)
	f.Engine = must.Get(engine.New(&options))(p.t)
	f.tickMillis = f.TickMillis()
	p.nodes = append(p.nodes, f)
	return f
}

// see adds b to the hash of what nodes sent and wrote.
func (w *world) see(b []byte) {
	if w.seen != nil {
		_, _ = w.seen.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(b))))
		_, _ = w.seen.Write(b)
	}
}

// pass lets time pass.
func (w *world) pass(d time.Duration) { w.now += int64(d) }

// advance lets time pass, ticks every node, and carries pushes to the backend and answers back.
func (w *world) advance(d time.Duration) {
	w.pass(d)
	for _, i := range w.random.Perm(len(w.nodes)) {
		w.nodes[i].tick()
	}
	for _, i := range w.random.Perm(len(w.nodes)) {
		w.deliver(w.nodes[i])
	}
}

// often advances a world or a node so many times.
func often(n int, advance func(time.Duration), by time.Duration) {
	for range n {
		advance(by)
	}
}

// quiet waits until there is nothing to do any more.
func (w *world) quiet() {
	w.lossBefore, w.lossAfter = 0, 0
	often(400, w.advance, 500*time.Millisecond)
}

// deliver brings a node's pushes to the backend, and their answers back.
func (w *world) deliver(f *fakeNode) {
	pushes := f.taken()
	w.random.Shuffle(len(pushes), func(i, j int) { pushes[i], pushes[j] = pushes[j], pushes[i] })
	for _, p := range pushes {
		if p.ticket.Patience() > 0 {
			if w.holds && w.held(p) {
				f.sent = append(f.sent, p)
				continue
			} else if w.cuts {
				f.lose(p)
				continue
			}
		}
		w.pushes++
		if asked(p) {
			w.questions++
		}
		if w.random.Float64() < w.lossBefore {
			w.zombies = append(w.zombies, p.body)
			f.Answered(p.ticket, link.PushLost, nil)
			continue
		}
		answer := w.apply(p.body)
		if w.random.Float64() < w.lossAfter {
			f.Answered(p.ticket, link.PushLost, nil)
			continue
		}
		f.Answered(p.ticket, link.PushAnswered, answer)
	}
}

// held reports whether the answer to a poll is to wait, as a backend sees it.
func (w *world) held(p fakePush) bool {
	push, err := wire.DecodePush(p.body)
	must.OK(w.t, err)
	backendtest.Tell(w.t, w.store, push) // which notes what the node knows
	_, version, err := w.store.Overrides(context.Background(), "default", 1)
	must.OK(w.t, err)
	return wire.Polls(p.body) && version == push.Known.Version && w.now < p.at+wire.LongestPoll
}

// apply brings a message to the backend, and returns its answer.
func (w *world) apply(body []byte) (answer []byte) {
	w.t.Helper()
	if w.teller != nil && wire.IsUsed(body) {
		return must.Get(w.teller.Push(w.t.Context(), body))(w.t).Body
	}
	return backendtest.Answer(w.t, w.store, body)
}

// sum is all hits that the backend has of the namespace default.
func (w *world) sum() (sum int64) {
	w.t.Helper()
	return backendtest.Sum(w.t, w.store, "default")
}

// wantSum wants the backend to have so many hits.
func (w *world) wantSum(want int64, when string, args ...any) {
	w.t.Helper()
	backendtest.WantSum(w.t, w.store, want, fmt.Sprintf(when, args...))
}

// wantNothingLeft wants no node to have anything to do.
func (w *world) wantNothingLeft(when string, args ...any) {
	w.t.Helper()
	for i, f := range w.nodes {
		must.Equal(w.t, f.left(), "", "%s: node %d has left", fmt.Sprintf(when, args...), i)
	}
}

func (w *world) any() *fakeNode { return w.nodes[w.random.IntN(len(w.nodes))] }

// tallied is the sum of a tally over all nodes.
func (w *world) tallied(of func(t *entry.Tallies) uint64) (sum uint64) {
	for _, f := range w.nodes {
		sum += of(&f.Tallies)
	}
	return sum
}

// fakeNode is a node and its host. Pushes stay with it until they are delivered.
type fakeNode struct {
	*engine.Engine
	options    engine.Options
	identities counter.Identities
	process    *fakeProcess
	counts     []fakeRule
	checks     []rule.Check // of one request after the other
	// variant, if it is not nil, takes the place of the node's only rule for the requests to come.
	variant    *rule.Rule
	smallers   []*rule.Rule
	tickMillis uint32
	sent       []fakePush
	reports    [][]byte
	modes      map[int]wire.Mode // of rules that were moved
	refuse     bool              // whether no push is taken
	// settle delivers the answers that a request waits for.
	settle func(f *fakeNode)
}

// KeyOf implements observe.Teller.
func (f *fakeNode) KeyOf(rule int) (key []byte, varies wire.RuleFlags) {
	if f.counts[rule].together {
		return nil, wire.Varies
	}
	return []byte{24, 48}, 0
}

type fakePush struct {
	body   []byte
	ticket engine.Ticket
	at     int64
}

// AppendKey implements Owner.
func (f *fakeNode) AppendKey(key []byte, rule int, values [][]byte) ([]byte, bool) {
	key = counter.AppendPart(key, fmt.Sprint("rule-", rule))
	for _, v := range values {
		key = counter.AppendPart(key, v)
	}
	return key, f.counts[rule].together == (len(values) == 0) && len(values) < 2
}

// Move implements Owner.
func (f *fakeNode) Move(rule int, mode wire.Mode) {
	if f.modes == nil {
		f.modes = map[int]wire.Mode{}
	}
	f.modes[rule] = mode
}

// Get implements sharedata.Data.
func (f *fakeNode) Get(key, buffer []byte) ([]byte, uint32, bool) {
	if p := f.process; p.before != nil {
		p.before(f, "get")
	}
	return f.process.Get(key, buffer)
}

// Set implements sharedata.Data.
func (f *fakeNode) Set(key, value []byte, cas uint32) bool {
	if p := f.process; p.before != nil {
		p.before(f, "set")
	}
	f.process.see(key)
	f.process.see(value)
	return f.process.Set(key, value, cas)
}

// Now implements Host.
func (f *fakeNode) Now() int64 {
	f.process.now += f.process.runs
	return f.process.now + f.process.off
}

// TickEvery implements Host.
func (f *fakeNode) TickEvery(millis uint32) { f.tickMillis = millis }

// Send implements Host.
func (f *fakeNode) Send(push []byte, ticket engine.Ticket) bool {
	if f.refuse {
		return false
	}
	f.process.see(push)
	if wire.IsReport(push) {
		f.reports = append(f.reports, append([]byte(nil), push...))
		return true
	}
	if u, err := wire.DecodeUsed(push); err == nil && f.process.teller != nil {
		f.process.senders[u.Sender] = cmp.Or(f.process.senders[u.Sender], f)
	}
	f.sent = append(f.sent, fakePush{append([]byte(nil), push...), ticket, f.process.now})
	return true
}

// asks reports whether a push is a question for what is new.
func asked(p fakePush) bool {
	push, err := wire.DecodePush(p.body)
	return err == nil && push.Known.Asks
}

// taken are the pushes that are out, which are the caller's from now on.
func (f *fakeNode) taken() (pushes []fakePush) {
	pushes, f.sent = f.sent, nil
	return pushes
}

// answer has the backend answer a push.
func (f *fakeNode) answer(p fakePush) {
	f.Answered(p.ticket, link.PushAnswered, f.process.apply(p.body))
}

// lose ends a push without an answer.
func (f *fakeNode) lose(p fakePush) { f.Answered(p.ticket, link.PushLost, nil) }

// answerAll has the backend answer all pushes that are out.
func (f *fakeNode) answerAll() {
	for _, p := range f.taken() {
		f.answer(p)
	}
}

// late has the backend take in all pushes that are out. Their answers come with hear.
func (f *fakeNode) late() (hear func()) {
	pushes := f.taken()
	var answers [][]byte
	for _, p := range pushes {
		answers = append(answers, f.process.apply(p.body))
	}
	return func() {
		for i, p := range pushes {
			f.Answered(p.ticket, link.PushAnswered, answers[i])
		}
	}
}

// loseAll ends all pushes that are out without an answer.
func (f *fakeNode) loseAll() {
	for _, p := range f.taken() {
		f.lose(p)
	}
}

// tick does what a host does at a tick.
func (f *fakeNode) tick() {
	f.Tick()
}

// advance lets time pass, ticks the node alone, and has its pushes answered.
func (f *fakeNode) advance(d time.Duration) {
	f.process.pass(d)
	f.tick()
	f.deliver()
}

func (f *fakeNode) deliver() { f.process.deliver(f) }

// prefix begins the keys of a rule.
func (f *fakeNode) prefix(rule int) []byte { return counter.AppendPart(nil, fmt.Sprint("rule-", rule)) }

// rule is one of the node's rules.
func (f *fakeNode) rule(i int) *rule.Rule { return &f.options.Rules[i] }

// time is the backend's, as far as the node knows it.
func (f *fakeNode) time() int64 { return f.Time(f.Now()) }

// id is the name that the backend has for a rule's key for a user.
func (f *fakeNode) id(rule int, user string) wire.ID { return f.identities.Of(f.key(rule, user)) }

// key is a rule's for a user.
func (f *fakeNode) key(rule int, user string) []byte {
	key := f.prefix(rule)
	if f.counts[rule].together {
		return key
	}
	return counter.AppendPart(key, user)
}

// check asks a rule for hits for a user.
func (f *fakeNode) check(at int, user string, cost uint64) rule.Check {
	return rule.Check{Ref: rule.Ref{Rule: f.rule(at), Cost: cost}, Key: f.key(at, user)}
}

// fakeRequest is a request that may wait.
type fakeRequest struct {
	engine.Wait
	verdicts []counter.Verdict // that it was told
}

// Decided implements Request.
func (r *fakeRequest) Decided(_ []rule.Check, _ int64, verdict counter.Verdict) {
	r.verdicts = append(r.verdicts, verdict)
}

func newRequest() *fakeRequest {
	r := &fakeRequest{}
	r.Request = r
	return r
}

// request brings a request of one hit of each rule.
func (f *fakeNode) request(user string) (r *fakeRequest, verdict counter.Verdict) {
	return f.requestOf(user, 1)
}

func (f *fakeNode) requestOf(user string, cost uint64) (r *fakeRequest, verdict counter.Verdict) {
	r = newRequest()
	if f.HasRetries() {
		f.Retry(f.time())
	}
	for i := range f.checks {
		d := &f.checks[i]
		d.Rule, d.Key, d.Cost = f.rule(i), f.key(i, user), cost
		if f.variant != nil {
			d.Rule = f.variant
		}
	}
	return r, f.Decide(f.checks, f.time(), &r.Wait)
}

// charge counts a hit of each rule for a user, whether or not there is room. It has to be pushed.
func (f *fakeNode) charge(user string) { f.force(user, 1) }

func (f *fakeNode) force(user string, cost uint64) {
	for i := range f.options.Rules {
		d := f.check(i, user, cost)
		f.Force(&d, f.time())
	}
}

// chargeAll counts a hit of each rule for so many users.
func (f *fakeNode) chargeAll(users int) {
	for i := range users {
		f.charge(strconv.Itoa(i))
	}
}

// send brings a request, has what it waits for settled, and reports whether it passed.
func (f *fakeNode) send(user string) (passed bool) { return f.sendOf(user, 1) }

func (f *fakeNode) sendOf(user string, cost uint64) (passed bool) {
	f.process.t.Helper()
	r, verdict := f.requestOf(user, cost)
	for rounds := 0; verdict == counter.Unsure; rounds++ {
		if rounds == 100 || f.settle == nil {
			f.process.t.Fatal("a request waits for nothing")
		}
		if f.settle(f); len(r.verdicts) > 0 {
			verdict = r.verdicts[0]
		}
	}
	return verdict == counter.Allowed
}

// count counts a request if it has passed.
func count[T int | int64 | uint64](n *T, passed bool) {
	if passed {
		*n++
	}
}

// paused brings a request that has to wait.
func (f *fakeNode) paused(user string) *fakeRequest {
	f.process.t.Helper()
	r, verdict := f.request(user)
	if verdict != counter.Unsure || !r.Waiting() {
		f.process.t.Fatalf("a request does not wait: %v", verdict)
	}
	return r
}

// pausedOften brings n requests that have to wait.
func (f *fakeNode) pausedOften(n int, user string) (requests []*fakeRequest) {
	f.process.t.Helper()
	for range n {
		requests = append(requests, f.paused(user))
	}
	return requests
}

// still is how many of the requests wait. It fails unless the others were told once what became of
// them.
func (f *fakeNode) still(requests []*fakeRequest) (n int) {
	f.process.t.Helper()
	for i, r := range requests {
		switch {
		case r.Waiting():
			n++
		case len(r.verdicts) != 1:
			f.process.t.Errorf("request %d was told %v", i, r.verdicts)
		}
	}
	return n
}

// allowed is how many of the requests have passed.
func allowed(requests []*fakeRequest) (n int) {
	for _, r := range requests {
		if len(r.verdicts) > 0 && r.verdicts[0] == counter.Allowed {
			n++
		}
	}
	return n
}

// stored returns what the process has of a rule for a user.
func (f *fakeNode) stored(rule int, user string) *rule.Check {
	d := f.check(rule, user, 1)
	for n := range d.Rule.Parts() {
		// Read by other limits, a bucket's lease would be another.
		if part := d.Rule.Part(n + 1); part.Value == user {
			d.Rule = part
			break
		}
	}
	f.Look(&d, f.time())
	return &d
}

// leased returns the hits that the process has leased of a rule for a user.
func (f *fakeNode) leased(rule int, user string) (leased uint64) {
	d := f.stored(rule, user)
	for i := range d.Counter.States {
		leased = max(leased, d.Rule.Limits[i].Leased(&d.Counter.States[i]))
	}
	return leased
}

// left describes what a node still has to do.
func (f *fakeNode) left() string {
	if left := f.Backlog(); left != (engine.Backlog{}) || f.Unfinished() {
		return fmt.Sprintf("%+v", left)
	}
	return ""
}

// nodesHere are the process's.
func (p *fakeProcess) nodesHere() (nodes []*fakeNode) {
	for _, f := range p.nodes {
		if f.process == p {
			nodes = append(nodes, f)
		}
	}
	return nodes
}
