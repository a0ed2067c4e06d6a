package memory

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	"weir/internal/wire"
	"weir/window"
)

// However many senders there are, each of them has a part in the end.
func TestEachSenderHasAPart(t *testing.T) {
	for senders := uint64(1); senders < 70; senders++ {
		s := New(Options{Now: func() time.Time { return time.Unix(1_767_571_260, 0) }})
		words := make([]wire.Advance, senders)
		for sequence := range uint64(4) {
			for i := range words {
				word := &words[i]
				word.Told, word.Wants, word.Settled = true, true, true
				out, err := s.Push(context.Background(), &wire.Push{Namespace: "default", Sender: uint64(i), Sequence: sequence + 1, Advance: *word}, 1)
				if err != nil {
					t.Fatal(err)
				}
				n := &out.Answer.Near
				word.Epoch, word.Version, word.Divisor = n.Epoch, n.Version, n.Divisor
			}
		}
		units := uint64(0)
		for i := range words {
			if units += unitsOf(words[i].Divisor); words[i].Divisor == 0 {
				t.Errorf("sender %d of %d has no part", i, senders)
			}
		}
		if units > wholeUnits {
			t.Errorf("the parts of %d senders are %d of %d", senders, units, wholeUnits)
		}
	}
}

// A limit with too many near keys leaves the list. All of it can be had again when those who had a part
// know that.
func TestTooManyNearKeys(t *testing.T) {
	now := time.Unix(1_767_571_260, 0)
	s := New(Options{Now: func() time.Time { return now }})
	counter := func(key int) wire.LimitCounter {
		return wire.LimitCounter{ID: wire.ID{byte(key), byte(key >> 8), 1}, Kind: uint8(window.FixedWindow), WidthMillis: 3600_000}
	}
	sequence := uint64(0)
	push := func(sender uint64, change func(p *wire.Push)) wire.Answer {
		t.Helper()
		sequence++
		p := &wire.Push{Namespace: "default", Sender: sender, Sequence: sequence, Floor: sequence}
		change(p)
		out, err := s.Push(context.Background(), p, 1)
		if err != nil {
			t.Fatal(err)
		}
		return out.Answer
	}
	take := func(key int, most uint64) wire.Take {
		return wire.Take{Least: most, Most: most, Rooms: []wire.Room{{LimitCounter: counter(key), Limit: 1000, Cost: 1, Tag: 7}}}
	}
	word := wire.Advance{Told: true, Wants: true, Settled: true}
	var near wire.Near
	for range 2 { // the first one has the limit listed
		near = push(1, func(p *wire.Push) { p.Advance, p.Takes = word, []wire.Take{take(9999, 1)} }).Near
		word.Epoch, word.Version, word.Divisor = near.Epoch, near.Version, near.Divisor
	}
	near = push(1, func(p *wire.Push) { p.Advance = word }).Near
	if word.Epoch, word.Version = near.Epoch, near.Version; near.Divisor == 0 || len(s.fleets["default"].limits) != 1 || !s.fleets["default"].limits[0].listed {
		t.Fatalf("the sender has no part: %+v", near)
	}
	for key := 0; key <= wire.MaxNearKeys; key += 512 {
		push(2, func(p *wire.Push) {
			for i := range 512 {
				p.Items = append(p.Items, wire.Item{LimitCounter: counter(key + i), Newest: uint64(now.UnixMilli()) / 3600_000, Hits: []int64{500}})
			}
		})
	}
	if l := s.fleets["default"].limits[0]; l.listed || l.unlisted == 0 {
		t.Fatalf("the limit is listed, with %d keys", len(l.near))
	}
	if got := push(3, func(p *wire.Push) { p.Takes = []wire.Take{take(60_000, 1000)} }).Grants[0].Units; got != 0 {
		t.Errorf("got %d hits which the sender may have advanced", got)
	}
	near = push(1, func(p *wire.Push) { p.Advance = word }).Near
	if !near.Whole || len(near.Limits) != 0 {
		t.Fatalf("the sender hears %+v", near)
	}
	word.Epoch, word.Version = near.Epoch, near.Version
	push(1, func(p *wire.Push) { p.Advance = word })
	if got := push(3, func(p *wire.Push) { p.Takes = []wire.Take{take(60_000, 1000)} }).Grants[0].Units; got != 1000 {
		t.Errorf("got %d hits of 1,000", got)
	}
	now = now.Add(2 * time.Minute) // it is looked at again, and still has too many near keys
	for range 200 {
		push(1, func(p *wire.Push) { p.Advance = word })
	}
	if l := s.fleets["default"].limits[0]; l.listed {
		t.Errorf("the limit is listed again, with %d keys", len(l.near))
	}
}

