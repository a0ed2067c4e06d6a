package window

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"weir/internal/must"
)

// backend is the model of one: totals by window or bucket, and for windows and buckets that start
// with a hit the merge that package store describes.
type backend struct {
	limit  Limit
	totals map[uint64]int64
	start  uint64
	total  int64
}

func (b *backend) push(p *Push) *Totals {
	answer := &Totals{Newest: p.Newest}
	switch b.limit.Kind {
	case FirstHitWindow:
		width := uint64(b.limit.Width)
		switch {
		case b.total == 0 || b.start+width <= p.Newest:
			b.start, b.total = p.Newest, p.Hits[0]
		case p.Newest+width > b.start:
			b.start, b.total = min(b.start, p.Newest), b.total+p.Hits[0]
		}
		return &Totals{Newest: b.start, Hits: []uint64{uint64(b.total)}}
	case SlidingBuckets:
		for i, hits := range p.Hits {
			b.totals[p.Newest-p.Ages[i]] += hits
		}
		for _, number := range slices.Sorted(maps.Keys(b.totals)) {
			answer.Newest = max(answer.Newest, number)
		}
		for _, number := range slices.Backward(slices.Sorted(maps.Keys(b.totals))) {
			if age := answer.Newest - number; age < uint64(b.limit.covered()) && b.totals[number] > 0 {
				answer.Ages = append(answer.Ages, age)
				answer.Hits = append(answer.Hits, uint64(b.totals[number]))
			}
		}
		return answer
	}
	for i, hits := range p.Hits {
		number := p.Newest - uint64(i)
		b.totals[number] += hits
		answer.Hits = append(answer.Hits, uint64(max(0, b.totals[number])))
	}
	return answer
}

// exchange claims what s has, and returns the answer to it.
func (b *backend) exchange(s *State) *Totals {
	var p Push
	s.Claim()
	b.limit.Outgoing(s, 0, &p)
	return b.push(&p)
}

// TestNodesMerge lets nodes count, push and take in answers in any order, some late: the backend's
// totals have all counted hits, and after a last round every node knows them.
func TestNodesMerge(t *testing.T) {
	t.Parallel()
	for _, l := range []Limit{fixed(1000, minute), sliding(1000, minute), subBuckets(1000, minute, 5*second), log(1000, minute)} {
		t.Run(fmt.Sprint(l.Kind, l.Precision), func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(uint64(l.Kind), 5))
			for range 200 {
				b := backend{limit: l, totals: map[uint64]int64{}}
				nodes := make([]State, 3)
				answers := make([]*Totals, len(nodes)) // to the push that is out
				counted := map[uint64]int64{}
				now := monday
				for range 200 {
					now += random.Int64N(5 * second)
					i := random.IntN(len(nodes))
					s := &nodes[i]
					switch random.IntN(4) {
					case 0, 1:
						l.Advance(s, now)
						cost := random.Uint64N(5) + 1
						l.Count(s, cost)
						counted[l.Number(s)] += int64(cost)
						if random.IntN(6) == 0 {
							l.GiveBack(s, l.Number(s), 1)
							counted[l.Number(s)]--
						}
					case 2:
						if answers[i] == nil && s.Pending() {
							answers[i] = b.exchange(s)
						}
					case 3:
						if answers[i] != nil {
							l.Settle(s, true, true, answers[i])
							answers[i] = nil
						}
					}
				}
				// Quiet: all answers arrive, all that is left is pushed, and everybody hears the
				// totals.
				for range 2 {
					for i := range nodes {
						s := &nodes[i]
						if answers[i] != nil {
							l.Settle(s, true, true, answers[i])
							answers[i] = nil
						}
						l.Advance(s, now)
						l.Settle(s, true, true, b.exchange(s))
					}
				}
				oldest := now/l.Width - int64(l.Kind.Windows()) + 1
				if l.Kind == SlidingBuckets {
					oldest = now/l.Precision - l.covered() + 1
				}
				for number, hits := range b.totals {
					if hits != counted[number] && int64(number) >= oldest {
						t.Fatalf("window %d: counted %d, backend %d", number, counted[number], hits)
					}
				}
				for i := range nodes {
					must.EqualOrEnd(t, sums(&l, &nodes[i]), sums(&l, &nodes[0]), "hits of node %d, and of node 0", i)
				}
				one := State{} // what a single node would have counted
				for _, number := range slices.Sorted(maps.Keys(counted)) {
					at := int64(number) * l.Width
					if l.Kind == SlidingBuckets {
						at = int64(number) * l.Precision
					}
					l.Advance(&one, at)
					l.Count(&one, uint64(counted[number]))
				}
				l.Advance(&one, now)
				must.EqualOrEnd(t, sums(&l, &nodes[0]), sums(&l, &one), "hits of all nodes, and of one")
			}
		})
	}
}

