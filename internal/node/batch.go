package node

import (
	"slices"

	"weir/internal/counter"
	"weir/internal/wire"
	"weir/sharedata"
	"weir/window"
)

const (
	// A batch is full when it has batchBytes, or its answer may take answerBytes. Below wire's
	// bounds there is room for one more key.
	batchBytes  = 64 << 10
	answerBytes = wire.MaxAnswer / 2
)

// batch is a push: what was sent, and what to do with the answer.
type batch struct {
	sender   uint64
	sequence uint64
	body     []byte // and once it is answered, the answer
	push     []byte // the body, while it holds an answer that lacks some
	head     int    // length of the body's header
	items    []pushed
	asks     []*ask
	rooms    int
	hits     uint64
	answers  int // bytes that the answer takes at most
	state    batchState
	sentAt   int64
	// ends is the time from which no window of the batch counts any more.
	ends int64
	// failures in a row, and when to send it again.
	failures int
	retryAt  int64
	asking   bool // somebody waits for it
	// advance tells of advanced hits, and ahead is the number of keys whose advanced hits it has.
	advance  wire.Advance
	ahead    int
	inquires bool // for overrides, and has nothing else
	// patience is for how long the host waits for the answer, 0 for the usual time.
	patience int64
	// partly batches were answered but for some of their items and asks, for which they are sent
	// again. lacks are the partitions of those.
	partly      bool
	lacks       partitions
	reader      wire.AnswerReader
	settled     int // items
	settledAsks int // asks whose grants were taken in
}

// pushed is where the answer to an item goes.
type pushed struct {
	address sharedata.Address
	rule    *Rule // nil for an orphan, whose counter is no longer in the table
	limit   int32 // or done
	claim   counter.Due
	begins  int32 // in the body
	ends    int32
	ahead   *advanced // nil if it is no item of advanced hits
}

// done is in place of an item's limit when the item was settled, and others of its batch were not.
const done = -1

type batchState uint8

const (
	filling batchState = iota
	sent
	failed
	answered
)

// orphan holds the hits that an evicted counter had for the backend.
type orphan struct {
	item wire.Item
	ends int64
}

// item is a push on the wire. It shares the push's memory.
//
//go:noinline
func item(id [16]byte, l *window.Limit, push *window.Push) wire.Item {
	return wire.Item{LimitCounter: counterOf(id, l, l.WidthOf(push.Newest)), Limit: l.Max, Newest: push.Newest, Hits: push.Hits, Ages: push.Ages}
}

// counterOf is the backend's counter of a limit, for windows of a width.
func counterOf(id [16]byte, l *window.Limit, width int64) wire.LimitCounter {
	return wire.LimitCounter{
		ID: id, Kind: uint8(l.Kind), Ordinal: l.Ordinal, WidthMillis: uint64(width / window.MinWidth), Precision: uint64(l.Precision),
	}
}

// reserve makes room for a usual item or ask: by doubling, which leaves less to the garbage
// collector than append does.
//
//go:noinline
func (b *batch) reserve() {
	if cap(b.body)-len(b.body) < 128 {
		b.body = slices.Grow(b.body, cap(b.body))
	}
}

func (b *batch) add(item *wire.Item, p pushed, ends int64) {
	b.reserve()
	p.begins = int32(len(b.body))
	b.body = wire.AppendItem(b.body, item)
	p.ends = int32(len(b.body))
	b.items = append(b.items, p)
	b.answers += item.AnswerSize()
	b.ends = max(b.ends, ends)
}

// full reports whether a batch has no room for one more key.
func (b *batch) full() bool {
	return len(b.body) >= batchBytes || b.answers >= answerBytes || len(b.items)+b.rooms > wire.MaxItems-2*maxLimits
}

// fits reports whether a batch that has asks has room for one more, and for what its key has
// pending. The first one always fits: who configures rules sees to that.
func (b *batch) fits(t *ask) bool {
	return len(b.body) < batchBytes && b.answers < answerBytes &&
		len(b.items)+b.rooms+2*t.rooms() <= wire.MaxItems && b.answers+2*t.answerSize() <= wire.MaxAnswer
}

// forgo forgets the advanced hits that no answer has told of.
//
//go:noinline
func (b *batch) forgo() {
	for i := range b.items {
		p := &b.items[i]
		if p.ahead != nil && p.limit == 0 {
			p.ahead.lost()
		}
		p.ahead = nil
	}
}

// close ends the filling of a batch.
func (b *batch) close() { wire.SetCount(b.body, b.head, len(b.items)+len(b.asks)) }

// accept checks a whole answer before anything of it is believed, and keeps it in place of the
// push.
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
	b.lacks = 0
	b.body = append(b.body[:0], body...)
	b.reader, _ = wire.NewAnswerReader(b.body)
	b.settled, b.settledAsks = 0, 0
	return true
}

// id is the key's.
func (p *pushed) id(b *batch) wire.ID { return wire.ItemID(b.push[p.begins:p.ends]) }

// sameKey reports whether two items of a batch, the one after the other, are of limits of one key.
func (p *pushed) sameKey(of *pushed) bool {
	return p.address == of.address && p.rule == of.rule && p.ahead == of.ahead
}

// Ticket names a push that was sent.
type Ticket struct {
	batch *batch
	// used is the message of what keys have used, if it is one.
	used *usedMessage
	// A batch's memory is used again, and it may be sent again before its callout ends.
	sender, sequence uint64
}

// Patience is for how many nanoseconds the host is to wait for a push's answer, where that may come
// late; 0 for the usual timeout.
func (t Ticket) Patience() int64 {
	if t.batch == nil {
		return 0
	}
	return t.batch.patience
}

// Outcome tells what became of a push. From 100 on it is the status that came in the place of an
// answer: such a push may or may not have arrived, as a lost one.
type Outcome uint16

const (
	// PushLost pushes may or may not have arrived.
	PushLost Outcome = iota
	// PushRefused pushes are such as the backend will never take.
	PushRefused
	// PushAnswered pushes have an answer.
	PushAnswered
	// PushUnsent pushes could not be sent. Nodes find out: no host says so.
	PushUnsent
	// PushGarbled pushes have an answer that is none, as nodes find out.
	PushGarbled
)
