package window

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
)

// backend is the model of one: totals by window, and for windows that start with their first hit the merge that the package
// comment of backend describes.
type backend struct {
	limit  Limit
	totals map[uint64]uint64
	start  uint64
	total  uint64
}

func (b *backend) push(p Push) Totals {
	answer := Totals{Newest: p.Newest}
	if b.limit.Kind == FirstHitWindow {
		width := uint64(b.limit.Width)
		switch {
		case b.total == 0 || b.start+width <= p.Newest:
			b.start, b.total = p.Newest, uint64(p.Hits[0])
		case p.Newest+width <= b.start:
		default:
			b.start, b.total = min(b.start, p.Newest), uint64(int64(b.total)+p.Hits[0])
		}
		return Totals{Newest: b.start, Hits: [2]uint64{b.total}}
	}
	for i := range p.Hits {
		number := p.Newest - uint64(i)
		b.totals[number] = uint64(int64(b.totals[number]) + p.Hits[i])
		answer.Hits[i] = b.totals[number]
	}
	return answer
}

// TestNodesMerge lets nodes count, push and take in answers in any order, some late, some twice, some never: the backend's
// totals are what was counted, and after a last round every node knows them.
func TestNodesMerge(t *testing.T) {
	t.Parallel()
	for _, kind := range []Kind{FixedWindow, SlidingWindow} {
		t.Run(fmt.Sprint(kind), func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(uint64(kind), 5))
			for range 300 {
				l := Limit{Shape: Shape{Kind: kind, Width: minute}, Max: 1000}
				b := backend{limit: l, totals: map[uint64]uint64{}}
				nodes := make([]State, 3)
				pushes := make([][2]any, len(nodes)) // a push out and its answer, for each node
				counted := map[uint64]uint64{}
				now := monday
				for range 200 {
					now += random.Int64N(5 * second)
					i := random.IntN(len(nodes))
					s := &nodes[i]
					switch random.IntN(4) {
					case 0, 1:
						l.Advance(s, now)
						cost := random.Uint64N(5) + 1
						l.Take(s, cost)
						counted[l.Number(s)] += cost
						if random.IntN(6) == 0 {
							l.GiveBack(s, l.Number(s), 1)
							counted[l.Number(s)]--
						}
					case 2:
						if pushes[i][0] == nil && s.Pending() {
							p := l.Claim(s)
							pushes[i] = [2]any{p, b.push(p)}
						}
					case 3:
						if pushes[i][0] != nil {
							l.Settle(s, pushes[i][0].(Push), pushes[i][1].(Totals))
							pushes[i] = [2]any{}
						}
					}
				}
				// Quiet: all answers arrive, all that is left is pushed, and everybody hears the totals.
				for range 2 {
					for i := range nodes {
						s := &nodes[i]
						if pushes[i][0] != nil {
							l.Settle(s, pushes[i][0].(Push), pushes[i][1].(Totals))
							pushes[i] = [2]any{}
						}
						l.Advance(s, now)
						p := l.Claim(s)
						l.Settle(s, p, b.push(p))
					}
				}
				current := uint64(now / l.Width)
				for i := range nodes {
					for age := range uint64(kind.Windows()) {
						h := nodes[i].Hits[age]
						if h.Sum() != counted[current-age] || b.totals[current-age] != counted[current-age] {
							t.Fatalf("window %d: counted %d, backend %d, node %d has %+v", age, counted[current-age], b.totals[current-age], i, h)
						}
					}
				}
			}
		})
	}
}

// Two nodes whose windows began a little apart keep to the one that began first, as one node would have.
func TestFirstHitWindowsMerge(t *testing.T) {
	t.Parallel()
	l := firstHit(10, minute)
	b := backend{limit: l}
	early, late := State{}, State{}
	l.Advance(&early, monday)
	l.Take(&early, 2)
	l.Advance(&late, monday+5*second)
	l.Take(&late, 3)
	p := l.Claim(&late)
	l.Settle(&late, p, b.push(p))
	p = l.Claim(&early)
	l.Settle(&early, p, b.push(p))
	l.Take(&late, 1)
	p = l.Claim(&late)
	l.Settle(&late, p, b.push(p))
	if late.Start != monday || late.Hits[0] != (Hits{Total: 6}) {
		t.Errorf("late node: got %+v, want the window of %d", late, monday)
	}
	if early.Start != monday || early.Hits[0] != (Hits{Total: 5}) {
		t.Errorf("early node: got %+v", early)
	}
	l.Advance(&late, monday+minute)
	if !l.Allows(&late, 10) {
		t.Error("the merged window did not end with the first hit's minute")
	}

	// The late node's window reaches beyond the end of the first: what it took since begins the next one.
	l.Advance(&late, monday+59*second)
	late = State{Newest: monday + 61*second, Start: monday + 5*second, Hits: [2]Hits{{Diff: 4, Flight: 3}}}
	l.Settle(&late, Push{Newest: uint64(monday + 5*second), Hits: [2]int64{3}}, Totals{Newest: uint64(monday), Hits: [2]uint64{9}})
	if late.Start != monday+61*second || late.Hits[0] != (Hits{Diff: 4}) {
		t.Errorf("hits after the merged window: got %+v", late)
	}

	// A window that ended before the backend's began keeps what it counted.
	old := State{Newest: monday, Start: monday, Hits: [2]Hits{{Flight: 3}}}
	l.Settle(&old, Push{Newest: uint64(monday), Hits: [2]int64{3}}, Totals{Newest: uint64(monday + 2*minute), Hits: [2]uint64{9}})
	if old.Start != monday || old.Hits[0] != (Hits{Total: 3}) {
		t.Errorf("answer about a later window: got %+v", old)
	}
}

