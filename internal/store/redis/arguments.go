package redis

import (
	"slices"
	"strconv"

	"weir/internal/store"
	"weir/internal/wire"
	"weir/window"
)

// arguments sets the keys and arguments that commit.lua describes.
func (a *attempt) arguments() {
	g := a.group
	lock, fresh := "", 0
	marks := a.marks()
	a.lists = len(marks) > 0
	for i, h := range a.counters {
		if h.exact = h.exact || h.forgets(a.calendar); h.exact {
			lock = g.name()
		} else if h.seen == unseen {
			a.counters[fresh], a.counters[i] = h, a.counters[fresh]
			fresh++
		}
	}
	if a.lone = a.alone(); a.lone {
		a.loneArguments(fresh)
		return
	}
	a.script = commitScript
	a.keys = make([]string, 0, 2+len(g.all)+len(a.counters))
	a.args = make([]any, 0, 6+5*len(g.all)+12*len(a.counters))
	locks := lock != "" && (g.tries > lockAfter || g.tries > 1 && len(a.counters) > lockAfter)
	fleetKeys := a.fleetKeys()
	a.args = add(a.args, plan{a.micros, len(a.again) + len(a.noted), len(a.counters), lock, locks, fresh, len(fleetKeys)})
	for _, one := range a.again {
		a.keys = append(a.keys, one.b.sender)
		a.args = add(a.args, push{Life: store.SenderLife.Milliseconds()})
	}
	for _, one := range a.noted {
		sequence, part := one.part()
		a.keys = append(a.keys, one.b.sender)
		a.args = add(a.args, push{sequence, one.p.Floor, part, a.senderLife(one), a.grants(part, one.b)})
	}
	for _, h := range a.counters {
		a.keys = append(a.keys, h.key)
		switch {
		case h.Shape().IsLog():
			a.args = h.log(a.args, a.calendar)
		case h.exact:
			a.args = h.hash(a.args, a.calendar)
		default:
			a.args = h.additions(a.args, a.calendar)
		}
	}
	a.fleetArguments(marks)
	a.keys = append(a.keys, fleetKeys...)
	if lock != "" {
		a.keys = append(a.keys, g.c.store.keys.lock(g.all[0].p.Namespace, g.all[0].b.partition))
	} else if len(a.keys) == 0 {
		a.keys = append(a.keys, g.all[0].b.sender)
	}
}

// part is the name of a batch in its sender's record, with its push's sequence.
func (one *pending) part() (sequence, part string) {
	sequence = strconv.FormatUint(one.p.Sequence, 10)
	if part = sequence; one.b.number > 0 {
		part += "+" + strconv.Itoa(one.b.number)
	}
	return sequence, part
}

// senderLife returns how long a sender's record must live, in milliseconds. It is negative if the
// record is known to live that long, unless it is new.
func (a *attempt) senderLife(one *pending) int64 {
	until := a.calendar.NowNanos + uint64(store.SenderLife) + one.p.AgainNanos()
	for _, item := range one.b.items {
		if len(item.Hits) > 0 {
			until = max(until, a.calendar.Settled(item))
		}
	}
	known, _ := a.group.c.noted.get(one.b.sender)
	one.noted = until + uint64(notedLonger)
	life := int64(millis(a.calendar, one.noted))
	if until <= known {
		one.noted = known
		return -life
	}
	return life
}

// millis returns the milliseconds until a time, rounded up.
func millis(c store.Calendar, nanos uint64) uint64 {
	return (max(nanos, c.NowNanos) - c.NowNanos + 999_999) / 1e6
}

// life is the Life of a counter that has changed, and lasts until a time.
func life(c store.Calendar, nanos uint64) string { return strconv.FormatUint(millis(c, nanos), 10) }

// log appends the arguments for a log.
func (h *held) log(args []any, calendar store.Calendar) []any {
	m := log{Form: formLog, Bytes: h.end(), Expected: h.seen.expected(), Life: unchanged}
	if h.changed {
		m.Life, m.Records = life(calendar, lasts(h.LimitCounter, h.contents.Windows)), records(h.contents.Windows)
	}
	return add(args, m)
}

