package window

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"weir/internal/model"
	"weir/internal/must"
)

const (
	second = int64(time.Second)
	minute = int64(time.Minute)
	// monday is a start of a minute, of an hour and of a day.
	monday = 1_767_571_200 * second
)

func sliding(limit uint64, width int64) Limit {
	return Limit{Shape: Shape{Kind: SlidingWindow, Width: width}, Max: limit}
}

func fixed(limit uint64, width int64) Limit {
	return Limit{Shape: Shape{Kind: FixedWindow, Width: width}, Max: limit}
}

func log(limit uint64, width int64) Limit {
	return Limit{Shape: Shape{Kind: SlidingBuckets, Width: width, Precision: LogPrecision}, Max: limit}
}

func subBuckets(limit uint64, width, precision int64) Limit {
	return Limit{Shape: Shape{Kind: SlidingBuckets, Width: width, Precision: precision}, Max: limit}
}

func tokens(limit, burst uint64, width int64) Limit {
	return Limit{Shape: Shape{Kind: TokenBucket, Width: width}, Max: limit, Burst: burst}
}

func firstHit(limit uint64, width int64) Limit {
	return Limit{Shape: Shape{Kind: FirstHitWindow, Width: width}, Max: limit}
}

// A step asks for hits at a time after monday and says what must come of it. Waits and resets are
// in nanoseconds from that time; -1 stands for never, or for no window.
type step struct {
	at        int64
	cost      uint64
	want      bool
	remaining uint64
	fits      int64
	reset     int64
}

