package filter

import (
	"math/rand/v2"

	"weir/proxywasm"
	"weir/sharedata"
	"weir/window"
	"weir/wire"
)

// syncer keeps counters in step with the backend, without a leader. The worker whose hit makes a key pending remembers it,
// and claims it when its push is due: by compare-and-set, what is pending moves in flight, so that it is pushed once. Claimed
// keys go to the backend in batches; a batch is sent again, unchanged, until it is answered, and the backend applies it once.
// The answer's totals go back into the entries.
//
// The tick runs on the thread that serves requests, so it works for about a millisecond at most and then asks for the next
// tick soon.
type syncer struct {
	plugin     *plugin
	sender     uint64
	sequence   uint64
	tickMillis uint32 // while there is no more to do than usual
	hurried    bool   // whether ticks come every millisecond

	dirty   []dirtyKey
	at      int         // in dirty: where the next tick goes on
	kept    int         // in dirty: where the next key that isn't due is put
	orphans []wire.Item // pending hits of counters that had to make room
	batches []*batch    // that aren't done, in the order of their sequence
	idle    []*batch
	// After a failure nothing is sent before retryAt, and then one batch only until the backend answers again.
	failures int
	retryAt  int64

	match   match // scratch
	total   wire.Total
	headers proxywasm.Pairs
	pushes  [maxLimits]window.Push
}

const (
	maxLimits = 8
	// maxDirty bounds the keys that a VM remembers. A key that finds no place is adopted by a later hit.
	maxDirty = 1 << 17
	// maxOrphans bounds the hits of evicted counters that wait to be pushed.
	maxOrphans = 1 << 12
	// orphanLife is how long a push of orphans is sent again, whose windows nobody knows here any more.
	orphanLife = int64(3600e9)
	// maxBatches bounds the pushes that have no answer yet. While the backend is away hits pile up in the table instead,
	// where there is one number for all hits of a key.
	maxBatches = 8
	// maxBehind is how many later pushes may be answered before one that the backend refuses is given up: a backend remembers
	// so many of a sender's sequences, and more.
	maxBehind = 2048
	// batchBytes is when a batch is full; one more key still fits below wire.MaxBody.
	batchBytes = 64 << 10
	// tickNanos is how long a tick may work, and tickKeys how many keys it handles between two looks at the clock.
	tickNanos = int64(1e6)
	tickKeys  = 32
	// A backend that fails is left alone for pauses that double up to longestPause.
	shortestPause = int64(50e6)
	longestPause  = int64(5e9)
)

// dirtyKey is a key with hits to push.
type dirtyKey struct {
	address sharedata.Address
	due     int64
	rule    int32
}

// batch is a push: what was sent, and what to do with the answer.
type batch struct {
	sequence uint64
	body     []byte
	head     int // length of the body's header
	items    []pushed
	state    batchState
	// useless is the time from which no window of the batch counts any more.
	useless int64
	answer  []byte
	reader  wire.AnswerReader
	settled int // items
}

// pushed is where the answer to an item goes.
type pushed struct {
	address sharedata.Address
	rule    int32 // or orphan
	limit   int32
	push    window.Push
}

// orphan marks an item whose counter is no longer in the table.
const orphan = -1

type batchState uint8

const (
	filling batchState = iota
	sent
	failed
	answered
)

func newSyncer(p *plugin) *syncer {
	millis := int64(p.config.SyncRate) / 1e6
	// Ten ticks an interval, so that a new key needn't wait long; spread, so that the workers of all proxies don't tick at once.
	tick := max(1, min(millis/10, 100))
	tick += rand.Int64N(tick/4 + 1)
	return &syncer{plugin: p, sender: rand.Uint64(), tickMillis: uint32(tick)}
}

// remember has a key pushed when it is due.
func (s *syncer) remember(a sharedata.Address, rule int, due int64) {
	if len(s.dirty) < maxDirty {
		s.dirty = append(s.dirty, dirtyKey{address: a, rule: int32(rule), due: due})
	}
}

// rescue takes pending hits of a counter that left the table, and tells whether there was room for them.
func (s *syncer) rescue(id [16]byte, l *window.Limit, push window.Push) bool {
	if len(s.orphans) == maxOrphans {
		return false
	}
	orphan := item(id, l, &push)
	orphan.Hits = append([]int64(nil), orphan.Hits...)
	s.orphans = append(s.orphans, orphan)
	return true
}

// item is a push on the wire. It shares the push's memory.
func item(id [16]byte, l *window.Limit, push *window.Push) wire.Item {
	return wire.Item{
		Counter: wire.Counter{
			ID: id, Kind: uint8(l.Kind), Ordinal: l.Ordinal, WidthMillis: uint64(l.Width / window.MinWidth),
		},
		Newest: push.Newest,
		Hits:   push.Hits[:l.Kind.Windows()],
	}
}

