package ratelimit

import (
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/must"
)

// A watch tells the time of day, also after someone has set that.
func TestWatch(t *testing.T) {
	t.Parallel()
	w := newWatch(nil)
	tell := func() {
		t.Helper()
		before := time.Now()
		told := w.now()
		must.Between(t, told, before.UnixNano(), time.Now().UnixNano(), "told")
	}
	tell()
	w.offset.Add(-int64(time.Hour))
	w.until.Add(-watchFor)
	tell()
	w.offset.Add(-int64(time.Hour))
	w.until.Add(int64(time.Hour))
	tell()
	noon := time.Date(2026, 1, 5, 12, 0, 0, 7, time.UTC)
	must.Equal(t, newWatch(func() time.Time { return noon }).now(), noon.UnixNano(), "told by a clock of its own")
}

// Between two readings of the time of day it goes on by the steady clock.
func TestWatchGoesOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWatch(nil)
		first := w.now()
		until := w.until.Load()
		pause(time.Duration(watchFor / 3))
		must.Equal(t, w.now()-first, watchFor/3, "nanoseconds later")
		must.Equal(t, w.until.Load(), until, "when the time of day is read again")
	})
}
