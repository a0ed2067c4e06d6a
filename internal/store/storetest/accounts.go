package storetest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"weir/internal/must"
	"weir/internal/store"
	"weir/internal/wire"
)

// today is the day of epoch.
const today = 20454

// key is a label of used hits on a day after today. The label of others of a rule has no number.
type key struct {
	day  int
	rule string
	n    uint32
}

// used returns a row of a key of the rule "r".
func used(n uint32, day int, hits int64) wire.UsedRow { return usedOf("r", n, day, hits) }

func usedOf(rule string, n uint32, day int, hits int64) wire.UsedRow {
	l := wire.UsedLabel{Rule: rule, Name: wire.AppendValue(nil, []byte{'k', byte(n)}, false)}
	binary.BigEndian.PutUint32(l.ID[:], n)
	return wire.UsedRow{Label: wire.AppendUsedLabel(nil, &l), Day: uint32(today + day), Hits: hits}
}

// account sends a message on used hits.
func (b *bench) account(namespace string, sender, sequence uint64, rows ...wire.UsedRow) store.Accounted {
	b.t.Helper()
	return must.Get(b.store.Account(b.t.Context(), &wire.Used{Namespace: namespace, Sender: sender, Sequence: sequence, Rows: rows}))(b.t)
}

// used returns a namespace's used hits on some days, and their sum.
func (b *bench) usedOn(namespace string, from, to uint32) (all map[key]int64, sum int64) {
	b.t.Helper()
	all = map[key]int64{}
	must.OK(b.t, b.store.Used(b.t.Context(), namespace, from, to, func(r wire.UsedRow) error {
		l, _ := wire.DecodeUsedLabel(r.Label)
		k := key{int(r.Day) - today, l.Rule, binary.BigEndian.Uint32(l.ID[:])}
		if _, twice := all[k]; twice {
			b.t.Errorf("%+v comes twice", k)
		}
		all[k] = r.Hits
		sum += r.Hits
		return nil
	}))
	return all, sum
}

func (b *bench) wantUsed(namespace string, want map[key]int64) {
	b.t.Helper()
	got, _ := b.usedOn(namespace, 0, wire.MaxUsedDay)
	must.Same(b.t, got, want, "%s: used", namespace)
}

// Hits add up by label and day. A message counts once, however often it comes, and an older
// message of the same sender does not count any more.
func testAccounts(t *testing.T, b *bench) {
	b.wantUsed("ns", map[key]int64{})
	b.account("ns", 1, 1, used(1, 0, 5), used(2, 0, 7), used(1, 0, 3))
	b.account("ns", 2, 9, used(1, 0, 100), used(1, -1, 1))
	want := map[key]int64{{0, "r", 1}: 108, {0, "r", 2}: 7, {-1, "r", 1}: 1}
	for _, again := range []uint64{9, 1, 8} {
		must.Equal(t, b.account("ns", 2, again, used(1, 0, 50)).Duplicate, true, "sequence %d after 9 is known", again)
	}
	b.wantUsed("ns", want)
	// Other namespaces have no part in it, and have their own senders.
	must.Equal(t, b.account("other", 2, 1, used(1, 0, 4)).Duplicate, false, "a sender of another namespace was known")
	b.wantUsed("other", map[key]int64{{0, "r", 1}: 4})
	// Hits that are given back are subtracted from the day on which they were counted.
	b.account("ns", 1, 2, used(1, 0, -8), used(2, -1, -2))
	want[key{0, "r", 1}], want[key{-1, "r", 2}] = 100, -2
	b.wantUsed("ns", want)
	got, _ := b.usedOn("ns", today, today)
	must.Equal(t, len(got), 2, "of today: %v", got)
	b.list()
	// Sums are bounded.
	for sequence := range uint64(2) {
		b.account("ns", 1, 3+sequence, used(3, 0, wire.MaxHits), used(4, 0, -wire.MaxHits))
	}
	want[key{0, "r", 3}], want[key{0, "r", 4}] = wire.MaxHits, -wire.MaxHits
	b.wantUsed("ns", want)

	stop := errors.New("enough")
	must.Is(t, b.store.Used(t.Context(), "ns", 0, wire.MaxUsedDay, func(wire.UsedRow) error { return stop }), stop, "a visit that ends")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	row := []wire.UsedRow{used(1, 0, 1)}
	_, late := b.store.Account(ended, &wire.Used{Namespace: "ns", Sender: 3, Sequence: 1, Rows: row})
	_, bad := b.store.Account(t.Context(), &wire.Used{Namespace: "a*", Sender: 3, Sequence: 1, Rows: row})
	must.Fails(t, late, "a context that has ended")
	must.Is(t, bad, store.ErrInvalid, "a namespace that is none")
	b.wantUsed("ns", want)
}

// Days are kept for 13 months. Hits for days that are too old, or in the future, count on the
// nearest day that is kept.
func testAccountsOverYears(_ *testing.T, b *bench) {
	const first = -store.UsedDays
	b.account("ns", 1, 1, used(1, 0, 1), used(2, first, 2), used(3, first-1, 4), used(4, 1, 8), used(5, 2, 16), used(6, -today, 32))
	b.wantUsed("ns", map[key]int64{{0, "r", 1}: 1, {first, "r", 2}: 2, {first, "r", 3}: 4, {1, "r", 4}: 8, {1, "r", 5}: 16, {first, "r", 6}: 32})
	b.clock.advance(store.UsedDays * 24 * time.Hour)
	b.account("ns", 1, 2, used(7, store.UsedDays, 64))
	b.wantUsed("ns", map[key]int64{{0, "r", 1}: 1, {1, "r", 4}: 8, {1, "r", 5}: 16, {store.UsedDays, "r", 7}: 64})
	b.clock.advance(48 * time.Hour)
	b.account("ns", 1, 3)
	b.wantUsed("ns", map[key]int64{{store.UsedDays, "r", 7}: 64})
}