// tick does what is due, for as long as a tick may take.
func (s *syncer) tick() {
	start := proxywasm.Now()
	deadline := start + tickNanos
	done := s.settle(deadline)
	if s.resend(start); done && s.failures == 0 {
		done = s.push(start, deadline)
	}
	if s.hurried == done {
		s.hurried = !done
		if done {
			proxywasm.SetTickPeriod(s.tickMillis)
		} else {
			proxywasm.SetTickPeriod(1)
		}
	}
}

// late tells whether a tick's time is over, looking at the clock for some keys only.
func late(handled int, deadline int64) bool {
	return handled%tickKeys == tickKeys-1 && proxywasm.Now() >= deadline
}

// push claims the keys that are due and sends them. It reports false if there are more; not if they have to wait because too
// many batches are out, as there is nothing to hurry for then.
func (s *syncer) push(now, deadline int64) (done bool) {
	var b *batch
	handled := 0
	for ; len(s.orphans) > 0; handled++ {
		if b = s.room(b); b == nil || late(handled, deadline) {
			s.send(b)
			return b == nil
		}
		last := len(s.orphans) - 1
		b.add(&s.orphans[last], pushed{rule: orphan})
		b.useless = max(b.useless, now+orphanLife)
		s.orphans = s.orphans[:last]
	}
	for ; s.at < len(s.dirty); s.at++ {
		d := s.dirty[s.at]
		if d.due > now {
			s.dirty[s.kept] = d
			s.kept++
			continue
		}
		if b = s.room(b); b == nil || late(handled, deadline) {
			s.send(b)
			return b == nil
		}
		handled++
		if due, again := s.claim(b, d, now); again {
			d.due = due
			s.dirty[s.kept] = d
			s.kept++
		}
	}
	s.send(b)
	s.dirty = s.dirty[:s.kept]
	s.at, s.kept = 0, 0
	return true
}

// room is a batch with room for one more key: b, or if that is full another one, after sending b. It is nil if too many
// batches are out.
func (s *syncer) room(b *batch) *batch {
	if b != nil && len(b.body) < batchBytes && len(b.items) <= wire.MaxItems-maxLimits {
		return b
	}
	s.send(b)
	if len(s.batches) > 0 && s.sequence-s.batches[0].sequence >= maxBehind {
		s.giveUp(s.batches[0])
	}
	if len(s.batches) == maxBatches {
		return nil
	}
	if n := len(s.idle); n > 0 {
		b = s.idle[n-1]
		s.idle = s.idle[:n-1]
	} else {
		b = &batch{}
	}
	s.sequence++
	*b = batch{sequence: s.sequence, body: b.body, items: b.items[:0], answer: b.answer}
	floor := b.sequence
	if len(s.batches) > 0 {
		floor = s.batches[0].sequence
	}
	b.body = wire.AppendPushHeader(b.body[:0], s.plugin.config.Namespace, s.sender, b.sequence, floor, 0)
	b.head = len(b.body)
	s.batches = append(s.batches, b)
	return b
}

func (s *syncer) giveUp(b *batch) {
	for i := range b.items {
		s.plugin.metrics.lost.add(b.items[i].push.Taken())
	}
	s.finish(b)
}

func (b *batch) add(item *wire.Item, p pushed) {
	b.body = wire.AppendItem(b.body, item)
	b.items = append(b.items, p)
}

// claim moves a key's pending hits in flight and adds them to a batch. A key that has none may be worth asking for, if other
// nodes' hits could fill its limit. If a key can't be claimed yet, claim says when to try again.
func (s *syncer) claim(b *batch, d dirtyKey, now int64) (due int64, again bool) {
	p, m := s.plugin, &s.match
	m.rule, m.address = &p.rules[d.rule], d.address
	for range p.table.Attempts() {
		p.fetch(m)
		switch {
		case m.slot.Payload() == nil:
			return 0, false // evicted, and its hits rescued
		case m.cell.Pending():
			if !m.cell.Claim(now, s.pushes[:]) {
				return now + m.rule.counter.SyncRate, true
			}
		case m.cell.DueNanos() == d.due && m.cell.Watched(now):
			m.cell.Ask(now, s.pushes[:])
		default:
			return 0, false // another worker has it, or nobody needs to
		}
		if !p.write(m, now) {
			continue
		}
		for i := range m.cell.States {
			push := &s.pushes[i]
			l := &m.rule.counter.Limits[i]
			wanted := item(m.cell.ID(), l, push)
			b.add(&wanted, pushed{address: d.address, rule: d.rule, limit: int32(i), push: *push})
			b.useless = max(b.useless, l.ForgetAt(&m.cell.States[i]))
			p.metrics.pushed.add(push.Taken())
		}
		return 0, false
	}
	return now, true
}

