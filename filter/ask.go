package filter

import (
	"weir/internal/counter"
	"weir/internal/proxywasm"
	"weir/internal/wire"
	"weir/sharedata"
	"weir/window"
)

// A request whose hits only the backend can allow waits: it is paused while a callout takes the wish along, and decided again when
// the answer is there. Requests that wait for the same key share a wish, and wishes share callouts. While the breaker is open nobody
// waits.
//
// What is granted goes into the key's entry as a lease, for all workers and for requests to come. With a sync_rate of 0 it goes to
// the request that asked.

const (
	// maxAsking bounds the callouts that requests wait for; more wishes join the next one.
	maxAsking = 4
	// maxUnanswered bounds the batches that are not done, those that failed among them: with so many nobody waits.
	maxUnanswered = 64
	// maxWaiting bounds the requests that wait.
	maxWaiting = 1 << 14
	// maxEager bounds the wishes that are made before a lease is used up: of so many keys at once some wait.
	maxEager = 4096
	// maxRounds is how often a request asks. Others may use up what it was waiting for.
	maxRounds = 3
)

// take is a wish for hits of a key, or of all keys of one request.
type take struct {
	parts []claimant
	least uint64
	most  uint64
	// lease tells that the hits are for the key's entry.
	lease   bool
	waiters []waiting
	// The answer's: whether it was taken in, with hits, and how many waiters have been told.
	landed  bool
	granted bool
	told    int
}

// claimant is a key of a take.
type claimant struct {
	address sharedata.Address
	rule    *Rule
	id      [16]byte
	cost    uint64
}

func (t *take) rooms() (n int) {
	for i := range t.parts {
		n += len(t.parts[i].rule.Limits)
	}
	return n
}

// wait has a request wait until the backend has been asked for what its matches lack. It reports false if that can't be: then what is
// known here has to do.
func (s *syncer) wait(r *Wait, matched []match) bool {
	now := proxywasm.Now()
	if len(s.waiting) >= maxWaiting || len(s.batches) >= maxUnanswered {
		return false
	}
	if !r.waiting {
		if !s.link.connected(now) || s.link.shared.failures >= breakAfter && len(s.batches) > 0 || !s.link.enter(now, s.timeout()) {
			return false // a push that has failed tells whether the backend is back
		}
		r.begin(now + s.timeout())
		r.keep(matched)
		// A callout that the proxy does not take fails at once, before the caller knows that the request waits.
		r.entering = true
		s.waiting = append(s.waiting, r.place())
		s.plugin.tallies.Waited++
	}
	w := r.place()
	r.rounds++
	if s.plugin.config.SyncRate == 0 {
		s.addWish(s.wholeRequest(w, matched))
	} else {
		for i := range matched {
			if m := &matched[i]; m.verdict == counter.Unsure {
				s.wish(m, m.cost, w)
			}
		}
	}
	s.askAll()
	waits := r.waiting || !r.entering
	r.entering = false
	return waits
}

// newTake makes a take of nothing yet.
func (s *syncer) newTake(least, most uint64) *take {
	n := len(s.spare)
	if n == 0 {
		return &take{least: least, most: most}
	}
	t := s.spare[n-1]
	s.spare = s.spare[:n-1]
	*t = take{parts: t.parts[:0], least: least, most: most, waiters: t.waiters[:0]}
	return t
}

// newLease makes a take of a lease for a match's key.
func (s *syncer) newLease(m *match, id [16]byte, least, most uint64) *take {
	t := s.newTake(least, most)
	t.lease = true
	t.parts = append(t.parts, claimant{address: m.address, rule: m.rule, id: id, cost: 1})
	return t
}

// recycle has a take used again that nothing refers to any more.
func (s *syncer) recycle(t *take) {
	if len(s.spare) < maxIdleTakes {
		clear(t.parts)
		clear(t.waiters)
		// A key that many wait for would leave its room to each of them in turn.
		if cap(t.waiters) > maxIdleParts {
			t.waiters = nil
		}
		if cap(t.parts) > maxIdleParts {
			t.parts = nil
		}
		s.spare = append(s.spare, t)
	}
}

