package redis

import (
	"sync"
	"time"
)

// clock estimates the time of a server that has answered before. It is never ahead of the server's
// clock, unless that was set back since.
type clock struct {
	mu    sync.Mutex
	heard bool
	ahead time.Duration // the server's time less the time since began
}

// began is the zero of all clocks.
var began = time.Now()

// now returns the server's time in microseconds. ok is false until the server has answered.
func (c *clock) now() (micros int64, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return (time.Since(began) + c.ahead).Microseconds(), c.heard
}

// hear corrects the clock: the server's time was micros at some moment between sent and received,
// which are times since began.
func (c *clock) hear(micros int64, sent, received time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	then := time.Duration(micros) * time.Microsecond
	if !c.heard {
		c.heard, c.ahead = true, then-received
	}
	c.ahead = min(max(c.ahead, then-received), then-sent)
}