// The store grants nobody the hits that a silent sender may have advanced. Senders that are refused hear that it is used, or
// they would ask for each request; and a window that begins after the part's end lacks nothing.
func TestSilentSenders(t *testing.T) {
	for name, kind := range map[string]window.Kind{"fixed": window.FixedWindow, "sliding": window.SlidingWindow} {
		t.Run(name, func(t *testing.T) {
			now := time.Unix(1_767_571_260, 0) // a minute's start
			s := New(Options{Now: func() time.Time { return now }})
			counter := wire.LimitCounter{ID: wire.ID{1}, Kind: uint8(kind), WidthMillis: 60_000}
			const limit = 1000
			push := func(sender, sequence uint64, advance wire.Advance, takes ...wire.Take) wire.Answer {
				t.Helper()
				out, err := s.Push(context.Background(), &wire.Push{
					Namespace: "default", Sender: sender, Sequence: sequence, Floor: sequence, Advance: advance, Takes: takes,
				}, 1)
				if err != nil {
					t.Fatal(err)
				}
				return out.Answer
			}
			take := func(least, most uint64) wire.Take {
				return wire.Take{Least: least, Most: most, Rooms: []wire.Room{{LimitCounter: counter, Limit: limit, Cost: 1, Tag: 7}}}
			}
			elsewhere := take(1, 1)
			elsewhere.Rooms[0].ID = wire.ID{2}
			other := uint64(0)
			ask := func(least, most uint64) (units, used uint64) {
				t.Helper()
				other++
				g := push(2, other, wire.Advance{}, take(least, most)).Grants[0]
				return g.Units, g.Totals[0].Hits[0]
			}
			word := wire.Advance{Told: true, Wants: true, Settled: true}
			for sequence := range uint64(3) {
				near := push(1, sequence+1, word, elsewhere).Near
				word.Epoch, word.Version, word.Divisor = near.Epoch, near.Version, near.Divisor
			}
			part := wire.MostAdvanced(limit, word.Divisor)
			if part == 0 || !s.fleets["default"].limits[0].listed {
				t.Fatal("the sender has no part")
			}

			// While it is not known to be silent, others hear what is counted: they may get the rest soon.
			if units, _ := ask(1, limit); units != limit-part {
				t.Fatalf("got %d hits, want all of %d but %d", units, limit, part)
			}
			if units, used := ask(1, 1); units != 0 || used != limit-part {
				t.Errorf("a live sender: got %d hits, and %d are used, want %d", units, used, limit-part)
			}
			now = now.Add(9 * time.Second)
			push(1, 3, word, elsewhere) // the last one again: its answer prolongs the part
			now = now.Add(9 * time.Second)
			if units, used := ask(1, 1); units != 0 || used != limit-part {
				t.Errorf("a push that came again: got %d hits, and %d are used, want %d", units, used, limit-part)
			}
			now = now.Add(9 * time.Second)
			push(3, 1, wire.Advance{Told: true})
			want := uint64(limit)
			if kind == window.SlidingWindow {
				want -= part // each hit that is back is asked for
			}
			if units, used := ask(1, 1); units != 0 || used != want {
				t.Errorf("a silent sender: got %d hits, and %d are used, want %d", units, used, want)
			}
			if units, used := ask(part+1, part+1); units != 0 || used != want {
				t.Errorf("more than what is left: got %d hits, and %d are used, want %d", units, used, want)
			}

			// Its hits may count in the window of the part's end, and with a sliding window in the next.
			now = now.Add(35 * time.Second)
			if units, _ := ask(1, limit); kind == window.FixedWindow && units != limit {
				t.Errorf("got %d hits of the next window, want all %d", units, limit)
			}
			for i, want := range []bool{kind == window.SlidingWindow, false} {
				_, silent := s.fleets["default"].keptBack(&take(1, limit).Rooms[0], limit, limit, uint64(now.UnixNano()))
				if got := silent != 0; got != want {
					t.Errorf("%d windows later: %d hits are kept back", i+1, silent)
				}
				now = now.Add(time.Minute)
			}
		})
	}
}

