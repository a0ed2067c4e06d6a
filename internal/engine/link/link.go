// Package link has what a worker knows of its backend: its time, the number of nodes that share the
// limits, and whether it can be reached. The workers of a process share it in shared data.
package link

import (
	"encoding/binary"

	"weir/internal/engine/jitter"
	"weir/sharedata"
)

// Link is a node's connection to the outside: its host, which has the time and sends callouts, and
// the process's knowledge of its backend: the backend's time, the number of nodes, and whether it
// can be reached. Workers share it in shared data. If they disagreed about the time, each would
// treat the other's counters as outdated. And if the backend is away, only one worker should have
// to wait for a timeout to find out.
type Link struct {
	offset int64 // what to add to the host's time
	trip   int64 // round trip of the answer that gave the offset
	seen   int64 // when that answer came; 0 for none
	record sharedata.Record
	hosts  sharedata.Record // the last outcome that the host has heard of
	Random jitter.Random
	shared sharedLink // as last read or written

	clock   Clock
	Timeout int64             // of a callout, in nanoseconds
	turned  func(why Outcome) // may be nil
}

// Clock has the time of a host.
type Clock interface {
	// Now returns the process's time in nanoseconds since the Unix epoch, uncorrected.
	Now() int64
}

// sharedLink is the part of a link in shared data. Times are by the host's clock.
type sharedLink struct {
	_ [0]func() // keeps Go from generating an equality function

	offset int64
	nodes  uint32 // 0 if not known yet
	// failures counts failed callouts since the last success. From breakAfter on the breaker is
	// open: no request waits for the backend, and nobody calls it until retryAt.
	failures uint32
	retryAt  int64
	// countedAt is when the last failure was counted or the last try began. While the breaker is
	// open, callouts that were sent before then don't count.
	countedAt int64
	// aloneAt is when a request last passed without the backend, or slightly earlier, by the
	// backend's clock; 0 for never. peak is the most nodes known of while such hits counted.
	aloneAt int64
	peak    uint32
}

const linkSize = 8 + 4 + 4 + 8 + 8 + 8 + 4

// New returns the link of a namespace in a process's shared data. A callout ends within timeout, and
// turned is [Options.Turned].
func New(data sharedata.Data, namespace string, clock Clock, random jitter.Random, timeout int64, turned func(why Outcome)) Link {
	return Link{
		record: sharedata.NewRecord(data, namespace, "link"), hosts: sharedata.NewRecord(data, namespace, "told"),
		Random: random, clock: clock, Timeout: timeout, turned: turned,
	}
}

const (
	// clockDrift is the least change of the offset that is written to shared data, in nanoseconds.
	clockDrift = int64(10e6)
	// Patience is how long an answer with a short round trip outranks answers with longer round
	// trips.
	Patience = int64(60e9)
	// breakAfter is how many callouts fail in a row before the breaker opens.
	breakAfter = 3
)

// Read loads the state that other workers have written. nodes is how many processes share the limits; 0 if
// unknown.
func (l *Link) Read() (nodes uint64) {
	value, _ := l.record.Read(nil)
	l.take(value)
	return uint64(l.shared.nodes)
}

// take takes in the value of the record; other values than those of its size tell nothing.
func (l *Link) take(value []byte) {
	if len(value) != linkSize {
		return
	}
	l.shared = sharedLink{
		offset:    int64(binary.LittleEndian.Uint64(value)),
		nodes:     binary.LittleEndian.Uint32(value[8:]),
		failures:  binary.LittleEndian.Uint32(value[12:]),
		retryAt:   int64(binary.LittleEndian.Uint64(value[16:])),
		countedAt: int64(binary.LittleEndian.Uint64(value[24:])),
		aloneAt:   int64(binary.LittleEndian.Uint64(value[32:])),
		peak:      binary.LittleEndian.Uint32(value[40:]),
	}
	if l.seen == 0 {
		l.offset = l.shared.offset
	}
}