// end returns how many bytes of a log's end the script reads: twice the bytes needed, because
// records may lie ahead.
func (h *held) end() int { return 2 * h.most * recordSize }

// lasts returns the time until which any of the windows can be read.
func lasts(of wire.LimitCounter, windows []store.Window) (expires uint64) {
	for _, w := range windows {
		expires = max(expires, store.ExpiresNanos(of, w.Number))
	}
	return expires
}

// hash appends the arguments for a hash that must be as it was seen.
func (h *held) hash(args []any, calendar store.Calendar) []any {
	m := hash{Form: formHash, Expected: h.seen.expected(), Life: unchanged}
	if !h.changed {
		return add(args, m)
	}
	is := make(map[string]string)
	if seen := h.seen.fields(); !h.seen.broken {
		for i := 0; i < len(seen); i += 2 {
			is[seen[i]] = seen[i+1]
		}
	}
	var set []any
	put := func(field, value string) {
		if was, there := is[field]; !there || was != value {
			set = append(set, field, value)
		}
		delete(is, field)
	}
	slices.SortFunc(h.contents.Windows, store.NewestFirst)
	for _, w := range h.contents.Windows {
		put(field(h.LimitCounter, w.Number), strconv.FormatInt(w.Hits, 10))
	}
	expires := h.expires
	if refills := window.Kind(h.Kind).Refills(); !refills {
		expires = lasts(h.LimitCounter, h.contents.Windows)
	} else if len(h.contents.Windows) > 0 {
		put(limitField, strconv.FormatUint(h.contents.Limit, 10))
	}
	m.Life, m.Anew, m.Set, m.Removed = life(calendar, expires), h.seen.broken, len(set), len(is)
	args = append(add(args, m), set...)
	for field := range is {
		args = append(args, field)
	}
	return args
}

// forgets reports whether windows disappear that additions can't remove: windows ahead, and windows
// that an item names.
func (h *held) forgets(c store.Calendar) bool {
	kept := uint64(0)
	if clocked(h.LimitCounter) {
		kept = c.Span(h.LimitCounter).Kept
	}
	return h.changed && slices.ContainsFunc(h.seen.contents.Windows, func(w store.Window) bool {
		return (w.Number >= kept || slices.Contains(h.named, w.Number)) && !has(h.contents.Windows, w.Number)
	})
}

// additions appends the arguments for a hash of windows of the clock, to which hits are added.
func (h *held) additions(args []any, calendar store.Calendar) []any {
	kept := calendar.Span(h.LimitCounter).Kept
	for _, w := range h.contents.Windows {
		// The hash may have any number of old windows, which the script removes.
		if w.Number >= kept && !slices.Contains(h.named, w.Number) {
			h.named = append(h.named, w.Number)
		}
	}
	n := len(h.named)
	m := windows{Form: formWindows, Count: n, Life: unchanged, Kept: kept}
	if h.changed {
		m.Life = life(calendar, h.expires)
	}
	args = add(args, m)
	at := len(args)
	args = slices.Grow(args, 3*n)[:at+3*n]
	current := store.NumberAt(h.LimitCounter, calendar.NowNanos)
	for i, number := range h.named {
		args[at+i] = number
		args[at+n+i], args[at+2*n+i] = h.addition(number, current)
	}
	return args
}

// addition returns the hits to add to a window, and the most that it may have had. A hit of the window before weighs less than
// a hit of the current window.
func (h *held) addition(number, current uint64) (most, hits int64) {
	was, is := h.seen.contents.HitsOf(number), h.contents.HitsOf(number)
	spare := h.spare
	if spare < wire.MaxHits && window.Kind(h.Kind).Windows() > 1 {
		if spare /= 2; number == current {
			spare = h.spare - spare
		}
	}
	return min(was+int64(spare), wire.MaxHits-(is-was)), is - was
}

func has(windows []store.Window, number uint64) bool {
	return slices.ContainsFunc(windows, func(w store.Window) bool { return w.Number == number })
}
