package node

const (
	// idleMillis is the time between ticks of a node that has no backend, but delays requests.
	idleMillis = 1000
	// tickNanos is how long a tick may work, and tickKeys how many keys or requests it handles
	// between two looks at the clock.
	tickNanos = int64(1e6)
	tickKeys  = 16
)

// ticks are when a node's host calls it, and how long it may work then.
type ticks struct {
	host Host
	// millis is the time between ticks while there is no more to do than usual. hurried says that they
	// come every millisecond.
	millis  uint32
	hurried bool
	period  uint32 // that the host was asked for last
	// until is when the host's callback that is running is to be over. It is 0 in those of
	// requests. As all deadlines it is by the host's clock, which no answer corrects.
	until int64
}

// hurry asks for ticks every millisecond while there is more to do than usual.
func (t *ticks) hurry(more bool) {
	if t.hurried == more {
		return
	}
	millis := t.millis
	if t.hurried = more; more {
		millis = 1
	}
	t.every(millis)
}

// within asks for a tick in so many nanoseconds at the latest, and for no more than it takes.
func (t *ticks) within(nanos int64) {
	if !t.hurried {
		t.every(uint32(max(1, min((nanos+1e6-1)/1e6, int64(t.millis)))))
	}
}

func (t *ticks) every(millis uint32) {
	if t.period != millis {
		t.period = millis
		t.host.TickEvery(millis)
	}
}
