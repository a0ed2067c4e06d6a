package backend

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/internal/must"
	"weir/internal/store"
	"weir/internal/store/memory"
	"weir/internal/wire"
	"weir/window"
)

var errAway = errors.New("away")

// broken is a store that refuses some notes, and whose lists perhaps can't be read or set.
type broken struct {
	store.Store
	refuses     func(of store.Topic) bool // nil for none
	unread, set error
	// other is called once before a list is set.
	other func()
	// lost means that the next answer to setting a list is lost, and the store sets it again.
	lost bool
}

func (b *broken) Note(ctx context.Context, topic store.Topic, namespace string, note store.Note) (uint64, error) {
	if b.refuses != nil && b.refuses(topic) {
		return 0, errAway
	}
	return b.Store.Note(ctx, topic, namespace, note)
}

func (b *broken) Overrides(ctx context.Context, namespace string, known uint64) ([]byte, uint64, error) {
	if b.unread != nil {
		return nil, 0, b.unread
	}
	return b.Store.Overrides(ctx, namespace, known)
}

func (b *broken) SetOverrides(ctx context.Context, namespace string, from uint64, list []byte) (uint64, error) {
	if b.set != nil {
		return 0, b.set
	}
	if other := b.other; other != nil {
		b.other = nil
		other()
	}
	if b.lost {
		b.lost = false
		_, _ = b.Store.SetOverrides(ctx, namespace, from, list)
	}
	return b.Store.SetOverrides(ctx, namespace, from, list)
}

func overrideTo(limit uint64, values ...string) wire.Override {
	return wire.Override{Rule: "per-user", Values: values, Limits: []wire.OverrideLimit{{Max: limit, WidthMillis: 60_000}}}
}

// told are a namespace's records, each in a line.
func told(t *testing.T, b *Backend) (lines []string) {
	t.Helper()
	found := must.Get(b.Changes(t.Context(), "shop", time.Time{}))(t)
	for i := range found {
		r := &found[i]
		line := fmt.Sprintf("%s %s/%s", r.What, r.Name, r.Reason)
		for _, of := range r.Of {
			name := ""
			for _, v := range of.Values {
				name += v.Text
				if v.Cut {
					name += "…"
				}
			}
			line += fmt.Sprintf(" %s%s[%s]: %s -> %s;", of.Rule, of.List, name+of.Model, of.Before, of.After)
		}
		if r.More > 0 {
			line += fmt.Sprint(" more ", r.More)
		}
		if r.Returned > 0 {
			line += fmt.Sprint(" returned ", r.Returned)
		}
		if !r.Made {
			line += " not known"
		}
		lines = append(lines, line)
	}
	return lines
}

func wantTold(t *testing.T, b *Backend, want ...string) {
	t.Helper()
	must.Same(t, told(t, b), want, "the records are")
}

// by is a person, whose changes are told to a log.
func by(reason string) *By {
	return &By{Name: "ann", Known: "token", Address: "192.0.2.1", Reason: reason, Log: slog.New(slog.DiscardHandler)}
}

// Each change has a record of what was before and after; what changes nothing has none.
func TestChangesAreRecorded(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	clock := func() time.Time { now = now.Add(time.Millisecond); return now }
	b := New(memory.New(memory.Options{Now: clock}))
	b.overrides.now = clock
	ctx := t.Context()
	set := func(reason string, all ...wire.Override) {
		t.Helper()
		must.Get(b.By(by(reason)).SetOverrides(ctx, "shop", all...))(t)
	}
	set("one", overrideTo(10, "ann"))
	set("again", overrideTo(10, "ann"))
	set("two", overrideTo(20, "ann"), overrideTo(5, "bob"))
	for range 2 {
		_, _, err := b.By(by("three")).UnsetOverrides(ctx, "shop", "per-user", wire.OfKey, []string{"bob"})
		must.OK(t, err)
	}
	for range 2 {
		must.Get(b.By(by("four")).SetPrices(ctx, "shop", "models", []wire.Price{{Model: "m", Kinds: []wire.PriceOfKind{{Kind: 1, Millionths: 1_250_000}}}}, false))(t)
	}
	_, _, err := b.By(by("five")).UnsetPrices(ctx, "shop", "models", "")
	must.OK(t, err)
	must.Get(b.By(nil).SetOverrides(ctx, "shop", overrideTo(7, "eve")))(t)
	want := []string{
		"set override ann/one per-user[]:  -> 10/1m;",
		"set override ann/two per-user[]: 10/1m -> 20/1m; per-user[]:  -> 5/1m;",
		"remove override ann/three per-user[]: 5/1m -> ;",
		"set price ann/four models[m]:  -> input=1.25;", "remove price ann/five models[m]: input=1.25 -> ;",
	}
	wantTold(t, b, want...)
	found, _ := b.Changes(ctx, "shop", time.Time{})
	if r := found[0]; r.By != "token" || r.Address != "192.0.2.1" || !r.At.After(time.Unix(1_800_000_000, 0)) || len(r.Of[0].Hash) != 32 || r.Of[0].Hash != found[1].Of[0].Hash || r.Of[0].Hash == found[2].Of[0].Hash {
		t.Errorf("got %+v", r)
	}
	must.Equal(t, len(must.Get(b.Changes(ctx, "shop", found[3].At))(t)), 2, "since the fourth")
	must.Equal(t, len(must.Get(b.Changes(ctx, "sho", time.Time{}))(t)), 0, "another namespace has")
}

