package node

const (
	// idleMillis is the time between ticks of a node without a backend that delays requests.
	idleMillis = 1000
	// tickNanos is how long a tick may work, and tickKeys how many keys or requests it handles
	// between two looks at the clock.
	tickNanos = int64(1e6)
	tickKeys  = 16
)

// ticks says when a node's host calls it, and how long it may work.
type ticks struct {
	host Host
	// millis is the usual time between ticks. hurried means that they come every millisecond.
	millis  uint32
	hurried bool
	period  uint32 // that the host was last asked for
	// until is when the present callback of the host should end; 0 in callbacks of requests. Like
	// all deadlines it is by the host's clock, uncorrected.
	until int64
}

// hurry asks for ticks every millisecond while there is much to do.
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

// within asks for a tick within a time, and for no more ticks than that needs.
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
