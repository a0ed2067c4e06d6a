package memory

import (
	"context"
	"flag"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"weir/internal/wire"
	"weir/window"
)

var advanceRuns = flag.Int("advance-runs", 1000, "random runs of TestAdvance")

// TestAdvance has senders advance all hits that they may, of a few keys, while their pushes and the
// answers to them are lost, doubled and late in any order, and senders die. Whatever happens, no more
// passes than the limit: hits that were advanced, counted or not, and hits that were granted. If no sender
// has died, all of the limit passes in the end. In every other run the store's process is killed now and
// then, before or after what a push has changed is kept, and another one restores what is.
func TestAdvance(t *testing.T) {
	advanced, full := 0, 0
	for seed := range uint64(*advanceRuns) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			m := newAdvanceModel(t, seed)
			m.run()
			advanced += m.advanced
			full += m.full
		})
	}
	t.Logf("%d hits were advanced, and %d limits were full in the end", advanced, full)
	if advanced < 10**advanceRuns || full == 0 {
		t.Errorf("%d hits were advanced, and %d limits were full in the end", advanced, full)
	}
}

// modelTag is of the model's rule.
const modelTag = 7

// advanceModel is senders, as simple as RATIONALE.md describes them, in front of a store.
type advanceModel struct {
	t              *testing.T
	r              *rand.Rand
	now            time.Time
	store          *Store
	limit          uint64
	keys           []wire.LimitCounter
	passed         []map[uint64]uint64 // by key and window
	senders        []*modelSender
	pushes         []*wire.Push // on their way, or copies
	answers        []modelAnswer
	died, ends     bool
	advanced, full int
	// kept are the records of a store that outlives its process, nil if it does not.
	kept map[string][]byte
}

type modelAnswer struct {
	sender *modelSender
	push   *wire.Push
	answer wire.Answer
}

type modelSender struct {
	id, sequence            uint64
	epoch, version, divisor uint64
	until                   int64 // when its part ends
	near                    map[uint32]bool
	limits                  map[uint64]bool
	without                 uint64
	unsent                  []uint64                // by key
	of                      uint64                  // the window of those that are unsent
	out                     map[uint64]*modelPushed // by sequence
	all                     map[uint64]*wire.Push   // that are not answered
	dead                    bool
	off                     time.Duration // its clock less the store's
}

type modelPushed struct{ hits []uint64 }

func newAdvanceModel(t *testing.T, seed uint64) *advanceModel {
	r := rand.New(rand.NewPCG(seed, 33))
	m := &advanceModel{t: t, r: r, now: time.Unix(1_767_571_260, 0).Add(time.Duration(r.Int64N(int64(time.Minute))))}
	if seed%2 == 1 {
		m.kept = map[string][]byte{}
	}
	m.start()
	m.limit = []uint64{101, 150, 300, 1000, 3000}[r.IntN(5)]
	kind := []window.Kind{window.FixedWindow, window.SlidingWindow}[r.IntN(2)]
	width := uint64(24 * 3600 * 1000)
	if kind == window.FixedWindow && r.IntN(2) == 0 {
		width = 60_000 // so short that windows begin anew
	}
	for i := range 1 + r.IntN(3) {
		m.keys = append(m.keys, wire.LimitCounter{ID: wire.ID{byte(i + 1), byte(seed)}, Kind: uint8(kind), WidthMillis: width})
	}
	for range m.keys {
		m.passed = append(m.passed, map[uint64]uint64{})
	}
	for range 2 + r.IntN(30) {
		m.begin()
	}
	return m
}

// start starts the store's process.
func (m *advanceModel) start() {
	m.store = New(Options{Now: func() time.Time { return m.now }, Tracked: m.kept != nil})
	if err := m.store.Restore(func(yield func(key, value []byte) bool) {
		for _, key := range slices.Sorted(maps.Keys(m.kept)) {
			if !yield([]byte(key), m.kept[key]) {
				return
			}
		}
	}); err != nil {
		m.t.Fatal(err)
	}
}

// keep keeps what has changed.
func (m *advanceModel) keep() {
	for _, r := range m.store.Changes() {
		if m.kept[string(r.Key)] = r.Value; r.Value == nil {
			delete(m.kept, string(r.Key))
		}
	}
}

func (m *advanceModel) begin() {
	m.senders = append(m.senders, &modelSender{
		id: m.r.Uint64(), off: m.off(), near: map[uint32]bool{}, limits: map[uint64]bool{}, unsent: make([]uint64, len(m.keys)), out: map[uint64]*modelPushed{}, all: map[uint64]*wire.Push{},
	})
}

// off is the difference of a new sender's clock: that of most is small.
func (m *advanceModel) off() time.Duration {
	most := int64(clockSlack)
	if m.r.IntN(2) == 0 {
		most = int64(time.Millisecond)
	}
	return time.Duration(m.r.Int64N(2*most+1) - most)
}

func (s *modelSender) drop() {
	s.epoch, s.version, s.divisor = 0, 0, 0
	clear(s.near)
	clear(s.limits)
}

