package redis

import (
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"weir/internal/must"
	"weir/internal/nightly"
	"weir/internal/store"
	"weir/internal/store/redis/redistest"
	"weir/internal/wire"
	"weir/window"
)

// side is a Redis with two backends, one of which lets commit.lua write all.
type side struct {
	backends [2]*Store
	client   *goredis.Client
	lone     *atomic.Int64 // how often lone.lua was to run
}

// hears counts how often a client runs lone.lua.
type hears struct{ runs *atomic.Int64 }

func (hears) DialHook(next goredis.DialHook) goredis.DialHook { return next }

func (hears) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return next
}

func (h hears) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) error {
		if cmd.Name() == "evalsha" && cmd.Args()[1] == loneScript.Hash() {
			h.runs.Add(1)
		}
		return next(ctx, cmd)
	}
}

func newSide(t *testing.T, plain bool, now func() time.Time) (s side) {
	t.Helper()
	server := redistest.Start(t)
	s.client = goredis.NewClient(&goredis.Options{Addr: server.Addr})
	t.Cleanup(func() { _ = s.client.Close() }) // it only looked
	s.lone = new(atomic.Int64)
	for i := range s.backends {
		backend := must.Get(Open(server.URL()+"?read_timeout=60s&write_timeout=60s", Options{Now: now}))(t) // a push that comes again is another
		t.Cleanup(func() { must.Report(t, backend.Close()) })
		backend.committer.plain = plain
		backend.client.AddHook(hears{s.lone})
		s.backends[i] = backend
	}
	return s
}

// scripts is how many scripts Redis has run.
func (s *side) scripts(t *testing.T) int {
	t.Helper()
	return redistest.BusyWith(t, s.client, "evalsha").Calls
}

// over are the windows among fields of a counter that nobody reads, or of which lone.lua need not read what others have written:
// those that have no number of hits.
func (s *side) over(name string, fields map[string]string, now time.Time) (over []string) {
	c, ok := s.backends[0].keys.parse("ns", name)
	for field, hits := range fields {
		n, err := strconv.ParseUint(field, 10, 64)
		if !ok || !clocked(c) || err != nil {
			continue
		}
		_, sound := integer(hits)
		if !sound || n < (store.Calendar{NowNanos: uint64(now.UnixNano())}).Span(c).Kept {
			over = append(over, field)
		}
	}
	return over
}

// forget removes windows that nobody reads. commit.lua does with each write.
func (s *side) forget(t *testing.T, now time.Time) {
	t.Helper()
	names := must.Get(s.client.Keys(t.Context(), "*:counter:*").Result())(t)
	for _, name := range names {
		fields, _ := s.client.HGetAll(t.Context(), name).Result()
		if over := s.over(name, fields, now); len(over) > 0 {
			s.client.HDel(t.Context(), name, over...)
		}
	}
}

// kept is all that Redis has, but for windows that nobody reads, how long it lives, and how long windows have to.
func (s *side) kept(t *testing.T, now time.Time) (all []string, lives, least []time.Duration) {
	t.Helper()
	names := must.Get(s.client.Keys(t.Context(), "*").Result())(t)
	slices.Sort(names)
	for _, name := range names {
		var has any
		needs := time.Duration(0)
		switch kind, _ := s.client.Type(t.Context(), name).Result(); kind {
		case "hash":
			fields, _ := s.client.HGetAll(t.Context(), name).Result()
			for _, field := range s.over(name, fields, now) {
				delete(fields, field)
			}
			has = fields
			if c, ok := s.backends[0].keys.parse("ns", name); ok && clocked(c) {
				for field := range fields {
					number, _ := integer(field)
					needs = max(needs, time.Duration(store.ExpiresNanos(c, uint64(number))-uint64(now.UnixNano())))
				}
			}
		case "zset":
			has, _ = s.client.ZRangeWithScores(t.Context(), name, 0, -1).Result()
		default:
			has, _ = s.client.Get(t.Context(), name).Result()
		}
		life := must.Get(s.client.PTTL(t.Context(), name).Result())(t)
		if life == -2 {
			continue // it has just ended
		}
		all, lives, least = append(all, fmt.Sprint(name, " ", has)), append(lives, life), append(least, needs)
	}
	return all, lives, least
}

