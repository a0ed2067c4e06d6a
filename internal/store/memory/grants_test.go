package memory

import (
	"fmt"
	"testing"
	"time"

	"weir/internal/must"
	"weir/internal/store"
	"weir/internal/wire"
	"weir/window"
)

// noon is a clock that stands still.
func noon() time.Time { return time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC) }

// taking returns a push with a number of takes of a hit.
func taking(sender, sequence, floor uint64, takes int) *wire.Push {
	p := &wire.Push{Namespace: "ns", Sender: sender, Sequence: sequence, Floor: floor, Takes: make([]wire.Take, takes)}
	for i := range p.Takes {
		p.Takes[i] = wire.Take{Least: 1, Most: 1, Rooms: []wire.Room{{Limit: 1e12, Cost: 1, LimitCounter: wire.LimitCounter{
			Kind: uint8(window.FixedWindow), WidthMillis: 60_000,
		}}}}
	}
	return p
}

// remembered returns the number of pushes whose grants are remembered.
func remembered(s *Store) int {
	if own := s.grants.shares.Of("ns"); own != nil {
		return own.Of.Len()
	}
	return 0
}

func push(t *testing.T, s *Store, p *wire.Push) store.Outcome {
	t.Helper()
	return must.Get(s.Push(t.Context(), p, 1))(t)
}

// The grants of pushes are remembered until the floor has passed them, and no longer.
func TestGrantsAreForgottenBelowTheFloor(t *testing.T) {
	s := New(Options{Now: noon})
	for seq := uint64(1); seq <= 2*store.MaxAhead; seq++ {
		floor := seq - min(seq, 9)
		if out := push(t, s, taking(1, seq, floor, 1)); out.Duplicate || out.Applied != 1 {
			t.Fatalf("sequence %d: %+v", seq, out)
		}
		for back := range min(seq, 9) {
			if out := push(t, s, taking(1, seq-back, floor, 1)); !out.Duplicate || out.Answer.Grants[0].Units != 1 {
				t.Fatalf("sequence %d at %d: %+v", seq-back, seq, out)
			}
		}
		if remembered(s) > 10 || s.grants.bytes > 10*(grantOverhead+1) {
			t.Fatalf("%d grants remembered, want those from the floor on", remembered(s))
		}
	}
	must.Equal(t, s.Size().GrantsDropped, 0, "grants dropped")
}

// A sender whose floor does not move uses only its part of the memory. None of its pushes is
// applied twice. The grants of its first push, which has no answer, and of its latest pushes are
// remembered.
func TestGrantsOfASenderAreBounded(t *testing.T) {
	s := New(Options{Now: noon})
	const pushes, takes, latest = 2000, 20, 8
	for seq := uint64(1); seq <= pushes; seq++ {
		push(t, s, taking(1, seq, 1, takes))
		if size := s.Size(); size.GrantBytes > senderGrantBytes {
			t.Fatalf("after %d pushes %d bytes are remembered, want at most %d", seq, size.GrantBytes, senderGrantBytes)
		}
	}
	total := uint64(pushes * takes)
	for seq := uint64(1); seq <= pushes; seq++ {
		out := push(t, s, taking(1, seq, 1, takes))
		if !out.Duplicate || out.Applied != 0 || out.Answer.Grants[0].Totals[0].Hits[0] != total {
			t.Fatalf("sequence %d comes again: duplicate %v, %d applied, %v", seq, out.Duplicate, out.Applied, out.Answer.Grants[0])
		}
		if units := out.Answer.Grants[takes-1].Units; units != 1 && (seq == 1 || seq > pushes-latest) || units > 1 {
			t.Errorf("sequence %d has %d units when it comes again", seq, units)
		}
	}
	if size := s.Size(); size.GrantsDropped == 0 || int(size.GrantsDropped)+remembered(s) != pushes {
		t.Errorf("%+v, %d grants remembered", size, remembered(s))
	}
}