// wholeRequest is a take for one request.
func (s *syncer) wholeRequest(w waiting, matched []match) *take {
	t := s.newTake(1, 1)
	t.waiters = append(t.waiters, w)
	for i := range matched {
		m := &matched[i]
		t.parts = append(t.parts, claimant{address: m.address, rule: m.rule, id: counter.Identity(m.key), cost: m.cost})
	}
	return t
}

// join has a waiter, if there is one, wait for a take.
func (t *take) join(w waiting) {
	if w.wait != nil {
		w.wait.asked++
		t.waiters = append(t.waiters, w)
	}
}

// wanted tells whether a take that was not sent yet is still of use: it was not asked for by requests that have all gone.
func (t *take) wanted() bool {
	for _, w := range t.waiters {
		if w.waits() {
			return true
		}
	}
	return len(t.waiters) == 0
}

// prefetch asks for more before the lease is used up.
func (s *syncer) prefetch(m *match, now int64) {
	if len(s.wishes) < maxEager && s.connected(now) {
		s.wish(m, 1, waiting{})
		s.askAll()
	}
}

// wish asks for a lease that has at least so many hits.
func (s *syncer) wish(m *match, least uint64, w waiting) {
	most := m.cell.Want(least, s.plugin.now())
	if t := s.wishFor(m); t != nil {
		switch {
		case !t.wanted():
			// Those who have gone need nothing.
			t.waiters, t.least, t.most = t.waiters[:0], least, most
		case w.wait != nil:
			// Each of those that wait needs its hits.
			most = min(max(most, t.most+least), window.MaxHits)
		}
		t.least, t.most = min(t.least, least), max(t.most, most)
		t.join(w)
		return
	}
	id := m.cell.Sync().ID
	if !m.cell.Identified() {
		id = counter.Identity(m.key)
	}
	t := s.newLease(m, id, least, most)
	t.join(w)
	s.addWish(t)
	s.wished[m.address] = t
}

// leastWishes is how many wishes are kept without looking for those that nobody wants any more.
const leastWishes = 64

// addWish keeps a wish until it can be asked for. Where that takes long, others may have lost those who waited: they are looked for
// whenever there are twice as many wishes as were wanted the last time.
func (s *syncer) addWish(t *take) {
	if len(s.wishes) >= max(s.crowd, leastWishes) {
		s.dropUnwanted()
		s.crowd = 2 * len(s.wishes)
	}
	s.wishes = append(s.wishes, t)
}

// dropUnwanted forgets the wishes that nobody waits for any more.
func (s *syncer) dropUnwanted() {
	kept := s.wishes[:0]
	for _, t := range s.wishes {
		if t.wanted() {
			kept = append(kept, t)
		} else {
			s.unwish(t)
			s.recycle(t)
		}
	}
	clear(s.wishes[len(kept):])
	s.wishes = kept
}

// wishFor is the wish for a match's key that no callout has taken along yet. There may be as many as requests that wait.
func (s *syncer) wishFor(m *match) *take {
	if t := s.wished[m.address]; t != nil && t.parts[0].rule == m.rule {
		return t
	}
	return nil
}

// unwish notes that a take is no wish any more.
func (s *syncer) unwish(t *take) {
	if t.lease && s.wished[t.parts[0].address] == t {
		delete(s.wished, t.parts[0].address)
	}
}

