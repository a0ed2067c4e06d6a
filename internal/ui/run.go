// Package ui serves the page's live view: with controls for weir run, and read-only for weir serve.
package ui

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"weir/config"
	"weir/internal/backend"
	"weir/internal/failure"
	"weir/internal/host"
	"weir/internal/live"
	"weir/internal/server"
	"weir/internal/store"
	"weir/window"
)

const (
	// every is the time between two moments. kept is how many moments a page can still get: those
	// of five minutes. Of the hour before them it gets keptOld, every keptEvery-th.
	every     = 500 * time.Millisecond
	kept      = 601
	keptEvery = 20
	keptOld   = 360
	// leastRest is the least rest after a moment, in multiples of the time that the moment took.
	leastRest = 9
	// lookEvery is the time between two looks at the store, while a page is open.
	lookEvery = time.Second
	// maxStreams bounds the pages that get events at the same time.
	maxStreams = 16
	// maxBody bounds the request of a page, in bytes.
	maxBody = 4 << 10
	// maxLimit is the largest limit that the page can set.
	maxLimit = 1_000_000
	// fewEach is the most rules, counted once per node, for which every moment has the rules of
	// each node. With more, five minutes of moments would fill the memory: 50 nodes of 256 rules
	// have 12,800.
	fewEach = 64
)

// Options configure a [View].
type Options struct {
	Config *config.Config
	// Processes are the nodes' processes, VMID is the vm_id of their plugins, and Nodes are the
	// addresses on which they listen.
	Processes []*host.Process
	VMID      string
	Nodes     []string
	// Lines are the lines between the nodes and the backend.
	Lines *Lines
	// Backend is the address at which commands reach the backend; empty if there is none.
	Backend string
	// Store is the backend's store, or nil if the configuration has no backend.
	Store store.Store
	// Page serves all paths but those of the view.
	Page http.Handler
	// Now is the clock; nil is time.Now.
	Now func() time.Time
	// Logger is told of changes; nil is slog.Default.
	Logger *slog.Logger
}

// View is the live view of weir run. Make it with [New], and call [View.Run] to run it.
type View struct {
	o       Options
	traffic *traffic
	backend *backend.Backend // nil if there is none
	tables  *live.Tables     // the tables of nodes, for take
	sampler live.Sampler     // for take
	ended   chan struct{}
	changes atomic.Int64 // that pages have made

	setting sync.Mutex // held while limits are set

	mu      sync.Mutex
	moments server.History[Moment]
	newest  [][]live.Rule // by node and rule, at the newest moment
	tick    chan struct{} // closed at the next moment
	streams int
	looked  *Looked             // another one after each look
	since   time.Time           // when the backend got out of order; zero while it is not
	set     map[string][]uint64 // the limits that pages have set for their users, by the rule's name
}

// Moment has the counts of all nodes at a moment.
type Moment struct {
	// Number counts moments, from 1.
	Number int64 `json:"n"`
	// At is in milliseconds of Unix time.
	At int64 `json:"at"`
	// Rules has the sum of all nodes for each rule of the configuration.
	Rules []Sum `json:"rules"`
	// Nodes have their rules if there are few; at the newest moment they also have the rules that a
	// page asks for.
	Nodes []Node `json:"nodes"`
	// All is the requests of all nodes together.
	All host.Traffic `json:"all"`
	// Most is the most counted hits that have passed, by rule and limit of the configuration.
	Most [][]uint64 `json:"most"`
}

// Sum adds up the counts of all nodes for a rule.
type Sum struct {
	Allowed  int64 `json:"allowed"`
	Rejected int64 `json:"refused"`
	// Overshoot is the largest overshoot of any node: see [live.Rule].
	Overshoot int64 `json:"overshoot"`
	// Shadow means that no node enforces the rule now, whatever its configuration says.
	Shadow bool `json:"shadow,omitempty"`
}

// Node has the counts and callouts of a node.
type Node struct {
	live.Node
	Callouts
}

// Looked is what the store has of the nodes' reports, at the last look.
type Looked struct {
	// Failed says that the store could not be read.
	Failed bool        `json:"failed"`
	Top    backend.Top `json:"top"`
}