// held is the number of hits of a key that a sender has advanced and does not know to be counted.
func (s *modelSender) held(key int) (hits uint64) {
	for _, p := range s.out {
		hits += p.hits[key]
	}
	return hits + s.unsent[key]
}

// number is that of the window at a time.
func (m *advanceModel) number(at time.Time) uint64 {
	return uint64(at.UnixMilli()) / m.keys[0].WidthMillis
}

func (m *advanceModel) wait(d time.Duration) { m.now = m.now.Add(d) }

func (m *advanceModel) run() {
	for range 500 + m.r.IntN(1500) {
		s := m.senders[m.r.IntN(len(m.senders))]
		switch n := m.r.IntN(100); {
		case n < 45:
			m.advance(s, m.r.IntN(len(m.keys)))
		case n < 60:
			m.push(s)
		case n < 80:
			m.arrive(m.r.IntN(12) != 0)
		case n < 97:
			m.hear(m.r.IntN(12) != 0)
		case n < 98 && m.r.IntN(4) == 0:
			s.drop()
		case n < 99 && m.r.IntN(5) == 0:
			s.dead, m.died = true, true
			m.begin()
		default:
			m.wait(time.Duration(m.r.Int64N(int64(time.Second))))
			if m.r.IntN(20) == 0 {
				m.wait(time.Duration(m.r.Int64N(int64(20 * time.Second))))
			}
		}
	}
	m.end()
}

// advance lets a hit pass, if it may.
func (m *advanceModel) advance(s *modelSender, key int) {
	c := m.keys[key]
	name := c.NearLimit(m.limit)
	rule := wire.NearRule(name, modelTag)
	now := m.now.Add(s.off)
	number := m.number(now)
	if s.of != number && m.settles(s) {
		s.of = number
	}
	for range 1 + m.r.IntN(8) {
		if s.dead || s.divisor == 0 || now.UnixNano() >= s.until || s.of != number || !s.limits[rule] || s.near[wire.NearKey(c.ID, m.listed(name, number))] || s.held(key) >= wire.MostAdvanced(m.limit, s.divisor) {
			return
		}
		s.unsent[key]++
		m.advanced++
		m.pass(key, number, 1)
	}
}

// listed is the form that a limit has in the list in a window.
func (m *advanceModel) listed(name, number uint64) uint64 {
	if window.Kind(m.keys[0].Kind) == window.SlidingWindow {
		return wire.NearWindow(name, 0)
	}
	return wire.NearWindow(name, number)
}

// settles reports whether a sender has nothing to push.
func (m *advanceModel) settles(s *modelSender) bool {
	for _, hits := range s.unsent {
		if hits > 0 {
			return false
		}
	}
	return true
}

func (m *advanceModel) pass(key int, number, hits uint64) {
	passed := m.passed[key]
	if passed[number] += hits; passed[number] > m.limit {
		m.t.Fatalf("%d hits of key %d have passed, of a limit of %d", passed[number], key, m.limit)
	}
}

// push has a sender push what it has advanced, and ask for hits.
func (m *advanceModel) push(s *modelSender) {
	if s.dead {
		return
	}
	s.sequence++
	p := &wire.Push{
		Namespace: "default", Sender: s.id, Sequence: s.sequence, Floor: s.sequence, Node: s.id,
		Advance: wire.Advance{Told: true, Epoch: s.epoch, Version: s.version, Divisor: s.divisor, Wants: m.r.IntN(5) != 0},
	}
	if s.divisor == 0 {
		s.without = s.sequence
	}
	for sequence := range s.all {
		p.Floor = min(p.Floor, sequence)
	}
	settled, whole := len(s.out) == 0, m.r.IntN(4) != 0
	pushed := &modelPushed{hits: make([]uint64, len(m.keys))}
	for i, hits := range s.unsent {
		if hits == 0 {
			continue
		}
		if !whole {
			settled = false
			continue
		}
		pushed.hits[i], s.unsent[i] = hits, 0
		p.Items = append(p.Items, m.item(i, s.of, hits))
	}
	if p.Advance.Settled = settled; len(p.Items) > 0 {
		s.out[s.sequence] = pushed
	}
	if m.r.IntN(2) == 0 {
		most := m.limit / 8
		if m.r.IntN(20) == 0 {
			most = m.limit
		}
		p.Takes = append(p.Takes, m.take(m.r.IntN(len(m.keys)), 1+m.r.Uint64N(1+m.r.Uint64N(most))))
	}
	s.all[s.sequence] = p
	m.pushes = append(m.pushes, p)
}

func (m *advanceModel) item(key int, number, hits uint64) wire.Item {
	return wire.Item{LimitCounter: m.keys[key], Newest: number, Hits: []int64{int64(hits)}}
}

func (m *advanceModel) take(key int, most uint64) wire.Take {
	return wire.Take{Least: 1, Most: most, Lease: m.r.IntN(2) == 0, Rooms: []wire.Room{{LimitCounter: m.keys[key], Limit: m.limit, Cost: 1, Tag: modelTag}}}
}

