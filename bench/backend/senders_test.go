package backend

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"time"

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
	// senders push at once. Each of a node's workers is one.
	senders, workers = 8, 2
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