// State is the current state of the view.
type State struct {
	// Changes is how many changes of pages are in the state for sure.
	Changes int64  `json:"changes"`
	Backend bool   `json:"backend"`
	Faults  Faults `json:"faults"`
	// Since is when the backend got out of order, in milliseconds of Unix time; left out if it did not.
	Since int64 `json:"since,omitempty"`
	Load  Load  `json:"load"`
	Sent  Sent  `json:"sent"`
	// Limits are the limits that the page has set for its users, by the rule's name.
	Limits map[string][]uint64 `json:"limits,omitempty"`
	Looked *Looked             `json:"looked,omitempty"` // left out if the page has been told before
}

// Setup has the data that does not change.
type Setup struct {
	Namespace string `json:"namespace"`
	// Backend is the address at which commands reach the backend; left out if there is none.
	Backend string   `json:"backend,omitempty"`
	Nodes   []string `json:"nodes"`
	Rules   []Rule   `json:"rules"`
	// Each says that moments have the rules of each node. If not, a page asks for rules by
	// ?rule=NAME.
	Each bool `json:"each"`
	// Failure is the decision of nodes without the backend, and TimeoutMS is how long they wait for
	// it.
	Failure   string `json:"failure"`
	TimeoutMS int64  `json:"timeout_ms"`
}

// Rule is a rule of the configuration.
type Rule struct {
	Name   string `json:"name"`
	Shadow bool   `json:"shadow"`
	// Shared says that nodes keep the rule's limits together, and Varies that keys may have other
	// limits.
	Shared bool    `json:"shared"`
	Varies bool    `json:"varies"`
	Limits []Limit `json:"limits"`
	// Key names the parts of a request that form the key.
	Key []string `json:"key,omitempty"`
	// Full is "mark" or "delay" if requests without room are not refused but marked or delayed.
	Full string `json:"full,omitempty"`
	// Costly says that a request may take more than one hit.
	Costly bool `json:"costly,omitempty"`
}

// Limit is a limit of a rule.
type Limit struct {
	Limit     uint64 `json:"limit"`
	WindowMS  int64  `json:"window_ms"`
	Algorithm string `json:"algorithm"`
}

// limitOf returns a limit as the page gets it.
func limitOf(l *window.Limit) Limit {
	return Limit{Limit: l.Quota(), WindowMS: l.Width / int64(time.Millisecond), Algorithm: l.Name()}
}

// New returns a view.
func New(o Options) *View {
	if o.Now == nil {
		o.Now = time.Now
	}
	o.Logger = cmp.Or(o.Logger, slog.Default())
	v := &View{o: o, looked: new(Looked), set: map[string][]uint64{}, traffic: newTraffic(o.Nodes, o.Config, o.Now), ended: make(chan struct{}), tick: make(chan struct{})}
	v.moments = server.History[Moment]{Keep: kept, Old: keptOld, Every: keptEvery}
	v.tables = live.NewTables(o.Config, o.VMID, o.Processes)
	if o.Store != nil {
		v.backend = backend.New(o.Store)
		v.backend.Now = o.Now
	}
	return v
}

// Run takes moments and sends traffic until ctx ends. Then all streams end.
func (v *View) Run(ctx context.Context) error {
	defer close(v.ended)
	var group sync.WaitGroup
	defer group.Wait()
	group.Go(func() { v.traffic.run(ctx) })
	if v.backend != nil {
		group.Go(func() { v.lookOn(ctx) })
	}
	for ctx.Err() == nil {
		began := time.Now()
		v.take()
		took := time.Since(began)
		select {
		// Tables of millions of counters take longer, and the nodes need the processor too.
		case <-time.After(max(every-took, leastRest*took)):
		case <-ctx.Done():
		}
	}
	return nil
}

func (v *View) take() {
	s := v.sampler.Take(v.o.Now(), v.o.Processes)
	most := v.tables.Look(&s)
	v.note(&s, most)
}

// note makes a sample the newest moment.
func (v *View) note(s *live.Sample, most [][]uint64) {
	m := Moment{At: s.At.UnixMilli(), Most: most, Rules: v.sum(s), All: s.Traffic}
	newest := make([][]live.Rule, len(s.Nodes))
	for i := range s.Nodes {
		newest[i] = s.Nodes[i].Rules
		if !v.each() {
			s.Nodes[i].Rules = nil
		}
		m.Nodes = append(m.Nodes, Node{s.Nodes[i], v.o.Lines.Callouts(i)})
	}
	f := v.o.Lines.Faults()
	v.mu.Lock()
	defer v.mu.Unlock()
	if !f.Away && f.DelayMS == 0 && len(f.Cut) == 0 && !v.looked.Failed {
		v.since = time.Time{}
	} else if v.since.IsZero() {
		v.since = s.At
	}
	v.newest = newest
	m.Number = v.moments.Next()
	v.moments.Add(m)
	close(v.tick)
	v.tick = make(chan struct{})
}