// lasting are the keys that Redis has, but for those of which another has nothing any more as they are about to end.
func lasting(all []string, lives, least []time.Duration, other []string, late time.Duration) (names []string, live, needs []time.Duration) {
	for i, is := range all {
		name, _, _ := strings.Cut(is, " ")
		if lives[i] > late || slices.ContainsFunc(other, func(of string) bool { return strings.HasPrefix(of, name+" ") }) {
			names, live, needs = append(names, is), append(live, lives[i]), append(needs, least[i])
		}
	}
	return names, live, needs
}

// TestLone runs the same random pushes with and without lone.lua, with two backends each, one of which does not see what the
// other writes. Answers are the same, and so is what Redis has, and for how long. Records and counters are lost; the clock
// steps forth and back; pushes come again, late, and below the floor.
func TestLone(t *testing.T) { testLone(t, false, false) }

// TestLoneInAFleet is TestLone with senders that may advance hits.
func TestLoneInAFleet(t *testing.T) { testLone(t, false, true) }

// TestLoneAmongOthers is TestLone with others who write what they should not. What lone.lua does not read of that is repaired
// later than commit.lua would.
func TestLoneAmongOthers(t *testing.T) { testLone(t, true, false) }

func testLone(t *testing.T, hostile, advance bool) {
	now := time.Unix(1_700_000_000, 0)
	clock := func() time.Time { return now }
	sides := []side{newSide(t, false, clock), newSide(t, true, clock)}
	steps := nightly.Or(20_000, 1_500)
	heard := map[uint64]wire.Near{}
	for i := range sides {
		if advance {
			must.OK(t, sides[i].client.HSet(t.Context(), sides[i].backends[0].keys.list("ns"), "revision", "r", "version", 1, "contents", `{"Epoch": 7}`).Err())
		}
	}
	random := rand.New(rand.NewPCG(7, 8))
	sequences := map[uint64]uint64{}
	var sent []*wire.Push
	kinds := []window.Kind{window.FixedWindow, window.FixedWindow, window.SlidingWindow, window.SlidingWindow, window.SlidingWindow, window.TokenBucket}
	if advance { // lone.lua counts no others in a fleet
		kinds = kinds[:1]
	}
	rooms := func() wire.Room {
		kind := kinds[random.IntN(len(kinds))]
		c := wire.LimitCounter{ID: wire.ID{byte(random.IntN(3))}, Kind: uint8(kind), WidthMillis: 60_000}
		return wire.Room{LimitCounter: c, Limit: []uint64{5, 100, 1e9, 1e9}[random.IntN(4)], Burst: 30, Cost: 1 + random.Uint64N(2), CountRejected: random.IntN(4) == 0}
	}
	took, words, declined, longest, latest := 0, 0, 0, time.Duration(0), now
	for step := range steps {
		if random.IntN(3) == 0 {
			now = now.Add(time.Duration(random.Int64N(int64(8 * time.Second))))
		}
		switch random.IntN(90) {
		case 0:
			now = now.Add(time.Duration(random.Int64N(int64(5 * time.Minute))))
		case 1: // then windows that were over may be read again
			for i := range sides {
				sides[i].forget(t, now)
			}
			now = now.Add(-time.Duration(random.Int64N(int64(90 * time.Second))))
		}
		if now.After(latest) {
			latest = now
		}
		sender := 1 + random.Uint64N(3)
		sequences[sender]++
		p := &wire.Push{Namespace: "ns", Sender: sender, Sequence: sequences[sender], Floor: sequences[sender]}
		r := rooms()
		take := wire.Take{Least: 1, Most: 1 + random.Uint64N(2), Lease: random.IntN(4) == 0, Rooms: []wire.Room{r}}
		switch random.IntN(25) {
		case 0:
			other := rooms()
			if other.LimitCounter != r.LimitCounter {
				take.Rooms = append(take.Rooms, other)
			}
			p.Takes = []wire.Take{take}
		case 1, 2, 10, 11, 12, 13, 14, 15: // one of them, or several
			for range 1 + max(0, random.IntN(6)-3) {
				item := store.Calendar{NowNanos: uint64(now.UnixNano())}.RoomItem(&r, random.Uint64N(3))
				if !window.Kind(r.Kind).Started() && random.IntN(3) == 0 {
					item.Newest = uint64(int64(item.Newest) + random.Int64N(4) - 2)
				}
				if random.IntN(4) == 0 {
					item.Hits[random.IntN(len(item.Hits))] -= random.Int64N(4)
				}
				p.Items = append(p.Items, item)
				r = rooms()
			}
			if random.IntN(4) == 0 {
				p.Takes = []wire.Take{take}
			}
		case 3:
			p.Floor -= min(p.Floor, random.Uint64N(4))
			p.Takes = []wire.Take{take}
		case 4:
			p.Takes = []wire.Take{take, take}
		case 6, 7, 8, 9:
			p.Takes = []wire.Take{take}
			for range 1 + random.IntN(4) {
				p.Takes = append(p.Takes, wire.Take{Least: 1, Most: 1, Rooms: []wire.Room{rooms()}})
			}
			p.Floor -= min(p.Floor, random.Uint64N(3))
		case 5: // three scripts, of which only the last writes
			long := wire.Room{LimitCounter: wire.LimitCounter{ID: wire.ID{9}, Kind: uint8(window.SlidingBuckets), WidthMillis: 60_000, Precision: 1}, Limit: 4000}
			read := store.Calendar{NowNanos: uint64(now.UnixNano())}.RoomItem(&long, 0)
			p.Items, p.Takes = []wire.Item{read, read}, []wire.Take{take}
		case 16: // so many that a word has a script of its own
			p.Items = slices.Repeat([]wire.Item{store.Calendar{NowNanos: uint64(now.UnixNano())}.RoomItem(&r, 1)}, wordWork/2)
		default:
			p.Takes = []wire.Take{take}
		}
		if near, told := heard[sender]; advance && random.IntN(4) > 0 {
			p.Advance = wire.Advance{Present: true, Epoch: near.Epoch, Version: near.Version, Divisor: near.Divisor, Wants: true, Settled: !told || random.IntN(2) == 0}
		}
		if len(sent) > 0 && random.IntN(6) == 0 {
			p = sent[len(sent)-1-random.IntN(min(len(sent), 12))]
		} else {
			sent = append(sent, p)
		}
		if random.IntN(25) == 0 {
			s := sides[0].backends[0]
			sender, counter := s.keys.sender("ns", 0, p.Sender, ""), s.keys.counter("ns", r.LimitCounter)
			current := strconv.FormatUint(store.NumberAt(r.LimitCounter, uint64(now.UnixNano())), 10)
			before := strconv.FormatUint(store.NumberAt(r.LimitCounter, uint64(now.UnixNano()))-1, 10)
			commands := [][]any{{"DEL", sender}, {"DEL", counter}}
			if hostile {
				commands = [][]any{
					{"SET", sender, "x", "EX", 500}, {"SET", counter, "x", "EX", 500}, {"HSET", counter, current, "-5"}, {"HSET", counter, current, "07"},
					{"HSET", counter, before, "1e3"}, {"HSET", counter, before, "-5"}, {"HSET", counter, current, "9007199254740992"},
				}
			}
			command := commands[random.IntN(len(commands))]
			for i := range sides {
				if command[0] == "HSET" && (!clocked(r.LimitCounter) || command[2] == before && window.Kind(r.Kind).Windows() == 1) {
					continue
				}
				_ = sides[i].client.Do(t.Context(), command...).Err() // a key of another type is not written
			}
		}
		by, began := random.IntN(2), time.Now()
		counts, others := sides[0].lone.Load(), sides[0].scripts(t)
		var outs []store.Outcome
		for i := range sides {
			out, err := sides[i].backends[by].Push(t.Context(), p, 1)
			must.OKf(t, err, "step %d", step)
			if hostile {
				out.Repaired = 0
			}
			outs = append(outs, out)
		}
		if counted := sides[0].lone.Load() - counts; counted > 0 && sides[0].scripts(t)-others == 1 {
			if took++; p.Advance.Present {
				words++
			}
		} else if counted > 0 {
			declined++
		}
		if heard[p.Sender] = outs[0].Answer.Near; !reflect.DeepEqual(outs[0], outs[1]) {
			t.Fatalf("step %d, %+v: with lone.lua %+v, want %+v", step, p, outs[0], outs[1])
		}
		got, lives, least := sides[0].kept(t, now)
		want, wanted, _ := sides[1].kept(t, now)
		longest = max(longest, time.Since(began)) // one side's key was written, and its life read, so much later at most
		late := time.Second + 2*longest
		got, lives, least = lasting(got, lives, least, want, late)
		want, wanted, _ = lasting(want, wanted, wanted, got, late)
		alike := slices.Equal(got, want)
		for i := 0; alike && !hostile && i < len(lives); i++ {
			// Where a push has waited for another, commit.lua sets a life anew. The other may be longer without need, as only the clock
			// of this test has passed since it was set, or shorter, as that was at a later time than now.
			if alike = (lives[i] - wanted[i]).Abs() < late; !alike && least[i] > 0 && min(lives[i], wanted[i]) > max(0, least[i]-late-latest.Sub(now)) {
				name, _, _ := strings.Cut(got[i], " ")
				alike = true
				for j := range sides {
					must.OK(t, sides[j].client.PExpire(t.Context(), name, min(lives[i], wanted[i])).Err())
				}
			}
		}
		if !alike {
			t.Fatalf("step %d, %+v: Redis has\n%s\n%v\nwant\n%s\n%v", step, p, strings.Join(got, "\n"), lives, strings.Join(want, "\n"), wanted)
		}
	}
	if t.Logf("of %d pushes lone.lua wrote %d, and left %d to commit.lua", steps, took, declined); took < steps/10 || declined < steps/100 || advance && words < steps/20 {
		t.Errorf("of %d pushes lone.lua wrote %d, %d of them with a word, and left %d to commit.lua: such runs show little", steps, took, words, declined)
	}
	must.Equal(t, sides[1].lone.Load(), 0, "where commit.lua is to write all, runs of lone.lua")
}

