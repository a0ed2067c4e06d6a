package memory

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"weir/internal/must"
	"weir/internal/store"
	"weir/internal/wire"
)

// A sender's record knows each push from the floor on, however far apart they are, with only the
// words that this needs.
func TestSendersKnowTheirPushes(t *testing.T) {
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 0))
		s, all := &sender{namespace: "ns"}, &grants{max: 1 << 20}
		applied := map[uint64]bool{}
		floor, next := uint64(1), uint64(1)
		for range 3000 {
			if random.IntN(3) == 0 {
				floor += random.Uint64N(1 << random.Uint64N(13))
			}
			next = max(next, floor)
			sequence := min(floor+random.Uint64N(1<<random.Uint64N(13)), floor+store.MaxAhead-1)
			// Late pushes have lower floors.
			told := floor - min(floor-1, random.Uint64N(100))
			told = max(told, sequence-min(sequence, store.MaxAhead-1))
			want := sequence < s.floor || applied[sequence]
			must.EqualOrEnd(t, s.note(sequence, told, all), want, "sequence %d at floor %d: known", sequence, s.floor)
			applied[sequence] = true
			if len(s.applied) > store.MaxAhead/64+1 || cap(s.applied) > 2*store.MaxAhead/64 {
				t.Fatalf("%d words, and room for %d", len(s.applied), cap(s.applied))
			}
		}
	}
}

// In a full store an active sender is remembered, however often others come. It is forgotten in
// favour of its namespace's senders after it was silent for SenderLife, and not before. Until then
// new senders are refused, and nothing changes.
func TestAFullStoreRefusesNewSenders(t *testing.T) {
	now := noon()
	s := New(Options{Now: func() time.Time { return now }})
	s.senders.most = 3
	one := hit(1, now, 24*time.Hour)
	of := func(sender, sequence uint64) *wire.Push {
		return &wire.Push{Namespace: "ns", Sender: sender, Sequence: sequence, Floor: 1, Items: []wire.Item{one}}
	}
	refused := func(sender uint64) {
		t.Helper()
		if _, err := s.Push(t.Context(), of(sender, 1), 1); !errors.Is(err, store.ErrFull) {
			t.Fatalf("sender %d: %v, want it refused", sender, err)
		}
	}
	for sender := range uint64(3) {
		push(t, s, of(sender, 1))
	}
	refused(3)
	now = now.Add(store.SenderLife - 1)
	refused(3)
	for sender := range uint64(2) { // the second sender by a copy
		if out := push(t, s, of(sender, 2-sender)); out.Duplicate != (sender == 1) || out.Answer.Totals[0].Hits[0] != 4 {
			t.Fatalf("sender %d: %+v", sender, out)
		}
	}
	now = now.Add(1)
	push(t, s, of(3, 1)) // replaces sender 2
	refused(2)
	for sender := range uint64(2) {
		if out := push(t, s, of(sender, 1)); !out.Duplicate || out.Answer.Totals[0].Hits[0] != 5 {
			t.Errorf("sender %d comes again: %+v", sender, out)
		}
	}
	if size := s.Size(); size.Senders != 3 || size.SendersEvicted != 1 || size.SendersRefused != 3 {
		t.Errorf("%+v", size)
	}
	// Another namespace finds room at once, and keeps it.
	theirs := of(0, 1)
	theirs.Namespace = "another"
	push(t, s, theirs)
	for sender := range uint64(100) {
		if _, err := s.Push(t.Context(), of(100+sender, 1), 1); err != nil && !errors.Is(err, store.ErrFull) {
			t.Fatal(err)
		}
	}
	must.Equal(t, push(t, s, theirs).Duplicate, true, "another namespace's sender is forgotten")
}