// If a day has too many labels, those with most hits stay, the hits of the others count together, and
// none is lost.
func testAccountsBounded(t *testing.T, b *bench) {
	sequence, sum := uint64(0), int64(0)
	add := func(n uint32, row func(i uint32) wire.UsedRow) (folded int) {
		t.Helper()
		var rows []wire.UsedRow
		for i := range n {
			r := row(i)
			rows, sum = append(rows, r), sum+r.Hits
			if len(rows) == 1000 || i == n-1 {
				sequence++
				folded += b.account("ns", 1, sequence, rows...).Folded
				rows = nil
			}
		}
		return folded
	}
	of := func(rule string, n uint32) int64 {
		t.Helper()
		all, _ := b.usedOn("ns", today, today)
		return all[key{0, rule, n}]
	}
	must.EqualOrEnd(t, add(store.MaxUsed, func(i uint32) wire.UsedRow { return used(1+i, 0, 1) }), 0, "folded")
	const more = store.MaxUsed + 1
	must.Equal(t, add(5, func(i uint32) wire.UsedRow {
		return []wire.UsedRow{used(more, 0, 5), used(8, 0, 2), used(more+1, 0, 6), usedOf("s", 1, 0, 9), used(more, -1, 3)}[i]
	}), 3, "folded")
	if others, a, c, s := of("r", 0), of("r", more), of("r", more+1), of("s", 1); others != 3 || a != 5 || c != 6 || s != 9 {
		t.Errorf("others have %d, and the last three %d, %d, %d", others, a, c, s)
	}
	// A label whose hits come one by one gets a place, too, and keeps it whatever comes then. The
	// order is that of chance: its first hits are with others.
	const steady = 1 << 20
	for range 40 {
		add(1, func(uint32) wire.UsedRow { return used(steady, 0, 1) })
	}
	must.AtLeast(t, of("r", steady), 20, "of 40 hits, a label has")
	add(1000, func(i uint32) wire.UsedRow { return used(2*steady+i, 0, 1) })
	must.AtLeast(t, of("r", steady), 20, "after invented labels it has")
	must.Equal(t, of("s", 1), 9, "after invented labels another has")
	// Hits that a label without a place gives back are taken from others.
	add(1, func(uint32) wire.UsedRow { return used(3*steady, 0, -2) })
	must.Equal(t, of("r", 3*steady), 0, "hits of a label that gives back")
	// Invented rules are bounded too.
	add(2*store.MaxUsedOthers, func(i uint32) wire.UsedRow { return usedOf(fmt.Sprint("rule-", i), 1, 0, 1) })
	day, _ := b.usedOn("ns", today, today)
	if _, total := b.usedOn("ns", 0, wire.MaxUsedDay); total != sum || len(day) > store.MaxUsed+store.MaxUsedOthers+1 {
		t.Errorf("%d labels have %d, want %d", len(day), total, sum)
	}
}

// Labels with many hits lose no place to some with few.
func testAccountsStay(t *testing.T, b *bench) {
	sum := int64(0)
	for sequence := range uint64(store.MaxUsed/1000 + 2) {
		hits := int64(1000)
		if sequence >= store.MaxUsed/1000 {
			hits = 1
		}
		var rows []wire.UsedRow
		for i := range uint32(1000) {
			rows, sum = append(rows, used(1+uint32(sequence)*1000+i, 0, hits)), sum+hits
		}
		b.account("ns", 1, 1+sequence, rows...)
	}
	all, total := b.usedOn("ns", today, today)
	large := 0
	for k, hits := range all {
		if k.n > 0 && hits == 1000 {
			large++
		}
	}
	must.Equal(t, total, sum, "hits")
	must.AtLeast(t, large, store.MaxUsed-50, "large labels that stay")
}

// The last budget sent for a label counts.
func testBudgets(t *testing.T, b *bench) {
	of := func(r wire.UsedRow, used uint64) wire.UsedRow {
		r.Budget = wire.AppendBudget(nil, &wire.Budget{AtSeconds: 1, StartSeconds: 1, EndSeconds: 2, Used: used, Quota: wire.MaxHits})
		return r
	}
	b.account("ns", 1, 1, of(used(1, 0, 1), 10), of(used(2, 0, 1), 32))
	b.account("ns", 2, 1, of(used(1, 0, 1), 266), used(2, 0, 1))
	must.OK(t, b.store.Used(t.Context(), "ns", today, today, func(r wire.UsedRow) error {
		l, _ := wire.DecodeUsedLabel(r.Label)
		budget, ok := wire.DecodeBudget(r.Budget)
		if want := []uint64{1: 266, 2: 32}[l.ID[3]]; !ok || budget.Used != want || r.Hits != 2 {
			t.Errorf("key %d: %d hits, budget %+v", l.ID[3], r.Hits, budget)
		}
		return nil
	}))
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
					for k := range 30 {
						rows = append(rows, used(uint32((k*7+int(sender))%30), -k%3, int64(k+1)))
					}
					_, err := b.store.Account(t.Context(), &wire.Used{Namespace: "ns", Sender: sender, Sequence: sequence, Rows: rows})
					must.Report(t, err)
				}
			})
		}
	}
	group.Wait()
	// A message that comes after the next does not count, because its sender must wait for each
	// answer. So both goroutines of a sender send the same messages.
	_, sum := b.usedOn("ns", 0, wire.MaxUsedDay)
	must.Equal(t, sum, senders*messages*30*31/2, "used")
}