// loneTake has a backend decide a take of a hit in a fixed window of a minute.
func loneTake(t *testing.T, b *Store, key byte, sequence uint64) wire.Answer {
	t.Helper()
	r := wire.Room{LimitCounter: wire.LimitCounter{ID: wire.ID{key}, Kind: uint8(window.FixedWindow), WidthMillis: 60_000}, Limit: 1e9, Cost: 1}
	p := &wire.Push{Namespace: "ns", Sender: 1, Sequence: sequence, Floor: sequence, Takes: []wire.Take{{Least: 1, Most: 1, Rooms: []wire.Room{r}}}}
	out, err := b.Push(t.Context(), p, 1)
	if err != nil || out.Applied != 1 || out.Answer.Grants[0].Units != 1 {
		t.Fatalf("push %d: %+v, %v", sequence, out, err)
	}
	return out.Answer
}

// A backend that has seen no fleet hears of one by its next take, though lone.lua could count it.
func TestLoneTakesHearOfFleets(t *testing.T) {
	s := newSide(t, false, time.Now)
	b := s.backends[0]
	for sequence := range uint64(3) {
		loneTake(t, b, 1, 1+sequence)
	}
	must.OK(t, s.client.HSet(t.Context(), b.keys.list("ns"), "revision", "r", "version", 1, "contents", "{}").Err())
	if loneTake(t, b, 1, 4); s.lone.Load() == 0 || b.fleet("ns").revision != "r" {
		t.Errorf("lone.lua ran %d times, and the backend knows the fleet %+v", s.lone.Load(), b.fleet("ns"))
	}
}

