package wait

import (
	"math"
	"testing"
	"time"

	"weir/sharedata"
)

// While the first request of a line is being decided, nobody of its line has a turn: it may have asked the
// backend, and requests that join meanwhile come behind it.
func TestLineRests(t *testing.T) {
	t.Parallel()
	now, within := int64(time.Hour), int64(0)
	q := NewQueue(&memory{}, "default", 1, func() int64 { return now }, func(nanos int64) { within = nanos })
	join := func(p *Place, first bool) {
		t.Helper()
		if joined, leads := q.Join(p, sharedata.Address{}, now, now+int64(time.Second), 9); !joined || leads != first {
			t.Fatalf("joined %v, and leads %v", joined, leads)
		}
	}
	turn := func(want *Place) {
		t.Helper()
		p, first, more := q.Turn()
		if p != want || first != (want != nil) || more != first {
			t.Errorf("it is the turn of %p, first %v, more %v; want %p", p, first, more, want)
		}
	}
	var a, b Place
	join(&a, true)
	turn(&a)
	join(&b, false)
	turn(nil)
	if within != math.MaxInt64 {
		t.Errorf("a line that rests has something to do in %v", time.Duration(within))
	}
	a.Again(now+5e6, now)
	if turn(nil); within != 5e6 {
		t.Errorf("a line that is to be decided in 5ms has something to do in %v", time.Duration(within))
	}
	now += 5e6
	turn(&a)
	a.Leave()
	turn(&b)
}