// A counter's record has its hits. A call that comes again with its key gives hits back once, and has
// one record, whoever else uses the same key.
func TestChangesOfCounters(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	s := &broken{Store: memory.New(memory.Options{Now: func() time.Time { return now }})}
	b, other := New(s), New(s)
	push := func(sequence uint64) {
		t.Helper()
		p := wire.Push{Namespace: "shop", Sender: 1, Sequence: sequence, Floor: sequence, Items: []wire.Item{{
			LimitCounter: wire.LimitCounter{ID: wire.ID{1}, Kind: uint8(window.FixedWindow), WidthMillis: 60_000}, Newest: uint64(now.UnixMilli()) / 60_000, Hits: []int64{100},
		}}}
		must.Get(s.Push(t.Context(), &p, 1))(t)
	}
	push(1)
	grant := func(b *Backend, name, once string, hits, want uint64) {
		t.Helper()
		of := by("why")
		of.Name, of.Once = name, once
		got, _, err := b.By(of).ChangeCounter(t.Context(), "shop", &Change{ID: wire.ID{1}, Rule: "r", Values: []string{"v"}, Grant: hits})
		must.Report(t, err)
		must.Equal(t, got, want, "given back")
	}
	grant(b, "ann", "k", 10, 10)
	grant(b, "ann", "k", 10, 10)
	grant(other, "ann", "k", 10, 10) // by another instance
	grant(b, "bob", "k", 10, 10)
	grant(b, "ann", "k", 11, 11)
	now = now.Add(time.Millisecond)
	grant(b, "ann", "", 1, 1)
	now = now.Add(time.Millisecond)
	grant(b, "ann", "", 0, 68)
	got := told(t, b)
	slices.Sort(got[:3])
	want := []string{
		"give back hits ann/why r[]: 100 in 1m -> 90 in 1m; returned 10", "give back hits ann/why r[]: 80 in 1m -> 69 in 1m; returned 11", "give back hits bob/why r[]: 90 in 1m -> 80 in 1m; returned 10",
		"give back hits ann/why r[]: 69 in 1m -> 68 in 1m; returned 1", "reset counter ann/why r[]: 68 in 1m -> 0 in 1m; returned 68",
	}
	must.Same(t, got, want, "the records are")
	// The process ends after the hits were given back, and the call comes again.
	push(2)
	noted := 0
	s.refuses = func(of store.Topic) bool {
		if of == store.Changes {
			noted++
		}
		return of == store.Changes && noted == 2
	}
	grant(b, "ann", "late", 30, 30)
	if got := told(t, b); len(got) != 6 || !slices.Contains(got, "give back hits ann/why r[]: 100 in 1m -> 70 in 1m; not known") {
		t.Errorf("the records are %q", got)
	}
	grant(other, "ann", "late", 30, 30)
	if got := told(t, b); len(got) != 6 || !slices.Contains(got, "give back hits ann/why r[]: 100 in 1m -> 70 in 1m; returned 30") {
		t.Errorf("the records are %q", got)
	}
	if c, err := b.Counter(t.Context(), "shop", wire.ID{1}); err != nil || len(c.Limits) != 1 || c.Limits[0].Windows[0].Hits != 70 {
		t.Errorf("the counter is %+v, %v: given back twice", c, err)
	}
}