func TestTimelines(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		limit Limit
		start State
		steps []step
	}{
		{
			name: "sliding window of the contract: rate 100 at 30 s, 93.3 at 40 s", limit: sliding(100, minute),
			start: State{Newest: monday, Hits: [2]Hits{{Total: 80}, {Total: 40}}},
			steps: []step{
				{at: 30 * second, cost: 1, want: false, remaining: 0, fits: 31_500_000_000 - 30*second, reset: 30 * second},
				{at: 40 * second, cost: 1, want: true, remaining: 5, fits: 0, reset: 20 * second},
				{at: 40 * second, cost: 6, want: false, remaining: 5, fits: 500_000_000, reset: 20 * second},
			},
		},
		{
			name: "Kong's sliding window: previous 40, current 10, 30 s into 60 s is a rate of 30", limit: sliding(100, minute),
			start: State{Newest: monday, Hits: [2]Hits{{Total: 10}, {Total: 40}}},
			steps: []step{{at: 30 * second, cost: 0, want: true, remaining: 70, reset: 30 * second}},
		},
		{
			name: "sliding window that is full wears off in the next", limit: sliding(10, minute),
			steps: []step{
				{at: 59 * second, cost: 10, want: true, remaining: 0, reset: second},
				{at: 60 * second, cost: 1, want: false, remaining: 0, fits: 6 * second, reset: minute},
				{at: 66*second - 1, cost: 1, want: false, remaining: 0, fits: 1, reset: 54*second + 1},
				{at: 66 * second, cost: 1, want: true, remaining: 0, reset: 54 * second},
				{at: 3 * minute, cost: 10, want: true, remaining: 0, reset: minute},
			},
		},
		{
			name: "fixed window turns on the clock's minute, to the nanosecond", limit: fixed(3, minute),
			steps: []step{
				{at: 50 * second, cost: 2, want: true, remaining: 1, reset: 10 * second},
				{at: 50 * second, cost: 2, want: false, remaining: 1, fits: 10 * second, reset: 10 * second},
				{at: minute - 1, cost: 1, want: true, remaining: 0, reset: 1},
				{at: minute - 1, cost: 1, want: false, remaining: 0, fits: 1, reset: 1},
				{at: minute, cost: 3, want: true, remaining: 0, reset: minute},
			},
		},
		{
			name: "first hit at 0:45 holds until 1:45, then 10 more until 2:45", limit: firstHit(10, minute),
			steps: []step{
				{at: 40 * second, cost: 0, want: true, remaining: 10, reset: -1},
				{at: 45 * second, cost: 10, want: true, remaining: 0, reset: minute},
				{at: 105*second - 1, cost: 1, want: false, remaining: 0, fits: 1, reset: 1},
				{at: 105 * second, cost: 10, want: true, remaining: 0, reset: minute},
				{at: 164 * second, cost: 1, want: false, remaining: 0, fits: second, reset: second},
			},
		},
		{
			name: "a clock that goes back counts as the newest hit's time", limit: sliding(10, minute),
			start: State{Newest: monday, Hits: [2]Hits{{}, {Total: 10}}},
			steps: []step{
				{at: 30 * second, cost: 5, want: true, remaining: 0, reset: 30 * second},
				{at: 10 * second, cost: 1, want: false, remaining: 0, fits: 26 * second, reset: 50 * second},
				{at: 36 * second, cost: 1, want: true, remaining: 0, reset: 24 * second},
			},
		},
		{
			name: "sub-buckets count whole, until the last of them has left", limit: subBuckets(10, minute, 15*second),
			steps: []step{
				{at: 14 * second, cost: 4, want: true, remaining: 6, reset: 46 * second},
				{at: 15 * second, cost: 6, want: true, remaining: 0, reset: minute},
				{at: 59 * second, cost: 1, want: false, remaining: 0, fits: second, reset: 16 * second},
				{at: minute - 1, cost: 5, want: false, remaining: 0, fits: 15*second + 1, reset: 15*second + 1},
				{at: minute, cost: 4, want: true, remaining: 0, reset: minute},
				{at: minute, cost: 0, want: true, remaining: 0, reset: minute},
				{at: 75 * second, cost: 6, want: true, remaining: 0, reset: minute},
			},
		},
		{
			name: "moving window of Python's limits: the 10th newest hit is 61 s old at 1:11, and 52 s old at 1:12", limit: log(10, minute),
			steps: []step{
				{at: 10 * second, cost: 1, want: true, remaining: 9, reset: minute},
				{at: 20 * second, cost: 2, want: true, remaining: 7, reset: minute},
				{at: 30 * second, cost: 4, want: true, remaining: 3, reset: minute},
				{at: 50 * second, cost: 3, want: true, remaining: 0, reset: minute},
				{at: 70*second - 1, cost: 1, want: false, remaining: 0, fits: 1, reset: 40*second + 1},
				{at: 71 * second, cost: 1, want: true, remaining: 0, reset: minute},
				{at: 72 * second, cost: 1, want: false, remaining: 0, fits: 8 * second, reset: 59 * second},
				{at: 72 * second, cost: 2, want: false, remaining: 0, fits: 8 * second, reset: 59 * second},
				{at: 72 * second, cost: 3, want: false, remaining: 0, fits: 18 * second, reset: 59 * second},
			},
		},
		{
			name: "tokens come back one at a time from the moment that the bucket was full", limit: tokens(6, 10, minute),
			steps: []step{
				{at: 0, cost: 0, want: true, remaining: 10, reset: -1},
				{at: 3 * second, cost: 9, want: true, remaining: 1, reset: 90 * second},
				{at: 13*second - 1, cost: 2, want: false, remaining: 1, fits: 1, reset: 80*second + 1},
				{at: 13 * second, cost: 2, want: true, remaining: 0, reset: 100 * second},
				{at: 18 * second, cost: 1, want: false, remaining: 0, fits: 5 * second, reset: 95 * second},
				{at: 63 * second, cost: 5, want: true, remaining: 0, reset: 100 * second},
				{at: 163*second - 1, cost: 10, want: false, remaining: 9, fits: 1, reset: 1},
				{at: 163*second - 1, cost: 11, want: false, remaining: 9, fits: -1, reset: 1},
				{at: 163 * second, cost: 10, want: true, remaining: 0, reset: 100 * second},
			},
		},
		{
			name: "a bucket without whole nanoseconds for a token does not drift", limit: tokens(7, 1, second),
			steps: []step{
				{at: 0, cost: 1, want: true, remaining: 0, reset: 142857143},
				{at: 142857142, cost: 1, want: false, remaining: 0, fits: 1, reset: 1},
				{at: 142857143, cost: 1, want: true, remaining: 0, reset: 142857143},
			},
		},
		{
			name: "a clock that was a year ahead locks nobody out for longer than a window", limit: fixed(1, minute),
			steps: []step{
				{at: MaxWidth, cost: 1, want: true, remaining: 0, reset: minute},
				{at: MaxWidth - 50*second, cost: 1, want: false, remaining: 0, fits: 110 * second, reset: 110 * second},
				{at: 0, cost: 1, want: false, remaining: 0, fits: minute, reset: minute},
				{at: minute, cost: 1, want: true, remaining: 0, reset: minute},
			},
		},
		{
			name: "limit 0 rejects everything, cost 0 too", limit: fixed(0, minute),
			steps: []step{{cost: 0, fits: -1, reset: minute}, {cost: 1, fits: -1, reset: minute}},
		},
		{
			name: "a cost above the limit never fits", limit: sliding(10, minute),
			steps: []step{{cost: 11, remaining: 10, fits: -1, reset: minute}, {cost: 1<<64 - 1, remaining: 10, fits: -1, reset: minute}},
		},
		{
			name: "greatest limit in the longest window", limit: sliding(999_999_999_999_999, MaxWidth),
			start: State{Newest: monday, Hits: [2]Hits{{Total: 999_999_999_999_999}}},
			steps: []step{{
				// The middle of the window after monday's, which no day is aligned to.
				at: MaxWidth - monday%MaxWidth + MaxWidth/2, cost: 1, want: true, remaining: 499_999_999_999_998, reset: MaxWidth / 2,
			}},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := test.start
			for i, step := range test.steps {
				now := monday + step.at
				test.limit.Advance(&s, now)
				got := test.limit.Allows(&s, step.cost)
				at, ok := test.limit.FitsAt(&s, step.cost)
				fits := at - now
				if !ok {
					fits = -1
				}
				if got {
					test.limit.Count(&s, step.cost)
				}
				at, ok = test.limit.ResetAt(&s)
				reset := at - now
				if !ok {
					reset = -1
				}
				remaining := test.limit.Remaining(&s)
				if got != step.want || remaining != step.remaining || fits != step.fits || reset != step.reset {
					t.Fatalf("step %d: allowed %v, remaining %d, fits in %d, resets in %d; want %v, %d, %d, %d",
						i, got, remaining, fits, reset, step.want, step.remaining, step.fits, step.reset)
				}
			}
		})
	}
}

