package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"weir/internal/counter"
	"weir/internal/sim"
	"weir/internal/store"
	"weir/internal/store/memory"
	"weir/internal/wire"
	"weir/window"
)

// outcome is the result of a way of limiting in a trial.
type outcome struct {
	requests, admitted int
	// worst is the most of the limit that was ever in use; 1 is all of it. start is the same for
	// the time before the measurement.
	worst, start float64
	callouts     int
	waits        sim.Waits
}

// per1000 returns a number per thousand requests.
func (o *outcome) per1000(n int) float64 { return 1000 * float64(n) / float64(max(o.requests, 1)) }

// judge observes the hits that a way admits.
type judge struct {
	oracle *sim.Oracle
	from   int64
	out    outcome
}

func (t *trial) judge() *judge { return &judge{oracle: sim.NewOracle(t.limit()), from: t.measured()} }

func (j *judge) came(at int64) {
	if at >= j.from {
		j.out.requests++
	}
}

func (j *judge) admitted(at int64) {
	used := j.oracle.Admit(at)
	if at < j.from {
		j.out.start = max(j.out.start, used)
		return
	}
	j.out.admitted++
	j.out.worst = max(j.out.worst, used)
}

// patience bounds the wait of a request: several callouts, one after the other.
const patience = 2 * second

func (t *trial) world() (*sim.World, error) {
	return sim.New(sim.Options{
		Seed: t.seed, Places: nodes, Workers: workers, Network: t.condition.network, ClocksOff: t.condition.clocksOff,
		Limit: t.limit(), Capacity: 1024, SyncRate: t.rate,
	})
}

// onlyKey is the key of all requests of a trial.
var onlyKey = counter.AppendPart(nil, "all")

// weir runs the real engine and the real backend.
func (t *trial) weir() (outcome, error) {
	w, err := t.world()
	if err != nil {
		return outcome{}, err
	}
	j := t.judge()
	w.Passed = func(*sim.Request) { j.admitted(w.Now) }
	for _, c := range t.flow().changes {
		w.At(c.at, func() {
			switch c.what {
			case joins:
				w.Start(c.place)
			case leaves:
				w.Drain(c.place)
			case crashes:
				w.Kill(c.place)
			}
		})
	}
	before := 0
	w.At(j.from, func() {
		before = w.Sent
		w.Waits = sim.Waits{}
	})
	for a := range t.flow().arrivals() {
		w.Advance(a.at)
		j.came(a.at)
		w.Request(a.place, a.worker, onlyKey, 0)
	}
	w.Advance(t.flow().end)
	j.out.callouts, j.out.waits = w.Sent-before, w.Waits
	out := j.out
	w.Advance(w.Now + patience)
	return out, errors.Join(w.Failure(), w.NobodyWaits())
}

// central is a single limiter that sees every request: the best possible result.
func (t *trial) central() (outcome, error) {
	j, l := t.judge(), t.limit()
	var s window.State
	for a := range t.flow().arrivals() {
		j.came(a.at)
		if l.Advance(&s, a.at); l.Allows(&s, 1) {
			l.Count(&s, 1)
			j.admitted(a.at)
		}
	}
	return j.out, nil
}

// periodic synchronises nodes as Kong's library does: every sync_rate a node pushes its hits and
// gets all totals, and in between it decides by these and its own hits. Nodes synchronise at
// different times. Nothing is lost on the way.
func (t *trial) periodic() (outcome, error) {
	p := &periodic{Clock: sim.Clock{Now: monday}, trial: t, limit: t.limit(), random: rand.New(rand.NewPCG(t.seed, 3))}
	p.store = memory.New(memory.Options{Now: func() time.Time { return time.Unix(0, p.Now) }})
	j := t.judge()
	for place := range nodes {
		p.start(place)
	}
	for _, c := range t.flow().changes {
		p.At(c.at, func() {
			if c.what == leaves {
				p.sync(p.nodes[c.place])
			}
			if p.nodes[c.place] = nil; c.what == joins {
				p.start(c.place)
			}
		})
	}
	before := 0
	p.At(j.from, func() { before = p.callouts })
	for a := range t.flow().arrivals() {
		p.Advance(a.at)
		j.came(a.at)
		s := &p.nodes[a.place].state
		if p.limit.Advance(s, a.at); p.limit.Allows(s, 1) {
			p.limit.Count(s, 1)
			j.admitted(a.at)
		}
	}
	j.out.callouts = p.callouts - before
	return j.out, p.err
}

type periodic struct {
	sim.Clock
	trial    *trial
	limit    window.Limit
	random   *rand.Rand
	store    *memory.Store
	nodes    [nodes + 1]*periodicNode
	senders  uint64
	callouts int
	err      error
}

type periodicNode struct {
	sender, sequence uint64
	state            window.State
	out              bool
}

func (p *periodic) start(place int) {
	p.senders++
	n := &periodicNode{sender: p.senders}
	p.nodes[place] = n
	var sync func()
	sync = func() {
		if p.nodes[place] == n {
			p.sync(n)
			p.At(p.Now+p.trial.rate, sync)
		}
	}
	p.At(p.Now+p.random.Int64N(p.trial.rate), sync)
}

func (p *periodic) sync(n *periodicNode) {
	if n.out {
		return
	}
	n.out = true
	n.sequence++
	p.callouts++
	var push window.Push
	p.limit.Advance(&n.state, p.Now)
	n.state.Claim()
	p.limit.Outgoing(&n.state, 0, &push)
	shape := p.limit.Shape
	message := &wire.Push{Namespace: "kong", Sender: n.sender, Sequence: n.sequence, Floor: n.sequence, Items: []wire.Item{{
		LimitCounter: wire.LimitCounter{Kind: uint8(shape.Kind), WidthMillis: uint64(shape.Width / millisecond), Precision: uint64(shape.Precision)},
		Limit:        p.limit.Max, Newest: push.Newest, Hits: push.Hits, Ages: push.Ages,
	}}}
	var answer store.Outcome
	reliable := sim.Network{Trip: p.trial.condition.network.Trip, Jitter: p.trial.condition.network.Jitter}
	reliable.Carry(&p.Clock, p.random, minute, func() {
		var err error
		if answer, err = p.store.Push(context.Background(), message, 1); err != nil {
			p.err = err
		}
	}, func(bool) {
		n.out = false
		if len(answer.Answer.Totals) == 1 {
			total := answer.Answer.Totals[0]
			p.limit.Settle(&n.state, true, true, &window.Totals{Newest: total.Newest, Hits: total.Hits, Ages: total.Ages})
		}
	})
}
