package advancetest

import (
	"context"
	"testing"
	"time"

	"weir/internal/must"
	"weir/internal/store"
	"weir/internal/wire"
	"weir/window"
)

// Fleet is a store whose clock a test sets, and a sender, 1, that has a part of the limits of a rule.
type Fleet struct {
	store.Store
	T    *testing.T
	Now  time.Time
	Word wire.Advance
	// Sequence is the last that any sender has used.
	Sequence uint64
	limits   func() int
}

// Wants is the word of a sender that has no part, and wants one.
var Wants = wire.Advance{Present: true, Wants: true, Settled: true}

// Rule is the tag of the fleet's rule.
const Rule = 7

// Hourly is a counter of a key, in windows of an hour.
func Hourly(key int) wire.LimitCounter {
	return wire.LimitCounter{ID: wire.ID{byte(key), byte(key >> 8), 1}, Kind: uint8(window.FixedWindow), WidthMillis: 3600_000}
}

// Thousand asks for hits of a key whose limit is 1,000, for a rule: for all of them or none.
func Thousand(key int, most uint64, tag uint16) wire.Take {
	return wire.Take{Least: most, Most: most, Rooms: []wire.Room{{LimitCounter: Hourly(key), Limit: 1000, Cost: 1, Tag: tag}}}
}

// Open opens an empty store with a clock, and returns how many limits it knows.
type Open func(t *testing.T, now func() time.Time) (s store.Store, limits func() int)

// NewFleet returns the fleet of a store.
func NewFleet(t *testing.T, open Open) *Fleet {
	t.Helper()
	f := &Fleet{T: t, Now: time.Unix(1_767_571_260, 0), Word: Wants}
	f.Store, f.limits = open(t, func() time.Time { return f.Now })
	return f
}

// Begin has the sender get its part, and the limit listed.
func (f *Fleet) Begin() *Fleet {
	f.T.Helper()
	limits := 0
	for range 3 {
		n := f.Push(1, func(p *wire.Push) { p.Advance, p.Takes = f.Word, []wire.Take{Thousand(9999, 1, Rule)} }).Near
		limits += n.LimitCount()
		f.Hear(n)
	}
	if f.Word.Divisor == 0 || limits != 1 {
		f.T.Fatalf("the sender has a part of 1/%d, and the list %d limits", f.Word.Divisor, limits)
	}
	return f
}

// Hear has the sender go by the newest list.
func (f *Fleet) Hear(n wire.Near) { hear(&f.Word, &n) }

func hear(w *wire.Advance, n *wire.Near) {
	w.Epoch, w.Version, w.Divisor = n.Epoch, n.Version, n.Divisor
}

// Push pushes for a sender.
func (f *Fleet) Push(sender uint64, change func(p *wire.Push)) wire.Answer {
	f.T.Helper()
	f.Sequence++
	p := &wire.Push{Namespace: "ns", Sender: sender, Sequence: f.Sequence, Floor: f.Sequence}
	change(p)
	return f.Send(p)
}

// Send sends a push, or sends it again.
func (f *Fleet) Send(p *wire.Push) wire.Answer {
	f.T.Helper()
	out := must.Get(f.Store.Push(context.Background(), p, 1))(f.T)
	return out.Answer
}

// Says pushes a sender's word, and has the sender go by what it hears.
func (f *Fleet) Says(sender uint64, w *wire.Advance) wire.Near {
	f.T.Helper()
	n := f.Push(sender, func(p *wire.Push) { p.Advance = *w }).Near
	hear(w, &n)
	return n
}

// Tells returns what the sender hears.
func (f *Fleet) Tells() wire.Near {
	f.T.Helper()
	return f.Says(1, &f.Word)
}

// Whole returns the whole list.
func (f *Fleet) Whole() wire.Near {
	f.T.Helper()
	return f.Push(4, func(p *wire.Push) { p.Advance = wire.Advance{Present: true} }).Near
}

// Hit counts hits of keys.
func (f *Fleet) Hit(hits int64, from, to int) {
	f.T.Helper()
	for ; from < to; from += 256 {
		f.Push(2, func(p *wire.Push) {
			for key := from; key < min(from+256, to); key++ {
				p.Items = append(p.Items, wire.Item{LimitCounter: Hourly(key), Newest: uint64(f.Now.UnixMilli()) / 3600_000, Hits: []int64{hits}})
			}
		})
	}
}

// Wants wants so many hits of a key granted, of so many that are asked for, for a rule.
func (f *Fleet) Wants(what string, key int, most, want uint64, tag uint16) {
	f.T.Helper()
	must.Equal(f.T, f.Push(3, func(p *wire.Push) { p.Takes = []wire.Take{Thousand(key, most, tag)} }).Grants[0].Units, want, "%s: hits", what)
}

// HasPart wants the sender to have a part.
func (f *Fleet) HasPart() {
	f.T.Helper()
	for range 3 {
		f.Tells()
	}
	must.Equal(f.T, f.Word.Divisor > 0, true, "the sender has a part")
}
