package storetest

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"weir/internal/must"
	"weir/internal/store"
)

// note keeps a member's note.
func (b *bench) note(topic store.Topic, namespace string, member uint64, body string) {
	b.t.Helper()
	must.Get(b.store.Note(b.t.Context(), topic, namespace, store.Note{Member: member, Body: []byte(body)}))(b.t)
}

// notes wants a namespace's notes, each as its member, a colon and its body, in the order of members.
func (b *bench) notes(topic store.Topic, namespace string, want ...string) {
	b.t.Helper()
	found := must.Get(b.store.Notes(b.t.Context(), topic, namespace))(b.t)
	slices.SortFunc(found, func(a, b store.Note) int { return cmp.Compare(a.Member, b.Member) })
	got := make([]string, len(found))
	for i, n := range found {
		got[i] = fmt.Sprintf("%d:%s", n.Member, n.Body)
	}
	if !slices.Equal(got, want) {
		b.t.Errorf("%v: %d %.2000s, want %d %.2000s", topic, len(got), fmt.Sprintf("%.300q", got), len(want), fmt.Sprintf("%.300q", want))
	}
}

// testNotes has members whose notes are known until they send others, or are silent for long. bodies are valid for the
// topic.
func testNotes(t *testing.T, b *bench, topic store.Topic, bodies [3]string) {
	const last = "18446744073709551615:"
	terms := topic.Terms()
	b.notes(topic, "ns")
	b.note(topic, "ns", 1, bodies[0])
	b.note(topic, "ns", 1<<64-1, bodies[1])
	b.note(topic, "other", 1, bodies[2])
	b.notes(topic, "ns", "1:"+bodies[0], last+bodies[1])
	b.clock.advance(terms.Life - time.Second)
	b.note(topic, "ns", 1, bodies[2])
	b.note(topic, "ns", 2, bodies[0])
	b.notes(topic, "ns", "1:"+bodies[2], "2:"+bodies[0], last+bodies[1])
	b.notes(topic, "other", "1:"+bodies[2])
	b.clock.advance(time.Second)
	b.notes(topic, "ns", "1:"+bodies[2], "2:"+bodies[0])
	b.notes(topic, "other")
	b.clock.advance(terms.Life - time.Second)
	b.notes(topic, "ns")
	_, name := b.store.Note(t.Context(), topic, "a*", store.Note{Body: []byte(bodies[0])})
	_, size := b.store.Note(t.Context(), topic, "ns", store.Note{Body: make([]byte, terms.MaxBytes+1)})
	must.Is(t, name, store.ErrInvalid, "a namespace that is none")
	must.Is(t, size, store.ErrInvalid, "a note that is too large")
	if terms.Log {
		return
	}
	// Invented members are bounded, and don't keep known ones from sending their next.
	var want []string
	for member := range uint64(terms.Most) {
		want = append(want, fmt.Sprintf("%d:%s", member, bodies[member%3]))
		b.note(topic, "ns", member, bodies[member%3])
	}
	b.note(topic, "ns", uint64(terms.Most), bodies[0])
	want[0] = "0:" + bodies[1]
	b.note(topic, "ns", 0, bodies[1])
	b.notes(topic, "ns", want...)
}

func testAppliedLists(t *testing.T, b *bench) {
	body := func(version, unfit uint64) string {
		return string(store.AppliedList{Version: version, Unfit: unfit}.Note().Body)
	}
	testNotes(t, b, store.AppliedLists, [3]string{body(0, 0), body(1<<60, 3), body(1<<64-1, 1<<64-1)})
	b.clock.advance(store.AppliedLife)
	want := store.AppliedList{Node: 7, Version: 9, Unfit: 1}
	note := want.Note()
	b.note(store.AppliedLists, "ns", note.Member, string(note.Body))
	must.Same(t, must.Get(store.ReadApplied(t.Context(), b.store, "ns"))(t), []store.AppliedList{want}, "applied lists")
}

func testReports(t *testing.T, b *bench) {
	large := string(bytes.Repeat([]byte("x"), store.Reports.Terms().MaxBytes))
	testNotes(t, b, store.Reports, [3]string{"", "\x00\xff\r\n b", "c"})
	b.clock.advance(store.ReportLife)
	b.note(store.Reports, "ns", 5, large)
	b.notes(store.Reports, "ns", "5:"+large)
	b.list()
}

// testLog has a log, whose oldest notes go, by when they were last said, and at most a sixteenth at once. Several callers at
// once lose none.
func testLog(t *testing.T, b *bench, topic store.Topic) {
	testNotes(t, b, topic, [3]string{"{}", "\x00\xff\r\n b", ""})
	const more = 5
	most := uint64(topic.Terms().Most)
	for member := range most {
		b.note(topic, "ns", member, "first")
		b.clock.advance(time.Millisecond)
	}
	b.note(topic, "ns", 0, "again")
	b.clock.advance(time.Millisecond)
	b.note(topic, "other", 1, "of the other")
	var callers sync.WaitGroup
	for i := range uint64(more) {
		callers.Go(func() {
			_, err := b.store.Note(t.Context(), topic, "ns", store.Note{Member: most + i, Body: []byte("more")})
			must.Report(t, err)
		})
	}
	callers.Wait()
	b.clock.advance(time.Millisecond)
	const last = 1 << 40 // a store may keep a few too many until such a member comes
	b.note(topic, "ns", last, "last")
	dropped := most - uint64(len(must.Get(b.store.Notes(t.Context(), topic, "ns"))(t)))
	must.AtMost(t, dropped, most/16, "%v: notes too few", topic)
	want := []string{"0:again"}
	for member := more + 2 + dropped; member < most; member++ {
		want = append(want, fmt.Sprintf("%d:first", member))
	}
	for i := range uint64(more) {
		want = append(want, fmt.Sprintf("%d:more", most+i))
	}
	b.notes(topic, "ns", append(want, fmt.Sprintf("%d:last", last))...)
	b.notes(topic, "other", "1:of the other")
}