// each reports whether moments keep the rules of each node.
func (v *View) each() bool { return len(v.o.Nodes)*len(v.o.Config.Rules) <= fewEach }

// sum adds up the counts of nodes, for each rule of the configuration.
func (v *View) sum(s *live.Sample) []Sum {
	c := v.o.Config
	sums := make([]Sum, len(c.Rules))
	number := make(map[string]int, len(c.Rules))
	for i := range c.Rules {
		number[c.Rules[i].Name] = i
		sums[i].Shadow = c.Rules[i].Shadow
	}
	told := make([]bool, len(sums))
	for i := range s.Nodes {
		for _, r := range s.Nodes[i].Rules {
			if at, known := number[r.Name]; known && r.Namespace == c.Namespace {
				sums[at].Allowed += r.Allowed
				sums[at].Rejected += r.Rejected
				sums[at].Overshoot = max(sums[at].Overshoot, r.Overshoot)
				sums[at].Shadow, told[at] = r.Shadow && (sums[at].Shadow || !told[at]), true
			}
		}
	}
	return sums
}

// busy reports whether nodes had requests in the moments that are kept.
func (v *View) busy() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	moments := v.moments.After(max(0, v.moments.Next()-1-int64(kept)))
	if len(moments) == 0 {
		return false
	}
	requests := func(m *Moment) (n int64) {
		for i := range m.Rules {
			n += m.Rules[i].Allowed + m.Rules[i].Rejected
		}
		return n
	}
	return requests(&moments[len(moments)-1]) > requests(&moments[0])
}

// lookOn looks at the store regularly while a page is open.
func (v *View) lookOn(ctx context.Context) {
	ticks := time.Tick(lookEvery)
	for {
		select {
		case <-ticks:
		case <-ctx.Done():
			return
		}
		v.mu.Lock()
		somebody := v.streams > 0
		v.mu.Unlock()
		if !somebody {
			continue
		}
		looked := new(v.look(ctx))
		v.mu.Lock()
		v.looked = looked
		v.mu.Unlock()
	}
}

func (v *View) look(ctx context.Context) Looked {
	ctx, cancel := context.WithTimeout(ctx, backend.Timeout)
	defer cancel()
	top, err := v.backend.Top(ctx, v.o.Config.Namespace, "")
	if err != nil {
		return Looked{Failed: true}
	}
	return Looked{Top: top}
}

// Handler serves the view at an address, and the page.
func (v *View) Handler(address string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /live.json", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, map[string]any{"live": "run", "traffic": v.busy()})
	})
	mux.HandleFunc("GET /live/events", v.events)
	mux.HandleFunc("GET /live/why", v.why)
	mux.HandleFunc("POST /live/load", change(v, v.traffic.set))
	mux.HandleFunc("POST /live/burst", change(v, func(b struct {
		Requests int `json:"requests"`
	}) error {
		return v.traffic.burst(b.Requests)
	}))
	mux.HandleFunc("POST /live/faults", change(v, v.setFaults))
	mux.HandleFunc("POST /live/limit", change(v, v.setLimit))
	mux.Handle("/", v.o.Page)
	if v.backend != nil {
		actions(mux, server.Handler(v.o.Store, server.Options{Backend: v.backend, Logger: v.o.Logger, Now: v.o.Now, Host: address}))
	}
	return Guard(address, mux)
}

// change returns a handler that makes the change in a request's body. Its answer has the number of
// changes, so that a page can tell states from before the change.
func change[T any](v *View, set func(T) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var asked T
		d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
		d.DisallowUnknownFields()
		err := d.Decode(&asked)
		if err == nil && d.Decode(new(json.RawMessage)) != io.EOF {
			err = errors.New("want nothing after the JSON value")
		}
		if err == nil {
			err = set(asked)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("x-weir-changes", strconv.FormatInt(v.changes.Add(1), 10))
		w.WriteHeader(http.StatusNoContent)
	}
}

func answer(w http.ResponseWriter, body any) {
	w.Header().Set("content-type", "application/json")
	w.Header().Set("cache-control", "no-store")
	w.Header().Set("x-content-type-options", "nosniff")
	_ = json.NewEncoder(w).Encode(body) // fails if the client has gone
}

