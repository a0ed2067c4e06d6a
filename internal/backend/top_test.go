package backend

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"weir/internal/must"
	"weir/internal/store"
	"weir/internal/store/memory"
	"weir/internal/wire"
)

// The least limit is so by definition: every smaller limit refuses more than a thousandth.
func TestLeast(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		var all demand
		total := uint64(0)
		for range r.IntN(30) {
			s := keysAlike{r.Uint64N(1 + r.Uint64N(2000)), float64(r.IntN(4))}
			all = append(all, s)
			total += s.hits * uint64(s.keys)
		}
		want := uint64(0)
		for ; ; want++ {
			over := uint64(0)
			for _, s := range all {
				over += (s.hits - min(s.hits, want)) * uint64(s.keys)
			}
			if over*1000 <= total {
				break
			}
		}
		must.EqualOrEnd(t, all.least(float64(total)/1000), want, "%v: least", all)
	}
}

// Keys of several nodes are added up, and what a node does not tell of a key is an error, not nothing.
func TestTop(t *testing.T) {
	b := New(memory.New(memory.Options{Now: func() time.Time { return time.Unix(1000, 0) }}))
	ctx := context.Background()
	id := func(n byte) wire.ID { return wire.ID{n} }
	hash := func(n byte) string { return fmt.Sprintf("%02x%030x", n, 0) }
	sample := func(hash uint64, refused bool, newest uint64, hits ...uint32) wire.SampledKey {
		return wire.SampledKey{Hash: hash, Refused: refused, Asked: []wire.AskedWindows{{Newest: newest, Hits: hits}}}
	}
	const now = 1000e9
	limits := []wire.ReportLimit{{Max: 5, WidthMillis: 1000}}
	for _, r := range []wire.Report{
		{Namespace: "ns", Node: 1, Sender: 1, AtNanos: now, Rules: []wire.RuleReport{{
			Name: "r", Shadow: true, SpanMillis: 10_000, Amounts: wire.Amounts{Requests: 100, Hits: 200, RefusedRequests: 50}, Every: 1, Limits: limits,
			Used:   wire.KeyList{Floor: 10, Keys: []wire.ReportKey{{ID: id(1), Hits: 100, Error: 20, Use: 300}, {ID: id(2), Hits: 50}}},
			Sample: wire.Sample{Threshold: 99, Keys: []wire.SampledKey{sample(10, false, 1000, 7, 1, 2), sample(60, true, 999, 9)}},
		}}},
		{Namespace: "ns", Node: 2, Sender: 2, AtNanos: now + 1, Rules: []wire.RuleReport{{
			Name: "r", Shadow: true, SpanMillis: 20_000, Amounts: wire.Amounts{Requests: 100, Hits: 200}, Every: 8, Limits: limits,
			Used:   wire.KeyList{Keys: []wire.ReportKey{{ID: id(1), Hits: 200, Use: 700, Name: wire.AppendValue(nil, []byte("ann"), false)}}},
			Sample: wire.Sample{Threshold: 50, Keys: []wire.SampledKey{sample(10, true, 999, 3)}},
		}}},
		{Namespace: "other", Node: 3, Sender: 3, AtNanos: now, Rules: []wire.RuleReport{{Name: "r", SpanMillis: 1}}},
	} {
		must.Get(b.Push(ctx, wire.AppendReport(nil, &r)))(t)
	}
	_, err := b.Push(ctx, []byte{0x71, 1, 'x'})
	must.Is(t, err, store.ErrInvalid, "a report that ends too early")
	// Another writer to the store does no harm.
	must.Get(b.store.Note(ctx, store.Reports, "ns", store.Note{Member: 9, Body: []byte("no report")}))(t)
	top, err := b.Top(ctx, "ns", "r")
	if err != nil || top.Nodes != 2 || top.Senders != 2 || len(top.Rules) != 1 {
		t.Fatalf("got %+v, %v", top, err)
	}
	r := top.Rules[0]
	if r.Asked != 200 || r.Rejected != 50 || r.ShareRefused != 0.25 || r.Requests != 15 || r.Others != 1 || len(r.Used) != 2 {
		t.Errorf("got %+v", r)
	}
	if k := r.Used[0]; k.Hash != hash(1) || k.Hits != 8+10 || k.MoreHits != 2 || k.Margin < 5 || k.Use != 0.7 || k.Nodes != 2 || !slices.Equal(k.Values, []Value{{Text: "ann"}}) {
		t.Errorf("first %+v", k)
	}
	if k := r.Used[1]; k.Hash != hash(2) || k.Hits != 5 || k.MoreHits != 0 || k.Margin != 0 || k.Nodes != 1 {
		t.Errorf("second %+v", k)
	}
	// Below the least threshold there is one key, and window 1000 has not ended.
	m := r.Measured
	if m.Keys != 1 || m.Refused != 1 || len(m.Limits) != 1 {
		t.Fatalf("measured %+v", m)
	}
	if l := m.Limits[0]; l.Windows != 2 || l.Running || l.Hits != 1+3+2 || l.Least != 4 || l.Most != 4 {
		t.Errorf("limit %+v", l)
	}
	if top, err = b.Top(ctx, "ns", "none"); err != nil || len(top.Rules) != 0 || top.Nodes != 2 {
		t.Errorf("another rule: %+v, %v", top, err)
	}
}

