// Package store defines the contract of the stores that keep counters. The plugins of many proxies
// push their hits to a store, and read totals from it.
//
// Packages memory, file, redis and postgres implement [Store]. A [Calendar] has the arithmetic that
// they share, which is tested here, and package storetest tests what every store must do with it.
// Package server puts a store behind HTTP.
package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"weir/internal/wire"
	"weir/window"
)

// Store keeps counters. Its methods are safe for concurrent use.
type Store interface {
	Documents

	// Push applies a sender's hits, and answers with the totals afterwards of the windows that the
	// push names, as [Calendar.Total] has them: of buckets those that count, and of a token bucket what
	// is taken. A token bucket with another limit than that of an item or a room is converted: it
	// becomes full at the same time.
	//
	// Push then decides the push's takes, one after the other, as [Calendar.Decide] does: each gets
	// hits in all of its rooms or in none. Rooms are those at the store's time. Hits that seem to
	// lie later count as if they were now: for buckets also in answers, and where a log is bounded.
	// Granted hits are counted as pushed hits are.
	//
	// A push is applied as a whole or not at all, and once. Its namespace, sender and sequence
	// identify it. A large push without takes may be divided, so that it does not delay others for
	// long: then others may see a part of it, and after an error a part may have been applied. If a
	// store has counters on several servers and can't reach some, the answer says which parts it
	// lacks ([wire.Answer.Missing]), and the outcome's Lacking says why. Then the rest was applied
	// once, and the missing parts are as after an error.
	//
	// The atomic step that applies a push also records it, with its grants. A push that is recorded
	// already is not applied, but answered with its first grants and the present totals. A push
	// below the greatest floor of its sender is not applied either, and gets no grants. A store may
	// bound the grants that it remembers: a push whose grants are forgotten is not applied again,
	// and gets no grants. The pushes of a sender may come in any order. [Calendar] says, by the
	// store's own clock, which windows take hits and how long a counter lives. Hits of other
	// windows are dropped, and counted as such. A push without hits and takes is a read: it changes
	// nothing, and is not recorded.
	//
	// Totals stay from zero to wire.MaxHits. Hits that are given back are taken from the counted
	// hits, and any excess is dropped, so no push makes more room than the limit. Hits that are
	// given back before they arrive therefore stay counted. If the push violates [Check], the error
	// wraps [ErrInvalid] and nothing has changed. After any other error the push may have been
	// applied: send it again.
	//
	// nodes is how many nodes share the namespace's limits; 0 if unknown. The size of leases
	// depends on it: see [window.Limit.Ahead].
	Push(ctx context.Context, p *wire.Push, nodes uint64) (Outcome, error)

	// Counters calls visit for each counter of a namespace with a window that counts, or for only
	// those that are wanted, in no order, on the caller's goroutine. The result is not a snapshot,
	// since pushes go on meanwhile: each counter is visited at most once, with its state at some
	// moment. Counters that exist all the time are visited, unless a cluster moves them. If visit
	// returns an error, Counters stops and returns it.
	Counters(ctx context.Context, namespace string, only *Wanted, visit func(LimitCounter) error) error

	// Ping reports whether the store accepts hits. It pushes one of a [Trial], because a store that
	// can be reached may still be out of memory or read-only. If the store accepts hits for some
	// keys only, the error wraps [ErrPartly].
	Ping(ctx context.Context) error
}

// Evictor is a store whose server may evict counters by itself.
type Evictor interface {
	// Evicts returns the server's policy for removing counters when its memory is full; empty if it
	// refuses hits then. If the server does not say, the error wraps [ErrUntold].
	Evicts(ctx context.Context) (policy string, err error)
}

// OnDisk is a store that this process keeps in a file.
type OnDisk interface {
	// DiskBytes returns the file's size, and how much of it is free for new data, in bytes.
	DiskBytes() (size, free int64)
}

// ErrUntold is wrapped by the error of a server that does not answer a question about itself.
var ErrUntold = errors.New("the server does not tell")

// Outcome is the result of a push.
type Outcome struct {
	Answer wire.Answer
	// Duplicate means that the push was not applied, because it had been before or is below its
	// sender's floor.
	Duplicate bool
	// Applied and Returned are the hits added to totals and subtracted from them. Dropped are hits
	// of both sorts for windows that no longer count or lie too far ahead, tokens that have
	// returned, and hits given back beyond the count. None is negative, and each stops at
	// wire.MaxHits. Applied includes the hits granted to takes.
	Applied, Returned, Dropped int64
	// Repaired is how many records the store could not read, and restarted.
	Repaired int64
	// Lacking says why the answer lacks parts; nil if it is complete.
	Lacking error
}