// A record names a window of the calendar as people do, and not by its width in the store, once nodes have told the rule.
func TestChangesOfCalendarCounters(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	clock := func() time.Time { return now }
	b := New(memory.New(memory.Options{Now: clock}))
	b.known.now, b.overrides.now = clock, clock
	rule := exampleRule("r", 9)
	rule.Limits = append(rule.Limits, wire.ToldLimit{Limit: window.Limit{Shape: window.Shape{Kind: window.FixedWindow, Width: 31 * 24 * 3600e9}, Max: 900}, Described: "\x02\x01\x00UTC"})
	node := newTeller(t, 1, 7, rule)
	p := wire.Push{Namespace: "shop", Sender: 1, Sequence: 1, Floor: 1}
	for _, l := range dated([]wire.RuleShape{rule})[0].Limits {
		c := wire.LimitCounter{ID: wire.ID{1}, Kind: uint8(l.Kind), WidthMillis: uint64(l.WidthAt(now.UnixNano()) / window.MinWidth)}
		p.Items = append(p.Items, wire.Item{LimitCounter: c, Newest: uint64(now.UnixMilli()) / c.WidthMillis, Hits: []int64{100}})
	}
	must.Get(b.store.Push(t.Context(), &p, 1))(t)
	give := func() {
		t.Helper()
		now = now.Add(time.Millisecond)
		_, _, err := b.By(by("why")).ChangeCounter(t.Context(), "shop", &Change{ID: wire.ID{1}, Rule: "r", Values: []string{"v"}, Grant: 10})
		must.OK(t, err)
	}
	give()
	node.say(b, node.told)
	give()
	width := fmt.Sprint(p.Items[1].WidthMillis, "ms")
	wantTold(t, b, "give back hits ann/why r[]: 100 in 1m 100 in "+width+" -> 90 in 1m 90 in "+width+"; returned 20",
		"give back hits ann/why r[]: 90 in 1m 90 in a month -> 80 in 1m 80 in a month; returned 20")
}

// Without a record nothing is changed. If the store fails later, the record does not claim the change.
func TestNoChangeWithoutRecord(t *testing.T) {
	s := &broken{Store: memory.New(memory.Options{}), refuses: func(of store.Topic) bool { return of == store.Changes }}
	b := New(s)
	_, set := b.By(by("")).SetOverrides(t.Context(), "shop", overrideTo(1, "ann"))
	_, price := b.By(by("")).SetPrices(t.Context(), "shop", "l", []wire.Price{{Model: "m", Kinds: []wire.PriceOfKind{{Kind: 1, Millionths: 1}}}}, true)
	_, _, counter := b.By(by("")).ChangeCounter(t.Context(), "shop", &Change{Rule: "r"})
	for _, err := range []error{set, price, counter} {
		must.Is(t, err, ErrUnrecorded, "error")
	}
	must.Equal(t, must.Get(b.Overrides(t.Context(), "shop"))(t).Version, 0, "something has changed")
	s.refuses, s.set = nil, errAway
	_, err := b.By(by("why")).SetOverrides(t.Context(), "shop", overrideTo(1, "ann"))
	must.Fails(t, err, "overrides")
	wantTold(t, b, "set override ann/why per-user[]:  -> 1/1m; not known")
}

// The backend refuses names of prices as the configuration does: no model would have them.
func TestNamesOfPrices(t *testing.T) {
	b := New(memory.New(memory.Options{}))
	for name, right := range map[string]bool{"m": true, "time=01:00-02:00/m": true, "time=1:00-02:00/m": false, "above=5/time=01:00-02:00/m": false, "service_tier=/m": false} {
		_, err := b.By(by("")).SetPrices(t.Context(), "shop", "l", []wire.Price{{Model: name, Kinds: []wire.PriceOfKind{{Kind: 1, Millionths: 1}}}}, false)
		if right && err != nil || !right && (!errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), name+": want a model behind time=")) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Changes at the same time by two backends have a record each, and each tells what it has found.
func TestChangesAtOnce(t *testing.T) {
	s := &broken{Store: memory.New(memory.Options{})}
	one, two := New(s), New(s)
	s.other = func() {
		of := by("first")
		of.Name = "bob"
		must.Get(two.By(of).SetOverrides(t.Context(), "shop", overrideTo(2, "ann")))(t)
	}
	must.Get(one.By(by("second")).SetOverrides(t.Context(), "shop", overrideTo(3, "ann")))(t)
	got := told(t, one)
	slices.Sort(got)
	must.Same(t, got, []string{"set override ann/second per-user[]: 2/1m -> 3/1m;", "set override bob/first per-user[]:  -> 2/1m;"}, "the records are")
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			_, err := []*Backend{one, two}[i%2].By(by("many")).SetOverrides(t.Context(), "many", overrideTo(uint64(i), "key"))
			must.Report(t, err)
		})
	}
	all.Wait()
	// The records are a chain: what one leaves, another finds.
	found, err := one.Changes(t.Context(), "many", time.Time{})
	after := map[string]string{}
	for _, r := range found {
		after[r.Of[0].Before] = r.Of[0].After
	}
	at, steps := "", 0
	for ; after[at] != "" && steps <= 40; steps++ {
		at = after[at]
	}
	if err != nil || len(found) != 40 || steps != 40 {
		t.Errorf("%d records make a chain of %d, %v", len(found), steps, err)
	}
}

