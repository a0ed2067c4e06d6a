package store

import "weir/internal/wire"

// firstHit is the algorithm of a window that starts with its first hit.
type firstHit struct{}

// FirstHit returns the start of the first-hit window that a proxy saw begin at start. It returns
// false if that window has ended, or begins more than 10 minutes and two widths ahead, which can't
// be right.
//
// No hit can be later than now, so a window that seems to begin later begins now. Two windows that
// overlap become one, from the earlier of their starts. A single node would have seen the same.
func (c Calendar) FirstHit(of wire.LimitCounter, start uint64) (uint64, bool) {
	if c.tooFar(of, start) {
		return 0, false
	}
	start = min(start, c.NowNanos)
	return start, start+widthNanos(of) > c.NowNanos
}

func (firstHit) add(c Calendar, r *Contents, item *wire.Item, out *Outcome) (expires uint64, changed bool) {
	hits := item.Hits[0]
	if hits == 0 {
		return 0, false
	}
	start, ok := c.FirstHit(item.LimitCounter, item.Newest)
	live, lives := c.firstHit(r.Windows, item.LimitCounter)
	if !ok || hits < 0 && live.Hits == 0 {
		out.Count(hits, false)
		return 0, false
	}
	expires = ExpiresNanos(item.LimitCounter, start)
	switch {
	case !lives:
		live.Number = start
	case hits > 0: // hits that go back move no start
		live.Number = min(start, live.Number)
	}
	r.Windows = append(r.Windows[:0], Window{Number: live.Number, Hits: out.Add(live.Hits, hits)})
	return expires, true
}

// firstHit returns the counter's window that has not ended.
func (c Calendar) firstHit(windows []Window, of wire.LimitCounter) (Window, bool) {
	if len(windows) == 0 {
		return Window{}, false
	}
	if _, ok := c.FirstHit(of, windows[0].Number); !ok {
		return Window{}, false
	}
	return windows[0], true
}

func (firstHit) total(c Calendar, r *Contents, item *wire.Item) wire.Total {
	t := wire.Total{Newest: item.Newest, Hits: []uint64{0}}
	if live, ok := c.firstHit(r.Windows, item.LimitCounter); ok {
		t.Newest, t.Hits[0] = live.Number, uint64(live.Hits)
	}
	return t
}

func (firstHit) counts(c Calendar, of *LimitCounter, w Window) bool {
	_, ok := c.FirstHit(of.LimitCounter, w.Number)
	return ok
}

func (firstHit) used(c Calendar, r *Contents, of wire.LimitCounter) uint64 {
	live, ok := c.firstHit(r.Windows, of)
	if !ok {
		return 0
	}
	return uint64(live.Hits)
}

func (firstHit) settled(c Calendar, item *wire.Item) uint64 {
	if _, ok := c.FirstHit(item.LimitCounter, item.Newest); !ok {
		return c.NowNanos
	}
	return ExpiresNanos(item.LimitCounter, item.Newest)
}

func (firstHit) present(c Calendar, _ *wire.Room, total *wire.Total) wire.Total {
	return wire.Total{Newest: min(total.Newest, c.NowNanos), Hits: total.Hits}
}