// decisionsPerKind is the number that a test run under the race detector has the time for; a
// million in all.
var decisionsPerKind = flag.Int("decisions", 220_000, "decisions of each algorithm to compare with the model's")

func modelOf(l *Limit) *model.Counter {
	algorithms := map[Kind]model.Algorithm{
		FixedWindow: model.FixedWindow, FirstHitWindow: model.FirstHit, SlidingWindow: model.SlidingWindow,
		SlidingBuckets: model.SubBuckets, TokenBucket: model.TokenBucket,
	}
	return &model.Counter{Limit: model.Limit{
		Algorithm: algorithms[l.Kind], Max: l.Max, Burst: l.Burst, Window: l.Width, Precision: l.Precision,
	}}
}

// TestAgainstModel compares every decision with the model's, at times chosen to hurt: window edges
// to the nanosecond, bursts, long idle, a clock that goes back some seconds.
func TestAgainstModel(t *testing.T) {
	t.Parallel()
	widths := []int64{MinWidth, 7 * MinWidth, second, minute, 3600 * second, 24 * 3600 * second, MaxWidth}
	limits := []uint64{0, 1, 2, 3, 10, 100, 1000, 999_999_999_999_999}
	for _, kind := range []Kind{FixedWindow, FirstHitWindow, SlidingWindow, SlidingBuckets, TokenBucket} {
		t.Run(fmt.Sprint(kind), func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(uint64(kind), 2))
			decisions := 0
			for decisions < *decisionsPerKind {
				limit := Limit{Shape: Shape{Kind: kind, Width: widths[random.IntN(len(widths))]}, Max: limits[random.IntN(len(limits))]}
				switch kind {
				case SlidingBuckets:
					limit.Precision = limit.Width / []int64{2, 4, 5, 10, 64, limit.Width}[random.IntN(6)]
				case TokenBucket:
					limit.Burst = max(1, []uint64{limit.Max, 1, 2, 1000}[random.IntN(4)])
				}
				model := modelOf(&limit)
				state := State{}
				now := monday + random.Int64N(limit.Width)
				for range 400 {
					now += pause(random, now, limit.Width)
					if now > maxTime-4*limit.Width {
						break
					}
					cost := cost(random, limit.Quota())
					read := clone(state)
					limit.Advance(&state, now)
					got := limit.Allows(&state, cost)
					want := model.Fits(now, cost)
					if want {
						model.Take(now, cost)
					}
					must.EqualOrEnd(t, got, want, "%+v at %d, cost %d, state %+v", limit, now, cost, state)
					checkAnswers(t, limit, state, cost, got)
					if got && cost > 0 {
						limit.Count(&state, cost)
						state.each(func(h *Hits) { *h = Hits{Total: h.Sum()} }) // as it is read again, without a backend
					} else if read.Newest <= now || state.Newest > now {
						state = read // what takes nothing is not written, unless it has moved hits
					}
					decisions++
				}
			}
		})
	}
}

func pause(random *rand.Rand, now, width int64) int64 {
	switch random.IntN(8) {
	case 0, 1, 2:
		return 0
	case 3:
		return random.Int64N(width/10 + 1)
	case 4: // to the edge of the window, or a nanosecond beside it
		return width - now%width + random.Int64N(3) - 1
	case 5: // exactly one window
		return width + random.Int64N(3) - 1
	case 6:
		return -random.Int64N(5 * second)
	default:
		return random.Int64N(4*width + 1)
	}
}

func cost(random *rand.Rand, limit uint64) uint64 {
	switch random.IntN(8) {
	case 0:
		return 0
	case 1:
		return limit
	case 2:
		return limit + 1
	case 3:
		return limit/2 + 1
	case 4:
		return random.Uint64()
	default:
		return 1
	}
}