// A shadow rule's limits are those of the newest report, in whatever order reports are read.
func TestMeasuredByTheNewestLimits(t *testing.T) {
	t.Parallel()
	report := func(at, limit uint64) *wire.Report {
		return &wire.Report{Namespace: "ns", Node: at, Sender: at, AtNanos: at, Rules: []wire.RuleReport{{
			Name: "r", Shadow: true, SpanMillis: 1, Limits: []wire.ReportLimit{{Max: limit, WidthMillis: 1000}},
		}}}
	}
	for _, order := range [][]uint64{{1, 2, 3}, {1, 3, 2}, {2, 1, 3}, {2, 3, 1}, {3, 1, 2}, {3, 2, 1}} {
		var reports []*wire.Report
		for _, at := range order {
			reports = append(reports, report(at, 10*at))
		}
		r := merge(reports, "").Rules[0]
		must.Equal(t, r.Measured.Limits[0].Limit, 30, "%v: the newest limit", order)
		must.Equal(t, r.ShareRefused, 0, "%v: the share of no requests", order)
	}
}

// Senders that make up rules make no answer longer: those with most requests are told.
func TestTopOfTooManyRules(t *testing.T) {
	t.Parallel()
	var reports []*wire.Report
	for sender := range uint64(3) {
		r := &wire.Report{Sender: sender}
		for i := range uint64(wire.MaxReportRules) {
			r.Rules = append(r.Rules, wire.RuleReport{Name: fmt.Sprintf("r%d-%d", sender, i), Amounts: wire.Amounts{Requests: 1 + sender}})
		}
		reports = append(reports, r)
	}
	rules := merge(reports, "").Rules
	if len(rules) != wire.MaxReportRules || rules[0].Rule != "r2-0" || rules[len(rules)-1].Rule != "r2-99" {
		t.Errorf("got %d rules, %+v", len(rules), rules)
	}
	if rules := merge(reports, "r0-7").Rules; len(rules) != 1 || rules[0].Rule != "r0-7" {
		t.Errorf("of a single rule: %+v", rules)
	}
}

