package main

import (
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm/types"

	"weir/filter"
	"weir/internal/proxywasm"
)

// world is proxies, a backend and the network between them, under one clock. The proxies run a plugin as Envoy does: each node
// has workers with a VM each, which share the node's shared data. All of it runs on the caller's goroutine.
type world struct {
	clock
	random        *rand.Rand
	network       network
	backend       *counterBackend
	configuration []byte
	newVM         func() types.VMContext
	workers       int
	// clocksOff bounds how far a node's clock is from the backend's, either way.
	clocksOff int64

	nodes    []*node // by their place; nil where none runs
	vm       *vm     // whose callback runs
	streams  uint32  // the last stream's id
	finished []*stream
	idle     []*stream
	callouts []*callout // to be used again
	metrics  map[string]proxywasm.Metric
	counts   []uint64

	// passed is called when a request is let through.
	passed func()
	// requests are the ones that came, and waits tells of those that were paused.
	requests int
	waits    waits
	sent     int // callouts
	err      error
	close    func()
}

// waits are the requests that had to wait, for as long as is counted.
type waits struct {
	requests int
	longest  int64
}

// node is a proxy process.
type node struct {
	place  int
	off    int64 // its clock, from the backend's
	vms    []*vm
	shared map[string]*sharedValue
	writes uint32
}

type sharedValue struct {
	data []byte
	cas  uint32
}

// vm is a worker's VM with one plugin context. It is dead once its node has gone.
type vm struct {
	node    *node
	context types.VMContext
	plugin  types.PluginContext
	period  int64
	timer   int // the timer that counts, as others were replaced
	dead    bool
	leaving bool

	current *stream // the stream that is deciding, or that SetContext has named
	waiting map[uint32]*stream
	answer  *callout // being delivered
}

// stream is a request.
type stream struct {
	vm      *vm
	id      uint32
	context types.HttpContext
	key     []byte
	came    int64
	state   streamState
}

type streamState uint8

const (
	deciding streamState = iota
	waiting
	resumed
	rejected
)

// callout is one that is on its way.
type callout struct {
	vm     *vm
	body   []byte
	done   func(ok bool)
	answer []byte
	status string
}

// rootContext is the id of every plugin context; streams count from there.
const rootContext = 1

// worldOptions say what a world is made of.
type worldOptions struct {
	seed          uint64
	nodes         int
	workers       int
	configuration string
	network       network
	clocksOff     int64
	// counters is the most that the backend keeps; its default if 0.
	counters int
	// newVM makes a VM's context; the filter's if nil.
	newVM func(random *rand.Rand) types.VMContext
}

// newWorld starts the nodes. Until close is called, the world is what plugins take for their host.
func newWorld(o worldOptions) (*world, error) {
	w := &world{
		clock:         clock{now: monday},
		random:        rand.New(rand.NewPCG(o.seed, 0)),
		network:       o.network,
		configuration: []byte(o.configuration),
		workers:       o.workers,
		clocksOff:     o.clocksOff,
		metrics:       make(map[string]proxywasm.Metric),
		passed:        func() {},
	}
	if o.newVM == nil {
		o.newVM = newFilter
	}
	plugins := rand.New(rand.NewPCG(o.seed, 1))
	w.newVM = func() types.VMContext { return o.newVM(plugins) }
	w.backend = newBackend(&w.clock, o.counters)
	w.close = proxywasm.Use(w)
	for place := range o.nodes {
		w.start(place)
	}
	return w, w.failure()
}

// newFilter is the product's VM. It draws from random, so that a simulation comes out the same every time.
func newFilter(random *rand.Rand) types.VMContext {
	vm := &filter.VM{}
	vm.SetRandom(random.Uint64)
	return vm
}

// failure is what went wrong, which makes all figures worthless.
func (w *world) failure() error { return errors.Join(w.err, w.backend.err) }