func sums(l *Limit, s *State) uint64 {
	if l.Kind == SlidingBuckets {
		return sumBuckets(s)
	}
	return s.Hits[0].Sum() + s.Hits[1].Sum()
}

// Hits go back into the window that they came from also if an answer has moved its start since, and
// not into a later one.
func TestGiveBackAfterAnAnswer(t *testing.T) {
	t.Parallel()
	for _, l := range []Limit{firstHit(10, minute), tokens(1, 10, minute)} {
		var s State
		l.Advance(&s, monday+5*second)
		l.Count(&s, 3)
		number := l.Number(&s)
		s.Claim()
		l.Settle(&s, true, true, &Totals{Newest: uint64(monday), Hits: []uint64{7}})
		if l.GiveBack(&s, number, 2); s.Start != monday || s.Hits[0] != (Hits{Total: 7, Pending: -2}) {
			t.Errorf("kind %d: got start %d, %+v", l.Kind, s.Start-monday, s.Hits[0])
		}
	}
	l := firstHit(10, minute)
	s := State{Newest: monday + 2*minute, Start: monday + 2*minute, Hits: [2]Hits{{Pending: 3}}}
	l.GiveBack(&s, uint64(monday), 2)
	must.Equal(t, s.Hits[0].Pending, 3, "given back into a later window: pending")
	// The last nanosecond of a window is in it, and the next window's first one is not.
	for within, want := range map[int64]int64{minute - 1: 1, minute: 3} {
		s.Hits[0].Pending = 3
		l.GiveBack(&s, uint64(s.Start+within), 2)
		must.Equal(t, s.Hits[0].Pending, want, "%d ns after the start: pending", within)
	}
}

func TestSettleLateOrOdd(t *testing.T) {
	t.Parallel()
	l := sliding(100, minute)
	number := uint64(monday / minute)
	for _, test := range []struct {
		name  string
		state State
		other bool // the answer isn't to what is in flight
		total Totals
		want  [2]Hits
	}{
		{"in time", State{Newest: monday, Hits: [2]Hits{{1, 2, 5, 0}, {3, 0, 1, 0}}}, false, Totals{number, []uint64{9, 7}, nil}, [2]Hits{{9, 2, 0, 0}, {7, 0, 0, 0}}},
		{"a window later", State{Newest: monday + minute, Hits: [2]Hits{{Pending: 4}, {1, 2, 5, 0}}}, false, Totals{number, []uint64{9, 7}, nil}, [2]Hits{{Pending: 4}, {9, 2, 0, 0}}},
		{"two windows later", State{Newest: monday + 2*minute, Hits: [2]Hits{{Pending: 4}, {}}}, false, Totals{number, []uint64{9, 7}, nil}, [2]Hits{{Pending: 4}, {}}},
		{"to a state that is older", State{Newest: monday - minute, Hits: [2]Hits{{1, 2, 3, 0}, {}}}, false, Totals{number, []uint64{9, 7}, nil}, [2]Hits{{7, 2, 0, 0}, {}}},
		{"to a state made anew", State{Newest: monday, Hits: [2]Hits{{Pending: 1}, {}}}, true, Totals{number, []uint64{9, 7}, nil}, [2]Hits{{Total: 9, Pending: 1}, {Total: 7}}},
		{"while another push is out", State{Newest: monday, Hits: [2]Hits{{1, 2, 5, 0}, {}}}, true, Totals{number, []uint64{9, 7}, nil}, [2]Hits{{9, 2, 5, 0}, {7, 0, 0, 0}}},
		{"after others gave hits back", State{Newest: monday, Hits: [2]Hits{{50, 2, 5, 0}, {8, 0, 1, 0}}}, false, Totals{number, []uint64{5, 1}, nil}, [2]Hits{{5, 2, 0, 0}, {1, 0, 0, 0}}},
		{"beyond bounds", State{Newest: monday, Hits: [2]Hits{{1, 2, 5, 0}, {}}}, false, Totals{number, []uint64{1<<64 - 1, 0, 8, 9}, nil}, [2]Hits{{MaxHits, 2, 0, 0}, {}}},
		{"of nothing", State{Newest: monday, Hits: [2]Hits{{1, 2, 5, 0}, {}}}, false, Totals{}, [2]Hits{{6, 2, 0, 0}, {}}},
	} {
		s := test.state
		l.Settle(&s, !test.other, true, &test.total)
		must.Equal(t, s.Hits, test.want, "%s", test.name)
	}
}