// ErrPartly is wrapped by the error of a ping if the store accepts hits only for some keys, because
// the counters of others can't be reached.
var ErrPartly = errors.New("only a part of the counters can be reached")

// LimitCounter is a counter with its windows that count.
type LimitCounter struct {
	wire.LimitCounter
	// Limit is how many tokens return to a token bucket per window, from the last sender that took
	// tokens.
	Limit uint64
	// Windows has at least one, in no order.
	Windows []Window
}

// Wanted says which counters are wanted; all if it is nil.
type Wanted struct {
	// Widths are in milliseconds; empty for any.
	Widths []uint64
	// Key is whose limits are wanted; nil for those of all keys.
	Key *wire.ID
}

// Wants reports whether a counter is wanted.
func (w *Wanted) Wants(c wire.LimitCounter) bool {
	return w == nil || (len(w.Widths) == 0 || slices.Contains(w.Widths, c.WidthMillis)) && (w.Key == nil || c.ID == *w.Key)
}

// CountersOf returns the counters of one key of a namespace that have a window that counts, one for
// each limit, in no order.
func CountersOf(ctx context.Context, s Store, namespace string, key wire.ID) (found []LimitCounter, err error) {
	err = s.Counters(ctx, namespace, &Wanted{Key: &key}, func(c LimitCounter) error {
		found = append(found, c)
		return nil
	})
	return found, err
}

// Window is a window, a bucket of a precision, or a token bucket, with the hits of all senders in
// it.
type Window struct {
	// Number is the window's or bucket's number. For kinds that start with a hit it is the start,
	// in nanoseconds of Unix time; a token bucket starts when it was last full.
	Number uint64
	// Hits is not negative.
	Hits int64
}

// MaxAhead bounds what a store remembers of a sender: a sequence must be less than MaxAhead above
// its floor.
const MaxAhead = 4096

// ErrInvalid is wrapped by the error of a push that no store accepts.
var ErrInvalid = errors.New("invalid push")

// ErrFull is wrapped by the error of a push that a store can't record. Nothing has changed, and the
// sender should send the push again later.
var ErrFull = errors.New("no room for another sender's record")

// Check returns an error that wraps [ErrInvalid] if a push is invalid. It includes all checks of
// wire.DecodePush, so a push made by hand is as safe as a decoded push.
func Check(p *wire.Push) error {
	invalid := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s", ErrInvalid, fmt.Sprintf(format, args...))
	}
	if err := checkNamespace(p.Namespace); err != nil {
		return err
	}
	if p.Sequence == 0 || p.Sequence > wire.MaxHits {
		return invalid("sequence: want 1 to 2^53-1, got %d", p.Sequence)
	}
	if p.Floor > p.Sequence || p.Sequence-p.Floor >= MaxAhead {
		return invalid("floor: want at most the sequence, %d, and more than %d below it, got %d", p.Sequence, MaxAhead, p.Floor)
	}
	answer, parts := 0, len(p.Items)
	for i := range p.Takes {
		if reason := checkTake(&p.Takes[i]); reason != "" {
			return invalid("takes[%d].%s", i, reason)
		}
		answer += p.Takes[i].AnswerSize()
		parts += len(p.Takes[i].Rooms)
	}
	if parts > wire.MaxItems {
		return invalid("items: want at most %d with the rooms of takes, got %d", wire.MaxItems, parts)
	}
	for i := range p.Items {
		if reason := checkItem(&p.Items[i]); reason != "" {
			return invalid("items[%d].%s", i, reason)
		}
		answer += p.Items[i].AnswerSize()
	}
	if answer > wire.MaxAnswer {
		return invalid("items: want an answer of at most %d bytes, got one of up to %d", wire.MaxAnswer, answer)
	}
	return nil
}

// ValidCounter reports whether a push may have items for a counter.
func ValidCounter(c wire.LimitCounter) bool { return checkCounter(c) == "" }

