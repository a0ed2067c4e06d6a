package wait

import (
	"math"
	"testing"
	"time"

	"weir/internal/must"
)

// While the first request of a line is being decided, nobody of its line has a turn: it may have asked the
// backend, and requests that join meanwhile come behind it.
func TestLineRests(t *testing.T) {
	t.Parallel()
	now, due := int64(time.Hour), int64(0)
	q := NewQueue(&memory{}, "default", 1, func() int64 { return now }, func(at int64) { due = at })
	join := func(p *Place, want Joined) {
		t.Helper()
		if got := q.Join(p, nil, &Wish{From: now, Until: now + int64(time.Second), Most: 9, Fits: func(int) bool { return true }}); got != want {
			t.Fatalf("joined as %d, want %d", got, want)
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
	join(&a, Leads)
	turn(&a)
	join(&b, Follows)
	turn(nil)
	must.Equal(t, due, math.MaxInt64, "a line that rests has something to do at")
	a.Again(now+5e6, now)
	turn(nil)
	must.Equal(t, due, now+5e6, "a line that is to be decided in 5ms has something to do at")
	now += 5e6
	turn(&a)
	a.Leave()
	turn(&b)
}
