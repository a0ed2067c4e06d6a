// Package advancetest tests that stores keep their limits though senders advance hits.
package advancetest

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"weir/internal/must"
	"weir/internal/store"
	"weir/internal/wire"
	"weir/window"
)

var advanceRuns = flag.Int("advance-runs", 0, "random runs of TestAdvance on each store; 0 for so many as it has")

// Store is a store for a run of [Run].
type Store struct {
	// Store returns the store that a push goes to, which may be another each time.
	Store func() store.Store
	// Start has the process of the store that had the last push begin anew, as if it had been killed; nil if
	// that loses what senders may have advanced. Keep has it keep what the last push has changed, if that is not
	// kept by itself.
	Keep, Start func()
}

// Run has senders advance all hits that they may, of a few keys, while their pushes and the answers to
// them are lost, doubled and late in any order, and senders die. Whatever happens, no more passes than the
// limit: hits that were advanced, counted or not, and hits that were granted. If no sender has died, all of
// the limit passes in the end.
func Run(t *testing.T, runs int, open func(t *testing.T, seed uint64, now func() time.Time) Store) {
	advanced, full := 0, 0
	if *advanceRuns > 0 {
		runs = *advanceRuns
	}
	for seed := range uint64(runs) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			m := newModel(t, seed, open)
			m.run()
			advanced += m.advanced
			full += m.full
		})
	}
	t.Logf("%d hits were advanced, and %d limits were full in the end", advanced, full)
	must.AtLeast(t, advanced, 10*runs, "hits advanced")
	must.AtLeast(t, full, 1, "limits that were full in the end")
}

// model is senders, as simple as RATIONALE.md describes them, in front of a store.
type model struct {
	t          *testing.T
	r          *rand.Rand
	now        time.Time
	store      Store
	namespace  string
	limit      uint64   // the largest of the limits
	limits     []uint64 // by which senders decide; more than one while plans change
	keys       []wire.LimitCounter
	passed     []map[uint64]uint64 // by key and window
	senders    []*sender
	pushes     []*wire.Push // on their way, or copies
	answers    []answer
	died, ends bool
	settling   bool // senders push all that they have, and want nothing
	// late are keys of a rule that nobody asks for at first.
	late           []bool
	advanced, full int
}

type answer struct {
	sender *sender
	push   *wire.Push
	answer wire.Answer
}

type sender struct {
	id, sequence            uint64
	epoch, version, divisor uint64
	until                   int64 // when its part ends
	near                    map[uint32]bool
	limits                  map[uint64]bool
	without                 uint64
	unsent                  []uint64              // by key
	of                      uint64                // the window of those that are unsent
	out                     map[uint64][]uint64   // by sequence and key
	all                     map[uint64]*wire.Push // that are not answered
	dead                    bool
	off                     time.Duration // its clock less the store's
}

func newModel(t *testing.T, seed uint64, open func(t *testing.T, seed uint64, now func() time.Time) Store) *model {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 33))
	m := &model{t: t, r: r, now: time.Unix(1_767_571_260, 0).Add(time.Duration(r.Int64N(int64(time.Minute))))}
	m.namespace = fmt.Sprint("advance-", seed)
	m.store = open(t, seed, func() time.Time { return m.now })
	m.limit = []uint64{101, 150, 300, 1000, 3000}[r.IntN(5)]
	m.limits = []uint64{m.limit}
	for m.limit > 150 && len(m.limits) < 3 && r.IntN(3) == 0 {
		m.limits = append(m.limits, m.limit/uint64(1+len(m.limits))-1)
	}
	kind := []window.Kind{window.FixedWindow, window.SlidingWindow}[r.IntN(2)]
	width := uint64(24 * 3600 * 1000)
	if kind == window.FixedWindow && r.IntN(2) == 0 {
		width = 60_000 // so short that windows begin anew
	}
	for i := range 1 + r.IntN(3) {
		m.keys = append(m.keys, wire.LimitCounter{ID: wire.ID{byte(i + 1), byte(seed)}, Kind: uint8(kind), WidthMillis: width})
		m.passed = append(m.passed, map[uint64]uint64{})
	}
	for i := range m.keys {
		m.late = append(m.late, i > 0 && r.IntN(2) == 0)
		if r.IntN(3) == 0 {
			m.before(i)
		}
	}
	for range 2 + r.IntN(30) {
		m.begin()
	}
	return m
}

