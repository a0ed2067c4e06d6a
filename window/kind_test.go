package window

import (
	"math"
	"testing"

	"weir/internal/must"
)

// Every kind has a name, by which it is found again.
func TestNames(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for kind := Kind(1); kind <= LastKind; kind++ {
		name := Shape{Kind: kind, Precision: second}.Name()
		if name == "" || seen[name] || Named(name) != kind || !kind.Known() {
			t.Errorf("kind %d is called %q, which is kind %d", kind, name, Named(name))
		}
		seen[name] = true
	}
	if name := log(10, minute).Name(); seen[name] || Named(name) != SlidingBuckets {
		t.Errorf("a log is called %q, which is kind %d", name, Named(name))
	}
	for _, kind := range []Kind{0, LastKind + 1, math.MaxUint8} {
		if name := (Shape{Kind: kind, Precision: LogPrecision}).Name(); name != "" || kind.Known() || kind.Windows() != 0 {
			t.Errorf("kind %d is called %q, and has %d windows", kind, name, kind.Windows())
		}
	}
	must.Equal(t, Named("leaky_bucket"), 0, "an unknown name is that of kind")
}

// If hits of a kind come back at once, all have room when any has.
func TestAtOnce(t *testing.T) {
	t.Parallel()
	for _, l := range leasing {
		var s State
		for _, at := range []int64{0, 20 * second} {
			l.Advance(&s, monday+at)
			l.Count(&s, l.Max/2)
		}
		one, _ := l.FitsAt(&s, 1)
		all, _ := l.FitsAt(&s, l.Max)
		must.Equal(t, l.Kind.AtOnce(), one == all, "%+v: one hit fits in %d s, all in %d s", l, (one-s.Newest)/second, (all-s.Newest)/second)
	}
}

func TestFaults(t *testing.T) {
	t.Parallel()
	limit := func(kind Kind, width, precision int64, most, burst uint64) Limit {
		return Limit{Shape: Shape{Kind: kind, Width: width, Precision: precision}, Max: most, Burst: burst}
	}
	largest := log(0, minute).LargestLog()
	for _, test := range []struct {
		name  string
		limit Limit
		shape Fault // of the shape alone
		want  Fault
	}{
		{"limit 0", fixed(0, minute), Sound, Sound},
		{"the largest limit", sliding(MaxLimit, minute), Sound, Sound},
		{"above it", sliding(MaxLimit+1, minute), Sound, WrongMax},
		{"the shortest window", fixed(1, MinWidth), Sound, Sound},
		{"less than that", fixed(1, MinWidth-1), WrongWidth, WrongWidth},
		{"no window", fixed(1, 0), WrongWidth, WrongWidth},
		{"a nanosecond more than a millisecond", fixed(1, MinWidth+1), WrongWidth, WrongWidth},
		{"the longest window, of 366 days", fixed(1, 366*24*3600*second), Sound, Sound},
		{"a longer one", fixed(1, MaxWidth+MinWidth), WrongWidth, WrongWidth},
		{"no kind", limit(0, minute, 0, 1, 0), UnknownKind, UnknownKind},
		{"the last kind", NewInFlight(1), Sound, Sound},
		{"no kind yet", limit(LastKind+1, minute, 0, 1, 0), UnknownKind, UnknownKind},
		{"a window with a precision", limit(FixedWindow, minute, second, 1, 0), NeedlessPrecision, NeedlessPrecision},
		{"a window with that of a log", limit(FixedWindow, minute, LogPrecision, 1, 0), NeedlessPrecision, NeedlessPrecision},
		{"buckets without a precision", limit(SlidingBuckets, minute, 0, 1, 0), WrongPrecision, WrongPrecision},
		{"a negative one", limit(SlidingBuckets, minute, -second, 1, 0), WrongPrecision, WrongPrecision},
		{"one bucket, as stores have", subBuckets(1, minute, minute), Sound, WrongPrecision},
		{"less than one", subBuckets(1, minute, 2*minute), WrongPrecision, WrongPrecision},
		{"two buckets", subBuckets(1, minute, minute/2), Sound, Sound},
		{"64 buckets", subBuckets(1, 64*second, second), Sound, Sound},
		{"65 buckets", subBuckets(1, 65*second, second), WrongPrecision, WrongPrecision},
		{"buckets that don't divide the window", subBuckets(1, minute, 7*second), WrongPrecision, WrongPrecision},
		{"the largest log", log(largest, minute), Sound, Sound},
		{"a larger one", log(largest+1, minute), Sound, LargeLog},
		{"as much in buckets", subBuckets(largest+1, minute, second), Sound, Sound},
		{"a window with a burst", limit(FixedWindow, minute, 0, 1, 1), Sound, NeedlessBurst},
		{"a bucket without one", tokens(1, 0, minute), Sound, WrongBurst},
		{"a bucket of one token", tokens(1, 1, minute), Sound, Sound},
		{"the largest bucket", tokens(MaxLimit, MaxLimit, minute), Sound, Sound},
		{"a larger one", tokens(1, MaxLimit+1, minute), Sound, WrongBurst},
	} {
		must.Equal(t, [2]Fault{test.limit.Shape.Fault(), test.limit.Fault()}, [2]Fault{test.shape, test.want}, "%s: fault of the shape, and of the limit", test.name)
	}
}

// Limits of a rule that are alike get ordinals from 0 on, whatever they had before.
func TestSetOrdinals(t *testing.T) {
	t.Parallel()
	limits := []Limit{fixed(1, minute), fixed(2, minute), fixed(1, second), sliding(1, minute), fixed(3, minute), fixed(9, second)}
	for round := range 2 {
		SetOrdinals(limits)
		for i, want := range []uint8{0, 1, 0, 0, 2, 1} {
			must.Equal(t, limits[i].Ordinal, want, "round %d: limit %d has ordinal", round, i)
			limits[i].Ordinal += 3
		}
	}
}

// The quota is for a window, or for as long as the bucket takes to be full.
func TestSpan(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		limit Limit
		nanos int64
		whole bool
	}{
		{fixed(10, minute), minute, true},
		{fixed(0, minute), 0, false},
		{log(10, minute), minute, true},
		{tokens(10, 10, minute), minute, true},
		{tokens(10, 25, minute), 150 * second, true},
		{tokens(7, 7, second), second, true},
		{tokens(7, 1, second), 142857142, false},
		{tokens(0, 10, minute), 0, false},
		{tokens(1, MaxLimit, MaxWidth), 0, false}, // beyond all times
		{tokens(1, 100, MaxWidth), 100 * MaxWidth, true},
		{tokens(1e6, uint64(maxTime), MinWidth), maxTime, true},
		{tokens(1e6, uint64(maxTime)+1, MinWidth), 0, false},
	} {
		if nanos, whole := test.limit.Span(); whole != test.whole || whole && nanos != test.nanos {
			t.Errorf("%+v: %d ns, whole %v", test.limit, nanos, whole)
		}
	}
}
