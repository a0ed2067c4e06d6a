package ratelimit

import (
	"testing"
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
