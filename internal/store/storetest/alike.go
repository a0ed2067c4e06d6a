package storetest

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/internal/must"
	"weir/internal/store"
	"weir/internal/wire"
	"weir/window"
)

// Alike gives the same pushes to several stores, one after the other, and wants the same outcomes,
// and in the end the same counters. The stores must use [Alike.Now] as their clock. It is not safe
// for concurrent use.
type Alike struct {
	// Exact opens the store that the others are compared with. It must be a new store each time.
	Exact func(now func() time.Time) store.Store
	// Others are the stores to compare, by name.
	Others map[string]store.Store
	// Widths are the windows' widths in milliseconds. Resolution is that of the stores' clocks.
	Widths     []uint64
	Resolution time.Duration
	// Life is how long, by this machine's clock, no store forgets anything by its own clock; 0 if
	// none ever does.
	Life time.Duration

	clock clock
	runs  int
}

// Now returns the time of the stores.
func (a *Alike) Now() time.Time { return a.clock.now() }

// Tally counts the results of a sequence's pushes.
type Tally struct{ Pushes, Applied, Returned, Dropped, Granted, Leased, Refused, Duplicates, SetBack int }

func (t *Tally) fields() []*int {
	return []*int{&t.Pushes, &t.Applied, &t.Returned, &t.Dropped, &t.Granted, &t.Leased, &t.Refused, &t.Duplicates, &t.SetBack}
}

func (t *Tally) add(other Tally) {
	more := other.fields()
	for i, n := range t.fields() {
		*n += *more[i]
	}
}

func (t *Tally) least() int {
	least := t.Pushes
	for _, n := range t.fields() {
		least = min(least, *n)
	}
	return least
}

// Choices returns at least n bytes for [Alike.Run], from a seed.
func Choices(seed uint64, n int) (choices []byte) {
	random := rand.New(rand.NewPCG(seed, 5))
	for len(choices) < n {
		choices = binary.LittleEndian.AppendUint64(choices, random.Uint64())
	}
	return choices
}

// RunSeeds runs a number of sequences, and wants each result in Tally to occur often.
func (a *Alike) RunSeeds(t *testing.T, seeds uint64) {
	var sum Tally
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { sum.add(a.Run(t, Choices(seed, 2000))) })
		if t.Failed() {
			return // further differences may follow from this
		}
	}
	t.Logf("%+v", sum)
	must.AtLeast(t, sum.least(), int(seeds), "the least of %+v", sum)
}

// mostPushes is the most pushes of a sequence.
const mostPushes = 96

// Run makes pushes whose contents the bytes choose, and gives them to the stores.
func (a *Alike) Run(t testing.TB, choices []byte) Tally {
	t.Helper()
	a.runs++
	a.clock.set(Epoch)
	s := &sequence{
		Alike: a, t: t, choices: choices, namespace: fmt.Sprintf("alike%d", a.runs),
		exact: a.Exact(a.Now), used: make(map[wire.LimitCounter]uint64), began: time.Now(),
	}
	s.keys = keys(s.below(3))
	for len(s.choices) > 0 && s.tally.Pushes < mostPushes && s.sound() {
		s.step()
	}
	if s.sound() {
		s.compareCounters()
	}
	return s.tally
}

// keys is the choice of keys in a sequence's pushes.
type keys uint8

const (
	// oneKey is in one partition of a cluster. Pushes may come in any order.
	oneKey keys = iota
	// keysApart are in several partitions, but each take is in one. A partition does not forget
	// pushes below the floor of another partition, so no copy comes that late.
	keysApart
	// keysTogether are in several partitions that share takes. If a partition grants hits, and
	// another has fewer, the rest of the push sees these hits until they are given back. So a push
	// is a single take, of counters that the return restores. The clock is not set back, because a
	// counter that starts with a hit would then start anew.
	keysTogether
)

