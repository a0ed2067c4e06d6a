package storetest

import (
	"fmt"
	"testing"

	"weir/internal/must"
	"weir/internal/store"
)

// Documents that [ReadDocuments] wants of the namespace ns, and [WriteDocuments] writes. The list had the version
// ListVersion before.
const (
	Member      = 1<<64 - 2
	List        = "a list"
	ListVersion = 7
	Applied     = "7 2" // version, and how many overrides do not fit
	Report      = "a report"
)

// ReadDocuments wants documents that another version of Weir has written.
func ReadDocuments(t *testing.T, s store.Store) {
	t.Helper()
	ctx := t.Context()
	if list, version, err := s.Overrides(ctx, "ns", 0); err != nil || string(list) != List || version != ListVersion {
		t.Errorf("overrides %q of version %d, %v", list, version, err)
	}
	must.Same(t, must.Get(store.ReadApplied(ctx, s, "ns"))(t), []store.AppliedList{{Node: Member, Version: 7, Unfit: 2}}, "applied lists")
	must.Equal(t, fmt.Sprintf("%+v", must.Get(s.Notes(ctx, store.Reports, "ns"))(t)), fmt.Sprintf("%+v", []store.Note{{Member: Member, Body: []byte(Report)}}), "reports")
	must.Equal(t, must.Get(store.CountNodes(ctx, s, "ns", Member))(t), 1, "nodes")
}

// WriteDocuments writes them, and returns the list's version.
func WriteDocuments(t *testing.T, s store.Store) (version uint64) {
	t.Helper()
	for topic, body := range map[store.Topic]string{store.Nodes: "", store.AppliedLists: Applied, store.Reports: Report} {
		must.Get(s.Note(t.Context(), topic, "ns", store.Note{Member: Member, Body: []byte(body)}))(t)
	}
	return must.Get(s.SetOverrides(t.Context(), "ns", ListVersion, []byte(List)))(t)
}
