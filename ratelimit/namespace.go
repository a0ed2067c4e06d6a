package ratelimit

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"weir/internal/counter"
	"weir/internal/wire"
	"weir/sharedata"
	"weir/window"
)

// Namespace is a set of counters: sliding windows of keys without a limit, and those of rules. Use [Instance.NewNamespace] to
// make one.
type Namespace struct {
	name     string
	now      func() time.Time
	table    *sharedata.Table
	windows  *rule // of Increment and SlidingWindow
	rules    []*rule
	limiters map[string]*Limiter
	hands    sync.Pool // of *hand

	store       Store
	syncRate    time.Duration
	onSyncError func(error)
	capacity    int
	lost        atomic.Uint64

	syncing  sync.Mutex // held while the store is talked to
	sender   uint64
	sequence uint64
	batch    batch

	mu      sync.Mutex
	known   map[wire.ID]place // counters to synchronise
	orphans []orphan
	fetched map[wire.ID][]fetched
	// waiting is len(fetched), for those who need not know more.
	waiting atomic.Int64
}

// hand is what one goroutine needs to work on one key.
type hand struct {
	rule    *rule
	key     []byte
	address sharedata.Address
	slot    sharedata.Slot
	cell    counter.Cell
	entry   []byte
}

func (n *Namespace) hand(r *rule) *hand {
	h, ok := n.hands.Get().(*hand)
	if !ok {
		h = &hand{}
	}
	h.rule = r
	return h
}

// aim points a hand at the key made of those parts.
func (n *Namespace) aim(h *hand, parts ...string) {
	h.key = append(h.key[:0], h.rule.prefix...)
	for _, part := range parts {
		h.key = counter.AppendPart(h.key, part)
	}
	h.address = n.table.Address(h.key)
}

// fetch reads a hand's cell as it was written last, and tells whether there is one.
func (n *Namespace) fetch(h *hand) (found bool) {
	found = n.table.Read(&h.slot, h.address)
	return h.cell.Load(&h.rule.counter, h.slot.Payload()) && found
}

// read reads a hand's cell and brings it to the present.
func (n *Namespace) read(h *hand, now int64) {
	found := n.fetch(h)
	h.cell.Advance(now)
	if !found && n.waiting.Load() > 0 {
		n.welcome(h)
	}
}

// charge readies a cell that was read for taking hits, and tells whether it has to be remembered once it is written.
func (n *Namespace) charge(h *hand, now int64) (adopted bool) {
	adopted = h.cell.Adopt(now, true)
	if !h.cell.Identified() {
		h.cell.Identify(counter.Identity(h.key))
	}
	return adopted
}

// write writes a hand's cell, unless its page was written since it was read. Then another goroutine got ahead: callers may try
// again for as long as it takes, as one of them always does.
func (n *Namespace) write(h *hand, now int64) (written bool) {
	h.entry = h.cell.Append(h.entry[:0], now)
	var meta sharedata.Meta
	meta.ExpiresNanos, meta.Use = h.cell.Worth()
	if !n.table.Write(&h.slot, h.entry, meta, now) {
		return false
	}
	if n.store != nil {
		h.slot.Evicted(n.rescue)
	}
	return true
}

// commit writes hits that were taken, and sees to it that they are synchronised.
func (n *Namespace) commit(h *hand, now int64, adopted bool) (written bool) {
	if !n.write(h, now) {
		return false
	}
	if adopted {
		n.remember(h.cell.Sync().ID, place{address: h.address, rule: h.rule})
	}
	return true
}

// Increment counts hits of a key in the window of a size, and returns the key's rate after them: the window's hits, plus those
// of the window before by the share of it that a window ending now still covers. Windows start at multiples of their size since
// the Unix epoch. The error wraps [ErrNotDefined] if the namespace has no such window; nothing is counted then.
func (n *Namespace) Increment(key string, size time.Duration, hits uint64) (rate float64, err error) {
	i, err := n.find(size)
	if err != nil {
		return 0, err
	}
	h := n.hand(n.windows)
	defer n.hands.Put(h)
	n.aim(h, key)
	now := n.now().UnixNano()
	for {
		n.read(h, now)
		l, s := &n.windows.counter.Limits[i], &h.cell.States[i]
		adopted := hits != 0 && n.charge(h, now)
		l.Take(s, hits)
		if hits == 0 || n.commit(h, now, adopted) {
			return l.Rate(s), nil
		}
	}
}

// SlidingWindow is the rate of a key in the window of a size, as [Namespace.Increment] tells it, without a hit.
func (n *Namespace) SlidingWindow(key string, size time.Duration) (rate float64, err error) {
	return n.slidingWindow(key, size, func(*window.Hits) {})
}

// SlidingWindowWith is what [Namespace.SlidingWindow] would be if the current window's hits that were not pushed yet were diff
// in number. Without a store these are all of them.
func (n *Namespace) SlidingWindowWith(key string, size time.Duration, diff uint64) (rate float64, err error) {
	return n.slidingWindow(key, size, func(current *window.Hits) {
		if n.store == nil {
			current.Total = 0
		}
		current.Diff = int64(min(diff, window.MaxHits))
	})
}

func (n *Namespace) slidingWindow(key string, size time.Duration, change func(current *window.Hits)) (float64, error) {
	i, err := n.find(size)
	if err != nil {
		return 0, err
	}
	h := n.hand(n.windows)
	defer n.hands.Put(h)
	n.aim(h, key)
	n.read(h, n.now().UnixNano())
	s := &h.cell.States[i]
	change(&s.Hits[0])
	return n.windows.counter.Limits[i].Rate(s), nil
}

// find is the place of a window size.
func (n *Namespace) find(size time.Duration) (int, error) {
	for i := range n.windows.counter.Limits {
		if n.windows.counter.Limits[i].Width == int64(size) {
			return i, nil
		}
	}
	return 0, fmt.Errorf("ratelimit: namespace %q: window %v: %w", n.name, size, ErrNotDefined)
}