// A part that begins shortly before a window's end may have hits in the next.
func TestSilentSendersOfTheWindowBefore(t *testing.T) {
	p := part{answered: uint64(time.Unix(1_767_571_260, 0).Add(50 * time.Second).UnixNano())}
	for _, test := range []struct {
		kind  window.Kind
		after time.Duration
		want  bool
	}{
		{window.FixedWindow, 69 * time.Second, true}, {window.FixedWindow, 70 * time.Second, false},
		{window.SlidingWindow, 129 * time.Second, true}, {window.SlidingWindow, 130 * time.Second, false},
	} {
		of := wire.LimitCounter{Kind: uint8(test.kind), WidthMillis: 60_000}
		if got := p.owes(&of, p.answered+uint64(test.after)); got != test.want {
			t.Errorf("%v after %v: got %t", test.kind, test.after, got)
		}
	}
}

// fleetStore is a store whose clock a test sets, and a sender that has a part of the limits of a rule.
type fleetStore struct {
	*Store
	t        *testing.T
	now      time.Time
	sequence uint64
	word     wire.Advance
}

// hourly is a counter of a key, in windows of an hour.
func hourly(key int) wire.LimitCounter {
	return wire.LimitCounter{ID: wire.ID{byte(key), byte(key >> 8), 1}, Kind: uint8(window.FixedWindow), WidthMillis: 3600_000}
}

// thousand asks for hits of a key whose limit is 1,000, for a rule.
func thousand(key int, most uint64, tag uint16) wire.Take {
	return wire.Take{Least: most, Most: most, Rooms: []wire.Room{{LimitCounter: hourly(key), Limit: 1000, Cost: 1, Tag: tag}}}
}

func newFleetStore(t *testing.T, tag uint16) *fleetStore {
	t.Helper()
	f := &fleetStore{t: t, now: time.Unix(1_767_571_260, 0), word: wire.Advance{Told: true, Wants: true, Settled: true}}
	f.Store = New(Options{Now: func() time.Time { return f.now }})
	for range 3 {
		f.hear(f.push(1, func(p *wire.Push) { p.Advance, p.Takes = f.word, []wire.Take{thousand(9999, 1, tag)} }).Near)
	}
	if f.word.Divisor == 0 || !f.fleet().limits[0].listed {
		t.Fatal("the sender has no part")
	}
	return f
}

func (f *fleetStore) fleet() *fleet { return f.fleets["default"] }

// hear has the sender go by the newest list.
func (f *fleetStore) hear(n wire.Near) {
	f.word.Epoch, f.word.Version, f.word.Divisor = n.Epoch, n.Version, n.Divisor
}

func (f *fleetStore) push(sender uint64, change func(p *wire.Push)) wire.Answer {
	f.t.Helper()
	f.sequence++
	p := &wire.Push{Namespace: "default", Sender: sender, Sequence: f.sequence, Floor: f.sequence}
	change(p)
	out, err := f.Push(context.Background(), p, 1)
	if err != nil {
		f.t.Fatal(err)
	}
	return out.Answer
}

// hit counts hits of keys.
func (f *fleetStore) hit(hits int64, keys ...int) {
	f.t.Helper()
	for some := range slices.Chunk(keys, wire.MaxItems) {
		f.push(2, func(p *wire.Push) {
			for _, key := range some {
				p.Items = append(p.Items, wire.Item{LimitCounter: hourly(key), Newest: uint64(f.now.UnixMilli()) / 3600_000, Hits: []int64{hits}})
			}
		})
	}
}

// take is how many of so many hits are granted of a key, for a rule: all or none.
func (f *fleetStore) take(key int, most uint64, tag uint16) uint64 {
	f.t.Helper()
	return f.push(3, func(p *wire.Push) { p.Takes = []wire.Take{thousand(key, most, tag)} }).Grants[0].Units
}

