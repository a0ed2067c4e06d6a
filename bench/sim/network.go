package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"weir/internal/store"
	"weir/internal/store/memory"
	"weir/internal/wire"
)

// Network lies between proxies and their backend.
type Network struct {
	// Trip is the time of one way, from trip − jitter to trip + jitter, all alike.
	Trip, Jitter int64
	// LostBefore and LostAfter are the shares of callouts that are lost before they were applied, and after.
	LostBefore, LostAfter float64
}

// Near is a network within a zone: a round trip takes 2 to 4 ms, and nothing is lost.
var Near = Network{Trip: 1500_000, Jitter: 500_000}

// oneWay is how long a message takes.
func (n *Network) oneWay(random *rand.Rand) int64 {
	return n.Trip - n.Jitter + random.Int64N(2*n.Jitter+1)
}

// Carry takes a callout to the backend and its answer back: apply is called when the backend gets
// it, done once when the proxy hears of it. If a callout is lost, or takes longer than the timeout,
// the proxy answers it itself when the timeout is over. apply is not called at all if the callout
// was lost on its way there, and may be called after done if the way is long.
func (n *Network) Carry(c *Clock, random *rand.Rand, timeout int64, apply func(), done func(ok bool)) {
	there, back := n.oneWay(random), n.oneWay(random)
	lost := random.Float64()
	if lost >= n.LostBefore {
		c.At(c.Now+there, apply)
	}
	ok := lost >= n.LostBefore+n.LostAfter && there+back < timeout
	after := timeout
	if ok {
		after = there + back
	}
	c.At(c.Now+after, func() { done(ok) })
}

// hold is Carry of a poll, whose answer the backend keeps back as it has no news. Nothing is lost.
func (n *Network) hold(c *Clock, random *rand.Rand, apply, done func()) {
	answered := c.Now + n.oneWay(random) + wire.LongestPoll
	c.At(answered, apply)
	c.At(answered+n.oneWay(random), done)
}

// Backend is the real store behind what the HTTP handler does, with everything counted.
type Backend struct {
	clock  *Clock
	store  *memory.Store
	joined map[uint64]joining
	Load
	// Pushed is called with each push, if it isn't nil.
	Pushed func(p *wire.Push, body, answer int)
	err    error
}

// Load counts the work that a backend has had.
type Load struct {
	Pushes, Joins, Duplicates int
	Items, Takes              int
	BodyBytes, AnswerBytes    int
}

// Minus returns the load that came after before.
func (l Load) Minus(before Load) Load {
	return Load{
		Pushes: l.Pushes - before.Pushes, Joins: l.Joins - before.Joins, Duplicates: l.Duplicates - before.Duplicates,
		Items: l.Items - before.Items, Takes: l.Takes - before.Takes,
		BodyBytes: l.BodyBytes - before.BodyBytes, AnswerBytes: l.AnswerBytes - before.AnswerBytes,
	}
}

// Sum is the backend's hits of a namespace's counters at the clock's time, all windows together.
func (b *Backend) Sum(namespace string) (hits int64, err error) {
	err = b.store.Counters(context.Background(), namespace, nil, func(c store.LimitCounter) error {
		for _, w := range c.Windows {
			hits += w.Hits
		}
		return nil
	})
	return hits, err
}

type joining struct {
	at    int64
	nodes uint64
}

// joinEvery is how often the handler asks the store for a node.
const joinEvery = Second

func newBackend(c *Clock, counters int) *Backend {
	return &Backend{
		clock: c,
		store: memory.New(memory.Options{
			MaxCounters: counters,
			Now:         func() time.Time { return time.Unix(0, c.Now) },
		}),
		joined: make(map[uint64]joining),
	}
}

// RoundTrips is how often the backend asked its store for something.
func (l *Load) RoundTrips() int { return l.Pushes + l.Joins }

// apply takes in a push, and appends its answer: none if the backend refuses the push, which nothing here
// provokes.
func (b *Backend) apply(body, dst []byte) (answer []byte) {
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
	b.Pushes++
	b.Items += len(push.Items)
	b.Takes += len(push.Takes)
	b.BodyBytes += len(body)
	b.AnswerBytes += len(answer)
	if out.Duplicate {
		b.Duplicates++
	}
	if b.Pushed != nil {
		b.Pushed(push, len(body), len(answer))
	}
	return answer
}

func (b *Backend) refuse(err error) []byte {
	if b.err == nil {
		b.err = fmt.Errorf("the backend refused a push: %w", err)
	}
	return nil
}

// nodes is how many nodes are active, as package server counts them: it asks the store once a second for each.
func (b *Backend) nodes(p *wire.Push) (nodes uint64, err error) {
	known, ok := b.joined[p.Node]
	if ok && b.clock.Now-known.at < joinEvery {
		return known.nodes, nil
	}
	b.Joins++
	if nodes, err = b.store.Join(context.Background(), p.Namespace, p.Node); err != nil {
		return 0, err
	}
	b.joined[p.Node] = joining{at: b.clock.Now, nodes: nodes}
	return nodes, nil
}
