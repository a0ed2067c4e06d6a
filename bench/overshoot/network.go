package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"weir/internal/store/memory"
	"weir/internal/wire"
)

// network lies between proxies and their backend.
type network struct {
	// trip is the time of one way, from trip − jitter to trip + jitter, all alike.
	trip, jitter int64
	// lostBefore and lostAfter are the shares of callouts that are lost before they were applied, and after.
	lostBefore, lostAfter float64
}

// near is a network within a zone: a round trip takes 2 to 4 ms, and nothing is lost.
var near = network{trip: 1500_000, jitter: 500_000}

// oneWay is how long a message takes.
func (n *network) oneWay(random *rand.Rand) int64 {
	return n.trip - n.jitter + random.Int64N(2*n.jitter+1)
}

// carry takes a callout to the backend and its answer back: apply is called when the backend gets
// it, done once when the proxy hears of it. If a callout is lost, or takes longer than the timeout,
// the proxy answers it itself when the timeout is over. apply is not called at all if the callout
// was lost on its way there, and may be called after done if the way is long.
func (n *network) carry(c *clock, random *rand.Rand, timeout int64, apply func(), done func(ok bool)) {
	there, back := n.oneWay(random), n.oneWay(random)
	lost := random.Float64()
	if lost >= n.lostBefore {
		c.at(c.now+there, apply)
	}
	ok := lost >= n.lostBefore+n.lostAfter && there+back < timeout
	after := timeout
	if ok {
		after = there + back
	}
	c.at(c.now+after, func() { done(ok) })
}

// counterBackend is the real store behind what the HTTP handler does, with everything counted.
type counterBackend struct {
	clock  *clock
	store  *memory.Store
	joined map[uint64]joining
	load
	// pushed is called with each push, if it isn't nil.
	pushed func(p *wire.Push, body, answer int)
	err    error
}

// load counts the work that a backend has had.
type load struct {
	pushes, joins, duplicates int
	items, takes              int
	bodyBytes, answerBytes    int
}

type joining struct {
	at    int64
	nodes uint64
}

// joinEvery is how often the handler asks the store for a node.
const joinEvery = second

func newBackend(c *clock, counters int) *counterBackend {
	return &counterBackend{
		clock: c,
		store: memory.New(memory.Options{
			MaxCounters: counters,
			Now:         func() time.Time { return time.Unix(0, c.now) },
		}),
		joined: make(map[uint64]joining),
	}
}

// roundTrips is how often the backend asked its store for something.
func (l *load) roundTrips() int { return l.pushes + l.joins }

// apply takes in a push, and appends its answer. It is false for what the backend refuses: nothing here sends such.
func (b *counterBackend) apply(body, dst []byte) (answer []byte, ok bool) {
	push, err := wire.DecodePush(body)
	if err != nil {
		return b.refuse(err)
	}
	nodes, err := b.nodes(push)
	if err != nil {
		return b.refuse(err)
	}
	out, err := b.store.Push(context.Background(), push, nodes)
	if err != nil {
		return b.refuse(err)
	}
	answer = wire.AppendAnswer(dst, &out.Answer)
	b.pushes++
	b.items += len(push.Items)
	b.takes += len(push.Takes)
	b.bodyBytes += len(body)
	b.answerBytes += len(answer)
	if out.Duplicate {
		b.duplicates++
	}
	if b.pushed != nil {
		b.pushed(push, len(body), len(answer))
	}
	return answer, true
}

func (b *counterBackend) refuse(err error) ([]byte, bool) {
	if b.err == nil {
		b.err = fmt.Errorf("the backend refused a push: %w", err)
	}
	return nil, false
}

// nodes is how many nodes are active, as package server counts them: it asks the store once a second for each.
func (b *counterBackend) nodes(p *wire.Push) (nodes uint64, err error) {
	known, ok := b.joined[p.Node]
	if ok && b.clock.now-known.at < joinEvery {
		return known.nodes, nil
	}
	b.joins++
	if nodes, err = b.store.Join(context.Background(), p.Namespace, p.Node); err != nil {
		return 0, err
	}
	b.joined[p.Node] = joining{at: b.clock.now, nodes: nodes}
	return nodes, nil
}