func TestSettleLateOrOdd(t *testing.T) {
	t.Parallel()
	l := sliding(100, minute)
	number := uint64(monday / minute)
	push := Push{Newest: number, Hits: [2]int64{5, 1}}
	for _, test := range []struct {
		name  string
		state State
		total Totals
		want  [2]Hits
	}{
		{"in time", State{Newest: monday, Hits: [2]Hits{{1, 2, 5}, {3, 0, 1}}}, Totals{number, [2]uint64{9, 7}}, [2]Hits{{9, 2, 0}, {7, 0, 0}}},
		{"a window later", State{Newest: monday + minute, Hits: [2]Hits{{Diff: 4}, {1, 2, 5}}}, Totals{number, [2]uint64{9, 7}}, [2]Hits{{Diff: 4}, {9, 2, 0}}},
		{"two windows later", State{Newest: monday + 2*minute, Hits: [2]Hits{{Diff: 4}, {}}}, Totals{number, [2]uint64{9, 7}}, [2]Hits{{Diff: 4}, {}}},
		{"to a state that is older", State{Newest: monday - minute, Hits: [2]Hits{{1, 2, 3}, {}}}, Totals{number, [2]uint64{9, 7}}, [2]Hits{{7, 2, 2}, {}}},
		{"to a state made anew", State{Newest: monday, Hits: [2]Hits{{Diff: 1}, {}}}, Totals{number, [2]uint64{9, 7}}, [2]Hits{{Total: 9, Diff: 1}, {Total: 7}}},
		{"from a backend that lost its memory", State{Newest: monday, Hits: [2]Hits{{50, 2, 5}, {8, 0, 1}}}, Totals{number, [2]uint64{5, 1}}, [2]Hits{{55, 2, 0}, {9, 0, 0}}},
		{"about another window", State{Newest: monday, Hits: [2]Hits{{1, 2, 5}, {}}}, Totals{number + 1, [2]uint64{9, 7}}, [2]Hits{{1, 2, 5}, {}}},
		{"beyond bounds", State{Newest: monday, Hits: [2]Hits{{1, 2, 5}, {}}}, Totals{number, [2]uint64{1<<64 - 1, 0}}, [2]Hits{{MaxHits, 2, 0}, {}}},
	} {
		s := test.state
		if l.Settle(&s, push, test.total); s.Hits != test.want {
			t.Errorf("%s: got %+v, want %+v", test.name, s.Hits, test.want)
		}
	}
}

func TestStateRoundTrip(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		limit  Limit
		state  State
		synced bool
		most   int
	}{
		{sliding(10, minute), State{Newest: monday, Hits: [2]Hits{{7, -2, 3}, {MaxHits, MaxHits, -MaxHits}}}, true, 64},
		{tokens(10, 10, minute), State{Newest: monday, Start: monday - second, Hits: [2]Hits{{Total: 9}}}, false, 20},
		{log(10, minute), State{Newest: monday, Buckets: []Bucket{{Number: monday - second, Hits: Hits{Total: 1}}, {Number: monday, Hits: Hits{Total: 300}}}}, false, 24},
		{subBuckets(10, minute, second), State{Newest: monday + 7, Buckets: []Bucket{
			{Number: monday/second - 59, Hits: Hits{1, 2, 3}}, {Number: monday / second, Hits: Hits{Total: 1}},
		}}, true, 24},
		{sliding(10, minute), State{Newest: monday, Hits: [2]Hits{{Total: 7}, {Total: 9}}}, false, 14},
		{fixed(10, MaxWidth), State{Newest: maxTime, Hits: [2]Hits{{Total: MaxHits}}}, false, 24},
		{firstHit(10, MinWidth), State{Newest: monday, Start: monday - MinWidth + 1, Hits: [2]Hits{{1, 2, 3}}}, true, 20},
		{Limit{Shape: Shape{Kind: FixedWindow, Ordinal: 7, Width: second}}, State{}, true, 16},
	} {
		var got State
		encoded := test.limit.AppendState(nil, &test.state, test.synced)
		limit, ok := DecodeLimit(encoded)
		length := DecodeState(append(encoded, 0xff), &got)
		if !ok || limit.Shape != test.limit.Shape || length != len(encoded) || !reflect.DeepEqual(got, test.state) || length > test.most {
			t.Errorf("%+v: got %+v %+v of %d bytes", test, limit, got, length)
		}
		for n := range encoded {
			if length := DecodeState(encoded[:n], &got); length != 0 {
				t.Errorf("%+v cut to %d bytes decodes", test, n)
			}
		}
	}
}

func BenchmarkDecide(b *testing.B) {
	for _, l := range []Limit{fixed(1_000_000, minute), firstHit(1_000_000, minute), sliding(1_000_000, minute)} {
		b.Run(fmt.Sprint(l.Kind), func(b *testing.B) {
			s := State{Newest: monday, Hits: [2]Hits{{}, {Total: 1000}}}
			now := monday
			b.ReportAllocs()
			for b.Loop() {
				now += 1000
				if l.Advance(&s, now); l.Allows(&s, 1) {
					l.Take(&s, 1)
				}
			}
		})
	}
}