// A newer answer may be here before that to a push, and tell of its hits: they count once.
func TestSettleAfterANewerAnswer(t *testing.T) {
	t.Parallel()
	l, first, bucket := sliding(100, minute), firstHit(100, minute), tokens(1, 100, minute)
	number, start := uint64(monday/minute), uint64(monday-second)
	begun := State{Newest: monday, Start: monday - second, Hits: [2]Hits{{9, 2, 5, 0}, {}}}
	for _, test := range []struct {
		name  string
		limit Limit
		state State
		total Totals
		want  [2]Hits
	}{
		{"of a window that begins with a hit", first, begun, Totals{start, []uint64{8}, nil}, [2]Hits{{9, 2, 0, 0}, {}}},
		{"of another such window", first, begun, Totals{start + 1, []uint64{8}, nil}, [2]Hits{{14, 2, 0, 0}, {}}},
		{"of a bucket", bucket, begun, Totals{start, []uint64{8}, nil}, [2]Hits{{9, 2, 0, 0}, {}}},
		{"that has the hits", l, State{Newest: monday, Hits: [2]Hits{{9, 2, 5, 0}, {7, 0, 1, 0}}}, Totals{number, []uint64{8, 7}, nil}, [2]Hits{{9, 2, 0, 0}, {7, 0, 0, 0}}},
		{"that lacks them", l, State{Newest: monday, Hits: [2]Hits{{1, 2, 5, 0}, {}}}, Totals{number, []uint64{6, 0}, nil}, [2]Hits{{6, 2, 0, 0}, {}}},
		{"a window later", l, State{Newest: monday + minute, Hits: [2]Hits{{Pending: 4}, {9, 2, 5, 0}}}, Totals{number, []uint64{8, 7}, nil}, [2]Hits{{Pending: 4}, {9, 2, 0, 0}}},
		{"of hits that go back", l, State{Newest: monday, Hits: [2]Hits{{9, 0, -5, 0}, {}}}, Totals{number, []uint64{4, 0}, nil}, [2]Hits{{4, 0, 0, 0}, {}}},
		{"and of nothing", l, State{Newest: monday, Hits: [2]Hits{{1, 2, 5, 0}, {}}}, Totals{}, [2]Hits{{6, 2, 0, 0}, {}}},
	} {
		s := test.state
		test.limit.Settle(&s, true, false, &test.total)
		must.Equal(t, s.Hits, test.want, "%s", test.name)
	}
}

// An answer of any content leaves a state that can be written and read again.
func FuzzSettle(f *testing.F) {
	f.Add(uint64(monday), uint64(9), uint64(3), uint64(7), true)
	f.Add(uint64(1<<64-1), uint64(1<<64-1), uint64(1<<63), uint64(0), false)
	f.Fuzz(func(t *testing.T, newest, hits, age, more uint64, landed bool) {
		for _, l := range []Limit{fixed(10, minute), sliding(10, minute), firstHit(10, minute), subBuckets(10, minute, second), log(10, minute), tokens(6, 10, minute)} {
			var s, again State
			l.Advance(&s, monday)
			l.Count(&s, 3)
			s.Claim()
			l.Count(&s, 2)
			l.Settle(&s, landed, true, &Totals{Newest: newest, Hits: []uint64{hits, more}, Ages: []uint64{age, age + 1}})
			encoded := AppendState(nil, &l, &s, true)
			if length := DecodeState(encoded, &again); length != len(encoded) || l.ForgetAt(&s) < s.Newest {
				t.Fatalf("%+v: %+v was written as %x, read as %+v", l, s, encoded, again)
			}
			l.Advance(&s, monday+second)
			l.Count(&s, 1)
		}
	})
}

