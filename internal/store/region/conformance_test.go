package region

import (
	"context"
	"io"
	"log/slog"
	"runtime"
	"sync"
	"testing"
	"time"

	"weir/internal/backend"
	"weir/internal/must"
	"weir/internal/store"
	"weir/internal/store/memory"
	"weir/internal/store/redis"
	"weir/internal/store/redis/redistest"
	"weir/internal/store/storetest"
	"weir/internal/wire"
)

// parentOf is a backend in the same process. It keeps the outcomes of pushes, which answers don't
// have.
type parentOf struct {
	backend  *backend.Backend
	outcomes sync.Map // by pushName
}

type pushName struct {
	namespace        string
	sender, sequence uint64
}

func (p *parentOf) Push(ctx context.Context, message []byte) ([]byte, error) {
	reply, err := p.backend.Push(ctx, message)
	if push, errPush := wire.DecodePush(message); errPush == nil && err == nil {
		p.outcomes.Store(pushName{push.Namespace, push.Sender, push.Sequence}, reply.Outcome)
	}
	return reply.Body, err
}

// both is a region with its parent, which answers what the region relays or does not keep.
type both struct {
	store.Store
	region *Store
}

// Push adds the outcome of the relayed part. Nothing is under way to the parent when it returns, as the suite's clock jumps then: a
// push that takes seconds finds other tokens there.
func (b *both) Push(ctx context.Context, p *wire.Push, nodes uint64) (store.Outcome, error) {
	out, err := b.region.Push(ctx, p, nodes)
	for b.underWay() {
		runtime.Gosched()
	}
	relayed, ok := b.region.o.Parent.(*parentOf).outcomes.LoadAndDelete(pushName{p.Namespace, p.Sender, p.Sequence})
	if of, _ := relayed.(store.Outcome); ok {
		out.Applied, out.Returned, out.Dropped = wire.Sum(out.Applied, of.Applied), wire.Sum(out.Returned, of.Returned), wire.Sum(out.Dropped, of.Dropped)
		out.Duplicate = out.Duplicate || of.Duplicate
	}
	return out, err
}

func (b *both) underWay() bool {
	b.region.mu.Lock()
	defer b.region.mu.Unlock()
	for _, from := range b.region.senders {
		if len(from.flying) > 0 {
			return true
		}
	}
	return len(b.region.due) > 0
}

func (b *both) Ping(ctx context.Context) error { return b.region.Ping(ctx) }

func (b *both) Note(ctx context.Context, topic store.Topic, namespace string, note store.Note) (uint64, error) {
	if topic == store.Reports || topic == store.Tellers {
		return b.Store.Note(ctx, topic, namespace, note)
	}
	return b.region.Note(ctx, topic, namespace, note)
}

func (b *both) Notes(ctx context.Context, topic store.Topic, namespace string) ([]store.Note, error) {
	if topic == store.Reports || topic == store.Tellers {
		return b.Store.Notes(ctx, topic, namespace)
	}
	return b.region.Notes(ctx, topic, namespace)
}

// Counters visits the counters of the region, and the parent's counters of keys with kinds that a
// region relays.
func (b *both) Counters(ctx context.Context, namespace string, only *store.Wanted, visit func(store.LimitCounter) error) error {
	relayed := map[wire.ID]bool{}
	err := b.Store.Counters(ctx, namespace, nil, func(c store.LimitCounter) error {
		relayed[c.ID] = relayed[c.ID] || !Holds(&c.LimitCounter)
		return nil
	})
	if err == nil {
		err = b.region.Counters(ctx, namespace, only, visit)
	}
	if err != nil {
		return err
	}
	return b.Store.Counters(ctx, namespace, only, func(c store.LimitCounter) error {
		if !relayed[c.ID] {
			return nil
		}
		return visit(c)
	})
}

// inMemory returns a region in memory, with a parent on a store.
func inMemory(t testing.TB, now func() time.Time, parent store.Store) store.Store {
	r := New(Options{Parent: &parentOf{backend: backend.New(parent)}, Now: now, Logger: slog.New(slog.DiscardHandler)})
	r.ticking = time.Hour // no tick comes in between, at a time of its own
	r.waits = time.Minute // the largest pushes take longer than usual on a busy machine
	must.OK(t, r.Start(t.Context(), memory.New(memory.Options{Now: r.Now, Granter: r})))
	t.Cleanup(func() { must.Report(t, r.Close()) })
	return &both{parent, r}
}

// A region passes the conformance suite with any store of its parent, except for the tests that
// name a reason.
func TestStore(t *testing.T) {
	const (
		pools = "a region gives what it holds at once, which may be less than a store leases"
		mixed = "a take of held and of relayed kinds is counted at the parent, of which the region hears later"
	)
	but := map[string]string{
		"leases":            pools,
		"leases hammer":     pools,
		"large takes":       mixed,
		"counters of a key": mixed,
	}
	for name, open := range map[string]func(t testing.TB, now func() time.Time) (store.Store, io.Closer, error){
		"memory": func(_ testing.TB, now func() time.Time) (store.Store, io.Closer, error) {
			return memory.New(memory.Options{Now: now}), io.NopCloser(nil), nil
		},
		"Redis": func(t testing.TB, now func() time.Time) (store.Store, io.Closer, error) {
			s, err := redis.Open(redistest.Start(t).URL(), redis.Options{Now: now})
			return s, s, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			storetest.RunBut(t, func(t testing.TB, now func() time.Time) store.Store {
				parent, closer, err := open(t, now)
				must.OK(t, err)
				t.Cleanup(func() { must.Report(t, closer.Close()) })
				return inMemory(t, now, parent)
			}, but)
		})
	}
}
