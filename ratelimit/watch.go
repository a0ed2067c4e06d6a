package ratelimit

import (
	"sync"
	"sync/atomic"
	"time"
)

// watchFor is how long a watch relies on the process's steady clock alone.
const watchFor = int64(10 * time.Millisecond)

// watch is the clock of a namespace. Reading the time of day reads two clocks, and is the dearest part of
// a decision. So it is read again only after watchFor, and in between the steady clock alone tells how much
// later it is. If someone sets the time of day, or the machine slept, a watch knows once watchFor has run. It is safe for
// concurrent use: who reads a bound and not yet the offset that belongs to it tells the time of a moment ago.
type watch struct {
	mu  sync.Mutex
	own func() time.Time // of Options.Now, which one caller at a time asks
	// began is when the steady time is 0, offset is what it lacks to the time of day, and until is when to read that again.
	began         time.Time
	offset, until atomic.Int64
}

func newWatch(own func() time.Time) *watch { return &watch{own: own, began: time.Now()} }

func (w *watch) now() int64 {
	if w.own != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.own().UnixNano()
	}
	steady := int64(time.Since(w.began))
	if until := w.until.Load(); steady >= until || steady < until-watchFor {
		now := time.Now()
		steady = int64(now.Sub(w.began))
		w.offset.Store(now.UnixNano() - steady)
		w.until.Store(steady + watchFor)
	}
	return steady + w.offset.Load()
}