// askAll has callouts take the wishes along, if not too many are out that somebody waits for, for as long as that may take. A callout
// that isn't full waits for the wishes that there was no time for: as there may be few of them, small ones would make all others wait. It
// decides no request, as one may be being decided: the ticks to come do so if a callout fails at once.
func (s *syncer) askAll() {
	if len(s.wishes) > 0 {
		start := proxywasm.Now()
		deadline := s.until
		if deadline == 0 {
			deadline = start + askNanos
		}
		n := 0
		for late := start >= deadline; n < len(s.wishes) && s.asking < maxAsking && !late; late = s.late(n, deadline) {
			if t := s.wishes[n]; !t.wanted() {
				s.unwish(t)
				s.recycle(t)
			} else if !s.takeAlong(t, start+s.link.offset) {
				s.ask()
				continue
			}
			n++
		}
		rest := copy(s.wishes, s.wishes[n:])
		clear(s.wishes[rest:])
		s.wishes = s.wishes[:rest]
	}
	if len(s.wishes) == 0 {
		s.ask()
	}
	s.hurry(s.hurried || len(s.wishes)+len(s.released) > 0)
}

// takeAlong has the open callout take a wish along. It reports false if that has no room for it.
func (s *syncer) takeAlong(t *take, now int64) bool {
	b := s.open
	if b == nil {
		b = s.newBatch()
		s.open = b
	}
	if len(b.takes) > 0 && (len(b.body) >= batchBytes || b.answers >= answerBytes || len(b.items)+b.rooms+2*t.rooms() > wire.MaxItems) {
		return false
	}
	s.claimAlong(b, t, now)
	s.addTake(b, t, now)
	s.unwish(t)
	return true
}

// ask sends the open callout, if there is one.
func (s *syncer) ask() {
	if b := s.open; b != nil {
		s.open = nil
		b.asking = true
		s.asking++
		s.post(b)
	}
}

// putOff closes the open callout, if there is one, without sending it. Nobody waits for it any more.
func (s *syncer) putOff() {
	if b := s.open; b != nil {
		s.open = nil
		b.close()
		b.state, b.retryAt = failed, 0
		for _, t := range b.takes {
			s.unanswered(t)
		}
	}
}

// dropWishes drops all wishes, as the backend can't be asked.
func (s *syncer) dropWishes() {
	s.putOff()
	clear(s.wished) // they all are wishes
	for _, t := range s.wishes {
		s.unanswered(t)
	}
	clear(s.wishes)
	s.wishes = s.wishes[:0]
}

// claimAlong adds what a wish's key has pending to its batch, so that the backend decides with it, and no push of its own is needed.
func (s *syncer) claimAlong(b *batch, t *take, now int64) {
	if !t.lease {
		return
	}
	p, m := s.plugin, &s.match
	m.rule, m.address = t.parts[0].rule, t.parts[0].address
	if p.read(m, now); m.slot.Payload() == nil || !m.cell.Pending() || !m.cell.Claim(now) || !p.write(m, now) {
		return // then another worker has it, or it is pushed later
	}
	s.addClaimed(b, m)
}

// addTake adds a wish to a batch.
func (s *syncer) addTake(b *batch, t *take, now int64) {
	s.rooms = s.rooms[:0]
	for i := range t.parts {
		part := &t.parts[i]
		for j := range part.rule.Limits {
			l := &part.rule.Limits[j]
			room := wire.Room{
				Counter: counterOf(part.id, l), Limit: l.Max, Cost: part.cost,
				CountRejected: !t.lease && part.rule.CountRejected,
			}
			if l.Kind == window.TokenBucket {
				room.Burst = l.Burst
			}
			s.rooms = append(s.rooms, room)
			b.ends = max(b.ends, now+2*l.Width)
		}
	}
	wanted := wire.Take{Least: t.least, Most: t.most, Lease: t.lease, Rooms: s.rooms}
	b.reserve()
	b.body = wire.AppendTake(b.body, &wanted)
	b.answers += wanted.AnswerSize()
	b.rooms += len(s.rooms)
	b.takes = append(b.takes, t)
}

// settleTake takes in the grant of a batch's next take, or lets the next of the requests go on that wait for it: there may be many. It
// tells whether that was all.
func (s *syncer) settleTake(b *batch, t *take) (done bool) {
	if !t.landed {
		t.landed = true
		s.takeGrant(b, t)
		return len(t.waiters) == 0 || !t.lease
	}
	for t.told < len(t.waiters) {
		w := t.waiters[t.told]
		t.told++
		if !w.waits() {
			continue
		}
		// A request of several rules goes on when it has heard of all, or one had no hits.
		if w.wait.asked--; w.wait.asked <= 0 || !t.granted {
			s.retry(w, t.granted)
			break
		}
	}
	return t.told == len(t.waiters)
}