// start starts a node in a place, which must be empty.
func (w *world) start(place int) {
	for place >= len(w.nodes) {
		w.nodes = append(w.nodes, nil)
	}
	n := &node{place: place, shared: make(map[string]*sharedValue)}
	if w.clocksOff > 0 {
		n.off = w.random.Int64N(2*w.clocksOff+1) - w.clocksOff
	}
	w.nodes[place] = n
	for range w.workers {
		v := &vm{node: n, waiting: make(map[uint32]*stream)}
		n.vms = append(n.vms, v)
		w.enter(v)
		v.context = w.newVM()
		v.plugin = v.context.NewPluginContext(rootContext)
		if v.plugin.OnPluginStart(len(w.configuration)) != types.OnPluginStartStatusOK && w.err == nil {
			w.err = fmt.Errorf("the plugin refused its configuration %s", w.configuration)
		}
		// Workers don't start at the same moment.
		w.schedule(v, w.random.Int64N(v.period+1))
	}
	w.leave()
}

// kill ends a node's process. What it has not pushed is gone, and so are its requests.
func (w *world) kill(place int) {
	for _, v := range w.nodes[place].vms {
		v.dead = true
	}
	w.nodes[place] = nil
}

// drain has a node leave in good order: it gets no more requests, and ends when its plugin is done.
func (w *world) drain(place int) {
	n := w.nodes[place]
	w.nodes[place] = nil
	for _, v := range n.vms {
		w.enter(v)
		v.leaving = true
		if v.plugin.OnPluginDone() {
			w.PluginDone()
		}
		w.leave()
	}
}

// nobodyWaits is an error if a request still does.
func (w *world) nobodyWaits() error {
	for _, n := range w.nodes {
		for i := 0; n != nil && i < len(n.vms); i++ {
			if waiting := len(n.vms[i].waiting); waiting > 0 {
				return fmt.Errorf("%d requests of worker %d of node %d wait for ever", waiting, i, n.place)
			}
		}
	}
	return nil
}

func (w *world) enter(v *vm) { w.vm = v }

// leave ends a callback. What the plugin has decided meanwhile of streams that were waiting takes effect now, as in Envoy.
func (w *world) leave() {
	w.vm.current = nil
	w.settle()
}

func (w *world) settle() {
	for i := 0; i < len(w.finished); i++ { // their ends may decide others
		s := w.finished[i]
		delete(s.vm.waiting, s.id)
		waited := w.now - s.came
		w.waits.requests++
		w.waits.longest = max(w.waits.longest, waited)
		w.end(s)
	}
	w.finished = w.finished[:0]
}

// end lets a decided request through or not, and runs what follows of its stream.
func (w *world) end(s *stream) {
	if s.state == resumed {
		w.passed()
	}
	s.vm.current = s
	s.context.OnHttpResponseHeaders(1, true)
	s.context.OnHttpStreamDone()
	s.vm.current = nil
	w.idle = append(w.idle, s)
}

// request brings a request to a worker of a node.
func (w *world) request(place, worker int, key []byte) {
	n := w.nodes[place]
	if n == nil {
		return
	}
	v := n.vms[worker]
	w.requests++
	w.streams++
	var s *stream
	if last := len(w.idle) - 1; last >= 0 {
		s, w.idle = w.idle[last], w.idle[:last]
	} else {
		s = &stream{}
	}
	*s = stream{vm: v, id: rootContext + w.streams, key: append(s.key[:0], key...), came: w.now}
	w.enter(v)
	s.context = v.plugin.NewHttpContext(s.id)
	v.current = s
	action := s.context.OnHttpRequestHeaders(3, true)
	switch {
	case s.state == deciding && action == types.ActionContinue:
		s.state = resumed
		w.end(s)
	case s.state == deciding:
		s.state = waiting
		v.waiting[s.id] = s
	default:
		w.end(s)
	}
	w.leave()
}

// schedule has a VM tick after a time and from then on every period.
func (w *world) schedule(v *vm, after int64) {
	v.timer++
	if v.period == 0 {
		return
	}
	timer := v.timer
	var tick func()
	tick = func() {
		if v.dead || v.timer != timer {
			return
		}
		w.enter(v)
		v.plugin.OnTick()
		w.leave()
		if !v.dead && v.timer == timer {
			w.at(w.now+v.period, tick)
		}
	}
	w.at(w.now+after, tick)
}

// deliver answers a callout.
func (w *world) deliver(c *callout, ok bool) {
	if !c.vm.dead {
		w.enter(c.vm)
		if c.vm.answer = c; !ok {
			c.status, c.answer = "504", c.answer[:0]
		}
		c.done(true)
		c.vm.answer = nil
		w.leave()
	}
	if c.done = nil; ok { // else the backend may get it yet
		w.callouts = append(w.callouts, c)
	}
}