func TestStateRoundTrip(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		limit  Limit
		state  State
		synced bool
		most   int
	}{
		{sliding(10, minute), State{Newest: monday, Hits: [2]Hits{{7, -2, 3, 0}, {MaxHits, MaxHits, -MaxHits, 12}}}, true, 64},
		{sliding(10, minute), State{Newest: monday, Hits: [2]Hits{{MaxHits, -MaxHits, MaxHits, MaxHits}, {1, -1, -1, 1}}}, true, 64},
		{tokens(10, 10, minute), State{Newest: monday, Start: monday - second, Hits: [2]Hits{{Total: 9}}}, false, 20},
		{log(10, minute), State{Newest: monday, Buckets: []Bucket{{Number: monday - second, Hits: Hits{Total: 1}}, {Number: monday, Hits: Hits{Total: 300}}}}, false, 24},
		{subBuckets(10, minute, second), State{Newest: monday + 7, Buckets: []Bucket{
			{Number: monday/second - 59, Hits: Hits{1, 2, 3, 0}}, {Number: monday / second, Hits: Hits{Total: 1}},
		}}, true, 24},
		{sliding(10, minute), State{Newest: monday, Hits: [2]Hits{{Total: 7}, {Total: 9}}}, false, 14},
		{fixed(10, MaxWidth), State{Newest: maxTime, Hits: [2]Hits{{Total: MaxHits}}}, false, 24},
		{firstHit(10, MinWidth), State{Newest: monday, Start: monday - MinWidth + 1, Hits: [2]Hits{{1, 2, 3, 0}}}, true, 20},
		{Limit{Shape: Shape{Kind: FixedWindow, Ordinal: 7, Width: second}}, State{}, true, 16},
	} {
		var got State
		encoded := AppendState(nil, &test.limit, &test.state, test.synced)
		limit, ok := DecodeLimit(encoded)
		length := DecodeState(append(encoded, 0xff), &got)
		if !ok || limit.Shape != test.limit.Shape || length != len(encoded) || !reflect.DeepEqual(got, test.state) || length > test.most {
			t.Errorf("%+v: got %+v %+v of %d bytes", test, limit, got, length)
		}
		codec := NewCodec(&test.limit, test.synced)
		for n := range encoded {
			if length := DecodeState(encoded[:n:n], &got); length != 0 || codec.Decode(encoded[:n:n], &got) != 0 ||
				codec.CountInPlace(encoded[:n:n], true, false, &got, maxTime, 1) != 0 {
				t.Errorf("%+v cut to %d bytes is read, or counted in", test, n)
			}
		}
	}
}

// The backend may need hits that are to be pushed for longer than this node does: what comes back
// here may be missing from a bucket that was empty there.
func TestPushEnds(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		limit Limit
		state State
		want  int64 // from monday on
	}{
		{"no hits", fixed(10, minute), State{Newest: monday}, 1},
		{"a window", fixed(10, minute), State{Newest: monday + second, Hits: [2]Hits{{Pending: 1}}}, minute},
		{"a window with the one before", sliding(10, minute), State{Newest: monday + second, Hits: [2]Hits{{Pending: 1}}}, 2 * minute},
		{"the one before", sliding(10, minute), State{Newest: monday + second, Hits: [2]Hits{1: {Pending: 1}}}, minute},
		{"a first-hit window", firstHit(10, minute), State{Newest: monday + second, Start: monday, Hits: [2]Hits{{Pending: 1}}}, minute},
		{"a token that was pushed", tokens(60, 100, minute), State{Newest: monday, Start: monday, Hits: [2]Hits{{Total: 1}}}, second},
		{"a token to push", tokens(60, 100, minute), State{Newest: monday, Start: monday, Hits: [2]Hits{{Pending: 1}}}, 101 * second},
		{"a token in flight", tokens(60, 100, minute), State{Newest: monday, Start: monday, Hits: [2]Hits{{InFlight: 1}}}, 101 * second},
		{"both", tokens(60, 100, minute), State{Newest: monday, Start: monday, Hits: [2]Hits{{Pending: 1, InFlight: 2}}}, 103 * second},
		{"a token to give back", tokens(60, 100, minute), State{Newest: monday, Start: monday, Hits: [2]Hits{{Total: 1, Pending: -1}}}, 100 * second},
	} {
		must.Equal(t, test.limit.PushEnds(&test.state)-monday, test.want, "%s: ns until it ends", test.name)
	}
}

