package storetest

import (
	"slices"
	"testing"
	"time"

	"weir/internal/store"
	"weir/internal/wire"
	"weir/window"
)

// unbacked is how many hits a sender gives back without having counted any.
const unbacked = 1_000_000

// testReturnedUnbacked gives back far more hits than were counted. With every algorithm, afterwards
// no more hits pass than the limit.
func testReturnedUnbacked(t *testing.T, b *bench) {
	for _, ahead := range []time.Duration{0, 2 * time.Second, 90 * time.Second} {
		for _, r := range algorithms(10, 1) {
			r.Ordinal = uint8(ahead / time.Second)
			b.clock.set(epoch.Add(7 * time.Second))
			back := store.Calendar{NowNanos: uint64(b.clock.now().Add(ahead).UnixNano())}.RoomItem(&r, 0)
			back.Hits[0] = -unbacked
			// Give back everything that can be named, including the hits of the window before.
			for i := range back.Hits {
				back.Hits[i] = -unbacked
			}
			all := int64(len(back.Hits)) * unbacked
			nothing := func(when string) {
				t.Helper()
				if out := b.decide(b.next(items(back)), 1); out.Returned != 0 || out.Dropped != all || out.Applied != 0 {
					t.Errorf("kind %d, %v ahead, %s: outcome %+v, want %d dropped", r.Kind, ahead, when, out, all)
				}
			}
			nothing("a fresh key")
			if got := b.counters("ns"); slices.ContainsFunc(got, func(c store.LimitCounter) bool { return c.LimitCounter == r.LimitCounter }) {
				t.Errorf("kind %d, %v ahead: a counter of nothing but what was given back: %+v", r.Kind, ahead, got)
			}
			b.takeOften(r, 10)
			// A push with a take counts the returned hits first.
			b.clock.advance(2*time.Minute + 10*time.Second)
			back.Newest = store.Calendar{NowNanos: uint64(b.clock.now().Add(ahead).UnixNano())}.RoomItem(&r, 0).Newest
			if out := b.decide(b.next(items(back), take(1, 99, r)), 1); out.Answer.Grants[0].Units != 10 || out.Returned != 0 {
				t.Errorf("kind %d, %v ahead: %d units, %d returned; want 10 and none", r.Kind, ahead, out.Answer.Grants[0].Units, out.Returned)
			}
			b.takeOften(r, 0)
			// Pushed hits don't make up for it either.
			b.clock.advance(2*time.Minute + 10*time.Second)
			nothing("a key that has rested")
			pushed := store.Calendar{NowNanos: uint64(b.clock.now().UnixNano())}.RoomItem(&r, 4)
			if out := b.decide(b.next(items(pushed)), 1); out.Applied != 4 {
				t.Errorf("kind %d, %v ahead: outcome %+v, want 4 applied", r.Kind, ahead, out)
			}
			b.takeOften(r, 6)
		}
	}
}

// testReturnedBeyond gives back more than is counted: the counted hits are subtracted, and the rest
// dropped.
func testReturnedBeyond(t *testing.T, b *bench) {
	for _, r := range algorithms(10, 1) {
		b.clock.set(epoch.Add(7 * time.Second))
		g := b.take(take(7, 7, r), 7)
		back := givenBack(r, g, g.Totals[0], wire.MaxHits)
		out := b.decide(b.next(items(back)), 1)
		if out.Returned != 7 || out.Dropped != wire.MaxHits-7 || out.Applied != 0 {
			t.Errorf("kind %d: outcome %+v, want 7 returned and the rest dropped", r.Kind, out)
		}
		if out := b.decide(b.next(items(back)), 1); out.Returned != 0 || out.Dropped != wire.MaxHits {
			t.Errorf("kind %d: outcome %+v, want all dropped", r.Kind, out)
		}
		b.used(r, 0)
		b.takeOften(r, 10)
		if window.Kind(r.Kind).Started() && !window.Kind(r.Kind).Refills() {
			// Returned hits don't make the window begin, and end, earlier.
			early := back
			early.Newest -= uint64(50 * time.Second)
			early.Hits = []int64{-1}
			if out := b.decide(b.next(items(early)), 1); out.Returned != 1 || out.Answer.Totals[0].Newest != back.Newest {
				t.Errorf("kind %d: outcome %+v, want one returned, and the start %d", r.Kind, out, back.Newest)
			}
			b.take(take(1, 99, r), 1)
		}
	}
}