// A key that a report does not have may have had up to the floor's hits there, if its hash is above
// the report's threshold: whatever thresholds there are.
func TestFloorsOfManyThresholds(t *testing.T) {
	t.Parallel()
	of := func(threshold uint64, floor uint32, keys ...wire.BusyKey) seen {
		return seen{RuleReport: &wire.RuleReport{Sample: wire.Sample{Threshold: threshold, Busy: []wire.BusyWindows{{
			Newest: 1, Windows: []wire.BusyWindow{{Hits: 1000, Floor: floor, Keys: keys}},
		}}}}}
	}
	all := []seen{of(40, 16), of(20, 8, wire.BusyKey{Hash: 50, Hits: 100}), of(20, 4), of(30, 2), of(50, 1, wire.BusyKey{Hash: 60, Hits: 1})}
	for _, hash := range []uint64{20, 21, 30, 31, 40, 41, 50, 51} {
		all = append(all[:5], of(10, 0, wire.BusyKey{Hash: hash, Hits: 1000}))
		want := uint64(0)
		for _, s := range all[:5] {
			if hash > s.Sample.Threshold {
				want += uint64(s.Sample.Busy[0].Windows[0].Floor)
			}
		}
		if hash == 50 {
			want += 100 - 8
		}
		found := windowOf(all, 0, 1, 10, true)
		at := slices.IndexFunc(found.keys, func(k asked) bool { return k.least >= 1000 })
		must.Equal(t, found.keys[at].most, 1000+want, "a key of hash %d had hits at most", hash)
	}
}

// The least limit is by the windows that all reports have in full. It is sure by the keys that were not seen: as many as the
// hits of no other key leave, each with as many as the floor.
func TestMeasuredWindows(t *testing.T) {
	t.Parallel()
	const half = 1<<63 - 1 // the threshold of a sample of every other key
	of := func(threshold, newest uint64, windows ...wire.BusyWindow) seen {
		return seen{at: (newest + 1) * 1e9, RuleReport: &wire.RuleReport{Limits: []wire.ReportLimit{{Max: 1, WidthMillis: 1000}}, Sample: wire.Sample{
			Threshold: threshold, Busy: []wire.BusyWindows{{Newest: newest, Windows: windows}},
		}}}
	}
	busy := func(hits, floor uint32, keys int, each uint32) wire.BusyWindow {
		w := wire.BusyWindow{Hits: hits, Floor: floor}
		for i := range keys {
			w.Keys = append(w.Keys, wire.BusyKey{Hash: half + 1 + uint64(i), Hits: each})
		}
		return w
	}
	sampled := of(half, 9, busy(2000, 100, 30, 60)) // 150 hits of other keys
	sampled.Sample.Keys = []wire.SampledKey{{Hash: 5, Asked: []wire.AskedWindows{{Newest: 9, Hits: []uint32{50}}}}}
	begun := of(half, 9, busy(7, 0, 1, 7), busy(5, 0, 1, 5))
	begun.Sample.SinceNanos = 8e9 + 1
	few, three := of(0, 9, busy(2000, 5, 0, 0)), busy(3, 1, 0, 0)
	few.Sample.Keys = []wire.SampledKey{{Asked: []wire.AskedWindows{{Newest: 9, Hits: []uint32{5}}}}}
	few.Sample.Busy[0].Windows[0].Keys = []wire.BusyKey{{Hash: 1, Hits: 8}}
	for name, test := range map[string]struct {
		all  []seen
		want string
	}{
		"keys that stand for two":   {[]seen{sampled}, "1 of 2000, running false: least 49, most 60, sure 99, unseen 100"},
		"one that stands for all":   {[]seen{few}, "1 of 2000, running false: least 6, most 8, sure 6, unseen 5"},
		"more hits than in all":     {[]seen{of(half, 9, busy(100, 300, 1, 200))}, "1 of 100, running false: least 0, most 200, sure 200, unseen 300"},
		"all keys":                  {[]seen{of(half, 9, busy(1000, 0, 1, 1000))}, "1 of 1000, running false: least 999, most 1000, sure 999, unseen 0"},
		"no key":                    {[]seen{of(half, 9, three)}, "1 of 3, running false: least 0, most 0, sure 1, unseen 1"},
		"a window of one report":    {[]seen{of(half, 9, three, three), of(half, 9, three)}, "1 of 6, running false: least 0, most 0, sure 2, unseen 2"},
		"more windows than so far":  {[]seen{of(half, 1, three, three, three)}, "2 of 6, running false: least 0, most 0, sure 1, unseen 1"},
		"since the first had begun": {[]seen{begun}, "1 of 7, running false: least 7, most 7, sure 7, unseen 0"},
		"none that has ended":       {[]seen{of(half, 9, three), of(half, 10, three)}, "1 of 3, running true: least 0, most 0, sure 1, unseen 1"},
	} {
		m := measureLimit(test.all, 0, test.all[0].Limits[0], test.all[0].Sample.Threshold)
		must.Equal(t, fmt.Sprintf("%d of %d, running %t: least %d, most %d, sure %d, unseen %d", m.Windows, m.Hits, m.Running, m.Least, m.Most, *m.Sure, *m.Unseen), test.want, "%s", name)
	}
}

