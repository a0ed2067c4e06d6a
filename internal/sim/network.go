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

// Network is the network between proxies and their backend.
type Network struct {
	// Trip is the time of one direction, between Trip − Jitter and Trip + Jitter, uniformly
	// distributed.
	Trip, Jitter int64
	// LostBefore and LostAfter are the shares of callouts lost before and after they were applied.
	LostBefore, LostAfter float64
}

// Near is a network within a zone: a round trip takes 2 to 4 ms, and nothing is lost.
var Near = Network{Trip: 1500_000, Jitter: 500_000}

// oneWay returns how long a message takes.
func (n *Network) oneWay(random *rand.Rand) int64 {
	return n.Trip - n.Jitter + random.Int64N(2*n.Jitter+1)
}

// Carry carries a callout to the backend and its answer back. It calls apply when the backend gets
// the callout, and done once when the proxy gets the result. If a callout is lost, or takes longer
// than the timeout, the proxy gets the result when the timeout ends. apply is not called if the
// callout was lost on its way to the backend. It may be called after done if the way is long.
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

// hold is Carry for a poll whose answer the backend holds back because it has no news. It never
// loses a message.
func (n *Network) hold(c *Clock, random *rand.Rand, apply, done func()) {
	answered := c.Now + n.oneWay(random) + wire.LongestPoll
	c.At(answered, apply)
	c.At(answered+n.oneWay(random), done)
}

// Backend is the real store behind a copy of the HTTP handler's logic, with counts of everything.
type Backend struct {
	clock  *Clock
	store  *memory.Store
	joined map[uint64]joining
	Load
	err error
}

// Load counts the work of a backend.
type Load struct {
	Pushes, Duplicates     int
	BodyBytes, AnswerBytes int
}

// Minus returns the load since before.
func (l Load) Minus(before Load) Load {
	return Load{
		Pushes: l.Pushes - before.Pushes, Duplicates: l.Duplicates - before.Duplicates,
		BodyBytes: l.BodyBytes - before.BodyBytes, AnswerBytes: l.AnswerBytes - before.AnswerBytes,
	}
}

// Sum returns the backend's hits of a namespace's counters at the clock's time, over all windows.
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

// joinEvery is how often the handler asks the store about a node.
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

// apply applies a push, and returns its answer. There is none if the backend refuses the push, which no study provokes.
func (b *Backend) apply(body []byte) (answer []byte) {
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
	answer = wire.AppendAnswer(nil, &out.Answer)
	b.Pushes++
	b.BodyBytes += len(body)
	b.AnswerBytes += len(answer)
	if out.Duplicate {
		b.Duplicates++
	}
	return answer
}

func (b *Backend) refuse(err error) []byte {
	if b.err == nil {
		b.err = fmt.Errorf("the backend refused a push: %w", err)
	}
	return nil
}

// nodes returns how many nodes are active, counted like in package server: it asks the store once a
// second for each node.
func (b *Backend) nodes(p *wire.Push) (nodes uint64, err error) {
	known, ok := b.joined[p.Node]
	if ok && b.clock.Now-known.at < joinEvery {
		return known.nodes, nil
	}
	if nodes, err = store.Join(context.Background(), b.store, p.Namespace, p.Node); err != nil {
		return 0, err
	}
	b.joined[p.Node] = joining{at: b.clock.Now, nodes: nodes}
	return nodes, nil
}
