package share

import (
	"context"
	"testing"
	"testing/synctest"

	"weir/internal/must"
)

// An owner that comes without end leaves room for others, and places that it gives back are there
// again.
func TestRoomIsLeftForOthers(t *testing.T) {
	r := Room[string]{Most: 32}
	for owner, want := range []int{16, 8, 4, 2, 1, 1, 0} {
		got := 0
		for r.Enter(string(rune('a' + owner))) {
			got++
		}
		must.Equal(t, got, want, "owner %d has places", owner)
	}
	for range 16 {
		r.Leave("a")
	}
	if !r.Enter("g") || r.used != 17 || len(r.of) != 6 {
		t.Errorf("%d are used by %d owners", r.used, len(r.of))
	}
}

// Places go to those who wait for longest, but for owners that have too many, and those who give up take none.
func TestRoomIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := Room[string]{Most: 4}
		var inside []int
		enter := func(ctx context.Context, number int, owner string) {
			go func() {
				if r.Wait(ctx, owner) {
					inside = append(inside, number)
				}
			}()
			synctest.Wait()
		}
		impatient, giveUp := context.WithCancel(t.Context())
		for number, owner := range []string{"a", "a", "a", "a", "a", "b", "b"} {
			ctx := t.Context()
			if number == 2 {
				ctx = impatient
			}
			enter(ctx, number, owner)
		}
		for _, step := range []struct {
			then func()
			want []int
		}{
			{func() {}, []int{0, 1, 5}},
			{giveUp, []int{0, 1, 5}},
			{func() { r.Leave("b") }, []int{0, 1, 5, 6}},
			{func() { r.Leave("a") }, []int{0, 1, 5, 6, 3}},
			{func() { r.Leave("a") }, []int{0, 1, 5, 6, 3, 4}},
			{func() { r.Leave("a"); r.Leave("a"); r.Leave("b") }, []int{0, 1, 5, 6, 3, 4}},
		} {
			step.then()
			synctest.Wait()
			must.Same(t, inside, step.want, "those that have been inside")
		}
		if r.used != 0 || len(r.of) != 0 || len(r.queue) != 0 {
			t.Errorf("then %d are inside, and %d wait", r.used, len(r.queue))
		}
	})
}
