package filter

import (
	"slices"

	"weir/internal/counter"
	"weir/internal/proxywasm"
	"weir/internal/wire"
	"weir/sharedata"
	"weir/window"
)

// syncer keeps counters in step with the backend, without a leader. The worker whose hit makes a key pending remembers it,
// and claims it when its push is due: by compare-and-set, what is pending moves in flight, so that it is pushed once. Claimed
// keys go to the backend in batches; a batch is sent again, unchanged, until it is answered, and the backend applies it once.
// The answer's totals go back into the entries.
//
// A key that takes more than the hits that are free asks for a lease: see ask.go.
//
// The tick runs on the thread that serves requests, so it works for about a millisecond at most, or half of one more if requests
// wait, and then asks for the next tick soon. The same goes for an answer.
type syncer struct {
	plugin     *plugin
	node       uint64
	sender     uint64
	sequence   uint64
	tickMillis uint32 // while there is no more to do than usual
	hurried    bool   // whether ticks come every millisecond
	leaving    bool   // whether everything is due, as the plugin context is about to go

	dirty   dirtyKeys
	crowded bool     // whether keys that are due wait for an answer, as too many batches are out
	orphans []orphan // pending hits of counters that had to make room
	batches []*batch // that aren't done, in the order of their sequence
	idle    []*batch
	link    link
	greeted bool // whether the backend was asked how many nodes there are

	wishes  []*take                     // that no callout has taken along yet
	wished  map[sharedata.Address]*take // the leases of wishes
	crowd   int                         // as many wishes as this are looked through for those that nobody wants
	spare   []*take
	open    *batch // that wishes go into, and isn't sent before it is full or there are no more
	asking  int    // callouts that somebody waits for
	waiting []waiting
	// released are requests that wait for nothing any more, and are to be decided without the backend.
	released []waiting
	// until is when the plugin's callback that is running is to be over, 0 in those of requests. As all deadlines it is by the proxy's
	// clock, which no answer corrects.
	until int64

	match   match // scratch
	total   wire.Total
	totals  [maxLimits]window.Totals
	headers proxywasm.Pairs
	push    window.Push
	rooms   []wire.Room
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
	batchBytes = 64 << 10
	// usualBytes and usualItems are what a batch has that a tick fills. The runtime keeps a word for itself in front of items, and they
	// should fill a size class all the same.
	usualBytes = 16 << 10
	usualItems = 511
	// maxIdleTakes bounds the takes that are kept to be used again, and maxIdleParts the keys and waiters that each keeps room for.
	maxIdleTakes = 2048
	maxIdleParts = 16
	answerBytes  = wire.MaxAnswer / 2
	// tickNanos is how long a tick may work, and tickKeys how many keys or requests it handles between two looks at the clock.
	tickNanos = int64(1e6)
	tickKeys  = 16
	// askNanos is how long wishes may be taken along after that: if pushes left them no time, requests would wait for these.
	askNanos = tickNanos / 2
	// leastNanos is what asking, and letting requests go, have of a tick in any case.
	leastNanos = tickNanos / 4
)

// orphan is what an evicted counter had for the backend.
type orphan struct {
	item wire.Item
	ends int64
}

// batch is a push: what was sent, and what to do with the answer.
type batch struct {
	sender   uint64
	sequence uint64
	body     []byte // and once it is answered, the answer
	head     int    // length of the body's header
	items    []pushed
	takes    []*take
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
	reader   wire.AnswerReader
	settled  int // items
	taken    int // takes whose grants were taken in
}

// pushed is where the answer to an item goes.
type pushed struct {
	address sharedata.Address
	rule    *Rule // nil for an orphan, whose counter is no longer in the table
	limit   int32
	claim   counter.Due
}

type batchState uint8

const (
	filling batchState = iota
	sent
	failed
	answered
)

func newSyncer(p *plugin) *syncer {
	millis := p.syncRate() / 1e6
	// Ten ticks an interval, so that a new key needn't wait long; spread, so that the workers of all proxies don't tick at once.
	tick := max(1, min(millis/10, 100))
	tick += p.vm.rand().Int64N(tick/4 + 1)
	s := &syncer{plugin: p, node: p.table.ID(), sender: p.vm.rand().Uint64(), tickMillis: uint32(tick), link: newLink(p.config.Namespace, p.vm.rand()), wished: map[sharedata.Address]*take{}}
	s.link.read()
	return s
}

// connected tells whether the backend can be reached, as far as is known.
func (s *syncer) connected(now int64) bool { return s.link.connected(now - s.link.offset) }

