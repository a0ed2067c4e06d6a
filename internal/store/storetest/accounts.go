package storetest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"weir/internal/store"
	"weir/internal/wire"
)

// today is the day of epoch.
var today = uint32(epoch.Unix() / 86400)

// used returns a row of a named key.
func used(key byte, day uint32, hits int64) wire.UsedRow {
	return wire.UsedRow{
		Label: wire.AppendUsedLabel(nil, &wire.UsedLabel{Rule: "tokens", ID: wire.ID{key}, Name: wire.AppendValue(nil, []byte{'k', key}, false)}),
		Day:   day, Hits: hits,
	}
}

// account sends a message on used hits.
func (b *bench) account(namespace string, sender, sequence uint64, rows ...wire.UsedRow) (done store.Accounted) {
	b.t.Helper()
	done, err := b.store.Account(b.t.Context(), &wire.Used{Namespace: namespace, Sender: sender, Sequence: sequence, Rows: rows})
	if err != nil {
		b.t.Fatal(err)
	}
	return done
}

// usedOf returns a namespace's used hits by day and label.
func (b *bench) usedOf(namespace string, from, to uint32) (all map[string]int64) {
	b.t.Helper()
	all = map[string]int64{}
	err := b.store.Used(b.t.Context(), namespace, from, to, func(r wire.UsedRow) error {
		l, _ := wire.DecodeUsedLabel(r.Label)
		name := fmt.Sprint(int(r.Day)-int(today), " ", l.Rule, " ", binary.BigEndian.Uint32(l.ID[:])>>24+binary.BigEndian.Uint32(l.ID[:])<<8, " ", l.Model)
		if _, twice := all[name]; twice {
			b.t.Errorf("%s comes twice", name)
		}
		all[name] = r.Hits
		return nil
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return all
}

func (b *bench) wantUsed(namespace string, want map[string]int64) {
	b.t.Helper()
	if got := b.usedOf(namespace, 0, wire.MaxUsedDay); !maps.Equal(got, want) {
		b.t.Errorf("%s: used %v, want %v", namespace, got, want)
	}
}

// Hits add up by label and day. A message counts once, however often it comes, and an older
// message of the same sender does not count any more.
func testAccounts(t *testing.T, b *bench) {
	b.wantUsed("ns", map[string]int64{})
	b.account("ns", 1, 1, used(1, today, 5), used(2, today, 7), used(1, today, 3))
	b.account("ns", 2, 9, used(1, today, 100), used(1, today-1, 1))
	want := map[string]int64{"0 tokens 1 ": 108, "0 tokens 2 ": 7, "-1 tokens 1 ": 1}
	b.wantUsed("ns", want)
	for _, again := range []uint64{9, 1, 8} {
		if done := b.account("ns", 2, again, used(1, today, 50)); !done.Duplicate {
			t.Errorf("sequence %d after 9: %+v", again, done)
		}
	}
	b.wantUsed("ns", want)
	// Other namespaces have no part in it, and have their own senders.
	if done := b.account("other", 2, 1, used(1, today, 4)); done.Duplicate {
		t.Error("a sender of another namespace was known")
	}
	b.wantUsed("other", map[string]int64{"0 tokens 1 ": 4})
	// Hits that are given back are subtracted from the day on which they were counted.
	b.account("ns", 1, 2, used(1, today, -8), used(2, today-1, -2))
	want["0 tokens 1 "], want["-1 tokens 2 "] = 100, -2
	b.wantUsed("ns", want)
	if got := b.usedOf("ns", today, today); len(got) != 2 {
		t.Errorf("of today: %v", got)
	}
	if got := b.counters("ns"); len(got) != 0 {
		t.Errorf("counters %+v, want none", got)
	}
	// Sums are bounded.
	b.account("ns", 1, 3, used(3, today, wire.MaxHits), used(4, today, -wire.MaxHits))
	b.account("ns", 1, 4, used(3, today, wire.MaxHits), used(4, today, -wire.MaxHits))
	want["0 tokens 3 "], want["0 tokens 4 "] = wire.MaxHits, -wire.MaxHits
	b.wantUsed("ns", want)

	stop := errors.New("enough")
	if err := b.store.Used(t.Context(), "ns", 0, wire.MaxUsedDay, func(wire.UsedRow) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("a visit that ends: %v", err)
	}
	for _, bad := range []*wire.Used{
		{Namespace: "a*", Sequence: 1}, {Namespace: "ns"}, {Namespace: "ns", Sequence: 1, Rows: []wire.UsedRow{{Label: []byte("x")}}},
		{Namespace: "ns", Sequence: 1, Rows: []wire.UsedRow{used(1, wire.MaxUsedDay+1, 1)}},
		{Namespace: "ns", Sequence: 1, Rows: []wire.UsedRow{used(1, today, wire.MaxHits+1)}},
		{Namespace: "ns", Sequence: 1, Rows: []wire.UsedRow{{Label: used(1, 0, 0).Label, Budget: []byte("x")}}},
		{Namespace: "ns", Sequence: 1, Rows: make([]wire.UsedRow, wire.MaxUsedRows+1)},
	} {
		if _, err := b.store.Account(t.Context(), bad); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%.100v: %v", bad, err)
		}
	}
	b.wantUsed("ns", want)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.store.Account(ended, &wire.Used{Namespace: "ns", Sender: 3, Sequence: 1}); err == nil {
		t.Error("a context that has ended adds")
	}
}

// Days are kept for 13 months. Hits for days that are too old, or in the future, count on the
// nearest day that is kept.
func testAccountsOverYears(t *testing.T, b *bench) {
	b.account("ns", 1, 1, used(1, today, 1), used(2, today-store.UsedDays, 2), used(3, today-store.UsedDays-1, 4), used(4, today+1, 8), used(5, today+2, 16), used(6, 0, 32))
	want := map[string]int64{
		"0 tokens 1 ": 1, "-400 tokens 2 ": 2, "-400 tokens 3 ": 4, "1 tokens 4 ": 8, "1 tokens 5 ": 16, "-400 tokens 6 ": 32,
	}
	b.wantUsed("ns", want)
	b.clock.advance(store.UsedDays * 24 * time.Hour)
	b.account("ns", 1, 2, used(7, today+store.UsedDays, 64))
	b.wantUsed("ns", map[string]int64{"0 tokens 1 ": 1, "1 tokens 4 ": 8, "1 tokens 5 ": 16, "400 tokens 7 ": 64})
	b.clock.advance(48 * time.Hour)
	b.account("ns", 1, 3)
	b.wantUsed("ns", map[string]int64{"400 tokens 7 ": 64})
}

// If a day has too many labels, those with most hits stay, the hits of the others count together, and
// none is lost.
func testAccountsBounded(t *testing.T, b *bench) {
	sequence, sum := uint64(0), int64(0)
	label := func(rule string, n int) []byte {
		return wire.AppendUsedLabel(nil, &wire.UsedLabel{Rule: rule, ID: wire.ID{1, byte(n >> 16), byte(n >> 8), byte(n)}})
	}
	add := func(rows ...wire.UsedRow) store.Accounted {
		sequence++
		for i := range rows {
			sum += rows[i].Hits
		}
		return b.account("ns", 1, sequence, rows...)
	}
	for n := 0; n < store.MaxUsed; {
		var rows []wire.UsedRow
		for ; n < store.MaxUsed && len(rows) < 1000; n++ {
			rows = append(rows, wire.UsedRow{Label: label("r", n), Day: today, Hits: 1})
		}
		if done := add(rows...); done.Folded != 0 {
			t.Fatalf("%+v", done)
		}
	}
	if done := add(wire.UsedRow{Label: label("r", store.MaxUsed), Day: today, Hits: 5}, wire.UsedRow{Label: label("r", 7), Day: today, Hits: 2},
		wire.UsedRow{Label: label("r", store.MaxUsed+1), Day: today, Hits: 6}, wire.UsedRow{Label: label("s", 0), Day: today, Hits: 9},
		wire.UsedRow{Label: label("r", store.MaxUsed), Day: today - 1, Hits: 3}); done.Folded != 3 {
		t.Errorf("%+v, want three folded", done)
	}
	got := b.usedOf("ns", today, today)
	of := func(rule string, n int) (hits int64) {
		t.Helper()
		err := b.store.Used(t.Context(), "ns", today, today, func(r wire.UsedRow) error {
			if string(r.Label) == string(label(rule, n)) {
				hits += r.Hits
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return hits
	}
	if got["0 r 0 "] != 3 || of("r", store.MaxUsed) != 5 || of("r", store.MaxUsed+1) != 6 || of("s", 0) != 9 {
		t.Errorf("others have %d, and the last three %d, %d, %d", got["0 r 0 "], of("r", store.MaxUsed), of("r", store.MaxUsed+1), of("s", 0))
	}
	// A label whose hits come one by one gets a place, too, and keeps it whatever comes then. The
	// order is that of chance: its first hits are with others.
	const steady = 1 << 20
	for range 40 {
		add(wire.UsedRow{Label: label("r", steady), Day: today, Hits: 1})
	}
	if has := of("r", steady); has < 20 {
		t.Errorf("a label with 40 hits has %d of them", has)
	}
	var invented []wire.UsedRow
	for n := range 1000 {
		invented = append(invented, wire.UsedRow{Label: label("r", 2*steady+n), Day: today, Hits: 1})
	}
	add(invented...)
	if has := of("r", steady); has < 20 || of("s", 0) != 9 {
		t.Errorf("after invented labels it has %d, and another %d", has, of("s", 0))
	}
	// Hits that a label without a place gives back are taken from others.
	add(wire.UsedRow{Label: label("r", 3*steady), Day: today, Hits: -2})
	if has := of("r", 3*steady); has != 0 {
		t.Errorf("a label that gives back has %d hits", has)
	}
	// Invented rules are bounded too.
	var rows []wire.UsedRow
	for n := range 2 * store.MaxUsedOthers {
		rows = append(rows, wire.UsedRow{Label: label(fmt.Sprint("rule-", n), 1), Day: today, Hits: 1})
	}
	add(rows...)
	total, labels := int64(0), 0
	err := b.store.Used(t.Context(), "ns", 0, wire.MaxUsedDay, func(r wire.UsedRow) error {
		total += r.Hits
		if r.Day == today {
			labels++
		}
		return nil
	})
	if err != nil || total != sum || labels > store.MaxUsed+store.MaxUsedOthers+1 {
		t.Errorf("%d labels have %d, want %d: %v", labels, total, sum, err)
	}
}

// Labels with many hits lose no place to some with few.
func testAccountsStay(t *testing.T, b *bench) {
	label := func(n int) []byte {
		return wire.AppendUsedLabel(nil, &wire.UsedLabel{Rule: "r", ID: wire.ID{1, byte(n >> 16), byte(n >> 8), byte(n)}})
	}
	sequence, sum := uint64(0), int64(0)
	for n, last := 0, store.MaxUsed+2000; n < last; {
		var rows []wire.UsedRow
		for ; n < last && len(rows) < 1000; n++ {
			hits := int64(1000)
			if n >= store.MaxUsed {
				hits = 1
			}
			rows, sum = append(rows, wire.UsedRow{Label: label(n), Day: today, Hits: hits}), sum+hits
		}
		sequence++
		b.account("ns", 1, sequence, rows...)
	}
	large, total := 0, int64(0)
	err := b.store.Used(t.Context(), "ns", today, today, func(r wire.UsedRow) error {
		if l, _ := wire.DecodeUsedLabel(r.Label); l.ID != (wire.ID{}) && r.Hits == 1000 {
			large++
		}
		total += r.Hits
		return nil
	})
	if err != nil || total != sum || large < store.MaxUsed-50 {
		t.Errorf("%d of %d large labels stay, and %d of %d hits: %v", large, store.MaxUsed, total, sum, err)
	}
}

// The last budget sent for a label counts.
func testBudgets(t *testing.T, b *bench) {
	of := func(r wire.UsedRow, used uint64) wire.UsedRow {
		r.Budget = wire.AppendBudget(nil, &wire.Budget{AtSeconds: 1, StartSeconds: 1, EndSeconds: 2, Used: used, Quota: wire.MaxHits})
		return r
	}
	b.account("ns", 1, 1, of(used(1, today, 1), 10), of(used(2, today, 1), 32))
	b.account("ns", 2, 1, of(used(1, today, 1), 266), used(2, today, 1))
	err := b.store.Used(t.Context(), "ns", today, today, func(r wire.UsedRow) error {
		l, _ := wire.DecodeUsedLabel(r.Label)
		budget, ok := wire.DecodeBudget(r.Budget)
		if want := map[byte]uint64{1: 266, 2: 32}[l.ID[0]]; !ok || budget.Used != want || r.Hits != 2 {
			t.Errorf("key %d: %d hits, budget %+v", l.ID[0], r.Hits, budget)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Messages that many senders send at once, and each twice at once, add up.
func testAccountsHammer(t *testing.T, b *bench) {
	const senders, messages = 8, 20
	var group sync.WaitGroup
	for sender := range uint64(senders) {
		for range 2 {
			group.Go(func() {
				for sequence := uint64(1); sequence <= messages; sequence++ {
					rows := make([]wire.UsedRow, 0, 30)
					for key := range 30 {
						rows = append(rows, used(byte((key*7+int(sender))%30), today-uint32(key%3), int64(key+1)))
					}
					if _, err := b.store.Account(t.Context(), &wire.Used{Namespace: "ns", Sender: sender, Sequence: sequence, Rows: rows}); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	group.Wait()
	sum := int64(0)
	for _, hits := range b.usedOf("ns", 0, wire.MaxUsedDay) {
		sum += hits
	}
	// A message that comes after the next does not count, because its sender must wait for each
	// answer. So both goroutines of a sender send the same messages.
	if want := int64(senders * messages * 30 * 31 / 2); sum != want {
		t.Errorf("used %d, want %d", sum, want)
	}
}
