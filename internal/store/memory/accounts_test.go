package memory

import (
	"fmt"
	"testing"
	"time"

	"weir/internal/store"
	"weir/internal/wire"
)

// A full store takes 256 labels of others for a day, and no more, whatever rules somebody makes up.
func TestOthersAreBounded(t *testing.T) {
	now := time.Date(2026, 11, 16, 0, 0, 0, 0, time.UTC)
	s := New(Options{Now: func() time.Time { return now }})
	s.accounts.rows = maxUsed
	day, sum := store.Calendar{NowNanos: uint64(now.UnixNano())}.Day(), int64(0)
	for sequence := range uint64(3) {
		var rows []wire.UsedRow
		for n := range 1000 {
			label := wire.AppendUsedLabel(nil, &wire.UsedLabel{Rule: fmt.Sprint("rule-", sequence, "-", n), ID: wire.ID{1}})
			rows = append(rows, wire.UsedRow{Label: label, Day: day, Hits: 1})
		}
		if _, err := s.Account(t.Context(), &wire.Used{Namespace: "shop", Sender: 1, Sequence: sequence + 1, Rows: rows}); err != nil {
			t.Fatal(err)
		}
	}
	kept := s.accounts.of(usedDay{"shop", day}).of
	for _, of := range kept {
		sum += of.hits
	}
	if len(kept) > store.MaxUsedOthers+1 || sum != 3000 {
		t.Errorf("%d labels of %d hits", len(kept), sum)
	}
}
