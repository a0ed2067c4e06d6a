package node

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"weir/internal/counter"
	"weir/internal/store"
	"weir/internal/store/memory"
	"weir/internal/wire"
	"weir/window"
)

const (
	minute = 60 * second
	monday = 1_767_571_200 * second
)

// fakeProcess is a process with several nodes: what they share, a clock, and a backend. Its shared
// data behaves as Envoy's.
type fakeProcess struct {
	t      testing.TB
	now    int64
	values map[string]*fakeValue
	number uint32
	// before runs ahead of each access to shared data.
	before func(op string)
	store  store.Store
	random *rand.Rand
}

type fakeValue struct {
	data []byte
	cas  uint32
}

func newProcess(t testing.TB) *fakeProcess {
	p := &fakeProcess{t: t, now: monday, values: map[string]*fakeValue{}, random: rand.New(rand.NewPCG(7, 3))}
	p.store = memory.New(memory.Options{Now: func() time.Time { return time.Unix(0, p.now) }})
	return p
}

func (p *fakeProcess) run(op string) {
	if p.before != nil {
		p.before(op)
	}
}

// Get implements sharedata.Data.
func (p *fakeProcess) Get(key, buffer []byte) ([]byte, uint32, bool) {
	p.run("get")
	value := p.values[string(key)]
	if value == nil {
		return nil, 0, false
	}
	return append(buffer[:0], value.data...), value.cas, true
}

// Set implements sharedata.Data.
func (p *fakeProcess) Set(key, data []byte, cas uint32) bool {
	p.run("set")
	value := p.values[string(key)]
	if value == nil {
		value = &fakeValue{cas: cas}
		p.values[string(key)] = value
	}
	if cas != 0 && value.cas != cas {
		return false
	}
	p.number++
	value.data, value.cas = append(value.data[:0], data...), p.number
	return true
}

// fakeNode is a node and its host. Pushes stay with it until they are delivered.
type fakeNode struct {
	*Node
	process    *fakeProcess
	tickMillis uint32
	pushes     []fakePush
	refuse     bool // whether no push is taken
}

type fakePush struct {
	body   []byte
	ticket Ticket
}

// fakeRequest is a request that may wait.
type fakeRequest struct {
	Wait
	verdicts []counter.Verdict // that its waiter was told
}

// Decided implements Waiter.
func (r *fakeRequest) Decided(_ []Demand, _ int64, verdict counter.Verdict) {
	r.verdicts = append(r.verdicts, verdict)
}

// start makes a node with one rule, in the namespace default.
func (p *fakeProcess) start(syncRate int64, limits ...window.Limit) *fakeNode {
	p.t.Helper()
	return p.startIn("default", syncRate, limits...)
}

func (p *fakeProcess) startIn(namespace string, syncRate int64, limits ...window.Limit) *fakeNode {
	p.t.Helper()
	f := &fakeNode{process: p}
	var err error
	f.Node, err = New(&Options{
		Namespace: namespace, Data: p, Capacity: 10_000, Rules: []Rule{{Rule: counter.Rule{Limits: limits}}}, Random: p.random.Uint64,
		SyncRate: syncRate, Host: f, Timeout: second / 5,
	})
	if err != nil {
		p.t.Fatal(err)
	}
	return f
}

// fixed is so many hits in an hour of the clock.
func fixed(limit uint64) window.Limit {
	return window.Limit{Shape: window.Shape{Kind: window.FixedWindow, Width: 60 * minute}, Max: limit}
}

// Now implements Host.
func (f *fakeNode) Now() int64 { return f.process.now }

// TickEvery implements Host.
func (f *fakeNode) TickEvery(millis uint32) { f.tickMillis = millis }

// Send implements Host.
func (f *fakeNode) Send(push []byte, ticket Ticket) bool {
	if f.refuse {
		return false
	}
	f.pushes = append(f.pushes, fakePush{append([]byte(nil), push...), ticket})
	return true
}

// demand asks one hit of the rule for a user.
func (f *fakeNode) demand(user string) Demand {
	return Demand{Rule: &f.rules[0], Key: counter.AppendPart(counter.AppendPart(nil, "user"), user), Cost: 1}
}

// request brings a request of one hit.
func (f *fakeNode) request(user string) (r *fakeRequest, verdict counter.Verdict) {
	r = &fakeRequest{}
	r.Waiter = r
	return r, f.Decide([]Demand{f.demand(user)}, f.Time(f.Now()), &r.Wait)
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

// deliver brings the pushes that are out to the backend, and their answers back.
func (f *fakeNode) deliver() {
	pushes := f.pushes
	f.pushes = nil
	for _, p := range pushes {
		f.Answered(p.ticket, PushAnswered, f.process.apply(p.body))
	}
}

func (p *fakeProcess) apply(body []byte) (answer []byte) {
	p.t.Helper()
	push, err := wire.DecodePush(body)
	if err != nil {
		p.t.Fatal(err)
	}
	nodes, err := p.store.Join(context.Background(), push.Namespace, push.Node)
	if err != nil {
		p.t.Fatal(err)
	}
	outcome, err := p.store.Push(context.Background(), push, nodes)
	if err != nil {
		p.t.Fatal(err)
	}
	return wire.AppendAnswer(nil, &outcome.Answer)
}

// advance lets time pass, ticks the node, and has its pushes answered.
func (f *fakeNode) advance(d time.Duration) {
	f.process.now += int64(d)
	f.Tick()
	f.deliver()
}
