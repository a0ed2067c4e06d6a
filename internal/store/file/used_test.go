package file_test

import (
	"path/filepath"
	"testing"
	"time"

	"weir/internal/must"
	"weir/internal/store"
	"weir/internal/store/file"
	"weir/internal/wire"
)

// Usage survives the process, and so do the sequences of its messages. After 13 months the file has
// none of it. It is in a separate bucket, so older versions can read the other records.
func TestUsedOutlivesTheProcess(t *testing.T) {
	path, now := filepath.Join(t.TempDir(), "weir.db"), epoch
	o := file.Options{Now: func() time.Time { return now }}
	s := openAt(t, path, o)
	day := uint32(epoch.Unix() / 86400)
	label := wire.AppendUsedLabel(nil, &wire.UsedLabel{Rule: "r", ID: wire.ID{1}, Model: "m", Name: wire.AppendValue(nil, []byte("ann"), false)})
	budget := wire.AppendBudget(nil, &wire.Budget{AtSeconds: 1, StartSeconds: 1, EndSeconds: 2, Used: 3, Quota: 4})
	account := func(sequence uint64, hits int64) store.Accounted {
		t.Helper()
		return must.Get(s.Account(t.Context(), &wire.Used{Namespace: "shop", Sender: 9, Sequence: sequence, Rows: []wire.UsedRow{{Label: label, Day: day, Hits: hits, Budget: budget}}}))(t)
	}
	account(1, 5)
	account(2, -2)
	closed(t, s)
	_, err := s.Account(t.Context(), &wire.Used{Namespace: "shop", Sequence: 1})
	must.Fails(t, err, "a message after Close")
	must.Equal(t, recordsIn(t, path, "records"), 0, "records that an older version can't read")
	s = openAt(t, path, o)
	must.Equal(t, account(2, 7).Duplicate, true, "a message counts again after a restart")
	account(3, 10)
	rows := 0
	if err := s.Used(t.Context(), "shop", day, day, func(r wire.UsedRow) error {
		if rows++; string(r.Label) != string(label) || r.Hits != 13 || string(r.Budget) != string(budget) {
			t.Errorf("got %+v", r)
		}
		return nil
	}); err != nil || rows != 1 {
		t.Errorf("%d rows, %v", rows, err)
	}
	closed(t, s)
	must.Equal(t, recordsIn(t, path, "used"), 2, "the file has rows and senders")
	now = now.AddDate(0, 0, store.UsedDays+2)
	s = openAt(t, path, o)
	must.OK(t, s.Ping(t.Context()))
	closed(t, s)
	must.Equal(t, recordsIn(t, path, "used"), 0, "after 13 months the file has")
}
