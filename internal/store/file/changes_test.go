package file_test

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"weir/internal/must"
	"weir/internal/store"
	"weir/internal/store/file"
)

// Records of changes are in the file before they are answered, in the order in which they were
// made, and where an older version does not look. After 13 months they are gone.
func TestChangesOutliveTheProcess(t *testing.T) {
	path, now := filepath.Join(t.TempDir(), "weir.db"), epoch
	o := file.Options{Now: func() time.Time { return now }}
	s := openAt(t, path, o)
	note := func(member uint64, body string) error {
		now = now.Add(time.Second)
		_, err := s.Note(t.Context(), store.Changes, "shop", store.Note{Member: member, Body: []byte(body)})
		return err
	}
	for _, member := range []uint64{3, 1, 2, 3} {
		must.OK(t, note(member, fmt.Sprint("a change ", member)))
	}
	closed(t, s)
	must.Equal(t, note(4, "late") != nil, true, "a record after Close fails")
	must.Equal(t, recordsIn(t, path, "records"), 0, "records that an older version can't read")
	s = openAt(t, path, o)
	found, err := s.Notes(t.Context(), store.Changes, "shop")
	if err != nil || len(found) != 3 || string(found[0].Body) != "a change 1" || string(found[2].Body) != "a change 3" {
		t.Errorf("got %v, %v; want 1, 2 and 3, as they were last said", found, err)
	}
	closed(t, s)
	now = now.Add(store.ChangeLife)
	s = openAt(t, path, o)
	must.Same(t, must.Get(s.Notes(t.Context(), store.Changes, "shop"))(t), nil, "records after 13 months")
	closed(t, s)
}
