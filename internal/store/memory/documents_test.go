package memory

import (
	"fmt"
	"testing"
	"time"

	"weir/internal/must"
	"weir/internal/store"
)

// Notes of any size and of any namespace use at most the bound of their topic. The oldest make room.
func TestNotesAreBounded(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		topic           store.Topic
		size, most, fit int
	}{
		{store.Nodes, 0, 300, 300},
		{store.AppliedLists, 9, 300, 300},
		{store.Reports, 0, 64 << 10, 128},
		{store.Reports, 100, 64 << 10, 107},
		{store.Reports, 4 << 10, 64 << 10, 14},
	} {
		now := time.Unix(1_800_000_000, 0)
		s := New(Options{Now: func() time.Time { return now }})
		all := s.notes[test.topic]
		all.most = test.most
		namespace := func(i int) string { return fmt.Sprint("ns", i) }
		for i := range 3 * test.fit {
			now = now.Add(time.Millisecond)
			must.Get(s.Note(t.Context(), test.topic, namespace(i), store.Note{Member: 1, Body: make([]byte, test.size)}))(t)
			if all.size > all.most || len(all.rows) > test.fit || all.count(namespace(i)) != 1 {
				t.Fatalf("%d %v of %d bytes take %d", len(all.rows), test.topic, test.size, all.size)
			}
		}
		for i := range 3 * test.fit {
			found := must.Get(s.Notes(t.Context(), test.topic, namespace(i)))(t)
			must.Equal(t, len(found) > 0, i >= 2*test.fit, "%v of %d bytes: there are some of namespace %d of %d", test.topic, test.size, i, 3*test.fit)
		}
	}
}

// In a full store the node that joined longest ago in the largest namespace makes room, and nothing is kept of a
// namespace without nodes.
func TestNodesMakeRoomAndAreForgotten(t *testing.T) {
	t.Parallel()
	now := uint64(0)
	s := New(Options{Now: func() time.Time { return time.Unix(0, int64(now)) }})
	all := s.notes[store.Nodes]
	all.most = 3
	for _, step := range []struct {
		namespace string
		node, now uint64
		want      uint64
	}{
		{"a", 1, 10, 1}, {"a", 2, 11, 2}, {"b", 1, 12, 1},
		{"a", 1, 13, 2},
		{"b", 2, 14, 2}, {"a", 3, 15, 2}, // a's second node goes
		{"c", 1, 15 + uint64(store.NodeLife) - 1, 1},
		{"c", 2, 15 + uint64(store.NodeLife), 2},
	} {
		now = step.now
		must.EqualOrEnd(t, must.Get(store.Join(t.Context(), s, step.namespace, step.node))(t), step.want, "%+v", step)
	}
	if all.count("c") != 2 || len(all.rows) != 2 || all.size != 2 {
		t.Errorf("%d nodes, %d of c; want two of c alone", len(all.rows), all.count("c"))
	}
}
