package store

import (
	"math/rand/v2"
	"sync/atomic"
	"time"

	"weir/internal/wire"
	"weir/window"
)

// TrialNamespace is where stores count the hits of [Trial].
const TrialNamespace = "weir.trial"

// trialCounters is how many counters trials take turns with. In a Redis Cluster each of them is in
// a partition of its own.
const trialCounters = 32

// Trial makes pushes for [Store.Ping]. Use [NewTrial] to make one. It may be used by any number of
// goroutines.
type Trial struct {
	sender   uint64
	sequence atomic.Uint64
}

// NewTrial returns a sender of trials.
func NewTrial() *Trial { return &Trial{sender: rand.Uint64()} }

// Next is a push of one hit that no other has, of a window of a second. So a store has to write, and
// what it has written is soon gone.
func (t *Trial) Next() *wire.Push {
	p := t.Everywhere()
	at := p.Sequence % trialCounters
	p.Items = p.Items[at : at+1]
	return p
}

// Everywhere is a push of a hit to each of the counters.
func (t *Trial) Everywhere() *wire.Push {
	sequence := t.sequence.Add(1)
	p := &wire.Push{Namespace: TrialNamespace, Sender: t.sender, Sequence: sequence, Floor: sequence}
	for id := range byte(trialCounters) {
		c := wire.LimitCounter{ID: wire.ID{id}, Kind: uint8(window.FixedWindow), WidthMillis: 1000}
		p.Items = append(p.Items, wire.Item{LimitCounter: c, Newest: NumberAt(c, uint64(time.Now().UnixNano())), Hits: []int64{1}})
	}
	return p
}
