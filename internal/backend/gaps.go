package backend

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"weir/internal/store"
	"weir/internal/wire"
)

// Gap is a time of which usage may be missing: a sender fell silent without a word that it ends. If it comes back it
// tells what it has counted meanwhile, and the gap is gone.
type Gap struct {
	// Node is the process, and Sender its worker.
	Node   Number `json:"node"`
	Sender Number `json:"worker"`
	// From is when the sender had told all that it had counted, and To when it was given up.
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
	// Idle means that when last heard the sender had had nothing to tell for a second at least.
	Idle bool `json:"idle"`
}

// How a sender of usage stands in its note.
const (
	tellerEnded = "ended"
	tellerIdle  = "idle"
	tellerBusy  = "busy"
)

// tellers has the sequence of the last message by which each sender of usage was noted.
type tellers struct {
	mu   sync.Mutex
	last members[uint64]
}

// noteTellers notes what is known of the sender of a message, and of others that it says have ended. A message
// that was late on its way tells nothing new.
func (b *Backend) noteTellers(ctx context.Context, u *wire.Used) error {
	state := tellerBusy
	if len(u.Rows) == 0 {
		state = tellerIdle
	}
	if slices.Contains(u.Ended, u.Sender) {
		state = tellerEnded
	}
	err := b.noteTeller(ctx, u, u.Sender, u.Sequence, state)
	for _, sender := range u.Ended {
		if sender != u.Sender && err == nil {
			err = b.noteTeller(ctx, u, sender, wire.MaxHits, tellerEnded)
		}
	}
	return err
}

func (b *Backend) noteTeller(ctx context.Context, u *wire.Used, sender, sequence uint64, state string) error {
	t, key := &b.tellers, member{u.Namespace, sender}
	t.mu.Lock()
	last, _ := t.last.get(key)
	t.mu.Unlock()
	if last > sequence {
		return nil
	}
	heard := b.Now().UnixMilli()
	told := min(u.AtNanos/1e6, uint64(max(0, heard)))
	_, err := b.store.Note(ctx, store.Tellers, u.Namespace, store.Note{Member: sender, Body: fmt.Appendf(nil, "%s %d %d %d", state, u.Node, told, heard)})
	if err == nil {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.last.put(key, sequence)
	}
	return err
}

// Gaps returns the gaps in a namespace's usage that touch the days from from to to, the first one first. Some
// before since may be forgotten because the namespace has had many senders; it is zero if it has not. A store in memory that
// is full forgets without that. A sender that is heard again has left no gap: it tells late what it has counted.
func (b *Backend) Gaps(ctx context.Context, namespace string, from, to uint32) (gaps []Gap, since time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	notes, err := b.store.Notes(ctx, store.Tellers, namespace)
	first, after := time.Unix(int64(from)*86400, 0), time.Unix(int64(to+1)*86400, 0)
	for _, n := range notes {
		state, told, heard, g := "", int64(0), int64(0), Gap{Sender: Number(n.Member)}
		if _, err := fmt.Sscanf(string(n.Body), "%s %d %d %d", &state, &g.Node, &told, &heard); err != nil {
			continue // another program's
		}
		g.From, g.To, g.Idle = time.UnixMilli(told).UTC(), time.UnixMilli(heard).UTC().Add(store.NodeLife), state == tellerIdle
		// A log that has dropped the oldest stays as full, until those that were heard later have expired, too.
		if last := time.UnixMilli(heard).UTC(); len(notes) > store.MaxTellers-store.MaxTellers/16 && (since.IsZero() || last.Before(since)) {
			since = last
		}
		if state != tellerEnded && b.Now().After(g.To) && g.From.Before(after) && !g.To.Before(first) {
			gaps = append(gaps, g)
		}
	}
	slices.SortFunc(gaps, func(a, b Gap) int { return cmp.Or(a.From.Compare(b.From), cmp.Compare(a.Sender, b.Sender)) })
	return gaps, since, err
}
