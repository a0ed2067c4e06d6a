package ratelimit

import (
	"testing"
	"testing/synctest"
	"time"
)

// A watch tells the time of day, also after someone has set that.
func TestWatch(t *testing.T) {
	t.Parallel()
	var w watch
	tell := func() {
		t.Helper()
		before := time.Now()
		told := w.now()
		if after := time.Now(); told < before.UnixNano() || told > after.UnixNano() {
			t.Errorf("told %d between %d and %d", told, before.UnixNano(), after.UnixNano())
		}
	}
	tell()
	w.nanos, w.read = w.nanos-int64(time.Hour), w.read.Add(-watchFor)
	tell()
	read := w.read
	if w.read = read.Add(time.Hour); w.now() == 0 || w.read.Sub(read) > time.Minute {
		t.Error("relies on a time to come")
	}
	noon := time.Date(2026, 1, 5, 12, 0, 0, 7, time.UTC)
	if w = (watch{own: func() time.Time { return noon }}); w.now() != noon.UnixNano() {
		t.Errorf("told %d by a clock of its own", w.now())
	}
}

// Between two readings of the time of day it goes on by the steady clock.
func TestWatchGoesOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var w watch
		first := w.now()
		read := w.read
		pause(watchFor / 3)
		if now := w.now(); now-first != int64(watchFor/3) || w.read != read {
			t.Errorf("%d ns later, read again: %t", now-first, w.read != read)
		}
	})
}