func (v *View) setFaults(f Faults) error {
	if v.backend == nil {
		return errors.New("the configuration has no backend")
	}
	if f.DelayMS < 0 || f.DelayMS > maxDelayMS {
		return fmt.Errorf("delay_ms: want 0 to %d, got %d", maxDelayMS, f.DelayMS)
	}
	for _, n := range f.Cut {
		if n < 0 || n >= len(v.o.Nodes) {
			return fmt.Errorf("cut: want numbers of nodes, 0 to %d, got %d", len(v.o.Nodes)-1, n)
		}
	}
	slices.Sort(f.Cut)
	f.Cut = append([]int{}, slices.Compact(f.Cut)...)
	v.o.Lines.Set(f)
	return nil
}

func (v *View) state() State {
	changes := v.changes.Load() // before anything else
	load, sent := v.traffic.told()
	s := State{Changes: changes, Backend: v.backend != nil, Faults: v.o.Lines.Faults(), Load: load, Sent: sent}
	if s.Faults.Cut == nil {
		s.Faults.Cut = []int{}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.since.IsZero() {
		s.Since = v.since.UnixMilli()
	}
	s.Looked, s.Limits = v.looked, maps.Clone(v.set)
	return s
}

// events sends moments to a page as long as it reads them. A page that reconnects names its last
// moment in Last-Event-ID. It may ask for some rules of each node: see [Setup].
func (v *View) events(w http.ResponseWriter, r *http.Request) {
	v.mu.Lock()
	if v.streams >= maxStreams {
		v.mu.Unlock()
		http.Error(w, "too many pages are watching: close some", http.StatusServiceUnavailable)
		return
	}
	v.streams++
	v.mu.Unlock()
	defer func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.streams--
	}()
	stream, err := server.NewStream(w)
	if err != nil {
		http.Error(w, "this connection does not support streaming", http.StatusInternalServerError)
		return
	}
	last, asked := server.LastEvent(r), map[string]bool{}
	for _, name := range r.URL.Query()["rule"] {
		asked[name] = true
	}
	if stream.Send("setup", v.setup()) != nil {
		return
	}
	var looked *Looked
	for {
		moments, tick := v.after(last, asked)
		for i := range moments {
			if stream.Send("moment", &moments[i]) != nil {
				return
			}
			last = moments[i].Number
		}
		state := v.state()
		if state.Looked == looked {
			state.Looked = nil
		} else {
			looked = state.Looked
		}
		if stream.Send("state", state) != nil || stream.Flush() != nil {
			return
		}
		select {
		case <-tick:
		case <-r.Context().Done():
			return
		case <-v.ended:
			return
		}
	}
}

// after returns the moments after last, and a channel that closes at the next moment. The newest
// moment has the asked rules of each node.
func (v *View) after(last int64, asked map[string]bool) ([]Moment, <-chan struct{}) {
	v.mu.Lock()
	defer v.mu.Unlock()
	moments := v.moments.After(last)
	if len(moments) > 0 && len(asked) > 0 && !v.each() {
		newest := &moments[len(moments)-1]
		newest.Nodes = slices.Clone(newest.Nodes)
		for i, rules := range v.newest {
			for j := range rules {
				if asked[rules[j].Name] {
					newest.Nodes[i].Rules = append(newest.Nodes[i].Rules, rules[j])
				}
			}
		}
	}
	return moments, v.tick
}

func (v *View) setup() Setup {
	c := v.o.Config
	s := Setup{
		Namespace: c.Namespace, Backend: v.o.Backend, Nodes: v.o.Nodes, Each: v.each(), Failure: failure.Names[c.OnBackendFailure], TimeoutMS: int64(c.Backend.Timeout) / int64(time.Millisecond),
	}
	for i := range c.Rules {
		r := &c.Rules[i]
		told := Rule{Name: r.Name, Shadow: r.Shadow, Shared: r.SyncRate >= 0, Varies: r.Varies()}
		for j := range r.Limits {
			told.Limits = append(told.Limits, limitOf(&r.Limits[j]))
		}
		for j := range r.Key {
			told.Key = append(told.Key, partOf(&r.Key[j]))
		}
		switch told.Costly = costly(r); {
		case r.Marks:
			told.Full = "mark"
		case r.Delay > 0:
			told.Full = "delay"
		}
		s.Rules = append(s.Rules, told)
	}
	return s
}
