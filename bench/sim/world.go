package sim

import (
	"errors"
	"fmt"
	"math/rand/v2"

	"weir/internal/node"
	"weir/sharedata"
	"weir/window"
)

// World is nodes, a backend and the network between them, under one clock. A node is a process, as
// Envoy is: it has workers with an engine each, which share the process's shared data. All of it
// runs on the caller's goroutine.
type World struct {
	Clock
	Options
	random  *rand.Rand // of what happens
	engines *rand.Rand // of what engines differ by
	Backend *Backend

	nodes    []*process // by their place; nil where none runs
	callouts []*callout // to be used again

	// Passed is called when a request is let through, and Refused when it isn't, with the time at
	// which it is told to come again; 0 if that is never.
	Passed  func(r *Request)
	Refused func(r *Request, retryAt int64)
	// Requests have come, and Waits tells of those that waited. Sent are callouts.
	Requests int
	Waits    Waits
	Sent     int
	err      error
}

// Waits are the requests that had to wait, for as long as is counted.
type Waits struct {
	Requests int
	Longest  int64
}

// Options say what a world is made of.
type Options struct {
	Seed    uint64
	Places  int // of nodes
	Workers int // of each
	// Programs is how many of the nodes, the last of them, are programs, which have a single worker.
	Programs int
	Network  Network
	// ClocksOff bounds how far a node's clock is from the backend's, either way.
	ClocksOff int64
	// Counters is the most that the backend keeps; its default if 0.
	Counters int

	// Overrides has nodes listen for overrides, as real nodes do. There are none.
	Overrides bool

	// Limit is that of the only rule, and Capacity how many counters a node is made for.
	Limit    window.Limit
	Capacity int
	SyncRate int64
}

// timeout is a callout's: the default of backend.timeout.
const timeout = Second / 5

// process is a node.
type process struct {
	place   int
	off     int64 // its clock, from the backend's
	shared  sharedata.Map
	workers []*worker
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

// fail keeps the first thing that goes wrong.
func (w *World) fail(err error) {
	if w.err == nil {
		w.err = err
	}
}

// Failure tells the error that makes all figures worthless, if there was any.
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
		v.node, err = node.New(&node.Options{
			Namespace: "default", Data: &n.shared, Capacity: w.Capacity, Rules: v.rules[:], Random: w.engines.Uint64,
			Host: v, Owner: v.owner(), Timeout: timeout,
		})
		if err != nil {
			w.fail(err)
			return
		}
		n.workers = append(n.workers, v)
		// Workers don't start at the same moment.
		v.timer.period = int64(v.node.TickMillis()) * Millisecond
		v.timer.start(w.random.Int64N(v.timer.period + 1))
	}
}

// Kill ends a node's process. Hits that it has not pushed are gone, and so are its requests.
func (w *World) Kill(place int) {
	for _, v := range w.nodes[place].workers {
		v.end()
	}
	w.nodes[place] = nil
}

// Drain has a node leave in good order: it gets no more requests, and ends when its engines have
// left.
func (w *World) Drain(place int) {
	n := w.nodes[place]
	w.nodes[place] = nil
	for _, v := range n.workers {
		v.leave()
	}
}

// NobodyWaits is an error if a request still does.
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

// SharedBytes is the shared data that nodes have, all together.
func (w *World) SharedBytes() (bytes int) {
	for _, n := range w.nodes {
		if n != nil {
			bytes += n.shared.Bytes()
		}
	}
	return bytes
}

// Request brings a request of one hit to a worker of a node, or of a program to its only one. The
// number is the caller's, who finds it in what is passed or refused.
func (w *World) Request(place, worker int, key []byte, number int) {
	if n := w.nodes[place]; n != nil {
		w.Requests++
		n.workers[worker%len(n.workers)].request(key, number)
	}
}
