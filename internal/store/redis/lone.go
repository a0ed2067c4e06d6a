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
	return !slices.ContainsFunc(a.counters, func(h *held) bool { return h.exact || !h.changed || h.drops(a.calendar.Span(h.LimitCounter).Kept) })
}

// drops reports whether windows that were seen have to go.
func (h *held) drops(kept uint64) bool {
	return slices.ContainsFunc(h.seen.contents.Windows, func(w store.Window) bool { return w.Number < kept })
}

// others visits the seen windows that are not named.
func (h *held) others(visit func(w store.Window)) {
	for _, w := range h.seen.contents.Windows {
		if !slices.Contains(h.named, w.Number) {
			visit(w)
		}
	}
}

// loneArguments sets the keys and arguments that lone.lua describes.
func (a *attempt) loneArguments(fresh int) {
	of := a.noted[0]
	part := strconv.FormatUint(of.p.Sequence, 10)
	a.script, a.keys = loneScript, append(make([]string, 0, len(a.counters)+2), of.b.sender)
	a.args = add(make([]any, 0, 16), lone{a.micros, part, of.p.Floor, a.grants(part, of.b), min(fresh, 1000), len(a.counters)})
	var alike one // those before that have the same
	for i, h := range a.counters {
		m := one{Life: life(a.calendar, h.expires), Window: h.named[0]}
		m.Most, m.Hits = h.addition(m.Window, m.Window)
		if len(h.named) > 1 {
			m.Before = strconv.FormatUint(h.named[1], 10)
			m.MostBefore, _ = h.addition(h.named[1], m.Window)
		}
		h.others(func(store.Window) { m.Others++ })
		if m.Count = alike.Count; m != alike && i > 0 {
			a.args, m.Count = add(a.args, alike), 0
		}
		m.Count++
		a.keys, alike = append(a.keys, h.key), m
	}
	a.keys, a.args = append(a.keys, a.fleetKeys()...), add(a.args, alike)
}

// hearLone applies the reply of lone.lua.
func (a *attempt) hearLone(reply []any, sent, received time.Duration) error {
	if len(reply) == 0 {
		return errReply
	}
	micros, timed := reply[0].(int64)
	if !timed {
		return errReply
	}
	reply = reply[1:]
	a.clock.hear(micros, sent, received)
	of := a.noted[0]
	if a.written = true; a.micros != "" {
		of.out.Answer.NowNanos = uint64(micros) * 1000
	}
	a.group.c.noted.put(of.b.sender, of.noted, 1)
	for _, h := range a.counters {
		if len(reply) < len(h.named) {
			return errReply
		}
		hits, counted := reply[0].(int64)
		if !counted {
			return errReply
		}
		var is []string // in the order in which they were most likely added
		h.others(func(w store.Window) {
			is = append(is, strconv.FormatUint(w.Number, 10), strconv.FormatInt(w.Hits, 10))
		})
		if len(h.named) > 1 {
			if earlier, there := reply[1].(string); there {
				is = append(is, strconv.FormatUint(h.named[1], 10), earlier)
			}
		}
		h.added(a, append(is, strconv.FormatUint(h.named[0], 10), strconv.FormatInt(hits, 10)))
		reply = reply[len(h.named):]
	}
	a.shift()
	return nil
}