func clone(s State) State {
	s.Buckets = append([]Bucket(nil), s.Buckets...)
	return s
}

// checkAnswers holds what a state says about itself against what it does.
func checkAnswers(t *testing.T, l Limit, s State, cost uint64, allowed bool) {
	t.Helper()
	remaining := l.Remaining(&s)
	if l.Max > 0 && !l.Allows(&s, remaining) && remaining > 0 {
		t.Fatalf("%+v %+v: remaining %d does not pass", l, s, remaining)
	}
	must.EqualOrEnd(t, l.Allows(&s, remaining+1), false, "%+v %+v: one more than remaining %d passes", l, s, remaining)
	at, ok := l.FitsAt(&s, cost)
	if never := l.Max == 0 || cost > l.Quota(); ok == never {
		t.Fatalf("%+v %+v cost %d: fits %v", l, s, cost, ok)
	}
	if ok && (at == s.Newest) != allowed {
		t.Fatalf("%+v %+v cost %d: fits at %d, allowed %v", l, s, cost, at, allowed)
	}
	if ok && !allowed && at < maxTime {
		early, late := clone(s), clone(s)
		l.Advance(&early, at-1)
		l.Advance(&late, at)
		if l.Allows(&early, cost) || !l.Allows(&late, cost) {
			t.Fatalf("%+v %+v cost %d: does not fit from %d on, but a nanosecond before %v", l, s, cost, at, l.Allows(&early, cost))
		}
	}
	checkStanding(t, l, s, remaining)
	forgotten := clone(s)
	l.Advance(&forgotten, l.ForgetAt(&s))
	if l.ForgetAt(&s) < maxTime && (forgotten.Hits != [2]Hits{} || len(forgotten.Buckets) > 0) {
		t.Fatalf("%+v %+v: not forgotten at %d: %+v", l, s, l.ForgetAt(&s), forgotten)
	}
}

// checkStanding holds what is asked at once against the same questions one after the other.
func checkStanding(t *testing.T, l Limit, s State, remaining uint64) {
	t.Helper()
	now, want := s.Newest-3, Standing{Remaining: remaining, Reset: -1}
	if at, ok := l.FitsAt(&s, remaining+1); ok {
		want.Next = at - now
	}
	if at, ok := l.ResetAt(&s); ok {
		want.Reset = at - now
	}
	must.EqualOrEnd(t, l.Standing(&s, now), want, "%+v %+v: stands", l, s)
	used := l.Used(&s)
	if l.Kind.Clocked() {
		used = s.Hits[0].Sum() + s.Hits[1].Sum()
	}
	if at, share := l.Worth(&s); at != l.ForgetAt(&s) || share != float32(used)/float32(max(l.Quota(), 1)) {
		t.Fatalf("%+v %+v: forgotten at %d and used by %v, want %d and %d of %d", l, s, at, share, l.ForgetAt(&s), used, l.Quota())
	}
}

// A clock that jumps, by anything and both ways, neither panics nor locks a key out for longer than
// its window (or the 10 s that a clock may go back unseen), nor hands out more than one more
// window.
func TestClockJumps(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(8, 8))
	times := []int64{0, 1, -1, math.MinInt64, math.MaxInt64, maxTime, maxTime + 1, monday, -monday}
	for range 20_000 {
		width := []int64{MinWidth, second, minute, 24 * 3600 * second, MaxWidth}[random.IntN(5)]
		l := []Limit{
			fixed(10, width), sliding(10, width), firstHit(10, width), log(10, width), subBuckets(10, width, width/4), tokens(10, 10, width),
		}[random.IntN(6)]
		var s State
		now := monday + random.Int64N(width)
		for range random.IntN(20) {
			if l.Advance(&s, now); l.Allows(&s, 1) {
				l.Count(&s, 1)
			}
			now += random.Int64N(width/8 + 1)
		}
		jumped := now + random.Int64N(4*width) - 2*width
		if random.IntN(4) == 0 {
			jumped = times[random.IntN(len(times))]
		}
		passed := 0
		for range 30 {
			if l.Advance(&s, jumped); l.Allows(&s, 1) {
				l.Count(&s, 1)
				passed++
			}
		}
		must.AtMost(t, passed, 10, "%+v: passed at once after a jump from %d to %d", l, now, jumped)
		// However late it is by the state, two windows on (one for what ended, one to wear off)
		// there is room again.
		if clock := min(max(jumped, 0), maxTime); clock < maxTime-4*width {
			if l.Advance(&s, clock+max(width, maxBack)+2*width); !l.Allows(&s, 1) {
				t.Fatalf("%+v: locked out after a jump from %d to %d: %+v", l, now, jumped, s)
			}
		}
	}
}