// takeGrant takes in the grant of a batch's next take. One for a single request decides that.
func (s *syncer) takeGrant(b *batch, t *take) {
	var grant wire.Grant
	b.reader.NextGrant(&grant)
	t.granted = grant.Units > 0
	for i := range t.parts {
		n := len(t.parts[i].rule.Limits)
		for j := range n {
			b.reader.NextRoom(&s.total)
			total := &s.totals[j]
			total.Newest = s.total.Newest
			total.Hits = append(total.Hits[:0], s.total.Hits...)
			total.Ages = append(total.Ages[:0], s.total.Ages...)
		}
		if t.lease {
			s.land(&t.parts[i], &grant, t.most, int64(b.reader.NowNanos))
			continue
		}
		if !t.waiters[0].waits() {
			// The request is gone, or was decided without the backend.
			for j := range n {
				s.giveBack(&t.parts[i], j, grant.Units*t.parts[i].cost, int64(grant.AtNanos))
			}
		}
		s.learn(&t.parts[i], int64(b.reader.NowNanos))
	}
	if !t.lease {
		if w := t.waiters[0]; w.waits() {
			s.decideBy(w, t.granted)
		}
	}
}

// land puts a grant into a key's entry.
func (s *syncer) land(part *claimant, grant *wire.Grant, most uint64, answered int64) {
	units, at := grant.Units, int64(grant.AtNanos)
	p, m := s.plugin, &s.match
	m.rule, m.address = part.rule, part.address
	var lost [maxLimits]bool
	for range p.table.Attempts() {
		now := p.now()
		if p.read(m, now); !m.cell.Identified() {
			m.cell.Identify(part.id)
		}
		owned := m.cell.Pending()
		for i := range m.cell.States {
			lost[i] = !m.cell.Land(i, units, at, answered, &s.totals[i])
		}
		m.cell.Landed(units, most, now, s.plugin.vm.rand().Float64())
		m.cell.Heard(answered)
		again := m.cell.Own(owned, now)
		if p.write(m, now) {
			if again {
				s.remember(m)
			}
			for i := range m.cell.States {
				if lost[i] && units > 0 {
					s.giveBack(part, i, units, at)
				}
			}
			return
		}
	}
	p.tallies.GivenUp++
	for i := range part.rule.Limits {
		s.giveBack(part, i, units, at)
	}
}

// giveBack pushes hits that were granted for limit i, and have no place here, back to where they were counted.
func (s *syncer) giveBack(part *claimant, i int, hits uint64, at int64) {
	if hits == 0 {
		return
	}
	l := &part.rule.Limits[i]
	push := &s.push
	push.Newest = l.LeaseNumber(at, &s.totals[i])
	push.Hits, push.Ages = append(push.Hits[:0], -int64(hits)), push.Ages[:0]
	if l.Kind == window.SlidingBuckets {
		push.Ages = append(push.Ages, 0)
	}
	s.rescue(part.id, l, push, s.plugin.now()+2*l.Width) // if there is no room, the hits stay unused until their window ends
}

// learn keeps the totals of an answer in a key's entry, for the headers, and for the time when the backend is away.
func (s *syncer) learn(part *claimant, answered int64) {
	p, m := s.plugin, &s.match
	m.rule, m.address = part.rule, part.address
	for range p.table.Attempts() {
		now := p.now()
		p.read(m, now)
		if m.slot.Payload() == nil && s.nothing(len(m.cell.States)) {
			return
		}
		if !m.cell.Identified() {
			m.cell.Identify(part.id)
		}
		for i := range m.cell.States {
			m.cell.Learn(i, answered, &s.totals[i])
		}
		m.cell.Heard(answered)
		if p.write(m, now) {
			return
		}
	}
	p.tallies.GivenUp++
}