// A key's hits are as uncertain as the requests that were not drawn, each of which takes one hit at least.
func TestSpread(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		every, requests, hits uint64
		want                  float64
	}{{0, 1, 1, 0}, {1, 1, 1, 0}, {8, 0, 0, 3.5}, {8, 1, 3, 10.5}, {8, 100, 50, 3.5}} {
		s := seen{RuleReport: &wire.RuleReport{SpanMillis: 20_000, Every: test.every, Amounts: wire.Amounts{Requests: test.requests, Hits: test.hits}}}
		must.Equal(t, s.spread(200), test.want, "%+v", test)
	}
}

// FuzzTop has reports of anybody merged.
func FuzzTop(f *testing.F) {
	f.Add(wire.AppendReport(nil, &wire.Report{Namespace: "n", Rules: []wire.RuleReport{{Name: "r", Shadow: true, Limits: []wire.ReportLimit{{Max: 1, WidthMillis: 1}},
		Sample: wire.Sample{Keys: []wire.SampledKey{{Asked: []wire.AskedWindows{{Newest: 1, Hits: []uint32{1, 2}}}}}}}}}))
	f.Fuzz(func(_ *testing.T, b []byte) {
		if r, err := wire.DecodeReport(b); err == nil {
			other := *r
			other.AtNanos++
			merge([]*wire.Report{r, &other}, "")
		}
	})
}

// A worker that reports no more is counted no more, and nodes that tell of the last ten seconds do so for
// all that are there.
func TestTopOfWorkersThatAreThere(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	b := New(memory.New(memory.Options{Now: func() time.Time { return now }}))
	report := func(sender uint64, recentMillis uint64, recent wire.Amounts, keyRecent uint64) {
		t.Helper()
		r := wire.Report{Namespace: "ns", Node: 1, Sender: sender, AtNanos: uint64(now.UnixNano()), Rules: []wire.RuleReport{{
			Name: "r", SpanMillis: 60_000, Amounts: wire.Amounts{Requests: 600, Hits: 600}, Every: 1, RecentMillis: recentMillis, Recent: recent,
			Used:    wire.KeyList{Keys: []wire.ReportKey{{ID: wire.ID{1}, Hits: 600, Recent: keyRecent}}},
			Refused: wire.KeyList{Keys: []wire.ReportKey{{ID: wire.ID{1}, Hits: 60, Recent: keyRecent / 2}}},
		}}}
		must.Get(b.Push(t.Context(), wire.AppendReport(nil, &r)))(t)
	}
	top := func() Top {
		t.Helper()
		return must.Get(b.Top(t.Context(), "ns", ""))(t)
	}
	report(1, 10_000, wire.Amounts{Requests: 300, Hits: 400, RefusedRequests: 100, RefusedHits: 150}, 200)
	report(2, 5_000, wire.Amounts{Requests: 50, Hits: 50}, 50)
	report(3, 0, wire.Amounts{}, 0) // of the last version
	want := Rates{Requests: 40, Hits: 50, RefusedRequests: 10, RefusedHits: 15}
	if got := top(); got.Senders != 3 || got.Rules[0].Requests != 30 || got.Rules[0].RecentSeconds != 10 || *got.Rules[0].Recent != want ||
		got.Rules[0].Used[0].RecentHits != 30 || got.Rules[0].Used[0].RecentRefused != 15 {
		t.Errorf("got %+v", got)
	}
	now = now.Add(14 * time.Second)
	report(2, 10_000, wire.Amounts{Requests: 50, Hits: 50}, 50)
	must.Equal(t, top().Senders, 3, "after 14 s: senders")
	now = now.Add(time.Second)
	if got := top(); got.Nodes != 1 || got.Senders != 1 || got.Rules[0].Requests != 10 || *got.Rules[0].Recent != (Rates{Requests: 5, Hits: 5}) {
		t.Errorf("after 15 s: got %+v, want the one that is there", got)
	}
	now = now.Add(15 * time.Second)
	if got := top(); got.Nodes != 0 || got.Senders != 0 || len(got.Rules) != 0 {
		t.Errorf("got %+v of nobody", got)
	}
}

