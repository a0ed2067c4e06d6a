package postgres_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/internal/must"
	"weir/internal/store"
	"weir/internal/store/memory"
	"weir/internal/store/postgres/postgrestest"
	"weir/internal/store/storetest"
	"weir/internal/wire"
	"weir/window"
)

func contents(t *testing.T, s store.Store) (counters []store.LimitCounter) {
	t.Helper()
	must.OK(t, s.Counters(t.Context(), "ns", nil, func(c store.LimitCounter) error {
		slices.SortFunc(c.Windows, func(a, b store.Window) int { return cmp.Compare(a.Number, b.Number) })
		counters = append(counters, c)
		return nil
	}))
	slices.SortFunc(counters, func(a, b store.LimitCounter) int {
		return strings.Compare(fmt.Sprint(a.LimitCounter), fmt.Sprint(b.LimitCounter))
	})
	return counters
}

// TestLikeMemory gives PostgreSQL and the memory store the same random pushes, with times in
// nanoseconds, and wants the same outcomes and counters. Package storetest does so with all stores,
// and coarser clocks.
func TestLikeMemory(t *testing.T) {
	a := &storetest.Alike{
		Exact:  func(now func() time.Time) store.Store { return memory.New(memory.Options{Now: now}) },
		Widths: []uint64{1, 1000, 60_000, 86_400_000, wire.MaxWidthMillis}, Resolution: time.Nanosecond,
	}
	a.Others = map[string]store.Store{"PostgreSQL": open(t, postgrestest.Database(t), a.Now)}
	a.RunSeeds(t, 30)
}

// TestExpired removes rows that can't be read any more, a few at a time.
func TestExpired(t *testing.T) {
	url, now := postgrestest.Database(t), epoch
	counters, raw := open(t, url, func() time.Time { return now }), connect(t, url)
	const many = 700
	for sender := range uint64(many / 100) {
		p := &wire.Push{Namespace: "ns", Sender: sender, Sequence: 1, Floor: 1}
		for i := range 100 {
			c := counter(window.FixedWindow, byte(i), time.Minute)
			c.ID[1] = byte(sender)
			p.Items = append(p.Items, wire.Item{LimitCounter: c, Newest: uint64(now.UnixMilli()) / c.WidthMillis, Hits: []int64{1}})
		}
		must.Get(counters.Push(t.Context(), p, 1))(t)
	}
	for node := range uint64(10) {
		must.Get(store.Join(t.Context(), counters, "ns", node))(t)
	}
	rows := func(table string) int64 { t.Helper(); return number(t, raw, "SELECT count(*) FROM weir."+table) }
	must.EqualOrEnd(t, rows("counters"), many, "counters")
	lasting := counter(window.FixedWindow, 0, 24*time.Hour)
	now = now.Add(time.Minute)
	wantTotal(t, counters, 1, now, lasting, 1)
	must.Equal(t, rows("counters"), many+1, "counters: totals of a window that has just ended can be read")
	now = now.Add(time.Hour)
	left := rows("counters")
	for sequence := uint64(2); left > 1; sequence++ {
		wantTotal(t, counters, sequence, now, lasting, sequence)
		now = now.Add(time.Second)
		got := rows("counters")
		must.Between(t, got, left-64, left-1, "counters after %d", left)
		left = got
		if sequence == 4 {
			// Rows are removed at most once a second.
			now = now.Add(-time.Second)
			wantTotal(t, counters, sequence, now, lasting, sequence)
			must.EqualOrEnd(t, rows("counters"), left, "counters")
			now = now.Add(time.Second)
		}
	}
	must.Equal(t, rows("senders"), 1, "senders, want the one that goes on")
	if nodes, err := store.Join(t.Context(), counters, "ns", 3); err != nil || nodes != 1 || rows("nodes") != 1 {
		t.Errorf("%d nodes, error %v, %d rows; want one", nodes, err, rows("nodes"))
	}
	// Pushes that add counters remove more than they add, and leave no rows that they did not need.
	exec(t, raw, "INSERT INTO weir.counters SELECT 'ns', gen_random_uuid(), 1, 0, 1000, 0, 0, '{1}', '{1}', '2020-01-01' FROM generate_series(1, 1000)")
	now = now.Add(-time.Second)
	p := &wire.Push{Namespace: "ns", Sender: 1, Sequence: 1, Floor: 1}
	for i := range 100 {
		c := counter(window.FixedWindow, byte(i), 25*time.Hour)
		p.Items = append(p.Items, wire.Item{LimitCounter: c, Newest: uint64(now.UnixMilli()) / c.WidthMillis, Hits: []int64{1}})
	}
	p.Items = append(p.Items, wire.Item{LimitCounter: counter(window.FixedWindow, 1, time.Second), Newest: 1, Hits: []int64{1}})
	if out, err := counters.Push(t.Context(), p, 1); err != nil || out.Applied != 100 || out.Dropped != 1 {
		t.Fatalf("outcome %+v, error %v; want 100 applied, 1 dropped", out, err)
	}
	must.Equal(t, rows("counters"), 1+1000+100-2*101+1, "counters, want twice as many fewer as were added, the one in vain included")
}