// remember has a key pushed when it is due.
func (s *syncer) remember(m *match) { s.dirty.add(m.address, m.rule, m.cell.Sync().Due) }

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
	return wire.Item{Counter: counterOf(id, l), Limit: l.Max, Newest: push.Newest, Hits: push.Hits, Ages: push.Ages}
}

func counterOf(id [16]byte, l *window.Limit) wire.Counter {
	return wire.Counter{
		ID: id, Kind: uint8(l.Kind), Ordinal: l.Ordinal, WidthMillis: uint64(l.Width / window.MinWidth), Precision: uint64(l.Precision),
	}
}

// tick does what is due, for as long as a tick may take.
func (s *syncer) tick() {
	s.link.read()
	s.plugin.share(uint64(s.link.shared.nodes))
	start := proxywasm.Now()
	deadline := start + tickNanos
	s.until = deadline
	done := s.settle(deadline)
	s.resend(start + s.link.offset)
	// Whoever waits for nothing comes before pushes, which could take all the time for as long as they like.
	s.until = max(deadline, proxywasm.Now()+leastNanos)
	done = s.giveUpWaiting(s.until) && done
	s.decideReleased(s.until)
	if s.link.open() {
		s.dropWishes()
		s.probe()
	} else {
		if done {
			s.greet()
			done = s.pushDue(start+s.link.offset, deadline)
		}
		s.until = max(deadline+askNanos, proxywasm.Now()+leastNanos)
		s.askAll()
	}
	s.decideReleased(s.until)
	s.until = 0
	s.hurry(!done || len(s.wishes)+len(s.released) > 0)
}

// hurry asks for ticks every millisecond while there is more to do than usual.
func (s *syncer) hurry(more bool) {
	if s.hurried == more {
		return
	}
	if s.hurried = more; more {
		proxywasm.SetTickPeriod(1)
	} else {
		proxywasm.SetTickPeriod(s.tickMillis)
	}
}

// greet asks the backend for its time and the number of nodes, once, unless another worker knows.
func (s *syncer) greet() {
	if s.greeted || s.link.shared.nodes != 0 || len(s.batches) > 0 {
		return
	}
	s.greeted = true
	s.postEmpty()
}

// probe looks whether the backend is back, if there is something for it, and no batch to be sent again that would tell.
func (s *syncer) probe() {
	if len(s.batches) == 0 && s.dirty.count+len(s.orphans) > 0 && s.link.enter(proxywasm.Now(), s.timeout()) {
		s.postEmpty()
	}
}

// postEmpty sends a batch of nothing, for what every answer tells.
func (s *syncer) postEmpty() {
	b := s.newBatch()
	b.ends = s.plugin.now() + longestPause
	s.post(b)
}

func (s *syncer) timeout() int64 { return int64(s.plugin.config.Backend.Timeout) }

// late tells whether a tick's time is over, looking at the clock for some keys only.
func (s *syncer) late(handled int, deadline int64) bool {
	return handled%tickKeys == tickKeys-1 && proxywasm.Now() >= deadline
}

// pushDue claims the keys that are due and sends them. It reports false if there are more; not if they have to wait because too
// many batches are out, as there is nothing to hurry for until one of them is answered.
func (s *syncer) pushDue(now, deadline int64) (done bool) {
	var b *batch
	handled := 0
	s.crowded = false
	for ; len(s.orphans) > 0; handled++ {
		if b = s.room(b); b == nil || s.late(handled, deadline) {
			s.send(b)
			s.crowded = b == nil
			return b == nil
		}
		last := &s.orphans[len(s.orphans)-1]
		b.add(&last.item, pushed{}, last.ends)
		s.orphans = s.orphans[:len(s.orphans)-1]
	}
	keys := &s.dirty
	for keys.more() {
		if !s.leaving && keys.calm(now) {
			keys.skip()
			continue
		}
		for {
			d, ok := keys.next()
			if !ok {
				break
			}
			if wake, waits := s.waits(d, now); waits {
				keys.keep(*d, now, wake)
				continue
			}
			if b = s.room(b); b == nil || s.late(handled, deadline) {
				s.send(b)
				s.crowded = b == nil
				return b == nil
			}
			handled++
			s.pushKey(b, *d, now)
		}
		keys.skip()
		if keys.block < len(keys.blocks) && proxywasm.Now() >= deadline {
			s.send(b)
			return false
		}
	}
	keys.rewind()
	s.send(b)
	return true
}