// sequence is a run.
type sequence struct {
	*Alike
	t         testing.TB
	choices   []byte
	namespace string
	keys      keys
	exact     store.Store
	senders   [3]sendingSide
	named     []wire.Item // items that later pushes may name again
	used      map[wire.LimitCounter]uint64
	order     []wire.LimitCounter // of used
	latest    time.Time
	began     time.Time
	history   []event
	tally     Tally
}

// sendingSide numbers a sender's pushes, until a store may have forgotten the sender. Then the next
// generation is a new sender.
type sendingSide struct {
	generation, sequence, floor uint64
	last                        time.Time
	// held are pushes that are not sent yet. sent are pushes that may be sent again.
	held, sent []*wire.Push
}

// sound reports whether no store can have forgotten anything by the machine's clock.
func (s *sequence) sound() bool { return s.Life == 0 || time.Since(s.began) < s.Life }

func (s *sequence) byte() byte {
	if len(s.choices) == 0 {
		return 0
	}
	b := s.choices[0]
	s.choices = s.choices[1:]
	return b
}

func (s *sequence) below(n int) int { return int(s.byte()) % n }

// size returns a number of any size up to most bits.
func (s *sequence) size(most int) uint64 {
	length := s.below(most + 1)
	if length == 0 {
		return 0
	}
	n := uint64(0)
	for range (length + 7) / 8 {
		n = n<<8 | uint64(s.byte())
	}
	return n&(1<<length-1) | 1<<(length-1)
}

func (s *sequence) step() {
	switch s.below(16) {
	case 0:
		if s.keys != keysTogether {
			s.setBack()
		}
	case 1, 2, 3, 4, 5:
		s.clock.advance(time.Duration(s.size(45)) / s.Resolution * s.Resolution)
	case 6:
		s.hold()
	case 7, 8:
		s.again()
	default:
		s.send(s.make())
	}
}

// setBack sets the clock back. Counters that have expired may exist or not. So it hits each counter
// first, which removes windows that can't be read.
func (s *sequence) setBack() {
	now := uint64(s.Now().UnixNano())
	for chunk := range slices.Chunk(s.order, 16) {
		p := s.number()
		for _, c := range chunk {
			r := wire.Room{LimitCounter: c, Limit: s.used[c]}
			it := store.Calendar{NowNanos: now}.RoomItem(&r, 1)
			it.Limit = r.Limit
			p.Items = append(p.Items, it)
		}
		s.send(p)
	}
	s.clock.advance(-time.Duration(s.size(40)) / s.Resolution * s.Resolution)
	s.tally.SetBack++
}

// sender returns a sender that no store has forgotten.
func (s *sequence) sender() *sendingSide {
	if now := s.Now(); now.After(s.latest) {
		s.latest = now
	}
	side := &s.senders[s.below(len(s.senders))]
	if s.latest.Sub(side.last) >= store.SenderLife {
		*side = sendingSide{generation: side.generation + 1}
	}
	side.last = s.latest
	return side
}

// hold makes a push that will be sent after later pushes.
func (s *sequence) hold() {
	p := s.make()
	side := s.sideOf(p)
	side.held = append(side.held, p)
}

// again sends a held push, or sends a push again.
func (s *sequence) again() {
	side := s.sender()
	switch {
	case len(side.held) > 0 && (s.below(2) == 0 || len(side.sent) == 0):
		at := s.below(len(side.held))
		p := side.held[at]
		side.held = slices.Delete(side.held, at, at+1)
		s.send(p)
	case len(side.sent) > 0:
		p := side.sent[len(side.sent)-1-s.below(len(side.sent))]
		if s.keys == oneKey || p.Sequence >= side.floor {
			s.send(p)
		}
	}
}

func (s *sequence) sideOf(p *wire.Push) *sendingSide {
	return &s.senders[p.Sender%uint64(len(s.senders))]
}