// send posts a batch. Its answer, or the lack of one, arrives later.
func (s *syncer) send(b *batch) {
	if b == nil || b.state == sent || b.state == answered {
		return
	}
	if b.state == filling {
		if len(b.items) == 0 {
			s.finish(b)
			return
		}
		wire.SetCount(b.body, b.head, len(b.items))
	}
	backend := &s.plugin.config.Backend
	s.headers.Reset()
	s.headers.Add(":method", "POST")
	s.headers.Add(":path", wire.PushPath)
	s.headers.Add(":authority", backend.Authority)
	s.headers.Add("content-type", wire.ContentType)
	if backend.Token != "" {
		s.headers.Add("authorization", "Bearer "+backend.Token)
	}
	b.state = sent
	sequence := b.sequence
	if !proxywasm.Dispatch(&proxywasm.Callout{
		Cluster:       backend.Cluster,
		Headers:       &s.headers,
		Body:          b.body,
		TimeoutMillis: uint32(backend.Timeout.Milliseconds()),
		Done:          func(ok bool) { s.done(b, sequence, ok) },
	}) {
		s.fail(b)
	}
}

// done takes in the end of a callout: an answer to keep and settle, or a failure.
func (s *syncer) done(b *batch, sequence uint64, ok bool) {
	if b.sequence != sequence || b.state != sent {
		return
	}
	status, found := proxywasm.CalloutHeader(":status")
	if !ok || !found || len(status) != 3 || status[0] != '2' {
		s.fail(b)
		return
	}
	body, found := proxywasm.CalloutBody(wire.MaxBody)
	if !found || !b.accept(body, &s.total) {
		s.fail(b)
		return
	}
	b.state = answered
	s.failures, s.retryAt = 0, 0
	s.settle(proxywasm.Now() + tickNanos)
}

// accept checks a whole answer before anything of it is believed.
func (b *batch) accept(body []byte, total *wire.Total) bool {
	b.answer = append(b.answer[:0], body...)
	reader, err := wire.NewAnswerReader(b.answer)
	if err != nil || reader.Count != len(b.items) {
		return false
	}
	b.reader = reader
	for reader.Next(total) {
	}
	b.settled = 0
	return reader.Err() == nil
}

func (s *syncer) fail(b *batch) {
	s.plugin.metrics.failed.count()
	b.state = failed
	// Batches that were out together fail together: that is one failure.
	if now := proxywasm.Now(); now >= s.retryAt {
		pause := min(shortestPause<<min(s.failures, 10), longestPause)
		s.failures++
		s.retryAt = now + pause/2 + rand.Int64N(pause)
	}
}

// resend sends failed batches again once the pause is over, and forgets those that nobody can want any more.
func (s *syncer) resend(now int64) {
	for i := len(s.batches) - 1; i >= 0; i-- {
		if b := s.batches[i]; b.state == failed && now > b.useless {
			s.finish(b)
		} else if b.state == sent && s.failures > 0 {
			return // it tells whether the backend is back
		}
	}
	if now < s.retryAt {
		return
	}
	for i := range s.batches {
		// Another one each time, in case it is the batch that is at fault.
		if b := s.batches[(i+s.failures)%len(s.batches)]; b.state == failed {
			if s.send(b); s.failures > 0 {
				return
			}
		}
	}
}

// settle takes answers into the table. It reports false if there are more.
func (s *syncer) settle(deadline int64) (done bool) {
	handled := 0
	for i := 0; i < len(s.batches); {
		b := s.batches[i]
		if b.state != answered {
			i++
			continue
		}
		for b.settled < len(b.items) {
			if late(handled, deadline) {
				return false
			}
			s.settleKey(b)
			handled++
		}
		s.finish(b)
	}
	return true
}

// settleKey takes in the answers for all limits of the next key.
func (s *syncer) settleKey(b *batch) {
	first := b.settled
	last := first + 1
	for last < len(b.items) && b.items[last].address == b.items[first].address && b.items[last].rule == b.items[first].rule {
		last++
	}
	var totals [maxLimits]window.Totals
	for i := first; i < last; i++ {
		b.reader.Next(&s.total)
		if n := i - first; n < maxLimits {
			totals[n].Newest = s.total.Newest
			copy(totals[n].Hits[:], s.total.Hits)
		}
	}
	b.settled = last
	key := &b.items[first]
	if key.rule == orphan {
		return
	}
	p, m := s.plugin, &s.match
	m.rule, m.index, m.address = &p.rules[key.rule], int(key.rule), key.address
	for range p.table.Attempts() {
		p.fetch(m)
		if m.slot.Payload() == nil {
			return
		}
		for i := first; i < min(last, first+maxLimits); i++ {
			m.cell.Settle(int(b.items[i].limit), b.items[i].push, totals[i-first])
		}
		now := proxywasm.Now()
		if p.write(m, now) {
			if !m.cell.Pending() && m.cell.Watched(now) {
				s.remember(m.address, m.index, m.cell.DueNanos())
			}
			return
		}
	}
	// The hits stay in flight until they are abandoned: counted here, and in the backend.
	p.metrics.givenUp.count()
}

func (s *syncer) finish(b *batch) {
	for i := range s.batches {
		if s.batches[i] == b {
			s.batches = append(s.batches[:i], s.batches[i+1:]...)
			break
		}
	}
	s.idle = append(s.idle, b)
}
