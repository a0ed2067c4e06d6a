package redis

import (
	"sync"
	"time"
)

// clock tells the time of a server that has told it before. It is never ahead of the server's, unless
// that was set back since.
type clock struct {
	mu    sync.Mutex
	heard bool
	ahead time.Duration // of ours
}

// began is when our clocks did.
var began = time.Now()

// now is the server's time in microseconds. It is not ok before the server was heard.
func (c *clock) now() (micros int64, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return (time.Since(began) + c.ahead).Microseconds(), c.heard
}

// hear takes in what the server's time was between two times since ours began.
func (c *clock) hear(micros int64, sent, received time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	then := time.Duration(micros) * time.Microsecond
	if !c.heard {
		c.heard, c.ahead = true, then-received
	}
	c.ahead = min(max(c.ahead, then-received), then-sent)
}