// number returns an empty push with its numbers.
func (s *sequence) number() *wire.Push {
	side := s.sender()
	side.sequence++
	p := &wire.Push{Namespace: s.namespace, Sequence: side.sequence, Floor: side.sequence}
	for i := range s.senders {
		if side == &s.senders[i] {
			p.Sender = side.generation*uint64(len(s.senders)) + uint64(i)
		}
	}
	for _, held := range side.held {
		p.Floor = min(p.Floor, held.Sequence)
	}
	// Pretend that some pushes have no answer yet.
	p.Floor -= min(p.Floor-1, uint64(s.below(4)))
	return p
}

func (s *sequence) make() *wire.Push {
	p := s.number()
	takes := s.below(4)
	if s.keys == keysTogether && takes > 0 {
		p.Takes = append(p.Takes, s.take())
		return p
	}
	for range s.below(4) {
		p.Items = append(p.Items, s.item())
	}
	for range max(takes, 1) - 1 {
		p.Takes = append(p.Takes, s.take())
	}
	return p
}

var alikeLimits = []uint64{0, 1, 7, 100, 101, 640, 1000, 20_011, 99_991}

// counter returns a counter out of few, with its own limit or a limit out of several.
func (s *sequence) counter() (c wire.LimitCounter, limit uint64) {
	c.Kind = uint8(1 + s.below(int(window.LastKind)))
	kind := window.Kind(c.Kind)
	choice := s.byte()
	c.WidthMillis = s.Widths[int(choice&15)%len(s.Widths)]
	if kind.Bucketed() {
		width := c.WidthMillis * 1e6
		c.Precision = []uint64{1, width / 64, width / 2, width}[choice>>4&3]
	}
	if s.keys != oneKey {
		c.ID[0] = choice >> 6
	}
	at := s.below(len(alikeLimits))
	c.Ordinal = uint8(at)
	if s.keys != keysTogether {
		c.Ordinal = uint8(at % 2)
	}
	return c, alikeLimits[at]
}

func (s *sequence) use(c wire.LimitCounter, limit uint64) {
	if _, known := s.used[c]; !known {
		s.order = append(s.order, c)
	}
	s.used[c] = limit
}

// hits returns a number of hits, negative if they are given back.
func (s *sequence) hits(limit uint64) int64 {
	choice := s.byte()
	if choice == 255 {
		return wire.MaxHits
	}
	n := int64(s.size(bits.Len64(limit) + 2))
	if choice%4 == 0 {
		n = -n
	}
	return n
}

// item returns an item with hits of a counter about now, or of a counter that was named before.
func (s *sequence) item() wire.Item {
	if len(s.named) > 0 && s.below(3) == 0 {
		return s.namedAgain()
	}
	c, limit := s.counter()
	it := wire.Item{LimitCounter: c, Limit: limit}
	kind, width := window.Kind(c.Kind), c.WidthMillis*1e6
	at := uint64(s.Now().UnixNano()) + 2*width
	at += []uint64{0, 0, 1, width, width + 1, 2 * width, s.size(36), s.size(36) + width}[s.below(8)]
	at -= 2*width + []uint64{0, 0, 1, width, width - 1, 2 * width, min(s.size(36), width)}[s.below(7)]
	it.Newest = at
	switch {
	case kind.Clocked():
		it.Newest = at / width
		for range 1 + s.below(3) {
			it.Hits = append(it.Hits, s.hits(limit))
		}
	case kind.Bucketed():
		it.Newest = at / c.Precision
		age := uint64(0)
		for range s.below(12) {
			age += []uint64{0, 1, s.size(bits.Len64(width / c.Precision))}[s.below(3)]
			it.Ages, it.Hits = append(it.Ages, age), append(it.Hits, s.hits(limit))
			age++
		}
	default:
		it.Hits = []int64{s.hits(limit)}
	}
	s.use(c, limit)
	s.named = append(s.named, it)
	return it
}

