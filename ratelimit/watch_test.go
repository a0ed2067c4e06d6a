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
	if w = newWatch(func() time.Time { return noon }); w.now() != noon.UnixNano() {
		t.Errorf("told %d by a clock of its own", w.now())
	}
}

// Between two readings of the time of day it goes on by the steady clock.
func TestWatchGoesOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWatch(nil)
		first := w.now()
		until := w.until.Load()
		pause(time.Duration(watchFor / 3))
		if now := w.now(); now-first != watchFor/3 || w.until.Load() != until {
			t.Errorf("%d ns later, read again: %t", now-first, w.until.Load() != until)
		}
	})
}
