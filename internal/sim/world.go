package sim

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"

	"weir/internal/engine"
	"weir/internal/engine/observe"
	"weir/sharedata"
	"weir/window"
)

// World is nodes, a backend and the network between them, under one clock. A node is a process,
// like Envoy: its workers have an engine each, and share the process's shared data. Everything runs
// on the caller's goroutine.
type World struct {
	Clock
	Options
	random  *rand.Rand // for events
	engines *rand.Rand // for differences between engines
	Backend *Backend

	nodes []*process // by place; nil if none runs there

	// Passed is called when a request is admitted. Refused is called when it is not, with the time
	// at which the client is told to retry; 0 for never.
	Passed  func(r *Request)
	Refused func(r *Request, retryAt int64)
	// Requests counts all requests, and Waits describes those that waited. Sent counts callouts.
	Requests int
	Waits    Waits
	Sent     int
	err      error
}

// Waits describes the requests that had to wait.
type Waits struct {
	Requests int
	Longest  int64
}

// Options configure a world.
type Options struct {
	Seed    uint64
	Places  int // for nodes
	Workers int // of each node
	// Programs is how many nodes, at the end of the list, are programs, with a single worker.
	Programs int
	Network  Network
	// ClocksOff bounds the difference of a node's clock from the backend's, in both directions.
	ClocksOff int64
	// Counters is the most counters in the backend; 0 means its default.
	Counters int

	// Overrides makes nodes listen for overrides, like real nodes. There are none.
	Overrides bool

	// Limit is the limit of the only rule, and Capacity the number of counters of a node's table.
	Limit    window.Limit
	Capacity int
	SyncRate int64
}

// timeout is the timeout of callouts: the default of backend.timeout.
const timeout = Second / 5

// namespace is that of all nodes.
const namespace = "default"

type process struct {
	place   int
	off     int64 // its clock less the backend's
	shared  sharedata.Map
	workers []*worker
	sent    int // callouts
}

// New starts the nodes.
func New(o Options) (*World, error) {
	w := &World{
		Clock:   Clock{Now: Monday},
		Options: o,
		random:  rand.New(rand.NewPCG(o.Seed, 0)),
		engines: rand.New(rand.NewPCG(o.Seed, 1)),
		Passed:  func(*Request) {},
		Refused: func(*Request, int64) {},
	}
	w.Backend = newBackend(&w.Clock, o.Counters)
	for place := range o.Places {
		w.Start(place)
	}
	return w, w.Failure()
}

func (w *World) fail(err error) {
	if w.err == nil {
		w.err = err
	}
}

// Failure returns an error that makes all figures invalid.
func (w *World) Failure() error { return errors.Join(w.err, w.Backend.err) }

// Start starts a node in a place, which must be empty.
func (w *World) Start(place int) {
	for place >= len(w.nodes) {
		w.nodes = append(w.nodes, nil)
	}
	n := &process{place: place}
	if w.ClocksOff > 0 {
		n.off = w.random.Int64N(2*w.ClocksOff+1) - w.ClocksOff
	}
	w.nodes[place] = n
	workers := w.Workers
	if place >= w.Places-w.Programs {
		workers = 1
	}
	for range workers {
		v := &worker{world: w, process: n}
		v.timer = timer{clock: &w.Clock, do: v.tick}
		v.rules[0].Limits, v.rules[0].SyncRate = []window.Limit{w.Limit}, w.SyncRate
		var err error
		v.node, err = engine.New(&engine.Options{
			Namespace: namespace, Data: &n.shared, Capacity: w.Capacity, Rules: v.rules[:], Random: w.engines.Uint64,
			Host: v, Owner: v.owner(), Timeout: timeout,
		})
		if err != nil {
			w.fail(err)
			return
		}
		n.workers = append(n.workers, v)
		// Workers start at different times.
		v.timer.period = int64(cmp.Or(v.node.TickMillis(), 1000)) * Millisecond // 0 without a backend
		v.timer.start(w.random.Int64N(v.timer.period + 1))
	}
}

// Kill ends a node's process. Its requests, and its hits that are not pushed, are lost.
func (w *World) Kill(place int) {
	for _, v := range w.nodes[place].workers {
		v.end()
	}
	w.nodes[place] = nil
}

// Drain lets a node leave in good order: it gets no more requests, and ends when its engines have
// left.
func (w *World) Drain(place int) {
	n := w.nodes[place]
	w.nodes[place] = nil
	for _, v := range n.workers {
		v.leave()
	}
}

// NobodyWaits returns an error if a request still waits.
func (w *World) NobodyWaits() error {
	for _, n := range w.nodes {
		for i := 0; n != nil && i < len(n.workers); i++ {
			if waiting := n.workers[i].waiting; waiting > 0 {
				return fmt.Errorf("%d requests of worker %d of node %d wait for ever", waiting, i, n.place)
			}
		}
	}
	return nil
}

// Look sums up what the nodes that run hold and have let pass: see [observe.Look]. Its processes are
// those nodes, in the order of their places.
func (w *World) Look() observe.Looked {
	var processes []observe.Process
	for _, n := range w.nodes {
		if n != nil {
			processes = append(processes, observe.Process{Namespace: namespace, Data: &n.shared, Rules: n.workers[0].rules[:], Clock: n.workers[0]})
		}
	}
	return observe.Look(processes)
}

// SentBy counts the callouts of the node in a place since its start.
func (w *World) SentBy(place int) int { return w.nodes[place].sent }

// Request sends a request of one hit to a worker of a node, or to the only worker of a program. The
// number is the caller's, and comes back with the result.
func (w *World) Request(place, worker int, key []byte, number int) {
	if n := w.nodes[place]; n != nil {
		w.Requests++
		n.workers[worker%len(n.workers)].request(key, number)
	}
}