// arrive has a push arrive that is on its way, or a copy of it.
func (m *advanceModel) arrive(last bool) {
	if len(m.pushes) == 0 {
		return
	}
	i := m.r.IntN(len(m.pushes))
	p := m.pushes[i]
	if last {
		m.pushes = append(m.pushes[:i], m.pushes[i+1:]...)
	}
	out, err := m.store.Push(context.Background(), p, uint64(len(m.senders)))
	if err != nil {
		m.t.Fatal(err)
	}
	killed := m.kept != nil && !m.ends && m.r.IntN(100) == 0
	if killed && m.r.IntN(2) == 0 {
		m.start()
		m.pushes = append(m.pushes, p)
		return
	}
	if m.keep(); !out.Duplicate {
		for i := range out.Answer.Grants {
			m.pass(int(p.Takes[i].Rooms[0].ID[0])-1, m.number(m.now), out.Answer.Grants[i].Units) // whoever uses them
		}
	}
	if killed {
		m.start()
		m.pushes = append(m.pushes, p)
		return
	}
	for _, s := range m.senders {
		if s.id == p.Sender {
			m.answers = append(m.answers, modelAnswer{s, p, out.Answer})
		}
	}
}

// hear has a sender hear an answer, or it is lost.
func (m *advanceModel) hear(comes bool) {
	if len(m.answers) == 0 {
		return
	}
	i := m.r.IntN(len(m.answers))
	a := m.answers[i]
	m.answers = append(m.answers[:i], m.answers[i+1:]...)
	s, n := a.sender, &a.answer.Near
	if s.dead {
		return
	}
	if s.all[a.push.Sequence] == nil {
		return // it was answered before
	}
	if !comes {
		m.pushes = append(m.pushes, a.push) // it is sent again
		return
	}
	delete(s.all, a.push.Sequence)
	defer delete(s.out, a.push.Sequence)
	if s.divisor == 0 && a.push.Sequence < s.without {
		return
	}
	switch {
	case n.Whole && (s.divisor == 0 || n.Version >= s.version):
		clear(s.near)
		clear(s.limits)
	case n.Whole || n.Epoch != s.epoch:
		n.Limits, n.Keys = nil, nil
		if s.version < n.Version {
			s.drop()
			return
		}
		n.Epoch = s.epoch
	}
	s.epoch, s.version, s.until = n.Epoch, max(s.version, n.Version), int64(a.answer.NowNanos)+wire.PartLife
	for i := range n.LimitCount() {
		s.limits[n.Limit(i)] = true
	}
	for i := range n.KeyCount() {
		s.near[n.Key(i)] = true
	}
	if s.divisor = max(s.divisor, n.Divisor); n.Divisor == 0 {
		s.drop()
	}
}

// end has all arrive. Then all of each limit can be had, or all but what the dead may have advanced.
func (m *advanceModel) end() {
	m.ends = true
	for range 6 {
		for _, s := range m.senders {
			for _, p := range s.all {
				m.pushes = append(m.pushes, p)
			}
			m.push(s)
		}
		for len(m.pushes) > 0 {
			m.arrive(true)
		}
		for len(m.answers) > 0 {
			m.hear(true)
		}
		m.wait(time.Second)
	}
	p := &wire.Push{Namespace: "default", Sender: 1, Sequence: 1, Floor: 1}
	for key := range m.keys {
		passed, number := m.passed[key], m.number(m.now)
		for refused := 0; passed[number] < m.limit && refused < 3; {
			p.Takes = []wire.Take{m.take(key, 1)}
			p.Takes[0].Lease = false
			out, err := m.store.Push(context.Background(), p, 1)
			if err != nil {
				m.t.Fatal(err)
			}
			if out.Answer.Grants[0].Units == 0 {
				refused++
				m.settleAll()
			} else {
				m.pass(key, number, 1)
			}
			p.Sequence, p.Floor = p.Sequence+1, p.Floor+1
		}
		if passed[number] == m.limit {
			m.full++
		} else if !m.died {
			m.t.Fatalf("%d hits of key %d have passed in the end, want all of %d", passed[number], key, m.limit)
		}
	}
}

// settleAll has all senders hear what is new, twice.
func (m *advanceModel) settleAll() {
	for range 3 {
		for _, s := range m.senders {
			if s.dead {
				continue
			}
			s.sequence++
			p := &wire.Push{
				Namespace: "default", Sender: s.id, Sequence: s.sequence, Floor: s.sequence, Node: s.id,
				Advance: wire.Advance{Told: true, Epoch: s.epoch, Version: s.version, Divisor: s.divisor, Settled: len(s.out) == 0},
			}
			for i, hits := range s.unsent {
				if hits > 0 {
					p.Items = append(p.Items, m.item(i, s.of, hits))
					s.unsent[i] = 0
				}
			}
			if s.divisor == 0 {
				s.without = s.sequence
			}
			s.all[s.sequence] = p
			m.pushes = append(m.pushes, p)
		}
		for len(m.pushes) > 0 {
			m.arrive(true)
		}
		for len(m.answers) > 0 {
			m.hear(true)
		}
	}
}

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