// update changes the shared state, and reports whether change made a change and this worker wrote
// it.
func (l *Link) update(change func(r *sharedLink) bool) bool {
	var next sharedLink
	written := l.record.Update(nil, func(value []byte) ([]byte, bool) {
		l.take(value)
		if next = l.shared; !change(&next) {
			return nil, false
		}
		value = make([]byte, 0, linkSize)
		value = binary.LittleEndian.AppendUint64(value, uint64(next.offset))
		value = binary.LittleEndian.AppendUint32(value, next.nodes)
		value = binary.LittleEndian.AppendUint32(value, next.failures)
		value = binary.LittleEndian.AppendUint64(value, uint64(next.retryAt))
		value = binary.LittleEndian.AppendUint64(value, uint64(next.countedAt))
		value = binary.LittleEndian.AppendUint64(value, uint64(next.aloneAt))
		return binary.LittleEndian.AppendUint32(value, next.peak), true
	})
	if written {
		l.shared = next
	}
	return written
}

// Heard reports whether the backend has answered this worker.
func (l *Link) Heard() bool { return l.seen != 0 }

// ToBackend converts a time of the host's clock to the backend's.
func (l *Link) ToBackend(hostNow int64) int64 { return hostNow + l.offset }

// ToHost converts a time of the backend's clock to the host's.
func (l *Link) ToHost(now int64) int64 { return now - l.offset }

// Reach says whether the backend can be reached, as far as is known.
type Reach uint8

const (
	// Near means that it can.
	Near Reach = iota
	// Doubtful means that the breaker is open, and that it is time to test whether the backend is back.
	Doubtful
	// Away means that the breaker is open, and that no callout is worth waiting for.
	Away
)

// Reach says whether the backend can be reached.
func (l *Link) Reach() Reach {
	switch {
	case !l.Open():
		return Near
	case l.retryable(l.HostNow()):
		return Doubtful
	}
	return Away
}

// Open reports whether the breaker is open.
func (l *Link) Open() bool { return l.shared.failures >= breakAfter }

// retryable reports whether the last pause is over, or its end comes from a wrong clock.
func (l *Link) retryable(now int64) bool {
	return now >= l.shared.retryAt || l.shared.retryAt-now > 2*jitter.LongestPause
}

// Enter reports whether a callout may be made now. While the breaker is open, a single callout is
// made after each pause, to test whether the backend is back. It ends within the timeout, and no
// other is made meanwhile.
func (l *Link) Enter() bool {
	if l.Read(); !l.Open() {
		return true
	}
	now := l.HostNow()
	return l.update(func(r *sharedLink) bool {
		if r.failures >= breakAfter && !l.retryable(now) {
			return false
		}
		r.retryAt, r.countedAt = now+l.Timeout, now
		return true
	})
}

// Failed takes in how a callout failed. If the breaker is open, or opens now, the host hears of it, and in any
// case of a refusal, which is none of the link's failures.
func (l *Link) Failed(why Outcome, sentAt int64) {
	if why == PushRefused || l.failed(l.HostNow(), sentAt) {
		l.turn(why)
	}
}

// failed counts a failed callout. open reports whether the breaker was open, or opened now.
func (l *Link) failed(now, sentAt int64) (open bool) {
	return l.update(func(r *sharedLink) bool {
		if r.failures >= breakAfter && sentAt < r.countedAt {
			return false
		}
		r.failures++
		if r.countedAt = now; r.failures >= breakAfter {
			r.retryAt = now + l.Random.Pause(int(r.failures-breakAfter))
		}
		return true
	}) && l.Open()
}

// Answered takes in an answer that came now: the backend's time, the number of nodes, and that the backend
// is there. late says that the backend may have delayed it. known is [Link.Read]'s number.
func (l *Link) Answered(late bool, sent, backend int64, nodes uint64) (known uint64) {
	if now := l.HostNow(); late {
		l.seeLate(sent, now, backend)
	} else {
		l.see(sent, now, backend)
	}
	if l.reached(nodes) {
		l.turn(PushAnswered)
	}
	return uint64(l.shared.nodes)
}

// reached takes in that the backend is there. closed reports whether this closed the breaker.
func (l *Link) reached(nodes uint64) (closed bool) {
	count := uint32(max(1, min(nodes, 1<<31)))
	drift := l.offset - l.shared.offset
	if l.shared.failures == 0 && l.shared.nodes == count && drift < clockDrift && -drift < clockDrift {
		return false
	}
	return l.update(func(r *sharedLink) bool {
		closed = r.failures >= breakAfter
		if drift := l.offset - r.offset; drift >= clockDrift || -drift >= clockDrift {
			r.offset = l.offset
		}
		r.nodes, r.failures, r.retryAt, r.countedAt = count, 0, 0, 0
		r.peak = max(r.peak, count)
		return true
	}) && closed
}

