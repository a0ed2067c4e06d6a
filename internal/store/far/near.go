package far

import (
	"math"

	"weir/internal/store"
	"weir/internal/wire"
	"weir/window"
)

// Key is a key in the list: it is near the limit with a name in the window with a number, or in all windows that slide,
// with the number 0. With Full set it was full in the window.
type Key struct {
	Limit  uint64
	ID     wire.ID
	Number uint64
	Full   bool
}

// Key is a key in the present window.
func (l *Limit) Key(id wire.ID, now uint64) Key {
	k := Key{Limit: l.Name(), ID: id}
	if l.Renews() {
		k.Number = store.NumberAt(l.Shape, now)
	}
	return k
}

// Sent is the form in which senders know the key.
func (k *Key) Sent() uint32 {
	if k.Full {
		return wire.NearKey(k.ID, wire.NearFull(k.Limit, k.Number))
	}
	return wire.NearKey(k.ID, wire.NearWindow(k.Limit, k.Number))
}

// Near has note take each window in which a counter is near a limit, and returns how many more hits the counter can have
// until it is near in another.
//
// Without spare keys some requests wait or are refused falsely. These are full keys, and keys that have used up most of
// their limit in the time in which senders hear that a key is near: they may use up that of the next window in it, too.
// note tells since when half of the limit was used.
func (l *Limit) Near(id wire.ID, c *store.Contents, at store.Calendar, note func(k Key, spare bool) (since uint64)) (far uint64) {
	from, key := wire.NearFrom(l.Max), Key{Limit: l.Name(), ID: id}
	if !l.Renews() {
		used := at.Used(c, l.Shape)
		if used >= from {
			note(key, false)
			return wire.MaxHits
		}
		return from - 1 - used
	}
	far = from - 1
	oldest := store.NumberAt(l.Shape, before(at).NowNanos)
	for _, w := range c.Windows {
		hits := uint64(max(0, w.Hits))
		if w.Number < oldest {
			continue
		}
		if hits < from {
			far = min(far, from-1-hits)
			continue
		}
		key.Number = w.Number
		since := note(key, false)
		if hits >= l.Max-l.Max/8 && at.NowNanos-min(at.NowNanos, since) < min(l.Shape.WidthMillis*1e6/20*3, hearing) {
			next := key
			next.Number++
			note(next, true)
		}
		if hits >= l.Max {
			full := key
			full.Full = true
			note(full, true)
		}
	}
	return far
}

// before is the time of the senders whose clocks are behind most.
func before(at store.Calendar) store.Calendar {
	return store.Calendar{NowNanos: at.NowNanos - min(at.NowNanos, ClockSlack)}
}

// Far reports whether a near key is far again, for all senders, and how many more hits its counter can have until it is
// not.
func (l *Limit) Far(k Key, c *store.Contents, at store.Calendar) (far bool, spare uint64) {
	if l.Renews() {
		return k.Number < store.NumberAt(l.Shape, before(at).NowNanos), wire.MaxHits
	}
	most, used := wire.NearFrom(l.Max)/4*3, max(at.Used(c, l.Shape), before(at).Used(c, l.Shape))
	if used >= most {
		return false, wire.MaxHits
	}
	return true, most - 1 - used
}

// Owing is the time of last answers from which on silent senders may have advanced hits that count now: their parts may
// end in the present window, or in the one before if windows slide. Answers were noted late by at most so much.
func (l *Limit) Owing(now, late uint64) uint64 {
	begins, ago := store.StartNanos(l.Shape, store.NumberAt(l.Shape, now)), uint64(wire.PartLife)+ClockSlack+late
	if window.Kind(l.Shape.Kind) == window.SlidingWindow {
		ago += l.Shape.WidthMillis * 1e6
	}
	return begins - min(begins, ago)
}

// Left is how many hits of a key senders may have advanced that may not know that the key is near, by whether the
// senders are live or silent.
type Left struct{ Live, Silent uint64 }

// Leave returns how many hits a room must leave for senders that may have advanced them, and how many of these silent
// senders may have, which no other sender can get. The room's counter can have after hits; spare is how many more it can
// have until more is left. left tells what senders may have advanced by a limit of a key, for a rule that is listed since
// a version.
//
// Senders may use several limits for a key, as when plans change: no more than the largest of them passes. So hits
// advanced by a larger limit than the room's have what it is larger by.
func (f *List) Leave(room *wire.Room, after, now uint64, left func(l *Limit, k Key, since uint64) Left) (hits, silent, spare uint64) {
	spare = wire.MaxHits
	for i := range f.Limits {
		l := &f.Limits[i]
		if !l.Listed && l.Unlisted == 0 || !l.IsOf(room.LimitCounter) {
			continue
		}
		since := uint64(0) // rooms of old senders have no tag
		if room.Tag != 0 {
			r := l.rule(room.Tag)
			if r == nil {
				continue
			}
			since = r.Since
		}
		if near := wire.NearFrom(l.Max); after < near {
			spare = min(spare, near-1-after)
			continue
		}
		larger, kept := l.Max-min(l.Max, room.Limit), left(l, l.Key(room.ID, now), since)
		all := kept.Live + kept.Silent
		hits, silent = max(hits, all-min(all, larger)), max(silent, kept.Silent-min(kept.Silent, larger))
	}
	return hits, silent, spare
}

// HeardFrom is the first version of the list by which senders advance no hits of a key, for a rule that is listed since a
// version. The key is near since another, 0 if it is not. The script of Redis has this, too.
func (l *Limit) HeardFrom(since, near uint64) uint64 {
	switch {
	case !l.Listed:
		return l.Unlisted
	case near == 0:
		return math.MaxUint64 // nobody has heard of it yet
	case near >= since:
		return near
	}
	return l.Unlisted // all senders that know the rule also know that the key is near
}

// Take returns a take whose rooms leave hits. It is the take itself if they leave none. leave is asked of each room,
// which may give most hits.
func Take(take *wire.Take, leave func(i int, most uint64) uint64) *wire.Take {
	less := take
	for i := range take.Rooms {
		room := &take.Rooms[i]
		most, _ := store.Product(take.Most, room.Cost)
		hits := leave(i, most)
		if hits == 0 {
			continue
		}
		if less == take {
			copied := *take
			copied.Rooms = append([]wire.Room(nil), take.Rooms...)
			less = &copied
		}
		less.Rooms[i].Limit -= min(room.Limit, hits)
	}
	return less
}

// Refuse counts hits that silent senders may have advanced as used in the answer to a refused take. Otherwise its sender
// would see room, and ask for each request until the window ends. Windows of other kinds don't need it: senders ask for
// them as they fill.
func Refuse(take *wire.Take, g *wire.Grant, silent func(i int) uint64) {
	if g.Units > 0 {
		return
	}
	for i, room := range take.Rooms {
		if window.Kind(room.Kind) != window.FixedWindow || len(g.Totals[i].Hits) == 0 {
			continue
		}
		used := &g.Totals[i].Hits[0]
		*used = max(*used, min(*used+silent(i), room.Limit))
	}
}
