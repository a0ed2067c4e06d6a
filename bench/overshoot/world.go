package main

import (
	"errors"
	"fmt"
	"math/rand/v2"

	"weir/internal/node"
	"weir/sharedata"
	"weir/window"
)

// world is nodes, a backend and the network between them, under one clock. A node is a process, as
// Envoy is: it has workers with an engine each, which share the process's shared data. All of it
// runs on the caller's goroutine.
type world struct {
	clock
	worldOptions
	random  *rand.Rand // of what happens
	engines *rand.Rand // of what engines differ by
	backend *counterBackend

	nodes    []*process // by their place; nil where none runs
	callouts []*callout // to be used again

	// passed is called when a request is let through, and refused when it isn't, with the time at
	// which it is told to come again; 0 if that is never.
	passed  func()
	refused func(retryAt int64)
	// requests counts those that came, and waits tells of those that waited.
	requests int
	waits    waits
	sent     int // callouts
	err      error
}

// waits are the requests that had to wait, for as long as is counted.
type waits struct {
	requests int
	longest  int64
}

// worldOptions say what a world is made of.
type worldOptions struct {
	seed    uint64
	places  int // of nodes
	workers int // of each
	// programs is how many nodes, at the end of the list, are programs, which have one worker.
	programs int
	network  network
	// clocksOff bounds how far a node's clock is from the backend's, either way.
	clocksOff int64
	// counters is the most that the backend keeps; its default if 0.
	counters int

	// limit is that of the only rule, and capacity how many counters a node is made for.
	limit    window.Limit
	capacity int
	syncRate int64
}

// timeout is a callout's: the default of backend.timeout.
const timeout = second / 5

// process is a node.
type process struct {
	place   int
	off     int64 // its clock, from the backend's
	shared  sharedata.Map
	workers []*worker
}

// newWorld starts the nodes.
func newWorld(o worldOptions) (*world, error) {
	w := &world{
		clock:        clock{now: monday},
		worldOptions: o,
		random:       rand.New(rand.NewPCG(o.seed, 0)),
		engines:      rand.New(rand.NewPCG(o.seed, 1)),
		passed:       func() {},
		refused:      func(int64) {},
	}
	w.backend = newBackend(&w.clock, o.counters)
	for place := range o.places {
		w.start(place)
	}
	return w, w.failure()
}

// fail keeps the first thing that goes wrong.
func (w *world) fail(err error) {
	if w.err == nil {
		w.err = err
	}
}

// failure is an error that makes all figures worthless.
func (w *world) failure() error { return errors.Join(w.err, w.backend.err) }

// start starts a node in a place, which must be empty.
func (w *world) start(place int) {
	for place >= len(w.nodes) {
		w.nodes = append(w.nodes, nil)
	}
	n := &process{place: place}
	if w.clocksOff > 0 {
		n.off = w.random.Int64N(2*w.clocksOff+1) - w.clocksOff
	}
	w.nodes[place] = n
	workers := w.workers
	if place >= w.places-w.programs {
		workers = 1
	}
	for range workers {
		v := &worker{world: w, process: n}
		v.timer = timer{clock: &w.clock, do: v.tick}
		v.rules[0].Limits, v.rules[0].SyncRate = []window.Limit{w.limit}, w.syncRate
		var err error
		v.node, err = node.New(&node.Options{
			Namespace: "default", Data: &n.shared, Capacity: w.capacity, Rules: v.rules[:], Random: w.engines.Uint64,
			Host: v, Timeout: timeout,
		})
		if err != nil {
			w.fail(err)
			return
		}
		n.workers = append(n.workers, v)
		// Workers don't start at the same moment.
		v.timer.period = int64(v.node.TickMillis()) * millisecond
		v.timer.start(w.random.Int64N(v.timer.period + 1))
	}
}

// kill ends a node's process. Its requests, and the hits that it has not pushed, are gone.
func (w *world) kill(place int) {
	for _, v := range w.nodes[place].workers {
		v.end()
	}
	w.nodes[place] = nil
}

// drain has a node leave in good order: it gets no more requests, and ends when its engines have
// left.
func (w *world) drain(place int) {
	n := w.nodes[place]
	w.nodes[place] = nil
	for _, v := range n.workers {
		v.leave()
	}
}

// nobodyWaits is an error if a request still does.
func (w *world) nobodyWaits() error {
	for _, n := range w.nodes {
		for i := 0; n != nil && i < len(n.workers); i++ {
			if waiting := n.workers[i].waiting; waiting > 0 {
				return fmt.Errorf("%d requests of worker %d of node %d wait for ever", waiting, i, n.place)
			}
		}
	}
	return nil
}

// request brings a request of one hit to a worker of a node, or of a program to its only one.
func (w *world) request(place, worker int, key []byte) {
	if n := w.nodes[place]; n != nil {
		w.requests++
		n.workers[worker%len(n.workers)].request(key)
	}
}