// A take that was decided long ago, by a clock that was wrong, is decided again.
func TestLoneTakesByAnotherTime(t *testing.T) {
	s := newSide(t, false, nil)
	b := s.backends[0]
	recent := func(what string, began time.Time, nanos uint64) {
		t.Helper()
		if at := time.Unix(0, int64(nanos)); at.Before(began.Add(-2*time.Second)) || at.After(time.Now()) {
			t.Errorf("%s of a take at %v: %v", what, began, at)
		}
	}
	for sequence := range uint64(5) {
		if sequence == 3 {
			b.committer.clocks[0].ahead -= 5 * time.Second
		}
		ran, began := s.lone.Load(), time.Now()
		answer := loneTake(t, b, 1, 1+sequence)
		recent("the answer", began, answer.NowNanos)
		recent("the grant", began, answer.Grants[0].AtNanos)
		if got, want := s.lone.Load()-ran, min(1, int64(sequence)); sequence < 3 && got != want {
			t.Errorf("take %d: lone.lua ran %d times, want %d", sequence, got, want)
		}
	}
}

// A backend that does not know of a window that has just ended leaves no new one that ends with it.
func TestLoneTakesAfterAWindow(t *testing.T) {
	now := time.Unix(1_700_000_000, 0).Truncate(time.Minute).Add(59 * time.Second)
	s := newSide(t, false, func() time.Time { return now })
	loneTake(t, s.backends[0], 2, 1)
	loneTake(t, s.backends[1], 1, 2)
	now = now.Add(2 * time.Second)
	ran := s.lone.Load()
	loneTake(t, s.backends[1], 2, 3)
	life, err := s.client.PTTL(t.Context(), s.backends[0].keys.counter("ns", wire.LimitCounter{ID: wire.ID{2}, Kind: uint8(window.FixedWindow), WidthMillis: 60_000})).Result()
	if err != nil || life < time.Minute || s.lone.Load() == ran {
		t.Errorf("the window lives for %v, %v; want a minute, and lone.lua to have run", life, err)
	}
}