// A push adds the sum of its hits, and nothing if more goes back.
func TestAdded(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		hits []int64
		want uint64
	}{{nil, 0}, {[]int64{0}, 0}, {[]int64{3, 4}, 7}, {[]int64{3, -1}, 2}, {[]int64{3, -4}, 0}} {
		must.Equal(t, (&Push{Hits: test.hits}).Added(), test.want, "%v", test.hits)
	}
}

// Totals that answer no push replace those that are known, but only raise them while hits are in
// flight that they may lack, or if they are older.
func TestLearn(t *testing.T) {
	t.Parallel()
	l := fixed(100, minute)
	for _, test := range []struct {
		hits  Hits
		newer bool
		total uint64
		want  Hits
	}{
		{Hits{Total: 9, Pending: 1}, true, 4, Hits{Total: 4, Pending: 1}},
		{Hits{Total: 9, Pending: 1}, false, 4, Hits{Total: 9, Pending: 1}},
		{Hits{Total: 9, InFlight: 1}, true, 4, Hits{Total: 9, InFlight: 1}},
		{Hits{Total: 9, InFlight: 1}, true, 12, Hits{Total: 12, InFlight: 1}},
		{Hits{Total: 9, InFlight: -1}, true, 4, Hits{Total: 4, InFlight: -1}},
		{Hits{Total: 9, Pending: 1}, false, 12, Hits{Total: 12, Pending: 1}},
		{Hits{Total: 9, Lease: 6}, true, 4, Hits{Total: 6, Lease: 6}},
	} {
		s := State{Newest: monday, Hits: [2]Hits{test.hits}}
		l.Learn(&s, test.newer, &Totals{Newest: uint64(monday / minute), Hits: []uint64{test.total}})
		must.Equal(t, s.Hits[0], test.want, "%+v learns of %d, newer %v", test.hits, test.total, test.newer)
	}
}

// Hits that were counted without a backend are all to be pushed, and stay as they are until then.
func TestOwe(t *testing.T) {
	t.Parallel()
	const now = 1_767_571_200e9
	for _, test := range []struct {
		limit Limit
		want  int64 // of eight hits those whose windows count
	}{
		{Limit{Shape: Shape{Kind: FixedWindow, Width: 60e9}, Max: 9}, 4},
		{Limit{Shape: Shape{Kind: FirstHitWindow, Width: 60e9}, Max: 9}, 2},
		{Limit{Shape: Shape{Kind: SlidingWindow, Width: 60e9}, Max: 9}, 8},
		{Limit{Shape: Shape{Kind: SlidingBuckets, Width: 60e9, Precision: 1e9}, Max: 9}, 6},
		{Limit{Shape: Shape{Kind: TokenBucket, Width: 3600e9}, Max: 9, Burst: 9}, 8},
	} {
		l := &test.limit
		var local, s State
		for at := int64(now - 30e9); at <= now+30e9; at += 20e9 {
			l.Advance(&local, at)
			l.Count(&local, 2)
		}
		if length := DecodeState(AppendState(nil, l, &local, false), &s); length == 0 || s.Pending() {
			t.Fatalf("%+v: length %d, pending %v", l.Shape, length, s.Pending())
		}
		remaining := l.Remaining(&s)
		s.Owe()
		must.Equal(t, s.Pending(), true, "%+v: pending", l.Shape)
		must.Equal(t, l.Remaining(&s), remaining, "%+v: remaining", l.Shape)
		var p Push
		s.Claim()
		l.Outgoing(&s, 1, &p)
		hits := int64(0)
		for _, h := range p.Hits {
			hits += h
		}
		must.Equal(t, hits, test.want, "%+v: hits are pushed", l.Shape)
	}
}