// TestSenderOutlivesItsWindows lets a sender's last push need a short memory.
func TestSenderOutlivesItsWindows(t *testing.T) {
	now := epoch
	counters := open(t, postgrestest.Database(t), func() time.Time { return now })
	push := func(sender, sequence uint64, c wire.LimitCounter) store.Outcome {
		t.Helper()
		return must.Get(counters.Push(t.Context(), &wire.Push{Namespace: "ns", Sender: sender, Sequence: sequence, Floor: 1,
			Items: []wire.Item{{LimitCounter: c, Newest: uint64(epoch.UnixMilli()) / c.WidthMillis, Hits: []int64{1}}}}, 1))(t)
	}
	long := counter(window.FixedWindow, 1, 24*time.Hour)
	push(1, 1, long)
	push(1, 2, counter(window.FixedWindow, 2, time.Minute))
	now = now.Add(time.Hour)
	push(2, 1, long) // removes expired rows
	if out := push(1, 1, long); !out.Duplicate || out.Answer.Totals[0].Hits[0] != 2 {
		t.Errorf("outcome %+v, want a duplicate, total 2", out)
	}
}

// TestExpiredAndLocked keeps an expired row that is about to be renewed.
func TestExpiredAndLocked(t *testing.T) {
	url, now := postgrestest.Database(t), epoch
	counters, raw := open(t, url, func() time.Time { return now }), connect(t, url)
	c, other := counter(window.TokenBucket, 1, time.Minute), counter(window.FixedWindow, 2, time.Hour)
	wantTotal(t, counters, 1, now, c, 1)
	exec(t, raw, "BEGIN", "UPDATE weir.counters SET hits = '{5}', expires_at = '2030-01-01' WHERE kind = 5")
	now = now.Add(10 * time.Minute)
	wantTotal(t, counters, 2, now, other, 1)
	exec(t, raw, "COMMIT")
	must.Equal(t, number(t, raw, "SELECT hits[1] FROM weir.counters WHERE kind = 5"), 5, "hits, want those of the transaction that was under way")
}

