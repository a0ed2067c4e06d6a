package store_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/internal/must"
	"weir/internal/store"
	"weir/internal/wire"
)

// A push that is wrong in one place is refused, and one that is just right there is not.
func TestCheck(t *testing.T) {
	t.Parallel()
	of := func(change func(i *wire.Item)) func(p *wire.Push) { return func(p *wire.Push) { change(&p.Items[1]) } }
	precise := func(width, precision time.Duration) func(p *wire.Push) {
		return of(func(i *wire.Item) { *i = bucketItem(1, width, precision, 1) })
	}
	logOf := func(limit uint64, change func(i *wire.Item), pushed ...store.Window) func(p *wire.Push) {
		return of(func(i *wire.Item) {
			*i = log(1, limit, pushed...)
			change(i)
		})
	}
	as := func(*wire.Item) {}
	many := func(n int) func(p *wire.Push) {
		var pushed []store.Window
		for i := range n {
			pushed = append(pushed, hits(wire.MaxHits-uint64(i), 1))
		}
		return logOf(1, as, pushed...)
	}
	logs := func(items, rooms int) func(p *wire.Push) {
		return func(p *wire.Push) {
			p.Items, p.Takes[1].Rooms = slices.Repeat([]wire.Item{log(1, wire.MaxHits)}, items), nil
			for i := range rooms {
				p.Takes[1].Rooms = append(p.Takes[1].Rooms, logRoom(byte(i), wire.MaxHits, 1))
			}
		}
	}
	for name, test := range map[string]struct{ wrong, right func(p *wire.Push) }{
		"no namespace":       {func(p *wire.Push) { p.Namespace = "" }, func(p *wire.Push) { p.Namespace = "." }},
		"long namespace":     {func(p *wire.Push) { p.Namespace = strings.Repeat("a", wire.MaxNamespace+1) }, func(p *wire.Push) { p.Namespace = strings.Repeat("a", wire.MaxNamespace) }},
		"namespace":          {func(p *wire.Push) { p.Namespace = "a*" }, func(p *wire.Push) { p.Namespace = "azAZ09-._" }},
		"sequence 0":         {func(p *wire.Push) { p.Sequence, p.Floor = 0, 0 }, func(p *wire.Push) { p.Sequence, p.Floor = 1, 0 }},
		"sequence 2^53":      {func(p *wire.Push) { p.Sequence, p.Floor = 1<<53, 1<<53 }, func(p *wire.Push) { p.Sequence, p.Floor = wire.MaxHits, wire.MaxHits }},
		"floor above":        {func(p *wire.Push) { p.Floor = p.Sequence + 1 }, func(p *wire.Push) { p.Floor = p.Sequence }},
		"floor far below":    {func(p *wire.Push) { p.Sequence, p.Floor = store.MaxAhead+1, 1 }, func(p *wire.Push) { p.Sequence, p.Floor = store.MaxAhead, 1 }},
		"floor, extreme":     {func(p *wire.Push) { p.Sequence, p.Floor = wire.MaxHits, 0 }, func(p *wire.Push) { p.Sequence, p.Floor = 1, 1 }},
		"items":              {func(p *wire.Push) { p.Items = slices.Repeat(p.Items[:1], wire.MaxItems-2) }, func(p *wire.Push) { p.Items = slices.Repeat(p.Items[:1], wire.MaxItems-3) }},
		"answer of items":    {logs(52, 1), logs(50, 1)},
		"answer of rooms":    {logs(1, 52), logs(1, 50)},
		"answer of both":     {logs(28, 24), logs(26, 24)},
		"width 0":            {of(func(i *wire.Item) { i.WidthMillis = 0 }), of(func(i *wire.Item) { i.WidthMillis = 1 })},
		"width":              {of(func(i *wire.Item) { i.WidthMillis = wire.MaxWidthMillis + 1 }), of(func(i *wire.Item) { i.WidthMillis = wire.MaxWidthMillis })},
		"extreme width":      {of(func(i *wire.Item) { i.WidthMillis = math.MaxUint64 }), same},
		"kind 0":             {of(func(i *wire.Item) { i.Kind = 0 }), of(func(i *wire.Item) { i.Kind = 1 })},
		"kind":               {of(func(i *wire.Item) { i.Kind = 255 }), of(func(i *wire.Item) { i.Kind = 3 })},
		"no windows":         {of(func(i *wire.Item) { i.Hits = nil }), of(func(i *wire.Item) { i.Hits = []int64{0} })},
		"windows":            {of(func(i *wire.Item) { i.Hits = make([]int64, wire.MaxWindows+1) }), of(func(i *wire.Item) { i.Hits = make([]int64, wire.MaxWindows) })},
		"windows, 1970":      {of(func(i *wire.Item) { i.Newest, i.Hits = 0, []int64{1, 1} }), of(func(i *wire.Item) { i.Newest, i.Hits = 1, []int64{1, 1} })},
		"first hits":         {of(func(i *wire.Item) { i.Kind, i.Hits = firstHit, []int64{1, 1} }), of(func(i *wire.Item) { i.Kind = firstHit })},
		"two token buckets":  {of(func(i *wire.Item) { i.Kind, i.Hits = tokens, []int64{1, 1} }), of(func(i *wire.Item) { i.Kind = tokens })},
		"hits":               {of(func(i *wire.Item) { i.Hits = []int64{1 << 53} }), of(func(i *wire.Item) { i.Hits = []int64{wire.MaxHits} })},
		"hits given back":    {of(func(i *wire.Item) { i.Hits = []int64{-1 << 53} }), of(func(i *wire.Item) { i.Hits = []int64{-wire.MaxHits} })},
		"extreme hits":       {of(func(i *wire.Item) { i.Hits = []int64{math.MinInt64} }), same},
		"needless precision": {of(func(i *wire.Item) { i.Precision = 1 }), same},
		"needless ages":      {of(func(i *wire.Item) { i.Ages = []uint64{0} }), same},
		"no precision":       {precise(minute, 0), precise(minute, 1)},
		"odd precision":      {precise(minute, 7*second), precise(minute, 6*second)},
		"coarse precision":   {precise(minute, 2*minute), precise(minute, minute)},
		"fine precision":     {precise(minute, minute/75), precise(minute, minute/64)},
		"extreme precision":  {precise(minute, -1), same},
		"no ages":            {logOf(1, func(i *wire.Item) { i.Ages = nil }, hits(5, 1)), logOf(1, as, hits(5, 1))},
		"ages not ascending": {logOf(1, as, hits(5, 1), hits(5, 1)), logOf(1, as, hits(5, 1), hits(4, 1))},
		"ages, 1970":         {logOf(1, func(i *wire.Item) { i.Ages[0] = 6 }, hits(5, 1)), logOf(1, func(i *wire.Item) { i.Ages[0] = 5 }, hits(5, 1))},
		"limit":              {logOf(wire.MaxHits+1, as, hits(5, 1)), logOf(wire.MaxHits, as, hits(5, 1))},
		"buckets":            {many(wire.MaxBuckets + 1), many(wire.MaxBuckets)},
	} {
		for _, change := range []struct {
			make  func(p *wire.Push)
			fails bool
		}{{test.wrong, true}, {test.right, false}} {
			p := &wire.Push{Namespace: "ns", Sender: 3, Sequence: 5, Floor: 5, Items: []wire.Item{item(fixed, 1, minute, 0, 1), item(fixed, 2, minute, 0, 1)},
				Takes: []wire.Take{take(1, 1, room(fixed, 1, 9, 1)), take(1, 2, room(fixed, 1, 9, 1), room(sliding, 2, 9, 1))}}
			change.make(p)
			if err := store.Check(p); change.fails != errors.Is(err, store.ErrInvalid) || !change.fails && err != nil {
				t.Errorf("%s: error %v, want invalid %v", name, err, change.fails)
			}
		}
	}
	must.Equal(t, store.ValidCounter(counter(fixed, 1, 0)), false, "a counter without a width is valid")
	must.Equal(t, store.ValidCounter(counter(fixed, 1, minute)), true, "a counter with a width is valid")
}

