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

// alone reports whether lone.lua may write an attempt: the first for a push whose takes get all that they ask for in windows of
// the clock. Its sender's record lives on. Whenever lone.lua finds more to do, commit.lua writes.
func (a *attempt) alone() bool {
	if a.group.c.plain || a.group.tries > 1 || len(a.group.all) > 1 || len(a.noted) == 0 || a.fleet != noFleet {
		return false
	}
	if one := a.noted[0]; len(one.b.items) > 0 || one.b.number > 0 || a.senderLife(one) > 0 {
		return false
	}
	return !slices.ContainsFunc(a.counters, func(h *held) bool { return h.exact || !h.changed || !h.stays(a.calendar.Span(h.LimitCounter).Kept) })
}

// stays reports whether a counter keeps all windows that were seen, and has no others than those that are named if the newest
// is new.
func (h *held) stays(kept uint64) bool {
	seen := h.seen.contents.Windows
	return !slices.ContainsFunc(seen, func(w store.Window) bool { return w.Number < kept }) &&
		(has(seen, h.named[0]) || !slices.ContainsFunc(seen, func(w store.Window) bool { return !slices.Contains(h.named, w.Number) }))
}

// loneArguments sets the keys and arguments that lone.lua describes.
func (a *attempt) loneArguments(fresh int) {
	of := a.noted[0]
	part := strconv.FormatUint(of.p.Sequence, 10)
	a.script, a.keys = loneScript, append(make([]string, 0, len(a.counters)+2), of.b.sender)
	a.args = add(make([]any, 0, 5+6*len(a.counters)), lone{a.micros, part, of.p.Floor, a.grants(part, of.b), min(fresh, 1000)})
	for _, h := range a.counters {
		m := one{Life: life(a.calendar, h.expires), Window: h.named[0]}
		m.Most, m.Hits = h.addition(m.Window, m.Window)
		if len(h.named) > 1 {
			m.Before = strconv.FormatUint(h.named[1], 10)
			m.MostBefore, _ = h.addition(h.named[1], m.Window)
		}
		a.keys, a.args = append(a.keys, h.key), add(a.args, m)
	}
	a.keys = append(a.keys, a.fleetKeys()...)
}

// hearLone applies the reply of lone.lua.
func (a *attempt) hearLone(reply []any, sent, received time.Duration) error {
	if len(reply) != 1+2*len(a.counters) {
		return errReply
	}
	micros, timed := reply[0].(int64)
	if !timed {
		return errReply
	}
	a.clock.hear(micros, sent, received)
	of := a.noted[0]
	if a.written = true; a.micros != "" {
		of.out.Answer.NowNanos = uint64(micros) * 1000
	}
	a.group.c.noted.put(of.b.sender, of.noted, 1)
	for i, h := range a.counters {
		hits, counted := reply[1+2*i].(int64)
		if !counted {
			return errReply
		}
		var is []string // in the order in which they were most likely added
		if earlier, there := reply[2+2*i].(string); there {
			is = append(is, strconv.FormatUint(h.named[1], 10), earlier)
		}
		is = append(is, strconv.FormatUint(h.named[0], 10), strconv.FormatInt(hits, 10))
		for _, w := range h.seen.contents.Windows {
			if !slices.Contains(h.named, w.Number) {
				is = append(is, strconv.FormatUint(w.Number, 10), strconv.FormatInt(w.Hits, 10))
			}
		}
		h.added(a, is)
	}
	a.shift()
	return nil
}