func TestHostileContents(t *testing.T) {
	url := postgrestest.Database(t)
	raw := connect(t, url)
	sliding, bucket := counter(window.SlidingWindow, 1, time.Minute), counter(window.TokenBucket, 2, time.Minute)
	log := wire.LimitCounter{ID: wire.ID{3}, Kind: uint8(window.SlidingBuckets), WidthMillis: 60_000, Precision: 1}
	good := counter(window.FixedWindow, 4, time.Minute)
	current, nanos := epoch.UnixMilli()/60_000, epoch.UnixNano()
	must.OK(t, open(t, url, atEpoch).Ping(t.Context()))
	for _, table := range []string{"counters", "senders"} {
		for _, column := range map[string][]string{
			"counters": {"refill", "numbers", "hits", "expires_at"},
			"senders":  {"floor", "sequences", "grant_sequences", "grant_units", "grant_nanos", "expires_at"},
		}[table] {
			exec(t, raw, fmt.Sprintf("ALTER TABLE weir.%s ALTER %s DROP NOT NULL", table, column))
		}
	}
	put := func(c wire.LimitCounter, refill, numbers, hits string) string {
		return fmt.Sprintf("INSERT INTO weir.counters VALUES ('ns', '%x', %d, %d, %d, %d, %s, %s, %s, '2026-01-02')",
			c.ID, c.Kind, c.Ordinal, c.WidthMillis, c.Precision, refill, numbers, hits)
	}
	sender := func(floor, sequences, granted, units, at string) string {
		return fmt.Sprintf("INSERT INTO weir.senders VALUES ('ns', -2, %s, %s, %s, %s, %s, '2026-01-02')", floor, sequences, granted, units, at)
	}
	array := func(elements ...any) string {
		return "'{" + strings.ReplaceAll(strings.Trim(fmt.Sprint(elements...), "[]"), " ", ",") + "}'"
	}
	for name, test := range map[string]struct {
		rows     []string
		repaired int64
		want     [3]uint64
	}{
		"nothing":            {want: [3]uint64{1, 1, 1}},
		"what it writes":     {[]string{put(sliding, "0", array(current), "'{41}'"), put(bucket, "10", array(nanos), "'{5}'"), put(log, "0", array(nanos-5), "'{3}'"), sender("0", "'{7}'", "'{7}'", "'{1}'", "'{5}'")}, 0, [3]uint64{42, 6, 4}},
		"nulls":              {[]string{put(sliding, "NULL", "NULL", "NULL"), put(bucket, "0", "NULL", "'{}'"), put(log, "NULL", "'{1}'", "'{1}'")}, 3, [3]uint64{1, 1, 1}},
		"null elements":      {[]string{put(sliding, "0", array(current), "'{NULL}'"), put(bucket, "10", "'{NULL}'", "'{5}'")}, 2, [3]uint64{1, 1, 1}},
		"other lengths":      {[]string{put(sliding, "0", array(current), "'{1,2}'"), put(bucket, "10", array(nanos), "'{}'")}, 2, [3]uint64{1, 1, 1}},
		"two dimensions":     {[]string{put(sliding, "0", array(current), "'{{1,2},{3,4}}'")}, 1, [3]uint64{1, 1, 1}},
		"negative":           {[]string{put(sliding, "0", "'{-1}'", "'{1}'"), put(bucket, "-1", array(nanos), "'{5}'")}, 2, [3]uint64{1, 1, 1}},
		"negative hits":      {[]string{put(sliding, "0", array(current), "'{-1}'"), put(bucket, "10", array(nanos), "'{-5}'"), put(log, "0", array(nanos), "'{-9}'")}, 3, [3]uint64{1, 1, 1}},
		"too many":           {[]string{put(sliding, "0", array(current), "'{9007199254740992}'"), put(bucket, "9007199254740992", array(nanos), "'{5}'"), put(log, "0", array(nanos), "'{-9007199254740992}'")}, 3, [3]uint64{1, 1, 1}},
		"twice":              {[]string{put(sliding, "0", array(current, current), "'{5,6}'"), put(log, "0", array(nanos, nanos), "'{5,6}'")}, 2, [3]uint64{1, 1, 1}},
		"out of order":       {[]string{put(log, "0", array(nanos-1, nanos), "'{5,6}'")}, 1, [3]uint64{1, 1, 1}},
		"two buckets":        {[]string{put(bucket, "10", array(nanos, nanos-1), "'{5,6}'")}, 1, [3]uint64{1, 1, 1}},
		"far ahead":          {[]string{put(sliding, "0", array(int64(1<<62), current), "'{1,41}'"), put(bucket, "10", "'{9223372036854775807}'", "'{5}'"), put(log, "0", "'{9223372036854775807}'", "'{5}'")}, 0, [3]uint64{42, 1, 1}},
		"long ago":           {[]string{put(sliding, "0", array(current, 5), "'{41,1}'"), put(bucket, "10", "'{0}'", "'{5}'"), put(log, "0", "'{0}'", "'{5}'")}, 0, [3]uint64{42, 1, 1}},
		"many":               {[]string{put(sliding, "0", "array(SELECT generate_series(20000, 1, -1))", "array(SELECT generate_series(1, 20000))")}, 0, [3]uint64{1, 1, 1}},
		"extremes":           {[]string{put(bucket, "0", array(nanos), "'{9007199254740991}'"), put(log, "0", array(nanos), "'{9007199254740991}'")}, 0, [3]uint64{1, wire.MaxHits, wire.MaxHits}},
		"for ever":           {[]string{put(sliding, "0", array(current), "'{41}'"), "UPDATE weir.counters SET expires_at = 'infinity'"}, 0, [3]uint64{42, 1, 1}},
		"never":              {[]string{put(sliding, "0", array(current), "'{41}'"), "UPDATE weir.counters SET expires_at = NULL"}, 0, [3]uint64{42, 1, 1}},
		"sender, nulls":      {[]string{sender("NULL", "NULL", "NULL", "NULL", "NULL")}, 1, [3]uint64{1, 1, 1}},
		"sender, floor":      {[]string{sender("-1", "'{}'", "'{}'", "'{}'", "'{}'")}, 1, [3]uint64{1, 1, 1}},
		"sender, high floor": {[]string{sender("9007199254740992", "'{}'", "'{}'", "'{}'", "'{}'")}, 1, [3]uint64{1, 1, 1}},
		"sender, below":      {[]string{sender("2", "'{1}'", "'{}'", "'{}'", "'{}'")}, 1, [3]uint64{1, 1, 1}},
		"sender, beyond":     {[]string{sender("0", "'{4096}'", "'{}'", "'{}'", "'{}'")}, 1, [3]uint64{1, 1, 1}},
		"sender, order":      {[]string{sender("0", "'{3,2}'", "'{}'", "'{}'", "'{}'")}, 1, [3]uint64{1, 1, 1}},
		"sender, grants":     {[]string{sender("0", "'{2}'", "'{2}'", "'{}'", "'{1}'")}, 1, [3]uint64{1, 1, 1}},
		"sender, no push":    {[]string{sender("0", "'{2}'", "'{3}'", "'{1}'", "'{1}'")}, 1, [3]uint64{1, 1, 1}},
		"sender, units":      {[]string{sender("0", "'{2}'", "'{2}'", "'{-1}'", "'{1}'")}, 1, [3]uint64{1, 1, 1}},
		"sender, when":       {[]string{sender("0", "'{2}'", "'{2}'", "'{1}'", "'{-1}'")}, 1, [3]uint64{1, 1, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			exec(t, raw, "TRUNCATE weir.counters, weir.senders")
			exec(t, raw, test.rows...)
			// A new store each time, so that each also looks for expired rows.
			counters := open(t, url, atEpoch)
			contents(t, counters)
			out := must.Get(pushOne(t.Context(), counters, 1, epoch, good, sliding, bucket, log))(t)
			var got [3]uint64
			for i, total := range out.Answer.Totals[1:] {
				for _, h := range total.Hits {
					got[i] = min(got[i]+h, wire.MaxHits)
				}
			}
			if got != test.want || out.Applied != 4 || out.Repaired != test.repaired {
				t.Errorf("totals %v, outcome %+v; want %v, 4 applied, %d repaired", got, out, test.want, test.repaired)
			}
			must.Equal(t, len(contents(t, counters)), 4, "counters")
			if out, err := pushOne(t.Context(), counters, 1, epoch, good, sliding, bucket, log); err != nil || !out.Duplicate || out.Repaired != 0 {
				t.Errorf("again: outcome %+v, error %v; want a duplicate", out, err)
			}
		})
	}
}