// namedAgain returns an item with other hits for windows that were named lately: some are given
// back, or more come. The sender's time may have gone on since.
func (s *sequence) namedAgain() wire.Item {
	it := s.named[len(s.named)-1-s.below(min(len(s.named), 16))]
	choice := s.byte()
	pushed := it.Hits
	it.Hits = nil
	for _, n := range pushed {
		if choice&3 == 0 {
			it.Hits = append(it.Hits, s.hits(it.Limit))
		} else {
			it.Hits = append(it.Hits, -max(n, -n)/int64(choice&3))
		}
	}
	if kind := window.Kind(it.Kind); kind.Bucketed() && choice&4 != 0 {
		later := s.size(bits.Len64(it.WidthMillis * 1e6 / it.Precision))
		it.Newest += later
		it.Ages = slices.Clone(it.Ages)
		for i := range it.Ages {
			it.Ages[i] += later
		}
	}
	return it
}

func (s *sequence) take() wire.Take {
	take := wire.Take{Least: 1 + s.size(3), Lease: s.below(2) == 0}
	take.Most = take.Least + s.size(20)
	rooms := 1 + s.below(3)
	for range rooms {
		c, limit := s.counter()
		if s.keys == keysApart && len(take.Rooms) > 0 {
			c.ID = take.Rooms[0].ID
		}
		kind := window.Kind(c.Kind)
		if s.keys == keysTogether && kind.Started() && kind.AtOnce() && rooms > 1 {
			continue // after a returned hit, the window has still begun
		}
		r := wire.Room{LimitCounter: c, Limit: limit, CountRejected: s.below(2) == 0}
		if kind.Bursts() {
			r.Burst = 1 + s.size(bits.Len64(limit)+1)
		}
		if r.Cost = s.size(bits.Len64(limit)); take.Lease {
			r.Cost = max(r.Cost, 1)
		}
		if !slices.ContainsFunc(take.Rooms, func(other wire.Room) bool { return other.LimitCounter == c }) {
			take.Rooms = append(take.Rooms, r)
			s.use(c, limit)
		}
	}
	if len(take.Rooms) == 0 {
		c := wire.LimitCounter{Kind: fixed, WidthMillis: s.Widths[0]}
		take.Rooms = append(take.Rooms, wire.Room{LimitCounter: c, Limit: alikeLimits[0], Cost: 1})
		s.use(c, alikeLimits[0])
	}
	return take
}

// send gives a push to all stores.
func (s *sequence) send(p *wire.Push) {
	s.t.Helper()
	if !s.sound() {
		return
	}
	nodes := uint64(s.below(6))
	want, err := s.exact.Push(s.t.Context(), p, nodes)
	must.OKf(s.t, err, "push %+v", p)
	for name, other := range s.Others {
		got, err := other.Push(s.t.Context(), p, nodes)
		must.OKf(s.t, err, "%s", name)
		if !reflect.DeepEqual(got, want) && s.sound() {
			s.t.Fatalf("%s: push %d of sender %d at %d, %d nodes, keys %d\n%s", name, p.Sequence, p.Sender, s.Now().UnixNano(), nodes, s.keys, s.explain(p, &got, &want))
		}
	}
	s.history = append(s.history, event{s.Now(), p, want})
	side := s.sideOf(p)
	side.floor = max(side.floor, p.Floor)
	side.sent = append(side.sent, p)
	side.sent = side.sent[max(0, len(side.sent)-16):]
	s.count(p, &want)
}

// event is a push with the answer that all stores gave.
type event struct {
	at  time.Time
	p   *wire.Push
	out store.Outcome
}

// explain describes a push, its answers, and the history of the first counter that differs.
func (s *sequence) explain(p *wire.Push, got, want *store.Outcome) string {
	c, found := firstDifference(p, got, want)
	if !found {
		return fmt.Sprintf("%+v\ngot  %+v\nwant %+v", p, *got, *want)
	}
	less := func(out *store.Outcome) store.Outcome {
		without := *out
		without.Answer.Totals, without.Answer.Grants = nil, nil
		return without
	}
	return fmt.Sprintf("%s%sgot  %+v\nwant %+v", s.before(c), about(p, c, got, want), less(got), less(want))
}