func same(*wire.Push) {}

// A push that counts nothing and takes nothing is a read.
func TestIsRead(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		push wire.Push
		want bool
	}{
		{wire.Push{}, true},
		{wire.Push{Items: []wire.Item{item(fixed, 1, minute, 0, 0, 0), {}}}, true},
		{wire.Push{Items: []wire.Item{item(fixed, 1, minute, 0), item(fixed, 1, minute, 0, 0, 1)}}, false},
		{wire.Push{Items: []wire.Item{item(fixed, 1, minute, 0, -1)}}, false},
		{wire.Push{Takes: []wire.Take{{}}}, false},
	} {
		must.Equal(t, store.IsRead(&test.push), test.want, "%+v", test.push)
	}
}

// What stores keep beside counters is checked, too.
func TestCheckDocuments(t *testing.T) {
	t.Parallel()
	row := func(day uint32, hits int64, budget ...byte) wire.UsedRow {
		return wire.UsedRow{Label: wire.AppendUsedLabel(nil, &wire.UsedLabel{Rule: "r"}), Day: day, Hits: hits, Budget: budget}
	}
	used := func(rows ...wire.UsedRow) error {
		return store.CheckUsed(&wire.Used{Namespace: "ns", Sequence: 1, Rows: rows})
	}
	for name, test := range map[string]struct{ wrong, right error }{
		"namespace of a list": {store.CheckOverrides("a*", nil), store.CheckOverrides("a", nil)},
		"a long list":         {store.CheckOverrides("a", make([]byte, wire.MaxOverridesSize+1)), store.CheckOverrides("a", make([]byte, wire.MaxOverridesSize))},
		"namespace of a note": {store.CheckNote(store.Nodes, "a*", store.Note{}), store.CheckNote(store.Nodes, "a", store.Note{})},
		"a long report":       {store.CheckNote(store.Reports, "a", store.Note{Body: make([]byte, wire.MaxReport+1)}), store.CheckNote(store.Reports, "a", store.Note{Body: make([]byte, wire.MaxReport)})},
		"namespace of usage":  {store.CheckUsed(&wire.Used{Namespace: "a*", Sequence: 1}), used()},
		"no sequence":         {store.CheckUsed(&wire.Used{Namespace: "ns"}), used()},
		"a large sequence":    {store.CheckUsed(&wire.Used{Namespace: "ns", Sequence: wire.MaxHits + 1}), store.CheckUsed(&wire.Used{Namespace: "ns", Sequence: wire.MaxHits})},
		"no label":            {used(wire.UsedRow{Label: []byte("x")}), used(row(1, 1))},
		"a day":               {used(row(wire.MaxUsedDay+1, 1)), used(row(wire.MaxUsedDay, 1))},
		"hits":                {used(row(1, wire.MaxHits+1)), used(row(1, wire.MaxHits))},
		"hits given back":     {used(row(1, -wire.MaxHits-1)), used(row(1, -wire.MaxHits))},
		"a budget":            {used(row(1, 1, 'x')), used(row(1, 1, wire.AppendBudget(nil, &wire.Budget{AtSeconds: 1, StartSeconds: 1, EndSeconds: 2})...))},
		"rows":                {used(slices.Repeat([]wire.UsedRow{row(1, 1)}, wire.MaxUsedRows+1)...), used(slices.Repeat([]wire.UsedRow{row(1, 1)}, wire.MaxUsedRows)...)},
	} {
		must.Is(t, test.wrong, store.ErrInvalid, "%s", name)
		must.Reportf(t, test.right, "%s, if it is right", name)
	}
}