// A backend that does not know of a sliding window's hits counts those of the window before.
func TestLoneTakesBesideAWindow(t *testing.T) {
	now := time.Unix(1_700_000_000, 0).Truncate(time.Minute).Add(59 * time.Second)
	s := newSide(t, false, func() time.Time { return now })
	r := wire.Room{LimitCounter: wire.LimitCounter{ID: wire.ID{2}, Kind: uint8(window.SlidingWindow), WidthMillis: 60_000}, Limit: 5, Cost: 5}
	take := func(b *Store, sequence uint64) uint64 {
		p := &wire.Push{Namespace: "ns", Sender: 1, Sequence: sequence, Floor: sequence, Takes: []wire.Take{{Least: 1, Most: 1, Rooms: []wire.Room{r}}}}
		return must.Get(b.Push(t.Context(), p, 1))(t).Answer.Grants[0].Units
	}
	first := take(s.backends[0], 1)
	loneTake(t, s.backends[1], 1, 2)
	now = now.Add(2 * time.Second)
	ran := s.lone.Load()
	if second := take(s.backends[1], 3); first != 1 || second != 0 || s.lone.Load() == ran {
		t.Errorf("of 5 hits in a minute the first take had %d times 5, the second, two seconds later, %d times; want the first alone, and lone.lua to have run", first, second)
	}
}

// The first hit in a window needs no other script, while the window before is kept and after that has expired.
func TestLoneTakesOfNewWindows(t *testing.T) {
	now := time.Unix(1_700_000_000, 0).Truncate(time.Minute).Add(59 * time.Second)
	s := newSide(t, false, func() time.Time { return now })
	loneTake(t, s.backends[0], 2, 1)
	for i, passes := range []time.Duration{0, 2 * time.Second, 3 * time.Minute} {
		if now = now.Add(passes); passes > time.Minute {
			s.forget(t, now)
		}
		loneTake(t, s.backends[0], 1, uint64(2+2*i)) // prolongs the sender's record
		ran, all := s.lone.Load(), s.scripts(t)
		loneTake(t, s.backends[0], 2, uint64(3+2*i))
		must.Equal(t, s.lone.Load()-ran, 1, "%v later: times that lone.lua ran", passes)
		must.Equal(t, s.scripts(t)-all, 1, "%v later: scripts", passes)
	}
}

