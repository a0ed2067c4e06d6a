package storetest

import (
	"errors"
	"testing"

	"weir/internal/must"
	"weir/internal/store"
	"weir/internal/wire"
)

// Neighbours wants a namespace's data in the store to stay unchanged while another namespace
// pushes, takes, joins and reports much more than a small store has room for.
func Neighbours(t *testing.T, open Open) { testNeighbours(t, newBench(t, open)) }

func testNeighbours(t *testing.T, b *bench) {
	const keys, many = 12, 48
	victim := &wire.Push{Namespace: "ns", Sender: 1, Sequence: 1, Floor: 1, Items: []wire.Item{b.item(wide(Room(fixed, 200, 9, 1), day), 7)}}
	for id := range byte(keys) {
		victim.Takes = append(victim.Takes, Take(1, 3, wide(Room(fixed, id, 3, 1), day)))
	}
	b.send(victim, 1)
	ctx := t.Context()
	for _, node := range []uint64{1, 2} {
		b.note(store.Nodes, "ns", node, "")
		b.note(store.AppliedLists, "ns", node, "5 0")
		b.note(store.Reports, "ns", node, "of it")
	}
	list := []byte("a list")
	b.setOverrides(0, list)

	report := make([]byte, 1000)
	for i := range uint64(many) {
		p := &wire.Push{Namespace: "evil", Sender: i, Sequence: 1, Floor: 1}
		for j := range uint64(keys) {
			// The keys are the same, and each take has another window.
			p.Takes = append(p.Takes, Take(1, 1+i, wide(Room(fixed, byte(j), 1+i, 1), day+(i*keys+j)*1000)))
		}
		if _, err := b.store.Push(ctx, p, 1); err != nil && !errors.Is(err, store.ErrFull) {
			t.Fatal(err)
		}
		b.note(store.Nodes, "evil", i, "")
		b.note(store.AppliedLists, "evil", i, "0 0")
		b.note(store.Reports, "evil", i, string(report))
	}
	must.Get(b.store.SetOverrides(ctx, "evil", 0, report))(t)

	again := b.send(victim, 1)
	if !again.Duplicate || again.Applied != 0 || again.Answer.Totals[0].Hits[0] != 7 {
		t.Errorf("a push that comes again: duplicate %v, %d applied, total %v", again.Duplicate, again.Applied, again.Answer.Totals[0])
	}
	for i, g := range again.Answer.Grants {
		must.Equal(t, g.Units, 3, "take %d comes again: units", i)
		must.Equal(t, g.Totals[0].Hits[0], 3, "take %d comes again: hits", i)
	}
	b.nodes("ns", 1, 2)
	b.notes(store.AppliedLists, "ns", "1:5 0", "2:5 0")
	b.notes(store.Reports, "ns", "1:of it", "2:of it")
	b.wantOverrides("ns", list)
}
