package memory

import (
	"fmt"
	"testing"
	"time"

	"weir/internal/must"
	"weir/internal/store"
	"weir/internal/wire"
)

// A full store keeps at most 256 labels of others for a day, whatever rules senders invent.
func TestOthersAreBounded(t *testing.T) {
	now := time.Date(2026, 11, 16, 0, 0, 0, 0, time.UTC)
	s := New(Options{Now: func() time.Time { return now }})
	s.accounts.most = 0
	day, sum := store.Calendar{NowNanos: uint64(now.UnixNano())}.Day(), int64(0)
	for sequence := range uint64(3) {
		var rows []wire.UsedRow
		for n := range 1000 {
			label := wire.AppendUsedLabel(nil, &wire.UsedLabel{Rule: fmt.Sprint("rule-", sequence, "-", n), ID: wire.ID{1}})
			rows = append(rows, wire.UsedRow{Label: label, Day: day, Hits: 1})
		}
		must.Get(s.Account(t.Context(), &wire.Used{Namespace: "shop", Sender: 1, Sequence: sequence + 1, Rows: rows}))(t)
	}
	kept := s.accounts.days[usedDay{"shop", day}].Rows
	for _, of := range kept {
		sum += of.Hits
	}
	must.AtMost(t, len(kept), store.MaxUsedOthers+1, "labels")
	must.Equal(t, sum, 3000, "hits of all labels")
}

// A namespace that invents keys does not displace the usage of another. The larger namespace makes
// room with its oldest day, whose hits stay.
func TestNamespacesShareUsage(t *testing.T) {
	now := time.Date(2026, 11, 16, 0, 0, 0, 0, time.UTC)
	s := New(Options{Now: func() time.Time { return now }})
	s.accounts.most = 100
	today := store.Calendar{NowNanos: uint64(now.UnixNano())}.Day()
	account := func(namespace string, sequence uint64, days uint32) {
		t.Helper()
		var rows []wire.UsedRow
		for n := range days {
			label := wire.AppendUsedLabel(nil, &wire.UsedLabel{Rule: "tokens", ID: wire.ID{1, byte(sequence), byte(n)}})
			rows = append(rows, wire.UsedRow{Label: label, Day: today - n/10, Hits: 1})
		}
		must.Get(s.Account(t.Context(), &wire.Used{Namespace: namespace, Sender: 1, Sequence: sequence, Rows: rows}))(t)
	}
	account("large", 1, 200)
	account("small", 1, 30)
	account("large", 2, 100)
	hits, keys := map[string]int64{}, map[string]int{}
	for key, rows := range s.accounts.days {
		for label, of := range rows.Rows {
			hits[key.namespace] += of.Hits
			if l, _ := wire.DecodeUsedLabel([]byte(label)); l.ID != (wire.ID{}) {
				keys[key.namespace]++
			}
		}
	}
	if keys["small"] != 30 || keys["large"] < 50 || hits["small"] != 30 || hits["large"] != 300 || s.accounts.shares.Of("large").Size() != s.accounts.rows-30 {
		t.Errorf("keys %v, hits %v, %d rows", keys, hits, s.accounts.rows)
	}
	now = now.Add(500 * 24 * time.Hour)
	if account("small", 2, 1); s.accounts.rows != 1 || s.accounts.shares.Of("large") != nil {
		t.Errorf("%d rows stay", s.accounts.rows)
	}
}
