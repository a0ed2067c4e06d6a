package redis

import (
	_ "embed"
	"slices"
	"strconv"
	"time"

	"weir/internal/store"
)

//go:embed lone.lua
var loneNamed string

var loneScript = newScript(loneNamed)

// alone returns the only counter of an attempt that lone.lua may write: the first for a push whose takes get all that they ask
// for in windows of the clock. Its sender's record lives on, and the sender has all earlier answers. Otherwise, and whenever
// lone.lua finds more to do, commit.lua writes.
func (a *attempt) alone() *held {
	if a.group.c.plain || a.group.tries > 1 || len(a.group.all) > 1 || len(a.noted) == 0 || len(a.counters) != 1 || a.fleet != noFleet {
		return nil
	}
	one, h := a.noted[0], a.counters[0]
	if len(one.b.items) > 0 || len(one.b.takes) == 0 || one.b.number > 0 || one.p.Floor != one.p.Sequence || h.exact || !h.changed || a.senderLife(one) > 0 {
		return nil
	}
	kept, seen := a.calendar.Span(h.LimitCounter).Kept, h.seen.contents.Windows
	if slices.ContainsFunc(seen, func(w store.Window) bool { return w.Number < kept }) {
		return nil // these go
	}
	if !has(seen, h.named[0]) && slices.ContainsFunc(seen, func(w store.Window) bool { return !slices.Contains(h.named, w.Number) }) {
		return nil // only what is named may be there
	}
	return h
}

// loneArguments sets the keys and arguments that lone.lua describes.
func (a *attempt) loneArguments() {
	one, h := a.noted[0], a.lone
	a.script, a.keys = loneScript, append(append(make([]string, 0, 3), one.b.sender, h.key), a.fleetKeys()...)
	part := strconv.FormatUint(one.p.Sequence, 10)
	m := lone{Decided: a.micros, Sequence: part, Granted: a.grants(part, one.b), SenderLife: -a.senderLife(one), Life: life(a.calendar, h.expires), Window: h.named[0]}
	m.Most, m.Hits = h.addition(m.Window, m.Window)
	if len(h.named) > 1 {
		m.Before = strconv.FormatUint(h.named[1], 10)
		m.MostBefore, _ = h.addition(h.named[1], m.Window)
	}
	a.args = add(make([]any, 0, 10), m)
}

// hearLone applies the reply of lone.lua.
func (a *attempt) hearLone(reply []any, sent, received time.Duration) error {
	if len(reply) != 3 {
		return errReply
	}
	micros, timed := reply[0].(int64)
	hits, counted := reply[1].(int64)
	if !timed || !counted {
		return errReply
	}
	a.clock.hear(micros, sent, received)
	one, h := a.noted[0], a.lone
	if a.written = true; a.micros != "" {
		one.out.Answer.NowNanos = uint64(micros) * 1000
	}
	a.group.c.noted.put(one.b.sender, one.noted, 1)
	var is []string // in the order in which they were most likely added
	if earlier, there := reply[2].(string); there {
		is = append(is, strconv.FormatUint(h.named[1], 10), earlier)
	}
	is = append(is, strconv.FormatUint(h.named[0], 10), strconv.FormatInt(hits, 10))
	for _, w := range h.seen.contents.Windows {
		if !slices.Contains(h.named, w.Number) {
			is = append(is, strconv.FormatUint(w.Number, 10), strconv.FormatInt(w.Hits, 10))
		}
	}
	h.added(a, is)
	a.shift()
	return nil
}