// The workers of a node see the same counter: what it has leased and not told yet counts once. Keys that are idle, and others,
// do not count.
func TestPassingCountsANodeOnce(t *testing.T) {
	at := func(node, leased, pending uint64) *wire.Report {
		used := wire.KeyList{Keys: []wire.ReportKey{
			{ID: wire.ID{1}, Recent: 1, Leased: leased, Pending: pending}, {ID: wire.ID{1}, Leased: 99, Pending: 99}, {ID: wire.ID{2}, Recent: 1, Leased: 99, Pending: 99},
		}}
		return &wire.Report{Node: node, AtNanos: 1e9, Rules: []wire.RuleReport{{SyncMillis: 1000, Used: used}}}
	}
	reports := []*wire.Report{at(1, 10, 3), at(1, 8, 5), at(2, 1, 4)}
	for now, want := range map[uint64][2]uint64{1.5e9: {11, 9}, 2e9: {11, 0}} {
		if leased, pending := passing(reports, wire.ID{1}, now); leased != want[0] || pending != want[1] {
			t.Errorf("at %d: %d leased and %d pending, want %d", now, leased, pending, want)
		}
	}
}

// With as many reports as the store keeps there may be others, and Top says so.
func TestTopOfTooManyWorkers(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	b := New(memory.New(memory.Options{Now: func() time.Time { return now }}))
	for sender := range uint64(store.MaxReports) {
		must.Equal(t, must.Get(b.Top(t.Context(), "ns", ""))(t).Full, false, "with %d reports: full", sender)
		r := wire.Report{Namespace: "ns", Node: 1, Sender: sender, AtNanos: uint64(now.UnixNano())}
		must.Get(b.Push(t.Context(), wire.AppendReport(nil, &r)))(t)
	}
	must.Equal(t, must.Get(b.Top(t.Context(), "ns", ""))(t).Full, true, "with as many as there may be: full")
}

// Of thousands of keys that reports name, those get names that are shown.
func TestTopNamesFewKeys(t *testing.T) {
	var reports []*wire.Report
	for sender := range byte(64) {
		used := wire.KeyList{}
		for i := range byte(wire.MaxReportKeys) {
			used.Keys = append(used.Keys, wire.ReportKey{ID: wire.ID{sender, i}, Hits: 1, Name: wire.AppendValue(nil, []byte("ann"), false)})
		}
		reports = append(reports, &wire.Report{Sender: uint64(sender), Rules: []wire.RuleReport{{Name: "r", Used: used}}})
	}
	keys := float64(len(reports) * wire.MaxReportKeys)
	must.AtMost(t, testing.AllocsPerRun(5, func() { merge(reports, "") })/keys, 5, "allocations a key, to add it up")
	used := merge(reports, "").Rules[0].Used
	if len(used) != wire.MaxReportKeys || used[0].Hash != "00000000000000000000000000000000" || used[63].Values[0].Text != "ann" {
		t.Errorf("got %d keys, %+v to %+v", len(used), used[0], used[len(used)-1])
	}
}
