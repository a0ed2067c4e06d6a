// Package store is the contract of what keeps the counters. The plugins of many proxies push their
// hits to it, and read totals from it.
//
// A [Store] keeps them. Packages memory, file, redis and postgres have one each. Package storetest is
// a test suite that says what every store does. A [Calendar] has the arithmetic that they share.
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

// Store keeps counters. Its methods may be called from any number of goroutines.
type Store interface {
	Overrides
	Reports
	Accounts

	// Push applies what a sender has counted, and answers with the totals after it of the windows
	// that the push names. For buckets of a precision these are all that [Calendar.BucketTotal]
	// names. For token buckets they are the totals that [Calendar.TokenTotal] returns. A token
	// bucket of another limit than an item's, or a room's, is converted to that: it is full at the
	// same time.
	//
	// Then it decides the push's takes, one after the other, as [Calendar.Decide] does: each gets
	// hits in all of its rooms or in none. Rooms are those at the store's time. Hits that seem to
	// lie after that time count as if they were now: hits of buckets do so in answers too, and
	// where a log is bounded. Granted hits are counted as pushed hits are.
	//
	// A push is applied whole or not at all, and once. Its namespace, sender and sequence name it. A
	// store may take one apart that asks for much, but no take, so that it holds up nobody for long:
	// then others may see a part of it, and after an error a part of it may have been applied.
	// If a store keeps counters on several servers, and cannot reach some of them, the answer says what
	// it lacks for that ([wire.Answer.Missing]), and the outcome's Lacking why. Then what is there was
	// applied once, and the rest is as after an error.
	// The atomic step that applies it also notes it, with what it was granted. If it is noted
	// already, it is not applied, but answered with the grants of the first time and the totals of
	// now. If its sequence is below the greatest floor of the sender's pushes, it is not applied
	// either, and its grants are of nothing. A store may bound what it remembers of grants: a push
	// whose grants are forgotten is not applied again, and its grants are of nothing. Pushes of a sender may come in any order. [Calendar]
	// says, at the store's own time, which windows take hits and how long a counter lives. The hits
	// of other windows are dropped, and reported as such. A push without hits and takes is a read:
	// it changes nothing, and is not noted.
	//
	// Totals stay from zero to wire.MaxHits. Hits that are given back are taken from what is counted,
	// and what is more is dropped: no push makes more room than the limit. So if they overtake the
	// hits that they give back, these stay counted. If the push breaks what [Check] asks for, the
	// error wraps [ErrInvalid], and nothing has changed. After any other error the push may have
	// been applied: send it again.
	//
	// nodes is how many nodes share the namespace's limits, 0 for an unknown number. The size of
	// leases depends on it; see [window.Limit.Ahead].
	Push(ctx context.Context, p *wire.Push, nodes uint64) (Outcome, error)

	// Join notes that a node is active in a namespace: for Newcomer, or if it is known to be active,
	// for NodeLife. So an identity that somebody makes up and does not use again is soon forgotten.
	// If a namespace has MaxNodes, others are not noted. Join returns how many are active.
	Join(ctx context.Context, namespace string, node uint64) (nodes uint64, err error)

	// Nodes is how many nodes are active in a namespace. A node that is not is counted too. Nothing
	// is noted.
	Nodes(ctx context.Context, namespace string, node uint64) (nodes uint64, err error)

	// Counters calls visit for each counter of a namespace that has a window which counts, in no
	// order, on the caller's goroutine. If there are widths, in milliseconds, it visits only
	// counters of these. It is no snapshot: pushes go on meanwhile. Each counter is shown as it was
	// at some moment of the reading, and none twice. Those that were there all the time are all
	// shown, unless a cluster moves them. It stops at the first error of visit, and returns it.
	Counters(ctx context.Context, namespace string, widths []uint64, visit func(LimitCounter) error) error

	// CountersOf are the counters of one key of a namespace that have a window which counts, in no
	// order: one for each limit.
	CountersOf(ctx context.Context, namespace string, id wire.ID) ([]LimitCounter, error)

	// Ping reports whether the store takes hits. It pushes one of a [Trial], as a store that can be
	// reached may still be out of memory, or only let itself be read. If it takes the hits of some keys
	// only, the error wraps [ErrPartly].
	Ping(ctx context.Context) error
}