// waits tells whether a key is not due yet, and since when it may be.
func (s *syncer) waits(d *dirtyKey, now int64) (wake int64, waits bool) {
	if s.leaving {
		return 0, false
	}
	r := s.dirty.rules[d.rule]
	if !d.due.Passed(now, r.LongestDue()) {
		return now + d.due.In(now) - dueSlack, true
	}
	return d.notBefore, d.notBefore > now && d.notBefore-now <= r.SyncRate
}

// pushKey claims the key that is being visited, and keeps it if there is more to do for it later.
func (s *syncer) pushKey(b *batch, d dirtyKey, now int64) {
	switch r := s.dirty.rules[d.rule]; s.claim(b, &d, r, now) {
	case claimLater:
		d.notBefore = now + r.SyncRate
		s.dirty.keep(d, now, 0)
	case claimReview:
		s.dirty.keep(d, now, 0)
	case claimDone:
		s.dirty.forget()
	}
}

// room is a batch with room for one more key: b, or if that is full another one, after sending b. It is nil if too many
// batches are out.
func (s *syncer) room(b *batch) *batch {
	if b != nil && len(b.body) < batchBytes && b.answers < answerBytes && len(b.items)+b.rooms <= wire.MaxItems-2*maxLimits {
		return b
	}
	s.send(b)
	if len(s.batches) >= maxBatches {
		return nil
	}
	return s.newBatch()
}

// newBatch begins a batch.
func (s *syncer) newBatch() (b *batch) {
	if oldest := s.oldest(); oldest != nil && oldest.state != answered && s.sequence-oldest.sequence >= maxBehind {
		s.giveUp(oldest)
	}
	if n := len(s.idle); n > 0 {
		b = s.idle[n-1]
		s.idle = s.idle[:n-1]
	} else {
		b = &batch{body: make([]byte, 0, usualBytes), items: make([]pushed, 0, usualItems)}
	}
	s.sequence++
	*b = batch{sender: s.sender, sequence: s.sequence, body: b.body, items: b.items[:0], takes: b.takes[:0]}
	floor := b.sequence
	if oldest := s.oldest(); oldest != nil {
		floor = oldest.sequence
	}
	b.body = wire.AppendPushHeader(b.body[:0], s.plugin.config.Namespace, s.node, s.sender, b.sequence, floor, 0)
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
	s.plugin.tallies.Lost += b.hits
	s.heard(b)
	takes := b.takes
	b.takes = nil
	s.finish(b)
	for _, t := range takes {
		s.unanswered(t)
	}
}

// reserve makes room for a usual item or take: by doubling, which leaves less to the garbage collector than append does.
func (b *batch) reserve() {
	if cap(b.body)-len(b.body) < 128 {
		b.body = slices.Grow(b.body, cap(b.body))
	}
}

func (b *batch) add(item *wire.Item, p pushed, ends int64) {
	b.reserve()
	b.body = wire.AppendItem(b.body, item)
	b.items = append(b.items, p)
	b.answers += item.AnswerSize()
	b.ends = max(b.ends, ends)
}

// claiming says what becomes of a key that was due.
type claiming uint8

const (
	// claimDone keys are forgotten.
	claimDone claiming = iota
	// claimReview keys have a lease that is reviewed at their new due time.
	claimReview
	// claimLater keys can't be claimed yet.
	claimLater
)

// claim moves a key's pending hits in flight and adds them to a batch, with a wish for a lease if the key is hit regularly. A lease that
// is of no use any more is given back.
func (s *syncer) claim(b *batch, d *dirtyKey, r *Rule, now int64) claiming {
	p, m := s.plugin, &s.match
	m.rule, m.address = r, d.address
	for range p.table.Attempts() {
		p.fetch(m)
		if m.slot.Payload() == nil || m.cell.Sync().Due != d.due {
			return claimDone // evicted, and its hits rescued; or another worker has it
		}
		m.cell.Advance(now)
		changed := m.cell.Pending() // a lease that goes back may be as large as what is pending
		again := m.cell.Review(now) && !s.leaving
		if s.leaving {
			m.cell.ReturnLeases()
		}
		pending := m.cell.Pending()
		if !pending {
			if (again || changed) && !p.write(m, now) {
				continue
			}
			if again {
				d.due = m.cell.Sync().Due
				return claimReview
			}
			return claimDone
		}
		wish := !s.leaving && !again && m.cell.Regular(now)
		want := uint64(0)
		if wish {
			want = m.cell.Want(1, now)
		}
		if !m.cell.Claim(now) {
			return claimLater
		}
		if !p.write(m, now) {
			continue
		}
		s.addClaimed(b, m)
		if wish {
			s.addTake(b, s.newLease(m, m.cell.Sync().ID, 1, want), now)
		}
		return claimDone
	}
	return claimLater
}

