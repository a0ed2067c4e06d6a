package engine

import (
	"slices"

	"weir/internal/engine/claim"
	"weir/internal/engine/feed"
	"weir/internal/engine/meter"
	"weir/internal/wire"
)

const (
	// A batch is full at batchBytes, or if its answer may take answerBytes. One more key still fits
	// within wire's bounds.
	batchBytes  = 64 << 10
	answerBytes = wire.MaxAnswer / 2
)

// batch is a push: what is sent, and what to do with the answer.
type batch struct {
	head    wire.Push // without items and takes
	body    []byte    // the encoded items and takes; once answered, the answer
	push    []byte    // the items and takes, while body has an incomplete answer
	items   []pushed
	asks    []*ask
	rooms   int
	hits    uint64
	answers int // the most bytes of the answer
	state   batchState
	sentAt  int64
	// ends is the time from which no window in the batch counts.
	ends int64
	// failures in a row, and when to send it again.
	failures int
	retryAt  int64
	asking   bool         // requests wait for it
	ahead    int          // how many keys' advanced hits it has
	inquires feed.Inquiry // one that asks for overrides has nothing else
	// partly means that the answer lacked some items or asks, for which the batch is sent again, and lacking that
	// the last one did. lacks are the partitions of those with one, and suspects of those with several, until it is
	// known which of these is away.
	partly      bool
	lacking     bool
	lacks       wire.PartitionSet
	suspects    wire.PartitionSet
	shared      wire.PartitionSet // that answer questions of one, but not one of several
	reader      wire.AnswerReader
	settled     int // number of items settled
	settledAsks int // number of asks settled
}

// pushed says where the answer to an item goes.
type pushed struct {
	claim.Origin       // its limit may be done
	begins       int32 // in the body
	ends         int32
}

// done replaces the limit of an item that was settled while others of its batch were not.
const done = -1

type batchState uint8

const (
	filling batchState = iota
	sent
	failed
	answered
)

// reserve makes room for a usual item or ask. It doubles the memory, which leaves the garbage
// collector less than append does.
//
//go:noinline
func (b *batch) reserve() {
	if cap(b.body)-len(b.body) < 128 {
		b.body = slices.Grow(b.body, cap(b.body))
	}
}

// Add adds an item: see [claim.Push].
func (b *batch) Add(item *wire.Item, of claim.Origin, ends int64, hits uint64) {
	b.reserve()
	p := pushed{Origin: of, begins: int32(len(b.body))}
	b.body = wire.AppendItem(b.body, item)
	p.ends = int32(len(b.body))
	b.items = append(b.items, p)
	b.answers += item.AnswerSize()
	b.ends = max(b.ends, ends)
	b.hits += hits
	if of.Ahead != nil && of.Limit == 0 {
		b.ahead++
	}
}

// full reports whether a batch has no room for another key.
func (b *batch) full() bool {
	return len(b.body) >= batchBytes || b.answers >= answerBytes || len(b.items)+b.rooms > wire.MaxItems-2*wire.MaxLimits
}

// fits reports whether a batch of asks has room for another, and for the pending hits of its key.
// The first always fits: the checks of configurations ensure that.
func (b *batch) fits(t *ask) bool {
	return len(b.body) < batchBytes && b.answers < answerBytes &&
		len(b.items)+b.rooms+2*t.rooms() <= wire.MaxItems && b.answers+2*t.answerSize() <= wire.MaxAnswer
}

// forgo drops the advanced hits that no answer has mentioned.
//
//go:noinline
func (b *batch) forgo() {
	for i := range b.items {
		p := &b.items[i]
		if p.Ahead != nil && p.Limit == 0 {
			p.Ahead.End(false)
		}
		p.Ahead = nil
	}
}

// appendTo appends the message that is sent.
func (b *batch) appendTo(dst []byte) []byte {
	return append(wire.AppendPushHeader(dst, &b.head, len(b.items)+len(b.asks)), b.body...)
}

// accept validates a whole answer before any of it is used, and keeps it in place of the push.
func (b *batch) accept(body []byte, total *wire.Total) bool {
	reader, err := wire.NewAnswerReader(body)
	if err != nil || !reader.Fits(len(b.items), len(b.asks)) {
		return false
	}
	for reader.Next(total) {
	}
	var grant wire.Grant
	for i := 0; ; i++ {
		rooms, ok := reader.NextGrant(&grant)
		if !ok {
			break
		}
		if i >= len(b.asks) || grant.Units > b.asks[i].most {
			return false
		}
		if missing := reader.Missing(len(b.items)+i) != wire.Answered; missing != (rooms == 0) || !missing && rooms != b.asks[i].rooms() {
			return false
		}
		for range rooms {
			reader.NextRoom(total)
		}
	}
	if reader.Err() != nil || reader.Grants != len(b.asks) {
		return false
	}
	if !reader.Whole() {
		b.push = append(b.push[:0], b.body...)
	}
	b.lacking, b.lacks, b.shared = false, 0, 0
	b.body = append(b.body[:0], body...)
	b.reader, _ = wire.NewAnswerReader(b.body)
	b.settled, b.settledAsks = 0, 0
	return true
}

// id is the key's.
func (p *pushed) id(b *batch) wire.ID { return wire.ItemID(b.push[p.begins:p.ends]) }

// sameKey reports whether two consecutive items of a batch are limits of the same key, claimed at once.
func (p *pushed) sameKey(of *pushed) bool {
	return p.Address == of.Address && p.Rule == of.Rule && p.Claim == of.Claim && p.Ahead == of.Ahead
}

// Ticket identifies a push that was sent.
type Ticket struct {
	batch *batch
	// used is the message, if the push is one about usage.
	used *meter.Message
	// A batch's memory is reused, and the batch may be sent again before its callout ends.
	sender, sequence uint64
}

// Patience is how long the host should wait for the answer, in nanoseconds, if it may come late; 0
// means the usual timeout.
func (t Ticket) Patience() int64 {
	if t.batch == nil || t.batch.inquires != feed.Poll {
		return 0
	}
	return pollPatience
}