// before describes a counter in the earlier pushes.
func (s *sequence) before(c wire.LimitCounter) string {
	var text strings.Builder
	for _, e := range s.history {
		if part := about(e.p, c, &e.out); part != "" {
			fmt.Fprintf(&text, "at %d, push %d of sender %d, duplicate %v:\n%s", e.at.UnixNano(), e.p.Sequence, e.p.Sender, e.out.Duplicate, part)
		}
	}
	return text.String()
}

// about describes a counter in a push and its answers.
func about(p *wire.Push, c wire.LimitCounter, answers ...*store.Outcome) string {
	var text strings.Builder
	for i := range p.Items {
		if p.Items[i].LimitCounter == c {
			fmt.Fprintf(&text, "\titem %+v\n", p.Items[i])
			for _, a := range answers {
				fmt.Fprintf(&text, "\t\t%+v\n", a.Answer.Totals[i])
			}
		}
	}
	for i := range p.Takes {
		if slices.ContainsFunc(p.Takes[i].Rooms, func(r wire.Room) bool { return r.LimitCounter == c }) {
			fmt.Fprintf(&text, "\ttake %+v\n", p.Takes[i])
			for _, a := range answers {
				fmt.Fprintf(&text, "\t\t%+v\n", a.Answer.Grants[i])
			}
		}
	}
	return text.String()
}

// firstDifference returns the first counter with different totals in two answers to a push.
func firstDifference(p *wire.Push, got, want *store.Outcome) (c wire.LimitCounter, found bool) {
	for i := range p.Takes {
		a, b := &got.Answer.Grants[i], &want.Answer.Grants[i]
		for j := range a.Totals {
			if !reflect.DeepEqual(a.Totals[j], b.Totals[j]) {
				return p.Takes[i].Rooms[j].LimitCounter, true
			}
		}
	}
	for i := range p.Items {
		if !reflect.DeepEqual(got.Answer.Totals[i], want.Answer.Totals[i]) {
			return p.Items[i].LimitCounter, true
		}
	}
	return c, false
}

func (s *sequence) count(p *wire.Push, out *store.Outcome) {
	one := Tally{Pushes: 1, Applied: int(min(out.Applied, 1)), Returned: int(min(out.Returned, 1)), Dropped: int(min(out.Dropped, 1))}
	if out.Duplicate {
		one.Duplicates = 1
	} else {
		for i, g := range out.Answer.Grants {
			switch {
			case g.Units == 0:
				one.Refused++
			case p.Takes[i].Lease:
				one.Leased++
			default:
				one.Granted++
			}
		}
	}
	s.tally.add(one)
}

// compareCounters wants all stores to list the same counters.
func (s *sequence) compareCounters() {
	s.t.Helper()
	want := s.listed(s.exact)
	for name, other := range s.Others {
		got := s.listed(other)
		if !s.sound() {
			return
		}
		for _, c := range s.order {
			if !reflect.DeepEqual(got[c], want[c]) {
				s.t.Fatalf("%s: at %d, keys %d, counter\n%s\ngot  %+v\nwant %+v", name, s.Now().UnixNano(), s.keys, s.before(c), got[c], want[c])
			}
		}
	}
}

// listed returns a store's counters. Takes shared by several partitions leave windows without hits.
func (s *sequence) listed(of store.Store) (counters map[wire.LimitCounter]store.LimitCounter) {
	s.t.Helper()
	counters = make(map[wire.LimitCounter]store.LimitCounter)
	must.OK(s.t, of.Counters(s.t.Context(), s.namespace, nil, func(c store.LimitCounter) error {
		if s.keys == keysTogether {
			c.Windows = slices.DeleteFunc(c.Windows, func(w store.Window) bool { return w.Hits == 0 })
			if len(c.Windows) == 0 {
				return nil
			}
		}
		slices.SortFunc(c.Windows, store.NewestFirst)
		counters[c.LimitCounter] = c
		return nil
	}))
	return counters
}