func checkCounter(c wire.LimitCounter) string {
	switch c.Shape().Fault() {
	case window.Sound:
		return ""
	case window.WrongWidth:
		return fmt.Sprintf("width: want 1 ms to 366 days, got %d ms", c.WidthMillis)
	case window.NeedlessPrecision:
		return fmt.Sprintf("precision: want none of kind %d, got %d", c.Kind, c.Precision)
	case window.WrongPrecision:
		return fmt.Sprintf("precision: want 1 ns, or the width divided by at most %d, got %d ns", window.MaxSubBuckets, c.Precision)
	}
	return fmt.Sprintf("kind: want 1 to %d, got %d", window.LastKind, c.Kind)
}

func checkItem(item *wire.Item) string {
	if reason := checkCounter(item.LimitCounter); reason != "" {
		return reason
	}
	if item.Limit > wire.MaxHits {
		return fmt.Sprintf("limit: want at most 2^53-1, got %d", item.Limit)
	}
	fewest, most, aged := 1, wire.MaxWindows, 0
	switch kind := window.Kind(item.Kind); {
	case kind.Started():
		most = 1
	case kind.Bucketed():
		fewest, most, aged = 0, wire.MaxBuckets, len(item.Hits)
	}
	n := len(item.Hits)
	if n < fewest || n > most {
		return fmt.Sprintf("hits: want %d to %d windows of kind %d, got %d", fewest, most, item.Kind, n)
	}
	if len(item.Ages) != aged {
		return fmt.Sprintf("ages: want %d, got %d", aged, len(item.Ages))
	}
	oldest := uint64(max(n-1, 0))
	for i, age := range item.Ages {
		if i > 0 && age <= oldest {
			return fmt.Sprintf("ages: want them ascending, got %d after %d", age, oldest)
		}
		oldest = age
	}
	if item.Newest < oldest {
		return fmt.Sprintf("newest: want at least the age of the oldest window, %d, got %d", oldest, item.Newest)
	}
	for _, h := range item.Hits {
		if h > wire.MaxHits || h < -wire.MaxHits {
			return fmt.Sprintf("hits: want -(2^53-1) to 2^53-1, got %d", h)
		}
	}
	return ""
}

func checkTake(t *wire.Take) string {
	if t.Least == 0 || t.Most < t.Least || t.Most > wire.MaxHits {
		return fmt.Sprintf("least: want 1 to most, which is at most 2^53-1, got %d and %d", t.Least, t.Most)
	}
	if len(t.Rooms) == 0 {
		return "rooms: want at least one"
	}
	for i := range t.Rooms {
		r := &t.Rooms[i]
		if reason := checkCounter(r.LimitCounter); reason != "" {
			return fmt.Sprintf("rooms[%d].%s", i, reason)
		}
		if r.Limit > wire.MaxHits || r.Burst > wire.MaxHits || r.Cost > wire.MaxHits {
			return fmt.Sprintf("rooms[%d]: want a limit, a burst and a cost of at most 2^53-1, got %d, %d and %d", i, r.Limit, r.Burst, r.Cost)
		}
		if t.Lease && r.Cost == 0 {
			return fmt.Sprintf("rooms[%d].cost: want at least 1 for a lease", i)
		}
	}
	return checkTwice(t.Rooms)
}

// checkTwice requires different counters. All rooms of a take are read before any gives hits, so
// two rooms of one counter would both count on the same hits.
func checkTwice(rooms []wire.Room) string {
	if len(rooms) == 1 {
		return ""
	}
	first := make(map[wire.LimitCounter]int, len(rooms))
	for i := range rooms {
		if j, twice := first[rooms[i].LimitCounter]; twice {
			return fmt.Sprintf("rooms[%d]: want each counter once in a take, got the counter of rooms[%d] again", i, j)
		}
		first[rooms[i].LimitCounter] = i
	}
	return ""
}

// IsRead reports whether a push has neither hits nor takes.
func IsRead(p *wire.Push) bool {
	if len(p.Takes) > 0 {
		return false
	}
	for i := range p.Items {
		for _, h := range p.Items[i].Hits {
			if h != 0 {
				return false
			}
		}
	}
	return true
}

// Count adds hits to Applied or Returned, or to Dropped if applied is false.
func (o *Outcome) Count(hits int64, applied bool) {
	switch {
	case !applied:
		o.Dropped = wire.Sum(o.Dropped, max(hits, -hits))
	case hits < 0:
		o.Returned = wire.Sum(o.Returned, -hits)
	default:
		o.Applied = wire.Sum(o.Applied, hits)
	}
}

// Add returns how many hits a window with had hits has after hits were added, and counts them. It
// gives back no more than the window has.
func (o *Outcome) Add(had, hits int64) int64 {
	counted := max(hits, -had)
	o.Count(counted, true)
	o.Count(hits-counted, false)
	return wire.Sum(had, counted)
}