// Evictor is a store whose server may have to make room by itself.
type Evictor interface {
	// Evicts is the policy by which the server removes counters that count when it has no memory
	// left, empty if it takes no hits then. If the server does not tell, the error wraps
	// [ErrUntold].
	Evicts(ctx context.Context) (policy string, err error)
}

// OnDisk is a store in a file of this process.
type OnDisk interface {
	// DiskBytes is the file's size, and how much of it is free for what comes.
	DiskBytes() (size, free int64)
}

// ErrUntold is wrapped by the error of a server that does not tell what it was asked.
var ErrUntold = errors.New("the server does not tell")

// Outcome tells what became of a push.
type Outcome struct {
	Answer wire.Answer
	// Duplicate says that the push was not applied because it had been before, or is below its
	// sender's floor.
	Duplicate bool
	// Applied and Returned are the hits added to totals and subtracted from them. Dropped are the
	// hits of both sorts for windows that no longer count or lie too far ahead, tokens that are
	// back, and what is given back beyond what is counted. None is negative, and each stops at
	// wire.MaxHits. Applied includes the hits that takes were granted.
	Applied, Returned, Dropped int64
	// Repaired is the number of records that the store could not read and began anew.
	Repaired int64
	// Lacking says why the answer lacks some, if it does.
	Lacking error
}

// ErrPartly is wrapped by the error of a ping if the store takes some hits and not others: the
// counters of some keys can't be reached.
var ErrPartly = errors.New("only a part of the counters can be reached")

// LimitCounter is a counter with its windows that count.
type LimitCounter struct {
	wire.LimitCounter
	// Limit is how many tokens come back to a token bucket in a window. It is that of the last
	// sender that took tokens.
	Limit uint64
	// Windows has at least one, in no order.
	Windows []Window
}

// Window is a window, a bucket of a precision, or a token bucket, and the hits of all senders in
// it.
type Window struct {
	// Number is the window's or bucket's number. For kinds that start with a hit it is the start in
	// nanoseconds of Unix time: a token bucket's is when it was full.
	Number uint64
	// Hits is not negative.
	Hits int64
}

const (
	// NodeLife is how long a node counts as active after it has joined, unless it is new.
	NodeLife = 2 * time.Minute
	// Newcomer is how long a node is active after it has joined for the first time.
	Newcomer = 10 * time.Second
	// MaxNodes is the most nodes of a namespace that are active.
	MaxNodes = 4096
)

// MaxAhead bounds what a store remembers of a sender: a push's sequence is less than MaxAhead above
// its floor.
const MaxAhead = 4096

// ErrInvalid is wrapped by the error of a push that no store takes.
var ErrInvalid = errors.New("invalid push")

// ErrFull is wrapped by the error of a push that a store does not take because it can't note it.
// Nothing has changed: its sender is to send it again later.
var ErrFull = errors.New("no room for another sender's record")

// Check tells what is wrong with a push. It includes what wire.DecodePush looks at: a push made by
// hand is as safe as a decoded one. The error wraps [ErrInvalid].
func Check(p *wire.Push) error {
	invalid := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s", ErrInvalid, fmt.Sprintf(format, args...))
	}
	if !ValidNamespace(p.Namespace) {
		return invalid("namespace: want 1 to %d of A-Za-z0-9._-, got %.80q", wire.MaxNamespace, p.Namespace)
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

// ValidCounter reports whether a push may have items of a counter.
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
			return fmt.Sprintf("rooms[%d].cost: want at least 1 of a lease", i)
		}
	}
	return checkTwice(t.Rooms)
}

// checkTwice wants each counter once. All rooms of a take are looked at before any of them gives:
// two of one counter would both find the room that only one of them has.
func checkTwice(rooms []wire.Room) string {
	if len(rooms) == 1 {
		return ""
	}
	first := make(map[wire.LimitCounter]int, len(rooms))
	for i := range rooms {
		if j, twice := first[rooms[i].LimitCounter]; twice {
			return fmt.Sprintf("rooms[%d]: want each counter once in a take, got that of rooms[%d] again", i, j)
		}
		first[rooms[i].LimitCounter] = i
	}
	return ""
}

// ValidNamespace reports whether s is 1 to wire.MaxNamespace of A-Za-z0-9._-.
func ValidNamespace(s string) bool {
	for _, c := range []byte(s) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '.', c == '_', c == '-':
		default:
			return false
		}
	}
	return s != "" && len(s) <= wire.MaxNamespace
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