// addClaimed adds what a claimed key has in flight to a batch.
func (s *syncer) addClaimed(b *batch, m *match) {
	for i := range m.cell.States {
		m.cell.Outgoing(i, &s.push)
		l := &m.rule.Limits[i]
		if l.Kind != window.SlidingBuckets && s.push.Newest < uint64(len(s.push.Hits)-1) {
			continue // a time that no clock had: the backend would refuse the batch
		}
		wanted := item(m.cell.Sync().ID, l, &s.push)
		b.add(&wanted, pushed{address: m.address, rule: m.rule, limit: int32(i), claim: m.cell.Sync().Claimed}, m.cell.PushEnds(i))
		b.hits += s.push.Taken()
		s.plugin.tallies.Pushed += s.push.Taken()
	}
	m.cell.ClaimedOthers(func(id [16]byte, l *window.Limit, push *window.Push, ends int64) {
		if !s.rescue(id, l, push, ends) {
			s.plugin.tallies.Lost += push.Taken()
		}
	})
}

// send sends a batch that was filled, and forgets one that stayed empty.
func (s *syncer) send(b *batch) {
	switch {
	case b == nil || b.state != filling:
	case len(b.items)+len(b.takes) == 0:
		s.finish(b)
	default:
		s.post(b)
	}
}

// close ends the filling of a batch.
func (b *batch) close() { wire.SetCount(b.body, b.head, len(b.items)+len(b.takes)) }

// post makes a callout of a batch. Its answer, or the lack of one, arrives later.
func (s *syncer) post(b *batch) {
	if b.state == filling {
		b.close()
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
	sender, sequence := b.sender, b.sequence
	if !proxywasm.Dispatch(&proxywasm.Callout{
		Plugin:        s.plugin.id,
		Cluster:       backend.Cluster,
		Headers:       &s.headers,
		Body:          b.body,
		TimeoutMillis: uint32(backend.Timeout.Milliseconds()),
		Done: func(ok bool) {
			// A batch's memory is used again, and it may be sent again before this ends.
			if b.sender == sender && b.sequence == sequence && b.state == sent {
				s.done(b, ok)
			}
		},
	}) {
		s.fail(b)
	}
}

// done takes in the end of a callout: an answer to keep and settle, or a failure.
func (s *syncer) done(b *batch, ok bool) {
	deadline := proxywasm.Now() + tickNanos
	s.until = deadline
	more := false
	if s.takeIn(b, ok) {
		more = !s.settle(deadline) || s.crowded
		s.until = max(deadline, proxywasm.Now()+leastNanos)
		s.askAll()
	}
	s.decideReleased(s.until)
	s.until = 0
	s.hurry(s.hurried || more || len(s.released) > 0)
}

// takeIn keeps the answer to a batch, and tells whether it was one.
func (s *syncer) takeIn(b *batch, ok bool) (answer bool) {
	status, found := proxywasm.CalloutHeader(":status")
	switch {
	case !ok || !found || len(status) != 3:
		s.fail(b)
		return false
	case status[0] != '2':
		if (string(status) == "400" || string(status) == "413") && refusedByBackend() {
			s.giveUp(b)
		} else {
			s.fail(b)
		}
		return false
	}
	body, found := proxywasm.CalloutBody(wire.MaxAnswer)
	if !found || !b.accept(body, &s.total) {
		s.fail(b)
		return false
	}
	s.heard(b)
	b.state = answered
	s.link.answered(b.sentAt, proxywasm.Now(), int64(b.reader.NowNanos), b.reader.Nodes)
	s.plugin.share(uint64(s.link.shared.nodes))
	return true
}

// refusedByBackend tells whether a refusal is the backend's own, for what the batch says, and not somebody's on the way, for
// how it was sent.
func refusedByBackend() bool {
	contentType, _ := proxywasm.CalloutHeader("content-type")
	return string(contentType) == "application/problem+json"
}

// accept checks a whole answer before anything of it is believed, and keeps it in place of the push.
func (b *batch) accept(body []byte, total *wire.Total) bool {
	reader, err := wire.NewAnswerReader(body)
	if err != nil || reader.Count != len(b.items) {
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
		if i >= len(b.takes) || rooms != b.takes[i].rooms() || grant.Units > b.takes[i].most {
			return false
		}
		for range rooms {
			reader.NextRoom(total)
		}
	}
	if reader.Err() != nil || reader.Grants != len(b.takes) {
		return false
	}
	b.body = append(b.body[:0], body...)
	b.reader, _ = wire.NewAnswerReader(b.body)
	b.settled, b.taken = 0, 0
	return true
}

// fail has a batch sent again after a pause. Nobody waits for it any more.
func (s *syncer) fail(b *batch) {
	s.plugin.tallies.Failed++
	s.heard(b)
	b.state = failed
	now := proxywasm.Now()
	pause := min(shortestPause<<min(b.failures, 10), longestPause)
	b.failures++
	b.retryAt = s.plugin.now() + pause/2 + s.plugin.vm.rand().Int64N(pause)
	s.link.failed(now, b.sentAt)
	for _, t := range b.takes {
		s.unanswered(t)
	}
}

// resend sends failed batches again once their pause is over, and forgets those that nobody can want any more. While the breaker is
// open one batch tells whether the backend is back. A callout that has not ended long after its timeout has failed.
func (s *syncer) resend(now int64) {
	clock := proxywasm.Now()
	for _, b := range s.batches {
		if ago := clock - b.sentAt; b.state == sent && (ago > s.timeout()+longestPause || ago < -longestPause) {
			s.fail(b)
		}
	}
	for i := len(s.batches) - 1; i >= 0; i-- {
		if b := s.batches[i]; b.state == failed && now > b.ends {
			s.finish(b)
		}
	}
	for i := range s.batches {
		// Another one each time, in case it is the batch that is at fault.
		b := s.batches[(i+int(s.link.shared.failures))%len(s.batches)]
		if b.state != failed || now < b.retryAt && b.retryAt-now <= 2*longestPause {
			continue
		}
		if !s.link.enter(proxywasm.Now(), s.timeout()) {
			return
		}
		s.post(b)
	}
}

// settle takes answers into the table. It reports false if there is more.
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
		for b.taken < len(b.takes) {
			if s.late(handled, deadline) {
				return false
			}
			if s.settleTake(b, b.takes[b.taken]) {
				b.taken++
			}
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
				m.cell.Settle(limit, b.items[i].claim, int64(b.reader.NowNanos), &s.totals[i-first])
			}
		}
		m.cell.Heard(int64(b.reader.NowNanos))
		now := p.now()
		m.cell.RunDry(now, s.plugin.vm.rand().Float64())
		again := m.cell.Own(m.cell.Pending(), now)
		if p.write(m, now) {
			if again {
				s.remember(m)
			}
			return
		}
	}
	// The hits stay in flight until they are abandoned: counted here, and in the backend.
	p.tallies.GivenUp++
}

