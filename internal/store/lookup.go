package store

import (
	"slices"

	"weir/internal/wire"
	"weir/window"
)

// Standing returns how a counter stands at the clock's time, by a limit with this number of hits
// and a burst for kinds that burst. If the limit is unknown, pass a number above all counts: then
// used is right, and the remaining hits are not.
func (c Calendar) Standing(of *LimitCounter, limit, burst uint64) (used uint64, standing window.Standing) {
	contents := Contents{Limit: of.Limit, Windows: slices.Clone(of.Windows)}
	slices.SortFunc(contents.Windows, NewestFirst)
	room := wire.Room{LimitCounter: of.LimitCounter, Limit: limit, Burst: burst}
	item := c.RoomItem(&room, 0)
	total := c.Total(&contents, &item)
	l, state := c.state(&room, &total)
	standing = l.Standing(&state, int64(c.NowNanos))
	// If the limit was lowered, hits above it are used too.
	above := l
	above.Max, above.Burst = window.MaxLimit, window.MaxLimit
	if l.Kind.Refills() {
		above.Max = l.Max // it determines when tokens come back
	}
	return above.Quota() - above.Remaining(&state), standing
}

// GiveBack returns the items to push so that a counter has room for that number of further hits at
// the clock's time. They take back the newest hits first, or all hits if hits is wire.MaxHits. Hits
// that are counted afterwards stay. A block is only lifted together with all hits. Without counted
// hits there are no items.
func (c Calendar) GiveBack(of *LimitCounter, hits uint64) (items []wire.Item) {
	kind := window.Kind(of.Kind)
	if kind.Blocks() && hits < wire.MaxHits {
		return nil // room does not end a block
	}
	current := NumberAt(of.LimitCounter, c.NowNanos)
	add := func(number uint64, hits int64) {
		item := wire.Item{LimitCounter: of.LimitCounter, Limit: of.Limit, Newest: number, Hits: []int64{-hits}}
		if kind.Bucketed() {
			item.Ages = []uint64{0}
			// With a lower limit, a log would be cut down to it.
			item.Limit = wire.MaxHits
			if last := len(items) - 1; last >= 0 && len(items[last].Hits) < wire.MaxBuckets {
				items[last].Hits = append(items[last].Hits, -hits)
				items[last].Ages = append(items[last].Ages, items[last].Newest-number)
				return
			}
		}
		items = append(items, item)
	}
	if kind.Refills() {
		if len(of.Windows) > 0 {
			add(c.NowNanos, int64(min(hits, uint64(of.Windows[0].Hits))))
		}
		return items
	}
	windows := slices.Clone(of.Windows)
	slices.SortFunc(windows, NewestFirst)
	left := hits
	for _, w := range windows {
		if w.Hits <= 0 || left == 0 {
			continue
		}
		given := uint64(w.Hits)
		if kind == window.SlidingWindow && w.Number < current && hits != wire.MaxHits {
			// Only a share of the previous window counts, rounded up. The most hits stay whose share leaves the room.
			width := widthNanos(of.LimitCounter)
			weight := width - c.NowNanos%width
			stays, _, _ := window.MulDiv(window.SaturatingSub(window.MulDivUp(given, weight, width), left), width, weight)
			given -= min(given, stays)
			left = 0
		} else {
			given = min(given, left)
			left -= given
		}
		add(w.Number, int64(given))
	}
	return items
}