// In a fleet, many hits are counted and read by lone.lua whatever the sender's word needs, which is heard all the same.
func TestManyHitsInAFleet(t *testing.T) {
	now := time.Unix(1_700_000_000, 0).Truncate(time.Minute)
	s := newSide(t, false, func() time.Time { return now })
	b := s.backends[0]
	list := b.keys.list("ns")
	must.OK(t, s.client.HSet(t.Context(), list, "revision", "r", "version", 1, "contents", `{"Epoch": 7}`).Err())
	loneTake(t, b, 1, 1)
	const last = 6 // it reads
	for sequence := uint64(2); sequence <= last; sequence++ {
		hits := int64(1)
		if sequence == last {
			hits = 0
		}
		now = now.Add(5 * time.Second) // senders are to be checked, and this one has been silent
		p := &wire.Push{Namespace: "ns", Sender: 1, Sequence: sequence, Floor: sequence, Advance: wire.Advance{Present: true, Wants: true, Settled: true}}
		for key := range byte(wordWork) {
			c := wire.LimitCounter{ID: wire.ID{key}, Kind: uint8(window.FixedWindow), WidthMillis: 60_000}
			p.Items = append(p.Items, wire.Item{LimitCounter: c, Limit: 1e9, Newest: uint64(now.UnixMilli()) / 60_000, Hits: []int64{hits}})
		}
		ran, all := s.lone.Load(), s.scripts(t)
		out, err := b.Push(t.Context(), p, 1)
		if err != nil || out.Applied != wordWork*hits || !out.Answer.Near.Present || out.Answer.Near.Epoch != 7 || sequence == last && out.Answer.Totals[9].Hits[0] != last-2 {
			t.Fatalf("push %d: %+v, %v", sequence, out, err)
		}
		swept := must.Get(s.client.HGet(t.Context(), list, "swept").Int64())(t)
		scripts := 2
		if reviewed := must.Get(s.client.HGet(t.Context(), list, "reviewed").Int64())(t); reviewed == now.UnixMicro() {
			scripts++ // the review's own
		}
		if lone, of := s.lone.Load()-ran, s.scripts(t)-all; sequence > 2 && (lone != 1 || of != scripts) || swept != now.UnixMicro() {
			t.Errorf("push %d: lone.lua ran %d times, of %d scripts, and senders were checked %v ago; want it once, and another script for the word",
				sequence, lone, of, time.Duration(now.UnixMicro()-swept)*time.Microsecond)
		}
	}
}

// In a fleet, late hits of a sliding window bring a key near its limit together with those that another backend has counted of the
// next window, which the push does not name.
func TestNearByUnseenWindow(t *testing.T) {
	for _, plain := range []bool{true, false} {
		now := time.Unix(1_700_000_000, 0).Truncate(time.Minute).Add(50 * time.Second)
		s := newSide(t, plain, func() time.Time { return now })
		const limit = 1000
		c := wire.LimitCounter{ID: wire.ID{1}, Kind: uint8(window.SlidingWindow), WidthMillis: 60_000}
		var words [2]wire.Advance
		var sequences [2]uint64
		push := func(b int, change func(p *wire.Push)) wire.Answer {
			w := &words[b]
			w.Present, w.Settled, w.Wants = true, true, true
			sequences[b]++
			p := &wire.Push{Namespace: "ns", Sender: uint64(10 + b), Sequence: sequences[b], Floor: sequences[b], Advance: *w}
			change(p)
			answer := must.Get(s.backends[b].Push(t.Context(), p, 2))(t).Answer
			w.Epoch, w.Version, w.Divisor = answer.Near.Epoch, answer.Near.Version, answer.Near.Divisor
			return answer
		}
		for range 4 {
			for b := range 2 {
				push(b, func(p *wire.Push) {
					of := c
					of.ID = wire.ID{9}
					p.Takes = []wire.Take{{Least: 1, Most: 1, Rooms: []wire.Room{{LimitCounter: of, Limit: limit, Cost: 1, Tag: 7}}}}
				})
				now = now.Add(100 * time.Millisecond)
			}
		}
		was := uint64(now.UnixMilli()) / 60_000
		count := func(b int, number uint64, hits int64) int {
			answer := push(b, func(p *wire.Push) {
				p.Items = []wire.Item{{LimitCounter: c, Limit: limit, Newest: number, Hits: []int64{hits, 0}}}
			})
			return answer.Near.KeyCount()
		}
		count(0, was, 10)
		now = now.Truncate(time.Minute).Add(time.Minute + time.Second/2)
		count(0, was+1, 0)
		count(1, was+1, 0)
		must.Equal(t, count(1, was+1, 480), 0, "plain %t: near keys with 480 of 1000", plain)
		must.Equal(t, count(0, was, 480), 1, "plain %t: near keys with 970 of 1000 in two windows", plain)
	}
}