// Sum is a + b, but within wire.MaxHits of zero, as a and b must be.
func Sum(a, b int64) int64 { return max(-wire.MaxHits, min(a+b, wire.MaxHits)) }

// Count adds hits to what has been applied or returned, or to what was dropped.
func (o *Outcome) Count(hits int64, applied bool) {
	switch {
	case !applied:
		o.Dropped = Sum(o.Dropped, max(hits, -hits))
	case hits < 0:
		o.Returned = Sum(o.Returned, -hits)
	default:
		o.Applied = Sum(o.Applied, hits)
	}
}

// Add returns how many hits a window of had hits has after hits were added to it. It counts them.
// No more are given back than the window has.
func (o *Outcome) Add(had, hits int64) int64 {
	counted := max(hits, -had)
	o.Count(counted, true)
	o.Count(hits-counted, false)
	return Sum(had, counted)
}

// Calendar says, at a store's time, which windows of a counter matter. It is the one definition
// that all stores share. If a store can't compute in Go, it computes alike.
type Calendar struct{ NowNanos uint64 }

const (
	// Grace is how long totals can still be read after their window has stopped counting, by
	// proxies whose clock is behind. It is at most the window's width.
	Grace = 5 * time.Second
	// Ahead is how far a proxy's clock may be ahead, see [Calendar.Span].
	Ahead = 10 * time.Minute
	// WindowsAhead bounds Ahead for narrow windows, and with it the windows that a counter can
	// have.
	WindowsAhead = 64
	// SenderLife is the least time that a sender's record outlives its last push.
	SenderLife = 10 * time.Minute
)

// tooFar reports whether a start lies too far ahead to believe it.
func (c Calendar) tooFar(of wire.LimitCounter, start uint64) bool {
	return start > c.NowNanos+max(uint64(Ahead), 2*widthNanos(of))
}

// Counting removes the windows of a counter that do not count, in place, and returns the others.
func (c Calendar) Counting(of LimitCounter) []Window {
	kind := algorithmOf(of.Kind)
	return slices.DeleteFunc(of.Windows, func(w Window) bool { return !kind.counts(c, &of, w) })
}

// ExpiresNanos is the time from which nobody can read the window or bucket number, or the first-hit
// window that starts at number. [Calendar.Span] or [Calendar.FirstHit] must have accepted it.
func ExpiresNanos(of wire.LimitCounter, number uint64) uint64 {
	length, counting := numbering(of)
	return (number+counting)*length + graceNanos(of)
}

// Settled is the time from which a copy of an item's hits finds no window that takes them. A store
// must keep the sender's record until then.
func (c Calendar) Settled(item *wire.Item) uint64 { return algorithmOf(item.Kind).settled(c, item) }

// NotedUntil is the time until which a sender's record of a push is kept at least. The record
// outlives every window that takes the push's hits. So a copy that comes when the record is gone
// finds no window that counts. If the push has takes, the record outlives the time for which it may
// be sent again, by SenderLife.
func (c Calendar) NotedUntil(p *wire.Push) (until uint64) {
	until = c.NowNanos + uint64(SenderLife) + p.AgainNanos()
	for i := range p.Items {
		if len(p.Items[i].Hits) > 0 {
			until = max(until, c.Settled(&p.Items[i]))
		}
	}
	return until
}

// numbering is the nanoseconds by which Unix time is divided to number a counter's windows, and for
// how many numbers a window counts.
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

// NumberAt is the number of the window, or bucket, that a time in nanoseconds since the Unix epoch
// is in.
func NumberAt(of wire.LimitCounter, nanos uint64) uint64 {
	length, _ := numbering(of)
	return nanos / length
}

// StartNanos is the start of a counter's window, or bucket, of that number in nanoseconds since the
// Unix epoch.
func StartNanos(of wire.LimitCounter, number uint64) uint64 {
	length, _ := numbering(of)
	return number * length
}

func widthNanos(of wire.LimitCounter) uint64 { return of.WidthMillis * 1e6 }

func graceNanos(of wire.LimitCounter) uint64 { return min(widthNanos(of), uint64(Grace)) }

// less is a - b, but not below zero.
func less(a, b uint64) uint64 { return a - min(a, b) }