// Keys are hashed, and shown as far as nodes show keys of the rule.
func TestChangesRevealAsNodesDo(t *testing.T) {
	b := New(memory.New(memory.Options{}))
	report := func(names ...[]byte) {
		t.Helper()
		r := wire.Report{Namespace: "shop", Sender: 1, AtNanos: 1, Rules: []wire.RuleReport{{Name: "per-user", SpanMillis: 1000}}}
		for i, name := range names {
			r.Rules[0].Used.Keys = append(r.Rules[0].Used.Keys, wire.ReportKey{ID: wire.ID{byte(i)}, Hits: 1, Name: name})
		}
		must.Get(b.Push(t.Context(), wire.AppendReport(nil, &r)))(t)
	}
	set := func(limit uint64) {
		t.Helper()
		must.Get(b.By(by("")).ForceOverrides(t.Context(), "shop", overrideTo(limit, "Änne-Marie")))(t)
	}
	shown := func() (text string) {
		for _, line := range told(t, b) {
			text = line
		}
		return text
	}
	for i, test := range []struct {
		names [][]byte
		want  string
	}{
		{[][]byte{nil}, "per-user[]"},
		{[][]byte{wire.AppendValue(nil, []byte("bob"), true)}, "per-user[Änn…]"},
		{[][]byte{wire.AppendValue(nil, []byte("b"), false), wire.AppendValue(nil, []byte("somebody-else"), false)}, "per-user[Änne-Marie]"},
		{[][]byte{wire.AppendValue(wire.AppendValue(nil, []byte("somebody-else"), false), []byte("x"), false)}, "per-user[]"}, // another key
	} {
		report(test.names...)
		set(uint64(i) + 1)
		must.Contains(t, shown(), test.want, "%q", test.names)
	}
	bodies, err := b.store.Notes(t.Context(), store.Changes, "shop")
	if err != nil || len(bodies) != 4 || strings.Contains(fmt.Sprintf("%q", bodies[0].Body), "Marie") {
		t.Errorf("the store has %d, %v", len(bodies), err)
	}
	id := identity("per-user", []string{"Änne-Marie"})
	must.Contains(t, string(bodies[0].Body), hex.EncodeToString(id[:]), "%s lacks the hash", bodies[0].Body)
}

// A record fits its bound, whatever is changed by whomever, and says how many it has no room for.
func TestRecordsAreBounded(t *testing.T) {
	b := New(memory.New(memory.Options{}))
	hostile := by(strings.Repeat("\x1b", MaxReason))
	hostile.Name = strings.Repeat("\x01", 5000)
	var many []wire.Override
	for i := range 5000 {
		many = append(many, overrideTo(1, fmt.Sprint(i)))
	}
	long := wire.Override{Rule: strings.Repeat("r", 64), Values: slices.Repeat([]string{strings.Repeat("\x02", wire.MaxOverrideValue)}, wire.MaxOverrideValues), Until: 1 << 50}
	for range wire.MaxLimits {
		long.Limits = append(long.Limits, wire.OverrideLimit{Max: window.MaxLimit, Burst: window.MaxLimit, WidthMillis: wire.MaxWidthMillis - 1})
	}
	must.Get(b.By(hostile).ForceOverrides(t.Context(), "shop", long))(t)
	must.Get(b.By(hostile).ForceOverrides(t.Context(), "shop", many...))(t)
	must.Get(b.By(hostile).SetPrices(t.Context(), "shop", "l", []wire.Price{{Model: strings.Repeat("\x03", 256), Kinds: []wire.PriceOfKind{{Kind: 1, Millionths: 1}}}}, false))(t)
	notes := must.Get(b.store.Notes(t.Context(), store.Changes, "shop"))(t)
	must.EqualOrEnd(t, len(notes), 3, "records")
	for _, n := range notes {
		var r Record
		if err := json.Unmarshal(n.Body, &r); err != nil || len(n.Body) > store.MaxChange || !r.Made || len(r.Of)+r.More != 1 && len(r.Of)+r.More != 5000 || len(r.Reason) != MaxReason {
			t.Errorf("%d bytes, %v: %d and %d more", len(n.Body), err, len(r.Of), r.More)
		}
	}
}

// A change of a whole rule has no key in the log, and what was left out is told if there is any.
func TestChangesInWords(t *testing.T) {
	r := recording{Record: Record{Of: []Changed{{Rule: "r", After: "off"}, {Rule: "r", Hash: "07", Before: "1/1m"}}}}
	must.Equal(t, r.inWords(), "r: none -> off; r 07: 1/1m -> none", "")
	r.More = 3
	must.Equal(t, r.inWords(), "r: none -> off; r 07: 1/1m -> none; 3 more", "")
	for millis, want := range map[uint64]string{2 * 86_400_000: "2d", 36 * 3_600_000: "36h", 90 * 60_000: "90m", 90_000: "90s", 1500: "1500ms"} {
		must.Equal(t, span(millis), want, "")
	}
}