// Eight pushes with the largest grants are remembered: the plugin never has more without an answer.
func TestLargestGrantsAreRemembered(t *testing.T) {
	s := New(Options{Now: noon})
	large := func(seq uint64) *wire.Push {
		p := taking(1, seq, 1, wire.MaxItems)
		for i := range p.Takes {
			id := uint64(i)<<8 | seq
			room := &p.Takes[i].Rooms[0]
			room.ID, room.Limit = wire.ID{byte(id), byte(id >> 8), byte(id >> 16)}, wire.MaxHits
			p.Takes[i].Least, p.Takes[i].Most = wire.MaxHits, wire.MaxHits
		}
		return p
	}
	for range 2 {
		for seq := uint64(1); seq <= 8; seq++ {
			for i, g := range push(t, s, large(seq)).Answer.Grants {
				must.EqualOrEnd(t, g.Units, wire.MaxHits, "sequence %d, take %d: units", seq, i)
			}
		}
	}
	must.Equal(t, s.Size().GrantsDropped, 0, "grants dropped")
	must.AtMost(t, s.Size().GrantBytes, senderGrantBytes/3, "bytes of grants")
}

// Many senders together use only the memory for all. The oldest grants are forgotten, but not that
// their pushes were applied.
func TestGrantsOfAllSendersAreBounded(t *testing.T) {
	for counters, want := range map[int]int{0: 64 << 20, 1: 1 << 20, 1 << 24: 1 << 30} {
		must.Equal(t, New(Options{MaxCounters: counters}).grants.max, want, "a store of %d counters remembers bytes", counters)
	}
	s := New(Options{Now: noon})
	const senders, takes, most = 200, 200, 64 << 10
	s.grants.max = most
	for id := range uint64(senders) {
		must.EqualOrEnd(t, push(t, s, taking(id, 1, 1, takes)).Duplicate, false, "the push of sender %d is a duplicate", id)
		if size := s.Size(); size.GrantBytes > most {
			t.Fatalf("%d bytes are remembered, want at most %d", size.GrantBytes, most)
		}
	}
	for id, units := range map[uint64]uint64{0: 0, senders - 1: 1} {
		if out := push(t, s, taking(id, 1, 1, takes)); !out.Duplicate || out.Applied != 0 || out.Answer.Grants[0].Units != units {
			t.Errorf("the push of sender %d comes again: duplicate %v, %v; want %d units", id, out.Duplicate, out.Answer.Grants[0], units)
		}
	}
}

// A sender's grants are removed with its record.
func TestGrantsGoWithTheirSender(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	s := New(Options{MaxCounters: 1, Now: func() time.Time { return now }})
	s.senders.most, s.senders.spared = 1024, 0
	for id := range uint64(3000) {
		push(t, s, taking(id, 1, 1, 1))
	}
	if size := s.Size(); size.Senders != 1024 || size.GrantBytes != 1024*(grantOverhead+1) || size.GrantsDropped != 0 {
		t.Errorf("%+v", size)
	}
	now = now.Add(time.Hour)
	for seq := range uint64(1024) {
		push(t, s, &wire.Push{Namespace: "ns", Sender: 1 << 40, Sequence: seq + 1, Floor: seq + 1, Items: []wire.Item{hit(1, now, time.Hour)}})
	}
	if size := s.Size(); size.Senders != 1 || size.GrantBytes != 0 || remembered(s) != 0 {
		t.Errorf("%+v", size)
	}
}

// The lists of all namespaces together are bounded. A full store still takes a list that is no longer than
// what it replaces.
func TestBytesOfAllOverrides(t *testing.T) {
	s := New(Options{})
	list := make([]byte, wire.MaxOverridesSize)
	for i := range maxOverrideBytes / len(list) {
		s.overrides[fmt.Sprint("ns", i)] = overrides{list: list, version: 7}
	}
	_, err := s.SetOverrides(t.Context(), "another", 0, list[:1])
	must.Is(t, err, store.ErrInvalid, "a byte more")
	_, err = s.SetOverrides(t.Context(), "ns0", 7, list[1:])
	must.Reportf(t, err, "another of a byte less")
	_, err = s.SetOverrides(t.Context(), "another", 0, list[:1])
	must.Reportf(t, err, "as much as there is room for")
}