// nothing tells whether the first totals have no hits.
func (s *syncer) nothing(limits int) bool {
	for i := range limits {
		for _, hits := range s.totals[i].Hits {
			if hits != 0 {
				return false
			}
		}
	}
	return true
}

// decideBy decides a waiting request as the backend has.
func (s *syncer) decideBy(w waiting, granted bool) {
	p := s.plugin
	matched := s.plugin.takeUp(w.wait)
	full := false
	for i := range matched {
		m := &matched[i]
		if p.read(m, p.now()); !granted && !m.cell.Allows(m.cost) {
			m.verdict, full = counter.Rejected, true
		}
	}
	if granted {
		s.finishWaiting(w, matched, counter.Allowed)
		return
	}
	for i := range matched {
		if !full {
			matched[i].verdict = counter.Rejected // which of them was full is not known here
		}
	}
	s.finishWaiting(w, matched, counter.Rejected)
}

// retry decides a waiting request again, with what has been granted by now.
func (s *syncer) retry(w waiting, granted bool) {
	p := s.plugin
	matched := s.plugin.takeUp(w.wait)
	verdict := p.decide(matched, p.now())
	if verdict == counter.Unsure {
		w.wait.asked = 0
		if granted && w.wait.rounds < maxRounds && proxywasm.Now() < w.wait.until && s.wait(w.wait, matched) {
			return
		}
		verdict = p.refuse(matched, p.now())
	}
	s.finishWaiting(w, matched, verdict)
}

// heard notes that a batch's callout has ended.
func (s *syncer) heard(b *batch) {
	if b.asking {
		b.asking = false
		s.asking--
	}
}

// unanswered has the requests that wait for a take decided without the backend. Not at once, as another may be being decided: by
// decideReleased.
func (s *syncer) unanswered(t *take) {
	for _, w := range t.waiters {
		switch {
		case !w.waits():
		case w.wait.entering:
			s.forget(w) // who makes it wait decides it
		default:
			s.released = append(s.released, w)
		}
	}
	if t.lease {
		t.waiters = nil
	}
}

// decideReleased decides, without the backend, the requests whose callouts have failed, for as long as that may take. Call it outside of a
// request's callbacks.
func (s *syncer) decideReleased(deadline int64) {
	for handled := 0; len(s.released) > 0 && !s.late(handled, deadline); handled++ {
		w := s.released[0]
		if s.released = s.released[1:]; w.waits() {
			s.giveUpOn(w)
		}
	}
	if len(s.released) == 0 {
		s.released = nil
	}
}

// giveUpWaiting decides, without the backend, the requests that have waited long enough, and forgets those that are gone. It reports
// false if there are more.
func (s *syncer) giveUpWaiting(deadline int64) (done bool) {
	now := proxywasm.Now()
	for handled := 0; len(s.waiting) > 0; handled++ {
		switch w := s.waiting[0]; {
		case !w.waits():
			s.waiting = s.waiting[1:]
		case s.late(handled, deadline):
			return false
		case now >= w.wait.until || w.wait.until-now > s.timeout():
			s.giveUpOn(w)
		default:
			return true
		}
	}
	s.waiting = nil
	return true
}

// giveUpOn decides a waiting request without the backend.
func (s *syncer) giveUpOn(w waiting) {
	p := s.plugin
	matched := s.plugin.takeUp(w.wait)
	s.finishWaiting(w, matched, p.decideAlone(matched, p.now()))
}

// forget has a request wait no more.
func (s *syncer) forget(w waiting) {
	w.wait.waiting = false
	// The others that are done leave when they are the first.
	for len(s.waiting) > 0 && !s.waiting[0].waits() {
		s.waiting = s.waiting[1:]
	}
}

// finishWaiting ends a request's waiting.
func (s *syncer) finishWaiting(w waiting, matched []match, verdict counter.Verdict) {
	s.forget(w)
	w.wait.waiter.Decided(matched, s.plugin.now(), verdict)
}