// before counts hits of a key before anybody advances some.
func (m *model) before(key int) {
	hits := 1 + m.r.Uint64N(m.limit)
	p := &wire.Push{Namespace: m.namespace, Sender: 2, Sequence: uint64(key + 1), Floor: uint64(key + 1), Items: []wire.Item{m.item(key, m.number(m.now), hits)}}
	must.Get(m.store.Store().Push(context.Background(), p, 1))(m.t)
	if m.store.Keep != nil {
		m.store.Keep()
	}
	m.pass(key, m.number(m.now), hits)
}

// tag is of a key's rule.
func (m *model) tag(key int) uint16 { return 7 + 2*uint16(key) }

func (m *model) begin() {
	m.senders = append(m.senders, &sender{
		id: m.r.Uint64(), off: m.off(), near: map[uint32]bool{}, limits: map[uint64]bool{}, unsent: make([]uint64, len(m.keys)), out: map[uint64][]uint64{}, all: map[uint64]*wire.Push{},
	})
}

// off is the difference of a new sender's clock: that of most is small.
func (m *model) off() time.Duration {
	most := int64(5 * time.Second) // so long a store keeps a window's near keys after its end
	if m.r.IntN(2) == 0 {
		most = int64(time.Millisecond)
	}
	return time.Duration(m.r.Int64N(2*most+1) - most)
}

func (s *sender) drop() {
	s.epoch, s.version, s.divisor = 0, 0, 0
	clear(s.near)
	clear(s.limits)
}

// held is the number of hits of a key that a sender has advanced and does not know to be counted.
func (s *sender) held(key int) (hits uint64) {
	for _, pushed := range s.out {
		hits += pushed[key]
	}
	return hits + s.unsent[key]
}

// number is that of the window at a time.
func (m *model) number(at time.Time) uint64 {
	return uint64(at.UnixMilli()) / m.keys[0].WidthMillis
}

func (m *model) wait(d time.Duration) { m.now = m.now.Add(d) }

