package filter

import (
	"math/rand/v2"

	"weir/counter"
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
	leaving    bool   // whether everything is due, as the plugin context is about to go

	dirty   []dirtyKey
	at      int      // in dirty: where the next tick goes on
	kept    int      // in dirty: where the next key that isn't due is put
	orphans []orphan // pending hits of counters that had to make room
	batches []*batch // that aren't done, in the order of their sequence
	idle    []*batch
	clock   clock
	// After a failure nothing is sent before retryAt, and then one batch only until the backend answers again.
	failures int
	retryAt  int64

	match   match // scratch
	total   wire.Total
	totals  [maxLimits]window.Totals
	headers proxywasm.Pairs
	push    window.Push
}

const (
	maxLimits = 8
	// maxDirty bounds the keys that a VM remembers. A key that finds no place is adopted by a later hit.
	maxDirty = 1 << 17
	// maxOrphans bounds the hits of evicted counters that wait to be pushed.
	maxOrphans = 1 << 12
	// maxBatches bounds the pushes that have no answer yet. While the backend is away hits pile up in the table instead,
	// where there is one number for all hits of a key.
	maxBatches = 8
	// maxBehind is how many later pushes may be answered before one that the backend refuses is given up: a backend remembers
	// so many of a sender's sequences, and more.
	maxBehind = 2048
	// A batch is full when it has batchBytes, or its answer may take answerBytes; one more key still fits below wire's bounds.
	batchBytes  = 64 << 10
	answerBytes = wire.MaxAnswer / 2
	// tickNanos is how long a tick may work, and tickKeys how many keys it handles between two looks at the clock.
	tickNanos = int64(1e6)
	tickKeys  = 32
	// A backend that fails is left alone for pauses that double up to longestPause.
	shortestPause = int64(50e6)
	longestPause  = int64(5e9)
)

// dirtyKey is a key with hits to push, or to ask for.
type dirtyKey struct {
	address sharedata.Address
	rule    *rule
	// due is the entry's: if that has another one, another worker has taken the key over.
	due counter.Due
	// notBefore is when to try again, if the key could not be claimed when it was due.
	notBefore int64
}

// orphan is what an evicted counter had for the backend.
type orphan struct {
	item wire.Item
	ends int64
}

// batch is a push: what was sent, and what to do with the answer.
type batch struct {
	sender   uint64
	sequence uint64
	body     []byte
	head     int // length of the body's header
	items    []pushed
	hits     uint64
	answers  int // bytes that the answer takes at most
	state    batchState
	sentAt   int64
	// ends is the time from which no window of the batch counts any more.
	ends    int64
	answer  []byte
	reader  wire.AnswerReader
	settled int // items
}

// pushed is where the answer to an item goes.
type pushed struct {
	address sharedata.Address
	rule    *rule // nil for an orphan, whose counter is no longer in the table
	limit   int32
	claim   uint16
}

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
	s := &syncer{plugin: p, sender: rand.Uint64(), tickMillis: uint32(tick), clock: newClock(p.config.Namespace)}
	s.clock.read()
	return s
}

// reachable tells whether the backend answered last time.
func (s *syncer) reachable() bool { return s.failures == 0 }

// remember has a key pushed when it is due.
func (s *syncer) remember(m *match) {
	if len(s.dirty) < maxDirty {
		s.dirty = append(s.dirty, dirtyKey{address: m.address, rule: m.rule, due: m.cell.Sync().Due})
	}
}

// rescue takes pending hits of a counter that left the table, and tells whether there was room for them.
func (s *syncer) rescue(id [16]byte, l *window.Limit, push *window.Push, ends int64) bool {
	if len(s.orphans) == maxOrphans {
		return false
	}
	o := orphan{item: item(id, l, push), ends: ends}
	o.item.Hits = append([]int64(nil), o.item.Hits...)
	o.item.Ages = append([]uint64(nil), o.item.Ages...)
	s.orphans = append(s.orphans, o)
	return true
}

// item is a push on the wire. It shares the push's memory.
func item(id [16]byte, l *window.Limit, push *window.Push) wire.Item {
	return wire.Item{
		Counter: wire.Counter{
			ID: id, Kind: uint8(l.Kind), Ordinal: l.Ordinal, WidthMillis: uint64(l.Width / window.MinWidth),
			Precision: uint64(l.Precision),
		},
		Limit:  l.Max,
		Newest: push.Newest,
		Hits:   push.Hits,
		Ages:   push.Ages,
	}
}