// Who wants the counters of some widths, or of a key, gets those of both.
func TestWants(t *testing.T) {
	t.Parallel()
	for want, w := range map[string]*store.Wanted{
		"[true true true]": nil, "[true true false]": {Widths: []uint64{1, 60_000}}, "[true false true]": {Key: &wire.ID{1}}, "[true false false]": {Widths: []uint64{60_000}, Key: &wire.ID{1}},
	} {
		got := []bool{w.Wants(counter(fixed, 1, minute)), w.Wants(counter(fixed, 2, minute)), w.Wants(counter(fixed, 1, second))}
		must.Equal(t, fmt.Sprint(got), want, "%+v", w)
	}
	list := store.AppliedList{Node: 5, Version: math.MaxUint64, Unfit: 3}
	must.Equal(t, string(list.Note().Body), "9223372036854775807 3", "a note on a list")
}

// A list's version is the time, but always above the last.
func TestNextVersion(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		from uint64
		now  int64
		want uint64
	}{{0, 5000, 5}, {4, 5000, 5}, {5, 5000, 6}, {9, 5000, 10}, {0, -5000, 1}} {
		must.Equal(t, store.NextVersion(test.from, time.Unix(0, test.now)), test.want, "after %d at %d ns", test.from, test.now)
	}
}

// Hits of a day are kept for 13 months. Those of days that are not kept, or have not begun anywhere, belong to the next
// that is valid.
func TestUsedDay(t *testing.T) {
	t.Parallel()
	const today = 20_000
	c := store.Calendar{NowNanos: today*uint64(day) + 5}
	for of, want := range map[uint32]uint32{
		today: today, today + 1: today + 1, today + 2: today + 1, wire.MaxUsedDay: today + 1, today - 1: today - 1,
		today - store.UsedDays: today - store.UsedDays, today - store.UsedDays - 1: today - store.UsedDays, 0: today - store.UsedDays,
	} {
		must.Equal(t, c.UsedDay(of), want, "day %d", of)
	}
	must.Equal(t, (store.Calendar{NowNanos: 5 * uint64(day)}).UsedDay(0), 0, "on day 5, day 0 belongs to")
	must.Equal(t, store.UsedUntil(today), (today+store.UsedDays+1)*uint64(day), "kept until")
	must.Equal(t, c.Day(), today, "today")
}

