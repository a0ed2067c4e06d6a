package redis

import (
	"cmp"
	_ "embed"
	"slices"
	"strconv"
	"time"

	"weir/internal/store"
	"weir/window"
)

//go:embed lone.lua
var loneNamed string

var loneScript = newScript(loneNamed)

// alone reports whether lone.lua may write an attempt: the first for a push whose takes get all that they ask for, and whose
// hits are of one window of each counter, in windows of the clock. Its sender's record lives on. Or the push only reads.
// Whenever lone.lua finds more to do, commit.lua writes.
func (a *attempt) alone() bool {
	if a.group.c.plain || a.group.tries > 1 || len(a.group.all) > 1 || len(a.again)+len(a.claims) > 0 || a.lists {
		return false
	}
	one := a.group.all[0]
	if len(a.noted) == 0 && (len(a.counters) == 0 || one.b.word || one.b.state != stateApplied) || len(a.noted) > 0 && a.senderLife(one) > 0 {
		return false
	}
	if len(one.b.takes) > 0 && one.p.Sequence-one.p.Floor >= fewPushes {
		return false // the sender may have too many grants
	}
	// A sliding window is near its limit by the sum of windows, of which lone.lua does not read all.
	return !slices.ContainsFunc(a.counters, func(h *held) bool {
		return !h.alone(a.calendar) || a.fleet != noFleet && h.Kind != uint8(window.FixedWindow)
	})
}

// alone reports whether lone.lua may write a counter.
func (h *held) alone(c store.Calendar) bool {
	kept := c.Span(h.LimitCounter).Kept
	if h.exact || len(h.named) > 2 || h.changed && h.drops(kept) || slices.Min(h.named) < kept {
		return false
	}
	if len(h.named) > 1 && h.adds(h.named[1]) != 0 {
		h.named[0], h.named[1] = h.named[1], h.named[0]
		return h.adds(h.named[1]) == 0
	}
	return true
}

// adds is how many hits are added to a window.
func (h *held) adds(number uint64) int64 {
	return h.contents.HitsOf(number) - h.seen.contents.HitsOf(number)
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
	of, sequence, part := a.group.all[0], "", ""
	if len(a.noted) > 0 {
		sequence, part = of.part()
	}
	a.script, a.keys = loneScript, append(make([]string, 0, len(a.counters)+2), of.b.sender)
	a.args = add(make([]any, 0, 32), lone{a.micros, sequence, of.p.Floor, part, a.grants(part, of.b), min(fresh, 1000), len(a.counters), a.fleet != noFleet})
	a.fleetArguments(nil)
	// Those with as many hits follow each other, so more are alike.
	slices.SortStableFunc(a.counters[fresh:], func(g, h *held) int { return cmp.Compare(g.adds(g.named[0]), h.adds(h.named[0])) })
	var alike one // those before that have the same
	for i, h := range a.counters {
		m := one{Window: h.named[0]}
		if h.changed {
			m.Life = life(a.calendar, h.expires)
		}
		current := store.NumberAt(h.LimitCounter, a.calendar.NowNanos)
		m.Most, m.Hits = h.addition(m.Window, current)
		if len(h.named) > 1 {
			m.Before = strconv.FormatUint(h.named[1], 10)
			m.MostBefore, _ = h.addition(h.named[1], current)
		}
		h.others(func(store.Window) { m.Others++ })
		if m.Count = alike.Count; m != alike && i > 0 {
			a.args, m.Count = add(a.args, alike), 0
		}
		m.Count++
		a.keys, alike = append(a.keys, h.key), m
	}
	fleet := a.fleetKeys()
	a.keys, a.args = append(a.keys, fleet[:min(1, len(fleet))]...), add(a.args, alike)
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
	of := a.group.all[0]
	if a.written = true; a.micros != "" {
		of.out.Answer.NowNanos = uint64(micros) * 1000
	}
	if len(a.noted) > 0 {
		a.group.c.noted.put(of.b.sender, of.noted, 1)
	}
	for _, h := range a.counters {
		if len(reply) < len(h.named) {
			return errReply
		}
		hits, counted := reply[0].(int64)
		if !counted {
			return errReply
		}
		e := &entry{limitless: true}
		windows := make([]store.Window, 0, len(h.named)+len(h.seen.contents.Windows))
		if hits > 0 || h.changed {
			windows = append(windows, store.Window{Number: h.named[0], Hits: hits})
		}
		if len(h.named) > 1 {
			if earlier, there := reply[1].(string); there {
				hits, ok := integer(earlier)
				if e.broken = !ok; ok {
					windows = append(windows, store.Window{Number: h.named[1], Hits: hits})
				}
			}
		}
		h.others(func(w store.Window) { windows = append(windows, w) })
		slices.SortFunc(windows, store.NewestFirst)
		e.contents.Windows = windows
		h.added(a, e)
		reply = reply[len(h.named):]
	}
	a.shift()
	return a.hearWords([]any{int64(0)})
}
