package store

import (
	"math/rand/v2"
	"sync/atomic"
	"time"

	"weir/internal/wire"
	"weir/window"
)

// TrialNamespace is the namespace of [Trial].
const TrialNamespace = "weir.trial"

// trialCounters is how many counters trials use in turn. In a Redis Cluster each is in a partition
// of its own.
const trialCounters = 32

// Trial makes the pushes of [Store.Ping]. [NewTrial] makes one. It is safe for concurrent use.
type Trial struct {
	sender   uint64
	sequence atomic.Uint64
}

// NewTrial returns a Trial with a sender of its own.
func NewTrial() *Trial { return &Trial{sender: rand.Uint64()} }

// Next returns a push of one hit in a window of a second, different from all others. The store has
// to write for it, and can soon drop it.
func (t *Trial) Next() *wire.Push {
	p := t.Everywhere()
	at := p.Sequence % trialCounters
	p.Items = p.Items[at : at+1]
	return p
}

// Everywhere returns a push of a hit to each of the counters.
func (t *Trial) Everywhere() *wire.Push {
	sequence := t.sequence.Add(1)
	p := &wire.Push{Namespace: TrialNamespace, Sender: t.sender, Sequence: sequence, Floor: sequence}
	for id := range byte(trialCounters) {
		c := wire.LimitCounter{ID: wire.ID{id}, Kind: uint8(window.FixedWindow), WidthMillis: 1000}
		p.Items = append(p.Items, wire.Item{LimitCounter: c, Newest: NumberAt(c, uint64(time.Now().UnixNano())), Hits: []int64{1}})
	}
	return p
}