func (m *model) run() {
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

// plan is a limit by which a sender decides.
func (m *model) plan() uint64 { return m.limits[m.r.IntN(len(m.limits))] }

// advance lets a hit pass, if it may.
func (m *model) advance(s *sender, key int) {
	c, limit := m.keys[key], m.plan()
	name := c.NearLimit(limit)
	rule := wire.NearRule(name, m.tag(key))
	now := m.now.Add(s.off)
	number := m.number(now)
	if s.of != number && m.settles(s) {
		s.of = number
	}
	for range 1 + m.r.IntN(8) {
		if s.dead || s.divisor == 0 || now.UnixNano() >= s.until || s.of != number || !s.limits[rule] || s.near[wire.NearKey(c.ID, m.listed(name, number))] || s.held(key) >= wire.MostAdvanced(limit, s.divisor) {
			return
		}
		s.unsent[key]++
		m.advanced++
		m.pass(key, number, 1)
	}
}

// listed is the form that a limit has in the list in a window.
func (m *model) listed(name, number uint64) uint64 {
	if window.Kind(m.keys[0].Kind) == window.SlidingWindow {
		return wire.NearWindow(name, 0)
	}
	return wire.NearWindow(name, number)
}

// settles reports whether a sender has nothing to push.
func (m *model) settles(s *sender) bool {
	return !slices.ContainsFunc(s.unsent, func(hits uint64) bool { return hits > 0 })
}

func (m *model) pass(key int, number, hits uint64) {
	passed := m.passed[key]
	if passed[number] += hits; passed[number] > m.limit {
		m.t.Fatalf("%d hits of key %d have passed, of a limit of %d", passed[number], key, m.limit)
	}
}

// push has a sender push what it has advanced, and ask for hits.
func (m *model) push(s *sender) {
	if s.dead {
		return
	}
	s.sequence++
	p := &wire.Push{
		Namespace: m.namespace, Sender: s.id, Sequence: s.sequence, Floor: s.sequence, Node: s.id,
		Advance: wire.Advance{Present: true, Epoch: s.epoch, Version: s.version, Divisor: s.divisor, Wants: !m.settling && m.r.IntN(5) != 0},
	}
	if s.divisor == 0 {
		s.without = s.sequence
	}
	for sequence := range s.all {
		p.Floor = min(p.Floor, sequence)
	}
	settled, whole := len(s.out) == 0, m.settling || m.r.IntN(4) != 0
	pushed := make([]uint64, len(m.keys))
	for i, hits := range s.unsent {
		if hits == 0 {
			continue
		}
		if !whole {
			settled = false
			continue
		}
		pushed[i], s.unsent[i] = hits, 0
		p.Items = append(p.Items, m.item(i, s.of, hits))
	}
	if p.Advance.Settled = settled; len(p.Items) > 0 {
		s.out[s.sequence] = pushed
	}
	if !m.settling && m.r.IntN(2) == 0 {
		most := m.limit / 8
		if m.r.IntN(20) == 0 {
			most = m.limit
		}
		p.Takes = append(p.Takes, m.take(m.r.IntN(len(m.keys)), 1+m.r.Uint64N(1+m.r.Uint64N(most))))
	}
	s.all[s.sequence] = p
	m.pushes = append(m.pushes, p)
}

func (m *model) item(key int, number, hits uint64) wire.Item {
	return wire.Item{LimitCounter: m.keys[key], Newest: number, Hits: []int64{int64(hits)}}
}

func (m *model) take(key int, most uint64) wire.Take {
	tag := m.tag(key)
	switch n := m.r.IntN(16); {
	case n == 0:
		tag &^= 1 // of a sender that lets the store decide the rule
	case n == 1:
		tag = 0 // of an old sender
	case m.late[key] && m.r.IntN(16) == 0:
		m.late[key] = false
	}
	if m.late[key] {
		tag &^= 1
	}
	return wire.Take{Least: 1, Most: most, Lease: m.r.IntN(2) == 0, Rooms: []wire.Room{{LimitCounter: m.keys[key], Limit: m.plan(), Cost: 1, Tag: tag}}}
}

// arrive has a push arrive that is on its way, or a copy of it.
func (m *model) arrive(last bool) {
	if len(m.pushes) == 0 {
		return
	}
	i := m.r.IntN(len(m.pushes))
	p := m.pushes[i]
	if last {
		m.pushes = append(m.pushes[:i], m.pushes[i+1:]...)
	}
	out := must.Get(m.store.Store().Push(context.Background(), p, uint64(len(m.senders))))(m.t)
	killed := m.store.Start != nil && !m.ends && m.r.IntN(100) == 0
	if killed && m.store.Keep != nil && m.r.IntN(2) == 0 {
		m.store.Start()
		m.pushes = append(m.pushes, p)
		return
	}
	if m.store.Keep != nil {
		m.store.Keep()
	}
	if !out.Duplicate {
		for i := range out.Answer.Grants {
			m.pass(int(p.Takes[i].Rooms[0].ID[0])-1, m.number(m.now), out.Answer.Grants[i].Units) // whoever uses them
		}
	}
	if killed {
		m.store.Start()
		m.pushes = append(m.pushes, p)
		return
	}
	for _, s := range m.senders {
		if s.id == p.Sender {
			m.answers = append(m.answers, answer{s, p, out.Answer})
		}
	}
}

// hear has a sender hear an answer, or it is lost.
func (m *model) hear(comes bool) {
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
func (m *model) end() {
	m.ends = true
	for range 6 {
		for _, s := range m.senders {
			for _, p := range s.all {
				m.pushes = append(m.pushes, p)
			}
			m.push(s)
		}
		m.deliver()
		m.wait(time.Second)
	}
	p := &wire.Push{Namespace: m.namespace, Sender: 1, Sequence: 1, Floor: 1}
	for key := range m.keys {
		passed, number := m.passed[key], m.number(m.now)
		for refused := 0; passed[number] < m.limit && refused < 3; {
			p.Takes = []wire.Take{m.take(key, 1)}
			p.Takes[0].Lease, p.Takes[0].Rooms[0].Limit = false, m.limit
			out := must.Get(m.store.Store().Push(context.Background(), p, 1))(m.t)
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

// settleAll has all senders hear what is new, several times, without taking hits.
func (m *model) settleAll() {
	m.settling = true
	for range 3 {
		for _, s := range m.senders {
			m.push(s)
		}
		m.deliver()
	}
	m.settling = false
}

// deliver has all that is on its way arrive.
func (m *model) deliver() {
	for len(m.pushes) > 0 {
		m.arrive(true)
	}
	for len(m.answers) > 0 {
		m.hear(true)
	}
}
