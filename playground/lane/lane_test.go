package lane_test

import (
	"testing"

	"weir/internal/must"
	"weir/playground/lane"
	"weir/window"
)

const (
	second = int64(1e9)
	start  = 1_767_225_600 * second
)

func of(t *testing.T, name string, hits uint64) *lane.Lane {
	t.Helper()
	for _, kind := range lane.Kinds {
		if kind.Name == name {
			l, fault := lane.New(kind, hits, 10*second, 10)
			must.EqualOrEnd(t, fault, window.Sound, "%s has the fault", name)
			return l
		}
	}
	t.Fatalf("no lane %s", name)
	return nil
}

// TestLook wants what each lane knows, 12.5 s after a window of the clock began, of a hit 3.5 s before
// and of two just then.
func TestLook(t *testing.T) {
	for _, test := range []struct {
		name              string
		used              float64
		remaining         uint64
		age               int64
		current, previous uint64
		buckets           []lane.Bucket
		next, reset       int64
	}{
		{"fixed-window", 2, 2, 25e8, 2, 0, nil, 75e8, 75e8},
		{"first-hit", 3, 1, 35e8, 3, 0, nil, 65e8, 65e8},
		{"sliding-window", 2.75, 1, 25e8, 2, 1, nil, 75e8, 75e8},
		{"sub-buckets", 3, 1, -1, 0, 0, []lane.Bucket{{35e8, 1}, {5e8, 2}}, 65e8, 95e8},
		{"sliding-log", 3, 1, -1, 0, 0, []lane.Bucket{{35e8, 1}, {0, 2}}, 65e8, 100e8},
		// The first one's token was back after 2.5 s.
		{"token-bucket", 2, 2, 0, 2, 0, nil, 25e8, 50e8},
	} {
		l := of(t, test.name, 4)
		var v lane.View
		l.Look(start, &v)
		if v.Quota != 4 || v.Remaining != 4 || v.Used != 0 || v.Size != 0 {
			t.Errorf("%s: before the first hit %+v", test.name, v)
		}
		for _, at := range []int64{9 * second, 12*second + 5e8, 12*second + 5e8} {
			must.Equal(t, l.Hit(start+at).Allowed, true, "%s: refused", test.name)
		}
		for range 2 { // looking changes nothing
			l.Look(start+12*second+5e8, &v)
			if v.Used != test.used || v.Remaining != test.remaining || v.Age != test.age || v.Current != test.current || v.Previous != test.previous ||
				v.Next != test.next || v.Reset != test.reset || v.Size == 0 || len(v.Buckets) != len(test.buckets) {
				t.Errorf("%s: %+v", test.name, v)
				continue
			}
			for i, b := range test.buckets {
				must.Equal(t, v.Buckets[i], b, "%s: bucket %d is", test.name, i)
			}
		}
	}
}

func TestFaults(t *testing.T) {
	for _, test := range []struct {
		kind           int
		hits           uint64
		width, buckets int64
		want           window.Fault
	}{
		{0, 1, 1, 1, window.WrongWidth},
		{0, window.MaxLimit + 1, second, 1, window.WrongMax},
		{3, 1, second, 7, window.WrongPrecision},
		{3, 1, second, 0, window.WrongPrecision},
		{4, 1e6, second, 0, window.LargeLog},
		{5, 0, second, 0, window.WrongBurst},
	} {
		if l, fault := lane.New(lane.Kinds[test.kind], test.hits, test.width, test.buckets); fault != test.want || l != nil {
			t.Errorf("%+v: fault %d", test, fault)
		}
	}
}

// has reports whether a response has a field of a value.
func has(o lane.Outcome, name, value string) bool {
	for _, f := range o.Response {
		if f.Name == name && string(f.Value) == value {
			return true
		}
	}
	return false
}

// Requests hold places until they end, the oldest first.
func TestPlaces(t *testing.T) {
	l := of(t, "in-flight", 2)
	var v lane.View
	look := func(at int64, used float64) {
		t.Helper()
		if l.Look(start+at, &v); v.Used != used || v.Quota != 2 || v.Remaining != 2-uint64(used) || v.Age != -1 {
			t.Errorf("after %d s: %+v", at/second, v)
		}
	}
	must.Equal(t, l.Hit(start).Allowed && l.Hit(start+5*second).Allowed, true, "requests within the limit pass")
	look(5*second, 2)
	if o := l.Hit(start + 6*second); o.Allowed || !has(o, "retry-after", "1") {
		t.Errorf("above the limit: %+v", o)
	}
	l.Release(start + 7*second)
	look(7*second, 1)
	must.Equal(t, l.Hit(start+7*second).Allowed, true, "there is a place for a request")
	must.Equal(t, l.Hit(start+7*second).Allowed, false, "there is a place for a second one")
	for range 3 { // the last one holds nothing
		l.Release(start + 8*second)
	}
	look(8*second, 0)
}

// Requests wait for their turn, one each 2.5 s, and up to four of them. The response tells when they go on.
func TestQueue(t *testing.T) {
	l := of(t, "queue", 4)
	var v lane.View
	for i := range int64(5) {
		if o := l.Hit(start + i); !o.Allowed || i > 0 && o.Wait != i*25e8-i || has(o, "x-ratelimit-delayed", "") {
			t.Errorf("request %d: %+v", i, o)
		} else if i == 2 && !has(o, "x-ratelimit-delayed", "5000") {
			t.Errorf("request %d: %s", i, o.Response)
		}
	}
	if o := l.Hit(start + 10); o.Allowed || !has(o, "retry-after", "3") {
		t.Errorf("the queue is full: %+v", o)
	}
	for _, c := range []struct {
		at, next int64
		used     float64
	}{{10, 25e8 - 10, 4}, {25e8, 25e8, 3}, {99e8, 1e8, 1}} {
		if l.Look(start+c.at, &v); v.Used != c.used || v.Quota != 4 || v.Next != c.next || v.Age != -1 {
			t.Errorf("after %d ns: %+v", c.at, v)
		}
	}
	if l.Look(start+100e8, &v); v.Used != 0 || v.Remaining != 4 {
		t.Errorf("when all have gone on: %+v", v)
	}
	if o := l.Hit(start + 101e8); !o.Allowed || o.Wait != 24e8 {
		t.Errorf("before the next token: %+v", o)
	}
	if o := l.Hit(start + 900e8); !o.Allowed || o.Wait != 0 {
		t.Errorf("after a pause: %+v", o)
	}
}