// A key is near in the window in which half of its limit is used, and in the next one if the other half
// is used soon after. It is full from then on. Windows that have passed leave the list.
func TestNearInAWindow(t *testing.T) {
	f := newFleetStore(t, 7)
	counter := hourly(0)
	name := counter.NearLimit(1000)
	window := uint64(f.now.UnixMilli()) / 3600_000
	near := func(key int, number uint64, full bool) bool {
		n := f.push(4, func(p *wire.Push) { p.Advance = wire.Advance{Told: true} }).Near
		form := wire.NearWindow(name, number)
		if full {
			form = wire.NearFull(name, number)
		}
		for i := range n.KeyCount() {
			if n.Key(i) == wire.NearKey(hourly(key).ID, form) {
				return true
			}
		}
		return false
	}
	f.hit(600, 1, 2)
	f.now = f.now.Add(2 * time.Second)
	f.hit(400, 1)
	f.now = f.now.Add(4 * time.Second)
	f.hit(400, 2)
	for _, test := range []struct {
		key    int
		number uint64
		full   bool
		want   bool
	}{
		{1, window, false, true}, {1, window, true, true}, {1, window + 1, false, true}, {1, window + 1, true, false}, {1, window + 2, false, false},
		{2, window, false, true}, {2, window, true, true}, {2, window + 1, false, false}, {3, window, false, false},
	} {
		if got := near(test.key, test.number, test.full); got != test.want {
			t.Errorf("%+v: got %t", test, got)
		}
	}
	for range 2 {
		f.now = f.now.Add(30 * time.Minute)
		f.take(9999, 1, 7) // or the limit is forgotten
	}
	if near(1, window, false) || near(2, window, false) || !near(1, window+1, false) {
		t.Error("the list has keys of the window before, or has lost those of this one")
	}
}

// Entries for full keys and for the next window take no room from near keys: a limit stays on the list that
// has fewer near keys than the list may have.
func TestFullKeysLeaveRoomInTheList(t *testing.T) {
	f := newFleetStore(t, 7)
	keys := make([]int, wire.MaxNearKeys/2)
	for i := range keys {
		keys[i] = i
	}
	f.hit(1000, keys...)
	if l := f.fleet().limits[0]; !l.listed || f.fleet().keys < len(keys) || f.fleet().keys > wire.MaxNearKeys {
		t.Errorf("with %d full keys: listed: %t, %d entries", len(keys), l.listed, f.fleet().keys)
	}
}

// Two rules may have the same limit. Senders advance hits of those that the list names, and of these alone
// hits are kept back, whatever else a node's configuration says of the rule.
func TestRulesAreToldApart(t *testing.T) {
	f := newFleetStore(t, 7)
	counter := hourly(0)
	name := counter.NearLimit(1000)
	told := func(n *wire.Near) (limits []uint64) {
		for i := range n.LimitCount() {
			limits = append(limits, n.Limit(i))
		}
		return limits
	}
	lists := func(want string, n *wire.Near, tags ...uint16) {
		t.Helper()
		var names []uint64
		for _, tag := range tags {
			names = append(names, wire.NearRule(name, tag))
		}
		if got := told(n); !slices.Equal(got, names) {
			t.Errorf("%s: the list has %v, want %v", want, got, names)
		}
	}
	all := f.push(4, func(p *wire.Push) { p.Advance = wire.Advance{Told: true} }).Near
	lists("a rule that was asked of", &all, 7)
	if got := f.take(1, 1000, 20); got != 1000 {
		t.Errorf("got %d hits of a rule whose hits nobody advances", got)
	}
	f.take(2, 1, 21)
	news := f.push(1, func(p *wire.Push) { p.Advance = f.word }).Near
	lists("what is new", &news, 21)
	if f.hear(news); news.Whole {
		t.Error("the whole list is told")
	}
	all = f.push(4, func(p *wire.Push) { p.Advance = wire.Advance{Told: true} }).Near
	lists("both rules", &all, 7, 21)
	for _, tag := range []uint16{20, 21, 7, 0} {
		if got := f.take(3, 1000, tag); got != 0 {
			t.Errorf("tag %d: got %d hits which the sender may have advanced", tag, got)
		}
	}
}