// tick does what is due, for as long as a tick may take.
func (s *syncer) tick() {
	s.clock.read()
	start := s.plugin.now()
	deadline := start + tickNanos
	done := s.settle(deadline)
	if s.resend(start); done && s.reachable() {
		done = s.pushDue(start, deadline)
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
func (s *syncer) late(handled int, deadline int64) bool {
	return handled%tickKeys == tickKeys-1 && s.plugin.now() >= deadline
}

// pushDue claims the keys that are due and sends them. It reports false if there are more; not if they have to wait because too
// many batches are out, as there is nothing to hurry for then.
func (s *syncer) pushDue(now, deadline int64) (done bool) {
	var b *batch
	handled := 0
	for ; len(s.orphans) > 0; handled++ {
		if b = s.room(b); b == nil || s.late(handled, deadline) {
			s.send(b)
			return b == nil
		}
		last := &s.orphans[len(s.orphans)-1]
		b.add(&last.item, pushed{}, last.ends)
		s.orphans = s.orphans[:len(s.orphans)-1]
	}
	for ; s.at < len(s.dirty); s.at++ {
		d := s.dirty[s.at]
		if !s.leaving && (!d.due.Passed(now, d.rule.counter.SyncRate) || d.notBefore > now && d.notBefore-now <= d.rule.counter.SyncRate) {
			s.keep(d)
			continue
		}
		if b = s.room(b); b == nil || s.late(handled, deadline) {
			s.send(b)
			return b == nil
		}
		handled++
		if !s.claim(b, d, now) {
			d.notBefore = now + d.rule.counter.SyncRate
			s.keep(d)
		}
	}
	s.send(b)
	s.dirty = s.dirty[:s.kept]
	s.at, s.kept = 0, 0
	return true
}

func (s *syncer) keep(d dirtyKey) {
	s.dirty[s.kept] = d
	s.kept++
}

// room is a batch with room for one more key: b, or if that is full another one, after sending b. It is nil if too many
// batches are out.
func (s *syncer) room(b *batch) *batch {
	if b != nil && len(b.body) < batchBytes && b.answers < answerBytes && len(b.items) <= wire.MaxItems-maxLimits {
		return b
	}
	s.send(b)
	if oldest := s.oldest(); oldest != nil && s.sequence-oldest.sequence >= maxBehind {
		s.giveUp(oldest)
	}
	if len(s.batches) >= maxBatches {
		return nil
	}
	if n := len(s.idle); n > 0 {
		b = s.idle[n-1]
		s.idle = s.idle[:n-1]
	} else {
		b = &batch{}
	}
	s.sequence++
	*b = batch{sender: s.sender, sequence: s.sequence, body: b.body, items: b.items[:0], answer: b.answer}
	floor := b.sequence
	if oldest := s.oldest(); oldest != nil {
		floor = oldest.sequence
	}
	b.body = wire.AppendPushHeader(b.body[:0], s.plugin.config.Namespace, s.sender, s.sender, b.sequence, floor, 0)
	b.head = len(b.body)
	s.batches = append(s.batches, b)
	return b
}

// oldest is the first of this sender's batches that aren't done. There may be others, which were inherited.
func (s *syncer) oldest() *batch {
	for _, b := range s.batches {
		if b.sender == s.sender {
			return b
		}
	}
	return nil
}

// giveUp forgets a batch that the backend will never take.
func (s *syncer) giveUp(b *batch) {
	s.plugin.metrics.lost.add(b.hits)
	s.finish(b)
}

func (b *batch) add(item *wire.Item, p pushed, ends int64) {
	b.body = wire.AppendItem(b.body, item)
	b.items = append(b.items, p)
	b.answers += item.AnswerSize()
	b.ends = max(b.ends, ends)
}

// claim moves a key's pending hits in flight and adds them to a batch. A key that has none may be worth asking for, if other
// nodes' hits could fill its limit. It reports false if the key can't be claimed yet.
func (s *syncer) claim(b *batch, d dirtyKey, now int64) (done bool) {
	p, m := s.plugin, &s.match
	m.rule, m.address = d.rule, d.address
	for range p.table.Attempts() {
		p.fetch(m)
		if m.slot.Payload() == nil || m.cell.Sync().Due != d.due {
			return true // evicted, and its hits rescued; or another worker has it
		}
		pending := m.cell.Pending()
		switch {
		case pending:
			if !m.cell.Claim(now) {
				return false
			}
		case m.cell.Watched(now):
			m.cell.Ask(now)
		default:
			return true
		}
		if !p.write(m, now) {
			continue
		}
		for i := range m.cell.States {
			m.cell.Outgoing(i, &s.push)
			l := &m.rule.counter.Limits[i]
			if pending && l.Kind != window.SlidingBuckets && s.push.Newest < uint64(len(s.push.Hits)-1) {
				continue // a time that no clock had: the backend would refuse the batch
			}
			wanted := item(m.cell.Sync().ID, l, &s.push)
			b.add(&wanted, pushed{address: d.address, rule: d.rule, limit: int32(i), claim: m.cell.Sync().Claimed}, m.cell.PushEnds(i))
			b.hits += s.push.Taken()
			p.metrics.pushed.add(s.push.Taken())
		}
		if pending {
			m.cell.ClaimedOthers(func(id [16]byte, l *window.Limit, push *window.Push, ends int64) {
				if !s.rescue(id, l, push, ends) {
					p.metrics.lost.add(push.Taken())
				}
			})
		}
		return true
	}
	return false
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
	b.state, b.sentAt = sent, proxywasm.Now()
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
	switch {
	case !ok || !found || len(status) != 3:
		s.fail(b)
		return
	case status[0] != '2':
		if (string(status) == "400" || string(status) == "413") && refusedByBackend() {
			s.giveUp(b)
		} else {
			s.fail(b)
		}
		return
	}
	body, found := proxywasm.CalloutBody(wire.MaxAnswer)
	if !found || !b.accept(body, &s.total) {
		s.fail(b)
		return
	}
	b.state = answered
	s.failures, s.retryAt = 0, 0
	s.clock.see(b.sentAt, proxywasm.Now(), int64(b.reader.NowNanos))
	s.clock.write()
	s.settle(s.plugin.now() + tickNanos)
}

// refusedByBackend tells whether a refusal is the backend's own, for what the batch says, and not somebody's on the way, for
// how it was sent.
func refusedByBackend() bool {
	contentType, _ := proxywasm.CalloutHeader("content-type")
	return string(contentType) == "application/problem+json"
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
	var grant wire.Grant
	for rooms, ok := reader.NextGrant(&grant); ok; rooms, ok = reader.NextGrant(&grant) {
		for range rooms {
			reader.NextRoom(total)
		}
	}
	b.settled = 0
	return reader.Err() == nil
}

func (s *syncer) fail(b *batch) {
	s.plugin.metrics.failed.count()
	b.state = failed
	// Batches that were out together fail together: that is one failure.
	if now := s.plugin.now(); now >= s.retryAt || s.retryAt-now > 2*longestPause {
		pause := min(shortestPause<<min(s.failures, 10), longestPause)
		s.failures++
		s.retryAt = now + pause/2 + rand.Int64N(pause)
	}
}

// resend sends failed batches again once the pause is over, and forgets those that nobody can want any more.
func (s *syncer) resend(now int64) {
	for i := len(s.batches) - 1; i >= 0; i-- {
		if b := s.batches[i]; b.state == failed && now > b.ends {
			s.finish(b)
		} else if b.state == sent && s.failures > 0 {
			return // it tells whether the backend is back
		}
	}
	if now < s.retryAt && s.retryAt-now <= 2*longestPause {
		return
	}
	if len(s.batches) == 0 {
		s.failures = 0 // there is nothing left to try it with but what comes next
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
			if s.late(handled, deadline) {
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
	key := &b.items[first]
	last := first
	for last < len(b.items) && last-first < maxLimits && b.items[last].address == key.address && b.items[last].rule == key.rule {
		b.reader.Next(&s.total)
		t := &s.totals[last-first]
		t.Newest = s.total.Newest
		t.Hits = append(t.Hits[:0], s.total.Hits...)
		t.Ages = append(t.Ages[:0], s.total.Ages...)
		last++
	}
	b.settled = last
	if key.rule == nil {
		return
	}
	p, m := s.plugin, &s.match
	m.rule, m.address = key.rule, key.address
	for range p.table.Attempts() {
		p.fetch(m)
		if m.slot.Payload() == nil {
			return
		}
		for i := first; i < last; i++ {
			if limit := int(b.items[i].limit); limit < len(m.cell.States) {
				m.cell.Settle(limit, b.items[i].claim, &s.totals[i-first])
			}
		}
		now := p.now()
		if p.write(m, now) {
			if !m.cell.Pending() && m.cell.Watched(now) {
				s.remember(m)
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

// unfinished tells whether there is anything that the backend has yet to hear of.
func (s *syncer) unfinished() bool { return len(s.dirty)+len(s.orphans)+len(s.batches) > 0 }

// pushAll has everything pushed, whether or not it is due: now, as far as that is possible at once, and at the ticks to come.
func (s *syncer) pushAll() {
	s.leaving = true
	now := s.plugin.now()
	for !s.pushDue(now, now+tickNanos) && s.plugin.now() < now+leaveNanos {
	}
}

// inherit takes over what a syncer of the same namespace and backend leaves: its plugin's configuration has been replaced. Its
// callouts may never be answered, so its batches are sent again, as they are.
func (s *syncer) inherit(from *syncer) {
	for _, b := range from.batches {
		if b.state == sent {
			b.state = failed
		}
	}
	s.batches = append(from.batches, s.batches...)
	s.orphans = append(s.orphans, from.orphans...)
	s.dirty = append(s.dirty[:s.kept], s.dirty[s.at:]...)
	s.dirty = append(append(s.dirty, from.dirty[:from.kept]...), from.dirty[from.at:]...)
	s.at, s.kept = 0, 0
	from.batches, from.orphans, from.dirty, from.at, from.kept = nil, nil, nil, 0, 0
}
