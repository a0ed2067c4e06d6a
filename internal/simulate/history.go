package simulate

import (
	"encoding/binary"

	"weir/internal/engine"
)

// history has all requests to a rule, by key.
type history struct {
	keys  []key
	index map[string]int32
	// last is the key of the last request.
	last int32
	// requests is the number of requests that match the rule. The rule itself refused refusedBy of
	// them, and all rules together refused.
	requests, refusedBy, refused uint64
	// waits are the times that requests waited before they had room, in nanoseconds.
	waits []int64
}

// key is a key of a rule, with all requests to it.
type key struct {
	name                string
	requests, refusedBy uint64
	hits                uint64 // the sum of all costs, responses included; at most math.MaxUint64
	newest              int64
	events              []byte
}

// event is a request, or the cost of the response to the last request, or hits that the response
// gives back.
type event struct {
	at           int64
	cost         uint64
	charge, back bool
	lasts        int64 // how long a request holds its cost, in nanoseconds
}

// An event's first number has these bits below the milliseconds since the previous event. With
// inNanos, the time is in nanoseconds instead, and follows as another number, because it may need
// all bits. With hasCost, a cost other than 1 follows. With hasLasts, the duration of the request
// follows.
const (
	inNanos = 1 << iota
	hasCost
	isCharge
	isBack
	hasLasts
	flagBits = 5
)

func newHistory() *history { return &history{index: map[string]int32{}} }

// find returns the key of a demand.
func (h *history) find(name []byte) *key {
	at, found := h.index[string(name)]
	if !found {
		at = int32(len(h.keys))
		h.keys = append(h.keys, key{name: string(name)})
		h.index[h.keys[at].name] = at
	}
	h.last = at
	return &h.keys[at]
}

// add records a demand. lasts is how long the request holds the places that it takes, if the rule
// has places.
func (h *history) add(d *engine.Check, at, lasts int64) {
	h.find(d.Key).add(event{at: at, cost: d.Cost, lasts: lasts})
}

// charge records the cost of the response to the last request. Negative hits are given back.
func (h *history) charge(hits int64) {
	k := &h.keys[h.last]
	if hits < 0 {
		k.add(event{at: k.newest, cost: uint64(-hits), back: true})
	} else {
		k.add(event{at: k.newest, cost: uint64(hits), charge: true})
	}
}

// add appends an event, which must not be earlier than the last.
func (k *key) add(e event) {
	if !e.back {
		if k.hits += e.cost; k.hits < e.cost {
			k.hits = ^uint64(0)
		}
	}
	since, flags := uint64(e.at-k.newest), uint64(0)
	k.newest = e.at
	if e.cost != 1 {
		flags |= hasCost
	}
	if e.charge {
		flags |= isCharge
	}
	if e.back {
		flags |= isBack
	}
	if e.lasts != 0 {
		flags |= hasLasts
	}
	if since%1e6 == 0 {
		k.events = binary.AppendUvarint(k.events, since/1e6<<flagBits|flags)
	} else {
		k.events = binary.AppendUvarint(k.events, flags|inNanos)
		k.events = binary.AppendUvarint(k.events, since)
	}
	if e.cost != 1 {
		k.events = binary.AppendUvarint(k.events, e.cost)
	}
	if e.lasts != 0 {
		k.events = binary.AppendUvarint(k.events, uint64(e.lasts))
	}
}

type reader struct {
	rest []byte
	at   int64
}

func (k *key) reader() reader { return reader{rest: k.events} }

// read reads events until dst is full or none is left.
func (r *reader) read(dst []event) []event {
	dst = dst[:0]
	for len(r.rest) > 0 && len(dst) < cap(dst) {
		number := r.number()
		since := number >> flagBits * 1e6
		if number&inNanos != 0 {
			since = r.number()
		}
		r.at += int64(since)
		e := event{at: r.at, cost: 1, charge: number&isCharge != 0, back: number&isBack != 0}
		if number&hasCost != 0 {
			e.cost = r.number()
		}
		if number&hasLasts != 0 {
			e.lasts = int64(r.number())
		}
		dst = append(dst, e)
	}
	return dst
}

func (r *reader) number() uint64 {
	number, n := binary.Uvarint(r.rest)
	r.rest = r.rest[n:]
	return number
}