// The list names so many limits of rules, and no more. Hits of others are never kept back.
func TestTooManyRules(t *testing.T) {
	f := newFleetStore(t, 1)
	for tag := uint16(3); tag < 4*wire.MaxNearLimits; tag += 2 {
		f.take(1, 1, tag)
	}
	n := f.push(4, func(p *wire.Push) { p.Advance = wire.Advance{Told: true} }).Near
	if len(n.Limits) != 8*wire.MaxNearLimits {
		t.Errorf("the list has %d bytes of limits", len(n.Limits))
	}
	if _, err := wire.DecodeAnswer(wire.AppendAnswer(nil, &wire.Answer{Near: n})); err != nil {
		t.Error(err)
	}
	if got := f.take(2, 1000, 4*wire.MaxNearLimits-1); got != 1000 {
		t.Errorf("got %d hits of a rule that is not on the list", got)
	}
}

// While the store looks for near keys of a limit, its clock is set back to when the limit rests: keys that
// come near then are found all the same.
func TestLimitsRestAgain(t *testing.T) {
	f := newFleetStore(t, 7)
	keys := make([]int, 2*walkPlaces)
	for i := range keys {
		keys[i] = i
	}
	f.hit(1, keys...)
	l := f.fleet().limits[0]
	f.fleet().rest(l, uint64(f.now.UnixNano()))
	f.now = f.now.Add(61 * time.Second)
	f.hit(1, 5000) // it looks at the first places
	f.now = f.now.Add(-30 * time.Second)
	f.hit(900, 0)
	f.now = f.now.Add(30 * time.Second)
	for range 8 {
		f.hit(1, 5000)
	}
	if _, near := l.near[nearKey{id: hourly(0).ID, number: l.number(uint64(f.now.UnixNano()))}]; !l.listed || !near {
		t.Errorf("listed: %t, the key is near: %t", l.listed, near)
	}
}

// A limit that nobody asks for any more is forgotten with its keys, which leave room for those of others.
func TestStaleLimits(t *testing.T) {
	f := newFleetStore(t, 7)
	keys := make([]int, 10*walkPlaces)
	for i := range keys {
		keys[i] = i
	}
	f.hit(1, keys...)
	f.hit(600, 1)
	l := f.fleet().limits[0]
	f.fleet().rest(l, uint64(f.now.UnixNano()))
	f.now = f.now.Add(61 * time.Second)
	for l.walked = 0; len(l.near) == 0; {
		f.hit(1, 5000)
	}
	f.now = f.now.Add(2 * time.Hour)
	for range 3 {
		f.push(1, func(p *wire.Push) { p.Advance = wire.Advance{Told: true, Settled: true} })
		f.now = f.now.Add(2 * time.Second)
	}
	if own := f.fleet(); len(own.limits) != 0 || own.keys != 0 {
		t.Errorf("%d limits are kept, and %d keys", len(own.limits), own.keys)
	}
}

// The list of a store's next life is later than each that was told before, even if the clock was set back
// and many keys were near.
func TestVersionsOfTheNextLife(t *testing.T) {
	now := time.Unix(1_767_571_260, 0)
	clock := func() time.Time { return now }
	kept := map[string][]byte{}
	last := uint64(0)
	for life, keys := range []int{0, 3, reservedVersions + 3} {
		s := New(Options{Now: clock, Tracked: true})
		if err := s.Restore(func(yield func(key, value []byte) bool) {
			for _, key := range slices.Sorted(maps.Keys(kept)) {
				yield([]byte(key), kept[key])
			}
		}); err != nil {
			t.Fatal(err)
		}
		push := wire.Push{Namespace: "default", Sender: 1, Sequence: uint64(life + 1), Advance: wire.Advance{Told: true, Wants: true, Settled: true}}
		out, err := s.Push(context.Background(), &push, 1)
		if err != nil {
			t.Fatal(err)
		}
		if got := out.Answer.Near.Version; got <= last {
			t.Errorf("life %d: version %d, and %d was told before", life, got, last)
		}
		f := s.fleets["default"]
		for range keys {
			f.next()
		}
		last = f.version
		for _, r := range s.Changes() {
			kept[string(r.Key)] = r.Value
		}
		now = now.Add(-time.Hour)
	}
	s := New(Options{Now: clock, Tracked: true})
	for key, value := range kept {
		if err := s.Restore(func(yield func(key, value []byte) bool) { yield([]byte(key), value) }); err != nil {
			t.Fatal(err)
		}
	}
	if got := s.fleets["default"].version; got < last {
		t.Errorf("version %d, and %d was told before", got, last)
	}
}