// A label takes a place with a chance of its hits by those of the label that has it.
func TestDisplaces(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		hits, least int64
		random      float64
		want        bool
	}{{1, 4, 0.2499, true}, {1, 4, 0.25, false}, {4, 4, 0.9999, true}, {9, 4, 0.9999, true}, {0, 4, 0, false}, {-1, 4, 0, false}, {1, 0, 0.9999, true}} {
		must.Equal(t, store.Displaces(test.hits, test.least, test.random), test.want, "%+v", test)
	}
	l := wire.UsedLabel{Rule: "r", ID: wire.ID{1}, Model: "m"}
	ofRule, ofAll := store.OthersLabel(wire.AppendUsedLabel(nil, &l))
	a, _ := wire.DecodeUsedLabel(ofRule)
	b, _ := wire.DecodeUsedLabel(ofAll)
	if a.Rule != "r" || a.ID != (wire.ID{}) || a.Model != "" || b.Rule != "-" || b.ID != (wire.ID{}) {
		t.Errorf("others are %+v and %+v", a, b)
	}
}

// About so many hits are used. The previous window counts in full, and tokens that are back do not.
func TestUsed(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		item  wire.Item
		after time.Duration
		want  uint64
	}{
		{item(fixed, 1, minute, 0, 5), minute - 1, 5}, {item(fixed, 1, minute, 0, 5), minute, 0},
		{item(sliding, 1, minute, 0, 5, 7), 0, 12}, {item(sliding, 1, minute, 0, 5, 7), minute, 5},
		{item(sliding, 1, minute, 0, wire.MaxHits, 7), 0, wire.MaxHits},
		{quarters(1, hits(quarter, 5), hits(quarter-3, 7)), 0, 12}, {quarters(1, hits(quarter, 5), hits(quarter-3, 7)), 15 * second, 5},
		{item(firstHit, 1, minute, 0, 5), minute - 1, 5}, {item(firstHit, 1, minute, 0, 5), minute, 0},
		{tokenItem(1, 10, 0, 5), 0, 5}, {tokenItem(1, 10, 0, 5), 12 * second, 3}, {tokenItem(1, 10, 0, 5), minute, 0}, {tokenItem(1, 0, 0, 5), 30 * second, 5},
	} {
		l := newLedger(t)
		must.Equal(t, l.Used(l.contents(test.item.LimitCounter), test.item.LimitCounter), 0, "%+v: used of nothing", test.item)
		l.push(test.item)
		l.set(test.after)
		must.Equal(t, l.Used(l.contents(test.item.LimitCounter), test.item.LimitCounter), test.want, "%+v after %v: used", test.item, test.after)
	}
}

// A trial is a hit in the present window of one of 32 counters in turn, or of each of them.
func TestTrial(t *testing.T) {
	t.Parallel()
	trial, seen := store.NewTrial(), map[wire.ID]bool{}
	for i := range uint64(32) {
		p := trial.Next()
		if err := store.Check(p); err != nil || p.Namespace != store.TrialNamespace || p.Sequence != i+1 || p.Floor != p.Sequence || len(p.Items) != 1 || !slices.Equal(p.Items[0].Hits, []int64{1}) {
			t.Fatalf("%+v, %v", p, err)
		}
		must.Between(t, time.Since(time.Unix(0, int64(store.StartNanos(p.Items[0].LimitCounter, p.Items[0].Newest)))), 0, minute, "the window began ago")
		seen[p.Items[0].ID] = true
	}
	if all := trial.Everywhere(); len(seen) != 32 || len(all.Items) != 32 || all.Sequence != 33 || all.Sender == store.NewTrial().Next().Sender {
		t.Errorf("%d counters in turn, %d at once", len(seen), len(all.Items))
	}
	line := (&store.LimitCounter{LimitCounter: counter(sliding, 1, minute), Windows: []store.Window{hits(epoch/uint64(minute), 3)}}).Line()
	if line.Kind != "sliding_window" || len(line.Windows) != 1 || uint64(line.Windows[0].Start.UnixNano()) != epoch || line.Windows[0].Hits != 3 {
		t.Errorf("%+v", line)
	}
}