//go:noinline
func (s *syncer) finish(b *batch) {
	for i := range s.batches {
		if s.batches[i] == b {
			s.batches = append(s.batches[:i], s.batches[i+1:]...)
			break
		}
	}
	for _, t := range b.takes {
		s.recycle(t)
	}
	clear(b.takes)
	s.idle = append(s.idle, b)
}

// unfinished tells whether there is anything that the backend has yet to hear of.
func (s *syncer) unfinished() bool { return s.dirty.count+len(s.orphans)+len(s.batches) > 0 }

// releaseAll has nobody wait any more.
func (s *syncer) releaseAll() {
	s.dropWishes()
	for len(s.waiting) > 0 {
		if w := s.waiting[0]; w.waits() {
			s.giveUpOn(w)
		} else {
			s.forget(w)
		}
	}
	s.released = nil
}

// pushAll has everything pushed, whether or not it is due: now, as far as that is possible at once, and at the ticks to come.
func (s *syncer) pushAll() {
	s.leaving = true
	start := proxywasm.Now()
	for !s.pushDue(start+s.link.offset, start+tickNanos) && proxywasm.Now() < start+leaveNanos {
	}
}

// inherit takes over what a syncer of the same namespace and backend leaves: its plugin's configuration has been replaced. Its
// callouts may never be answered, so its batches are sent again, as they are.
func (s *syncer) inherit(from *syncer) {
	for _, b := range from.batches {
		if b.state == sent {
			b.state = failed
		}
		from.heard(b)
		b.retryAt = 0
	}
	s.batches = append(from.batches, s.batches...)
	s.orphans = append(s.orphans, from.orphans...)
	s.dirty.inherit(&from.dirty)
	from.batches, from.orphans = nil, nil
}