// Calendar says which windows of a counter matter at a store's time. It is the only definition for
// all stores. A store that can't compute in Go must compute the same.
type Calendar struct{ NowNanos uint64 }

const (
	// Grace is how long totals can be read after their window has stopped counting, for proxies
	// whose clock is behind. It is at most the window's width.
	Grace = 5 * time.Second
	// Ahead is how far a proxy's clock may be ahead: see [Calendar.Span].
	Ahead = 10 * time.Minute
	// WindowsAhead bounds Ahead for narrow windows, and so the number of windows of a counter.
	WindowsAhead = 64
	// SenderLife is the least time that a sender's record outlives its last push.
	SenderLife = 10 * time.Minute
)

// tooFar reports whether a start is too far ahead to be right.
func (c Calendar) tooFar(of wire.LimitCounter, start uint64) bool {
	return start > c.NowNanos+max(uint64(Ahead), 2*widthNanos(of))
}

// Counting removes the windows of a counter that do not count, in place, and returns the rest.
func (c Calendar) Counting(of LimitCounter) []Window {
	kind := algorithmOf(of.Kind)
	return slices.DeleteFunc(of.Windows, func(w Window) bool { return !kind.counts(c, &of, w) })
}

// ExpiresNanos is the time from which the window or bucket with a number, or the first-hit window
// that starts at it, can't be read. [Calendar.Span] or [Calendar.FirstHit] must have accepted it.
func ExpiresNanos(of wire.LimitCounter, number uint64) uint64 {
	length, counting := numbering(of)
	return (number+counting)*length + graceNanos(of)
}

// Settled is the time from which a copy of an item's hits finds no window that takes them. A store
// must keep the sender's record until then.
func (c Calendar) Settled(item *wire.Item) uint64 { return algorithmOf(item.Kind).settled(c, item) }

// NotedUntil is the time until which a sender's record of a push must be kept. The record outlives
// every window that takes the push's hits, so a later copy finds no window that counts. If the push
// has takes, the record also outlives by SenderLife the time in which the push may be sent again.
func (c Calendar) NotedUntil(p *wire.Push) (until uint64) {
	until = c.NowNanos + uint64(SenderLife) + p.AgainNanos()
	for i := range p.Items {
		if len(p.Items[i].Hits) > 0 {
			until = max(until, c.Settled(&p.Items[i]))
		}
	}
	return until
}

// numbering returns the divisor of Unix time, in nanoseconds, that numbers a counter's windows, and
// for how many numbers a window counts.
func numbering(of wire.LimitCounter) (length, counting uint64) {
	switch kind := window.Kind(of.Kind); {
	case kind.Started():
		return 1, widthNanos(of)
	case kind.Bucketed():
		return of.Precision, widthNanos(of) / of.Precision
	default:
		return widthNanos(of), uint64(kind.Windows())
	}
}

// NumberAt returns the number of the window or bucket that contains a time, in nanoseconds since
// the Unix epoch.
func NumberAt(of wire.LimitCounter, nanos uint64) uint64 {
	length, _ := numbering(of)
	return nanos / length
}

// StartNanos returns the start of a counter's window or bucket with a number, in nanoseconds since
// the Unix epoch.
func StartNanos(of wire.LimitCounter, number uint64) uint64 {
	length, _ := numbering(of)
	return number * length
}

func widthNanos(of wire.LimitCounter) uint64 { return of.WidthMillis * 1e6 }

func graceNanos(of wire.LimitCounter) uint64 { return min(widthNanos(of), uint64(Grace)) }

// Granter limits the takes of a store that keeps a region's part of the limits of another store.
// The store calls it while it is locked, so a Granter must neither wait nor call the store.
type Granter interface {
	// Whole returns the counter of an item with the hits of all stores. own has the hits of this
	// store. Whole may return own, and does not change it.
	Whole(c Calendar, namespace string, item *wire.Item, own *Contents) *Contents

	// Most returns the most units that a take may get. own returns the hits that this store counts
	// for a counter. ctx is that of the push.
	Most(ctx context.Context, c Calendar, namespace string, take *wire.Take, own func(wire.LimitCounter) *Contents) uint64

	// Returns hears of an item before its hits are added to own. What it gives back beyond those was
	// counted elsewhere. ctx is that of the push.
	Returns(ctx context.Context, c Calendar, namespace string, item *wire.Item, own *Contents)
}
