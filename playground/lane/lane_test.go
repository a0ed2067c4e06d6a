package lane_test

import (
	"testing"

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
			if fault != window.Sound {
				t.Fatalf("%s has the fault %d", name, fault)
			}
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
			if allowed, _ := l.Hit(start + at); !allowed {
				t.Errorf("%s: refused", test.name)
			}
		}
		for range 2 { // looking changes nothing
			l.Look(start+12*second+5e8, &v)
			if v.Used != test.used || v.Remaining != test.remaining || v.Age != test.age || v.Current != test.current || v.Previous != test.previous ||
				v.Next != test.next || v.Reset != test.reset || v.Size == 0 || len(v.Buckets) != len(test.buckets) {
				t.Errorf("%s: %+v", test.name, v)
				continue
			}
			for i, b := range test.buckets {
				if v.Buckets[i] != b {
					t.Errorf("%s: bucket %d is %+v", test.name, i, v.Buckets[i])
				}
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