// TestForeignRowsAreNotCounted adds rows of counters that no push can have.
func TestForeignRowsAreNotCounted(t *testing.T) {
	url := postgrestest.Database(t)
	counters, raw := open(t, url, atEpoch), connect(t, url)
	wantTotal(t, counters, 1, epoch, counter(window.FixedWindow, 1, time.Minute), 1)
	current := epoch.UnixMilli() / 60_000
	for _, key := range []string{"0, 0, 60000, 0", "6, 0, 60000, 0", "257, 0, 60000, 0", "-1, 0, 60000, 0", "1, 256, 60000, 0", "1, -1, 60000, 0",
		"1, 0, 0, 0", "1, 0, -60000, 0", "1, 0, 9223372036854775807, 0", "1, 0, 60000, 1", "4, 0, 60000, 0", "4, 0, 60000, -1"} {
		exec(t, raw, fmt.Sprintf("INSERT INTO weir.counters VALUES ('ns', gen_random_uuid(), %s, 0, '{%d}', '{5}', 'infinity')", key, current))
	}
	// Counters that need several pages are visited once each.
	exec(t, raw, fmt.Sprintf(`INSERT INTO weir.counters
		SELECT 'ns', gen_random_uuid(), 1, 0, 60000 + n %% 2, 0, 0, array[%d / (60000 + n %% 2)], '{5}', 'infinity' FROM generate_series(1, 2500) n`, epoch.UnixMilli()))
	visited := make(map[wire.LimitCounter]bool)
	for _, c := range contents(t, counters) {
		visited[c.LimitCounter] = true
	}
	must.Equal(t, len(visited), 2501, "counters")
	visits := 0
	must.OK(t, counters.Counters(t.Context(), "ns", &store.Wanted{Widths: []uint64{5, 60_001}}, func(c store.LimitCounter) error {
		visits++
		must.Equal(t, c.WidthMillis, 60_001, "visited %+v", c)
		return nil
	}))
	must.Equal(t, visits, 1250, "counters")
}
