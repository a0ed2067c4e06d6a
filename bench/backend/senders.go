package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir/internal/listen"
	"weir/internal/server"
	"weir/internal/store"
	"weir/internal/wire"
	"weir/window"
)

// workload is the pushes that senders send one after the other.
type workload struct {
	name string
	// items and takes are their numbers in a push. Each has another counter, and counts a hit.
	items, takes int
	lease        bool
	// shared means that all senders name the same counters in every push.
	shared bool
}

func (w *workload) hits() int { return w.items + w.takes }

var workloads = []workload{
	{name: "1 item", items: 1},
	{name: "100 items", items: 100},
	{name: "1,000 items", items: 1000},
	{name: "100 items, same keys", items: 100, shared: true},
	{name: "1 lease", takes: 1, lease: true},
	{name: "1 take", takes: 1},
	{name: "10 takes", takes: 10},
	{name: "1 take, same key", takes: 1, shared: true},
}

const (
	namespace = "bench"
	// counters is how many counters the senders name. It is prime, so any step through them visits
	// all.
	counters = 99991
	width    = time.Minute
	// limit is never reached.
	limit = 1e15
	// leased is the most hits that a lease asks for.
	leased = 100
	// Each of a node's workers is a sender.
	workers = 2
)

var ids = func() []wire.ID {
	random := rand.New(rand.NewPCG(1, 2))
	ids := make([]wire.ID, counters)
	for i := range ids {
		binary.LittleEndian.PutUint64(ids[i][:8], random.Uint64())
		binary.LittleEndian.PutUint64(ids[i][8:], random.Uint64())
	}
	return ids
}()

func counterOf(i int) wire.LimitCounter {
	return wire.LimitCounter{ID: ids[i%counters], Kind: uint8(window.SlidingWindow), WidthMillis: uint64(width.Milliseconds())}
}

func itemOf(i int) wire.Item {
	return wire.Item{LimitCounter: counterOf(i), Newest: uint64(time.Now().UnixMilli() / width.Milliseconds()), Hits: []int64{1, 0}}
}

// sender pushes like a worker of a proxy.
type sender struct {
	node, id, sequence uint64
	random             *rand.Rand
	client             *http.Client
	url                string
	body               []byte
}

// named returns a push without hits.
func (s *sender) named() *wire.Push {
	s.sequence++
	return &wire.Push{Namespace: namespace, Sender: s.id, Sequence: s.sequence, Floor: s.sequence, Node: s.node}
}

// next returns the next push of a workload.
func (s *sender) next(w *workload) *wire.Push {
	first, step := s.random.IntN(counters), 1+s.random.IntN(counters-1)
	if w.shared {
		first, step = 0, 1
	}
	p := s.named()
	for i := range w.items {
		p.Items = append(p.Items, itemOf(first+i*step))
	}
	for i := range w.takes {
		take := wire.Take{Least: 1, Most: 1, Rooms: []wire.Room{{LimitCounter: counterOf(first + i*step), Limit: limit, Cost: 1}}}
		if w.lease {
			take.Most, take.Lease = leased, true
		}
		p.Takes = append(p.Takes, take)
	}
	return p
}

// push sends a push and reads the answer.
func (s *sender) push(ctx context.Context, p *wire.Push) error {
	s.body = wire.AppendPush(s.body[:0], p)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, bytes.NewReader(s.body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", wire.ContentType)
	answer, err := s.client.Do(r)
	if err != nil {
		return err
	}
	body, err := io.ReadAll(answer.Body)
	if err = errors.Join(err, answer.Body.Close()); err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("the backend answers %s: %s", answer.Status, body)
	}
	return nil
}

// service is a backend with a store, and its senders.
type service struct {
	store   store.Store
	metrics *prometheus.Registry
	senders []*sender
}

// serve starts a backend. The returned function ends it.
func serve(store store.Store, senders int) (s *service, end func() error, err error) {
	s = &service{store: store, metrics: prometheus.NewRegistry()}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	stopped := make(chan error, 1)
	go func() { stopped <- listen.Serve(ctx, l, server.Handler(store, server.Options{Registry: s.metrics})) }()
	connections := &http.Transport{MaxIdleConnsPerHost: senders}
	random := rand.New(rand.NewPCG(3, uint64(time.Now().UnixNano())))
	for i := range senders {
		s.senders = append(s.senders, &sender{
			node: 1 + uint64(i/workers), id: random.Uint64(), random: rand.New(rand.NewPCG(4, uint64(i))),
			client: &http.Client{Transport: connections}, url: "http://" + l.Addr().String() + wire.PushPath,
		})
	}
	return s, func() error {
		connections.CloseIdleConnections()
		stop()
		return <-stopped
	}, nil
}

// fill creates every counter.
func (s *service) fill(ctx context.Context) error {
	filler := &sender{id: rand.Uint64()}
	for first := 0; first < counters; first += wire.MaxItems {
		p := filler.named()
		for i := first; i < min(first+wire.MaxItems, counters); i++ {
			p.Items = append(p.Items, itemOf(i))
		}
		if _, err := s.store.Push(ctx, p, 1); err != nil {
			return err
		}
	}
	return nil
}

// block has the figures of a period of pushing.
type block struct {
	elapsed time.Duration
	waits   []time.Duration // of each push
	// cpu is the processor time of this process.
	cpu time.Duration
}

// push lets all senders push at once, for a time and at least once.
func (s *service) push(ctx context.Context, w *workload, long time.Duration) (b block, err error) {
	waits := make([][]time.Duration, len(s.senders))
	errs := make([]error, len(s.senders))
	var group sync.WaitGroup
	cpu, start := ownCPU(), time.Now()
	for i, sender := range s.senders {
		group.Go(func() {
			for len(waits[i]) == 0 || time.Since(start) < long {
				p := sender.next(w)
				began := time.Now()
				if errs[i] = sender.push(ctx, p); errs[i] != nil {
					return
				}
				waits[i] = append(waits[i], time.Since(began))
			}
		})
	}
	group.Wait()
	b.elapsed, b.cpu = time.Since(start), ownCPU()-cpu
	for _, w := range waits {
		b.waits = append(b.waits, w...)
	}
	return b, errors.Join(errs...)
}

// ownCPU returns the processor time of this process.
func ownCPU() time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		return 0
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// applied returns how many hits the backend has applied, and how many pushes were duplicates.
func (s *service) applied() (hits, duplicates float64, err error) {
	families, err := s.metrics.Gather()
	for _, f := range families {
		switch f.GetName() {
		case "weir_hits_applied_total":
			hits = f.GetMetric()[0].GetCounter().GetValue()
		case "weir_push_duplicates_total":
			duplicates = f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	return hits, duplicates, err
}