// aloneSlack is by how much [sharedLink.aloneAt] may be too early, which saves writes.
const aloneSlack = int64(1e9)

// PassedAlone records that a request has passed without the backend. Its hits count for at most
// lasts.
func (l *Link) PassedAlone(now, lasts int64) {
	if age := now - l.shared.aloneAt; l.shared.aloneAt != 0 && age < aloneSlack && -age < lasts {
		return
	}
	l.update(func(r *sharedLink) bool {
		if !r.countsAlone(now, lasts) {
			r.aloneAt, r.peak = now, r.nodes
		}
		r.aloneAt = max(r.aloneAt, now)
		return true
	})
}

// CountsAlone reports whether hits that passed without the backend may still count, each of them for at
// most lasts, and the most nodes known of while they were counted.
func (l *Link) CountsAlone(now, lasts int64) (peak uint64, counts bool) {
	return uint64(l.shared.peak), l.shared.countsAlone(now, lasts)
}

// countsAlone reports whether hits that passed without the backend may still count: each counts for
// at most lasts. If the clock went back, their time lies ahead.
func (r *sharedLink) countsAlone(now, lasts int64) bool {
	age := now - r.aloneAt
	return r.aloneAt != 0 && -lasts < age && age-aloneSlack < lasts
}

// see takes in the time in an answer. The backend read its clock at some moment of the round trip,
// so an offset below half of the round trip says nothing.
func (l *Link) see(sent, received, backend int64) {
	trip := received - sent
	if trip < 0 || trip > l.trip && l.seen != 0 && received-l.seen < Patience && received >= l.seen {
		return
	}
	l.trip, l.seen = trip, received
	if l.offset = backend - sent - trip/2; -l.offset <= trip/2 && l.offset <= trip/2 {
		l.offset = 0
	}
}

// seeLate takes in the time in an answer that the backend may have delayed. It only shows whether a
// clock was set meanwhile; if so, the next answer is believed in any case.
func (l *Link) seeLate(sent, received, backend int64) {
	if received-sent <= min(l.Timeout, jitter.LongestPause) {
		l.see(sent, received, backend)
	} else if at := backend - l.offset; at < sent || at > received {
		l.seen = 0
	}
}

// Now is the time by the backend's clock if that is known, in nanoseconds.
//
//go:noinline
func (l *Link) Now() int64 { return l.HostNow() + l.offset }

// HostNow is the time by the host's clock.
//
//go:noinline
func (l *Link) HostNow() int64 { return l.clock.Now() }

// turnsApart is the least time between two bad outcomes that a host is told of, in nanoseconds. A
// backend that comes and goes would fill its log.
const turnsApart = int64(10e9)

// turn tells the host how pushes end after a failure or an answer, unless another node of the
// process has.
func (l *Link) turn(why Outcome) {
	if l.turned != nil && l.turns(why, l.HostNow()) {
		l.turned(why)
	}
}

// outcomeSize is the size of an outcome and of the time when the host heard of it, in bytes.
const outcomeSize = 2 + 8

// turns reports whether this process's host is to hear of an outcome, and records that it has.
func (l *Link) turns(why Outcome, now int64) bool {
	// A backend that is away refuses connections at one time and misses answers at another.
	if why >= 500 {
		why = PushLost
	}
	return l.hosts.Update(nil, func(value []byte) ([]byte, bool) {
		before, apart := PushAnswered, true
		if len(value) == outcomeSize {
			before = Outcome(binary.LittleEndian.Uint16(value))
			ago := now - int64(binary.LittleEndian.Uint64(value[2:]))
			apart = ago < 0 || ago >= turnsApart
		}
		if why == before || why != PushAnswered && !apart {
			return nil, false
		}
		value = binary.LittleEndian.AppendUint16(make([]byte, 0, outcomeSize), uint16(why))
		return binary.LittleEndian.AppendUint64(value, uint64(now)), true
	})
}

// Outcome says how a push ended. Values from 100 on are the status of a response that was not an
// answer: the push may or may not have arrived.
type Outcome uint16

const (
	// PushLost means that there was no response: the push may or may not have arrived.
	PushLost Outcome = iota
	// PushRefused means that the backend will never accept the push.
	PushRefused
	// PushAnswered means that the push was answered.
	PushAnswered
	// PushUnsent means that the push was not sent. Only nodes use it, never hosts.
	PushUnsent
	// PushGarbled means that the answer was malformed. Only nodes use it, never hosts.
	PushGarbled
)
