package ratelimit

import "time"

// watchFor is how long a watch relies on the process's steady clock alone.
const watchFor = 10 * time.Millisecond

// watch is the clock of a namespace. Reading the time of day reads two clocks, and is the dearest part of
// a decision. So it is read again only after watchFor, and in between the steady clock alone tells how much
// later it is. If someone sets the time of day, or the machine slept, a watch knows once watchFor has run. Its user holds the
// namespace's lock.
type watch struct {
	own   func() time.Time // of Options.Now
	read  time.Time
	nanos int64 // of read, since the Unix epoch
}

func (w *watch) now() int64 {
	if w.own != nil {
		return w.own().UnixNano()
	}
	since := time.Since(w.read)
	if since < 0 || since >= watchFor {
		w.read, since = time.Now(), 0
		w.nanos = w.read.UnixNano()
	}
	return w.nanos + int64(since)
}
